//! Relays and measurers in virtual time, around one period.
//!
//! [`World::run_until`] performs the actions of the period (`act`), and delivers each answer at its time (`happen`). `network` has the
//! relays, `team` the reports of measurers on a round, `disturbances` crashes, losses and lies, and `checks` the invariants.

mod checks;
mod disturbances;
mod network;
mod team;

pub(super) use disturbances::Happening;
pub(super) use network::Conduct;

use super::super::{Event as Happened, *};
use crate::history::HistoryPolicy;
use crate::params::Params;
use crate::period::Now;
use crate::plan::Seed;
use crate::policy::{Contact, Policy, PolicyInForce, PolicyRelays};
use crate::round::FailureKind;
use crate::{Defences, MemberReport, RoundMode, RoundOrder};
use network::{SimRelay, consent, relays};
use onion::Duration;
use onion::identity::RelayIds;
use onion::measure::Second;
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ClientSecond, ErrorCode, MeasurerKey, SentBack};
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use team::{MEASURERS, capacity_of, config};

/// Shorter than an hour, so that each relay has one slot.
pub(super) const PERIOD_S: u64 = 3000;
pub(super) const BEGIN: u64 = 1_800_000_000 - 1_800_000_000 % PERIOD_S;

#[derive(Clone, Debug)]
pub(super) struct WorldOptions {
    pub(super) seed: u64,
    pub(super) relays: u8,
    pub(super) timing: Timing,
    /// With the second of the period.
    pub(super) happenings: Vec<(u64, Happening)>,
    /// Until this second of the period, clients leave each relay only a quarter of its capacity.
    pub(super) starved_until_s: u64,
    pub(super) length_s: u64,
    pub(super) slot_s: u64,
    /// The seconds of a measurement that count.
    pub(super) seconds: u32,
    /// The time in which a measurer is ready.
    pub(super) setup_ms: u64,
    /// Each relay needs more than half of the team.
    pub(super) are_large: bool,
    /// The measurement policy, for relays that have not opted in.
    pub(super) policy: Option<Policy>,
}

impl WorldOptions {
    /// 200 relays that are measured in their slots.
    pub(super) const fn undisturbed(seed: u64) -> Self {
        Self {
            seed,
            relays: 200,
            timing: Timing::Slots,
            happenings: Vec::new(),
            starved_until_s: 0,
            length_s: PERIOD_S,
            slot_s: 45,
            seconds: 5,
            setup_ms: 20,
            are_large: false,
            policy: None,
        }
    }
}

/// A measurement in the simulated world.
#[derive(Clone, Debug, Default)]
struct Load {
    relay: Option<RsaId>,
    round: u32,
    orders: BTreeMap<usize, RoundOrder>,
    /// When its measurers send.
    sends: Option<Range<Instant>>,
}

#[derive(Clone, Debug)]
enum Event {
    Network,
    Measurer(usize),
    Probe(MeasurementId, SocketAddr),
    OrderAnswer(MeasurementId, u32, RsaId),
    Ready(MeasurementId, usize, u32),
    Second(MeasurementId, u32, u32),
    Happening(Happening),
    MeasurerBack(usize),
}

pub(super) struct World {
    options: WorldOptions,
    own: usize,
    teams: usize,
    pub(super) relays: Vec<SimRelay>,
    pub(super) bounds: Bounds,
    pub(super) period: Period,
    pub(super) journal: MemoryJournal,
    history: History,
    now: Instant,
    /// The wall clock's offset from the monotonic one, in seconds beyond [`BEGIN`].
    skew_s: i64,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    loads: BTreeMap<MeasurementId, Load>,
    lost: BTreeSet<usize>,
    lying: BTreeSet<usize>,
    has_no_consensus: bool,
    /// All relays are on the opt-in list, or have been.
    is_listed: bool,
    /// The newest measurement that was launched.
    launched: u32,
    /// Measurers that have failed and not returned, with the newest measurement at that time.
    failed: BTreeMap<usize, u32>,
    /// The number of processes so far: each has its own secret.
    processes: u8,
    ended: Option<Ending>,
    /// The end of the newest load, and the times between loads.
    last_end: Instant,
    pub(super) gaps: Vec<Duration>,
    /// Why consensuses were not used.
    pub(super) refused: Vec<String>,
}

