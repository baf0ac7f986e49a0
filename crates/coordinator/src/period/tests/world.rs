//! Relays and measurers in virtual time, around one period.

use super::super::{Event as Happened, *};
use super::journal::Journal;
use crate::history::HistoryPolicy;
use crate::params::Params;
use crate::period::Now;
use crate::plan::Seed;
use crate::round::FailureKind;
use crate::{Defences, MemberReport, RoundMode, RoundOrder};
use onion::Duration;
use onion::identity::RelayIds;
use onion::measure::Second;
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ClientSecond, ErrorCode, MeasurerKey, SentBack};
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::net::SocketAddr;
use std::string::ToString as _;
use std::vec;
use std::vec::Vec;

/// Shorter than an hour, so that each relay has one slot.
pub(super) const PERIOD_S: u64 = 3000;
const SLOT_S: u64 = 45;
const BEGIN: u64 = 1_800_000_000 - 1_800_000_000 % PERIOD_S;

/// A disturbance in a period.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// The coordinator is killed, and starts again.
    Crash,
    /// A measurer is gone for two minutes.
    MeasurerLost(usize),
    /// A measurer claims more than it was assigned, for two minutes.
    MeasurerLies(usize),
    /// The wall clock is set, by this number of seconds.
    ClockSet(i64),
    /// The next consensus is unavailable.
    NoConsensus,
}

#[derive(Clone, Debug)]
pub(super) struct WorldOptions {
    pub(super) seed: u64,
    pub(super) relays: u8,
    /// With the second of the period.
    pub(super) happenings: Vec<(u64, Happening)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Honest,
    /// It takes part, and says "not now".
    Declines,
    Unreachable,
    /// On a public address, and not on the opt-in list.
    NotAsked,
}

#[derive(Clone, Debug)]
pub(super) struct SimRelay {
    pub(super) ids: RelayIds,
    pub(super) address: SocketAddr,
    /// Bytes per second.
    pub(super) capacity: u64,
    pub(super) is_echo: bool,
    pub(super) conduct: Conduct,
}

/// A measurement in the simulated world.
#[derive(Clone, Debug, Default)]
struct Load {
    relay: RsaId0,
    round: u32,
    orders: BTreeMap<usize, RoundOrder>,
    is_running: bool,
}

/// An identity, or none yet.
type RsaId0 = Option<RsaId>;

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
    pub(super) journal: Journal,
    history: History,
    now: Instant,
    /// The wall clock's lead on the monotonic one, in seconds beyond [`BEGIN`].
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
}

const MEASURERS: usize = 3;

fn capacity_of(_measurer: usize) -> Rate {
    Rate::from_mbit_per_s(1000.0)
}

fn relays(options: &WorldOptions) -> Vec<SimRelay> {
    let mut state = options.seed | 1;
    let mut next = move |below: u64| {
        // Knuth's generator provides enough variety.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let relay = |number: u8| {
        let conduct = match next(20) {
            0 => Conduct::Declines,
            1 => Conduct::Unreachable,
            2 => Conduct::NotAsked,
            _ => Conduct::Honest,
        };
        // Some hosts have two relays.
        let host = if number % 10 == 9 { number - 1 } else { number };
        let network = if conduct == Conduct::NotAsked { [198, 51, 100] } else { [10, 0, 0] };
        let [a, b, c] = network;
        let is_echo = conduct == Conduct::Declines
            || (number.is_multiple_of(4) && conduct == Conduct::Honest);
        SimRelay {
            ids: RelayIds { rsa: RsaId([number; 20]), ed25519: None },
            address: ([a, b, c, host], 9000 + u16::from(number)).into(),
            capacity: 200_000 + next(10_000_000),
            is_echo,
            conduct,
        }
    };
    (1..=options.relays).map(relay).collect()
}

impl World {
    pub(super) fn new(options: &WorldOptions) -> Self {
        Self::of_team(options, 0, 1)
    }

