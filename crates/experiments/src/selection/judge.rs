//! What was found, beside what the paper found.

use super::correlation::Correlation;
use super::scene::Scene;
use super::ways::Way;
use super::{Course, RULES};
use crate::error::Error;
use crate::simulated::Interval;
use client::anonymity::{Adversary, Study, Weights};
use client::model::Model;
use client::path::Need;
use client::probe::Probed;
use onion::Duration;
use rand::rngs::StdRng;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Role, Series,
};

/// How far a link's round trip may be from the truth.
const CLOSE: f64 = 0.10;

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn setup_ms(probed: &Probed) -> Option<f64> {
    probed.setup().map(ms)
}

fn rtt_ms(probed: &Probed) -> Option<f64> {
    probed.mean_rtt().map(ms)
}

fn of(all: &[Probed], value: impl Fn(&Probed) -> Option<f64>) -> Interval {
    Interval::of(&all.iter().filter_map(value).collect::<Vec<_>>())
}

fn rounded(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e4).round() / 1e4)
}

/// Columns of a mean and its interval.
fn with(case: Case, name: &str, it: Interval) -> Case {
    case.column(name, rounded(it.mean))
        .column(&format!("{name}_interval"), it.half_width.and_then(rounded))
}

/// All cases: strategies, comparisons, lengths, links, correlations.
pub(super) fn cases(
    course: &Course,
    model: &Model,
    scene: &Scene,
    rng: &mut StdRng,
) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for (way, probed) in &course.ways {
        cases.push(strategy(way, probed, scene, rng)?);
    }
    let found = |name: &str| {
        let found = course.ways.iter().find(|(way, _)| way.name == name);
        found.map(|(_, probed)| probed.as_slice())
    };
    if let (Some(uniform), Some(weighted)) = (found("uniform"), found("weighted")) {
        cases.push(table_iii(uniform, weighted));
    }
    let has_distances = scene.countries().is_some();
    for (faster, slower) in [("latency", "uniform"), ("single-country-de", "unique-continents")] {
        if let (true, Some(fast), Some(slow)) = (has_distances, found(faster), found(slower)) {
            cases.push(shorter(faster, fast, slower, slow));
        }
    }
    cases.extend(lengths(course));
    cases.extend(links(model, scene));
    cases.extend(correlations(course));
    Ok(cases)
}

fn strategy(way: &Way, probed: &[Probed], scene: &Scene, rng: &mut StdRng) -> Result<Case, Error> {
    let need = Need::Port { port: scene.server().port(), is_ipv6: false };
    let view = scene.view();
    let study = Study { view, strategy: &*way.strategy, rules: RULES, need, pairs: 10_000 };
    let adversary = [Adversary::with_weight(view, 0.55, Weights::Largest, rng)];
    let cost = study.run(&adversary, rng);
    let cost = cost.map_err(|it| Error::Usage(format!("{}: {it}", way.name)))?;
    let (setup, rtt) = (of(probed, setup_ms), of(probed, rtt_ms));
    let rate = of(probed, |it| it.throughput_kb_s);
    let failed = probed.iter().filter(|it| it.failure.is_some()).count();
    let case = Case::new(way.name, None, None)
        .column("strategy", way.name)
        .column("circuits", probed.len())
        .column("failed", failed);
    let case = with(case, "setup_ms", setup);
    let case = with(case, "rtt_ms", rtt);
    let case = with(case, "throughput_kb_s", rate)
        .column("path_bits", rounded(cost.path_bits))
        .column("guard_bits", rounded(cost.guard.entropy_bits))
        .column("middle_bits", rounded(cost.middle.entropy_bits))
        .column("exit_bits", rounded(cost.exit.entropy_bits))
        .column("compromised_share", rounded(cost.compromised[0]));
    let told = format!(
        "set up in {setup:.0} ms, round trip {rtt:.0} ms, {rate:.0} kB/s, {failed} failed; {:.2} bits, {:.1} % of paths compromised",
        cost.path_bits,
        cost.compromised[0] * 100.0,
    );
    // What cannot be measured at all is a failure; else the figures are for comparison.
    let verdict = if failed == probed.len() { CaseVerdict::Failed } else { CaseVerdict::Skipped };
    Ok(case.ended(verdict, told))
}

/// The quotient of two means, and its interval by the errors of both (delta method).
fn quotient(part: Interval, whole: Interval) -> (f64, Option<f64>) {
    let quotient = part.mean / whole.mean;
    let relative = |it: Interval| Some(it.half_width? / it.mean);
    let width = relative(part).zip(relative(whole)).map(|(a, b)| quotient * a.hypot(b));
    (quotient, width)
}

/// Whether a difference is above nothing, below, or within what chance can do.
fn decided(difference: f64, half_width: Option<f64>) -> CaseVerdict {
    match half_width {
        Some(width) if difference > width => CaseVerdict::Held,
        Some(width) if difference < -width => CaseVerdict::Missed,
        _ => CaseVerdict::Inconclusive,
    }
}

