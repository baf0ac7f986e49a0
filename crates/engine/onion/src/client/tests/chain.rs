//! The relays of one circuit, made of a cell model's layers, and a destination behind the last.

use crate::cell::msg::{
    Create2, DestroyReason, EndReason, Extend2, Sendme, Xon, encode_created2_into,
};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{
    Body, HeaderOnly, HeaderOnlyPayload, Layer, Message, PayloadSlice, RunRoom, StreamId, Tor,
};
use crate::client::Transfer;
use crate::flow::QUEUE_LIMIT_CELLS;
use crate::flow::control::{Agreed, CircuitEnd, CongestionParams, Flow, FlowFactory, TorFlows};
use crate::flow::stream::{StreamFlow, StreamSignal};
use crate::time::Instant;
use crate::tunnel::Leg;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// A cell model over which the far end of a transfer can be simulated.
pub(super) trait Played: Staged {
    /// The destination's data from `from` on.
    fn respond(transfer: &Transfer, from: u64, has_upload: bool, room: Self::Room<'_>) -> usize;

    /// Whether this is the client's data from `from` on.
    fn is_request(transfer: &Transfer, from: u64, data: Self::PayloadSlice<'_>) -> bool;
}

impl Played for Tor {
    fn respond(transfer: &Transfer, from: u64, has_upload: bool, room: &mut [u8]) -> usize {
        transfer.fill_response(from, has_upload, room)
    }

    fn is_request(transfer: &Transfer, from: u64, data: &[u8]) -> bool {
        let mut expected = vec![0; data.len()];
        transfer.fill_request(from, &mut expected) == data.len() && expected == data
    }
}

impl Played for HeaderOnly {
    fn respond(transfer: &Transfer, from: u64, has_upload: bool, room: &mut RunRoom) -> usize {
        let receipt = if has_upload { Transfer::RECEIPT_LEN as u64 } else { 0 };
        room.put(from, transfer.download_bytes + receipt - from)
    }

    fn is_request(_transfer: &Transfer, from: u64, data: HeaderOnlyPayload<'_>) -> bool {
        Self::is_from(data, from)
    }
}

/// A cell that a relay saw from the client: circuit, cell, hop, message, stream, and bytes of data. Lengths of
/// handshakes differ between cell models.
pub(super) type Seen = (CircId, Command, usize, u8, StreamId, usize);

/// The manipulation of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liar {
    Nobody,
    /// The last hop omits its third DATA cell.
    Skipping,
    /// The first hop forges a cell when the stream begins.
    Forging,
    /// The last hop destroys the circuit when the stream begins.
    Cutting,
    /// The first hop destroys the circuit when the stream begins.
    Destroying,
    /// The last hop acknowledges cells that it has not received.
    Acknowledging,
    /// No hop opens streams.
    Refusing,
    /// The last hop answers instead of the others.
    Meddling,
    /// Data precedes CONNECTED.
    Eager,
}

/// A stream at its exit.
#[derive(Debug)]
struct Exiting {
    flow: StreamFlow,
    transfer: Transfer,
    received_bytes: u64,
    sent_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Chain<S: Played> {
    circ_id: CircId,
    /// The transfers that will be requested, in order.
    transfers: VecDeque<Transfer>,
    liar: Liar,
    offered: Agreed,
    layers: Vec<S::Layer>,
    leg: Leg,
    streams: BTreeMap<StreamId, Exiting>,
    data_cells: u32,
    pub(super) out: VecDeque<(Command, S::Body)>,
    pub(super) seen: Vec<Seen>,
}

fn leg(agreed: Agreed, format: RelayFormat) -> Leg {
    let params = Arc::new(CongestionParams::default());
    let flow = Flow::new(TorFlows.end(&params, agreed));
    Leg::new(flow, format, QUEUE_LIMIT_CELLS)
}

impl<S: Played> Chain<S> {
    pub(super) fn new(circ_id: CircId, transfers: &[Transfer], liar: Liar) -> Self {
        Self {
            circ_id,
            transfers: transfers.iter().copied().collect(),
            liar,
            offered: Agreed { congestion_sendme_cells: Some(31) },
            layers: Vec::new(),
            leg: leg(Agreed::default(), RelayFormat::V0),
            streams: BTreeMap::new(),
            data_cells: 0,
            out: VecDeque::new(),
            seen: Vec::new(),
        }
    }

