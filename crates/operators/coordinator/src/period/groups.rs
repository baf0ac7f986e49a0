//! Relays that are measured together: they start at the same instant, and share the capacity of their host.

use super::Finished;
use crate::campaign::RelayIndex;
use crate::record::Record;
use crate::shared::{share_aligned, share_machine};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use onion::Instant;
use onion::identity::RsaId;

/// The groups whose relays are being measured. A relay that is measured alone is in none.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    group_of: BTreeMap<RelayIndex, usize>,
    groups: BTreeMap<usize, Group>,
    next: usize,
}

#[derive(Clone, Debug)]
struct Group {
    members: BTreeMap<RelayIndex, Member>,
    /// The time at which the ready members start without the others.
    starts: Option<Instant>,
    /// They start at this time or later: others use their measurers until then.
    not_before: Instant,
    has_started: bool,
    /// Members whose measurement has not ended.
    expected: usize,
    finished: Vec<Finished>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Members with the same host certainly share it.
    host: RsaId,
    readiness: Readiness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// Its measurers are not ready.
    Preparing,
    /// They are ready, and wait.
    Waiting,
    /// It started together with the others.
    OnTime,
    /// It was ready after the others had started.
    Late,
    /// Its measurement ended before it was ready.
    Failed,
}

impl Groups {
    /// Adds relays that are to be measured together, each with its host.
    pub(super) fn begin(&mut self, relays: &[(RelayIndex, RsaId)]) {
        if relays.len() < 2 {
            return;
        }
        let member = |host| Member { host, readiness: Readiness::Preparing };
        let group = Group {
            members: relays.iter().map(|(relay, host)| (*relay, member(*host))).collect(),
            starts: None,
            not_before: Instant::ORIGIN,
            has_started: false,
            expected: relays.len(),
            finished: Vec::new(),
        };
        self.groups.insert(self.next, group);
        self.group_of.extend(relays.iter().map(|(relay, _)| (*relay, self.next)));
        self.next += 1;
    }

    /// Whether a relay is measured together with others.
    pub(super) fn contains(&self, relay: RelayIndex) -> bool {
        self.group_of.contains_key(&relay)
    }

    /// The group of a relay, if it has one, starts at this time or later.
    pub(super) fn hold(&mut self, relay: RelayIndex, until: Instant) {
        if let Some(group) = self.group_of(relay) {
            group.not_before = group.not_before.max(until);
        }
    }

    /// The measurers of a relay are ready; it can wait until `latest`.
    pub(super) fn handle_ready(&mut self, relay: RelayIndex, latest: Instant) {
        if let Some(group) = self.group_of(relay)
            && let Some(member) = group.members.get_mut(&relay)
        {
            member.readiness = Readiness::Waiting;
            group.starts = Some(group.starts.map_or(latest, |starts| starts.min(latest)));
        }
    }

    /// The relays that start now, together.
    pub(super) fn poll_start(&mut self, now: Instant) -> Vec<RelayIndex> {
        self.groups.values_mut().flat_map(|group| group.poll_start(now)).collect()
    }

    /// When to call [`poll_start`](Self::poll_start).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.groups.values().filter(|group| group.has_waiting());
        waiting.filter_map(Group::poll_timeout).min()
    }

    /// A measurement has ended. Returns the settled ones: none, as long as others of the group are being measured.
    pub(super) fn end(&mut self, finished: Finished) -> Vec<Finished> {
        let Some(group) = self.group_of(finished.relay) else { return vec![finished] };
        let relay = finished.relay;
        group.finished.push(finished);
        self.leave(relay)
    }

    fn group_of(&mut self, relay: RelayIndex) -> Option<&mut Group> {
        self.groups.get_mut(self.group_of.get(&relay)?)
    }

    /// A relay leaves its group, with or without an [ended](Self::end) measurement. Returns the measurements that are
    /// settled by that.
    pub(super) fn leave(&mut self, relay: RelayIndex) -> Vec<Finished> {
        let Some(number) = self.group_of.remove(&relay) else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&number) else { return Vec::new() };
        if let Some(member) = group.members.get_mut(&relay)
            && matches!(member.readiness, Readiness::Preparing | Readiness::Waiting)
        {
            member.readiness = Readiness::Failed;
        }
        group.expected -= 1;
        if group.expected > 0 {
            return Vec::new();
        }
        self.groups.remove(&number).map_or_else(Vec::new, Group::settle)
    }

    /// No more measurements end: returns those that have ended so far.
    pub(super) fn end_all(&mut self) -> Vec<Finished> {
        self.group_of.clear();
        core::mem::take(&mut self.groups).into_values().flat_map(Group::settle).collect()
    }
}

