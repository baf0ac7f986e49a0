//! Which relays may share a machine, by their estimates of many periods.
//!
//! Relays at different addresses of one machine are measured at different times, and each shows all of it. What they show rises and falls
//! with what else the machine carries, and so they rise and fall together, from period to period. That is all that is looked at:
//!
//! 1. Periods are taken in pairs that do not overlap, so that no estimate is in two of them. A relay that was measured in both has made a
//!    *move*: up or down, compared with the middle one of all relays. So what concerns all (a slow measurer, a new version) is no likeness.
//! 2. Of two relays, the moves that both made are counted: how many are alike. If they have nothing to do with each other, then given how often each
//!    went up, the count of common ups is hypergeometric, whatever their capacities and the size of their moves are: Fisher's exact test,
//!    one-sided. It takes for granted that one relay's moves are independent of each other, which pairs that do not overlap see to.
//! 3. A pair is told if chance alone would bring less than one such pair in [`FALSE_ALARMS_MAX`]⁻¹ networks of this size (Bonferroni).
//!
//! It is a suspicion and no proof. What is common may be a provider or a country; and who reads another relay's weights in bandwidth files can move
//! as it did. So nothing follows from it by itself: an operator looks at it, and may have such relays measured together.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::Rate;
use onion::identity::RsaId;

/// How many pairs of relays chance alone may bring, on average, in one look at a network.
const FALSE_ALARMS_MAX: f64 = 0.01;

/// Fewer relays have no middle that is worth the name.
const RELAYS_MIN: usize = 20;

/// More are told by nobody: the likeliest come first.
const TOLD_MAX: usize = 1000;

/// A pair of which each relay is in so many likelier ones is not told: many relays that all move alike would leave no room for any other pair.
const TOLD_OF_ONE: u32 = 4;

/// Moves of all relays of a network, from one period to the next: relays that share a machine at different addresses make them together. 32 bytes and
/// an identity for each relay.
///
/// What it tells is a suspicion, and no proof: what two relays have in common may be a provider or a country, and one that reads another's weights can
/// move as it did.
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
    /// Which, in the order of their identities.
    pub relays: (RsaId, RsaId),
    /// Pairs of periods in which both were measured.
    pub moves: u32,
    /// Those in which both went up, or both down.
    pub alike: u32,
    /// How many pairs of relays that are as much alike chance alone would bring in this network: at most a hundredth.
    pub by_chance: f64,
}

impl CoLocationTest {
    /// Pairs of periods that it has room for.
    pub const PAIRS_OF_PERIODS_MAX: u32 = u128::BITS;

    /// Two periods that follow each other and are in no other pair: of each relay that was measured in both, what was found in the first and
    /// in the second. With few relays, or when there is no more room, nothing is learnt.
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
        // The middle itself has gone neither way.
        for (relay, ratio) in ratios.into_iter().filter(|(_, ratio)| *ratio != middle) {
            let moves = self.relays.entry(relay).or_default();
            moves.made |= bit;
            moves.up |= if ratio > middle { bit } else { 0 };
        }
        self.pairs_of_periods += 1;
    }

    /// Forgets all other relays, such as those that have left the network.
    pub fn retain(&mut self, is_there: impl Fn(RsaId) -> bool) {
        self.relays.retain(|relay, _| is_there(*relay));
    }

    /// Pairs of relays that are more alike than chance makes them, the likeliest first: at most a thousand, and none whose relays are in four likelier ones each: of many relays that are
    /// all alike, not each pair is told. Those that `is_known` are left out, such as those that are measured together anyway.
    ///
    /// It takes time with the square of the number of relays: some seconds for ten thousand.
    #[must_use]
    pub fn suspicions(&self, is_known: impl Fn(RsaId, RsaId) -> bool) -> Vec<Suspicion> {
        let factorials = Factorials::new();
        let relays: Vec<(RsaId, Moves)> = self.relays.iter().map(|it| (*it.0, *it.1)).collect();
        let pairs = relays.len() as f64 * (relays.len() as f64 - 1.0) / 2.0;
        let mut found: Vec<Suspicion> = Vec::new();
        let mut thin_at = 2 * TOLD_MAX;
        let most = FALSE_ALARMS_MAX / pairs.max(1.0);
        for (place, (one, moves)) in relays.iter().enumerate() {
            for (other, others) in &relays[place + 1..] {
                let table = Table::of(*moves, *others);
                let Some(chance) = table.chance_below(most, &factorials) else { continue };
                if is_known(*one, *other) {
                    continue;
                }
                let (moves, alike, by_chance) = (table.moves, table.alike(), chance * pairs);
                found.push(Suspicion { relays: (*one, *other), moves, alike, by_chance });
                if found.len() >= thin_at {
                    keep_likeliest(&mut found);
                    thin_at = 2 * found.len().max(TOLD_MAX);
                }
            }
        }
        keep_likeliest(&mut found);
        found.truncate(TOLD_MAX);
        found
    }
}

fn keep_likeliest(found: &mut Vec<Suspicion>) {
    let order = |it: &Suspicion| (it.by_chance, it.relays);
    found.sort_unstable_by(|one, other| {
        let ((one, first), (other, second)) = (order(one), order(other));
        one.total_cmp(&other).then(first.cmp(&second))
    });
    let mut told: BTreeMap<RsaId, u32> = BTreeMap::new();
    found.retain(|it| {
        let both = [it.relays.0, it.relays.1];
        let is_told = both.iter().any(|id| told.get(id).is_none_or(|it| *it < TOLD_OF_ONE));
        if is_told {
            both.into_iter().for_each(|id| *told.entry(id).or_default() += 1);
        }
        is_told
    });
}

/// What is counted of two relays.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// That both made.
    moves: u32,
    /// Those of them in which the one went up; the other; both.
    ups: (u32, u32),
    both_up: u32,
}

impl Table {
    const fn of(one: Moves, other: Moves) -> Self {
        Self {
            moves: (one.made & other.made).count_ones(),
            ups: ((one.up & other.made).count_ones(), (other.up & one.made).count_ones()),
            both_up: (one.up & other.up).count_ones(),
        }
    }

    const fn alike(self) -> u32 {
        // Neither went up where not one of them did.
        self.moves + 2 * self.both_up - self.ups.0 - self.ups.1
    }

    /// How likely so many common ups are, or more, without any connection; `None` if that is not less than `most`.
    fn chance_below(self, most: f64, factorials: &Factorials) -> Option<f64> {
        let Self { moves, ups: (one, other), both_up } = self;
        // As many as one would expect, or fewer: that is nearly all.
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

    /// To choose so many of all.
    fn ways(&self, all: u32, chosen: u32) -> f64 {
        self.of(all) / self.of(chosen) / self.of(all - chosen)
    }
}

#[cfg(test)]
mod tests;
