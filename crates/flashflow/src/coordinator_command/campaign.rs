//! Several relays at once, each measurement on a thread of its own.

use super::config::Config;
use super::journal::Journal;
use super::relays::Relay;
use super::team::RemoteTeam;
use super::together::{Machines, TurnOver, come_along};
use cli::Error;
use coordinator::{
    Campaign, End, Ended, Failure, Launch, MeasurerId, Next, Outcome, PathSeen, Record,
};
use coordinator::{Counts, RelayId, Standing, Turn};
use link::unix_time_s;
use measurer::{Pass, Team, TeamOptions};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use report::RelayReport;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Scope};
use store::{Begun, Entry, Progress};
use terminal::measuring;
use terminal::{Hangup, Interrupt, Output};

/// Longest wait before the user's wish to end is looked at.
pub(super) const LATENCY: Duration = Duration::from_millis(200);

/// At least so often the store is told how far a period is.
pub(super) const ALIVE_S: u64 = 1800;

/// A measurer that failed is asked so often, with a pause before each, whether it is well again.
const CHECK_UPS: u32 = 6;
const CHECK_UP_PAUSE: Duration = Duration::from_secs(3);

/// What all measurements of a period have in common.
#[derive(Clone, Copy)]
pub(super) struct Common<'env> {
    pub(super) config: &'env Config,
    pub(super) team: &'env RemoteTeam,
    pub(super) journal: &'env Journal,
    pub(super) output: &'env Output,
    pub(super) interrupt: &'env Interrupt,
    pub(super) hangup: &'env Hangup,
}

/// A campaign whose measurements are threads of a scope. Relays are numbered in the order in which they come.
pub(super) struct Measuring<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    common: Common<'env>,
    campaign: Campaign,
    /// When the period began.
    period_unix_s: u64,
    /// The slot that it is in, if there is a plan.
    slot: Option<u32>,
    /// Turns that follow on others have slots of their own, which the caller sees to.
    has_plan: bool,
    /// What runs: which turn, and as the store knows it.
    begun: BTreeMap<RelayId, (Turn, Begun)>,
    /// Those that share one, and are measured together.
    machines: Machines,
    found: Found,
    broken: Option<Error>,
    check_ups: u32,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

enum Event {
    Ended { relay: RelayId, result: Result<Box<(Outcome, Record)>, Error> },
    CheckedUp { measurer: MeasurerId, capacity: Option<Rate> },
}

/// What a period has found: records by the places of the relays. Relays whose turn did not come have none.
#[derive(Default)]
pub(super) struct Found {
    pub(super) relays: Vec<Relay>,
    pub(super) records: BTreeMap<usize, Record>,
}

/// A relay's turn is over.
pub(super) struct TurnEnd {
    pub(super) relay: RelayId,
    /// What has to follow, if that is left to the caller.
    pub(super) follows: Option<Turn>,
}

/// Measures each relay, as many at once as the team can, the biggest first.
pub(super) fn run(
    common: Common<'_>,
    capacities: Vec<Rate>,
    relays: Vec<Relay>,
    period_unix_s: u64,
) -> Result<Found, Error> {
    thread::scope(|scope| {
        let mut measuring = Measuring::new(scope, common, capacities, period_unix_s, false);
        let mut machines: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
        for relay in relays {
            let (standing, turn) = (relay.guess.standing(), relay.first_turn(common.config));
            let together = relay.together;
            let turn = (measuring.know(relay), standing, turn);
            machines.entry(together).or_default().push(turn);
        }
        machines.values().for_each(|turns| measuring.add_machine(turns));
        let mut told = 0;
        while !measuring.is_over() {
            let has_ended = measuring.proceed(LATENCY).is_some();
            let now = unix_time_s();
            if has_ended || now.abs_diff(told) >= ALIVE_S {
                told = now;
                measuring.tell_progress(now);
            }
        }
        measuring.tell_progress(unix_time_s());
        measuring.end()
    })
}

