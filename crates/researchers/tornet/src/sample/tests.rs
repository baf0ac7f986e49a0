use super::*;
use crate::scenario::{read_scenario, scenario_text};
use proptest::prelude::*;

fn relay(number: u32, is_guard: bool, is_exit: bool) -> KnownRelay {
    KnownRelay {
        name: format!("r{number}"),
        country: Some("DE".into()),
        weight: u64::from(number) + 1,
        is_guard,
        is_exit,
        observed: Some(Rate::from_byte_per_s(2000 * (u64::from(number) + 1))),
        limit: None,
    }
}

/// A thousand of each kind, except exits that are not guards: two hundred.
fn whole_network() -> Vec<KnownRelay> {
    let kind =
        |count, is_guard, is_exit| (0..count).map(move |number| relay(number, is_guard, is_exit));
    kind(1000, true, true)
        .chain(kind(200, false, true))
        .chain(kind(1000, true, false))
        .chain(kind(1000, false, false))
        .collect()
}

fn wanted(scale: f64, seed: u64) -> Wanted {
    Wanted { scale, seed, models: None }
}

proptest! {
    #[test]
    fn a_sample_has_the_whole_networks_kinds_and_weights_at_any_scale(
        scale in 0.02f64..3.0, seed: u64,
    ) {
        let all = whole_network();
        let network = sample(&all, &wanted(scale, seed)).expect("it works").network;
        let of = |is_guard, is_exit| {
            let kind = network.relays.iter().filter(|relay| (relay.is_guard, relay.is_exit) == (is_guard, is_exit));
            let weights: Vec<u64> = kind.map(|kind| kind.weight).collect();
            (weights.len() as f64, weights.iter().sum::<u64>() as f64)
        };
        for (is_guard, is_exit, count) in
            [(true, true, 1000.0), (false, true, 200.0), (true, false, 1000.0), (false, false, 1000.0)]
        {
            let (relays, weight) = of(is_guard, is_exit);
            prop_assert!((relays - count * scale).abs() <= 0.5);
            // Strata: the mean is off by at most a stratum's width.
            let mean: f64 = (count + 1.0) / 2.0;
            prop_assert!((weight / relays - mean).abs() <= count / relays + 1.0);
        }
    }
}

#[test]
fn a_seed_determines_the_sample() {
    let all = whole_network();
    let of_seed = |seed| sample(&all, &wanted(0.1, seed)).expect("it works").network.relays;
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn unknown_values_are_guessed_and_counted() {
    let mut all = whole_network();
    for relay in all.iter_mut().filter(|relay| relay.is_exit) {
        (relay.country, relay.observed) = (None, None);
    }
    let drawn = sample(&all, &wanted(0.1, 1)).expect("it works");
    assert_eq!((drawn.guessed_countries, drawn.guessed_rates), (120, 120));
    // The ratio of the others: 2,000 bytes per second per weight, and at least the minimum.
    for relay in &drawn.network.relays {
        let expected = Rate::from_byte_per_s(2000 * relay.weight).max(LEAST_RATE);
        assert_eq!(relay.site.up, expected, "{relay:?}");
    }
}

#[test]
fn networks_without_exits_or_too_few_relays_are_refused() {
    let without: Vec<KnownRelay> =
        whole_network().into_iter().filter(|relay| !relay.is_exit).collect();
    let error = sample(&without, &wanted(0.1, 1)).expect_err("no exit").to_string();
    assert!(error.contains("lets streams out"), "{error}");
    let two = [relay(1, true, true), relay(2, true, false)];
    let error = sample(&two, &wanted(0.001, 1)).expect_err("two relays").to_string();
    assert!(error.contains("three relays"), "{error}");
}

#[test]
fn a_sample_is_read_back_from_its_scenario() {
    let network = sample(&whole_network(), &wanted(0.05, 3)).expect("it works").network;
    let text = scenario_text(&network, None).expect("it can be written");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, &text).expect("a file");
    let read = read_scenario(&path).expect("it can be read");
    assert_eq!(read.relays, network.relays);
    let places = |network: &Network| {
        let clients = network.clients.iter().map(|client| &client.site);
        let mut all: Vec<(String, Rate)> = network
            .servers
            .iter()
            .chain(clients)
            .map(|server| (server.country.clone(), server.up))
            .collect();
        all.sort();
        all
    };
    assert_eq!(places(&read), places(&network));
}

/// Descriptors are claims: a limit of zero, or more than any line carries.
#[test]
fn extreme_descriptors_still_make_a_valid_scenario() {
    let mut all = whole_network();
    for (number, relay) in all.iter_mut().enumerate() {
        relay.limit = Some(Rate::from_byte_per_s([0, 1, u64::MAX / 8][number % 3]));
        relay.observed = Some(Rate::from_byte_per_s([1, u64::MAX / 8][number % 2]));
        relay.country = [None, Some("??".to_owned()), Some("DE".to_owned())][number % 3].clone();
    }
    let drawn = sample(&all, &wanted(0.05, 1)).expect("it works").network;
    let text = scenario_text(&drawn, None).expect("it can be written");
    let read = Network::parse(&text, std::path::Path::new("sample.toml")).expect("a scenario");
    assert_eq!(read.relays.len(), drawn.relays.len());
}

#[test]
fn a_consensus_without_weights_is_refused_with_that_reason() {
    let all: Vec<KnownRelay> =
        whole_network().into_iter().map(|relay| KnownRelay { weight: 0, ..relay }).collect();
    let error = sample(&all, &wanted(0.1, 1)).expect_err("nothing to draw by").to_string();
    assert!(error.contains("all 3200 relays of the consensus have a weight of 0"), "{error}");
}
