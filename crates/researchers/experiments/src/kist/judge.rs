//! The claims about the schedulers, and their verdicts.

use super::Cell;
use super::run::{RunFigures, Scheduler};
use crate::grid::Rows;
use crate::reporting::median;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Scale};

/// Maximum of KIST's median queue time over Vanilla's: the paper has a reduction of "more than 30 %".
const QUEUED_MAX: f64 = 0.70;
/// Maximum of KIST's time to first byte over Vanilla's: the paper has a reduction of "18 %".
const FIRST_MAX: f64 = 0.82;
/// Minimum of KIST's throughput over Vanilla's.
const THROUGHPUT_MIN: f64 = 0.97;

/// All runs, in chronological order.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(pub(super) Vec<(Scheduler, RunFigures)>);

/// The samples of all runs with one scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct Pooled {
    pub(super) queued_s: Vec<f64>,
    pub(super) first_s: Vec<f64>,
    pub(super) mbit_per_s: f64,
}

impl Runs {
    /// The runs of these rows.
    pub(super) fn from_rows(rows: &Rows<'_, Cell>) -> Self {
        Self(rows.data().map(|(cell, figures)| (cell.scheduler, figures)).collect())
    }

    fn with(&self, scheduler: Scheduler) -> impl Iterator<Item = &RunFigures> {
        self.0.iter().filter(move |(of, _)| *of == scheduler).map(|(_, run)| run)
    }

    /// A cell's time from server to client without queueing. It is the minimum over all schedulers, because
    /// some delay a cell until their next run even in an idle relay, and that delay counts as queue time.
    pub(super) fn path_s(&self) -> f64 {
        self.0.iter().map(|(_, run)| run.unloaded_passage_s).fold(f64::INFINITY, f64::min)
    }

    /// The samples of all runs with a scheduler; `None` without a run.
    pub(super) fn pooled(&self, scheduler: Scheduler) -> Option<Pooled> {
        let mbit_per_s = median(self.with(scheduler).map(|run| run.mbit_per_s))?;
        let path_s = self.path_s();
        Some(Pooled {
            queued_s: self.with(scheduler).flat_map(|run| run.queued_s(path_s)).collect(),
            first_s: self.with(scheduler).flat_map(|run| run.first_cell_s.clone()).collect(),
            mbit_per_s,
        })
    }

    /// The claims, as cases: *truth* is Vanilla's figure, *estimate* is KIST's.
    pub(super) fn cases(&self) -> Vec<Case> {
        let (vanilla, kist) = (self.pooled(Scheduler::Vanilla), self.pooled(Scheduler::Kist));
        let ratio = |of: &dyn Fn(&Pooled) -> Option<f64>| {
            let (vanilla, kist) = (of(vanilla.as_ref()?)?, of(kist.as_ref()?)?);
            Some((vanilla, kist, kist / vanilla))
        };
        let case = |name: &str,
                    unit: &str,
                    found: Option<(f64, f64, f64)>,
                    holds: &dyn Fn(f64) -> bool| {
            let case = Case::named(name);
            let Some((vanilla, kist, ratio)) = found else {
                return case.ended(CaseVerdict::Failed, "there are no runs to compare");
            };
            let verdict = CaseVerdict::of(holds(ratio));
            let change = (ratio - 1.0) * 100.0;
            let detail = format!("Vanilla {vanilla:.1}, KIST {kist:.1} {unit}: {change:+.1} %");
            Case { ratio: Some(ratio), ..case }.ended(verdict, detail)
        };
        let queued = ratio(&|pooled| median(pooled.queued_s.iter().map(|s| s * 1e3)));
        let first = ratio(&|pooled| median(pooled.first_s.iter().map(|s| s * 1e3)));
        let rate = ratio(&|pooled| Some(pooled.mbit_per_s));
        vec![
            case("KIST: queue time 30 % lower", "ms", queued, &|ratio| ratio <= QUEUED_MAX),
            case("KIST: time to first byte 18 % lower", "ms", first, &|ratio| ratio <= FIRST_MAX),
            case("KIST: throughput not lower", "Mbit/s", rate, &|ratio| ratio >= THROUGHPUT_MIN),
        ]
    }

    /// A case for each run, which holds if the run completed.
    pub(super) fn run_cases(&self) -> Vec<Case> {
        let path_s = self.path_s();
        let mut counts = [0; Scheduler::ALL.len()];
        let of = |(scheduler, run): &(Scheduler, RunFigures)| {
            let count = &mut counts[*scheduler as usize];
            *count += 1;
            run_case(*scheduler, *count, run, path_s)
        };
        self.0.iter().map(of).collect()
    }

