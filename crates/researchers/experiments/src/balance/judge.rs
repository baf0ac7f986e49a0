//! The paper's claims about FlashFlow's weights, and their verdicts.

use super::weighed::{Errors, Weighed};
use super::weights_name;
use crate::error::Result;
use crate::reporting::claim_case;
use crate::simulated::{
    self, Batch, Change, Interval, RunResult, Store, mean_over_seeds, size_text, throughput,
    transfer_times,
};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series};

const FLASHFLOW: &str = "flashflow";
const TORFLOW: &str = "torflow";

/// The upper limit of FlashFlow's network weight error (paper: 4 %).
const NWE_MAX: f64 = 0.05;

/// TorFlow's network weight error is at least this multiple of FlashFlow's (paper: 7).
const NWE_FACTOR: f64 = 3.0;

/// The upper limit of the error of the weight of all relays far from TorFlow's scanner with FlashFlow.
const FAR_BIAS_MAX: f64 = 0.05;

/// The paper's change of median transfer times with FlashFlow, by size, at a load of 100 %.
const PAPER: [(u32, f64); 3] = [(50 << 10, -0.15), (1 << 20, -0.29), (5 << 20, -0.37)];

/// All runs, and the errors of all weights.
#[derive(Default)]
pub(super) struct Results {
    pub(super) runs: Vec<RunResult>,
    pub(super) errors: Vec<Errors>,
}

impl Results {
    /// Adds the errors of the stored weights to the runs.
    pub(super) fn of_runs(batch: &Batch, store: &Store, runs: Vec<RunResult>) -> Result<Self> {
        let mut errors: Vec<Errors> = Vec::new();
        for run in &runs {
            let (name, seed) = (&run.key.variant, run.key.seed);
            let is_known = errors.iter().any(|error| error.balancer == *name && error.seed == seed);
            if !is_known && let Some(weighed) = store.read::<Weighed>(&weights_name(name, seed))? {
                errors.push(Errors::new(&weighed.weighing, &batch.network, seed));
            }
        }
        Ok(Self { runs, errors })
    }

    fn of<'a>(&'a self, balancer: &'a str) -> impl Iterator<Item = &'a Errors> {
        self.errors.iter().filter(move |error| error.balancer == balancer)
    }

    fn nwe(&self, balancer: &str) -> Interval {
        Interval::of(self.of(balancer).filter_map(|error| error.nwe))
    }

    pub(super) fn cases(&self, loads: &[u32]) -> Vec<Case> {
        let (ours, theirs) = (self.nwe(FLASHFLOW), self.nwe(TORFLOW));
        let mut cases = Vec::new();
        cases.push(claim_case(
            "FlashFlow's network weight error is at most 5 %".to_owned(),
            ours.mean.is_finite().then_some(ours.mean <= NWE_MAX),
            format!("{:.1} %; paper: 4 %", ours.times(100.0)),
        ));
        let both = ours.mean.is_finite() && theirs.mean.is_finite();
        cases.push(claim_case(
            "TorFlow's is at least three times that".to_owned(),
            both.then_some(theirs.mean >= NWE_FACTOR * ours.mean),
            format!("{:.1} %; paper: 29 %", theirs.times(100.0)),
        ));
        cases.extend(self.location());
        for load in loads {
            for (bytes, paper) in PAPER {
                cases.extend(self.faster(*load, bytes, paper));
            }
            cases.push(self.more_reliable(*load));
        }
        cases
    }

    /// Whether relays far from the scanner get their share. No case if their countries are unknown.
    fn location(&self) -> Option<Case> {
        let far = |name| Interval::of(self.of(name).filter_map(|error| error.far));
        let (ours, theirs) = (far(FLASHFLOW), far(TORFLOW));
        if !ours.mean.is_finite() || !theirs.mean.is_finite() {
            return None;
        }
        let [our_bias, their_bias] = [ours, theirs].map(|share| (share.mean - 1.0).abs());
        Some(claim_case(
            "Far relays get their share within 5 % with FlashFlow, and TorFlow deviates more"
                .to_owned(),
            Some(our_bias <= FAR_BIAS_MAX && their_bias > our_bias),
            format!(
                "{:.1} % of it with FlashFlow, {:.1} % with TorFlow",
                ours.times(100.0),
                theirs.times(100.0)
            ),
        ))
    }

