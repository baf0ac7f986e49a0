//! Tables I to V and figures 4 to 7 from simulated circuits: statistics, and comparisons that the paper's numbers permit. Times of the network of
//! 2008 do not return; what is compared are ratios.

use super::claims::{UserLoad, correlations, table_iii};
use super::judge::{DIGITS, rate, rounded};
use super::statistics::Statistics;
use super::survey::RelayLoad;
use crate::columns;
use crate::factor::{Factor, interval_verdict};
use crate::simulated::Interval;
use client::probe::Probed;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
use std::fmt;

type Group<'g> = (&'g str, &'g [Probed]);

fn setup_s(probed: &Probed) -> Option<f64> {
    probed.setup().map(|time| time.as_secs_f64())
}

fn rtt_s(probed: &Probed) -> Option<f64> {
    probed.mean_rtt().map(|time| time.as_secs_f64())
}

fn all(probed: &[Probed], value: impl Fn(&Probed) -> Option<f64>) -> Vec<f64> {
    probed.iter().filter_map(value).collect()
}

/// The average that the paper compares.
#[derive(Clone, Copy)]
enum Average {
    Median,
    Mean,
}

/// What the paper has about a ratio.
#[derive(Clone, Copy)]
enum Expected {
    /// Its value.
    Ratio(f64),
    /// No number, but it is below 1.
    Less,
    /// No number, but it is above 1.
    Greater,
}

impl Expected {
    /// A number on the same side of 1.
    const fn side(self) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio,
            Self::Less => 0.0,
            Self::Greater => f64::INFINITY,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(ratio) => write!(f, "paper × {ratio:.2}"),
            Self::Less => f.write_str("expected below 1"),
            Self::Greater => f.write_str("expected above 1"),
        }
    }
}

/// A row of a table over another, compared with the paper. It holds if the interval of the ratio of means is on the paper's side of 1. If the
/// medians have another side than the means, nothing is decided.
fn ratio(name: String, part: &[f64], whole: &[f64], average: Average, expected: Expected) -> Case {
    let means = Factor::of_means(Interval::of(part), Interval::of(whole));
    let median = |values: &[f64]| Statistics::from_values(values).median;
    let (factor, what) = match average {
        Average::Median => (median(part) / median(whole), "medians"),
        Average::Mean => (means.value, "means"),
    };
    let verdict = match (factor < 1.0) == (means.value < 1.0) {
        true => interval_verdict(means.interval, 1.0, expected.side()),
        false => CaseVerdict::Inconclusive,
    };
    let case = Case::named(name).column("factor", rounded(factor));
    let case = match expected {
        Expected::Ratio(ratio) => case.column("factor_paper", rounded(ratio)),
        Expected::Less | Expected::Greater => case,
    };
    case.ended(verdict, format!("× {factor:.2} of {what}, {means} of means; {expected}"))
}

/// A row of circuits: set-up, round trip, and throughput if it was measured.
fn row(name: String, circuits: &[Probed]) -> Case {
    let failed = circuits.iter().filter(|probed| probed.setup().is_none()).count();
    let failed_percent = failed as f64 / circuits.len().max(1) as f64 * 100.0;
    let (setup, rtt) = (
        Statistics::from_values(&all(circuits, setup_s)),
        Statistics::from_values(&all(circuits, rtt_s)),
    );
    let case = Case::named(name)
        .column("circuits", circuits.len())
        .column("failed_percent", columns::rounded(failed_percent, DIGITS));
    let case = rtt.columns(setup.columns(case, "setup", "s"), "rtt", "s");
    let rates = all(circuits, rate);
    let mut detail = format!(
        "set-up {:.2} s (median {:.2}), round trip {:.2} s, {failed_percent:.1} % failed",
        setup.mean, setup.median, rtt.mean,
    );
    let case = match rates.is_empty() {
        true => case,
        false => {
            let rates = Statistics::from_values(&rates);
            detail += &format!(", {:.1} ± {:.1} kB/s", rates.mean, rates.deviation);
            rates.columns(case, "throughput", "kb_s")
        }
    };
    let verdict =
        if failed == circuits.len() { CaseVerdict::Failed } else { CaseVerdict::Reported };
    case.ended(verdict, detail)
}