    pub(super) fn figures(&self) -> Vec<ExperimentFigure> {
        let pooled: Vec<(Scheduler, Pooled)> =
            Scheduler::ALL.iter().filter_map(|of| Some((*of, self.pooled(*of)?))).collect();
        let figure = |name: &str, title: &str, label: &str, of: &dyn Fn(&Pooled) -> &[f64]| {
            let in_ms: Vec<(&str, Vec<f64>)> = pooled
                .iter()
                .map(|(scheduler, pooled)| {
                    (scheduler.name(), of(pooled).iter().map(|s| s * 1e3).collect())
                })
                .collect();
            let groups = in_ms.iter().map(|(name, values)| (*name, &values[..]));
            let mut figure = ExperimentFigure::distributions(name, title, label, groups);
            figure.x = Axis { scale: Scale::Log, ..Axis::new(label) };
            figure.y.label = "share".to_owned();
            figure
        };
        vec![
            figure(
                "queue-time",
                "Queue time of quiet circuits' cells",
                "queue time in ms",
                &|pooled| &pooled.queued_s,
            )
            .caption(
                "A cell's time from server to client, less the time of the path without queueing: the queues \
                 of the relay, of its kernel, and of the bottleneck.",
            ),
            figure(
                "first-byte",
                "Time to first byte of quiet circuits' requests",
                "time to first byte in ms",
                &|pooled| &pooled.first_s,
            )
            .caption("From a request to the first cell of its answer."),
        ]
    }
}

impl RunFigures {
    /// The queue time of each cell, given the time of the path without queueing.
    fn queued_s(&self, path_s: f64) -> Vec<f64> {
        self.passage_s.iter().map(|passage| (passage - path_s).max(0.0)).collect()
    }
}

fn run_case(scheduler: Scheduler, number: u32, run: &RunFigures, path_s: f64) -> Case {
    let ms = |values: &[f64]| median(values.iter().map(|s| s * 1e3)).unwrap_or_default();
    let rate_byte_per_s = run.mbit_per_s * 125_000.0;
    let (queued, first) = (ms(&run.queued_s(path_s)), ms(&run.first_cell_s));
    let detail = format!(
        "queue time {queued:.1} ms, first byte {first:.1} ms, {:.2} Mbit/s",
        run.mbit_per_s
    );
    Case::named(format!("{} {number}", scheduler.name()))
        .ended(CaseVerdict::Held, detail)
        .column("scheduler", scheduler.name())
        .column("queue_ms", queued)
        .column("unloaded_queue_ms", (run.unloaded_passage_s - path_s) * 1e3)
        .column("first_byte_ms", first)
        .column("unloaded_first_byte_ms", run.unloaded_first_cell_s * 1e3)
        .column("mbit_per_s", run.mbit_per_s)
        .column("circuit_queue_ms", run.circuit_queue_s.map_or(f64::NAN, |s| s * 1e3))
        .column("kernel_queue_ms", run.kernel_bytes / rate_byte_per_s * 1e3)
        .column("kernel_kib", run.kernel_bytes / 1024.0)
        .column("narrow_kib", run.narrow_bytes / 1024.0)
        .column("drops", f64::from(u32::try_from(run.drops).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(queued_ms: [f64; 2], first_ms: [f64; 2], carried: [f64; 2]) -> Runs {
        let run = |at: usize| RunFigures {
            passage_s: vec![(queued_ms[at] + 2.0) * 1e-3; 5],
            unloaded_passage_s: [0.002, 0.012][at],
            first_cell_s: vec![first_ms[at] * 1e-3; 3],
            mbit_per_s: carried[at],
            ..RunFigures::default()
        };
        Runs(vec![(Scheduler::Vanilla, run(0)), (Scheduler::Kist, run(1))])
    }

    fn verdicts(runs: &Runs) -> Vec<bool> {
        runs.cases().iter().map(|case| case.verdict == CaseVerdict::Held).collect()
    }

    #[test]
    fn each_claim_is_judged_separately() {
        assert_eq!(verdicts(&runs([100.0, 69.0], [100.0, 81.0], [20.0, 19.5])), [true; 3]);
        let cases = [
            (runs([100.0, 71.0], [100.0, 81.0], [20.0, 19.5]), [false, true, true]),
            (runs([100.0, 69.0], [100.0, 83.0], [20.0, 19.5]), [true, false, true]),
            (runs([100.0, 69.0], [100.0, 81.0], [20.0, 19.3]), [true, true, false]),
        ];
        for (runs, expected) in cases {
            assert_eq!(verdicts(&runs), expected);
        }
    }

    #[test]
    fn claims_fail_without_runs() {
        let cases = Runs::default().cases();
        assert!(cases.iter().all(|case| case.verdict == CaseVerdict::Failed));
    }

    #[test]
    fn runs_are_numbered_by_scheduler() {
        let mut both = runs([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]);
        both.0.extend(both.0.clone());
        let names: Vec<String> = both.run_cases().into_iter().map(|case| case.name).collect();
        assert_eq!(names, ["Vanilla 1", "KIST 1", "Vanilla 2", "KIST 2"]);
    }
}