fn table_iii(uniform: &[Probed], weighted: &[Probed]) -> Case {
    type Value = fn(&Probed) -> Option<f64>;
    let values: [(&str, Value, f64); 3] = [
        ("setup", setup_ms, 3.33 / 6.31),
        ("rtt", rtt_ms, 1.09 / 1.61),
        ("throughput", |it| it.throughput_kb_s, 45.33 / 11.04),
    ];
    let mut case = Case::new("table III: weighted over uniform", None, None);
    let (mut told, mut rate) = (Vec::new(), (f64::NAN, None));
    for (name, value, paper) in values {
        let (factor, width) = quotient(of(weighted, value), of(uniform, value));
        case = case
            .column(&format!("{name}_factor"), rounded(factor))
            .column(&format!("{name}_factor_interval"), width.and_then(rounded))
            .column(&format!("{name}_factor_paper"), rounded(paper));
        told.push(format!("{name} × {factor:.2} (paper {paper:.2})"));
        rate = (factor, width);
    }
    case.ended(decided(rate.0 - 1.0, rate.1), told.join(", "))
}

fn shorter(faster: &str, fast: &[Probed], slower: &str, slow: &[Probed]) -> Case {
    let (fast, slow) = (of(fast, rtt_ms), of(slow, rtt_ms));
    let width = fast.half_width.zip(slow.half_width).map(|(a, b)| a.hypot(b));
    let verdict = decided(slow.mean - fast.mean, width);
    let case = Case::new(format!("round trips: {faster} below {slower}"), None, None);
    let case = with(case, "rtt_ms", fast);
    let told = format!("{fast:.0} ms, beside {slow:.0} ms");
    with(case, "rtt_beside_ms", slow).ended(verdict, told)
}

/// Tables I and II, and figure 4.
fn lengths(course: &Course) -> Vec<Case> {
    let of_length = |hops: usize| {
        let all = course.lengths.iter().chain(&course.learning);
        all.filter(move |it| it.path.len() == hops).cloned().collect::<Vec<Probed>>()
    };
    let mut cases = Vec::new();
    for hops in 2..=4 {
        let all = of_length(hops);
        let (setup, rtt) = (of(&all, setup_ms), of(&all, rtt_ms));
        let failed = all.iter().filter(|it| it.setup().is_none()).count();
        let case = Case::new(format!("{hops} hops"), None, None)
            .column("hops", hops)
            .column("circuits", all.len())
            .column("failed", failed);
        let mut case = with(with(case, "setup_ms", setup), "rtt_ms", rtt);
        let mut steps = Vec::new();
        for place in 0..hops {
            let before = |it: &Probed| match place {
                0 => Some(0.0),
                _ => it.hop_times.get(place - 1).copied().map(ms),
            };
            let step = of(&all, |it| Some(ms(*it.hop_times.get(place)?) - before(it)?));
            let name = if place == 0 { "create" } else { &format!("extend_{place}") };
            case = with(case, &format!("{name}_ms"), step);
            steps.push(format!("{step:.0}"));
        }
        let told = format!(
            "set up in {setup:.0} ms (hop by hop {}), round trip {rtt:.0} ms, {failed} of {} failed",
            steps.join(", "),
            all.len()
        );
        cases.push(case.ended(CaseVerdict::Skipped, told));
    }
    cases
}

/// Links' round trips beside the truth.
fn links(model: &Model, scene: &Scene) -> Option<Case> {
    let errors: Vec<f64> = model
        .links()
        .iter()
        .filter_map(|(pair, link)| {
            let [a, b] = pair.ends();
            Some(link.rtt_ms? / ms(scene.true_rtt(a, b)?) - 1.0)
        })
        .collect();
    if errors.is_empty() {
        return None;
    }
    let worst = errors.iter().map(|it| it.abs()).fold(0.0, f64::max);
    let close = errors.iter().filter(|it| it.abs() <= CLOSE).count();
    let mean = Interval::of(&errors);
    let case = Case::new("links' round trips", None, None)
        .column("links", errors.len())
        .column("within_tenth", close)
        .column("worst_error", rounded(worst));
    let verdict = if close == errors.len() { CaseVerdict::Held } else { CaseVerdict::Missed };
    let told = format!(
        "{close} of {} within 10 % of the truth, the worst {:.1} % away, in the mean {:.1} %",
        errors.len(),
        worst * 100.0,
        mean.mean * 100.0
    );
    Some(with(case, "mean_error", mean).ended(verdict, told))
}

