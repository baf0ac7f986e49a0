//! The state that all attacks share: lines to the relay from the attacker's addresses, and a token bucket.

use super::circuits::PendingCircuits;
use super::line::{Depth, Line};
use super::target::{AttackTarget, address_of};
use super::{Attack, AttackError, CircuitAt};
use link::tls::{Buffers, TlsConfigs};
use link::{Clock, unix_time_s};
use onion::cell::{CircId, Command};
use onion::circuit::NextHop;
use onion::flow::TokenBucket;
use onion::link::ExpectedPeer;
use onion::{Duration, Instant, Rate};
use rand::Rng;
use rand::rngs::StdRng;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cost in bytes to open a TCP connection: SYN, ACK and FIN, with headers of 66 bytes.
const CONNECTION_BYTES: u64 = 200;

/// The address of the honest client of the directory. The other honest clients have another one: `DoSCircuitCreationRate` grants an
/// address two circuits a second, which those use up.
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// With more lines than this, a turn handles only one in [`IDLE_ONE_IN`] idle lines.
const MANY: usize = 200;
const IDLE_ONE_IN: usize = 16;

/// Identifies a line. The number of a lost line is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId(pub(super) usize);

/// Counters of what was spent, shared by both threads.
#[derive(Debug, Default)]
pub struct Counts {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    dialled: AtomicU64,
    opened: AtomicU64,
    lost: AtomicU64,
    cells: AtomicU64,
    requests: AtomicU64,
    cpu_ns: AtomicU64,
}

/// What an attack has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes given to TCP, TLS included, and some for each connection.
    pub sent_bytes: u64,
    /// Bytes received and read.
    pub received_bytes: u64,
    /// Connections begun.
    pub dialled: u64,
    /// Links that opened.
    pub opened: u64,
    /// Connections that failed, or that the relay has closed.
    pub lost: u64,
    /// Cells sent.
    pub cells: u64,
    /// Directory requests sent, or answered with a false consensus diff.
    pub requests: u64,
    /// CPU time of the attacker's thread.
    pub cpu: Duration,
}

impl Counts {
    /// Returns what was spent up to now.
    pub fn spent(&self) -> Spent {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Spent {
            sent_bytes: get(&self.sent_bytes),
            received_bytes: get(&self.received_bytes),
            dialled: get(&self.dialled),
            opened: get(&self.opened),
            lost: get(&self.lost),
            cells: get(&self.cells),
            requests: get(&self.requests),
            cpu: Duration::from_nanos(get(&self.cpu_ns)),
        }
    }

    /// Counts a directory request, or an answer to one.
    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes given to TCP outside of the attacker's lines.
    pub(super) fn count_sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The lines of an attack, and the token bucket that limits their total rate.
pub(super) struct Attacker {
    target: AttackTarget,
    clock: Clock,
    now: Instant,
    pub(super) rng: StdRng,
    rate: Rate,
    bucket: TokenBucket,
    tls: TlsConfigs,
    buffers: Buffers,
    lines: Vec<Option<Line>>,
    free: Vec<usize>,
    /// Lines that the attack keeps open.
    kept: Vec<LineId>,
    next_address: u32,
    /// Circuits that are being built.
    pub(super) pending: PendingCircuits,
    /// The number of turns: each begins with another line.
    turns: usize,
    counts: Arc<Counts>,
}

impl Attacker {
    /// The pause after a turn in which nothing was sent or received.
    pub(super) const PAUSE: Duration = Duration::from_millis(1);

    pub(super) fn new(
        target: AttackTarget,
        rate: Rate,
        clock: Clock,
        rng: StdRng,
        counts: Arc<Counts>,
    ) -> Result<Self, AttackError> {
        let tls = TlsConfigs::client()?;
        let now = clock.now();
        Ok(Self {
            target,
            clock,
            now,
            rng,
            rate,
            bucket: TokenBucket::new(rate, Duration::from_millis(20), 16_384, now),
            tls,
            buffers: Buffers::default(),
            lines: Vec::new(),
            free: Vec::new(),
            kept: Vec::new(),
            next_address: 0,
            pending: PendingCircuits::default(),
            turns: 0,
            counts,
        })
    }

