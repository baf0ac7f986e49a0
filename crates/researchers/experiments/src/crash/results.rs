//! The report on all rounds.

use super::CrashGrid;
use super::judge::BOUNDS;
use super::plan::{Fault, PlannedRound, Victim};
use super::round::{CrashRound, TOLERANCE};
use crate::grid::Rows;
use crate::reporting::{self, parameter};
use coordinator::Params;
use onion::Duration;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Role, Series,
};
use serde::{Deserialize, Serialize};

/// The resolution of times: processes are polled every 10 ms.
const LEAST_S: f64 = 0.01;

/// The kinds of victims, with their names and roles in figures.
const KINDS: [(Victim, &str, Role); 3] = [
    (Victim::Measurer(0), "measurer", Role::Nth(0)),
    (Victim::Coordinator, "coordinator", Role::Nth(1)),
    (Victim::Target, "target", Role::Nth(2)),
];

/// The times of a round in seconds. They count from its start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RoundTimes {
    number: u32,
    /// Who was killed, and when; `None` in a control.
    kill: Option<(Victim, f64)>,
    /// See [`CrashRound::took`].
    took: Option<f64>,
    deadline: f64,
}

impl CrashRound {
    pub(super) fn times(&self) -> RoundTimes {
        RoundTimes {
            number: self.plan.number,
            kill: self.kill.map(|(at, _)| (self.plan.victim, at.as_secs_f64())),
            took: self.took().map(|took| took.as_secs_f64()),
            deadline: self.deadline.as_secs_f64(),
        }
    }
}

impl RoundTimes {
    fn is_kind(&self, kind: Victim) -> bool {
        match (self.kill, kind) {
            (Some((Victim::Measurer(_), _)), Victim::Measurer(_)) => true,
            (Some((victim, _)), kind) => victim == kind,
            (None, _) => false,
        }
    }
}

/// Adds the answer, the parameters and the figures.
pub(super) fn conclude(
    grid: &CrashGrid,
    rows: Rows<'_, PlannedRound>,
    report: &mut ExperimentReport,
) {
    let rounds: Vec<RoundTimes> = rows.data::<Vec<_>>().flat_map(|(_, times)| times).collect();
    let CrashGrid { params, fault, .. } = grid;
    let kill_count = kills(&rounds).count();
    report.answer = answer(&rounds, &report.cases, *fault);
    report.parameters = vec![
        parameter("rounds with a victim", kill_count),
        parameter("controls", rounds.len() - kill_count),
        parameter("victims are", fault.participle()),
        parameter("seconds of a round", params.seconds),
        parameter("seed", grid.seed),
        parameter("limit of the relay", grid.limit),
        parameter("set-up timeout", format!("{} s", params.setup_timeout.as_secs())),
        parameter("grace for reports", format!("{} s", params.report_grace.as_secs())),
        parameter("tolerance", format!("{} s", TOLERANCE.as_secs())),
    ];
    report.figures = vec![distribution(&rounds, params), moments(&rounds)];
}

/// The rounds with a victim.
fn kills(rounds: &[RoundTimes]) -> impl Iterator<Item = &RoundTimes> {
    rounds.iter().filter(|round| round.kill.is_some())
}

fn answer(rounds: &[RoundTimes], cases: &[Case], fault: Fault) -> String {
    let done = fault.participle();
    let killed = |kind| rounds.iter().filter(|round| round.is_kind(kind)).count();
    let [measurers, coordinators, targets] = KINDS.map(|(kind, ..)| killed(kind));
    let took = || kills(rounds).filter_map(|round| round.took);
    let slowest = took().fold(0.0, f64::max);
    let median = reporting::median(took()).unwrap_or_default();
    let ratios: Vec<f64> = cases.iter().filter_map(|case| case.ratio).collect();
    let (inside, outside): (Vec<f64>, Vec<f64>) =
        ratios.iter().partition(|ratio| BOUNDS.contains(*ratio));
    let (low, high) = ratios
        .iter()
        .fold((f64::MAX, 0.0_f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
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
fn distribution(rounds: &[RoundTimes], params: &Params) -> ExperimentFigure {
    let times = KINDS.map(|(kind, name, _)| {
        let rounds = rounds.iter().filter(|round| round.is_kind(kind));
        let times = rounds.filter_map(|round| round.took).map(|took| took.max(LEAST_S));
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
fn moments(rounds: &[RoundTimes]) -> ExperimentFigure {
    let mut figure = ExperimentFigure::new(
        "moments",
        "Time to the end by the moment of the kill",
        Axis::new("moment of the kill, in seconds of the round"),
        Axis::new("seconds from the kill to the end").log(),
    )
    .caption("Each dot is a round, with the time left until its deadline.");
    let deadlines = rounds.iter().filter_map(|round| {
        let (_, at) = round.kill?;
        Some((at, (round.deadline - at).max(0.0)))
    });
    figure = figure.with(Series::dots("deadline", Role::Problem, deadlines.collect()));
    for (kind, name, role) in KINDS {
        let dot = |round: &RoundTimes| {
            let point = (round.kill?.1, round.took?.max(LEAST_S));
            Some((format!("round {}", round.number), point))
        };
        let rounds = rounds.iter().filter(|round| round.is_kind(kind));
        let (labels, points) = rounds.filter_map(dot).unzip();
        figure = figure.with(Series::dots(name, role, points).labels(labels));
    }
    figure
}
