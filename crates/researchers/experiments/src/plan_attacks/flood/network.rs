//! A network whose relays one team measures, day after day, and that is flooded with new relays on one of them.

use super::population::{FLOOD_DAY, HOUR, Population, SLOT_S};
use crate::plan_attacks::authorities::PlanKind;
use coordinator::period::Bounds;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::{Arrival, Attempt, HistoryPolicy, Params, Percentile, Priority, SlotSchedule};
use onion::Rate;
use onion::identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of a day. Each stands for the slots of a team in five minutes, with the capacity of all of them.
const SLOTS: u32 = 24 * HOUR;
const DAY_S: u64 = SLOT_S * SLOTS as u64;

/// When the first day begins, in Unix seconds.
const BEGIN_UNIX_S: u64 = 1_800_057_600;

/// The share of a team's time that the old relays need if each is measured once. In the paper it is five hours of a day.
const BUSY: f64 = 0.25;

/// After this number of days since the flood, newcomers are no longer waited for.
const DAYS_MAX: u64 = 14;

/// The relays, and when each was measured. Slots are counted from the first day.
pub(super) struct Network {
    plan: PlanKind,
    seed: Seed,
    factor: f64,
    team: TeamRoom,
    /// The expected capacity of new relays.
    new_guess: Rate,
    pub(super) relays: Population,
    first: BTreeMap<RsaId, u64>,
    last: BTreeMap<RsaId, u64>,
    /// The measurements of old relays on the day of the flood. One that returns on that day gets a slot with room, as new relays do.
    pub(super) of_flood_day: BTreeSet<(u64, RsaId)>,
    /// At the ends of days since then, the old relays without a measurement in their time.
    pub(super) overdue: usize,
}

impl Network {
    pub(super) fn new(plan: PlanKind, relays: Population, seed: [u8; 32]) -> Self {
        let capacities = &relays.capacities;
        let mut sorted: Vec<Rate> =
            relays.old.iter().filter_map(|relay| capacities.get(relay)).copied().collect();
        sorted.sort_unstable();
        let factor = Params::default().excess_factor();
        let needed: Rate = sorted.iter().map(|rate| rate.scaled(factor)).sum();
        let largest = sorted.last().copied().unwrap_or_default().scaled(factor);
        let team = TeamRoom::of(needed.scaled(1.0 / BUSY / f64::from(SLOTS)).max(largest));
        Self {
            plan,
            seed: Seed::from_bytes(seed),
            factor,
            team,
            new_guess: Percentile::P75.of(&sorted).unwrap_or_default(),
            relays,
            first: BTreeMap::new(),
            last: BTreeMap::new(),
            of_flood_day: BTreeSet::new(),
            overdue: 0,
        }
    }

    /// Measures until all newcomers are measured, or for [`DAYS_MAX`] days.
    pub(super) fn run(&mut self) {
        for day in 0..FLOOD_DAY + DAYS_MAX {
            self.run_day(day);
            let mut newcomers = self.relays.newcomers.iter();
            if day > FLOOD_DAY && newcomers.all(|relay| self.first.contains_key(relay)) {
                break;
            }
        }
    }

    fn run_day(&mut self, day: u64) {
        let begin_unix_s = BEGIN_UNIX_S + day * DAY_S;
        let bounds = Bounds { begin_unix_s, length_s: DAY_S, slot_s: SLOT_S };
        let at = |slot: u32| day * u64::from(SLOTS) + u64::from(slot);
        let plan = match self.plan {
            PlanKind::Paper => SlotSchedule::among,
            PlanKind::Memoryless | PlanKind::Unconfirmed => SlotSchedule::memoryless,
        };
        let (seed, teams) = (self.seed.of_period(begin_unix_s, DAY_S), [self.team]);
        let mut schedule =
            plan(&seed, SLOTS, &teams, 0, self.factor, &self.arrivals(bounds, at(0)), 0);
        for slot in 0..SLOTS {
            if slot > 0 && slot.is_multiple_of(HOUR) {
                schedule.handle_consensus(&self.arrivals(bounds, at(slot)), slot);
            }
            for due in schedule.poll_due(slot) {
                schedule.handle_end(due.relay, None, slot);
                self.last.insert(due.relay, at(slot));
                self.first.entry(due.relay).or_insert(at(slot));
                let stays = self.relays.runs_in(due.relay, at(0)..at(SLOTS));
                if day == FLOOD_DAY && stays && self.relays.old.contains(&due.relay) {
                    self.of_flood_day.insert((at(slot), due.relay));
                }
            }
        }
        // The paper's plan measures each relay in each period. In ours, an estimate is kept for 54 hours.
        let kept = u64::from(if self.plan == PlanKind::Paper { SLOTS } else { 54 * HOUR });
        let is_late = |relay: &&RsaId| {
            let runs = self.relays.runs_in(**relay, at(SLOTS).saturating_sub(kept)..at(SLOTS));
            runs && self.last.get(*relay).is_none_or(|last| last + kept < at(SLOTS))
        };
        if day >= FLOOD_DAY {
            self.overdue += self.relays.old.iter().filter(is_late).count();
        }
    }

    /// The relays that are there at this time. Old ones have been measured before the first day.
    fn arrivals(&self, bounds: Bounds, now: u64) -> Vec<Arrival> {
        let kept_for = HistoryPolicy::default().kept_for;
        let relays = &self.relays;
        let is_here = |relay: &&RsaId| relays.runs_in(**relay, now..now + 1);
        let arrival = |relay: &RsaId| {
            let last_unix_s = self.last.get(relay).map(|slot| BEGIN_UNIX_S + slot * SLOT_S);
            let is_known = last_unix_s.is_some() || relays.old.contains(relay);
            let capacity = relays.capacities.get(relay).copied().unwrap_or_default();
            Arrival {
                relay: *relay,
                together: *relay,
                priority: if is_known { Priority::Known } else { Priority::New },
                first_seen_unix_s: BEGIN_UNIX_S + relays.comes(*relay) * SLOT_S,
                network: relays.network(*relay),
                turn: Attempt::first(if is_known { capacity } else { self.new_guess }, 12),
                is_done: last_unix_s.is_some_and(|at| at >= bounds.begin_unix_s),
                is_pending: false,
                due_by: last_unix_s.map_or(Some(u32::MAX), |at| bounds.due_by(at, kept_for)),
            }
        };
        relays.capacities.keys().filter(is_here).map(arrival).collect()
    }

    /// The slots from a relay's first consensus to the end of its first measurement; `None` if it was not measured.
    pub(super) fn wait_slots(&self, relay: RsaId) -> Option<u64> {
        Some(self.first.get(&relay)? - self.relays.comes(relay) + 1)
    }
}
