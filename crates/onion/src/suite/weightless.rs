use super::{
    Answer, Body, Buffer, Cell, EchoLayer, Finished, Handshake, Layer, Layers, Message, Salt,
    StreamId, Stretch, Suite,
};
use crate::cell::msg::{Create2, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3, parse_created2};
use crate::cell::relay::{MAX_DATA_LEN, RelayCommand};
use crate::cell::{CircId, Command, Malformed};
use crate::circuit::{CircuitError, NextHop};
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::crypto::{CryptError, HandshakeFailed};
use crate::flow::control::{Agreed, SENDME_TAG_LEN};
use crate::identity::RelayIds;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Cells that hold next to nothing, for simulations: nobody encrypts, and streams carry lengths.
///
/// A layer is a number: how many hops away the relay is that a cell is for, or that has sent it. The tag of
/// a cell is how many its sender had sealed by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weightless;

impl Suite for Weightless {
    type Cell = WeightlessCell;
    type Body = WeightlessBody;
    type Stretch<'a> = WeightlessStretch<'a>;
    type Room<'a> = &'a mut RunRoom;
    type Buffer = RunBuffer;
    type Keys = ();
    type Layer = Count;
    type EchoLayer = Count;
    type Layers = Counts;
    type Handshake = NullHandshake;
    type Identity = RelayIds;

    fn ids(identity: &RelayIds) -> RelayIds {
        *identity
    }

    fn answer_fast(_body: &WeightlessBody, _y: [u8; 20]) -> (Vec<u8>, ()) {
        (Vec::new(), ())
    }

    fn answer(
        _identity: &RelayIds,
        create: &Create2<'_>,
        offered: Agreed,
        ephemeral: impl FnOnce() -> [u8; 32],
    ) -> Option<Answer<Self>> {
        let (data, agreed) = match create.handshake_type {
            HANDSHAKE_NTOR => (Vec::new(), Agreed::default()),
            HANDSHAKE_NTOR_V3 => {
                let agreed = Request::parse(create.data).ok()?.agree(offered)?;
                let congestion_sendme_cells = agreed.congestion_sendme_cells;
                (Response { congestion_sendme_cells }.encode(), agreed)
            }
            _ => return None,
        };
        ephemeral();
        Some(Answer { data, keys: (), agreed })
    }
}

/// A length of a stream's data, and where it begins: bytes of the stream before it, modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Where it begins.
    pub at: u32,
    /// Its bytes.
    pub len: u32,
}

impl Run {
    /// Where the data after it begins.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.at.wrapping_add(self.len)
    }
}

/// Data of a stream, or the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightlessStretch<'a> {
    /// Data: its length is all there is.
    Run(Run),
    /// A message.
    Bytes(&'a [u8]),
}

impl<'a> Stretch<'a> for WeightlessStretch<'a> {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Run(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Run(run) => run.len as usize,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Run(Run { at: begin, len }) => {
                let first = Run { at: begin, len: u32::try_from(at).unwrap_or(len).min(len) };
                let rest = Run { at: first.end(), len: len - first.len };
                (Self::Run(first), Self::Run(rest))
            }
            Self::Bytes(bytes) => {
                let (first, rest) = bytes.split_at(at);
                (Self::Bytes(first), Self::Bytes(rest))
            }
        }
    }
}

/// What is in a weightless cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightlessBody {
    /// Layers that are on it.
    layers: u8,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// By far the most frequent.
    Data(StreamId, Run),
    Message(RelayCommand, StreamId, Box<[u8]>),
    /// Of a cell that opens or closes circuits, or concerns a link.
    Bytes(Box<[u8]>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Data(StreamId::CIRCUIT, Run { at: 0, len: 0 })
    }
}

impl WeightlessBody {
    /// No relay has sealed it: with real layers it would be recognized nowhere.
    const fn is_noise(&self) -> bool {
        matches!(self.content, Content::Bytes(_))
    }
}

