//! The median of what other relays observed of a relay (Snader and Borisov, "A Tune-up for Tor").

use super::peer_speeds::PeerSpeeds;
use super::{CapacityValues, FlowBalancer, Played, Scene, Weighed, normalise};
use sim::world::SplitMix64;

/// Relays publish their observations with their descriptors, at the latest after 18 hours (dir-spec §2.1).
pub(super) const PUBLISHED_AFTER_HOURS: f64 = 18.0;

/// The unweighted median of observed rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMedian;

impl FlowBalancer for PeerMedian {
    fn name(&self) -> &'static str {
        "peer-median"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none", "mutual-praise", "mutual-praise-many", "sybils"]
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let mut speeds = PeerSpeeds::observe(scene, rng, medians);
        let adversaries: Vec<usize> = scene.adversaries().collect();
        if !scene.behavior.carries_traffic {
            speeds.separate(&adversaries);
        }
        if scene.behavior.praise_factor > 1.0 {
            let most = medians(&speeds).into_iter().fold(0.0, f64::max);
            let largest = speeds.row(0).iter().copied().fold(most, f64::max);
            for one in &adversaries {
                // The reports about others are as low as possible; zero is none.
                speeds.row_mut(*one).iter_mut().for_each(|rate| *rate = 1.0);
                for other in adversaries.iter().filter(|other| *other != one) {
                    speeds.set(*one, *other, largest * scene.behavior.praise_factor);
                }
            }
        }
        let weights = medians(&speeds);
        let hours = weights.iter().map(|weight| (*weight > 0.0).then_some(PUBLISHED_AFTER_HOURS));
        let hours = hours.collect();
        let played = Played::once(weights);
        Weighed { hours, ..Weighed::new(played, CapacityValues::Unavailable) }
    }
}

/// The median of the reports on each relay. Relays that have not met it have none.
fn medians(speeds: &PeerSpeeds) -> Vec<f64> {
    let relays = speeds.relays();
    let median = |observed| {
        let mut reports: Vec<f64> = (0..relays)
            .filter(|observer| *observer != observed)
            .map(|observer| speeds.get(observer, observed))
            .filter(|rate| *rate > 0.0)
            .collect();
        reports.sort_by(f64::total_cmp);
        reports.get(reports.len() / 2).copied().unwrap_or(0.0)
    };
    let mut weights: Vec<f64> = (0..relays).map(median).collect();
    normalise(&mut weights);
    weights
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::*;

    fn advantage(attack: &str) -> f64 {
        let scene =
            Scene::draw(&SceneOptions { relays: 150, ..SceneOptions::with_attack(attack, 1) });
        PeerMedian.weigh(&scene, &mut SplitMix64::new(1)).advantage(&scene)
    }

    /// FlashFlow's paper, §8: the median is vulnerable to Sybils, since it is unweighted.
    #[test]
    fn a_few_liars_move_a_median_little_and_sybils_are_all_of_it() {
        let honest = advantage("none");
        assert!(advantage("mutual-praise") < 1.3 * honest);
        assert!(advantage("sybils") > 35.0);
    }
}
