//! The results, compared with the paper's.

use super::claims::{FAST_MBIT, SLOW_MBIT, UserLoad, correlations, table_iii};
use super::links;
use super::network::SelectionNetwork;
use super::pages;
use super::strategies::NamedStrategy;
use super::{Measurements, RULES, users};
use crate::columns;
use crate::error::{Error, Result};
use crate::reporting::{median, section};
use crate::simulated::Interval;
use client::anonymity::{Adversary, Study, Weights};
use client::path::Need;
use client::probe::Probed;
use lab::processors::Load;
use netdoc::RsaId;
use onion::Duration;
use rand::rngs::StdRng;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Role, Series,
};

pub(super) const TEXT: &str = include_str!("../../../../../docs/experiments/selection.md");

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
    Interval::of(all.iter().filter_map(value))
}

/// The precision of columns.
pub(super) const DIGITS: i32 = 4;

pub(super) fn rounded(value: f64) -> Option<f64> {
    columns::rounded(value, DIGITS)
}

pub(super) fn rate(probed: &Probed) -> Option<f64> {
    probed.throughput_kb_s
}

/// Adds columns of a mean and its interval.
pub(super) fn with(case: Case, name: &str, interval: Interval) -> Case {
    case.column(name, rounded(interval.mean))
        .column(&format!("{name}_interval"), interval.half_width.and_then(rounded))
}

/// All cases.
pub(super) fn cases(
    measurements: &Measurements,
    network: &SelectionNetwork,
    rng: &mut StdRng,
) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (strategy, probed) in &measurements.strategies {
        cases.push(strategy_case(strategy, probed, network, rng)?);
    }
    let (case, load) = users(measurements, network);
    cases.extend(case);
    let found = |name: &str| {
        let found = measurements.strategies.iter().find(|(strategy, _)| strategy.name == name);
        found.map(|(_, probed)| probed.as_slice())
    };
    if let (Some(uniform), Some(weighted)) = (found("uniform"), found("weighted")) {
        cases.extend(table_iii(uniform, weighted, load));
    }
    let has_distances = network.countries().is_some();
    for (faster, slower) in [("latency", "uniform"), ("single-country-de", "unique-continents")] {
        if let (true, Some(fast), Some(slow)) = (has_distances, found(faster), found(slower)) {
            cases.push(shorter(faster, fast, slower, slow));
        }
    }
    cases.extend(lengths(measurements));
    cases.extend(pages::cases(&measurements.pages));
    let idle_links = measurements.idle_links.as_ref();
    cases.extend(idle_links.and_then(|(model, load)| links::case(model, network, *load)));
    let both = [found("uniform"), found("weighted")].into_iter().flatten().flatten();
    let all: Vec<&Probed> = both.chain(&measurements.learning).collect();
    cases.extend(correlations(&all));
    Ok(cases)
}

