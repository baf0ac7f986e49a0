//! Networks that differ in one thing, compared quantity by quantity and seed by seed.

use super::{
    Batch, Change, Interval, Played, Runner, Runs, RunsOptions, Store, in_words, missing, of_runs,
    over_seeds, run_case, runs, sizes,
};
use crate::common::Session;
use crate::error::Result;
use crate::reporting::{print_case, report, rule};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};
use std::fmt;
use std::path::Path;
use tornet::network::Network;
use tornet::results::Transfers;

/// A single download shows nothing of fairness: a run must have this number.
const DOWNLOADS_MIN: usize = 5;

/// How a figure of a run is had, if it has it.
type Getter = Box<dyn Fn(&Played) -> Option<f64>>;

/// A figure of a run.
pub(crate) struct Quantity {
    /// Its name in tables.
    column: String,
    /// Its name in sentences.
    words: String,
    unit: &'static str,
    of: Getter,
}

impl Quantity {
    fn new(
        column: impl Into<String>,
        words: impl Into<String>,
        unit: &'static str,
        of: impl Fn(&Played) -> Option<f64> + 'static,
    ) -> Self {
        Self { column: column.into(), words: words.into(), unit, of: Box::new(of) }
    }

    /// The median time to the first byte of downloads of this size.
    pub(crate) fn first_byte(bytes: u32) -> Self {
        let (column, words) = (format!("first_byte_{}_kib_s", bytes / 1024), in_words(bytes));
        let words = format!("median time to the first byte of {words}");
        Self::new(column, words, "s", move |it| it.size(bytes)?.first_byte().median())
    }

    /// The median time to the last byte of downloads of this size.
    pub(crate) fn last_byte(bytes: u32) -> Self {
        let (column, words) = (format!("last_byte_{}_kib_s", bytes / 1024), in_words(bytes));
        let words = format!("median time to the last byte of {words}");
        Self::new(column, words, "s", move |it| it.size(bytes)?.last_byte().median())
    }

    /// What relays sent in the median second.
    pub(crate) fn sent() -> Self {
        let words = "what relays sent, median of seconds";
        let of = |it: &Played| Some(it.sent_median_mbit_per_s());
        Self::new("sent_mbit_per_s", words, "Mbit/s", of)
    }

    /// How long a cell is in a relay.
    pub(crate) fn congestion() -> Self {
        Self::new(
            "congestion_ms",
            "mean time of a cell in relays' queues and kernels",
            "ms",
            Played::congestion_ms,
        )
    }

    /// Jain's index of the rates of downloads of this size: 1 if all are alike.
    fn fairness(bytes: u32) -> Self {
        let words = format!("fairness of downloads of {}", in_words(bytes));
        Self::new("fairness", words, "", move |it| fairness(it.size(bytes)?))
    }

    /// All that these runs have.
    pub(crate) fn all(runs: &[Played]) -> Vec<Self> {
        let sizes = sizes(runs);
        let of_size = |bytes: &u32| [Self::first_byte(*bytes), Self::last_byte(*bytes)];
        let mut all: Vec<Self> = sizes.iter().flat_map(of_size).collect();
        let downloads =
            |it: &Played, bytes| it.size(bytes).map_or(0, |size| size.last_byte_s.len());
        let has_enough = |bytes: u32| runs.iter().all(|it| downloads(it, bytes) >= DOWNLOADS_MIN);
        all.extend(sizes.iter().copied().rfind(|it| has_enough(*it)).map(Self::fairness));
        all.extend([
            Self::new("failed_percent", "failed downloads", "%", |it| {
                Some(it.failed_share()? * 100.0)
            }),
            Self::sent(),
            Self::new("goodput_mbit_per_s", "what clients got", "Mbit/s", |it| {
                Some(it.goodput_mbit_per_s)
            }),
            Self::new("utilisation_percent", "of what relays could send", "%", |it| {
                Some(it.utilisation * 100.0)
            }),
            Self::new("queue_ms", "mean time of a cell in relays' queues", "ms", |it| {
                Some(it.queue_ms)
            }),
            Self::new("kernel_queue_ms", "behind them in relays' kernels", "ms", |it| {
                it.kernel_queue_ms
            }),
            Self::congestion(),
        ]);
        all
    }

    fn case(&self, name: String, load: u32, it: Interval, detail: String) -> Case {
        Case::named(format!("{name}, load {load} %: {}", self.words))
            .ended(CaseVerdict::Skipped, detail)
            .column("what", self.column.as_str())
            .column("load_percent", load)
            .column("mean", it.mean)
            .column("half_width_95", it.half_width.unwrap_or(f64::NAN))
            .column("seeds", it.count)
    }

    /// A variant's mean over seeds.
    fn mean(&self, all: &[Played], name: &str, load: u32) -> Option<Case> {
        let it = over_seeds(all, name, load, &self.of);
        let seeds = runs(all, name, load).count();
        let lack = match it.count < seeds {
            true => format!(" of {seeds}: the others have none"),
            false => String::new(),
        };
        let detail = format!("{it:.3} {}, {} seeds{lack}", self.unit, it.count);
        let case = self.case(name.to_owned(), load, it, detail);
        (it.count > 0).then(|| case.column("variant", name))
    }

    /// How another variant differs from the first, seed by seed, in percent of the first.
    fn difference(&self, all: &[Played], first: &str, other: &str, load: u32) -> (Change, Case) {
        let change = Change::of(all, first, other, load, &self.of);
        let name = format!("{other} against {first}");
        let case = self.case(name, load, change.percent, change.to_string());
        (change, case.column("variant", other).column("against", first))
    }
}

