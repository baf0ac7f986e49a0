//! `flashflow-lab experiment plan-attacks`: the claims of section 5 of the paper, played against the coordinator's plan in virtual time.

mod authorities;
mod authority;
mod bad_authorities;
mod bursts;
mod cells;
mod denial;
mod figures;
mod flood;
mod part_time;
mod shared_host;
mod single_periods;
mod slow_after;

use crate::common::{Session, values_or, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_holds, list, parameter};
use clap::{Args, ValueEnum};
use onion::Duration;
use report::experiment::ExperimentReport;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Do the coordinator's plan and the median of several authorities stop the attacks that section 5 of the paper discusses?
///
/// Everything is in virtual time, with the coordinator's own plans, measurements and histories: part-time relays, bad authorities, relays that
/// are slow once a majority has measured them, denial of service, floods of new relays, relays that share a host, and token buckets. The
/// paper's plan measures each relay once in a period; ours measures it at any time with the same probability.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment plan-attacks --quick --out results
  flashflow-lab experiment plan-attacks --attacks part-time --authorities 5,6 --json")]
pub(super) struct Options {
    /// Attacks to play; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "ATTACK,…")]
    attacks: Vec<Attack>,
    /// Numbers of bandwidth authorities, 1 to 15; 1 to 9 by default, 1,3,5,6 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…",
        value_parser = clap::value_parser!(u16).range(1..=15))]
    authorities: Vec<u16>,
    /// Periods of the paper's plan for each number of authorities; 100000 by default, 10000 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    periods: Option<u64>,
    /// Days of each relay against our plan.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    days: u32,
    /// Relays for each setting; 20 by default, 4 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    relays: Option<u32>,
    /// Old relays of the network that is flooded; 200 by default, 100 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u16).range(10..=10_000))]
    old_relays: Option<u16>,
    /// A folder with the change tables `membership-2024-2026`, and with `onionoo-2025-2026` for countries: also replay the flood of 4
    /// February 2026.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// An attack of section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Attack {
    /// Relays that are fast in a share of the slots, against the paper's plan.
    SinglePeriods,
    /// Relays that are fast in a share of the slots for many days, against our plan.
    PartTime,
    /// Authorities that raise or lower relays, or warn them of each measurement.
    BadAuthorities,
    /// Relays that are slow once a majority of authorities has measured them.
    SlowAfter,
    /// Denial of service against a share of the slots.
    Denial,
    /// Ten times the network as new relays; with --data, also the flood of 4 February 2026.
    Flood,
    /// Relays on one host, known and unknown.
    SharedHost,
    /// Hosts with token buckets.
    Bursts,
}

/// What all cells use.
#[derive(Clone, Debug)]
struct Settings {
    attacks: Vec<Attack>,
    authorities: Vec<u16>,
    periods: u64,
    days: u32,
    relays: u32,
    old_relays: usize,
    data: Option<PathBuf>,
    seed: u64,
}

impl Settings {
    /// For tests.
    #[cfg(test)]
    fn small() -> Self {
        Self {
            attacks: Attack::value_variants().to_vec(),
            authorities: vec![1, 2],
            periods: 1000,
            days: 20,
            relays: 2,
            old_relays: 20,
            data: None,
            seed: 1,
        }
    }
}

/// One attack in one setting.
#[derive(Serialize)]
struct Cell {
    attack: Attack,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    play: Play,
}

/// Plays a cell.
type Play = Box<dyn Fn(&Settings) -> Result<Row>>;

impl Cell {
    fn new(
        attack: Attack,
        name: impl Into<String>,
        play: impl Fn(&Settings) -> Result<Row> + 'static,
    ) -> Self {
        Self { attack, name: name.into(), play: Box::new(play) }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let is_quick = session.common.quick;
    let all: Vec<u16> = (1..=9).collect();
    let settings = Settings {
        attacks: values_or_all(&options.attacks),
        authorities: values_or(&options.authorities, is_quick, &[1, 3, 5, 6], &all),
        periods: session.or(options.periods, 10_000, 100_000),
        days: options.days,
        relays: session.or(options.relays, 4, 20),
        old_relays: session.or(options.old_relays, 100, 200).into(),
        data: options.data.clone(),
        seed: options.seed,
    };
    grid::run(&settings, options.grid, session)
}

impl Grid for Settings {
    type Cell = Cell;
    type Setup = ();
    const NAME: &'static str = "plan-attacks";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/plan-attacks.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        self.attacks.iter().flat_map(|attack| self.cells_of(*attack)).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let data = self.data.iter().map(|data| parameter("data", data.display()));
        let mut all = vec![
            parameter("authorities", list(&self.authorities)),
            parameter("periods of the paper's plan", self.periods),
            parameter("days of each relay", self.days),
            parameter("relays of each setting", self.relays),
            parameter("old relays of the flooded network", self.old_relays),
            parameter("seed", self.seed),
        ];
        all.extend(data);
        all
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        (run.cell.play)(self).map(Some)
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.answer = figures::answer(&report.cases);
        report.figures = figures::figures(&rows);
        let held = rows.are_complete() && claim_holds(&report.cases);
        report.promise = Self::promise(held);
    }
}
