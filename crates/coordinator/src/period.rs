//! A measurement period: which relay is measured when, by whom, and what is published of it (paper §4.3).
//!
//! A [`Period`] owns all decisions between a consensus and a bandwidth file: who agreed to be measured, the slots, the relays that
//! start together, what follows on an inconclusive or declined measurement, measurers that fail and come back, and the rounds of
//! each measurement. It must not know of sockets, files, threads or clocks: a shell does what its [`Action`]s ask for, and the
//! simulator plays the same code in virtual time.

mod clock;
mod groups;
mod measurers;
mod network;
mod publication;
mod rounds;

pub use clock::{Bounds, Now};
pub use network::{NetworkView, Relay, Router};
pub use publication::{PublishedRelay, PublishedResult};
pub use rounds::{ANSWER_TIMEOUT, RTT_TIMEOUT};

use crate::allocation::MeasurerId;
use crate::campaign::{Campaign, Priority, RelayIndex};
use crate::consent::{Consent, ConsentError};
use crate::history::{History, HistoryPolicy};
use crate::journal::{
    ConsensusEntry, Entry, MeasurementFinished, MeasurementStarted, Past, PathEntry, PeriodEntry,
    PeriodProgress,
};
use crate::params::Params;
use crate::plan::{Seed, TeamRoom};
use crate::record::Record;
use crate::round::RoundOrder;
use crate::slot_schedule::{Arrival, Counts, SlotSchedule};
use crate::team_measurement::{OrderTerms, Progress};
use crate::turn::Attempt;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use groups::{Groups, repeat_together};
use measurers::Measurers;
use onion::identity::RsaId;
use onion::measure::load::Target;
use onion::measure::protocol::MeasurerKey;
use onion::{Duration, Instant, Rate};
use rounds::Running;

/// The store hears at least this often how far a period is, so that whoever reads it knows that somebody is there.
const PROGRESS_S: u64 = 1800;

/// In shorter periods, which only laboratories have, each relay is measured once.
const MEMORYLESS_S: u64 = 3600;

/// A measurement of a period: one launch of one relay. No two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasurementId(pub u32);

/// A measurer, by the configuration.
#[derive(Clone, Debug)]
pub struct MeasurerConfig {
    /// Its public key, as the store names it.
    pub name: String,
    /// Its public key, as relays are given it.
    pub key: MeasurerKey,
    /// Where it listens.
    pub address: SocketAddr,
    /// The most that it is believed to have.
    pub limit: Rate,
}

/// What a measurer says that it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it can send and receive.
    pub capacity: Rate,
    /// How many relays it can help to measure at once.
    pub at_once_max: u32,
}

/// When relays are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As early as the team can, the largest first; the period ends when all are done.
    Greedy,
    /// Each in a slot that is drawn from a secret seed; the period ends at its [end](Bounds::end_unix_s).
    Slots,
}

/// The seed of a period's slots, and the teams that plan by it.
#[derive(Clone, Debug)]
pub struct SlotSeed {
    /// The seed.
    pub seed: Seed,
    /// What each team has, in the order that all agree on. For the own team, what its measurers answer counts.
    pub teams: Vec<TeamRoom>,
    /// Which of them is this one.
    pub own: usize,
}

/// How to measure in a period.
#[derive(Clone, Debug)]
pub struct PeriodConfig {
    /// The bounds.
    pub bounds: Bounds,
    /// When relays are measured in it.
    pub timing: Timing,
    /// Parameters of the measurements.
    pub params: Params,
    /// What is made of the past.
    pub policy: HistoryPolicy,
    /// The team.
    pub measurers: Vec<MeasurerConfig>,
    /// Relays that are measured at once at most, if the operator says so.
    pub at_once_max: Option<u32>,
    /// Rounds that relays which take part allow in a period.
    pub echo_rounds: u32,
    /// Relays that share a host by the operator's word, in pairs.
    pub certain: Vec<(RsaId, RsaId)>,
    /// How often the consensus is read, and results are published.
    pub refresh: Duration,
    /// Fresh random bytes, from which the nonces of all orders follow.
    pub secret: [u8; 32],
}

/// What was known before the period, or before its coordinator was started again.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// What earlier periods found out, and this one so far.
    pub history: History,
    /// What has become of relays in this period.
    pub pasts: BTreeMap<RsaId, Past>,
}

