//! `flashflow-lab experiment circuitstart`: start-up algorithms of hop-by-hop windows.

mod chain;
mod crowd;
mod model;
mod network;
mod real;
mod recording;
mod scene;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::parameter;
use crate::simulated::SimulatedOptions;
use chain::{RELAYS, WIDE_MBIT};
use clap::{Args, ValueEnum};
use crowd::{CIRCUITS, Star, TRANSFER_KB, Times};
use lab::wan::{Congestion, WanError};
use onion::Duration;
use onion::flow::hop::{HopWindow, HopWindows};
use real::Traced;
use report::experiment::{CaseVerdict, ExperimentReport, Series};
use scene::{Path, RealPath};
use serde::Serialize;
use std::fmt;

/// The start-up algorithm of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    BackTap,
    CircuitStart,
    Again,
    SlowStart,
    JumpStart,
    Fixed,
}

impl Begin {
    const ALL: [Self; 6] = [
        Self::CircuitStart,
        Self::Again,
        Self::BackTap,
        Self::SlowStart,
        Self::JumpStart,
        Self::Fixed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::BackTap => "backtap",
            Self::CircuitStart => "circuitstart",
            Self::Again => "circuitstart-again",
            Self::SlowStart => "slow-start",
            Self::JumpStart => "jumpstart",
            Self::Fixed => "fixed-100",
        }
    }

    const fn windows(self) -> HopWindows {
        match self {
            Self::BackTap => HopWindows::BackTap,
            Self::CircuitStart => HopWindows::CircuitStart,
            Self::Again => HopWindows::CircuitStartAgain,
            Self::SlowStart => HopWindows::SlowStart,
            Self::JumpStart => HopWindows::JumpStart { cells: 200 },
            Self::Fixed => HopWindows::Fixed { cells: 100 },
        }
    }

    fn window(self, grain: Duration) -> Box<dyn HopWindow> {
        self.windows().window(grain)
    }
}

/// The environment of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum World {
    /// A model at the level of cells.
    Simulated,
    /// Our relays, over paths between network namespaces.
    Real,
}

/// How fast do hop-by-hop windows adapt to the bottleneck of a circuit?
///
/// Circuits of three relays have delay-based windows (BackTap), started by CircuitStart and other algorithms. As in
/// the paper, cells are modelled one by one over a star of nodes, without TCP; the windows are the engine's. The first
/// part traces the source's window with the bottleneck one, two and three hops away, compares it with the optimum, and
/// then doubles the bottleneck's rate. The second part runs 50 circuits at once over 30 random relays. The third part
/// repeats the traces with our relays and client in network namespaces (this requires root), and compares them with
/// the model of the same path. With --network, all relays and clients of a simulated network have such windows, Tor's
/// own end-to-end windows, or both: see results/hop-windows.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment circuitstart --out results
  flashflow-lab experiment circuitstart --worlds simulated --json
  flashflow-lab experiment circuitstart --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

The claim holds if the source's window settles within 10 % of the optimum (plus four queued cells) at each distance, reaches the new optimum
within five round trips after the bottleneck's rate doubles and stays there for three, and over real paths settles within 15 % of the model and in 300 ms.
No quantile of the 50 transfers may be worse with CircuitStart, and the best must be 0.5 s better.")]
pub(super) struct Options {
    /// Rate of the bottleneck in Mbit/s, 1 to 1000.
    #[arg(long, default_value_t = 10.0, value_parser = crate::common::mbit, value_name = "MBIT")]
    narrow: f64,
    /// Latency from each node to the centre of the star, in ms.
    #[arg(long, default_value_t = 5, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(1..=200))]
    delay_ms: u32,
    /// Number of stars, each with new random relays; 10 by default, 3 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    stars: Option<u32>,
    /// Environments of the traces; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WORLD,…",
        default_values_t = [World::Simulated, World::Real])]
    worlds: Vec<World>,
    /// Downloads over each real path; 10 by default, 1 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Multiply the latency of real paths by FACTOR and divide their rate by it. Windows stay the same, but
    /// scheduling delays of a busy machine matter less.
    #[arg(long, default_value_t = 5, value_name = "FACTOR",
        value_parser = clap::value_parser!(u32).range(1..=50))]
    stretch: u32,
    /// TCP's congestion control on real paths: bbr, cubic or reno.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Random seed of relays and circuits.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

impl Options {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.into())
    }

    fn has(&self, world: World) -> bool {
        self.worlds.contains(&world)
    }
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    #[serde(skip)]
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// A trace of the model with the bottleneck at this distance.
    Model(usize),
    /// The model's star with this number, from zero.
    Star(u32),
    /// Traces over real paths with the bottleneck at this distance.
    Real(usize, Traced),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::Model(distance) => write!(f, "model, {}", model::hops(distance)),
            Part::Star(number) => write!(f, "star {}", number + 1),
            Part::Real(distance, Traced::Settling) => {
                write!(f, "real paths, {}", model::hops(distance))
            }
            Part::Real(distance, Traced::Doubling) => {
                write!(f, "doubled rate over real paths, {}", model::hops(distance))
            }
        }
    }
}

