//! Guards: a small set of first hops that a client keeps, so that not every relay sees it
//! eventually (guard-spec, reduced).
//!
//! A *sample* of relays is drawn once and kept for months. A member is *confirmed* once a circuit
//! was built through it. The first three listed members, confirmed ones first, are *primary*; the
//! first usable one is used. An unreachable guard is retried after a delay that grows.
//!
//! Not implemented: bridges, restricted guards, and circuits that wait for a better guard's answer.

use crate::netdir::{NetDir, RelayInfo};
use crate::path::select_relay;
use crate::strategy::{Position, Strategy};
use netdoc::{Nickname, RsaId};
use onion::{Duration, Instant};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Minimum of listed members in the sample: guard-spec's `MIN_FILTERED_SAMPLE`.
const LISTED_MIN: usize = 20;
/// Maximum size of the sample: guard-spec's `MAX_SAMPLE_SIZE`.
const SAMPLE_MAX: usize = 60;
/// Maximum share of all guards in the sample: guard-spec's `MAX_SAMPLE_THRESHOLD`. A small private
/// network is sampled completely.
const SAMPLE_MAX_SHARE: f64 = 0.2;
/// Primary guards: guard-spec's `N_PRIMARY_GUARDS`.
const PRIMARY: usize = 3;
/// A member that was unlisted for this time is dropped: guard-spec's
/// `REMOVE_UNLISTED_GUARDS_AFTER`.
const UNLISTED_MAX_S: u64 = 20 * 24 * 3600;
/// An unconfirmed member is dropped after this time: guard-spec's `GUARD_LIFETIME`.
const UNCONFIRMED_MAX_S: u64 = 120 * 24 * 3600;
/// A confirmed member is dropped this long after its confirmation: guard-spec's
/// `GUARD_CONFIRMED_MIN_LIFETIME`.
const CONFIRMED_MAX_S: u64 = 60 * 24 * 3600;
/// If all guards are unreachable, the network may have been down: the guard that failed first is
/// retried after this time.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// A member of the sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Its fingerprint.
    pub fingerprint: RsaId,
    /// Its nickname, for display.
    pub nickname: Nickname,
    /// When it was added, in Unix seconds.
    pub added: u64,
    /// When a circuit was first built through it, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<u64>,
    /// Since when no consensus has listed it as a guard, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// Set while it is unreachable. Not stored.
    #[serde(skip)]
    failing: Option<Failing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failing {
    since: Instant,
    last: Instant,
}

impl Failing {
    /// When to retry: guard-spec's schedules.
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

/// The sample, in the order of selection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// The members, in the order of selection.
    #[must_use]
    pub fn sample(&self) -> &[Guard] {
        &self.0
    }

    /// Updates which members are listed, drops expired ones, and adds others. Returns whether there
    /// is a change to be saved.
    pub fn update(
        &mut self,
        netdir: &NetDir,
        strategy: &dyn Strategy,
        unix_time_s: u64,
        rng: &mut impl Rng,
    ) -> bool {
        let before = self.clone();
        for guard in &mut self.0 {
            let is_listed = netdir.find(&guard.fingerprint).is_some_and(RelayInfo::may_be_guard);
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
        let all = netdir.relays().iter().filter(|relay| relay.may_be_guard()).count();
        let listed =
            |guards: &[Guard]| guards.iter().filter(|guard| guard.unlisted.is_none()).count();
        let is_large = |len: usize| {
            len >= SAMPLE_MAX || (len >= LISTED_MIN && len as f64 >= all as f64 * SAMPLE_MAX_SHARE)
        };
        while listed(&self.0) < LISTED_MIN && !is_large(self.0.len()) {
            let is_new = |relay: &RelayInfo| {
                relay.may_be_guard()
                    && self.0.iter().all(|guard| guard.fingerprint != relay.fingerprint)
            };
            let drawn = select_relay(netdir, strategy, Position::Guard, &[], false, rng, is_new);
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

    /// The listed members, best first: confirmed ones by date, then the others in the order of
    /// selection.
    fn in_order(&self) -> Vec<&Guard> {
        let mut listed: Vec<&Guard> =
            self.0.iter().filter(|guard| guard.unlisted.is_none()).collect();
        listed.sort_by_key(|guard| (Reverse(guard.confirmed.is_some()), guard.confirmed));
        listed
    }

    /// The primary guards.
    pub fn primary(&self) -> impl Iterator<Item = &Guard> {
        self.in_order().into_iter().take(PRIMARY)
    }

    /// The primary guards that may be tried now, best first. Directories are reached through them.
    pub(crate) fn ready(&self, now: Instant) -> Vec<RsaId> {
        let is_ready =
            |guard: &&Guard| guard.failing.is_none_or(|failing| failing.retry_at(true) <= now);
        self.primary().filter(is_ready).map(|primary| primary.fingerprint).collect()
    }

    /// The guard to use now among those that `allowed` permits; `None` if none may be tried.
    #[must_use]
    pub fn choose(
        &self,
        netdir: &NetDir,
        now: Instant,
        allowed: &dyn Fn(&RelayInfo) -> bool,
    ) -> Option<RsaId> {
        let ordered = self.in_order();
        let mut usable = Vec::new();
        for (place, guard) in ordered.iter().enumerate() {
            if netdir.find(&guard.fingerprint).is_some_and(allowed) {
                let is_primary = place < PRIMARY;
                if guard.failing.is_none_or(|failing| failing.retry_at(is_primary) <= now) {
                    return Some(guard.fingerprint);
                }
                usable.push(*guard);
            }
        }
        let last = |guard: &&&Guard| guard.failing.map(|failing| failing.last);
        let first_failed = usable.iter().min_by_key(last)?;
        let is_due = first_failed.failing.is_none_or(|failing| failing.last + LAST_RESORT <= now);
        is_due.then_some(first_failed.fingerprint)
    }

    /// Records a circuit through a guard. Returns whether there is a change to be saved.
    pub fn handle_success(&mut self, guard: &RsaId, unix_time_s: u64) -> bool {
        let Some(guard) = self.0.iter_mut().find(|member| member.fingerprint == *guard) else {
            return false;
        };
        guard.failing = None;
        let is_first = guard.confirmed.is_none();
        guard.confirmed.get_or_insert(unix_time_s);
        is_first
    }

    /// Records that a guard could not be reached.
    pub fn handle_failure(&mut self, guard: &RsaId, now: Instant) {
        if let Some(guard) = self.0.iter_mut().find(|member| member.fingerprint == *guard) {
            let since = guard.failing.map_or(now, |failing| failing.since);
            guard.failing = Some(Failing { since, last: now });
        }
    }
}

#[cfg(test)]
mod tests;
