//! Reports of experiments from their texts, cases, and statistics that several experiments use.

use crate::error::{Error, Result};
use link::unix_time_s;
use report::experiment::{Case, CaseVerdict, ExperimentReport, Line};
use report::machine;
use std::env;
use std::path::Path;
use terminal::Output;

/// A report with the title, question and notes of its page in docs/experiments.
pub(super) fn report(name: &str, text: &str) -> ExperimentReport {
    let mut intro = paragraphs(text.split("\n## ").next().unwrap_or_default()).into_iter();
    let title = intro.next().unwrap_or_default();
    ExperimentReport {
        name: name.to_owned(),
        title: title.trim_start_matches("# ").to_owned(),
        question: intro.collect::<Vec<_>>().join(" "),
        notes: section(text, "Notes"),
        machine: machine(),
        generated_unix_s: i64::try_from(unix_time_s()).unwrap_or(i64::MAX),
        command: command(),
        ..ExperimentReport::default()
    }
}

/// Writes the report to a folder, and prints the answer.
pub(super) fn publish(report: &mut ExperimentReport, out: &Path, output: &Output) -> Result<()> {
    output.version().clone_into(&mut report.software_version);
    let written = report.write(out)?;
    output.quiet();
    output.step(format!("page: {}", written.html.display()));
    output.result(&report.answer, || report.last_line());
    Ok(())
}

/// The paragraphs of a page's section "Rule": when the claim holds.
pub(super) fn rule(text: &str) -> String {
    section(text, "Rule").join(" ")
}

/// The paragraphs below a heading.
pub(super) fn section(text: &str, heading: &str) -> Vec<String> {
    let body = |part: &&str| part.split_once('\n').is_some_and(|(first, _)| first == heading);
    let found = text.split("\n## ").find(body).and_then(|part| part.split_once('\n'));
    found.map_or_else(Vec::new, |(_, body)| paragraphs(body))
}

/// Paragraphs, each on one line.
fn paragraphs(text: &str) -> Vec<String> {
    let one_line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(one_line).filter(|paragraph| !paragraph.is_empty()).collect()
}

/// The values, separated by commas.
pub(super) fn list(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The case of a run that failed with an error.
pub(super) fn failed_case(name: String, error: &Error) -> Case {
    Case::named(name).ended(CaseVerdict::Failed, error.to_string())
}

/// A parameter of a report.
pub(super) fn parameter(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// Whether at least one case held, and none missed or failed.
pub(super) fn claim_holds<'a>(cases: impl IntoIterator<Item = &'a Case>) -> bool {
    let verdicts: Vec<CaseVerdict> = cases.into_iter().map(|case| case.verdict).collect();
    let is_bad =
        |verdict: &CaseVerdict| matches!(verdict, CaseVerdict::Missed | CaseVerdict::Failed);
    verdicts.contains(&CaseVerdict::Held) && !verdicts.iter().any(is_bad)
}

/// A case that held or missed, or failed if that is not known.
pub(super) fn claim_case(name: String, held: Option<bool>, detail: String) -> Case {
    let (verdict, detail) = match held {
        Some(true) => (CaseVerdict::Held, detail),
        Some(false) => (CaseVerdict::Missed, detail),
        None => (CaseVerdict::Failed, "there are no runs to compare".to_owned()),
    };
    Case::named(name).ended(verdict, detail)
}

/// Prints a case.
pub(super) fn print_case(case: &Case, output: &Output) {
    let mut parts = Vec::new();
    if case.verdict != CaseVerdict::Reported {
        parts.push(case.verdict.word().to_owned());
    }
    if let Some((truth, estimate)) = case.truth_mbit_per_s.zip(case.estimate_mbit_per_s) {
        let ratio = case.ratio.unwrap_or(estimate / truth);
        parts.push(format!("{estimate:.2} of {truth:.2} Mbit/s, ratio {ratio:.3}"));
    }
    let result = parts.join(", ");
    let parts = [result.as_str(), case.detail.as_str()];
    let parts = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    output.result(format!("{}: {}", case.name, parts.join("; ")), || Line::Case(case));
}

/// The median of the finite values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// The value that this share of the finite values does not exceed, from 0 to 1, interpolated between two.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of values"
)]
pub(super) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let place = sorted.len().checked_sub(1)? as f64 * share;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

/// The smaller of median and mean, as an estimate is computed from its seconds. Values that are compared with an estimate
/// must be computed in the same way.
pub(super) fn median_or_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    let count = u32::try_from(values.len()).ok().filter(|count| *count > 0)?;
    let mean = values.iter().sum::<f64>() / f64::from(count);
    median(values).map(|median| median.min(mean))
}

/// The command line.
fn command() -> String {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("flashflow-lab".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_ignores_values_that_are_not_finite() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
