//! The results of a balancer under an attack, over seeds.

use crate::columns::{rounded, with_interval};
use crate::simulated::Interval;
use report::experiment::{Case, CaseVerdict};
use serde::{Deserialize, Serialize};
use tornet::flow_level::{Attack, Downloads, Role, Scene, Weighed};

/// Attacks on FlashFlow that its paper concedes (§5): relays that are fast only for measurements, with capacity of their own
/// or of another host, and several relays on a host that nobody knows to be one.
pub(super) const CONCEDED: [&str; 3] = ["fast-when-measured", "one-host", "proxy"];

/// FlashFlow's bound, 1/(1-r) at r = 0.25, as the paper rounds it.
const BOUND: f64 = 1.34;

/// The share of the relays for which the paper's table has PeerFlow's time.
const MOST: f64 = 0.968;

/// The size of the download whose time is reported: the largest of Tor's own measuring clients, 5 MiB.
const DOWNLOAD_BITS: f64 = 5.0 * 1024.0 * 1024.0 * 8.0;

/// Downloads of honest clients with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Speeds {
    /// The median time of a download, in seconds; `None` if all weight is at relays that carry nothing.
    pub(super) median_s: Option<f64>,
    /// That over the median time without the attack.
    pub(super) over_no_attack: Option<f64>,
    /// Circuits with a relay that carries nothing.
    pub(super) failed_circuits_percent: f64,
    /// Without an attack, the median rate over that with TorFlow's weights.
    pub(super) over_torflow: Option<f64>,
    /// Without an attack, the mean rate over that with TorFlow's weights.
    pub(super) mean_over_torflow: Option<f64>,
}

impl Speeds {
    pub(super) fn new(
        found: &Downloads,
        calm: Option<&Downloads>,
        torflow: Option<&Downloads>,
    ) -> Self {
        let over = |rate: f64, other: f64| (other > 0.0).then(|| rate / other);
        let median = found.median_bit_per_s();
        Self {
            median_s: over(DOWNLOAD_BITS, median),
            over_no_attack: calm.and_then(|calm| over(calm.median_bit_per_s(), median)),
            failed_circuits_percent: 100.0 * found.failed_circuits_share,
            over_torflow: torflow.and_then(|torflow| over(median, torflow.median_bit_per_s())),
            mean_over_torflow: torflow
                .and_then(|torflow| over(found.mean_bit_per_s(), torflow.mean_bit_per_s())),
        }
    }
}

/// The result with a seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SeedResult {
    pub(super) advantage: f64,
    pub(super) first_advantage: f64,
    pub(super) weight_error: f64,
    pub(super) hours_until_most: Option<f64>,
    pub(super) hours_until_all: Option<f64>,
    pub(super) server_gbit_per_s: f64,
    pub(super) honest_removed_percent: f64,
    pub(super) capacity_values: String,
    pub(super) speeds: Speeds,
}

impl SeedResult {
    pub(super) fn new(weighed: &Weighed, scene: &Scene, speeds: Speeds) -> Self {
        let honest = scene.relays.iter().filter(|relay| relay.role != Role::Adversary).count();
        Self {
            advantage: weighed.advantage(scene),
            first_advantage: weighed.first_advantage(scene),
            weight_error: weighed.weight_error(scene).unwrap_or(1.0),
            hours_until_most: weighed.hours_until(MOST),
            hours_until_all: weighed.hours_until(1.0),
            server_gbit_per_s: weighed.server_bit_per_s / 1e9,
            honest_removed_percent: 100.0 * weighed.honest_removed as f64 / honest as f64,
            capacity_values: weighed.capacities.word().to_owned(),
            speeds,
        }
    }
}

