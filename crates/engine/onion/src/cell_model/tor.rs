mod handshake;

pub use handshake::Handshake;

use super::{
    Body, Buffer, Cell, CellModel, EchoLayer, HandshakeReply, Layer, Layers, Message, PayloadSlice,
    Salt, StreamId,
};
use crate::cell::msg::{Create2, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3};
use crate::cell::relay::{RelayCommand, RelayFormat, RelayMessage};
use crate::cell::{BODY_LEN, CELL_LEN, CircId, Command, Malformed, begin_fixed};
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::crypto::{
    self, CryptError, HopKeys, Keystream, LayerKeys, RelayLayer, fast, ntor, ntor_v3,
};
use crate::flow::control::{Agreed, SendmeTag};
use crate::identity::{OwnIdentity, RelayIds};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Tor's cells, as on real links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tor;

impl CellModel for Tor {
    type Cell = [u8; CELL_LEN];
    type Body = [u8; BODY_LEN];
    type PayloadSlice<'a> = &'a [u8];
    type Room<'a> = &'a mut [u8];
    type Buffer = ByteBuffer;
    type Keys = LayerKeys;
    type FastKeys = HopKeys;
    type Layer = RelayLayer;
    type EchoLayer = Keystream;
    type Layers = crypto::Layers;
    type Handshake = Handshake;
    type Identity = Arc<OwnIdentity>;

    fn ids(identity: &Arc<OwnIdentity>) -> RelayIds {
        identity.ids()
    }

    fn answer_fast(body: &[u8; BODY_LEN], y: [u8; 20]) -> (Vec<u8>, HopKeys) {
        let mut x = [0; 20];
        x.copy_from_slice(&body[..20]);
        let (created, keys) = fast::respond(&x, y);
        let mut answer = Vec::new();
        created.encode_into(&mut answer);
        (answer, keys)
    }

    fn answer(
        identity: &Arc<OwnIdentity>,
        create: &Create2<'_>,
        offered: Agreed,
        ephemeral: impl FnOnce() -> [u8; 32],
    ) -> Option<HandshakeReply<Self>> {
        match create.handshake_type {
            HANDSHAKE_NTOR => answer_ntor(identity, create.data, ephemeral()),
            HANDSHAKE_NTOR_V3 => answer_ntor_v3(identity, create.data, offered, ephemeral),
            _ => None,
        }
    }
}

fn answer_ntor(
    identity: &OwnIdentity,
    data: &[u8],
    ephemeral: [u8; 32],
) -> Option<HandshakeReply<Tor>> {
    let (answer, keys) = identity
        .onion_secrets()
        .find_map(|onion| ntor::respond(&identity.rsa.0, &onion, ephemeral, data).ok())?;
    Some(HandshakeReply { data: Vec::from(answer), keys: keys.into(), agreed: Agreed::default() })
}

/// C tor's clients use ntor v3 for relays that announce `Relay=4`. From exits that announce `FlowCtrl=2` they
/// request congestion control, and with it Counter Galois Onion if they announce `Relay=5-6`.
fn answer_ntor_v3(
    identity: &OwnIdentity,
    data: &[u8],
    offered: Agreed,
    ephemeral: impl FnOnce() -> [u8; 32],
) -> Option<HandshakeReply<Tor>> {
    let handshake = identity
        .onion_secrets()
        .find_map(|onion| ntor_v3::Server::open(&identity.ed25519.0, &onion, data).ok())?;
    let request = Request::parse(handshake.message()).ok()?;
    let agreed = request.agree(offered)?;
    let response = Response { congestion_sendme_cells: agreed.congestion_sendme_cells };
    let (data, keys) = handshake.respond(ephemeral(), &response.encode(), request.format()).ok()?;
    Some(HandshakeReply { data, keys, agreed })
}

impl Cell for [u8; CELL_LEN] {
    type Body = [u8; BODY_LEN];

    const EMPTY: Self = [0; CELL_LEN];

    #[inline]
    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut [u8; BODY_LEN] {
        begin_fixed(self, circ_id, command)
    }

    fn circ_id(&self) -> CircId {
        let [a, b, c, d, ..] = *self;
        CircId::new(u32::from_be_bytes([a, b, c, d]))
    }

    fn command(&self) -> Command {
        Command::new(self[4])
    }

    fn body(&self) -> &[u8; BODY_LEN] {
        let Some(body) = self.last_chunk() else { unreachable!("a cell is longer than its body") };
        body
    }

    fn body_mut(&mut self) -> &mut [u8; BODY_LEN] {
        let Some(body) = self.last_chunk_mut() else {
            unreachable!("a cell is longer than its body")
        };
        body
    }

