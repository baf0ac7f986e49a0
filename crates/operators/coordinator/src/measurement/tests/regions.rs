//! Teams with measurers at different distances, and the use of observations in later periods.

use super::lab::quiet;
use super::scene::{Coordinator, Kind, Path, Scene, measure_by_all};
use super::*;
use crate::PathParams;
use std::format;

/// The parameters for distant relays.
fn params() -> Params {
    let path = PathParams { first_sockets: 8, lead_s: 4, probes: true, few_circuits_s: 0 };
    Params { path, ..quiet() }
}

const TEAM: [f64; 3] = [900.0, 800.0, 700.0];

/// Paths of these lengths from separate hosts, with equal loss.
fn paths(rtts_ms: [u64; 3], loss_ppm: u64) -> Vec<Path> {
    let path = |(host, rtt_ms)| Path { loss_ppm, ..Path::new(host, rtt_ms) };
    (1..).zip(rtts_ms).map(path).collect()
}

#[test]
fn a_relay_far_from_all_measurers_is_measured_as_accurately_as_a_near_one() {
    for loss_ppm in [0, 200, 500] {
        let near = Scene::new(150.0, &paths([5, 20, 40], loss_ppm));
        let far = Scene::new(150.0, &paths([250, 280, 300], loss_ppm));
        let mut coordinator = Coordinator::new(&TEAM, &[1, 2, 3]);
        for period in 1..=3 {
            let both = [(1, &near), (2, &far)].map(|(relay, scene)| {
                let found = coordinator.measure(relay, scene, 150.0, params());
                let what = format!("period {period}, {loss_ppm} ppm: {}", found.record);
                assert!(found.estimate.is_conclusive(), "{what}");
                assert!((0.95..=1.0).contains(&found.ratio(scene)), "{what}");
                found
            });
            // The number of sockets for its distance is known from the second period on; sometimes half of it is tried.
            let turns = both.map(|found| found.turns.len());
            assert!(period == 1 || (turns[0] == 1 && turns[1] <= 2), "{loss_ppm} ppm: {turns:?}");
        }
    }
}

#[test]
fn a_measurer_limited_by_its_path_is_replaced_in_the_next_period() {
    for kind in [Kind::Queue, Kind::Policer] {
        let mut scene = Scene::new(200.0, &paths([40, 40, 40], 0));
        scene.paths[0].bottleneck = Some((mbit(20.0), kind));
        let mut coordinator = Coordinator::new(&TEAM, &[1, 2, 3]);
        let turns: Vec<Vec<Vec<(usize, f64)>>> = (0..2)
            .map(|_| {
                let found = coordinator.measure(1, &scene, 200.0, params());
                assert!(found.estimate.is_conclusive(), "{kind:?}: {}", found.record);
                assert!((0.95..=1.0).contains(&found.ratio(&scene)), "{kind:?}: {}", found.record);
                found.turns
            })
            .collect();
        assert!(turns[0].len() > 1, "the bottleneck was not known: {turns:?}");
        let [second] = &turns[1][..] else { panic!("{kind:?}: {turns:?}") };
        let members: Vec<usize> = second.iter().map(|(member, _)| *member).collect();
        assert_eq!(members, [1, 2], "{kind:?}: the two others take part");
    }
}

#[test]
fn a_path_that_has_improved_is_used_again() {
    let mut scene = Scene::new(200.0, &paths([40, 40, 40], 0)[..2]);
    scene.paths[0].bottleneck = Some((mbit(20.0), Kind::Queue));
    // A measurer with more than half of the capacity is never left out.
    let mut coordinator = Coordinator::new(&[TEAM[0]; 2], &[1, 2]);
    let mut first_of = |scene: &Scene| {
        let found = coordinator.measure(1, scene, 200.0, params());
        let last = found.turns.last().expect("a turn");
        last.iter().find(|(member, _)| *member == 0).map_or(0.0, |(_, rate)| *rate)
    };
    let held = [first_of(&scene), first_of(&scene)];
    assert!(held.iter().all(|rate| (20.0..=25.1).contains(rate)), "{held:?}");
    scene.paths[0].bottleneck = None;
    assert!((20.0..=25.1).contains(&first_of(&scene)), "the improvement is not known yet");
    assert!(first_of(&scene) > 200.0);
}

#[test]
fn a_distant_relay_is_measured_conclusively_by_a_team_of_one() {
    let scene = Scene::new(200.0, &paths([40, 40, 40], 0)[..1]);
    let mut coordinator = Coordinator::new(&TEAM[..1], &[1]);
    let found = coordinator.measure(1, &scene, 200.0, params());
    assert!(found.estimate.is_conclusive() && found.turns.len() == 1, "{}", found.record);
}

#[test]
fn the_link_of_a_host_with_several_measurers_is_not_taken_for_the_relays() {
    let mut scene = Scene::new(200.0, &paths([40, 40, 40], 0));
    scene.paths[1].host = 1;
    scene.host_link = Some((1, mbit(30.0)));
    let (estimate, _) = measure_by_all(&scene, 200.0, &TEAM, true, params());
    assert!(estimate.is_conclusive() && estimate.capacity > mbit(190.0), "{estimate}");
    // This requires that the hosts are known.
    let (blind, _) = measure_by_all(&scene, 200.0, &TEAM, false, params());
    assert!(blind.capacity < mbit(31.0), "{blind}");
    let mut coordinator = Coordinator::new(&TEAM, &[1, 1, 3]);
    let found = coordinator.measure(1, &scene, 200.0, params());
    assert!(found.estimate.is_conclusive() && found.ratio(&scene) > 0.95, "{}", found.record);
}

#[test]
fn the_results_of_a_limited_measurer_do_not_hide_the_path_limit_of_another() {
    // The second gets 1.4 Mbit/s with half of its sockets and 2.8 with all: about a hundredth of the first one's rate.
    let mut scene = Scene::new(250.0, &[Path::new(1, 40), Path::new(2, 200)]);
    scene.paths[0].bottleneck = Some((mbit(100.0), Kind::Queue));
    scene.paths[1].loss_ppm = 10_000;
    let (estimate, _) = measure_by_all(&scene, 250.0, &TEAM[..2], true, params());
    let reason = estimate.inconclusive.expect("a lower bound");
    assert!(matches!(reason, Inconclusive::PathLimited { .. }), "{estimate}");
}
