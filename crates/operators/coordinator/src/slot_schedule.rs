//! A team's period, slot by slot: the relays to measure now (§4.3).

use crate::campaign::Priority;
use crate::plan::{Admission, Machine, Plan, Seed, Slots, TeamRoom};
use crate::policy::Prefix;
use crate::turn::Attempt;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use onion::identity::RsaId;

/// A relay of the newest consensus.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The relay.
    pub relay: RsaId,
    /// Relays with the same group are measured together, since they share a machine or may do so (such as the
    /// [`key`](Machine::key) of [`machines_within`](crate::plan::machines_within)). A single relay has its own
    /// identity.
    pub together: RsaId,
    /// Whether there is an estimate of it.
    pub priority: Priority,
    /// When a consensus listed it first, in Unix seconds: new relays wait in this order.
    pub first_seen_unix_s: u64,
    /// The network of its address: those with new relays take turns.
    pub network: Prefix,
    /// Its first turn.
    pub turn: Attempt,
    /// It was already measured in this period, before the coordinator restarted.
    pub is_done: bool,
    /// A measurement of it in this period was interrupted or is to be followed, so it gets a slot even if the plan has
    /// none for it.
    pub is_pending: bool,
    /// The slot by which it must be measured, if that is in this period: later, its estimate would expire. Only a
    /// [memoryless](SlotSchedule::memoryless) plan uses it.
    pub due_by: Option<u32>,
}

/// A measurement to be started in this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The relay.
    pub relay: RsaId,
    /// Its position in a campaign's queue.
    pub priority: Priority,
    /// The turn.
    pub turn: Attempt,
    /// Its machine. All relays of one machine that are due in this slot start at the same instant.
    pub machine: RsaId,
}

/// The progress of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of relays that wait for their slot.
    pub waiting: usize,
    /// The number of relays that are being measured.
    pub running: usize,
    /// The number of relays that are done for this period: measured, or not to be measured in it, since an estimate is
    /// valid.
    pub done: usize,
    /// The number of waiting and new relays without a slot left in this period.
    pub without_slot: usize,
}

/// One team's plan for one period, and its progress.
///
/// A state machine without a clock: the caller passes the current slot. Relays that were absent in their slot get
/// another one. So do relays whose slot passed without a call, and turns that follow another. A relay is returned only
/// while it is not being measured, and again only for a turn that follows, or with a relay of its machine.
#[derive(Clone, Debug)]
pub struct SlotSchedule {
    plan: Plan,
    /// This team's index in the plan.
    team: usize,
    relays: BTreeMap<RsaId, Member>,
    present: BTreeSet<RsaId>,
    /// New relays that were postponed.
    put_off: BTreeSet<RsaId>,
    polled: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    priority: Priority,
    turn: Attempt,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
}

impl SlotSchedule {
    /// Starts a period, with the relays that are present in slot `now`, for one of the teams that plan by one seed. Old
    /// relays that are not done and whose slot is over get another. No two teams measure a relay in the same slot,
    /// provided that they have the same expectations. `teams` lists all of them in the agreed order, and `own` is the
    /// index of this one.
    #[must_use]
    pub fn among(
        seed: &Seed,
        slots: impl Into<Slots>,
        teams: &[TeamRoom],
        own: usize,
        excess_factor: f64,
        arrivals: &[Arrival],
        now: u32,
    ) -> Self {
        Self::begin(arrivals, own, now, |machines| {
            let machines = machines.into_iter().map(|machine| machine.0).collect();
            Plan::randomised(seed, slots, teams, excess_factor, machines)
        })
    }

    /// Starts a period with a [memoryless](Plan::memoryless) plan, in which the number of measurements of a relay is
    /// random as well. A relay that has just been measured is as likely to be measured again as any other.
    #[must_use]
    pub fn memoryless(
        seed: &Seed,
        slots: impl Into<Slots>,
        teams: &[TeamRoom],
        own: usize,
        excess_factor: f64,
        arrivals: &[Arrival],
        now: u32,
    ) -> Self {
        Self::begin(arrivals, own, now, |machines| {
            Plan::memoryless(seed, slots, teams, excess_factor, machines)
        })
    }

