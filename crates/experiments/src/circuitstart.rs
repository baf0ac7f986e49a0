//! `flashflow-lab experiment circuitstart`: windows from hop to hop, and how they begin.

mod chain;
mod crowd;
mod model;
mod network;
mod noted;
mod real;
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

/// How windows begin.
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

    const fn word(self) -> &'static str {
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

/// Where a circuit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum World {
    /// In a model, cell by cell.
    Simulated,
    /// Between real relays, ours, over paths of a network of their own.
    Real,
}

const TEXT: &str = include_str!("../../../docs/experiments/circuitstart.md");

/// How fast do windows from hop to hop find the narrowest place of a circuit?
///
/// Circuits of three relays whose windows follow the delay (BackTap), begun by CircuitStart and by others, cell by cell over a star
/// of nodes, as in the paper: the source's window over time with the narrow place one, two and three hops away, compared with a model of
/// the optimum, and after that place has become twice as wide; and 50 circuits at once over 30 random relays. The windows are the engine's; the star is a model, without TCP. The same
/// traces are then played over real paths: our relays and client at hosts of their own (namespaces, so this needs root), and compared with the model of the same path. With
/// --network, all relays and clients of a simulated network have such windows, or Tor's own from end to end, or both: see results/hop-windows.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment circuitstart --out results
  flashflow-lab experiment circuitstart --worlds simulated --json
  flashflow-lab experiment circuitstart --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

It has held if the source's window settles within a tenth (and the four cells that may wait) of the optimum at each distance; if it is at the new optimum within five round trips to a place that has \
become twice as wide, and stays there for three; if no quantile of the 50 transfers is worse with CircuitStart than without, and the best half a second better; and if over real paths it settles within 15 % of the model.")]
pub(super) struct Options {
    /// Rate of the narrow place in Mbit/s.
    #[arg(long, default_value_t = 10.0, value_parser = crate::common::mbit, value_name = "MBIT")]
    narrow: f64,
    /// From each node to the middle of the star, in ms.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=200), value_name = "MS")]
    delay_ms: u32,
    /// Stars, each of relays drawn anew; 10 by default, 3 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    stars: Option<u32>,
    /// Where circuits are; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WORLD,…",
        default_values_t = [World::Simulated, World::Real])]
    worlds: Vec<World>,
    /// Downloads over real paths for each distance; 5 by default, 1 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// The factor by which real paths are longer and narrower than the model's: windows are the same, all takes longer by this factor, and a busy machine adds less in comparison.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50), value_name = "FACTOR")]
    stretch: u32,
    /// TCP's congestion control of the hosts on real paths.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Draws the relays and circuits.
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
        play_model(options, stars, &mut report, session);
    }
    if options.has(World::Real) && !session.interrupt.is_requested() {
        let runs = session.or(options.runs, 1, 5);
        play_real(options, runs, &mut report, session)?;
    }
    conclude(&mut report);
    Ok(report)
}

/// Traces, and stars.
fn play_model(options: &Options, stars: u32, report: &mut ExperimentReport, session: Session<'_>) {
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
        times.play(options.delay(), options.seed.wrapping_add(star.into()));
    }
    report.figures.push(times.cdf());
    report.also.insert("star".to_owned(), times.summary());
    for case in times.cases() {
        print_case(&case, output);
        report.cases.push(case);
    }
}

/// Plays the traces over real paths. Where no networks can be made, they are skipped.
fn play_real(
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
        match real::play(path, runs, options.stretch, session) {
            Ok(Some(played)) => {
                let figure = format!("trace-{distance}");
                if let Some(figure) = report.figures.iter_mut().find(|it| it.name == figure) {
                    figure.series.push(played.series);
                }
                report.cases.extend(played.cases);
            }
            Ok(None) => return Ok(()),
            Err(Error::Wan(WanError::Namespace(problem))) if options.has(World::Simulated) => {
                let case = Case::named("real paths");
                let told = format!("it needs root, for network namespaces: {problem}");
                let case = case.ended(CaseVerdict::Skipped, told);
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
    let held = report.cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    // Cases that are only shown are judged by nobody.
    let judged = report.cases.iter().filter(|case| case.verdict != CaseVerdict::Skipped).count();
    report.answer = format!("{held} of {judged} cases held.");
    report.also.insert("traces".to_owned(), model::summary(&report.cases).into());
    report.promise = Promise::Decided {
        held: report.cases.iter().all(|case| case.verdict != CaseVerdict::Missed),
        rule: reporting::rule(TEXT),
    };
}

fn begin(options: &Options, stars: u32) -> ExperimentReport {
    ExperimentReport {
        parameters: vec![
            parameter("narrow place", format!("{} Mbit/s", options.narrow)),
            parameter("from a node to the middle", format!("{} ms", options.delay_ms)),
            parameter("stars", stars),
            parameter("circuits of a star", format!("{CIRCUITS}, {TRANSFER_KB} kB each")),
            parameter("real paths are longer and narrower", format!("{} times", options.stretch)),
            parameter("congestion control of real paths", options.congestion),
            parameter("seed", options.seed),
        ],
        ..reporting::report("circuitstart", TEXT)
    }
}
