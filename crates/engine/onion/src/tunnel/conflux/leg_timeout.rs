//! Legs that stop delivering, although their links are open and messages on them are expected.
//!
//! [`take_overdue`](Conflux::take_overdue) detects them by the number of waiting messages, which takes long if
//! there is little traffic. Timeouts detect them otherwise.

use super::{Conflux, Sequence};
use crate::time::{Duration, Instant};

/// A leg times out after this time without progress: far longer than a busy relay delays a circuit, and nothing
/// is lost if it is wrong.
pub const LEG_TIMEOUT: Duration = Duration::from_secs(10);

/// If two checks are farther apart, they say nothing: this machine may have been suspended.
const APART_MAX: Duration = Duration::from_secs(15);

/// The state at a check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// The progress.
    place: u64,
    /// Since when there has been no progress.
    since: Option<Instant>,
}

impl Look {
    /// Checks again. Returns whether there has been no progress for too long although some is expected.
    fn is_still(&mut self, now: Instant, place: u64, is_awaited: bool, must_forget: bool) -> bool {
        let since = self.since.filter(|_| is_awaited && self.place == place && !must_forget);
        let since = since.unwrap_or(now);
        *self = Self { place, since: Some(since) };
        now - since >= LEG_TIMEOUT
    }
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// Whether checks are necessary: messages wait for other legs or for acknowledgement.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let is_waiting =
            !self.early.is_empty() || self.legs.iter().any(|leg| leg.kept.is_awaited());
        self.resumes && self.legs.len() > 1 && is_waiting
    }

    /// The leg that has blocked the others for [`LEG_TIMEOUT`], or has acknowledged nothing for that time
    /// although it should. `None` without retransmission, and if no other leg is left. To be called every few
    /// seconds as long as the set [waits](Self::is_waiting).
    pub fn take_timed_out_leg(&mut self, now: Instant) -> Option<L> {
        if !self.resumes || self.legs.len() < 2 {
            return None;
        }
        let must_forget = self.looked_at.is_none_or(|at| now - at > APART_MAX);
        self.looked_at = Some(now);
        let (place, is_awaited) = (self.delivered, !self.early.is_empty());
        let is_stuck = self.look.is_still(now, place, is_awaited, must_forget);
        let mut mute = None;
        let mut any_other = false;
        for leg in &mut self.legs {
            let (place, is_awaited) = (leg.kept.acknowledged(), leg.kept.is_awaited());
            match leg.look.is_still(now, place, is_awaited, must_forget) {
                true => mute = mute.or(Some(leg.leg)),
                false => any_other = true,
            }
        }
        if is_stuck && let Some(leg) = self.behind() {
            self.look = Look::default();
            return Some(leg);
        }
        mute.filter(|_| any_other)
    }

    /// The leg that the others wait for: of those that can have the missing message, the one that has delivered
    /// most recently.
    pub(super) fn behind(&self) -> Option<L> {
        let is_behind = |leg: &&Sequence<L, M>| leg.received <= self.delivered;
        Some(self.legs.iter().filter(is_behind).max_by_key(|leg| leg.received)?.leg)
    }
}
