//! `flashflow-lab experiment accuracy`: relays with known limits are measured many times, by teams of
//! several sizes.

mod judge;
mod results;

use crate::common::{Session, values_or};
use crate::error::Result;
use crate::grid::{self, Grid, GridOptions, Row, Rows, Turn};
use crate::mode::Mode;
use crate::testbed::Testbed;
use crate::trial::Trial;
use crate::wan_site::Relays;
use clap::Args;
use coordinator::Params;
use measurer::{TeamOptions, free_cores};
use onion::Rate;
use report::experiment::ExperimentReport;
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The capacity that is assumed for a relay without limit before its first measurement.
const UNLIMITED_GUESS: Rate = Rate::from_bit_per_s(500_000_000);

/// A team's capacity for a relay without limit: far more than this machine can carry, so that its
/// processors are the bound and not the allocation.
const UNLIMITED_TEAM: Rate = Rate::from_bit_per_s(20_000_000_000);

/// How accurate are estimates?
///
/// Relays of ours are measured as an echo, then C tor relays of a private network in
/// transit, with several rate limits and with none, by teams of one or more measurer processes, several
/// times each. The first guess is right in the first run of each, half the limit in the second (so that
/// a second round must follow), double in the third, and so on. The expected result of an echo is the
/// relay's limit. C tor passes less than its limit: there, as for relays without limit, it is what the process sent according to the
/// kernel's counters of its sockets. A run that is inconclusive has not
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
    #[command(flatten)]
    grid: GridOptions,
}

/// A limit in Mbit/s, or none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Limit(Option<f64>);

impl Limit {
    fn rate(self) -> Option<Rate> {
        self.0.map(Rate::from_mbit_per_s)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(mbit) => write!(f, "{mbit} Mbit/s"),
            None => f.write_str("without limit"),
        }
    }
}

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

/// A relay measured by a team.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    mode: Mode,
    #[serde(rename = "limit_mbit_per_s")]
    limit: Limit,
    measurers: u32,
    /// From one.
    run: u32,
    /// The relay's place among the limits.
    #[serde(skip)]
    relay: usize,
}

impl Cell {
    /// *z₀* if `expected` is right: right, too low and too high in turn.
    fn guess(&self, expected: Rate) -> Rate {
        expected.scaled(self.guess_factor())
    }

    const fn guess_factor(&self) -> f64 {
        match self.run % 3 {
            1 => 1.0,
            2 => 0.5,
            _ => 2.0,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, limit, measurers, run, .. } = self;
        write!(f, "{} {limit}, {}, run {run}", mode.word(), team(*measurers))
    }
}

/// A team in words.
fn team(measurers: u32) -> String {
    if measurers == 1 { "1 measurer".to_owned() } else { format!("{measurers} measurers") }
}

#[derive(Clone, Debug, PartialEq)]
struct AccuracyGrid {
    seconds: u32,
    runs: u32,
    limits: Vec<Limit>,
    teams: Vec<u32>,
    modes: Vec<Mode>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    grid::run(&AccuracyGrid::new(options, session.common.quick), options.grid, session)
}

impl AccuracyGrid {
    fn new(options: &Options, is_quick: bool) -> Self {
        let quick = [Some(10.0), Some(250.0), None].map(Limit);
        let all = [Some(10.0), Some(100.0), Some(250.0), Some(500.0), None].map(Limit);
        // Relays without limit come last.
        let order = |Limit(mbit): &Limit| mbit.unwrap_or(f64::INFINITY);
        let mut limits = values_or(&options.limits, is_quick, &quick, &all);
        limits.sort_by(|one, two| order(one).total_cmp(&order(two)));
        limits.dedup();
        let modes = [Mode::Echo, Mode::Transit];
        Self {
            seconds: options.seconds.unwrap_or(if is_quick { 8 } else { 30 }),
            runs: options.runs.unwrap_or(if is_quick { 2 } else { 7 }),
            limits,
            teams: sorted(values_or(&options.teams, is_quick, &[1, 3], &[1, 2, 3])),
            modes: sorted(values_or(&options.modes, is_quick, &modes, &modes)),
        }
    }

    fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    fn team_max(&self) -> u32 {
        self.teams.iter().copied().max().unwrap_or(1)
    }

    /// What a measurer must be able to do when it is alone.
    fn capacity(&self) -> Rate {
        let needed = self.cells().into_iter().map(|cell| self.team_capacity(&cell));
        needed.max().unwrap_or(UNLIMITED_TEAM)
    }

    /// Of each measurer: half of the processors are for the relay.
    fn pumps(&self) -> u32 {
        (free_cores() / (2 * self.team_max())).max(1)
    }

    /// The capacity of the whole team: *f* times what is expected in the last round, so that this takes all
    /// measurers (§6.2: each has its share of what is needed, and no more).
    fn team_capacity(&self, cell: &Cell) -> Rate {
        let Some(limit) = cell.limit.rate() else { return UNLIMITED_TEAM };
        limit.scaled(self.params().excess_factor() * cell.guess_factor().max(1.0))
    }
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}

/// Relays and measurers on loopback.
struct World {
    relays: Relays,
    stage: Testbed,
}

impl Grid for AccuracyGrid {
    type Cell = Cell;
    type World = World;
    const NAME: &'static str = "accuracy";
    const TEXT: &'static str = include_str!("../../../docs/experiments/accuracy.md");