    fn begin(
        arrivals: &[Arrival],
        own: usize,
        now: u32,
        plan: impl FnOnce(Vec<(Machine, Option<u32>)>) -> Plan,
    ) -> Self {
        let by_id: BTreeMap<RsaId, &Arrival> =
            arrivals.iter().map(|arrival| (arrival.relay, arrival)).collect();
        // New relays come afterwards. Those that share a machine with old ones are measured with them.
        let is_old =
            |relay| by_id.get(&relay).is_some_and(|arrival| arrival.priority == Priority::Known);
        let has_old = |machine: &Machine| machine.relays().any(is_old);
        let planned: Vec<Machine> = together(arrivals).into_iter().filter(has_old).collect();
        let with_due = |machine: &Machine| (machine.clone(), due_by(machine.relays(), &by_id));
        let mut schedule = Self {
            relays: BTreeMap::new(),
            plan: plan(planned.iter().map(with_due).collect()).for_team(own),
            team: own,
            present: BTreeSet::new(),
            put_off: BTreeSet::new(),
            polled: None,
        };
        let members: BTreeSet<RsaId> = planned.iter().flat_map(Machine::relays).collect();
        let before: Vec<RsaId> = members
            .iter()
            .copied()
            .filter(|relay| schedule.plan.slot(*relay, own).is_some_and(|slot| slot < now))
            .collect();
        let known = arrivals.iter().filter(|arrival| members.contains(&arrival.relay));
        let known: Vec<(RsaId, Member)> =
            known.map(|arrival| (arrival.relay, schedule.member(arrival))).collect();
        schedule.relays.extend(known);
        schedule.plan.advance_to(now);
        // Some relays that this plan measured before the coordinator restarted have another slot ahead.
        before.into_iter().for_each(|relay| schedule.wait_for_another(relay));
        schedule.handle_consensus(arrivals, now);
        schedule
    }

    fn member(&self, arrival: &Arrival) -> Member {
        let is_unplanned = self.plan.is_unplanned(arrival.relay, self.team);
        let is_done = arrival.is_done || is_unplanned && !arrival.is_pending;
        let state = if is_done { State::Done } else { State::Waiting };
        Member { priority: arrival.priority, turn: arrival.turn, state }
    }

    /// A relay that is done keeps waiting if a memoryless plan has another slot for it and it may be measured once
    /// more.
    fn wait_for_another(&mut self, relay: RsaId) {
        let is_planned = self.plan.is_memoryless() && self.plan.slot(relay, self.team).is_some();
        let member =
            self.relays.get_mut(&relay).filter(|relay| is_planned && relay.state == State::Done);
        if let Some(member) = member
            && let Some(turn) = member.turn.afresh()
        {
            (member.turn, member.state) = (turn, State::Waiting);
        }
    }

    /// Applies a newer consensus in slot `now`. New relays are admitted, and returning relays get another slot if
    /// theirs is over.
    pub fn handle_consensus(&mut self, arrivals: &[Arrival], now: u32) {
        self.present = arrivals.iter().map(|arrival| arrival.relay).collect();
        let by_id: BTreeMap<RsaId, &Arrival> =
            arrivals.iter().map(|arrival| (arrival.relay, arrival)).collect();
        self.put_off.clear();
        let newcomers = |machine: Machine| {
            let is_new = |relay: &RsaId| !self.relays.contains_key(relay);
            let relays = machine.relays().filter(is_new).filter_map(|relay| by_id.get(&relay));
            let relays: Vec<&Arrival> = relays.copied().collect();
            (!relays.is_empty()).then_some((machine, relays))
        };
        let mut newcomers: Vec<(Machine, Vec<&Arrival>)> =
            together(arrivals).into_iter().filter_map(newcomers).collect();
        // In order of arrival. Those that arrived with the same consensus are in a secret order: a relay can choose its
        // identity.
        newcomers.sort_by_cached_key(|(machine, relays)| {
            let first_seen_unix_s = relays.iter().map(|arrival| arrival.first_seen_unix_s).min();
            (first_seen_unix_s, self.plan.rank(machine))
        });
        // Old ones first, then one of each network, then a second one. So a flood from few networks delays the newcomers of
        // others by one of each.
        let mut earlier: BTreeMap<Prefix, u32> = BTreeMap::new();
        newcomers.sort_by_cached_key(|(_, relays)| match relays.first() {
            Some(first) if priority(relays) == Priority::New => {
                let count = earlier.entry(first.network).or_default();
                *count += 1;
                *count
            }
            _ => 0,
        });
        for (machine, relays) in newcomers {
            let due_by = due_by(relays.iter().map(|arrival| arrival.relay), &by_id);
            match self.plan.admit_due(&machine, priority(&relays), now, due_by) {
                Admission::Placed(_) | Admission::Joined => {
                    let members = relays.into_iter().map(|new| (new.relay, self.member(new)));
                    let members: Vec<_> = members.collect();
                    self.relays.extend(members);
                }
                Admission::NextPeriod => {
                    self.put_off.extend(relays.into_iter().map(|arrival| arrival.relay));
                }
            }
        }
        self.catch_up(now);
    }