impl Body<Weightless> for WeightlessBody {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self { layers: 0, content: Content::Bytes(bytes.into()) }
    }

    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Data(..) | Content::Message(..) => &[],
        }
    }

    fn message(&self) -> Result<Message<WeightlessStretch<'_>>, Malformed> {
        let (command, stream_id, data) = match &self.content {
            Content::Data(stream_id, run) => {
                (RelayCommand::DATA, *stream_id, WeightlessStretch::Run(*run))
            }
            Content::Message(command, stream_id, bytes) => {
                (*command, *stream_id, WeightlessStretch::Bytes(bytes))
            }
            Content::Bytes(_) => {
                return Err(Malformed { message: "relay cell", problem: "no relay message in it" });
            }
        };
        Ok(Message { command, stream_id, data })
    }

    fn write(&mut self, message: &Message<WeightlessStretch<'_>>) -> Result<(), Malformed> {
        let Message { command, stream_id, data } = *message;
        if data.len() > MAX_DATA_LEN {
            return Err(Malformed { message: "relay cell", problem: "more data than fits" });
        }
        self.layers = 0;
        self.content = match data {
            WeightlessStretch::Run(run) => Content::Data(stream_id, run),
            WeightlessStretch::Bytes(bytes) => Content::Message(command, stream_id, bytes.into()),
        };
        Ok(())
    }

    fn salt(&mut self, _at: usize, _salt: &Salt) {}

    fn forge(&mut self, _seed: &[u8; 16]) {
        *self = Self::default();
    }
}

/// A weightless cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightlessCell {
    circ_id: CircId,
    command: u8,
    body: WeightlessBody,
}

impl Cell for WeightlessCell {
    type Body = WeightlessBody;

    const EMPTY: Self = Self {
        circ_id: CircId::LINK,
        command: 0,
        body: WeightlessBody {
            layers: 0,
            content: Content::Data(StreamId::CIRCUIT, Run { at: 0, len: 0 }),
        },
    };

    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut WeightlessBody {
        self.circ_id = circ_id;
        self.command = command.get();
        &mut self.body
    }

    fn circ_id(&self) -> CircId {
        self.circ_id
    }

    fn command(&self) -> Command {
        Command::new(self.command)
    }

    fn body(&self) -> &WeightlessBody {
        &self.body
    }

    fn shift(from: &mut [Self], to: &mut [Self]) {
        from.swap_with_slice(to);
    }
}

/// Where data of a stream goes: as much as there is room for, in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRoom {
    /// Bytes that it takes.
    pub room_bytes: u32,
    /// What was put there.
    pub run: Run,
}

/// Data of a stream that waits for its destination: runs, of which neighbours are one.
#[derive(Debug, Default)]
pub struct RunBuffer {
    runs: VecDeque<Run>,
    len: usize,
}

impl Buffer<Weightless> for RunBuffer {
    fn len(&self) -> usize {
        self.len
    }

    fn held_bytes(&self) -> usize {
        self.runs.len() * size_of::<Run>()
    }

    fn push(&mut self, data: WeightlessStretch<'_>) {
        let (at, len) = match data {
            WeightlessStretch::Run(run) => (run.at, run.len),
            WeightlessStretch::Bytes(bytes) => (0, u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        };
        self.len += len as usize;
        match self.runs.back_mut() {
            Some(last) if last.end() == at && last.len.checked_add(len).is_some() => {
                last.len += len;
            }
            _ if len > 0 => self.runs.push_back(Run { at, len }),
            _ => {}
        }
    }

    fn pop_into(&mut self, room: &mut RunRoom) -> usize {
        let Some(first) = self.runs.front_mut() else { return 0 };
        let len = first.len.min(room.room_bytes);
        room.run = Run { at: first.at, len };
        *first = Run { at: room.run.end(), len: first.len - len };
        if first.len == 0 {
            self.runs.pop_front();
        }
        self.len -= len as usize;
        len as usize
    }

    fn shrink(&mut self) {
        if self.runs.is_empty() {
            self.runs = VecDeque::new();
        }
    }
}

/// A relay's end of a layer: cells that it has sent, and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    sent: u64,
    received: u64,
}

fn tag(count: u64) -> [u8; SENDME_TAG_LEN] {
    let mut tag = [0; SENDME_TAG_LEN];
    tag[..8].copy_from_slice(&count.to_be_bytes());
    tag
}

impl Layer<Weightless> for Count {
    fn new((): &()) -> Self {
        Self::default()
    }

    #[inline]
    fn decrypt(&mut self, body: &mut WeightlessBody) -> bool {
        if body.layers > 0 || body.is_noise() {
            body.layers = body.layers.saturating_sub(1);
            return false;
        }
        self.received += 1;
        true
    }

    fn originate(&mut self, body: &mut WeightlessBody) {
        self.sent += 1;
        body.layers = 1;
    }

    #[inline]
    fn pass_back(&mut self, body: &mut WeightlessBody) {
        body.layers = body.layers.saturating_add(1);
    }

    fn sent_tag(&self) -> [u8; SENDME_TAG_LEN] {
        tag(self.sent)
    }

    fn received_tag(&self) -> [u8; SENDME_TAG_LEN] {
        tag(self.received)
    }
}

impl EchoLayer<Weightless> for Count {
    fn new((): &()) -> Self {
        Self::default()
    }

