//! When each relay is measured: the plan of a measurement period (paper §4.3, §5, §7).
//!
//! A period is divided into slots, each as long as a measurement with its set-up. A [`Plan`] gives relays slots for each
//! team, within the capacities of the teams.
//!
//! - [`Plan::memoryless`] is for a network that is monitored. Slots follow from a secret [`Seed`], and at any time a
//!   relay is as likely to be measured in the next hour as at any other time. So a relay cannot be fast only until it
//!   has been measured, or only at its own minute, and an adversary cannot attack it at that minute.
//! - [`Plan::randomised`] gives each relay one slot in the period. A relay that has been measured knows that it will
//!   not be measured again in the period.
//! - [`Plan::greedy`] measures all relays as early as possible. Anyone can predict it from the consensus.
//!
//! Relays that share a [`Machine`] have a common slot: measured one after the other, each of them could use all of it
//! (§5, limitations).
//!
//! Pure: slots are numbers. The caller supplies the time, the absent relays and the results of measurements.

mod greedy;
mod machine;
mod random;
mod room;
mod seed;
#[cfg(test)]
mod tests;

pub use machine::{Candidate, Machine, machines, machines_within};
pub use seed::Seed;

use crate::campaign::Priority;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use onion::Rate;
use onion::identity::RsaId;
use random::Draws;
use room::{Room, Share};
use sha2::{Digest, Sha256};

/// The load that a team can generate at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamRoom {
    /// The capacity of all its measurers together.
    pub capacity: Rate,
    /// The maximum number of relays that it measures at once, whatever its capacity, since sockets, memory and file
    /// descriptors are limited.
    pub at_once_max: u32,
}

impl TeamRoom {
    /// A team with no limit except its capacity.
    #[must_use]
    pub const fn of(capacity: Rate) -> Self {
        Self { capacity, at_once_max: u32::MAX }
    }
}

/// The slots of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Their number.
    pub count: u32,
    /// Those in which no relay is measured, such as those out of the hours of a measurement policy.
    pub closed: Vec<u32>,
}

impl From<u32> for Slots {
    fn from(count: u32) -> Self {
        Self { count, closed: Vec::new() }
    }
}

/// The measurement of one relay by one team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The slot.
    pub slot: u32,
    /// The team, counted from zero.
    pub team: usize,
    /// The first relay of the machine. Relays of one machine start at the same instant.
    pub machine: RsaId,
    /// The relay.
    pub relay: RsaId,
}

/// The result for relays that were not in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Each team has a slot for them: the earliest possible, the latest over the teams.
    Placed(u32),
    /// They share a machine with relays of the plan, and are measured with them.
    Joined,
    /// No slot in this period: there is no room left, or the measurement of their machine is over. Measured alone they
    /// would count the capacity of the machine twice.
    NextPeriod,
}

/// The plan of one period: the relays that several teams measure in each slot.
///
/// Its memory grows with the numbers of relays and slots, and not with the behaviour of relays.
#[derive(Clone, Debug)]
pub struct Plan {
    excess_factor: f64,
    rooms: Vec<Room>,
    draws: Option<Draws>,
    /// By the first relay of each.
    entries: BTreeMap<RsaId, Entry>,
    /// The machine of each relay.
    entry_of: BTreeMap<RsaId, RsaId>,
    /// The team that must have room for relays that arrive later; all teams if `None`.
    judge: Option<usize>,
    /// The number of slots of each machine is drawn, too.
    is_memoryless: bool,
}

/// Draws for machines with a deadline slot are numbered from here on.
const DUE_DRAWS: u32 = 1 << 31;

/// New relays are measured within this part of a period: soon, but at an unpredictable time.
const NEWCOMERS_WITHIN: u32 = 24;

#[derive(Clone, Debug)]
struct Entry {
    /// The first relay of the machine when it was added: draws depend on it.
    key: RsaId,
    machine: Machine,
    priority: Priority,
    /// By team, in order: the remaining slots.
    held: Vec<Vec<Held>>,
    /// The number of draws so far, so that no two are the same.
    drawn: u32,
    /// By team: by the draw, it is not measured in this period.
    rests: Vec<bool>,
}

/// The capacity that a machine occupies at a team. It is returned unchanged, even if the expectation has changed since.
#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u32,
    share: Share,
}

