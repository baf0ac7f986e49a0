//! What cells are made of: the seam between what the engine decides and what a cell holds.
//!
//! Scheduling, windows, bounds, flow control and streams are one code over a [`CellModel`]. All cells weigh
//! [`CELL_LEN`](crate::cell::CELL_LEN) bytes: rates and limits count that. What a cell *holds* differs:
//!
//! | suite | a cell holds | cryptography |
//! |---|---|---|
//! | [`Tor`] | its 514 bytes | tor's handshakes, AES and running digests |
//! | [`HeaderOnly`] | command, stream, length, some bytes of tag | none; as many messages as tor's |
//!
//! The engine draws the same random numbers with both, so that a run with one can be laid beside a run with
//! the other.

mod header_only;
pub(crate) mod tor;

pub use header_only::{
    HeaderOnly, HeaderOnlyBody, HeaderOnlyCell, HeaderOnlyPayload, Run, RunRoom,
};
pub use tor::Tor;

use crate::cell::msg::Create2;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command, Malformed};
use crate::circuit::{CircuitError, NextHop};
use crate::crypto::ntor_v3::extension::Request;
use crate::crypto::{CryptError, HandshakeFailed};
use crate::flow::control::{Agreed, SendmeTag};
use crate::identity::RelayIds;
use alloc::vec::Vec;
use core::fmt;

/// A stream's number on its circuit; zero for what concerns the circuit itself (tor-spec §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

impl StreamId {
    /// The circuit itself.
    pub const CIRCUIT: Self = Self(0);
}

/// What a relay cell says once its layers are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<D> {
    /// What it asks for.
    pub command: RelayCommand,
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// Its content.
    pub data: D,
}

/// The random bytes behind the data of some cells: nobody can know their digest without having them
/// (proposal 289).
pub type Salt = [u8; 16];

/// What cells are made of. See the [module](self).
pub trait CellModel: Copy + fmt::Debug + Default + Send + Sync + 'static {
    /// A cell of fixed length, as it waits in queues and leaves on a link.
    type Cell: Cell<Body = Self::Body>;
    /// What is in such a cell, behind circuit ID and command.
    type Body: Body<Self>;
    /// Some of a stream's data, where it lies.
    type PayloadSlice<'a>: PayloadSlice<'a>;
    /// Room for data of a stream.
    type Room<'a>;
    /// Data of a stream that waits for its destination.
    type Buffer: Buffer<Self>;
    /// What a handshake yields for one hop.
    type Keys: From<Self::FastKeys> + Clone + fmt::Debug + Send;
    /// What CREATE_FAST yields: keys of a keystream, always, which can be sought.
    type FastKeys: Clone + fmt::Debug + Send;
    /// A relay's end of a layer.
    type Layer: Layer<Self>;
    /// The layer of a measurement circuit, at its target.
    type EchoLayer: EchoLayer<Self>;
    /// The client's ends of all layers of a circuit.
    type Layers: Layers<Self>;
    /// The client's half of the handshake with one hop.
    type Handshake: Handshake<Self>;
    /// Who a relay is, and what it answers handshakes with.
    type Identity: Clone + fmt::Debug + Send;

    /// The names of an identity.
    fn ids(identity: &Self::Identity) -> RelayIds;

    /// Answers a CREATE_FAST; `y` is fresh random bytes. Gives the body of CREATED_FAST.
    fn answer_fast(body: &Self::Body, y: [u8; 20]) -> (Vec<u8>, Self::FastKeys);

    /// Answers the handshake of a CREATE2; `ephemeral` gives fresh random bytes, once, if an answer is
    /// possible. `offered` is what the relay agrees to if it is asked for congestion control.
    fn answer(
        identity: &Self::Identity,
        create: &Create2<'_>,
        offered: Agreed,
        ephemeral: impl FnOnce() -> [u8; 32],
    ) -> Option<HandshakeReply<Self>>;
}

