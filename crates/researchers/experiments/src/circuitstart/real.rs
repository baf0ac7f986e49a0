//! Traces of the source's window over real relays and paths, compared with the model of the same path.

use super::Begin;
use super::chain::{Chain, Sizes, median_cells, reached};
use super::model::{TraceResult, hops, kb, largest, new_optimum, ramp_case, window_series};
use super::scene::{ObservedWindow, Path, RealPath};
use crate::common::Session;
use crate::error::Result;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Instant};
use report::experiment::{Case, CaseVerdict, Series};

/// The permitted relative difference between the settled window and the model's.
const AGREES: f64 = 0.15;

/// The time in which the window has to settle, on paths without `stretch`.
const SETTLES_WITHIN: Duration = Duration::from_millis(300);

/// The share of runs in which it does.
const SETTLES_IN: f64 = 0.9;

/// If a packet is delayed by more than this share of a round trip, the machine is too slow, and a miss is inconclusive.
const LATE_MAX: f64 = 0.1;

/// What is traced at one distance from the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traced {
    /// How the window settles, with `CircuitStart`.
    Settling,
    /// How it follows the bottleneck, whose rate doubles, with further ramp-ups: the paper's future work.
    Doubling,
}

impl Traced {
    pub(super) const ALL: [Self; 2] = [Self::Settling, Self::Doubling];

    pub(super) const fn begin(self) -> Begin {
        match self {
            Self::Settling => Begin::CircuitStart,
            Self::Doubling => Begin::Again,
        }
    }
}

/// The results at one distance.
pub(super) struct RealTrace {
    pub(super) case: Case,
    /// For the figure of this distance.
    pub(super) series: Option<Series>,
}

/// Downloads over a path; `None` if the user has interrupted.
pub(super) fn run(
    scene: &RealPath,
    path: Path,
    traced: Traced,
    runs: u32,
    session: Session<'_>,
) -> Result<Option<RealTrace>> {
    let Session { output, interrupt, .. } = session;
    let distance = path.distance;
    let mut all = Vec::new();
    for run in 1..=runs {
        output.doing(format!("real paths, {}: run {run} of {runs}", hops(distance)));
        let doubles = traced == Traced::Doubling;
        let Some(seen) = scene.download(doubles, interrupt)? else { return Ok(None) };
        all.push(Run::new(&path, traced.begin(), seen));
    }
    let Some(run) = middle(&all) else { return Ok(None) };
    if traced == Traced::Doubling {
        return Ok(Some(RealTrace { case: widened_case(&all, run), series: None }));
    }
    // Scales the times to those of the model's path.
    let scaled = |at: Instant| Instant::ORIGIN + (at - Instant::ORIGIN) / path.stretch;
    let sizes: Sizes = run.seen.sizes.iter().map(|(at, size)| (scaled(*at), *size)).collect();
    let series = window_series("real paths", 3, &sizes);
    Ok(Some(RealTrace { case: trace_case(&all, run), series: Some(series) }))
}

/// A download, and the model of its path.
struct Run {
    path: Path,
    seen: ObservedWindow,
    chain: Chain,
    /// The model's settled window before the rate doubles.
    modelled_cells: f64,
}

impl Run {
    fn new(path: &Path, begin: Begin, seen: ObservedWindow) -> Self {
        let chain = Chain {
            distance: path.distance,
            narrow_cells_per_s: seen.narrow_cells_per_s,
            wide_cells_per_s: seen.wide_cells_per_s,
            delay: path.delay,
            grain: SchedulerConfig::INTERVAL,
        };
        let modelled = chain.simulate(begin, path.narrow_for(), None);
        Self { modelled_cells: settled_cells(path, &modelled), path: *path, seen, chain }
    }

    fn settled_cells(&self) -> f64 {
        settled_cells(&self.path, &self.seen.sizes)
    }

    /// The window before the rate doubles.
    fn narrow_sizes(&self) -> Sizes {
        let until = self.seen.widened_at;
        self.seen.sizes.iter().copied().filter(|(at, _)| *at < until).collect()
    }

    /// What the bottleneck forwards in the shortest round trip to the next host. It is a little longer than the
    /// model's, by processing and by the interval of the next hop's scheduler.
    fn optimal_cells(&self) -> f64 {
        self.chain.narrow_cells_per_s * self.seen.least_round_trip.as_secs_f64()
    }

