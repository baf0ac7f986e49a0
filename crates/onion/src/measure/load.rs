//! A measurer's part in a measurement: measurer → target → measurer.
//!
//! The measurer opens sockets to the target and circuits over them, fills them with unpredictable
//! cells, counts what comes back second by second, and checks a share of it against what the target's
//! decryption must have made of it. There are two ways for cells to come back:
//!
//! - in *transit* through a relay that knows nothing of it: circuits of two hops, the second of which
//!   is a relay of the measurer's own;
//! - as an *echo* of a relay that takes part ([`protocol`](super::protocol)): circuits of one hop, on
//!   which it sends each cell back with its layer taken off.
//!
//! See the design in ARCHITECTURE.md, §3.4 and §4.1 of the paper, and §3 of proposal 316.

mod cells;
mod circuit;
mod config;
mod conn;
mod failure;
mod probe;
mod sending;
mod setup;
mod throttle;

pub use config::{HeldBack, LoadConfig, Pace, ReturnPath, ReturnRelay, Target};
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

/// Depth of the rate limit's bucket: fine enough for even seconds, deep enough for whole records.
const RATE_BURST: Duration = Duration::from_millis(5);

/// What the measurement has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Sockets and circuits stand: [`LoadGenerator::start`] may be called.
    Ready {
        /// Sockets with at least one circuit that works.
        sockets: u32,
        /// Circuits that work.
        circuits: u32,
    },
    /// Circuits were lost after [`Event::Ready`]: the load is less than it should be.
    Lost {
        /// Circuits that still work.
        circuits: u32,
        /// Circuits that worked when all was ready.
        of: u32,
        /// Why the latest was lost.
        problem: String,
        /// The relay ended most of those that are lost for lack of room.
        lacks_room: bool,
    },
    /// A second is over.
    Second(Second),
    /// The last second was reported; all connections get closed.
    Finished,
    /// The measurement ended without a result; all connections get closed.
    Failed(LoadFailure),
}

/// How far it has come.
#[derive(Debug)]
enum Phase {
    /// Opening sockets and circuits.
    SettingUp { began: Instant },
    /// Waiting for the start.
    Ready,
    /// Started, maybe for a time to come.
    Running(Running),
    /// Finished or failed.
    Over,
}

#[derive(Debug)]
struct Running {
    start: Instant,
    counter: SecondCounter,
    bucket: TokenBucket,
    /// The start has come and the sockets have been woken.
    has_begun: bool,
    /// When those begin that are held back, until they have been woken.
    held_back_until: Option<Instant>,
    /// Since when nothing has come back: the latest arrival, or when the relay had been given nothing to send back.
    silent_since: Instant,
}

/// A measurer's part in measuring one relay, or a share of it, as a state machine over connections.
///
/// - *getters*: [`is_over`](Self::is_over), [`is_sending`](Self::is_sending), [`ends_at`](Self::ends_at),
///   [`is_outbound`](Self::is_outbound), [`is_held_back`](Self::is_held_back), [`carries_back`](Self::carries_back),
///   [`throttled`](Self::throttled), [`outstanding_bytes`](Self::outstanding_bytes), [`silence`](Self::silence),
///   [`stalls_at`](Self::stalls_at);
/// - *commands*: [`start`](Self::start) once [`Event::Ready`] has come, [`stop`](Self::stop);
/// - *handle* and *poll*: those of [`Node`], and [`poll_event`](Self::poll_event).
///
/// All randomness comes from the generator passed in, and must be unpredictable to the target.
#[derive(Debug)]
pub struct LoadGenerator<R> {
    config: LoadConfig,
    rng: R,
    phase: Phase,
    conns: Conns,
    circuits: Vec<Circuit>,
    /// Outbound connections not dialled yet.
    to_dial: VecDeque<ConnId>,
    /// Circuits that may still be begun once more.
    second_tries: u32,
    dial_bucket: TokenBucket,
    knocks: ReachabilityProbe,
    writable: VecDeque<ConnId>,
    /// Connections that could send if the rate allowed it.
    throttled: Vec<ConnId>,
    throttle: Throttle,
    to_close: VecDeque<ConnId>,
    events: VecDeque<Event>,
    sampler: CheckSampler,
    last_problem: Option<String>,
    /// Circuits that worked when all was ready.
    ready_circuits: u32,
    /// A circuit has come to stand or was lost since the consequences were drawn.
    is_unsettled: bool,
    /// Circuits that the relay has ended for lack of room.
    ended_for_room: u32,
    /// Cells of the relay that answer nothing.
    unsolicited_cells: u64,
    /// Of them, cells on circuits that do not stand, in the stretch that is being handled.
    strays: u64,
}

impl<R: Rng> LoadGenerator<R> {
    /// Plans a measurement; connections are made as soon as it is driven.
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

    /// Whether the start has come, and the end has not.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.has_begun)
    }

    /// When its last second is over, once it has been started.
    #[must_use]
    pub fn ends_at(&self) -> Option<Instant> {
        let Phase::Running(running) = &self.phase else { return None };
        Some(running.start + Duration::from_secs(self.config.seconds.into()))
    }

    /// Whether it goes to the target, and so carries what is sent.
    #[must_use]
    pub fn is_outbound(&self, conn: ConnId) -> bool {
        self.conns.get(conn).is_some_and(|conn| conn.side == Side::Outbound)
    }

    /// Whether it goes to the target and its turn to send has not come; see [`HeldBack`].
    #[must_use]
    pub fn is_held_back(&self, conn: ConnId) -> bool {
        let is_waiting = match &self.phase {
            Phase::Running(running) => running.held_back_until.is_some(),
            Phase::SettingUp { .. } | Phase::Ready | Phase::Over => true,
        };
        is_waiting && self.conns.get(conn).is_some_and(|conn| conn.is_held_back)
    }

    /// Whether cells come back over it: on connections of the target to landings in transit, a stranger's
    /// not among them; on those to the target in echo.
    #[must_use]
    pub fn carries_back(&self, conn: ConnId) -> bool {
        let is_echo = self.config.return_path.is_echo();
        let side = |conn: &Conn| (conn.side == Side::Outbound) == is_echo;
        self.conns.get(conn).is_some_and(|conn| side(conn) && conn.circuits.len() > 0)
    }

    /// Time in which the assigned rate has kept it from sending what its circuits had room for, in all.
    #[must_use]
    pub fn throttled(&self, now: Instant) -> Duration {
        self.throttle.total(now)
    }

    /// Bytes of cells that have been sent and are not back, on circuits that stand.
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
            held_back_until: self.config.held_back.map(|it| start + it.after),
            silent_since: start,
        });
    }

    /// Ends it without a result: somebody else has failed, or the user has had enough.
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

    /// Reports the seconds that are over, and ends the measurement after the last.
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
        // The connection leaves its place, since its cells borrow from it.
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
            // It may have been closed since: then it is not to be named any more.
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
