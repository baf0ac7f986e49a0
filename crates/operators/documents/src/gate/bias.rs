//! A test whether the differences between two sets of weights depend on a group of their relays, such as a country.
//!
//! It has no model of the differences, only ranks (the rank-sum test of Wilcoxon, Mann and Whitney). Three properties of relays would
//! make its probabilities wrong, and are removed first:
//!
//! - Weights of small and large relays differ in other ways, and some countries have larger relays: each relay is compared with
//!   relays of its size ([`without_size`]).
//! - Relays of one network share a host, a provider and its limits: a network of 256 addresses counts once ([`by_network`]).
//! - With many groups, one of them is unusual by chance: the probability is that of the most unusual of all groups.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Networks that a group needs, and that must be outside it: below, the normal distribution approximates rank sums badly.
pub(super) const NETWORKS_MIN: usize = 10;

/// Classes of size, if there are enough relays.
const SIZES_MAX: usize = 10;

/// Relays in a class of size, at least.
const OF_A_SIZE: usize = 20;

/// A relay with both its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) address: Ipv4Addr,
    pub(super) ours: f64,
    pub(super) theirs: f64,
}

/// How a group differs from all others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupDifference<G> {
    pub(super) group: G,
    /// The number of its networks.
    pub(super) networks: usize,
    /// Difference of the medians of logarithms: below zero if we give the group less than the others do.
    pub(super) log_ratio: f64,
    /// Probability of a difference in ranks as large as this, in either direction and in any group, if locations mean nothing.
    pub(super) probability: f64,
}

impl<G> GroupDifference<G> {
    /// The factor between the group and all others in either direction, as a percentage above 1.
    pub(super) fn percent(&self) -> f64 {
        self.log_ratio.abs().exp_m1() * 100.0
    }
}

/// The logarithm of our weight divided by theirs, for each relay, minus the median of relays of its size. The size is the
/// geometric mean of both weights: by either weight alone, large relays would seem overrated there, and small ones underrated.
pub(super) fn without_size(pairs: &[Pair]) -> Vec<f64> {
    let classes = (pairs.len() / OF_A_SIZE).clamp(1, SIZES_MAX);
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    let size = |place: &usize| pairs.get(*place).map_or(0.0, |pair| pair.ours * pair.theirs);
    order.sort_by(|left, right| size(left).total_cmp(&size(right)));
    let logs: Vec<f64> = pairs.iter().map(|pair| (pair.ours / pair.theirs).ln()).collect();
    let mut rest = vec![0.0; pairs.len()];
    for class in 0..classes {
        let members = &order[class * pairs.len() / classes..(class + 1) * pairs.len() / classes];
        let typical = median(members.iter().map(|place| logs[*place]));
        for place in members {
            rest[*place] = logs[*place] - typical;
        }
    }
    rest
}

/// The median of the values in each network of 256 addresses.
pub(super) fn by_network(
    addressed: impl Iterator<Item = (Ipv4Addr, f64)>,
) -> BTreeMap<[u8; 3], f64> {
    let mut networks: BTreeMap<[u8; 3], Vec<f64>> = BTreeMap::new();
    for (address, value) in addressed {
        let [a, b, c, _] = address.octets();
        networks.entry([a, b, c]).or_default().push(value);
    }
    networks.into_iter().map(|(network, values)| (network, median(values))).collect()
}

/// Compares each group that has enough values with all other values. Empty if no group has.
pub(super) fn differences<G: Ord + Clone>(values: &[(G, f64)]) -> Vec<GroupDifference<G>> {
    let ranks = ranks(values);
    let mut groups: BTreeMap<&G, Vec<usize>> = BTreeMap::new();
    for (place, (group, _)) in values.iter().enumerate() {
        groups.entry(group).or_default().push(place);
    }
    let enough = |members: &Vec<usize>| {
        members.len() >= NETWORKS_MIN && values.len() - members.len() >= NETWORKS_MIN
    };
    groups.retain(|_, members| enough(members));
    // If there are only two groups, the ranks of one follow from those of the other: that is one test.
    let covered: usize = groups.values().map(Vec::len).sum();
    let tests = if groups.len() == 2 && covered == values.len() { 1 } else { groups.len() };
    let difference = |(group, members): (&G, Vec<usize>)| {
        let inside = median(members.iter().map(|place| values[*place].1));
        let outside = values.iter().filter(|(other, _)| other != group).map(|(_, value)| *value);
        let sum = members.iter().map(|place| ranks.of_values[*place]).sum();
        let alone = ranks.probability(members.len(), sum);
        GroupDifference {
            group: group.clone(),
            networks: members.len(),
            log_ratio: inside - median(outside),
            // Šidák: 1 − (1 − p)^tests.
            probability: -(tests as f64 * (-alone).ln_1p()).exp_m1(),
        }
    };
    groups.into_iter().map(difference).collect()
}

/// Ranks from 1; equal values have the mean of their ranks.
struct Ranks {
    of_values: Vec<f64>,
    /// Σ (t³ − t) over groups of t equal values.
    ties: f64,
}

fn ranks<G>(values: &[(G, f64)]) -> Ranks {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |place: &usize| values[*place].1;
    order.sort_by(|left, right| value(left).total_cmp(&value(right)));
    let mut ranks = Ranks { of_values: vec![0.0; values.len()], ties: 0.0 };
    let mut before = 0;
    for equal in order.chunk_by(|left, right| value(left).total_cmp(&value(right)).is_eq()) {
        let count = equal.len() as f64;
        for place in equal {
            ranks.of_values[*place] = before as f64 + f64::midpoint(count, 1.0);
        }
        ranks.ties += count.powi(3) - count;
        before += equal.len();
    }
    ranks
}

impl Ranks {
    /// Probability of a rank sum at least as far from its mean, for this number of values.
    fn probability(&self, count: usize, sum: f64) -> f64 {
        let (inside, all) = (count as f64, self.of_values.len() as f64);
        let mean = inside * (all + 1.0) / 2.0;
        let equal = self.ties / (all * (all - 1.0));
        let variance = inside * (all - inside) / 12.0 * (all + 1.0 - equal);
        if variance <= 0.0 {
            return 1.0;
        }
        libm::erfc((sum - mean).abs() / (2.0 * variance).sqrt())
    }
}

/// The median; 0 without a value.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or_default();
    match values.len() % 2 {
        0 if !values.is_empty() => f64::midpoint(values[values.len() / 2 - 1], upper),
        _ => upper,
    }
}

#[cfg(test)]
mod tests;
