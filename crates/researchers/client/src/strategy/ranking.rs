use super::{Position, Strategy, blend};
use crate::netdir::{NetDir, RelayInfo};
use netdoc::RsaId;
use netdoc::descriptor::ServerDescriptor;
use std::collections::BTreeMap;

/// The uptime for half of the maximum score.
const HALF_UPTIME_S: f64 = 3.0 * 24.0 * 3600.0;
/// Bandwidths are compared with this percentile of relays; claims beyond it gain nothing.
const TOP: f64 = 0.95;
/// Limit on counted failures, each of which halves the index.
const FAILURES_MAX: u32 = 6;

/// What a relay claims in its server descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its uptime, in seconds.
    pub uptime_s: u64,
    /// Its average bandwidth limit, in bytes per second.
    pub average_bytes_s: u64,
    /// Its observed bandwidth, in bytes per second.
    pub observed_bytes_s: u64,
}

/// The claims of all relays.
pub type Claims = BTreeMap<RsaId, Claim>;

/// The ranking index of Panchenko et al. (§II-B, from OnionCoffee): a number from 0 to 1, from
/// uptime, average and observed bandwidth in the server descriptor, reduced by failures, and
/// blended with a uniform choice.
///
/// The paper gives no formula. Here the index is the mean of three numbers, halved for each failure
/// since the last success: *u* / (*u* + 3 days) for the uptime *u*, and average and observed
/// bandwidth divided by the 95th percentile of all relays, at most 1. The weight is [`blend`]ed
/// with the uniform one by the influence. All three numbers are claims of the relay: a liar gains
/// at most the index of the best relay.
#[derive(Clone, Debug)]
pub struct Ranking {
    indices: BTreeMap<RsaId, f64>,
    influence: f64,
    /// Failures since the last success.
    failures: BTreeMap<RsaId, u32>,
}

impl Ranking {
    /// Uses these claims. The influence is that of the index, 0 (uniform) to 1.
    #[must_use]
    pub fn new(claims: &Claims, influence: f64) -> Self {
        let average = top(claims.values().map(|claim| claim.average_bytes_s));
        let observed = top(claims.values().map(|claim| claim.observed_bytes_s));
        let index = |claim: &Claim| {
            let uptime_s = claim.uptime_s as f64;
            let uptime = uptime_s / (uptime_s + HALF_UPTIME_S);
            let share = |bytes_s: u64, top: u64| (bytes_s as f64 / top.max(1) as f64).min(1.0);
            (uptime
                + share(claim.average_bytes_s, average)
                + share(claim.observed_bytes_s, observed))
                / 3.0
        };
        let indices = claims.iter().map(|(relay, claim)| (*relay, index(claim))).collect();
        Self { indices, influence, failures: BTreeMap::new() }
    }

    /// Reads the claims in descriptors; for several of one relay, the latest.
    pub fn claims<'a>(descriptors: impl IntoIterator<Item = &'a ServerDescriptor<'a>>) -> Claims {
        let mut latest: BTreeMap<RsaId, (u64, Claim)> = BTreeMap::new();
        for descriptor in descriptors {
            let claim = Claim {
                uptime_s: descriptor.uptime_s.unwrap_or(0),
                average_bytes_s: descriptor.bandwidth_avg_bytes_s,
                observed_bytes_s: descriptor.bandwidth_observed_bytes_s,
            };
            let entry =
                latest.entry(descriptor.fingerprint).or_insert((descriptor.published, claim));
            if descriptor.published >= entry.0 {
                *entry = (descriptor.published, claim);
            }
        }
        latest.into_iter().map(|(relay, (_, claim))| (relay, claim)).collect()
    }

    /// The index of a relay, from 0 to 1; 0 without claims.
    #[must_use]
    pub fn index(&self, relay: &RsaId) -> f64 {
        let failures = self.failures.get(relay).copied().unwrap_or(0);
        self.indices.get(relay).copied().unwrap_or(0.0) / f64::from(1_u32 << failures)
    }
}

