//! Building a circuit of two hops as its origin (tor-spec §5.3).
//!
//! CREATE_FAST to the first relay over its link, then EXTEND2 with ntor to the second. What passes
//! over the finished circuit is the business of whoever asked for it.

use crate::cell::msg::{
    Create2, CreatedFast, DestroyReason, Extend2, HANDSHAKE_NTOR, link_specifier, parse_created2,
};
use crate::cell::relay::{RelayCommand, RelayMessage};
use crate::cell::{BODY_LEN, CircId, Command, Malformed};
use crate::crypto::{ClientHop, CryptError, HandshakeFailed, HopKeys, fast, ntor};
use crate::identity::{OwnIdentity, RelayIds};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

/// The relay that a circuit is extended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Where the first hop finds it.
    pub address: SocketAddr,
    /// Its identities, which the first hop checks.
    pub ids: RelayIds,
    /// Its ntor onion key.
    pub onion_key: [u8; 32],
}

impl NextHop {
    /// Ourselves, listening at `address`.
    #[must_use]
    pub fn to_own(identity: &OwnIdentity, address: SocketAddr) -> Self {
        let ids = RelayIds { rsa: identity.rsa, ed25519: Some(identity.ed25519) };
        Self { address, ids, onion_key: identity.onion_key() }
    }
}

/// Why a circuit could not be built, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitError {
    /// The relay closed it.
    Destroyed(DestroyReason),
    /// The first hop says that the second is gone.
    Truncated(DestroyReason),
    /// A handshake does not prove what it has to.
    Handshake(HandshakeFailed),
    /// A cell does not decrypt.
    Crypt(CryptError),
    /// A message does not parse.
    Malformed(Malformed),
    /// A cell that has no place at this point.
    Unexpected(Command),
    /// A relay message that has no place at this point.
    UnexpectedMessage(RelayCommand),
}

impl fmt::Display for CircuitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destroyed(reason) => write!(f, "circuit closed by the relay: {reason}"),
            Self::Truncated(reason) => write!(f, "circuit cut at the relay: {reason}"),
            Self::Handshake(error) => error.fmt(f),
            Self::Crypt(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Unexpected(command) => write!(f, "unexpected {command} cell on the circuit"),
            Self::UnexpectedMessage(RelayCommand(number)) => {
                write!(f, "unexpected relay message {number} on the circuit")
            }
        }
    }
}

impl core::error::Error for CircuitError {}

/// What building a circuit asks for next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "handled at once, never kept")]
pub enum Step {
    /// Send this cell on the circuit.
    Send {
        /// Its command.
        command: Command,
        /// Its body.
        body: [u8; BODY_LEN],
    },
    /// The circuit stands.
    Built,
}

/// A circuit of two hops under construction.
pub struct TwoHop {
    circ_id: CircId,
    next: NextHop,
    second: ntor::Client,
    state: State,
}

enum State {
    /// Waiting for CREATED_FAST.
    Creating(fast::Client),
    /// Waiting for EXTENDED2, or built.
    Extending { first: Box<ClientHop>, keys: HopKeys },
}

impl TwoHop {
    /// Plans the circuit. `x` and `ephemeral_secret` are fresh random bytes.
    #[must_use]
    pub fn new(circ_id: CircId, next: NextHop, x: [u8; 20], ephemeral_secret: [u8; 32]) -> Self {
        let relay = ntor::RelayKeys { rsa_id: next.ids.rsa.0, onion_key: next.onion_key };
        let second = ntor::Client::new(relay, ephemeral_secret);
        Self { circ_id, next, second, state: State::Creating(fast::Client::new(x)) }
    }

    /// Its number on our link to the first hop.
    #[must_use]
    pub const fn circ_id(&self) -> CircId {
        self.circ_id
    }

    /// The public key by which the second hop will know the circuit.
    #[must_use]
    pub fn ntor_public(&self) -> &[u8; 32] {
        self.second.public()
    }