impl Plan {
    /// A plan without relays. Without a seed nothing is drawn: each machine gets the first slot with room.
    fn empty(seed: Option<&Seed>, slots: &Slots, teams: &[TeamRoom], excess_factor: f64) -> Self {
        Self {
            excess_factor,
            rooms: teams.iter().map(|team| Room::new(*team, slots)).collect(),
            draws: seed.map(Draws::new),
            entries: BTreeMap::new(),
            entry_of: BTreeMap::new(),
            judge: None,
            is_memoryless: false,
        }
    }

    /// Restricts the plan to one of its teams: a later relay is admitted if this team has room. The room of other teams is
    /// only their claim, and a team that claims too little could exclude all later relays.
    #[must_use]
    pub const fn for_team(mut self, team: usize) -> Self {
        self.judge = Some(team);
        self
    }

    fn judges(&self, team: usize) -> bool {
        self.judge.is_none_or(|judge| judge == team)
    }

    /// The randomised plan of a period (§4.3). Each machine with an estimate, the largest first, gets a slot for each
    /// team, drawn uniformly without replacement among those with room.
    ///
    /// The draws treat all slots alike, so each relay's slot is uniform over the period, however full it is. An
    /// adversary that knows everything but the seed gains no information. Each machine draws by its own key: if two
    /// coordinators with a common seed have different data about a few relays, the slots of the others are the same,
    /// unless a slot is full.
    ///
    /// Relays without an estimate come afterwards, by [`admit`](Self::admit).
    #[must_use]
    pub fn randomised(
        seed: &Seed,
        slots: impl Into<Slots>,
        teams: &[TeamRoom],
        excess_factor: f64,
        machines: Vec<Machine>,
    ) -> Self {
        let slots = slots.into();
        let mut plan = Self::empty(Some(seed), &slots, teams, excess_factor);
        for machine in largest_first(machines) {
            let mut entry = Entry::new(machine, Priority::Known, teams.len());
            for team in 0..teams.len() {
                let slot = plan.draw(&mut entry, team, 0..slots.count);
                plan.take(&mut entry, team, slot);
            }
            plan.insert(entry);
        }
        plan
    }

    /// The memoryless plan of a period. Each machine with an estimate, the largest first, gets for each team a
    /// Poisson-distributed number of slots with a mean of 0.92, each drawn uniformly among those with room. So 40 % of
    /// the machines have none, and 23 % have two or more: a measurement gives a relay no information about the time of
    /// the next one.
    ///
    /// Each machine comes with the slot by which it must be measured, if that is in this period. If it has no slot up
    /// to that one, it gets one that is drawn among them. If every machine that was not measured in the previous period
    /// has such a deadline, machines are measured 1.10 times a period on average.
    ///
    /// Later relays are admitted by [`admit_due`](Self::admit_due).
    #[must_use]
    pub fn memoryless(
        seed: &Seed,
        slots: impl Into<Slots>,
        teams: &[TeamRoom],
        excess_factor: f64,
        machines: Vec<(Machine, Option<u32>)>,
    ) -> Self {
        let mut plan = Self::empty(Some(seed), &slots.into(), teams, excess_factor);
        plan.is_memoryless = true;
        let due: BTreeMap<RsaId, Option<u32>> =
            machines.iter().map(|(machine, due_by)| (machine.key(), *due_by)).collect();
        for machine in largest_first(machines.into_iter().map(|machine| machine.0).collect()) {
            let due_by = due.get(&machine.key()).copied().flatten();
            let mut entry = Entry::new(machine, Priority::Known, teams.len());
            (0..teams.len()).for_each(|team| plan.draw_all(&mut entry, team, 0, due_by));
            plan.insert(entry);
        }
        plan
    }