/// A relay's answer to a handshake.
#[derive(Debug)]
pub struct HandshakeReply<S: CellModel> {
    /// For the CREATED2.
    pub data: Vec<u8>,
    /// For the relay's layer.
    pub keys: S::Keys,
    /// What both agree on.
    pub agreed: Agreed,
}

/// What the client's half of a handshake comes to.
#[derive(Debug)]
pub struct Finished<S: CellModel> {
    /// For the client's layer.
    pub keys: S::Keys,
    /// What both agree on.
    pub agreed: Agreed,
}

/// A cell of fixed length.
pub trait Cell: fmt::Debug + Clone + Send + 'static {
    /// What is in it.
    type Body;

    /// One that holds nothing.
    const EMPTY: Self;

    /// Makes it one of this circuit and command; its body holds something of earlier use, and is to be
    /// written.
    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut Self::Body;

    /// The circuit that it belongs to.
    fn circ_id(&self) -> CircId;

    /// What it asks for.
    fn command(&self) -> Command;

    /// What is in it.
    fn body(&self) -> &Self::Body;

    /// What is in it, to be sealed.
    fn body_mut(&mut self) -> &mut Self::Body;

    /// Moves cells to where others were; both are as many.
    fn shift(from: &mut [Self], to: &mut [Self])
    where
        Self: Sized;
}

