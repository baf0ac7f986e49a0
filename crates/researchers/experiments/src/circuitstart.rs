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
use crate::reporting::{self, parameter, print_case};
use crate::simulated::SimulatedOptions;
use chain::{RELAYS, WIDE_MBIT};
use clap::{Args, ValueEnum};
use crowd::{CIRCUITS, TRANSFER_KB, Times};
use lab::wan::{Congestion, WanError};
use onion::Duration;
use onion::flow::hop::{HopWindow, HopWindows};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};
use scene::Path;

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

const TEXT: &str = include_str!("../../../../docs/experiments/circuitstart.md");

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
within five round trips after the bottleneck's rate doubles and stays there for three, and settles within 15 % of the model over real paths.
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
    /// Downloads over real paths for each distance; 5 by default, 1 with --quick.
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

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, session);
    }
    let stars = session.or(options.stars, 3, 10);
    let mut report = begin(options, stars);
    if options.has(World::Simulated) {
        run_model(options, stars, &mut report, session);
    }
    if options.has(World::Real) && !session.interrupt.is_requested() {
        let runs = session.or(options.runs, 1, 5);
        run_real(options, runs, &mut report, session)?;
    }
    conclude(&mut report);
    Ok(report)
}

/// Runs the traces and the stars in the model.
fn run_model(options: &Options, stars: u32, report: &mut ExperimentReport, session: Session<'_>) {
    let Session { output, interrupt, .. } = session;
    for distance in 1..=RELAYS {
        let chain = model::chain(options.narrow, options.delay(), distance);
        let (trace, figure) = model::trace(&chain);
        report.figures.push(figure);
        for case in [trace, model::ramp(&chain)] {
            print_case(&case, output);
            report.cases.push(case);
        }
    }
    let mut times = Times::new();
    for star in 0..stars {
        if interrupt.is_requested() {
            return;
        }
        output.doing(format!("star {} of {stars}", star + 1));
        times.run_star(options.delay(), options.seed.wrapping_add(star.into()));
    }
    report.figures.push(times.cdf());
    report.also.insert("star".to_owned(), times.summary());
    for case in times.cases() {
        print_case(&case, output);
        report.cases.push(case);
    }
}

/// Runs the traces over real paths, or skips them if network namespaces are not permitted.
fn run_real(
    options: &Options,
    runs: u32,
    report: &mut ExperimentReport,
    session: Session<'_>,
) -> Result<()> {
    for distance in 1..=RELAYS {
        let path = Path {
            distance,
            narrow_mbit: options.narrow / f64::from(options.stretch),
            wide_mbit: WIDE_MBIT / f64::from(options.stretch),
            delay: options.delay() * options.stretch,
            congestion: options.congestion,
            seed: options.seed,
        };
        match real::run(path, runs, options.stretch, session) {
            Ok(Some(trace)) => {
                let figure = format!("trace-{distance}");
                if let Some(figure) = report.figures.iter_mut().find(|it| it.name == figure) {
                    figure.series.push(trace.series);
                }
                report.cases.extend(trace.cases);
            }
            Ok(None) => return Ok(()),
            Err(Error::Wan(WanError::Namespace(problem))) if options.has(World::Simulated) => {
                let detail = format!("network namespaces require root: {problem}");
                let case = Case::named("real paths").ended(CaseVerdict::Skipped, detail);
                print_case(&case, session.output);
                report.cases.push(case);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn conclude(report: &mut ExperimentReport) {
    let held = report.count(CaseVerdict::Held);
    let judged = report.cases.iter().filter(|case| case.verdict.is_judged()).count();
    report.answer = format!("{held} of {judged} cases held.");
    report.also.insert("traces".to_owned(), model::summary(&report.cases).into());
    report.promise = Promise::Decided {
        held: report.count(CaseVerdict::Missed) == 0,
        rule: reporting::rule(TEXT),
    };
}

fn begin(options: &Options, stars: u32) -> ExperimentReport {
    ExperimentReport {
        parameters: vec![
            parameter("bottleneck", format!("{} Mbit/s", options.narrow)),
            parameter("latency from a node to the centre", format!("{} ms", options.delay_ms)),
            parameter("stars", stars),
            parameter("circuits of a star", format!("{CIRCUITS}, {TRANSFER_KB} kB each")),
            parameter("stretch of real paths", options.stretch),
            parameter("congestion control of real paths", options.congestion),
            parameter("seed", options.seed),
        ],
        ..reporting::report("circuitstart", TEXT)
    }
}
