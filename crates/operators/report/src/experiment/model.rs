//! The results of an experiment.

use super::summary::Fields;
use super::{ExperimentFigure, Value};
use crate::text::{finite, quotient};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// An experiment: its question, its answer, and the evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExperimentReport {
    /// The name in file names and the summary, such as `accuracy`: letters, digits, `-` and `_`.
    pub name: String,
    /// The heading.
    pub title: String,
    /// The question, in one sentence.
    pub question: String,
    /// The answer, in one sentence with numbers.
    pub answer: String,
    /// The expected result.
    pub promise: Promise,
    /// The version of this software.
    pub software_version: String,
    /// The machine, such as `2 cores of an AMD EPYC 9B14, Linux 6.12`.
    pub machine: String,
    /// The time of the report, in Unix seconds.
    pub generated_unix_s: i64,
    /// The command that reproduces it.
    pub command: String,
    /// The parameters: name, and value with its unit.
    pub parameters: Vec<(String, String)>,
    /// The cases, in display order.
    pub cases: Vec<Case>,
    /// The rows of `NAME.csv`; by default the cases.
    #[serde(skip)]
    pub table: Option<Table>,
    /// Explanations of cases that missed or failed.
    pub misses: Vec<Miss>,
    /// The figures, in display order.
    pub figures: Vec<ExperimentFigure>,
    /// Remarks for the reader, a paragraph each.
    pub notes: Vec<String>,
    /// Additional fields of the summary. Their keys must differ from those that the summary already has.
    #[serde(flatten)]
    pub also: BTreeMap<String, Value>,
}

/// The expected result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// Every case must hold.
    #[default]
    EveryCase,
    /// This share of the cases must hold, from zero to one.
    Share(f64),
    /// Another condition, such as a share of runs, of which a case has many.
    Decided {
        /// Whether the condition held.
        held: bool,
        /// The condition, as a sentence.
        rule: String,
    },
    /// The report shows results and claims nothing. A remark, such as what the results can be compared with; may be empty.
    Nothing(String),
}

/// A case: one run, or several under the same conditions. Rates count each cell once.
///
/// It serializes as one flat object, with the columns last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// The name, in a few words.
    pub name: String,
    /// The true rate, in Mbit/s.
    pub truth_mbit_per_s: Option<f64>,
    /// The estimated rate, in Mbit/s.
    pub estimate_mbit_per_s: Option<f64>,
    /// The estimate divided by the truth.
    pub ratio: Option<f64>,
    /// The outcome.
    pub verdict: CaseVerdict,
    /// The verdict of the measurement itself, which replaces `verdict` in JSON and tables. See [`Case::says`].
    pub word: Option<String>,
    /// Details; may be empty.
    pub detail: String,
    /// Additional columns. Of columns with the same name the first counts. None may have the name of a field above.
    pub columns: Vec<(String, Value)>,
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseVerdict {
    /// As expected.
    Held,
    /// As expected, without an estimate: the fault was detected and reported.
    Refused,
    /// Not as expected.
    Missed,
    /// The result is missing.
    #[default]
    Failed,
    /// The result cannot be compared with the expected one, such as a lower bound. It counts neither for nor against the promise.
    Inconclusive,
    /// Not run. It counts neither for nor against the promise.
    Skipped,
    /// A value without an expectation. It has no verdict on pages and in tables, and counts neither for nor against the promise.
    Reported,
}

/// The rows of `NAME.csv`, if they are not the cases: a tidy table has one value a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// The rows, each with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

/// An explanation of a case that did not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miss {
    /// The name of the case.
    pub case: String,
    /// The known cause.
    pub explanation: String,
}

impl ExperimentReport {
    /// Whether the expected result was reached. It was not if no case has a result. Without a claim, whether there are cases.
    #[must_use]
    pub fn held(&self) -> bool {
        let kept = self.count(CaseVerdict::Held) + self.count(CaseVerdict::Refused);
        let is_tried =
            |case: &&Case| case.verdict.is_judged() && case.verdict != CaseVerdict::Inconclusive;
        let tried = self.cases.iter().filter(is_tried).count();
        match &self.promise {
            Promise::EveryCase => tried > 0 && kept == tried,
            #[expect(clippy::cast_precision_loss, reason = "nobody counts cases beyond 2^53")]
            Promise::Share(share) => tried > 0 && kept as f64 >= share * tried as f64 - 1e-9,
            // It may be decided by values that have no verdict of their own.
            Promise::Decided { held, .. } => *held && tried + self.count(CaseVerdict::Reported) > 0,
            Promise::Nothing(_) => !self.cases.is_empty(),
        }
    }

    /// [`held`](Self::held); `None` without a claim.
    pub(super) fn outcome(&self) -> Option<bool> {
        (!matches!(self.promise, Promise::Nothing(_))).then(|| self.held())
    }

    /// The cases that missed or failed and that no [`Miss`] explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &Case> {
        let is_explained = |case: &Case| self.misses.iter().any(|miss| miss.case == case.name);
        self.cases.iter().filter(move |case| !case.verdict.is_good() && !is_explained(case))
    }

    /// The number of cases with this outcome.
    #[must_use]
    pub fn count(&self, verdict: CaseVerdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }
}

