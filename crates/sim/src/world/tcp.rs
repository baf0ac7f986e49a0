//! TCP's sender and receiver. The unit is the flight: bytes that are sent together and share their fate.
//!
//! Windows count bytes. Paths keep the order, so that an acknowledgement of a later flight tells of the loss of an earlier one.

use super::message::What;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use onion::node::SocketState;
use onion::suite::WeightlessCell;

/// Bytes of a segment.
pub(super) const MSS: u64 = 1448;

/// The window at first (RFC 6928), and after a pause.
const WINDOW_FIRST: u64 = 10 * MSS;
const WINDOW_LEAST: u64 = 2 * MSS;

/// Bytes of a round by which its delay is judged: RFC 9406 wants eight segments.
const ROUND_LEAST: u64 = 8 * MSS;

/// Bytes of a flight, at most: those of a TLS record.
const FLIGHT_MAX: u64 = 31 * 514;

/// Least and most time without an acknowledgement before all is sent again.
const SILENCE_MIN_NS: u64 = 200_000_000;
const SILENCE_MAX_NS: u64 = 60_000_000_000;

/// How much of a connection the kernel buffers, at most (Linux: `tcp_wmem`).
const SEND_BUFFER_MAX: u64 = 4 << 20;

/// Cubic's constants (RFC 9438, §5).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Which congestion control hosts have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Linux's default (RFC 9438).
    #[default]
    Cubic,
    /// RFC 5681. What Shadow has.
    Reno,
}

/// Bytes that were sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) bytes: u32,
    sent_at: u64,
    /// It was sent before.
    pub(super) is_again: bool,
}

/// One side's way out.
#[derive(Debug)]
pub(super) struct Sender {
    control: Control,
    /// Bytes that were written, sent, and acknowledged without a gap.
    written: u64,
    next: u64,
    acked: u64,
    /// The receiver takes nothing from here on.
    window_end: u64,
    flights: VecDeque<Flight>,
    /// What is to be sent again.
    again: VecDeque<(u64, u32)>,
    sent_flights: u32,
    in_flight: u64,
    cwnd: u64,
    /// Below it the window doubles in a round trip.
    threshold: u64,
    /// Losses before this byte belong to one that was answered already.
    recovers_until: u64,
    /// What a loss was first told of by is sent again at once, whatever the window is by now (RFC 6937: proportional rate reduction sends something for
    /// each acknowledgement).
    is_repair_due: bool,
    /// The window has held something back since the last acknowledgement.
    is_limited: bool,
    /// Most that was under way at once in this round, and where the next begins.
    peak: u64,
    peak_until: u64,
    round_trip_ns: u64,
    variance_ns: u64,
    /// The least round trip of the last round and of this one; bytes that tell of this one, and where the next begins.
    least_ns: u64,
    round_least_ns: u64,
    round_bytes: u64,
    round_end: u64,
    silences: u32,
    /// When all that is under way counts as lost.
    pub(super) silent_at: u64,
    sent_at: u64,
    cubic: Cubic,
}

/// Where Cubic is between two losses.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    began_at: u64,
    has_begun: bool,
    /// Segments: the window before the last loss, and where the curve has its middle.
    before: f64,
    origin: f64,
    /// Seconds until then.
    middle_s: f64,
    /// What Reno would have by now.
    friendly: f64,
}

impl Sender {
    pub(super) fn new(control: Control, window: u64) -> Self {
        Self {
            control,
            written: 0,
            next: 0,
            acked: 0,
            window_end: window,
            flights: VecDeque::new(),
            again: VecDeque::new(),
            sent_flights: 0,
            in_flight: 0,
            cwnd: WINDOW_FIRST,
            threshold: u64::MAX,
            recovers_until: 0,
            is_repair_due: false,
            is_limited: false,
            peak: 0,
            peak_until: 0,
            round_trip_ns: 0,
            variance_ns: 0,
            least_ns: u64::MAX,
            round_least_ns: u64::MAX,
            round_bytes: 0,
            round_end: 0,
            silences: 0,
            silent_at: u64::MAX,
            sent_at: 0,
            cubic: Cubic::default(),
        }
    }

