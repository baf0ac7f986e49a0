//! Bottlenecks other than the relay's, at any place and with any queueing: the verdicts on thousands of scenes.

use super::lab::quiet;
use super::scene::{Kind, Path, Scene, measure_by_all};
use super::*;
use crate::PathParams;
use std::collections::BTreeMap;
use std::println;

fn params() -> Params {
    let path = PathParams { first_sockets: 8, lead_s: 4, probes: true, few_circuits_s: 0 };
    Params { path, seconds: 12, ..quiet() }
}

/// A team's capacities, in Mbit/s.
const TEAMS: [&[f64]; 5] = [
    &[800.0, 800.0],
    &[400.0, 190.0],
    &[600.0, 100.0, 60.0],
    &[300.0, 300.0, 300.0],
    &[900.0, 50.0],
];

/// Round trips of its members, in milliseconds.
const RTTS_MS: [[u64; 3]; 3] = [[40; 3], [200; 3], [20, 200, 100]];

/// The relay's capacity, and the ratio of the guess to it.
const RELAYS: [f64; 3] = [60.0, 200.0, 600.0];
const GUESSES: [f64; 3] = [0.3, 1.0, 2.0];

/// The results for scenes of one kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    scenes: u32,
    conclusive: u32,
    /// Conclusive, and not within −10 % and +5 % of the relay's capacity.
    wrong: u32,
    /// The verdict names a measurer that was not limited by a cause of its own.
    misnamed: u32,
    /// Not conclusive, though the others, or the whole team if none is limited, have enough capacity to show the limit.
    wasted: u32,
}

impl Found {
    /// Adds a measurement. `narrow` is the measurer behind a bottleneck, if any. Returns whether the verdict is wrong.
    fn add(&mut self, scene: &Scene, guess: f64, team: &[f64], narrow: Option<usize>) -> bool {
        // A measurer that alone loses packets is limited by its path, too.
        let losing = scene.paths.iter().position(|path| path.loss_ppm > 500);
        let (estimate, measurement) = measure_by_all(scene, guess, team, true, params());
        let capacity = scene.capacity.as_mbit_per_s();
        let ratio = estimate.capacity.as_mbit_per_s() / capacity;
        let rounds = measurement.course().rounds;
        let mut named = rounds
            .iter()
            .flat_map(|round| &round.bottlenecks)
            .map(|bottleneck| bottleneck.measurer.0);
        let others = team.iter().enumerate().filter(|(place, _)| Some(*place) != narrow);
        let is_enough = others.map(|other| other.1).sum::<f64>() > 3.0 * capacity;
        let is_wrong = estimate.is_conclusive() && !(0.9..=1.05).contains(&ratio);
        self.scenes += 1;
        self.conclusive += u32::from(estimate.is_conclusive());
        self.wrong += u32::from(is_wrong);
        self.misnamed += u32::from(named.any(|measurer| Some(measurer) != narrow.or(losing)));
        self.wasted += u32::from(!estimate.is_conclusive() && is_enough);
        is_wrong
    }
}

/// Calls `visit` for all teams at all distances, with all relays and all guesses.
fn each_scene(mut visit: impl FnMut(&Scene, f64, &[f64])) {
    for team in TEAMS {
        for rtts_ms in RTTS_MS {
            for relay in RELAYS {
                let paths = (1..).zip(rtts_ms).map(|(host, rtt_ms)| Path::new(host, rtt_ms));
                let paths: Vec<Path> = paths.take(team.len()).collect();
                let scene = Scene::new(relay, &paths);
                GUESSES.iter().for_each(|guess| visit(&scene, guess * relay, team));
            }
        }
    }
}

#[test]
fn a_bottleneck_of_one_measurer_is_not_taken_for_the_relays_unless_it_has_no_queue_and_the_others_have_less()
 {
    let mut all: BTreeMap<&str, Found> = BTreeMap::new();
    each_scene(|clear, guess, team| {
        for (place, kind) in (0..team.len()).flat_map(|place| {
            [Kind::Queue, Kind::Policer, Kind::ReturnPath].map(|kind| (place, kind))
        }) {
            for share in [0.05, 0.2, 0.5] {
                let mut scene = clear.clone();
                let narrow = scene.capacity.scaled(share);
                scene.paths[place].bottleneck = Some((narrow, kind));
                let name = match kind {
                    Kind::Queue => "queue",
                    Kind::Policer => "policer",
                    Kind::ReturnPath => "return path",
                };
                let is_wrong = all.entry(name).or_default().add(&scene, guess, team, Some(place));
                // If no other has as much as it gets back, there is nothing to compare with.
                let others =
                    (0..team.len()).filter(|other| *other != place).map(|other| team[other]);
                let is_incomparable = others.fold(0.0, f64::max) * 0.75 < narrow.as_mbit_per_s();
                let may_be_wrong = kind != Kind::Queue && is_incomparable;
                assert!(!is_wrong || may_be_wrong, "{name}: {guess} Mbit/s, {team:?}, {scene:?}");
            }
        }
    });
    println!("{all:#?}");
    assert!(all.values().all(|found| found.misnamed == 0 && found.wasted == 0), "{all:#?}");
    assert!(all.values().all(|found| found.conclusive > found.scenes / 2), "{all:#?}");
}

#[test]
fn if_only_the_relay_is_a_bottleneck_no_measurer_is_named_and_no_measurement_is_wasted() {
    let mut all: BTreeMap<&str, Found> = BTreeMap::new();
    each_scene(|clear, guess, team| {
        for (name, is_link, losses_ppm) in [
            ("the relay, no loss", false, [0; 3]),
            ("the relay, the same loss", false, [200; 3]),
            ("the relay, loss of one path", false, [1000, 0, 0]),
            ("the relay's link", true, [0; 3]),
        ] {
            let mut scene = Scene { is_link, ..clear.clone() };
            for (path, loss_ppm) in scene.paths.iter_mut().zip(losses_ppm) {
                path.loss_ppm = loss_ppm;
            }
            let is_wrong = all.entry(name).or_default().add(&scene, guess, team, None);
            assert!(!is_wrong, "{name}: {guess} Mbit/s, {team:?}, {scene:?}");
        }
    });
    println!("{all:#?}");
    assert!(all.values().all(|found| found.misnamed == 0 && found.wasted == 0), "{all:#?}");
}