    #[inline]
    fn shift(from: &mut [Self], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

impl Body<Tor> for [u8; BODY_LEN] {
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut body = [0; BODY_LEN];
        let len = bytes.len().min(BODY_LEN);
        body[..len].copy_from_slice(&bytes[..len]);
        body
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn message(&self, format: RelayFormat) -> Result<Message<&[u8]>, Malformed> {
        let RelayMessage { command, stream_id, data } = format.parse(self)?;
        Ok(Message { command, stream_id: StreamId(stream_id), data })
    }

    #[inline]
    fn write(&mut self, format: RelayFormat, message: &Message<&[u8]>) -> Result<(), Malformed> {
        let Message { command, stream_id: StreamId(stream_id), data } = *message;
        format.write(&RelayMessage { command, stream_id, data }, self)
    }

    fn write_data(
        &mut self,
        format: RelayFormat,
        stream_id: StreamId,
        most_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        let (header, rest) = self.split_at_mut(format.header_len(RelayCommand::DATA));
        let most_bytes = most_bytes.min(rest.len());
        let len = fill(&mut rest[..most_bytes]);
        format.write_header(header, RelayCommand::DATA, stream_id.0, len);
        rest[len..].fill(0);
        len
    }

    fn salt(&mut self, format: RelayFormat, at: usize, salt: &Salt) {
        let header_len = format.header_len(RelayCommand::DATA);
        self[header_len + at..][..salt.len()].copy_from_slice(salt);
    }

    fn forge(&mut self, seed: &[u8; 16]) {
        self.fill(0);
        Keystream::new(seed).apply(self);
    }
}

impl<'a> PayloadSlice<'a> for &'a [u8] {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        bytes
    }

    fn bytes(self) -> &'a [u8] {
        self
    }

    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        <[u8]>::split_at(self, at)
    }
}

/// The capacity that an idle buffer may keep.
const IDLE_MAX: usize = 2048;

/// Bytes queued for a destination.
#[derive(Debug, Default)]
pub struct ByteBuffer {
    bytes: VecDeque<u8>,
    /// Whether data has arrived since the last check.
    is_used: bool,
}

impl Buffer<Tor> for ByteBuffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, data: &[u8]) {
        self.bytes.extend(data);
        self.is_used = true;
    }

    fn pop_into(&mut self, room: &mut [u8]) -> usize {
        let count = room.len().min(self.bytes.len());
        let (first, second) = self.bytes.as_slices();
        let until_end = first.len().min(count);
        room[..until_end].copy_from_slice(&first[..until_end]);
        room[until_end..count].copy_from_slice(&second[..count - until_end]);
        self.bytes.drain(..count);
        count
    }

    fn shrink(&mut self) {
        let is_used = core::mem::take(&mut self.is_used);
        if !is_used && self.bytes.capacity() > IDLE_MAX.max(2 * self.bytes.len()) {
            self.bytes.shrink_to_fit();
        }
    }
}

impl Layer<Tor> for RelayLayer {
    fn new(keys: &LayerKeys) -> Self {
        Self::new(keys)
    }

    #[inline]
    fn format(&self) -> RelayFormat {
        self.format()
    }

    #[inline]
    fn decrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) -> bool {
        self.decrypt(command, body)
    }

    #[inline]
    fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        self.originate(body);
    }

    #[inline]
    fn pass_back(&mut self, body: &mut [u8; BODY_LEN]) {
        self.pass_back(body);
    }

    fn sent_tag(&self) -> SendmeTag {
        self.sent_tag()
    }

    fn received_tag(&self) -> SendmeTag {
        self.received_tag()
    }

    fn rest(&mut self) {
        self.rest();
    }
}

impl EchoLayer<Tor> for Keystream {
    fn new(keys: &HopKeys) -> Self {
        Self::new(&keys.key_forward)
    }

    #[inline]
    fn apply(&mut self, body: &mut [u8; BODY_LEN]) {
        self.apply(body);
    }
}

impl Layers<Tor> for crypto::Layers {
    fn push(&mut self, keys: &LayerKeys) {
        self.push(keys);
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn format(&self, hop: usize) -> RelayFormat {
        self.format(hop)
    }

    fn seal(&mut self, hop: usize, command: Command, body: &mut [u8; BODY_LEN]) {
        self.seal(hop, command, body);
    }

    fn open(&mut self, body: &mut [u8; BODY_LEN]) -> Result<usize, CryptError> {
        self.open(body)
    }

    fn sent_tag(&self, hop: usize) -> SendmeTag {
        self.sent_tag(hop)
    }

    fn received_tag(&self, hop: usize) -> SendmeTag {
        self.received_tag(hop)
    }
}