/// Whether a host answered a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It accepted, after this time.
    Connected(Duration),
    /// It refused, so there is a path to it.
    Refused,
    /// It did not answer in time.
    Silent,
}

/// What the shell has to do now.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read the consensus; answer by [`Period::handle_network`] or [`Period::handle_network_failed`].
    FetchNetwork,
    /// Ask a measurer what it can do; answer by [`Period::handle_measurer`].
    AskMeasurer(MeasurerId),
    /// Open a TCP connection to a relay and close it; answer by [`Period::handle_probe`].
    Probe {
        /// For which measurement.
        measurement: MeasurementId,
        /// Where.
        address: SocketAddr,
        /// How long to try.
        timeout: Duration,
    },
    /// Ask a relay that takes part to accept an order, on a link of its own that replaces an earlier one; answer by
    /// [`Period::handle_order_event`].
    GiveOrder {
        /// For which measurement.
        measurement: MeasurementId,
        /// The relay.
        target: Target,
        /// The order.
        terms: OrderTerms,
    },
    /// Give a measurer its order for a round; it answers by [`Period::handle_report`].
    Prepare {
        /// For which measurement.
        measurement: MeasurementId,
        /// The measurer.
        measurer: MeasurerId,
        /// The round.
        round: u32,
        /// The order.
        order: RoundOrder,
    },
    /// Have the measurers of a measurement send, `delay` from now on.
    Start {
        /// Which measurement.
        measurement: MeasurementId,
        /// The delay, the same for all: messages that take time are given less of it.
        delay: Duration,
    },
    /// Have the measurers of a measurement end their round; then close the link on which the relay was given its order.
    Stop {
        /// Which measurement.
        measurement: MeasurementId,
    },
    /// Write this down before anything that follows is done.
    Journal(Entry),
    /// Write a bandwidth file.
    Publish(Vec<PublishedRelay>),
    /// For whoever watches.
    Event(Event),
    /// The period is over; nothing follows.
    Ended(Ending),
}

/// News for whoever watches.
#[derive(Clone, Debug)]
pub enum Event {
    /// A measurer has answered with its capacity, or cannot be asked.
    Measurer(MeasurerId, Result<Rate, String>),
    /// A measurer that had failed is back.
    MeasurerBack(MeasurerId, Rate),
    /// A measurer has failed in the measurement of this record, and gets no work until it answers again.
    MeasurerLost(MeasurerId, Box<Record>),
    /// In the measurement of this record a measurer was left out for this relay.
    MeasurerLeftOut(MeasurerId, Box<Record>),
    /// All is known that it takes to begin: relays that are to be measured, and how many at once at most.
    Planned {
        /// Relays that are to be measured.
        relays: usize,
        /// How many at once at most; `u32::MAX` without a bound.
        at_once_max: u32,
    },
    /// How far the period is.
    Counts(Counts),
    /// How far a measurement is.
    Progress(RelayIndex, Progress),
    /// A measurement has ended.
    MeasurementEnded(Box<Record>),
    /// A relay is done: all its measurements of the period, as one record.
    RelayDone(Box<Record>),
    /// No measurer is left, and so many relays are not measured.
    NotMeasured(usize),
}

/// How a period ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Complete,
    /// By [`Period::wind_up`].
    Interrupted,
    /// It could not begin: the consensus cannot be had. The shell knows why.
    NoNetwork,
    /// It could not begin: no measurer answers.
    NoMeasurer,
    /// It could not begin: no relay of this consensus may be measured.
    NoRelay(String),
    /// It could not begin: a relay that the operator names has not agreed.
    NoConsent(ConsentError),
}

/// A measurement that has ended.
#[derive(Clone, Debug)]
struct Finished {
    relay: RelayIndex,
    turn: Attempt,
    record: Record,
    started: MeasurementStarted,
    follows: Option<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the consensus and the measurers.
    Beginning,
    Measuring,
    Ended,
}

