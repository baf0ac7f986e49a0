//! What happens on circuits.

use super::event::{CircuitNumber, ClientEvent, Loss, Outcome, StreamNumber};
use super::{Client, Destination};
use crate::cell::msg::{Begin, DestroyReason, End, EndReason, Sendme, Xon};
use crate::cell::relay::{RelayCommand, RelayMessage};
use crate::cell::{BODY_LEN, CircId, Command};
use crate::circuit::{Builder, Built, CircuitError, Step};
use crate::crypto::Layers;
use crate::flow::control::{CircuitFlow, Flow, PathKind, PathState, SendmeTags, Vegas};
use crate::flow::stream::StreamSignal;
use crate::link::Channel;
use crate::node::ConnId;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rand_core::Rng;

/// A circuit, from before its first cell to its end.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) conn: ConnId,
    pub(super) circ_id: CircId,
    pub(super) state: State,
    /// When its first cell was sent.
    pub(super) began_at: Instant,
    /// Streams whose BEGIN waits for the circuit to stand.
    pub(super) waiting: Vec<StreamNumber>,
    pub(super) streams: BTreeMap<u16, StreamNumber>,
    last_stream_id: u16,
    /// Streams that have something to send, each once.
    pub(super) sending: VecDeque<StreamNumber>,
}

/// How far a circuit is.
#[derive(Debug)]
pub(super) enum State {
    Building(Builder),
    Up(Up),
}

/// A finished circuit.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) layers: Layers,
    /// The place of the last hop.
    pub(super) last: usize,
    pub(super) flow: Flow,
    pub(super) tags: SendmeTags,
}

impl Up {
    /// Sends a message to the last hop.
    pub(super) fn send(
        &mut self,
        channel: &mut Channel,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        // Our own messages fit.
        let Ok(mut body) = (RelayMessage { command, stream_id, data }).to_body() else { return };
        self.layers.seal(self.last, &mut body);
        channel.send(circ_id, Command::RELAY, &body);
    }
}

impl Circuit {
    pub(super) const fn new(conn: ConnId, circ_id: CircId, builder: Builder) -> Self {
        Self {
            conn,
            circ_id,
            state: State::Building(builder),
            began_at: Instant::ORIGIN,
            waiting: Vec::new(),
            streams: BTreeMap::new(),
            last_stream_id: 0,
            sending: VecDeque::new(),
        }
    }

    /// A stream ID that is free; none if all are taken.
    fn next_stream_id(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.last_stream_id = self.last_stream_id.wrapping_add(1);
            if self.last_stream_id != 0 && !self.streams.contains_key(&self.last_stream_id) {
                return Some(self.last_stream_id);
            }
        }
        None
    }
}

impl<R: Rng> Client<R> {
    /// A cell has come on a circuit.
    pub(super) fn handle_cell(
        &mut self,
        now: Instant,
        channel: &mut Channel,
        number: CircuitNumber,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        let result = match &mut circuit.state {
            State::Building(builder) => match builder.handle_cell(command, body) {
                Ok(Step::Send { command, body }) => {
                    channel.send(circuit.circ_id, command, &body);
                    Ok(())
                }
                Ok(Step::Built) => {
                    self.finish(now, number);
                    self.begin_on(now, channel, number);
                    Ok(())
                }
                Err(error) => Err(Loss::Circuit(error)),
            },
            State::Up(_) if command == Command::RELAY => {
                self.handle_relay(now, channel, number, body)
            }
            State::Up(_) if command == Command::DESTROY => {
                Err(Loss::Circuit(CircuitError::Destroyed(DestroyReason::parse(body))))
            }
            State::Up(_) => Err(Loss::Circuit(CircuitError::Unexpected(command))),
        };
        if let Err(cause) = result {
            let Some(circuit) = self.circuits.get(&number) else { return };
            if command != Command::DESTROY {
                let reason = [DestroyReason::PROTOCOL.get()];
                channel.send(circuit.circ_id, Command::DESTROY, &reason);
            }
            self.lose_circuit(number, cause);
        }
    }

