//! Traces of the source's window over real relays and paths, compared with the model of the same path.

use super::Begin;
use super::chain::{Chain, Sizes, median_cells, reached, settled_at};
use super::model::{Found, drawn, hops, kb, largest, new_optimum, ramp_case};
use super::scene::{ObservedWindow, Path, RealPath};
use crate::common::Session;
use crate::error::Result;
use crate::reporting::print_case;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Instant};
use report::experiment::{Case, CaseVerdict, Series};

/// How windows begin here: with what the paper leaves for later, or they would not find what becomes wider.
pub(super) const BEGIN: Begin = Begin::Again;

/// How far the settled window may be from the model's.
const AGREES: f64 = 0.15;

/// How far a window may be from the optimum to have settled: it moves about, as round trips do.
const SETTLED: f64 = 0.25;

/// Where packets came later than this share of a round trip, the machine was too slow, and a miss says nothing.
const LATE_MAX: f64 = 0.1;

/// What was played at a distance.
pub(super) struct RealTrace {
    pub(super) cases: [Case; 2],
    /// For the figure of this distance.
    pub(super) series: Series,
}

/// Plays downloads with the narrow place at one distance; `None` if the user has asked for the end.
pub(super) fn play(
    path: Path,
    runs: u32,
    stretch: u32,
    session: Session<'_>,
) -> Result<Option<RealTrace>> {
    let Session { output, interrupt, .. } = session;
    let distance = path.distance;
    output.doing(format!("real paths, {}: starting relays", hops(distance)));
    let scene = RealPath::start(path, BEGIN)?;
    let mut all = Vec::new();
    for run in 1..=runs {
        output.doing(format!("real paths, {}: run {run} of {runs}", hops(distance)));
        let Some(seen) = scene.download(interrupt)? else { return Ok(None) };
        all.push(Run::new(&path, seen));
    }
    let Some(first) = all.first() else { return Ok(None) };
    // As if the path were the model's.
    let sizes = first
        .seen
        .sizes
        .iter()
        .map(|(at, size)| (Instant::ORIGIN + (*at - Instant::ORIGIN) / stretch.max(1), *size));
    let series = drawn("real paths", 3, &sizes.collect::<Sizes>());
    let cases = [trace_case(&all, distance), widened_case(&all)];
    cases.iter().for_each(|case| print_case(case, output));
    Ok(Some(RealTrace { cases, series }))
}

/// A download, and the model of what it went through.
struct Run {
    path: Path,
    seen: ObservedWindow,
    chain: Chain,
    /// What the model's window is in the end, while the narrow place is narrow.
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
        let modelled = chain.play(BEGIN, path.narrow_for(), None);
        Self { modelled_cells: in_the_end(path, &modelled), path: *path, seen, chain }
    }

    fn settled_cells(&self) -> f64 {
        in_the_end(&self.path, &self.seen.sizes)
    }

    /// What the window was while the narrow place was narrow.
    fn narrow_sizes(&self) -> Sizes {
        let until = self.seen.widened_at;
        self.seen.sizes.iter().copied().filter(|(at, _)| *at < until).collect()
    }

    fn found(&self) -> Found {
        let (optimal, sizes) = (self.chain.optimal_cells(), self.narrow_sizes());
        Found {
            optimal_cells: optimal,
            settled_cells: self.settled_cells(),
            settled_at: settled_at(&sizes, optimal, self.chain.waiting_cells(), SETTLED),
            largest_cells: largest(&sizes),
        }
    }

    /// The largest window of the second half: much more than the settled one, if noise begins a ramp-up.
    fn largest_later(&self) -> u32 {
        let sizes = self.narrow_sizes();
        let from =
            sizes.partition_point(|(at, _)| *at < Instant::ORIGIN + self.path.narrow_for() / 2);
        largest(&sizes[from.saturating_sub(1)..])
    }

    fn is_starved(&self) -> bool {
        let late_max = self.path.hop_round_trip().mul_f64(LATE_MAX);
        self.seen.late > late_max || self.seen.lost > 0
    }

    fn ratio(&self) -> f64 {
        self.settled_cells() / self.modelled_cells
    }
}

/// The window of the second half of the time in which the narrow place is narrow.
fn in_the_end(path: &Path, sizes: &[(Instant, u32)]) -> f64 {
    let end = path.narrow_for();
    let (from, to) = (Instant::ORIGIN + end / 2, Instant::ORIGIN + end);
    median_cells(sizes, from, to).map_or(f64::NAN, f64::from)
}

/// The run whose window is the middle one.
fn middle(all: &[Run]) -> Option<&Run> {
    let mut sorted: Vec<&Run> = all.iter().collect();
    sorted.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    sorted.get(sorted.len() / 2).copied()
}

fn trace_case(all: &[Run], distance: usize) -> Case {
    let case = Case::named(format!("trace over real paths, {}", hops(distance)));
    let Some(run) = middle(all) else { return case };
    let (found, ratio) = (run.found(), run.ratio());
    let told = format!(
        "{}; the model's is {:.1} kB; {:.0} % of the narrow place used",
        found.in_words(),
        kb(run.modelled_cells),
        run.seen.used * 100.0,
    );
    let verdict = judged((ratio - 1.0).abs() <= AGREES, run.is_starved());
    found
        .columns(case, "real", distance)
        .column("simulated_kb", kb(run.modelled_cells))
        .column("over_simulated", (ratio * 1e3).round() / 1e3)
        .column("largest_later_kb", kb(run.largest_later().into()))
        .column("narrow_used", (run.seen.used * 1e3).round() / 1e3)
        .column("round_trip_ms", run.seen.round_trip.as_secs_f64() * 1e3)
        .column("lost_packets", run.seen.lost)
        .column("latest_packet_ms", run.seen.late.as_secs_f64() * 1e3)
        .ended(verdict, told)
}

fn judged(is_so: bool, is_starved: bool) -> CaseVerdict {
    match (is_so, is_starved) {
        (true, _) => CaseVerdict::Held,
        (false, true) => CaseVerdict::Inconclusive,
        (false, false) => CaseVerdict::Missed,
    }
}

fn widened_case(all: &[Run]) -> Case {
    let mut took: Vec<Option<Duration>> = all
        .iter()
        .map(|Run { seen, chain, .. }| {
            reached(&seen.sizes, seen.widened_at, new_optimum(chain), chain.patience())
        })
        .collect();
    // Who never reaches it comes last.
    took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
    let Some(run) = middle(all) else { return Case::default() };
    let case = ramp_case(&run.chain, "real", took.get(took.len() / 2).copied().flatten());
    let verdict = judged(case.verdict == CaseVerdict::Held, all.iter().any(Run::is_starved));
    let detail = case.detail.clone();
    case.ended(verdict, detail)
}
