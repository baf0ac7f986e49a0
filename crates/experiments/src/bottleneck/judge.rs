//! Whether a narrow place was told apart.

use super::place::{Place, Plan};
use super::scene::{Measured, Scene};
use crate::error::Error;
use crate::telling::pair;
use crate::trial::{BOUNDS, Tried};
use coordinator::{Blame, Failure, Hindered, Hindrance, MeasurerId, Outcome};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};

pub(super) const TITLE: &str = "Is a narrow place told apart that is not the relay's?";
pub(super) const QUESTION: &str = "Is a relay's own narrow link conclusively its capacity, and is what is narrow at a measurer \
                                   named, and the relay measured truly by the other?";

/// A run that has ended. `carried` is what the relay's process sent where nothing was narrow.
pub(super) fn case(
    plan: &Plan,
    scene: &Scene,
    place: Place,
    rtt_ms: u32,
    carried: Option<f64>,
    measured: Result<&Measured, &Error>,
) -> Case {
    let tried = measured.map(|it| &it.tried);
    let failed = measured.ok().and_then(|it| it.failed.as_ref());
    let (mode, congestion) = (scene.mode.word(), scene.congestion.to_string());
    let name = format!("{mode}, {}, {rtt_ms} ms, {congestion}", place.words());
    let truth = match place {
        Place::Relay => Some(plan.link.as_mbit_per_s()),
        _ => carried,
    };
    let estimate = tried.ok().and_then(Tried::estimate_mbit);
    let case = match truth {
        Some(truth) => Case::judged(name, truth, estimate, BOUNDS),
        None => Case::new(name, None, estimate)
            .ended(CaseVerdict::Failed, "what the relay carries is not known"),
    };
    let named = tried.map_or(&[][..], |it| &it.hindered);
    let wrong_failure = failed.filter(|it| !is_right_failure(place, it));
    let case = match (tried, wrong_failure) {
        (Err(error), _) => case.ended(CaseVerdict::Failed, error.to_string()),
        (Ok(_), Some(outcome)) => {
            case.ended(CaseVerdict::Missed, format!("with the path that is broken: {outcome}"))
        }
        (Ok(tried), None) => match tried.estimate().map(|it| it.inconclusive) {
            None => {
                // One that is so slow that it is not even ready is named by the failure.
                let is_slow = place == Place::Processor && is_its_failure(&tried.outcome);
                let verdict = if is_slow { CaseVerdict::Held } else { CaseVerdict::Failed };
                case.ended(verdict, tried.outcome.to_string())
            }
            Some(Some(reason)) => case.ended(CaseVerdict::Missed, reason.to_string()),
            Some(None) => match problem(place, named) {
                Some(problem) => case.ended(CaseVerdict::Missed, problem),
                None => case,
            },
        },
    };
    let words = named.iter().map(ToString::to_string);
    let words: Vec<String> = failed.map(ToString::to_string).into_iter().chain(words).collect();
    let conclusive = tried.ok().and_then(Tried::estimate).map(|it| it.is_conclusive());
    let rounds = tried.ok().and_then(Tried::estimate).map(|it| it.rounds);
    case.column("mode", mode)
        .column("narrow", place.words())
        .column("rtt_ms", rtt_ms)
        .column("congestion", congestion)
        .column("conclusive", conclusive)
        .column("named", words.join("; "))
        .column("rounds", rounds)
        .column("sent_mbit_per_s", tried.ok().and_then(Tried::sent_mbit))
}

/// The measurer whose link or processor is narrow.
const SECOND: MeasurerId = MeasurerId(1);

/// Whether the second measurer failed, and is said to have.
fn is_its_failure(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { measurer: Some(SECOND), .. })
        && outcome.blame() == Some(Blame::Measurer)
}

/// Whether a measurement that had to fail did so as it should.
fn is_right_failure(place: Place, outcome: &Outcome) -> bool {
    let Outcome::Failed { reason, measurer, .. } = outcome else { return false };
    match place {
        Place::Coordinator => matches!((reason, measurer), (Failure::CutOff { .. }, None)),
        // Nobody can tell whose paths they were, but that it was not the relay.
        Place::All => matches!(reason, Failure::LoadStopped { .. }),
        _ => is_its_failure(outcome),
    }
}

/// What is wrong with who was named.
fn problem(place: Place, named: &[Hindered]) -> Option<String> {
    let is_right = |it: &Hindered| match place {
        // Where a measurer is lost, the other measures alone.
        Place::Nowhere
        | Place::Relay
        | Place::Breaks
        | Place::Gone
        | Place::All
        | Place::Coordinator => false,
        Place::Measurer => it.measurer == SECOND && matches!(it.by, Hindrance::Path { .. }),
        Place::Policer | Place::Back => it.measurer == SECOND && it.by != Hindrance::Processor,
        // The first two are at that host.
        Place::Host => it.measurer <= SECOND && it.by != Hindrance::Processor,
        Place::Processor => it.measurer == SECOND && it.by == Hindrance::Processor,
    };
    if let Some(wrong) = named.iter().find(|it| !is_right(it)) {
        return Some(format!("wrongly named: {wrong}"));
    }
    // The other places need not be: the other measurer shows the relay's limit at once.
    let must_be_named = matches!(place, Place::Measurer | Place::Host | Place::Processor);
    (must_be_named && named.is_empty()).then(|| "nobody was named".to_owned())
}

pub(super) fn report(plan: &Plan, cases: Vec<Case>, base: ExperimentReport) -> ExperimentReport {
    let held = cases.iter().filter(|it| it.verdict == CaseVerdict::Held).count();
    let answer = format!(
        "In {held} of {} runs the estimate was conclusive and right, and who was narrow was named.",
        cases.len()
    );
    let list = |items: Vec<String>| items.join(", ");
    let parameters = vec![
        pair("seconds t", plan.seconds.to_string()),
        pair("round trips, ms", list(plan.rtts_ms.iter().map(ToString::to_string).collect())),
        pair(
            "congestion control",
            list(plan.congestions.iter().map(ToString::to_string).collect()),
        ),
        pair("the relay's limit", plan.limit.to_string()),
        pair("its link, where that is narrow", plan.link.to_string()),
        pair("a measurer's link, where that is narrow", plan.measurer.to_string()),
    ];
    let notes = vec![
        "The truth is what the relay's link lets through where that is narrow, TCP and TLS included; else what \
         the kernel counted that the relay's process sent where nothing was, in the median second."
            .to_owned(),
    ];
    let promise = Promise::Decided {
        held: !cases.is_empty() && held == cases.len(),
        rule: "all estimates are conclusive and right, and links with a queue and processors that are narrow and not the \
               relay's are named, and nobody else; a measurer that is too slow to take part fails by its number; where a \
               measurer's path is gone the measurement fails by that measurer, and is right without it; where those of all measurers are, \
               or the coordinator's, it is not put down to the relay"
            .to_owned(),
    };
    ExperimentReport { answer, promise, parameters, cases, notes, ..base }
}
