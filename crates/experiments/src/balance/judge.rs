//! What the paper claims of FlashFlow's weights, and the results.

use super::weighed::{Errors, Weighed};
use super::weights_name;
use crate::error::Result;
use crate::reporting::claim_case;
use crate::simulated::{
    self, Batch, Change, Interval, Played, Store, in_words, over_seeds, per_second, times, together,
};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series, Style};

const FLASHFLOW: &str = "flashflow";
const TORFLOW: &str = "torflow";

/// FlashFlow's network weight error is at most this (paper: 4 %).
const NWE_MOST: f64 = 0.05;

/// TorFlow's is larger by at least this factor (paper: 7).
const NWE_TIMES: f64 = 3.0;

/// By how much the paper's medians of transfer times were less with FlashFlow, at the usual load.
const PAPER: [(u32, f64); 3] = [(50 << 10, -0.15), (1 << 20, -0.29), (5 << 20, -0.37)];

/// What there is.
#[derive(Default)]
pub(super) struct Results {
    pub(super) runs: Vec<Played>,
    pub(super) errors: Vec<Errors>,
}

impl Results {
    /// Runs, and the errors of their weights.
    pub(super) fn of_runs(batch: &Batch, store: &Store, runs: Vec<Played>) -> Result<Self> {
        let mut errors: Vec<Errors> = Vec::new();
        for played in &runs {
            let (name, seed) = (&played.point.variant, played.point.seed);
            let is_known = errors.iter().any(|it| it.balancer == *name && it.seed == seed);
            if !is_known && let Some(weighed) = store.read::<Weighed>(&weights_name(name, seed))? {
                errors.push(Errors::of(&weighed.weighing, &batch.network, seed));
            }
        }
        Ok(Self { runs, errors })
    }

    fn of<'a>(&'a self, balancer: &'a str) -> impl Iterator<Item = &'a Errors> {
        self.errors.iter().filter(move |it| it.balancer == balancer)
    }

    fn nwe(&self, balancer: &str) -> Interval {
        Interval::of(&self.of(balancer).filter_map(|it| it.nwe).collect::<Vec<_>>())
    }

    fn nce(&self, balancer: &str) -> Interval {
        Interval::of(&self.of(balancer).filter_map(|it| it.nce).collect::<Vec<_>>())
    }

    pub(super) fn cases(&self, loads: &[u32]) -> Vec<Case> {
        let (ours, theirs) = (self.nwe(FLASHFLOW), self.nwe(TORFLOW));
        let mut cases = Vec::new();
        cases.push(claim_case(
            "FlashFlow's network weight error is at most 5 %".to_owned(),
            ours.mean.is_finite().then_some(ours.mean <= NWE_MOST),
            format!("{:.1} %; the paper's: 4 %", ours.times(100.0)),
        ));
        let both = ours.mean.is_finite() && theirs.mean.is_finite();
        cases.push(claim_case(
            "TorFlow's is at least three times that".to_owned(),
            both.then_some(theirs.mean >= NWE_TIMES * ours.mean),
            format!("{:.1} %; the paper's: 29 %", theirs.times(100.0)),
        ));
        for load in loads {
            for (bytes, paper) in PAPER {
                cases.extend(self.faster(*load, bytes, paper));
            }
            cases.push(self.more_reliable(*load));
        }
        cases
    }

    /// Whether the median of times to the last byte is less with FlashFlow, over all seeds. No case if the network has no such downloads.
    fn faster(&self, load: u32, bytes: u32, paper: f64) -> Option<Case> {
        if !self.runs.iter().any(|it| it.size(bytes).is_some()) {
            return None;
        }
        let last_byte = |it: &Played| it.size(bytes)?.last_byte().median();
        let of = |name| over_seeds(&self.runs, name, load, last_byte);
        let (ours, theirs) = (of(FLASHFLOW), of(TORFLOW));
        let change = Change::of(&self.runs, TORFLOW, FLASHFLOW, load, last_byte).percent;
        // A seed with which half never arrived, or too few to decide, is the slowest of all: a mean of the others would be of the fast ones.
        let lacks = [(FLASHFLOW, &ours), (TORFLOW, &theirs)].map(|(name, it)| {
            let seeds = simulated::runs(&self.runs, name, load).count();
            (it.count < seeds)
                .then(|| format!("; {} of {seeds} seeds have a median with {name}", it.count))
        });
        let lacks: String = lacks.into_iter().flatten().collect();
        let usual = if load == 100 {
            format!("; the paper's: {:+.0} %", paper * 100.0)
        } else {
            String::new()
        };
        let name = format!("{} come faster at a load of {load} %", in_words(bytes));
        let detail = format!(
            "{ours:.2} s with FlashFlow, {theirs:.2} s with TorFlow: {change:+.0} %{usual}{lacks}"
        );
        if !lacks.is_empty() {
            return Some(Case::named(name).ended(CaseVerdict::Inconclusive, detail));
        }
        Some(claim_case(name, change.mean.is_finite().then_some(change.mean < 0.0), detail))
    }

    fn more_reliable(&self, load: u32) -> Case {
        let of = |name| over_seeds(&self.runs, name, load, Played::failed_share);
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
        let whole = if self.runs.len() < planned {
            format!(" Only {} of {planned} runs are there.", self.runs.len())
        } else {
            String::new()
        };
        let nwe = [("FlashFlow", FLASHFLOW), ("TorFlow", TORFLOW)].map(|(words, name)| {
            let nwe = self.nwe(name);
            (nwe.count > 0).then(|| format!("{:.1} % with {words}", nwe.times(100.0)))
        });
        let nwe = nwe.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let nwe = if nwe.is_empty() { "not known" } else { &nwe };
        let nce = self.nce(FLASHFLOW);
        let nce = if nce.count > 0 {
            format!("; FlashFlow's network capacity error is {:.1} %", nce.times(100.0))
        } else {
            String::new()
        };
        format!("The network weight error is {nwe}{nce}.{whole}")
    }

