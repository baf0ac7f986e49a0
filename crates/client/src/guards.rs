//! Guards: few first hops that a client keeps, so that not every relay sees it some day (guard-spec, reduced).
//!
//! A *sample* of relays is drawn once and kept for months. A member that a circuit was built through is *confirmed*.
//! The first three that are listed, confirmed ones before others, are *primary*; the first of them that works is used. One that
//! cannot be reached is left alone for a while, longer each time.
//!
//! Left out of the specification: bridges, restricted guards, and circuits that wait for a better guard's answer.

use crate::path::draw;
use crate::strategy::{Position, Strategy};
use crate::view::{RelayInfo, View};
use netdoc::consensus::Flag;
use netdoc::{Fingerprint, Nickname};
use onion::{Duration, Instant};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Members of the sample that are listed, at least: guard-spec's `MIN_FILTERED_SAMPLE`.
const LISTED_MIN: usize = 20;
/// Members of the sample, at most: guard-spec's `MAX_SAMPLE_SIZE`.
const SAMPLE_MAX: usize = 60;
/// The sample is no larger part of all guards: guard-spec's `MAX_SAMPLE_THRESHOLD`. A network as small as a private one is
/// taken whole.
const SAMPLE_MAX_SHARE: f64 = 0.2;
/// Guards that are used first: guard-spec's `N_PRIMARY_GUARDS`.
const PRIMARY: usize = 3;
/// A member that no consensus has listed for so long is dropped: guard-spec's `REMOVE_UNLISTED_GUARDS_AFTER`.
const UNLISTED_MAX_S: u64 = 20 * 24 * 3600;
/// One that was never confirmed, after so long: guard-spec's `GUARD_LIFETIME`.
const UNCONFIRMED_MAX_S: u64 = 120 * 24 * 3600;
/// One that was confirmed, so long after that: guard-spec's `GUARD_CONFIRMED_MIN_LIFETIME`.
const CONFIRMED_MAX_S: u64 = 60 * 24 * 3600;
/// With all guards unreachable the network may have been down: the one that failed first is tried again after so long.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// A member of the sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Which relay.
    pub fingerprint: Fingerprint,
    /// For people.
    pub nickname: Nickname,
    /// When it was drawn, in Unix seconds.
    pub added: u64,
    /// When a circuit was first built through it, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<u64>,
    /// Since when no consensus lists it as a guard, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// That it cannot be reached. Forgotten with the process.
    #[serde(skip)]
    failing: Option<Failing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failing {
    since: Instant,
    last: Instant,
}

impl Failing {
    /// When to try again: guard-spec's schedules.
    fn retry_at(&self, is_primary: bool) -> Instant {
        const HOUR_S: u64 = 3600;
        let minutes = match ((self.last - self.since).as_secs() / HOUR_S, is_primary) {
            (0..6, true) => 10,
            (6..102, true) => 90,
            (102..168, true) => 4 * 60,
            (_, true) => 9 * 60,
            (0..6, false) => 60,
            (6..102, false) => 4 * 60,
            (102..168, false) => 18 * 60,
            (_, false) => 36 * 60,
        };
        self.last + Duration::from_secs(minutes * 60)
    }
}

/// The sample, in the order in which its members were drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guards(Vec<Guard>);

/// Whether a relay may be a guard: it is one in the consensus, and serves its directory, too.
pub(crate) fn may_guard(relay: &RelayInfo) -> bool {
    relay.flags.contains(Flag::Guard) && relay.flags.contains(Flag::V2Dir)
}

impl Guards {
    /// The sample, in the order in which its members were drawn.
    #[must_use]
    pub fn sample(&self) -> &[Guard] {
        &self.0
    }

