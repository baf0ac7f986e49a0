//! Detection of relays that may share a machine, from their estimates of many periods.
//!
//! Relays at different addresses of one machine are measured at different times, and each shows the whole machine.
//! Their estimates vary with the other load of the machine, and so they rise and fall together, from period to period.
//! The test uses nothing else:
//!
//! 1. Periods are taken in pairs that do not overlap, so that no estimate is in two of them. A relay that was measured
//!    in both has made a *move*: up or down, compared with the median relay. So effects on all relays (a slow measurer,
//!    a new version) cancel out.
//! 2. For two relays, the test counts the moves that both made, and how many are alike. If the relays are independent,
//!    then given how often each went up, the count of common ups is hypergeometric, whatever their capacities and the
//!    size of their moves: Fisher's exact test, one-sided. It assumes that one relay's moves are independent of each
//!    other; non-overlapping pairs ensure that.
//! 3. A pair is reported if chance alone would yield less than one such pair in [`FALSE_ALARMS_MAX`]⁻¹ networks of this
//!    size (Bonferroni).
//!
//! A reported pair is a suspicion and no proof. The common cause may be a provider or a country, and a relay that reads
//! another's weights in bandwidth files can imitate its moves. So a pair has no automatic effect: an operator reviews
//! it, and may have such relays measured together.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::Rate;
use onion::identity::RsaId;

/// The expected number of false pairs in one test of a network.
const FALSE_ALARMS_MAX: f64 = 0.01;

/// The minimum number of relays for a meaningful median.
const RELAYS_MIN: usize = 20;

/// The maximum number of reported pairs, the most likely first.
const REPORTED_MAX: usize = 1000;

/// A pair is not reported if each of its relays is in this number of more likely ones: many relays that all move alike
/// would hide all other pairs.
const REPORTED_PER_RELAY: u32 = 4;

/// Moves of all relays of a network, from one period to the next. Relays that share a machine at different addresses
/// move together. A relay takes 32 bytes and its identity.
///
/// A result is a suspicion and no proof: the common cause may be a provider or a country, and a relay that reads
/// another's weights can imitate its moves.
#[derive(Clone, Debug, Default)]
pub struct CoLocationTest {
    relays: BTreeMap<RsaId, Moves>,
    pairs_of_periods: u32,
}

/// A bit for each pair of periods.
#[derive(Clone, Copy, Debug, Default)]
struct Moves {
    made: u128,
    up: u128,
}

/// Two relays that may share a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspicion {
    /// The relays, in the order of their identities.
    pub relays: (RsaId, RsaId),
    /// Pairs of periods in which both were measured.
    pub moves: u32,
    /// Pairs of periods in which both went up, or both down.
    pub alike: u32,
    /// The expected number of pairs with this similarity by chance in this network: at most a hundredth.
    pub by_chance: f64,
}

impl CoLocationTest {
    /// The maximum number of pairs of periods.
    pub const PAIRS_OF_PERIODS_MAX: u32 = u128::BITS;

    /// Adds two consecutive periods that are in no other pair, with the estimates of each relay that was measured in
    /// both. With few relays, or if there is no more room, nothing is added.
    pub fn add(&mut self, both: &[(RsaId, Rate, Rate)]) {
        let had = both.iter().filter(|(_, first, _)| *first > Rate::ZERO);
        let ratio = |(relay, first, second): &(RsaId, Rate, Rate)| {
            (*relay, second.as_byte_per_s() as f64 / first.as_byte_per_s() as f64)
        };
        let ratios: Vec<(RsaId, f64)> = had.map(ratio).collect();
        if ratios.len() < RELAYS_MIN || self.pairs_of_periods >= Self::PAIRS_OF_PERIODS_MAX {
            return;
        }
        let mut sorted: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted[sorted.len() / 2];
        let bit = 1 << self.pairs_of_periods;
        // The median itself did not move.
        for (relay, ratio) in ratios.into_iter().filter(|(_, ratio)| *ratio != middle) {
            let moves = self.relays.entry(relay).or_default();
            moves.made |= bit;
            moves.up |= if ratio > middle { bit } else { 0 };
        }
        self.pairs_of_periods += 1;
    }

    /// Removes all other relays, such as those that have left the network.
    pub fn retain(&mut self, is_there: impl Fn(RsaId) -> bool) {
        self.relays.retain(|relay, _| is_there(*relay));
    }

