//! The relays of a network that is flooded: random ones, or those that ran in a real network.

use super::Flood;
use super::history::History;
use coordinator::policy::{Prefix, network_of};
use onion::Rate;
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The length of a slot.
pub(super) const SLOT_S: u64 = 300;

/// The slots between two consensuses.
pub(super) const HOUR: u32 = 12;

const DAY: u64 = 24 * HOUR as u64;

/// Random relays of the flood for each old one.
const FLOOD: usize = 10;

/// The networks with addresses of a flood.
const FLOOD_NETWORKS: u8 = 20;

/// The day of the flood, and the slot of that day in which a random one comes.
pub(super) const FLOOD_DAY: u64 = 3;
const FLOOD_SLOT: u64 = 72;

/// Random newcomers, one each hour after the flood has come.
const NEWCOMERS: u64 = 24;

/// The first day of the replayed network: 1 February 2026, 0:00 UTC. The flood came on the 4th.
const REPLAY_UNIX_S: u64 = 1_769_904_000;

/// Days of the replay.
const REPLAY_DAYS: u64 = 17;

/// Days from the first one on which relays of the flood came for the first time: the 4th and the 5th.
const FLOOD_DAYS: Range<u64> = FLOOD_DAY..FLOOD_DAY + 2;

/// Honest newcomers are counted that come in the seven days from the flood on.
const NEWCOMER_DAYS: Range<u64> = FLOOD_DAY..FLOOD_DAY + 7;

/// A new relay that ran for less than two days in all, and came with the flood, belongs to it. Newcomers that count ran longer.
const STAYS_S: u64 = 2 * 86_400;

/// A relay is old if it ran in the 30 days before.
const UNSEEN_S: u64 = 30 * 86_400;

/// The relays, with their capacities. Slots are counted from the first day.
#[derive(Clone, Debug, Default)]
pub(super) struct Population {
    pub(super) old: BTreeSet<RsaId>,
    pub(super) flood: BTreeSet<RsaId>,
    /// Honest relays whose wait counts.
    pub(super) newcomers: BTreeSet<RsaId>,
    /// All relays, with others that come and go.
    pub(super) capacities: BTreeMap<RsaId, Rate>,
    /// When each runs; a relay without an entry always does.
    runs: BTreeMap<RsaId, Vec<Range<u64>>>,
    /// Whether each relay of the flood has a network of its own, as honest ones have.
    has_own_networks: bool,
}

impl Population {
    /// Random relays, of which a flood comes at once.
    pub(super) fn random(flood: Flood, old: usize, rng: &mut StdRng) -> Self {
        let old: BTreeSet<RsaId> = (0..old).map(|_| id(1, rng)).collect();
        let newcomers: Vec<RsaId> = (0..NEWCOMERS).map(|_| id(1, rng)).collect();
        let mut capacities: BTreeMap<RsaId, Rate> =
            old.iter().map(|relay| (*relay, capacity(rng))).collect();
        capacities.extend(newcomers.iter().map(|relay| (*relay, capacity(rng))));
        let first_min = match flood {
            Flood::SmallIdentities => 0,
            _ => 1,
        };
        let count = if flood == Flood::None { 0 } else { FLOOD * old.len() };
        let flood: BTreeSet<RsaId> = (0..count).map(|_| id(first_min, rng)).collect();
        capacities.extend(flood.iter().map(|relay| (*relay, Rate::from_mbit_per_s(1.0))));
        let comes_at = FLOOD_DAY * DAY + FLOOD_SLOT;
        let from = |relay: &RsaId, slot: u64| (*relay, Vec::from_iter(Some(slot..u64::MAX)));
        let hours = (1..).map(|hour| comes_at + hour * u64::from(HOUR));
        let mut runs: BTreeMap<RsaId, Vec<Range<u64>>> =
            flood.iter().map(|relay| from(relay, comes_at)).collect();
        runs.extend(newcomers.iter().zip(hours).map(|(relay, slot)| from(relay, slot)));
        let newcomers = newcomers.into_iter().collect();
        Self { old, flood, newcomers, capacities, runs, has_own_networks: false }
    }