    pub(super) fn of_team(options: &WorldOptions, own: usize, teams: usize) -> Self {
        let relays = relays(options);
        let mut history = History::default();
        for relay in &relays {
            // From the last period, and not far off.
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
        let bounds = Bounds { begin_unix_s: BEGIN, length_s: PERIOD_S, slot_s: SLOT_S };
        let now = Now { instant: Instant::ORIGIN, unix: Duration::from_secs(BEGIN) };
        let knowledge = Knowledge { history: history.clone(), pasts: BTreeMap::new() };
        let period = Period::new(now, config(bounds, 0), Consent::local_only(), knowledge);
        let mut this = Self {
            options: options.clone(),
            own,
            teams,
            relays,
            bounds,
            period,
            journal: Journal::default(),
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
        };
        for (second, happening) in options.happenings.clone() {
            this.later(Duration::from_secs(second), Event::Happening(happening));
        }
        this
    }

    fn time(&self) -> Now {
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

    /// Every relay is on the opt-in list.
    pub(super) fn list_all(&mut self) {
        self.is_listed = true;
        let lines: String = self.relays.iter().map(|it| format!("{}\n", it.ids.rsa)).collect();
        let listed = Consent::local_only().with_list(&lines).expect("fingerprints");
        self.period.refresh(listed);
    }

    /// The operator empties the opt-in list, and no newer consensus can be had.
    pub(super) fn withdraw_consent(&mut self) {
        self.has_no_consensus = true;
        self.period.refresh(Consent::local_only());
    }

    pub(super) fn play_period(&mut self) {
        self.play_until(2 * PERIOD_S);
        assert!(self.ended.is_some(), "it has not ended");
    }

    /// Until this second, or the period's end.
    pub(super) fn play_until(&mut self, second: u64) {
        let end = Instant::ORIGIN + Duration::from_secs(second);
        let mut steps = 0u32;
        while self.ended.is_none() && self.now < end {
            steps += 1;
            assert!(steps < 1_000_000, "it goes round in circles at {:?}", self.time());
            while let Some(action) = self.period.poll_action() {
                self.act(action);
            }
            if self.ended.is_some() {
                return;
            }
            self.check_capacity();
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
                self.later(soon, Event::Ready(measurement, place, round));
            }
            Action::Start { measurement, delay } => {
                let Some(load) = self.loads.get_mut(&measurement) else { return };
                load.is_running = true;
                let round = load.round;
                self.later(delay + Duration::from_secs(1), Event::Second(measurement, round, 0));
            }
            Action::Stop { measurement } => {
                self.loads.remove(&measurement);
            }
            Action::Journal(entry) => self.journal.entries.push(entry),
            Action::Publish(relays) => self.check_publication(&relays),
            Action::Event(Happened::MeasurerLost(MeasurerId(place), _)) => {
                self.failed.insert(place, self.launched);
            }
            Action::Event(Happened::MeasurerBack(MeasurerId(place), _)) => {
                self.failed.remove(&place);
            }
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
                let relay = self.relays.iter().find(|it| it.address == address).expect("known");
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

    fn ready(&mut self, measurement: MeasurementId, place: usize, round: u32) {
        let Some(load) = self.loads.get(&measurement) else { return };
        let Some(order) = load.orders.get(&place) else { return };
        let relay = load.relay.expect("given");
        let failed = |kind| MemberReport::Failed { kind, detail: "as played".to_string() };
        let report = if self.lost.contains(&place) {
            failed(FailureKind::Broken)
        } else if self.conduct(relay) == Conduct::Unreachable {
            failed(FailureKind::Unreachable)
        } else {
            MemberReport::Ready { sockets: order.sockets }
        };
        let now = self.time();
        self.period.handle_report(now, measurement, MeasurerId(place), round, report);
    }

    fn second(&mut self, measurement: MeasurementId, round: u32, second: u32) {
        let Some(load) = self.loads.get(&measurement).filter(|it| it.is_running) else { return };
        if load.round != round {
            return;
        }
        let relay = self.relay(load.relay.expect("given")).clone();
        let orders = load.orders.clone();
        let seconds = orders.values().next().map_or(0, |it| it.seconds);
        let total: u64 = orders.values().map(|it| it.rate.as_byte_per_s()).sum();
        let now = self.time();
        let mut sent_back = Vec::new();
        let mut reports = Vec::new();
        for (place, order) in &orders {
            let rate = order.rate.as_byte_per_s();
            let share = u128::from(relay.capacity) * u128::from(rate) / u128::from(total.max(1));
            let share = u64::try_from(share).expect("a part of a rate");
            let bytes = share.min(rate);
            sent_back.push(SentBack { measurer: key(*place), bytes });
            let bytes = if self.lying.contains(place) { rate * 3 } else { bytes };
            let checked_cells = bytes / (514 * 125) + 1;
            let report = if self.lost.contains(place) {
                let detail = "as played".to_string();
                MemberReport::Failed { kind: FailureKind::Broken, detail }
            } else {
                MemberReport::Second(Second { index: second, bytes, checked_cells }, None)
            };
            reports.push((*place, report));
        }
        let is_echo =
            matches!(orders.values().next().map(|it| it.mode), Some(RoundMode::Echo { .. }));
        if is_echo {
            let none = ClientSecond {
                second: u16::try_from(second).expect("few"),
                received_bytes: 0,
                sent_bytes: 0,
            };
            let event = OrderEvent::ClientSecond(none, sent_back);
            self.period.handle_order_event(now, measurement, round, event);
        }
        for (place, report) in reports {
            self.period.handle_report(now, measurement, MeasurerId(place), round, report);
        }
        if second + 1 < seconds {
            let next = Event::Second(measurement, round, second + 1);
            self.later(Duration::from_secs(1), next);
        }
    }

    fn disturb(&mut self, happening: &Happening) {
        const TWO_MINUTES: Duration = Duration::from_secs(120);
        match *happening {
            Happening::Crash => self.crash(),
            Happening::MeasurerLost(place) => {
                self.lost.insert(place);
                self.later(TWO_MINUTES, Event::MeasurerBack(place));
            }
            Happening::MeasurerLies(place) => {
                self.lying.insert(place);
                self.later(TWO_MINUTES, Event::MeasurerBack(place));
            }
            Happening::ClockSet(by_s) => self.skew_s += by_s,
            Happening::NoConsensus => self.has_no_consensus = true,
        }
    }

    /// The process is killed: outstanding requests are not answered.
    fn crash(&mut self) {
        self.loads.clear();
        self.events.retain(|_, it| matches!(it, Event::Happening(_) | Event::MeasurerBack(_)));
        self.processes += 1;
        (self.launched, self.failed) = (0, BTreeMap::new());
        let history = self.journal.history(&self.history);
        let pasts = self.journal.pasts(self.bounds.begin_unix_s);
        let config = config(self.bounds, self.processes);
        let knowledge = Knowledge { history, pasts };
        self.period = Period::new(self.time(), config, Consent::local_only(), knowledge);
    }

    fn view(&self) -> NetworkView {
        let router = |it: &SimRelay| Router {
            ids: it.ids,
            nickname: format!("relay{}", it.ids.rsa.0[0]),
            address: it.address,
            is_authority: false,
            is_running: true,
            weight_kb_s: None,
        };
        NetworkView {
            valid_after_unix_s: BEGIN,
            source: "the world".to_string(),
            signers: None,
            routers: self.relays.iter().map(router).collect(),
            named: None,
            echo: self.relays.iter().filter(|it| it.is_echo).map(|it| it.ids.rsa).collect(),
            families: Vec::new(),
            defences: Defences::default(),
        }
    }

    fn slot_seed(&self) -> SlotSeed {
        let room = TeamRoom { capacity: Rate::from_mbit_per_s(3000.0), at_once_max: 16 };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.options.seed.to_be_bytes());
        SlotSeed { seed: Seed::from_bytes(seed), teams: vec![room; self.teams], own: self.own }
    }

    pub(super) fn relay(&self, relay: RsaId) -> &SimRelay {
        self.relays.iter().find(|it| it.ids.rsa == relay).expect("one of the world")
    }

    pub(super) fn conduct(&self, relay: RsaId) -> Conduct {
        self.relay(relay).conduct
    }

    pub(super) fn may_be_measured(&self, relay: RsaId) -> bool {
        self.is_listed || self.conduct(relay) != Conduct::NotAsked
    }

    pub(super) fn group_size(&self, relay: RsaId) -> usize {
        let ip = self.relay(relay).address.ip();
        self.relays.iter().filter(|it| it.address.ip() == ip).count()
    }

    /// Finished measurements were recorded before.
    fn check_journal(&self, relay: RsaId) {
        let of_relay = |entry: &&Entry| match entry {
            Entry::Started(it) => it.relay() == relay,
            Entry::Finished(it) => it.begun.relay() == relay,
            _ => false,
        };
        let last = self.journal.entries.iter().rev().find(of_relay);
        assert!(matches!(last, Some(Entry::Started(_))), "not in the journal: {last:?}");
    }

    /// No measurer is assigned more than its capacity.
    fn check_capacity(&self) {
        for place in 0..MEASURERS {
            let orders = self.loads.values().filter_map(|it| it.orders.get(&place));
            let all: Rate = orders.map(|it| it.rate).sum();
            let has = capacity_of(place);
            assert!(all <= has, "measurer {place} is asked for {all} of {has}");
        }
        let at_once = self.loads.len();
        assert!(at_once <= 16, "{at_once} relays at once");
    }

    /// No estimate exceeds the relay's capacity.
    pub(super) fn check_record(&self, record: &Record) {
        let Some(capacity) = record.capacity() else { return };
        let most = self.relay(record.relay.ids.rsa).capacity;
        assert!(capacity.as_byte_per_s() <= most + most / 50, "{record:?}");
    }

    fn check_publication(&self, relays: &[PublishedRelay]) {
        let mut known = BTreeSet::new();
        for it in relays {
            assert!(known.insert(it.ids.rsa), "twice: {it:?}");
            assert!(self.may_be_measured(it.ids.rsa), "{it:?}");
        }
    }

    /// The conclusive estimates of the period, in the end.
    pub(super) fn conclusive(&self) -> BTreeMap<RsaId, Rate> {
        let pasts = self.journal.pasts(self.bounds.begin_unix_s);
        let records = pasts.into_iter().filter_map(|(id, it)| Some((id, it.record?)));
        let conclusive = records.filter(|(_, it)| it.verdict() == crate::Verdict::Conclusive);
        conclusive.filter_map(|(id, it)| Some((id, it.capacity()?))).collect()
    }

    /// The slot in which each relay was measured first.
    pub(super) fn first_slots(&self) -> BTreeMap<RsaId, u32> {
        let mut slots = BTreeMap::new();
        for entry in &self.journal.entries {
            if let Entry::Started(it) = entry
                && let Some(slot) = it.slot
            {
                slots.entry(it.relay()).or_insert(slot);
            }
        }
        slots
    }

    /// A conclusive estimate equals the one without disturbances.
    pub(super) fn compare(&self, undisturbed: &Self) {
        let (ours, theirs) = (self.conclusive(), undisturbed.conclusive());
        for (relay, rate) in &ours {
            let Some(expected) = theirs.get(relay).filter(|_| self.group_size(*relay) == 1) else {
                continue;
            };
            let share = rate.as_byte_per_s() as f64 / expected.as_byte_per_s() as f64;
            assert!((0.95..=1.05).contains(&share), "{relay}: {rate}, and undisturbed {expected}");
        }
        // A clock that is set to before the period ends it: it has not begun.
        let is_cut_short = self.time().unix_s() < BEGIN;
        assert!(is_cut_short || ours.len() > 100, "{} relays", ours.len());
    }
}

fn key(place: usize) -> MeasurerKey {
    MeasurerKey([number(place); 32])
}

fn number(place: usize) -> u8 {
    u8::try_from(place + 1).expect("few measurers")
}

fn config(bounds: Bounds, process: u8) -> PeriodConfig {
    let measurer = |place: usize| MeasurerConfig {
        name: format!("measurer {place}"),
        key: key(place),
        address: ([10, 1, 0, number(place)], 7000).into(),
        limit: capacity_of(place),
    };
    PeriodConfig {
        bounds,
        timing: Timing::Slots,
        params: Params { seconds: 5, ..Params::default() },
        policy: HistoryPolicy::over(Duration::from_secs(PERIOD_S)),
        measurers: (0..MEASURERS).map(measurer).collect(),
        at_once_max: None,
        echo_rounds: 4,
        always_authenticate: false,
        certain: Vec::new(),
        refresh: Duration::from_secs(PERIOD_S / 3),
        secret: [process; 32],
    }
}
