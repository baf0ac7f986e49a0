//! Why an experiment or a benchmark cannot be played.

use std::io;
use std::path::PathBuf;

/// Why an experiment or a benchmark cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What commands have in common fails.
    #[error(transparent)]
    Terminal(#[from] terminal::Error),
    /// The private network fails.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A process of our own fails.
    #[error(transparent)]
    Own(#[from] lab::OwnError),
    /// A lying relay cannot be played.
    #[error(transparent)]
    Liar(#[from] lab::liars::LiarError),
    /// A node or a load generator does not work.
    #[error(transparent)]
    Node(#[from] lab::load::NodeError),
    /// An attack cannot be played.
    #[error(transparent)]
    Attack(#[from] lab::attacks::AttackError),
    /// A team cannot measure.
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    /// A document cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] netdoc::fetch::FetchError),
    /// What was fetched is no consensus.
    #[error("{what}: {source}")]
    Consensus {
        /// Which consensus.
        what: String,
        /// What is wrong with it.
        source: netdoc::consensus::ConsensusError,
    },
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] report::ReportError),
    /// A file or folder cannot be had.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Identities cannot be made.
    #[error(transparent)]
    Issue(#[from] link::IssueError),
    /// Sockets fail.
    #[error("machine: {0}")]
    Driver(#[from] link::DriverError),
    /// A thread cannot be had.
    #[error("machine: {0}")]
    Thread(#[from] link::ThreadError),
    /// The bare TLS pump fails.
    #[error("the TLS pump broke down: {0}")]
    Pump(#[from] link::pump::PumpError),
    /// A key cannot be made or written.
    #[error(transparent)]
    Key(#[from] control::keys::KeyFileError),
    /// A measurer's process cannot be reached.
    #[error(transparent)]
    Remote(#[from] control::RemoteError),
    /// There is no randomness.
    #[error("the operating system gives no random bytes: {0}")]
    Random(String),
    /// A network with real distances cannot be made.
    #[error(transparent)]
    Wan(#[from] lab::wan::WanError),
    /// Circuits cannot be probed.
    #[error(transparent)]
    Probe(#[from] client::probe::ProbeError),
    /// A network cannot be simulated.
    #[error(transparent)]
    Simulated(#[from] tornet::Error),
    /// The network namespaces of an experiment cannot be made.
    #[error("cannot lay the experiment's network: {0}")]
    Network(String),
    /// The kernel does not report what processes have sent and received.
    #[error("cannot count what was forwarded: {0}")]
    Witness(String),
    /// The clients of a relay cannot be played.
    #[error("cannot play a relay's clients: {0}")]
    Clients(String),
    /// The experiment did not come to a result.
    #[error("{0}")]
    Failed(String),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The clients or relays of an experiment failed.
    pub(crate) fn clients(problem: impl ToString) -> Self {
        Self::Clients(problem.to_string())
    }

    /// The kernel does not report what was forwarded.
    pub(crate) fn witness(error: io::Error) -> Self {
        Self::Witness(error.to_string())
    }

    /// Whether the command line is at fault, so that the exit status is 2.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Terminal(error) => error.is_usage(),
            Self::Lab(error) => matches!(error, lab::LabError::Spec(_)),
            Self::Wan(error) => matches!(error, lab::wan::WanError::Spec(_)),
            _ => false,
        }
    }
}

/// What may fail with an [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