    /// The time at which the turn began.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn target(&self) -> AttackTarget {
        self.target.clone()
    }

    /// The maximum rate.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// The counters of what is sent outside of lines.
    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    pub(super) fn begin_turn(&mut self) {
        self.now = self.clock.now();
        let cpu_ns = u64::try_from(link::thread_cpu_time().as_nanos()).unwrap_or(u64::MAX);
        self.counts.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    /// Opens a line to the relay from the attacker's address with this number; `None` if the token bucket is empty.
    pub(super) fn dial(&mut self, from: u32, depth: Depth) -> Option<LineId> {
        let relay = *self.target.relay();
        self.dial_to(address_of(from), depth, relay, false)
    }

    /// Opens a line with a small receive buffer, for an attacker that reads nothing.
    pub(super) fn dial_narrow(&mut self, from: u32) -> Option<LineId> {
        let relay = *self.target.relay();
        self.dial_to(address_of(from), Depth::Link, relay, true)
    }

    /// Opens a link to the relay through which some attacks go.
    pub(super) fn dial_via(&mut self, from: u32) -> Option<LineId> {
        let via = *self.target.via();
        self.dial_to(address_of(from), Depth::Link, via, false)
    }

    /// Opens a TCP connection to the relay's directory port, if it has one, with a small buffer for a client that reads nothing.
    pub(super) fn dial_dir_port(&mut self, from: u32, has_small_buffer: bool) -> Option<LineId> {
        let port = NextHop { address: self.target.dir_port()?, ..*self.target.relay() };
        self.dial_to(address_of(from), Depth::Tcp, port, has_small_buffer)
    }

    /// Opens a link from the address of an honest client.
    pub(super) fn dial_honestly(&mut self) -> Option<LineId> {
        let relay = *self.target.relay();
        self.dial_to(HONEST.into(), Depth::Link, relay, false)
    }

    /// Keeps `count` links to the relay open, each from a separate address, so that each stays below the limits of DoS defences.
    pub(super) fn keep(&mut self, count: usize) -> Vec<LineId> {
        self.keep_by(count, |attacker, address| attacker.dial(address, Depth::Link))
    }

    /// Keeps `count` links open to the relay through which some attacks go.
    pub(super) fn keep_via(&mut self, count: usize) -> Vec<LineId> {
        self.keep_by(count, Self::dial_via)
    }

    fn keep_by(
        &mut self,
        count: usize,
        dial: impl Fn(&mut Self, u32) -> Option<LineId>,
    ) -> Vec<LineId> {
        while self.kept.len() < count
            && let Some(line) = dial(self, self.next_address)
        {
            self.next_address += 1;
            self.kept.push(line);
        }
        self.kept.clone()
    }

    fn dial_to(
        &mut self,
        from: IpAddr,
        depth: Depth,
        to: NextHop,
        has_small_buffer: bool,
    ) -> Option<LineId> {
        if self.bucket.available_bytes(self.now) < CONNECTION_BYTES {
            return None;
        }
        self.bucket.take(CONNECTION_BYTES);
        self.counts.sent_bytes.fetch_add(CONNECTION_BYTES, Ordering::Relaxed);
        self.counts.dialled.fetch_add(1, Ordering::Relaxed);
        let expected = ExpectedPeer { ids: to.ids, address: to.address.ip() };
        let line = Line::dial(from, expected, to.address, depth, has_small_buffer, &self.tls);
        let Ok(line) = line else {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.lines.push(None);
            self.lines.len() - 1
        });
        self.lines[place] = Some(line);
        Some(LineId(place))
    }

    fn line(&self, line: LineId) -> Option<&Line> {
        self.lines.get(line.0)?.as_ref()
    }

