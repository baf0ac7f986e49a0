//! `flashflow-lab experiment crash`: measurements during which a process is killed.

mod judge;
mod plan;
mod processes;
mod results;
mod round;
mod traces;

use crate::common::Session;
use crate::error::Result;
use crate::reporting;
use clap::Args;
use coordinator::Params;
use link::Clock;
use onion::{Duration, Rate};
use plan::{Fault, PlannedRound, Victim, planned_rounds};
use processes::Processes;
use report::experiment::{Case, ExperimentReport};
use round::CrashRound;

/// What happens if a process is killed during a measurement?
///
/// Two measurers and a coordinator measure a relay repeatedly, each a separate process. In each round one of the four processes is
/// killed at a random moment. A control without a victim follows every tenth round. All survivors must end their parts by their
/// deadlines, every estimate must agree with the relay's limit and the kernel's counters, and no process, socket or file may remain.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment crash --quick --out results")]
pub(super) struct Options {
    /// Rounds with a victim; 200 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=60))]
    seconds: u32,
    /// Freeze the victims (SIGSTOP) instead of killing them: their connections stay open.
    #[arg(long)]
    freeze: bool,
    /// Seed of the victims and of the moments at which they are killed.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// The relay's limit in Mbit/s: low, so that even a busy machine can carry it.
const LIMIT: f64 = 30.0;

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let count = session.or(options.rounds, 12, 200);
    let limit = Rate::from_mbit_per_s(LIMIT);
    // The parameters of `flashflow measure`.
    let params = Params { seconds: options.seconds, ..Params::default() };
    let clock = Clock::start();
    output.doing("starting a relay and measurers");
    let mut processes = Processes::new(limit, clock)?;
    let (mut rounds, mut cases): (Vec<CrashRound>, Vec<Case>) = (Vec::new(), Vec::new());
    let fault = if options.freeze { Fault::Freeze } else { Fault::Kill };
    // The first control determines the expected duration of a round.
    let mut length = Duration::ZERO;
    let planned = planned_rounds(count, options.seed);
    'all: for mut plan in std::iter::once(PlannedRound::FIRST).chain(planned) {
        loop {
            output.doing(format!("round {} of {count}: {} to be killed", plan.number, plan.victim));
            let round = round::run(&mut processes, plan, fault, params, length, clock, interrupt)?;
            let Some(round) = round else { break 'all };
            if plan == PlannedRound::FIRST {
                length = round.took().unwrap_or(round.deadline);
            }
            let case = round.case(limit);
            reporting::print_case(&case, output);
            restart(&mut processes, &round)?;
            let is_over = round.kill.is_some() || plan.is_control();
            rounds.push(round);
            cases.push(case);
            if is_over {
                break;
            }
            // The victim had ended before its moment, so this round was a control.
            plan = plan.earlier();
        }
    }
    Ok(results::report(options, &rounds, cases, &params, limit))
}

/// Restarts the victim and processes that hang, so that they do not affect the next round.
fn restart(processes: &mut Processes, round: &CrashRound) -> Result<()> {
    let hanging = round.ends.iter().filter(|(_, end)| end.is_none()).map(|(who, _)| *who);
    let killed = round.kill.map(|_| round.plan.victim);
    for who in hanging.chain(killed).filter(|who| *who != Victim::Nobody) {
        processes.restart(who)?;
    }
    Ok(())
}