/// A measurement period, as a state machine without sockets, clocks and randomness of its own.
///
/// After `new`, and after each command and `handle_*` call: call [`poll_action`](Self::poll_action) until `None` and do what it
/// says in that order; then arm a timer for [`poll_timeout`](Self::poll_timeout), replacing the earlier one, and call
/// [`handle_timeout`](Self::handle_timeout) when it fires. Whatever an action asks for may take its time: the answer arrives by a
/// `handle_*` call. Answers of measurements that are over are ignored.
///
/// A coordinator that is killed goes on where it was, if the next one is given what was [journaled](Action::Journal).
#[derive(Clone, Debug)]
pub struct Period {
    config: PeriodConfig,
    consent: Consent,
    history: History,
    pasts: BTreeMap<RsaId, Past>,
    phase: Phase,
    is_winding_up: bool,
    network: Option<NetworkView>,
    seed: Option<SlotSeed>,
    measurers: Measurers,
    campaign: Campaign,
    slots: Option<SlotSchedule>,
    /// Every relay that has been in a consensus of this period.
    relays: Vec<Relay>,
    places: BTreeMap<RsaId, RelayIndex>,
    /// Those that are in the newest one.
    present: Vec<RelayIndex>,
    groups: Groups,
    running: BTreeMap<MeasurementId, Running>,
    measurements: u32,
    /// What has been found of each relay in this period.
    records: BTreeMap<RelayIndex, Record>,
    is_fetching: bool,
    /// When the consensus was read last, and progress recorded last, in Unix seconds.
    refreshed_unix_s: u64,
    recorded_unix_s: u64,
    actions: VecDeque<Action>,
}

// Life, commands and getters.
impl Period {
    /// Begins a period, or goes on with one.
    #[must_use]
    pub fn new(now: Now, config: PeriodConfig, consent: Consent, knowledge: Knowledge) -> Self {
        let Knowledge { history, pasts } = knowledge;
        let measurers = Measurers::new(config.measurers.clone());
        let nothing = measurers.ids().map(|_| Rate::ZERO).collect();
        let campaign = Campaign::new(config.params.excess_factor(), config.params.sockets, nothing);
        let campaign = campaign.at_hosts(measurers.hosts()).leaving_what_follows();
        let mut this = Self {
            config,
            consent,
            history,
            pasts,
            phase: Phase::Beginning,
            is_winding_up: false,
            network: None,
            seed: None,
            measurers,
            campaign,
            slots: None,
            relays: Vec::new(),
            places: BTreeMap::new(),
            present: Vec::new(),
            groups: Groups::default(),
            running: BTreeMap::new(),
            measurements: 0,
            records: BTreeMap::new(),
            is_fetching: false,
            refreshed_unix_s: now.unix_s(),
            recorded_unix_s: now.unix_s(),
            actions: VecDeque::new(),
        };
        let Bounds { begin_unix_s, length_s, slot_s } = this.config.bounds;
        let slot_s = if this.config.timing == Timing::Slots { slot_s } else { 0 };
        this.journal(Entry::Period(PeriodEntry { begin_unix_s, length_s, slot_s, seed: None }));
        this.journal(Entry::Team(this.measurers.keys()));
        this.fetch();
        for measurer in this.measurers.ids() {
            this.ask(measurer);
        }
        this
    }

    /// Ends the period early: nothing new begins, what runs is cancelled, and what was found is published.
    pub fn wind_up(&mut self, now: Now) {
        self.is_winding_up = true;
        self.campaign.clear_queue();
        if self.phase == Phase::Beginning {
            return self.end(Ending::Interrupted);
        }
        for measurement in self.running.keys().copied().collect::<Vec<_>>() {
            self.cancel(now, measurement);
        }
        self.advance(now);
    }

    /// Reads the consensus again, ahead of time, with this consent from here on.
    pub fn refresh(&mut self, consent: Consent) {
        self.consent = consent;
        if self.phase == Phase::Measuring {
            self.fetch();
        }
    }

    /// The relay with this number.
    #[must_use]
    pub fn relay(&self, RelayIndex(place): RelayIndex) -> Option<&Relay> {
        self.relays.get(place)
    }

    /// What has been found of each relay in this period so far.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// Which relays are measured together: those with the same name.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<RsaId, RsaId> {
        let present = self.present.iter().filter_map(|it| self.relay(*it));
        present.map(|it| (it.id(), it.together)).collect()
    }

    /// The newest consensus's relays that are not measured, or not yet.
    #[must_use]
    pub fn listed(&self) -> Vec<crate::journal::ListedRelay> {
        self.network.as_ref().map_or_else(Vec::new, |it| it.listed(&self.consent))
    }

    /// Whether all is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Ended
    }
}

