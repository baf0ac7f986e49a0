//! A measurement period: the slot and the team of each relay's measurement, and the publication of results (paper
//! §4.3).
//!
//! A [`Period`] owns all decisions between a consensus and a bandwidth file: consent, slots, relays that start
//! together, turns after an inconclusive or declined measurement, failed and returning measurers, and the rounds of
//! each measurement. It must not know of sockets, files, threads or clocks: a shell performs its [`Action`]s, and the
//! simulator drives the same code in virtual time.

mod clock;
mod groups;
mod interface;
mod measurers;
mod memory_journal;
mod network;
mod publication;
mod rounds;
mod settle;
mod slots;

pub use clock::{Bounds, Now};
pub use interface::{
    Action, Answer, Ending, Event, Knowledge, MeasurementId, MeasurerConfig, PeriodConfig,
    ProbeAnswer, SlotSeed, Timing,
};
pub use memory_journal::MemoryJournal;
pub use network::{NetworkView, Relay, Router};
pub use publication::{PublishedRelay, PublishedResult};
pub use rounds::{ANSWER_TIMEOUT, RTT_TIMEOUT, SETUP_AHEAD_S};

use crate::allocation::MeasurerId;
use crate::campaign::{Campaign, RelayIndex, RelayTurn, ZoneLimit};
use crate::consent::{Consent, ConsentError};
use crate::history::History;
use crate::journal::{
    ConsensusEntry, Entry, MeasurementStarted, Past, PeriodEntry, PeriodProgress,
};
use crate::plan::TeamRoom;
use crate::policy::{PolicyInForce, PolicyRelays, ZoneRate};
use crate::record::Record;
use crate::slot_schedule::{Counts, SlotSchedule};
use crate::turn::Attempt;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use groups::Groups;
use measurers::Measurers;
use network::ConsentNow;
use onion::identity::RsaId;
use onion::{Instant, Rate};
use rounds::Running;

/// The maximum interval between progress entries in the store, which show readers that the coordinator is alive.
pub const PROGRESS_S: u64 = 1800;

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
/// After `new`, and after each command and `handle_*` call: call [`poll_action`](Self::poll_action) until `None` and
/// perform the actions in order; then arm a timer for [`poll_timeout`](Self::poll_timeout), replacing the earlier one,
/// and call [`handle_timeout`](Self::handle_timeout) when it fires. Actions may take time: the answer arrives by a
/// `handle_*` call. Answers of finished measurements are ignored.
///
/// A restarted coordinator continues the period, given the [journaled](Action::Journal) entries.
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
    /// The relays of the newest consensus.
    present: Vec<RelayIndex>,
    groups: Groups,
    running: BTreeMap<MeasurementId, Running>,
    measurements: u32,
    /// The results of each relay in this period.
    records: BTreeMap<RelayIndex, Record>,
    is_fetching: bool,
    /// When the consensus was read last, and progress recorded last, in Unix seconds.
    refreshed_unix_s: u64,
    recorded_unix_s: u64,
    actions: VecDeque<Action>,
}

// Construction, commands and getters.
impl Period {
    /// Begins or continues a period.
    #[must_use]
    pub fn new(now: Now, config: PeriodConfig, consent: Consent, knowledge: Knowledge) -> Self {
        let Knowledge { history, pasts } = knowledge;
        let measurers = Measurers::new(config.measurers.clone());
        let nothing = measurers.ids().map(|_| Rate::ZERO).collect();
        let campaign = Campaign::new(config.params.excess_factor(), config.params.sockets, nothing);
        let campaign = campaign.at_hosts(measurers.hosts()).returning_follow_ups();
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
        this.journal(Entry::Team(this.measurers.keys()));
        this.fetch();
        for measurer in this.measurers.ids() {
            this.ask(measurer);
        }
        this
    }

    /// Ends the period early: no new measurement starts, running ones are cancelled, and results are published.
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

    /// Reads the consensus again, ahead of time, with this new consent.
    pub fn refresh(&mut self, consent: Consent) {
        let relays = self.network.as_ref().and_then(|network| network.policy_relays.clone());
        self.consent = self.for_team(consent, relays);
        if self.phase == Phase::Measuring {
            self.fetch();
        }
    }

    /// The relay with this number.
    #[must_use]
    pub fn relay(&self, RelayIndex(place): RelayIndex) -> Option<&Relay> {
        self.relays.get(place)
    }

