//! `flashflow experiment circuitstart`: windows from hop to hop, and how they begin.

mod network;

use crate::common::Common;
use crate::error::Error;
use crate::simulated::SimulatedOptions;
use crate::telling::{self, median, pair, tell};
use clap::Args;
use onion::flow::hop::{HopWindow, HopWindows};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Promise, Role, Series,
};
use sim::star::{Star, StarCircuit, StarNode, StarResult, optimal_window_cells};
use terminal::{Interrupt, Output};

/// Bytes of a cell's payload, as the paper's axes count.
const CELL_KB: f64 = 0.512;

/// Relays of a circuit, between its source and its sink.
const RELAYS: usize = 3;

/// How far a window may be from the optimum to have settled.
const SETTLED: f64 = 0.10;

/// A trace is looked at for so long.
const TRACE: Duration = Duration::from_secs(2);

/// What the star is asked for: circuits at a time, bytes of each, relays that they share.
const CIRCUITS: usize = 50;
const TRANSFER_KB: f64 = 500.0;
const STAR_RELAYS: usize = 30;

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

    fn window(self) -> Box<dyn HopWindow> {
        let windows = match self {
            Self::BackTap => HopWindows::BackTap,
            Self::CircuitStart => HopWindows::CircuitStart,
            Self::Again => HopWindows::CircuitStartAgain,
            Self::SlowStart => HopWindows::SlowStart,
            Self::JumpStart => HopWindows::JumpStart { cells: 200 },
            Self::Fixed => HopWindows::Fixed { cells: 100 },
        };
        // Nodes of the star send cells one by one.
        windows.window(Duration::ZERO)
    }
}

/// How fast do windows from hop to hop find the narrowest place of a circuit?
///
/// Circuits of three relays whose windows follow the delay (BackTap), begun by CircuitStart and by others, cell by cell over a star
/// of nodes, as in the paper: the source's window over time with the narrow place one, two and three hops away, beside a model of
/// the optimum; and 50 circuits at once over 30 relays made by lot. The windows are the engine's; the star is a model, without TCP. With
/// --network, all relays and clients of a simulated network have such windows, or Tor's own from end to end, or both: see docs/researchers.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow experiment circuitstart --out results
  flashflow experiment circuitstart --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

It has held if the source's window settles within a tenth (and the four cells that may wait) of the optimum at each distance, and if no quantile of the 50 transfers is
worse with CircuitStart than without.")]
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
    /// Draws the relays and circuits.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, common, output, interrupt);
    }
    let stars = options.stars.unwrap_or(if common.quick { 3 } else { 10 });
    let mut report = begin(options, stars);
    for distance in 1..=RELAYS {
        let (case, figure) = trace(options, distance);
        tell(&case, output);
        report.cases.push(case);
        report.figures.push(figure);
    }
    let mut times: Vec<(Begin, Vec<f64>)> = Begin::ALL.map(|begin| (begin, Vec::new())).into();
    for star in 0..stars {
        if interrupt.is_requested() {
            return Ok(report);
        }
        output.doing(format!("star {} of {stars}", star + 1));
        for (begin, times) in &mut times {
            let seed = options.seed.wrapping_add(star.into());
            times.extend(play_star(*begin, options.delay_ms, seed));
        }
    }
    report.figures.push(cdf(&times));
    let of = |begin: Begin| {
        times.iter().find(|(its, _)| *its == begin).map_or(&[][..], |(_, times)| &times[..])
    };
    for (begin, _) in &times {
        let case = star_case(*begin, of(*begin), of(Begin::BackTap));
        tell(&case, output);
        report.cases.push(case);
    }
    let held = report.cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    // Cases that are only shown are judged by nobody.
    let judged = report.cases.iter().filter(|case| case.verdict != CaseVerdict::Skipped).count();
    report.answer = format!("{held} of {judged} cases held.");
    report.promise = Promise::Decided {
        held: report.cases.iter().all(|case| case.verdict != CaseVerdict::Missed),
        rule: "The source's window settles at the optimum at each distance, and no quantile of the star is worse with CircuitStart."
            .to_owned(),
    };
    Ok(report)
}

