//! The running measurements.

use super::groups::Groups;
use super::{Action, Event, Finished, MeasurementId, Now, Period, ProbeAnswer, Relay};
use crate::allocation::{Allocation, MeasurerId};
use crate::campaign::{Ended, Launch, Next, RelayIndex};
use crate::consent::ConsentError;
use crate::failure::Failure;
use crate::journal::{Entry, MeasurementStarted};
use crate::measurement::SetupError;
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::params::Params;
use crate::record::{End, Facts, Record, RoundHistory};
use crate::round::MemberReport;
use crate::team_measurement::{Progress, TeamAction, TeamMeasurement, TeamMember, TeamRequest};
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use onion::measure::order::OrderEvent;
use onion::{Duration, Instant};
use sha2::{Digest as _, Sha256};

/// The timeout for timing the round trip to a relay before it is measured.
pub const RTT_TIMEOUT: Duration = Duration::from_millis(1200);

/// The assumed round trip of a relay that did not answer: few are farther.
const RTT_UNKNOWN: Duration = Duration::from_millis(300);

/// The timeout for a connection to a relay that stopped reporting. The first packet may get lost.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Measurements are set up in this time before the end of the load whose share of the team they get. At a round trip of
/// 300 ms, 46 sockets are set up in less; more of them delay the load. Measurers promise a share as early.
pub const SETUP_AHEAD_S: u32 = 4;

/// A running measurement.
#[derive(Clone, Debug)]
pub(super) struct Running {
    relay: RelayIndex,
    launch: Launch,
    started: MeasurementStarted,
    /// Rounds by number, and when they started, in Unix seconds.
    starts: Vec<(u32, u64)>,
    /// `None` until the round trip is known.
    team: Option<Box<TeamMeasurement>>,
    /// When its load ends, if that is soon.
    load_ends: Option<Instant>,
    /// Its load starts at this time or later, since others' loads end then that have some of its measurers.
    not_before: Option<Instant>,
    /// It is set up, and waits for that time.
    is_held: bool,
}

impl Running {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let team = self.team.as_ref().and_then(|team| team.poll_timeout());
        team.into_iter().chain(self.not_before.filter(|_| self.is_held)).min()
    }

    fn allocation(&self) -> &Allocation {
        &self.launch.allocation
    }
}

impl ProbeAnswer {
    /// The expected round trip.
    #[must_use]
    pub const fn round_trip(self) -> Duration {
        match self {
            Self::Connected(rtt) => rtt,
            // It gets the fewest sockets: the measurement shows why it refused.
            Self::Refused => Duration::ZERO,
            Self::Silent => RTT_UNKNOWN,
        }
    }
}

// Events of measurements.
impl Period {
    /// A measurer reports on its round of a measurement.
    pub fn handle_report(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        measurer: MeasurerId,
        round: u32,
        report: MemberReport,
    ) {
        self.with_member(now, measurement, measurer, |team, place| {
            team.handle_report(now.instant, place, round, report);
        });
    }

    /// A measurer cannot get its order, or is lost.
    pub fn handle_lost_measurer(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        measurer: MeasurerId,
        detail: String,
    ) {
        self.with_member(now, measurement, measurer, |team, place| {
            team.handle_lost_measurer(now.instant, place, detail);
        });
    }

    /// The number of a measurer's open sockets has changed since it was ready.
    pub fn handle_sockets(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        measurer: MeasurerId,
        open: u32,
    ) {
        self.with_member(now, measurement, measurer, |team, place| {
            team.handle_sockets(now.instant, place, open);
        });
    }

    fn with_member(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        measurer: MeasurerId,
        change: impl FnOnce(&mut TeamMeasurement, MeasurerId),
    ) {
        let running = self.running.get(&measurement);
        let place = running.and_then(|running| running.allocation().place(measurer));
        if let Some(place) = place {
            self.with_team(now, measurement, |team| change(team, MeasurerId(place)));
        }
    }

    fn with_team(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        change: impl FnOnce(&mut TeamMeasurement),
    ) {
        let running = self.running.get_mut(&measurement);
        if let Some(team) = running.and_then(|running| running.team.as_mut()) {
            change(team);
            self.act(now, measurement);
            self.advance(now);
        }
    }

