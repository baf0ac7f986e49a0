//! The paper's claims about FlashFlow's weights, and their verdicts.

use super::weighed::{Errors, Weighed};
use super::{FLASHFLOW, TORFLOW, weights_name};
use crate::columns::rounded;
use crate::error::Result;
use crate::reporting::{claim_case, quantile};
use crate::simulated::{self, Batch, Interval, RunResult, Runs, Store};
use report::experiment::Case;
use serde::Serialize;

/// The upper limit of FlashFlow's network weight error (paper: 4 %).
const NWE_MAX: f64 = 0.05;

/// TorFlow's network weight error is at least this multiple of FlashFlow's (paper: 7).
const NWE_FACTOR: f64 = 3.0;

/// The upper limit of the error of the weight of all relays far from TorFlow's scanner with FlashFlow.
const FAR_BIAS_MAX: f64 = 0.05;

/// Columns of a balancer's weights.
#[derive(Serialize)]
struct Columns<'a> {
    balancer: &'a str,
    network_weight_error_percent: Option<f64>,
    /// Relays with less than their share.
    under_weighted_percent: Option<f64>,
    network_capacity_error_percent: Option<f64>,
    capacity_error_median_percent: Option<f64>,
    /// The range of the middle half of the relays.
    capacity_error_quartiles_apart_percent: Option<f64>,
}

/// All runs, and the errors of all weights.
#[derive(Default)]
pub(super) struct Results {
    pub(super) runs: Vec<RunResult>,
    pub(super) errors: Vec<Errors>,
    /// The number of runs of all shards.
    planned: usize,
}

impl Results {
    /// Adds the errors of the stored weights to the runs.
    pub(super) fn of_runs(batch: &Batch, store: &Store, all: Runs) -> Result<Self> {
        let Runs { runs, planned, .. } = all;
        let mut errors: Vec<Errors> = Vec::new();
        for run in &runs {
            let (name, seed) = (&run.key.variant, run.key.seed);
            let is_known = errors.iter().any(|error| error.balancer == *name && error.seed == seed);
            if !is_known && let Some(weighed) = store.read::<Weighed>(&weights_name(name, seed))? {
                errors.push(Errors::new(&weighed.weighing, &batch.network, seed));
            }
        }
        Ok(Self { runs, errors, planned })
    }

    pub(super) fn of<'a>(&'a self, balancer: &'a str) -> impl Iterator<Item = &'a Errors> {
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
        cases.extend(self.download_claims(loads));
        cases
    }