// What arrives about the network and the team.
impl Period {
    /// The newest consensus. `seed` is that of the slots, if there are slots; the first one counts.
    pub fn handle_network(&mut self, now: Now, network: NetworkView, seed: Option<SlotSeed>) {
        self.is_fetching = false;
        if let Err(error) = network.check_named(&self.consent) {
            return self.network_refused(now, Ending::NoConsent(error));
        }
        self.journal(Entry::Consensus(ConsensusEntry {
            valid_after_unix_s: network.valid_after_unix_s,
            at_unix_s: now.unix_s(),
            source: network.source.clone(),
            signers: network.signers,
            relays: network.listed(&self.consent),
        }));
        let relays = {
            let expectations = self.history.expectations(self.config.policy, now.unix_s());
            network.relays(&self.consent, &expectations, &self.measurers.limits())
        };
        if relays.is_empty() {
            return self.network_refused(now, Ending::NoRelay(network.source));
        }
        self.take_relays(relays);
        self.network = Some(network);
        self.seed = self.seed.take().or(seed);
        self.group_relays();
        match self.phase {
            Phase::Beginning => self.begin_if_complete(now),
            Phase::Measuring => self.refreshed(now),
            Phase::Ended => {}
        }
        self.advance(now);
    }

    /// The consensus cannot be had. The one that is known holds until there is a newer one.
    pub fn handle_network_failed(&mut self, now: Now) {
        self.is_fetching = false;
        self.network_refused(now, Ending::NoNetwork);
    }

    fn network_refused(&mut self, now: Now, ending: Ending) {
        match self.phase {
            Phase::Beginning => self.end(ending),
            Phase::Measuring => {
                self.refreshed(now);
                self.advance(now);
            }
            Phase::Ended => {}
        }
    }

    /// Numbers relays that are new, and takes over what is new about the others.
    fn take_relays(&mut self, relays: Vec<Relay>) {
        self.present.clear();
        for relay in relays {
            let id = relay.id();
            let next = RelayIndex(self.relays.len());
            let place = *self.places.entry(id).or_insert(next);
            for (measurer, path) in &relay.paths {
                self.campaign.expect_path(place, *measurer, *path);
            }
            self.present.push(place);
            if let Some(known) = self.relays.get_mut(place.0) {
                *known = relay;
                continue;
            }
            self.relays.push(relay);
            // What an earlier process found out in this period.
            if let Some(record) = self.pasts.get(&id).and_then(|it| it.record.clone()) {
                self.records.insert(place, record);
            }
        }
    }

    fn group_relays(&mut self) {
        let team: Rate = self.measurers.limits().into_iter().sum();
        let capacity = team.scaled(1.0 / self.config.params.excess_factor());
        let room = TeamRoom { capacity, at_once_max: self.at_once_max() };
        let families = self.network.as_ref().map_or(&[][..], |it| &it.families);
        let present = self.present.iter().filter_map(|it| self.relays.get(it.0));
        let mut relays: Vec<Relay> = present.cloned().collect();
        network::group(&mut relays, &self.config.certain, families, room);
        for (place, relay) in self.present.iter().zip(relays) {
            if let Some(known) = self.relays.get_mut(place.0) {
                *known = relay;
            }
        }
    }

    /// A measurer has answered what it can do, or cannot be asked.
    pub fn handle_measurer(
        &mut self,
        now: Now,
        measurer: MeasurerId,
        answer: Result<Answer, String>,
    ) {
        let borrowed = answer.as_ref().copied().map_err(String::as_str);
        let capacity = self.measurers.handle_answer(now, measurer, borrowed);
        let result = capacity.ok_or_else(|| answer.err().unwrap_or_default());
        if let Some(capacity) = capacity {
            self.campaign.set_at_once_max(self.at_once_max());
            self.campaign.set_capacity(measurer, capacity);
        }
        match self.phase {
            Phase::Beginning => {
                self.record_health(now, measurer, result.clone());
                self.event(Event::Measurer(measurer, result));
                self.begin_if_complete(now);
            }
            Phase::Measuring => {
                if let Ok(capacity) = result {
                    self.record_health(now, measurer, Ok(capacity));
                    self.event(Event::MeasurerBack(measurer, capacity));
                }
            }
            Phase::Ended => {}
        }
        self.advance(now);
    }

