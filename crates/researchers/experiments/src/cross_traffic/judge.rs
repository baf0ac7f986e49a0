//! The results, compared with the paper's.

use super::network::Software;
use crate::columns::{rounded, with_interval};
use crate::factor::{Factor, interval_verdict};
use crate::reporting::{claim_holds, section};
use crate::simulated::Interval;
use client::probe::Probed;
use lab::processors::Load;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
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

    fn value(self, probed: &Probed) -> Option<f64> {
        match self {
            Self::Node | Self::Streams => probed.throughput_kb_s,
            Self::SetUp => probed.setup().map(|it| it.as_secs_f64() * 1e3),
        }
    }
}

/// The measurements of one point of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) what: What,
    /// The number of penetrators or streams.
    pub(super) level: u32,
    pub(super) kind: Software,
    pub(super) measured: Vec<Probed>,
    /// The rate at which the others completed circuits.
    pub(super) others_per_s: f64,
}

impl Point {
    fn interval(&self) -> Interval {
        let values = self.measured.iter().filter_map(|it| self.what.value(it));
        Interval::of(values)
    }

    fn failed(&self) -> usize {
        self.measured.iter().filter(|it| it.failure.is_some()).count()
    }

    fn name(&self) -> String {
        let (figure, _) = self.what.figure();
        format!("{figure}: {}, {} {}", self.kind.word(), self.level, self.what.others())
    }

    fn detail(&self) -> String {
        let reasons: BTreeSet<&str> =
            self.measured.iter().filter_map(|it| it.failure.as_deref()).collect();
        let reasons = match Vec::from_iter(reasons).join("; ") {
            none if none.is_empty() => none,
            reasons => format!(" ({reasons})"),
        };
        format!(
            "{:.1} {}, {} of {} failed{reasons}; the others had {:.0} circuits per second",
            self.interval(),
            self.what.unit(),
            self.failed(),
            self.measured.len(),
            self.others_per_s,
        )
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.detail())
    }
}

/// A case for each point, and the comparisons: the highest level of each figure with the lowest, and our relays with C tor's at the
/// highest level.
pub(super) fn cases(points: &[Point]) -> Vec<Case> {
    let mut cases: Vec<Case> = points.iter().map(of_point).collect();
    for what in What::ALL {
        let of = |kind| {
            let of_kind = |it: &&Point| it.what == what && it.kind == kind;
            let least = points.iter().filter(of_kind).min_by_key(|it| it.level)?;
            let most = points.iter().filter(of_kind).max_by_key(|it| it.level)?;
            (least.level < most.level).then_some((least, most))
        };
        cases.extend(Software::ALL.into_iter().filter_map(of).map(|(a, b)| over_lowest(a, b)));
        let last = of(Software::Ours).zip(of(Software::Tor));
        cases.extend(last.map(|((_, ours), (_, c_tor))| over_tor(ours, c_tor)));
    }
    cases
}

fn of_point(point: &Point) -> Case {
    let (name, _) = point.what.figure();
    let interval = point.interval();
    let case = Case::named(point.name())
        .column("figure", name)
        .column("relays", point.kind.word())
        .column(point.what.others(), point.level)
        .column("value", rounded(interval.mean, 3))
        .column("value_interval", interval.half_width.and_then(|it| rounded(it, 3)))
        .column("unit", point.what.unit())
        .column("others_circuits_per_s", rounded(point.others_per_s, 3))
        .column("failed", point.failed());
    // A point itself promises nothing; it fails only without any measurement.
    let verdict = if interval.count == 0 { CaseVerdict::Failed } else { CaseVerdict::Reported };
    case.ended(verdict, point.detail())
}

fn compared(name: String, part: &Point, whole: &Point, expected: f64) -> Case {
    let factor = Factor::of(part.interval(), whole.interval());
    with_interval(Case::named(name), "factor", factor.value, factor.interval, 3)
        .ended(interval_verdict(factor.interval, 1.0, expected), factor.to_string())
}

/// The highest level compared with the lowest.
fn over_lowest(least: &Point, most: &Point) -> Case {
    let what = most.what;
    let (figure, _) = what.figure();
    let (kind, others) = (most.kind.word(), what.others());
    let name = format!("{figure}: {kind}, {} {others} over {}", most.level, least.level);
    compared(name, most, least, what.expected())
}

/// Our relays compared with C tor's at the highest level. A higher throughput and a shorter set-up are better.
fn over_tor(ours: &Point, c_tor: &Point) -> Case {
    let (figure, _) = ours.what.figure();
    let name = format!("{figure}: ours over tor, {} {}", ours.level, ours.what.others());
    compared(name, ours, c_tor, ours.what.expected().recip())
}

pub(super) fn figures(points: &[Point]) -> Vec<ExperimentFigure> {
    let figure = |what: What| {
        let (name, title) = what.figure();
        let empty =
            ExperimentFigure::new(name, title, Axis::new(what.others()), Axis::new(what.unit()));
        let with = |figure: ExperimentFigure, (nth, kind): (usize, Software)| {
            let of_kind = points.iter().filter(|it| it.what == what && it.kind == kind);
            let dots = of_kind.map(|it| (f64::from(it.level), it.interval().mean)).collect();
            figure.with(Series::dots(kind.word(), Role::Nth(nth), dots))
        };
        Software::ALL.into_iter().enumerate().fold(empty, with)
    };
    What::ALL.map(figure).into()
}

pub(super) const TEXT: &str = include_str!("../../../../../docs/experiments/cross-traffic.md");

pub(super) fn notes(load: Load) -> Vec<String> {
    let mut notes = section(TEXT, "Notes");
    notes.push(format!(
        "Relays, penetrators and clients share this machine's processors, which were {:.0} % busy: penetrators load the processors as well as the relay.",
        load.machine * 100.0
    ));
    notes
}

fn is_judged(case: &&Case) -> bool {
    case.verdict.is_judged()
}

pub(super) fn answer(cases: &[Case]) -> String {
    let judged: Vec<String> = cases
        .iter()
        .filter(is_judged)
        .map(|it| format!("{} {} ({})", it.name, it.detail, it.verdict.word()))
        .collect();
    format!("{}.", judged.join("; "))
}

/// Whether the claim holds. It does not include the comparison of our relays with C tor's.
pub(super) fn held(cases: &[Case]) -> bool {
    let promised = |it: &&Case| is_judged(it) && !it.name.contains("ours over tor");
    claim_holds(cases.iter().filter(promised))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::Fingerprint;
    use onion::Duration;

    fn point(what: What, kind: Software, level: u32, value: f64) -> Point {
        let probed = |nth: u32| {
            let value = value * (1.0 + f64::from(nth % 3) * 0.01);
            Probed {
                path: vec![Fingerprint::from_bytes([1; 20])],
                hop_times: vec![Duration::from_secs_f64(value / 1e3)],
                throughput_kb_s: Some(value),
                ..Probed::default()
            }
        };
        Point { what, level, kind, measured: (0..9).map(probed).collect(), others_per_s: 7.0 }
    }

    fn verdict_of(cases: &[Case], name: &str) -> CaseVerdict {
        cases.iter().find(|it| it.name == name).expect(name).verdict
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
        let failed = Probed { failure: Some("no".to_owned()), ..Probed::default() };
        let point = Point { measured: vec![failed], ..point(What::Node, Software::Ours, 3, 1.0) };
        let case = &cases(&[point])[0];
        assert_eq!(case.verdict, CaseVerdict::Failed);
        assert!(case.detail.contains("1 of 1 failed (no);"), "{}", case.detail);
    }
}
