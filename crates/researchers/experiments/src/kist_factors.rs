//! `flashflow-lab experiment kist-factors`: which properties of networks decide what KIST gains, and what it costs in anonymity.

mod attack_world;
mod attacks;
mod judge;
mod network;
mod scenes;

use crate::common::{Session, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_holds, parameter};
use clap::{Args, ValueEnum};
use onion::Duration;
use report::experiment::{CaseVerdict, ExperimentReport};
use scenes::{LinkScheduler, Scene};
use serde::Serialize;
use std::fmt;

/// Which properties of networks decide what KIST gains, and does it help attacks on anonymity?
///
/// Everything is in virtual time. A small busy network runs with the settings of 2014 and of today, with one of them changed at a time, with
/// shares of relays that have KIST, loads and losses; schedulers are Vanilla, KISTLite, KIST, and Vanilla with TCP_NOTSENT_LOWAT as in Arti's
/// relay. In a smaller one, an adversary plays the latency, throughput and correlation attacks of the literature.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment kist-factors --quick --out results
  flashflow-lab experiment kist-factors --studies factors,losses --seeds 10 --json")]
pub(super) struct Options {
    /// Studies; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "STUDY,…")]
    studies: Vec<Study>,
    /// Runs of each setting, with the seeds 1, 2, …; 5 by default, 2 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Simulated seconds of each run, 20 to 10000; 120 by default, 45 with --quick. The first third is warm-up.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(20..=10_000))]
    run_seconds: Option<u32>,
    #[command(flatten)]
    grid: GridOptions,
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Study {
    /// All schedulers, with the settings of 2014 and of today.
    Schedulers,
    /// The settings of 2014 with one of today, and those of today with one of 2014.
    Factors,
    /// The share of relays with KIST.
    Shares,
    /// The number of clients.
    Loads,
    /// The share of lost packets.
    Losses,
    /// Attacks on anonymity.
    Attacks,
}

/// What all cells use.
#[derive(Clone, Debug)]
struct Settings {
    studies: Vec<Study>,
    seeds: u64,
    seconds: u32,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    #[serde(skip)]
    place: Place,
    #[serde(skip)]
    scheduler: LinkScheduler,
    #[serde(skip)]
    seed: u64,
}

/// Where a scheduler is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// The busy network.
    Network(Scene),
    /// The adversary's network.
    Attacks,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, scheduler, seed } = self;
        match place {
            Place::Network(scene) => write!(f, "{scene}, {}, seed {seed}", scheduler.name()),
            Place::Attacks => write!(f, "attacks, {}, seed {seed}", scheduler.name()),
        }
    }
}

impl Settings {
    fn study_cells(&self, study: Study) -> Vec<Cell> {
        let kinds: Vec<(Place, LinkScheduler)> = match study {
            Study::Attacks => LinkScheduler::ALL.map(|name| (Place::Attacks, name)).into(),
            _ => scenes::runs_of_study(study)
                .into_iter()
                .map(|(scene, scheduler)| (Place::Network(scene), scheduler))
                .collect(),
        };
        let seed_cells = |seed| {
            kinds.iter().map(move |(place, scheduler)| Cell {
                place: *place,
                scheduler: *scheduler,
                seed,
            })
        };
        (1..=self.seeds).flat_map(seed_cells).collect()
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let settings = Settings {
        studies: values_or_all(&options.studies),
        seeds: session.or(options.seeds, 2, 5).into(),
        seconds: session.or(options.run_seconds, 45, 120),
    };
    grid::run(&settings, options.grid, session)
}

impl Grid for Settings {
    type Cell = Cell;
    type Setup = ();
    const NAME: &'static str = "kist-factors";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/kist-factors.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        self.studies.iter().flat_map(|study| self.study_cells(*study)).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("seeds", self.seeds),
            parameter("simulated seconds of a run", self.seconds),
            parameter("interval of KIST", format!("{} ms", scenes::INTERVAL.as_millis())),
        ]
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn run(&self, (): &mut (), run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let Cell { place, scheduler, seed } = *run.cell;
        match place {
            Place::Network(scene) => {
                let network = scene.network(scheduler)?;
                let figures = network::run(&network, self.seconds, seed, run.session)?;
                figures.map(|figures| Row::default().with_data(&figures)).transpose()
            }
            Place::Attacks => {
                let areas = attacks::areas(scheduler, self.seconds, seed);
                Row::default().with_data(&areas).map(Some)
            }
        }
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.cases.retain(|case| case.verdict == CaseVerdict::Failed);
        let runs = judge::Runs::from_rows(&rows);
        report.cases.extend(runs.cases(&self.studies));
        report.answer = judge::answer(&report.cases);
        report.promise = Self::promise(rows.are_complete() && claim_holds(&report.cases));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_run_with_vanilla_and_another_scheduler() {
        let settings = Settings { studies: Study::value_variants().into(), seeds: 2, seconds: 20 };
        for study in settings.studies.clone() {
            let cells = settings.study_cells(study);
            let is_vanilla = |cell: &&Cell| cell.scheduler == LinkScheduler::Vanilla;
            assert!(cells.iter().any(|cell| is_vanilla(&cell)), "{study:?}");
            assert!(cells.iter().any(|cell| !is_vanilla(&cell)), "{study:?}");
            assert_eq!(cells.iter().filter(|cell| cell.seed == 2).count() * 2, cells.len());
        }
    }
}
