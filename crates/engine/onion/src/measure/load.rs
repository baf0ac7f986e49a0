//! The load generator: a measurer's part in a measurement.
//!
//! # The path of a cell
//!
//! The measurer opens sockets to the target and circuits over them, fills them with unpredictable cells, counts
//! returned cells per second, and compares a share of them with the result of the target's decryption. Cells
//! return over one of two paths:
//!
//! - in *transit* through a relay that does not know of the measurement: circuits of two hops, whose second hop
//!   is a [`ReturnRelay`] of the measurer;
//! - as an *echo* of a relay that takes part ([`protocol`](super::protocol)): circuits of one hop, on which the
//!   target returns each cell with its layer removed.
//!
//! Sources: §3.4 and §4.1 of the paper, and §3 of proposal 316.

mod cells;
mod circuit;
mod config;
mod conn;
mod failure;
mod probe;
mod sending;
mod setup;
mod throttle;

pub use config::{FewCircuits, HeldBack, LoadConfig, Pace, ReturnPath, ReturnRelay, Target};
pub use failure::LoadFailure;
pub use probe::Silence;

use crate::cell::{CELL_LEN, CELLS_PER_RECORD};
use crate::flow::TokenBucket;
use crate::link::TlsSession;
use crate::measure::check::CheckSampler;
use crate::measure::seconds::{Second, SecondCounter};
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use circuit::{Circuit, State};
use conn::{Conn, Conns, Side};
use probe::ReachabilityProbe;
use rand_core::Rng;
use throttle::Throttle;

/// The depth of the rate limit's bucket: fine enough for even seconds, deep enough for whole records.
const RATE_BURST: Duration = Duration::from_millis(5);

/// Something that the load generator reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Sockets and circuits are open: [`LoadGenerator::start`] may be called.
    Ready {
        /// Sockets with at least one open circuit.
        sockets: u32,
        /// Open circuits.
        circuits: u32,
    },
    /// Circuits were lost after [`Event::Ready`]: the load is smaller than planned.
    Lost {
        /// Circuits still open.
        circuits: u32,
        /// Circuits open at [`Event::Ready`].
        of: u32,
        /// The latest reason.
        problem: String,
        /// Whether the relay destroyed most of the lost ones for lack of resources.
        lacks_room: bool,
    },
    /// A second has ended.
    Second(Second),
    /// The last second was reported; all connections are closed.
    Finished,
    /// The measurement failed; all connections are closed.
    Failed(LoadFailure),
}

/// The phase of a measurement.
#[derive(Debug)]
enum Phase {
    /// Opening sockets and circuits.
    SettingUp { began: Instant },
    /// Waiting for the start.
    Ready,
    /// Started, possibly with a start in the future.
    Running(Running),
    /// Finished or failed.
    Over,
}

#[derive(Debug)]
struct Running {
    start: Instant,
    counter: SecondCounter,
    bucket: TokenBucket,
    /// Whether the start has passed and the sockets have been woken.
    has_begun: bool,
    /// When the held-back sockets begin, until they have been woken.
    held_back_until: Option<Instant>,
    /// When the other circuits of each socket begin, until the sockets have been woken.
    few_circuits_until: Option<Instant>,
    /// Since when nothing has returned: the latest arrival, or the time when the relay was given cells to
    /// return.
    silent_since: Instant,
}

/// A measurer's load on one relay, or a share of it, as a state machine over connections.
///
/// - *getters*: [`is_over`](Self::is_over), [`is_sending`](Self::is_sending), [`ends_at`](Self::ends_at),
///   [`is_outbound`](Self::is_outbound), [`is_held_back`](Self::is_held_back), [`carries_back`](Self::carries_back),
///   [`throttled`](Self::throttled), [`outstanding_bytes`](Self::outstanding_bytes), [`silence`](Self::silence),
///   [`stalls_at`](Self::stalls_at);
/// - *commands*: [`start`](Self::start) after [`Event::Ready`], [`stop`](Self::stop);
/// - *handle* and *poll*: those of [`Node`], and [`poll_event`](Self::poll_event).
///
/// All random numbers come from the generator that is passed in; they must be unpredictable to the target.
#[derive(Debug)]
pub struct LoadGenerator<R> {
    config: LoadConfig,
    rng: R,
    phase: Phase,
    conns: Conns,
    circuits: Vec<Circuit>,
    /// Outbound connections not dialled yet.
    to_dial: VecDeque<ConnId>,
    /// Circuits that may still be retried.
    second_tries: u32,
    dial_bucket: TokenBucket,
    knocks: ReachabilityProbe,
    writable: VecDeque<ConnId>,
    /// Connections that are blocked by the rate limit only.
    throttled: Vec<ConnId>,
    throttle: Throttle,
    to_close: VecDeque<ConnId>,
    events: VecDeque<Event>,
    sampler: CheckSampler,
    last_problem: Option<String>,
    /// Circuits open at [`Event::Ready`].
    ready_circuits: u32,
    /// Whether a circuit has opened or was lost since the last evaluation.
    is_unsettled: bool,
    /// Circuits that the relay has destroyed for lack of resources.
    ended_for_room: u32,
    /// Whether the relay has shown certificates that are not valid at this time.
    is_not_valid_now: bool,
    /// Unsolicited cells of the relay.
    unsolicited_cells: u64,
    /// Unsolicited cells on unfinished circuits, in the plaintext being handled.
    strays: u64,
}

