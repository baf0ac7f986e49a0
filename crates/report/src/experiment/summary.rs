//! Results for programs.

use super::{Case, CaseVerdict, ExperimentReport, Value};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;

/// The last line of an experiment's output.
#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    experiment: &'a str,
    held: bool,
    answer: &'a str,
    counts: Counts,
    unexplained: Vec<&'a str>,
    #[serde(flatten)]
    also: &'a BTreeMap<String, Value>,
    cases: &'a [Case],
}

/// The whole report, with what follows from it.
#[derive(Serialize)]
struct Whole<'a> {
    held: bool,
    counts: Counts,
    unexplained: Vec<&'a str>,
    #[serde(flatten)]
    report: &'a ExperimentReport,
}

/// How many cases ended how.
#[derive(Serialize)]
struct Counts {
    held: usize,
    refused: usize,
    missed: usize,
    failed: usize,
    inconclusive: usize,
    skipped: usize,
}

impl ExperimentReport {
    /// The last line of the experiment's NDJSON: `{"type":"summary","experiment":…,"held":…,
    /// "cases":[…],…}`, without the line's end.
    #[must_use]
    pub fn summary_line(&self) -> String {
        text(serde_json::to_string(&self.summary()))
    }

    /// [`summary_line`](Self::summary_line) as a value.
    #[must_use]
    pub fn summary_value(&self) -> Value {
        // Nothing in it can fail to become a value: its keys are strings.
        serde_json::to_value(self.summary()).unwrap_or_default()
    }

    /// Everything, figures included.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (counts, unexplained) = (self.counts(), self.unexplained_names());
        let whole = Whole { held: self.held(), counts, unexplained, report: self };
        text(serde_json::to_string_pretty(&whole)) + "\n"
    }

    fn summary(&self) -> Summary<'_> {
        Summary {
            r#type: "summary",
            experiment: &self.name,
            held: self.held(),
            answer: &self.answer,
            counts: self.counts(),
            unexplained: self.unexplained_names(),
            also: &self.also,
            cases: &self.cases,
        }
    }

    fn unexplained_names(&self) -> Vec<&str> {
        self.unexplained().map(|case| case.name.as_str()).collect()
    }

    fn counts(&self) -> Counts {
        let [held, refused, missed, failed, inconclusive, skipped] =
            CaseVerdict::ALL.map(|verdict| self.count(verdict));
        Counts { held, refused, missed, failed, inconclusive, skipped }
    }
}

impl Serialize for Case {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [name, truth, estimate, ratio, verdict, detail] = Self::KEYS;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry(name, &self.name)?;
        object.serialize_entry(truth, &self.truth_mbit_per_s)?;
        object.serialize_entry(estimate, &self.estimate_mbit_per_s)?;
        object.serialize_entry(ratio, &self.ratio)?;
        object.serialize_entry(verdict, self.verdict_word())?;
        object.serialize_entry(detail, &self.detail)?;
        self.own_columns().try_for_each(|(name, value)| object.serialize_entry(name, value))?;
        object.end()
    }
}

/// Nothing of ours can fail to become JSON: keys are strings, and numbers that are none are null.
fn text(json: serde_json::Result<String>) -> String {
    json.unwrap_or_default()
}
