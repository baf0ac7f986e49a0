use super::*;
use crate::netdir::tests::{netdir, relay};
use crate::path::select_probe_path;
use crate::strategy::{Strategy, Uniform, Weighted};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const WEB: Need = Need::Port { port: 443, is_ipv6: false };

fn study<'a>(netdir: &'a NetDir, strategy: &'a dyn Strategy, pairs: usize) -> Study<'a> {
    Study {
        netdir,
        strategy,
        rules: PathRules { distinct_subnets: false },
        need: WEB,
        legs: 1,
        pairs,
    }
}

fn with_weights(weights: &[u32]) -> NetDir {
    netdir((1..).zip(weights).map(|(number, weight)| {
        let mut weighed = relay(number);
        weighed.weight_kb_s = *weight;
        weighed
    }))
}

fn run(study: Study<'_>, adversaries: &[Adversary]) -> Anonymity {
    study.run(adversaries, &mut StdRng::seed_from_u64(5)).expect("paths")
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn equal_relays_have_maximum_entropy() {
    let network = with_weights(&[1000; 16]);
    let found = run(study(&network, &Uniform, 1000), &[]);
    assert!(near(found.exit.entropy_bits, 4.0) && near(found.guard.entropy_bits, 4.0));
    assert!(near(found.middle.entropy_bits, 4.0) && near(found.exit.degree(), 1.0));
    let expected = (16.0_f64 * 15.0 * 14.0).log2();
    assert!(near(found.path_bits, expected), "{found:?}");
    assert!(near(found.exit.largest_share, 1.0 / 16.0) && near(found.stuck, 0.0));
}

#[test]
fn k_of_n_equal_relays_have_both_ends_of_k_times_k_minus_1_in_n_times_n_minus_1_paths() {
    let network = with_weights(&[1000; 20]);
    let adversary = Adversary::new("five", (1..=5).map(|number| RsaId([number; 20])));
    let found = run(study(&network, &Uniform, 1000), &[adversary]);
    assert!(near(found.compromised[0], 5.0 * 4.0 / (20.0 * 19.0)), "{found:?}");
}

#[test]
fn each_leg_of_a_tunnel_is_another_chance_for_the_adversary() {
    let network = with_weights(&[1000; 20]);
    let adversary = Adversary::new("five", (1..=5).map(|number| RsaId([number; 20])));
    let with_legs = |legs| {
        run(Study { legs, ..study(&network, &Uniform, 1000) }, std::slice::from_ref(&adversary))
    };
    let three = with_legs(3);
    // Four or five of 19 first relays, if the exit is the adversary's or not.
    let [with_exit, without] = [4.0, 5.0].map(|bad: f64| 1.0 - (1.0 - bad / 19.0).powi(3));
    assert!(near(three.compromised[0], 0.25 * with_exit), "{three:?}");
    assert!(near(three.observed[0], 0.25 * with_exit + 0.75 * without), "{three:?}");
    assert_eq!((three.path_bits, three.guard), (with_legs(1).path_bits, with_legs(1).guard));
}

#[test]
fn selection_by_weight_prefers_large_relays_and_has_less_entropy() {
    let network = with_weights(&[9000, 9000, 9000, 100, 100, 100, 100, 100, 100, 100]);
    let mut rng = StdRng::seed_from_u64(1);
    let adversary = Adversary::with_weight(&network, 0.975, Weights::Largest, &mut rng);
    assert_eq!(adversary.len(), 3);
    let adversaries = [adversary];
    let alike = run(study(&network, &Uniform, 1000), &adversaries);
    let weighted = run(study(&network, &Weighted, 1000), &adversaries);
    assert!(weighted.path_bits < alike.path_bits);
    assert!(weighted.compromised[0] > 10.0 * alike.compromised[0]);
}

#[test]
fn without_a_path_there_is_no_result() {
    let none = with_weights(&[]);
    let mut rng = StdRng::seed_from_u64(1);
    assert_eq!(study(&none, &Uniform, 9).run(&[], &mut rng), Err(NoPath::Exit));
    let two = with_weights(&[1, 1]);
    assert_eq!(study(&two, &Uniform, 9).run(&[], &mut rng), Err(NoPath::Middle));
}

#[test]
fn a_sample_of_pairs_agrees_with_all_pairs_within_its_error() {
    let weights: Vec<u32> = (1..=40).map(|number| number * number).collect();
    let network = with_weights(&weights);
    let exact = run(study(&network, &Weighted, 2000), &[]);
    let sampled = run(study(&network, &Weighted, 300), &[]);
    assert!(near(exact.path_bits_error, 0.0) && sampled.path_bits_error > 0.0);
    let apart = (exact.path_bits - sampled.path_bits).abs();
    assert!(apart < 5.0 * sampled.path_bits_error, "{exact:?} {sampled:?}");
    assert!((exact.middle.entropy_bits - sampled.middle.entropy_bits).abs() < 0.05);
}

/// The figures are those of what is really drawn.
#[test]
fn drawn_paths_match_the_computed_shares() {
    const DRAWS: u32 = 20_000;
    let network = with_weights(&[100, 200, 300, 400, 500, 600]);
    let his = |relay: &RelayInfo| relay.fingerprint.0[0] >= 5;
    let adversary = Adversary::new("two", [5, 6].map(|number| RsaId([number; 20])));
    let found = run(study(&network, &Weighted, 1000), &[adversary]);
    let mut rng = StdRng::seed_from_u64(9);
    let rules = PathRules { distinct_subnets: false };
    let mut both = 0;
    for _ in 0..DRAWS {
        let path =
            select_probe_path(&network, &Weighted, rules, Some(WEB), 3, &mut rng).expect("a path");
        both += u32::from(his(path[0]) && his(path[2]));
    }
    let share = f64::from(both) / f64::from(DRAWS);
    // Five standard deviations.
    let most = 5.0 * (share * (1.0 - share) / f64::from(DRAWS)).sqrt();
    assert!((share - found.compromised[0]).abs() < most, "{share} {found:?}");
}

proptest! {
    #[test]
    fn results_are_within_their_bounds(
        weights in prop::collection::vec(0_u32..10_000, 3..12),
        first in prop::collection::btree_set(1_u8..12, 0..6), more in 1_u8..12,
    ) {
        let network = with_weights(&weights);
        let of = |set: &std::collections::BTreeSet<u8>| {
            Adversary::new("some", set.iter().map(|number| RsaId([*number; 20])))
        };
        let mut larger = first.clone();
        larger.insert(more);
        let adversaries = [of(&first), of(&larger), of(&(1..12).collect())];
        for strategy in [&Uniform as &dyn Strategy, &Weighted] {
            let found = run(study(&network, strategy, 10_000), &adversaries);
            for choice in [found.guard, found.middle, found.exit] {
                prop_assert!(choice.entropy_bits >= -1e-9);
                prop_assert!(choice.entropy_bits <= choice.most_bits() + 1e-9, "{:?}", found);
                // The least entropy for the largest share.
                prop_assert!(choice.entropy_bits >= -choice.largest_share.log2() - 1e-9);
            }
            let most = (weights.len() as f64).log2() * 3.0;
            prop_assert!(found.path_bits >= -1e-9 && found.path_bits <= most + 1e-9);
            let [some, more, all] = found.compromised[..] else { panic!() };
            prop_assert!(some <= more + 1e-9, "more relays see no fewer paths");
            prop_assert!((0.0..=1.0 + 1e-9).contains(&some) && near(all, 1.0), "{}", all);
        }
    }
}

#[test]
fn without_weights_relays_are_chosen_uniformly_and_an_adversary_has_its_share() {
    let network = with_weights(&[0; 20]);
    let mut rng = StdRng::seed_from_u64(1);
    let adversaries = [Weights::Largest, Weights::Random]
        .map(|which| Adversary::with_weight(&network, 0.1, which, &mut rng));
    assert!(adversaries.iter().all(|adversary| adversary.len() == 2), "{adversaries:?}");
    let weighted = run(study(&network, &Weighted, 1000), &adversaries);
    let alike = run(study(&network, &Uniform, 1000), &adversaries);
    assert_eq!(weighted, alike);
    assert!(near(weighted.compromised[0], 2.0 / (20.0 * 19.0)), "{weighted:?}");
}

#[test]
fn a_strategy_without_data_for_the_network_has_no_path() {
    let network = with_weights(&[1000; 5]);
    let text = format!("1600000000\nnode_id={} bw=5\n", RsaId([77; 20]));
    let file = netdoc::BandwidthFile::parse(text.as_bytes()).expect("a file").file;
    let measured = crate::strategy::Measured::new(&file);
    let rng = &mut StdRng::seed_from_u64(1);
    assert_eq!(study(&network, &measured, 10).run(&[], rng), Err(NoPath::Unmeasured));
    let rules = PathRules { distinct_subnets: false };
    assert_eq!(
        select_probe_path(&network, &measured, rules, None, 3, rng).err(),
        Some(NoPath::Unmeasured)
    );
    let first = Some(RsaId([1; 20]));
    let chosen = crate::path::select_path(&network, &measured, rules, WEB, rng, |_| first);
    assert_eq!(chosen.err(), Some(NoPath::Unmeasured));
}