    /// Whether the median time to the last byte is lower with FlashFlow. No case if the network has no downloads
    /// of this size.
    fn faster(&self, load: u32, bytes: u32, paper: f64) -> Option<Case> {
        if !self.runs.iter().any(|run| run.size(bytes).is_some()) {
            return None;
        }
        let last_byte = |run: &RunResult| run.size(bytes)?.last_byte().median();
        let of = |name| mean_over_seeds(&self.runs, name, load, last_byte);
        let (ours, theirs) = (of(FLASHFLOW), of(TORFLOW));
        let change = Change::between(&self.runs, TORFLOW, FLASHFLOW, load, last_byte).percent;
        let mut detail =
            format!("{ours:.2} s with FlashFlow, {theirs:.2} s with TorFlow: {change:+.0} %");
        if load == 100 {
            detail.push_str(&format!("; paper: {:+.0} %", paper * 100.0));
        }
        // Seeds without a median are the slowest: the mean of the others would be too low.
        let mut is_partial = false;
        for (balancer, interval) in [(FLASHFLOW, ours), (TORFLOW, theirs)] {
            let seeds = simulated::runs(&self.runs, balancer, load).count();
            if interval.count < seeds {
                is_partial = true;
                let count = interval.count;
                detail
                    .push_str(&format!("; {count} of {seeds} seeds have a median with {balancer}"));
            }
        }
        let name = format!("{} download faster at a load of {load} %", size_text(bytes));
        if is_partial {
            return Some(Case::named(name).ended(CaseVerdict::Inconclusive, detail));
        }
        Some(claim_case(name, change.mean.is_finite().then_some(change.mean < 0.0), detail))
    }

    fn more_reliable(&self, load: u32) -> Case {
        let of = |name| mean_over_seeds(&self.runs, name, load, RunResult::failed_share);
        let (ours, theirs) = (of(FLASHFLOW), of(TORFLOW));
        let both = ours.mean.is_finite() && theirs.mean.is_finite();
        claim_case(
            format!("No more downloads fail at a load of {load} %"),
            both.then_some(ours.mean <= theirs.mean),
            format!(
                "{:.2} % with FlashFlow, {:.2} % with TorFlow",
                ours.times(100.0),
                theirs.times(100.0)
            ),
        )
    }

    pub(super) fn answer(&self, planned: usize) -> String {
        let nwe = [("FlashFlow", FLASHFLOW), ("TorFlow", TORFLOW)].map(|(title, name)| {
            let nwe = self.nwe(name);
            (nwe.count > 0).then(|| format!("{:.1} % with {title}", nwe.times(100.0)))
        });
        let nwe = nwe.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let nwe = if nwe.is_empty() { "not known" } else { &nwe };
        let mut answer = format!("The network weight error is {nwe}");
        let nce = Interval::of(self.of(FLASHFLOW).filter_map(|error| error.nce));
        if nce.count > 0 {
            let nce = nce.times(100.0);
            answer.push_str(&format!("; FlashFlow's network capacity error is {nce:.1} %"));
        }
        answer.push('.');
        if self.runs.len() < planned {
            answer.push_str(&format!(" Only {} of {planned} runs completed.", self.runs.len()));
        }
        answer
    }

    pub(super) fn notes(&self, planned: usize) -> Vec<String> {
        let mut notes = Vec::new();
        for errors in &self.errors {
            if errors.simulated_s > 0.0 {
                let nwe =
                    errors.nwe.map(|nwe| format!("network weight error {:.1} %, ", nwe * 100.0));
                notes.push(format!(
                    "{}, seed {}: {}measured in {:.0} simulated seconds, {} relays not measured.",
                    errors.balancer,
                    errors.seed,
                    nwe.unwrap_or_default(),
                    errors.simulated_s,
                    errors.not_measured
                ));
            }
        }
        notes.extend(simulated::missing_runs(self.runs.len(), planned));
        notes
    }

    pub(super) fn figures(&self, names: &[&str], loads: &[u32]) -> Vec<ExperimentFigure> {
        let pooled = |what: &dyn Fn(&Errors) -> Vec<f64>| -> Vec<(String, Vec<f64>)> {
            let of = |name: &&str| ((*name).to_owned(), self.of(name).flat_map(what).collect());
            names.iter().map(of).collect()
        };
        let mut figures = vec![
            errors(
                "figure-8a",
                "Relay capacity error",
                "1 − estimate ÷ capacity",
                pooled(&|error| error.rce.clone()),
            )
            .caption("Equation 2 of the paper, over all relays and seeds: 0 is correct."),
            errors(
                "figure-8b",
                "Relay weight error",
                "log10 (share of weight ÷ share of capacity)",
                pooled(&|error| error.log_rwe.clone()),
            )
            .caption("Equation 5 of the paper: 0 is correct, 1 is ten times too much."),
        ];
        figures.extend(transfer_times(&self.runs, "figure-9a", names, loads));
        figures.push(self.failures(names, loads));
        figures.push(throughput(&self.runs, "figure-9c", names, loads));
        figures.retain(|figure| !figure.series.is_empty());
        figures
    }

    fn failures(&self, names: &[&str], loads: &[u32]) -> ExperimentFigure {
        let x = Axis::columns(loads.iter().map(|load| format!("load {load} %")));
        let y = Axis { is_percent: true, ..Axis::new("downloads that failed, mean over clients") };
        let mut figure = ExperimentFigure::new("figure-9b", "Downloads that failed", x, y)
            .caption("Downloads that timed out or lost their circuit.");
        for (n, name) in names.iter().enumerate() {
            let mean = |load: u32| {
                let sizes = simulated::runs(&self.runs, name, load).flat_map(|run| &run.sizes);
                Interval::of(sizes.flat_map(|size| &size.failed_of_client)).mean
            };
            let points =
                (0u32..).map(f64::from).zip(loads.iter().map(|load| mean(*load))).collect();
            figure = figure.with(Series::bars(name, Role::Nth(n), points));
        }
        figure
    }
}

