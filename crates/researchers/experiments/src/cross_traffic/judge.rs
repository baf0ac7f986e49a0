//! The results, compared with the paper's.

use super::network::Software;
use crate::columns::{rounded, with_interval};
use crate::factor::{Factor, interval_verdict};
use crate::reporting::claim_holds;
use crate::simulated::Interval;
use client::probe::Probed;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// What is measured under cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Figure 1: the throughput of a relay while circuits are opened through it.
    Node,
    /// Figure 2: the throughput of one of several streams.
    Streams,
    /// Figure 3: the set-up time of a circuit.
    SetUp,
}

impl What {
    pub(super) const ALL: [Self; 3] = [Self::Node, Self::Streams, Self::SetUp];

    const fn figure(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => {
                ("figure-1", "Throughput of a relay while circuits are opened through it")
            }
            Self::Streams => ("figure-2", "Throughput of one of several streams"),
            Self::SetUp => ("figure-3", "Set-up of three hops while others open the same circuit"),
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Node | Self::Streams => "kB/s",
            Self::SetUp => "ms",
        }
    }

    pub(super) const fn others(self) -> &'static str {
        match self {
            Self::Node | Self::SetUp => "penetrators",
            Self::Streams => "streams",
        }
    }

    /// Whether the value in the paper's figure falls or rises with more of the others: a factor below or above one.
    const fn expected(self) -> f64 {
        match self {
            Self::Node | Self::Streams => 0.5,
            Self::SetUp => 2.0,
        }
    }

    pub(super) fn value(self, probed: &Probed) -> Option<f64> {
        match self {
            Self::Node | Self::Streams => probed.throughput_kb_s,
            Self::SetUp => probed.setup().map(|setup| setup.as_secs_f64() * 1e3),
        }
    }
}

/// A point of a figure, to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    #[serde(skip)]
    pub(super) what: What,
    /// The number of penetrators or streams.
    #[serde(skip)]
    pub(super) level: u32,
    #[serde(skip)]
    pub(super) kind: Software,
}

/// The measurements of one point of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) values: Vec<f64>,
    /// The reasons of those that failed.
    pub(super) failures: Vec<String>,
    /// The number of measurements.
    pub(super) measured: usize,
    /// The rate at which the others completed circuits.
    pub(super) others_per_s: f64,
    /// The load of all processors meanwhile, from zero to one.
    pub(super) machine: f64,
}

impl Point {
    fn interval(&self) -> Interval {
        Interval::of(self.values.iter().copied())
    }

    fn detail(&self, what: What) -> String {
        let reasons: BTreeSet<&str> = self.failures.iter().map(String::as_str).collect();
        let reasons = match Vec::from_iter(reasons).join("; ") {
            none if none.is_empty() => none,
            reasons => format!(" ({reasons})"),
        };
        format!(
            "{:.1} {}, {} of {} failed{reasons}; the others had {:.0} circuits per second",
            self.interval(),
            what.unit(),
            self.failures.len(),
            self.measured,
            self.others_per_s,
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figure, _) = self.what.figure();
        write!(f, "{figure}: {}, {} {}", self.kind.word(), self.level, self.what.others())
    }
}

impl Step {
    pub(super) fn case(&self, point: &Point) -> Case {
        let (name, _) = self.what.figure();
        let interval = point.interval();
        let case = Case::named(self.to_string())
            .column("figure", name)
            .column("relays", self.kind.word())
            .column(self.what.others(), self.level)
            .column("value", rounded(interval.mean, 3))
            .column("value_interval", interval.half_width.and_then(|width| rounded(width, 3)))
            .column("unit", self.what.unit())
            .column("others_circuits_per_s", rounded(point.others_per_s, 3))
            .column("failed", point.failures.len());
        // A point itself promises nothing; it fails only without any measurement.
        let verdict = if interval.count == 0 { CaseVerdict::Failed } else { CaseVerdict::Reported };
        case.ended(verdict, point.detail(self.what))
    }
}

