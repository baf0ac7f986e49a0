//! Who gives relays their weights: inside a simulated network, and from files.

use onion::{Duration, Rate};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tornet::Error;
use tornet::balance::{
    Balancer, Capacities, Conditions, FlashFlow, TorFlow, Weighing, WeightsFile,
};
use tornet::errors::{network_capacity_error, network_weight_error};
use tornet::network::Network;

/// Fifteen relays of three speeds that all weigh the same, and twenty clients.
fn small() -> Network {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/small.toml");
    let mut network = Network::read(&path).expect("a scenario").scaled(0.5);
    for (n, relay) in network.relays.iter_mut().enumerate() {
        let rate = Rate::from_mbit_per_s([20.0, 50.0, 100.0][n % 3]);
        (relay.site.up, relay.site.down, relay.weight) = (rate, rate, 5000);
    }
    network
}

fn weigh_on(balancer: &dyn Balancer, network: &Network, threads: u16) -> Result<Weighing, Error> {
    let stop = AtomicBool::new(false);
    let how = Conditions { seed: 1, threads, seconds_max: 600, stop: &stop, progress: &|_, _| () };
    balancer.weigh(network, &how)
}

fn weigh(balancer: &dyn Balancer, network: &Network) -> Weighing {
    weigh_on(balancer, network, 1).expect("it works")
}

fn numbers(all: &[u64]) -> Vec<f64> {
    all.iter().map(|number| f64::from(u32::try_from(*number).expect("small"))).collect()
}

fn nwe(weighing: &Weighing, network: &Network) -> f64 {
    network_weight_error(&numbers(&weighing.weights), &network.capacities()).expect("some weights")
}

/// The number of measurements that have begun.
fn rounds(weighing: &Weighing) -> u32 {
    let first = weighing.notes[0].split(' ').next();
    first.and_then(|word| word.parse().ok()).expect("a number")
}

fn flashflow() -> FlashFlow {
    let mut flashflow = FlashFlow::default();
    flashflow.params.seconds = 4;
    flashflow
}

#[test]
fn flashflow_finds_what_relays_can_and_torflow_comes_less_near() {
    let even = small();
    let before = nwe(&weigh(&WeightsFile(None), &even), &even);
    assert!(before > 0.1, "else there is nothing to find: {before}");
    let ours = weigh(&flashflow(), &even);
    assert_eq!(ours.not_measured, 0, "{:?}", ours.notes);
    assert!(nwe(&ours, &even) < 0.02, "{}", nwe(&ours, &even));
    let estimates = ours.estimates_bit_per_s.as_ref().expect("it estimates");
    let estimates = estimates.iter().map(|estimate| estimate.expect("all were measured") / 1000);
    let estimates = numbers(&estimates.collect::<Vec<_>>());
    let capacities: Vec<f64> = even.capacities().iter().map(|capacity| capacity / 1000.0).collect();
    let nce = network_capacity_error(&estimates, &capacities).expect("some capacity");
    // The share of headers is no capacity for cells.
    assert!((0.03..0.15).contains(&nce), "{nce}");
    let theirs = weigh(&TorFlow { downloads: 2, ..TorFlow::default() }, &even);
    assert!(nwe(&theirs, &even) > 3.0 * nwe(&ours, &even), "{}", nwe(&theirs, &even));
    assert!(nwe(&weigh(&Capacities, &even), &even) < 1e-3);
}

#[test]
fn what_balancers_find_does_not_depend_on_threads() {
    let network = small();
    for balancer in
        [&flashflow() as &dyn Balancer, &TorFlow { downloads: 1, at_once_per_100_relays: 20 }]
    {
        let one = weigh_on(balancer, &network, 1).expect("it works");
        let three = weigh_on(balancer, &network, 3).expect("it works");
        assert_eq!(one, three);
    }
}

/// Guesses of a tenth make several rounds, each with twice the load at least, until the answer is conclusive.
#[test]
fn flashflow_measures_again_what_was_expected_too_low() {
    let network = small();
    let low: Vec<u64> = network.relays.iter().map(|relay| (relay.weight / 10).max(1)).collect();
    let low = network.weighted(&low);
    // In few seconds the first, in which TCP begins, would make them unsteady.
    let mut flashflow = flashflow();
    flashflow.params.seconds = 8;
    let found = weigh(&flashflow, &low);
    assert!(nwe(&found, &low) < 0.02, "{}", nwe(&found, &low));
    assert!(rounds(&found) > 30, "{}", found.notes[0]);
    assert!(found.notes[0].contains(" 0 estimates are lower bounds"), "{:?}", found.notes);
}

