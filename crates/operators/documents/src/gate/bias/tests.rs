#![expect(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use super::*;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// A value of the standard normal distribution: the sum of twelve uniform ones, less 6.
fn normal(rng: &mut StdRng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

/// A group of very unequal size, as countries have: the first has a fifth of all relays, the last some per cent.
fn country(rng: &mut StdRng) -> usize {
    (rng.random::<f64>().powi(2) * 12.0) as usize
}

/// A network: relays in clusters of one network, whose differences have a common part. `country_factor` is what we give a
/// country, and `size_slope` how the ratio depends on the size.
fn world(
    rng: &mut StdRng,
    networks: u8,
    country_factor: impl Fn(usize) -> f64,
    size_slope: f64,
) -> (Vec<Pair>, Vec<usize>) {
    let (mut pairs, mut countries) = (Vec::new(), Vec::new());
    for network in 0..networks {
        let country = country(rng);
        let common = normal(rng) * 0.4;
        for host in 0..=(rng.random::<f64>().powi(3) * 6.0) as u8 {
            let log_size = normal(rng) * 1.5;
            let log_ratio = common + normal(rng) * 0.4 + size_slope * log_size;
            let theirs = (8.0 + log_size - log_ratio / 2.0).exp();
            let ours = theirs * log_ratio.exp() * country_factor(country);
            pairs.push(Pair { address: Ipv4Addr::new(10, 0, network, host), ours, theirs });
            countries.push(country);
        }
    }
    (pairs, countries)
}

/// The least probable difference between countries.
fn least(pairs: &[Pair], countries: &[usize]) -> Option<GroupDifference<usize>> {
    let rest = without_size(pairs);
    let networks = by_network(pairs.iter().map(|pair| pair.address).zip(rest));
    let country: BTreeMap<u8, usize> =
        pairs.iter().map(|pair| pair.address.octets()[2]).zip(countries.iter().copied()).collect();
    let values: Vec<(usize, f64)> =
        networks.iter().map(|([.., network], value)| (country[network], *value)).collect();
    let all = differences(&values);
    all.into_iter().min_by(|left, right| left.probability.total_cmp(&right.probability))
}

/// The share of 1,000 networks in which a difference is less probable than the level.
fn alarms(level: f64, country_factor: impl Fn(usize) -> f64 + Copy, size_slope: f64) -> f64 {
    let mut rng = StdRng::seed_from_u64(7);
    let has_alarm = |_: &u32| {
        let (pairs, countries) = world(&mut rng, 250, country_factor, size_slope);
        least(&pairs, &countries).is_some_and(|found| found.probability < level)
    };
    (0..1000).filter(has_alarm).count() as f64 / 1000.0
}

#[test]
fn without_a_bias_alarms_are_as_frequent_as_the_level_says() {
    // 1,000 trials at 5 %: the standard deviation is 0.7 %. The test is slightly conservative.
    let found = alarms(0.05, |_| 1.0, 0.0);
    assert!((0.015..0.07).contains(&found), "{found}");
    let found = alarms(0.01, |_| 1.0, 0.0);
    assert!(found < 0.02, "{found}");
}

#[test]
fn a_difference_that_depends_on_size_is_no_bias() {
    let found = alarms(0.05, |_| 1.0, 0.3);
    assert!((0.015..0.07).contains(&found), "{found}");
    // A country of large relays.
    let mut rng = StdRng::seed_from_u64(8);
    let (mut pairs, mut countries) = world(&mut rng, 250, |_| 1.0, 0.3);
    let order = |pair: &Pair| (pair.ours * pair.theirs) as u64;
    let typical = median(pairs.iter().map(|pair| order(pair) as f64)) as u64;
    for (pair, country) in pairs.iter_mut().zip(&mut countries) {
        *country = usize::from(order(pair) > typical);
        // Networks of one size.
        pair.address = Ipv4Addr::new(10, *country as u8, pair.address.octets()[2], 0);
    }
    let logs = pairs.iter().map(|pair| (pair.ours / pair.theirs).ln());
    let raw: Vec<(usize, f64)> = countries.iter().copied().zip(logs).collect();
    let sized: Vec<(usize, f64)> = countries.iter().copied().zip(without_size(&pairs)).collect();
    let probability = |values: &[(usize, f64)]| differences(values)[0].probability;
    assert!(probability(&raw) < 1e-6, "{}", probability(&raw));
    assert!(probability(&sized) > 0.01, "{}", probability(&sized));
}

#[test]
fn a_country_that_gets_half_is_found_and_named() {
    let mut rng = StdRng::seed_from_u64(9);
    let mut found = 0;
    for _ in 0..100 {
        let (pairs, countries) =
            world(&mut rng, 250, |country| if country == 3 { 0.5 } else { 1.0 }, 0.1);
        let least = least(&pairs, &countries).expect("enough networks");
        let is_it = least.group == 3 && least.probability < 0.01 && least.log_ratio < 0.0;
        found += u32::from(is_it && (40.0..200.0).contains(&least.percent()));
    }
    assert!(found >= 80, "{found} of 100");
}

#[test]
fn a_network_counts_once() {
    // One provider with 200 relays in one network.
    let addresses = (0..200).map(|host| (Ipv4Addr::new(10, 1, 1, host), -1.0));
    let others = (0..40).map(|network| (Ipv4Addr::new(10, 2, network, 1), f64::from(network)));
    let networks = by_network(addresses.chain(others));
    assert_eq!(networks.len(), 41);
    assert_eq!(networks[&[10, 1, 1]], -1.0);
    let values: Vec<(bool, f64)> =
        networks.iter().map(|(network, value)| (network[1] == 1, *value)).collect();
    assert_eq!(differences(&values), [], "a single network is no group");
}

#[test]
fn ranks_of_equal_values_are_their_mean() {
    let ranks = ranks(&[((), 3.0), ((), 1.0), ((), 3.0), ((), 3.0)]);
    assert_eq!((ranks.of_values, ranks.ties), (vec![3.0, 1.0, 3.0, 3.0], 24.0));
    let equal: Vec<(usize, f64)> = (0..40).map(|place| (place % 2, 5.0)).collect();
    let found = differences(&equal);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|found| found.probability == 1.0 && found.log_ratio == 0.0));
}

proptest! {
    #[test]
    fn probabilities_are_between_zero_and_one(
        values in prop::collection::vec((0usize..4, prop::sample::select(vec![-2.0, 0.0, 0.5, 3.0])), 0..90),
    ) {
        for found in differences(&values) {
            prop_assert!((0.0..=1.0).contains(&found.probability), "{found:?}");
            prop_assert!(found.networks >= NETWORKS_MIN);
        }
    }

    /// With swapped roles, each difference has the opposite sign and the same probability.
    #[test]
    fn the_test_is_symmetric(values in prop::collection::vec((0usize..3, -2.0..2.0), 40..90)) {
        let opposite: Vec<(usize, f64)> = values.iter().map(|(group, value)| (*group, -value)).collect();
        for (one, other) in differences(&values).iter().zip(differences(&opposite)) {
            prop_assert!((one.log_ratio + other.log_ratio).abs() < 1e-12);
            prop_assert!((one.probability - other.probability).abs() < 1e-9);
        }
    }
}
