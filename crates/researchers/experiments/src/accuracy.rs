//! `flashflow-lab experiment accuracy`: repeated measurements of relays with known limits by teams of several sizes.

mod judge;
mod results;

use crate::common::{Session, values_or, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::mode::Mode;
use crate::testbed::{self, PatchedTor, Testbed};
use crate::trial::Trial;
use crate::wan_site::Relays;
use clap::Args;
use coordinator::Params;
use measurer::free_cores;
use onion::Rate;
use report::experiment::ExperimentReport;
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The guess for a relay without a limit before its first measurement.
const UNLIMITED_GUESS: Rate = Rate::from_bit_per_s(500_000_000);

/// A team's capacity for a relay without a limit: more than this machine can carry, so that its processors are the
/// bottleneck and not the allocation.
const UNLIMITED_TEAM: Rate = Rate::from_bit_per_s(20_000_000_000);

/// How accurate are the estimates?
///
/// FlashFlow relays are measured by echo, and C tor relays of a private network in transit, with several rate limits and
/// without, repeatedly, by teams of one or more measurer processes. The first guess is right in the first run of each
/// setting, half of the limit in the second (which needs a second round), double in the third, and so on in turn. The
/// expected result of an echo is the relay's limit. C tor, also a patched one, carries less than its limit: there, and for relays without a limit,
/// the expected result is what the process sent according to the kernel's counters of its sockets. Inconclusive runs do not
/// hold. Draws figure 6 of the paper.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment accuracy --quick --out results
  flashflow-lab experiment accuracy --modes echo --limits 10,100,none --teams 1,3 --runs 3 --seconds 10")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 3 to 120; 30 by default, 8 with --quick. The first second contains the
    /// relay's burst, which distorts measurements of fewer than 6 seconds.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Runs of each setting; 7 by default, 2 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Rate limits of the relays in Mbit/s, `none` for no limit; 10,100,250,500,none by default,
    /// 10,250,none with --quick.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…")]
    limits: Vec<Limit>,
    /// Measurers of each team, each a process; 1,2,3 by default, 1,3 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=16))]
    teams: Vec<u32>,
    /// Kinds of measurement; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    #[command(flatten)]
    tor: PatchedTor,
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
    /// The relay is of a patched tor.
    #[serde(rename = "patched_tor")]
    is_patched: bool,
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
    /// The first guess *z₀* for this expected capacity: right, too low and too high in turn.
    fn guess(&self, expected: Rate) -> Rate {
        expected.scaled(self.guess_factor())
    }

    const fn kind(&self) -> &'static str {
        if self.is_patched { "patched tor" } else { self.mode.name() }
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
        let Self { limit, measurers, run, .. } = self;
        write!(f, "{} {limit}, {}, run {run}", self.kind(), team(*measurers))
    }
}

/// The size of a team as text.
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
    tor: Option<PathBuf>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    grid::run(&AccuracyGrid::new(options, session.common.quick)?, options.grid, session)
}

impl AccuracyGrid {
    fn new(options: &Options, is_quick: bool) -> Result<Self> {
        let quick = [Some(10.0), Some(250.0), None].map(Limit);
        let all = [Some(10.0), Some(100.0), Some(250.0), Some(500.0), None].map(Limit);
        // Relays without a limit come last.
        let order = |Limit(mbit): &Limit| mbit.unwrap_or(f64::INFINITY);
        let mut limits = values_or(&options.limits, is_quick, &quick, &all);
        limits.sort_by(|one, two| order(one).total_cmp(&order(two)));
        limits.dedup();
        Ok(Self {
            seconds: options.seconds.unwrap_or(if is_quick { 8 } else { 30 }),
            runs: options.runs.unwrap_or(if is_quick { 2 } else { 7 }),
            limits,
            teams: sorted(values_or(&options.teams, is_quick, &[1, 3], &[1, 2, 3])),
            modes: sorted(values_or_all(&options.modes)),
            tor: options.tor.program()?,
        })
    }

    fn params(&self) -> Params {
        testbed::params(self.seconds)
    }

    fn team_max(&self) -> u32 {
        self.teams.iter().copied().max().unwrap_or(1)
    }

    /// The capacity of each measurer, enough to measure alone.
    fn capacity(&self) -> Rate {
        let needed = self.cells().into_iter().map(|cell| self.team_capacity(&cell));
        needed.max().unwrap_or(UNLIMITED_TEAM)
    }

    /// Pumps of each measurer. Half of the processors are left to the relay.
    fn pumps(&self) -> u32 {
        (free_cores() / (2 * self.team_max())).max(1)
    }

    /// The capacity of the whole team: *f* times the guess of the last round, so that this needs all measurers (§6.2: each
    /// has an equal share of what is needed).
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
struct Setup {
    relays: Relays,
    testbed: Testbed,
}

impl Grid for AccuracyGrid {
    type Cell = Cell;
    type Setup = Setup;
    const NAME: &'static str = "accuracy";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/accuracy.md");

