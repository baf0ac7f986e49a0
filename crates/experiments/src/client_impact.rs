//! `flashflow-lab experiment client-impact`: downloads through our relay, far away, compared with C tor's.

mod judge;
mod scene;

use crate::common::{Session, percent, values_or};
use crate::error::Result;
use crate::grid::{self, Grid, GridOptions, Row, Rows, Turn};
use crate::reporting::{median, parameter, rule};
use clap::{Args, ValueEnum};
use judge::{Rates, WIDEST};
use lab::Content;
use lab::wan::Congestion;
use report::experiment::{CaseVerdict, ExperimentReport, Promise};
use scene::{Network, Software};
use serde::Serialize;
use std::fmt;

/// A download that is not counted.
const WARM_UP_BYTES: u64 = 10_000;

/// Are downloads through our relay as fast as through C tor's, over real distances?
///
/// A C tor client downloads through a private network of C tor, in which one hop of the circuit is far away: our
/// relay and C tor's at the same host alternate. Between that host and all others are the round trips
/// of the grid, and its losses in each direction. Each download has a circuit of its own and is compared by its
/// SHA-256; links between relays exist before. Our relay is slower where the whole 95 % interval of the ratio, our relay over
/// C tor's, of paired downloads, is below 1; where it contains 1 and is wide, the case decides nothing. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment client-impact --quick --out results
  flashflow-lab experiment client-impact --places guard --rtts-ms 100 --losses-percent 0 --congestion bbr")]
pub(super) struct Options {
    /// Downloads through each of the two relays for each case; 5 by default, 4 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Bytes of a download; 20 MB by default, 4 MB if --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1024..))]
    bytes: Option<u64>,
    /// Round trips; 20,100,200 by default, 20,100 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Packets lost in each direction; 0,0.1 by default.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = percent,
        default_values_t = [0.0, 0.1])]
    losses_percent: Vec<f64>,
    /// The far hop of the circuit; all by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// Congestion control of all hosts.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Seed of what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// A hop of a circuit.
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
    const ALL: [Self; 3] = [Self::Guard, Self::Middle, Self::Exit];

    /// Its number on the circuit.
    const fn number(self) -> usize {
        match self {
            Self::Guard => 0,
            Self::Middle => 1,
            Self::Exit => 2,
        }
    }

    const fn word(self) -> &'static str {
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
        write!(f, "{}, {} ms, {} %", self.place.word(), self.rtt_ms, self.loss_percent)
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
        places: values_or(&options.places, is_quick, &Place::ALL, &Place::ALL),
        rtts_ms: values_or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200]),
        losses_percent: options.losses_percent.clone(),
        congestion: options.congestion,
        seed: options.seed,
    };
    grid::run(&grid, options.grid, session)
}

impl Grid for ClientImpactGrid {
    type Cell = Cell;
    type World = Network;
    const NAME: &'static str = "client-impact";
    const TEXT: &'static str = include_str!("../../../docs/experiments/client-impact.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for place in self.places.iter().copied() {
            for rtt_ms in self.rtts_ms.iter().copied() {
                let losses = self.losses_percent.iter();
                cells.extend(losses.map(|it| Cell { place, rtt_ms, loss_percent: *it }));
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        let Self { runs, bytes, congestion, seed, .. } = self;
        format!("{runs} downloads of {bytes} bytes, {congestion}, seed {seed}")
    }

    fn world(&self, _: &Cell) -> String {
        "network and client".to_owned()
    }

    /// Cells do not depend on each other.
    fn group(&self, cell: &Cell) -> String {
        cell.to_string()
    }

    fn start(&self, _: &Cell, session: Session<'_>) -> Result<Option<Network>> {
        Network::start(self.congestion, self.seed, session.output).map(Some)
    }

    fn play(&self, network: &mut Network, turn: Turn<'_, Cell>) -> Result<Option<Row>> {
        let Turn { cell, session, .. } = turn;
        for software in Software::ALL {
            // Relays keep their links: those of the last hop exist already.
            let content = Content { len: WARM_UP_BYTES, seed: 0 };
            if let Err(error) = network.download(cell, software, content)? {
                let who = software.word();
                session.output.step(format!("{cell}, {who}: the first download failed: {error}"));
            }
        }
        let mut rates = Rates::default();
        for run in 1..=self.runs {
            for software in Software::ALL {
                if session.interrupt.is_requested() {
                    return Ok(None);
                }
                session.output.doing(format!("{cell}, run {run}: {}", software.word()));
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
        let ratio = median(report.cases.iter().filter_map(|it| it.ratio));
        report.answer = format!(
            "In {held} of {all} cases downloads through our relay were not slower, and {open} decide nothing; in the median case their \
             rate was {:.2} of that through C tor's.",
            ratio.unwrap_or(f64::NAN),
        );
        report.parameters = vec![
            parameter("downloads through each, for a case", self.runs),
            parameter("bytes of each", self.bytes),
            parameter("congestion control", self.congestion),
            parameter(
                "an interval is too wide if it reaches above its middle by",
                format!("× {WIDEST}"),
            ),
            parameter("seed", self.seed),
        ];
        let held = held > 0 && held + open == all;
        report.promise = Promise::Decided { held, rule: rule(Self::TEXT) };
    }
}
