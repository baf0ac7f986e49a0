//! Window growth: slow start and its end, Reno, Cubic, and the reduction after a loss.

use super::{Control, Flight, MSS, Sender, WINDOW_LEAST};

/// HyStart with Linux' default parameters: the minimum window in segments; the pause per segment that ends a
/// train of acknowledgements; the number of segments that determine a round's delay.
const HYSTART_LEAST: u64 = 16 * MSS;
const HYSTART_PAUSE_NS: u64 = 2_000_000;
const HYSTART_SAMPLE: u64 = 8 * MSS;

/// Cubic's constants (RFC 9438 §5).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Linux: before the first loss, at least one segment for this number of acknowledged ones.
const LEAST_BEFORE_LOSS: f64 = 20.0;

/// Ends slow start before a queue overflows: HyStart (Ha and Rhee 2008), which is part of Cubic in Linux.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct SlowStart {
    /// The minimum round-trip time so far.
    least_ns: u64,
    /// Of this round: its beginning, its minimum round-trip time, the number of samples in bytes, and the
    /// beginning of the next round.
    began_at: u64,
    round_least_ns: u64,
    bytes: u64,
    end: u64,
    /// The last acknowledgement of the train since the round began.
    train_at: u64,
}

impl Default for SlowStart {
    fn default() -> Self {
        Self {
            least_ns: u64::MAX,
            began_at: 0,
            round_least_ns: u64::MAX,
            bytes: 0,
            end: 0,
            train_at: 0,
        }
    }
}

/// Cubic's state between two losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// [`NOT_YET`](Self::NOT_YET) between a loss and the next acknowledgement.
    began_at: u64,
    /// In segments: the window before the last loss, and the origin of the curve.
    before: f64,
    origin: f64,
    /// Seconds until then.
    middle_s: f64,
    /// Reno's window at the same time.
    friendly: f64,
}

impl Cubic {
    const NOT_YET: u64 = u64::MAX;

    /// Restarts with the next acknowledgement.
    pub(super) const fn end(&mut self) {
        self.began_at = Self::NOT_YET;
    }
}

impl Default for Cubic {
    fn default() -> Self {
        Self { began_at: Self::NOT_YET, before: 0.0, origin: 0.0, middle_s: 0.0, friendly: 0.0 }
    }
}

impl Sender {
    #[expect(clippy::cast_precision_loss, reason = "windows are far below 2⁵³ bytes")]
    pub(super) fn reduce(&mut self) {
        let kept = match self.control {
            Control::Reno => self.cwnd / 2,
            Control::Shadow => {
                self.threshold = self.cwnd / 2 + self.packet_bytes();
                return;
            }
            Control::Cubic => {
                let segments = self.cwnd as f64 / MSS as f64;
                // Fast convergence (RFC 9438 §4.7).
                let is_less = segments < self.cubic.before;
                self.cubic.before =
                    if is_less { segments * (1.0 + CUBIC_BETA) / 2.0 } else { segments };
                self.cubic.end();
                self.cwnd * 7 / 10
            }
        };
        self.threshold = kept.max(WINDOW_LEAST);
    }

    pub(super) fn handle_round_trip(&mut self, now: u64, flight: &Flight) {
        let sample = now - flight.sent_at;
        if self.round_trip_ns == 0 {
            (self.round_trip_ns, self.variance_ns) = (sample, sample / 2);
        } else {
            let difference = self.round_trip_ns.abs_diff(sample);
            self.variance_ns = (self.variance_ns * 3 + difference) / 4;
            self.round_trip_ns = (self.round_trip_ns * 7 + sample) / 8;
        }
        self.start.least_ns = self.start.least_ns.min(sample);
        if self.control == Control::Cubic
            && self.cwnd < self.threshold
            && self.has_filled_path(now, sample, flight.bytes.into())
        {
            self.threshold = self.cwnd;
        }
    }

    /// Whether slow start ends with this acknowledgement.
    fn has_filled_path(&mut self, now: u64, sample: u64, bytes: u64) -> bool {
        let start = &mut self.start;
        if self.acked > start.end {
            *start = SlowStart {
                least_ns: start.least_ns,
                began_at: now,
                train_at: now,
                end: self.next,
                ..SlowStart::default()
            };
        }
        if self.cwnd < HYSTART_LEAST {
            return false;
        }
        // The acknowledgement of a flight represents those of its segments.
        let is_of_train = now - start.train_at <= HYSTART_PAUSE_NS * bytes.div_ceil(MSS);
        if is_of_train {
            start.train_at = now;
        }
        start.round_least_ns = start.round_least_ns.min(sample);
        let tells_enough = start.bytes >= HYSTART_SAMPLE;
        start.bytes += bytes;
        let tolerated = (start.least_ns / 8).clamp(4_000_000, 16_000_000);
        // A train of half the round-trip time fills the path in one direction; or a queue has grown.
        let is_long = is_of_train && now - start.began_at > start.least_ns / 2;
        is_long || tells_enough && start.round_least_ns > start.least_ns + tolerated
    }

    pub(super) fn grow(&mut self, now: u64, acked: u64) {
        if self.cwnd < self.threshold {
            self.cwnd += acked;
        } else {
            match self.control {
                // (Shadow's windows grow by their own rule.)
                Control::Reno | Control::Shadow => {
                    self.cwnd += (self.packet_bytes() * acked / self.cwnd).max(1);
                }
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
        if cubic.began_at == Cubic::NOT_YET {
            cubic.began_at = now;
            cubic.origin = cubic.before.max(cwnd);
            cubic.middle_s = libm::cbrt((cubic.origin - cwnd) / CUBIC_C);
            cubic.friendly = cwnd;
        }
        // After an RTO no round-trip time is known until new data is acknowledged.
        let least_ns = if self.start.least_ns == u64::MAX { 0 } else { self.start.least_ns };
        let since_s = (now - cubic.began_at + least_ns) as f64 * 1e-9;
        let offset = since_s - cubic.middle_s;
        let target = cubic.origin + CUBIC_C * offset * offset * offset;
        cubic.friendly += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) * acked / cwnd;
        let mut grown = (target.clamp(cwnd, 1.5 * cwnd) - cwnd) / cwnd * acked;
        if cubic.before == 0.0 {
            // Linux: before the first loss the curve's origin is unknown, and growth is at least a twentieth
            // per round trip.
            grown = grown.max(acked / LEAST_BEFORE_LOSS);
        }
        let friendly = (cubic.friendly - cwnd) / cwnd * acked;
        self.cwnd += (grown.max(friendly).max(0.0) * MSS as f64) as u64;
    }
}
