//! `flashflow-lab experiment detection`: relays that serve only measurements, among simulated networks that are probed by ordinary circuits.

mod network;
mod play;

use crate::common::Session;
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_holds, parameter};
use clap::Args;
use onion::Duration;
use play::Played;
use report::experiment::{Axis, Case, ExperimentFigure, ExperimentReport, On, Role, Series};
use serde::Serialize;
use std::fmt;

/// Are relays found that serve only measurements, without honest ones being suspected?
///
/// The test is that of `flashflow bwfile explain --probes`, the network a model. A prober builds circuits of a random guard, a random relay
/// and a random exit, and downloads 100 kB over each. Of honest relays, 80 % fail 0.5 % of their circuits, 15 % fail 2 %, and 5 %
/// fail 8 %. Nine of ten are down for up to two hours every 20 days, the others every two days. 1 % of circuits fail anyway, on one
/// day in 20 a tenth. Rates are lognormal. 5 % of the relays begin to lie at a random time: they drop all or half of their circuits, all but
/// those whose first hop is an accomplice and knows the prober, nine of ten, those of twelve hours of the day, those of which they are
/// the first hop, or serve at a twentieth of the rate. With `frame`, 10 % fail all circuits with 1 % of the honest relays.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment detection --quick --out results")]
pub(super) struct Options {
    /// Relays of the network; 7000 by default, 1000 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u16).range(100..=20_000))]
    relays: Option<u16>,
    /// Simulated days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(50..=3650))]
    days: u32,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// What the dishonest relays do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Lie {
    /// All relays are honest.
    None,
    /// They drop all circuits.
    DropAll,
    /// They serve circuits whose first hop is one of them, since that knows the prober's address.
    KnowProber,
    /// They serve one circuit in ten.
    ServeFew,
    /// They serve at a twentieth of the rate of others.
    Throttle,
    /// They drop half of the circuits.
    DropHalf,
    /// They drop all circuits for twelve hours of each day.
    DropByNight,
    /// They drop all circuits as first hop only.
    DropAsFirst,
    /// They fail all circuits with certain honest relays.
    Frame,
}

impl Lie {
    const ALL: [Self; 9] = [
        Self::None,
        Self::DropAll,
        Self::KnowProber,
        Self::ServeFew,
        Self::Throttle,
        Self::DropHalf,
        Self::DropByNight,
        Self::DropAsFirst,
        Self::Frame,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "no lie",
            Self::DropAll => "drop all",
            Self::KnowProber => "drop all, know the prober",
            Self::ServeFew => "serve a tenth",
            Self::Throttle => "serve slowly",
            Self::DropHalf => "drop half",
            Self::DropByNight => "drop by night",
            Self::DropAsFirst => "drop as first hop",
            Self::Frame => "frame others",
        }
    }

    /// The share of the relays that lie.
    const fn share(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Frame => 0.1,
            _ => 0.05,
        }
    }
}

/// A lie, and the number of circuits.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    lie: Lie,
    /// Circuits that the prober builds a day, over the number of relays.
    circuits_a_relay_and_day: u32,
}

impl Cell {
    /// Whether nine of ten liars must be found within a week.
    fn must_be_found(self) -> bool {
        let is_claimed = matches!(self.lie, Lie::DropAll | Lie::KnowProber | Lie::ServeFew);
        is_claimed && self.circuits_a_relay_and_day == CIRCUITS
    }
}

/// The number of circuits with which the claim is made.
const CIRCUITS: u32 = 6;

/// Fewer and more circuits, for comparison.
const OTHER_CIRCUITS: [u32; 3] = [1, 2, 4];

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, circuits {}", self.lie.name(), self.circuits_a_relay_and_day)
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    relays: u32,
    days: u32,
    seed: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let relays = session.or(options.relays, 1000, 7000).into();
    let settings = Settings { relays, days: options.days, seed: options.seed };
    grid::run(&settings, options.grid, session)
}

impl Grid for Settings {
    type Cell = Cell;
    type Setup = ();
    const NAME: &'static str = "detection";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/detection.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let claimed = Lie::ALL.map(|lie| Cell { lie, circuits_a_relay_and_day: CIRCUITS });
        let others = OTHER_CIRCUITS
            .map(|circuits_a_relay_and_day| Cell { lie: Lie::DropAll, circuits_a_relay_and_day });
        claimed.into_iter().chain(others).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("relays", self.relays),
            parameter("days", self.days),
            parameter("seed", self.seed),
        ]
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let cell = *run.cell;
        let Some(played) = play::play(cell, *self, || run.session.interrupt.is_requested()) else {
            return Ok(None);
        };
        let delays = played.delays_days.clone();
        Row::from(played.case(cell)).with_data(&(delays, played.liars)).map(Some)
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.answer = answer(&rows);
        report.figures = vec![figure(&rows)];
        let held = rows.are_complete() && claim_holds(&report.cases);
        report.promise = Self::promise(held);
    }
}

fn answer(rows: &Rows<'_, Cell>) -> String {
    let value = |case: &Case, name: &str| case.value(name)?.as_f64();
    let claimed = rows.cases().filter(|(cell, _)| cell.must_be_found());
    let found = claimed.filter_map(|(_, case)| value(case, "found_in_a_week_share"));
    let found = match found.reduce(f64::min) {
        None => "No claimed case was run.".to_owned(),
        Some(share) => format!(
            "With {CIRCUITS} circuits a relay and day, at least {:.1} % of relays that drop nearly all other traffic are found within a week.",
            100.0 * share
        ),
    };
    let suspected = rows.cases().filter_map(|(_, case)| value(case, "honest_suspected_percent"));
    match suspected.reduce(f64::max) {
        None => found,
        Some(0.0) => format!("{found} No honest relay is suspected in the simulated time."),
        Some(percent) => {
            format!(
                "{found} At most {percent:.3} % of honest relays are suspected in the simulated time."
            )
        }
    }
}

/// The share of the liars found, by the time since they began.
fn figure(rows: &Rows<'_, Cell>) -> ExperimentFigure {
    let mut figure = ExperimentFigure::new(
        "found",
        "Dishonest relays that are suspected",
        Axis::new("days since they began").showing(0.0, 28.0),
        Axis { is_percent: true, ..Axis::new("share suspected").showing(0.0, 1.0) },
    )
    .mark(On::X, 7.0, "a week", Role::Truth);
    for (count, (cell, (delays, liars))) in rows.data::<(Vec<u32>, usize)>().enumerate() {
        let is_shown = cell.circuits_a_relay_and_day == CIRCUITS && liars > 0;
        if is_shown && cell.lie != Lie::Frame {
            let share = |day| {
                let found = delays.iter().filter(|delay| **delay <= day).count();
                (f64::from(day), Played::share(found, liars))
            };
            let points = (0..=28).map(share).collect();
            figure = figure.with(Series::line(cell.lie.name(), Role::Nth(count), points));
        }
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(rows: &[Option<Row>]) -> String {
        let cells = [Cell { lie: Lie::DropAll, circuits_a_relay_and_day: CIRCUITS }];
        answer(&Rows::new(&cells, rows))
    }

    #[test]
    fn the_answer_claims_nothing_without_cases() {
        assert_eq!(answer_of(&[None]), "No claimed case was run.");
        let case = Case::reported("drop all".to_owned(), "")
            .column("found_in_a_week_share", 0.95)
            .column("honest_suspected_percent", 0.02);
        let answer = answer_of(&[Some(case.into())]);
        assert!(
            answer.contains("at least 95.0 %") && answer.contains("At most 0.020 %"),
            "{answer}"
        );
    }
}