/// The names of the columns of these cases, in order of first appearance.
pub(super) fn columns<'a>(cases: impl Iterator<Item = &'a Case>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (name, _) in cases.flat_map(Case::own_columns) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Promise {
    /// The expected result, as a sentence.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::EveryCase => "Every case must hold.".into(),
            Self::Share(share) => {
                format!("{} % of the cases must hold.", (share * 1e4).round() / 100.0)
            }
            Self::Decided { rule, .. } | Self::Nothing(rule) => rule.clone(),
        }
    }
}

impl Case {
    /// Names of fields, which no column may have.
    pub(super) const KEYS: [&str; 6] =
        ["name", "truth_mbit_per_s", "estimate_mbit_per_s", "ratio", "verdict", "detail"];

    /// A case, with its ratio if there are an estimate and a truth. Its outcome is `Failed` until it is set.
    #[must_use]
    pub fn new(name: impl Into<String>, truth: Option<f64>, estimate: Option<f64>) -> Self {
        let ratio = truth.zip(estimate).map(|(truth, estimate)| estimate / truth);
        Self {
            name: name.into(),
            truth_mbit_per_s: truth,
            estimate_mbit_per_s: estimate,
            ratio: finite(ratio),
            ..Self::default()
        }
    }

    /// A case without rates.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(name, None, None)
    }

    /// A case that holds if its ratio is within these bounds, and fails without an estimate.
    #[must_use]
    pub fn judged(
        name: impl Into<String>,
        truth: f64,
        estimate: Option<f64>,
        bounds: RangeInclusive<f64>,
    ) -> Self {
        let case = Self::new(name, Some(truth), estimate);
        let [low, high] = [bounds.start(), bounds.end()].map(|bound| quotient(Some(*bound)));
        match case.ratio {
            Some(ratio) if bounds.contains(&ratio) => case.ended(CaseVerdict::Held, ""),
            Some(ratio) if ratio < *bounds.start() => {
                case.ended(CaseVerdict::Missed, format!("less than {low} of the truth"))
            }
            Some(_) => case.ended(CaseVerdict::Missed, format!("more than {high} of the truth")),
            None => case.ended(CaseVerdict::Failed, "there is no estimate"),
        }
    }

    /// A value with its details, and without an expectation.
    #[must_use]
    pub fn reported(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::named(name).ended(CaseVerdict::Reported, detail)
    }

    /// Sets the outcome and the details.
    #[must_use]
    pub fn ended(self, verdict: CaseVerdict, detail: impl Into<String>) -> Self {
        Self { verdict, detail: detail.into(), ..self }
    }

    /// Sets the verdict of the measurement itself, such as `conclusive`. It is the `verdict` in JSON and tables; the current outcome
    /// becomes the column `ended`.
    #[must_use]
    pub fn says(self, word: &str) -> Self {
        let ended = self.verdict.word();
        Self { word: Some(word.to_owned()), ..self }.column("ended", ended)
    }

    /// The verdict in JSON and tables; `None` for a value without an expectation.
    pub(super) fn verdict_word(&self) -> Option<&str> {
        let outcome = (self.verdict != CaseVerdict::Reported).then(|| self.verdict.word());
        self.word.as_deref().or(outcome)
    }

    /// Adds a column, whose name includes the unit, such as `client_mbit_per_s`.
    #[must_use]
    pub fn column(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.columns.push((name.into(), value.into()));
        self
    }

    /// Adds the fields of a structure as columns, in order.
    #[must_use]
    pub fn with(mut self, row: &impl Serialize) -> Self {
        // By way of text, because a [`Value`] sorts fields.
        let text = serde_json::to_string(row).unwrap_or_default();
        if let Ok(Fields(fields)) = serde_json::from_str(&text) {
            self.columns.extend(fields);
        }
        self
    }

    /// The columns, without those whose names are taken.
    pub(super) fn own_columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        let is_first = |index: usize, name: &str| {
            !self.columns.iter().take(index).any(|(earlier, _)| earlier == name)
        };
        self.columns
            .iter()
            .enumerate()
            .filter(move |(index, (name, _))| {
                !Self::KEYS.contains(&name.as_str()) && is_first(*index, name)
            })
            .map(|(_, (name, value))| (name.as_str(), value))
    }

    /// The value of a column.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<&Value> {
        self.own_columns().find(|(name, _)| *name == column).map(|(_, value)| value)
    }
}

impl CaseVerdict {
    /// All outcomes.
    pub(super) const ALL: [Self; 7] = [
        Self::Held,
        Self::Refused,
        Self::Missed,
        Self::Failed,
        Self::Inconclusive,
        Self::Skipped,
        Self::Reported,
    ];

    /// `Held` or `Missed`.
    #[must_use]
    pub const fn of(is_held: bool) -> Self {
        if is_held { Self::Held } else { Self::Missed }
    }

    /// The word in JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Missed => "missed",
            Self::Failed => "failed",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
            Self::Reported => "reported",
        }
    }

    /// Whether there was an expectation, and the case was run.
    #[must_use]
    pub const fn is_judged(self) -> bool {
        !matches!(self, Self::Skipped | Self::Reported)
    }

    /// Whether the case needs no explanation.
    pub(super) const fn is_good(self) -> bool {
        !matches!(self, Self::Missed | Self::Failed)
    }
}