/// The value of the percentile.
fn top(values: impl Iterator<Item = u64>) -> u64 {
    let mut sorted: Vec<u64> = values.collect();
    sorted.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "thousands of relays"
    )]
    let place = (sorted.len() as f64 * TOP) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

impl Strategy for Ranking {
    fn name(&self) -> &'static str {
        "ranking"
    }

    fn weight(&self, _: &NetDir, relay: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        blend(self.index(&relay.fingerprint), self.influence)
    }

    /// The responsible relay is unknown: all relays of a failed path are suspected, and later
    /// successes clear the others.
    fn handle_outcome(&mut self, path: &[RsaId], was_built: bool) {
        for relay in path.iter().filter(|relay| self.indices.contains_key(relay)) {
            let failures = self.failures.entry(*relay).or_default();
            *failures = match was_built {
                true => failures.saturating_sub(1),
                false => (*failures + 1).min(FAILURES_MAX),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;
    use proptest::prelude::*;
    use proptest::strategy::Strategy as _;

    fn of(number: u8) -> RsaId {
        RsaId([number; 20])
    }

    fn claims() -> impl proptest::strategy::Strategy<Value = Claims> {
        let claim = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|numbers| Claim {
            uptime_s: numbers.0,
            average_bytes_s: numbers.1,
            observed_bytes_s: numbers.2,
        });
        prop::collection::btree_map(any::<u8>().prop_map(of), claim, 1..40)
    }

    #[test]
    fn a_claim_beyond_what_others_claim_gains_no_more_than_theirs() {
        let honest =
            Claim { uptime_s: 86_400, average_bytes_s: 1_000_000, observed_bytes_s: 900_000 };
        let mut claims: Claims = (0..40).map(|number| (of(number), honest)).collect();
        let before = Ranking::new(&claims, 1.0);
        let lie =
            Claim { uptime_s: u64::MAX, average_bytes_s: u64::MAX, observed_bytes_s: u64::MAX };
        claims.insert(of(1), lie);
        let after = Ranking::new(&claims, 1.0);
        assert!(after.index(&of(1)) <= 1.0 && after.index(&of(1)) > before.index(&of(1)));
        assert!((after.index(&of(2)) - before.index(&of(2))).abs() < 1e-12, "others lose nothing");
        assert_eq!(after.index(&of(99)), 0.0);
    }

    #[test]
    fn failures_lower_the_index_and_successes_raise_it_again() {
        let claim = Claim { uptime_s: 86_400, average_bytes_s: 10, observed_bytes_s: 10 };
        let mut ranking = Ranking::new(&[(of(1), claim)].into_iter().collect(), 1.0);
        let whole = ranking.index(&of(1));
        for _ in 0..2 {
            ranking.handle_outcome(&[of(1), of(2)], false);
        }
        assert!((ranking.index(&of(1)) - whole / 4.0).abs() < 1e-12);
        ranking.handle_outcome(&[of(1)], true);
        assert!((ranking.index(&of(1)) - whole / 2.0).abs() < 1e-12);
        (0..100).for_each(|_| ranking.handle_outcome(&[of(1)], false));
        assert!(ranking.index(&of(1)) > 0.0, "it can come back");
        (0..100).for_each(|_| ranking.handle_outcome(&[of(1)], true));
        assert!((ranking.index(&of(1)) - whole).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn an_index_is_between_0_and_1_and_no_less_for_a_better_relay(
            claims in claims(), influence in 0.0..=1.0_f64, more in 0_u64..1 << 40,
        ) {
            let ranking = Ranking::new(&claims, influence);
            for relay in claims.keys() {
                let index = ranking.index(relay);
                prop_assert!((0.0..=1.0).contains(&index), "{}", index);
            }
            let (relay, claim) = claims.iter().next().expect("one");
            let better = Claim { uptime_s: claim.uptime_s.saturating_add(more), ..*claim };
            let mut others = claims.clone();
            others.insert(*relay, better);
            // Except for rounding.
            let index = Ranking::new(&others, influence).index(relay);
            prop_assert!(index >= ranking.index(relay) - 1e-12);
        }
    }
}