/// If one relay of a group has to be measured again, so have the others, within their limits: measured one after the
/// other, each could use the whole host.
pub(super) fn repeat_together(settled: &mut [Finished]) {
    if settled.iter().any(|measurement| measurement.follows.is_some()) {
        settled.iter_mut().for_each(|measurement| {
            measurement.follows = measurement.follows.or_else(|| measurement.turn.repeated());
        });
    }
}

impl Group {
    fn has_waiting(&self) -> bool {
        self.members.values().any(|member| member.readiness == Readiness::Waiting)
    }

    fn is_complete(&self) -> bool {
        self.members.values().all(|member| member.readiness != Readiness::Preparing)
    }

    /// When its ready members start, if nothing happens before.
    fn poll_timeout(&self) -> Option<Instant> {
        let is_awaited = !self.has_started && !self.is_complete();
        let starts = self.starts.filter(|_| is_awaited).unwrap_or(Instant::ORIGIN);
        Some(starts.max(self.not_before)).filter(|at| *at > Instant::ORIGIN)
    }

    /// The group starts when all members are ready, or when one of them can wait no longer. Members that are ready later
    /// start at once.
    fn poll_start(&mut self, now: Instant) -> Vec<RelayIndex> {
        let is_due = self.starts.is_some_and(|starts| starts <= now);
        let may_start = self.has_started || self.is_complete() || is_due;
        if !self.has_waiting() || !may_start || now < self.not_before {
            return Vec::new();
        }
        let readiness = if self.has_started { Readiness::Late } else { Readiness::OnTime };
        self.has_started = true;
        let waiting =
            self.members.iter_mut().filter(|member| member.1.readiness == Readiness::Waiting);
        let start = |(relay, member): (&RelayIndex, &mut Member)| {
            member.readiness = readiness;
            *relay
        };
        waiting.map(start).collect()
    }

    /// Gives each relay its share of the host. A relay that only may share the host, and did not start with the others,
    /// keeps its own result. A late relay that certainly shares it gets what the others leave.
    fn settle(self) -> Vec<Finished> {
        let Self { members, mut finished, .. } = self;
        let is_on_time = |relay: &RelayIndex| {
            members.get(relay).is_some_and(|member| member.readiness == Readiness::OnTime)
        };
        let together = finished.iter_mut().filter(|measurement| is_on_time(&measurement.relay));
        share_aligned(&mut together.map(|together| &mut together.record).collect::<Vec<_>>());
        let mut hosts: BTreeMap<Option<RsaId>, Vec<(&mut Record, bool)>> = BTreeMap::new();
        for measurement in &mut finished {
            let host = members.get(&measurement.relay).map(|member| member.host);
            let is_on_time = is_on_time(&measurement.relay);
            hosts.entry(host).or_default().push((&mut measurement.record, is_on_time));
        }
        hosts.values_mut().for_each(|host| share_machine(host));
        // A host's result has the time of its last relay: estimates with one time are of one slot.
        let shared = finished
            .iter_mut()
            .map(|measurement| &mut measurement.record)
            .filter(|record| record.shared.is_some());
        let mut shared: Vec<&mut Record> = shared.collect();
        let ended = shared.iter().map(|record| record.ended_unix_s).max().unwrap_or(0);
        shared.iter_mut().for_each(|record| record.ended_unix_s = ended);
        finished
    }
}

#[cfg(test)]
mod tests;