impl<R: Rng> LoadGenerator<R> {
    /// Plans a measurement; connections are opened when it is driven.
    pub fn new(config: LoadConfig, mut rng: R, now: Instant) -> Self {
        let sampler = CheckSampler::new(config.check_one_in, &mut rng);
        // One byte of the bucket is one connection.
        let pace = Rate::from_byte_per_s(u64::from(config.pace.per_s.get()));
        let dial_bucket =
            TokenBucket::new(pace, Duration::ZERO, u64::from(config.pace.burst.max(1)), now);
        let mut generator = Self {
            rng,
            phase: Phase::SettingUp { began: now },
            conns: Conns::default(),
            circuits: Vec::new(),
            to_dial: VecDeque::new(),
            second_tries: config.second_tries,
            dial_bucket,
            knocks: ReachabilityProbe::default(),
            writable: VecDeque::new(),
            throttled: Vec::new(),
            throttle: Throttle::default(),
            to_close: VecDeque::new(),
            events: VecDeque::new(),
            sampler,
            last_problem: None,
            ready_circuits: 0,
            is_unsettled: false,
            ended_for_room: 0,
            is_not_valid_now: false,
            unsolicited_cells: 0,
            strays: 0,
            config,
        };
        generator.plan();
        generator
    }

    /// Whether it has finished or failed.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Whether it has started and not ended.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.has_begun)
    }

    /// When its last second ends, once it has been started.
    #[must_use]
    pub fn ends_at(&self) -> Option<Instant> {
        let Phase::Running(running) = &self.phase else { return None };
        Some(running.start + Duration::from_secs(self.config.seconds.into()))
    }

    /// Whether the connection leads to the target, and so carries sent cells.
    #[must_use]
    pub fn is_outbound(&self, conn: ConnId) -> bool {
        self.conns.get(conn).is_some_and(|conn| conn.side == Side::Outbound)
    }

    /// Whether the connection leads to the target and has not begun to send; see [`HeldBack`].
    #[must_use]
    pub fn is_held_back(&self, conn: ConnId) -> bool {
        let is_waiting = match &self.phase {
            Phase::Running(running) => running.held_back_until.is_some(),
            Phase::SettingUp { .. } | Phase::Ready | Phase::Over => true,
        };
        is_waiting && self.conns.get(conn).is_some_and(|conn| conn.is_held_back)
    }

    /// Whether cells return over the connection: in transit, connections of the target to a return relay; in
    /// echo, connections to the target.
    #[must_use]
    pub fn carries_back(&self, conn: ConnId) -> bool {
        let is_echo = self.config.return_path.is_echo();
        let side = |conn: &Conn| (conn.side == Side::Outbound) == is_echo;
        self.conns.get(conn).is_some_and(|conn| side(conn) && conn.circuits.len() > 0)
    }

    /// The total time in which the rate limit has blocked cells that circuits had space for.
    #[must_use]
    pub fn throttled(&self, now: Instant) -> Duration {
        self.throttle.total(now)
    }

    /// Bytes of cells in flight, on open circuits.
    #[must_use]
    pub fn outstanding_bytes(&self) -> u64 {
        let cells = |circuit: &Circuit| match &circuit.state {
            State::Up(flow) => {
                flow.window.sent_cells().saturating_sub(flow.window.delivered_cells())
            }
            _ => 0,
        };
        self.circuits.iter().map(cells).sum::<u64>().saturating_mul(CELL_LEN as u64)
    }

    /// Begins to send at `at`, or now if that has passed; ignored unless [`Event::Ready`] was the last event.
    pub fn start(&mut self, now: Instant, at: Instant) {
        if !matches!(self.phase, Phase::Ready) {
            return;
        }
        let start = at.max(now);
        let one_record = (CELLS_PER_RECORD * CELL_LEN) as u64;
        self.phase = Phase::Running(Running {
            start,
            counter: SecondCounter::new(start, self.config.seconds),
            bucket: TokenBucket::new(self.config.rate, RATE_BURST, one_record, start),
            has_begun: false,
            held_back_until: self.config.held_back.map(|held_back| start + held_back.after),
            few_circuits_until: self.config.few_circuits.map(|few| start + few.time),
            silent_since: start,
        });
    }

    /// Ends it without a result.
    pub fn stop(&mut self) {
        self.phase = Phase::Over;
        self.to_dial.clear();
        self.to_close.extend(self.conns.ids());
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn fail(&mut self, failure: LoadFailure) {
        if !self.is_over() {
            self.events.push_back(Event::Failed(failure));
            self.stop();
        }
    }

    /// Queues a connection for [`Node::poll_writable`], once.
    #[inline]
    fn wake(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.is_queued
        {
            conn.is_queued = true;
            self.writable.push_back(id);
        }
    }

    fn wake_all(&mut self) {
        let outbound: Vec<ConnId> = self.circuits.iter().map(|circuit| circuit.origin).collect();
        for id in outbound {
            self.wake(id);
        }
    }

    /// Reports the seconds that have ended, and finishes the measurement after the last.
    fn report_seconds(&mut self, now: Instant) {
        let Phase::Running(running) = &mut self.phase else { return };
        while let Some(second) = running.counter.poll_second(now) {
            self.events.push_back(Event::Second(second));
        }
        if running.counter.is_over() {
            let ends_at = running.start + Duration::from_secs(self.config.seconds.into());
            self.events.push_back(Event::Finished);
            self.throttle.release(ends_at);
            self.stop();
        }
    }
}

