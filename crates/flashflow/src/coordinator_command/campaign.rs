//! Several relays at once, each measurement on a thread of its own.

use super::config::Config;
use super::relays::{Relay, is_not_now};
use super::team::RemoteTeam;
use crate::error::Error;
use coordinator::{
    Allocation, Blame, Campaign, Inconclusive, Launch, MeasurerId, Outcome, Params, RelayId,
    Verdict,
};
use link::unix_time_s;
use measurer::{Request, Team, TeamOptions};
use onion::{Duration, Rate};
use report::RelayReport;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use terminal::measuring::{self, Subject};
use terminal::{Interrupt, Output};

/// Longest wait before the user's wish to end is looked at.
const LATENCY: Duration = Duration::from_millis(200);

/// A measurer that failed is asked so often, with a pause before each, whether it is well again.
const CHECK_UPS: u32 = 6;
const CHECK_UP_PAUSE: Duration = Duration::from_secs(3);

/// What came of a relay.
pub(super) struct Measured {
    /// Its place.
    pub(super) relay: usize,
    pub(super) outcome: Outcome,
    pub(super) report: RelayReport,
    pub(super) at_unix_s: u64,
}

enum Event {
    Ended { allocation: Allocation, guess: Rate, result: Box<Result<Measured, (usize, Error)>> },
    CheckedUp { measurer: MeasurerId, capacity: Option<Rate> },
}

/// Measures each relay. Results come in the relays' order; relays that an interrupt kept from being
/// measured are left out.
pub(super) fn run(
    config: &Config,
    team: &RemoteTeam,
    capacities: Vec<Rate>,
    relays: &[Relay],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, Error> {
    let params = Params { max_rounds: 1, ..config.params };
    let mut campaign = Campaign::new(params.excess_factor(), params.sockets, capacities);
    for (place, relay) in relays.iter().enumerate() {
        let guess = relay.subject.request.guess;
        campaign.add(RelayId(place), relay.standing, guess, relay.rounds_max);
    }
    let mut results: BTreeMap<usize, Measured> = BTreeMap::new();
    let mut broken: Option<Error> = None;
    let mut check_ups = 0;
    let (sender, events) = channel();
    thread::scope(|scope| {
        loop {
            if interrupt.is_requested() || broken.is_some() {
                campaign.clear_queue();
            }
            while let Some(launch) = campaign.poll_launch() {
                let Some(relay) = relays.get(launch.relay.0) else { continue };
                let sender = sender.clone();
                scope.spawn(move || {
                    measure(team, params, relay, launch, output, interrupt, &sender);
                });
            }
            let is_hopeless = campaign.capacity() == Rate::ZERO && check_ups == 0;
            if campaign.running() == 0 && (campaign.queued() == 0 || is_hopeless) {
                break;
            }
            match events.recv_timeout(LATENCY) {
                Ok(Event::Ended { allocation, guess, result }) => {
                    let measured = match *result {
                        Ok(measured) => measured,
                        Err((relay, error)) => {
                            campaign.handle_end(RelayId(relay), Verdict::Done);
                            broken.get_or_insert(error);
                            continue;
                        }
                    };
                    let (verdict, lost) = judge(&measured.outcome, &allocation, guess);
                    if let Some(measurer) = lost {
                        output.step(format!(
                            "{measurer} ({}) has failed: {}",
                            measured.report.nickname, measured.outcome
                        ));
                        campaign.set_capacity(measurer, Rate::ZERO);
                        check_ups += 1;
                        let sender = sender.clone();
                        scope.spawn(move || check_up(team, measurer, interrupt, &sender));
                    }
                    let is_over = campaign.handle_end(RelayId(measured.relay), verdict);
                    let earlier = results.remove(&measured.relay);
                    let rounds = earlier.as_ref().map_or(0, |it| it.report.rounds);
                    let measured = match earlier {
                        Some(earlier) if stands(&earlier.outcome, &measured.outcome) => earlier,
                        _ => measured,
                    };
                    let report = RelayReport { rounds: rounds + 1, ..measured.report };
                    if is_over && !interrupt.is_requested() {
                        output.step(measuring::line(&report));
                        output.record(|| report.value("relay"));
                    }
                    results.insert(measured.relay, Measured { report, ..measured });
                }
                Ok(Event::CheckedUp { measurer, capacity }) => {
                    check_ups -= 1;
                    if let Some(capacity) = capacity {
                        output.step(format!("{measurer} is back, with {capacity}"));
                        campaign.set_capacity(measurer, capacity);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        let left = campaign.clear_queue().len();
        if left > 0 {
            output.step(format!("no measurer is left: {left} relays are not measured"));
        }
    });
    match broken {
        Some(error) => Err(error),
        None => Ok(results.into_values().collect()),
    }
}

/// One round.
fn measure(
    team: &RemoteTeam,
    params: Params,
    relay: &Relay,
    launch: Launch,
    output: &Output,
    interrupt: &Interrupt,
    events: &Sender<Event>,
) {
    let Launch { relay: RelayId(place), guess, allocation, .. } = launch;
    let subject = Subject {
        nickname: relay.subject.nickname.clone(),
        request: Request { guess, ..relay.subject.request },
        ..relay.subject
    };
    let options = TeamOptions { params, ..TeamOptions::default() };
    let measured = Team::of(team.mates_of(&allocation), options)
        .and_then(|mut team| measuring::measure(&mut team, &subject, None, output, interrupt))
        .map_err(Error::from);
    let result = match measured {
        Ok((result, report)) => {
            let at_unix_s = unix_time_s();
            Ok(Measured { relay: place, outcome: result.outcome, report, at_unix_s })
        }
        Err(error) => Err((place, error)),
    };
    // The receiver outlives all threads of its scope.
    let result = Box::new(result);
    let _ = events.send(Event::Ended { allocation, guess, result });
}

/// What is to be done about a relay after a round, and which measurer has failed.
fn judge(outcome: &Outcome, allocation: &Allocation, guess: Rate) -> (Verdict, Option<MeasurerId>) {
    match outcome {
        Outcome::Measured(estimate) => match estimate.inconclusive {
            Some(Inconclusive::TeamTooSmall { .. } | Inconclusive::RoundLimit { .. }) => {
                // §4.2: z₀ ← max(z, 2·z₀).
                (Verdict::Again { guess: estimate.capacity.max(guess + guess) }, None)
            }
            _ => (Verdict::Done, None),
        },
        Outcome::Failed { reason, measurer, .. } if reason.blame() == Blame::Measurer => {
            // The team of one measurement knows its members by their places in the allocation.
            let place = measurer.map(|MeasurerId(place)| place);
            let lost = place.and_then(|place| allocation.assignments.get(place));
            (Verdict::Repeat, lost.map(|assignment| assignment.measurer))
        }
        Outcome::Failed { .. } => (Verdict::Done, None),
    }
}

/// Whether the estimate of an earlier round stands after another one: if the relay did not want that.
fn stands(earlier: &Outcome, later: &Outcome) -> bool {
    let is_refused = matches!(later, Outcome::Failed { reason, .. } if is_not_now(reason));
    is_refused && earlier.estimate().is_some()
}

/// Asks a measurer that has failed until it answers.
fn check_up(
    team: &RemoteTeam,
    measurer: MeasurerId,
    interrupt: &Interrupt,
    events: &Sender<Event>,
) {
    let mut attempts = 0..CHECK_UPS;
    let capacity = attempts
        .find_map(|_| if interrupt.wait(CHECK_UP_PAUSE) { None } else { team.ask(measurer).ok() });
    let _ = events.send(Event::CheckedUp { measurer, capacity });
}