    /// The relays to start in this slot. Call it once for each slot. If slots were skipped since the last call, the
    /// relays of those slots get other slots.
    pub fn poll_due(&mut self, slot: u32) -> Vec<Due> {
        if self.polled.is_some_and(|polled| polled >= slot) {
            return Vec::new();
        }
        self.polled = Some(slot);
        self.plan.advance_to(slot);
        let is_there = |(relay, member): &(&RsaId, &mut Member)| {
            self.plan.slot(**relay, self.team) == Some(slot)
                && member.state != State::Running
                && self.present.contains(relay)
        };
        let runs = self.relays.iter().filter(|(_, member)| member.state == State::Running);
        let running: BTreeSet<Option<RsaId>> =
            runs.map(|(relay, _)| self.plan.machine(*relay)).collect();
        let mut candidates: Vec<_> = self.relays.iter_mut().filter(is_there).collect();
        // While one relay of a machine is still being measured, the others would be measured separately. They get
        // another slot.
        candidates.retain(|(relay, _)| !running.contains(&self.plan.machine(**relay)));
        // A machine is due if one of its relays is waiting. Relays that are already done are measured with it if
        // possible.
        let waits = candidates.iter().filter(|(_, member)| member.state == State::Waiting);
        let machines: BTreeSet<Option<RsaId>> =
            waits.map(|(relay, _)| self.plan.machine(**relay)).collect();
        candidates.retain(|(relay, _)| machines.contains(&self.plan.machine(**relay)));
        let mut due = Vec::new();
        for (relay, member) in candidates {
            let turn = match member.state {
                State::Done => member.turn.repeated(),
                State::Waiting | State::Running => Some(member.turn),
            };
            let Some(turn) = turn else { continue };
            (member.turn, member.state) = (turn, State::Running);
            let machine = self.plan.machine(*relay).unwrap_or(*relay);
            due.push(Due { relay: *relay, priority: member.priority, turn, machine });
        }
        self.catch_up(slot + 1);
        due
    }

    /// A measurement has ended in slot `now`, and either nothing (`None`) or this turn follows.
    pub fn handle_end(&mut self, relay: RsaId, follows: Option<Attempt>, now: u32) {
        let Some(member) = self.relays.get_mut(&relay) else { return };
        member.state = State::Done;
        if let Some(turn) = follows {
            (member.turn, member.state) = (turn, State::Waiting);
            self.plan.reschedule(relay, self.team, now + 1, turn.guess);
        } else {
            self.wait_for_another(relay);
        }
    }

    /// The progress of the period.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |state| self.relays.values().filter(|relay| relay.state == state).count();
        let lacks = |(relay, member): &(&RsaId, &Member)| {
            member.state == State::Waiting && self.plan.slot(**relay, self.team).is_none()
        };
        Counts {
            waiting: count(State::Waiting),
            running: count(State::Running),
            done: count(State::Done),
            without_slot: self.relays.iter().filter(lacks).count() + self.put_off.len(),
        }
    }

    /// Gives each relay that waits, is present and has no remaining slot a new one.
    fn catch_up(&mut self, from: u32) {
        self.plan.advance_to(from);
        for (relay, member) in &self.relays {
            let is_late = self.plan.slot(*relay, self.team).is_none_or(|slot| slot < from);
            if is_late && member.state == State::Waiting && self.present.contains(relay) {
                self.plan.reschedule(*relay, self.team, from, member.turn.guess);
            }
        }
    }
}

/// The slot by which a machine must be measured: the earliest of its relays. New relays are to be measured in this
/// period.
fn due_by(relays: impl Iterator<Item = RsaId>, by_id: &BTreeMap<RsaId, &Arrival>) -> Option<u32> {
    let due_by = |arrival: &&Arrival| match arrival.priority {
        Priority::Known => arrival.due_by,
        Priority::New => Some(arrival.due_by.unwrap_or(u32::MAX)),
    };
    relays.filter_map(|relay| by_id.get(&relay).and_then(due_by)).min()
}

/// A machine is known if one of its relays is.
fn priority(relays: &[&Arrival]) -> Priority {
    let is_known = relays.iter().any(|arrival| arrival.priority == Priority::Known);
    if is_known { Priority::Known } else { Priority::New }
}

fn together(arrivals: &[Arrival]) -> Vec<Machine> {
    let mut machines: BTreeMap<RsaId, Machine> = BTreeMap::new();
    for Arrival { relay, together, turn, .. } in arrivals {
        let machine = match machines.remove(together) {
            Some(machine) => machine.with(*relay, turn.guess),
            None => Machine::single(*relay, turn.guess),
        };
        machines.insert(*together, machine);
    }
    machines.into_values().collect()
}

#[cfg(test)]
mod tests;
