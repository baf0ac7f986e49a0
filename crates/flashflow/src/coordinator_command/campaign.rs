//! Several relays at once, each measurement on a thread of its own.

use super::config::Config;
use super::relays::Relay;
use super::team::RemoteTeam;
use crate::error::Error;
use coordinator::{Campaign, Ended, Launch, MeasurerId, Next, Outcome, Record, RelayId};
use measurer::{Team, TeamOptions};
use onion::{Duration, Rate};
use report::RelayReport;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use terminal::measuring;
use terminal::{Interrupt, Output};

/// Longest wait before the user's wish to end is looked at.
const LATENCY: Duration = Duration::from_millis(200);

/// A measurer that failed is asked so often, with a pause before each, whether it is well again.
const CHECK_UPS: u32 = 6;
const CHECK_UP_PAUSE: Duration = Duration::from_secs(3);

enum Event {
    Ended { relay: RelayId, result: Result<Box<(Outcome, Record)>, Error> },
    CheckedUp { measurer: MeasurerId, capacity: Option<Rate> },
}

/// Measures each relay. Records are by the relays' places; relays that an interrupt kept from being
/// measured, or the loss of all measurers, have none.
pub(super) fn run(
    config: &Config,
    team: &RemoteTeam,
    capacities: Vec<Rate>,
    relays: &[Relay],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<BTreeMap<usize, Record>, Error> {
    let params = config.params;
    let mut campaign = Campaign::new(params.excess_factor(), params.sockets, capacities);
    for (place, Relay { subject, guess, .. }) in relays.iter().enumerate() {
        let rounds_max = subject.request.approach.within(params).max_rounds;
        campaign.add(RelayId(place), guess.standing(), guess.capacity, rounds_max);
    }
    let mut records: BTreeMap<usize, Record> = BTreeMap::new();
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
                    let result = measure(config, team, relay, &launch, output, interrupt);
                    // The receiver outlives all threads of its scope.
                    let _ = sender.send(Event::Ended { relay: launch.relay, result });
                });
            }
            let is_hopeless = campaign.capacity() == Rate::ZERO && check_ups == 0;
            if campaign.running() == 0 && (campaign.queued() == 0 || is_hopeless) {
                break;
            }
            match events.recv_timeout(LATENCY) {
                Ok(Event::Ended { relay, result: Err(error) }) => {
                    campaign.handle_end(relay, Next::Nothing);
                    broken.get_or_insert(error);
                }
                Ok(Event::Ended { relay, result: Ok(measured) }) => {
                    let (outcome, record) = *measured;
                    let Ended { is_over, lost } = campaign.handle_outcome(relay, &outcome);
                    if let Some(measurer) = lost {
                        let name = &record.relay.nickname;
                        output.step(format!("{measurer} ({name}) has failed: {record}"));
                        check_ups += 1;
                        let sender = sender.clone();
                        scope.spawn(move || check_up(team, measurer, interrupt, &sender));
                    }
                    let record = match records.remove(&relay.0) {
                        Some(earlier) => earlier.followed_by(record),
                        None => record,
                    };
                    if is_over && !interrupt.is_requested() {
                        let report = RelayReport::from(&record);
                        output.step(report::line(&report));
                        output.record(|| report.value("relay"));
                    }
                    records.insert(relay.0, record);
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
        None => Ok(records),
    }
}

/// One turn of a relay.
fn measure(
    config: &Config,
    team: &RemoteTeam,
    relay: &Relay,
    launch: &Launch,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Box<(Outcome, Record)>, Error> {
    let options = TeamOptions { params: config.params, ..TeamOptions::default() };
    let mut team = Team::of(team.mates_of(&launch.allocation), options)?;
    let measured = measuring::measure_turn(&mut team, &relay.subject, launch, output, interrupt)?;
    let (result, record) = measured;
    Ok(Box::new((result.outcome, record)))
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
