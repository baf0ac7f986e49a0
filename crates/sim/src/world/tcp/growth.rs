//! How fast: slow start and its end, Reno, Cubic, and what a loss costs.

use super::{Control, MSS, Sender, WINDOW_LEAST};

/// Bytes of a round by which its delay is judged: RFC 9406 wants eight segments.
const ROUND_LEAST: u64 = 8 * MSS;

/// Cubic's constants (RFC 9438, §5).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Where Cubic is between two losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    began_at: u64,
    pub(super) has_begun: bool,
    /// Segments: the window before the last loss, and where the curve has its middle.
    before: f64,
    origin: f64,
    /// Seconds until then.
    middle_s: f64,
    /// What Reno would have by now.
    friendly: f64,
}

impl Sender {
    #[expect(clippy::cast_precision_loss, reason = "windows are far below 2⁵³ bytes")]
    pub(super) fn reduce(&mut self) {
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

    pub(super) fn handle_round_trip(&mut self, sample: u64, bytes: u64) {
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

    pub(super) fn grow(&mut self, now: u64, acked: u64) {
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
}
