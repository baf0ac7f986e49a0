//! The results, compared with the paper's.

use super::TEXT;
use super::claims::{self, correlations, table_iii};
use super::pages;
use super::quiet;
use super::scene::SelectionNetwork;
use super::ways::NamedStrategy;
use super::{Course, RULES, users};
use crate::error::{Error, Result};
use crate::reporting::{median, section};
use crate::simulated::Interval;
use client::anonymity::{Adversary, Study, Weights};
use client::path::Need;
use client::probe::Probed;
use lab::processors::Load;
use netdoc::Fingerprint;
use onion::Duration;
use rand::rngs::StdRng;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Role, Series,
};

/// A relay up to this rate in Mbit/s is slow; from [`FAST_MBIT`] on it is fast.
const SLOW_MBIT: f64 = 1.0;
const FAST_MBIT: f64 = 8.0;
/// Of its limit: what downloads fill of a relay that is full, next to cells, TLS, and downloads that are under way still.
const FULL: f64 = 0.6;
/// Of its limit: a relay that has less to carry is not in anybody's way.
const FREE: f64 = 0.4;

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn setup_ms(probed: &Probed) -> Option<f64> {
    probed.setup().map(ms)
}

pub(super) fn rtt_ms(probed: &Probed) -> Option<f64> {
    probed.mean_rtt().map(ms)
}

pub(super) fn of(all: &[Probed], value: impl Fn(&Probed) -> Option<f64>) -> Interval {
    Interval::of(&all.iter().filter_map(value).collect::<Vec<_>>())
}

pub(super) fn rounded(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1e4).round() / 1e4)
}

pub(super) fn rate(probed: &Probed) -> Option<f64> {
    probed.throughput_kb_s
}

/// Columns of a mean and its interval.
pub(super) fn with(case: Case, name: &str, it: Interval) -> Case {
    case.column(name, rounded(it.mean))
        .column(&format!("{name}_interval"), it.half_width.and_then(rounded))
}

/// All cases: strategies, comparisons, lengths, links, correlations.
pub(super) fn cases(
    course: &Course,
    scene: &SelectionNetwork,
    rng: &mut StdRng,
) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (way, probed) in &course.ways {
        cases.push(strategy(way, probed, scene, rng)?);
    }
    let (load, condition) = users(course, scene);
    cases.extend(load);
    let found = |name: &str| {
        let found = course.ways.iter().find(|(way, _)| way.name == name);
        found.map(|(_, probed)| probed.as_slice())
    };
    if let (Some(uniform), Some(weighted)) = (found("uniform"), found("weighted")) {
        cases.extend(table_iii(uniform, weighted, condition));
    }
    let has_distances = scene.countries().is_some();
    for (faster, slower) in [("latency", "uniform"), ("single-country-de", "unique-continents")] {
        if let (true, Some(fast), Some(slow)) = (has_distances, found(faster), found(slower)) {
            cases.push(shorter(faster, fast, slower, slow));
        }
    }
    cases.extend(lengths(course));
    cases.extend(pages::cases(&course.pages));
    cases.extend(course.quiet.as_ref().and_then(|(model, load)| quiet::links(model, scene, *load)));
    let of_ways = course.ways.iter().filter(|(way, _)| matches!(way.name, "uniform" | "weighted"));
    let all: Vec<&Probed> =
        of_ways.flat_map(|(_, probed)| probed).chain(&course.learning).collect();
    cases.extend(correlations(&all));
    Ok(cases)
}

/// How users, and the probes, have loaded relays: slow ones more than they can carry, fast ones hardly, as in the paper?
fn users(course: &Course, scene: &SelectionNetwork) -> (Option<Case>, claims::Users) {
    let Some(used) = &course.used else { return (None, claims::Users::Absent) };
    let probed = course.ways.iter().flat_map(|(_, probed)| probed).chain(&course.learning);
    let carried = |relay: &Fingerprint| {
        let count = |it: &Probed| it.throughput_kb_s.is_some() && it.path.contains(relay);
        let by_users =
            used.circuits.iter().filter(|it| count(it)).count() as f64 * users::BYTES as f64;
        by_users + probed.clone().filter(|it| count(it)).count() as f64 * course.bytes as f64
    };
    let seconds = used.lasted.as_secs_f64();
    let share = |is_such: fn(f64) -> bool| {
        let such = scene.limits().filter(|(_, limit)| is_such(limit.as_mbit_per_s()));
        let shares =
            such.map(|(relay, limit)| carried(relay) / seconds / limit.as_byte_per_s() as f64);
        Interval::of(&shares.collect::<Vec<_>>()).mean
    };
    let (slow, fast) = (share(|it| it <= SLOW_MBIT), share(|it| it >= FAST_MBIT));
    let is_there = slow >= FULL && fast <= FREE;
    let rates = of(&used.circuits, rate);
    let (setup, failed) = (
        of(&used.circuits, setup_ms),
        used.circuits.iter().filter(|it| it.throughput_kb_s.is_none()).count(),
    );
    let case = Case::named("users load slow relays and no fast ones")
        .column("users", used.users)
        .column("circuits", used.circuits.len())
        .column("failed", failed)
        .column("slow_relays_used", rounded(slow))
        .column("fast_relays_used", rounded(fast));
    let case = with(with(case, "setup_ms", setup), "throughput_kb_s", rates);
    let told = format!(
        "{} users had {} downloads, {failed} failed, {rates:.0} kB/s each; downloads fill {:.0} % of relays up to {SLOW_MBIT} Mbit/s, {:.0} % of those from {FAST_MBIT} Mbit/s",
        used.users,
        used.circuits.len(),
        slow * 100.0,
        fast * 100.0,
    );
    let (verdict, condition) = match is_there {
        true => (CaseVerdict::Held, claims::Users::AsInPaper),
        false => (CaseVerdict::Inconclusive, claims::Users::TooFewOrMany),
    };
    (Some(case.ended(verdict, told)), condition)
}