/// Figures 5 and 6: over uniform and weighted circuits, as in the paper.
fn correlations(course: &Course) -> Vec<Case> {
    type Value = fn(&Probed) -> Option<f64>;
    let rate: Value = |it| it.throughput_kb_s;
    let asked: [(&str, Value, Value, f64); 3] = [
        ("set-up and round trip", setup_ms, rtt_ms, 0.47),
        ("throughput and round trip", rate, rtt_ms, -0.34),
        ("set-up and throughput", setup_ms, rate, -0.16),
    ];
    let of_ways = course.ways.iter().filter(|(way, _)| matches!(way.name, "uniform" | "weighted"));
    let all: Vec<&Probed> =
        of_ways.flat_map(|(_, probed)| probed).chain(&course.learning).collect();
    let case = |(name, x, y, paper): (&str, Value, Value, f64)| {
        let pairs: Vec<(f64, f64)> = all.iter().filter_map(|it| Some((x(it)?, y(it)?))).collect();
        let found = Correlation::of(&pairs);
        Case::new(format!("correlation: {name}"), None, None)
            .column("correlation", rounded(found.coefficient))
            .column("correlation_low", found.interval.and_then(|it| rounded(it.0)))
            .column("correlation_high", found.interval.and_then(|it| rounded(it.1)))
            .column("correlation_paper", paper)
            .column("circuits", found.count)
            .ended(
                CaseVerdict::Skipped,
                format!("{found} of {} circuits; paper {paper}", found.count),
            )
    };
    asked.into_iter().map(case).collect()
}

/// Figures 5, 6 and 7.
pub(super) fn figures(course: &Course) -> Vec<ExperimentFigure> {
    let dots =
        |name: &str, title: &str, x: &str, y: &str, of: &dyn Fn(&Probed) -> Option<(f64, f64)>| {
            let figure = ExperimentFigure::new(name, title, Axis::new(x), Axis::new(y));
            course.ways.iter().enumerate().fold(figure, |figure, (nth, (way, probed))| {
                let points = probed.iter().filter_map(of).collect();
                figure.with(Series::dots(way.name, Role::Nth(nth), points))
            })
        };
    let rtts: Vec<(&str, Vec<f64>)> = course
        .ways
        .iter()
        .map(|(way, probed)| (way.name, probed.iter().filter_map(rtt_ms).collect()))
        .collect();
    vec![
        dots("figure-5", "Round trip and set-up", "set-up in ms", "round trip in ms", &|it| {
            Some((setup_ms(it)?, rtt_ms(it)?))
        }),
        dots("figure-6", "Throughput and round trip", "round trip in ms", "kB/s", &|it| {
            Some((rtt_ms(it)?, it.throughput_kb_s?))
        }),
        ExperimentFigure::distributions(
            "figure-7",
            "Round trips by strategy",
            "ms",
            rtts.iter().map(|(name, rtts)| (*name, rtts.as_slice())),
        ),
    ]
}

pub(super) fn notes(is_flat: bool) -> Vec<String> {
    let mut notes = vec![
        "Nobody else uses the network: relays are idle but for what is probed. In the paper set-up and round trips were better on weighted paths because \
         slow relays were overloaded; here only throughput can show that."
            .to_owned(),
        "Intervals are of 95 %: of means by Student's distribution, of correlations by Fisher's transformation.".to_owned(),
        "The adversary of `compromised_share` has the largest relays, up to 0.55 of the weight: two of nine.".to_owned(),
        "Rates of relays are tor's own limits; a bucket that is full at first makes short downloads faster than the rate.".to_owned(),
    ];
    if is_flat {
        notes.push("Without root, or with --flat, all is on loopback: no distances, no geography, no truth for links.".to_owned());
    }
    notes
}

pub(super) fn answer(report: &ExperimentReport) -> String {
    let is_judged = |it: &&Case| it.verdict != CaseVerdict::Skipped;
    let judged: Vec<&Case> = report.cases.iter().filter(is_judged).collect();
    let held = judged.iter().filter(|it| it.verdict == CaseVerdict::Held).count();
    let open = judged.iter().filter(|it| it.verdict == CaseVerdict::Inconclusive).count();
    format!("{held} of {} comparisons held; {open} could be chance.", judged.len())
}

pub(super) fn held(report: &ExperimentReport) -> bool {
    let is_bad = |it: &Case| matches!(it.verdict, CaseVerdict::Missed | CaseVerdict::Failed);
    let has_held = report.cases.iter().any(|it| it.verdict == CaseVerdict::Held);
    has_held && !report.cases.iter().any(is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chance_can_do_decides_nothing() {
        assert_eq!(decided(0.3, Some(0.2)), CaseVerdict::Held);
        assert_eq!(decided(-0.3, Some(0.2)), CaseVerdict::Missed);
        assert_eq!(decided(0.1, Some(0.2)), CaseVerdict::Inconclusive);
        assert_eq!(decided(9.0, None), CaseVerdict::Inconclusive, "one value");
    }

    #[test]
    fn a_quotient_is_as_unsure_as_both_its_parts() {
        let exact = Interval { mean: 4.0, half_width: Some(0.0), count: 9 };
        let unsure = Interval { mean: 2.0, half_width: Some(0.2), count: 9 };
        assert_eq!(quotient(unsure, exact), (0.5, Some(0.05)));
        let one = Interval { mean: 2.0, half_width: None, count: 1 };
        assert_eq!(quotient(one, exact).1, None);
    }
}