    fn record_health(&mut self, now: Now, measurer: MeasurerId, answer: Result<Rate, String>) {
        if let Some(health) = self.measurers.health(now, measurer, answer) {
            self.journal(Entry::Measurer(health));
        }
    }

    /// Time passed. Does nothing before [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Now) {
        for measurer in self.measurers.poll_checks(now) {
            self.actions.push_back(Action::AskMeasurer(measurer));
        }
        self.handle_measurement_timeouts(now);
        if self.is_refresh_due(now) {
            self.fetch();
        }
        self.advance(now);
    }

    fn is_refresh_due(&self, now: Now) -> bool {
        let now = now.unix_s();
        let has_slots = self.slots.is_some() && !self.config.bounds.is_over(now);
        let next = self.refreshed_unix_s + self.config.refresh.as_secs();
        // A clock may be set back.
        has_slots && !self.is_winding_up && (now >= next || now < self.refreshed_unix_s)
    }
}

// What to do now.
impl Period {
    /// The next thing to do; call until `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), by the monotonic clock; `None` if only answers are awaited.
    #[must_use]
    pub fn poll_timeout(&self, now: Now) -> Option<Instant> {
        if self.phase == Phase::Ended {
            return None;
        }
        let bounds = &self.config.bounds;
        let measurements = self.running.values().filter_map(Running::poll_timeout);
        let own = [self.groups.poll_timeout(), self.measurers.poll_timeout()];
        let has_slots =
            self.slots.is_some() && !bounds.is_over(now.unix_s()) && !self.is_winding_up;
        let slots = has_slots.then(|| {
            let next = bounds.slot_begins_unix_s(bounds.slot(now.unix_s()) + 1);
            let refresh = self.refreshed_unix_s + self.config.refresh.as_secs();
            let refresh = if self.is_fetching { u64::MAX } else { refresh };
            now.when(next.min(bounds.end_unix_s()).min(refresh))
        });
        let is_measuring = self.phase == Phase::Measuring;
        let progress = is_measuring.then(|| now.when(self.recorded_unix_s + PROGRESS_S));
        measurements.chain(own.into_iter().flatten()).chain(slots).chain(progress).min()
    }

    fn journal(&mut self, entry: Entry) {
        self.actions.push_back(Action::Journal(entry));
    }

    fn event(&mut self, event: Event) {
        self.actions.push_back(Action::Event(event));
    }

    fn fetch(&mut self) {
        if !self.is_fetching {
            self.is_fetching = true;
            self.actions.push_back(Action::FetchNetwork);
        }
    }

    fn ask(&mut self, measurer: MeasurerId) {
        self.measurers.ask(measurer);
        self.actions.push_back(Action::AskMeasurer(measurer));
    }

    fn at_once_max(&self) -> u32 {
        self.measurers.at_once_max(self.config.at_once_max)
    }

    fn begin_if_complete(&mut self, now: Now) {
        if self.network.is_none() || self.measurers.is_waiting() {
            return;
        }
        if self.campaign.capacity() == Rate::ZERO {
            return self.end(Ending::NoMeasurer);
        }
        self.phase = Phase::Measuring;
        // By what the measurers have just said.
        self.group_relays();
        let (relays, at_once_max) = (self.present.len(), self.at_once_max());
        self.event(Event::Planned { relays, at_once_max });
        match self.config.timing {
            Timing::Greedy => self.queue_all(),
            Timing::Slots => self.plan_slots(now),
        }
        self.record_progress(now);
    }

    fn queue_all(&mut self) {
        let mut groups: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
        for place in &self.present {
            let Some(relay) = self.relays.get(place.0) else { continue };
            let turn = relay.first_turn(self.rounds_max(relay));
            let turn = (*place, relay.guess.standing(), turn);
            groups.entry(relay.together).or_default().push(turn);
        }
        groups.values().for_each(|turns| self.queue(turns));
    }

