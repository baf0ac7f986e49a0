//! Results as CSV (RFC 4180).

use super::model::columns;
use super::{Axis, Case, ExperimentFigure, ExperimentReport, Scale, Value};
use crate::figure::rfc_3339;
use crate::text::{finite, plain};
use std::{io, iter};

impl ExperimentReport {
    /// The rows of [`ExperimentReport::table`], or else the cases, one row each. NaN and unknown numbers are empty; columns without any
    /// value are left out.
    pub(super) fn cases_csv(&self) -> io::Result<Vec<u8>> {
        if let Some(table) = &self.table {
            let rows = table.rows.iter().map(|row| row.iter().map(value).collect());
            return written(table.columns.iter().map(|name| cell(name)).collect(), rows.collect());
        }
        let columns = columns(self.cases.iter());
        let names = Case::KEYS.into_iter().chain(columns.iter().copied()).map(cell);
        let row = |case: &Case| -> Vec<String> {
            let own = [
                cell(&case.name),
                number(case.truth_mbit_per_s),
                number(case.estimate_mbit_per_s),
                number(case.ratio),
                case.verdict_word().map_or_else(String::new, cell),
                cell(&case.detail),
            ];
            let others =
                columns.iter().map(|name| case.value(name).map_or_else(String::new, value));
            own.into_iter().chain(others).collect()
        };
        written(names.collect(), self.cases.iter().map(row).collect())
    }
}

/// A table without the columns that have no value in any row.
fn written(names: Vec<String>, rows: Vec<Vec<String>>) -> io::Result<Vec<u8>> {
    let has_value = |column: usize| {
        rows.is_empty()
            || rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    let kept: Vec<usize> = (0..names.len()).filter(|column| has_value(*column)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in iter::once(&names).chain(&rows) {
        writer.write_record(kept.iter().filter_map(|column| row.get(*column)))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => cell(text),
        // Numbers may begin with a minus sign.
        value => value.to_string(),
    }
}

impl ExperimentFigure {
    /// The points, one row each. Times are dates and times (RFC 3339).
    pub(super) fn points_csv(&self) -> io::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["series", "x", "y", "label"])?;
        for series in &self.series {
            for (index, (x, y)) in series.points.iter().enumerate() {
                let label = series.labels.get(index).map_or_else(String::new, |label| cell(label));
                writer.write_record([
                    cell(&series.name),
                    coordinate(&self.x, *x),
                    coordinate(&self.y, *y),
                    label,
                ])?;
            }
        }
        writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Text as one line that spreadsheets do not parse as a formula.
fn cell(text: &str) -> String {
    let text = plain(text);
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

fn coordinate(axis: &Axis, value: f64) -> String {
    match axis.scale {
        Scale::Time => rfc_3339(value).unwrap_or_default(),
        Scale::Linear | Scale::Log => number(Some(value)),
    }
}

fn number(number: Option<f64>) -> String {
    finite(number).map_or_else(String::new, |number| number.to_string())
}
