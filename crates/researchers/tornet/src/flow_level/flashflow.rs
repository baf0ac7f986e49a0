//! FlashFlow: the coordinator's own [`Period`](coordinator::period::Period), with its measurers and relays as models.

mod team;

use super::scene::Scene;
use super::{CapacityValues, FlowBalancer, Played, Weighed};
use sim::world::SplitMix64;
use team::{Team, hours_after_begin, place_of};

/// FlashFlow with the paper's team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashFlow;

/// What a period found.
pub(super) struct Campaign {
    /// The capacity of each relay in bits per second; zero if it could not be measured.
    pub(super) capacities: Vec<f64>,
    /// When each was measured.
    pub(super) hours: Vec<Option<f64>>,
    /// The largest rate that all measurers sent.
    pub(super) server_bit_per_s: f64,
}

impl FlowBalancer for FlashFlow {
    fn name(&self) -> &'static str {
        "flashflow"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &[
            "none",
            "false-report",
            "client-claims",
            "part-time",
            "fast-when-measured",
            "one-host",
            "proxy",
        ]
    }

    /// A measurement fills what clients leave.
    fn depends_on_load(&self) -> bool {
        false
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let Campaign { capacities, hours, server_bit_per_s } = measure(scene, rng);
        let played = Played::once(capacities);
        Weighed { hours, server_bit_per_s, ..Weighed::new(played, CapacityValues::Provided) }
    }
}

/// Measures all relays of a scene as early as possible.
pub(super) fn measure(scene: &Scene, rng: &mut SplitMix64) -> Campaign {
    let mut team = Team::new(scene, rng);
    team.run();
    let mut campaign = Campaign {
        capacities: vec![0.0; scene.relays.len()],
        hours: vec![None; scene.relays.len()],
        server_bit_per_s: team.sent_max.as_bit_per_s() as f64,
    };
    for record in team.period.records() {
        let (place, Some(capacity)) = (place_of(record.relay.ids.rsa), record.capacity()) else {
            continue;
        };
        campaign.capacities[place] = capacity.as_bit_per_s() as f64;
        campaign.hours[place] = Some(hours_after_begin(record.ended_unix_s));
    }
    campaign
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::team::MEASURED_MIN;
    use super::*;

    fn weighed(attack: &str) -> (Weighed, Scene) {
        let scene = Scene::draw(&SceneOptions::with_attack(attack, 1));
        (FlashFlow.weigh(&scene, &mut SplitMix64::new(1)), scene)
    }

    #[test]
    fn honest_relays_are_all_measured_with_the_accuracy_of_the_model() {
        let (weighed, scene) = weighed("none");
        let ratios = weighed.weights.iter().zip(scene.capacities()).map(|(one, other)| one / other);
        for ratio in ratios {
            assert!((MEASURED_MIN - 0.01..=1.01).contains(&ratio), "{ratio}");
        }
        assert!(weighed.server_bit_per_s <= 3e9 + 1.0);
        let hours = weighed.hours_until(1.0).expect("all are measured");
        assert!(hours > 0.05, "{hours} h");
        assert!(weighed.weight_error(&scene).expect("weights") < 0.05);
    }

    /// Paper, §5: 1/(1-r).
    #[test]
    fn a_false_claim_about_clients_gains_a_third() {
        let (weighed, scene) = weighed("client-claims");
        let advantage = weighed.advantage(&scene);
        assert!((1.25..=1.41).contains(&advantage), "{advantage}");
    }

    #[test]
    fn a_relay_that_is_twice_as_fast_for_measurements_is_believed() {
        let (weighed, scene) = weighed("fast-when-measured");
        let advantage = weighed.advantage(&scene);
        assert!((1.8..=2.1).contains(&advantage), "{advantage}");
    }

    #[test]
    fn self_reports_are_not_used() {
        let (lying, scene) = weighed("false-report");
        assert_eq!(FlashFlow.weigh(&scene.before_attack(), &mut SplitMix64::new(1)), lying);
    }
}