    /// The keys of the first hop, once it has answered.
    #[must_use]
    pub const fn first_hop_keys(&self) -> Option<&HopKeys> {
        match &self.state {
            State::Creating(_) => None,
            State::Extending { keys, .. } => Some(keys),
        }
    }

    /// The body of the CREATE_FAST that begins it.
    #[must_use]
    pub const fn create_body(&self) -> Option<[u8; 20]> {
        match &self.state {
            State::Creating(client) => Some(client.x),
            State::Extending { .. } => None,
        }
    }

    /// Handles a cell that arrived on the circuit, until [`Step::Built`].
    ///
    /// # Errors
    /// [`CircuitError`]: give the circuit up.
    pub fn handle_cell(&mut self, command: Command, body: &[u8]) -> Result<Step, CircuitError> {
        match (&mut self.state, command) {
            (_, Command::DESTROY) => Err(CircuitError::Destroyed(DestroyReason::parse(body))),
            (State::Creating(client), Command::CREATED_FAST) => {
                let created = CreatedFast::parse(body).map_err(CircuitError::Malformed)?;
                let keys = client.finish(&created).map_err(CircuitError::Handshake)?;
                let mut first = Box::new(ClientHop::new(&keys));
                let mut body = extend_body(&self.next, &self.second)?;
                first.encrypt(&mut body);
                self.state = State::Extending { first, keys };
                // Only RELAY_EARLY may extend a circuit (§5.6).
                Ok(Step::Send { command: Command::RELAY_EARLY, body })
            }
            (State::Extending { first, .. }, Command::RELAY) => {
                let mut body: [u8; BODY_LEN] =
                    body.try_into().map_err(|_| CircuitError::Unexpected(command))?;
                first.decrypt(&mut body).map_err(CircuitError::Crypt)?;
                let message = RelayMessage::parse(&body).map_err(CircuitError::Malformed)?;
                match message.command {
                    RelayCommand::EXTENDED2 => {
                        let answer =
                            parse_created2(message.data).map_err(CircuitError::Malformed)?;
                        self.second.finish(answer).map_err(CircuitError::Handshake)?;
                        Ok(Step::Built)
                    }
                    RelayCommand::TRUNCATED => {
                        Err(CircuitError::Truncated(DestroyReason::parse(message.data)))
                    }
                    other => Err(CircuitError::UnexpectedMessage(other)),
                }
            }
            (_, other) => Err(CircuitError::Unexpected(other)),
        }
    }
}

impl fmt::Debug for TwoHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TwoHop({} to {})", self.circ_id, self.next.address)
    }
}

/// The relay cell body with EXTEND2, not encrypted yet.
fn extend_body(next: &NextHop, second: &ntor::Client) -> Result<[u8; BODY_LEN], CircuitError> {
    let mut address = Vec::new();
    let address_type = match next.address {
        SocketAddr::V4(v4) => {
            address.extend_from_slice(&v4.ip().octets());
            link_specifier::IPV4
        }
        SocketAddr::V6(v6) => {
            address.extend_from_slice(&v6.ip().octets());
            link_specifier::IPV6
        }
    };
    address.extend_from_slice(&next.address.port().to_be_bytes());
    let handshake = second.message();
    let mut link_specifiers: Vec<(u8, &[u8])> =
        Vec::from([(address_type, &address[..]), (link_specifier::RSA_IDENTITY, &next.ids.rsa.0)]);
    if let Some(ed25519) = &next.ids.ed25519 {
        link_specifiers.push((link_specifier::ED25519_IDENTITY, &ed25519.0));
    }
    let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &handshake };
    let mut data = Vec::new();
    Extend2 { link_specifiers, create }.encode_into(&mut data);
    RelayMessage { command: RelayCommand::EXTEND2, stream_id: 0, data: &data }
        .to_body()
        .map_err(CircuitError::Malformed)
}
