use crate::cell::{Command, FrameError, Malformed};
use crate::identity::RelayIds;
use crate::link::CertError;
use core::fmt;

/// Why a link is of no more use. The peer is to blame, except for [`ChannelError::Tls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The stream cannot be cut into cells.
    Frame(FrameError),
    /// A cell of the handshake does not parse.
    Malformed(Malformed),
    /// The peer's certificates prove nothing.
    Certs(CertError),
    /// It is another relay than the one we wanted.
    WrongIdentity {
        /// Whom we wanted.
        expected: RelayIds,
        /// Who is there.
        found: RelayIds,
    },
    /// It speaks none of our link protocols.
    NoCommonVersion,
    /// A cell that must not come at this point of the handshake.
    Unexpected(Command),
    /// It dialled us, and does not prove to be the relay whose certificates it shows.
    NotProven {
        /// The relay that it claims to be.
        claimed: RelayIds,
        /// What does not hold of its proof.
        problem: &'static str,
    },
    /// It offers no way to authenticate that we know.
    CannotAuthenticate,
    /// The TLS session lacks what the handshake needs: our own shell is to blame.
    Tls(&'static str),
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
            Self::Tls(problem) => write!(f, "our TLS session is of no use: {problem}"),
        }
    }
}

impl core::error::Error for ChannelError {}

impl From<Malformed> for ChannelError {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}
