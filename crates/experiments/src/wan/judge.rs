//! Whether a run was true.

use super::fault::Fault;
use super::plan::{Path, Plan, What};
use super::scene::Timed;
use crate::error::Error;
use crate::mode::Mode;
use crate::telling::{pair, unplayed};
use crate::trial::{BOUNDS, Tried};
use coordinator::{Hindrance, Inconclusive, Outcome};
use lab::wan::Congestion;
use onion::Duration;
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise, Value};

pub(super) const TITLE: &str = "Are estimates true over real distances?";
pub(super) const QUESTION: &str = "Is no estimate called conclusive that is not within −10 % and +5 % of what \
                                   the relay carries without distance, and up to 200 ms and 0.1 % loss at \
                                   least 95 % conclusive?";

/// The share that has to be conclusive on ways that are not extreme.
const CONCLUSIVE_SHARE: f64 = 0.95;

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) case: Case,
    pub(super) path: Path,
    /// One of [`WORDS`].
    pub(super) verdict: &'static str,
    /// Whether it can be held against anything: not where the relay lacked a processor, or nothing went wrong though it was to.
    pub(super) is_trial: bool,
}

/// The column of what the relay carries without distance.
const NEAR: &str = "truth_near_mbit_per_s";

/// The least share of runs that have to be trials: of fewer this machine decides, and not the relays.
const TRIED_SHARE: f64 = 0.5;

const NO_PROCESSOR: &str = "no trial: the relay waited for a processor, so that nobody knows what it can do; it wants more processors, or less beside it";

const NO_TRUTH: &str =
    "no trial: what the relay carries could not be found out (why is told where it was tried)";

const NO_FAULT: &str = "no trial: it was over before anything went wrong";

/// What a measurement says of its own number.
const WORDS: [&str; 3] = ["conclusive", "lower_bound", "failed"];

impl Judged {
    pub(super) fn new(
        plan: &Plan,
        what: What,
        path: Path,
        near: Option<f64>,
        timed: Result<&Timed, &Error>,
    ) -> Self {
        let Path { rtt_ms, loss_percent, fault, .. } = path;
        let What { limit, .. } = what;
        let mode = what.mode.word();
        let congestion = what.congestion.to_string();
        let name = format!("{mode} {limit}, {path}, {congestion}");
        let tried = timed.map(|it| &it.tried);
        let estimate = tried.ok().and_then(Tried::estimate_mbit);
        let reason = tried.ok().and_then(Tried::estimate).map(|it| it.inconclusive);
        let (verdict, limited_by) = match reason {
            Some(None) => ("conclusive", "relay"),
            Some(Some(reason)) => ("lower_bound", limited_by(&reason)),
            None => ("failed", "unknown"),
        };
        // A relay of ours does not read what it could not send on: there the path back can be why it is behind. Stock tor reads on.
        let is_stock = what.mode == Mode::Transit;
        let behind = tried.ok().filter(|_| is_stock).and_then(Tried::sent_behind_mbit);
        let truth = behind.or(near);
        let fatal = fault.filter(|it| it.is_fatal());
        let is_trial = match (fatal, timed) {
            // Who is to blame does not hang on what the relay can do.
            (Some(_), Ok(timed)) => timed.took_since_fault.is_some(),
            // Right or wrong: what a relay carries that waits for a processor is not what it carried without distance.
            (None, Ok(_)) if behind.is_some() => true,
            (None, Ok(timed)) => truth.is_some() && !is_slowed(what.mode, &timed.tried),
            (_, Err(_)) => true,
        };
        let case = match truth {
            _ if !is_trial => {
                let case = Case::new(name, None, estimate);
                let why = match (fatal, truth) {
                    (Some(_), _) => NO_FAULT,
                    (None, None) => NO_TRUTH,
                    (None, Some(_)) => NO_PROCESSOR,
                };
                case.ended(CaseVerdict::Inconclusive, why)
            }
            None => Case::new(name, None, estimate)
                .ended(CaseVerdict::Failed, "what the relay carries is not known"),
            Some(truth) => Case::judged(name, truth, estimate, BOUNDS),
        };
        let case = match (tried, reason) {
            (Err(error), _) => case.ended(CaseVerdict::Failed, error.to_string()),
            (Ok(tried), None) => match &tried.outcome {
                // A failure with its reason is no wrong number.
                Outcome::Failed { .. } => {
                    case.ended(CaseVerdict::Inconclusive, tried.outcome.to_string())
                }
                Outcome::Measured(_) => case,
            },
            (Ok(_), Some(Some(reason))) => {
                case.ended(CaseVerdict::Inconclusive, reason.to_string())
            }
            (Ok(_), Some(None)) => case,
        };
        let case = match (fatal, timed) {
            (Some(fault), Ok(timed)) if is_trial => broken(plan, fault, timed, verdict, case),
            _ => case,
        };
        let rounds = tried.ok().and_then(Tried::estimate).map(|it| it.rounds);
        let case = case
            .column("mode", mode)
            .column("rtt_ms", rtt_ms)
            .column("loss_percent", loss_percent)
            .column("congestion", congestion)
            .column("limit_mbit_per_s", limit)
            .column("limited_by", limited_by)
            .column(NEAR, near)
            .column("truth_behind_mbit_per_s", behind)
            .column("fault", fault.map(Fault::words))
            .column("fault_at", fault.filter(|it| it.has_moment()).map(|_| path.fault_at.words()))
            .column("trial", is_trial)
            .column("blame", tried.ok().and_then(|it| it.outcome.blame()).map(|it| it.to_string()))
            .column("rounds", rounds)
            .column("sockets", tried.ok().and_then(|it| it.sockets))
            .column("took_s", timed.ok().map(|it| it.took.as_secs_f64()))
            .column(
                "took_since_fault_s",
                timed.ok().and_then(|it| it.took_since_fault).map(|it| it.as_secs_f64()),
            )
            .column("sent_mbit_per_s", tried.ok().and_then(Tried::sent_mbit))
            .column(
                "behind_percent",
                tried.ok().and_then(Tried::share_behind).map(|it| (it * 100.0).round()),
            )
            .column("seconds_mbit_per_s", tried.ok().map(Tried::seconds_text))
            .says(verdict);
        let case = match tried {
            Ok(tried) => tried.with_loads(case),
            Err(_) => case,
        };
        Self { case, path, verdict, is_trial }
    }

