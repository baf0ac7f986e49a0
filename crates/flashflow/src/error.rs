use std::path::PathBuf;
use std::process::ExitCode;

/// How a command ended, for the shell that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All that was asked for was done.
    Done,
    /// Something failed; the message says what.
    Failed,
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
            // 2 is for wrong arguments, by clap.
            Exit::Inconclusive => 3,
            Exit::Interrupted => 130,
        })
    }
}

/// Why a command cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    #[error(transparent)]
    Capacity(#[from] measurer::capacity::CapacityError),
    #[error(transparent)]
    Consent(#[from] measurer::ConsentError),
    #[error(transparent)]
    Fetch(#[from] netdoc::fetch::FetchError),
    #[error("{what}: {source}")]
    Consensus { what: String, source: netdoc::consensus::ConsensusError },
    #[error("{what}: {source}")]
    Lookup { what: String, source: netdoc::consensus::LookupError },
    #[error("cannot make the bandwidth file: {0}")]
    Generate(#[from] netdoc::bwfile::GenerateError),
    #[error("cannot write the bandwidth file: {0}")]
    Store(#[from] netdoc::bwfile::StoreError),
    #[error("cannot write the report: {0}")]
    Report(#[from] report::ReportError),
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot handle signals: {0}")]
    Signals(std::io::Error),
    #[error(transparent)]
    Forge(#[from] link::ForgeError),
    #[error("machine: {0}")]
    Driver(#[from] link::DriverError),
    #[error("the TLS pump broke down: {0}")]
    Pump(#[from] link::pump::PumpError),
    #[error(transparent)]
    Key(#[from] control::keys::KeyFileError),
    #[error("{}: {problem}", path.display())]
    Config { path: PathBuf, problem: String },
    #[error(transparent)]
    Server(#[from] control::ServerError),
    #[error(transparent)]
    Remote(#[from] control::RemoteError),
    #[error(transparent)]
    RelayConfig(#[from] relay::ConfigError),
    #[error(transparent)]
    Relay(#[from] relay::RelayError),
    #[error("the relay has ended: {0}")]
    RelayEnded(String),
    #[error("the operating system gives no random bytes: {0}")]
    Random(String),
    #[error("cannot start our own process {name}: {source}")]
    OwnProcess { name: String, source: std::io::Error },
    #[error("our own process {name} fails: {problem}")]
    OwnProcessSilent { name: String, problem: String },
    #[error("cannot lay the experiment's network: {0}")]
    Network(String),
    #[error("cannot play a relay's clients: {0}")]
    Clients(String),
    #[error(transparent)]
    Liar(#[from] lab::echo_liars::LiarError),
    #[error("{0}")]
    Usage(String),
}