    /// So much more is to be sent.
    pub(super) const fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Bytes that the kernel would take now.
    pub(super) fn room(&self) -> u64 {
        // As Linux grows it: two windows.
        let buffer = (2 * self.cwnd).clamp(2 * WINDOW_FIRST, SEND_BUFFER_MAX);
        buffer.saturating_sub(self.written - self.acked)
    }

    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Whether a flight may be sent.
    pub(super) fn may_send(&mut self, unit: u64) -> bool {
        while self
            .again
            .front()
            .is_some_and(|(start, bytes)| start + u64::from(*bytes) <= self.acked)
        {
            self.again.pop_front();
        }
        if let Some((_, bytes)) = self.again.front() {
            let fits = self.in_flight + u64::from(*bytes) <= self.cwnd;
            return fits || self.in_flight == 0 || self.is_repair_due;
        }
        let unsent = self.written - self.next;
        let window = self.cwnd.saturating_sub(self.in_flight);
        self.is_limited |= window < unsent;
        // Windows are whole segments: what is left of one waits until there is room for all of it.
        let least = unsent.min(MSS).max(unit);
        unsent.min(window).min(self.window_end.saturating_sub(self.next)) >= least
    }

    /// Whether all has come.
    pub(super) const fn is_done(&self) -> bool {
        self.acked == self.written
    }

    /// The next flight, if it may be sent. New bytes are whole units.
    pub(super) fn take_flight(&mut self, now: u64, unit: u64) -> Option<Flight> {
        if !self.may_send(unit) {
            return None;
        }
        let (start, bytes, is_again) = if let Some((start, bytes)) = self.again.pop_front() {
            self.is_repair_due = false;
            (start, bytes, true)
        } else {
            self.rest(now);
            let most = (self.cwnd / 4).clamp(2 * MSS, FLIGHT_MAX);
            let window = self.cwnd.saturating_sub(self.in_flight);
            let allowed = self.window_end.saturating_sub(self.next);
            let unsent = self.written - self.next;
            let bytes = unsent.min(most).min(window).min(allowed);
            let whole = if unit == 1 && bytes < unsent && bytes >= MSS { MSS } else { unit };
            let (start, bytes) = (self.next, bytes - bytes % whole);
            self.next += bytes;
            (start, u32::try_from(bytes).unwrap_or(0), false)
        };
        let flight = Flight { number: self.sent_flights, start, bytes, sent_at: now, is_again };
        self.sent_flights += 1;
        self.in_flight += u64::from(bytes);
        self.peak = self.peak.max(self.in_flight);
        if self.flights.is_empty() {
            self.silent_at = now + self.silence_ns();
        }
        self.sent_at = now;
        self.flights.push_back(flight);
        Some(flight)
    }

    /// After a pause nothing is known of the path any more (RFC 5681, §4.1): the window halves for each time of silence.
    fn rest(&mut self, now: u64) {
        if self.in_flight > 0 || self.cwnd <= WINDOW_FIRST {
            return;
        }
        let pause = now.saturating_sub(self.sent_at) / self.silence_ns();
        if pause > 0 {
            self.threshold = self.threshold.max(self.cwnd * 3 / 4);
            let halved = self.cwnd.checked_shr(u32::try_from(pause).unwrap_or(64)).unwrap_or(0);
            self.cwnd = halved.max(WINDOW_FIRST);
            self.cubic.has_begun = false;
        }
    }

    fn silence_ns(&self) -> u64 {
        let measured = self.round_trip_ns + (4 * self.variance_ns).max(SILENCE_MIN_NS);
        let first = if self.round_trip_ns == 0 { 1_000_000_000 } else { measured };
        (first << self.silences.min(6)).min(SILENCE_MAX_NS)
    }

