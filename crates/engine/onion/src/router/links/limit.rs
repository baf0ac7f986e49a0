//! The rate limit for sending, and when blocked links resume. For reading, see [`reading`](super::reading).

use super::output::RECORD_BYTES;
use crate::cell_model::CellModel;
use crate::rate::Rate;
use crate::router::{Behavior, Core, RateLimit};
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Sets the rate limit, for both directions.
    pub fn set_limit(&mut self, now: Instant, limit: Option<RateLimit>) {
        self.outputs.set_now(now);
        self.config.limit = limit;
        self.bucket = limit.map(|limit| limit.bucket(now));
        self.reading.set_limit(&mut self.conns, now, limit);
        self.has_changed_rate = false;
        self.outputs.wake_parked(&mut self.conns, usize::MAX);
    }

    /// Sends and reads with `rate` during a measurement, and with the configured rate otherwise.
    #[cold]
    pub(crate) fn change_rate(&mut self, rate: Rate) {
        let is_measured = self.target.is_measuring();
        if is_measured == self.has_changed_rate {
            return;
        }
        self.has_changed_rate = is_measured;
        let usual = self.config.limit;
        let burst_bytes = usual.map_or(0, |limit| limit.burst_bytes);
        let limit = if is_measured { Some(RateLimit { rate, burst_bytes }) } else { usual };
        let now = self.outputs.now();
        self.bucket = limit.map(|limit| limit.bucket(now));
        self.reading.set_limit(&mut self.conns, now, limit);
    }

    /// Wakes links whose waiting time is over.
    pub(crate) fn wake_waiting(&mut self) {
        let now = self.outputs.now();
        let queued_cells = self.outputs.queued_cells();
        self.reading.wake(&mut self.conns, now, queued_cells);
        if self.outputs.has_parked() {
            let bytes = self.bucket.as_mut().map_or(u64::MAX, |b| b.available_bytes(now));
            // At least one: a link that wants less than a record may be able to send.
            let count = usize::try_from(bytes / RECORD_BYTES).unwrap_or(usize::MAX);
            self.outputs.wake_parked(&mut self.conns, count.max(1));
        }
        if self.outputs.has_held() {
            let bytes = self.behavior.clients_may_send(self.target.clients_may_send(now));
            let count = usize::try_from(bytes.div_ceil(RECORD_BYTES)).unwrap_or(usize::MAX);
            self.outputs.wake_held(&mut self.conns, count);
        }
    }

    /// When blocked links may resume.
    pub(crate) fn waiting_ends_at(&self) -> Option<Instant> {
        let by_rate = self.bucket.as_ref().filter(|_| self.outputs.has_parked());
        let by_rate = by_rate.map(|bucket| bucket.available_at(RECORD_BYTES));
        let by_share = self.outputs.has_held().then(|| self.target.clients_may_send_at());
        // Blocked although the measurement is over: immediately.
        let by_share = by_share.map(|at| at.unwrap_or(Instant::ORIGIN));
        [by_rate, by_share, self.reading.next_turn_at(self.outputs.queued_cells())]
            .into_iter()
            .flatten()
            .min()
    }
}
