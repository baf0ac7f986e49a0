//! Whether a bottleneck was recognised.

use super::place::Place;
use super::{Cell, Measured};
use coordinator::{Blame, Bottleneck, Failure, MeasurerBottleneck, MeasurerId, Outcome};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// Columns of a run besides its cell.
#[derive(Serialize)]
struct Columns {
    conclusive: Option<bool>,
    named: String,
    rounds: Option<u32>,
    sent_mbit_per_s: Option<f64>,
}

/// The case of a run. `truth` is what the relay's link lets through where that is narrow, else what its process sent where nothing was.
pub(super) fn case(cell: &Cell, truth: Option<f64>, measured: &Measured) -> Case {
    let Measured { tried, failed } = measured;
    let place = cell.narrow;
    let found = tried.estimate();
    let name = cell.to_string();
    let case = tried.case(name, truth, CaseVerdict::Failed, CaseVerdict::Missed);
    let wrong_failure = failed.as_ref().filter(|it| !is_right_failure(place, it));
    let case = match (wrong_failure, found) {
        (Some(outcome), _) => {
            case.ended(CaseVerdict::Missed, format!("with the path that is broken: {outcome}"))
        }
        // A measurer that is not ready in time is named by the failure.
        (None, None) if place == Place::Processor && is_its_failure(&tried.outcome) => {
            case.ended(CaseVerdict::Held, tried.outcome.to_string())
        }
        (None, Some(found)) if found.is_conclusive() => match problem(place, &tried.bottlenecks) {
            Some(problem) => case.ended(CaseVerdict::Missed, problem),
            None => case,
        },
        _ => case,
    };
    let words = tried.bottlenecks.iter().map(ToString::to_string);
    let words: Vec<String> =
        failed.as_ref().map(ToString::to_string).into_iter().chain(words).collect();
    case.with(&Columns {
        conclusive: found.map(|it| it.is_conclusive()),
        named: words.join("; "),
        rounds: found.map(|it| it.rounds),
        sent_mbit_per_s: tried.sent_mbit(),
    })
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
        // It is not known whose paths they were, but it was not the relay.
        Place::All => matches!(reason, Failure::LoadStopped { .. }),
        _ => is_its_failure(outcome),
    }
}

/// What is wrong with who was named.
fn problem(place: Place, named: &[MeasurerBottleneck]) -> Option<String> {
    let is_right = |it: &MeasurerBottleneck| match place {
        // Where a measurer is lost, the other measures alone.
        Place::Nowhere
        | Place::Relay
        | Place::Breaks
        | Place::Gone
        | Place::All
        | Place::Coordinator => false,
        Place::Measurer => it.measurer == SECOND && matches!(it.by, Bottleneck::Path { .. }),
        Place::Policer | Place::Back => it.measurer == SECOND && it.by != Bottleneck::Processor,
        // The first two are at that host.
        Place::Host => it.measurer <= SECOND && it.by != Bottleneck::Processor,
        Place::Processor => it.measurer == SECOND && it.by == Bottleneck::Processor,
    };
    if let Some(wrong) = named.iter().find(|it| !is_right(it)) {
        return Some(format!("wrongly named: {wrong}"));
    }
    // The other places need not be: the other measurer shows the relay's limit at once.
    let must_be_named = matches!(place, Place::Measurer | Place::Host | Place::Processor);
    (must_be_named && named.is_empty()).then(|| "nobody was named".to_owned())
}
