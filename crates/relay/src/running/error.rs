use crate::descriptor::DescriptorError;
use crate::dns::NoNames;
use crate::keys::KeyError;
use link::{DriverError, ForgeError, ThreadError};
use std::net::SocketAddr;

/// Why a relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Its keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Its certificates.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// Its descriptor.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Its port.
    #[error(
        "machine: cannot listen on {address}: {source}. Is another relay running there? Choose \
         another `or_port` (0 for any), or set `listen` to an address of this machine"
    )]
    Listen {
        /// Where it should listen.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The port for Prometheus.
    #[error(
        "machine: cannot listen on {address} for `metrics`: {source}. Choose another port there"
    )]
    Metrics {
        /// Where it should listen.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Its driver.
    #[error("machine: {0}")]
    Driver(#[from] DriverError),
    /// The driver's thread.
    #[error("machine: {0}")]
    Thread(#[from] ThreadError),
    /// Names for exits.
    #[error(transparent)]
    Names(#[from] NoNames),
    /// The operating system gives no thread or no random bytes.
    #[error("machine: {0}")]
    System(String),
}