    /// A relay answers an order of this round, or reports on it.
    pub fn handle_order_event(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        round: u32,
        event: OrderEvent,
    ) {
        self.with_team(now, measurement, |team| {
            team.handle_order_event(now.instant, round, event);
        });
    }

    /// The coordinator's own machine cannot continue a measurement.
    pub fn handle_own_failure(&mut self, now: Now, measurement: MeasurementId, detail: String) {
        self.with_team(now, measurement, |team| team.handle_own_failure(now.instant, detail));
    }

    /// Whether a relay's host answered ([`Action::Probe`]).
    pub fn handle_probe(&mut self, now: Now, measurement: MeasurementId, answer: ProbeAnswer) {
        let Some(running) = self.running.get(&measurement) else { return };
        if running.team.is_some() {
            let is_answering = answer != ProbeAnswer::Silent;
            return self.with_team(now, measurement, |team| {
                team.handle_probe(now.instant, is_answering);
            });
        }
        self.begin_measurement(now, measurement, answer.round_trip());
        self.advance(now);
    }

    pub(super) fn handle_measurement_timeouts(&mut self, now: Now) {
        let is_due = |running: &Running| running.poll_timeout().is_some_and(|at| at <= now.instant);
        let due: Vec<MeasurementId> =
            self.running.iter().filter(|(_, running)| is_due(running)).map(|(id, _)| *id).collect();
        for measurement in due {
            let running = self.running.get_mut(&measurement);
            if let Some(team) = running.and_then(|running| running.team.as_mut()) {
                team.handle_timeout(now.instant);
                self.act(now, measurement);
            }
        }
    }
}

// Launch to record.
impl Period {
    pub(super) fn params(&self, relay: &Relay) -> Params {
        match relay.mode {
            Mode::Transit => self.config.params,
            Mode::Echo => self.config.params.within_quota(self.config.echo_rounds),
        }
    }

    /// Launches measurements as long as there is room.
    pub(super) fn launch(&mut self, now: Now) {
        while let Some(launch) = self.campaign.poll_launch() {
            let Some(relay) = self.relays.get(launch.relay.0) else { continue };
            if let Err(error) = self.check_load(now, relay) {
                self.leave_out(now, &launch, &error);
                continue;
            }
            let measurement = MeasurementId(self.measurements);
            self.measurements += 1;
            let past = self.pasts.entry(relay.id()).or_default();
            past.turns += 1;
            let bounds = self.config.bounds;
            let started = MeasurementStarted {
                ids: relay.ids,
                nickname: relay.nickname.clone(),
                address: relay.address,
                period_unix_s: bounds.begin_unix_s,
                number: past.turns,
                slot: self.slots.as_ref().map(|_| bounds.slot(now.unix_s())),
                started_unix_s: now.unix_s(),
            };
            let address = relay.address;
            self.journal(Entry::Started(started.clone()));
            let not_before = self.end_of_loads(now, &launch.allocation);
            let (relay, starts) = (launch.relay, Vec::new());
            let running = Running {
                relay,
                launch,
                started,
                starts,
                team: None,
                load_ends: None,
                not_before,
                is_held: false,
            };
            self.running.insert(measurement, running);
            let timeout = RTT_TIMEOUT;
            self.actions.push_back(Action::Probe { measurement, address, timeout });
        }
    }

    /// When the loads end that use some of these measurers and whose shares are free; `None` if there are none.
    fn end_of_loads(&self, now: Now, allocation: &Allocation) -> Option<Instant> {
        let shares = |other: &Running| {
            let mut others = other.allocation().assignments.iter();
            others.any(|assignment| allocation.place(assignment.measurer).is_some())
        };
        let ending = self.running.values().filter(|running| shares(running));
        ending.filter_map(|running| running.load_ends).max().filter(|end| *end > now.instant)
    }

    /// Whether a relay may be loaded now, until the end of a measurement that begins now. Consent may have been withdrawn
    /// since the relay was queued, with no newer consensus to leave it out.
    fn check_load(&self, now: Now, relay: &Relay) -> Result<(), ConsentError> {
        let times = [now.unix_s(), now.unix_s() + self.load_s()];
        let check = |at: u64| self.consent.check(relay.id(), relay.address.ip(), at);
        times.into_iter().try_for_each(check)
    }

