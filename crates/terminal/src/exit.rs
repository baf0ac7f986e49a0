//! Exit status.

use std::process::ExitCode;

/// How a command ended, for the shell that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All that was asked for was done.
    Done,
    /// Something failed; the message says what.
    Failed,
    /// The command line is wrong. clap ends with the same status.
    Misused,
    /// Nothing could be compared, where [`Failed`](Self::Failed) says that there is a difference.
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
