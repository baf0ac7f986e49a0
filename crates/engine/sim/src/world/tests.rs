mod direct;
mod scan;
mod small;
mod tcp;
mod team;
mod whole;

use super::markov::{Observation, State};
use super::{Candidate, Delay, HostId, MarkovModel, Paths, PositionWeights, SplitMix64};
use proptest::prelude::*;
use std::vec::Vec;

proptest! {
    #[test]
    fn a_relays_weight_is_divided_among_its_positions(
        g in 0.0..1e6f64, m in 0.0..1e6f64, e in 1.0..1e6f64, d in 0.0..1e6f64,
    ) {
        let PositionWeights { guard, middle, exit } = PositionWeights::of(g, m, e, d);
        let all = [guard[0], guard[1], middle[1], middle[2], middle[3], exit[0], exit[1]];
        prop_assert!(all.iter().all(|weight| (-1e-9..=1.0 + 1e-9).contains(weight)), "{all:?}");
        let is_one = |sum: f64| (sum - 1.0).abs() < 1e-9;
        prop_assert!(is_one(guard[0] + middle[1]), "guards: {all:?}");
        prop_assert!(is_one(exit[0] + middle[2]), "exits: {all:?}");
        prop_assert!(is_one(guard[1] + middle[3] + exit[1]), "both: {all:?}");
    }

    #[test]
    fn both_ends_of_a_stream_see_the_same_packets(seed: u64) {
        let model = a_model();
        prop_assert_eq!(model.packets(seed), model.packets(seed));
        let (to_server, to_client) = model.packets(seed).total_bytes();
        prop_assert_eq!((to_server % 1434, to_client % 1434), (0, 0));
        prop_assert!(to_server >= 1434, "the first packet goes to the server");
    }
}

/// A request, then several packets of an answer.
pub(super) fn a_model() -> MarkovModel {
    let asks = State {
        transitions: [(1.0, 2)].into(),
        emissions: [(1.0, Observation::ToServer, Delay::Uniform(0.0, 1000.0))].into(),
    };
    let answers = State {
        transitions: [(9.0, 2), (0.5, 1), (0.5, 3)].into(),
        emissions: [(1.0, Observation::ToClient, Delay::Exponential(1e-4))].into(),
    };
    let ends = State {
        transitions: Vec::new(),
        emissions: [(1.0, Observation::End, Delay::Uniform(0.0, 0.0))].into(),
    };
    let start = State { transitions: [(1.0, 1)].into(), emissions: Vec::new() };
    MarkovModel { states: [start, asks, answers, ends].into(), start: 0 }
}

#[test]
fn paths_follow_weights_and_never_repeat_a_relay() {
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let candidate = |number: u32| {
        let (is_guard, is_exit) = kinds[number as usize % 4];
        Candidate { host: HostId(number), weight: u64::from(number) + 1, is_guard, is_exit }
    };
    let all: Vec<Candidate> = (0..40).map(candidate).collect();
    let paths = Paths::new(&all);
    let mut rng = SplitMix64::new(7);
    let mut uses = [0u64; 40];
    for _ in 0..100_000 {
        let path = paths.draw(&mut rng, &[]).expect("there are relays for each position");
        let [guard, middle, exit] = path;
        assert!(guard != middle && middle != exit && guard != exit);
        assert!(all[guard as usize].is_guard && all[exit as usize].is_exit);
        path.iter().for_each(|relay| uses[*relay as usize] += 1);
    }
    // Over all positions, each relay is used in proportion to its weight, as far as classes allow; within a
    // class exactly.
    for class in 0..4 {
        let per_weight = |relay: usize| uses[relay] as f64 / (relay as f64 + 1.0);
        let (light, heavy) = (per_weight(20 + class), per_weight(36 + class));
        assert!((0.85..1.15).contains(&(light / heavy)), "class {class}: {light} {heavy}");
    }
}
