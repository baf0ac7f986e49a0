//! What the rounds come to, as a report.

use super::Options;
use super::judge::BOUNDS;
use super::plan::{Blow, Victim};
use super::round::{CrashRound, TOLERANCE};
use crate::reporting;
use coordinator::Params;
use onion::{Duration, Rate};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Role, Series,
};

/// Less than this cannot be seen, since we look every 10 ms.
const LEAST_S: f64 = 0.01;

/// The kinds of victims, with their names and how they are drawn.
const KINDS: [(Victim, &str, Role); 3] = [
    (Victim::Measurer(0), "measurer", Role::Nth(0)),
    (Victim::Coordinator, "coordinator", Role::Nth(1)),
    (Victim::Target, "target", Role::Nth(2)),
];

fn is_kind(played: &CrashRound, kind: Victim) -> bool {
    match (played.fate.victim, kind) {
        (Victim::Measurer(_), Victim::Measurer(_)) => played.kill.is_some(),
        (victim, kind) => victim == kind && played.kill.is_some(),
    }
}

pub(super) fn report(
    options: &Options,
    rounds: &[CrashRound],
    cases: Vec<Case>,
    params: &Params,
    limit: Rate,
) -> ExperimentReport {
    let blow = if options.freeze { Blow::Freeze } else { Blow::Kill };
    let answer = answer(rounds, &cases, blow);
    let setup_s = params.setup_timeout.as_secs();
    let grace_s = params.report_grace.as_secs();
    let text = include_str!("../../../../docs/experiments/crash.md");
    let mut report = reporting::report("crash", text);
    report.answer = answer;
    report.cases = cases;
    report.parameters = [
        ("rounds with a victim", kills(rounds).count().to_string()),
        ("controls", (rounds.len() - kills(rounds).count()).to_string()),
        ("victims are", blow.done().to_owned()),
        ("seconds of a round", params.seconds.to_string()),
        ("seed", options.seed.to_string()),
        ("limit of the relay", format!("{limit}")),
        ("set-up timeout", format!("{setup_s} s")),
        ("grace for reports", format!("{grace_s} s")),
        ("tolerance", format!("{} s", TOLERANCE.as_secs())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    report.figures = vec![distribution(rounds, params), moments(rounds)];
    report
}

/// The rounds in which somebody was killed.
fn kills(rounds: &[CrashRound]) -> impl Iterator<Item = &CrashRound> {
    rounds.iter().filter(|played| played.kill.is_some())
}

/// In one sentence, with the figures.
fn answer(rounds: &[CrashRound], cases: &[Case], blow: Blow) -> String {
    let done = blow.done();
    let killed = |kind| rounds.iter().filter(|played| is_kind(played, kind)).count();
    let [measurers, coordinators, targets] = KINDS.map(|(kind, ..)| killed(kind));
    let took = || kills(rounds).filter_map(CrashRound::took).map(|took| took.as_secs_f64());
    let slowest = took().fold(0.0, f64::max);
    let middle = reporting::median(took()).unwrap_or_default();
    let ratios: Vec<f64> = cases.iter().filter_map(|case| case.ratio).collect();
    let (inside, outside): (Vec<f64>, Vec<f64>) =
        ratios.iter().partition(|ratio| BOUNDS.contains(*ratio));
    let (low, high) =
        ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(*it), high.max(*it)));
    let missed: Vec<&Case> =
        cases.iter().filter(|case| case.verdict == CaseVerdict::Missed).collect();
    let failures = cases.iter().filter(|case| case.verdict == CaseVerdict::Refused).count();
    let numbers = if ratios.is_empty() {
        "no estimates".to_owned()
    } else {
        format!(
            "{} of {} estimates within −10 % and +5 % of the limit, all from {low:.3} to {high:.3} of it",
            inside.len(),
            ratios.len()
        )
    };
    let so = if missed.is_empty() && outside.is_empty() {
        "no hang, no wrong number, nothing left behind".to_owned()
    } else if missed.is_empty() {
        // Not to be passed over: the promise is about the limit.
        format!(
            "no hang, nothing left behind, but {} estimates are off the limit and were let pass since \
             they are marked as lower bounds, or a result of the burst that the limit allows",
            outside.len()
        )
    } else {
        format!("{} rounds were not as they should be", missed.len())
    };
    format!(
        "In {} rounds a measurer was {done} {measurers} times, the coordinator {coordinators} and \
         the target {targets}; {} more were controls: {so}. Survivors ended {middle:.2} s after that in \
         the median, {slowest:.2} s at most; {failures} named failures, {numbers}.",
        kills(rounds).count(),
        rounds.len() - kills(rounds).count(),
    )
}

/// Time from kill to end, by victim.
fn distribution(rounds: &[CrashRound], params: &Params) -> ExperimentFigure {
    let times = KINDS.map(|(kind, name, _)| {
        let rounds = rounds.iter().filter(|played| is_kind(played, kind));
        let times = rounds.filter_map(CrashRound::took).map(|took| took.as_secs_f64().max(LEAST_S));
        (name, times.collect::<Vec<f64>>())
    });
    let deadline = Duration::from_secs(u64::from(params.seconds)) + params.report_grace;
    let mut figure = ExperimentFigure::distributions(
        "to-end",
        "From the kill to the end of the last survivor",
        "seconds",
        times,
    )
    .caption(
        "A survivor's part has ended when it has no connection left, a coordinator's when its \
         process has. The deadline is that of a round whose first cell has just arrived; before, \
         there is more time.",
    )
    .mark(On::X, deadline.as_secs_f64(), "deadline", Role::Problem);
    figure.x = figure.x.log().showing(LEAST_S, deadline.as_secs_f64());
    figure
}

/// The distribution over the moment of the kill.
fn moments(rounds: &[CrashRound]) -> ExperimentFigure {
    let mut figure = ExperimentFigure::new(
        "moments",
        "Time to end by the moment of the kill",
        Axis::new("second of the round in which somebody was killed"),
        Axis::new("seconds from the kill to the end").log(),
    )
    .caption("Each dot is a round; above it is the deadline that it had left.");
    let at = |played: &CrashRound| played.kill.map(|(at, _)| at);
    let deadlines = rounds.iter().filter_map(|played| {
        let at = at(played)?;
        Some((at.as_secs_f64(), played.deadline.saturating_sub(at).as_secs_f64()))
    });
    figure = figure.with(Series::dots("deadline", Role::Problem, deadlines.collect()));
    for (kind, name, role) in KINDS {
        let dots: Vec<(&CrashRound, (f64, f64))> = rounds
            .iter()
            .filter(|played| is_kind(played, kind))
            .filter_map(|played| {
                let took = played.took()?.as_secs_f64().max(LEAST_S);
                Some((played, (at(played)?.as_secs_f64(), took)))
            })
            .collect();
        let labels = dots.iter().map(|(played, _)| format!("round {}", played.fate.number));
        let labels = labels.collect();
        let points = dots.into_iter().map(|(_, point)| point).collect();
        figure = figure.with(Series::dots(name, role, points).labels(labels));
    }
    figure
}