    /// Settings alternate, so that a busy hour affects them all.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for mode in self.modes.iter().copied() {
            for run in 1..=self.runs {
                for (relay, limit) in self.limits.iter().copied().enumerate() {
                    let teams = self.teams.iter();
                    cells.extend(teams.map(|it| Cell { mode, limit, measurers: *it, run, relay }));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        format!("{} s each, with up to {} measurers", self.seconds, self.team_max())
    }

    fn world(&self, cell: &Cell) -> String {
        format!("relays: {}", cell.mode.word())
    }

    /// Without a limit, the estimate is the next guess.
    fn group(&self, cell: &Cell) -> String {
        format!("{} {}", cell.mode.word(), cell.limit)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<World>> {
        let mut stage = Testbed::new()?;
        for _ in 0..self.team_max() {
            stage.add_measurer(self.capacity(), self.pumps())?;
        }
        let limits: Vec<Option<Rate>> = self.limits.iter().map(|it| it.rate()).collect();
        let address = Ipv4Addr::LOCALHOST;
        let relays = Relays::start(cell.mode, &limits, address, &stage, session.output)?;
        Ok(Some(World { relays, stage }))
    }

    fn play(&self, world: &mut World, turn: Turn<'_, Cell>) -> Result<Option<Row>> {
        let Turn { cell, earlier, session } = turn;
        let World { relays, stage } = world;
        let of_relay = earlier.cases().filter(|(it, _)| self.group(it) == self.group(cell));
        let last = of_relay.filter_map(|(_, case)| case.estimate_mbit_per_s).last();
        let last = last.map_or(UNLIMITED_GUESS, Rate::from_mbit_per_s);
        let guess = cell.guess(cell.limit.rate().unwrap_or(last));
        // Rounded up: together they must have enough.
        let share = self.team_capacity(cell).as_bit_per_s().div_ceil(cell.measurers.into());
        let share = Rate::from_bit_per_s(share);
        let shares = (0..cell.measurers as usize).map(|place| (place, share));
        let team = &mut stage.team_of(shares, self.params())?;
        let (request, pid, mut said) = relays.subject(cell.relay, guess, stage)?;
        let name = &cell.to_string();
        let tried = Trial { name, team, request, pid, said: &mut said }.run(session)?;
        Ok(tried.map(|tried| judge::row(cell, guess, &tried)))
    }

    fn stop(&self, world: World) -> Result<()> {
        world.relays.stop()
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        results::conclude(self, rows, report);
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

    fn options() -> Options {
        Options {
            seconds: None,
            runs: None,
            limits: Vec::new(),
            teams: Vec::new(),
            modes: Vec::new(),
            grid: GridOptions::default(),
        }
    }

    #[test]
    fn by_default_all_settings_are_played() {
        let grid = AccuracyGrid::new(&options(), false);
        assert_eq!(
            grid.limits,
            [Some(10.0), Some(100.0), Some(250.0), Some(500.0), None].map(Limit)
        );
        assert_eq!((grid.seconds, grid.teams.as_slice()), (30, &[1, 2, 3][..]));
        assert_eq!(grid.cells().len(), 2 * 5 * 3 * 7);
        assert!(AccuracyGrid::new(&options(), true).cells().len() < 30);
    }

    #[test]
    fn what_is_given_counts_and_is_put_in_order() {
        let given = Options {
            limits: [None, Some(50.0), Some(5.0), Some(50.0)].map(Limit).to_vec(),
            teams: vec![3, 1, 3],
            modes: vec![Mode::Transit, Mode::Echo],
            ..options()
        };
        let grid = AccuracyGrid::new(&given, true);
        assert_eq!(grid.limits, [Some(5.0), Some(50.0), None].map(Limit));
        assert_eq!(grid.teams, [1, 3]);
        assert_eq!(grid.modes, [Mode::Echo, Mode::Transit]);
    }

    /// Whatever the guess is, the last round can be conclusive for a relay that keeps to its limit,
    /// and takes the whole team.
    #[test]
    fn the_team_is_what_the_last_round_takes() {
        let grid = AccuracyGrid::new(&options(), false);
        let cell =
            |run| Cell { mode: Mode::Echo, limit: Limit(Some(100.0)), measurers: 1, run, relay: 0 };
        for run in 1..=6 {
            let team = grid.team_capacity(&cell(run));
            assert!(team <= grid.capacity());
            let conclusive = grid.params().conclusive_limit(team).as_mbit_per_s();
            assert!(conclusive > 104.9, "{conclusive}");
            let guess = cell(run).guess(Rate::from_mbit_per_s(100.0));
            let needed = guess.scaled(grid.params().excess_factor()).as_mbit_per_s();
            let [team, needed] = [team.as_mbit_per_s(), needed];
            // Half of it where the guess is half.
            let share = if run % 3 == 2 { 0.5 } else { 1.0 };
            assert!((needed / team - share).abs() < 1e-6, "run {run}: {needed} of {team}");
        }
    }

    #[test]
    fn a_run_is_named_in_words() {
        let cell =
            Cell { mode: Mode::Echo, limit: Limit(Some(250.0)), measurers: 2, run: 3, relay: 0 };
        assert_eq!(cell.to_string(), "echo 250 Mbit/s, 2 measurers, run 3");
        let cell = Cell { mode: Mode::Transit, limit: Limit(None), measurers: 1, run: 1, relay: 0 };
        assert_eq!(cell.to_string(), "transit without limit, 1 measurer, run 1");
    }
}
