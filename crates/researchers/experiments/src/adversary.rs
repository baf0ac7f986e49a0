//! `flashflow-lab experiment adversary`: relays, coordinators and measurers that lie or break the rules.

mod evasion;
mod figures;
mod inflating;
mod inflation;
mod parties;
mod relays;
mod starving;
mod timing;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::measuring::measure;
use crate::reporting::parameter;
use crate::testbed::{Testbed, echo_limit};
use crate::wan_site::Relays;
use authority::one_relay::Request;
use authority::shell::Team;
use clap::Args;
use coordinator::{Outcome, Progress};
use onion::{Duration, Rate};
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use serde::Serialize;
use std::fmt;

/// *r*, the maximum share of client traffic. With it a lying relay gains at most a third.
const RATIO: f64 = 0.25;

/// The tolerance of every bound, for bursts and the boundaries of seconds.
const TOLERANCE: f64 = 0.05;

/// 1/(1−r).
const GAIN: f64 = 1.0 / (1.0 - RATIO);

/// The number of measurer processes, each with one pump.
const MEASURERS: usize = 2;

/// The capacity of each measurer, relative to the relays' limit: enough for relays that gain or have twice as much.
const CAPACITY: f64 = 3.0;

/// The numbers of client circuits of the curve.
const CLIENT_CIRCUITS: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];

/// What do relays, coordinators and measurers gain by lying?
///
/// Two measurer processes measure lying relays with a known rate limit by echo. A relay must be detected or gain at most 1/(1-r). A relay
/// that is fast only while it is measured is believed. The relay must refuse coordinators and measurers that break the rules, with the
/// error number of the reason. Measurers that inflate their counts must be detected by the relay's own counts. The gains of two relays
/// on one machine that take turns or burst together, and of a relay that is fast only at the minute of yesterday's measurement, are
/// computed. A client that uses an honest relay over many circuits while it is measured, all day or from the start of the measurement on,
/// must not lower an estimate that is called conclusive. Finally, relays that forge answers are measured in virtual time: how many of them return k forged answers undetected?
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment adversary --quick --out results")]
pub(super) struct Options {
    /// Duration of each measurement in seconds, 3 to 120; 15 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Rate limit of the relays in Mbit/s, 20 or more.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    limit: f64,
    /// Relays to measure; all by default.
    #[arg(long, value_delimiter = ',', value_name = "RELAY,…",
        value_parser = clap::builder::PossibleValuesParser::new(relays::names().into_iter().chain(starving::names())))]
    only: Vec<String>,
    /// Number of relays that forge answers in virtual time; 2000 by default, 300 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    forgers: Option<u32>,
    /// Numbers of client circuits, up to 2000 each, at which our relay and C tor are measured in transit; none if --quick.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…", value_parser = clap::value_parser!(u32).range(1..=2000))]
    client_circuits: Vec<u32>,
    /// Seed of the first forger. The seeds of the others follow.
    #[arg(long, default_value_t = 0, value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(..=u64::MAX >> 2))]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

struct AdversarySettings {
    seconds: u32,
    limit: Rate,
    /// The relays to measure; all if empty.
    only: Vec<String>,
    forgers: u32,
    client_circuits: Vec<u32>,
    first_seed: u64,
}

/// A lie, breach or attack to try: a row of a table of its module.
#[derive(Serialize)]
struct Cell {
    kind: Kind,
    #[serde(skip)]
    name: String,
    /// Whether its relay is C tor, which the setup then has.
    #[serde(skip)]
    needs_tor: bool,
    /// Tries it; `None` if the user has interrupted.
    #[serde(skip)]
    attempt: Attempt,
}

/// Tries a lie, breach or attack.
type Attempt = Box<dyn Fn(&Context<'_>) -> Result<Option<Row>>>;

/// What lies, and what is lied about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Relay,
    Party,
    Inflation,
    Timing,
    Starving,
    Evasion,
}

