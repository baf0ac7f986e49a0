use std::io;

/// Why a network cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// What is asked for cannot be.
    #[error("configuration: a network cannot have {0}")]
    Spec(String),
    /// There is no host of this name.
    #[error("configuration: the network has no host `{0}`")]
    UnknownHost(String),
    /// The system does not let us make networks.
    #[error(
        "machine: a network of its own needs network namespaces, and so root (CAP_SYS_ADMIN and \
         CAP_NET_ADMIN): unshare: {0}"
    )]
    Namespace(#[source] io::Error),
    /// The system refuses something about a host.
    #[error(
        "machine: the host `{name}`: {source}. It needs root, /dev/net/tun, and the programs `ip` and \
         `tc` (Debian: `sudo apt-get install iproute2`)"
    )]
    Host {
        /// Its name.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A command cannot be started at a host.
    #[error("configuration: `{program}` cannot be started at the host `{host}`: {source}")]
    Command {
        /// Which.
        program: String,
        /// Where.
        host: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The thread that carries packets cannot be started.
    #[error("machine: cannot start the thread that carries packets: {0}")]
    Thread(#[source] io::Error),
}
