//! TorFlow and sbws: downloads through each relay correct its self-report.
//!
//! TorFlow's PID controller and its slices of similar relays are not modelled, nor its 13 sizes of files: a download takes
//! the time that sbws aims at, and shows the rate of the moment.

use super::{CapacityValues, FlowBalancer, Scene, Weighed, normalise, play};
use crate::balance::{Scanned, scale_as_torflow};
use sim::world::SplitMix64;

/// Downloads through each relay in a round.
const DOWNLOADS: u32 = 5;

/// Rounds before the attack, and of it.
const ROUNDS: u32 = 12;

/// Simultaneous downloads of sbws, its `measurement_threads`.
pub(super) const AT_ONCE: f64 = 3.0;

/// The length of a download for which sbws chooses its size, 5 to 10 s, with a second for its circuit.
const DOWNLOAD_S: f64 = 8.5;

/// sbws' largest share of a relay in all weight.
const CAP: f64 = 0.05;

/// How downloads change weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// TorFlow: the self-report times the mean of a relay's downloads over that of all relays (FlashFlow's paper, §2).
    TorFlow,
    /// sbws: the larger of two such ratios, and at most 5 % of all weight.
    Sbws,
    /// sbws without that limit.
    SbwsUncapped,
    /// TorFlow-P of MLEFlow's paper: the last weight instead of the self-report.
    Probes,
}

/// A scanner that downloads files over circuits of two hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner(pub Scaling);

impl FlowBalancer for Scanner {
    fn name(&self) -> &'static str {
        match self.0 {
            Scaling::TorFlow => "torflow",
            Scaling::Sbws => "sbws",
            Scaling::SbwsUncapped => "sbws-uncapped",
            Scaling::Probes => "torflow-p",
        }
    }

    fn attacks(&self) -> &'static [&'static str] {
        match self.0 {
            Scaling::Probes => &["none", "fast-when-measured", "part-time"],
            _ => &[
                "none",
                "false-report",
                "false-report-fast-scanner",
                "fast-when-measured",
                "part-time",
            ],
        }
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let mut server_bit_per_s = 0.0f64;
        let played = play(scene, scene.even_weights(), ROUNDS, |scene, weights| {
            let places = 0..weights.len();
            let downloads: Vec<Vec<f64>> =
                places.map(|place| downloads(scene, place, weights[place], rng)).collect();
            let fastest = downloads.iter().flatten().copied().fold(0.0, f64::max);
            server_bit_per_s = server_bit_per_s.max(AT_ONCE * fastest);
            self.scale(scene, &weights, downloads)
        });
        Weighed {
            hours: scan_hours(scene.relays.len()),
            server_bit_per_s,
            ..Weighed::new(played, CapacityValues::Unavailable)
        }
    }
}

impl Scanner {
    /// The weights after a round.
    fn scale(&self, scene: &Scene, weights: &[f64], downloads: Vec<Vec<f64>>) -> Vec<f64> {
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
        let report = |place: usize| scene.self_report(place, weights[place]);
        let cap = if self.0 == Scaling::Sbws { CAP } else { 1.0 };
        let mut scaled: Vec<f64> = match self.0 {
            Scaling::TorFlow | Scaling::Probes => {
                let ratios = downloads.iter().map(|all| mean(all));
                let base =
                    |place| if self.0 == Scaling::Probes { weights[place] } else { report(place) };
                ratios.enumerate().map(|(place, ratio)| base(place) * ratio).collect()
            }
            Scaling::Sbws | Scaling::SbwsUncapped => {
                let scanned = downloads.into_iter().enumerate().map(|(place, bit_per_s)| Scanned {
                    observed_byte_per_s: report(place) / 8.0,
                    downloads_byte_per_s: bit_per_s.into_iter().map(|rate| rate / 8.0).collect(),
                });
                let scaled = scale_as_torflow(&scanned.collect::<Vec<_>>(), cap);
                scaled.into_iter().map(|weight| weight.unwrap_or(0) as f64).collect()
            }
        };
        normalise(&mut scaled);
        scaled
    }
}

/// The rates of a round's downloads through a relay with this share of all weight.
fn downloads(scene: &Scene, place: usize, share: f64, rng: &mut SplitMix64) -> Vec<f64> {
    let mut download = |_| {
        let flows = scene.flows(share, rng);
        scene.download(place, flows, rng)
    };
    (0..DOWNLOADS).map(&mut download).collect()
}

/// When each relay has been scanned for the first time.
pub(super) fn scan_hours(relays: usize) -> Vec<Option<f64>> {
    let each = f64::from(DOWNLOADS) * DOWNLOAD_S / AT_ONCE / 3600.0;
    (1..=relays).map(|scanned| Some(scanned as f64 * each)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::*;

    fn advantage(scaling: Scaling, attack: &str) -> f64 {
        advantage_at(Some(0.5), scaling, attack)
    }

    fn advantage_at(load: Option<f64>, scaling: Scaling, attack: &str) -> f64 {
        let scene = Scene::draw(&SceneOptions { load, ..SceneOptions::with_attack(attack, 1) });
        Scanner(scaling).weigh(&scene, &mut SplitMix64::new(1)).advantage(&scene)
    }

    /// Thill has shown a factor of 89, and PeerFlow's authors 177. Here 500 is all weight.
    #[test]
    fn a_false_report_gains_more_from_torflow_than_an_overloaded_relay_loses() {
        let honest = advantage(Scaling::TorFlow, "none");
        assert!((0.7..1.4).contains(&honest), "{honest}");
        let lying = advantage(Scaling::TorFlow, "false-report");
        assert!((50.0..250.0).contains(&lying), "{lying}");
        let fast = advantage(Scaling::TorFlow, "false-report-fast-scanner");
        assert!(fast > 400.0, "{fast}");
    }

    /// The limit is a share of a sum that contains the false report.
    #[test]
    fn the_limit_for_a_relay_is_no_bound_on_its_advantage() {
        let capped = advantage(Scaling::Sbws, "false-report-fast-scanner");
        let uncapped = advantage(Scaling::SbwsUncapped, "false-report-fast-scanner");
        assert!(capped > 25.0 && capped < 0.75 * uncapped, "{capped} instead of {uncapped}");
    }

    #[test]
    fn without_self_reports_only_downloads_can_be_falsified() {
        assert!(!Scanner(Scaling::Probes).attacks().contains(&"false-report"));
        let advantage = advantage_at(None, Scaling::Probes, "fast-when-measured");
        assert!(
            advantage > 10.0,
            "a relay that always looks empty gets more in each round: {advantage}"
        );
    }

    #[test]
    fn a_scan_of_the_whole_network_takes_more_than_a_day() {
        let hours = scan_hours(6419);
        assert!((24.0..48.0).contains(&hours[6418].expect("all are scanned")));
    }
}
