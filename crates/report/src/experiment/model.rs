//! The results of an experiment.

use super::summary::Fields;
use super::{ExperimentFigure, Value};
use crate::text::{finite, quotient};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// An experiment: its question, its answer, and what the answer rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExperimentReport {
    /// In the names of its files and in the summary: letters, digits, `-` and `_`, such as
    /// `accuracy`.
    pub name: String,
    /// The heading.
    pub title: String,
    /// What was asked, in one sentence.
    pub question: String,
    /// What was found, in one sentence, with the figures.
    pub answer: String,
    /// The expected result.
    pub promise: Promise,
    /// This software's version.
    pub software_version: String,
    /// What it ran on, such as `2 cores of an AMD EPYC 9B14, Linux 6.12`.
    pub machine: String,
    /// When the report was made, in Unix seconds.
    pub generated_unix_s: i64,
    /// The command that makes it again.
    pub command: String,
    /// The experiment's parameters, as name and value with its unit.
    pub parameters: Vec<(String, String)>,
    /// What was tried, in the order in which to show it.
    pub cases: Vec<Case>,
    /// Why cases missed or failed.
    pub misses: Vec<Miss>,
    /// The figures, in the order in which to show them.
    pub figures: Vec<ExperimentFigure>,
    /// Remarks for the reader, a paragraph each.
    pub notes: Vec<String>,
    /// What else programs find in the summary, by its key: none that the summary has already.
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
    /// Something else, such as a share of runs of which each case is many.
    Decided {
        /// Whether it was so.
        held: bool,
        /// What it was, as a sentence.
        rule: String,
    },
}

/// One thing that was tried: a run, or several under the same conditions. Rates count each cell
/// once.
///
/// It serialises as one flat object, its columns last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// What was tried, in a few words.
    pub name: String,
    /// What was to be found, in Mbit/s.
    pub truth_mbit_per_s: Option<f64>,
    /// What was found, in Mbit/s.
    pub estimate_mbit_per_s: Option<f64>,
    /// The estimate over the truth.
    pub ratio: Option<f64>,
    /// How it ended.
    pub verdict: CaseVerdict,
    /// What a measurement says of its own number, if that is more to the point: it stands for the verdict in JSON and tables. See [`Case::says`].
    pub word: Option<String>,
    /// What there is to say of it; may be empty.
    pub detail: String,
    /// What else is known of it. Of columns with the same name the first counts; none may be
    /// called as the fields above are.
    pub columns: Vec<(String, Value)>,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseVerdict {
    /// As promised.
    Held,
    /// As promised, without an estimate: what was wrong was refused with its reason.
    Refused,
    /// Not as promised.
    Missed,
    /// There is no result, though there should be one.
    #[default]
    Failed,
    /// Tried, but what was found cannot be compared with what was promised, such as a lower bound. It counts
    /// neither for nor against the promise.
    Inconclusive,
    /// Not tried. It counts neither for nor against the promise.
    Skipped,
}

/// Why a case did not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miss {
    /// The name of the case.
    pub case: String,
    /// What is known of the cause.
    pub explanation: String,
}

impl ExperimentReport {
    /// Whether the promise was kept. It was not if nothing was tried that came to a conclusion.
    #[must_use]
    pub fn held(&self) -> bool {
        let skipped = self.count(CaseVerdict::Skipped) + self.count(CaseVerdict::Inconclusive);
        let kept = self.count(CaseVerdict::Held) + self.count(CaseVerdict::Refused);
        let tried = self.cases.len() - skipped;
        match &self.promise {
            Promise::EveryCase => tried > 0 && kept == tried,
            #[expect(clippy::cast_precision_loss, reason = "nobody counts cases beyond 2^53")]
            Promise::Share(share) => tried > 0 && kept as f64 >= share * tried as f64 - 1e-9,
            Promise::Decided { held, .. } => *held && tried > 0,
        }
    }

    /// The cases that missed or failed and that no [`Miss`] explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &Case> {
        let is_explained = |case: &Case| self.misses.iter().any(|miss| miss.case == case.name);
        self.cases.iter().filter(move |case| !case.verdict.is_good() && !is_explained(case))
    }

    /// How many cases ended so.
    #[must_use]
    pub fn count(&self, verdict: CaseVerdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// The names of the cases' columns, in the order in which they first appear.
    pub(super) fn columns(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (name, _) in self.cases.iter().flat_map(Case::own_columns) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

impl Promise {
    /// What it is, in a sentence.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::EveryCase => "Every case must hold.".into(),
            Self::Share(share) => {
                format!("{} % of the cases must hold.", (share * 1e4).round() / 100.0)
            }
            Self::Decided { rule, .. } => rule.clone(),
        }
    }
}

impl Case {
    /// The keys of its own, which no column may have.
    pub(super) const KEYS: [&str; 6] =
        ["name", "truth_mbit_per_s", "estimate_mbit_per_s", "ratio", "verdict", "detail"];

    /// A case with its ratio, if there are an estimate and a truth to compare it with. Its verdict
    /// is yet to be given: until then it failed.
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

    /// A case that has nothing to do with rates.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(name, None, None)
    }

    /// A case that holds if its ratio is within these bounds, and failed if it has no estimate.
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

    /// How it ended, and what there is to say of it.
    #[must_use]
    pub fn ended(self, verdict: CaseVerdict, detail: impl Into<String>) -> Self {
        Self { verdict, detail: detail.into(), ..self }
    }

    /// A measurement's own word on its number, such as `conclusive`. In JSON and tables it is the `verdict`, and how the case has ended by now is the column `ended`.
    #[must_use]
    pub fn says(self, word: &str) -> Self {
        let ended = self.verdict.word();
        Self { word: Some(word.to_owned()), ..self }.column("ended", ended)
    }

    /// The verdict as JSON and tables have it.
    pub(super) fn verdict_word(&self) -> &str {
        self.word.as_deref().unwrap_or(self.verdict.word())
    }

    /// Something else that is known of it, under a name that carries its unit, such as
    /// `client_mbit_per_s`.
    #[must_use]
    pub fn column(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.columns.push((name.into(), value.into()));
        self
    }

    /// The fields of a structure as columns, in their order.
    #[must_use]
    pub fn with(mut self, row: &impl Serialize) -> Self {
        // Through text, since a [`Value`] puts fields in alphabetical order.
        let text = serde_json::to_string(row).unwrap_or_default();
        if let Ok(Fields(fields)) = serde_json::from_str(&text) {
            self.columns.extend(fields);
        }
        self
    }

    /// Its columns, without those whose names are taken.
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

    /// What it has in a column.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<&Value> {
        self.own_columns().find(|(name, _)| *name == column).map(|(_, value)| value)
    }
}

impl CaseVerdict {
    /// All of them.
    pub(super) const ALL: [Self; 6] =
        [Self::Held, Self::Refused, Self::Missed, Self::Failed, Self::Inconclusive, Self::Skipped];

    /// Held, or missed.
    #[must_use]
    pub const fn of(is_held: bool) -> Self {
        if is_held { Self::Held } else { Self::Missed }
    }

    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Missed => "missed",
            Self::Failed => "failed",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
        }
    }

    /// Whether there is nothing to explain but what the case says itself.
    pub(super) const fn is_good(self) -> bool {
        matches!(self, Self::Held | Self::Refused | Self::Inconclusive | Self::Skipped)
    }
}
