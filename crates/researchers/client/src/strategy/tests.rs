use super::*;
use crate::netdir::tests::{netdir, relay, weighted};
use crate::path::select_relay;
use netdoc::consensus::Flag;
use rand::SeedableRng;
use rand::rngs::StdRng;

const POSITIONS: [Position; 3] = [Position::Guard, Position::Middle, Position::Exit];

#[test]
fn the_influence_bounds_the_ratio_of_selection_frequencies() {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(
        near(blend(0.3, 1.0), 0.3) && near(blend(0.3, 0.0), 1.0) && near(blend(0.5, 0.5), 0.75)
    );
    for influence in [0.0, 0.3, 0.9] {
        assert!(blend(1.0, influence) / blend(0.0, influence) <= 1.0 / (1.0 - influence) + 1e-12);
    }
    assert!(near(blend(7.0, 1.0), 1.0) && near(blend(-7.0, 1.0), 0.0));
}

#[test]
fn weighted_uses_the_consensus_weight_times_the_position_weight() {
    let names =
        [["Wgg", "Wgd", "Wgm", "Wgm"], ["Wmg", "Wmd", "Wmm", "Wme"], ["Weg", "Wed", "Wem", "Wee"]];
    for (position, names) in POSITIONS.into_iter().zip(names) {
        let kinds = [(true, false), (true, true), (false, false), (false, true)];
        for ((is_guard, is_exit), name) in kinds.into_iter().zip(names) {
            let mut one = relay(1);
            one.flags = [(is_guard, Flag::Guard), (is_exit, Flag::Exit)]
                .into_iter()
                .filter_map(|(is_set, flag)| is_set.then_some(flag))
                .collect();
            let network = weighted(netdir([one.clone()]), &[(name, 2500)]);
            let weight = Weighted.weight(&network, &one, position, &[]);
            assert!((weight - 250.0).abs() < 1e-9, "{position:?} {name}: {weight}");
            let other = weighted(netdir([one.clone()]), &[("Wxx", 2500)]);
            let weight = Weighted.weight(&other, &one, position, &[]);
            assert!((weight - 1000.0).abs() < 1e-9, "{position:?} without {name}: {weight}");
        }
    }
    // A bad exit is not an exit.
    let mut bad = relay(1);
    bad.flags = [Flag::Exit, Flag::BadExit].into_iter().collect();
    let network = weighted(netdir([bad.clone()]), &[("Wem", 0)]);
    assert_eq!(Weighted.weight(&network, &bad, Position::Exit, &[]), 0.0);
}

/// How often each of four relays, with weights 1 to 4, is drawn of 10,000 times.
fn drawn(strategy: &dyn Strategy) -> [f64; 4] {
    let relays = [1, 2, 3, 4].map(|number| {
        let mut weighed = relay(number);
        weighed.weight_kb_s = u32::from(number) * 100;
        weighed
    });
    let network = netdir(relays);
    let mut rng = StdRng::from_seed([7; 32]);
    let mut counts = [0.0; 4];
    for _ in 0..10_000 {
        let selected =
            select_relay(&network, strategy, Position::Middle, &[], false, &mut rng, |_| true);
        counts[usize::from(selected.expect("one").fingerprint.0[0]) - 1] += 1.0;
    }
    counts
}

#[test]
fn relays_are_drawn_in_proportion_to_their_weights_or_uniformly() {
    // Five standard deviations of the binomial distribution, at most 0.5 · √10,000 each.
    let is_near = |found: f64, expected: f64| (found - expected).abs() < 250.0;
    let by_weight = drawn(&Weighted);
    assert!((0..4).all(|at| is_near(by_weight[at], 1000.0 * (at + 1) as f64)), "{by_weight:?}");
    let alike = drawn(&Uniform);
    assert!(alike.into_iter().all(|count| is_near(count, 2500.0)), "{alike:?}");
}
