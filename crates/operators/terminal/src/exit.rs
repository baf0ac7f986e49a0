//! Exit status.

use std::process::ExitCode;

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done,
    /// The command failed; the message has the reason.
    Failed,
    /// The command line is wrong. clap ends with the same status.
    Misused,
    /// No comparison was possible, if [`Failed`](Self::Failed) means a difference.
    Trouble,
    /// There is a result, but only as a lower bound.
    Inconclusive,
    /// The user ended it.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Misused | Exit::Trouble => 2,
            Exit::Inconclusive => 3,
            Exit::Interrupted => 130,
        })
    }
}
