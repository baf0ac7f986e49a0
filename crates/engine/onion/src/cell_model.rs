//! The representation of cells: the boundary between the engine's decisions and the content of cells.
//!
//! Scheduling, windows, limits, flow control and streams are one implementation over a [`CellModel`]. Rates and
//! limits count each cell as [`CELL_LEN`](crate::cell::CELL_LEN) bytes in every model. The content differs:
//!
//! | model | content of a cell | cryptography |
//! |---|---|---|
//! | [`Tor`] | its 514 bytes | tor's handshakes, AES and running digests |
//! | [`HeaderOnly`] | command, stream ID, length, a tag of a few bytes | none; the same number of messages as tor's handshakes |
//!
//! The engine draws the same random numbers with both models, so that their runs can be compared event by
//! event.

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

/// A stream ID; zero for messages of the circuit itself (tor-spec §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

impl StreamId {
    /// The circuit itself.
    pub const CIRCUIT: Self = Self(0);
}

/// A relay message, after decryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<D> {
    /// The command.
    pub command: RelayCommand,
    /// The stream ID.
    pub stream_id: StreamId,
    /// The data.
    pub data: D,
}

/// Random bytes after the data of some cells: without receiving the cells, nobody can know their digest
/// (proposal 289).
pub type Salt = [u8; 16];

/// A representation of cells. See the [module](self).
pub trait CellModel: Copy + fmt::Debug + Default + Send + Sync + 'static {
    /// A fixed-length cell in a queue or on a link.
    type Cell: Cell<Body = Self::Body>;
    /// The body of such a cell.
    type Body: Body<Self>;
    /// A slice of a stream's data.
    type PayloadSlice<'a>: PayloadSlice<'a>;
    /// A buffer to be filled with stream data.
    type Room<'a>;
    /// Stream data that is queued for its destination.
    type Buffer: Buffer<Self>;
    /// The keys of one hop, from a handshake.
    type Keys: From<Self::FastKeys> + Clone + fmt::Debug + Send;
    /// The keys of a CREATE_FAST handshake: always for a keystream, which supports seeking.
    type FastKeys: Clone + fmt::Debug + Send;
    /// The relay's side of a layer of encryption.
    type Layer: Layer<Self>;
    /// The target's layer of a measurement circuit.
    type EchoLayer: EchoLayer<Self>;
    /// The client's side of all layers of a circuit.
    type Layers: Layers<Self>;
    /// The client's side of the handshake with one hop.
    type Handshake: Handshake<Self>;
    /// A relay's identity, with the keys for handshakes.
    type Identity: Clone + fmt::Debug + Send;

    /// The fingerprints of an identity.
    fn ids(identity: &Self::Identity) -> RelayIds;

    /// Answers a CREATE_FAST with `y`, fresh random bytes. Returns the body of CREATED_FAST and the keys.
    fn answer_fast(body: &Self::Body, y: [u8; 20]) -> (Vec<u8>, Self::FastKeys);

    /// Answers the handshake of a CREATE2. `ephemeral` returns fresh random bytes; it is called at most once,
    /// and only if the handshake is valid. `offered` is the flow control that the relay grants if the client
    /// requests congestion control.
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
    /// The data of the CREATED2.
    pub data: Vec<u8>,
    /// The keys of the relay's layer.
    pub keys: S::Keys,
    /// The negotiated flow control.
    pub agreed: Agreed,
}

/// The result of the client's side of a handshake.
#[derive(Debug)]
pub struct Finished<S: CellModel> {
    /// The keys of the client's layer.
    pub keys: S::Keys,
    /// The negotiated flow control.
    pub agreed: Agreed,
}

/// A fixed-length cell.
pub trait Cell: fmt::Debug + Clone + Send + 'static {
    /// The body.
    type Body;

    /// An empty cell.
    const EMPTY: Self;

    /// Sets circuit ID and command and returns the body to be written; it holds the remains of an earlier cell.
    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut Self::Body;

    /// The circuit ID.
    fn circ_id(&self) -> CircId;

    /// The command.
    fn command(&self) -> Command;

    /// The body.
    fn body(&self) -> &Self::Body;

    /// The body, to be encrypted.
    fn body_mut(&mut self) -> &mut Self::Body;

    /// Moves cells from one slice to another of the same length.
    fn shift(from: &mut [Self], to: &mut [Self])
    where
        Self: Sized;
}