    fn plan_slots(&mut self, now: Now) {
        let capacity = self.campaign.capacity();
        let own_room = TeamRoom { capacity, at_once_max: self.at_once_max() };
        let seed = self.seed.take();
        let SlotSeed { seed, mut teams, own } = seed.unwrap_or_else(|| SlotSeed {
            seed: Seed::from_bytes(self.config.secret),
            teams: alloc::vec![own_room],
            own: 0,
        });
        if let Some(room) = teams.get_mut(own) {
            *room = own_room;
        }
        let bounds = self.config.bounds;
        let factor = self.config.params.excess_factor();
        let (slots, slot) = (bounds.slots(), bounds.slot(now.unix_s()));
        let (arrivals, teams) = (self.arrivals(now), (teams.as_slice(), own));
        let plan = if bounds.length_s >= MEMORYLESS_S {
            SlotSchedule::memoryless(&seed, slots, teams, factor, &arrivals, slot)
        } else {
            SlotSchedule::among(&seed, slots, teams, factor, &arrivals, slot)
        };
        self.event(Event::Counts(plan.counts()));
        self.slots = Some(plan);
        self.refreshed_unix_s = now.unix_s();
    }

    /// A measurement that an earlier process began and did not end, or that was to follow, is to be done.
    fn arrivals(&self, now: Now) -> Vec<Arrival> {
        // A relay without an estimate that holds is to be measured in this period.
        let due_by = |relay: &Relay| {
            let kept = self.history.kept(&self.config.policy, relay.id(), None, now.unix_s());
            kept.map_or(Some(u32::MAX), |it| self.config.bounds.due_by(it.measured_unix_s))
        };
        let arrival = |relay: &Relay| {
            let past = self.pasts.get(&relay.id());
            let first = relay.first_turn(self.rounds_max(relay));
            Arrival {
                relay: relay.id(),
                together: relay.together,
                standing: relay.guess.standing(),
                turn: past.and_then(|it| it.follows).unwrap_or(first),
                is_done: past.is_some_and(|it| it.is_done),
                due_by: due_by(relay),
            }
        };
        self.present.iter().filter_map(|it| self.relays.get(it.0)).map(arrival).collect()
    }

    fn rounds_max(&self, relay: &Relay) -> u32 {
        self.params(relay).max_rounds
    }

    /// The consensus was read again, or cannot be had.
    fn refreshed(&mut self, now: Now) {
        self.refreshed_unix_s = now.unix_s();
        let arrivals = self.arrivals(now);
        let next = self.config.bounds.slot(now.unix_s()) + 1;
        if let Some(slots) = &mut self.slots {
            slots.handle_consensus(&arrivals, next);
            let counts = slots.counts();
            self.event(Event::Counts(counts));
        }
        if !self.measurers.is_checking() {
            for measurer in self.campaign.lost() {
                self.measurers.check(now, measurer);
            }
        }
        self.record_progress(now);
        self.publish(now);
    }

    /// These relays are to be measured now, together if they are several.
    fn queue(&mut self, turns: &[(RelayIndex, Priority, Attempt)]) {
        let host = |relay: &RelayIndex| self.relays.get(relay.0).map(|it| it.host);
        let relays: Vec<(RelayIndex, RsaId)> =
            turns.iter().filter_map(|(relay, ..)| Some((*relay, host(relay)?))).collect();
        self.groups.begin(&relays);
        self.campaign.add_machine(turns);
    }

    /// Starts what can be started, and ends what is over.
    fn advance(&mut self, now: Now) {
        if self.phase != Phase::Measuring {
            return;
        }
        let is_over = self.config.bounds.is_over(now.unix_s());
        if !self.is_winding_up && !is_over {
            self.queue_due(now);
        }
        self.start_groups(now);
        self.launch(now);
        if now.unix_s().abs_diff(self.recorded_unix_s) >= PROGRESS_S {
            self.record_progress(now);
        }
        let is_hopeless = self.campaign.capacity() == Rate::ZERO && !self.measurers.is_checking();
        let is_idle = self.running.is_empty() && (self.campaign.queued() == 0 || is_hopeless);
        if is_idle && (self.slots.is_none() || is_over || self.is_winding_up) {
            self.conclude(now);
        }
    }