fn begin(options: &Options, stars: u32) -> ExperimentReport {
    ExperimentReport {
        parameters: vec![
            pair("narrow place", format!("{} Mbit/s", options.narrow)),
            pair("from a node to the middle", format!("{} ms", options.delay_ms)),
            pair("stars", stars.to_string()),
            pair("circuits of a star", format!("{CIRCUITS}, {TRANSFER_KB} kB each")),
            pair("seed", options.seed.to_string()),
        ],
        notes: vec![
            "The optimum is what the slowest node passes in the round trip from the source to the next node; windows may have four cells more, \
             which wait."
                .to_owned(),
            "Star: relays of 10 to 100 Mbit/s and 2 to 20 ms, by lot; sources and sinks of 100 Mbit/s; all begin within 0.1 s.".to_owned(),
        ],
        ..telling::report(
            "circuitstart",
            "CircuitStart",
            "How fast do windows from hop to hop find the narrowest place of a circuit?",
        )
    }
}

/// Cells a second of so many Mbit/s.
fn cells_per_s(mbit: f64) -> f64 {
    mbit * 1e3 / 8.0 / CELL_KB
}

/// The source's window with the narrow place so many hops away.
fn trace(options: &Options, distance: usize) -> (Case, ExperimentFigure) {
    let delay = Duration::from_millis(options.delay_ms.into());
    let nodes: Vec<StarNode> = (0..RELAYS + 2)
        .map(|node| if node == distance { options.narrow } else { 100.0 })
        .map(|mbit| StarNode::new(cells_per_s(mbit), delay))
        .collect();
    let optimal = optimal_window_cells(&nodes);
    let play = |begin: Begin| {
        let mut star = Star::default();
        let path: Vec<usize> = nodes.iter().map(|node| star.add_node(*node)).collect();
        let windows = (0..=RELAYS).map(|_| begin.window()).collect();
        star.add_circuit(StarCircuit { path, cells: u64::MAX, begins: Instant::ORIGIN, windows });
        star.run(Instant::ORIGIN + TRACE);
        star.results().swap_remove(0)
    };
    let found = play(Begin::CircuitStart);
    let settled = settled(&found, optimal);
    let largest = found.trace.iter().map(|(_, size)| *size).max().unwrap_or(0);
    let last = found.trace.last().map_or(0, |(_, size)| *size);
    let kb = |cells: f64| (cells * CELL_KB * 10.0).round() / 10.0;
    let ms = |at: Instant| (at - Instant::ORIGIN).as_secs_f64() * 1e3;
    let case = Case::new(format!("trace, {distance} hops"), None, None)
        .column("distance_hops", distance)
        .column("optimal_kb", kb(optimal))
        .column("settled_kb", kb(last.into()))
        .column("time_to_settle_ms", settled.map(|at| ms(at).round()))
        .column("overshoot_kb", kb((f64::from(largest) - optimal).max(0.0)));
    let told = format!(
        "optimum {:.1} kB, window {:.1} kB, settled after {}, at most {:.1} kB",
        kb(optimal),
        kb(last.into()),
        settled.map_or("never".to_owned(), |at| format!("{:.0} ms", ms(at))),
        kb(largest.into()),
    );
    let verdict = if settled.is_some() { CaseVerdict::Held } else { CaseVerdict::Missed };
    let name = format!("trace-{distance}");
    let title = format!("The source's window, narrow place {distance} hops away");
    let figure = ExperimentFigure::new(&name, &title, Axis::new("ms"), Axis::new("kB")).mark(
        On::Y,
        optimal * CELL_KB,
        "optimum",
        Role::Truth,
    );
    let series = [Begin::CircuitStart, Begin::BackTap, Begin::SlowStart];
    let figure = series.into_iter().enumerate().fold(figure, |figure, (nth, begin)| {
        let shown = play(begin).trace.into_iter().filter(|(at, _)| ms(*at) <= 500.0);
        let points = shown.map(|(at, size)| (ms(at), f64::from(size) * CELL_KB)).collect();
        figure.with(Series::steps(begin.word(), Role::Nth(nth), points))
    });
    (case.ended(verdict, told), figure)
}

