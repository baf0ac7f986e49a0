//! `flashflow-lab experiment accuracy`: relays with known limits are measured many times, by teams of
//! several sizes.

mod judge;
mod plan;
mod relays;
mod results;

use crate::common::Common;
use crate::error::Error;
use crate::mode::Mode;
use crate::stage::Stage;
use crate::telling::tell;
use clap::Args;
use onion::Duration;
use plan::{Plan, Setting};
use relays::Candidate;
use report::experiment::{ExperimentReport, Miss};
use results::{Ended, Results};
use std::str::FromStr;
use terminal::{Interrupt, Output};

/// Between two runs: the relay's token bucket is full again, so that all begin alike.
const PAUSE: Duration = Duration::from_millis(1200);

/// How accurate are estimates?
///
/// Relays of ours measured as an echo, then stock tor relays of a private network measured in
/// transit, with several rate limits and with none; teams of one or more measurer processes; several
/// runs each. The first guess is right in the first run of each, half the limit in the second (so that
/// a second round must follow), double in the third, and so on. What an echo must come to is the
/// relay's limit; stock tor passes less than its limit, so there it is what tor's process sent by the
/// kernel's counters of its sockets, as it is for relays without limit. A run that is inconclusive has not
/// held. Figure 6 of the paper, drawn.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment accuracy --quick --out results
  flashflow-lab experiment accuracy --modes echo --limits 10,100,none --teams 1,3 --runs 3 --seconds 10")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 3 to 120; 30 by default, 8 if --quick. The first second
    /// holds the relay's burst: with fewer than 6 it weighs much.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Runs of each setting; 7 by default, 2 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Rate limits of the relays in Mbit/s, `none` for no limit; 10,100,250,500,none by default,
    /// 10,250,none if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…")]
    limits: Vec<Limit>,
    /// Measurers of the teams, each a process; 1,2,3 by default, 1,3 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=16))]
    teams: Vec<u32>,
    /// How to measure; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
}

/// A limit in Mbit/s, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit(Option<f64>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        // Tor accepts no less than 0.6 Mbit/s.
        match text.parse::<f64>() {
            Ok(mbit) if (1.0..=100_000.0).contains(&mbit) => Ok(Self(Some(mbit))),
            _ => Err("a limit is 1 to 100000 Mbit/s, or `none`".to_owned()),
        }
    }
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = Plan::new(options, common.quick);
    let mut results = Results::default();
    let mut stage = Stage::new()?;
    output.doing("starting the measurers");
    for _ in 0..plan.team_max() {
        stage.add_measurer(plan.capacity(), plan.pumps())?;
    }
    output.step(format!(
        "{} runs, {} s each, with up to {} measurers",
        plan.runs_in_all(),
        plan.seconds,
        plan.team_max()
    ));
    for mode in &plan.modes {
        if interrupt.is_requested() {
            break;
        }
        match mode {
            Mode::Echo => {
                output.doing("starting relays of our own");
                let relays = relays::own(&stage, &plan)?;
                let mut candidates = relays::as_echoes(&stage, &relays);
                series(*mode, &plan, &stage, &mut candidates, &mut results, output, interrupt);
            }
            Mode::Transit => {
                let network = relays::network(&plan, output)?;
                let mut candidates = relays::in_transit(&network)?;
                series(*mode, &plan, &stage, &mut candidates, &mut results, output, interrupt);
                drop(candidates);
                network.stop()?;
            }
        }
    }
    Ok(results.report(&plan))
}

/// All runs in one mode. Settings take turns, so that a busy hour hits them all.
fn series(
    mode: Mode,
    plan: &Plan,
    stage: &Stage,
    candidates: &mut [Candidate<'_>],
    results: &mut Results,
    output: &Output,
    interrupt: &Interrupt,
) {
    for run in 1..=plan.runs {
        for candidate in &mut *candidates {
            for measurers in plan.teams.iter().copied() {
                let setting = Setting { mode, limit: candidate.limit, measurers, run };
                let tried = candidate.measure(&setting, plan, stage, output, interrupt);
                let Some(tried) = tried.transpose() else { return };
                let (case, why) = judge::case(&setting, candidate.last_guess, tried.as_ref());
                tell(&case, output);
                let explanation = why.filter(|_| !judge::is_good(&case));
                let miss =
                    explanation.map(|explanation| Miss { case: case.name.clone(), explanation });
                results.add(Ended { setting, case, miss });
                if interrupt.wait(PAUSE) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_rate_or_none() {
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert_eq!("2.5".parse(), Ok(Limit(Some(2.5))));
        for bad in ["", "0", "-3", "NaN", "inf", "ten"] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }
}