    fn queue_due(&mut self, now: Now) {
        let slot = self.config.bounds.slot(now.unix_s());
        let Some(slots) = &mut self.slots else { return };
        let mut groups: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
        for due in slots.poll_due(slot) {
            if let Some(place) = self.places.get(&due.relay) {
                let turn = (*place, due.standing, due.turn);
                groups.entry(due.machine).or_default().push(turn);
            }
        }
        groups.values().for_each(|turns| self.queue(turns));
    }

    fn conclude(&mut self, now: Now) {
        let settled = self.groups.end_all();
        self.settle(now, settled);
        let left = self.campaign.clear_queue().len();
        if left > 0 {
            self.event(Event::NotMeasured(left));
        }
        self.record_progress(now);
        self.publish(now);
        self.end(if self.is_winding_up { Ending::Interrupted } else { Ending::Complete });
    }

    fn end(&mut self, ending: Ending) {
        self.phase = Phase::Ended;
        self.actions.push_back(Action::Ended(ending));
    }

    fn counts(&self) -> Counts {
        let without_slots = || Counts {
            waiting: self.campaign.queued(),
            running: self.campaign.running(),
            done: self.records.len(),
            without_slot: 0,
        };
        self.slots.as_ref().map_or_else(without_slots, SlotSchedule::counts)
    }

    fn record_progress(&mut self, now: Now) {
        self.recorded_unix_s = now.unix_s();
        let (at_unix_s, period_unix_s) = (now.unix_s(), self.config.bounds.begin_unix_s);
        let counts = self.counts();
        self.journal(Entry::Progress(PeriodProgress { at_unix_s, period_unix_s, counts }));
    }

    fn publish(&mut self, now: Now) {
        let relays = (0..).map(RelayIndex).zip(&self.relays);
        let relays = relays.map(|(place, relay)| (relay, self.records.get(&place)));
        let slot = Duration::from_secs(u64::from(self.config.params.seconds) / 2);
        let begin_unix_s = self.config.bounds.begin_unix_s;
        let policy = &self.config.policy;
        let all = publication::publication(
            relays,
            &self.history,
            policy,
            slot,
            begin_unix_s,
            now.unix_s(),
        );
        self.actions.push_back(Action::Publish(all));
    }

    /// Records measurements that are settled, reports relays that are done, and queues what follows where there are no slots.
    fn settle(&mut self, now: Now, mut settled: Vec<Finished>) {
        if self.slots.is_none() && !self.is_winding_up {
            repeat_together(&mut settled);
            let standing = |relay: RelayIndex| {
                self.relays.get(relay.0).map_or(Priority::New, |it| it.guess.standing())
            };
            let follow = settled.iter().filter_map(|it| Some((it.relay, it.follows?)));
            let follow: Vec<_> =
                follow.map(|(relay, turn)| (relay, standing(relay), turn)).collect();
            if !follow.is_empty() {
                self.queue(&follow);
            }
        }
        for Finished { relay, record, started, follows, .. } in settled {
            self.record(started, &record, follows);
            let whole = match self.records.remove(&relay) {
                Some(earlier) => earlier.followed_by(record),
                None => record,
            };
            if follows.is_none() && !self.is_winding_up {
                self.event(Event::RelayDone(Box::new(whole.clone())));
            }
            self.records.insert(relay, whole);
            self.record_progress(now);
        }
    }

    fn record(&mut self, begun: MeasurementStarted, record: &Record, follows: Option<Attempt>) {
        // What was broken off because the coordinator ends is to be done again.
        let is_cancelled = matches!(record.failure(), Some(crate::Failure::Cancelled));
        let is_final = follows.is_none() && !is_cancelled;
        let (relay, seen_unix_s) = (record.relay.ids.rsa, record.ended_unix_s);
        let keys = self.measurers.keys();
        let mut paths = Vec::new();
        for (measurer, path) in record.paths() {
            self.history.add_path(relay, measurer, path, seen_unix_s);
            if let Some(measurer) = keys.get(measurer.0).cloned() {
                paths.push(PathEntry { relay, measurer, path, seen_unix_s });
            }
        }
        if follows.is_some() {
            self.history.add_unfinished(record, begun.started_unix_s);
        } else {
            self.history.add_record(record, begun.started_unix_s);
        }
        let record = record.clone();
        let finished = MeasurementFinished { begun, record, follows, is_final, paths };
        self.journal(Entry::Finished(Box::new(finished)));
    }
}

#[cfg(test)]
mod tests;