    /// A circuit stands.
    fn finish(&mut self, now: Instant, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        let began_at = circuit.began_at;
        let State::Building(builder) = &mut circuit.state else { return };
        let Built { layers, congestion_sendme_cells } = builder.take_built();
        let flow = congestion_sendme_cells.map_or_else(Flow::default, |sendme_cells| {
            let params = Arc::clone(&self.congestion);
            Flow::Vegas(Box::new(Vegas::new(params, PathKind::Exit, sendme_cells)))
        });
        let last = layers.len().saturating_sub(1);
        circuit.state = State::Up(Up { layers, last, flow, tags: SendmeTags::new() });
        self.tell(ClientEvent::Built { circuit: number, took: now - began_at });
    }

    /// Sends the BEGINs that waited, where the channel is not in use.
    pub(super) fn begin_waiting(&mut self, now: Instant, number: CircuitNumber) {
        self.with_channel(number, |client, channel| client.begin_on(now, channel, number));
    }

    /// Sends the first cell of a circuit.
    pub(super) fn create_on(&mut self, now: Instant, channel: &mut Channel, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        let State::Building(builder) = &circuit.state else { return };
        circuit.began_at = now;
        if let Some((command, body)) = builder.create() {
            channel.send(circuit.circ_id, command, &body);
        }
    }

    /// Lends the channel of a circuit's link.
    pub(super) fn with_channel(
        &mut self,
        number: CircuitNumber,
        act: impl FnOnce(&mut Self, &mut Channel),
    ) {
        let Some(conn) = self.circuits.get(&number).map(|circuit| circuit.conn) else { return };
        let channel = self.links.get_mut(&conn).and_then(|link| link.channel.take());
        let Some(mut channel) = channel else { return };
        act(self, &mut channel);
        if let Some(link) = self.links.get_mut(&conn) {
            link.channel = Some(channel);
            self.wake(conn);
        }
    }