impl Cell {
    /// A cell with one case.
    fn new(
        kind: Kind,
        name: impl Into<String>,
        attempt: impl Fn(&Context<'_>) -> Result<Case> + 'static,
    ) -> Self {
        Self::with_row(kind, name, move |context| Ok(Some(attempt(context)?.into())))
    }

    /// A cell with several cases.
    fn with_row(
        kind: Kind,
        name: impl Into<String>,
        attempt: impl Fn(&Context<'_>) -> Result<Option<Row>> + 'static,
    ) -> Self {
        Self { kind, name: name.into(), needs_tor: false, attempt: Box::new(attempt) }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Measurers, and a C tor relay if the cell needs one.
struct Setup {
    testbed: Testbed,
    tor: Option<Relays>,
}

/// What all cells use.
struct Context<'s> {
    testbed: &'s Testbed,
    tor: Option<&'s Relays>,
    settings: &'s AdversarySettings,
    session: Session<'s>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let settings = AdversarySettings {
        seconds: session.or(options.seconds, 6, 15),
        limit: echo_limit(options.limit)?,
        only: options.only.clone(),
        forgers: session.or(options.forgers, 300, 2000),
        client_circuits: match options.client_circuits.as_slice() {
            [] if session.common.quick || !options.only.is_empty() => Vec::new(),
            [] => CLIENT_CIRCUITS.to_vec(),
            given => given.to_vec(),
        },
        first_seed: options.seed,
    };
    grid::run(&settings, options.grid, session)
}

impl AdversarySettings {
    /// Whether the user has chosen the relay with this name, or none.
    fn has_chosen(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

impl Grid for AdversarySettings {
    type Cell = Cell;
    type Setup = Setup;
    const NAME: &'static str = "adversary";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/adversary.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let mut cells = relays::cells(self);
        cells.extend(parties::cells());
        cells.extend(inflation::cells());
        cells.push(timing::cell());
        cells.push(evasion::cell());
        // Last, since C tor needs a setup of its own.
        cells.extend(starving::cells(self));
        cells
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("limit of the relays", self.limit),
            parameter("share of clients r", RATIO),
            parameter("length of a measurement", format!("{} s", self.seconds)),
            parameter("measurers", format!("{MEASURERS} processes")),
            parameter("forgers in virtual time", self.forgers),
            parameter("seed of the first forger", self.first_seed),
        ]
    }

    fn setup(&self, cell: &Cell) -> String {
        if cell.needs_tor { "measurers and C tor" } else { "measurers" }.to_owned()
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Setup>> {
        let capacity = self.limit.scaled(CAPACITY);
        let testbed = Testbed::with_measurers(MEASURERS, capacity, session.output)?;
        let tor = || starving::start_tor(self.limit, &testbed, session.output);
        let tor = cell.needs_tor.then(tor).transpose()?;
        Ok(Some(Setup { testbed, tor }))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let Setup { testbed, tor } = setup;
        (cell.attempt)(&Context { testbed, tor: tor.as_ref(), settings: self, session })
    }

    fn stop(&self, setup: Setup) -> Result<()> {
        setup.tor.map_or(Ok(()), Relays::stop)
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let of = |kind| -> Vec<&Case> {
            rows.cases().filter(|(cell, _)| cell.kind == kind).map(|(_, case)| case).collect()
        };
        report.answer = answer(of);
        report.answer += &starving::answer(&report.cases);
        report.figures.splice(0..0, figures::gains(&of(Kind::Relay)));
        report.figures.extend(starving::figure(&of(Kind::Starving)));
    }
}

impl Context<'_> {
    /// Shows the progress of the cell.
    fn doing(&self, message: impl Into<String>) {
        self.session.output.doing(message);
    }

    /// Measures a relay. A failure is judged, so the measurement is not repeated.
    ///
    /// # Errors
    /// Also if the user has interrupted: then the case does not count.
    fn measure(
        &self,
        name: &str,
        team: &dyn Team,
        request: Request,
        on_start: &mut dyn FnMut(),
    ) -> Result<Outcome> {
        let request = Request { repeats_failures: false, ..request };
        let mut on_progress = |progress: Progress| match progress {
            Progress::Preparing { .. } => {}
            Progress::Started { .. } => on_start(),
            Progress::Second { round, index, of, measured } => {
                let (mbit, second) = (measured.as_mbit_per_s(), index + 1);
                self.doing(format!(
                    "{name}: round {round}, second {second} of {of}: {mbit:.1} Mbit/s"
                ));
            }
        };
        let stop = self.session.interrupt.requested();
        let measured = measure(team, request, &mut on_progress, stop)?;
        let interrupted = || Error::Failed("interrupted".to_owned());
        measured.map(|measured| measured.record.outcome()).ok_or_else(interrupted)
    }
}

fn answer<'c>(of: impl Fn(Kind) -> Vec<&'c Case>) -> String {
    let [relays, parties, inflation, timing] =
        [Kind::Relay, Kind::Party, Kind::Inflation, Kind::Timing].map(&of);
    let refused =
        |cases: &[&Case]| cases.iter().filter(|case| case.verdict == CaseVerdict::Refused).count();
    let believed = |case: &&&Case| Some(case.name.as_str()) == relays::believed();
    let max = relays.iter().filter(|case| !believed(case)).filter_map(|case| case.ratio);
    let max = max.fold(0.0, f64::max);
    let mut answer = format!(
        "{} of {} relays were detected, and no other gained more than a factor of {max:.3} (bound: {GAIN:.3})",
        refused(&relays),
        relays.len(),
    );
    if let Some(gain) = relays.iter().find(believed).and_then(|case| case.ratio) {
        answer += &format!(
            ", except one that is fast only while it is measured: {gain:.3} times what it carries otherwise"
        );
    }
    answer += &format!(
        "; {} of {} breaches of the rules by coordinators and measurers were refused, and {} of {} measurers that \
         inflated their counts.",
        refused(&parties),
        parties.len(),
        refused(&inflation),
        inflation.len(),
    );
    let ratio = |name| timing.iter().find(|case| case.name == name).and_then(|case| case.ratio);
    if let (Some(turns), Some(bursts)) = (ratio(timing::TURNS), ratio(timing::BURSTS)) {
        answer += &format!(
            " Two relays on one machine together gain at most a factor of {turns:.3} if they take turns, and {bursts:.3} if they burst \
             together."
        );
    }
    if let Some(yesterday) = ratio(timing::YESTERDAY) {
        answer += &format!(
            " A relay that is fast only at the minute of yesterday's measurement is credited with {yesterday:.3} of its usual capacity."
        );
    }
    answer += &evasion::answer(&of(Kind::Evasion)).unwrap_or_default();
    answer
}