    /// Pairs of relays that are more similar than by chance, the most likely first: at most a thousand, and none whose
    /// relays are each in four more likely ones. Pairs that `is_known` accepts are excluded, such as those that are
    /// measured together anyway.
    ///
    /// The time is quadratic in the number of relays: some seconds for ten thousand.
    #[must_use]
    pub fn suspicions(&self, is_known: impl Fn(RsaId, RsaId) -> bool) -> Vec<Suspicion> {
        let factorials = Factorials::new();
        let relays: Vec<(RsaId, Moves)> =
            self.relays.iter().map(|relay| (*relay.0, *relay.1)).collect();
        let pairs = relays.len() as f64 * (relays.len() as f64 - 1.0) / 2.0;
        let mut found: Vec<Suspicion> = Vec::new();
        let mut thin_at = 2 * REPORTED_MAX;
        let most = FALSE_ALARMS_MAX / pairs.max(1.0);
        for (place, (one, moves)) in relays.iter().enumerate() {
            for (other, others) in &relays[place + 1..] {
                let table = Table::new(*moves, *others);
                let Some(chance) = table.chance_below(most, &factorials) else { continue };
                if is_known(*one, *other) {
                    continue;
                }
                let (moves, alike, by_chance) = (table.moves, table.alike(), chance * pairs);
                found.push(Suspicion { relays: (*one, *other), moves, alike, by_chance });
                if found.len() >= thin_at {
                    keep_likeliest(&mut found);
                    thin_at = 2 * found.len().max(REPORTED_MAX);
                }
            }
        }
        keep_likeliest(&mut found);
        found.truncate(REPORTED_MAX);
        found
    }
}

fn keep_likeliest(found: &mut Vec<Suspicion>) {
    let order = |suspicion: &Suspicion| (suspicion.by_chance, suspicion.relays);
    found.sort_unstable_by(|one, other| {
        let ((one, first), (other, second)) = (order(one), order(other));
        one.total_cmp(&other).then(first.cmp(&second))
    });
    let mut reported: BTreeMap<RsaId, u32> = BTreeMap::new();
    found.retain(|suspicion| {
        let both = [suspicion.relays.0, suspicion.relays.1];
        let is_reported =
            both.iter().any(|id| reported.get(id).is_none_or(|count| *count < REPORTED_PER_RELAY));
        if is_reported {
            both.into_iter().for_each(|id| *reported.entry(id).or_default() += 1);
        }
        is_reported
    });
}

/// The counts for two relays.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// Moves that both made.
    moves: u32,
    /// Moves in which the one went up, and in which the other did.
    ups: (u32, u32),
    /// Moves in which both went up.
    both_up: u32,
}

impl Table {
    const fn new(one: Moves, other: Moves) -> Self {
        Self {
            moves: (one.made & other.made).count_ones(),
            ups: ((one.up & other.made).count_ones(), (other.up & one.made).count_ones()),
            both_up: (one.up & other.up).count_ones(),
        }
    }

    const fn alike(self) -> u32 {
        // Neither went up in those where both went down.
        self.moves + 2 * self.both_up - self.ups.0 - self.ups.1
    }

    /// The probability of at least this number of common ups for independent relays; `None` if that is not less than
    /// `most`.
    fn chance_below(self, most: f64, factorials: &Factorials) -> Option<f64> {
        let Self { moves, ups: (one, other), both_up } = self;
        // At or below the expected count the probability is large.
        if both_up * moves <= one * other {
            return None;
        }
        let exactly = |both: u32| {
            factorials.ways(other, both) * factorials.ways(moves - other, one - both)
                / factorials.ways(moves, one)
        };
        if exactly(both_up) >= most {
            return None;
        }
        let chance: f64 = (both_up..=one.min(other)).map(exactly).sum();
        (chance < most).then_some(chance)
    }
}

/// Up to 128!, which is far from the largest number.
struct Factorials(Vec<f64>);

impl Factorials {
    fn new() -> Self {
        let mut all = Vec::from([1.0]);
        for factor in 1..=CoLocationTest::PAIRS_OF_PERIODS_MAX {
            all.push(all.last().copied().unwrap_or(1.0) * f64::from(factor));
        }
        Self(all)
    }

    fn of(&self, number: u32) -> f64 {
        self.0.get(number as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// The binomial coefficient.
    fn ways(&self, all: u32, chosen: u32) -> f64 {
        self.of(all) / self.of(chosen) / self.of(all - chosen)
    }
}

#[cfg(test)]
mod tests;