    /// A relay that was about to be measured is not measured in this period, or at another hour. Nothing of it is recorded.
    fn leave_out(&mut self, now: Now, launch: &Launch, error: &ConsentError) {
        let relay = launch.relay;
        self.campaign.handle_end(relay, Next::Nothing);
        let id = self.relays.get(relay.0).map(Relay::id);
        if let (Some(slots), Some(id)) = (&mut self.slots, id) {
            let follows = error.is_out_of_hours().then_some(launch.turn);
            slots.handle_end(id, follows, self.config.bounds.slot(now.unix_s()));
        }
        self.event(Event::LeftOut(relay, error.to_string()));
        let settled = self.groups.leave(relay);
        self.settle(now, settled);
    }

    fn begin_measurement(&mut self, now: Now, measurement: MeasurementId, rtt: Duration) {
        match self.team_measurement(now, measurement, rtt) {
            Some(Ok(team)) => {
                if let Some(running) = self.running.get_mut(&measurement) {
                    if let Some(at) = &mut running.not_before {
                        *at = at.saturating_sub(team.start_delay());
                        self.groups.hold(running.relay, *at);
                    }
                    running.team = Some(Box::new(team));
                }
                self.act(now, measurement);
            }
            Some(Err(error)) => {
                let reason = Failure::CoordinatorBroken { detail: error.to_string() };
                self.fail(now, measurement, reason);
            }
            None => {}
        }
    }

    fn team_measurement(
        &self,
        now: Now,
        measurement: MeasurementId,
        rtt: Duration,
    ) -> Option<Result<TeamMeasurement, SetupError>> {
        let running = self.running.get(&measurement)?;
        let relay = self.relays.get(running.relay.0)?;
        let member = |assignment: &crate::Assignment| {
            let configured = self.measurers.get(assignment.measurer)?;
            let ip = configured.address.ip();
            let address = (!ip.is_loopback()).then_some(ip);
            Some(TeamMember { key: configured.key, address, capacity: assignment.rate })
        };
        let launch = &running.launch;
        let request = TeamRequest {
            target: relay.target(),
            defences: relay.defences,
            mode: relay.mode,
            always_authenticate: self.config.always_authenticate,
            params: self.params(relay),
            path: self.config.path,
            members: launch.allocation.assignments.iter().filter_map(member).collect(),
            launch: launch.clone(),
            rtt,
            secret: self.secret_of(measurement),
            awaits_start: self.groups.contains(running.relay) || running.not_before.is_some(),
        };
        Some(TeamMeasurement::new(now.instant, request))
    }