    fn apply(&mut self, _body: &mut WeightlessBody) {
        self.received += 1;
    }
}

/// The client's ends of layers.
#[derive(Debug, Default)]
pub struct Counts {
    hops: Vec<Count>,
}

impl Layers<Weightless> for Counts {
    fn push(&mut self, (): &()) {
        self.hops.push(Count::default());
    }

    fn len(&self) -> usize {
        self.hops.len()
    }

    fn seal(&mut self, hop: usize, body: &mut WeightlessBody) {
        let Some(it) = self.hops.get_mut(hop) else { return };
        it.sent += 1;
        body.layers = u8::try_from(hop).unwrap_or(u8::MAX);
    }

    fn open(&mut self, body: &mut WeightlessBody) -> Result<usize, CryptError> {
        if body.is_noise() {
            return Err(CryptError);
        }
        let hop = usize::from(body.layers).checked_sub(1).ok_or(CryptError)?;
        let it = self.hops.get_mut(hop).ok_or(CryptError)?;
        it.received += 1;
        body.layers = 0;
        Ok(hop)
    }

    fn sent_tag(&self, hop: usize) -> [u8; SENDME_TAG_LEN] {
        tag(self.hops.get(hop).map_or(0, |it| it.sent))
    }

    fn received_tag(&self, hop: usize) -> [u8; SENDME_TAG_LEN] {
        tag(self.hops.get(hop).map_or(0, |it| it.received))
    }
}

/// A handshake that asks for what the real one asks for, and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullHandshake {
    /// In the place of CREATE_FAST.
    Fast,
    /// In the place of ntor.
    Ntor,
    /// In the place of ntor of version 3.
    NtorV3 {
        /// Whether it asks for congestion control.
        wants_congestion_control: bool,
    },
}

impl Handshake<Weightless> for NullHandshake {
    fn fast(_x: [u8; 20]) -> Self {
        Self::Fast
    }

    fn ntor(_relay: &NextHop, _ephemeral_secret: [u8; 32]) -> Self {
        Self::Ntor
    }

    fn ntor_v3(
        relay: &NextHop,
        _ephemeral_secret: [u8; 32],
        wants_congestion_control: bool,
    ) -> Result<Self, HandshakeFailed> {
        let unknown =
            HandshakeFailed { handshake: "ntor-v3", problem: "no Ed25519 identity is known" };
        relay.ids.ed25519.map(|_| Self::NtorV3 { wants_congestion_control }).ok_or(unknown)
    }

    fn public(&self) -> Option<&[u8; 32]> {
        None
    }

    fn create_cell(&self) -> (Command, Vec<u8>) {
        if *self == Self::Fast {
            return (Command::CREATE_FAST, Vec::new());
        }
        let mut body = Vec::new();
        self.create2(&self.message()).encode_into(&mut body);
        (Command::CREATE2, body)
    }

    fn message(&self) -> Vec<u8> {
        match *self {
            Self::Fast | Self::Ntor => Vec::new(),
            Self::NtorV3 { wants_congestion_control } => {
                Request { wants_congestion_control, ..Request::default() }.encode()
            }
        }
    }

    fn create2<'a>(&self, message: &'a [u8]) -> Create2<'a> {
        let handshake_type = match self {
            Self::Fast | Self::Ntor => HANDSHAKE_NTOR,
            Self::NtorV3 { .. } => HANDSHAKE_NTOR_V3,
        };
        Create2 { handshake_type, data: message }
    }

    fn finish_created(
        &self,
        command: Command,
        body: &[u8],
    ) -> Result<Finished<Weightless>, CircuitError> {
        match (self, command) {
            (Self::Fast, Command::CREATED_FAST) => {
                Ok(Finished { keys: (), agreed: Agreed::default() })
            }
            (Self::Ntor | Self::NtorV3 { .. }, Command::CREATED2) => self.finish_extended(body),
            (_, other) => Err(CircuitError::Unexpected(other)),
        }
    }

    fn finish_extended(&self, data: &[u8]) -> Result<Finished<Weightless>, CircuitError> {
        let answer = parse_created2(data).map_err(CircuitError::Malformed)?;
        let agreed = match self {
            Self::Fast => return Err(CircuitError::Unexpected(Command::CREATED2)),
            Self::Ntor => Agreed::default(),
            Self::NtorV3 { .. } => {
                let response = Response::parse(answer).map_err(CircuitError::Malformed)?;
                Agreed { congestion_sendme_cells: response.congestion_sendme_cells }
            }
        };
        Ok(Finished { keys: (), agreed })
    }
}
