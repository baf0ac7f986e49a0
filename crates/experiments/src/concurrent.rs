//! `flashflow-lab experiment concurrent`: several relays measured at once by one team, against each alone.

mod at_once;
mod results;

use crate::common::Common;
use crate::error::Error;
use crate::stage::Stage;
use crate::telling::tell;
use at_once::Set;
use clap::Args;
use coordinator::Params;
use measurer::TeamOptions;
use onion::{Duration, Rate};
use report::experiment::ExperimentReport;
use results::Results;
use terminal::{Interrupt, Output};

/// What the measurers have in all, over what all relays at once take, and how it is split between the
/// two: as in the paper, where 941 and 1611 Mbit/s had to suffice for 2362.5 Mbit/s (appendix F).
const SPARE: f64 = (941.0 + 1611.0) / 2362.5;
const SPLIT: [f64; 2] = [941.0 / (941.0 + 1611.0), 1611.0 / (941.0 + 1611.0)];

/// Between two measurements of a relay: its token bucket is full again.
const PAUSE: Duration = Duration::from_millis(1200);

/// Are several relays measured at once as accurately as one?
///
/// Relays of ours with equal rate limits, each a process, are measured as an echo: first each alone, then
/// all at the same time, by one team of two measurer processes whose capacity just suffices and is shared
/// out between them as a coordinator does. Once with eight relays, once with four, once with two; together
/// they always carry the same. What this machine is too slow for is told as that: it is no relay's limit. Table 4 of the paper,
/// appendix F.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment concurrent --quick --out results
  flashflow-lab experiment concurrent --quick --total 800
  flashflow-lab experiment concurrent --relays 2 --total 100 --seconds 10 --runs 1")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 3 to 120; 30 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Runs with all relays at once; 5 by default, 1 if --quick. Alone, each is measured once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// How many relays at once.
    #[arg(long, value_delimiter = ',', default_value = "8,4,2", value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    relays: Vec<u32>,
    /// What all relays together carry, in Mbit/s: eight have an eighth of it each as their limit. The
    /// paper has 800.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT")]
    total: f64,
}

/// What is the same for all sets of relays.
struct Plan {
    seconds: u32,
    runs: u32,
    relays: Vec<u32>,
    total: Rate,
}

impl Plan {
    fn new(options: &Options, is_quick: bool) -> Result<Self, Error> {
        let Options { total, .. } = options;
        let mut relays = options.relays.clone();
        relays.sort_unstable_by(|one, other| other.cmp(one));
        relays.dedup();
        let least = f64::from(relays.first().copied().unwrap_or(1));
        if !total.is_finite() || *total < least {
            return Err(Error::Usage(format!(
                "--total {total}: less than 1 Mbit/s for each relay"
            )));
        }
        Ok(Self {
            seconds: options.seconds.unwrap_or(if is_quick { 6 } else { 30 }),
            runs: options.runs.unwrap_or(if is_quick { 1 } else { 5 }),
            relays,
            total: Rate::from_mbit_per_s(*total),
        })
    }

    fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    /// What each measurer has.
    fn capacities(&self) -> Vec<Rate> {
        let needed = self.total.scaled(self.params().excess_factor() * SPARE);
        SPLIT.iter().map(|share| needed.scaled(*share)).collect()
    }

    /// The limit of each of so many relays.
    fn limit(&self, relays: u32) -> Rate {
        self.total.scaled(1.0 / f64::from(relays))
    }
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = Plan::new(options, common.quick)?;
    let mut stage = Stage::new()?;
    output.doing("starting the measurers");
    for capacity in plan.capacities() {
        stage.add_measurer(capacity, 1)?;
    }
    output.step(format!(
        "{} relays at once, {} s each, with two measurers",
        plan.relays.iter().map(u32::to_string).collect::<Vec<_>>().join(", then "),
        plan.seconds
    ));
    let mut results = Results::default();
    for count in plan.relays.iter().copied() {
        if interrupt.is_requested() {
            break;
        }
        output.doing(format!("starting {count} relays"));
        let mut set = Set::start(&stage, count, plan.limit(count))?;
        // Each alone, then all at once.
        let all: Vec<usize> = set.places().collect();
        let alone = all.iter().map(|place| (None, std::slice::from_ref(place)));
        let at_once = (1..=plan.runs).map(|run| (Some(run), all.as_slice()));
        for (run, places) in alone.chain(at_once) {
            let Some(tried) = set.measure(places, &plan, &stage, output, interrupt)? else { break };
            for case in results.add(&set, run, tried) {
                tell(&case, output);
            }
            if interrupt.wait(PAUSE) {
                break;
            }
        }
    }
    Ok(results.report(&plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { seconds: None, runs: None, relays: vec![2, 8, 4, 2], total: 800.0 }
    }

    #[test]
    fn with_the_papers_relays_the_team_is_the_papers() {
        let plan = Plan::new(&options(), false).unwrap();
        assert_eq!(plan.relays, [8, 4, 2]);
        let capacities: Vec<f64> =
            plan.capacities().iter().map(|rate| rate.as_mbit_per_s().round()).collect();
        assert_eq!(capacities, [941.0, 1611.0]);
        assert_eq!(plan.limit(8), Rate::from_mbit_per_s(100.0));
    }

    #[test]
    fn too_little_for_each_relay_is_refused() {
        for total in [7.9, 0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Plan::new(&Options { total, ..options() }, true).is_err(), "{total}");
        }
    }
}