    /// The results of each relay in this period so far.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// The groups of relays that are measured together, by name.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<RsaId, RsaId> {
        let present = self.present.iter().filter_map(|place| self.relay(*place));
        present.map(|present| (present.id(), present.together)).collect()
    }

    /// The relays of the newest consensus that are not measured, or not yet.
    #[must_use]
    pub fn listed(&self, now_unix_s: u64) -> Vec<crate::journal::ListedRelay> {
        let consent = self.consent_at(now_unix_s);
        self.network.as_ref().map_or_else(Vec::new, |network| network.listed(consent))
    }

    fn consent_at(&self, now_unix_s: u64) -> ConsentNow<'_> {
        let has_slots = self.config.timing.has_slots();
        ConsentNow { consent: &self.consent, now_unix_s, has_slots }
    }

    /// A consent whose policy, if it has one, is decided for this team and these relays.
    fn for_team(&self, consent: Consent, relays: Option<Arc<PolicyRelays>>) -> Consent {
        let Some(rule) = consent.policy() else { return consent };
        let team = self.config.measurers.iter().map(|measurer| measurer.key.0).collect();
        let rule = PolicyInForce { policy: Arc::clone(&rule.policy), relays, team };
        consent.with_policy(Some(rule))
    }

    /// Whether the period is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Ended
    }
}

// Events of the network and the team.
impl Period {
    /// The newest consensus. `seed` is that of the slots, if there are slots; the first one counts.
    pub fn handle_network(&mut self, now: Now, network: NetworkView, seed: Option<SlotSeed>) {
        self.is_fetching = false;
        let consent = core::mem::take(&mut self.consent);
        self.consent = self.for_team(consent, network.policy_relays.clone());
        if let Err(error) = network.check_named(self.consent_at(now.unix_s())) {
            return self.network_refused(now, Ending::NoConsent(error));
        }
        self.journal(Entry::Consensus(ConsensusEntry {
            valid_after_unix_s: network.valid_after_unix_s,
            at_unix_s: now.unix_s(),
            source: network.source.clone(),
            signers: network.signers,
            relays: network.listed(self.consent_at(now.unix_s())),
        }));
        for router in &network.routers {
            self.history.see(router.ids.rsa, now.unix_s());
        }
        let mut relays = {
            let expectations = self.history.expectations(self.config.policy, now.unix_s());
            let consent = self.consent_at(now.unix_s());
            network.relays(consent, &expectations, &self.measurers.limits())
        };
        if relays.is_empty() {
            let policy = self.refusals_of_policy(now, &network);
            return self.network_refused(now, Ending::NoRelay(network.source, policy));
        }
        relays.iter_mut().for_each(|relay| self.limit_guess(now, relay));
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

    /// The consensus is unavailable. The known one is used until there is a newer one.
    pub fn handle_network_failed(&mut self, now: Now) {
        self.is_fetching = false;
        self.network_refused(now, Ending::NoNetwork);
    }

    /// The limits of the team for a relay that a measurement policy permits.
    fn zone_limits(&self, now: Now, relay: &Relay) -> Vec<ZoneLimit> {
        let team = self.config.measurers.iter().map(|measurer| {
            self.consent.limits(&measurer.key.0, relay.id(), relay.address.ip(), now.unix_s())
        });
        let mut limits: Vec<ZoneLimit> = Vec::new();
        for (place, of_measurer) in team.enumerate() {
            for (number, ZoneRate { zone, rate }) in of_measurer.into_iter().enumerate() {
                if place == 0 {
                    limits.push(ZoneLimit { zone, rates: Vec::new() });
                }
                limits.get_mut(number).into_iter().for_each(|limit| limit.rates.push(rate));
            }
        }
        limits
    }

    /// Plans no more load for a relay than the policy permits.
    fn limit_guess(&self, now: Now, relay: &mut Relay) {
        let rates = self.zone_limits(now, relay).into_iter();
        let most = rates.map(|limit| limit.rates.into_iter().sum::<Rate>()).min();
        if let Some(most) = most {
            let capacity = most.scaled(1.0 / self.config.params.excess_factor());
            relay.guess.capacity = relay.guess.capacity.min(capacity);
        }
    }

    /// Why the policy permits none of the relays, by the first one that it refuses.
    fn refusals_of_policy(&self, now: Now, network: &NetworkView) -> Option<ConsentError> {
        let check = |router: &Router| {
            let (relay, address) = (router.ids.rsa, router.address.ip());
            self.consent.check(relay, address, now.unix_s()).err()
        };
        let refused = network.routers.iter().filter(|router| router.is_running).filter_map(check);
        let mut refused = refused.filter(|error| !matches!(error, ConsentError::NotGiven { .. }));
        refused.next()
    }

    fn network_refused(&mut self, now: Now, ending: Ending) {
        match self.phase {
            Phase::Beginning => self.end(ending),
            Phase::Measuring => {
                let reason = match ending {
                    Ending::NoConsent(error) | Ending::NoRelay(_, Some(error)) => {
                        Some(error.to_string())
                    }
                    Ending::NoRelay(consensus, None) => {
                        Some(format!("no relay of {consensus} may be measured"))
                    }
                    // The shell has the reason.
                    Ending::NoNetwork => None,
                    Ending::Complete | Ending::Interrupted | Ending::NoMeasurer => None,
                };
                if let Some(reason) = reason {
                    self.event(Event::ConsensusRefused(reason));
                }
                self.refreshed(now);
                self.advance(now);
            }
            Phase::Ended => {}
        }
    }

    /// Numbers new relays, and updates the data of the others.
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
            // The results of an earlier process in this period.
            if let Some(record) = self.pasts.get(&id).and_then(|past| past.record.clone()) {
                self.records.insert(place, record);
            }
        }
    }

    fn group_relays(&mut self) {
        let team: Rate = self.measurers.limits().into_iter().sum();
        let capacity = team.scaled(1.0 / self.config.params.excess_factor());
        let room = TeamRoom { capacity, at_once_max: self.at_once_max() };
        let families = self.network.as_ref().map_or(&[][..], |network| &network.families);
        let present = self.present.iter().filter_map(|place| self.relays.get(place.0));
        let mut relays: Vec<Relay> = present.cloned().collect();
        network::group(&mut relays, &self.config.certain, families, room);
        for (place, relay) in self.present.iter().zip(relays) {
            if let Some(known) = self.relays.get_mut(place.0) {
                *known = relay;
            }
        }
    }

    /// A measurer has reported its abilities, or cannot be queried.
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

    /// Handles the passage of time. Does nothing before [`poll_timeout`](Self::poll_timeout).
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

