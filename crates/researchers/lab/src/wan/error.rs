use std::io;

/// Why a network cannot be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// The specification is invalid.
    #[error("configuration: a network cannot have {0}")]
    Spec(String),
    /// There is no host of this name.
    #[error("configuration: the network has no host `{0}`")]
    UnknownHost(String),
    /// The system does not permit networks.
    #[error(
        "machine: a network of its own needs network namespaces, and so root (CAP_SYS_ADMIN and \
         CAP_NET_ADMIN): unshare: {0}"
    )]
    Namespace(#[source] io::Error),
    /// The system returned an error for a host.
    #[error(
        "machine: the host `{name}`: {source}. It needs root, /dev/net/tun, and the programs `ip` and \
         `tc` (Debian: `sudo apt-get install iproute2`)"
    )]
    Host {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A command could not be started on a host.
    #[error("configuration: `{program}` cannot be started at the host `{host}`: {source}")]
    Command {
        /// The command.
        program: String,
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The thread that carries packets could not be started.
    #[error("machine: cannot start the thread that carries packets: {0}")]
    Thread(#[source] io::Error),
}