    /// All drawn slots of a machine from `from` on.
    fn draw_all(&mut self, entry: &mut Entry, team: usize, from: u32, due_by: Option<u32>) {
        let slots = self.rooms.get(team).map_or(0, Room::slots);
        let count = self.draws.as_ref().map_or(1, |draws| draws.count(entry.key, team));
        for _ in 0..count {
            // Past slots are drawn as well, so the process does not depend on the time of the call.
            let slot = self.draw(entry, team, 0..slots).filter(|slot| *slot >= from);
            self.take(entry, team, slot);
        }
        let is_late = |by: &u32| entry.slot(team).is_none_or(|slot| slot > *by);
        let Some(due_by) = due_by.filter(is_late) else {
            if let Some(rests) = entry.rests.get_mut(team) {
                *rests = entry.held.get(team).is_none_or(Vec::is_empty);
            }
            return;
        };
        let until = due_by.max(from).saturating_add(1).min(slots);
        // Only this coordinator knows when the machine was last measured. For all others with the same seed, its other
        // draws stay the same.
        let drawn = core::mem::replace(&mut entry.drawn, DUE_DRAWS);
        let slot = self.draw(entry, team, from..until);
        let slot = slot.or_else(|| self.draw(entry, team, from..slots));
        entry.drawn = drawn;
        self.take(entry, team, slot);
    }

    /// Adds a machine after the start of the plan. Machines keep the slots that they have, and relays that are already
    /// in the plan are unchanged.
    ///
    /// New relays get the first slots with room from `from` on, in order of arrival. Old relays that arrive late draw
    /// among those slots: otherwise they could choose their slot by staying away until then.
    pub fn admit(&mut self, machine: &Machine, priority: Priority, from: u32) -> Admission {
        self.admit_due(machine, priority, from, Some(u32::MAX))
    }

    /// Admits a late machine, with the slot by which it must be measured, if that is in this period. In a
    /// [`memoryless`](Self::memoryless) plan new relays draw among the slots of an hour of a day: soon, but at an
    /// unpredictable minute. Old relays get the rest of a whole period's draw, which may be empty; that counts as
    /// placed, too.
    pub fn admit_due(
        &mut self,
        machine: &Machine,
        priority: Priority,
        from: u32,
        due_by: Option<u32>,
    ) -> Admission {
        let known = machine.relays().find_map(|relay| self.entry_of.get(&relay).copied());
        let newcomers = machine.without(|relay| self.entry_of.contains_key(&relay));
        let Some(newcomers) = newcomers else { return Admission::Joined };
        if let Some(key) = known {
            return self.join(key, &newcomers, from);
        }
        let mut entry = Entry::new(newcomers, priority, self.rooms.len());
        let mut last = from;
        for team in 0..self.rooms.len() {
            if self.is_memoryless && priority == Priority::Known {
                self.draw_all(&mut entry, team, from, due_by);
            } else {
                let slot = self.next_slot(&mut entry, team, from);
                self.take(&mut entry, team, slot);
                if let Some(slot) = slot.filter(|_| self.is_memoryless) {
                    self.draw_all(&mut entry, team, slot + 1, None);
                }
            }
            if !self.judges(team) || entry.is_unplanned(team) {
                continue;
            }
            let Some(slot) = entry.slot(team) else {
                (0..team).for_each(|team| drop(self.release(&mut entry, team)));
                return Admission::NextPeriod;
            };
            last = last.max(slot);
        }
        self.insert(entry);
        Admission::Placed(last)
    }

    fn join(&mut self, key: RsaId, newcomers: &Machine, from: u32) -> Admission {
        let Some(mut entry) = self.entries.remove(&key) else { return Admission::NextPeriod };
        let slots: Vec<Vec<u32>> =
            (0..self.rooms.len()).map(|team| self.release(&mut entry, team)).collect();
        let mut larger = entry.clone();
        larger.machine.add(newcomers);
        let fits = |(team, slots): (usize, &Vec<u32>)| {
            slots.iter().any(|slot| *slot >= from && self.fits(&larger, team, *slot))
        };
        let is_joined = slots.iter().enumerate().filter(|(team, _)| self.judges(*team)).all(fits);
        let mut entry = if is_joined { larger } else { entry };
        for (team, slots) in slots.into_iter().enumerate() {
            for slot in slots {
                let slot = Some(slot).filter(|slot| !is_joined || self.fits(&entry, team, *slot));
                self.take(&mut entry, team, slot);
            }
        }
        self.insert(entry);
        if is_joined { Admission::Joined } else { Admission::NextPeriod }
    }