// Actions.
impl Period {
    /// The next action. Call it until it returns `None`.
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
        // Not before the consensus was accepted: with a wrong clock it is another period.
        let Bounds { begin_unix_s, length_s, slot_s } = self.config.bounds;
        let slot_s = if self.config.timing.has_slots() { slot_s } else { 0 };
        self.journal(Entry::Period(PeriodEntry { begin_unix_s, length_s, slot_s, seed: None }));
        for measurer in self.campaign.lost() {
            self.measurers.check(now, measurer);
        }
        // By the measurers' latest reports.
        self.group_relays();
        let (relays, at_once_max) = (self.present.len(), self.at_once_max());
        self.event(Event::Planned { relays, at_once_max });
        match self.config.timing {
            Timing::Greedy => self.queue_all(now),
            Timing::Slots | Timing::PaperSlots => self.plan_slots(now),
        }
        self.record_progress(now);
    }

    fn queue_all(&mut self, now: Now) {
        let mut groups: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
        for arrival in self.arrivals(now).into_iter().filter(|arrival| !arrival.is_done) {
            if let Some(place) = self.places.get(&arrival.relay) {
                let turn =
                    RelayTurn { relay: *place, priority: arrival.priority, turn: arrival.turn };
                groups.entry(arrival.together).or_default().push(turn);
            }
        }
        groups.values().for_each(|turns| self.queue(now, turns));
    }

    /// The consensus was read again, or is unavailable.
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

    /// These relays are to be measured now, together if there are several.
    fn queue(&mut self, now: Now, turns: &[RelayTurn]) {
        for turn in turns {
            if let Some(relay) = self.relays.get(turn.relay.0) {
                let limits = self.zone_limits(now, relay);
                self.campaign.set_limits(turn.relay, limits);
            }
        }
        let host = |relay: RelayIndex| Some((relay, self.relays.get(relay.0)?.host));
        let relays: Vec<(RelayIndex, RsaId)> =
            turns.iter().filter_map(|turn| host(turn.relay)).collect();
        self.groups.begin(&relays);
        self.campaign.add_machine(turns);
    }

    /// Starts and finishes measurements as far as possible.
    fn advance(&mut self, now: Now) {
        if self.phase != Phase::Measuring {
            return;
        }
        let is_over = self.config.bounds.is_over(now.unix_s());
        if !self.is_winding_up && !is_over {
            self.queue_due(now);
        }
        self.start_waiting(now);
        self.launch(now);
        if now.unix_s().abs_diff(self.recorded_unix_s) >= PROGRESS_S {
            self.record_progress(now);
        }
        // What can start has started: the others wait for a measurer.
        let is_hopeless = !self.measurers.is_checking();
        let is_idle = self.running.is_empty() && (self.campaign.queued() == 0 || is_hopeless);
        if is_idle && (self.slots.is_none() || is_over || self.is_winding_up) {
            self.conclude(now);
        }
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
}

#[cfg(test)]
mod tests;