struct CircuitStartGrid<'o> {
    options: &'o Options,
    stars: u32,
    /// Downloads over real paths for each distance.
    runs: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, session);
    }
    let (stars, runs) = (session.or(options.stars, 3, 10), session.or(options.runs, 1, 10));
    let options_of_grid = GridOptions { shard: options.simulated.runs.shard };
    grid::run(&CircuitStartGrid { options, stars, runs }, options_of_grid, session)
}

impl CircuitStartGrid<'_> {
    fn path(&self, distance: usize) -> Path {
        let Options { narrow, stretch, congestion, seed, .. } = *self.options;
        Path {
            distance,
            stretch,
            narrow_mbit: narrow / f64::from(stretch),
            wide_mbit: WIDE_MBIT / f64::from(stretch),
            delay: self.options.delay() * stretch,
            congestion,
            seed,
        }
    }
}

impl Grid for CircuitStartGrid<'_> {
    type Cell = Cell;
    /// Relays, for real paths.
    type Setup = Option<RealPath>;
    const NAME: &'static str = "circuitstart";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/circuitstart.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let model = (1..=RELAYS).map(Part::Model).chain((0..self.stars).map(Part::Star));
        let model = model.filter(|_| self.options.has(World::Simulated));
        let both = |distance| Traced::ALL.map(|traced| Part::Real(distance, traced));
        let real = (1..=RELAYS).flat_map(both).filter(|_| self.options.has(World::Real));
        model.chain(real).map(|part| Cell { part }).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let Self { options, stars, runs } = self;
        vec![
            parameter("bottleneck", format!("{} Mbit/s", options.narrow)),
            parameter("latency from a node to the centre", format!("{} ms", options.delay_ms)),
            parameter("stars", stars),
            parameter("circuits of a star", format!("{CIRCUITS}, {TRANSFER_KB} kB each")),
            parameter("downloads over each real path", runs),
            parameter("stretch of real paths", options.stretch),
            parameter("congestion control of real paths", options.congestion),
            parameter("seed", options.seed),
        ]
    }

    fn setup(&self, cell: &Cell) -> String {
        match cell.part {
            Part::Real(..) => cell.to_string(),
            Part::Model(_) | Part::Star(_) => "model".to_owned(),
        }
    }

    fn start(&self, cell: &Cell, _: Session<'_>) -> Result<Option<Self::Setup>> {
        Ok(Some(match cell.part {
            Part::Real(distance, traced) => {
                Some(RealPath::start(self.path(distance), traced.begin())?)
            }
            Part::Model(_) | Part::Star(_) => None,
        }))
    }

    /// Without permission for network namespaces, the model still runs.
    fn skips(&self, error: &Error) -> Option<String> {
        match error {
            Error::Wan(WanError::Namespace(problem)) if self.options.has(World::Simulated) => {
                Some(format!("network namespaces require root: {problem}"))
            }
            _ => None,
        }
    }

    fn run(&self, setup: &mut Self::Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let Options { narrow, seed, .. } = *self.options;
        let delay = self.options.delay();
        Ok(Some(match (run.cell.part, setup) {
            (Part::Model(distance), _) => {
                let chain = model::chain(narrow, delay, distance);
                let (trace, figure) = model::trace(&chain);
                let cases = vec![trace, model::ramp(&chain)];
                Row { cases, figures: vec![figure], ..Row::default() }
            }
            (Part::Star(number), _) => {
                Row::default().with_data(&crowd::star(delay, seed.wrapping_add(number.into())))?
            }
            (Part::Real(distance, traced), Some(scene)) => {
                let path = self.path(distance);
                let Some(trace) = real::run(scene, path, traced, self.runs, run.session)? else {
                    return Ok(None);
                };
                let row = Row { cases: vec![trace.case], ..Row::default() };
                match &trace.series {
                    Some(series) => row.with_data(series)?,
                    None => row,
                }
            }
            (Part::Real(..), None) => return Ok(None),
        }))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let stars: Vec<Star> = rows.data().map(|(_, star)| star).collect();
        if !stars.is_empty() {
            let times = Times::from_stars(&stars);
            report.figures.push(times.cdf());
            report.also.insert("star".to_owned(), times.summary());
            let of_model = rows.cases().filter(|(cell, _)| matches!(cell.part, Part::Model(_)));
            let place = of_model.count();
            report.cases.splice(place..place, times.cases());
        }
        for (cell, series) in rows.data::<Series>() {
            let Part::Real(distance, _) = cell.part else { continue };
            let name = format!("trace-{distance}");
            let figure = report.figures.iter_mut().find(|figure| figure.name == name);
            figure.into_iter().for_each(|figure| figure.series.push(series.clone()));
        }
        let held = report.count(CaseVerdict::Held);
        let judged = report.cases.iter().filter(|case| case.verdict.is_judged()).count();
        report.answer = format!("{held} of {judged} cases held.");
        report.also.insert("traces".to_owned(), model::summary(&report.cases).into());
        report.promise = Self::promise(report.count(CaseVerdict::Missed) == 0);
    }
}
