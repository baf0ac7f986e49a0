//! `flashflow-lab experiment concurrent`: several relays measured at once by one team, compared with each alone.

mod results;
mod set;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, Grid, GridOptions, Row, Rows, Turn};
use crate::testbed::Testbed;
use clap::Args;
use coordinator::Params;
use measurer::TeamOptions;
use onion::Rate;
use report::experiment::ExperimentReport;
use serde::Serialize;
use set::Set;
use std::fmt;

/// The capacity of both measurers, over what all relays at once take, and how it is split between the
/// two: as in the paper, where 941 and 1611 Mbit/s had to suffice for 2362.5 Mbit/s (appendix F).
const SPARE: f64 = (941.0 + 1611.0) / 2362.5;
const SPLIT: [f64; 2] = [941.0 / (941.0 + 1611.0), 1611.0 / (941.0 + 1611.0)];

/// Are several relays measured at once as accurately as one?
///
/// Relays of ours with equal rate limits, each a process, are measured as an echo: first each alone, then
/// all at the same time, by one team of two measurer processes whose capacity just suffices and is shared
/// out between them as a coordinator does. Once with eight relays, once with four, once with two; together
/// they always carry the same. Where this machine is too slow, the report names the machine: it is no relay's limit. Table 4 of the paper,
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
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    /// What each measurer has.
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
struct World {
    set: Set,
    stage: Testbed,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    grid::run(&ConcurrentGrid::new(options, session.common.quick)?, options.grid, session)
}

impl Grid for ConcurrentGrid {
    type Cell = Cell;
    type World = World;
    const NAME: &'static str = "concurrent";
    const TEXT: &'static str = include_str!("../../../docs/experiments/concurrent.md");

    /// Of each set, each relay alone, then all at once.
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
        format!("{} s each, with two measurers, {} in all", self.seconds, self.total)
    }

    fn world(&self, cell: &Cell) -> String {
        format!("{} relays", cell.of)
    }

    fn start(&self, cell: &Cell, _: Session<'_>) -> Result<Option<World>> {
        let mut stage = Testbed::new()?;
        for capacity in self.capacities() {
            stage.add_measurer(capacity, 1)?;
        }
        Ok(Some(World { set: Set::start(&stage, cell.of, self.limit(cell.of))?, stage }))
    }

    fn play(&self, world: &mut World, turn: Turn<'_, Cell>) -> Result<Option<Row>> {
        let Turn { cell, earlier, session } = turn;
        let places = cell.first..cell.first + cell.relays_at_once;
        let all = world.set.measure(places, self, &world.stage, session)?;
        Ok(all.map(|all| results::row(cell, self.limit(cell.of), &all, &earlier)))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        results::conclude(self, rows, report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            seconds: None,
            runs: None,
            relays: vec![2, 8, 4, 2],
            total: 800.0,
            grid: GridOptions::default(),
        }
    }

    #[test]
    fn with_the_papers_relays_the_team_is_the_papers() {
        let grid = ConcurrentGrid::new(&options(), false).unwrap();
        assert_eq!(grid.relays, [8, 4, 2]);
        let capacities: Vec<f64> =
            grid.capacities().iter().map(|rate| rate.as_mbit_per_s().round()).collect();
        assert_eq!(capacities, [941.0, 1611.0]);
        assert_eq!(grid.limit(8), Rate::from_mbit_per_s(100.0));
    }

    #[test]
    fn too_little_for_each_relay_is_refused() {
        for total in [7.9, 0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ConcurrentGrid::new(&Options { total, ..options() }, true).is_err(), "{total}");
        }
    }
}
