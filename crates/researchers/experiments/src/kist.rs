//! `flashflow-lab experiment kist`: the effect of schedulers on quiet circuits at a bottleneck.

mod client;
mod judge;
mod net;
mod network;
mod run;
mod server;
mod trace;

use crate::common::Session;
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{median, parameter};
use crate::simulated::SimulatedOptions;
use crate::testbed;
use clap::Args;
use client::BulkLoad;
use judge::Runs;
use lab::TemporaryFolder;
use lab::wan::Congestion;
use net::{Narrow, NarrowAt, Network, usual_congestion};
use onion::{Duration, Rate};
use report::experiment::{CaseVerdict, ExperimentReport};
use run::Scheduler;
use serde::Serialize;
use std::fmt;

/// Does KIST reduce the queueing delay of quiet circuits without reducing throughput?
///
/// Our relay carries several bulk circuits and one quiet circuit over each of several links, which share a
/// bottleneck. Runs with the schedulers Vanilla, KISTLite and KIST alternate. The experiment uses network
/// namespaces, which requires root. With --network, it compares the schedulers in all relays of a simulated
/// network instead: see simulation.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment kist --quick --out results
  flashflow-lab experiment kist --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3")]
pub(super) struct Options {
    /// Runs with each scheduler, 1 to 100; 10 by default, 2 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Measured seconds of each run, 1 to 600; 30 by default, 4 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Rate of the bottleneck in Mbit/s, 1 to 1000.
    #[arg(long, default_value_t = 20.0, value_parser = crate::common::mbit, value_name = "MBIT")]
    rate: f64,
    /// Queue limit of the bottleneck, in milliseconds at its rate.
    #[arg(long, default_value_t = 100, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(10..=2000))]
    queue: u32,
    /// Position of the bottleneck.
    #[arg(long, value_enum, default_value = "beyond")]
    narrow: NarrowAt,
    /// TCP's congestion control: bbr, cubic or reno; by default cubic, or reno if namespaces may not use cubic.
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,
    /// Links of clients to the relay, 1 to 64.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    links: u32,
    /// Bulk circuits on each link, 1 to 100.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    bulk: u32,
    /// Interval between runs of the scheduler, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    interval: u32,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

/// The parameters of all runs.
struct KistSettings {
    runs: u32,
    /// The first phase, with quiet circuits only.
    alone: Duration,
    /// The second phase, in which bulk circuits start and TCP settles.
    warm_up: Duration,
    /// The third phase, which is measured.
    length: Duration,
    narrow: Narrow,
    load: BulkLoad,
    interval: Duration,
}

impl KistSettings {
    fn new(options: &Options, session: Session<'_>) -> Self {
        let rate = Rate::from_mbit_per_s(options.rate);
        let queue = rate.as_byte_per_s() * u64::from(options.queue) / 1000;
        Self {
            runs: session.or(options.runs, 2, 10),
            alone: Duration::from_secs(session.or(None, 1, 3)),
            warm_up: Duration::from_secs(session.or(None, 2, 5)),
            length: Duration::from_secs(session.or(options.seconds, 4, 30).into()),
            narrow: Narrow {
                place: options.narrow,
                rate,
                queue_bytes: u32::try_from(queue).unwrap_or(u32::MAX),
                congestion: options.congestion.unwrap_or_else(usual_congestion),
            },
            load: BulkLoad { links: options.links, bulk_per_link: options.bulk },
            interval: Duration::from_millis(u64::from(options.interval)),
        }
    }
}

/// One run with a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    #[serde(skip)]
    scheduler: Scheduler,
    /// From one.
    #[serde(skip)]
    number: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, run {}", self.scheduler.name(), self.number)
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, session);
    }
    let options_of_grid = GridOptions { shard: options.simulated.runs.shard };
    grid::run(&KistSettings::new(options, session), options_of_grid, session)
}