    fn secret_of(&self, MeasurementId(number): MeasurementId) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"flashflow measurement secret");
        hash.update(self.config.secret);
        hash.update(number.to_be_bytes());
        hash.finalize().into()
    }

    /// Performs the actions of a measurement.
    fn act(&mut self, now: Now, measurement: MeasurementId) {
        loop {
            let Some(running) = self.running.get_mut(&measurement) else { return };
            let (relay, launch) = (running.relay, &running.launch);
            let Some(team) = running.team.as_mut() else { return };
            let Some(action) = team.poll_action() else { return };
            let action = match action {
                TeamAction::GiveOrder(terms) => {
                    let Some(known) = self.relays.get(relay.0) else { return };
                    Action::GiveOrder { measurement, target: known.target(), terms }
                }
                TeamAction::Prepare(place, order) => {
                    let Some(measurer) = launch.allocation.member(place) else { continue };
                    Action::Prepare { measurement, measurer, round: team.round(), order }
                }
                TeamAction::Start { delay, .. } => Action::Start { measurement, delay },
                TeamAction::Stop => Action::Stop { measurement },
                TeamAction::Probe => {
                    let address = running.started.address;
                    Action::Probe { measurement, address, timeout: ANSWER_TIMEOUT }
                }
                TeamAction::AwaitStart(latest) => {
                    if self.groups.contains(relay) {
                        self.groups.handle_ready(relay, latest);
                    } else {
                        running.is_held = true;
                    }
                    continue;
                }
                TeamAction::Progress(progress) => {
                    match progress {
                        Progress::Preparing { .. } => {}
                        Progress::Started { round } => running.starts.push((round, now.unix_s())),
                        Progress::Second { index, of, .. } => {
                            let left_s = of.saturating_sub(index + 1);
                            if self.slots.is_some() && left_s <= SETUP_AHEAD_S {
                                let left = Duration::from_secs(left_s.into());
                                running.load_ends = Some(now.instant + left);
                                self.campaign.handle_ending(relay);
                            }
                        }
                    }
                    Action::Event(Event::Progress(relay, progress))
                }
                TeamAction::Done(outcome) => {
                    let course = team.course();
                    let loads = team.loads().iter().copied().flatten().collect();
                    self.event(Event::Loads(relay, loads));
                    return self.finish(now, measurement, &outcome, course);
                }
            };
            self.actions.push_back(action);
        }
    }

    /// Starts the groups whose relays are ready, and relays whose measurers are free.
    pub(super) fn start_waiting(&mut self, now: Now) {
        let ready = Groups::poll_start(&mut self.groups, now.instant);
        let is_due = |running: &Running| {
            let is_free = running.not_before.is_none_or(|at| at <= now.instant);
            running.is_held && is_free || ready.contains(&running.relay)
        };
        let due: Vec<MeasurementId> =
            self.running.iter().filter(|(_, running)| is_due(running)).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(running) = self.running.get_mut(&id)
                && let Some(team) = running.team.as_mut()
            {
                running.is_held = false;
                team.start_held(now.instant);
                self.act(now, id);
            }
        }
    }

    /// Ends a measurement early.
    pub(super) fn cancel(&mut self, now: Now, measurement: MeasurementId) {
        let running = self.running.get_mut(&measurement);
        match running.and_then(|running| running.team.as_mut()) {
            Some(team) => {
                team.cancel(now.instant);
                self.act(now, measurement);
            }
            None => self.fail(now, measurement, Failure::Cancelled),
        }
    }

    /// A measurement ends before its first round.
    fn fail(&mut self, now: Now, measurement: MeasurementId, reason: Failure) {
        let Some(running) = self.running.get(&measurement) else { return };
        let Some(relay) = self.relays.get(running.relay.0) else { return };
        let round = running.launch.turn.round;
        let outcome = Outcome::Failed { reason, measurer: None, round, second: None };
        let course =
            RoundHistory { mode: relay.mode, params: self.params(relay), rounds: Vec::new() };
        self.finish(now, measurement, &outcome, course);
    }

    fn finish(
        &mut self,
        now: Now,
        measurement: MeasurementId,
        outcome: &Outcome,
        course: RoundHistory,
    ) {
        let Some(running) = self.running.remove(&measurement) else { return };
        let Running { relay, launch, started, starts, .. } = running;
        let facts = Facts { relay: started.subject(), ended_unix_s: now.unix_s(), starts };
        let record = Record::new(facts, course, outcome).in_team(&launch.allocation);
        for (measurer, path) in record.paths() {
            self.campaign.handle_path(relay, measurer, path);
        }
        let Ended { lost, follows, .. } = self.campaign.handle_outcome(relay, outcome);
        // Without slots there is no other time.
        let follows = follows.filter(|turn| self.slots.is_some() || !turn.is_after_decline);
        let follows =
            follows.filter(|_| self.config.repeats_failures || record.failure().is_none());
        self.event(Event::MeasurementEnded(Box::new(record.clone())));
        self.look_after_measurers(now, lost, &record);
        if let Some(slots) = &mut self.slots {
            slots.handle_end(started.ids.rsa, follows, self.config.bounds.slot(now.unix_s()));
        }
        let finished = Finished { relay, turn: launch.turn, record, started, follows };
        let settled = self.groups.end(finished);
        self.settle(now, settled);
    }

    fn look_after_measurers(&mut self, now: Now, lost: Option<MeasurerId>, record: &Record) {
        if let Some(measurer) = lost {
            self.event(Event::MeasurerLost(measurer, Box::new(record.clone())));
            self.record_health(now, measurer, Err(record.to_string()));
            self.measurers.check(now, measurer);
        } else if let End::Failed { reason, measurer: Some(measurer), .. } = &record.end
            && reason.may_be_relays_doing()
        {
            self.event(Event::MeasurerLeftOut(*measurer, Box::new(record.clone())));
        }
    }
}
