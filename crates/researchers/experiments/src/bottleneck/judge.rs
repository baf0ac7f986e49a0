//! The verdict on a run: whether the bottleneck was recognised.

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

/// The case of a run. `truth` is the rate of the relay's link if that is narrow, otherwise what its process sent without a
/// bottleneck.
pub(super) fn case(cell: &Cell, truth: Option<f64>, measured: &Measured) -> Case {
    let Measured { result, failed } = measured;
    let place = cell.narrow;
    let found = result.estimate();
    let name = cell.to_string();
    let case = result.case(name, truth, CaseVerdict::Failed, CaseVerdict::Missed);
    let wrong_failure = failed.as_ref().filter(|failed| !is_right_failure(place, failed));
    let case = match (wrong_failure, found) {
        (Some(outcome), _) => {
            case.ended(CaseVerdict::Missed, format!("with the broken path: {outcome}"))
        }
        // If the measurer is not ready in time, the failure names it.
        (None, None) if place == Place::Processor && is_failure_of_second(&result.outcome) => {
            case.ended(CaseVerdict::Held, result.outcome.to_string())
        }
        (None, Some(found)) if found.is_conclusive() => match problem(place, &result.bottlenecks) {
            // While a measurer waits for a processor, its cells wait for it too, and not on the path.
            Some(problem) => match result.starvation().filter(|_| result.bottlenecks.is_empty()) {
                Some(load) => case.ended(CaseVerdict::Inconclusive, format!("{problem}; {load}")),
                None => case.ended(CaseVerdict::Missed, problem),
            },
            None => case,
        },
        _ => case,
    };
    let words = result.bottlenecks.iter().map(ToString::to_string);
    let words: Vec<String> =
        failed.as_ref().map(ToString::to_string).into_iter().chain(words).collect();
    let case = case.with(&Columns {
        conclusive: found.map(|found| found.is_conclusive()),
        named: words.join("; "),
        rounds: found.map(|found| found.rounds),
        sent_mbit_per_s: result.sent_mbit(),
    });
    result.with_loads(case)
}

/// The measurer whose link or processor is narrow.
const SECOND: MeasurerId = MeasurerId(1);

/// Whether the outcome is a failure that blames the second measurer.
fn is_failure_of_second(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { measurer: Some(SECOND), .. })
        && outcome.blame() == Some(Blame::Measurer)
}

/// Whether a measurement that had to fail has the right reason.
fn is_right_failure(place: Place, outcome: &Outcome) -> bool {
    let Outcome::Failed { reason, measurer, .. } = outcome else { return false };
    match place {
        Place::Coordinator => matches!((reason, measurer), (Failure::CutOff { .. }, None)),
        // The failure cannot tell whose paths broke, but does not blame the relay.
        Place::All => matches!(reason, Failure::LoadStopped { .. }),
        _ => is_failure_of_second(outcome),
    }
}

/// What is wrong with the named bottlenecks.
fn problem(place: Place, named: &[MeasurerBottleneck]) -> Option<String> {
    let is_right = |bottleneck: &MeasurerBottleneck| match place {
        // If a measurer is lost, the other measures alone.
        Place::Nowhere
        | Place::Relay
        | Place::Breaks
        | Place::Gone
        | Place::All
        | Place::Coordinator => false,
        Place::Measurer => {
            bottleneck.measurer == SECOND && matches!(bottleneck.by, Bottleneck::Path { .. })
        }
        Place::Policer | Place::Back => {
            bottleneck.measurer == SECOND && bottleneck.by != Bottleneck::Processor
        }
        // The first two of the team are at that host.
        Place::Host => bottleneck.measurer <= SECOND && bottleneck.by != Bottleneck::Processor,
        Place::Processor => bottleneck.measurer == SECOND && bottleneck.by == Bottleneck::Processor,
    };
    if let Some(wrong) = named.iter().find(|bottleneck| !is_right(bottleneck)) {
        return Some(format!("wrongly named: {wrong}"));
    }
    // Bottlenecks at other places need not be named, because the other measurer alone reaches the relay's limit.
    let must_be_named = matches!(place, Place::Measurer | Place::Host | Place::Processor);
    (must_be_named && named.is_empty()).then(|| "no bottleneck was named".to_owned())
}
