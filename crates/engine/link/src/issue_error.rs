use std::fmt;

/// Keys or certificates could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a relay identity ({what}): {problem}")]
pub struct IssueError {
    what: &'static str,
    problem: String,
}

pub(crate) fn failed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> IssueError {
    move |problem| IssueError { what, problem: problem.to_string() }
}
