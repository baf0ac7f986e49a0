//! The report on all rounds.

use super::Options;
use super::judge::BOUNDS;
use super::plan::{Fault, Victim};
use super::round::{CrashRound, TOLERANCE};
use crate::reporting::{self, parameter};
use coordinator::Params;
use onion::{Duration, Rate};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Role, Series,
};

/// The resolution of times: processes are polled every 10 ms.
const LEAST_S: f64 = 0.01;

/// The kinds of victims, with their names and roles in figures.
const KINDS: [(Victim, &str, Role); 3] = [
    (Victim::Measurer(0), "measurer", Role::Nth(0)),
    (Victim::Coordinator, "coordinator", Role::Nth(1)),
    (Victim::Target, "target", Role::Nth(2)),
];

fn is_kind(round: &CrashRound, kind: Victim) -> bool {
    match (round.plan.victim, kind) {
        (Victim::Measurer(_), Victim::Measurer(_)) => round.kill.is_some(),
        (victim, kind) => victim == kind && round.kill.is_some(),
    }
}

pub(super) fn report(
    options: &Options,
    rounds: &[CrashRound],
    cases: Vec<Case>,
    params: &Params,
    limit: Rate,
) -> ExperimentReport {
    let fault = if options.freeze { Fault::Freeze } else { Fault::Kill };
    let kill_count = kills(rounds).count();
    let text = include_str!("../../../../../docs/experiments/crash.md");
    ExperimentReport {
        answer: answer(rounds, &cases, fault),
        parameters: vec![
            parameter("rounds with a victim", kill_count),
            parameter("controls", rounds.len() - kill_count),
            parameter("victims are", fault.participle()),
            parameter("seconds of a round", params.seconds),
            parameter("seed", options.seed),
            parameter("limit of the relay", limit),
            parameter("set-up timeout", format!("{} s", params.setup_timeout.as_secs())),
            parameter("grace for reports", format!("{} s", params.report_grace.as_secs())),
            parameter("tolerance", format!("{} s", TOLERANCE.as_secs())),
        ],
        figures: vec![distribution(rounds, params), moments(rounds)],
        cases,
        ..reporting::report("crash", text)
    }
}

/// The rounds with a victim.
fn kills(rounds: &[CrashRound]) -> impl Iterator<Item = &CrashRound> {
    rounds.iter().filter(|round| round.kill.is_some())
}

fn answer(rounds: &[CrashRound], cases: &[Case], fault: Fault) -> String {
    let done = fault.participle();
    let killed = |kind| rounds.iter().filter(|round| is_kind(round, kind)).count();
    let [measurers, coordinators, targets] = KINDS.map(|(kind, ..)| killed(kind));
    let took = || kills(rounds).filter_map(CrashRound::took).map(|took| took.as_secs_f64());
    let slowest = took().fold(0.0, f64::max);
    let median = reporting::median(took()).unwrap_or_default();
    let ratios: Vec<f64> = cases.iter().filter_map(|case| case.ratio).collect();
    let (inside, outside): (Vec<f64>, Vec<f64>) =
        ratios.iter().partition(|ratio| BOUNDS.contains(*ratio));
    let (low, high) =
        ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(*it), high.max(*it)));
    let missed: Vec<&Case> =
        cases.iter().filter(|case| case.verdict == CaseVerdict::Missed).collect();
    let failures = cases.iter().filter(|case| case.verdict == CaseVerdict::Refused).count();
    let estimates = if ratios.is_empty() {
        "no estimates".to_owned()
    } else {
        format!(
            "{} of {} estimates within −10 % and +5 % of the limit, all from {low:.3} to {high:.3} of it",
            inside.len(),
            ratios.len()
        )
    };
    let summary = if missed.is_empty() && outside.is_empty() {
        "nothing hung, no estimate was wrong, nothing was left".to_owned()
    } else if missed.is_empty() {
        format!(
            "nothing hung, nothing was left, but {} estimates differ from the limit: they are marked as lower bounds, or include the burst \
             that the limit allows",
            outside.len()
        )
    } else {
        format!("{} rounds missed", missed.len())
    };
    format!(
        "In {} rounds a measurer was {done} {measurers} times, the coordinator {coordinators} and the target {targets} times; {} more \
         rounds were controls: {summary}. Survivors ended {median:.2} s later in the median, {slowest:.2} s at most; {failures} failures \
         that name the victim, {estimates}.",
        kills(rounds).count(),
        rounds.len() - kills(rounds).count(),
    )
}

/// The time from the kill to the end of the last survivor, by kind of victim.
fn distribution(rounds: &[CrashRound], params: &Params) -> ExperimentFigure {
    let times = KINDS.map(|(kind, name, _)| {
        let rounds = rounds.iter().filter(|round| is_kind(round, kind));
        let times = rounds.filter_map(CrashRound::took).map(|took| took.as_secs_f64().max(LEAST_S));
        (name, times.collect::<Vec<f64>>())
    });
    let deadline = Duration::from_secs(u64::from(params.seconds)) + params.report_grace;
    let mut figure = ExperimentFigure::distributions(
        "to-end",
        "Time from the kill to the end of the last survivor",
        "seconds",
        times,
    )
    .caption(
        "A survivor has ended its part when it has no connections, a coordinator when its process has exited. \
         The deadline is that of a round whose first cell has just arrived; before, it is later.",
    )
    .mark(On::X, deadline.as_secs_f64(), "deadline", Role::Problem);
    figure.x = figure.x.log().showing(LEAST_S, deadline.as_secs_f64());
    figure
}

/// Time from the kill to the end, by the moment of the kill.
fn moments(rounds: &[CrashRound]) -> ExperimentFigure {
    let mut figure = ExperimentFigure::new(
        "moments",
        "Time to the end by the moment of the kill",
        Axis::new("moment of the kill, in seconds of the round"),
        Axis::new("seconds from the kill to the end").log(),
    )
    .caption("Each dot is a round, with the time left until its deadline.");
    let at = |round: &CrashRound| round.kill.map(|(at, _)| at);
    let deadlines = rounds.iter().filter_map(|round| {
        let at = at(round)?;
        Some((at.as_secs_f64(), round.deadline.saturating_sub(at).as_secs_f64()))
    });
    figure = figure.with(Series::dots("deadline", Role::Problem, deadlines.collect()));
    for (kind, name, role) in KINDS {
        let dots: Vec<(&CrashRound, (f64, f64))> = rounds
            .iter()
            .filter(|round| is_kind(round, kind))
            .filter_map(|round| {
                let took = round.took()?.as_secs_f64().max(LEAST_S);
                Some((round, (at(round)?.as_secs_f64(), took)))
            })
            .collect();
        let labels = dots.iter().map(|(round, _)| format!("round {}", round.plan.number));
        let labels = labels.collect();
        let points = dots.into_iter().map(|(_, point)| point).collect();
        figure = figure.with(Series::dots(name, role, points).labels(labels));
    }
    figure
}
