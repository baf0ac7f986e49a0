use std::path::PathBuf;

/// Why a command cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Terminal(#[from] terminal::Error),
    #[error(transparent)]
    Experiments(#[from] experiments::Error),
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Wan(#[from] lab::wan::WanError),
    #[error(transparent)]
    Own(#[from] lab::OwnError),
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
    #[error("{what} is not believed: {problem}")]
    Unsigned { what: String, problem: String },
    #[error("{what}: {source}")]
    Lookup { what: String, source: netdoc::consensus::LookupError },
    #[error("cannot make the bandwidth file: {0}")]
    Generate(#[from] netdoc::bwfile::GenerateError),
    #[error("cannot write the bandwidth file: {0}")]
    WriteFile(#[from] netdoc::bwfile::StoreError),
    #[error(transparent)]
    Dashboard(#[from] dashboard::DashboardError),
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error("cannot write the report: {0}")]
    Report(#[from] report::ReportError),
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
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
    #[error(transparent)]
    Simulation(#[from] tornet::Error),
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Countries(#[from] client::countries::CountriesError),
    #[error(transparent)]
    Probe(#[from] client::probe::ProbeError),
    #[error("{from}: {source}")]
    Signed { from: String, source: client::model::SignedError },
    #[error("the client has ended: {0}")]
    ClientEnded(String),
    #[error("the relay has ended: {0}")]
    RelayEnded(String),
    #[error("the operating system gives no random bytes: {0}")]
    Random(String),
    #[error("{0}")]
    Failed(String),
    /// The command line is wrong: what clap cannot see, such as a number out of a range that depends on another option.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Whether the command line is at fault, so that the exit status is 2.
    pub(crate) const fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Terminal(error) => error.is_usage(),
            Self::Experiments(error) => error.is_usage(),
            Self::Lab(error) => matches!(error, lab::LabError::Spec(_)),
            Self::Wan(error) => matches!(error, lab::wan::WanError::Spec(_)),
            _ => false,
        }
    }
}