fn strategy(
    way: &NamedStrategy,
    probed: &[Probed],
    scene: &SelectionNetwork,
    rng: &mut StdRng,
) -> Result<Case> {
    let need = Need::Port { port: scene.server().port(), is_ipv6: false };
    let view = scene.view();
    let study = Study { netdir: view, strategy: &*way.strategy, rules: RULES, need, pairs: 10_000 };
    let adversary = [Adversary::with_weight(view, 0.55, Weights::Largest, rng)];
    let cost = study.run(&adversary, rng);
    let cost = cost.map_err(|it| Error::Failed(format!("{}: {it}", way.name)))?;
    let (setup, rtt) = (of(probed, setup_ms), of(probed, rtt_ms));
    let rates = of(probed, rate);
    let failed = probed.iter().filter(|it| it.failure.is_some()).count();
    let case = Case::named(way.name)
        .column("strategy", way.name)
        .column("circuits", probed.len())
        .column("failed", failed);
    let setups: Vec<f64> = probed.iter().filter_map(setup_ms).collect();
    let least = setups.iter().copied().fold(f64::INFINITY, f64::min);
    let case = with(case, "setup_ms", setup)
        .column("setup_ms_median", median(setups).and_then(rounded))
        .column("setup_ms_least", rounded(least));
    let case = with(case, "rtt_ms", rtt)
        .column("rtt_ms_median", median(probed.iter().filter_map(rtt_ms)).and_then(rounded));
    let case = with(case, "throughput_kb_s", rates)
        .column("throughput_kb_s_median", median(probed.iter().filter_map(rate)).and_then(rounded))
        .column("path_bits", rounded(cost.path_bits))
        .column("guard_bits", rounded(cost.guard.entropy_bits))
        .column("middle_bits", rounded(cost.middle.entropy_bits))
        .column("exit_bits", rounded(cost.exit.entropy_bits))
        .column("compromised_share", rounded(cost.compromised[0]));
    let told = format!(
        "set up in {setup:.0} ms, round trip {rtt:.0} ms, {rates:.0} kB/s, {failed} failed; {:.2} bits, {:.1} % of paths compromised",
        cost.path_bits,
        cost.compromised[0] * 100.0,
    );
    let why = probed.iter().filter_map(|it| it.failure.as_deref()).next();
    let told =
        told + &why.map_or_else(String::new, |why| format!("; the first that failed: {why}"));
    // What cannot be measured at all is a failure; else the figures are for comparison.
    let verdict = if failed == probed.len() { CaseVerdict::Failed } else { CaseVerdict::Skipped };
    Ok(case.ended(verdict, told))
}

/// Whether a difference is above nothing, below, or within what chance can do.
pub(super) fn decided(difference: f64, half_width: Option<f64>) -> CaseVerdict {
    match half_width {
        Some(width) if difference > width => CaseVerdict::Held,
        Some(width) if difference < -width => CaseVerdict::Missed,
        _ => CaseVerdict::Inconclusive,
    }
}

fn shorter(faster: &str, fast: &[Probed], slower: &str, slow: &[Probed]) -> Case {
    let (fast, slow) = (of(fast, rtt_ms), of(slow, rtt_ms));
    let width = fast.half_width.zip(slow.half_width).map(|(a, b)| a.hypot(b));
    let verdict = decided(slow.mean - fast.mean, width);
    let case = Case::named(format!("round trips: {faster} below {slower}"));
    let case = with(case, "rtt_ms", fast);
    let told = format!("{fast:.0} ms, compared with {slow:.0} ms");
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
        let case = Case::named(format!("{hops} hops"))
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
        ExperimentFigure::distributions("figure-7", "Round trips by strategy", "ms", rtts),
    ]
}

pub(super) fn notes(is_flat: bool, users: u32, load: Load) -> Vec<String> {
    let mut notes = match users {
        0 => section(TEXT, "Without users"),
        _ => vec![format!(
            "{users} users with paths that they choose uniformly each have a download of {} kB under way at any time; the probes are additional, seven circuits at a \
             time. Their load of a relay is counted by completed downloads, without cells' headers and TLS.",
            users::BYTES / 1000
        )],
    };
    notes.extend(section(TEXT, "Notes"));
    notes.push(format!("While strategies were probed the processors were {:.0} % busy, with whatever runs on this machine.", load.machine * 100.0));
    if is_flat {
        notes.extend(section(TEXT, "Without distances"));
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
}