/// A hundred and sixty handshakes would keep such a line busy for longer than there is time for set-up.
#[test]
fn flashflow_measures_the_slowest_relay_too() {
    let mut network = small();
    let slow = Rate::from_mbit_per_s(0.3);
    let relay = &mut network.relays[0];
    (relay.site.up, relay.site.down, relay.weight) = (slow, slow, 37);
    let mut flashflow = flashflow();
    // At 73 cells a second few seconds have no steady median.
    flashflow.params.seconds = 30;
    let found = weigh(&flashflow, &network);
    assert_eq!(found.not_measured, 0, "{:?}", found.notes);
    let estimates = found.estimates_bit_per_s.expect("it estimates");
    let found = estimates[0].expect("it was measured");
    assert!((200_000..300_000).contains(&found), "{found}");
}

/// A killed coordinator continues from its journal: it measures the relays whose result it does not have, and only these.
#[test]
fn a_coordinator_that_is_killed_twice_finds_the_same_weights_and_repeats_only_what_was_interrupted()
{
    let network = small();
    // Three relays at most at a time.
    let measurers = vec![("DE".into(), Rate::from_mbit_per_s(300.0))];
    let undisturbed = FlashFlow { measurers, ..flashflow() };
    let kills = [25, 60].map(Duration::from_secs);
    let killed = FlashFlow { coordinator_killed_after: kills.into(), ..undisturbed.clone() };
    let [before, after] = [undisturbed, killed].map(|balancer| weigh(&balancer, &network));
    assert!(before.simulated_s > 80.0, "it is killed in the middle: {}", before.simulated_s);
    assert_eq!(after.not_measured, 0, "{:?}", after.notes);
    let found = numbers(&after.weights);
    let error = network_weight_error(&found, &numbers(&before.weights)).expect("some weights");
    assert!(error < 0.01, "{error}");
    let [before, after] = [before, after].map(|weighing| rounds(&weighing));
    assert!((1..=6).contains(&(after - before)), "interrupted: {before} and {after} rounds");
}

/// A team that has less than a relay takes says that it does not know.
#[test]
fn a_small_team_says_that_its_estimates_are_lower_bounds() {
    let small_team =
        FlashFlow { measurers: vec![("DE".into(), Rate::from_mbit_per_s(40.0))], ..flashflow() };
    let found = weigh(&small_team, &small());
    assert!(!found.notes[0].contains(" 0 estimates are lower bounds"), "{}", found.notes[0]);
}

#[test]
fn who_asks_to_stop_gets_no_weights() {
    let stop = AtomicBool::new(true);
    let how =
        Conditions { seed: 1, threads: 2, seconds_max: 600, stop: &stop, progress: &|_, _| () };
    let stopped = flashflow().weigh(&small(), &how);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("it can be written");
    (folder, path)
}

#[test]
fn weights_come_from_tables_and_bandwidth_files_and_none_may_be_missing() {
    let network = small();
    let names: Vec<&str> = network.relays.iter().map(|relay| relay.site.name.as_str()).collect();
    let rows: String =
        names.iter().enumerate().map(|(n, name)| format!("{name},x,{}\n", n + 7)).collect();
    let (_folder, table) = file("weights.csv", &format!("relay,more,weight\n{rows}"));
    let expected: Vec<u64> = (7..).take(names.len()).collect();
    assert_eq!(weigh(&WeightsFile(Some(table)), &network).weights, expected);
    let line = |(n, name): (usize, &&str)| format!("node_id=$00 bw={} nick={name}\n", n + 7);
    let lines: String = names.iter().enumerate().map(line).collect();
    let (_folder, v3bw) = file("v3bw", &format!("946684801\n{lines}"));
    assert_eq!(weigh(&WeightsFile(Some(v3bw)), &network).weights, expected);
    let (_folder, short) = file("weights.csv", "relay,weight\nnobody,5\n");
    let error = weigh_on(&WeightsFile(Some(short)), &network, 1).expect_err("others are missing");
    assert!(error.to_string().contains("no weight for relay"), "{error}");
}
