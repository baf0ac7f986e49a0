//! The centre of the client: its state, and its getters and commands.
//!
//! [`Core`] owns links, tunnels and streams. The sibling modules implement its methods by topic. It must not
//! know bytes, framing or TLS ([`face`](super::face)), and it does not choose paths: the caller does.

use super::EVENTS_MAX;
use super::application::Application;
use super::circuit::{Circuit, Passage, Stage};
use super::event::{CircuitNumber, ClientEvent, Figures, Loss, StreamNumber};
use super::link::Link;
use super::set::leg_state;
use super::streams::Stream;
use crate::cell::Command;
use crate::cell::msg::{DestroyReason, EndReason};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, Message, PayloadSlice, StreamId};
use crate::circuit::NextHop;
use crate::flow::control::{CongestionParams, FlowFactory, TorFlows};
use crate::node::{ConnId, Dial};
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use rand_core::Rng;

/// The decisions of a client, over cells of any [`CellModel`]: no bytes, no link handshake.
///
/// - *getters*: [`is_built`](Self::is_built), [`has_hop_windows`](Self::has_hop_windows), [`silent_legs`](Self::silent_legs), [`open_circuits`](Self::open_circuits),
///   [`open_streams`](Self::open_streams), [`figures`](Self::figures),
///   [`received_bytes`](Self::received_bytes), [`first_hop`](Self::first_hop), [`hop_times`](Self::hop_times), [`legs`](Self::legs), [`resumes`](Self::resumes),
///   [`early_peak_cells`](Self::early_peak_cells);
/// - *commands*: [`set_congestion`](Self::set_congestion), [`set_flows`](Self::set_flows),
///   [`open`](Self::open), [`open_set`](Self::open_set), [`add_leg`](Self::add_leg), [`begin`](Self::begin), [`begin_at`](Self::begin_at), [`send_drops`](Self::send_drops), [`application_mut`](Self::application_mut),
///   [`send_more`](Self::send_more), [`pause`](Self::pause), [`resume`](Self::resume), [`end`](Self::end), [`destroy`](Self::destroy), [`close_idle`](Self::close_idle),
///   [`close_all`](Self::close_all);
/// - *handle*: [`handle_link_open`](Self::handle_link_open), [`handle_cell`](Self::handle_cell),
///   [`handle_feedback`](Self::handle_feedback), [`handle_broken`](Self::handle_broken), [`handle_closed`](Self::handle_closed),
///   [`handle_timeout`](Self::handle_timeout);
/// - *poll*: [`poll_dial`](Self::poll_dial), [`poll_writable`](Self::poll_writable),
///   [`poll_feedback`](Self::poll_feedback), [`poll_cells`](Self::poll_cells), [`poll_close`](Self::poll_close),
///   [`poll_timeout`](Self::poll_timeout), [`poll_event`](Self::poll_event).
///
/// Links are driven like the connections of a [`Node`](crate::node::Node), with cells instead of bytes.
pub struct Core<S: CellModel, A, R> {
    pub(super) rng: R,
    /// The time of the last call.
    pub(super) now: Instant,
    pub(super) links: BTreeMap<ConnId, Link<S>>,
    pub(super) passages: BTreeMap<CircuitNumber, Passage<S>>,
    pub(super) streams: BTreeMap<StreamNumber, Stream<A>>,
    pub(super) dialled: u32,
    pub(super) opened: u32,
    pub(super) begun: u32,
    pub(super) to_dial: VecDeque<Dial>,
    pub(super) writable: VecDeque<ConnId>,
    pub(super) to_close: VecDeque<ConnId>,
    /// When a rate-limited stream may send again.
    pub(super) room_at: Option<Instant>,
    /// When the sets are to be checked for legs that have timed out.
    pub(super) leg_check_at: Option<Instant>,
    pub(super) congestion: Arc<CongestionParams>,
    pub(super) flows: Arc<dyn FlowFactory>,
    pub(super) received_bytes: u64,
    events: VecDeque<ClientEvent>,
}

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// A client without circuits, with tor's flow control. All random numbers come from the generator.
    pub fn new(rng: R) -> Self {
        Self {
            rng,
            now: Instant::ORIGIN,
            links: BTreeMap::new(),
            passages: BTreeMap::new(),
            streams: BTreeMap::new(),
            dialled: 0,
            opened: 0,
            begun: 0,
            to_dial: VecDeque::new(),
            writable: VecDeque::new(),
            to_close: VecDeque::new(),
            room_at: None,
            leg_check_at: None,
            congestion: Arc::new(CongestionParams::default()),
            flows: Arc::new(TorFlows),
            received_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Sets the congestion control parameters of new circuits.
    pub fn set_congestion(&mut self, params: Arc<CongestionParams>) {
        self.congestion = params;
    }

    /// Sets the flow control implementation of new circuits.
    pub fn set_flows(&mut self, flows: Arc<dyn FlowFactory>) {
        self.flows = flows;
    }

    /// Whether a circuit is open.
    #[must_use]
    pub fn is_built(&self, circuit: CircuitNumber) -> bool {
        self.passages.get(&circuit).is_some_and(Passage::is_ready)
    }

    /// The legs of a circuit whose first hop has not answered; a circuit that is not a set has leg 0.
    #[must_use]
    pub fn silent_legs(&self, circuit: CircuitNumber) -> Vec<u8> {
        let is_silent = |circuit: &&Circuit<S>| match &circuit.stage {
            Stage::Building(builder) => !builder.has_first_hop(),
            Stage::Up(_) => false,
        };
        let Some(passage) = self.passages.get(&circuit) else { return Vec::new() };
        passage.legs.iter().filter(is_silent).map(|leg| leg.leg).collect()
    }

    /// The time from a circuit's first cell to each hop's answer, first hop first.
    #[must_use]
    pub fn hop_times(&self, circuit: CircuitNumber) -> &[Duration] {
        let leg = self.passages.get(&circuit).and_then(|passage| passage.legs.first());
        leg.map_or(&[], |leg| &leg.hop_times)
    }

    /// The number of circuits that are open or being built.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.passages.len()
    }

    /// The number of open streams.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The statistics of an open stream.
    #[must_use]
    pub fn figures(&self, stream: StreamNumber) -> Option<&Figures> {
        self.streams.get(&stream).map(Stream::figures)
    }

    /// Bytes received on all streams, including closed ones.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The relay that a link leads to.
    #[must_use]
    pub fn first_hop(&self, conn: ConnId) -> Option<&NextHop> {
        self.links.get(&conn).map(|link| &link.to)
    }

    /// Stops reading from a stream: received data is buffered and not acknowledged.
    pub fn pause(&mut self, stream: StreamNumber) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.is_paused = true;
        }
    }

    /// Delivers the buffered data of a stream and resumes reading.
    pub fn resume(&mut self, now: Instant, stream: StreamNumber) {
        self.now = now;
        let Some(paused) = self.streams.get_mut(&stream) else { return };
        paused.resume(now);
        self.signal(stream);
    }

    /// The application of an open stream.
    pub fn application_mut(&mut self, stream: StreamNumber) -> Option<&mut A> {
        self.streams.get_mut(&stream).map(Stream::application_mut)
    }

    /// The application of a stream has more data to send.
    pub fn send_more(&mut self, now: Instant, stream: StreamNumber) {
        self.now = now;
        let ready =
            self.streams.get(&stream).filter(|stream| stream.is_connected && stream.hop.is_none());
        let passage = ready.and_then(|stream| self.passages.get_mut(&stream.circuit));
        let Some(Passage { legs, streams, .. }) = passage else { return };
        if !streams.sending.contains(&stream) {
            streams.sending.push_back(stream);
        }
        let conns: Vec<ConnId> = legs.iter().map(|leg| leg.conn).collect();
        conns.into_iter().for_each(|conn| self.wake(conn));
    }

    /// Closes a stream. There is no event.
    pub fn end(&mut self, stream: StreamNumber) {
        self.end_with(stream, EndReason::DONE);
    }

    /// Destroys a circuit with all streams on it. There is no event.
    pub fn destroy(&mut self, circuit: CircuitNumber) {
        let Some(Passage { legs, .. }) = self.forget_circuit(circuit) else { return };
        for leg in legs {
            self.send(leg.conn, leg.circ_id, Command::DESTROY, &[DestroyReason::NONE.get()]);
        }
    }

    /// Closes all links without destroying their circuits first. There are no events.
    pub fn close_all(&mut self) {
        let circuits: Vec<CircuitNumber> = self.passages.keys().copied().collect();
        circuits.into_iter().for_each(|circuit| _ = self.forget_circuit(circuit));
        self.close_idle();
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.room_at.is_some_and(|at| at <= now) {
            self.room_at = None;
            let links: Vec<ConnId> = self.links.keys().copied().collect();
            links.into_iter().for_each(|conn| self.wake(conn));
        }
        self.check_leg_timeouts();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless something happens earlier.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.room_at.into_iter().chain(self.leg_check_at).min()
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub(super) fn report(&mut self, event: ClientEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A circuit is lost, with its streams.
    pub(super) fn lose_circuit(&mut self, circuit: CircuitNumber, cause: Loss) {
        if self.forget_circuit(circuit).is_some() {
            self.report(ClientEvent::Lost { circuit, cause });
        }
    }

    fn forget_circuit(&mut self, number: CircuitNumber) -> Option<Passage<S>> {
        let passage = self.passages.remove(&number)?;
        for circuit in &passage.legs {
            if let Some(link) = self.links.get_mut(&circuit.conn) {
                link.circuits.remove(&circuit.circ_id);
            }
        }
        for stream in passage.streams.iter() {
            self.streams.remove(&stream);
        }
        Some(passage)
    }

    /// Closes a stream from the client's side.
    pub(super) fn end_with(&mut self, number: StreamNumber, reason: EndReason) {
        let hop = self.streams.get(&number).and_then(|stream| stream.hop);
        if let Some((circuit, id)) = self.forget_stream(number) {
            self.queue_message_to(circuit, hop, RelayCommand::END, id, &[reason.0]);
        }
    }

    /// A stream is closed. Returns its place, if its BEGIN was sent.
    pub(super) fn forget_stream(
        &mut self,
        number: StreamNumber,
    ) -> Option<(CircuitNumber, StreamId)> {
        let Stream { circuit, id, .. } = self.streams.remove(&number)?;
        let Passage { streams, .. } = self.passages.get_mut(&circuit)?;
        streams.waiting.retain(|waiting| *waiting != number);
        streams.tunnel.remove(id).map(|_| (circuit, id))
    }

    /// Queues a message to the last hop of an open circuit.
    pub(super) fn queue_message(
        &mut self,
        number: CircuitNumber,
        command: RelayCommand,
        stream_id: StreamId,
        data: &[u8],
    ) {
        self.queue_message_to(number, None, command, stream_id, data);
    }

    /// Queues a message to the hop at this index; on a set, always to the last hop of the leg.
    pub(super) fn queue_message_to(
        &mut self,
        number: CircuitNumber,
        hop: Option<usize>,
        command: RelayCommand,
        stream_id: StreamId,
        data: &[u8],
    ) {
        let Some(Passage { legs, set, .. }) = self.passages.get_mut(&number) else { return };
        let leg = match set {
            Some(set) if command.is_multiplexed() => {
                set.conflux.choose_for_message(|leg| leg_state(legs, leg))
            }
            _ => legs.first().map(|leg| leg.leg),
        };
        let circuit = legs.iter_mut().find(|circuit| Some(circuit.leg) == leg);
        let Some(circuit) = circuit else { return };
        let conn = circuit.conn;
        let Some(link) = self.links.get_mut(&conn) else { return };
        if let Some(set) = set.as_deref_mut().filter(|_| command.is_multiplexed()) {
            set.begin_message(circuit).into_iter().for_each(|switch| link.push(switch));
        }
        let message = Message { command, stream_id, data: S::PayloadSlice::from_bytes(data) };
        if let Some(cell) = circuit.seal(hop.filter(|_| set.is_none()), &message) {
            link.push(cell);
            if let (Some(set), Some(up)) = (set, circuit.up())
                && command.is_multiplexed()
            {
                set.keep(circuit.leg, up.leg.format(), &message);
            }
            self.wake(conn);
        }
    }
}

impl<S: CellModel, A, R> fmt::Debug for Core<S, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (circuits, streams) = (self.passages.len(), self.streams.len());
        write!(f, "Client({circuits} circuits, {streams} streams)")
    }
}
