//! TCP's sender and receiver. The unit is the flight: bytes that are sent together and share their fate.
//!
//! Windows count bytes. Paths are FIFO, so the acknowledgement of a later flight reveals the loss of an earlier
//! one.

mod buffer;
mod growth;
mod receiver;
mod shadow;

use crate::rto::{RTO_INITIAL_NS, RTO_MAX_NS, RTO_MIN_NS};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
pub use buffer::SEGMENT_MEMORY_BYTES;
use growth::{Cubic, SlowStart};
use onion::node::SocketState;
pub(super) use receiver::{Payload, Receiver};
use shadow::ShadowTcp;

/// The segment size in bytes.
pub(super) const MSS: u64 = 1448;

/// The initial window (RFC 6928), also after a pause.
const WINDOW_FIRST: u64 = 10 * MSS;
const WINDOW_LEAST: u64 = 2 * MSS;

/// Maximum flight length in bytes: that of a TLS record.
const FLIGHT_MAX: u64 = 31 * 514;

/// The congestion control of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Linux's default (RFC 9438).
    #[default]
    Cubic,
    /// RFC 5681.
    Reno,
    /// Reno as in Shadow 3.3, for comparison; it includes the download queue of Shadow's hosts (CoDel).
    Shadow,
}

/// Bytes that are sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) bytes: u32,
    sent_at: u64,
    /// Whether it is a retransmission.
    pub(super) is_retransmit: bool,
}

impl Flight {
    const fn as_retransmit(&self) -> Retransmit {
        (self.start, self.bytes, self.number)
    }
}

/// A flight to retransmit: offset, bytes, and the number of the lost flight.
type Retransmit = (u64, u32, u32);