    /// Gives a relay, and the relays of its machine, another slot of this team: the round was inconclusive, or the
    /// relay or the coordinator was absent. `guess` is the current expectation.
    ///
    /// Old relays draw among the slots from `from` on that have room, so that they cannot predict their second slot
    /// either. New relays get the first. If the machine has a slot from `from` on with room for the new guess, it keeps
    /// that slot. `None` if there is no room: the relay is measured in the next period.
    pub fn reschedule(&mut self, relay: RsaId, team: usize, from: u32, guess: Rate) -> Option<u32> {
        let key = *self.entry_of.get(&relay)?;
        let mut entry = self.entries.remove(&key)?;
        entry.pass(team, from);
        let ahead = self.release(&mut entry, team);
        entry.machine.expect(relay, guess);
        for slot in ahead {
            let slot = Some(slot).filter(|slot| self.fits(&entry, team, *slot));
            self.take(&mut entry, team, slot);
        }
        if entry.slot(team).is_none() {
            let slot = self.next_slot(&mut entry, team, from);
            self.take(&mut entry, team, slot);
        }
        let slot = entry.slot(team);
        self.insert(entry);
        slot
    }

    /// The position of a machine among others that arrive at the same time: random, so that relays cannot choose theirs
    /// by their identities. Without a seed all have the same.
    #[must_use]
    pub fn rank(&self, machine: &Machine) -> u64 {
        self.draws.as_ref().map_or(0, |draws| draws.rank(machine.key()))
    }

    /// Marks the slots before this one as over. Capacity taken in them stays spent.
    pub fn advance_to(&mut self, from: u32) {
        for entry in self.entries.values_mut() {
            (0..entry.held.len()).for_each(|team| entry.pass(team, from));
        }
    }

    /// Whether this team does not measure a relay in this period, by the draw of a [`memoryless`](Self::memoryless)
    /// plan.
    #[must_use]
    pub fn is_unplanned(&self, relay: RsaId, team: usize) -> bool {
        let entry = self.entry_of.get(&relay).and_then(|key| self.entries.get(key));
        entry.is_some_and(|entry| entry.is_unplanned(team))
    }

    /// Whether the number of slots of each machine is drawn, too.
    #[must_use]
    pub const fn is_memoryless(&self) -> bool {
        self.is_memoryless
    }

    /// Extends the period to at least this number of slots, as room after the last slot that a greedy plan needs.
    pub fn extend_to(&mut self, slots: u32) {
        for room in &mut self.rooms {
            while room.slots() < slots {
                room.grow();
            }
        }
    }