/// The case of an attack. FlashFlow must keep its bound; other balancers have no expectation.
pub(super) fn case_of(name: &str, balancer: &str, attack: &Attack, seeds: &[SeedResult]) -> Case {
    let interval = |of: fn(&SeedResult) -> f64| Interval::of(seeds.iter().map(of));
    let advantage = interval(|seed| seed.advantage);
    let detail = format!("advantage {advantage:.2}: {}", attack.description);
    let is_judged = balancer == "flashflow" && !CONCEDED.contains(&attack.name);
    let verdict = match is_judged {
        true => CaseVerdict::of(advantage.mean <= BOUND),
        false => CaseVerdict::Reported,
    };
    let case = Case::named(name).ended(verdict, detail);
    let case = column(case, "advantage", advantage, 3);
    let case = column(case, "first_advantage", interval(|seed| seed.first_advantage), 3);
    let case = column(case, "weight_error", interval(|seed| seed.weight_error), 4);
    // Only if all seeds have such a value.
    let of_all = |of: fn(&SeedResult) -> Option<f64>| {
        let values: Option<Vec<f64>> = seeds.iter().map(of).collect();
        values.map(Interval::of)
    };
    let mean_hours = |of| of_all(of).and_then(|hours| rounded(hours.mean, 2));
    let optional = |case: Case, name: &str, value: Option<Interval>| match value {
        Some(value) => column(case, name, value, 3),
        None => with_interval(case, name, f64::NAN, None, 3),
    };
    let case = optional(case, "download_s", of_all(|seed| seed.speeds.median_s));
    let case =
        optional(case, "download_s_over_no_attack", of_all(|seed| seed.speeds.over_no_attack));
    let case = optional(case, "speed_over_torflow", of_all(|seed| seed.speeds.over_torflow));
    let case =
        optional(case, "mean_speed_over_torflow", of_all(|seed| seed.speeds.mean_over_torflow));
    let failed = interval(|seed| seed.speeds.failed_circuits_percent).mean;
    let case = case.column("failed_circuits_percent", rounded(failed, 2));
    case.column("hours_until_96_8_percent", mean_hours(|seed| seed.hours_until_most))
        .column("hours_until_all", mean_hours(|seed| seed.hours_until_all))
        .column("server_gbit_per_s", rounded(interval(|seed| seed.server_gbit_per_s).mean, 3))
        .column("capacity_values", seeds.first().map(|seed| seed.capacity_values.clone()))
        .column(
            "honest_removed_percent",
            rounded(interval(|seed| seed.honest_removed_percent).mean, 1),
        )
        .column("adversary_capacity_percent", rounded(100.0 * attack.capacity_share, 1))
}

fn column(case: Case, name: &str, value: Interval, digits: i32) -> Case {
    let ends = value.half_width.map(|half| (value.mean - half, value.mean + half));
    with_interval(case, name, value.mean, ends, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(advantage: f64) -> SeedResult {
        SeedResult {
            advantage,
            first_advantage: 1.0,
            weight_error: 0.1,
            hours_until_most: Some(2.0),
            hours_until_all: (advantage < 2.0).then_some(3.0),
            server_gbit_per_s: 3.0,
            honest_removed_percent: 0.0,
            capacity_values: "provided".to_owned(),
            speeds: Speeds::new(&downloads(1.0), Some(&downloads(advantage)), None),
        }
    }

    fn downloads(median: f64) -> Downloads {
        Downloads { bit_per_s: vec![0.5, median * DOWNLOAD_BITS, 9e9], failed_circuits_share: 0.1 }
    }

    #[test]
    fn only_flashflow_is_judged_and_not_for_what_its_paper_concedes() {
        let verdict = |balancer: &str, attack: &str, advantage: f64| {
            let attack = Attack::named(attack).expect("one of the table");
            case_of("case", balancer, &attack, &[seed(advantage), seed(advantage)]).verdict
        };
        assert_eq!(verdict("flashflow", "client-claims", 1.33), CaseVerdict::Held);
        assert_eq!(verdict("flashflow", "client-claims", 1.35), CaseVerdict::Missed);
        assert_eq!(verdict("flashflow", "proxy", 4.0), CaseVerdict::Reported);
        assert_eq!(verdict("torflow", "false-report", 50.0), CaseVerdict::Reported);
    }

    #[test]
    fn a_time_that_a_seed_lacks_is_not_a_mean_of_the_others() {
        let attack = Attack::named("none").expect("the first");
        let case = case_of("case", "sybils", &attack, &[seed(1.0), seed(3.0)]);
        assert_eq!(case.value("hours_until_96_8_percent"), Some(&2.0.into()));
        assert_eq!(case.value("hours_until_all"), Some(&report::experiment::Value::Null));
        assert_eq!(case.value("advantage"), Some(&2.0.into()));
        assert!(case.value("advantage_high").and_then(|high| high.as_f64()) > Some(2.0));
    }

    #[test]
    fn downloads_are_compared_with_those_without_the_attack_and_with_torflow() {
        let attack = Attack::named("sybils").expect("in the table");
        let case = case_of("case", "sybils", &attack, &[seed(1.0), seed(3.0)]);
        assert_eq!(case.value("download_s"), Some(&1.0.into()));
        assert_eq!(case.value("download_s_over_no_attack"), Some(&2.0.into()));
        assert_eq!(case.value("failed_circuits_percent"), Some(&10.0.into()));
        assert_eq!(case.value("speed_over_torflow"), Some(&report::experiment::Value::Null));
        let speeds = Speeds::new(&downloads(3.0), None, Some(&downloads(2.0)));
        assert_eq!((speeds.over_torflow, speeds.over_no_attack), (Some(1.5), None));
        let all_failed = Downloads { bit_per_s: Vec::new(), failed_circuits_share: 1.0 };
        let speeds = Speeds::new(&all_failed, None, None);
        assert_eq!((speeds.median_s, speeds.failed_circuits_percent), (None, 100.0));
    }
}
