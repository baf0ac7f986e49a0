//! The file of one result.

use super::file_error;
use cli::Error;
use report::experiment::Fields;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The result of one run of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    pub(super) command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Results that are older than this command may lack one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    pub(super) machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u64>,
    /// The day in UTC, such as `2026-11-26`.
    pub(super) date: String,
    /// What else ran, and settings that the command line does not show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<String>,
    /// Names of the columns, with their units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rows: Vec<Vec<Value>>,
    /// Paragraphs below the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

impl Outcome {
    /// Reads a result.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(file_error("read", path))?;
        let wrong = |what: String| Error::Config {
            path: path.to_owned(),
            problem: format!("this is not a result: {what}"),
        };
        let outcome: Self =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let is_day = terminal::times::time(&outcome.date).is_ok() && outcome.date.len() == 10;
        if !is_day {
            return Err(wrong(format!("`{}` is no day such as 2026-11-26", outcome.date)));
        }
        let width = outcome.columns.len();
        match outcome.rows.iter().find(|row| row.len() != width) {
            Some(row) => Err(wrong(format!("a row of {} cells below {width} columns", row.len()))),
            None => Ok(outcome),
        }
    }

    /// The result with these columns of its table, in their order; with all if `names` is empty. Rows that have only the first of them are
    /// left out, unless they failed.
    pub(super) fn with_columns(&self, names: &[&str]) -> Self {
        if names.is_empty() {
            return self.clone();
        }
        let places =
            names.iter().filter_map(|name| self.columns.iter().position(|column| column == name));
        let places: Vec<usize> = places.collect();
        let verdict = self.columns.iter().position(|column| column == "verdict");
        let failed = |row: &[Value]| {
            verdict.is_some_and(|place| matches!(row[place].as_str(), Some("failed" | "missed")))
        };
        let of_row = |row: &Vec<Value>| {
            let cells: Vec<Value> = places.iter().map(|place| row[*place].clone()).collect();
            let has_value = cells.len() < 2 || cells[1..].iter().any(|cell| !cell.is_null());
            (has_value || failed(row)).then_some(cells)
        };
        Self {
            columns: places.iter().map(|place| self.columns[*place].clone()).collect(),
            rows: self.rows.iter().filter_map(of_row).collect(),
            ..self.clone()
        }
    }

    /// Writes a result, in place of an earlier one of the same day and commit.
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)?;
        files::replace(path, (text + "\n").as_bytes(), files::Access::Umask)
            .map_err(file_error("write", path))
    }

    /// The table and the answer of a command's JSON lines: a row for each case or relay, else the fields of the summary as one row.
    pub(super) fn of_lines<'l>(lines: impl Iterator<Item = &'l str>) -> Option<Self> {
        let parsed: Vec<Vec<(String, Value)>> = lines
            .filter_map(|line| serde_json::from_str(line).ok().map(|Fields(fields)| fields))
            .collect();
        let is = |fields: &[(String, Value)], kind: &str| {
            fields.iter().any(|(name, value)| name == "type" && value == kind)
        };
        let at = parsed.iter().rposition(|fields| is(fields, "summary"))?;
        let summary = parsed.get(at)?;
        let of_kind = |kind| parsed.iter().filter(|fields| is(fields, kind)).cloned().collect();
        let kinds: [Vec<_>; 2] = ["case", "relay"].map(of_kind);
        let objects = kinds.into_iter().find(|objects| !objects.is_empty());
        let objects = objects.unwrap_or_else(|| vec![summary.clone()]);
        let mut columns: Vec<String> = Vec::new();
        let is_shown = |name: &str, value: &Value| {
            name != "type" && !value.is_null() && !value.is_object() && !value.is_array()
        };
        for (name, value) in objects.iter().flatten() {
            if is_shown(name, value) && !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        let cell = |object: &[(String, Value)], column: &str| {
            let found = object.iter().find(|(name, value)| name == column && is_shown(name, value));
            found.map_or(Value::Null, |(_, value)| value.clone())
        };
        let rows = objects
            .iter()
            .map(|object| columns.iter().map(|column| cell(object, column)).collect())
            .collect();
        let answer = summary.iter().find(|(name, _)| name == "answer");
        let answer = answer.and_then(|(_, value)| value.as_str().map(str::to_owned));
        Some(Self { columns, rows, notes: answer.into_iter().collect(), ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_rows_and_a_summary_without_cases_is_one() {
        let lines = [
            r#"{"type":"case","name":"a","ratio":0.5,"truth":null}"#,
            r#"{"type":"case","name":"b","more":[1],"held":true}"#,
            r#"{"type":"summary","answer":"Half.","held":true}"#,
        ];
        let outcome = Outcome::of_lines(lines.into_iter()).expect("a summary");
        assert_eq!(outcome.columns, ["name", "ratio", "held"]);
        assert_eq!(
            outcome.rows,
            [
                [Value::from("a"), 0.5.into(), Value::Null],
                [Value::from("b"), Value::Null, true.into()]
            ]
        );
        assert_eq!(outcome.notes, ["Half."]);
        let relays =
            [r#"{"type":"relay","relay":"ours","bytes":9}"#, r#"{"type":"summary","tor":{}}"#];
        let outcome = Outcome::of_lines(relays.into_iter()).expect("a summary");
        assert_eq!(outcome.rows, [[Value::from("ours"), 9.into()]]);
        let [_, _, summary] = lines;
        let outcome = Outcome::of_lines([summary].into_iter()).expect("a summary");
        assert_eq!(outcome.columns, ["answer", "held"]);
        assert_eq!(Outcome::of_lines([r#"{"type":"error"}"#].into_iter()), None);
    }

    #[test]
    fn rows_that_have_only_the_first_of_the_chosen_columns_are_left_out_unless_they_failed() {
        let row =
            |name: &str, ratio: Value, verdict: &str| vec![name.into(), ratio, verdict.into()];
        let outcome = Outcome {
            columns: ["name", "ratio", "verdict"].map(str::to_owned).to_vec(),
            rows: vec![
                row("a", 0.5.into(), "held"),
                row("b", Value::Null, "refused"),
                row("c", Value::Null, "failed"),
            ],
            ..Outcome::default()
        };
        let names = |columns: &[&str]| -> Vec<Value> {
            outcome.with_columns(columns).rows.iter().map(|row| row[0].clone()).collect()
        };
        assert_eq!(names(&["name", "ratio"]), ["a", "c"]);
        for all in [&["name"][..], &["name", "verdict"], &[]] {
            assert_eq!(names(all), ["a", "b", "c"], "{all:?}");
        }
    }
}
