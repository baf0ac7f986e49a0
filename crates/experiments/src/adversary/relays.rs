//! Relays that lie while they are measured.

use super::{GAIN, Laboratory, MEASURERS, RATIO, TOLERANCE};
use crate::error::{Error, Result};
use crate::reporting::median;
use coordinator::{Blame, Outcome, Params};
use lab::liars::{EchoLie, LiarRelay, LiarSetup};
use lab::load::ClientLoad;
use link::unix_time_s;
use measurer::{Progress, TeamOptions};
use onion::measure::protocol::CoordinatorKey;
use onion::measure::target::TargetParams;
use onion::router::{RateLimit, RouterEvent};
use onion::{Duration, Rate};
use rand::TryRng;
use rand::rngs::SysRng;
use report::experiment::{Case, CaseVerdict};
use std::net::{Ipv4Addr, SocketAddr};

/// What clients send, of what the relay can carry: more than their share.
const CLIENTS: f64 = 0.5;

/// What a relay is expected to carry, over what it can: one that gains a third still gets its answer in
/// one round.
const GUESS: f64 = 1.5;

/// What a relay that is fast only while it is measured has then, over what it carries otherwise.
pub(super) const FAST: f64 = 2.0;

/// What must come of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// An estimate of what it has.
    Truth,
    /// No estimate.
    FoundOut,
    /// At most 1/(1−r) of what it has.
    Bounded,
    /// What it has only then: no measurement distinguishes it from one that always has
    /// it.
    Believed,
}

/// A relay to be measured.
struct Part {
    name: &'static str,
    lie: Option<EchoLie>,
    has_clients: bool,
    expected: Expected,
}

impl Part {
    fn all(limit: Rate) -> Vec<Self> {
        let honest =
            Self { name: "honest", lie: None, has_clients: true, expected: Expected::Truth };
        let mut parts = vec![honest];
        for lie in EchoLie::ALL {
            let expected = match lie {
                EchoLie::Forges { .. }
                | EchoLie::SkipsDecryption
                | EchoLie::Replays(_)
                | EchoLie::AnswersAhead(_)
                | EchoLie::Drops(_)
                | EchoLie::Stalls(_)
                | EchoLie::Floods(_)
                | EchoLie::MiscountsSeconds => Expected::FoundOut,
                EchoLie::ShedsClients | EchoLie::OverReports | EchoLie::IgnoresShare => {
                    Expected::Bounded
                }
                EchoLie::OnlyFastWhileMeasured { .. } => Expected::Believed,
            };
            let name = lie.name();
            let lie = match lie {
                EchoLie::OnlyFastWhileMeasured { .. } => {
                    EchoLie::OnlyFastWhileMeasured { rate: limit.scaled(FAST) }
                }
                other => other,
            };
            parts.push(Self { name, lie: Some(lie), has_clients: true, expected });
            if lie == EchoLie::OverReports {
                // Without clients a report is all gain.
                let name = "over-reports-alone";
                parts.push(Self { name, lie: Some(lie), has_clients: false, expected });
            }
        }
        parts
    }

    const fn description(&self) -> &'static str {
        match &self.lie {
            Some(lie) => lie.description(),
            None => "does as it should",
        }
    }
}

/// Starts a relay on loopback that the stage's coordinator may measure this number of times.
pub(super) fn start(
    scene: &Laboratory<'_>,
    lie: Option<EchoLie>,
    measurements: u32,
) -> Result<LiarRelay> {
    let target = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey::of_seed(&scene.stage.key().seed())],
        measurements_per_period: measurements,
        max_duration: Duration::from_secs(120),
        ..TargetParams::default()
    };
    // What it could not send in a tenth of a second, since the machine had no time for it, it may catch up.
    let burst_bytes = scene.plan.limit.as_byte_per_s() / 10;
    Ok(LiarRelay::start(LiarSetup {
        lie,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        target,
        limit: Some(RateLimit { rate: scene.plan.limit, burst_bytes }),
        seed: random()?,
        unix_time_s: unix_time_s(),
    })?)
}

/// Random bytes.
pub(super) fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

/// The parameters of all measurements of this experiment.
pub(super) fn params(scene: &Laboratory<'_>) -> Params {
    Params { seconds: scene.plan.seconds, ratio: RATIO, ..TeamOptions::default().params }
}

/// What the relays are called.
pub(super) fn names() -> Vec<&'static str> {
    Part::all(Rate::ZERO).into_iter().map(|part| part.name).collect()
}

/// The name of the one that is believed to have always what it has only while it is measured.
pub(super) fn believed() -> Option<&'static str> {
    let mut all = Part::all(Rate::ZERO).into_iter();
    all.find(|part| part.expected == Expected::Believed).map(|part| part.name)
}

/// Each relay, measured once.
pub(super) fn cases(scene: &Laboratory<'_>) -> Vec<Case> {
    let only = &scene.plan.only;
    let parts = Part::all(scene.plan.limit).into_iter();
    let parts = parts.filter(|part| only.is_empty() || only.iter().any(|name| name == part.name));
    scene.each(parts.map(|part| (part.name, part)), |part| play(scene, &part))
}

