//! Relays that lie while they are measured.

use super::{AdversarySettings, Cell, Context, GAIN, Kind, MEASURERS, RATIO, TOLERANCE};
use crate::error::{Error, Result};
use crate::reporting::median;
use coordinator::{Blame, Outcome, Params};
use lab::liars::{EchoLie, LiarRelay, LiarSetup};
use lab::load::{ClientLoad, ClientTraffic};
use link::unix_time_s;
use onion::measure::protocol::CoordinatorKey;
use onion::measure::target::TargetParams;
use onion::router::{RateLimit, RouterEvent};
use onion::{Duration, Rate};
use rand::TryRng;
use rand::rngs::SysRng;
use report::experiment::{Case, CaseVerdict};
use std::net::{Ipv4Addr, SocketAddr};

/// The rate of client traffic, relative to the relay's limit: more than the clients' share.
const CLIENTS: f64 = 0.5;

/// The guess of a relay's capacity, relative to its limit. A relay that gains a third is still measured in one round.
const GUESS: f64 = 1.5;

/// The capacity during a measurement of a relay that is fast only then, relative to its usual capacity.
const FAST: f64 = 2.0;

/// The expected result of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// A correct estimate.
    Truth,
    /// No estimate.
    Detected,
    /// An estimate of at most 1/(1−r) times its capacity.
    Bounded,
    /// An estimate of the capacity that it has only while it is measured: no measurement distinguishes it from a relay that always has
    /// it.
    Believed,
}

/// A relay to measure.
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
                | EchoLie::MiscountsSeconds => Expected::Detected,
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
                // Without clients, the whole report is a gain.
                let name = "over-reports-alone";
                parts.push(Self { name, lie: Some(lie), has_clients: false, expected });
            }
        }
        parts
    }

    const fn description(&self) -> &'static str {
        match &self.lie {
            Some(lie) => lie.description(),
            None => "is honest",
        }
    }
}

/// Starts a relay on loopback that the testbed's coordinator may measure this number of times in a period.
pub(super) fn start(
    context: &Context<'_>,
    lie: Option<EchoLie>,
    measurements: u32,
) -> Result<LiarRelay> {
    let target = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey::of_seed(&context.testbed.key().seed())],
        measurements_per_period: measurements,
        max_duration: Duration::from_secs(120),
        ..TargetParams::default()
    };
    // Lets the relay catch up if the machine did not schedule it for a tenth of a second.
    let burst_bytes = context.settings.limit.as_byte_per_s() / 10;
    Ok(LiarRelay::start(LiarSetup {
        lie,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        target,
        limit: Some(RateLimit { rate: context.settings.limit, burst_bytes }),
        seed: random()?,
        unix_time_s: unix_time_s(),
    })?)
}

/// Random bytes.
fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

/// The parameters of all measurements of this experiment.
pub(super) fn params(context: &Context<'_>) -> Params {
    Params { seconds: context.settings.seconds, ratio: RATIO, ..Params::default() }
}

/// The names of the relays.
pub(super) fn names() -> Vec<&'static str> {
    Part::all(Rate::ZERO).into_iter().map(|part| part.name).collect()
}

/// The name of the relay that is fast only while it is measured.
pub(super) fn believed() -> Option<&'static str> {
    let mut all = Part::all(Rate::ZERO).into_iter();
    all.find(|part| part.expected == Expected::Believed).map(|part| part.name)
}

/// Each relay, measured once.
pub(super) fn cells(settings: &AdversarySettings) -> Vec<Cell> {
    let parts = Part::all(settings.limit).into_iter().filter(|part| settings.has_chosen(part.name));
    parts
        .map(|part| Cell::new(Kind::Relay, part.name, move |context| run(context, &part)))
        .collect()
}