    /// Settings alternate, so that other load on this machine affects them all.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for mode in self.modes.iter().copied() {
            for run in 1..=self.runs {
                for (relay, limit) in self.limits.iter().copied().enumerate() {
                    let teams = self.teams.iter();
                    cells.extend(teams.map(|team| Cell {
                        mode,
                        is_patched: mode == Mode::Echo && self.tor.is_some(),
                        limit,
                        measurers: *team,
                        run,
                        relay,
                    }));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        format!("{} s each, with up to {} measurers", self.seconds, self.team_max())
    }

    fn setup(&self, cell: &Cell) -> String {
        format!("relays: {}", cell.kind())
    }

    /// Without a limit, the next guess depends on the estimate.
    fn group(&self, cell: &Cell) -> String {
        format!("{} {}", cell.kind(), cell.limit)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Setup>> {
        let mut testbed = Testbed::new()?;
        for _ in 0..self.team_max() {
            testbed.add_measurer(self.capacity(), self.pumps())?;
        }
        let limits: Vec<Option<Rate>> = self.limits.iter().map(|limit| limit.rate()).collect();
        let address = Ipv4Addr::LOCALHOST;
        let output = session.output;
        let relays = match self.tor.as_deref().filter(|_| cell.is_patched) {
            Some(tor) => Relays::start_patched(tor, &limits, address, &testbed, output)?,
            None => Relays::start(cell.mode, &limits, address, &testbed, output)?,
        };
        Ok(Some(Setup { relays, testbed }))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let Setup { relays, testbed } = setup;
        let of_relay = earlier.cases().filter(|(other, _)| self.group(other) == self.group(cell));
        let last = of_relay.filter_map(|(_, case)| case.estimate_mbit_per_s).last();
        let last = last.map_or(UNLIMITED_GUESS, Rate::from_mbit_per_s);
        let guess = cell.guess(cell.limit.rate().unwrap_or(last));
        // Rounded up, so that together they have enough.
        let share = self.team_capacity(cell).as_bit_per_s().div_ceil(cell.measurers.into());
        let share = Rate::from_bit_per_s(share);
        let shares = (0..cell.measurers as usize).map(|place| (place, share));
        let team = &testbed.team_of(shares);
        let (request, pid, mut reports) =
            relays.subject(cell.relay, guess, self.params(), testbed)?;
        let name = &cell.to_string();
        let result = Trial { name, team, request, pid, reports: &mut reports }.run(session)?;
        Ok(result.map(|result| judge::row(cell, guess, &result)))
    }

    fn stop(&self, setup: Setup) -> Result<()> {
        setup.relays.stop()
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
    fn a_limit_is_a_rate_or_none() {
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert_eq!("2.5".parse(), Ok(Limit(Some(2.5))));
        for bad in ["", "0", "-3", "NaN", "inf", "ten"] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn by_default_all_settings_are_run() {
        let grid = AccuracyGrid::new(&parse_options(""), false).expect("no tor");
        assert_eq!(
            grid.limits,
            [Some(10.0), Some(100.0), Some(250.0), Some(500.0), None].map(Limit)
        );
        assert_eq!((grid.seconds, grid.teams.as_slice()), (30, &[1, 2, 3][..]));
        assert_eq!(grid.cells().len(), 2 * 5 * 3 * 7);
        assert!(AccuracyGrid::new(&parse_options(""), true).expect("no tor").cells().len() < 30);
    }

    #[test]
    fn given_values_replace_the_defaults_and_are_sorted() {
        let options = "--limits none,50,5,50 --teams 3,1,3 --modes transit,echo";
        let grid = AccuracyGrid::new(&parse_options(options), true).expect("no tor");
        assert_eq!(grid.limits, [Some(5.0), Some(50.0), None].map(Limit));
        assert_eq!(grid.teams, [1, 3]);
        assert_eq!(grid.modes, [Mode::Echo, Mode::Transit]);
    }

    /// For any first guess, the last round can be conclusive for a relay that keeps to its limit, and needs the whole team.
    #[test]
    fn the_last_round_needs_the_whole_team() {
        let grid = AccuracyGrid::new(&parse_options(""), false).expect("no tor");
        let cell = |run| Cell {
            mode: Mode::Echo,
            is_patched: false,
            limit: Limit(Some(100.0)),
            measurers: 1,
            run,
            relay: 0,
        };
        for run in 1..=6 {
            let team = grid.team_capacity(&cell(run));
            assert!(team <= grid.capacity());
            let conclusive = grid.params().conclusive_limit(team).as_mbit_per_s();
            assert!(conclusive > 104.9, "{conclusive}");
            let guess = cell(run).guess(Rate::from_mbit_per_s(100.0));
            let needed = guess.scaled(grid.params().excess_factor()).as_mbit_per_s();
            let [team, needed] = [team.as_mbit_per_s(), needed];
            // A guess of half the limit needs half the team.
            let share = if run % 3 == 2 { 0.5 } else { 1.0 };
            assert!((needed / team - share).abs() < 1e-6, "run {run}: {needed} of {team}");
        }
    }

    #[test]
    fn the_name_of_a_run_contains_its_parameters() {
        let cell = Cell {
            mode: Mode::Echo,
            is_patched: false,
            limit: Limit(Some(250.0)),
            measurers: 2,
            run: 3,
            relay: 0,
        };
        assert_eq!(cell.to_string(), "echo 250 Mbit/s, 2 measurers, run 3");
        let cell = Cell {
            mode: Mode::Transit,
            is_patched: false,
            limit: Limit(None),
            measurers: 1,
            run: 1,
            relay: 0,
        };
        assert_eq!(cell.to_string(), "transit without limit, 1 measurer, run 1");
    }
}