/// The body of a cell.
pub trait Body<S: CellModel>: Clone + fmt::Debug + Send + 'static {
    /// The body of a cell that is not a relay cell, with these bytes.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// The bytes of such a body; zeros may follow.
    fn bytes(&self) -> &[u8];

    /// Parses a relay cell's body without layers of encryption.
    ///
    /// # Errors
    /// If it is malformed.
    fn message(&self, format: RelayFormat) -> Result<Message<S::PayloadSlice<'_>>, Malformed>;

    /// Writes a relay message, without encryption, digest and tag.
    ///
    /// # Errors
    /// If the data does not fit, or the format does not allow the message.
    fn write(
        &mut self,
        format: RelayFormat,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Result<(), Malformed>;

    /// Writes a DATA message without encryption and digest. `fill` writes at most `most_bytes` of data into the
    /// buffer and returns their number; with zero, the body is unusable.
    fn write_data(
        &mut self,
        format: RelayFormat,
        stream_id: StreamId,
        most_bytes: usize,
        fill: impl FnOnce(S::Room<'_>) -> usize,
    ) -> usize;

    /// Writes random bytes into the padding of a DATA cell, at this offset after the beginning of its data.
    fn salt(&mut self, format: RelayFormat, at: usize, salt: &Salt);

    /// Fills it with pseudorandom bytes from the seed.
    fn forge(&mut self, seed: &[u8; 16]);
}

/// A slice of a stream's data.
pub trait PayloadSlice<'a>: Copy + fmt::Debug {
    /// With these bytes.
    fn from_bytes(bytes: &'a [u8]) -> Self;

    /// The bytes of a message other than DATA.
    fn bytes(self) -> &'a [u8];

    /// The length in bytes of the stream.
    fn len(self) -> usize;

    /// Whether it is empty.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Splits it after the first `at` bytes.
    fn split_at(self, at: usize) -> (Self, Self);
}

/// Stream data that is queued for its destination.
pub trait Buffer<S: CellModel>: Default + fmt::Debug + Send {
    /// The length in bytes of the stream.
    fn len(&self) -> usize;

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that it occupies, in bytes.
    fn held_bytes(&self) -> usize;

    /// Appends data.
    fn push(&mut self, data: S::PayloadSlice<'_>);

    /// Moves data into `room` until `room` is full or the buffer is empty; returns the number of bytes of the
    /// stream.
    fn pop_into(&mut self, room: S::Room<'_>) -> usize;

    /// Releases capacity that was not used since the last call.
    fn shrink(&mut self);
}

/// The relay's side of the layer that it shares with a client.
pub trait Layer<S: CellModel>: fmt::Debug + Send {
    /// From the keys of a handshake.
    fn new(keys: &S::Keys) -> Self;

    /// The message format of its cells.
    fn format(&self) -> RelayFormat;

    /// Decrypts a RELAY or RELAY_EARLY cell in the forward direction; returns true if the cell is for this
    /// relay.
    fn decrypt(&mut self, command: Command, body: &mut S::Body) -> bool;

    /// Seals a cell of this relay and encrypts it.
    fn originate(&mut self, body: &mut S::Body);

    /// Encrypts a cell of the next hop in the backward direction.
    fn pass_back(&mut self, body: &mut S::Body);

    /// The tag of the last cell that [`originate`](Self::originate) sealed.
    fn sent_tag(&self) -> SendmeTag;

    /// The tag of the last cell for this relay.
    fn received_tag(&self) -> SendmeTag;

    /// To be called periodically: releases memory that no cell has needed since the last call.
    fn rest(&mut self) {}
}

/// The layer of a measurement circuit.
pub trait EchoLayer<S: CellModel>: fmt::Debug + Send {
    /// From the keys of a handshake.
    fn new(keys: &S::FastKeys) -> Self;

    /// Removes the layer.
    fn apply(&mut self, body: &mut S::Body);
}

/// The client's side of the layers of a circuit, first hop first.
pub trait Layers<S: CellModel>: Default + fmt::Debug + Send {
    /// Adds the layer of the next hop.
    fn push(&mut self, keys: &S::Keys);

    /// The number of hops.
    fn len(&self) -> usize;

    /// Whether there are no hops yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message format of a hop's cells.
    fn format(&self, hop: usize) -> RelayFormat;

    /// Seals a cell for the hop at this index and encrypts it for that hop and all before it. The command is
    /// RELAY or RELAY_EARLY.
    fn seal(&mut self, hop: usize, command: Command, body: &mut S::Body);

    /// Decrypts a cell up to the hop that sent it; returns that hop's index.
    ///
    /// # Errors
    /// If no hop has sent it.
    fn open(&mut self, body: &mut S::Body) -> Result<usize, CryptError>;

    /// The tag of the last cell that was sealed for a hop.
    fn sent_tag(&self, hop: usize) -> SendmeTag;

    /// The tag of the last cell from a hop.
    fn received_tag(&self, hop: usize) -> SendmeTag;
}

/// The client's side of the handshake with one hop.
pub trait Handshake<S: CellModel>: fmt::Debug + Send + Sized {
    /// CREATE_FAST, for a first hop. `x` is fresh random bytes.
    fn fast(x: [u8; 20]) -> Self;

    /// ntor with this relay. `ephemeral_secret` is fresh random bytes.
    fn ntor(relay: &NextHop, ephemeral_secret: [u8; 32]) -> Self;

    /// ntor v3 with this relay and this request. `ephemeral_secret` is fresh random bytes.
    ///
    /// # Errors
    /// If the known keys of the relay do not suffice.
    fn ntor_v3(
        relay: &NextHop,
        ephemeral_secret: [u8; 32],
        request: Request,
    ) -> Result<Self, HandshakeFailed>;

    /// The client's ephemeral public key, if the handshake has one.
    fn public(&self) -> Option<&[u8; 32]>;

    /// The cell that creates the circuit: command and body.
    fn create_cell(&self) -> (Command, Vec<u8>);

    /// The handshake for EXTEND2: the content of its CREATE2.
    fn message(&self) -> Vec<u8>;

    /// The handshake in a CREATE2 or an EXTEND2.
    fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a>;

    /// Handles the first hop's answer to that cell.
    ///
    /// # Errors
    /// If it is invalid or proves nothing.
    fn finish_created(&self, command: Command, body: &[u8]) -> Result<Finished<S>, CircuitError>;

    /// Handles a relay's answer from CREATED2 or EXTENDED2.
    ///
    /// # Errors
    /// If it is invalid or proves nothing.
    fn finish_extended(&self, data: &[u8]) -> Result<Finished<S>, CircuitError>;
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
