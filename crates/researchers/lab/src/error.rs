//! Errors, with the party to blame and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::ControlError;

/// Why a private network could not be started, used or stopped.
///
/// Every message begins with the party to blame: the configuration, the machine, or tor.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is no `tor` to run.
    #[error(
        "configuration: there is no tor at `{}`. \
         Install it with `sudo apt-get install tor`, \
         or name another binary in the environment variable FLASHFLOW_TOR", .binary.display()
    )]
    TorMissing {
        /// The binary that was looked for.
        binary: PathBuf,
    },
    /// There is no `tor-gencert`, which creates the authorities' keys.
    #[error(
        "configuration: `tor-gencert` is neither in the folder of `{}` nor in PATH. It is part of tor: \
         `sudo apt-get install tor`", .tor.display()
    )]
    GencertMissing {
        /// The tor binary in whose folder it was searched.
        tor: PathBuf,
    },
    /// The description of the network is invalid.
    #[error("configuration: {0}")]
    Spec(String),
    /// The folder does not contain a private network of this crate.
    #[error(
        "configuration: `{}` is not the folder of a private network: {reason}. \
         Give the folder that was printed when the network was started", .dir.display()
    )]
    NotALab {
        /// The folder.
        dir: PathBuf,
        /// Why it is not one.
        reason: String,
    },
    /// A key generation program failed.
    #[error("tor: `{program}` failed while making keys ({status}):\n{output}")]
    Keys {
        /// The program that failed.
        program: String,
        /// How it ended.
        status: String,
        /// What it wrote.
        output: String,
    },
    /// A tor process exited unexpectedly.
    #[error("tor: the process of `{nickname}` ended unexpectedly ({status}). {log}")]
    TorDied {
        /// Nickname of the relay or authority.
        nickname: String,
        /// How it ended.
        status: String,
        /// The last warnings and errors of its log.
        log: String,
    },
    /// Another program took a port between its reservation and tor's start, in every attempt.
    #[error(
        "machine: a port chosen for `{nickname}` was in use by another program, {attempts} times \
         in a row. Try again; if it persists, see which program opens so many ports \
         (`ss -ltnp`). {log}"
    )]
    PortInUse {
        /// Nickname of the relay or authority.
        nickname: String,
        /// How many sets of ports were tried.
        attempts: u32,
        /// The last warnings and errors of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error(
        "machine: {what} did not happen within {} s. On a heavily loaded machine, allow more time \
         or a longer voting interval. {log}", .after.as_secs()
    )]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        after: Duration,
        /// The last warnings and errors of the log of the node that was waited for.
        log: String,
    },
    /// A control port request failed.
    #[error("tor: the control port of `{nickname}` failed: {source}")]
    Control {
        /// Nickname of the relay or authority.
        nickname: String,
        /// What failed.
        source: ControlError,
    },
    /// A tor wrote a file that cannot be parsed.
    #[error("tor: `{}` does not contain {expected}. Is this a version of tor newer than 0.4.9?",
        .path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
    },
    /// Processes are left after all attempts to end them.
    #[error(
        "machine: tor processes {pids:?} could not be ended. End them with `kill -9`, then \
         remove `{}`", .dir.display()
    )]
    CannotStop {
        /// Process identifiers.
        pids: Vec<u32>,
        /// The network's folder.
        dir: PathBuf,
    },
    /// The operating system returned an error.
    #[error("machine: cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// The operation, a verb.
        action: &'static str,
        /// The file or program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LabError {
    /// Returns the closure that turns an [`io::Error`] into a [`LabError::Io`].
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Returns the closure that names the node whose control port failed.
    pub(crate) fn control(nickname: &str) -> impl Fn(ControlError) -> Self {
        move |source| Self::Control { nickname: nickname.to_owned(), source }
    }
}
