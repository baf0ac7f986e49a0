//! A client: the engine's core, its circuits, and its users.

mod circuits;
mod flows;
mod scan;
mod streams;

use super::config::ClientConfig;
use super::conns::Conns;
use super::host_scratch::RECORD_CELLS;
use super::kernel::{Event, Kernel};
use super::markov::Walk;
use super::message::Purpose;
use super::net::host_at;
use super::paths::Paths;
use super::records::{CircuitTimes, Ending, Record};
use super::users::Users;
use crate::split_mix::SplitMix64;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use circuits::Use;
use core::cmp::Reverse;
use flows::{Beginnings, Flow};
use onion::Instant;
use onion::cell_model::{Cell, HeaderOnly};
use onion::client::{CircuitNumber, ClientEvent, Core, StreamNumber};
use onion::node::{CloseCause, ConnId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use scan::Scanning;
use streams::{Stream, Traffic};

/// A timer event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Users begin.
    Begin,
    /// The next flow, or the next download of a benchmark.
    NextFlow,
    /// The next stream of a flow.
    NextStream(u32),
    /// A stream has more to send.
    Send(StreamNumber),
    /// The timeout of a stream.
    TimeOut(StreamNumber),
    /// The stallout of a stream.
    StallOut(StreamNumber),
    /// The build timeout of a circuit.
    Build(CircuitNumber),
    /// A circuit is dirty.
    Dirty(CircuitNumber),
    /// The end of a scanner's probe.
    EndProbe(CircuitNumber),
    /// The timeout of a probe's round trips.
    GiveUpProbe(CircuitNumber),
}

#[derive(Debug)]
pub(super) struct Client {
    id: u32,
    core: Core<HeaderOnly, Traffic, ChaCha8Rng>,
    engine_at: u64,
    conns: Conns,
    config: ClientConfig,
    paths: Arc<Paths>,
    /// The server hosts.
    servers: Arc<[u32]>,
    rng: SplitMix64,
    guards: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// Unused circuits.
    ready: VecDeque<CircuitNumber>,
    circuits: BTreeMap<CircuitNumber, Use>,
    streams: BTreeMap<StreamNumber, Stream>,
    flows: Vec<Option<Flow>>,
    open_flows: usize,
    beginnings: Beginnings,
    /// When flows begin.
    walk: Option<Walk>,
    fetched: u32,
    /// Probes of a scanner that have begun.
    probes: u32,
    /// Probes whose downloads have not begun.
    scanning: BTreeMap<CircuitNumber, Scanning>,
    pub(super) records: Vec<Record>,
    pub(super) probed: Vec<CircuitTimes>,
    pub(super) received_bytes: u64,
}

impl Client {
    pub(super) fn new(
        id: u32,
        config: &ClientConfig,
        paths: Arc<Paths>,
        servers: Arc<[u32]>,
        seed: u64,
    ) -> Self {
        let mut rng = SplitMix64::of(seed, u64::from(id) << 8 | 3);
        let mut core = Core::new(ChaCha8Rng::seed_from_u64(rng.next()));
        if let Some(congestion) = &config.congestion {
            core.set_congestion(congestion.clone());
        }
        if let Some(windows) = config.hop_windows {
            core.set_flows(Arc::new(windows));
        }
        let guards = paths.draw_guards(&mut rng, config.guards);
        let walk = match &config.users {
            Users::Markov(models, _) => Some(Walk::new(&models.flow, SplitMix64::new(rng.next()))),
            Users::Fetch(_) | Users::Scan(_) => None,
        };
        let begins = u64::try_from(config.begins.as_nanos()).unwrap_or(u64::MAX);
        Self {
            id,
            core,
            engine_at: u64::MAX,
            conns: Conns::default(),
            config: config.clone(),
            paths,
            servers,
            rng,
            guards,
            timers: BinaryHeap::from([Reverse((begins, Timer::Begin))]),
            ready: VecDeque::new(),
            circuits: BTreeMap::new(),
            streams: BTreeMap::new(),
            flows: Vec::new(),
            open_flows: 0,
            beginnings: Beginnings::default(),
            walk,
            fetched: 0,
            probes: 0,
            scanning: BTreeMap::new(),
            records: Vec::new(),
            probed: Vec::new(),
            received_bytes: 0,
        }
    }