    /// A flight has come, all before `next`, and the receiver takes what is before `window_end`.
    pub(super) fn handle_ack(&mut self, now: u64, number: u32, next: u64, window_end: u64) {
        self.acked = self.acked.max(next);
        self.window_end = self.window_end.max(window_end);
        while let Some(flight) = self.flights.front().copied().filter(|it| it.number <= number) {
            self.flights.pop_front();
            self.in_flight -= u64::from(flight.bytes);
            if flight.number < number {
                self.again.push_back((flight.start, flight.bytes));
                self.handle_loss(&flight);
                continue;
            }
            if !flight.is_again {
                self.handle_round_trip(now - flight.sent_at, u64::from(flight.bytes));
            }
            // A window that is not used says nothing of the path. As in Linux, half of it is enough in slow start.
            let is_used = self.is_limited || self.cwnd < self.threshold.min(2 * self.peak);
            if flight.start >= self.recovers_until && is_used {
                self.grow(now, u64::from(flight.bytes));
            }
        }
        if self.acked >= self.peak_until {
            (self.peak, self.peak_until) = (self.in_flight, self.next);
        }
        self.silences = 0;
        self.silent_at = now + self.silence_ns();
        if self.flights.is_empty() {
            self.silent_at = u64::MAX;
            // An empty ring begins anew where it was last: in memory that the processor still has at hand.
            self.flights.clear();
        }
        self.is_limited = false;
    }

    /// The receiver takes bytes up to here.
    pub(super) fn handle_window(&mut self, window_end: u64) {
        self.window_end = self.window_end.max(window_end);
    }

    /// Nothing was heard for long.
    pub(super) fn handle_silence(&mut self) {
        for flight in self.flights.drain(..) {
            self.again.push_back((flight.start, flight.bytes));
        }
        self.in_flight = 0;
        self.reduce();
        self.cwnd = WINDOW_LEAST;
        self.recovers_until = self.next;
        self.silences += 1;
        self.silent_at = u64::MAX;
    }

    fn handle_loss(&mut self, flight: &Flight) {
        // One answer to all losses of a window, those of what was sent again among them: as Linux has it since RACK (RFC 8985).
        if flight.start >= self.recovers_until {
            self.reduce();
            self.cwnd = self.threshold;
            self.recovers_until = self.next;
            self.is_repair_due = true;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "windows are far below 2⁵³ bytes")]
    fn reduce(&mut self) {
        let kept = match self.control {
            Control::Reno => self.cwnd / 2,
            Control::Cubic => {
                let segments = self.cwnd as f64 / MSS as f64;
                // Fast convergence (RFC 9438, §4.7).
                let is_less = segments < self.cubic.before;
                self.cubic.before =
                    if is_less { segments * (1.0 + CUBIC_BETA) / 2.0 } else { segments };
                self.cubic.has_begun = false;
                self.cwnd * 7 / 10
            }
        };
        self.threshold = kept.max(WINDOW_LEAST);
    }

    fn handle_round_trip(&mut self, sample: u64, bytes: u64) {
        if self.round_trip_ns == 0 {
            (self.round_trip_ns, self.variance_ns) = (sample, sample / 2);
        } else {
            let difference = self.round_trip_ns.abs_diff(sample);
            self.variance_ns = (self.variance_ns * 3 + difference) / 4;
            self.round_trip_ns = (self.round_trip_ns * 7 + sample) / 8;
        }
        if self.cwnd >= self.threshold {
            return;
        }
        // Slow start ends before a queue overflows: HyStart (RFC 9406), by the delay of rounds that tell enough.
        self.round_least_ns = self.round_least_ns.min(sample);
        self.round_bytes += bytes;
        if self.acked < self.round_end {
            return;
        }
        if self.round_bytes >= ROUND_LEAST {
            let tolerated = (self.least_ns / 8).clamp(4_000_000, 16_000_000);
            let is_late = self.round_least_ns >= self.least_ns.saturating_add(tolerated);
            if is_late && self.cwnd >= 16 * MSS {
                self.threshold = self.cwnd;
            }
            self.least_ns = self.round_least_ns;
        }
        (self.round_least_ns, self.round_bytes, self.round_end) = (u64::MAX, 0, self.next);
    }

