//! Schedulers in a whole simulated network.

use super::{Options, Scheduler};
use crate::common::Session;
use crate::error::Result;
use crate::simulated::{Claim, Comparison, Expected, Quantity, RunResult, sizes};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use report::experiment::ExperimentReport;
use std::path::Path;
use tornet::network::Network;

/// The size of the downloads whose time to the first byte is judged: the smallest of Tor's benchmarks.
const SMALL_BYTES: u32 = 50 << 10;

pub(super) fn run(
    options: &Options,
    path: &Path,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    let interval = Duration::from_millis(u64::from(options.interval));
    let choose = |mut network: Network, name: &str| {
        network.choices.scheduler = match name {
            "vanilla" => SchedulerConfig::vanilla(),
            "kist-lite" => SchedulerConfig::kist_lite(interval),
            _ => SchedulerConfig::kist(interval),
        };
        network
    };
    let comparison = Comparison {
        name: "kist-network",
        text: include_str!("../../../../../docs/experiments/kist-network.md"),
        folder: "kist-runs",
        conditions: format!(", interval {} ms", options.interval),
        variants: &Scheduler::ALL.map(Scheduler::key),
        choose: &choose,
        claims: &claims,
    };
    comparison.run(&options.simulated.runs, path, session, |_| Vec::new())
}

/// KIST is not worse, beyond noise. The size of its gain depends on the network's bottlenecks, so none is claimed.
fn claims(runs: &[RunResult]) -> Vec<Claim> {
    let sizes = sizes(runs);
    let small = sizes.get(&SMALL_BYTES).or(sizes.first()).copied().unwrap_or(SMALL_BYTES);
    let of_variant = |variant| {
        let claim = |quantity, expected| Claim {
            variant,
            against: Scheduler::Vanilla.key(),
            quantity,
            expected,
            paper_percent: None,
        };
        [
            claim(Quantity::first_byte(small), Expected::AtMost(2.0)),
            claim(Quantity::sent(), Expected::AtLeast(-3.0)),
            claim(Quantity::congestion(), Expected::AtMost(2.0)),
        ]
    };
    [Scheduler::Kist, Scheduler::KistLite]
        .into_iter()
        .flat_map(|scheduler| of_variant(scheduler.key()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::{Case, CaseVerdict};

    fn case_of_congestion([vanilla, kist]: [Option<f64>; 2]) -> Case {
        let runs = [("vanilla", vanilla), ("kist", kist)].map(|(name, kernel_queue_ms)| {
            RunResult { kernel_queue_ms, ..RunResult::blank(name, 1) }
        });
        let cases: Vec<Case> = claims(&runs).iter().map(|claim| claim.case(&runs, 100)).collect();
        cases.into_iter().nth(2).expect("three of kist")
    }

    #[test]
    fn results_without_kernel_queues_are_inconclusive() {
        let both = case_of_congestion([Some(9.0), Some(4.0)]);
        assert_eq!(both.verdict, CaseVerdict::Held, "{both:?}");
        assert!(both.detail.starts_with("-50.0 %, one seed: significance unknown"), "{both:?}");
        assert_eq!(case_of_congestion([Some(4.0), Some(9.0)]).verdict, CaseVerdict::Missed);
        for missing in [[None, Some(4.0)], [Some(9.0), None], [None, None]] {
            let case = case_of_congestion(missing);
            assert_eq!(case.verdict, CaseVerdict::Inconclusive, "{case:?}");
            assert!(case.detail.starts_with("no comparison"), "{case:?}");
        }
    }
}
