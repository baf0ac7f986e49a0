//! `flashflow-lab experiment client-impact`: downloads through a distant FlashFlow relay, compared with C tor.

mod judge;
mod scene;

use crate::common::{Session, percent, values_or, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{median, parameter};
use clap::{Args, ValueEnum};
use judge::{Rates, WIDEST};
use lab::Content;
use lab::wan::Congestion;
use report::experiment::{CaseVerdict, ExperimentReport};
use scene::{Network, Software};
use serde::Serialize;
use std::fmt;

/// The size of a first download that does not count.
const WARM_UP_BYTES: u64 = 10_000;

/// Are downloads through our relay as fast as through C tor's, over real distances?
///
/// A C tor client downloads through a private network of C tor with one distant hop, which alternates between a FlashFlow and a
/// C tor relay at the same host. The paths between that host and all others have the given round trips, and losses in each
/// direction. Each download has a separate circuit and is verified by its SHA-256; links between relays exist before. The
/// FlashFlow relay is slower if the whole 95 % interval of the ratio of paired downloads, FlashFlow over C tor, is below 1. A wide
/// interval that contains 1 decides nothing. Needs root for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment client-impact --quick --out results
  flashflow-lab experiment client-impact --places guard --rtts-ms 100 --losses-percent 0 --congestion bbr")]
pub(super) struct Options {
    /// Downloads through each of the two relays for each case; 5 by default, 4 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Bytes of a download; 20 MB by default, 4 MB with --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1024..))]
    bytes: Option<u64>,
    /// Round trips; 20,100,200 by default, 20,100 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Packet loss in each direction; 0,0.1 by default.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = percent,
        default_values_t = [0.0, 0.1])]
    losses_percent: Vec<f64>,
    /// Positions of the distant hop; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// Congestion control of all hosts.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Seed of the packet losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// A position in a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Place {
    /// The first.
    Guard,
    /// The second.
    Middle,
    /// The last.
    Exit,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Middle => "middle",
            Self::Exit => "exit",
        }
    }
}

/// A relay at some distance from all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    place: Place,
    rtt_ms: u32,
    /// In each direction.
    loss_percent: f64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ms, {} %", self.place.name(), self.rtt_ms, self.loss_percent)
    }
}

struct ClientImpactGrid {
    runs: u32,
    bytes: u64,
    places: Vec<Place>,
    rtts_ms: Vec<u32>,
    losses_percent: Vec<f64>,
    congestion: Congestion,
    seed: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let is_quick = session.common.quick;
    let grid = ClientImpactGrid {
        runs: options.runs.unwrap_or(if is_quick { 4 } else { 5 }),
        bytes: options.bytes.unwrap_or(if is_quick { 4_000_000 } else { 20_000_000 }),
        places: values_or_all(&options.places),
        rtts_ms: values_or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200]),
        losses_percent: options.losses_percent.clone(),
        congestion: options.congestion,
        seed: options.seed,
    };
    grid::run(&grid, options.grid, session)
}

impl Grid for ClientImpactGrid {
    type Cell = Cell;
    type Setup = Network;
    const NAME: &'static str = "client-impact";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/client-impact.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for place in self.places.iter().copied() {
            for rtt_ms in self.rtts_ms.iter().copied() {
                let losses = self.losses_percent.iter();
                cells.extend(losses.map(|loss| Cell { place, rtt_ms, loss_percent: *loss }));
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        let Self { runs, bytes, congestion, seed, .. } = self;
        format!("{runs} downloads of {bytes} bytes, {congestion}, seed {seed}")
    }

    fn start(&self, _: &Cell, session: Session<'_>) -> Result<Option<Network>> {
        Network::start(self.congestion, self.seed, session.output).map(Some)
    }

    fn run(&self, network: &mut Network, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        for software in Software::ALL {
            // Creates the links between relays, which they keep.
            let content = Content { len: WARM_UP_BYTES, seed: 0 };
            if let Err(error) = network.download(cell, software, content)? {
                let who = software.name();
                session.output.step(format!("{cell}, {who}: the first download failed: {error}"));
            }
        }
        let mut rates = Rates::default();
        for run in 1..=self.runs {
            for software in Software::ALL {
                if session.interrupt.is_requested() {
                    return Ok(None);
                }
                session.output.doing(format!("{cell}, run {run}: {}", software.name()));
                let content = Content { len: self.bytes, seed: rates.count() };
                rates.add(software, network.download(cell, software, content)?);
            }
        }
        Ok(Some(rates.case(cell.to_string()).into()))
    }

    fn stop(&self, network: Network) -> Result<()> {
        network.stop()
    }

    fn conclude(&self, _: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let (held, open) =
            (report.count(CaseVerdict::Held), report.count(CaseVerdict::Inconclusive));
        let all = report.cases.len();
        let ratio = median(report.cases.iter().filter_map(|case| case.ratio));
        report.answer = format!(
            "In {held} of {all} cases, downloads through our relay were not slower, and {open} cases decide nothing. In the median case, \
             their rate was {:.2} of the rate through C tor.",
            ratio.unwrap_or(f64::NAN),
        );
        report.parameters = vec![
            parameter("downloads through each, for a case", self.runs),
            parameter("bytes of each", self.bytes),
            parameter("congestion control", self.congestion),
            parameter("an interval is too wide if it exceeds its middle by", format!("× {WIDEST}")),
            parameter("seed", self.seed),
        ];
        report.promise = Self::promise(held > 0 && held + open == all);
    }
}
