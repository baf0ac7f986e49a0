use crate::descriptor::DescriptorError;
use crate::dns::NoNames;
use crate::keys::KeyError;
use link::{DriverError, IssueError, ThreadError};
use std::net::SocketAddr;

/// Why a relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Its keys are unusable.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// No certificates could be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No descriptor could be made.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Its port is not available.
    #[error(
        "machine: cannot listen on {address}: {source}. Is another relay running there? Choose \
         another `or_port` (0 for any), or set `listen` to an address of this machine"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The Prometheus port is not available.
    #[error(
        "machine: cannot listen on {address} for `metrics`: {source}. Choose another port there"
    )]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The driver could not be set up.
    #[error("machine: {0}")]
    Driver(#[from] DriverError),
    /// The driver's thread could not be started.
    #[error("machine: {0}")]
    Thread(#[from] ThreadError),
    /// Names cannot be resolved.
    #[error(transparent)]
    Names(#[from] NoNames),
    /// The operating system provides no thread or no random bytes.
    #[error("machine: {0}")]
    System(String),
}