/// The means of all variants, and how the others differ from the first.
pub(crate) fn compared(all: &[Played], names: &[&str], loads: &[u32]) -> Vec<Case> {
    let quantities = Quantity::all(all);
    let mut cases = Vec::new();
    for load in loads.iter().copied() {
        for quantity in &quantities {
            cases.extend(names.iter().filter_map(|name| quantity.mean(all, name, load)));
            let Some((first, others)) = names.split_first() else { continue };
            let differ = others.iter().map(|other| quantity.difference(all, first, other, load));
            cases.extend(differ.filter(|(change, _)| change.seeds > 0).map(|(_, case)| case));
        }
    }
    cases
}

/// Jain's index.
#[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
fn fairness(size: &Transfers) -> Option<f64> {
    let rates: Vec<f64> =
        size.last_byte_s.iter().map(|s| 1.0 / s).filter(|it| it.is_finite()).collect();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let sum: f64 = rates.iter().sum();
    (!rates.is_empty()).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// A claim about how a variant differs from another one, at each load.
pub(crate) struct Claim {
    pub(crate) variant: &'static str,
    pub(crate) against: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) expected: Expected,
    /// The paper's change in percent, if it has one.
    pub(crate) paper_percent: Option<f64>,
}

/// A change in percent that is claimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    AtMost(f64),
    AtLeast(f64),
    /// Less, beyond what chance can do.
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
            // Where some seeds have none, the others may be the fast ones.
            let lacks = change.seeds > 0;
            return if lacks { CaseVerdict::Inconclusive } else { CaseVerdict::Failed };
        };
        let is_so = match self {
            Self::AtMost(most) => percent <= most,
            Self::AtLeast(least) => percent >= least,
            Self::Less if change.percent.half_width.is_none_or(|it| percent.abs() <= it) => {
                return CaseVerdict::Inconclusive;
            }
            Self::Less => percent < 0.0,
        };
        CaseVerdict::of(is_so)
    }
}

impl Claim {
    pub(crate) fn case(&self, all: &[Played], load: u32) -> Case {
        let Self { variant, against, quantity, expected, paper_percent } = self;
        let (change, case) = quantity.difference(all, against, variant, load);
        let paper = paper_percent.map_or_else(String::new, |it| format!("; paper {it:+.0} %"));
        let (name, detail) =
            (format!("{}: {expected}", case.name), format!("{}{paper}", case.detail));
        let case = Case { name, ..case }.ended(expected.verdict(&change), detail);
        match paper_percent {
            Some(percent) => case.column("paper_percent", *percent),
            None => case,
        }
    }
}

/// One network with each of several choices.
pub(crate) struct Comparison<'a> {
    /// The name of the report, and its text (docs/experiments).
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// Where runs are kept, in the folder of results.
    pub(crate) folder: &'static str,
    /// What else all runs have in common.
    pub(crate) conditions: String,
    /// The others are compared with the first.
    pub(crate) variants: &'a [&'static str],
    /// The network of a variant.
    pub(crate) choose: &'a dyn Fn(Network, &str) -> Network,
    pub(crate) claims: &'a dyn Fn(&[Played]) -> Vec<Claim>,
}

impl Comparison<'_> {
    /// Plays all runs, and reports them, with further cases.
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
            Runner { variants, store, session }.play_all(|batch, point| {
                Ok(Some((self.choose)(batch.at_load(point.load_percent), &point.variant)))
            })?;
        let mut cases = self.judged(&runs, &batch.loads);
        let words = cases.iter().map(|it| format!("{} ({})", it.name, it.verdict.word()));
        let answer = match cases.is_empty() {
            true => format!("{} of {planned} runs; see the comparison.", runs.len()),
            false => format!("{}.", words.collect::<Vec<_>>().join("; ")),
        };
        let promise = match cases.is_empty() {
            true => Promise::Decided { held: runs.len() == planned, rule: rule(self.text) },
            false => Promise::EveryCase,
        };
        cases.extend(further(&batch));
        cases.extend(compared(&runs, self.variants, &batch.loads));
        cases.iter().for_each(|case| print_case(case, session.output));
        cases.extend(runs.iter().map(run_case));
        let figures = of_runs(&runs, self.variants, &batch.loads);
        let mut report = report(self.name, self.text);
        report.notes.extend(missing(runs.len(), planned));
        let parameters = batch.parameters();
        Ok(ExperimentReport { parameters, answer, promise, cases, figures, ..report })
    }

    fn judged(&self, runs: &[Played], loads: &[u32]) -> Vec<Case> {
        let claims = (self.claims)(runs);
        let of_load = |load: &u32| claims.iter().map(|it| it.case(runs, *load)).collect::<Vec<_>>();
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
                runs.push(Played { goodput_mbit_per_s, ..Played::blank(name, seed) });
            }
        }
        let of = |it: &Played| Some(it.goodput_mbit_per_s).filter(|it| *it > 0.0);
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
        assert_eq!(verdict(Expected::Less, &[[1.0, 0.7], [9.0, 10.0]]), Inconclusive, "by chance");
        assert_eq!(verdict(Expected::Less, &[[1.0, 0.7]]), Inconclusive, "one shows nothing");
        assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 1.01]]), Held);
        assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 1.03]]), Missed);
        assert_eq!(verdict(Expected::AtLeast(-3.0), &[[1.0, 0.98]]), Held);
        assert_eq!(verdict(Expected::AtLeast(-3.0), &[[1.0, 0.96]]), Missed);
        for lacks in [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]] {
            assert_eq!(verdict(Expected::AtMost(2.0), &[[1.0, 0.5], lacks]), Inconclusive);
        }
        assert_eq!(verdict(Expected::AtMost(2.0), &[]), Failed, "nothing was played");
    }
}