    pub(super) fn next_at(&self) -> u64 {
        self.engine_at.min(self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at))
    }

    pub(super) fn handle_time(&mut self, kernel: &Kernel) {
        if self.engine_at <= kernel.now {
            self.core.handle_timeout(kernel.instant());
        }
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > kernel.now {
                break;
            }
            self.timers.pop();
            self.handle_timer(kernel.now, timer);
        }
    }

    fn handle_timer(&mut self, now: u64, timer: Timer) {
        match timer {
            Timer::Begin => self.begin(now),
            Timer::NextFlow => self.next_flow(now),
            Timer::NextStream(flow) => self.next_stream(now, flow),
            Timer::Send(stream) => self.send_due(now, stream),
            Timer::TimeOut(stream) => self.time_out(stream),
            Timer::StallOut(stream) => self.stall_out(now, stream),
            Timer::Build(circuit) => self.give_up_building(now, circuit),
            Timer::Dirty(circuit) => self.handle_dirty(circuit),
            Timer::EndProbe(circuit) => self.end_probe(now, circuit),
            Timer::GiveUpProbe(circuit) => self.lose_probe(now, circuit, Ending::TimedOut),
        }
    }

    fn set(&mut self, at: u64, timer: Timer) {
        self.timers.push(Reverse((at, timer)));
    }

    pub(super) fn handle(&mut self, event: Event, kernel: &mut Kernel) {
        let now = kernel.instant();
        match event {
            Event::Opened(socket) => {
                let state = kernel.socket(socket);
                let has_feedback =
                    self.core.has_hop_windows() && kernel.has_windows(state.peer_host);
                self.core.handle_link_open(now, ConnId(state.conn), has_feedback);
            }
            Event::Cells(socket, cells) => {
                let conn = ConnId(kernel.socket(socket).conn);
                for cell in &cells {
                    let (circ_id, command) = (cell.circ_id(), cell.command());
                    self.core.handle_cell(now, conn, circ_id, command, cell.body());
                }
                kernel.recycle(cells);
            }
            Event::Feedback(socket, body) => {
                let conn = ConnId(kernel.socket(socket).conn);
                self.core.handle_feedback(now, conn, &body);
            }
            Event::Room(socket) => self.write(kernel, ConnId(kernel.socket(socket).conn)),
            Event::Closed(socket) => {
                let conn = ConnId(kernel.socket(socket).conn);
                if self.conns.forget(conn, socket) {
                    self.core.handle_closed(now, conn, CloseCause::ByPeer);
                }
                kernel.forget(socket);
            }
            // Clients do not accept connections.
            Event::Accepted(socket) => kernel.close(socket),
            Event::Bytes(_) => {}
        }
    }

    fn write(&mut self, kernel: &mut Kernel, conn: ConnId) {
        let Some(socket) = self.conns.socket(conn) else { return };
        loop {
            let most = kernel.room_cells(socket).min(RECORD_CELLS);
            if most == 0 {
                kernel.socket_mut(socket).wants_room = true;
                break;
            }
            while let Some(body) = self.core.poll_feedback(conn) {
                kernel.notify(socket, body.into());
            }
            let now = kernel.instant();
            let count = self.core.poll_cells(now, conn, &mut kernel.scratch.record[..most]);
            if count == 0 {
                break;
            }
            kernel.write_record(socket, count);
        }
        kernel.send(socket);
    }

    /// Performs all actions of the engine and handles its events.
    pub(super) fn settle(&mut self, kernel: &mut Kernel) {
        loop {
            if let Some(event) = self.core.poll_event() {
                self.handle_event(kernel.now, event);
            } else if let Some(dial) = self.core.poll_dial() {
                match host_at(dial.to.ip()) {
                    Some(host) => {
                        let socket = kernel.dial(host, Purpose::Link, dial.conn.0);
                        self.conns.bind(dial.conn, socket);
                    }
                    None => {
                        self.core.handle_closed(kernel.instant(), dial.conn, CloseCause::NoRoute);
                    }
                }
            } else if let Some(conn) = self.core.poll_writable() {
                self.write(kernel, conn);
            } else if let Some(conn) = self.core.poll_close() {
                if let Some(socket) = self.conns.take(conn) {
                    kernel.close(socket);
                }
            } else {
                break;
            }
        }
        self.received_bytes = self.core.received_bytes();
        self.engine_at = self.core.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
    }

    fn handle_event(&mut self, now: u64, event: ClientEvent) {
        match event {
            ClientEvent::Built { circuit, .. } => self.handle_built(now, circuit),
            ClientEvent::Lost { circuit, .. } => self.handle_lost(now, circuit),
            ClientEvent::Over { stream, outcome, figures } => {
                self.handle_over(now, stream, outcome, &figures);
            }
            // No circuits are linked here.
            ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
        }
    }
}