    /// A cell from the client arrives.
    pub(super) fn handle_cell(&mut self, now: Instant, command: Command, body: &S::Body) {
        let about_circuit = (self.circ_id, command, 0, 0, StreamId::CIRCUIT, 0);
        match command {
            Command::CREATE_FAST => {
                self.seen.push(about_circuit);
                let (created, keys) = S::answer_fast(body, [1; 20]);
                self.layers.push(S::Layer::new(&keys.into()));
                self.out.push_back((Command::CREATED_FAST, S::Body::from_bytes(&created)));
            }
            Command::CREATE2 => {
                self.seen.push(about_circuit);
                let create = Create2::parse(body.bytes()).expect("well-formed");
                let created = self.extend(&create);
                self.out.push_back((Command::CREATED2, S::Body::from_bytes(&created)));
            }
            Command::RELAY | Command::RELAY_EARLY => {
                let mut body = body.clone();
                let hop =
                    self.layers.iter_mut().position(|layer| layer.decrypt(command, &mut body));
                let hop = hop.expect("one of the hops recognizes it");
                let format = self.layers[hop].format();
                let message = body.message(format).expect("well-formed");
                self.handle_message(now, hop, command, &message);
                self.package(now);
            }
            other => self.seen.push((self.circ_id, other, 0, 0, StreamId::CIRCUIT, 0)),
        }
    }

    /// The next relay answers.
    fn extend(&mut self, create: &Create2<'_>) -> Vec<u8> {
        let number = u8::try_from(self.layers.len() + 1).unwrap();
        let answer = S::answer(&S::identity(number), create, self.offered, || [number; 32]);
        let answer = answer.expect("honest");
        let layer = S::Layer::new(&answer.keys);
        self.leg = leg(answer.agreed, layer.format());
        self.layers.push(layer);
        let mut created = Vec::new();
        encode_created2_into(&answer.data, &mut created);
        created
    }

    fn send_from(&mut self, hop: usize, mut body: S::Body) {
        self.layers[hop].originate(&mut body);
        self.layers[..hop].iter_mut().rev().for_each(|layer| layer.pass_back(&mut body));
        self.out.push_back((Command::RELAY, body));
    }

    fn send(&mut self, hop: usize, command: RelayCommand, stream_id: StreamId, data: &[u8]) {
        let mut body = S::Body::from_bytes(&[]);
        let data = S::PayloadSlice::from_bytes(data);
        let format = self.layers[hop].format();
        body.write(format, &Message { command, stream_id, data }).expect("it fits");
        self.send_from(hop, body);
    }

    fn handle_message(
        &mut self,
        now: Instant,
        hop: usize,
        command: Command,
        message: &Message<S::PayloadSlice<'_>>,
    ) {
        let Message { command: RelayCommand(number), stream_id, data } = *message;
        let is_handshake = message.command == RelayCommand::EXTEND2;
        let len = if is_handshake { 0 } else { data.len() };
        self.seen.push((self.circ_id, command, hop, number, stream_id, len));
        match message.command {
            RelayCommand::EXTEND2 => {
                assert_eq!((command, hop + 1), (Command::RELAY_EARLY, self.layers.len()));
                let extend = Extend2::parse(data.bytes()).expect("well-formed");
                let created = self.extend(&extend.create);
                self.send(hop, RelayCommand::EXTENDED2, StreamId::CIRCUIT, &created);
            }
            RelayCommand::BEGIN => self.begin(hop, stream_id),
            RelayCommand::DATA => self.handle_data(now, hop, stream_id, data),
            RelayCommand::DROP => {}
            RelayCommand::END => _ = self.streams.remove(&stream_id),
            RelayCommand::SENDME if stream_id == StreamId::CIRCUIT => {
                let sendme = Sendme::parse(data.bytes()).expect("well-formed");
                let path = self.leg.path(0);
                self.leg.flow.handle_sendme(now, &sendme, path).expect("earned");
            }
            other => {
                let Some(stream) = self.streams.get_mut(&stream_id) else { return };
                let handled = match other {
                    RelayCommand::SENDME => stream.flow.handle_sendme(),
                    RelayCommand::XOFF => stream.flow.handle_xoff(),
                    RelayCommand::XON => {
                        stream.flow.handle_xon(now, Xon::parse(data.bytes()).unwrap())
                    }
                    _ => panic!("{message:?}"),
                };
                handled.expect("it conforms to the negotiated flow control");
            }
        }
    }

