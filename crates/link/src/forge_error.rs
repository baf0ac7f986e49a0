use std::fmt;

/// Keys or certificates could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a relay identity ({what}): {problem}")]
pub struct ForgeError {
    what: &'static str,
    problem: String,
}

impl ForgeError {
    /// The TLS library refuses what we made.
    pub(crate) fn of_tls(error: &rustls::Error) -> Self {
        Self { what: "TLS configuration", problem: error.to_string() }
    }
}

pub(crate) fn failed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> ForgeError {
    move |problem| ForgeError { what, problem: problem.to_string() }
}