/// The comparisons: the highest level of each figure with the lowest, and our relays with C tor's at the highest level.
pub(super) fn comparisons(points: &[(Step, Point)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for what in What::ALL {
        let of = |kind| {
            let of_kind = |(step, _): &&(Step, Point)| step.what == what && step.kind == kind;
            let least = points.iter().filter(of_kind).min_by_key(|(step, _)| step.level)?;
            let most = points.iter().filter(of_kind).max_by_key(|(step, _)| step.level)?;
            (least.0.level < most.0.level).then_some((least, most))
        };
        cases.extend(Software::ALL.into_iter().filter_map(of).map(|(a, b)| over_lowest(a, b)));
        let last = of(Software::Ours).zip(of(Software::Tor));
        cases.extend(last.map(|((_, ours), (_, c_tor))| over_tor(ours, c_tor)));
    }
    cases
}

fn compared(name: String, part: &Point, whole: &Point, expected: f64) -> Case {
    let factor = Factor::of_means(part.interval(), whole.interval());
    with_interval(Case::named(name), "factor", factor.value, factor.interval, 3)
        .ended(interval_verdict(factor.interval, 1.0, expected), factor.to_string())
}

/// The highest level compared with the lowest.
fn over_lowest((lowest, least): &(Step, Point), (step, most): &(Step, Point)) -> Case {
    let (figure, _) = step.what.figure();
    let (kind, others) = (step.kind.word(), step.what.others());
    let name = format!("{figure}: {kind}, {} {others} over {}", step.level, lowest.level);
    compared(name, most, least, step.what.expected())
}

/// Our relays compared with C tor's at the highest level. A higher throughput and a shorter set-up are better.
fn over_tor((step, ours): &(Step, Point), (_, c_tor): &(Step, Point)) -> Case {
    let (figure, _) = step.what.figure();
    let name = format!("{figure}: ours over tor, {} {}", step.level, step.what.others());
    compared(name, ours, c_tor, step.what.expected().recip())
}

pub(super) fn figures(points: &[(Step, Point)]) -> Vec<ExperimentFigure> {
    let figure = |what: What| {
        let (name, title) = what.figure();
        let empty =
            ExperimentFigure::new(name, title, Axis::new(what.others()), Axis::new(what.unit()));
        let with = |figure: ExperimentFigure, (nth, kind): (usize, Software)| {
            let of_kind = points.iter().filter(|(step, _)| step.what == what && step.kind == kind);
            let dot =
                |(step, point): &(Step, Point)| (f64::from(step.level), point.interval().mean);
            figure.with(Series::dots(kind.word(), Role::Nth(nth), of_kind.map(dot).collect()))
        };
        Software::ALL.into_iter().enumerate().fold(empty, with)
    };
    What::ALL.map(figure).into()
}

pub(super) const TEXT: &str = include_str!("../../../../../docs/experiments/cross-traffic.md");

pub(super) fn load_note(points: &[(Step, Point)]) -> String {
    format!(
        "Relays, penetrators and clients share this machine's processors, which were {:.0} % busy: penetrators load the processors as well as the relay.",
        Interval::of(points.iter().map(|(_, point)| point.machine)).mean * 100.0
    )
}

fn is_judged(case: &&Case) -> bool {
    case.verdict.is_judged()
}

pub(super) fn answer(cases: &[Case]) -> String {
    let judged: Vec<String> = cases
        .iter()
        .filter(is_judged)
        .map(|case| format!("{} {} ({})", case.name, case.detail, case.verdict.word()))
        .collect();
    format!("{}.", judged.join("; "))
}

/// Whether the claim holds. It does not include the comparison of our relays with C tor's.
pub(super) fn held(cases: &[Case]) -> bool {
    let promised = |case: &&Case| is_judged(case) && !case.name.contains("ours over tor");
    claim_holds(cases.iter().filter(promised))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(what: What, kind: Software, level: u32, value: f64) -> (Step, Point) {
        let values = (0..9).map(|nth: u32| value * (1.0 + f64::from(nth % 3) * 0.01)).collect();
        let point =
            Point { values, failures: Vec::new(), measured: 9, others_per_s: 7.0, machine: 0.5 };
        (Step { what, level, kind }, point)
    }

    fn cases(points: &[(Step, Point)]) -> Vec<Case> {
        let of_points = points.iter().map(|(step, point)| step.case(point));
        of_points.chain(comparisons(points)).collect()
    }

    fn verdict_of(cases: &[Case], name: &str) -> CaseVerdict {
        cases.iter().find(|case| case.name == name).expect(name).verdict
    }

    #[test]
    fn the_highest_level_is_compared_with_the_lowest_for_each_kind_of_relay() {
        use CaseVerdict::{Held, Inconclusive, Missed, Reported};
        let points = [
            point(What::Node, Software::Tor, 0, 900.0),
            point(What::Node, Software::Ours, 0, 900.0),
            point(What::Node, Software::Tor, 9, 600.0),
            point(What::Node, Software::Ours, 9, 901.0),
            point(What::SetUp, Software::Tor, 0, 10.0),
            point(What::SetUp, Software::Tor, 4, 90.0),
            point(What::SetUp, Software::Ours, 0, 10.0),
            point(What::SetUp, Software::Ours, 4, 5.0),
        ];
        let cases = cases(&points);
        let verdict = |name| verdict_of(&cases, name);
        assert_eq!(verdict("figure-1: tor, 0 penetrators"), Reported, "a single point");
        assert_eq!(verdict("figure-1: tor, 9 penetrators over 0"), Held);
        assert_eq!(verdict("figure-1: ours, 9 penetrators over 0"), Inconclusive, "the same");
        assert_eq!(verdict("figure-1: ours over tor, 9 penetrators"), Held);
        assert_eq!(verdict("figure-3: tor, 4 penetrators over 0"), Held);
        assert_eq!(verdict("figure-3: ours, 4 penetrators over 0"), Missed, "faster under load");
        assert_eq!(verdict("figure-3: ours over tor, 4 penetrators"), Held);
        assert_eq!(cases.len(), points.len() + 6, "no case without points");
        assert!(!held(&cases));
        assert!(held(&cases[..points.len() + 3]));
        assert!(!held(&cases[..points.len()]), "no comparison");
    }

    #[test]
    fn a_single_level_has_no_comparison() {
        let points = [
            point(What::Streams, Software::Tor, 4, 9.0),
            point(What::Streams, Software::Ours, 4, 9.0),
        ];
        assert_eq!(cases(&points).len(), 2);
    }

    #[test]
    fn a_point_without_any_measurement_fails() {
        let (step, point) = point(What::Node, Software::Ours, 3, 1.0);
        let failures = vec!["no".to_owned()];
        let case = step.case(&Point { values: Vec::new(), failures, measured: 1, ..point });
        assert_eq!(case.verdict, CaseVerdict::Failed);
        assert!(case.detail.contains("1 of 1 failed (no);"), "{}", case.detail);
    }
}
