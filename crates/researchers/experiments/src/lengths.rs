//! `flashflow-lab experiment lengths`: what shorter measurements would have estimated, from the stored seconds of longer ones.

mod strategy;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{self, claim_case, claim_holds, list, parameter, print_case};
use clap::Args;
use report::experiment::{Case, ExperimentReport, Promise};
use serde_json::{Deserializer, Value};
use std::path::{Path, PathBuf};
use strategy::{Accuracy, Strategy};

const TEXT: &str = include_str!("../../../../docs/experiments/lengths.md");

/// The bounds of an estimate over the truth (paper, E.5).
const BOUNDS: [f64; 2] = [0.80, 1.05];

/// The paper's length of a measurement, in seconds.
const PAPER_S: usize = 30;

/// The paper's alternatives to 30 s, none of which it prefers.
const ALTERNATIVES: [Strategy; 3] = [
    Strategy::IgnoredLead { length: PAPER_S, lead: 10 },
    Strategy::Dynamic { window: 5, change: 0.05 },
    Strategy::Dynamic { window: 10, change: 0.05 },
];

/// How long must a measurement be?
///
/// Reads the seconds of measurements from the results of `experiment accuracy`, `paper-hosts`, `wan` or `concurrent` (their JSON files, or what
/// they print with --json), and computes what shorter measurements, a lead that is ignored, and a length that depends on the seconds would have
/// estimated. Draws figure 16 of the paper. Inconclusive measurements are left out.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment paper-hosts --vary team --limits 250 --seconds 60 --out results
  flashflow-lab experiment lengths results/paper-hosts.json --out results")]
pub(super) struct Options {
    /// The results.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Lengths in seconds, 2 to 3600. Measurements that were shorter do not count for a length.
    #[arg(long, value_delimiter = ',', value_name = "SECONDS,…",
        default_values_t = [10, 20, 30, 40, 50, 60], value_parser = clap::value_parser!(u16).range(2..=3600))]
    lengths: Vec<u16>,
}

/// The seconds of a measurement.
#[derive(Clone, Debug, PartialEq)]
struct Measurement {
    /// What the relay carries, in Mbit/s.
    truth: f64,
    /// The rate of each second, in Mbit/s.
    seconds: Vec<f64>,
}

impl Measurement {
    /// `None` if the case has no seconds or no truth, or its estimate is a lower bound.
    fn from_case(case: &Value) -> Option<Self> {
        let seconds = case["seconds_mbit_per_s"].as_str()?.split_whitespace();
        let seconds = seconds.map(str::parse).collect::<Result<Vec<f64>, _>>().ok()?;
        let is_bound = case["conclusive"] == Value::Bool(false) || case["verdict"] == "lower_bound";
        let truth = case["truth_mbit_per_s"].as_f64().filter(|truth| *truth > 0.0)?;
        (!seconds.is_empty() && !is_bound).then_some(Self { truth, seconds })
    }
}

/// The measurements in a report, or in the summary of printed lines.
fn measurements(path: &Path) -> Result<Vec<Measurement>> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| Error::File { what: "read", path: path.into(), source })?;
    let mut found = None;
    for value in Deserializer::from_str(&text).into_iter::<Value>() {
        let malformed = |error| Error::Failed(format!("{}: {error}", path.display()));
        let value = value.map_err(malformed)?;
        if let Some(cases) = value["cases"].as_array() {
            found = Some(cases.iter().filter_map(Measurement::from_case).collect());
        }
    }
    found.ok_or_else(|| Error::Failed(format!("{} has no cases", path.display())))
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let mut all = Vec::new();
    for path in &options.files {
        all.extend(measurements(path)?);
    }
    let lengths: Vec<usize> = options.lengths.iter().copied().map(usize::from).collect();
    let (mut cases, claims) = (accuracies(&all, &lengths), claims(&all, &lengths));
    cases.extend(claims.clone());
    cases.iter().for_each(|case| print_case(case, session.output));
    let report = reporting::report("lengths", TEXT);
    Ok(ExperimentReport {
        answer: answer(&all, &lengths),
        parameters: vec![
            parameter("measurements", all.len()),
            parameter("lengths, seconds", list(&lengths)),
        ],
        promise: Promise::Decided { held: claim_holds(&claims), rule: reporting::rule(TEXT) },
        cases,
        ..report
    })
}

/// The accuracy of each strategy.
fn accuracies(all: &[Measurement], lengths: &[usize]) -> Vec<Case> {
    let medians = lengths.iter().map(|length| Strategy::Median { length: *length });
    let others = [Strategy::IgnoredLead { length: 60, lead: PAPER_S }];
    let strategies = medians.chain(ALTERNATIVES).chain(others);
    strategies.map(|strategy| strategy.case(all)).collect()
}

