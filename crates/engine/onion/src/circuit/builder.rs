use super::{CircuitError, NextHop};
use crate::cell::msg::{DestroyReason, Extend2, link_specifier};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command};
use crate::cell_model::{
    Body, CellModel, Finished, Handshake as _, Layers as _, Message, PayloadSlice, StreamId, Tor,
};
use crate::flow::control::Agreed;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

/// The next step of building a circuit.
#[derive(Debug)]
pub enum Step<S: CellModel = Tor> {
    /// Send this cell on the circuit.
    Send {
        /// Its command.
        command: Command,
        /// Its body.
        body: S::Body,
    },
    /// The circuit is complete.
    Built,
}

/// A circuit under construction.
pub struct Builder<S: CellModel = Tor> {
    circ_id: CircId,
    /// The hop whose answer is expected.
    handshakes: Vec<S::Handshake>,
    /// The remaining hops.
    onward: Vec<NextHop>,
    layers: S::Layers,
    first_keys: Option<S::Keys>,
    agreed: Agreed,
}

/// The parts of a finished circuit.
#[derive(Debug)]
pub struct Built<S: CellModel = Tor> {
    /// The layers of all hops.
    pub layers: S::Layers,
    /// The flow control negotiated with the last hop.
    pub agreed: Agreed,
}

impl<S: CellModel> Builder<S> {
    /// Plans a circuit: `first` is the handshake with the relay at the other end of the link, `rest` the
    /// following hops.
    #[must_use]
    pub fn new(circ_id: CircId, first: S::Handshake, rest: Vec<(NextHop, S::Handshake)>) -> Self {
        let (onward, later): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
        let handshakes = core::iter::once(first).chain(later).collect();
        Self {
            circ_id,
            handshakes,
            onward,
            layers: S::Layers::default(),
            first_keys: None,
            agreed: Agreed::default(),
        }
    }

    /// Plans a circuit of two hops: CREATE_FAST, then ntor. `x` and `ephemeral_secret` are fresh
    /// random bytes.
    #[must_use]
    pub fn two_hops(
        circ_id: CircId,
        next: NextHop,
        x: [u8; 20],
        ephemeral_secret: [u8; 32],
    ) -> Self {
        let second = S::Handshake::ntor(&next, ephemeral_secret);
        Self::new(circ_id, S::Handshake::fast(x), Vec::from([(next, second)]))
    }

    /// The circuit ID on the link to the first hop.
    #[must_use]
    pub const fn circ_id(&self) -> CircId {
        self.circ_id
    }

    /// The public key by which the last hop identifies the circuit, if its handshake has one.
    #[must_use]
    pub fn last_public(&self) -> Option<&[u8; 32]> {
        self.handshakes.last().and_then(S::Handshake::public)
    }

    /// The keys of the first hop, once it has answered.
    #[must_use]
    pub const fn first_hop_keys(&self) -> Option<&S::Keys> {
        self.first_keys.as_ref()
    }

    /// Whether the first hop has answered.
    #[must_use]
    pub fn has_first_hop(&self) -> bool {
        !self.layers.is_empty()
    }

    /// The cell that creates it, until the first hop has answered: command and body.
    #[must_use]
    pub fn create(&self) -> Option<(Command, Vec<u8>)> {
        self.handshakes.first().filter(|_| self.layers.is_empty()).map(S::Handshake::create_cell)
    }

    /// Handles a cell of the circuit, until [`Step::Built`].
    ///
    /// # Errors
    /// [`CircuitError`]: the circuit is unusable.
    pub fn handle_cell(
        &mut self,
        command: Command,
        body: &S::Body,
    ) -> Result<Step<S>, CircuitError> {
        let built = self.layers.len();
        let handshake = self.handshakes.get(built).ok_or(CircuitError::Unexpected(command))?;
        let Finished { keys, agreed } = match (built, command) {
            (_, Command::DESTROY) => {
                return Err(CircuitError::Destroyed(DestroyReason::parse(body.bytes())));
            }
            (0, command) => handshake.finish_created(command, body.bytes())?,
            (_, Command::RELAY) => {
                let mut body = body.clone();
                let from = self.layers.open(&mut body).map_err(CircuitError::Crypt)?;
                let message =
                    body.message(self.layers.format(from)).map_err(CircuitError::Malformed)?;
                match message.command {
                    RelayCommand::EXTENDED2 if from + 1 == built => {
                        handshake.finish_extended(message.data.bytes())?
                    }
                    RelayCommand::TRUNCATED => {
                        let reason = DestroyReason::parse(message.data.bytes());
                        return Err(CircuitError::Truncated(reason));
                    }
                    other => return Err(CircuitError::UnexpectedMessage(other)),
                }
            }
            (_, other) => return Err(CircuitError::Unexpected(other)),
        };
        self.layers.push(&keys);
        self.first_keys.get_or_insert(keys);
        self.agreed = agreed;
        let (Some(next), Some(handshake)) =
            (self.onward.get(built), self.handshakes.get(built + 1))
        else {
            return Ok(Step::Built);
        };
        let mut body = extend_body::<S>(next, handshake, self.layers.format(built))?;
        // Only RELAY_EARLY may extend a circuit (§5.6).
        let command = Command::RELAY_EARLY;
        self.layers.seal(built, command, &mut body);
        Ok(Step::Send { command, body })
    }

    /// The parts of the circuit, once it is built. The builder is empty afterwards.
    #[must_use]
    pub fn take_built(&mut self) -> Built<S> {
        Built { layers: core::mem::take(&mut self.layers), agreed: self.agreed }
    }
}

impl<S: CellModel> fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (circ_id, built, hops) = (self.circ_id, self.layers.len(), self.handshakes.len());
        write!(f, "Builder({circ_id}, {built} of {hops} hops)")
    }
}

/// The body of a relay cell with EXTEND2, without encryption, for a hop with this format.
///
/// # Errors
/// If the handshake does not fit.
pub fn extend_body<S: CellModel>(
    next: &NextHop,
    handshake: &S::Handshake,
    format: RelayFormat,
) -> Result<S::Body, CircuitError> {
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
    let mut link_specifiers: Vec<(u8, &[u8])> =
        Vec::from([(address_type, &address[..]), (link_specifier::RSA_IDENTITY, &next.ids.rsa.0)]);
    if let Some(ed25519) = &next.ids.ed25519 {
        link_specifiers.push((link_specifier::ED25519_IDENTITY, &ed25519.0));
    }
    let message = handshake.message();
    let mut data = Vec::new();
    Extend2 { link_specifiers, create: handshake.create2(&message) }.encode_into(&mut data);
    let message = Message {
        command: RelayCommand::EXTEND2,
        stream_id: StreamId::CIRCUIT,
        data: S::PayloadSlice::from_bytes(&data),
    };
    let mut body = S::Body::from_bytes(&[]);
    body.write(format, &message).map_err(CircuitError::Malformed)?;
    Ok(body)
}
