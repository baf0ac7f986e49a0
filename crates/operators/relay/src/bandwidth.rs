//! The bandwidth that a relay reports to the authorities.

use crate::history::History;
use crate::overload::Overload;
use crate::state::State;
use onion::router::RateLimit;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The rate limit, the history and the overload state, shared by several threads.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    limit: Mutex<Option<RateLimit>>,
    state: Mutex<State>,
}

impl Bandwidth {
    /// Starts with the stored state.
    pub(crate) fn new(limit: Option<RateLimit>, state: State) -> Self {
        Self { limit: Mutex::new(limit), state: Mutex::new(state) }
    }

    pub(crate) fn limit(&self) -> Option<RateLimit> {
        // The lock guards code that cannot panic.
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_limit(&self, limit: Option<RateLimit>) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    /// The observed bandwidth, in bytes/s.
    pub(crate) fn observed_bytes_s(&self) -> u64 {
        self.state().history.observed_bytes_s()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the history and the overload state.
    pub(crate) fn note(&self, note: impl FnOnce(&mut History, &mut Overload)) {
        let State { history, overload } = &mut *self.state();
        note(history, overload);
    }

    /// The lines of an extra-info document about bandwidth and overload.
    pub(crate) fn extra_info_lines(&self, now: u64, rate_bytes_s: u64) -> String {
        let limit = self.limit();
        let state = self.state();
        state.history.lines(rate_bytes_s) + &state.overload.extra_info_lines(now, limit)
    }

    /// The line of a descriptor about overload, if any.
    pub(crate) fn overload_line(&self, now: u64) -> String {
        self.state().overload.descriptor_line(now)
    }

    /// The state to be stored.
    pub(crate) fn remembered(&self) -> State {
        self.state().clone()
    }
}
