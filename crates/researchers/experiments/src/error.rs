//! Errors of experiments and benchmarks.

use std::io;
use std::path::PathBuf;

/// Why an experiment or a benchmark cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Output, signals or arguments failed.
    #[error(transparent)]
    Terminal(#[from] terminal::Error),
    /// The private network failed.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A process of this project failed.
    #[error(transparent)]
    Own(#[from] lab::OwnError),
    /// A lying relay cannot be run.
    #[error(transparent)]
    Liar(#[from] lab::liars::LiarError),
    /// The cases of the protocol cannot be played.
    #[error(transparent)]
    Conformance(#[from] lab::conformance::ConformanceError),
    /// A node or a load generator failed.
    #[error(transparent)]
    Node(#[from] lab::load::NodeError),
    /// An attack cannot be run.
    #[error(transparent)]
    Attack(#[from] lab::attacks::AttackError),
    /// A team cannot measure.
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    /// A document cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] netdoc::fetch::FetchError),
    /// A fetched document is not a consensus.
    #[error("{what}: {source}")]
    Consensus {
        /// Which consensus.
        what: String,
        /// The parser's error.
        source: netdoc::consensus::ConsensusError,
    },
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] report::ReportError),
    /// A file or folder cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The operation, as a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Identities cannot be generated.
    #[error(transparent)]
    Issue(#[from] link::IssueError),
    /// A driver's sockets failed.
    #[error("machine: {0}")]
    Driver(#[from] link::DriverError),
    /// A thread cannot be started.
    #[error("machine: {0}")]
    Thread(#[from] link::ThreadError),
    /// The bare TLS pump failed.
    #[error("the TLS pump failed: {0}")]
    Pump(#[from] link::pump::PumpError),
    /// A key cannot be generated or written.
    #[error(transparent)]
    Key(#[from] control::keys::KeyFileError),
    /// A measurer's process cannot be reached.
    #[error(transparent)]
    Remote(#[from] control::RemoteError),
    /// The operating system provides no randomness.
    #[error("the operating system provides no random bytes: {0}")]
    Random(String),
    /// An emulated wide-area network cannot be created.
    #[error(transparent)]
    Wan(#[from] lab::wan::WanError),
    /// Circuits cannot be probed.
    #[error(transparent)]
    Probe(#[from] client::probe::ProbeError),
    /// A network cannot be simulated.
    #[error(transparent)]
    Simulated(#[from] tornet::Error),
    /// The network namespaces of an experiment cannot be created.
    #[error("cannot create the experiment's network: {0}")]
    Network(String),
    /// The kernel does not report what processes sent and received.
    #[error("cannot count forwarded traffic: {0}")]
    Witness(String),
    /// A relay, its clients or their threads failed.
    #[error("a relay or its clients failed: {0}")]
    Clients(String),
    /// The experiment has no result.
    #[error("{0}")]
    Failed(String),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// [`Error::Clients`] with this problem.
    pub(crate) fn clients(problem: impl ToString) -> Self {
        Self::Clients(problem.to_string())
    }

    /// [`Error::Witness`] from an I/O error.
    pub(crate) fn witness(error: io::Error) -> Self {
        Self::Witness(error.to_string())
    }

    /// Whether the command line is wrong, so that the exit status is 2.
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

/// A result with this crate's [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
