//! Compares networks that differ in one choice, quantity by quantity and seed by seed.

use super::{
    Batch, Change, Interval, RunResult, Runner, Runs, RunsOptions, Store, figures_of_runs,
    mean_over_seeds, missing_runs, run_case, runs, size_text, sizes,
};
use crate::common::Session;
use crate::error::Result;
use crate::reporting::{print_case, report, rule};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};
use std::fmt;
use std::path::Path;
use tornet::network::Network;
use tornet::results::Transfers;

/// Fairness is computed only if each run has at least this number of downloads.
const DOWNLOADS_MIN: usize = 5;

/// Reads a figure from a run; `None` if the run lacks it.
type Getter = Box<dyn Fn(&RunResult) -> Option<f64>>;

/// A figure of a run.
pub(crate) struct Quantity {
    /// Its name in tables.
    pub(super) column: String,
    /// Its name in sentences.
    name: String,
    pub(super) unit: &'static str,
    pub(super) of: Getter,
}

impl Quantity {
    fn new(
        column: impl Into<String>,
        name: impl Into<String>,
        unit: &'static str,
        of: impl Fn(&RunResult) -> Option<f64> + 'static,
    ) -> Self {
        Self { column: column.into(), name: name.into(), unit, of: Box::new(of) }
    }

    /// The median time to the first byte of downloads of this size.
    pub(crate) fn first_byte(bytes: u32) -> Self {
        let column = format!("first_byte_{}_kib_s", bytes / 1024);
        let name = format!("median time to the first byte of {}", size_text(bytes));
        Self::new(column, name, "s", move |run| run.size(bytes)?.first_byte().median())
    }

    /// The median time to the last byte of downloads of this size.
    pub(crate) fn last_byte(bytes: u32) -> Self {
        let column = format!("last_byte_{}_kib_s", bytes / 1024);
        let name = format!("median time to the last byte of {}", size_text(bytes));
        Self::new(column, name, "s", move |run| run.size(bytes)?.last_byte().median())
    }

    /// The time to the last byte that this share of downloads of this size does not exceed. Quantiles describe times that cluster at two
    /// values, between which a median means little.
    fn last_byte_percentile(bytes: u32, percent: u32) -> Self {
        let column = format!("last_byte_{}_kib_p{percent}_s", bytes / 1024);
        let name =
            format!("{percent}th percentile of the time to the last byte of {}", size_text(bytes));
        let share = f64::from(percent) / 100.0;
        Self::new(column, name, "s", move |run| run.size(bytes)?.last_byte().quantile(share))
    }

    /// The throughput of all relays in the median second.
    pub(crate) fn sent() -> Self {
        let of = |run: &RunResult| Some(run.sent_median_mbit_per_s());
        Self::new("sent_mbit_per_s", "throughput of relays, median of seconds", "Mbit/s", of)
    }

    /// The mean time of a cell in a relay.
    pub(crate) fn congestion() -> Self {
        Self::new(
            "congestion_ms",
            "mean time of a cell in relays' queues and kernels",
            "ms",
            RunResult::congestion_ms,
        )
    }

    /// Jain's fairness index of the rates of downloads of this size: 1 if all are equal.
    fn fairness(bytes: u32) -> Self {
        let name = format!("fairness of downloads of {}", size_text(bytes));
        Self::new("fairness", name, "", move |run| jain_index(run.size(bytes)?))
    }

    /// All quantities that these runs have.
    pub(super) fn all(runs: &[RunResult]) -> Vec<Self> {
        let sizes = sizes(runs);
        let of_size = |bytes: &u32| {
            let percentile = |percent| Self::last_byte_percentile(*bytes, percent);
            [Self::first_byte(*bytes), Self::last_byte(*bytes), percentile(10), percentile(90)]
        };
        let mut all: Vec<Self> = sizes.iter().flat_map(of_size).collect();
        let downloads =
            |run: &RunResult, bytes| run.size(bytes).map_or(0, |size| size.last_byte_s.len());
        let has_enough = |bytes: u32| runs.iter().all(|run| downloads(run, bytes) >= DOWNLOADS_MIN);
        all.extend(sizes.iter().copied().rfind(|size| has_enough(*size)).map(Self::fairness));
        all.extend([
            Self::new("failed_percent", "failed downloads", "%", |run| {
                Some(run.failed_share()? * 100.0)
            }),
            Self::sent(),
            Self::new("goodput_mbit_per_s", "goodput of clients", "Mbit/s", |run| {
                Some(run.goodput_mbit_per_s)
            }),
            Self::new("utilisation_percent", "utilisation of relays", "%", |run| {
                Some(run.utilisation * 100.0)
            }),
            Self::new("queue_ms", "mean time of a cell in relays' queues", "ms", |run| {
                Some(run.queue_ms)
            }),
            Self::new("kernel_queue_ms", "mean time of a cell in relays' kernels", "ms", |run| {
                run.kernel_queue_ms
            }),
            Self::congestion(),
        ]);
        all
    }

