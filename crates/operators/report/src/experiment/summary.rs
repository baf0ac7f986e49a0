//! Results as JSON.

use super::{Case, CaseVerdict, ExperimentReport, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A line that an experiment prints.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// A case, once it has run.
    Case(&'a Case),
    /// The comparison of several runs.
    Mean(&'a Case),
    /// A remark.
    Note {
        /// A sentence or more.
        text: &'a str,
    },
    /// The results, last.
    Summary(Summary<'a>),
}

/// The results of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Summary<'a> {
    /// The name of the experiment.
    experiment: &'a str,
    /// Whether the expected result was reached; `None` without a claim.
    held: Option<bool>,
    /// The answer, in one sentence with numbers.
    answer: &'a str,
    /// The number of cases with each verdict.
    counts: Counts,
    /// The cases that missed or failed without an explanation.
    unexplained: Vec<&'a str>,
    /// Additional fields of this experiment.
    #[serde(flatten)]
    also: &'a BTreeMap<String, Value>,
    /// The cases, in display order.
    cases: &'a [Case],
}

/// The complete report, with derived values.
#[derive(Serialize)]
struct Whole<'a> {
    held: Option<bool>,
    counts: Counts,
    unexplained: Vec<&'a str>,
    #[serde(flatten)]
    report: &'a ExperimentReport,
}

/// The number of cases with each verdict.
#[derive(Debug, Serialize, JsonSchema)]
struct Counts {
    held: usize,
    refused: usize,
    missed: usize,
    failed: usize,
    inconclusive: usize,
    skipped: usize,
    reported: usize,
}

impl ExperimentReport {
    /// The last line of the experiment's NDJSON: `{"type":"summary","experiment":…,"held":…,
    /// "cases":[…],…}`, without the line's end.
    #[must_use]
    pub fn summary_line(&self) -> String {
        text(serde_json::to_string(&self.last_line()))
    }

    /// [`summary_line`](Self::summary_line), to be serialized.
    #[must_use]
    pub fn last_line(&self) -> Line<'_> {
        Line::Summary(self.summary())
    }

    /// The complete report, with figures.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (counts, unexplained) = (self.counts(), self.unexplained_names());
        let whole = Whole { held: self.outcome(), counts, unexplained, report: self };
        text(serde_json::to_string_pretty(&whole)) + "\n"
    }

    fn summary(&self) -> Summary<'_> {
        Summary {
            experiment: &self.name,
            held: self.outcome(),
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
        let [held, refused, missed, failed, inconclusive, skipped, reported] =
            CaseVerdict::ALL.map(|verdict| self.count(verdict));
        Counts { held, refused, missed, failed, inconclusive, skipped, reported }
    }
}

/// The fields of a case as JSON.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "a schema only")]
struct CaseFields {
    /// The name, in a few words.
    name: String,
    /// The true rate.
    truth_mbit_per_s: Option<f64>,
    /// The estimated rate.
    estimate_mbit_per_s: Option<f64>,
    /// The estimate divided by the truth.
    ratio: Option<f64>,
    /// The verdict; `None` for a value without an expectation.
    verdict: Option<String>,
    /// Details; may be empty.
    detail: String,
    /// Columns of the experiment.
    #[serde(flatten)]
    columns: BTreeMap<String, Value>,
}

impl JsonSchema for Case {
    fn schema_name() -> Cow<'static, str> {
        "Case".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CaseFields::json_schema(generator)
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
        object.serialize_entry(verdict, &self.verdict_word())?;
        object.serialize_entry(detail, &self.detail)?;
        self.own_columns().try_for_each(|(name, value)| object.serialize_entry(name, value))?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for Case {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields(fields) = Fields::deserialize(deserializer)?;
        let [name, truth, estimate, ratio, verdict, detail] = Self::KEYS;
        let mut case = Self::default();
        let mut word = None;
        for (key, value) in fields {
            let text = || value.as_str().unwrap_or_default().to_owned();
            match key.as_str() {
                key if key == name => case.name = text(),
                key if key == truth => case.truth_mbit_per_s = value.as_f64(),
                key if key == estimate => case.estimate_mbit_per_s = value.as_f64(),
                key if key == ratio => case.ratio = value.as_f64(),
                key if key == verdict => word = value.as_str().map(str::to_owned),
                key if key == detail => case.detail = text(),
                _ => case.columns.push((key, value)),
            }
        }
        let verdict =
            |word: &str| CaseVerdict::ALL.into_iter().find(|verdict| verdict.word() == word);
        match word {
            None => case.verdict = CaseVerdict::Reported,
            Some(word) => match verdict(&word) {
                Some(verdict) => case.verdict = verdict,
                None => {
                    let ended = case.value("ended").and_then(Value::as_str).and_then(verdict);
                    case.verdict = ended.unwrap_or_default();
                    case.word = Some(word);
                }
            },
        }
        Ok(case)
    }
}

/// The fields of an object, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(pub Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Cannot fail: keys are strings, and NaN becomes null.
fn text(json: serde_json::Result<String>) -> String {
    json.unwrap_or_default()
}