    /// All measurements, by slot, team, machine and relay.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (machine, entry) in &self.entries {
            for (team, held) in entry.held.iter().enumerate() {
                for Held { slot, .. } in held.iter().copied() {
                    let place = |relay| Place { slot, team, machine: *machine, relay };
                    places.extend(entry.machine.relays().map(place));
                }
            }
        }
        places.sort_unstable();
        places
    }

    /// The next slot in which a team measures a relay, among those that are not [over](Self::advance_to).
    #[must_use]
    pub fn slot(&self, relay: RsaId, team: usize) -> Option<u32> {
        self.entries.get(self.entry_of.get(&relay)?)?.slot(team)
    }

    /// The machine of a relay that is in the plan, as [`Place::machine`] names it.
    #[must_use]
    pub fn machine(&self, relay: RsaId) -> Option<RsaId> {
        self.entry_of.get(&relay).copied()
    }

    /// The expected capacity of a relay of the plan.
    #[must_use]
    pub fn guess(&self, relay: RsaId) -> Option<Rate> {
        self.entries.get(self.entry_of.get(&relay)?)?.machine.guess_of(relay)
    }

    /// Relays for which a team has no slot: the period is too short.
    #[must_use]
    pub fn without_slot(&self, team: usize) -> Vec<RsaId> {
        let lacks = |entry: &&Entry| entry.slot(team).is_none() && !entry.is_unplanned(team);
        self.entries.values().filter(lacks).flat_map(|entry| entry.machine.relays()).collect()
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.rooms.iter().map(Room::slots).max().unwrap_or(0)
    }

    /// The capacity that a team has allocated in each slot.
    #[must_use]
    pub fn used(&self, team: usize) -> Vec<Rate> {
        self.rooms.get(team).map(Room::used).unwrap_or_default()
    }

    /// The number of slots up to the last one with a measurement.
    #[must_use]
    pub fn used_slots(&self) -> u32 {
        let held = self.entries.values().flat_map(|entry| entry.held.iter().flatten());
        held.map(|held| held.slot + 1).max().unwrap_or(0)
    }

    /// SHA-256 of all [`places`](Self::places): equal for equal plans.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for Place { slot, team, machine, relay } in self.places() {
            hash.update(slot.to_be_bytes());
            hash.update((team as u64).to_be_bytes());
            hash.update(machine.0);
            hash.update(relay.0);
        }
        hash.finalize().into()
    }

    fn insert(&mut self, entry: Entry) {
        for relay in entry.machine.relays() {
            self.entry_of.insert(relay, entry.key);
        }
        self.entries.insert(entry.key, entry);
    }

    fn fits(&self, entry: &Entry, team: usize, slot: u32) -> bool {
        let Some(room) = self.rooms.get(team) else { return false };
        let share = room.share(&entry.machine, self.excess_factor);
        !entry.is_in(slot) && room.fits(slot, share)
    }

    fn next_slot(&self, entry: &mut Entry, team: usize, from: u32) -> Option<u32> {
        let slots = self.rooms.get(team)?.slots();
        match entry.priority {
            Priority::Known => self.draw(entry, team, from..slots),
            Priority::New => {
                let soon = from.saturating_add(slots / NEWCOMERS_WITHIN).min(slots);
                let drawn =
                    if self.is_memoryless { self.draw(entry, team, from..soon) } else { None };
                drawn.or_else(|| self.first_slot(entry, team, from))
            }
        }
    }

    fn first_slot(&self, entry: &Entry, team: usize, from: u32) -> Option<u32> {
        let slots = self.rooms.get(team)?.slots();
        (from..slots).find(|slot| self.fits(entry, team, *slot))
    }

    /// Draws one of these slots with room; without a seed, takes the first.
    fn draw(&self, entry: &mut Entry, team: usize, among: Range<u32>) -> Option<u32> {
        let Some(draws) = &self.draws else { return self.first_slot(entry, team, among.start) };
        let room = self.rooms.get(team)?;
        let mut rng = draws.of(entry.key, team, entry.drawn);
        entry.drawn += 1;
        let share = room.share(&entry.machine, self.excess_factor);
        let is_free = |slot: u32| !entry.is_in(slot) && room.fits(slot, share);
        random::one_of(among, is_free, &mut rng)
    }

    fn take(&mut self, entry: &mut Entry, team: usize, slot: Option<u32>) {
        let Some(room) = self.rooms.get_mut(team) else { return };
        let share = room.share(&entry.machine, self.excess_factor);
        if let (Some(held), Some(slot)) = (entry.held.get_mut(team), slot) {
            room.take(slot, share);
            held.push(Held { slot, share });
            held.sort_unstable_by_key(|held| held.slot);
        }
    }

    /// Returns all slots of a machine, and frees them.
    fn release(&mut self, entry: &mut Entry, team: usize) -> Vec<u32> {
        let Some(room) = self.rooms.get_mut(team) else { return Vec::new() };
        let held = entry.held.get_mut(team).map(core::mem::take).unwrap_or_default();
        held.iter().for_each(|Held { slot, share }| room.release(*slot, *share));
        held.iter().map(|held| held.slot).collect()
    }
}

impl Entry {
    fn new(machine: Machine, priority: Priority, teams: usize) -> Self {
        let (held, rests) = (vec![Vec::new(); teams], vec![false; teams]);
        Self { key: machine.key(), machine, priority, held, drawn: 0, rests }
    }

    fn slot(&self, team: usize) -> Option<u32> {
        self.held.get(team)?.first().map(|held| held.slot)
    }

    fn is_in(&self, slot: u32) -> bool {
        self.held.iter().flatten().any(|held| held.slot == slot)
    }

    fn is_unplanned(&self, team: usize) -> bool {
        self.rests.get(team).copied().unwrap_or(false)
    }

    fn pass(&mut self, team: usize, from: u32) {
        if let Some(held) = self.held.get_mut(team) {
            held.retain(|held| held.slot >= from);
        }
    }
}

/// Of equal machines, the one with the smaller identity comes first, so the order is the same for all coordinators with
/// the same relays.
fn largest_first(mut machines: Vec<Machine>) -> Vec<Machine> {
    machines.sort_by_key(|machine| (core::cmp::Reverse(machine.guess()), machine.key()));
    machines
}