impl World {
    pub(super) fn new(options: &WorldOptions) -> Self {
        Self::of_team(options, 0, 1)
    }

    pub(super) fn of_team(options: &WorldOptions, own: usize, teams: usize) -> Self {
        let relays = relays(options);
        let mut history = History::default();
        for relay in &relays {
            // The estimate of the last period, roughly right.
            let estimate = crate::PastEstimate {
                capacity: Rate::from_byte_per_s(relay.capacity).scaled(0.97),
                measured_unix_s: BEGIN - PERIOD_S / 2,
                mode: None,
                is_conclusive: None,
                sockets: None,
            };
            // Every tenth is new.
            if relay.ids.rsa.0[0] % 10 != 3 {
                history.add(relay.ids.rsa, estimate);
            }
        }
        let bounds =
            Bounds { begin_unix_s: BEGIN, length_s: options.length_s, slot_s: options.slot_s };
        let now = Now { instant: Instant::ORIGIN, unix: Duration::from_secs(BEGIN) };
        let knowledge = Knowledge { history: history.clone(), pasts: BTreeMap::new() };
        let period = Period::new(now, config(bounds, options, 0), consent(options), knowledge);
        let mut this = Self {
            options: options.clone(),
            own,
            teams,
            relays,
            bounds,
            period,
            journal: MemoryJournal::default(),
            history,
            now: Instant::ORIGIN,
            skew_s: 0,
            events: BTreeMap::new(),
            sequence: 0,
            loads: BTreeMap::new(),
            lost: BTreeSet::new(),
            lying: BTreeSet::new(),
            has_no_consensus: false,
            is_listed: false,
            launched: 0,
            failed: BTreeMap::new(),
            processes: 0,
            ended: None,
            last_end: Instant::ORIGIN,
            gaps: Vec::new(),
            refused: Vec::new(),
        };
        for (second, happening) in options.happenings.clone() {
            this.later(Duration::from_secs(second), Event::Happening(happening));
        }
        this
    }