fn errors(
    name: &str,
    title: &str,
    label: &str,
    groups: Vec<(String, Vec<f64>)>,
) -> ExperimentFigure {
    let mut figure = ExperimentFigure::distributions(name, title, label, groups);
    figure.y.label = "share of relays".to_owned();
    figure.mark(On::X, 0.0, "", Role::Truth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tornet::results::{Transfers, Unfinished};

    fn run(variant: &str, seed: u64, last_s: f64, failed: usize) -> RunResult {
        let size = Transfers {
            bytes: 1 << 20,
            first_byte_s: vec![0.1; 9],
            last_byte_s: vec![last_s; 9],
            unfinished: vec![Unfinished::FAILED; failed],
            failed_of_client: vec![0.0],
        };
        RunResult {
            sizes: vec![size],
            sent_mbit_per_s: vec![1.0],
            ..RunResult::blank(variant, seed)
        }
    }

    fn results(nwe: [f64; 2], last_s: [f64; 2], failed: [usize; 2]) -> Results {
        let mut results = Results::default();
        for (at, name) in [(0, FLASHFLOW), (1, TORFLOW)] {
            for seed in 1..=2 {
                results.runs.push(run(name, seed, last_s[at], failed[at]));
                let balancer = name.to_owned();
                let nwe = Some(nwe[at]);
                results.errors.push(Errors { balancer, seed, nwe, ..Errors::default() });
            }
        }
        results
    }

    fn verdicts(results: &Results) -> Vec<CaseVerdict> {
        results.cases(&[100]).iter().map(|case| case.verdict).collect()
    }

    #[test]
    fn each_claim_is_judged_separately() {
        const HELD: CaseVerdict = CaseVerdict::Held;
        const MISSED: CaseVerdict = CaseVerdict::Missed;
        assert_eq!(verdicts(&results([0.04, 0.29], [1.0, 1.4], [0, 1])), [HELD; 4]);
        let cases = [
            (results([0.06, 0.29], [1.0, 1.4], [0, 1]), [MISSED, HELD, HELD, HELD]),
            (results([0.04, 0.11], [1.0, 1.4], [0, 1]), [HELD, MISSED, HELD, HELD]),
            (results([0.04, 0.29], [1.4, 1.0], [0, 1]), [HELD, HELD, MISSED, HELD]),
            (results([0.04, 0.29], [1.0, 1.4], [2, 1]), [HELD, HELD, HELD, MISSED]),
        ];
        for (results, expected) in cases {
            assert_eq!(verdicts(&results), expected);
        }
    }

    #[test]
    fn the_shares_of_far_relays_are_judged_if_they_are_known() {
        let judged = |far: [f64; 2]| {
            let mut results = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
            for error in &mut results.errors {
                error.far = Some(far[usize::from(error.balancer == TORFLOW)]);
            }
            results.location().expect("known").verdict
        };
        assert_eq!(judged([0.98, 0.8]), CaseVerdict::Held);
        assert_eq!(judged([1.01, 1.2]), CaseVerdict::Held);
        assert_eq!(judged([0.9, 0.8]), CaseVerdict::Missed);
        assert_eq!(judged([0.98, 0.99]), CaseVerdict::Missed);
        assert!(results([0.04, 0.29], [1.0, 1.4], [0, 1]).location().is_none());
    }

    #[test]
    fn a_seed_without_a_median_makes_the_claim_inconclusive() {
        let mut results = results([0.04, 0.29], [1.2, 1.1], [0, 0]);
        let theirs = results.runs.iter_mut().find(|run| run.key.variant == TORFLOW);
        theirs.expect("one").sizes[0].unfinished = vec![Unfinished::FAILED; 20];
        let cases = results.cases(&[100]);
        let faster =
            cases.iter().find(|case| case.name.contains("download faster")).expect("judged");
        assert_eq!(faster.verdict, CaseVerdict::Inconclusive, "{faster:?}");
        assert!(faster.detail.contains("1 of 2 seeds have a median with torflow"), "{faster:?}");
    }

    #[test]
    fn claims_fail_without_runs() {
        let verdicts = verdicts(&Results::default());
        assert!(verdicts.iter().all(|verdict| *verdict == CaseVerdict::Failed), "{verdicts:?}");
        let answer = Results::default().answer(6);
        assert!(answer.contains("is not known.") && answer.contains("Only 0 of 6"), "{answer}");
    }

    #[test]
    fn texts_never_contain_nan() {
        let mut alone = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
        alone.runs.retain(|run| run.key.variant == FLASHFLOW);
        alone.errors.retain(|error| error.balancer == FLASHFLOW);
        let answer = alone.answer(2);
        assert!(
            answer.contains("4.0 ± 0.0 % with FlashFlow") && !answer.contains("TorFlow"),
            "{answer}"
        );
        let details: Vec<String> =
            alone.cases(&[100]).into_iter().map(|case| case.detail).collect();
        assert!(
            !details.concat().contains("NaN") && !answer.contains("NaN"),
            "{details:?} {answer}"
        );
    }
}