/// What is in a cell.
pub trait Body<S: CellModel>: Clone + fmt::Debug + Send + 'static {
    /// That of a cell that opens or closes circuits, or concerns a link: with these bytes in it.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// What such a cell says; zeros may follow.
    fn bytes(&self) -> &[u8];

    /// What a relay cell without layers says.
    ///
    /// # Errors
    /// Where it contradicts itself.
    fn message(&self, format: RelayFormat) -> Result<Message<S::PayloadSlice<'_>>, Malformed>;

    /// Makes it that of a relay cell without layers and without digest or tag.
    ///
    /// # Errors
    /// Where the data is more than fits, or the format has no such message.
    fn write(
        &mut self,
        format: RelayFormat,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Result<(), Malformed>;

    /// Makes it that of a DATA message without layers and without a digest, whose data `fill` puts into
    /// the room that it is given, `most_bytes` at most; returns how many. With none it is of no use.
    fn write_data(
        &mut self,
        format: RelayFormat,
        stream_id: StreamId,
        most_bytes: usize,
        fill: impl FnOnce(S::Room<'_>) -> usize,
    ) -> usize;

    /// Puts random bytes into the padding of a cell of DATA, so far behind the beginning of its data.
    fn salt(&mut self, format: RelayFormat, at: usize, salt: &Salt);

    /// Makes it one that nobody can tell from another's without the seed.
    fn forge(&mut self, seed: &[u8; 16]);
}

/// Some of a stream's data.
pub trait PayloadSlice<'a>: Copy + fmt::Debug {
    /// These bytes.
    fn from_bytes(bytes: &'a [u8]) -> Self;

    /// The bytes, of anything but DATA.
    fn bytes(self) -> &'a [u8];

    /// How many bytes it is to the stream.
    fn len(self) -> usize;

    /// Whether it is none at all.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The first `at` bytes, and the rest.
    fn split_at(self, at: usize) -> (Self, Self);
}

/// Data of a stream that waits for its destination.
pub trait Buffer<S: CellModel>: Default + fmt::Debug + Send {
    /// Bytes of the stream in it.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that they take.
    fn held_bytes(&self) -> usize;

    /// Puts data behind what is there.
    fn push(&mut self, data: S::PayloadSlice<'_>);

    /// Moves data into `room` until either has no more; returns how many bytes of the stream.
    fn pop_into(&mut self, room: S::Room<'_>) -> usize;

    /// Gives back room that was not used since the last time.
    fn shrink(&mut self);
}

/// A relay's end of the layer that it shares with a client.
pub trait Layer<S: CellModel>: fmt::Debug + Send {
    /// With what a handshake has yielded.
    fn new(keys: &S::Keys) -> Self;

    /// How messages lie in its cells.
    fn format(&self) -> RelayFormat;

    /// Takes the layer off a cell from the client, RELAY or RELAY_EARLY; true if the cell is for this relay.
    fn decrypt(&mut self, command: Command, body: &mut S::Body) -> bool;

    /// Seals a cell from this relay to the client, and puts the layer on.
    fn originate(&mut self, body: &mut S::Body);

    /// Puts the layer on a cell from the next hop.
    fn pass_back(&mut self, body: &mut S::Body);

    /// The tag of the last cell that was originated here.
    fn sent_tag(&self) -> SendmeTag;

    /// The tag of the last cell that was for this relay.
    fn received_tag(&self) -> SendmeTag;

    /// Call it from time to time: gives back room that no cell has needed since the last time.
    fn rest(&mut self) {}
}

/// The layer of a measurement circuit.
pub trait EchoLayer<S: CellModel>: fmt::Debug + Send {
    /// With what a handshake has yielded.
    fn new(keys: &S::FastKeys) -> Self;

    /// Takes the layer off.
    fn apply(&mut self, body: &mut S::Body);
}

/// The client's ends of the layers of a circuit, first hop first.
pub trait Layers<S: CellModel>: Default + fmt::Debug + Send {
    /// Adds the layer of the next hop.
    fn push(&mut self, keys: &S::Keys);

    /// How many hops there are.
    fn len(&self) -> usize;

    /// Whether there is no hop yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How messages lie in the cells of a hop.
    fn format(&self, hop: usize) -> RelayFormat;

    /// Seals a cell for a hop, by its place, and puts on its layer and those before it. The cell leaves as
    /// RELAY or RELAY_EARLY.
    fn seal(&mut self, hop: usize, command: Command, body: &mut S::Body);

    /// Takes off the layers of a cell up to the hop that has sent it; returns that hop's place.
    ///
    /// # Errors
    /// Where no hop has sent it.
    fn open(&mut self, body: &mut S::Body) -> Result<usize, CryptError>;

    /// The tag of the last cell that was sealed for a hop.
    fn sent_tag(&self, hop: usize) -> SendmeTag;

    /// The tag of the last cell that came from a hop.
    fn received_tag(&self, hop: usize) -> SendmeTag;
}

/// The client's half of the handshake with one hop.
pub trait Handshake<S: CellModel>: fmt::Debug + Send + Sized {
    /// CREATE_FAST, for a first hop. `x` is fresh random bytes.
    fn fast(x: [u8; 20]) -> Self;

    /// ntor with this relay. `ephemeral_secret` is fresh random bytes.
    fn ntor(relay: &NextHop, ephemeral_secret: [u8; 32]) -> Self;

    /// ntor of version 3 with this relay, asking for this. `ephemeral_secret` is fresh random bytes.
    ///
    /// # Errors
    /// Where what is known of the relay does not do for it.
    fn ntor_v3(
        relay: &NextHop,
        ephemeral_secret: [u8; 32],
        request: Request,
    ) -> Result<Self, HandshakeFailed>;

    /// Our ephemeral public key, where there is one.
    fn public(&self) -> Option<&[u8; 32]>;

    /// The cell that opens a circuit with it: command and body.
    fn create_cell(&self) -> (Command, Vec<u8>);

    /// What it says to the relay at the end of a circuit that is extended: as in CREATE2.
    fn message(&self) -> Vec<u8>;

    /// The same in a CREATE2 or an EXTEND2.
    fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a>;

    /// The first hop's answer to that cell.
    ///
    /// # Errors
    /// Where it proves nothing, or is none.
    fn finish_created(&self, command: Command, body: &[u8]) -> Result<Finished<S>, CircuitError>;

    /// A relay's answer, as it stands in CREATED2 and EXTENDED2.
    ///
    /// # Errors
    /// Where it proves nothing, or is none.
    fn finish_extended(&self, data: &[u8]) -> Result<Finished<S>, CircuitError>;
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