    fn begin(&mut self, hop: usize, stream_id: StreamId) {
        let refusal = [EndReason::EXIT_POLICY.0];
        match self.liar {
            Liar::Refusing => return self.send(hop, RelayCommand::END, stream_id, &refusal),
            Liar::Meddling => {
                let last = self.layers.len() - 1;
                return self.send(last, RelayCommand::END, stream_id, &refusal);
            }
            Liar::Eager => self.send(hop, RelayCommand::DATA, stream_id, b"early"),
            _ => {}
        }
        let flow = self.leg.flow.stream(CircuitEnd::Exit);
        let transfer = self.transfers.pop_front().expect("one for each stream");
        let stream = Exiting { flow, transfer, received_bytes: 0, sent_bytes: 0 };
        self.streams.insert(stream_id, stream);
        self.send(hop, RelayCommand::CONNECTED, stream_id, &[]);
        let reason = [DestroyReason::PROTOCOL.get()];
        match self.liar {
            Liar::Nobody | Liar::Skipping | Liar::Refusing | Liar::Meddling | Liar::Eager => {}
            Liar::Forging => {
                let mut body = S::Body::from_bytes(&[]);
                body.forge(&[5; 16]);
                self.out.push_back((Command::RELAY, body));
            }
            Liar::Cutting => self.send(hop, RelayCommand::TRUNCATED, StreamId::CIRCUIT, &reason),
            Liar::Destroying => {
                self.out.push_back((Command::DESTROY, S::Body::from_bytes(&reason)));
            }
            Liar::Acknowledging => {
                let mut data = Vec::new();
                Sendme::Tagged(&[0; 20]).encode_into(&mut data);
                self.send(hop, RelayCommand::SENDME, StreamId::CIRCUIT, &data);
            }
        }
    }

    fn handle_data(
        &mut self,
        now: Instant,
        hop: usize,
        stream_id: StreamId,
        data: S::PayloadSlice<'_>,
    ) {
        if self.leg.flow.handle_received() {
            let tag = self.layers[hop].received_tag();
            let mut data = Vec::new();
            Sendme::Tagged(tag.as_bytes()).encode_into(&mut data);
            self.send(hop, RelayCommand::SENDME, StreamId::CIRCUIT, &data);
        }
        let Some(stream) = self.streams.get_mut(&stream_id) else { return };
        assert!(S::is_request(&stream.transfer, stream.received_bytes, data), "{stream:?}");
        stream.received_bytes += data.len() as u64;
        stream.flow.handle_delivered(now, data.len()).expect("within its window");
        stream.flow.handle_drained(now, data.len(), 0);
        while let Some(signal) =
            self.streams.get_mut(&stream_id).and_then(|stream| stream.flow.poll_signal())
        {
            let mut data = Vec::new();
            let command = match signal {
                StreamSignal::Sendme => RelayCommand::SENDME,
                StreamSignal::Xoff => RelayCommand::XOFF,
                StreamSignal::Xon(xon) => {
                    xon.encode_into(&mut data);
                    RelayCommand::XON
                }
            };
            self.send(hop, command, stream_id, &data);
        }
    }

    /// Sends what the destination sends, as far as windows allow.
    fn package(&mut self, now: Instant) {
        let last = self.layers.len().saturating_sub(1);
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream_id in streams {
            while let Some(stream) = self.streams.get_mut(&stream_id)
                && self.leg.flow.room_cells() > 0
            {
                let most = usize::try_from(stream.flow.room_bytes(now)).unwrap_or(usize::MAX);
                let has_upload = stream.received_bytes == stream.transfer.request_bytes();
                let mut body = S::Body::from_bytes(&[]);
                let len = body.write_data(self.leg.format(), stream_id, most, |room| {
                    S::respond(&stream.transfer, stream.sent_bytes, has_upload, room)
                });
                if len == 0 {
                    break;
                }
                stream.flow.handle_packaged(len as u64);
                stream.sent_bytes += len as u64;
                self.data_cells += 1;
                if self.liar == Liar::Skipping && self.data_cells == 3 {
                    continue;
                }
                self.send_from(last, body);
                self.leg.flow.handle_sent(now, || self.layers[last].sent_tag());
            }
        }
    }
}
