//! Traces of the source's window over real relays and paths, compared with the model of the same path.

use super::Begin;
use super::chain::{Chain, Sizes, median_cells, reached, settled_at};
use super::model::{TraceResult, hops, kb, largest, new_optimum, ramp_case, window_series};
use super::scene::{ObservedWindow, Path, RealPath};
use crate::common::Session;
use crate::error::Result;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Instant};
use report::experiment::{Case, CaseVerdict, Series};

/// The start-up algorithm: CircuitStart with new ramp-ups (the paper's future work), since plain CircuitStart does not
/// adapt to a higher rate.
pub(super) const BEGIN: Begin = Begin::Again;

/// The permitted relative difference between the settled window and the model's.
const AGREES: f64 = 0.15;

/// The tolerance within which a window counts as settled: it fluctuates with the round trips.
const SETTLED: f64 = 0.25;

/// If a packet is delayed by more than this share of a round trip, the machine is too slow, and a miss is inconclusive.
const LATE_MAX: f64 = 0.1;

/// The results at one distance.
pub(super) struct RealTrace {
    pub(super) cases: [Case; 2],
    /// For the figure of this distance.
    pub(super) series: Series,
}

/// Downloads over a path; `None` if the user has interrupted.
pub(super) fn run(
    scene: &RealPath,
    path: Path,
    runs: u32,
    stretch: u32,
    session: Session<'_>,
) -> Result<Option<RealTrace>> {
    let Session { output, interrupt, .. } = session;
    let distance = path.distance;
    let mut all = Vec::new();
    for run in 1..=runs {
        output.doing(format!("real paths, {}: run {run} of {runs}", hops(distance)));
        let Some(seen) = scene.download(interrupt)? else { return Ok(None) };
        all.push(Run::new(&path, seen));
    }
    let Some(first) = all.first() else { return Ok(None) };
    // Scales the times to those of the model's path.
    let sizes = first
        .seen
        .sizes
        .iter()
        .map(|(at, size)| (Instant::ORIGIN + (*at - Instant::ORIGIN) / stretch.max(1), *size));
    let series = window_series("real paths", 3, &sizes.collect::<Sizes>());
    Ok(Some(RealTrace { cases: [trace_case(&all, distance), widened_case(&all)], series }))
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
    fn new(path: &Path, seen: ObservedWindow) -> Self {
        let chain = Chain {
            distance: path.distance,
            narrow_cells_per_s: seen.narrow_cells_per_s,
            wide_cells_per_s: seen.wide_cells_per_s,
            delay: path.delay,
            grain: SchedulerConfig::INTERVAL,
        };
        let modelled = chain.simulate(BEGIN, path.narrow_for(), None);
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

    fn result(&self) -> TraceResult {
        let (optimal, sizes) = (self.chain.optimal_cells(), self.narrow_sizes());
        TraceResult {
            optimal_cells: optimal,
            settled_cells: self.settled_cells(),
            settled_at: settled_at(&sizes, optimal, self.chain.queued_cells(), SETTLED),
            largest_cells: largest(&sizes),
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

fn trace_case(all: &[Run], distance: usize) -> Case {
    let case = Case::named(format!("trace over real paths, {}", hops(distance)));
    let Some(run) = middle(all) else { return case };
    let (result, ratio) = (run.result(), run.ratio());
    let detail = format!(
        "{}; the model's window {:.1} kB; {:.0} % of the bottleneck used",
        result.detail(),
        kb(run.modelled_cells),
        run.seen.used * 100.0,
    );
    let verdict = judged((ratio - 1.0).abs() <= AGREES, run.is_starved());
    result
        .columns(case, "real", distance)
        .column("simulated_kb", kb(run.modelled_cells))
        .column("over_simulated", (ratio * 1e3).round() / 1e3)
        .column("largest_later_kb", kb(run.largest_later().into()))
        .column("narrow_used", (run.seen.used * 1e3).round() / 1e3)
        .column("round_trip_ms", run.seen.round_trip.as_secs_f64() * 1e3)
        .column("lost_packets", run.seen.lost)
        .column("latest_packet_ms", run.seen.late.as_secs_f64() * 1e3)
        .ended(verdict, detail)
}

fn judged(holds: bool, is_starved: bool) -> CaseVerdict {
    if !holds && is_starved { CaseVerdict::Inconclusive } else { CaseVerdict::of(holds) }
}

fn widened_case(all: &[Run]) -> Case {
    let mut took: Vec<Option<Duration>> = all
        .iter()
        .map(|Run { seen, chain, .. }| {
            reached(&seen.sizes, seen.widened_at, new_optimum(chain), chain.patience())
        })
        .collect();
    // Runs that never reach it come last.
    took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
    let Some(run) = middle(all) else { return Case::default() };
    let mut case = ramp_case(&run.chain, "real", took.get(took.len() / 2).copied().flatten());
    case.verdict = judged(case.verdict == CaseVerdict::Held, all.iter().any(Run::is_starved));
    case
}
