//! Traces of the source's window in the model.

use super::Begin;
use super::chain::{CELL_KB, Chain, SETTLED, WIDE_MBIT, reached, settled_at};
use onion::{Duration, Instant};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series, Value};

/// The length of a trace.
const TRACE: Duration = Duration::from_secs(2);

/// When windows settle in the paper's figure 1.
const PAPER_MS: (f64, f64) = (100.0, 200.0);
const CAPTION: &str = "Compare the upper half of the paper's figure 1: one and three hops away, the window settles at \
                       the optimum after 100 to 200 ms, and never exceeds 70 kB. The paper states neither the latency \
                       of its paths nor the rate of the bottleneck.";

/// The length of the figure in ms.
const SHOWN_MS: f64 = 500.0;

/// The round trips in which a window must reach the new optimum after the bottleneck's rate has doubled.
const ROUND_TRIPS_MAX: f64 = 5.0;

/// Cells a second at a rate in Mbit/s.
pub(super) fn cells_per_s(mbit: f64) -> f64 {
    mbit * 1e3 / 8.0 / CELL_KB
}

pub(super) fn kb(cells: f64) -> f64 {
    (cells * CELL_KB * 10.0).round() / 10.0
}

fn ms(at: Instant) -> f64 {
    (at - Instant::ORIGIN).as_secs_f64() * 1e3
}

/// The paper's circuit with its bottleneck at this distance.
pub(super) fn chain(narrow_mbit: f64, delay: Duration, distance: usize) -> Chain {
    Chain {
        distance,
        narrow_cells_per_s: cells_per_s(narrow_mbit),
        wide_cells_per_s: cells_per_s(WIDE_MBIT),
        delay,
        grain: Duration::ZERO,
    }
}

/// The result of a trace.
pub(super) struct TraceResult {
    pub(super) optimal_cells: f64,
    pub(super) settled_cells: f64,
    pub(super) settled_at: Option<Instant>,
    pub(super) largest_cells: u32,
}

impl TraceResult {
    /// Adds its columns to a case.
    pub(super) fn columns(&self, case: Case, mode: &str, distance: usize) -> Case {
        let overshoot = (f64::from(self.largest_cells) - self.optimal_cells).max(0.0);
        case.column("mode", mode)
            .column("distance_hops", distance)
            .column("optimal_kb", kb(self.optimal_cells))
            .column("settled_kb", kb(self.settled_cells))
            .column("time_to_settle_ms", self.settled_at.map(|at| ms(at).round()))
            .column("overshoot_kb", kb(overshoot))
    }

    pub(super) fn detail(&self) -> String {
        format!(
            "optimum {:.1} kB, window {:.1} kB, settled after {}, at most {:.1} kB",
            kb(self.optimal_cells),
            kb(self.settled_cells),
            self.settled_at.map_or("never".to_owned(), |at| format!("{:.0} ms", ms(at))),
            kb(self.largest_cells.into()),
        )
    }
}

/// A distance as text.
pub(super) fn hops(count: usize) -> String {
    format!("{count} {}", if count == 1 { "hop" } else { "hops" })
}

pub(super) fn largest(sizes: &[(Instant, u32)]) -> u32 {
    sizes.iter().map(|(_, size)| *size).max().unwrap_or(0)
}

/// Traces the source's window in the model.
pub(super) fn trace(chain: &Chain) -> (Case, ExperimentFigure) {
    let sizes = chain.simulate(Begin::CircuitStart, TRACE, None);
    let optimal = chain.optimal_cells();
    let result = TraceResult {
        optimal_cells: optimal,
        settled_cells: sizes.last().map_or(0, |(_, size)| *size).into(),
        settled_at: settled_at(&sizes, &chain.settled_cells()),
        largest_cells: largest(&sizes),
    };
    let case = Case::named(format!("trace, {}", hops(chain.distance)));
    let case = result.columns(case, "simulated", chain.distance);
    let verdict = CaseVerdict::of(result.settled_at.is_some());
    let title = format!("The source's window, bottleneck {} away", hops(chain.distance));
    let name = format!("trace-{}", chain.distance);
    let figure = ExperimentFigure::new(&name, &title, Axis::new("ms"), Axis::new("kB"))
        .mark(On::Y, optimal * CELL_KB, "optimum", Role::Truth)
        .band(On::X, PAPER_MS.0, PAPER_MS.1, "paper: settled", Role::Truth)
        .caption(CAPTION);
    let begins = [Begin::CircuitStart, Begin::BackTap, Begin::SlowStart];
    let figure = begins.into_iter().enumerate().fold(figure, |figure, (nth, begin)| {
        figure.with(window_series(begin.name(), nth, &chain.simulate(begin, TRACE, None)))
    });
    (case.ended(verdict, result.detail()), figure)
}

/// A window over time.
pub(super) fn window_series(name: &str, nth: usize, sizes: &[(Instant, u32)]) -> Series {
    let shown = sizes.iter().filter(|(at, _)| ms(*at) <= SHOWN_MS);
    let points = shown.map(|(at, size)| (ms(*at), f64::from(*size) * CELL_KB)).collect();
    Series::steps(name, Role::Nth(nth), points)
}

/// Measures how fast the window adapts after the bottleneck's rate has doubled.
pub(super) fn ramp(chain: &Chain) -> Case {
    let sizes = chain.simulate(Begin::Again, 2 * TRACE, Some(TRACE));
    let doubled = Instant::ORIGIN + TRACE;
    let took = reached(&sizes, doubled, new_optimum(chain).., chain.patience());
    ramp_case(chain, "simulated", took)
}

/// The smallest window that counts as optimal after the bottleneck's rate has doubled.
pub(super) fn new_optimum(chain: &Chain) -> f64 {
    chain.doubled().optimal_cells() * (1.0 - SETTLED)
}

pub(super) fn ramp_case(chain: &Chain, mode: &str, took: Option<Duration>) -> Case {
    let distance = chain.distance;
    let name = match mode {
        "real" => format!("doubled rate over real paths, {}", hops(distance)),
        _ => format!("doubled rate, {}", hops(distance)),
    };
    let round_trips = took.map(|took| took.as_secs_f64() / chain.round_trip().as_secs_f64());
    let never = "never at the new optimum".to_owned();
    let detail = took.zip(round_trips).map_or(never, |(took, round_trips)| {
        let took_ms = took.as_secs_f64() * 1e3;
        format!("at the new optimum after {took_ms:.0} ms, {round_trips:.1} round trips")
    });
    let is_fast = round_trips.is_some_and(|round_trips| round_trips <= ROUND_TRIPS_MAX);
    Case::named(name)
        .column("mode", mode)
        .column("widened_hops", distance)
        .column("new_optimal_kb", kb(chain.doubled().optimal_cells()))
        .column("reached_after_ms", took.map(|took| (took.as_secs_f64() * 1e3).round()))
        .column(
            "reached_after_round_trips",
            round_trips.map(|round_trip| (round_trip * 10.0).round() / 10.0),
        )
        .ended(CaseVerdict::of(is_fast), detail)
}

/// The results of the traces, for the JSON summary.
pub(super) fn summary(cases: &[Case]) -> Vec<Value> {
    const KEYS: [&str; 6] =
        ["mode", "distance_hops", "optimal_kb", "settled_kb", "time_to_settle_ms", "overshoot_kb"];
    let object = |case: &Case| {
        let own = case.columns.iter().filter(|(name, _)| KEYS.contains(&name.as_str()));
        own.cloned().collect::<Value>()
    };
    cases.iter().filter(|case| case.value("settled_kb").is_some()).map(object).collect()
}
