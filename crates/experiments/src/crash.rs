//! `flashflow-lab experiment crash`: measurements in which a process is killed.

mod cast;
mod judge;
mod plan;
mod round;
mod show;
mod traces;

use crate::common::Session;
use crate::error::Result;
use crate::reporting;
use cast::Processes;
use clap::Args;
use coordinator::Params;
use link::Clock;
use measurer::TeamOptions;
use onion::{Duration, Rate};
use plan::{Blow, Fate, Victim, fates};
use report::experiment::{Case, ExperimentReport};
use round::{CrashRound, play};

/// What if a process is killed at any moment?
///
/// A relay, two measurers and a coordinator measure again and again, each a process. In each round one of
/// the four is killed at a random moment; after every tenth comes a control, in which nobody is. All others
/// must end their parts by their deadlines, no estimate may be wrong by the relay's limit and by what the
/// kernel counted, and nothing may be left.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment crash --quick --out results")]
pub(super) struct Options {
    /// Rounds in which somebody is killed; 200, or 12 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Seconds of each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=60))]
    seconds: u32,
    /// Freeze the victims instead (SIGSTOP): their connections stay, but nobody answers.
    #[arg(long)]
    freeze: bool,
    /// Decides who is killed, and when.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

const ROUNDS: u32 = 200;
const ROUNDS_QUICK: u32 = 12;

/// The relay's limit in Mbit/s: little, so that even a busy machine keeps up.
const LIMIT: f64 = 30.0;

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let count = session.or(options.rounds, ROUNDS_QUICK, ROUNDS);
    let limit = Rate::from_mbit_per_s(LIMIT);
    // As `flashflow measure` has them.
    let params = Params { seconds: options.seconds, ..TeamOptions::default().params };
    let clock = Clock::start();
    output.doing("starting a relay and measurers");
    let mut cast = Processes::new(limit, clock)?;
    let (mut rounds, mut cases): (Vec<CrashRound>, Vec<Case>) = (Vec::new(), Vec::new());
    let blow = if options.freeze { Blow::Freeze } else { Blow::Kill };
    // What a round takes is known from the first one, in which nobody is killed.
    let mut length = Duration::ZERO;
    'all: for mut fate in std::iter::once(Fate::FIRST).chain(fates(count, options.seed)) {
        loop {
            output.doing(format!("round {} of {count}: {} to be killed", fate.number, fate.victim));
            let played = play(&mut cast, fate, blow, params, length, clock, interrupt)?;
            let Some(played) = played else { break 'all };
            if fate == Fate::FIRST {
                length = played.took().unwrap_or(played.deadline);
            }
            let case = played.case(limit);
            reporting::print_case(&case, output);
            mend(&mut cast, &played)?;
            let is_over = played.kill.is_some() || fate.is_control();
            rounds.push(played);
            cases.push(case);
            if is_over {
                break;
            }
            // Its victim had ended before its moment, so that it was but a control.
            fate = fate.sooner();
        }
    }
    Ok(show::report(options, &rounds, cases, &params, limit))
}

/// Starts anew who was killed, and who hangs: the next round is to be judged by itself.
fn mend(cast: &mut Processes, played: &CrashRound) -> Result<()> {
    let hang = played.ends.iter().filter(|(_, end)| end.is_none()).map(|(who, _)| *who);
    let killed = played.kill.map(|_| played.fate.victim);
    for who in hang.chain(killed).filter(|who| *who != Victim::Nobody) {
        cast.restart(who)?;
    }
    Ok(())
}
