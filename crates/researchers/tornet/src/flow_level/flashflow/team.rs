//! The team, its coordinator and the relays in virtual time.
//!
//! All decisions are those of the coordinator: who measures when, with how much, in how many rounds, and what the result is.
//! A relay returns what its host has left, and reports its clients, second by second.

mod setting;

pub(super) use setting::{hours_after_begin, place_of};

use crate::flow_level::Scene;
use coordinator::period::{Action, Answer, Knowledge, MeasurementId, Period, ProbeAnswer};
use coordinator::{Consent, MeasurerId, MemberReport, Params, RoundOrder};
use onion::measure::Second;
use onion::measure::order::OrderEvent;
use onion::measure::protocol::{ClientSecond, SentBack};
use onion::{Duration, Instant, Rate};
use setting::{MEASURERS, RTT, bytes, config, history, key, time, view};
use sim::world::SplitMix64;
use std::collections::BTreeMap;

/// The least that is measured of a relay's capacity. The paper's estimates are at most 11 % too low in 95 % of its
/// measurements (§6).
pub(super) const MEASURED_MIN: f64 = 0.89;

/// The share of its capacity that clients use, as far as the measurement permits.
const CLIENTS: f64 = 0.5;

/// A measurement.
#[derive(Default)]
struct Load {
    relay: usize,
    round: u32,
    orders: BTreeMap<usize, RoundOrder>,
    is_running: bool,
    /// What the relay shows, over its capacity.
    speed: f64,
}

impl Load {
    fn rate(&self) -> Rate {
        self.orders.values().map(|order| order.rate).sum()
    }
}

enum Event {
    Network,
    Measurer(MeasurerId),
    Probe(MeasurementId),
    Accepted(MeasurementId, u32),
    Ready(MeasurementId, usize, u32),
    Second(MeasurementId, u32, u32),
}

/// A coordinator, its measurers and the relays.
pub(super) struct Team<'a> {
    scene: &'a Scene,
    rng: &'a mut SplitMix64,
    params: Params,
    pub(super) period: Period,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    loads: BTreeMap<MeasurementId, Load>,
    /// The largest rate that all measurers sent.
    pub(super) sent_max: Rate,
    is_over: bool,
}

impl<'a> Team<'a> {
    pub(super) fn new(scene: &'a Scene, rng: &'a mut SplitMix64) -> Self {
        let params = Params::default();
        let now = time(Instant::ORIGIN);
        let knowledge = Knowledge { history: history(scene), pasts: BTreeMap::new() };
        let period = Period::new(now, config(params), Consent::local_only(), knowledge);
        Self {
            scene,
            rng,
            params,
            period,
            now: Instant::ORIGIN,
            events: BTreeMap::new(),
            sequence: 0,
            loads: BTreeMap::new(),
            sent_max: Rate::ZERO,
            is_over: false,
        }
    }