    fn case(&self, name: String, load: u32, interval: Interval, detail: String) -> Case {
        Case::named(format!("{name}, load {load} %: {}", self.name))
            .ended(CaseVerdict::Reported, detail)
            .column("what", self.column.as_str())
            .column("load_percent", load)
            .column("mean", interval.mean)
            .column("half_width_95", interval.half_width.unwrap_or(f64::NAN))
            .column("seeds", interval.count)
    }

    /// A variant's mean over seeds.
    fn mean(&self, all: &[RunResult], name: &str, load: u32) -> Option<Case> {
        let interval = mean_over_seeds(all, name, load, &self.of);
        let seeds = runs(all, name, load).count();
        let missing = match seeds - interval.count {
            0 => String::new(),
            missing => format!("; {missing} more have no value"),
        };
        let detail = format!("{interval:.3} {}, {} seeds{missing}", self.unit, interval.count);
        let case = self.case(name.to_owned(), load, interval, detail);
        (interval.count > 0).then(|| case.column("variant", name))
    }

    /// The change from variant `first` to `other`, in percent of the first.
    fn difference(&self, all: &[RunResult], first: &str, other: &str, load: u32) -> (Change, Case) {
        let change = Change::between(all, first, other, load, &self.of);
        let name = format!("{other} against {first}");
        let case = self.case(name, load, change.percent, change.to_string());
        (change, case.column("variant", other).column("against", first))
    }
}

/// The means of all variants, and the changes from the first variant to the others.
pub(crate) fn comparison_cases(all: &[RunResult], names: &[&str], loads: &[u32]) -> Vec<Case> {
    let quantities = Quantity::all(all);
    let mut cases = Vec::new();
    for load in loads.iter().copied() {
        for quantity in &quantities {
            cases.extend(names.iter().filter_map(|name| quantity.mean(all, name, load)));
            let Some((first, others)) = names.split_first() else { continue };
            let changes = others.iter().map(|other| quantity.difference(all, first, other, load));
            cases.extend(changes.filter(|(change, _)| change.seeds > 0).map(|(_, case)| case));
        }
    }
    cases
}

/// Jain's fairness index of the rates of these transfers.
#[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
fn jain_index(size: &Transfers) -> Option<f64> {
    let rates: Vec<f64> =
        size.last_byte_s.iter().map(|s| 1.0 / s).filter(|rate| rate.is_finite()).collect();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let sum: f64 = rates.iter().sum();
    (!rates.is_empty()).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// A claim about the change from one variant to another, at each load.
pub(crate) struct Claim {
    pub(crate) variant: &'static str,
    pub(crate) against: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) expected: Expected,
    /// The paper's change in percent, if it has one.
    pub(crate) paper_percent: Option<f64>,
}

/// A claimed change in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    AtMost(f64),
    AtLeast(f64),
    /// Significantly less than zero.
    Less,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(percent) => write!(f, "at most {percent:+} %"),
            Self::AtLeast(percent) => write!(f, "at least {percent:+} %"),
            Self::Less => f.write_str("less"),
        }
    }
}

impl Expected {
    fn verdict(self, change: &Change) -> CaseVerdict {
        let Some(percent) = change.mean() else {
            // The seeds without a value may be the slowest ones.
            let has_seeds = change.seeds > 0;
            return if has_seeds { CaseVerdict::Inconclusive } else { CaseVerdict::Failed };
        };
        let is_so = match self {
            Self::AtMost(most) => percent <= most,
            Self::AtLeast(least) => percent >= least,
            Self::Less
                if change
                    .percent
                    .half_width
                    .is_none_or(|half_width| percent.abs() <= half_width) =>
            {
                return CaseVerdict::Inconclusive;
            }
            Self::Less => percent < 0.0,
        };
        CaseVerdict::of(is_so)
    }
}

impl Claim {
    pub(crate) fn case(&self, all: &[RunResult], load: u32) -> Case {
        let Self { variant, against, quantity, expected, paper_percent } = self;
        let (change, case) = quantity.difference(all, against, variant, load);
        let paper = paper_percent
            .map_or_else(String::new, |paper_percent| format!("; paper {paper_percent:+.0} %"));
        let (name, detail) =
            (format!("{}: {expected}", case.name), format!("{}{paper}", case.detail));
        let case = Case { name, ..case }.ended(expected.verdict(&change), detail);
        match paper_percent {
            Some(percent) => case.column("paper_percent", *percent),
            None => case,
        }
    }
}