    /// Notes who is listed, drops who has been there too long or listed too long ago, and draws others. Whether anything has
    /// changed that is to be kept.
    pub fn update(
        &mut self,
        view: &View,
        strategy: &dyn Strategy,
        unix_time_s: u64,
        rng: &mut impl Rng,
    ) -> bool {
        let before = self.clone();
        for guard in &mut self.0 {
            let is_listed = view.find(&guard.fingerprint).is_some_and(may_guard);
            guard.unlisted = (!is_listed).then(|| guard.unlisted.unwrap_or(unix_time_s));
        }
        let is_older = |since: u64, limit_s: u64| unix_time_s.saturating_sub(since) > limit_s;
        self.0.retain(|guard| {
            let is_lost = guard.unlisted.is_some_and(|since| is_older(since, UNLISTED_MAX_S));
            let is_worn = guard.confirmed.map_or_else(
                || is_older(guard.added, UNCONFIRMED_MAX_S),
                |since| is_older(since, CONFIRMED_MAX_S),
            );
            !is_lost && !is_worn
        });
        let all = view.relays().iter().filter(|relay| may_guard(relay)).count();
        let listed = |guards: &[Guard]| guards.iter().filter(|it| it.unlisted.is_none()).count();
        let is_large = |len: usize| {
            len >= SAMPLE_MAX || (len >= LISTED_MIN && len as f64 >= all as f64 * SAMPLE_MAX_SHARE)
        };
        while listed(&self.0) < LISTED_MIN && !is_large(self.0.len()) {
            let is_new = |relay: &RelayInfo| {
                may_guard(relay) && self.0.iter().all(|it| it.fingerprint != relay.fingerprint)
            };
            let drawn = draw(view, strategy, Position::Guard, &[], false, rng, is_new);
            let Some(drawn) = drawn else { break };
            self.0.push(Guard {
                fingerprint: drawn.fingerprint,
                nickname: drawn.nickname,
                added: unix_time_s,
                confirmed: None,
                unlisted: None,
                failing: None,
            });
        }
        *self != before
    }

    /// The members that are listed, best first: those confirmed, by date, then the others in the order of the draw.
    fn in_order(&self) -> Vec<&Guard> {
        let mut listed: Vec<&Guard> = self.0.iter().filter(|it| it.unlisted.is_none()).collect();
        listed.sort_by_key(|guard| (Reverse(guard.confirmed.is_some()), guard.confirmed));
        listed
    }

    /// The guards that are used first.
    pub fn primary(&self) -> impl Iterator<Item = &Guard> {
        self.in_order().into_iter().take(PRIMARY)
    }

    /// Those of them that may be tried now, the best first: directories are asked through them.
    pub(crate) fn ready(&self, now: Instant) -> Vec<Fingerprint> {
        let is_ready = |it: &&Guard| it.failing.is_none_or(|it| it.retry_at(true) <= now);
        self.primary().filter(is_ready).map(|it| it.fingerprint).collect()
    }

    /// The guard to use now among those that `allowed` permits; `None` if there is none that may be tried.
    #[must_use]
    pub fn choose(
        &self,
        view: &View,
        now: Instant,
        allowed: &dyn Fn(&RelayInfo) -> bool,
    ) -> Option<Fingerprint> {
        let ordered = self.in_order();
        let mut usable = Vec::new();
        for (place, guard) in ordered.iter().enumerate() {
            if view.find(&guard.fingerprint).is_some_and(allowed) {
                let is_primary = place < PRIMARY;
                if guard.failing.is_none_or(|failing| failing.retry_at(is_primary) <= now) {
                    return Some(guard.fingerprint);
                }
                usable.push(*guard);
            }
        }
        let last = |guard: &&&Guard| guard.failing.map(|failing| failing.last);
        let first_failed = usable.iter().min_by_key(last)?;
        let is_due = first_failed.failing.is_none_or(|it| it.last + LAST_RESORT <= now);
        is_due.then_some(first_failed.fingerprint)
    }

    /// A circuit was built through a guard. Whether that is to be kept.
    pub fn handle_success(&mut self, guard: &Fingerprint, unix_time_s: u64) -> bool {
        let Some(guard) = self.0.iter_mut().find(|it| it.fingerprint == *guard) else {
            return false;
        };
        guard.failing = None;
        let is_first = guard.confirmed.is_none();
        guard.confirmed.get_or_insert(unix_time_s);
        is_first
    }

    /// A guard could not be reached.
    pub fn handle_failure(&mut self, guard: &Fingerprint, now: Instant) {
        if let Some(guard) = self.0.iter_mut().find(|it| it.fingerprint == *guard) {
            let since = guard.failing.map_or(now, |failing| failing.since);
            guard.failing = Some(Failing { since, last: now });
        }
    }
}

#[cfg(test)]
mod tests;