    /// The errors of each balancer's weights, means over seeds.
    pub(super) fn weight_cases(&self, names: &[&str]) -> Vec<Case> {
        let case = |name: &&str| {
            let mean = |of: fn(&Errors) -> Option<f64>| {
                rounded(Interval::of(self.of(name).filter_map(of)).mean * 100.0, 2)
            };
            let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| {
                let quartile = |error: &Errors| quantile(error.rce.iter().copied(), share);
                let of_seed = self.of(name).filter_map(quartile);
                Interval::of(of_seed).mean * 100.0
            });
            let columns = Columns {
                balancer: name,
                network_weight_error_percent: mean(|error| error.nwe),
                under_weighted_percent: mean(Errors::under_weighted),
                network_capacity_error_percent: mean(|error| error.nce),
                capacity_error_median_percent: rounded(middle, 2),
                capacity_error_quartiles_apart_percent: rounded(high - low, 2),
            };
            Case::reported(format!("weights of {name}"), "").with(&columns)
        };
        names.iter().filter(|name| self.of(name).next().is_some()).map(case).collect()
    }

    /// Whether relays far from the scanner get their share. No case if their countries are unknown.
    fn location(&self) -> Option<Case> {
        let far = |name| self.of(name).filter_map(|error| error.far);
        let [ours, theirs] = [FLASHFLOW, TORFLOW].map(|name| Interval::of(far(name)));
        if !ours.mean.is_finite() || !theirs.mean.is_finite() {
            return None;
        }
        // The means of deviations: those of shares would let seeds with opposite errors cancel each other.
        let [our_bias, their_bias] = [FLASHFLOW, TORFLOW]
            .map(|name| Interval::of(far(name).map(|share| (share - 1.0).abs())).mean);
        Some(claim_case(
            "Far relays get their share within 5 % with FlashFlow, and TorFlow deviates more"
                .to_owned(),
            Some(our_bias <= FAR_BIAS_MAX && their_bias > our_bias),
            format!(
                "{:.1} % of it with FlashFlow, {:.1} % with TorFlow; mean deviations {:.1} and {:.1} %",
                ours.times(100.0),
                theirs.times(100.0),
                our_bias * 100.0,
                their_bias * 100.0
            ),
        ))
    }

    pub(super) fn answer(&self) -> String {
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
        if self.runs.len() < self.planned {
            let (runs, planned) = (self.runs.len(), self.planned);
            answer.push_str(&format!(" Only {runs} of {planned} runs completed."));
        }
        answer
    }

    pub(super) fn notes(&self) -> Vec<String> {
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
        notes.extend(simulated::missing_runs(self.runs.len(), self.planned));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::CaseVerdict;
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

    /// FlashFlow's relays carry all of 30 % more load, TorFlow's half of it.
    #[test]
    fn growth_and_deviations_are_compared_seed_by_seed() {
        let mut results = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
        let more = results.runs.iter().map(|run| {
            let mut run = run.clone();
            run.key.load_percent = 130;
            let growth = if run.key.variant == FLASHFLOW { 1.3 } else { 1.15 };
            run.sent_mbit_per_s = vec![growth];
            run.sizes[0].last_byte_s[0] *= 2.0;
            run
        });
        let more: Vec<RunResult> = more.collect();
        results.runs.extend(more);
        let cases = results.cases(&[100, 130]);
        let case = |name: &str| cases.iter().find(|case| case.name == name).expect(name);
        let number =
            |case: &Case, column: &str| case.value(column).and_then(|value| value.as_f64());
        let growth = case("Throughput grows more from a load of 100 % to 130 %");
        let percents = ["flashflow_percent", "torflow_percent"].map(|name| number(growth, name));
        assert_eq!((growth.verdict, percents), (CaseVerdict::Held, [Some(30.0), Some(15.0)]));
        let faster = case("1 MiB download faster at a load of 130 %");
        assert_eq!(number(faster, "change_percent"), Some(-28.57));
        assert_eq!(number(faster, "deviation_change_percent"), Some(-28.57), "as the times");
        let downloads = results.download_cases(&[TORFLOW], &[130]);
        assert_eq!(number(&downloads[0], "failed_percent"), Some(10.0));
        assert_eq!(number(&downloads[0], "last_byte_1024_kib_s"), Some(1.4));
    }

    #[test]
    fn the_middle_half_of_the_relays_has_the_range_of_their_quartiles() {
        let errors = Errors {
            balancer: FLASHFLOW.to_owned(),
            rce: vec![0.0, 0.1, 0.2, 0.3, 0.4],
            log_rwe: vec![-0.1, -0.2, -0.3, 0.1],
            ..Errors::default()
        };
        let results = Results { errors: vec![errors], ..Results::default() };
        let cases = results.weight_cases(&[FLASHFLOW, TORFLOW]);
        let column = |name: &str| cases[0].value(name).and_then(|value| value.as_f64());
        assert_eq!(cases.len(), 1, "TorFlow was not run");
        assert_eq!(column("capacity_error_median_percent"), Some(20.0));
        assert_eq!(column("capacity_error_quartiles_apart_percent"), Some(20.0));
        assert_eq!(column("under_weighted_percent"), Some(75.0));
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
        let mut opposite = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
        for error in &mut opposite.errors {
            let deviation = if error.balancer == TORFLOW { 0.2 } else { 0.1 };
            error.far = Some(if error.seed == 1 { 1.0 + deviation } else { 1.0 - deviation });
        }
        let verdict = opposite.location().expect("known").verdict;
        assert_eq!(verdict, CaseVerdict::Missed, "opposite errors do not cancel");
    }

    #[test]
    fn claims_compare_the_seeds_that_both_have() {
        // The second seed is the worst of TorFlow's, and was not run with FlashFlow.
        let verdict = |results: &Results, loads: &[u32], name: &str| {
            let cases = results.cases(loads);
            cases.iter().find(|case| case.name.starts_with(name)).expect("a case").verdict
        };
        let mut results = results([0.04, 0.29], [1.0, 1.4], [1, 0]);
        let second =
            results.runs.iter_mut().find(|run| run.key.variant == TORFLOW && run.key.seed == 2);
        second.expect("one").sizes[0].unfinished = vec![Unfinished::FAILED; 9];
        assert_eq!(verdict(&results, &[100], "No more downloads"), CaseVerdict::Held);
        results.runs.retain(|run| run.key.variant != FLASHFLOW || run.key.seed == 1);
        assert_eq!(verdict(&results, &[100], "No more downloads"), CaseVerdict::Inconclusive);
        let mut more = results.runs.clone();
        more.iter_mut().for_each(|run| run.key.load_percent = 130);
        results.runs.extend(more);
        assert_eq!(verdict(&results, &[130, 100], "Throughput grows"), CaseVerdict::Inconclusive);
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
        let answer = Results { planned: 6, ..Results::default() }.answer();
        assert!(answer.contains("is not known.") && answer.contains("Only 0 of 6"), "{answer}");
    }

    #[test]
    fn texts_never_contain_nan() {
        let mut alone = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
        alone.runs.retain(|run| run.key.variant == FLASHFLOW);
        alone.errors.retain(|error| error.balancer == FLASHFLOW);
        let answer = alone.answer();
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