    /// Relays that could not be started.
    pub(super) fn unplayed(mode: Mode, congestion: Congestion, error: &Error) -> Self {
        let case = unplayed(format!("{}, {congestion}", mode.word()), error);
        Self { case, path: Path::NONE, verdict: "failed", is_trial: true }
    }

    /// The word of [`WORDS`] that this is; that of a failure if it is none.
    pub(super) fn word(text: &str) -> &'static str {
        WORDS.into_iter().find(|it| *it == text).unwrap_or("failed")
    }

    fn column(&self, name: &str) -> Option<&Value> {
        self.case.columns.iter().find(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// How many sockets the round that counts had.
    pub(super) fn sockets(&self) -> Option<u32> {
        u32::try_from(self.column("sockets")?.as_u64()?).ok()
    }

    /// What the relay carries over as many without distance: not what this run was held against, if the relay was behind in it.
    pub(super) fn near_mbit(&self) -> Option<f64> {
        self.column(NEAR)?.as_f64()
    }

    /// Not so far and not so lossy that a lower bound would be as good as anything.
    fn is_moderate(&self) -> bool {
        let Path { rtt_ms, loss_percent, fault, .. } = self.path;
        self.is_trial && rtt_ms <= 200 && loss_percent <= 0.1 && fault.is_none()
    }

    fn is_true(&self) -> bool {
        self.verdict == "conclusive" && self.case.verdict == CaseVerdict::Held
    }
}

/// Whether the relay may have done less than it can, since it waited for a processor. One of ours saves up what a delay costs it, unless it never sleeps.
pub(super) fn is_slowed(mode: Mode, tried: &Tried) -> bool {
    match mode {
        Mode::Transit => tried.waited_much(),
        Mode::Echo => tried.is_starved(),
    }
}

/// Where a path breaks, or a relay stops, there is no estimate to be had: a reason must come, and in time, and name who it was.
fn broken(plan: &Plan, fault: Fault, timed: &Timed, verdict: &str, case: Case) -> Case {
    let params = plan.params();
    // At the most the round goes on to its end, with its lead, and the next one is not set up in time.
    let longest = Duration::from_secs(u64::from(plan.seconds) + 6)
        + params.report_grace
        + params.setup_timeout;
    let took = timed.took_since_fault.unwrap_or(timed.took);
    let detail = case.detail.clone();
    if verdict == "conclusive" {
        let words = fault.words();
        case.ended(
            CaseVerdict::Missed,
            format!("conclusive, although something was wrong: {words}"),
        )
    } else if took > longest {
        let took_s = took.as_secs_f64();
        case.ended(
            CaseVerdict::Missed,
            format!("it took {took_s:.0} s from the fault on: {detail}"),
        )
    } else if detail.is_empty() {
        case.ended(CaseVerdict::Missed, "without a reason")
    } else if let Outcome::Failed { reason, .. } = &timed.tried.outcome
        && fault.is_blamed_wrongly(reason)
    {
        case.ended(CaseVerdict::Missed, format!("the wrong one is blamed: {detail}"))
    } else {
        case.ended(CaseVerdict::Held, detail)
    }
}

const fn limited_by(reason: &Inconclusive) -> &'static str {
    match reason {
        Inconclusive::PathLimited { .. }
        | Inconclusive::PathSettling { .. }
        | Inconclusive::PathUnknown { .. } => "path",
        Inconclusive::QueueOfOne { .. } => "unknown",
        Inconclusive::MeasurerHindered { hindered, .. } => match hindered.by {
            Hindrance::Path { .. } | Hindrance::Loss { .. } | Hindrance::Share { .. } => {
                "measurer's path"
            }
            Hindrance::Processor => "measurer's processor",
        },
        Inconclusive::TeamTooSmall { .. } | Inconclusive::LoadTooSmall { .. } => "assigned rate",
        Inconclusive::RoundLimit { .. } | Inconclusive::Unsteady { .. } => "unknown",
        Inconclusive::RelayStarved { .. } => "relay's processor",
    }
}