    pub(super) fn notes(&self, planned: usize) -> Vec<String> {
        let mut notes = Vec::new();
        for errors in &self.errors {
            if errors.simulated_s > 0.0 {
                let nwe =
                    errors.nwe.map(|it| format!("network weight error {:.1} %, ", it * 100.0));
                notes.push(format!(
                    "{}, seed {}: {}{:.0} simulated seconds, {} relays not measured.",
                    errors.balancer,
                    errors.seed,
                    nwe.unwrap_or_default(),
                    errors.simulated_s,
                    errors.not_measured
                ));
            }
        }
        notes.extend(simulated::missing(self.runs.len(), planned));
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
                pooled(&|it| it.rce.clone()),
            )
            .caption("Equation 2 of the paper, of all relays and seeds: 0 is right."),
            errors(
                "figure-8b",
                "Relay weight error",
                "log10 (share of weight ÷ share of capacity)",
                pooled(&|it| it.log_rwe.clone()),
            )
            .caption("Equation 5 of the paper: 0 is right, 1 is ten times too much."),
        ];
        figures.extend(times(&self.runs, "figure-9a", names, loads));
        figures.push(self.failures(names, loads));
        figures.push(per_second(&self.runs, "figure-9c", names, loads));
        figures.retain(|figure| !figure.series.is_empty());
        figures
    }

    fn failures(&self, names: &[&str], loads: &[u32]) -> ExperimentFigure {
        let x = Axis::columns(loads.iter().map(|it| format!("load {it} %")));
        let y = Axis { is_percent: true, ..Axis::new("downloads that failed, mean over clients") };
        let mut figure = ExperimentFigure::new("figure-9b", "Downloads that failed", x, y)
            .caption("In time, or since no circuit carried them.");
        for (n, name) in names.iter().enumerate() {
            let mut points = Vec::new();
            for (x, load) in (0u32..).map(f64::from).zip(loads) {
                let shares = together(&self.runs, &[name], &[*load], |it| {
                    it.sizes.iter().flat_map(|it| it.failed_of_client.clone()).collect()
                });
                let shares: Vec<f64> = shares.into_iter().flat_map(|it| it.1).collect();
                points.push((x, Interval::of(&shares).mean));
            }
            figure = figure.with(Series {
                name: (*name).to_owned(),
                points,
                style: Style::Bars,
                role: Role::Nth(n),
                ..Series::default()
            });
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

    fn played(variant: &str, seed: u64, last_s: f64, failed: usize) -> Played {
        let size = Transfers {
            bytes: 1 << 20,
            first_byte_s: vec![0.1; 9],
            last_byte_s: vec![last_s; 9],
            unfinished: vec![Unfinished::FAILED; failed],
            failed_of_client: vec![0.0],
        };
        Played { sizes: vec![size], sent_mbit_per_s: vec![1.0], ..Played::blank(variant, seed) }
    }

    fn results(nwe: [f64; 2], last_s: [f64; 2], failed: [usize; 2]) -> Results {
        let mut results = Results::default();
        for (at, name) in [(0, FLASHFLOW), (1, TORFLOW)] {
            for seed in 1..=2 {
                results.runs.push(played(name, seed, last_s[at], failed[at]));
                let balancer = name.to_owned();
                let nwe = Some(nwe[at]);
                results.errors.push(Errors { balancer, seed, nwe, ..Errors::default() });
            }
        }
        results
    }

    fn verdicts(results: &Results) -> Vec<CaseVerdict> {
        results.cases(&[100]).iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn each_claim_is_judged_by_itself() {
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

    /// The seeds that have one are the fast ones.
    #[test]
    fn a_seed_without_a_median_leaves_nothing_to_compare() {
        let mut results = results([0.04, 0.29], [1.2, 1.1], [0, 0]);
        let theirs = results.runs.iter_mut().find(|it| it.point.variant == TORFLOW);
        theirs.expect("one").sizes[0].unfinished = vec![Unfinished::FAILED; 20];
        let cases = results.cases(&[100]);
        let faster = cases.iter().find(|it| it.name.contains("come faster")).expect("judged");
        assert_eq!(faster.verdict, CaseVerdict::Inconclusive, "{faster:?}");
        assert!(faster.detail.contains("1 of 2 seeds have a median with torflow"), "{faster:?}");
    }

    #[test]
    fn without_runs_nothing_holds() {
        let verdicts = verdicts(&Results::default());
        assert!(verdicts.iter().all(|it| *it == CaseVerdict::Failed), "{verdicts:?}");
        let answer = Results::default().answer(6);
        assert!(answer.contains("is not known.") && answer.contains("Only 0 of 6"), "{answer}");
    }

    #[test]
    fn what_was_not_played_is_no_number() {
        let mut alone = results([0.04, 0.29], [1.0, 1.4], [0, 1]);
        alone.runs.retain(|it| it.point.variant == FLASHFLOW);
        alone.errors.retain(|it| it.balancer == FLASHFLOW);
        let answer = alone.answer(2);
        assert!(
            answer.contains("4.0 ± 0.0 % with FlashFlow") && !answer.contains("TorFlow"),
            "{answer}"
        );
        let details: Vec<String> = alone.cases(&[100]).into_iter().map(|it| it.detail).collect();
        assert!(
            !details.concat().contains("NaN") && !answer.contains("NaN"),
            "{details:?} {answer}"
        );
    }
}