    fn grow(&mut self, now: u64, acked: u64) {
        if self.cwnd < self.threshold {
            self.cwnd += acked;
        } else {
            match self.control {
                Control::Reno => self.cwnd += (MSS * acked / self.cwnd).max(1),
                Control::Cubic => self.grow_cubic(now, acked),
            }
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive and far below 2⁵³ bytes"
    )]
    fn grow_cubic(&mut self, now: u64, acked: u64) {
        let cwnd = self.cwnd as f64 / MSS as f64;
        let acked = acked as f64 / MSS as f64;
        let cubic = &mut self.cubic;
        if !cubic.has_begun {
            cubic.has_begun = true;
            cubic.began_at = now;
            cubic.origin = cubic.before.max(cwnd);
            cubic.middle_s = libm::cbrt((cubic.origin - cwnd) / CUBIC_C);
            cubic.friendly = cwnd;
        }
        let since_s = (now - cubic.began_at + self.round_trip_ns) as f64 * 1e-9;
        let offset = since_s - cubic.middle_s;
        let target = cubic.origin + CUBIC_C * offset * offset * offset;
        cubic.friendly += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) * acked / cwnd;
        let grown = if target < cubic.friendly {
            cubic.friendly - cwnd
        } else {
            (target.clamp(cwnd, 1.5 * cwnd) - cwnd) / cwnd * acked
        };
        self.cwnd += (grown.max(0.0) * MSS as f64) as u64;
    }

    /// As the kernel tells it.
    pub(super) fn state(&self) -> SocketState {
        let segments = |bytes: u64| u32::try_from(bytes.div_ceil(MSS)).unwrap_or(u32::MAX);
        let again: u64 = self.again.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        SocketState {
            cwnd_segments: segments(self.cwnd),
            unacked_segments: segments(self.in_flight),
            mss_bytes: 1448,
            notsent_bytes: u32::try_from(self.written - self.next + again).unwrap_or(u32::MAX),
            unwritten_bytes: 0,
            rtt_us: u32::try_from(self.round_trip_ns / 1000).unwrap_or(u32::MAX),
        }
    }
}

/// What a flight brings.
#[derive(Debug)]
pub(super) enum Payload {
    Cells(Vec<WeightlessCell>),
    Bytes(u32),
}

impl Payload {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Cells(cells) => cells.len() as u64 * 514,
            Self::Bytes(bytes) => u64::from(*bytes),
        }
    }
}

/// One side's way in.
#[derive(Debug)]
pub(super) struct Receiver {
    /// All before has come.
    next: u64,
    /// Bytes that were read.
    pub(super) read: u64,
    window: u64,
    /// What was told last of what is taken.
    told_end: u64,
    /// What has come behind a gap, by its first byte.
    early: BTreeMap<u64, Payload>,
    /// What has got lost and will be sent again.
    lost: BTreeMap<u64, Payload>,
    /// Nothing comes from here on.
    pub(super) end: Option<u64>,
}

impl Receiver {
    pub(super) const fn new(window: u64) -> Self {
        Self {
            next: 0,
            read: 0,
            window,
            told_end: window,
            early: BTreeMap::new(),
            lost: BTreeMap::new(),
            end: None,
        }
    }

    /// It has got lost on its way.
    pub(super) fn lose(&mut self, start: u64, payload: Payload) {
        self.lost.insert(start, payload);
    }

    /// What has got lost comes again.
    pub(super) fn find(&mut self, start: u64) -> Option<Payload> {
        self.lost.remove(&start)
    }

    /// It has come: gives what is in order now.
    pub(super) fn receive(
        &mut self,
        start: u64,
        payload: Payload,
        mut deliver: impl FnMut(Payload),
    ) {
        if start > self.next {
            self.early.insert(start, payload);
            return;
        }
        self.next += payload.bytes();
        deliver(payload);
        while let Some(first) = self.early.first_entry().filter(|it| *it.key() == self.next) {
            let payload = first.remove();
            self.next += payload.bytes();
            deliver(payload);
        }
    }

    /// Bytes that are in order.
    pub(super) const fn received(&self) -> u64 {
        self.next
    }

    /// What to say of a flight that has come.
    pub(super) fn ack(&mut self, number: u32) -> What {
        self.told_end = self.read + self.window;
        What::Ack { number, next: self.next, window_end: self.told_end }
    }

    /// What to say of room that the sender does not know of: when it is half of all.
    pub(super) fn news(&mut self) -> Option<What> {
        let window_end = self.read + self.window;
        if window_end - self.told_end < self.window / 2 {
            return None;
        }
        self.told_end = window_end;
        Some(What::Window { window_end })
    }

    /// Whether all has come that ever will.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}
