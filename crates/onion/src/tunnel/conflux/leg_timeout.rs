//! Legs that bring nothing for long, though something of them is waited for, and no link breaks.
//!
//! [`take_overdue`](Conflux::take_overdue) notices them by how much waits, which is soon where much comes. Where little comes, or nothing
//! more, only time can tell.

use super::{Conflux, Sequence};
use crate::time::{Duration, Instant};

/// A leg that has brought nothing for so long is silent: far longer than a busy relay lets a circuit wait, and nothing is lost if it is wrong.
pub const LEG_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two looks that are farther apart nothing is known: we may have slept ourselves.
const APART_MAX: Duration = Duration::from_secs(15);

/// What was found at a look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// How far it was.
    place: u64,
    /// Since when it has not come farther.
    since: Option<Instant>,
}

impl Look {
    /// Looks again. Whether it stands still, and something is waited for, for too long.
    fn is_still(&mut self, now: Instant, place: u64, is_awaited: bool, must_forget: bool) -> bool {
        let since = self.since.filter(|_| is_awaited && self.place == place && !must_forget);
        let since = since.unwrap_or(now);
        *self = Self { place, since: Some(since) };
        now - since >= LEG_TIMEOUT
    }
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// Whether a look would tell anything: something waits for other legs, or for being acknowledged.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let is_waiting = !self.early.is_empty() || self.legs.iter().any(|it| it.kept.is_awaited());
        self.resumes && self.legs.len() > 1 && is_waiting
    }

    /// The leg that keeps others waiting since [`LEG_TIMEOUT`], or that has acknowledged nothing for so long though it should have. None
    /// where nothing is sent again, and where no other leg is left. To be asked every few seconds, as long as the set
    /// [waits](Self::is_waiting).
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
        for it in &mut self.legs {
            let (place, is_awaited) = (it.kept.acknowledged(), it.kept.is_awaited());
            match it.look.is_still(now, place, is_awaited, must_forget) {
                true => mute = mute.or(Some(it.leg)),
                false => any_other = true,
            }
        }
        if is_stuck && let Some(leg) = self.behind() {
            self.look = Look::default();
            return Some(leg);
        }
        mute.filter(|_| any_other)
    }

    /// The leg that the others wait for: of those that can bring what is missing the one that has brought most lately.
    pub(super) fn behind(&self) -> Option<L> {
        let is_behind = |it: &&Sequence<L, M>| it.received <= self.delivered;
        Some(self.legs.iter().filter(is_behind).max_by_key(|it| it.received)?.leg)
    }
}