    /// When the window has settled, on a path without stretch: it stays there for three round trips to the bottleneck.
    fn settles_after(&self) -> Option<Duration> {
        let (cells, stays) =
            (self.chain.settled_at_optimum(self.optimal_cells()), self.chain.patience());
        let took = reached(&self.narrow_sizes(), Instant::ORIGIN, cells, stays)?;
        Some(took / self.path.stretch)
    }

    fn result(&self) -> TraceResult {
        TraceResult {
            optimal_cells: self.optimal_cells(),
            settled_cells: self.settled_cells(),
            settled_at: self.settles_after().map(|took| Instant::ORIGIN + took),
            largest_cells: largest(&self.narrow_sizes()),
        }
    }

    /// The largest window of the second half. It exceeds the settled window if noise triggers a ramp-up.
    fn largest_later(&self) -> u32 {
        let sizes = self.narrow_sizes();
        let from =
            sizes.partition_point(|(at, _)| *at < Instant::ORIGIN + self.path.narrow_for() / 2);
        largest(&sizes[from.saturating_sub(1)..])
    }

    /// Whether the machine was too slow for a valid result.
    fn is_starved(&self) -> bool {
        let late_max = self.path.hop_round_trip().mul_f64(LATE_MAX);
        self.seen.late > late_max || self.seen.lost > 0
    }

    fn ratio(&self) -> f64 {
        self.settled_cells() / self.modelled_cells
    }
}

/// The median window in the second half of the time before the rate doubles.
fn settled_cells(path: &Path, sizes: &[(Instant, u32)]) -> f64 {
    let end = path.narrow_for();
    let (from, to) = (Instant::ORIGIN + end / 2, Instant::ORIGIN + end);
    median_cells(sizes, from, to).map_or(f64::NAN, f64::from)
}

/// The run with the median ratio to the model.
fn middle(all: &[Run]) -> Option<&Run> {
    let mut sorted: Vec<&Run> = all.iter().collect();
    sorted.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    sorted.get(sorted.len() / 2).copied()
}

fn trace_case(all: &[Run], run: &Run) -> Case {
    let distance = run.path.distance;
    let case = Case::named(format!("trace over real paths, {}", hops(distance)));
    let mut took: Vec<Option<Duration>> = all.iter().map(Run::settles_after).collect();
    let soon = took.iter().flatten().filter(|took| **took <= SETTLES_WITHIN).count();
    // Runs that never settle come last.
    took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
    let median = took.get(took.len() / 2).copied().flatten();
    let result =
        TraceResult { settled_at: median.map(|took| Instant::ORIGIN + took), ..run.result() };
    let ratio = run.ratio();
    let detail = format!(
        "{}; {soon} of {} settled within {} ms; the model's window {:.1} kB; {:.0} % of the bottleneck used",
        result.detail(),
        all.len(),
        SETTLES_WITHIN.as_millis(),
        kb(run.modelled_cells),
        run.seen.used * 100.0,
    );
    let settled_share = soon as f64 / all.len().max(1) as f64;
    let holds = (ratio - 1.0).abs() <= AGREES && settled_share >= SETTLES_IN;
    let verdict = judged(holds, all.iter().any(Run::is_starved));
    result
        .columns(case, "real", distance)
        .column("settled_in_time_share", (settled_share * 1e3).round() / 1e3)
        .column("simulated_kb", kb(run.modelled_cells))
        .column("over_simulated", (ratio * 1e3).round() / 1e3)
        .column("largest_later_kb", kb(run.largest_later().into()))
        .column("narrow_used", (run.seen.used * 1e3).round() / 1e3)
        .column("round_trip_ms", run.seen.round_trip.as_secs_f64() * 1e3)
        .column("least_round_trip_ms", run.seen.least_round_trip.as_secs_f64() * 1e3)
        .column("lost_packets", run.seen.lost)
        .column("latest_packet_ms", run.seen.late.as_secs_f64() * 1e3)
        .ended(verdict, detail)
}

fn judged(holds: bool, is_starved: bool) -> CaseVerdict {
    if !holds && is_starved { CaseVerdict::Inconclusive } else { CaseVerdict::of(holds) }
}

fn widened_case(all: &[Run], run: &Run) -> Case {
    let mut took: Vec<Option<Duration>> = all
        .iter()
        .map(|Run { seen, chain, .. }| {
            reached(&seen.sizes, seen.widened_at, new_optimum(chain).., chain.patience())
        })
        .collect();
    // Runs that never reach it come last.
    took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
    let mut case = ramp_case(&run.chain, "real", took.get(took.len() / 2).copied().flatten());
    case.verdict = judged(case.verdict == CaseVerdict::Held, all.iter().any(Run::is_starved));
    case
}