/// The claims, by the measurements that reach the longest length, at least 30 s.
fn claims(all: &[Measurement], lengths: &[usize]) -> Vec<Case> {
    let reaches = |measurement: &Measurement, length| measurement.seconds.len() >= length;
    let is_reached = |length: &usize| all.iter().any(|measurement| reaches(measurement, *length));
    let measured = || lengths.iter().copied().filter(is_reached);
    let longest = measured().max().unwrap_or(0).max(PAPER_S);
    let compared: Vec<Measurement> =
        all.iter().filter(|measurement| reaches(measurement, longest)).cloned().collect();
    let accuracy = |strategy| Accuracy::new(&compared, strategy);
    let paper = accuracy(Strategy::Median { length: PAPER_S });
    let is_within = |paper: &Accuracy| paper.lowest >= BOUNDS[0] && paper.highest <= BOUNDS[1];
    let bounds = |paper: &Accuracy| format!("{:.3} to {:.3}", paper.lowest, paper.highest);
    let mut cases = vec![claim_case(
        "Estimates of 30 s are within −20 % and +5 %".to_owned(),
        paper.as_ref().map(is_within),
        format!("{} of the truth", paper.as_ref().map(bounds).unwrap_or_default()),
    )];
    if let Some(shortest) = measured().min().filter(|shortest| *shortest < longest) {
        let [one, other] = [shortest, longest].map(|length| accuracy(Strategy::Median { length }));
        let name = format!("The median of {shortest} s has at least the range of {longest} s");
        cases.push(no_smaller(name, one.as_ref(), other.as_ref()));
    }
    let alternatives = ALTERNATIVES.into_iter().map(|strategy| {
        let name = format!("“{strategy}” has at least the range of 30 s");
        no_smaller(name, accuracy(strategy).as_ref(), paper.as_ref())
    });
    cases.extend(alternatives);
    cases
}

/// The claim that one strategy has no smaller range than another.
fn no_smaller(name: String, one: Option<&Accuracy>, other: Option<&Accuracy>) -> Case {
    let ranges = one.zip(other).and_then(|(one, other)| one.range().zip(other.range()));
    let detail = ranges.map(|(one, other)| format!("range {one:.3} and {other:.3}"));
    claim_case(name, ranges.map(|(one, other)| one >= other), detail.unwrap_or_default())
}

fn answer(all: &[Measurement], lengths: &[usize]) -> String {
    let ranges = lengths.iter().filter_map(|length| {
        let accuracy = Accuracy::new(all, Strategy::Median { length: *length })?;
        Some(format!("{length} s {:.3} to {:.3}", accuracy.lowest, accuracy.highest))
    });
    let ranges: Vec<String> = ranges.collect();
    match ranges.is_empty() {
        true => "No measurement is long enough.".to_owned(),
        false => format!("Estimate over truth by length: {}.", ranges.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::CaseVerdict;

    #[test]
    fn seconds_are_read_from_reports_and_from_printed_lines() {
        let case = |seconds: &str, conclusive: bool| serde_json::json!({"type": "case", "truth_mbit_per_s": 10.0, "seconds_mbit_per_s": seconds, "conclusive": conclusive});
        let cases = [
            case("9.5 10.0", true),
            case("1.0 2.0", false),
            serde_json::json!({"name": "no seconds"}),
        ];
        let summary = serde_json::json!({"type": "summary", "cases": cases});
        let folder = tempfile::tempdir().expect("a folder");
        let [report, lines, other] =
            ["report", "lines", "other"].map(|name| folder.path().join(name));
        std::fs::write(
            &report,
            serde_json::json!({"name": "accuracy", "cases": cases}).to_string(),
        )
        .expect("written");
        std::fs::write(&lines, format!("{}\n{summary}\n", cases[0])).expect("written");
        std::fs::write(&other, "{\"type\":\"second\"}").expect("written");
        let expected = vec![Measurement { truth: 10.0, seconds: vec![9.5, 10.0] }];
        assert_eq!(measurements(&report).expect("read"), expected);
        assert_eq!(measurements(&lines).expect("read"), expected);
        let error = measurements(&other).expect_err("no cases").to_string();
        assert!(error.contains("has no cases"), "{error}");
    }

    /// Measurements of 60 s that need `slow` seconds to reach their truth.
    fn slow(slow: &[usize]) -> Vec<Measurement> {
        let rate = |second: usize, slow: usize| if second < slow { 70.0 } else { 100.0 };
        let measurement = |slow: &usize| Measurement {
            truth: 100.0,
            seconds: (0..60).map(|second| rate(second, *slow)).collect(),
        };
        slow.iter().map(measurement).collect()
    }

    fn verdicts(all: &[Measurement]) -> Vec<CaseVerdict> {
        claims(all, &[10, 60]).iter().map(|case| case.verdict).collect()
    }

    #[test]
    fn each_claim_is_judged_separately() {
        use CaseVerdict::{Failed, Held, Missed};
        assert_eq!(verdicts(&slow(&[0, 12])), [Held; 5]);
        // A lead of 10 s would help a relay that is slow for 18 s: the paper has none.
        assert_eq!(verdicts(&slow(&[0, 18])), [Missed, Held, Missed, Held, Held]);
        let mut late = slow(&[0, 0]);
        late[1].seconds[20..].fill(70.0);
        assert_eq!(verdicts(&late)[1], Missed, "the longest has the largest range");
        assert_eq!(verdicts(&[]), [Failed; 4], "there is no shorter length");
        let single = verdicts(&slow(&[0]));
        assert_eq!(single, [Held, Failed, Failed, Failed, Failed], "one has no range");
    }

    #[test]
    fn only_measurements_of_the_longest_length_are_compared() {
        let mut all = slow(&[0, 12, 0]);
        all[2].seconds.truncate(20);
        all[2].seconds.fill(10.0);
        assert_eq!(verdicts(&all), [CaseVerdict::Held; 5]);
        all.retain(|measurement| measurement.seconds.len() == 20);
        assert_eq!(verdicts(&all), [CaseVerdict::Failed; 5], "none has 30 s");
        let equal = claims(&slow(&[0, 12]), &[30]);
        assert_eq!(equal.len(), 4, "there is no shorter length: {equal:?}");
    }
}