    pub(super) fn time(&self) -> Now {
        let passed = self.now.saturating_since(Instant::ORIGIN);
        let unix = Duration::from_secs(BEGIN) + passed;
        let skew = Duration::from_secs(self.skew_s.unsigned_abs());
        let unix = if self.skew_s < 0 { unix.saturating_sub(skew) } else { unix + skew };
        Now { instant: self.now, unix }
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    pub(super) fn run_period(&mut self) {
        self.run_until(2 * PERIOD_S);
        assert!(self.ended.is_some(), "it has not ended");
    }

    /// Until this second, or the period's end.
    pub(super) fn run_until(&mut self, second: u64) {
        let end = Instant::ORIGIN + Duration::from_secs(second);
        let mut steps = 0u32;
        while self.ended.is_none() && self.now < end {
            steps += 1;
            assert!(steps < 1_000_000, "no progress at {:?}", self.time());
            while let Some(action) = self.period.poll_action() {
                self.act(action);
            }
            if self.ended.is_some() {
                return;
            }
            self.check_at_once();
            let timer = self.period.poll_timeout(self.time());
            let next = self.events.keys().next().map(|(at, _)| *at);
            let is_event = next.is_some_and(|at| timer.is_none_or(|timer| at <= timer));
            if is_event && let Some(((at, _), event)) = self.events.pop_first() {
                self.now = at.max(self.now);
                self.happen(event);
            } else if let Some(timer) = timer {
                self.now = timer.max(self.now);
                self.period.handle_timeout(self.time());
            } else {
                panic!("nothing is awaited");
            }
        }
    }

    fn act(&mut self, action: Action) {
        let soon = Duration::from_millis(20);
        match action {
            Action::FetchNetwork => self.later(soon, Event::Network),
            Action::AskMeasurer(MeasurerId(place)) => self.later(soon, Event::Measurer(place)),
            Action::Probe { measurement, address, .. } => {
                self.launched = self.launched.max(measurement.0);
                self.later(soon, Event::Probe(measurement, address));
            }
            Action::GiveOrder { measurement, target, terms } => {
                self.check_journal(target.ids.rsa);
                let load = self.loads.entry(measurement).or_default();
                load.relay = Some(target.ids.rsa);
                self.later(soon, Event::OrderAnswer(measurement, terms.round, target.ids.rsa));
            }
            Action::Prepare { measurement, measurer: MeasurerId(place), round, order } => {
                self.check_journal(order.target.ids.rsa);
                let failed = self.failed.get(&place);
                let is_new = failed.is_some_and(|launched| measurement.0 > *launched);
                assert!(!is_new, "measurer {place} has failed, and is not back");
                let load = self.loads.entry(measurement).or_default();
                (load.relay, load.round) = (Some(order.target.ids.rsa), round);
                load.orders.insert(place, order);
                self.later(
                    Duration::from_millis(self.options.setup_ms),
                    Event::Ready(measurement, place, round),
                );
            }
            Action::Start { measurement, delay } => {
                let Some(load) = self.loads.get_mut(&measurement) else { return };
                let round = load.round;
                let (from, order) = (self.now + delay, load.orders.values().next());
                let length = Duration::from_secs(order.map_or(0, |order| order.seconds).into());
                load.sends = Some(from..from + length);
                self.gaps.push(from.saturating_since(self.last_end));
                self.last_end = self.last_end.max(from + length);
                self.check_capacity(from);
                self.check_policy(measurement, from, from + length);
                self.later(delay + Duration::from_secs(1), Event::Second(measurement, round, 0));
            }
            Action::Stop { measurement } => {
                self.loads.remove(&measurement);
            }
            Action::Journal(entry) => self.journal.push(entry),
            Action::Publish(relays) => self.check_publication(&relays),
            Action::Event(Happened::MeasurerLost(MeasurerId(place), _)) => {
                self.failed.insert(place, self.launched);
            }
            Action::Event(Happened::MeasurerBack(MeasurerId(place), _)) => {
                self.failed.remove(&place);
            }
            Action::Event(Happened::ConsensusRefused(reason)) => self.refused.push(reason),
            Action::Event(_) => {}
            // The shell tries again after a minute.
            Action::Ended(Ending::NoNetwork | Ending::NoMeasurer) => {
                self.later(Duration::from_secs(60), Event::Happening(Happening::Crash));
            }
            Action::Ended(ending) => self.ended = Some(ending),
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Network if std::mem::take(&mut self.has_no_consensus) => {
                self.period.handle_network_failed(now);
            }
            Event::Network => {
                let (view, seed) = (self.view(), self.slot_seed());
                self.period.handle_network(now, view, Some(seed));
            }
            Event::Measurer(place) => {
                let is_lost = self.lost.contains(&place);
                let answer = Answer { capacity: capacity_of(place), at_once_max: 16 };
                let answer = if is_lost { Err("no answer".to_string()) } else { Ok(answer) };
                self.period.handle_measurer(now, MeasurerId(place), answer);
            }
            Event::Probe(measurement, address) => {
                let relay =
                    self.relays.iter().find(|relay| relay.address == address).expect("known");
                let answer = match relay.conduct {
                    Conduct::Unreachable => ProbeAnswer::Silent,
                    _ => ProbeAnswer::Connected(Duration::from_millis(1)),
                };
                self.period.handle_probe(now, measurement, answer);
            }
            Event::OrderAnswer(measurement, round, relay) => {
                let event = match self.conduct(relay) {
                    Conduct::Declines => OrderEvent::Failed(OrderFailure::Refused {
                        code: ErrorCode::QUOTA_EXCEEDED,
                        text: String::new(),
                    }),
                    _ => OrderEvent::Accepted,
                };
                self.period.handle_order_event(now, measurement, round, event);
            }
            Event::Ready(measurement, place, round) => self.ready(measurement, place, round),
            Event::Second(measurement, round, second) => self.second(measurement, round, second),
            Event::Happening(happening) => self.disturb(&happening),
            Event::MeasurerBack(place) => {
                self.lost.remove(&place);
                self.lying.remove(&place);
            }
        }
    }
}