/// One side's sender. Its position in a [`Socket`](super::socket::Socket) is known: the first fields are on the
/// second cache line, and whole lines follow.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sender {
    /// Bytes written, sent, and cumulatively acknowledged.
    written: u64,
    next: u64,
    acked: u64,

    /// The right edge of the peer's receive window.
    window_end: u64,
    in_flight: u64,
    cwnd: u64,
    flights: VecDeque<Flight>,
    /// Memory for unacknowledged data.
    buffer: u32,
    control: Control,
    /// The first lost flight is retransmitted at once, whatever the window is by now (RFC 6937: proportional
    /// rate reduction sends something for each acknowledgement).
    is_repair_due: bool,
    /// Whether the window was the limit since the last acknowledgement.
    is_limited: bool,
    /// Whether the last reaction to loss was to an RTO: retransmissions let the window grow (in slow start,
    /// with Shadow).
    is_after_rto: bool,

    /// Flights to retransmit.
    #[expect(
        clippy::box_collection,
        reason = "most connections never have any, and there are many"
    )]
    retransmits: Option<Box<VecDeque<Retransmit>>>,
    /// When the RTO expires: everything in flight counts as lost.
    pub(super) rto_at: u64,
    sent_at: u64,
    sent_flights: u32,
    timeouts: u32,
    round_trip_ns: u64,
    variance_ns: u64,
    /// The slow-start threshold.
    threshold: u64,
    /// Losses before this byte were handled already.
    recovers_until: u64,

    /// The maximum in flight in this round, and where the next begins.
    peak: u64,
    peak_until: u64,
    cubic: Cubic,
    start: SlowStart,
    shadow: ShadowTcp,
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
            retransmits: None,
            sent_flights: 0,
            in_flight: 0,
            cwnd: match control {
                Control::Shadow => Self::first_window_of_shadow(),
                Control::Cubic | Control::Reno => WINDOW_FIRST,
            },
            threshold: u64::MAX,
            recovers_until: 0,
            is_after_rto: false,
            is_repair_due: false,
            is_limited: false,
            peak: 0,
            peak_until: 0,
            round_trip_ns: 0,
            variance_ns: 0,
            start: SlowStart::default(),
            timeouts: 0,
            buffer: 0,
            rto_at: u64::MAX,
            sent_at: 0,
            cubic: Cubic::default(),
            shadow: ShadowTcp::NEW,
        }
    }

    /// Reads what an acknowledgement needs: a field of each cache line, and the first flight.
    pub(super) fn read_ahead(&self) -> u64 {
        let flight = self.flights.front().map_or(0, |flight| flight.start);
        flight ^ self.acked ^ self.rto_at ^ self.peak
    }

    /// Adds written bytes.
    pub(super) const fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Written and unsent bytes.
    pub(super) const fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// Bytes that were sent at least once.
    pub(super) const fn sent(&self) -> u64 {
        self.next
    }

    /// The space of the window.
    const fn window_left(&self) -> u64 {
        match self.control {
            Control::Shadow => (self.acked + self.cwnd).saturating_sub(self.next),
            _ => self.cwnd.saturating_sub(self.in_flight),
        }
    }

    /// Whether a flight may be sent.
    pub(super) fn may_send(&mut self, unit: u64) -> bool {
        if let Some(retransmits) = &mut self.retransmits {
            let acked = self.acked;
            while retransmits.front().is_some_and(|front| front.0 + u64::from(front.1) <= acked) {
                retransmits.pop_front();
            }
        }
        if let Some((start, bytes, _)) =
            self.retransmits.as_ref().and_then(|retransmits| retransmits.front())
        {
            let fits = match self.control {
                Control::Shadow => *start < self.acked + self.cwnd,
                _ => self.in_flight + u64::from(*bytes) <= self.cwnd,
            };
            self.is_limited |= !fits;
            return fits || self.in_flight == 0 || self.is_repair_due;
        }
        let unsent = self.written - self.next;
        let window = self.window_left();
        self.is_limited |= window < unsent;
        // Windows are whole segments: a fraction waits until there is space for a whole one.
        let least = unsent.min(MSS).max(unit);
        unsent.min(window).min(self.window_end.saturating_sub(self.next)) >= least
    }

    /// Whether everything is acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        self.acked == self.written
    }

    /// The next flight, if it may be sent. New bytes are whole units.
    pub(super) fn take_flight(&mut self, now: u64, unit: u64) -> Option<Flight> {
        if !self.may_send(unit) {
            return None;
        }
        let (start, bytes, is_retransmit) = if let Some((start, bytes, _)) = self.take_retransmit()
        {
            self.is_repair_due = false;
            (start, bytes, true)
        } else {
            self.rest(now);
            let longest = if self.is_shadows() { shadow::FLIGHT_MAX } else { FLIGHT_MAX };
            let most = (self.cwnd / 4).clamp(2 * MSS, longest);
            let window = self.window_left();
            let allowed = self.window_end.saturating_sub(self.next);
            let unsent = self.written - self.next;
            let bytes = unsent.min(most).min(window).min(allowed);
            let whole = if unit == 1 && bytes < unsent && bytes >= MSS { MSS } else { unit };
            let (start, bytes) = (self.next, bytes - bytes % whole);
            self.next += bytes;
            (start, u32::try_from(bytes).unwrap_or(0), false)
        };
        let flight =
            Flight { number: self.sent_flights, start, bytes, sent_at: now, is_retransmit };
        self.sent_flights += 1;
        self.in_flight += u64::from(bytes);
        self.peak = self.peak.max(self.in_flight);
        if self.flights.is_empty() || is_retransmit && self.is_shadows() {
            self.rto_at = now + self.rto_ns();
        }
        self.sent_at = now;
        self.flights.push_back(flight);
        Some(flight)
    }

    fn take_retransmit(&mut self) -> Option<Retransmit> {
        self.retransmits.as_mut()?.pop_front()
    }

    /// After a pause the state of the path is unknown (RFC 5681 §4.1): the window halves for each RTO.
    fn rest(&mut self, now: u64) {
        if self.in_flight > 0 || self.cwnd <= WINDOW_FIRST || self.is_shadows() {
            return;
        }
        let pause = now.saturating_sub(self.sent_at) / self.rto_ns();
        if pause > 0 {
            self.threshold = self.threshold.max(self.cwnd * 3 / 4);
            let halved = self.cwnd.checked_shr(u32::try_from(pause).unwrap_or(64)).unwrap_or(0);
            self.cwnd = halved.max(WINDOW_FIRST);
            self.cubic.end();
        }
    }

    fn rto_ns(&self) -> u64 {
        if self.is_shadows() {
            return self.timeout_of_shadow();
        }
        let measured = self.round_trip_ns + (4 * self.variance_ns).max(RTO_MIN_NS);
        let first = if self.round_trip_ns == 0 { RTO_INITIAL_NS } else { measured };
        (first << self.timeouts.min(6)).min(RTO_MAX_NS)
    }

    /// A flight is acknowledged, with everything before `next`; `window_end` is the right edge of the receive
    /// window.
    pub(super) fn handle_ack(&mut self, now: u64, number: u32, next: u64, window_end: u64) {
        let newly_acked = next.saturating_sub(self.acked);
        self.acked += newly_acked;
        self.window_end = self.window_end.max(window_end);
        let mut overlooked = 0;
        if self.is_shadows() {
            self.count_duplicates(number, newly_acked > 0);
            self.forget_acknowledged();
        }
        while let Some(flight) =
            self.flights.get(overlooked).copied().filter(|flight| flight.number <= number)
        {
            if self.is_shadows() && flight.number < number && self.overlooks(&flight) {
                overlooked += 1;
                continue;
            }
            self.flights.remove(overlooked);
            self.in_flight -= u64::from(flight.bytes);
            if flight.number < number {
                self.retransmits.get_or_insert_default().push_back(flight.as_retransmit());
                if !self.is_shadows() {
                    self.handle_loss(&flight);
                }
                continue;
            }
            if !flight.is_retransmit {
                self.handle_round_trip(now, &flight);
            }
            // A window that is not used says nothing about the path. As in Linux, half of it suffices in slow
            // start.
            let is_used = self.is_limited || self.cwnd < self.threshold.min(2 * self.peak);
            let may_grow = flight.start >= self.recovers_until || self.is_after_rto;
            if may_grow && is_used && !self.is_shadows() {
                self.grow(now, u64::from(flight.bytes));
            }
        }
        if self.acked >= self.peak_until {
            (self.peak, self.peak_until) = (self.in_flight, self.next);
        }
        if newly_acked > 0 || !self.is_shadows() {
            if self.is_shadows() {
                self.handle_shadow_ack(newly_acked);
            }
            self.timeouts = 0;
            self.rto_at = now + self.rto_ns();
        }
        if self.flights.is_empty() {
            self.rto_at = u64::MAX;
            // An empty ring restarts at its beginning, in memory that is in the cache.
            self.flights.clear();
        }
        self.is_limited = false;
    }

    /// A window update.
    pub(super) fn handle_window(&mut self, window_end: u64) {
        self.window_end = self.window_end.max(window_end);
    }

    /// The RTO has expired.
    pub(super) fn handle_rto(&mut self) {
        let retransmits = self.retransmits.get_or_insert_default();
        retransmits.extend(self.flights.drain(..).map(|flight| flight.as_retransmit()));
        self.in_flight = 0;
        self.reduce();
        // Linux forgets the state of the path.
        (self.cubic, self.start) = <_>::default();
        self.cwnd = WINDOW_LEAST;
        if self.is_shadows() {
            self.handle_rto_of_shadow();
        }
        (self.recovers_until, self.is_after_rto) = (self.next, true);
        self.timeouts += 1;
        self.rto_at = u64::MAX;
    }

    fn handle_loss(&mut self, flight: &Flight) {
        // One reaction to all losses of a window, including those of retransmissions: as in Linux since RACK
        // (RFC 8985). Losses after an RTO were sent after it.
        if flight.start >= self.recovers_until || self.is_after_rto {
            self.reduce();
            self.cwnd = self.threshold;
            self.recovers_until = self.next;
            self.is_after_rto = false;
            self.is_repair_due = true;
        }
    }

    /// The kernel's report.
    pub(super) fn state(&self) -> SocketState {
        let packet = self.packet_bytes();
        let segments = |bytes: u64| u32::try_from(bytes.div_ceil(packet)).unwrap_or(u32::MAX);
        let retransmits = self.retransmits.iter().flat_map(|retransmits| retransmits.iter());
        let retransmits: u64 = retransmits.map(|retransmit| u64::from(retransmit.1)).sum();
        SocketState {
            cwnd_segments: segments(self.cwnd),
            unacked_segments: segments(match self.control {
                Control::Shadow => self.written - self.acked,
                _ => self.in_flight,
            }),
            // Shadow reports its largest segment as well (`TCP_INFO`), however short the packets are that its
            // window counts.
            mss_bytes: 1448,
            notsent_bytes: u32::try_from(self.written - self.next + retransmits)
                .unwrap_or(u32::MAX),
            unwritten_bytes: 0,
            rtt_us: u32::try_from(self.round_trip_ns / 1000).unwrap_or(u32::MAX),
        }
    }
}
