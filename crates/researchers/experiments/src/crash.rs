//! `flashflow-lab experiment crash`: measurements during which a process is killed.

mod judge;
mod plan;
mod processes;
mod results;
mod round;
mod traces;

use crate::common::Session;
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use clap::Args;
use coordinator::Params;
use link::Clock;
use onion::{Duration, Rate};
use plan::{Fault, PlannedRound, Victim, planned_rounds};
use processes::Processes;
use report::experiment::ExperimentReport;
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
    #[command(flatten)]
    grid: GridOptions,
}

/// The relay's limit in Mbit/s: low, so that even a busy machine can carry it.
const LIMIT: f64 = 30.0;

struct CrashGrid {
    rounds: u32,
    fault: Fault,
    seed: u64,
    limit: Rate,
    /// The parameters of `flashflow measure`.
    params: Params,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let grid = CrashGrid {
        rounds: session.or(options.rounds, 12, 200),
        fault: if options.freeze { Fault::Freeze } else { Fault::Kill },
        seed: options.seed,
        limit: Rate::from_mbit_per_s(LIMIT),
        params: Params { seconds: options.seconds, ..Params::default() },
    };
    grid::run(&grid, options.grid, session)
}

/// The processes that run through all rounds.
struct Setup {
    processes: Processes,
    clock: Clock,
    /// The expected duration of a round, by the first control.
    length: Duration,
}

impl Grid for CrashGrid {
    type Cell = PlannedRound;
    type Setup = Setup;
    const NAME: &'static str = "crash";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/crash.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<PlannedRound> {
        let planned = planned_rounds(self.rounds, self.seed);
        std::iter::once(PlannedRound::FIRST).chain(planned).collect()
    }

    fn conditions(&self) -> String {
        let (done, seconds) = (self.fault.participle(), self.params.seconds);
        format!("{seconds} s each, victims {done}, seed {}", self.seed)
    }

    fn start(&self, cell: &PlannedRound, session: Session<'_>) -> Result<Option<Setup>> {
        let clock = Clock::start();
        let processes = Processes::new(self.limit, clock)?;
        let mut setup = Setup { processes, clock, length: Duration::ZERO };
        // The first control has its own row, which a shard or a resumed run may not repeat.
        let is_known = *cell == PlannedRound::FIRST;
        Ok((is_known || self.round(&mut setup, PlannedRound::FIRST, session)?.is_some())
            .then_some(setup))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, PlannedRound>) -> Result<Option<Row>> {
        let (mut plan, mut cases, mut times) = (*run.cell, Vec::new(), Vec::new());
        loop {
            let Some(round) = self.round(setup, plan, run.session)? else { return Ok(None) };
            cases.push(round.case(self.limit));
            times.push(round.times());
            if round.kill.is_some() || plan.is_control() {
                return Ok(Some(Row { cases, ..Row::default() }.with_data(&times)?));
            }
            // The victim had ended before its moment, so this round was a control.
            plan = plan.earlier();
        }
    }

    fn conclude(&self, rows: Rows<'_, PlannedRound>, report: &mut ExperimentReport) {
        results::conclude(self, rows, report);
    }
}

impl CrashGrid {
    /// A round; `None` if the user has interrupted.
    fn round(
        &self,
        setup: &mut Setup,
        plan: PlannedRound,
        session: Session<'_>,
    ) -> Result<Option<CrashRound>> {
        let Setup { processes, clock, length } = setup;
        let (params, interrupt) = (self.params, session.interrupt);
        let round = round::run(processes, plan, self.fault, params, *length, *clock, interrupt)?;
        let Some(round) = round else { return Ok(None) };
        if plan == PlannedRound::FIRST {
            *length = round.took().unwrap_or(round.deadline);
        }
        restart(processes, &round)?;
        Ok(Some(round))
    }
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
