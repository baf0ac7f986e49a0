//! Admission of orders.

use super::{Refusal, Target};
use crate::measure::protocol::{CoordinatorKey, ErrorCode, Nonce, Order, SignedOrder};
use crate::time::Duration;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// An order may expire at most this much later than now: long enough for clocks that differ by minutes.
const EXPIRY_AHEAD_MAX_S: u64 = 60 * 60;

/// An accepted measurement, which counts against its coordinator's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// When, in Unix time.
    pub unix_time_s: u64,
    /// The coordinator.
    pub coordinator: CoordinatorKey,
    /// The order.
    pub nonce: Nonce,
}

/// The measurements accepted within the last period of wall-clock time, which continues while the relay does
/// not run.
///
/// Bounded by the number of coordinators and their quota.
#[derive(Debug)]
pub(super) struct History {
    accepted: Vec<Accepted>,
}

impl History {
    pub(super) const fn new() -> Self {
        Self { accepted: Vec::new() }
    }

    pub(super) fn remember(&mut self, accepted: Accepted) {
        self.accepted.push(accepted);
    }

    fn forget_before(&mut self, unix_time_s: u64, period: Duration) {
        let first = unix_time_s.saturating_sub(period.as_secs());
        // An entry in the future comes from a wrong clock.
        self.accepted
            .retain(|accepted| accepted.unix_time_s > first && accepted.unix_time_s <= unix_time_s);
    }

    fn knows(&self, nonce: Nonce) -> bool {
        self.accepted.iter().any(|accepted| accepted.nonce == nonce)
    }

    fn count(&self, coordinator: CoordinatorKey) -> usize {
        self.accepted.iter().filter(|accepted| accepted.coordinator == coordinator).count()
    }
}

impl Target {
    /// Checks an order. The signature is verified before everything that depends on the relay's configuration
    /// or state, so that only an allowed coordinator learns either.
    pub(super) fn admit(
        &mut self,
        unix_time_s: u64,
        exported: &[u8; 32],
        signed: &SignedOrder,
    ) -> Result<Order, Refusal> {
        if !self.params.is_allowed {
            return Err(Refusal::new(ErrorCode::NOT_ALLOWED));
        }
        let order = signed
            .claims()
            .map_err(|error| Refusal { code: ErrorCode::MALFORMED, text: error.to_string() })?;
        // One answer to both, after the same work: otherwise an outsider could find out which coordinators the
        // relay allows.
        let is_signed = signed.verify(&order, exported).is_ok();
        if !is_signed || !self.params.coordinators.contains(&order.coordinator) {
            return Err(Refusal::new(ErrorCode::UNKNOWN_COORDINATOR));
        }
        if order.target != self.ids {
            return Err(Refusal::new(ErrorCode::WRONG_TARGET));
        }
        self.check_times(unix_time_s, &order)?;
        self.history.forget_before(unix_time_s, self.params.period);
        if self.history.knows(order.nonce) {
            return Err(Refusal::new(ErrorCode::REPLAYED));
        }
        if self.active.is_some() {
            return Err(Refusal::new(ErrorCode::BUSY));
        }
        let quota = self.params.measurements_per_period as usize;
        if self.history.count(order.coordinator) >= quota {
            let hours = self.params.period.as_secs() / 3600;
            let text = format!("{quota} in {hours} hours");
            return Err(Refusal { code: ErrorCode::QUOTA_EXCEEDED, text });
        }
        Ok(order)
    }

    fn check_times(&self, unix_time_s: u64, order: &Order) -> Result<(), Refusal> {
        if order.seconds == 0 || order.sockets == 0 || order.measurers.is_empty() {
            return Err(Refusal::new(ErrorCode::BAD_PARAMETERS));
        }
        let wanted = Duration::from_secs(u64::from(order.seconds));
        if wanted > self.params.max_duration {
            let allowed = self.params.max_duration.as_secs();
            let text = format!("{} s wanted, {allowed} s allowed", order.seconds);
            return Err(Refusal { code: ErrorCode::TOO_LONG, text });
        }
        if unix_time_s > order.expires_unix_s {
            let late = unix_time_s - order.expires_unix_s;
            let text = format!("{late} s ago by the relay's clock");
            return Err(Refusal { code: ErrorCode::EXPIRED, text });
        }
        if order.expires_unix_s - unix_time_s > EXPIRY_AHEAD_MAX_S {
            return Err(Refusal::new(ErrorCode::TOO_FAR_AHEAD));
        }
        Ok(())
    }
}