/// From when on the source's window is at the optimum, with the cells that may wait.
fn settled(found: &StarResult, optimal: f64) -> Option<Instant> {
    let is_there = |size: u32| {
        (optimal * (1.0 - SETTLED)..=optimal * (1.0 + SETTLED) + 4.0).contains(&size.into())
    };
    let last_away = found.trace.iter().rposition(|(_, size)| !is_there(*size));
    let first = last_away.map_or(0, |place| place + 1);
    found.trace.get(first).map(|(at, _)| *at)
}

/// Times to the last byte of 50 circuits at once, in seconds.
fn play_star(begin: Begin, delay_ms: u32, seed: u64) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut star = Star::default();
    let relays: Vec<usize> = (0..STAR_RELAYS)
        .map(|_| {
            let mbit = 10f64.powf(rng.random_range(1.0..2.0));
            let delay = Duration::from_millis(rng.random_range(2..=20));
            star.add_node(StarNode::new(cells_per_s(mbit), delay))
        })
        .collect();
    for _ in 0..CIRCUITS {
        let end = StarNode::new(cells_per_s(100.0), Duration::from_millis(delay_ms.into()));
        let mut path = vec![star.add_node(end)];
        path.extend(sample(&mut rng, relays.len(), RELAYS).iter().map(|place| relays[place]));
        path.push(star.add_node(end));
        let begins = Instant::ORIGIN + Duration::from_millis(rng.random_range(0..100));
        let windows = (0..=RELAYS).map(|_| begin.window()).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some cells")]
        let cells = (TRANSFER_KB / CELL_KB).ceil() as u64;
        star.add_circuit(StarCircuit { path, cells, begins, windows });
    }
    star.run(Instant::ORIGIN + Duration::from_secs(600));
    let results = star.results();
    results.iter().map(|it| it.last_byte.map_or(f64::INFINITY, |it| it.as_secs_f64())).collect()
}

/// Values at the quantiles of 1 to 99 %.
fn quantiles(times: &[f64]) -> Vec<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (1..100).filter_map(|percent| sorted.get(sorted.len() * percent / 100).copied()).collect()
}

fn star_case(begin: Begin, times: &[f64], baseline: &[f64]) -> Case {
    let gains: Vec<f64> = quantiles(baseline)
        .into_iter()
        .zip(quantiles(times))
        .map(|(baseline, time)| baseline - time)
        .collect();
    let largest = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
    let round = |value: f64| (value * 1e3).round() / 1e3;
    let median_of = |times: &[f64]| median(times.iter().copied()).map(round);
    let case = Case::new(format!("star, {}", begin.word()), None, None)
        .column("begin", begin.word())
        .column("median_ttlb_s", median_of(times))
        .column("median_ttlb_baseline_s", median_of(baseline))
        .column("largest_gain_s", round(largest))
        .column("least_gain_s", round(least));
    let told = format!(
        "median {:.3} s; beside BackTap alone the quantiles gain {least:.3} to {largest:.3} s",
        median_of(times).unwrap_or(f64::NAN),
    );
    match begin {
        // A thousandth of a second is chance.
        Begin::CircuitStart | Begin::Again if least >= -0.001 => {
            case.ended(CaseVerdict::Held, told)
        }
        Begin::CircuitStart | Begin::Again => case.ended(CaseVerdict::Missed, told),
        _ => case.ended(CaseVerdict::Skipped, format!("for comparison: {told}")),
    }
}

fn cdf(times: &[(Begin, Vec<f64>)]) -> ExperimentFigure {
    let title = "Time to the last byte of 50 circuits at once";
    let figure =
        ExperimentFigure::new("star", title, Axis::new("seconds"), Axis::new("share of circuits"));
    times.iter().enumerate().fold(figure, |figure, (nth, (begin, times))| {
        let shares = (1..).map(|percent| f64::from(percent) / 100.0);
        let points = quantiles(times).into_iter().zip(shares).collect();
        figure.with(Series::steps(begin.word(), Role::Nth(nth), points))
    })
}
