//! Measurers that inflate their counts. They gain nothing, because the relay reports what it sent to each measurer.

use super::inflating::{Claim, InflatingTeam, Notes};
use super::relays::{params, start};
use super::{Cell, Context, Kind};
use crate::error::Result;
use crate::reporting::median;
use coordinator::{Failure, Outcome, Violation};
use onion::Rate;
use report::experiment::{Case, CaseVerdict};

/// The guess of the relay's capacity, relative to its limit: enough for all measurers to take part.
const GUESS: f64 = 1.5;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    claim: Claim,
}

/// From the most obvious claim to the most profitable one.
const PARTS: [Part; 4] = [
    Part { name: "measurer: inflates its counts", claim: Claim::Times(10) },
    Part { name: "measurer: doubles its counts", claim: Claim::Times(2) },
    Part { name: "measurer: claims all that it was to send", claim: Claim::All },
    Part { name: "measurer: saves up all that it was to send", claim: Claim::Saved },
];

/// A measurement with a lying measurer.
struct Measured {
    /// The relay's limit, in Mbit/s.
    limit: f64,
    outcome: Outcome,
    /// What the honest measurers received in the median second, in Mbit/s.
    honest: f64,
    /// What the liar received.
    own: f64,
    /// The liar's allocation in the last round.
    allocated: f64,
}

/// Each claim once, with a separate honest relay.
pub(super) fn cells() -> impl Iterator<Item = Cell> {
    let cell =
        |part: Part| Cell::new(Kind::Inflation, part.name, move |context| run(context, part));
    PARTS.into_iter().map(cell)
}

fn run(context: &Context<'_>, part: Part) -> Result<Case> {
    let relay = start(context, None, u32::MAX)?;
    let all: Vec<Notes> = context.testbed.measurers().iter().map(|_| Notes::default()).collect();
    let team =
        InflatingTeam { honest: context.testbed.team(all.len()), claim: part.claim, notes: &all };
    let guess = context.settings.limit.scaled(GUESS);
    let request = context.testbed.echo_request(relay.target(), guess, params(context));
    let outcome = context.measure(part.name, &team, request, &mut || ())?;
    relay.stop()?;
    let middle = |notes: &Notes| {
        let received = notes.round().received;
        median(received.into_iter().map(Rate::as_mbit_per_s)).unwrap_or_default()
    };
    let (liars, others) = all.split_at(1);
    let measured = Measured {
        limit: context.settings.limit.as_mbit_per_s(),
        outcome,
        honest: others.iter().map(middle).sum(),
        own: liars.iter().map(middle).sum(),
        allocated: liars.iter().map(|liar| liar.round().allocated.as_mbit_per_s()).sum(),
    };
    Ok(judge(part, &measured))
}

fn judge(part: Part, measured: &Measured) -> Case {
    let Measured { limit, honest, own, allocated, .. } = *measured;
    let estimate = measured.outcome.estimate();
    let mbit = estimate.map(|estimate| estimate.capacity.as_mbit_per_s());
    // If the liar were believed.
    let bound = honest + allocated;
    let case = Case::new(part.name, mbit.map(|_| limit), mbit)
        .column("honest_mbit_per_s", honest)
        .column("allocated_mbit_per_s", allocated)
        .column("most_believed_factor", (own > 0.0).then(|| allocated / own))
        .column("bound_mbit_per_s", bound)
        .column("conclusive", estimate.map(coordinator::Estimate::is_conclusive));
    match &measured.outcome {
        Outcome::Failed {
            reason:
                Failure::MeasurerViolation(Violation::TooMuch { .. }) | Failure::CountsDiffer { .. },
            ..
        } => case.ended(CaseVerdict::Refused, measured.outcome.to_string()),
        Outcome::Measured(_) => case.ended(CaseVerdict::Missed, "it was believed"),
        Outcome::Failed { .. } => case.ended(CaseVerdict::Failed, measured.outcome.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::{Estimate, Mode, Params, Spread};

    fn estimate(mbit: f64) -> Outcome {
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
        judge(part, &Measured { limit, outcome, honest, own, allocated }).verdict
    }

    fn failed(reason: Failure) -> Outcome {
        Outcome::Failed { reason, measurer: None, round: 1, second: None }
    }

    #[test]
    fn an_estimate_is_a_miss_and_a_detected_claim_is_not() {
        use CaseVerdict::{Failed, Missed, Refused};
        let violation = Violation::TooMuch { second: 0, bytes: 1, allowed: 0 };
        assert_eq!(verdict(failed(Failure::MeasurerViolation(violation))), Refused);
        let differ = Failure::CountsDiffer { returned_bytes: 2, sent_bytes: 1 };
        assert_eq!(verdict(failed(differ)), Refused);
        assert_eq!(verdict(estimate(100.0)), Missed);
        assert_eq!(verdict(failed(Failure::Cancelled)), Failed);
    }
}