/// An experiment that runs one network with each of several choices.
pub(crate) struct Comparison<'a> {
    /// The name of the report.
    pub(crate) name: &'static str,
    /// The text of the report, from docs/experiments.
    pub(crate) text: &'static str,
    /// The name of the folder with the runs' results.
    pub(crate) folder: &'static str,
    /// Added to the conditions of the batch.
    pub(crate) conditions: String,
    /// The first is the one that the others are compared with.
    pub(crate) variants: &'a [&'static str],
    /// Makes the network of a variant.
    pub(crate) choose: &'a dyn Fn(Network, &str) -> Network,
    pub(crate) claims: &'a dyn Fn(&[RunResult]) -> Vec<Claim>,
}

impl Comparison<'_> {
    /// Performs all runs, and reports them with the cases of `further`.
    pub(crate) fn run(
        &self,
        options: &RunsOptions,
        path: &Path,
        session: Session<'_>,
        further: impl Fn(&Batch) -> Vec<Case>,
    ) -> Result<ExperimentReport> {
        let mut batch = Batch::new(options, path, session.common.quick)?;
        batch.conditions.push_str(&self.conditions);
        let store = &Store::new(session.common.out.join(self.folder))?;
        let variants = self.variants.iter().map(|name| (*name, &batch)).collect();
        let Runs { runs, planned, .. } =
            Runner { variants, store, session }.run_all(|batch, key| {
                Ok(Some((self.choose)(batch.at_load(key.load_percent), &key.variant)))
            })?;
        let mut cases = self.judged(&runs, &batch.loads);
        let verdicts = cases.iter().map(|case| format!("{} ({})", case.name, case.verdict.word()));
        let answer = match cases.is_empty() {
            true => format!("{} of {planned} runs; see the comparison.", runs.len()),
            false => format!("{}.", verdicts.collect::<Vec<_>>().join("; ")),
        };
        let promise = match cases.is_empty() {
            true => Promise::Decided { held: runs.len() == planned, rule: rule(self.text) },
            false => Promise::EveryCase,
        };
        cases.extend(further(&batch));
        cases.extend(comparison_cases(&runs, self.variants, &batch.loads));
        cases.iter().for_each(|case| print_case(case, session.output));
        cases.extend(runs.iter().map(run_case));
        let figures = figures_of_runs(&runs, self.variants, &batch.loads);
        let mut report = report(self.name, self.text);
        report.notes.extend(missing_runs(runs.len(), planned));
        let parameters = batch.parameters();
        Ok(ExperimentReport { parameters, answer, promise, cases, figures, ..report })
    }

    fn judged(&self, runs: &[RunResult], loads: &[u32]) -> Vec<Case> {
        let claims = (self.claims)(runs);
        let of_load =
            |load: &u32| claims.iter().map(|claim| claim.case(runs, *load)).collect::<Vec<_>>();
        loads.iter().flat_map(of_load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expected: Expected, pairs: &[[f64; 2]]) -> CaseVerdict {
        let mut runs = Vec::new();
        for (seed, pair) in (1..).zip(pairs) {
            for (name, goodput_mbit_per_s) in ["a", "b"].into_iter().zip(*pair) {
                runs.push(RunResult { goodput_mbit_per_s, ..RunResult::blank(name, seed) });
            }
        }
        let of = |run: &RunResult| Some(run.goodput_mbit_per_s).filter(|goodput| *goodput > 0.0);
        let quantity = Quantity::new("goodput", "goodput", "Mbit/s", of);
        let claim = Claim { variant: "b", against: "a", quantity, expected, paper_percent: None };
        claim.case(&runs, 100).verdict
    }

    #[test]
    fn a_claim_is_judged_seed_by_seed() {
        use CaseVerdict::{Failed, Held, Inconclusive, Missed};
        // Seeds differ by far more than variants do.
        let less = [[1.0, 0.7], [9.0, 6.8], [3.0, 2.2]];
        assert_eq!(verdict(Expected::Less, &less), Held);
        assert_eq!(verdict(Expected::Less, &less.map(|[a, b]| [b, a])), Missed);
        assert_eq!(verdict(Expected::Less, &[[1.0, 0.7], [9.0, 10.0]]), Inconclusive);
        assert_eq!(verdict(Expected::Less, &[[1.0, 0.7]]), Inconclusive, "a single seed");
        assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 1.01]]), Held);
        assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 1.03]]), Missed);
        assert_eq!(verdict(Expected::AtLeast(-3.0), &[[1.0, 0.98]]), Held);
        assert_eq!(verdict(Expected::AtLeast(-3.0), &[[1.0, 0.96]]), Missed);
        for missing in [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]] {
            assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 0.5], missing]), Inconclusive);
        }
        assert_eq!(verdict(Expected::AtMost(2.0), &[]), Failed, "no runs");
    }
}
