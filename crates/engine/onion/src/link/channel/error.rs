use crate::cell::{Command, FrameError, Malformed};
use crate::identity::RelayIds;
use crate::link::CertError;
use core::fmt;

/// Why a link is unusable. The peer is to blame, except for [`ChannelError::Tls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The stream cannot be split into cells.
    Frame(FrameError),
    /// A handshake cell is malformed.
    Malformed(Malformed),
    /// The peer's certificates are invalid.
    Certs(CertError),
    /// The peer is another relay than expected.
    WrongIdentity {
        /// The expected relay.
        expected: RelayIds,
        /// The relay that answered.
        found: RelayIds,
    },
    /// No common version of the link protocol.
    NoCommonVersion,
    /// An unexpected cell in the handshake.
    Unexpected(Command),
    /// The initiator does not prove the identity of its certificates.
    NotProven {
        /// The claimed relay.
        claimed: RelayIds,
        /// The check of its proof that failed.
        problem: &'static str,
    },
    /// The responder offers no known authentication method.
    CannotAuthenticate,
    /// The TLS session lacks what the handshake needs: the local shell is to blame.
    Tls(&'static str),
}

impl ChannelError {
    /// Whether a certificate is not valid at this time: the peer's clock or our own may be wrong.
    #[must_use]
    pub const fn is_about_dates(&self) -> bool {
        matches!(self, Self::Certs(CertError::NotValidNow { .. }))
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Certs(error) => write!(f, "the relay does not prove its identity: {error}"),
            Self::WrongIdentity { expected, found } => {
                write!(f, "wrong relay: expected {}, found {}", expected.rsa, found.rsa)?;
                if expected.rsa == found.rsa {
                    f.write_str(" with another Ed25519 identity")?;
                }
                Ok(())
            }
            Self::NoCommonVersion => f.write_str("no common link protocol: we speak 4 and 5"),
            Self::Unexpected(command) => write!(f, "unexpected {command} in the link handshake"),
            Self::NotProven { claimed, problem } => {
                write!(f, "the relay does not prove that it is {}: {problem}", claimed.rsa)
            }
            Self::CannotAuthenticate => {
                f.write_str("the relay does not offer link authentication of type 3")
            }
            Self::Tls(problem) => write!(f, "our TLS session is unusable: {problem}"),
        }
    }
}

impl core::error::Error for ChannelError {}

impl From<Malformed> for ChannelError {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}