/// The load of relays by users and probes. In the paper, slow relays are overloaded and fast ones hardly used.
fn users(measurements: &Measurements, network: &SelectionNetwork) -> (Option<Case>, UserLoad) {
    let Some(downloads) = &measurements.user_downloads else { return (None, UserLoad::None) };
    let probed = measurements.strategies.iter().flat_map(|(_, probed)| probed);
    let probed = probed.chain(&measurements.learning);
    let carried = |relay: &RsaId| {
        let is_through =
            |probed: &&Probed| probed.throughput_kb_s.is_some() && probed.path.contains(relay);
        let by_users = downloads.circuits.iter().filter(is_through).count();
        let by_probes = probed.clone().filter(is_through).count();
        by_users as f64 * users::BYTES as f64 + by_probes as f64 * measurements.bytes as f64
    };
    let seconds = downloads.lasted.as_secs_f64();
    let share = |matches: fn(f64) -> bool| {
        let relays = network.limits().filter(|(_, limit)| matches(limit.as_mbit_per_s()));
        let shares =
            relays.map(|(relay, limit)| carried(relay) / seconds / limit.as_byte_per_s() as f64);
        Interval::of(shares).mean
    };
    let (slow, fast) = (share(|mbit| mbit <= SLOW_MBIT), share(|mbit| mbit >= FAST_MBIT));
    let (rates, setup) = (of(&downloads.circuits, rate), of(&downloads.circuits, setup_ms));
    let failed =
        downloads.circuits.iter().filter(|circuit| circuit.throughput_kb_s.is_none()).count();
    let case = Case::named("users load slow relays and no fast ones")
        .column("users", downloads.users)
        .column("circuits", downloads.circuits.len())
        .column("failed", failed)
        .column("slow_relays_used", rounded(slow))
        .column("fast_relays_used", rounded(fast));
    let case = with(with(case, "setup_ms", setup), "throughput_kb_s", rates);
    let detail = format!(
        "{} users had {} downloads, {failed} failed, {rates:.0} kB/s each; downloads fill {:.0} % of relays up to {SLOW_MBIT} Mbit/s, {:.0} % of those from {FAST_MBIT} Mbit/s",
        downloads.users,
        downloads.circuits.len(),
        slow * 100.0,
        fast * 100.0,
    );
    let load = UserLoad::from_shares(slow, fast);
    let verdict = match load {
        UserLoad::AsInPaper => CaseVerdict::Held,
        UserLoad::Different | UserLoad::None => CaseVerdict::Inconclusive,
    };
    (Some(case.ended(verdict, detail)), load)
}

fn strategy_case(
    strategy: &NamedStrategy,
    probed: &[Probed],
    network: &SelectionNetwork,
    rng: &mut StdRng,
) -> Result<Case> {
    let need = Need::Port { port: network.server().port(), is_ipv6: false };
    let view = network.view();
    let study = Study {
        netdir: view,
        strategy: &*strategy.strategy,
        rules: RULES,
        need,
        legs: 1,
        pairs: 10_000,
    };
    let adversary = [Adversary::with_weight(view, 0.55, Weights::Largest, rng)];
    let cost = study.run(&adversary, rng);
    let cost = cost.map_err(|error| Error::Failed(format!("{}: {error}", strategy.name)))?;
    let (setup, rtt) = (of(probed, setup_ms), of(probed, rtt_ms));
    let rates = of(probed, rate);
    let failed = probed.iter().filter(|probed| probed.failure.is_some()).count();
    let case = Case::named(strategy.name)
        .column("strategy", strategy.name)
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
    let mut detail = format!(
        "set up in {setup:.0} ms, round trip {rtt:.0} ms, {rates:.0} kB/s, {failed} failed; {:.2} bits, {:.1} % of paths compromised",
        cost.path_bits,
        cost.compromised[0] * 100.0,
    );
    if let Some(failure) = probed.iter().find_map(|probed| probed.failure.as_deref()) {
        detail += &format!("; the first failure: {failure}");
    }
    // A strategy itself promises nothing; it fails only if all circuits fail.
    let verdict = if failed == probed.len() { CaseVerdict::Failed } else { CaseVerdict::Reported };
    Ok(case.ended(verdict, detail))
}

/// Held if a difference is positive beyond chance, missed if it is negative beyond chance.
fn decided(difference: f64, half_width: Option<f64>) -> CaseVerdict {
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
    let detail = format!("{fast:.0} ms, compared with {slow:.0} ms");
    with(case, "compared_rtt_ms", slow).ended(verdict, detail)
}