    /// The relays that ran in February 2026. Their capacities are random: the lists have none.
    pub(super) fn replayed(history: &History, has_own_networks: bool, rng: &mut StdRng) -> Self {
        let mut all = Self { has_own_networks, ..Self::default() };
        let end_unix_s = REPLAY_UNIX_S + REPLAY_DAYS * 86_400;
        for (relay, runs) in &history.relays {
            let spans: Vec<(u64, u64)> = runs.iter().map(|run| history.span_s(*run)).collect();
            let slot = |unix_s: u64| unix_s.saturating_sub(REPLAY_UNIX_S).div_ceil(SLOT_S);
            let within = spans
                .iter()
                .filter(|(from, until)| *from < end_unix_s && slot(*from) < slot(*until));
            let within: Vec<Range<u64>> =
                within.map(|(from, until)| slot(*from)..slot(*until)).collect();
            let Some(first) = within.first() else { continue };
            let before = spans
                .iter()
                .any(|(from, until)| *from < REPLAY_UNIX_S && until + UNSEEN_S >= REPLAY_UNIX_S);
            let was_ever = spans.iter().any(|(from, _)| *from < REPLAY_UNIX_S);
            let ran_s: u64 = spans.iter().map(|(from, until)| until - from).sum();
            let (day, stays) = (first.start / DAY, ran_s >= STAYS_S);
            let is_flood = !was_ever && !stays && FLOOD_DAYS.contains(&day);
            if before {
                all.old.insert(*relay);
            } else if is_flood {
                all.flood.insert(*relay);
            } else if stays && NEWCOMER_DAYS.contains(&day) {
                all.newcomers.insert(*relay);
            }
            let capacity = if is_flood { Rate::from_mbit_per_s(1.0) } else { capacity(rng) };
            all.capacities.insert(*relay, capacity);
            all.runs.insert(*relay, within);
        }
        all
    }

    /// The honest relays, without those of the flood.
    pub(super) fn without_flood(&self) -> Self {
        let mut calm = self.clone();
        for relay in std::mem::take(&mut calm.flood) {
            calm.capacities.remove(&relay);
        }
        calm
    }

    /// The first slot of a relay; 0 if it always runs.
    pub(super) fn comes(&self, relay: RsaId) -> u64 {
        self.runs.get(&relay).and_then(|runs| runs.first()).map_or(0, |run| run.start)
    }

    /// Whether a relay runs in all of these slots.
    pub(super) fn runs_in(&self, relay: RsaId, slots: Range<u64>) -> bool {
        let covers = |run: &Range<u64>| run.start <= slots.start && slots.end <= run.end;
        self.runs.get(&relay).is_none_or(|runs| runs.iter().any(covers))
    }

    /// The network of a relay's address: random for honest relays, of which the lists have no addresses.
    pub(super) fn network(&self, RsaId(id): RsaId) -> Prefix {
        let [a, b, ..] = id;
        let address = match self.flood.contains(&RsaId(id)) && !self.has_own_networks {
            true => [10, b % FLOOD_NETWORKS, 0, 1],
            false => [128 | a, b, 0, 1],
        };
        network_of(address.into())
    }
}

/// Similar ones, so that the largest relay does not determine the team, as it would in a small network.
fn capacity(rng: &mut StdRng) -> Rate {
    Rate::from_mbit_per_s(rng.random_range(5.0..15.0))
}

/// A random identity, with a first byte of at least one, or of zero.
fn id(first_min: u8, rng: &mut StdRng) -> RsaId {
    let mut id = [0; 20];
    rng.fill_bytes(&mut id);
    id[0] = if first_min == 0 { 0 } else { id[0].max(first_min) };
    RsaId(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn relays_of_the_lists_are_old_ones_newcomers_or_the_flood() {
        let hour = |hours: i64| REPLAY_UNIX_S.saturating_add_signed(hours * 3600);
        let times_s: Vec<u64> = (-24 * 60..24 * 20).map(hour).collect();
        let at = |hours: i64| usize::try_from(24 * 60 + hours).expect("in the lists");
        let relay = |number: u8, runs: &[(i64, i64)]| {
            (RsaId([number; 20]), runs.iter().map(|(a, b)| (at(*a), at(*b))).collect())
        };
        let relays = vec![
            relay(1, &[(-100, -50), (10, 400)]),
            relay(2, &[(3 * 24 + 12, 3 * 24 + 20), (4 * 24, 4 * 24 + 5)]),
            relay(3, &[(3 * 24 + 12, 400)]),
            // It was away for longer than a month.
            relay(4, &[(-1400, -1390), (4 * 24, 4 * 24 + 2)]),
            relay(5, &[(-1400, -1390)]),
        ];
        let history = History { times_s, relays };
        let all = Population::replayed(&history, false, &mut StdRng::seed_from_u64(1));
        let [old, flood, new] = [1, 2, 3].map(|number| RsaId([number; 20]));
        assert_eq!(all.old, BTreeSet::from([old]));
        assert_eq!((&all.flood, &all.newcomers), (&[flood].into(), &[new].into()));
        assert_eq!(all.capacities.len(), 4, "the fourth runs, and the fifth does not");
        assert_eq!(all.comes(flood), 3 * DAY + 144);
        assert!(all.runs_in(flood, 3 * DAY + 144..3 * DAY + 252));
        assert!(!all.runs_in(flood, 3 * DAY + 144..3 * DAY + 253), "then it is away");
        assert!(!all.runs_in(old, 0..1) && all.runs_in(old, 120..200));
        let calm = all.without_flood();
        assert_eq!((calm.capacities.len(), calm.flood.len()), (3, 0));
    }
}
