//! A network whose relays one team measures, day after day, and that is flooded with new relays on one of them.

use super::Flood;
use crate::plan_attacks::Settings;
use crate::plan_attacks::authorities::PlanKind;
use coordinator::period::Bounds;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::policy::{Prefix, network_of};
use coordinator::{Arrival, Attempt, HistoryPolicy, Params, Percentile, Priority, SlotSchedule};
use onion::Rate;
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet};

/// Slots of a day. Each stands for the slots of a team in five minutes, with the capacity of all of them.
const SLOTS: u32 = 288;
const SLOT_S: u64 = 300;
const DAY_S: u64 = SLOT_S * SLOTS as u64;

/// The slots between two consensuses.
pub(super) const HOUR: u32 = SLOTS / 24;

/// When the first day begins, in Unix seconds.
const BEGIN_UNIX_S: u64 = 1_800_057_600;

/// Relays of the flood for each old one.
const FLOOD: usize = 10;

/// The networks with addresses of the flood.
const FLOOD_NETWORKS: u8 = 20;

/// The share of a team's time that the old relays need if each is measured once. In the paper it is five hours of a day.
const BUSY: f64 = 0.25;

/// The day of the flood, and the slot of that day in which it comes.
const FLOOD_DAY: u64 = 3;
const FLOOD_SLOT: u32 = 72;

/// Honest newcomers, one each hour after the flood has come.
const NEWCOMERS: u64 = 24;

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
    capacities: BTreeMap<RsaId, Rate>,
    pub(super) old: BTreeSet<RsaId>,
    /// When each relay of the flood, and each newcomer, comes.
    comes: BTreeMap<RsaId, u64>,
    pub(super) flood: BTreeSet<RsaId>,
    first: BTreeMap<RsaId, u64>,
    last: BTreeMap<RsaId, u64>,
    /// The measurements of old relays on the day of the flood.
    pub(super) of_flood_day: BTreeSet<(u64, RsaId)>,
    /// At the ends of days since then, the old relays without a measurement in their time.
    pub(super) overdue: usize,
}

impl Network {
    pub(super) fn new(plan: PlanKind, flood: Flood, settings: &Settings) -> Self {
        let rng = &mut StdRng::seed_from_u64(settings.seed);
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let count = settings.old_relays;
        let old: BTreeSet<RsaId> = (0..count).map(|_| id(1, rng)).collect();
        let newcomers: Vec<RsaId> = (0..NEWCOMERS).map(|_| id(1, rng)).collect();
        // Similar ones, so that the largest relay does not determine the team, as it would in so small a network.
        let mut capacity = |_: &RsaId| Rate::from_mbit_per_s(rng.random_range(5.0..15.0));
        let mut capacities: BTreeMap<RsaId, Rate> =
            old.iter().map(|relay| (*relay, capacity(relay))).collect();
        let mut sorted: Vec<Rate> = capacities.values().copied().collect();
        sorted.sort_unstable();
        let factor = Params::default().excess_factor();
        let needed: Rate = sorted.iter().map(|rate| rate.scaled(factor)).sum();
        let largest = sorted.last().copied().unwrap_or_default().scaled(factor);
        let team = TeamRoom::of(needed.scaled(1.0 / BUSY / f64::from(SLOTS)).max(largest));
        capacities.extend(newcomers.iter().map(|relay| (*relay, capacity(relay))));
        let flood: BTreeSet<RsaId> = match flood {
            Flood::None => BTreeSet::new(),
            Flood::RandomIdentities => (0..FLOOD * count).map(|_| id(1, rng)).collect(),
            Flood::SmallIdentities => (0..FLOOD * count).map(|_| id(0, rng)).collect(),
        };
        let comes_at = FLOOD_DAY * u64::from(SLOTS) + u64::from(FLOOD_SLOT);
        capacities.extend(flood.iter().map(|relay| (*relay, Rate::from_mbit_per_s(1.0))));
        let mut comes: BTreeMap<RsaId, u64> =
            flood.iter().map(|relay| (*relay, comes_at)).collect();
        let hours = (1..).map(|hour| comes_at + hour * u64::from(HOUR));
        comes.extend(newcomers.into_iter().zip(hours));
        Self {
            plan,
            seed: Seed::from_bytes(seed),
            factor,
            team,
            new_guess: Percentile::P75.of(&sorted).unwrap_or_default(),
            capacities,
            old,
            comes,
            flood,
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
            if day > FLOOD_DAY && self.newcomers().all(|relay| self.first.contains_key(&relay)) {
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
                if day == FLOOD_DAY && self.old.contains(&due.relay) {
                    self.of_flood_day.insert((at(slot), due.relay));
                }
            }
        }
        // The paper's plan measures each relay in each period. In ours, an estimate is kept for 54 hours.
        let kept = u64::from(if self.plan == PlanKind::Paper { SLOTS } else { 54 * HOUR });
        let is_late =
            |relay: &&RsaId| self.last.get(*relay).is_none_or(|last| last + kept < at(SLOTS));
        if day >= FLOOD_DAY {
            self.overdue += self.old.iter().filter(is_late).count();
        }
    }

    /// The relays that are there at this time. Old ones have been measured before the first day.
    fn arrivals(&self, bounds: Bounds, now: u64) -> Vec<Arrival> {
        let kept_for = HistoryPolicy::default().kept_for;
        let is_here = |relay: &&RsaId| self.comes.get(*relay).is_none_or(|comes| *comes <= now);
        let arrival = |relay: &RsaId| {
            let last_unix_s = self.last.get(relay).map(|slot| BEGIN_UNIX_S + slot * SLOT_S);
            let is_known = last_unix_s.is_some() || self.old.contains(relay);
            let capacity = self.capacities.get(relay).copied().unwrap_or_default();
            Arrival {
                relay: *relay,
                together: *relay,
                priority: if is_known { Priority::Known } else { Priority::New },
                first_seen_unix_s: BEGIN_UNIX_S
                    + self.comes.get(relay).map_or(0, |slot| slot * SLOT_S),
                network: self.network(*relay),
                turn: Attempt::first(if is_known { capacity } else { self.new_guess }, 12),
                is_done: last_unix_s.is_some_and(|at| at >= bounds.begin_unix_s),
                is_pending: false,
                due_by: last_unix_s.map_or(Some(u32::MAX), |at| bounds.due_by(at, kept_for)),
            }
        };
        self.capacities.keys().filter(is_here).map(arrival).collect()
    }

    /// The network of a relay's address: each honest relay has its own.
    fn network(&self, RsaId(id): RsaId) -> Prefix {
        let [a, b, ..] = id;
        let address = match self.flood.contains(&RsaId(id)) {
            true => [10, b % FLOOD_NETWORKS, 0, 1],
            false => [128 | a, b, 0, 1],
        };
        network_of(address.into())
    }

    pub(super) fn newcomers(&self) -> impl Iterator<Item = RsaId> {
        self.comes.keys().copied().filter(|relay| !self.flood.contains(relay))
    }

    /// The slots from a relay's first consensus to the end of its first measurement; `None` if it was not measured.
    pub(super) fn wait_slots(&self, relay: RsaId) -> Option<u64> {
        Some(self.first.get(&relay)? - self.comes.get(&relay)? + 1)
    }
}

/// A random identity, with a first byte of at least one, or of zero.
fn id(first_min: u8, rng: &mut StdRng) -> RsaId {
    let mut id = [0; 20];
    rng.fill_bytes(&mut id);
    id[0] = if first_min == 0 { 0 } else { id[0].max(first_min) };
    RsaId(id)
}