impl<'scope, 'env> Measuring<'scope, 'env> {
    /// Without relays. Turns that follow on others are the caller's business if it has a plan.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        common: Common<'env>,
        capacities: Vec<Rate>,
        period_unix_s: u64,
        has_plan: bool,
    ) -> Self {
        let params = &common.config.params;
        let campaign = Campaign::new(params.excess_factor(), params.sockets, capacities);
        let mut campaign = campaign.at_hosts(common.team.hosts()).leaving_what_follows();
        campaign.set_at_once_max(common.team.at_once_max(common.config));
        let (sender, events) = channel();
        Self {
            scope,
            common,
            campaign,
            period_unix_s,
            slot: None,
            has_plan,
            begun: BTreeMap::new(),
            machines: Machines::default(),
            found: Found::default(),
            broken: None,
            check_ups: 0,
            sender,
            events,
        }
    }

    /// Takes up a relay that may be measured later, and numbers it.
    pub(super) fn know(&mut self, relay: Relay) -> RelayId {
        let id = RelayId(self.found.relays.len());
        self.expect_paths(id, &relay.paths);
        self.found.relays.push(relay);
        id
    }

    fn expect_paths(&mut self, relay: RelayId, paths: &[(MeasurerId, PathSeen)]) {
        for (measurer, path) in paths {
            self.campaign.expect_path(relay, *measurer, *path);
        }
    }

    /// A newer consensus has other addresses or parameters of a relay.
    pub(super) fn renew(&mut self, RelayId(place): RelayId, relay: Relay) {
        self.expect_paths(RelayId(place), &relay.paths);
        if let Some(known) = self.found.relays.get_mut(place) {
            *known = relay;
        }
    }

    /// What an earlier process found out about a relay in this period.
    pub(super) fn adopt(&mut self, RelayId(place): RelayId, record: Record) {
        self.found.records.entry(place).or_insert(record);
    }

    /// The slot of the plan that has begun.
    pub(super) const fn in_slot(&mut self, slot: u32) {
        self.slot = Some(slot);
    }

    /// The turns of these relays have come, which share a machine, if they are several.
    pub(super) fn add_machine(&mut self, turns: &[(RelayId, Standing, Turn)]) {
        let relays: Vec<(RelayId, RsaId)> =
            turns.iter().filter_map(|(id, _, _)| Some((*id, self.relay(*id)?.machine))).collect();
        self.machines.begin(&relays);
        self.campaign.add_machine(turns);
    }

    /// Which relay has this number.
    pub(super) fn id(&self, id: RelayId) -> Option<RsaId> {
        self.relay(id).map(Relay::id)
    }

    fn relay(&self, RelayId(place): RelayId) -> Option<&Relay> {
        self.found.relays.get(place)
    }

    /// What has been found so far.
    pub(super) const fn found(&self) -> &Found {
        &self.found
    }

    /// Whether nothing is left to do, or nobody to do it.
    pub(super) fn is_over(&self) -> bool {
        let is_hopeless = self.campaign.capacity() == Rate::ZERO && self.check_ups == 0;
        self.campaign.running() == 0 && (self.campaign.queued() == 0 || is_hopeless)
    }

    /// Whether something has gone wrong that concerns all measurements.
    pub(super) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// How far a pass without slots is.
    fn tell_progress(&self, at_unix_s: u64) {
        let counts = Counts {
            waiting: self.campaign.queued(),
            running: self.campaign.running(),
            done: self.found.records.len(),
            without_slot: 0,
        };
        let progress = Progress { at_unix_s, period_unix_s: self.period_unix_s, counts };
        self.common.journal.note(Entry::Progress(progress));
    }

    /// Asks measurers that have failed whether they are well again.
    pub(super) fn check_up(&mut self) {
        if self.check_ups > 0 {
            return;
        }
        for measurer in self.campaign.lost() {
            self.start_check_up(measurer);
        }
    }

    /// Starts what can be started, and waits for one thing to happen, so long at most.
    pub(super) fn proceed(&mut self, longest: Duration) -> Option<TurnEnd> {
        if self.common.interrupt.is_requested() || self.broken.is_some() {
            self.campaign.clear_queue();
        }
        while let Some(launch) = self.campaign.poll_launch() {
            let Some(relay) = self.found.relays.get(launch.relay.0) else { continue };
            let journal = self.common.journal;
            let begun = journal.begin(relay, self.period_unix_s, self.slot, unix_time_s());
            self.begun.insert(launch.relay, (launch.turn, begun));
            let (common, relay, sender) = (self.common, relay.clone(), self.sender.clone());
            let pass = self.machines.pass(launch.relay);
            self.scope.spawn(move || {
                let result = measure(common, &relay, &launch, pass);
                // The receiver outlives all threads of its scope.
                let _ = sender.send(Event::Ended { relay: launch.relay, result });
            });
        }
        match self.events.recv_timeout(longest) {
            Ok(Event::Ended { relay, result: Err(error) }) => {
                self.campaign.handle_end(relay, Next::Nothing);
                self.broken.get_or_insert(error);
                let settled = self.machines.lose(relay);
                self.settle(settled);
                None
            }
            Ok(Event::Ended { relay, result: Ok(measured) }) => Some(self.note(relay, *measured)),
            Ok(Event::CheckedUp { measurer, capacity }) => {
                self.check_ups -= 1;
                if let Some(capacity) = capacity {
                    let Common { config, team, journal, output, .. } = self.common;
                    output.step(format!("{measurer} is back, with {capacity}"));
                    self.campaign.set_at_once_max(team.at_once_max(config));
                    let health = team.health(measurer, Ok(capacity), unix_time_s());
                    health.map(Entry::Measurer).into_iter().for_each(|it| journal.note(it));
                    self.campaign.set_capacity(measurer, capacity);
                }
                None
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    fn note(&mut self, relay: RelayId, (outcome, record): (Outcome, Record)) -> TurnEnd {
        let Common { team, journal, output, .. } = self.common;
        for (measurer, path) in record.paths() {
            self.campaign.handle_path(relay, measurer, path);
        }
        let Ended { lost, follows, .. } = self.campaign.handle_outcome(relay, &outcome);
        // Without a plan there is no other time.
        let follows = follows.filter(|it| self.has_plan || !it.is_after_decline);
        if let Some(what) = left_out(&record).filter(|_| lost.is_none()) {
            output.step(what);
        }
        if let Some(measurer) = lost {
            let name = &record.relay.nickname;
            output.step(format!("{measurer} ({name}) has failed: {record}"));
            let health = team.health(measurer, Err(record.to_string()), unix_time_s());
            health.map(Entry::Measurer).into_iter().for_each(|it| journal.note(it));
            self.start_check_up(measurer);
        }
        let (turn, begun) = self.begun.remove(&relay).unzip();
        let settled = self.machines.end(TurnOver { relay, turn, record, begun, follows });
        self.settle(settled);
        TurnEnd { relay, follows }
    }

    /// Records turns, tells of relays that are done, and queues what follows if nobody else sees to that.
    fn settle(&mut self, mut turns: Vec<TurnOver>) {
        let Common { team, journal, output, interrupt, .. } = self.common;
        if !self.has_plan && !interrupt.is_requested() && self.broken.is_none() {
            come_along(&mut turns);
            let follow = turns.iter().filter_map(|it| Some((it.relay, it.follows?)));
            let standing =
                |relay| self.relay(relay).map_or(Standing::New, |it| it.guess.standing());
            let follow: Vec<_> =
                follow.map(|(relay, turn)| (relay, standing(relay), turn)).collect();
            self.add_machine(&follow);
        }
        for TurnOver { relay, record, begun, follows, .. } in turns {
            let is_over = follows.is_none();
            if let Some(begun) = begun {
                journal.end(&team.keys(), begun, &record, follows);
            }
            let record = match self.found.records.remove(&relay.0) {
                Some(earlier) => earlier.followed_by(record),
                None => record,
            };
            if is_over && !interrupt.is_requested() {
                let report = RelayReport::from(&record);
                output.step(report::line(&report));
                output.record(|| report.value("relay"));
            }
            self.found.records.insert(relay.0, record);
        }
    }

    fn start_check_up(&mut self, measurer: MeasurerId) {
        self.check_ups += 1;
        let (common, sender) = (self.common, self.sender.clone());
        self.scope.spawn(move || check_up(common, measurer, &sender));
    }

    /// What was found; says which relays had to be left out.
    pub(super) fn end(mut self) -> Result<Found, Error> {
        let settled = self.machines.end_all();
        self.settle(settled);
        let left = self.campaign.clear_queue().len();
        if left > 0 {
            let what = format!("no measurer is left: {left} relays are not measured");
            self.common.output.step(what);
        }
        match self.broken {
            Some(error) => Err(error),
            None => Ok(self.found),
        }
    }
}

/// One turn of a relay.
fn measure(
    common: Common<'_>,
    relay: &Relay,
    launch: &Launch,
    pass: Option<Pass>,
) -> Result<Box<(Outcome, Record)>, Error> {
    let Common { config, team, output, interrupt, .. } = common;
    let options = TeamOptions { params: config.params, ..TeamOptions::default() };
    let team = Team::of(team.mates_of(&launch.allocation), options)?;
    let mut team = team.waiting_at(pass);
    let measured = measuring::measure_turn(&mut team, &relay.subject, launch, output, interrupt)?;
    let (result, record) = measured;
    Ok(Box::new((result.outcome, record)))
}

/// The reason for which a measurer no longer takes part in measurements of this relay, if it still does for others.
fn left_out(record: &Record) -> Option<String> {
    let End::Failed { reason, measurer: Some(measurer), .. } = &record.end else { return None };
    let name = &record.relay.nickname;
    match reason {
        Failure::OutOfReach { detail } => {
            Some(format!("{name}: {measurer} does not reach it, and another does: {detail}"))
        }
        _ if reason.may_be_relays_doing() => {
            Some(format!("{name}: it is measured without {measurer} from now on: {reason}"))
        }
        _ => None,
    }
}

/// Asks a measurer that has failed until it answers.
fn check_up(common: Common<'_>, measurer: MeasurerId, events: &Sender<Event>) {
    let Common { team, interrupt, .. } = common;
    let mut attempts = 0..CHECK_UPS;
    let capacity = attempts
        .find_map(|_| if interrupt.wait(CHECK_UP_PAUSE) { None } else { team.ask(measurer).ok() });
    let _ = events.send(Event::CheckedUp { measurer, capacity });
}
