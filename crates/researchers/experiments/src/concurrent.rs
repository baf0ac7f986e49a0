//! `flashflow-lab experiment concurrent`: several relays measured at once by one team, and each alone.

mod results;
mod set;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::testbed::{self, Testbed};
use clap::Args;
use coordinator::Params;
use onion::Rate;
use report::experiment::ExperimentReport;
use serde::Serialize;
use set::Set;
use std::fmt;

/// The capacity of both measurers divided by the load for all relays at once, and the measurers' shares of it. In the paper,
/// 941 and 1611 Mbit/s had to suffice for 2362.5 Mbit/s (appendix F).
const SPARE: f64 = (941.0 + 1611.0) / 2362.5;
const SPLIT: [f64; 2] = [941.0 / (941.0 + 1611.0), 1611.0 / (941.0 + 1611.0)];

/// Are several relays measured at once as accurately as one?
///
/// FlashFlow relays with equal rate limits, each a process, are measured by echo: first each alone, then all at the same time,
/// by one team of two measurer processes. Their capacity just suffices, and is allocated as a coordinator does. The experiment
/// has eight, four and two relays, always with the same total limit. If this machine is too slow, the report says so: that is
/// not a limit of a relay. Table 4 of the paper, appendix F.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment concurrent --quick --out results
  flashflow-lab experiment concurrent --quick --total 800
  flashflow-lab experiment concurrent --relays 2 --total 100 --seconds 10 --runs 1")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 3 to 120; 30 by default, 6 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Runs with all relays at once; 5 by default, 1 with --quick. Each relay is measured alone once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Numbers of relays at once.
    #[arg(long, value_delimiter = ',', default_value = "8,4,2", value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    relays: Vec<u32>,
    /// The total limit of all relays in Mbit/s: each of eight relays has an eighth of it. The paper uses 800.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT")]
    total: f64,
    #[command(flatten)]
    grid: GridOptions,
}

/// Relays measured at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    relays_at_once: u32,
    /// From one; `None` if one relay is measured alone.
    run: Option<u32>,
    /// Relays of the set.
    #[serde(skip)]
    of: u32,
    /// The first relay's place in the set.
    #[serde(skip)]
    first: u32,
}

impl Cell {
    /// The name of the case of a relay.
    fn case(&self, place: u32) -> String {
        let (relay, of) = (place + 1, self.of);
        match self.run {
            Some(run) => format!("{of} at once, relay {relay}, run {run}"),
            None => format!("relay {relay} of {of}, alone"),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run {
            Some(run) => write!(f, "{} at once, run {run}", self.of),
            None => f.write_str(&self.case(self.first)),
        }
    }
}

struct ConcurrentGrid {
    seconds: u32,
    runs: u32,
    relays: Vec<u32>,
    total: Rate,
}

impl ConcurrentGrid {
    fn new(options: &Options, is_quick: bool) -> Result<Self> {
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
        testbed::params(self.seconds)
    }

    /// The capacity of each measurer.
    fn capacities(&self) -> Vec<Rate> {
        let needed = self.total.scaled(self.params().excess_factor() * SPARE);
        SPLIT.iter().map(|share| needed.scaled(*share)).collect()
    }

    /// The limit of each relay of a set of this size.
    fn limit(&self, relays: u32) -> Rate {
        self.total.scaled(1.0 / f64::from(relays))
    }
}

/// Relays with equal limits, and the measurers.
struct Setup {
    set: Set,
    testbed: Testbed,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    grid::run(&ConcurrentGrid::new(options, session.common.quick)?, options.grid, session)
}

impl Grid for ConcurrentGrid {
    type Cell = Cell;
    type Setup = Setup;
    const NAME: &'static str = "concurrent";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/concurrent.md");

    /// For each set: each relay alone, then all at once.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for of in self.relays.iter().copied() {
            cells.extend((0..of).map(|first| Cell { relays_at_once: 1, run: None, of, first }));
            let at_once = |run| Cell { relays_at_once: of, run: Some(run), of, first: 0 };
            cells.extend((1..=self.runs).map(at_once));
        }
        cells
    }

    fn conditions(&self) -> String {
        format!("{} s each, two measurers, {} in all", self.seconds, self.total)
    }

    fn setup(&self, cell: &Cell) -> String {
        format!("{} relays", cell.of)
    }

    /// Relays are first measured alone.
    fn group(&self, cell: &Cell) -> String {
        self.setup(cell)
    }

    fn start(&self, cell: &Cell, _: Session<'_>) -> Result<Option<Setup>> {
        let mut testbed = Testbed::new()?;
        for capacity in self.capacities() {
            testbed.add_measurer(capacity, 1)?;
        }
        Ok(Some(Setup { set: Set::start(&testbed, cell.of, self.limit(cell.of))?, testbed }))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let places = cell.first..cell.first + cell.relays_at_once;
        let all = setup.set.measure(places, self, &setup.testbed, session)?;
        Ok(all.map(|all| results::row(cell, self.limit(cell.of), &all, &earlier)))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        results::conclude(self, rows, report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::parse_options;

    #[test]
    fn the_papers_relays_get_the_papers_team() {
        let grid =
            ConcurrentGrid::new(&parse_options("--relays 2,8,4,2 --total 800"), false).unwrap();
        assert_eq!(grid.relays, [8, 4, 2]);
        let capacities: Vec<f64> =
            grid.capacities().iter().map(|rate| rate.as_mbit_per_s().round()).collect();
        assert_eq!(capacities, [941.0, 1611.0]);
        assert_eq!(grid.limit(8), Rate::from_mbit_per_s(100.0));
    }

    #[test]
    fn a_total_of_less_than_1_mbit_per_relay_is_refused() {
        for total in ["7.9", "0", "-1", "NaN", "inf"] {
            let options = parse_options(&format!("--total={total}"));
            assert!(ConcurrentGrid::new(&options, true).is_err(), "{total}");
        }
    }
}