fn run(context: &Context<'_>, part: &Part) -> Result<Case> {
    let limit = context.settings.limit;
    let relay = start(context, part.lie, u32::MAX)?;
    let start_clients = || {
        let traffic = ClientTraffic::at(limit.scaled(CLIENTS));
        let clients = ClientLoad::start(relay.target(), traffic, context.testbed.clock());
        context.session.interrupt.wait(Duration::from_secs(1));
        clients
    };
    let clients = part.has_clients.then(start_clients).transpose()?;
    let team = context.testbed.team(MEASURERS);
    let guess = limit.scaled(GUESS);
    let request = context.testbed.echo_request(relay.target(), guess, params(context));
    let outcome = context.measure(part.name, &team, request, &mut || ())?;
    let client_failure = clients.as_ref().and_then(ClientLoad::failure);
    let sent = median_sent(&relay, context.settings.seconds);
    drop(clients);
    relay.stop()?;
    let is_conclusive = outcome.estimate().map(coordinator::Estimate::is_conclusive);
    let case = judge(part, limit, &outcome);
    let conclusive_ratio = case.ratio.filter(|_| is_conclusive == Some(true));
    let case = case
        .column("lie", part.description())
        .column("clients", part.has_clients)
        .column("sent_mbit_per_s", sent)
        .column("conclusive", is_conclusive)
        .column("conclusive_ratio", conclusive_ratio);
    Ok(match client_failure {
        Some(problem) => case.ended(CaseVerdict::Failed, format!("its clients failed: {problem}")),
        None => case,
    })
}

/// What the relay sent to measurers and clients in the median second of its last measurement, in Mbit/s.
fn median_sent(relay: &LiarRelay, seconds: u32) -> Option<f64> {
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
            | RouterEvent::PaddingRefused { .. }
            | RouterEvent::CircuitStalled { .. }
            | RouterEvent::MeasurementOver(_) => {}
        }
    }
    let is_complete = sent.len() == seconds as usize;
    median(sent).filter(|_| is_complete)
}

/// Judges a measurement. `truth` is what the relay carries when it is not measured.
fn judge(part: &Part, truth: Rate, outcome: &Outcome) -> Case {
    let truth = truth.as_mbit_per_s();
    let estimate = outcome.estimate().map(|estimate| estimate.capacity.as_mbit_per_s());
    let bounds = match part.expected {
        Expected::Truth => 0.9..=1.0 + TOLERANCE,
        Expected::Detected | Expected::Bounded => 0.0..=GAIN * (1.0 + TOLERANCE),
        Expected::Believed => 0.0..=FAST * (1.0 + TOLERANCE),
    };
    let case = Case::judged(part.name, truth, estimate, bounds);
    match (outcome, part.expected) {
        (Outcome::Measured(_), Expected::Detected) => {
            case.ended(CaseVerdict::Missed, "it was believed")
        }
        (Outcome::Measured(_), Expected::Believed) if case.verdict == CaseVerdict::Held => {
            let gain = case.ratio.unwrap_or_default();
            case.ended(
                CaseVerdict::Held,
                format!(
                    "believed, because no measurement distinguishes it from an honest relay: {gain:.2} times what it carries otherwise; \
                     while it is measured it has {FAST} times as much"
                ),
            )
        }
        (Outcome::Measured(_), _) => case,
        (Outcome::Failed { .. }, Expected::Detected | Expected::Bounded | Expected::Believed)
            if outcome.blame() == Some(Blame::Relay) =>
        {
            case.ended(CaseVerdict::Refused, outcome.to_string())
        }
        // The relay is honest, or not to blame.
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
    fn a_failure_is_as_expected_only_if_a_lying_relay_is_to_blame() {
        let limit = Rate::from_mbit_per_s(100.0);
        let caught = failed(Failure::ContentCheck { detail: "cell 7".to_owned() });
        let cancelled = failed(Failure::Cancelled);
        for part in Part::all(limit) {
            let verdict = |outcome| judge(&part, limit, outcome).verdict;
            let expected = match part.expected {
                Expected::Truth => CaseVerdict::Failed,
                Expected::Detected | Expected::Bounded | Expected::Believed => CaseVerdict::Refused,
            };
            assert_eq!(verdict(&caught), expected, "{}", part.name);
            assert_eq!(verdict(&cancelled), CaseVerdict::Failed, "{}", part.name);
        }
    }
}