fn play(scene: &Laboratory<'_>, part: &Part) -> Result<Case> {
    let (name, limit) = (part.name, scene.plan.limit);
    scene.output.doing(format!("{name}: starting the relay"));
    let relay = start(scene, part.lie, u32::MAX)?;
    let clients = match part.has_clients {
        true => {
            let rate = limit.scaled(CLIENTS);
            let clients = ClientLoad::start(relay.target(), rate, scene.stage.clock())?;
            scene.interrupt.wait(Duration::from_secs(1));
            Some(clients)
        }
        false => None,
    };
    let mut team = scene.stage.team(MEASURERS, params(scene))?;
    let request = scene.stage.echo_request(relay.target(), limit.scaled(GUESS));
    let mut progress = |progress: Progress| {
        if let Progress::Second { round, index, measured } = progress {
            let (mbit, second) = (measured.as_mbit_per_s(), index + 1);
            let message = format!("{name}: round {round}, second {second}: {mbit:.1} Mbit/s");
            scene.output.doing(message);
        }
    };
    let outcome = team.measure(&request, &mut progress, scene.interrupt.requested())?.outcome;
    let disturbed = clients.as_ref().and_then(ClientLoad::failure);
    let sent = really_sent(&relay, scene.plan.seconds);
    drop(clients);
    relay.stop()?;
    let case = judge(part, limit, &outcome)
        .column("kind", "relay")
        .column("lie", part.description())
        .column("clients", part.has_clients)
        .column("really_sent_mbit_per_s", sent)
        .column("conclusive", outcome.estimate().map(coordinator::Estimate::is_conclusive));
    Ok(match disturbed {
        Some(problem) => {
            case.ended(CaseVerdict::Failed, format!("its clients were disturbed: {problem}"))
        }
        None => case,
    })
}

/// What it sent in the median second of its last measurement, in Mbit/s, for measurers and clients.
fn really_sent(relay: &LiarRelay, seconds: u32) -> Option<f64> {
    let mut sent = Vec::new();
    for event in relay.take_events() {
        match event {
            RouterEvent::MeasurementAccepted(_) => sent.clear(),
            RouterEvent::MeasuredSecond { measured_bytes, client_bytes, .. } => {
                sent.push(Rate::from_byte_per_s(measured_bytes + client_bytes).as_mbit_per_s());
            }
            RouterEvent::MeasurementRefused(_)
            | RouterEvent::MemoryReclaimed { .. }
            | RouterEvent::Evicted { .. }
            | RouterEvent::FeedbackRefused { .. }
            | RouterEvent::CircuitStalled { .. }
            | RouterEvent::MeasurementOver(_) => {}
        }
    }
    let is_whole = sent.len() == seconds as usize;
    median(sent).filter(|_| is_whole)
}

/// `truth` is what the relay carries when nobody measures it.
fn judge(part: &Part, truth: Rate, outcome: &Outcome) -> Case {
    let truth = truth.as_mbit_per_s();
    let estimate = outcome.estimate().map(|estimate| estimate.capacity.as_mbit_per_s());
    let bounds = match part.expected {
        Expected::Truth => 0.9..=1.0 + TOLERANCE,
        Expected::FoundOut | Expected::Bounded => 0.0..=GAIN * (1.0 + TOLERANCE),
        Expected::Believed => 0.0..=FAST * (1.0 + TOLERANCE),
    };
    let case = Case::judged(part.name, truth, estimate, bounds);
    match (outcome, part.expected) {
        (Outcome::Measured(_), Expected::FoundOut) => {
            case.ended(CaseVerdict::Missed, "it was believed")
        }
        (Outcome::Measured(_), Expected::Believed) if case.verdict == CaseVerdict::Held => {
            let gain = case.ratio.unwrap_or_default();
            case.ended(
                CaseVerdict::Held,
                format!(
                    "believed, as no measurement here distinguishes it from others: {gain:.2} times what it carries \
                     otherwise, of {FAST} that it has while it is measured"
                ),
            )
        }
        (Outcome::Measured(_), _) => case,
        (Outcome::Failed { .. }, Expected::FoundOut | Expected::Bounded | Expected::Believed)
            if outcome.blame() == Some(Blame::Relay) =>
        {
            case.ended(CaseVerdict::Refused, outcome.to_string())
        }
        // Of an honest relay, or by a fault of ours.
        (Outcome::Failed { .. }, _) => case.ended(CaseVerdict::Failed, outcome.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::Failure;

    fn failed(reason: Failure) -> Outcome {
        Outcome::Failed { reason, measurer: None, round: 1, second: None }
    }

    #[test]
    fn a_failure_counts_for_what_was_expected_only_if_the_relay_is_to_blame() {
        let limit = Rate::from_mbit_per_s(100.0);
        let caught = failed(Failure::ContentCheck { detail: "cell 7".to_owned() });
        let ours = failed(Failure::Cancelled);
        for part in Part::all(limit) {
            let verdict = |outcome| judge(&part, limit, outcome).verdict;
            let expected = match part.expected {
                Expected::Truth => CaseVerdict::Failed,
                Expected::FoundOut | Expected::Bounded | Expected::Believed => CaseVerdict::Refused,
            };
            assert_eq!(verdict(&caught), expected, "{}", part.name);
            assert_eq!(verdict(&ours), CaseVerdict::Failed, "{}", part.name);
        }
    }
}