    fn line_mut(&mut self, line: LineId) -> Option<&mut Line> {
        self.lines.get_mut(line.0)?.as_mut()
    }

    /// Whether cells can be sent on a line, and its queue has room.
    pub(super) fn can_send(&self, line: LineId) -> bool {
        self.line(line).is_some_and(|line| line.is_open() && line.has_room())
    }

    /// Whether TCP, and TLS if required, are established on a line, and its queue has room.
    pub(super) fn can_send_raw(&self, line: LineId) -> bool {
        self.line(line).is_some_and(|line| line.is_established() && line.has_room())
    }

    /// Sends a cell.
    pub(super) fn send(&mut self, line: LineId, circ_id: CircId, command: Command, body: &[u8]) {
        self.counts.cells.fetch_add(1, Ordering::Relaxed);
        if let Some(line) = self.line_mut(line) {
            line.send(circ_id, command, body);
        }
    }

    /// Sends bytes that are not cells.
    pub(super) fn send_raw(&mut self, line: LineId, bytes: &[u8]) {
        if let Some(line) = self.line_mut(line) {
            line.send_raw(bytes);
        }
    }

    /// Stops reading from a line.
    pub(super) fn stop_reading(&mut self, line: LineId) {
        if let Some(line) = self.line_mut(line) {
            line.stop_reading();
        }
    }

    /// Closes a line.
    pub(super) fn close(&mut self, line: LineId) {
        if self.lines.get_mut(line.0).and_then(Option::take).is_some() {
            self.free.push(line.0);
        }
    }

    pub(super) fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// Reads and writes on all lines. Returns whether any data was sent or received.
    pub(super) fn turn(&mut self, attack: &mut dyn Attack) -> bool {
        let (mut has_moved, mut arrived) = (false, Vec::new());
        let count = self.lines.len();
        self.turns = self.turns.wrapping_add(1);
        let unix_time_s = unix_time_s();
        for nth in 0..count {
            let place = (self.turns + nth) % count;
            // Of thousands of idle lines only some are handled, because the attacker shares the processor with the relay.
            let is_at_rest = self.lines[place].as_ref().is_some_and(Line::is_at_rest);
            if count > MANY && is_at_rest && !nth.is_multiple_of(IDLE_ONE_IN) {
                continue;
            }
            // Removed while it is handled, because the attack may use the other lines.
            let Some(mut line) = self.lines[place].take() else { continue };
            let rng = &mut self.rng;
            let mut random = || {
                let mut bytes = [0; 24];
                rng.fill_bytes(&mut bytes);
                bytes
            };
            let moved = line.turn(
                self.now,
                &mut self.bucket,
                &mut self.buffers,
                &mut random,
                unix_time_s,
                &mut arrived,
            );
            let id = LineId(place);
            match moved {
                Ok(moved) => {
                    self.lines[place] = Some(line);
                    has_moved |= moved.sent_bytes > 0 || moved.received_bytes > 0;
                    let add = |to: &AtomicU64, more| _ = to.fetch_add(more, Ordering::Relaxed);
                    add(&self.counts.sent_bytes, moved.sent_bytes);
                    add(&self.counts.received_bytes, moved.received_bytes);
                    add(&self.counts.opened, moved.has_opened.into());
                    for (circ_id, command, body) in arrived.drain(..) {
                        if !self.is_building(id, circ_id) {
                            attack.handle_cell(
                                self,
                                CircuitAt { line: id, circ_id },
                                command,
                                &body,
                            );
                        } else if let Some(circuit) = self.handle_cell(id, circ_id, command, &body)
                        {
                            attack.handle_built(self, circuit);
                        }
                    }
                }
                Err(_) => {
                    arrived.clear();
                    self.free.push(place);
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                    self.kept.retain(|line| *line != id);
                    self.pending.handle_lost(id);
                    attack.handle_lost(id);
                }
            }
        }
        has_moved
    }
}