impl Grid for KistSettings {
    type Cell = Cell;
    type Setup = (Network, TemporaryFolder);
    const NAME: &'static str = "kist";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/kist.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let of_number = |number| Scheduler::ALL.map(|scheduler| Cell { scheduler, number });
        (1..=self.runs).flat_map(of_number).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let place = match self.narrow.place {
            NarrowAt::Beyond => "one hop beyond the relay",
            NarrowAt::Own => "the relay's own interface",
        };
        let BulkLoad { links, bulk_per_link } = self.load;
        vec![
            parameter("bottleneck", format!("{} (tbf), {place}", self.narrow.rate)),
            parameter("queue of the bottleneck", format!("{} KiB", self.narrow.queue_bytes / 1024)),
            parameter("links of clients", links),
            parameter("circuits on each link", format!("{bulk_per_link} bulk, 1 quiet")),
            parameter("circuit window", "1000 cells"),
            parameter("congestion control of TCP", self.narrow.congestion.name()),
            parameter("interval of the scheduler", format!("{} ms", self.interval.as_millis())),
            parameter("runs with each scheduler", self.runs),
            parameter("measured seconds of each run", self.length.as_secs()),
        ]
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<Self::Setup>> {
        Ok(Some((Network::new(self.narrow)?, testbed::temporary_folder()?)))
    }

    fn run(&self, setup: &mut Self::Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let ((network, folder), scheduler) = (setup, run.cell.scheduler);
        let figures = run::run(self, network, scheduler, folder.path(), run.session.interrupt)?;
        let Some(figures) = figures else { return Ok(None) };
        let mut runs = Runs::from_rows(&run.earlier);
        runs.0.push((scheduler, figures.clone()));
        let cases = runs.run_cases().pop().into_iter().collect();
        Ok(Some(Row { cases, ..Row::default() }.with_data(&figures)?))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let runs = Runs::from_rows(&rows);
        report.cases.retain(|case| case.verdict == CaseVerdict::Failed);
        report.cases.splice(0..0, runs.cases());
        report.cases.extend(runs.run_cases());
        report.figures = runs.figures();
        report.notes.splice(0..0, notes(&runs));
        report.answer = answer(&runs);
    }
}

fn in_ms(values: &[f64]) -> f64 {
    median(values.iter().map(|s| s * 1e3)).unwrap_or(f64::NAN)
}

fn notes(runs: &Runs) -> Vec<String> {
    let notes = Scheduler::ALL.iter().filter_map(|scheduler| {
        let pooled = runs.pooled(*scheduler)?;
        Some(format!(
            "{}: median queue time {:.1} ms, time to first byte {:.1} ms, {:.2} Mbit/s.",
            scheduler.name(),
            in_ms(&pooled.queued_s),
            in_ms(&pooled.first_s),
            pooled.mbit_per_s
        ))
    });
    notes.collect()
}

fn answer(runs: &Runs) -> String {
    let both = runs.pooled(Scheduler::Vanilla).zip(runs.pooled(Scheduler::Kist));
    let Some((vanilla, kist)) = both else {
        return "There are no runs to compare.".to_owned();
    };
    let change = |from: f64, to: f64| (to / from - 1.0) * 100.0;
    format!(
        "KIST against Vanilla: queueing delay of quiet circuits {:+.0} % ({:.0} and {:.0} ms), time to the \
         first byte {:+.0} % ({:.0} and {:.0} ms), throughput {:+.1} % ({:.2} and {:.2} Mbit/s).",
        change(in_ms(&vanilla.queued_s), in_ms(&kist.queued_s)),
        in_ms(&kist.queued_s),
        in_ms(&vanilla.queued_s),
        change(in_ms(&vanilla.first_s), in_ms(&kist.first_s)),
        in_ms(&kist.first_s),
        in_ms(&vanilla.first_s),
        change(vanilla.mbit_per_s, kist.mbit_per_s),
        kist.mbit_per_s,
        vanilla.mbit_per_s,
    )
}
