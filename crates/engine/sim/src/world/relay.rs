//! A relay: the engine's core, and the shell's part.

use super::config::RelayConfig;
use super::conns::Conns;
use super::host_scratch::RECORD_CELLS;
use super::kernel::{Event, Kernel};
use super::message::Purpose;
use super::net::{address, host_at, ids, job_at};
use super::team::exported;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::Instant;
use onion::cell::{CircId, Command};
use onion::cell_model::{Body, Cell, HeaderOnly, HeaderOnlyCell, HeaderOnlyPayload, Run, RunRoom};
use onion::measure::target::TargetParams;
use onion::node::{CloseCause, ConnId, Dial, Security};
use onion::router::{Core, ExitConfig, ExitPolicy, Honest, LinkPeer, RouterConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Maximum number of bytes per read from a stream.
const READ_MAX: u64 = 16_384;

/// The Unix time when a world begins.
pub(super) const UNIX_TIME_S: u64 = 1_600_000_000;

#[derive(Debug)]
pub(super) struct Relay {
    pub(super) core: Core<HeaderOnly, ChaCha8Rng>,
    engine_at: u64,
    conns: Conns,
    cell_cost_ns: u64,
    /// When the processor has handled everything that has arrived.
    busy_until: u64,
    /// Arrivals that wait for the processor: until when, and on which connection.
    work: VecDeque<(u64, u32, Work)>,
}

/// An arrival on a link.
#[derive(Debug)]
enum Work {
    Cells(Vec<HeaderOnlyCell>),
    Feedback(Box<[u8]>),
}

impl Relay {
    pub(super) fn new(id: u32, config: &RelayConfig, seed: u64) -> Self {
        let mut router = RouterConfig::new(ids(id), UNIX_TIME_S);
        router.target = TargetParams {
            is_allowed: !config.measured_by.is_empty(),
            coordinators: config.measured_by.clone(),
            measurements_per_period: u32::MAX,
            ..TargetParams::default()
        };
        router.limit = config.limit;
        router.scheduler = config.scheduler;
        router.addresses = [address(id)].into();
        if let Some(windows) = config.hop_windows {
            router.flows = Arc::new(windows);
        }
        router.padding = false;
        router.exit = config.is_exit.then(|| ExitConfig {
            policy: ExitPolicy::accept_all(),
            ipv6: true,
            allows_single_hop: false,
        });
        let rng =
            ChaCha8Rng::seed_from_u64(super::SplitMix64::of(seed, u64::from(id) << 8 | 2).next());
        let mut core = Core::new(router, Honest, rng, Instant::ORIGIN);
        core.set_congestion_params(config.congestion.clone());
        Self {
            core,
            engine_at: u64::MAX,
            conns: Conns::default(),
            cell_cost_ns: u64::try_from(config.cell_cost.as_nanos()).unwrap_or(0),
            busy_until: 0,
            work: VecDeque::new(),
        }
    }

    pub(super) fn next_at(&self) -> u64 {
        self.engine_at.min(self.work.front().map_or(u64::MAX, |(at, ..)| *at))
    }

    pub(super) fn handle_time(&mut self, kernel: &mut Kernel) {
        let now = kernel.instant();
        while self.work.front().is_some_and(|(at, ..)| *at <= kernel.now) {
            if let Some((_, conn, work)) = self.work.pop_front() {
                self.handle_work(kernel, ConnId(conn), work);
            }
        }
        if self.engine_at <= kernel.now {
            self.core.handle_timeout(now);
        }
    }

    pub(super) fn handle(&mut self, event: Event, kernel: &mut Kernel) {
        let now = kernel.instant();
        match event {
            Event::Opened(socket) => {
                let state = kernel.socket(socket);
                let conn = ConnId(state.conn);
                if state.is_link() {
                    let peer = self.peer(kernel, state.peer_host);
                    self.core.handle_link_open(now, conn, &peer);
                } else {
                    self.core.handle_plain_connected(now, conn);
                }
            }
            Event::Accepted(socket) => {
                let from = kernel.socket(socket).peer_host;
                let session = exported(from, kernel.id);
                match self.core.accept(now, Some(address(from)), Some(session)) {
                    Some(conn) => {
                        kernel.socket_mut(socket).conn = conn.0;
                        self.conns.bind(conn, socket);
                        let peer = self.peer(kernel, from);
                        self.core.handle_link_open(now, conn, &peer);
                    }
                    None => kernel.close(socket),
                }
            }
            Event::Cells(socket, cells) => {
                let takes_ns = self.cell_cost_ns * cells.len() as u64;
                self.take_in(kernel, socket, takes_ns, Work::Cells(cells));
            }
            Event::Feedback(socket, body) => {
                self.take_in(kernel, socket, 0, Work::Feedback(body));
            }
            Event::Bytes(socket) => self.read(kernel, ConnId(kernel.socket(socket).conn)),
            Event::Room(socket) => self.write(kernel, ConnId(kernel.socket(socket).conn)),
            Event::Closed(socket) => {
                let state = kernel.socket(socket);
                if state.is_link() || state.unread() == 0 {
                    self.lose(kernel, socket);
                }
            }
        }
    }

    fn lose(&mut self, kernel: &mut Kernel, socket: u32) {
        let conn = ConnId(kernel.socket(socket).conn);
        if self.conns.forget(conn, socket) {
            self.core.handle_closed(kernel.instant(), conn, &CloseCause::ByPeer);
        }
        kernel.forget(socket);
    }

    /// An arrival that needs this processing time. Arrivals are processed in order.
    fn take_in(&mut self, kernel: &mut Kernel, socket: u32, takes_ns: u64, work: Work) {
        let conn = kernel.socket(socket).conn;
        if self.cell_cost_ns == 0 {
            self.handle_work(kernel, ConnId(conn), work);
        } else {
            self.busy_until = self.busy_until.max(kernel.now) + takes_ns;
            self.work.push_back((self.busy_until, conn, work));
        }
    }

    fn handle_work(&mut self, kernel: &mut Kernel, conn: ConnId, work: Work) {
        match work {
            Work::Cells(cells) => self.handle_cells(kernel, conn, cells),
            Work::Feedback(body) => {
                self.core.handle_feedback(kernel.instant(), conn, &body);
            }
        }
    }

    fn handle_cells(&mut self, kernel: &mut Kernel, conn: ConnId, cells: Vec<HeaderOnlyCell>) {
        let now = kernel.instant();
        for cell in &cells {
            let (circ_id, command) = (cell.circ_id(), cell.command());
            let is_open = if (circ_id, command) == (CircId::LINK, Command::MEASURE) {
                self.core.handle_measure(now, conn, cell.body().bytes())
            } else {
                self.core.handle_cell(now, conn, circ_id, command, cell.body())
            };
            if !is_open {
                break;
            }
        }
        self.core.handle_transfer(now, conn);
        kernel.recycle(cells);
    }

    /// Reads from a stream what the engine accepts.
    fn read(&mut self, kernel: &mut Kernel, conn: ConnId) {
        let Some(socket) = self.conns.socket(conn) else { return };
        loop {
            let state = kernel.socket(socket);
            let limit = self.core.receive_limit(conn) as u64;
            let len = limit.min(READ_MAX).min(state.unread());
            if len == 0 {
                break;
            }
            let run = Run { at: Run::place(state.rx.read), len: u32::try_from(len).unwrap_or(0) };
            kernel.read_bytes(socket, len);
            self.core.handle_stream_data(kernel.instant(), conn, HeaderOnlyPayload::Run(run));
        }
        let state = kernel.socket(socket);
        if state.unread() == 0 && state.rx.is_over() {
            self.lose(kernel, socket);
        }
    }

    /// Writes what the engine has and the kernel accepts.
    fn write(&mut self, kernel: &mut Kernel, conn: ConnId) {
        let Some(socket) = self.conns.socket(conn) else { return };
        let now = kernel.instant();
        if !kernel.socket(socket).is_link() {
            let mut room = RunRoom { room_bytes: u32::MAX, ..RunRoom::default() };
            while self.core.poll_stream_data(now, conn, &mut room) > 0 {
                kernel.write_bytes(socket, u64::from(room.run.len));
                room = RunRoom { room_bytes: u32::MAX, ..RunRoom::default() };
            }
            return;
        }
        loop {
            let room = kernel.room_cells(socket);
            if room == 0 {
                kernel.socket_mut(socket).wants_room = true;
                break;
            }
            if let Some(control) = self.core.poll_control(now, conn) {
                if control.command == Command::FEEDBACK {
                    kernel.notify(socket, control.body);
                    continue;
                }
                // The only variable-length cells in use. Each is a separate cell here.
                if !control.command.is_variable_length() || control.command == Command::MEASURE {
                    let mut cell = HeaderOnlyCell::EMPTY;
                    control.fill::<HeaderOnly>(&mut cell);
                    kernel.write_cells(socket, core::slice::from_mut(&mut cell));
                }
                continue;
            }
            let most = room.min(RECORD_CELLS);
            let count = self.core.poll_cells(now, conn, &mut kernel.scratch.record[..most]);
            if count == 0 {
                break;
            }
            kernel.write_record(socket, count);
        }
        kernel.send(socket);
    }

    fn dial(&mut self, kernel: &mut Kernel, dial: Dial) {
        let to = match dial.security {
            Security::Tls => host_at(dial.to.ip()).map(|host| (host, Purpose::Link)),
            Security::Plain => job_at(dial.to.ip()).map(|(host, job)| (host, Purpose::Plain(job))),
        };
        let to = to.filter(|(host, _)| (*host as usize) < kernel.net.hosts());
        match to {
            Some((host, purpose)) => {
                let socket = kernel.dial(host, purpose, dial.conn.0);
                self.conns.bind(dial.conn, socket);
            }
            None => self.core.handle_closed(kernel.instant(), dial.conn, &CloseCause::NoRoute),
        }
    }

    /// Performs all actions of the engine.
    pub(super) fn settle(&mut self, kernel: &mut Kernel) {
        loop {
            if let Some(dial) = self.core.poll_dial() {
                self.dial(kernel, dial);
            } else if let Some(conn) = self.core.poll_socket_query() {
                let state = self.conns.socket(conn).map(|socket| kernel.state(socket));
                self.core.handle_socket_state(kernel.instant(), conn, state.as_ref());
            } else if let Some(conn) = self.core.poll_writable() {
                self.write(kernel, conn);
            } else if let Some(conn) = self.core.poll_close() {
                if let Some(socket) = self.conns.take(conn) {
                    kernel.close(socket);
                }
            } else if let Some(conn) = self.core.poll_readable() {
                self.read(kernel, conn);
            } else {
                break;
            }
        }
        while self.core.poll_event().is_some() {}
        self.engine_at = self.core.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
    }

    /// The peer of a link.
    fn peer(&self, kernel: &Kernel, host: u32) -> LinkPeer {
        let is_relay = kernel.net.is_relay(host);
        LinkPeer {
            relay: is_relay.then(|| ids(host)),
            is_canonical: is_relay,
            has_padding: true,
            has_feedback: self.core.has_hop_windows() && kernel.has_windows(host),
        }
    }

    /// The sum of queueing delays in circuits' queues, in cell-seconds.
    pub(super) const fn waited_cell_s(&self) -> f64 {
        self.core.waited_cell_s()
    }
}
