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

/// What a client decides, over cells of any [`CellModel`]: no bytes, and links that stand already or not at all.
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
/// Links are driven as the connections of a [`Node`](crate::node::Node) are, with cells in the place of bytes.
pub struct Core<S: CellModel, A, R> {
    pub(super) rng: R,
    /// That of the last call.
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
    /// When a stream that was asked to be slow may send again.
    pub(super) room_at: Option<Instant>,
    /// When sets are to be looked at: one has a leg that may be silent.
    pub(super) look_at: Option<Instant>,
    pub(super) congestion: Arc<CongestionParams>,
    pub(super) flows: Arc<dyn FlowFactory>,
    pub(super) received_bytes: u64,
    events: VecDeque<ClientEvent>,
}

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// One without circuits, with tor's flow control. All randomness comes from the generator.
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
            look_at: None,
            congestion: Arc::new(CongestionParams::default()),
            flows: Arc::new(TorFlows),
            received_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Congestion control of circuits that come to stand from now on.
    pub fn set_congestion(&mut self, params: Arc<CongestionParams>) {
        self.congestion = params;
    }

    /// Whose flow control circuits get that come to stand from now on.
    pub fn set_flows(&mut self, flows: Arc<dyn FlowFactory>) {
        self.flows = flows;
    }

    /// Whether a circuit stands.
    #[must_use]
    pub fn is_built(&self, circuit: CircuitNumber) -> bool {
        self.passages.get(&circuit).is_some_and(Passage::is_ready)
    }

    /// Legs of a circuit whose first hop has not answered; of one that is no set, leg 0.
    #[must_use]
    pub fn silent_legs(&self, circuit: CircuitNumber) -> Vec<u8> {
        let is_silent = |it: &&Circuit<S>| match &it.stage {
            Stage::Building(builder) => !builder.has_first_hop(),
            Stage::Up(_) => false,
        };
        let Some(passage) = self.passages.get(&circuit) else { return Vec::new() };
        passage.legs.iter().filter(is_silent).map(|it| it.leg).collect()
    }

    /// How long after a circuit's first cell each of its hops had answered, first hop first: the time to set up so many hops.
    #[must_use]
    pub fn hop_times(&self, circuit: CircuitNumber) -> &[Duration] {
        let leg = self.passages.get(&circuit).and_then(|it| it.legs.first());
        leg.map_or(&[], |it| &it.hop_times)
    }

    /// Circuits that stand or are being built.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.passages.len()
    }

    /// Streams that are not over.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// How far a stream is that is not over.
    #[must_use]
    pub fn figures(&self, stream: StreamNumber) -> Option<&Figures> {
        self.streams.get(&stream).map(Stream::figures)
    }

    /// Bytes that have come on all streams, those that are over included.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The relay that a link leads to.
    #[must_use]
    pub fn first_hop(&self, conn: ConnId) -> Option<&NextHop> {
        self.links.get(&conn).map(|link| &link.to)
    }

    /// Reads nothing more of a stream: what still comes is held, and nothing is acknowledged.
    pub fn pause(&mut self, stream: StreamNumber) {
        if let Some(it) = self.streams.get_mut(&stream) {
            it.is_paused = true;
        }
    }

    /// Reads all that is held of a stream, and goes on.
    pub fn resume(&mut self, now: Instant, stream: StreamNumber) {
        self.now = now;
        let Some(it) = self.streams.get_mut(&stream) else { return };
        it.resume(now);
        self.signal(stream);
    }

    /// What stands at our end of a stream that is not over.
    pub fn application_mut(&mut self, stream: StreamNumber) -> Option<&mut A> {
        self.streams.get_mut(&stream).map(Stream::application_mut)
    }

    /// The application of a stream has something to send again, after it had nothing more.
    pub fn send_more(&mut self, now: Instant, stream: StreamNumber) {
        self.now = now;
        let it = self.streams.get(&stream).filter(|it| it.is_connected && it.hop.is_none());
        let passage = it.and_then(|it| self.passages.get_mut(&it.circuit));
        let Some(Passage { legs, streams, .. }) = passage else { return };
        if !streams.sending.contains(&stream) {
            streams.sending.push_back(stream);
        }
        let conns: Vec<ConnId> = legs.iter().map(|it| it.conn).collect();
        conns.into_iter().for_each(|conn| self.wake(conn));
    }

    /// Ends a stream. There will be no event.
    pub fn end(&mut self, stream: StreamNumber) {
        self.end_with(stream, EndReason::DONE);
    }

    /// Ends a circuit, and all streams on it. There will be no event.
    pub fn destroy(&mut self, circuit: CircuitNumber) {
        let Some(Passage { legs, .. }) = self.forget_circuit(circuit) else { return };
        for it in legs {
            self.send(it.conn, it.circ_id, Command::DESTROY, &[DestroyReason::NONE.get()]);
        }
    }

    /// Closes all links, without a word about their circuits; there will be no events about them.
    pub fn close_all(&mut self) {
        let circuits: Vec<CircuitNumber> = self.passages.keys().copied().collect();
        circuits.into_iter().for_each(|circuit| _ = self.forget_circuit(circuit));
        self.close_idle();
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.room_at.is_some_and(|at| at <= now) {
            self.room_at = None;
            let links: Vec<ConnId> = self.links.keys().copied().collect();
            links.into_iter().for_each(|conn| self.wake(conn));
        }
        self.look_at_sets();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.room_at.into_iter().chain(self.look_at).min()
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub(super) fn tell(&mut self, event: ClientEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A circuit is gone, and its streams.
    pub(super) fn lose_circuit(&mut self, circuit: CircuitNumber, cause: Loss) {
        if self.forget_circuit(circuit).is_some() {
            self.tell(ClientEvent::Lost { circuit, cause });
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

    /// Ends a stream from our side.
    pub(super) fn end_with(&mut self, number: StreamNumber, reason: EndReason) {
        let hop = self.streams.get(&number).and_then(|it| it.hop);
        if let Some((circuit, id)) = self.forget_stream(number) {
            self.say_to(circuit, hop, RelayCommand::END, id, &[reason.0]);
        }
    }

    /// A stream is over. Where it was, if its BEGIN was sent.
    pub(super) fn forget_stream(
        &mut self,
        number: StreamNumber,
    ) -> Option<(CircuitNumber, StreamId)> {
        let Stream { circuit, id, .. } = self.streams.remove(&number)?;
        let Passage { streams, .. } = self.passages.get_mut(&circuit)?;
        streams.waiting.retain(|waiting| *waiting != number);
        streams.tunnel.remove(id).map(|_| (circuit, id))
    }

    /// Queues a message to the last hop of a circuit that stands.
    pub(super) fn say(
        &mut self,
        number: CircuitNumber,
        command: RelayCommand,
        stream_id: StreamId,
        data: &[u8],
    ) {
        self.say_to(number, None, command, stream_id, data);
    }

    /// The same to any hop, by its place; of a set, always the last of the leg that it goes on.
    pub(super) fn say_to(
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
            _ => legs.first().map(|it| it.leg),
        };
        let circuit = legs.iter_mut().find(|it| Some(it.leg) == leg);
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