impl<R: Rng> Node for LoadGenerator<R> {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.open_channel(now, conn, tls);
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        self.answer_channel(listener, tls)
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        self.report_seconds(now);
        // The connection leaves its slot, since its cells borrow from it.
        let Some(mut taken) = self.conns.take(conn) else { return };
        let outcome = self.handle_cells(now, &mut taken, plaintext);
        let has_control = taken.channel.as_ref().is_some_and(|channel| channel.queued_len() > 0);
        let has_more = core::mem::take(&mut taken.has_room) || has_control;
        self.conns.put_back(conn, taken);
        if self.is_over() {
            self.to_close.push_back(conn);
        } else if let Err(problem) = outcome {
            self.lose_conn(conn, &problem);
        } else if has_more {
            self.wake(conn);
        }
        self.settle(now);
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        let side = self.conns.get(conn).map(|conn| conn.side);
        let whose = match side {
            Some(Side::Outbound) => "our connection to the relay: ",
            Some(Side::Inbound(_)) => "the relay's connection to us: ",
            Some(Side::Probe) => {
                self.conns.take(conn);
                return self.handle_unanswered(now, conn, &cause);
            }
            None => return,
        };
        self.lose_conn(conn, &(String::from(whose) + &cause.to_string()));
        self.conns.take(conn); // the driver has forgotten it: it may not be named again
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.report_seconds(now);
        self.put_off_silence(now);
        self.check_deadlines(now);
        self.probe(now);
        self.throttle.release(now);
        for conn in core::mem::take(&mut self.throttled) {
            if let Some(throttled) = self.conns.get_mut(conn) {
                throttled.is_throttled = false;
            }
            self.wake(conn);
        }
        if let Phase::Running(running) = &mut self.phase
            && !running.has_begun
            && now >= running.start
        {
            running.has_begun = true;
            self.wake_all();
        }
        if let Phase::Running(running) = &mut self.phase
            && running.held_back_until.is_some_and(|until| now >= until)
        {
            running.held_back_until = None;
            self.wake_all();
        }
        if let Phase::Running(running) = &mut self.phase
            && running.few_circuits_until.is_some_and(|until| now >= until)
        {
            running.few_circuits_until = None;
            self.wake_all();
        }
    }

    fn handle_plain_connected(&mut self, now: Instant, conn: ConnId) {
        self.handle_answered(now, conn);
    }

    fn poll_dial(&mut self, now: Instant) -> Option<Dial> {
        if let Some(probe) = self.poll_probe() {
            return Some(probe);
        }
        if self.to_dial.is_empty() || self.dial_bucket.available_bytes(now) == 0 {
            return None;
        }
        self.dial_bucket.take(1);
        let conn = self.to_dial.pop_front()?;
        Some(Dial { conn, to: self.config.target.address, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let id = self.writable.pop_front()?;
            // It may be closed since: it must not be named then.
            if let Some(conn) = self.conns.get_mut(id) {
                conn.is_queued = false;
                return Some(id);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let queued = self.conns.get_mut(conn).and_then(|conn| conn.channel.as_mut());
        let control = queued.map_or(0, |channel| channel.poll_transmit(out));
        if control > 0 { control } else { self.write_cells(now, conn, out) }
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.to_close.pop_front()?;
            if self.conns.take(conn).is_some() {
                return Some(conn);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::SettingUp { began } => Some(*began + self.config.setup_timeout),
            Phase::Ready | Phase::Over => None,
            Phase::Running(running) => {
                let mut next = running.counter.current_ends_at();
                if !running.has_begun {
                    next = running.start;
                }
                next = next.min(self.knocks.next_at(running.silent_since));
                next = self.stalls_at().map_or(next, |at| next.min(at));
                next = running.held_back_until.map_or(next, |until| next.min(until));
                next = running.few_circuits_until.map_or(next, |until| next.min(until));
                if !self.throttled.is_empty() {
                    let one_record = (CELLS_PER_RECORD * CELL_LEN) as u64;
                    next = next.min(running.bucket.available_at(one_record));
                }
                Some(next)
            }
        };
        let dial = (!self.to_dial.is_empty()).then(|| self.dial_bucket.available_at(1));
        [phase, dial].into_iter().flatten().min()
    }
}