/// The time of each step of building a circuit, in seconds: CREATE, then EXTENDs.
fn step_s(probed: &Probed, step: usize) -> Option<f64> {
    let before = step
        .checked_sub(1)
        .map_or(Some(0.0), |before| Some(probed.hop_times.get(before)?.as_secs_f64()));
    Some(probed.hop_times.get(step)?.as_secs_f64() - before?)
}

/// Tables I and II, and figure 4. The groups are circuits of two, three and four hops.
pub(super) fn lengths(groups: &[(&'static str, Vec<Probed>)]) -> Vec<Case> {
    let [two, three, four] = [0, 1, 2].map(|place| groups[place].1.as_slice());
    let mut cases = Vec::new();
    let steps = [0, 1, 2].map(|step| all(three, |probed| step_s(probed, step)));
    let total = all(three, setup_s);
    let [create, extend_1, extend_2] = &steps;
    let names = ["create", "extend 1", "extend 2", "total"];
    for (name, values) in names.into_iter().zip([create, extend_1, extend_2, &total]) {
        let statistics = Statistics::from_values(values);
        let case = statistics.columns(Case::named(format!("table I: {name}")), "time", "s");
        let detail = format!("median {:.2} s, mean {:.2} s", statistics.median, statistics.mean);
        cases.push(case.ended(CaseVerdict::Reported, detail));
    }
    cases.push(ratio(
        "table I: extend 1 over create".into(),
        extend_1,
        create,
        Average::Median,
        Expected::Ratio(1.23 / 0.58),
    ));
    cases.push(ratio(
        "table I: extend 2 over create".into(),
        extend_2,
        create,
        Average::Median,
        Expected::Ratio(2.23 / 0.58),
    ));
    cases.extend(groups.iter().map(|(name, circuits)| row(format!("table II: {name}"), circuits)));
    let lengths = [
        ("3 hops over 2", three, two, 4.99 / 2.13, 1.6 / 1.1),
        ("4 hops over 3", four, three, 7.18 / 4.99, 1.9 / 1.6),
    ];
    for (name, long, short, setup, rtt) in lengths {
        let (part, whole) = (all(long, setup_s), all(short, setup_s));
        cases.push(ratio(
            format!("table II: set-up, {name}"),
            &part,
            &whole,
            Average::Median,
            Expected::Ratio(setup),
        ));
        let (part, whole) = (all(long, rtt_s), all(short, rtt_s));
        cases.push(ratio(
            format!("figure 4: round trip, {name}"),
            &part,
            &whole,
            Average::Mean,
            Expected::Ratio(rtt),
        ));
    }
    cases
}

fn found<'g>(groups: &'g [(&'static str, Vec<Probed>)], name: &str) -> &'g [Probed] {
    let found = groups.iter().find(|(known, _)| *known == name);
    found.map_or(&[], |(_, circuits)| circuits.as_slice())
}

/// Uniform circuits, those weighted by the rule of 2007, and those that the model learned from: the paper's 1,530.
fn correlated<'g>(
    groups: &'g [(&'static str, Vec<Probed>)],
    learning: &'g [Probed],
) -> [Group<'g>; 3] {
    [
        ("uniform", found(groups, "uniform")),
        ("weighted", found(groups, "weighted-2007")),
        ("uniform, first", learning),
    ]
}

/// Table III, and figures 5 and 6.
pub(super) fn strategies(
    groups: &[(&'static str, Vec<Probed>)],
    learning: &[Probed],
    load: UserLoad,
) -> Vec<Case> {
    let mut cases: Vec<Case> =
        groups.iter().map(|(name, circuits)| row(format!("table III: {name}"), circuits)).collect();
    let (uniform, weighted) = (found(groups, "uniform"), found(groups, "weighted-2007"));
    cases.extend(table_iii(uniform, weighted, load));
    // The paper proposes both strategies, and has no numbers: only the side counts.
    let latency = found(groups, "latency");
    let (part, whole) = (all(latency, rtt_s), all(uniform, rtt_s));
    cases.push(ratio(
        "round trip: latency over uniform".into(),
        &part,
        &whole,
        Average::Mean,
        Expected::Less,
    ));
    let throughput = found(groups, "throughput");
    let (part, whole) = (all(throughput, rate), all(uniform, rate));
    cases.push(ratio(
        "throughput: throughput over uniform".into(),
        &part,
        &whole,
        Average::Mean,
        Expected::Greater,
    ));
    let all: Vec<&Probed> =
        correlated(groups, learning).into_iter().flat_map(|group| group.1).collect();
    cases.extend(correlations(&all));
    cases
}

/// Table IV, and figure 7. All over uniform.
pub(super) fn geography(groups: &[(&'static str, Vec<Probed>)]) -> Vec<Case> {
    let mut cases: Vec<Case> =
        groups.iter().map(|(name, circuits)| row(format!("table IV: {name}"), circuits)).collect();
    let uniform = found(groups, "uniform");
    let medians = [
        ("unique-continents", 5.15),
        ("single-continent-eu", 3.20),
        ("single-country-us", 3.63),
        ("single-country-de", 2.72),
    ];
    for (name, median) in medians {
        let circuits = found(groups, name);
        let (part, whole) = (all(circuits, setup_s), all(uniform, setup_s));
        let title = format!("table IV: set-up, {name} over uniform");
        let expected = Expected::Ratio(median / 4.54);
        cases.push(ratio(title, &part, &whole, Average::Median, expected));
    }
    // Figure 7 has no numbers in the text: continents are the worst, Germany is very fast.
    for (name, expected) in
        [("unique-continents", Expected::Greater), ("single-country-de", Expected::Less)]
    {
        let (part, whole) = (all(found(groups, name), rtt_s), all(uniform, rtt_s));
        let title = format!("figure 7: round trip, {name} over uniform");
        cases.push(ratio(title, &part, &whole, Average::Mean, expected));
    }
    cases
}

/// Table V: times of headers in seconds, `None` for those that failed.
pub(super) fn pages(tor: &[Option<f64>], direct: &[Option<f64>]) -> Vec<Case> {
    let whole = |times: &[Option<f64>]| times.iter().flatten().copied().collect::<Vec<f64>>();
    let row = |name: &str, times: &[Option<f64>]| {
        let statistics = Statistics::from_values(&whole(times));
        let failed = times.iter().filter(|time| time.is_none()).count();
        let case = Case::named(format!("table V: {name}"))
            .column("headers", times.len())
            .column("failed", failed);
        let detail = format!("median {:.2} s, mean {:.2} s", statistics.median, statistics.mean);
        statistics.columns(case, "header", "s").ended(CaseVerdict::Reported, detail)
    };
    let over = "table V: Tor over no anonymity".to_owned();
    vec![
        row("Tor", tor),
        row("no anonymity", direct),
        ratio(over, &whole(tor), &whole(direct), Average::Median, Expected::Ratio(3.35 / 0.26)),
    ]
}

/// How busy relays were in a part.
pub(super) fn load(part: &str, load: RelayLoad) -> Case {
    let percent = load.all * 100.0;
    Case::named(format!("load of relays: {part}"))
        .column("load_percent", columns::rounded(percent, DIGITS))
        .column("slow_relays_used", rounded(load.slow))
        .column("fast_relays_used", rounded(load.fast))
        .ended(CaseVerdict::Reported, format!("{percent:.0} % of their capacity"))
}

fn rtts(groups: &[(&'static str, Vec<Probed>)]) -> Vec<(&'static str, Vec<f64>)> {
    groups.iter().map(|(name, circuits)| (*name, all(circuits, rtt_s))).collect()
}

pub(super) fn figure_4(groups: &[(&'static str, Vec<Probed>)]) -> ExperimentFigure {
    let title = "Round trips of circuits of two to four hops";
    ExperimentFigure::distributions("figure-4", title, "s", rtts(groups))
}

pub(super) fn figure_7(groups: &[(&'static str, Vec<Probed>)]) -> ExperimentFigure {
    let title = "Round trips by rules of geography";
    ExperimentFigure::distributions("figure-7", title, "s", rtts(groups))
}

/// The scatter plots, with the axes of the paper.
pub(super) fn figures_5_and_6(
    groups: &[(&'static str, Vec<Probed>)],
    learning: &[Probed],
) -> Vec<ExperimentFigure> {
    type Value = fn(&Probed) -> Option<f64>;
    let scatter = |name, title, (x_name, x): (&str, Value), (y_name, y): (&str, Value)| {
        let figure = ExperimentFigure::new(name, title, Axis::new(x_name), Axis::new(y_name));
        let groups = correlated(groups, learning).into_iter().enumerate();
        groups.fold(figure, |figure, (nth, (name, circuits))| {
            let points = circuits.iter().filter_map(|probed| Some((x(probed)?, y(probed)?)));
            figure.with(Series::dots(name, Role::Nth(nth), points.collect()))
        })
    };
    let (setup, rtt) = (("set-up in s", setup_s as Value), ("round trip in s", rtt_s as Value));
    vec![
        scatter("figure-5", "Round trip and set-up", setup, rtt),
        scatter("figure-6", "Throughput and round trip", rtt, ("kB/s", rate as Value)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::RsaId;
    use onion::Duration;

    /// Circuits of `hops` hops. Each step of the set-up takes `step_ms` longer than the one before.
    fn circuits(hops: usize, step_ms: u64, rtt_ms: u64) -> Vec<Probed> {
        let circuit = |number: u64| Probed {
            path: vec![RsaId([1; 20]); hops],
            hop_times: (1..=hops as u64)
                .map(|hop| Duration::from_millis(step_ms * hop * (hop + 1) / 2 + number))
                .collect(),
            rtts: vec![vec![Duration::from_millis(rtt_ms + number)]; hops],
            ..Probed::default()
        };
        (0..50).map(circuit).collect()
    }

    fn verdict(cases: &[Case], name: &str) -> CaseVerdict {
        let case = cases.iter().find(|case| case.name == name);
        case.unwrap_or_else(|| panic!("no {name}")).verdict
    }

    #[test]
    fn longer_circuits_must_be_slower_and_each_step_longer() {
        let groups = |rtts: [u64; 3]| {
            let of = |(name, hops): (&'static str, usize), rtt| (name, circuits(hops, 500, rtt));
            let names = [("2 hops", 2), ("3 hops", 3), ("4 hops", 4)];
            names.into_iter().zip(rtts).map(|(name, rtt)| of(name, rtt)).collect::<Vec<_>>()
        };
        let cases = lengths(&groups([1000, 1500, 1900]));
        assert!(cases.iter().all(|case| case.verdict != CaseVerdict::Missed), "{cases:?}");
        // 500 ms, then 1,000 and 1,500.
        let step = cases.iter().find(|case| case.name == "table I: extend 2 over create");
        let factor = step.and_then(|case| case.value("factor")?.as_f64()).expect("a factor");
        assert!((factor - 1500.0 / 524.5).abs() < 1e-3, "{factor}");
        let cases = lengths(&groups([1000, 1500, 1200]));
        let missed = "figure 4: round trip, 4 hops over 3";
        assert_eq!(verdict(&cases, missed), CaseVerdict::Missed);
    }

    #[test]
    fn a_ratio_has_the_papers_number_only_if_the_paper_has_one() {
        let (low, high) = ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]);
        let judged = |part: &[f64], average, expected| {
            ratio("ratio".to_owned(), part, &high, average, expected)
        };
        let case = judged(&low, Average::Mean, Expected::Less);
        assert_eq!((case.verdict, case.value("factor_paper")), (CaseVerdict::Held, None));
        assert!(case.detail.ends_with("expected below 1"), "{case:?}");
        let case = judged(&low, Average::Mean, Expected::Greater);
        assert_eq!(case.verdict, CaseVerdict::Missed);
        let case = judged(&low, Average::Median, Expected::Ratio(0.5));
        let paper = case.value("factor_paper").cloned();
        assert_eq!((case.verdict, paper), (CaseVerdict::Held, Some(0.5.into())));
        // A few long ones: means of 29 and 2, medians of 1 and 2.
        let mut skewed = vec![1.0; 300];
        skewed[..70].fill(121.0);
        let case = judged(&skewed, Average::Median, Expected::Ratio(2.0));
        assert_eq!(case.verdict, CaseVerdict::Inconclusive, "{case:?}");
        let case = judged(&skewed, Average::Mean, Expected::Ratio(2.0));
        assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
    }

    #[test]
    fn headers_that_failed_are_counted_and_do_not_enter_the_times() {
        let tor: Vec<Option<f64>> =
            (0..40).map(|place| (place > 0).then_some(3.0 + f64::from(place) / 100.0)).collect();
        let direct = vec![Some(0.2), Some(0.3), Some(0.25)];
        let cases = pages(&tor, &direct);
        assert_eq!(cases[0].value("failed"), Some(&1.into()));
        assert_eq!(cases[0].value("header_median_s"), Some(&3.2.into()));
        assert_eq!(cases[2].verdict, CaseVerdict::Held);
        assert_eq!(
            verdict(&pages(&direct, &tor), "table V: Tor over no anonymity"),
            CaseVerdict::Missed
        );
    }
}