fn faults(plan: &Plan) -> String {
    let words: Vec<String> = plan.faulty_paths().map(|it| it.fault_words().join(" ")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

pub(super) fn report(
    plan: &Plan,
    runs: Vec<Judged>,
    missing: Option<String>,
    base: ExperimentReport,
) -> ExperimentReport {
    let is_false = |it: &&Judged| {
        it.case.verdict == CaseVerdict::Missed
            || (it.is_trial && it.verdict == "conclusive" && it.case.verdict != CaseVerdict::Held)
    };
    let trials = runs.iter().filter(|it| it.is_trial).count();
    let wrong = runs.iter().filter(is_false).count();
    let moderate = runs.iter().filter(|it| it.is_moderate()).count();
    let found = runs.iter().filter(|it| it.is_moderate() && it.is_true()).count();
    let conclusive = runs.iter().filter(|it| it.is_true()).count();
    let share = found as f64 / moderate.max(1) as f64;
    let tried = trials as f64 / runs.len().max(1) as f64;
    let mut answer = format!(
        "{wrong} of {trials} estimates were called conclusive and were wrong; {conclusive} were conclusive and \
         right. Up to 200 ms and 0.1 % loss {found} of {moderate} were ({:.0} %, of {:.0} % wanted).",
        share * 100.0,
        CONCLUSIVE_SHARE * 100.0,
    );
    if trials < runs.len() {
        let none = runs.len() - trials;
        answer += &format!(" {none} more were no trial.");
    }
    let list = |items: Vec<String>| items.join(", ");
    let parameters = vec![
        pair("seconds t", plan.seconds.to_string()),
        pair("round trips, ms", list(plan.rtts_ms.iter().map(ToString::to_string).collect())),
        pair(
            "losses on each way, %",
            list(plan.losses_percent.iter().map(ToString::to_string).collect()),
        ),
        pair(
            "congestion control",
            list(plan.congestions.iter().map(ToString::to_string).collect()),
        ),
        pair("limits, Mbit/s", list(plan.limits.iter().map(ToString::to_string).collect())),
        pair("what else goes wrong", faults(plan)),
        pair("seed", plan.seed.to_string()),
    ];
    let mut notes = vec![
        "The truth of a relay is what the kernel counted that its process sent, TLS included, while it was \
         measured over a path without distance and loss by as many sockets, in the median second of the round that the estimate is of."
            .to_owned(),
        "Where in four seconds of that round or more, all the time, more had come to a stock relay than it read, its truth is what it sent in these on average: that is all that it does, and its rate limit lets less through over many sockets and unsteady paths (docs/accuracy.md)."
            .to_owned(),
    ];
    notes.extend(missing);
    let promise = Promise::Decided {
        held: wrong == 0 && share >= CONCLUSIVE_SHARE && tried >= TRIED_SHARE,
        rule: "no conclusive estimate is wrong, those of paths that are not extreme are conclusive, and at least half of the runs are trials"
            .to_owned(),
    };
    let cases = runs.into_iter().map(|it| it.case).collect();
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use coordinator::{Estimate, Params, Spread};
    use onion::Rate;

    fn timed(load: Load, capacity: f64, inconclusive: Option<Inconclusive>) -> Timed {
        let outcome = Outcome::Measured(Estimate {
            mode: coordinator::Mode::Transit,
            capacity: Rate::from_mbit_per_s(capacity),
            inconclusive,
            rounds: 1,
            allocated: Rate::from_mbit_per_s(300.0),
            params: Params::default(),
            seconds: Vec::new(),
            spread: Spread::default(),
            checked_cells: 0,
        });
        let tried = Tried {
            outcome,
            seconds: Vec::new(),
            load,
            measurers: Vec::new(),
            sockets: Some(8),
            hindered: Vec::new(),
        };
        Timed { tried, took: Duration::from_secs(20), took_since_fault: None }
    }

    const STARVED: Load = Load { used: 0.5, waited: 0.45, wanted: 0.95, machine: 1.0, stolen: 0.0 };

    #[test]
    fn a_relay_without_a_processor_is_no_trial_whether_its_number_is_right_or_wrong() {
        let plan = &Plan::example();
        let judged = |mode, load, capacity, inconclusive| {
            let what = What { mode, congestion: Congestion::Reno, relay: 0, limit: 90.0 };
            let path = Path { rtt_ms: 20, ..Path::NONE };
            Judged::new(plan, what, path, Some(90.0), Ok(&timed(load, capacity, inconclusive)))
        };
        let idle = Load::default();
        let unsteady = Some(Inconclusive::Unsteady { mean: 5_000_000, median: 6_000_000 });
        let late = Load { waited: 0.1, wanted: 0.3, ..idle };
        let no_trials = [
            judged(Mode::Transit, STARVED, 50.0, None),
            judged(Mode::Transit, STARVED, 89.0, None),
            judged(Mode::Transit, STARVED, 50.0, unsteady),
            judged(Mode::Transit, late, 50.0, None),
            judged(Mode::Echo, STARVED, 50.0, None),
        ];
        for run in &no_trials {
            assert!(!run.is_trial && run.case.verdict == CaseVerdict::Inconclusive, "{run:?}");
            assert_eq!(run.case.ratio, None, "there is nothing to compare with");
        }
        let wrong = judged(Mode::Transit, idle, 50.0, None);
        assert!(wrong.is_trial && wrong.case.verdict == CaseVerdict::Missed, "{wrong:?}");
        assert!(judged(Mode::Echo, late, 89.0, None).is_trial, "it slept, and lost nothing");
        let right = judged(Mode::Transit, idle, 89.0, None);

        let of = |runs| report(plan, runs, None, ExperimentReport::default());
        let held = |report: &ExperimentReport| {
            matches!(report.promise, Promise::Decided { held: true, .. })
        };
        let none = of(no_trials.into());
        assert!(!held(&none), "nothing was tried");
        let [run, ..] = none.cases.as_slice() else { panic!("{none:?}") };
        assert!(none.answer.starts_with("0 of 0 "), "{}", none.answer);
        assert!(none.answer.contains("5 more were no trial"), "{}", none.answer);
        let also_right = of(vec![right, judged(Mode::Transit, STARVED, 50.0, None)]);
        assert!(held(&also_right), "{}", also_right.answer);
        let starved = || judged(Mode::Transit, STARVED, 89.0, None);
        let right = judged(Mode::Transit, idle, 89.0, None);
        let hardly_any = of(vec![right, starved(), starved()]);
        assert!(!held(&hardly_any), "this machine tried next to nothing");
        let also_wrong = of(vec![wrong, judged(Mode::Transit, STARVED, 89.0, None)]);
        assert!(!held(&also_wrong), "{}", also_wrong.answer);
        assert!(run.columns.iter().any(|(name, _)| name == "relay_waited_percent"));
    }

    #[test]
    fn where_the_truth_is_not_known_nothing_is_wrong() {
        let plan = &Plan::example();
        let what = What { mode: Mode::Echo, congestion: Congestion::Reno, relay: 0, limit: 90.0 };
        let idle = timed(Load::default(), 50.0, None);
        let run = Judged::new(plan, what, Path::NONE, None, Ok(&idle));
        assert!(!run.is_trial && run.case.verdict == CaseVerdict::Inconclusive, "{run:?}");
        let report = report(plan, vec![run], None, ExperimentReport::default());
        assert!(report.answer.starts_with("0 of 0 "), "{}", report.answer);
    }

    #[test]
    fn a_fault_is_judged_where_it_came_whatever_the_relay_could_do() {
        let plan = &Plan::example();
        let what =
            What { mode: Mode::Transit, congestion: Congestion::Reno, relay: 0, limit: 90.0 };
        let path = Path { fault: Some(Fault::Breaks), ..Path::NONE };
        let judged = |took_since_fault| {
            let timed = Timed { took_since_fault, ..timed(STARVED, 89.0, None) };
            Judged::new(plan, what, path, Some(90.0), Ok(&timed))
        };
        let came = judged(Some(Duration::from_secs(5)));
        assert!(came.is_trial && came.case.verdict == CaseVerdict::Missed, "{came:?}");
        let over_before = judged(None);
        assert!(!over_before.is_trial, "{over_before:?}");
        assert_eq!(over_before.case.verdict, CaseVerdict::Inconclusive);
    }
}
