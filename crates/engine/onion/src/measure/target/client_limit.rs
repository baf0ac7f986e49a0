use crate::measure::protocol::ClientShare;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// A round: the measurement traffic of one round determines the clients' share in the next.
const ROUND: Duration = Duration::from_millis(10);

/// Minimum measurement traffic that is assumed, so that clients are never starved (proposal 316 §3.1.4).
const MEASURED_MIN: Rate = Rate::from_bit_per_s(10_000_000);

/// Rounds of unused share that clients may accumulate: traffic is bursty on both sides.
const ROUNDS_SAVED: u64 = 4;

/// Weight of the past in the average round, divided by one more.
const SMOOTHING: u64 = 8;

/// Bytes by which a round may always be overdrawn: less than a cell would never allow one.
const LEAST_GRANT: u64 = crate::cell::CELL_LEN as u64;

/// Minimum rate of a relay's clients while it is measured, if they have used that much before.
///
/// No order reduces it: with *r* = 0, or with hardly any measurement traffic, a coordinator (or whoever has
/// stolen its key) could otherwise stop a relay's clients at will and observe elsewhere whose they are. It
/// costs no accuracy: clients had no more than the relay can carry, so 1−*r* of that is left for the
/// measurement, and their traffic counts up to *x*·*r*/(1−*r*).
pub fn client_floor(usual: Rate, share: ClientShare) -> Rate {
    let of = |rate: Rate| rate.scaled(f64::from(share.as_permille()) / 1000.0);
    of(usual).max(Rate::from_byte_per_s(share.allowance(MEASURED_MIN.as_byte_per_s())))
}

/// Limits client traffic to *y* ≤ *x*·*r*/(1−*r*) while a relay is measured (§4.1).
#[derive(Clone, Debug)]
pub struct ClientLimit {
    share: ClientShare,
    /// Clients' minimum rate.
    floor: Rate,
    round_began: Instant,
    /// Measurement traffic of this round.
    measured_bytes: u64,
    /// Bytes that clients may still be sent.
    credit_bytes: u64,
    /// The average grant of recent rounds.
    usual_grant_bytes: u64,
}

impl ClientLimit {
    /// A new limit; the first round assumes the minimum measurement traffic. Clients always get `floor`.
    #[must_use]
    pub fn new(share: ClientShare, floor: Rate, now: Instant) -> Self {
        let grant = share.allowance(MEASURED_MIN.bytes_in(ROUND)).max(floor.bytes_in(ROUND));
        Self {
            share,
            floor,
            round_began: now,
            measured_bytes: 0,
            credit_bytes: grant,
            usual_grant_bytes: grant,
        }
    }

    /// Measurement traffic has been sent.
    #[inline]
    pub const fn handle_measured(&mut self, bytes: u64) {
        self.measured_bytes += bytes;
    }

    /// Bytes of the whole relay's traffic without the clients' share *r*.
    #[inline]
    pub(super) fn without_share(&self, bytes: u64) -> u64 {
        bytes * u64::from(1000 - self.share.as_permille()) / 1000
    }

    /// Client traffic has been sent.
    #[inline]
    pub const fn handle_client_sent(&mut self, bytes: u64) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes);
    }

    /// Bytes that clients may be sent now.
    #[inline]
    #[must_use]
    pub fn available_bytes(&mut self, now: Instant) -> u64 {
        if now >= self.next_round_at() {
            self.begin_round(now);
        }
        self.credit_bytes
    }

    /// When the next round begins.
    #[must_use]
    pub fn next_round_at(&self) -> Instant {
        self.round_began + ROUND
    }

    fn begin_round(&mut self, now: Instant) {
        // Several rounds have passed since the last call; no more of them count than can be accumulated.
        let passed = now - self.round_began;
        let measured = core::mem::take(&mut self.measured_bytes).max(MEASURED_MIN.bytes_in(passed));
        let granted = self.share.allowance(measured).max(self.floor.bytes_in(passed));
        let round = part(granted, ROUND, passed);
        let saved = self.usual_grant_bytes * (SMOOTHING - 1);
        self.usual_grant_bytes = saved.saturating_add(round) / SMOOTHING;
        let most = (ROUNDS_SAVED * self.usual_grant_bytes).max(round).max(LEAST_GRANT);
        let counts = granted.min(ROUNDS_SAVED.saturating_mul(round));
        self.credit_bytes = self.credit_bytes.saturating_add(counts).min(most);
        self.round_began = now;
    }
}

/// The share of `time` in the `bytes` of `whole`.
fn part(bytes: u64, time: Duration, whole: Duration) -> u64 {
    let scaled = u128::from(bytes) * time.as_nanos() / whole.as_nanos().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
