//! What a measurer gains that inflates its counts: nothing, where the relay says what it sent to each.

use super::Laboratory;
use super::inflating::{Claim, Inflating, Notes};
use super::relays::{params, start};
use crate::error::Result;
use crate::reporting::median;
use coordinator::{Failure, Outcome, Violation};
use measurer::{Member, Team, TeamOptions, Teammate};
use onion::Rate;
use report::experiment::{Case, CaseVerdict};

/// What the relay is expected to carry, over what it can: enough for all measurers to take part.
const GUESS: f64 = 1.5;

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    claim: Claim,
}

/// From what anybody would try to what pays most.
const PARTS: [Part; 4] = [
    Part { name: "measurer: inflates its counts", claim: Claim::Times(10) },
    Part { name: "measurer: doubles its counts", claim: Claim::Times(2) },
    Part { name: "measurer: claims all that it was to send", claim: Claim::All },
    Part { name: "measurer: saves up all that it was to send", claim: Claim::Saved },
];

/// What a measurement with a measurer that inflates came to.
struct Found {
    /// What the relay has, in Mbit/s.
    limit: f64,
    outcome: Outcome,
    /// What the others got back in the median second, in Mbit/s.
    honest: f64,
    /// What the liar itself did.
    own: f64,
    /// What it was ordered to send in the last round.
    allocated: f64,
}

/// Each claim once. They are played with an honest relay of their own.
pub(super) fn cases(scene: &Laboratory<'_>) -> Result<Vec<Case>> {
    if scene.interrupt.is_requested() {
        return Ok(Vec::new());
    }
    let relay = start(scene, None, u32::MAX)?;
    let cases = scene.each(PARTS.map(|part| (part.name, part)), |part| {
        scene.output.doing(part.name);
        Ok(judge(part, &play(scene, part, relay.target())?))
    });
    relay.stop()?;
    Ok(cases)
}

fn play(scene: &Laboratory<'_>, part: Part, target: onion::measure::load::Target) -> Result<Found> {
    let all: Vec<Notes> = scene.stage.measurers().iter().map(|_| Notes::default()).collect();
    let mates = scene.stage.measurers().iter().zip(&all).enumerate().map(|(place, (it, notes))| {
        let claim = if place == 0 { part.claim } else { Claim::Times(1) };
        let (honest, notes) = (it.remote.member(), notes.clone());
        let member: Box<dyn Member> = Box::new(Inflating { honest, claim, notes });
        Teammate { member, capacity: it.capacity }
    });
    let options = TeamOptions { params: params(scene), ..TeamOptions::default() };
    let mut team = Team::of(mates.collect(), options)?;
    let request = scene.stage.echo_request(target, scene.plan.limit.scaled(GUESS));
    let outcome = team.measure(&request, &mut |_| {}, scene.interrupt.requested())?.outcome;
    let middle = |notes: &Notes| {
        let came_back = notes.round().came_back;
        median(came_back.into_iter().map(Rate::as_mbit_per_s)).unwrap_or_default()
    };
    let (liars, others) = all.split_at(1);
    Ok(Found {
        limit: scene.plan.limit.as_mbit_per_s(),
        outcome,
        honest: others.iter().map(middle).sum(),
        own: liars.iter().map(middle).sum(),
        allocated: liars.iter().map(|it| it.round().allocated.as_mbit_per_s()).sum(),
    })
}

fn judge(part: Part, found: &Found) -> Case {
    let Found { limit, honest, own, allocated, .. } = *found;
    let estimate = found.outcome.estimate();
    let mbit = estimate.map(|estimate| estimate.capacity.as_mbit_per_s());
    // What it would have added if it were believed.
    let most = honest + allocated;
    let case = Case::new(part.name, mbit.map(|_| limit), mbit)
        .column("kind", "inflation")
        .column("honest_mbit_per_s", honest)
        .column("allocated_mbit_per_s", allocated)
        .column("most_believed_factor", (own > 0.0).then(|| allocated / own))
        .column("bound_mbit_per_s", most)
        .column("conclusive", estimate.map(coordinator::Estimate::is_conclusive));
    match &found.outcome {
        Outcome::Failed {
            reason:
                Failure::MeasurerViolation(Violation::TooMuch { .. }) | Failure::CountsDiffer { .. },
            ..
        } => case.ended(CaseVerdict::Refused, found.outcome.to_string()),
        Outcome::Measured(_) => case.ended(CaseVerdict::Missed, "it was believed"),
        Outcome::Failed { .. } => case.ended(CaseVerdict::Failed, found.outcome.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::{Estimate, Mode, Params, Spread};

    fn measured(mbit: f64) -> Outcome {
        let capacity = Rate::from_mbit_per_s(mbit);
        Outcome::Measured(Estimate {
            mode: Mode::Echo,
            capacity,
            inconclusive: None,
            rounds: 1,
            allocated: capacity,
            params: Params::default(),
            seconds: Vec::new(),
            spread: Spread::default(),
            checked_cells: 0,
        })
    }

    fn verdict(outcome: Outcome) -> CaseVerdict {
        let part = Part { name: "one", claim: Claim::All };
        let (limit, honest, own, allocated) = (100.0, 50.0, 50.0, 200.0);
        judge(part, &Found { limit, outcome, honest, own, allocated }).verdict
    }

    fn failed(reason: Failure) -> Outcome {
        Outcome::Failed { reason, measurer: None, round: 1, second: None }
    }

    #[test]
    fn whatever_is_believed_is_a_miss() {
        use CaseVerdict::{Failed, Missed, Refused};
        let violation = Violation::TooMuch { second: 0, bytes: 1, allowed: 0 };
        assert_eq!(verdict(failed(Failure::MeasurerViolation(violation))), Refused);
        let differ = Failure::CountsDiffer { returned_bytes: 2, sent_bytes: 1 };
        assert_eq!(verdict(failed(differ)), Refused);
        assert_eq!(verdict(measured(100.0)), Missed);
        assert_eq!(verdict(failed(Failure::Cancelled)), Failed);
    }
}
