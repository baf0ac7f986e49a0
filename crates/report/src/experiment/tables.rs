//! Results as CSV (RFC 4180).

use super::{Case, ExperimentFigure, ExperimentReport, Value};
use crate::text::{finite, plain};
use std::io;

impl ExperimentReport {
    /// The cases, one row each. NaN and unknown numbers are empty.
    pub(super) fn cases_csv(&self) -> io::Result<Vec<u8>> {
        let columns = self.columns();
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(
            Case::KEYS.into_iter().map(cell).chain(columns.iter().map(|c| cell(c))),
        )?;
        for case in &self.cases {
            let own = [
                cell(&case.name),
                number(case.truth_mbit_per_s),
                number(case.estimate_mbit_per_s),
                number(case.ratio),
                cell(case.verdict_word()),
                cell(&case.detail),
            ];
            let others = columns.iter().map(|name| match case.value(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => cell(text),
                // Numbers may begin with a minus sign.
                Some(value) => value.to_string(),
            });
            writer.write_record(own.into_iter().chain(others))?;
        }
        writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

impl ExperimentFigure {
    /// The points, one row each.
    pub(super) fn points_csv(&self) -> io::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["series", "x", "y", "label"])?;
        for series in &self.series {
            for (index, (x, y)) in series.points.iter().enumerate() {
                let label = series.labels.get(index).map_or_else(String::new, |label| cell(label));
                writer.write_record([
                    cell(&series.name),
                    number(Some(*x)),
                    number(Some(*y)),
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

fn number(number: Option<f64>) -> String {
    finite(number).map_or_else(String::new, |number| number.to_string())
}
