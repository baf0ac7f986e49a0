//! The measurers, and their reports on a round.

use super::*;

pub(super) const MEASURERS: usize = 3;

pub(super) fn capacity_of(_measurer: usize) -> Rate {
    Rate::from_mbit_per_s(1000.0)
}

impl World {
    pub(super) fn ready(&mut self, measurement: MeasurementId, place: usize, round: u32) {
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

    pub(super) fn second(&mut self, measurement: MeasurementId, round: u32, second: u32) {
        let Some(load) = self.loads.get(&measurement).filter(|load| load.sends.is_some()) else {
            return;
        };
        if load.round != round {
            return;
        }
        let relay = self.relay(load.relay.expect("given")).clone();
        let passed_s = self.now.saturating_since(Instant::ORIGIN).as_secs();
        let is_starved = passed_s < self.options.starved_until_s;
        let capacity = if is_starved { relay.capacity / 4 } else { relay.capacity };
        let orders = load.orders.clone();
        let seconds = orders.values().next().map_or(0, |order| order.seconds);
        let total: u64 = orders.values().map(|order| order.rate.as_byte_per_s()).sum();
        let now = self.time();
        let mut sent_back = Vec::new();
        let mut reports = Vec::new();
        for (place, order) in &orders {
            let rate = order.rate.as_byte_per_s();
            let share = u128::from(capacity) * u128::from(rate) / u128::from(total.max(1));
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
            matches!(orders.values().next().map(|order| order.mode), Some(RoundMode::Echo { .. }));
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
}

fn key(place: usize) -> MeasurerKey {
    MeasurerKey([number(place); 32])
}

fn number(place: usize) -> u8 {
    u8::try_from(place + 1).expect("few measurers")
}

pub(super) fn config(bounds: Bounds, options: &WorldOptions, process: u8) -> PeriodConfig {
    let measurer = |place: usize| MeasurerConfig {
        name: format!("measurer {place}"),
        key: key(place),
        address: ([10, 1, 0, number(place)], 7000).into(),
        limit: capacity_of(place),
    };
    PeriodConfig {
        bounds,
        timing: options.timing,
        params: Params { seconds: options.seconds, may_have_clients: false, ..Params::default() },
        policy: HistoryPolicy::over(Duration::from_secs(options.length_s)),
        measurers: (0..MEASURERS).map(measurer).collect(),
        at_once_max: None,
        echo_rounds: 4,
        always_authenticate: false,
        path: None,
        measurers_min: 1,
        repeats_failures: true,
        certain: Vec::new(),
        refresh: Duration::from_secs(PERIOD_S / 3),
        secret: [process; 32],
    }
}