/// Tables I and II, and figure 4.
fn lengths(measurements: &Measurements) -> Vec<Case> {
    let of_length = |hops: usize| {
        let all = measurements.lengths.iter().chain(&measurements.learning);
        all.filter(move |probed| probed.path.len() == hops).cloned().collect::<Vec<Probed>>()
    };
    let mut cases = Vec::new();
    for hops in 2..=4 {
        let all = of_length(hops);
        let (setup, rtt) = (of(&all, setup_ms), of(&all, rtt_ms));
        let failed = all.iter().filter(|probed| probed.setup().is_none()).count();
        let case = Case::named(format!("{hops} hops"))
            .column("hops", hops)
            .column("circuits", all.len())
            .column("failed", failed);
        let mut case = with(with(case, "setup_ms", setup), "rtt_ms", rtt);
        let mut steps = Vec::new();
        for place in 0..hops {
            let before = |probed: &Probed| match place {
                0 => Some(0.0),
                _ => probed.hop_times.get(place - 1).copied().map(ms),
            };
            let step = of(&all, |probed| Some(ms(*probed.hop_times.get(place)?) - before(probed)?));
            let name = if place == 0 { "create" } else { &format!("extend_{place}") };
            case = with(case, &format!("{name}_ms"), step);
            steps.push(format!("{step:.0}"));
        }
        let detail = format!(
            "set up in {setup:.0} ms (hop by hop {}), round trip {rtt:.0} ms, {failed} of {} failed",
            steps.join(", "),
            all.len()
        );
        cases.push(case.ended(CaseVerdict::Reported, detail));
    }
    cases
}

/// Figures 5, 6 and 7.
pub(super) fn figures(measurements: &Measurements) -> Vec<ExperimentFigure> {
    let dots =
        |name: &str, title: &str, x: &str, y: &str, of: &dyn Fn(&Probed) -> Option<(f64, f64)>| {
            let figure = ExperimentFigure::new(name, title, Axis::new(x), Axis::new(y));
            let all = measurements.strategies.iter().enumerate();
            all.fold(figure, |figure, (nth, (strategy, probed))| {
                let points = probed.iter().filter_map(of).collect();
                figure.with(Series::dots(strategy.name, Role::Nth(nth), points))
            })
        };
    let rtts: Vec<(&str, Vec<f64>)> = measurements
        .strategies
        .iter()
        .map(|(strategy, probed)| (strategy.name, probed.iter().filter_map(rtt_ms).collect()))
        .collect();
    vec![
        dots("figure-5", "Round trip and set-up", "set-up in ms", "round trip in ms", &|probed| {
            Some((setup_ms(probed)?, rtt_ms(probed)?))
        }),
        dots("figure-6", "Throughput and round trip", "round trip in ms", "kB/s", &|probed| {
            Some((rtt_ms(probed)?, probed.throughput_kb_s?))
        }),
        ExperimentFigure::distributions("figure-7", "Round trips by strategy", "ms", rtts),
    ]
}

pub(super) fn notes(is_flat: bool, users: u32, load: Load) -> Vec<String> {
    let mut notes = match users {
        0 => section(TEXT, "Without users"),
        _ => vec![format!(
            "Each of the {users} users always has a download of {} kB over a uniformly chosen path; the probes are additional, seven circuits at a \
             time. The load of a relay counts completed downloads, without cell headers and TLS.",
            users::BYTES / 1000
        )],
    };
    notes.push(format!("While strategies were probed, the processors were {:.0} % busy with all processes of this machine.", load.machine * 100.0));
    if is_flat {
        notes.extend(section(TEXT, "Without distances"));
    }
    notes
}

pub(super) fn answer(report: &ExperimentReport) -> String {
    let is_judged = |case: &&Case| case.verdict.is_judged();
    let judged: Vec<&Case> = report.cases.iter().filter(is_judged).collect();
    let held = judged.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    let open = judged.iter().filter(|case| case.verdict == CaseVerdict::Inconclusive).count();
    format!("{held} of {} comparisons held; {open} are within chance.", judged.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_within_chance_is_inconclusive() {
        assert_eq!(decided(0.3, Some(0.2)), CaseVerdict::Held);
        assert_eq!(decided(-0.3, Some(0.2)), CaseVerdict::Missed);
        assert_eq!(decided(0.1, Some(0.2)), CaseVerdict::Inconclusive);
        assert_eq!(decided(9.0, None), CaseVerdict::Inconclusive, "one value");
    }
}