    fn begin_on(&mut self, now: Instant, channel: &mut Channel, number: CircuitNumber) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        if !matches!(circuit.state, State::Up(_)) {
            return;
        }
        for stream in core::mem::take(&mut circuit.waiting) {
            let (Some(it), Some(id)) = (self.streams.get_mut(&stream), circuit.next_stream_id())
            else {
                self.streams.remove(&stream);
                continue;
            };
            let State::Up(up) = &mut circuit.state else { return };
            it.begin(now, id, up.flow.client_stream());
            circuit.streams.insert(id, stream);
            let mut data = Vec::new();
            let command = match &it.to {
                Destination::Directory => RelayCommand::BEGIN_DIR,
                Destination::Host(host, port, flags) => {
                    Begin { host, port: *port, flags: *flags }.encode_into(&mut data);
                    RelayCommand::BEGIN
                }
            };
            up.send(channel, circuit.circ_id, command, id, &data);
        }
    }

    fn handle_relay(
        &mut self,
        now: Instant,
        channel: &mut Channel,
        number: CircuitNumber,
        body: &[u8; BODY_LEN],
    ) -> Result<(), Loss> {
        let Some(circuit) = self.circuits.get_mut(&number) else { return Ok(()) };
        let State::Up(up) = &mut circuit.state else { return Ok(()) };
        let lost = |error| Loss::Circuit(error);
        let mut plain = *body;
        let from = up.layers.open(&mut plain).map_err(|it| lost(CircuitError::Crypt(it)))?;
        let message =
            RelayMessage::parse(&plain).map_err(|it| lost(CircuitError::Malformed(it)))?;
        let is_data = message.command == RelayCommand::DATA;
        if is_data && up.flow.handle_received() {
            let tag = up.layers.received_tag(from);
            let mut data = Vec::new();
            Sendme::Tagged(&tag).encode_into(&mut data);
            up.send(channel, circuit.circ_id, RelayCommand::SENDME, 0, &data);
        }
        match message.command {
            RelayCommand::SENDME if message.stream_id == 0 => {
                let sendme = Sendme::parse(message.data);
                let sendme = sendme.map_err(|it| lost(CircuitError::Malformed(it)))?;
                up.tags.handle_sendme(&sendme, false).map_err(Loss::Flow)?;
                let path = PathState { is_link_blocked: false, queued_cells: 0 };
                up.flow.handle_sendme(now, path).map_err(Loss::Flow)
            }
            RelayCommand::TRUNCATED => {
                let reason = DestroyReason::parse(message.data);
                Err(lost(CircuitError::Truncated(reason)))
            }
            // What is for a stream that is over may still be under way; DROP is padding.
            command => match circuit.streams.get(&message.stream_id).copied() {
                Some(stream) => self.handle_stream(now, channel, stream, command, message.data),
                None => Ok(()),
            },
        }
    }

    fn handle_stream(
        &mut self,
        now: Instant,
        channel: &mut Channel,
        number: StreamNumber,
        command: RelayCommand,
        data: &[u8],
    ) -> Result<(), Loss> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        let circuit = stream.circuit;
        let outcome = match (command, &mut stream.flow) {
            (RelayCommand::CONNECTED, _) if !stream.is_connected => {
                stream.connect(now);
                if let Some(circuit) = self.circuits.get_mut(&circuit) {
                    circuit.sending.push_back(number);
                }
                None
            }
            (RelayCommand::DATA, _) => {
                self.received_bytes += data.len() as u64;
                stream.receive(now, data).map_err(Loss::Flow)?
            }
            (RelayCommand::END, _) => Some(Outcome::Ended(End::parse(data).reason)),
            (RelayCommand::SENDME, Some(flow)) => {
                flow.handle_sendme().map_err(Loss::Flow)?;
                None
            }
            // As tor: what makes no sense here is passed over.
            (RelayCommand::XOFF, Some(flow)) => {
                let _ = flow.handle_xoff();
                None
            }
            (RelayCommand::XON, Some(flow)) => {
                if let Ok(xon) = Xon::parse(data) {
                    let _ = flow.handle_xon(now, xon);
                }
                None
            }
            _ => None,
        };
        self.signal(channel, number);
        if let Some(outcome) = outcome {
            let Some(mut stream) = self.streams.remove(&number) else { return Ok(()) };
            let figures = stream.last_figures(now);
            if let Some(circuit) = self.circuits.get_mut(&circuit) {
                circuit.streams.remove(&stream.id);
                if command != RelayCommand::END
                    && let State::Up(up) = &mut circuit.state
                {
                    let done = [EndReason::DONE.0];
                    up.send(channel, circuit.circ_id, RelayCommand::END, stream.id, &done);
                }
            }
            self.tell(ClientEvent::Over { stream: number, outcome, figures });
        }
        Ok(())
    }

    /// Sends what the flow control of a stream has to say.
    fn signal(&mut self, channel: &mut Channel, number: StreamNumber) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let Some(flow) = &mut stream.flow else { return };
        let Some(circuit) = self.circuits.get_mut(&stream.circuit) else { return };
        let State::Up(up) = &mut circuit.state else { return };
        while let Some(signal) = flow.poll_signal() {
            let mut data = Vec::new();
            let command = match signal {
                StreamSignal::Sendme => RelayCommand::SENDME,
                StreamSignal::Xoff => {
                    crate::cell::msg::Xoff.encode_into(&mut data);
                    RelayCommand::XOFF
                }
                StreamSignal::Xon(xon) => {
                    xon.encode_into(&mut data);
                    RelayCommand::XON
                }
            };
            up.send(channel, circuit.circ_id, command, stream.id, &data);
        }
    }

    /// The same, where the channel is not in use.
    pub(super) fn send_signals(&mut self, stream: StreamNumber) {
        let Some(circuit) = self.streams.get(&stream).map(|stream| stream.circuit) else { return };
        self.with_channel(circuit, |client, channel| client.signal(channel, stream));
    }

    /// Ends a stream from our side.
    pub(super) fn end_with(&mut self, number: StreamNumber, reason: EndReason) {
        let Some(stream) = self.streams.remove(&number) else { return };
        self.with_channel(stream.circuit, |client, channel| {
            let Some(circuit) = client.circuits.get_mut(&stream.circuit) else { return };
            circuit.waiting.retain(|waiting| *waiting != number);
            if circuit.streams.remove(&stream.id).is_some()
                && let State::Up(up) = &mut circuit.state
            {
                let reason = [reason.0];
                up.send(channel, circuit.circ_id, RelayCommand::END, stream.id, &reason);
            }
        });
    }
}