    pub(super) fn run(&mut self) {
        while !self.is_over {
            while let Some(action) = self.period.poll_action() {
                self.act(action);
            }
            let timer = self.period.poll_timeout(time(self.now));
            let next = self.events.keys().next().map(|(at, _)| *at);
            if next.is_some_and(|at| timer.is_none_or(|timer| at <= timer))
                && let Some(((at, _), event)) = self.events.pop_first()
            {
                self.now = self.now.max(at);
                self.happen(event);
            } else if let Some(timer) = timer {
                self.now = self.now.max(timer);
                self.period.handle_timeout(time(self.now));
            } else {
                // The period waits for nothing.
                return;
            }
        }
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::FetchNetwork => self.later(RTT, Event::Network),
            Action::AskMeasurer(measurer) => self.later(RTT, Event::Measurer(measurer)),
            Action::Probe { measurement, .. } => self.later(RTT, Event::Probe(measurement)),
            Action::GiveOrder { measurement, target, terms } => {
                self.loads.entry(measurement).or_default().relay = place_of(target.ids.rsa);
                self.later(RTT, Event::Accepted(measurement, terms.round));
            }
            Action::Prepare { measurement, measurer: MeasurerId(member), round, order } => {
                let load = self.loads.entry(measurement).or_default();
                (load.relay, load.round) = (place_of(order.target.ids.rsa), round);
                load.orders.insert(member, order);
                self.later(RTT, Event::Ready(measurement, member, round));
            }
            Action::Start { measurement, delay } => self.start(measurement, delay),
            Action::Stop { measurement } => drop(self.loads.remove(&measurement)),
            Action::Ended(_) => self.is_over = true,
            Action::Journal(_) | Action::Publish(_) | Action::Event(_) => {}
        }
    }

    fn start(&mut self, measurement: MeasurementId, delay: Duration) {
        let Some(load) = self.loads.get_mut(&measurement) else { return };
        load.is_running = true;
        let shown = self.scene.behavior_of(load.relay).shown_factor;
        let accuracy = MEASURED_MIN + (1.0 - MEASURED_MIN) * self.rng.unit();
        load.speed = shown * accuracy * self.scene.speed_now(load.relay, self.rng);
        let round = load.round;
        let running = self.loads.values().filter(|load| load.is_running);
        self.sent_max = self.sent_max.max(running.map(Load::rate).sum());
        self.later(delay + Duration::from_secs(1), Event::Second(measurement, round, 0));
    }

    fn happen(&mut self, event: Event) {
        let now = time(self.now);
        match event {
            Event::Network => self.period.handle_network(now, view(self.scene), None),
            Event::Measurer(measurer) => {
                let capacity = MEASURERS.get(measurer.0).copied().unwrap_or(Rate::ZERO);
                let answer = Answer { capacity, at_once_max: u32::MAX };
                self.period.handle_measurer(now, measurer, Ok(answer));
            }
            Event::Probe(measurement) => {
                self.period.handle_probe(now, measurement, ProbeAnswer::Connected(RTT));
            }
            Event::Accepted(measurement, round) => {
                self.period.handle_order_event(now, measurement, round, OrderEvent::Accepted);
            }
            Event::Ready(measurement, member, round) => {
                let load = self.loads.get(&measurement);
                let Some(order) = load.and_then(|load| load.orders.get(&member)) else { return };
                let ready = MemberReport::Ready { sockets: order.sockets };
                self.period.handle_report(now, measurement, MeasurerId(member), round, ready);
            }
            Event::Second(measurement, round, second) => self.second(measurement, round, second),
        }
    }

    /// The relay and all measurers of a measurement report a second.
    fn second(&mut self, measurement: MeasurementId, round: u32, second: u32) {
        let load = self.loads.get(&measurement);
        let Some(load) = load.filter(|load| load.is_running && load.round == round) else { return };
        let ratio = self.params.ratio;
        let behavior = self.scene.behavior_of(load.relay);
        let room = self.room(load.relay) * load.speed;
        let clients = if behavior.prefers_measurements { 0.0 } else { CLIENTS.min(ratio) };
        let asked = load.rate().as_byte_per_s() as f64;
        let returned = (room * (1.0 - clients)).min(asked);
        let carried =
            if behavior.claims_clients { returned * ratio / (1.0 - ratio) } else { room * clients };
        let share = |order: &RoundOrder| returned * order.rate.as_byte_per_s() as f64 / asked;
        let returned: Vec<(usize, u64)> =
            load.orders.iter().map(|(member, order)| (*member, bytes(share(order)))).collect();
        let seconds = load.orders.values().next().map_or(0, |order| order.seconds);
        let clients = ClientSecond {
            second: u16::try_from(second).unwrap_or(u16::MAX),
            received_bytes: bytes(carried),
            sent_bytes: bytes(carried),
        };
        let sent_back = returned
            .iter()
            .map(|(member, bytes)| SentBack { measurer: key(*member), bytes: *bytes });
        let now = time(self.now);
        let report = OrderEvent::ClientSecond(clients, sent_back.collect());
        self.period.handle_order_event(now, measurement, round, report);
        for (member, bytes) in returned {
            let checked_cells = bytes / (514 * 125) + 1;
            let second = Second { index: second, bytes, checked_cells };
            let report = MemberReport::Second(second, None);
            self.period.handle_report(now, measurement, MeasurerId(member), round, report);
        }
        if second + 1 < seconds {
            let next = Event::Second(measurement, round, second + 1);
            self.later(Duration::from_secs(1), next);
        }
    }

    /// What a relay's host has for it, in bytes per second: the capacity of all its relays, divided among those that are
    /// measured now.
    fn room(&self, relay: usize) -> f64 {
        let relays = &self.scene.relays;
        let host = relays[relay].host;
        let identities = f64::from(self.scene.behavior_of(relay).identities);
        let running = self.loads.values().filter(|load| load.is_running);
        let measured = running.filter(|load| relays[load.relay].host == host).count().max(1);
        relays[relay].capacity * identities / measured as f64 / 8.0
    }
}
