//! Small series of networks with results computed by hand, and generated ones with results of a simple implementation.

use super::*;
use crate::rows::{Descriptor, RelayId, Status};
use crate::times::DAY_S;
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

const BEGIN: u32 = 1_561_939_200; // 2019-07-01 00:00
const HOUR: u32 = 3600;
const DAY: u32 = 24 * HOUR;
/// 1 Mbit/s.
const MBIT: u32 = 125_000;

#[derive(Default)]
struct Built {
    relays: Relays,
    statuses: Vec<Status>,
    descriptors: Vec<Descriptor>,
}

impl Built {
    fn id(&mut self, relay: u32) -> RelayId {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&relay.to_be_bytes());
        self.relays.id(RsaId(bytes))
    }

    fn lists(&mut self, after_s: u32, relays: impl IntoIterator<Item = u32>) {
        for relay in relays {
            let flags = Flags::from_iter([Flag::Running]);
            let status = Status::new(self.id(relay), BEGIN + after_s, Origin::Tor, flags);
            self.statuses.push(status);
        }
    }

    fn publishes(&mut self, after_s: i64, relay: u32, observed_mbit: u32, rate_mbit: u32) {
        let descriptor = Descriptor {
            relay: self.id(relay),
            published_unix_s: u32::try_from(i64::from(BEGIN) + after_s).unwrap(),
            origin: Origin::Tor,
            advertised_byte_per_s: observed_mbit.min(rate_mbit) * MBIT,
            rate_byte_per_s: Some(rate_mbit * MBIT),
            burst_byte_per_s: Some(2 * rate_mbit * MBIT),
            observed_byte_per_s: Some(observed_mbit * MBIT),
        };
        self.descriptors.push(descriptor);
    }

    fn series(mut self, options: &ScheduleOptions) -> Result<ScheduleSeries, ArchiveError> {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::create(folder.path()).unwrap();
        let mut writer = dataset.writer(&mut || true).unwrap().unwrap();
        writer.add(self.statuses, &mut self.relays).unwrap();
        writer.add(self.descriptors, &mut self.relays).unwrap();
        series(&dataset, options, &AtomicBool::new(false), &mut |_, _| ())
    }
}

#[test]
fn a_capacity_is_the_largest_of_three_months_within_the_limits_of_the_day() {
    let mut built = Built::default();
    built.lists(0, 0..5);
    built.lists(DAY, 0..5);
    for (after_days, relay, observed, rate) in [
        (-40, 0, 700, 1000), // within 46 days before the first day
        (-1, 0, 10, 1000),
        (-47, 1, 700, 1000), // too early
        (-1, 1, 10, 1000),
        (-1, 2, 10, 1000),
        (40, 2, 500, 1000), // later, and still within three months
        (-1, 3, 400, 300),  // within its rate
        (46, 4, 800, 1000), // the first that is known of it
    ] {
        built.publishes(after_days * DAY_S, relay, observed, rate);
    }
    let day = &built.series(&ScheduleOptions::default()).unwrap().days[0];
    assert_eq!((day.relays, day.unknown_relays, day.lower_bound_relays), (5, 0, 0));
    assert!((day.capacity_gbit_per_s - 2.31).abs() < 1e-9, "{day:?}");
    // 2.84 · 800, 2.84 · (700 + 300), 2.84 · (500 + 10) fill three slots of 3 Gbit/s: 800 leaves room for nothing but 10.
    assert_eq!((day.slots, day.hours), (3, 90.0 / 3600.0));
}

#[test]
fn new_relays_get_the_first_slots_with_room() {
    let mut built = Built::default();
    built.publishes(-1, 0, 51, 1000);
    built.lists(0, [0]);
    // 3000 / (2.84 · 51) = 20 in a slot.
    built.lists(HOUR, 0..=40);
    built.lists(2 * HOUR, 0..=41);
    built.lists(3 * HOUR, 0..=41);
    let found = built.series(&ScheduleOptions::default()).unwrap();
    let counts =
        found.arrivals.iter().map(|arrival| (arrival.new_relays, arrival.measured_after_s));
    assert_eq!(counts.collect::<Vec<_>>(), [(40, 60), (1, 30), (0, 0)]);
    assert_eq!((found.waits_s.len(), found.waits_s[19], found.waits_s[20]), (41, 30, 30));
    assert_eq!(
        found.waits_s[21], 60,
        "20 at the first hour and one at the second wait for one slot"
    );
    // The daemon draws within a 24th of the period.
    let daemon = found.arrivals.iter().map(|arrival| arrival.measured_by_daemon_after_s);
    assert!(daemon.clone().all(|after_s| after_s <= HOUR) && daemon.clone().max() > Some(60));
    assert_eq!(found.arrivals.iter().map(|arrival| arrival.put_off_relays).sum::<usize>(), 0);
}

#[test]
fn new_relays_do_not_displace_old_ones() {
    // 100 relays of 500 Mbit/s, two in a slot of 3 Gbit/s, in a day of 60 slots: nearly every slot has one already.
    let options = ScheduleOptions { slot_s: 1440, ..ScheduleOptions::default() };
    let mut built = Built::default();
    (0..100).for_each(|relay| built.publishes(-1, relay, 500, 1000));
    built.lists(0, 0..100);
    built.lists(HOUR, 0..140);
    let found = built.series(&options).unwrap();
    let [hour] = found.arrivals[..] else { panic!("{:?}", found.arrivals) };
    // Without old relays, 40 new ones would need 20 slots.
    let slots = hour.measured_after_s / 1440;
    assert!(hour.put_off_relays > 0 && slots > 20, "{hour:?}");
}

#[test]
fn errors_about_origins_and_empty_datasets_name_the_remedy() {
    let mut built = Built::default();
    built.lists(0, 0..3);
    built.statuses[2].origin = Origin::Membership;
    let error = built.series(&ScheduleOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--origin") && error.contains("membership"), "{error}");
    let error = Built::default().series(&ScheduleOptions::default()).unwrap_err().to_string();
    assert!(error.contains("import"), "{error}");
    let mut built = Built::default();
    built.lists(0, 0..3);
    let error = built.series(&ScheduleOptions::default()).unwrap_err().to_string();
    assert!(error.contains("2019-07-01") && error.contains("--new-relay"), "{error}");
}

#[test]
fn unknown_relays_have_the_expected_capacity_of_new_ones() {
    let mut built = Built::default();
    (0..4).for_each(|relay| built.publishes(-1, relay, 10 * (relay + 1), 1000));
    built.lists(0, 0..6);
    let found = built.series(&ScheduleOptions::default()).unwrap();
    assert_eq!(found.days[0].unknown_relays, 2);
    // The 75th percentile of 10, 20, 30, 40 is 30.
    assert!((found.days[0].capacity_gbit_per_s - 0.160).abs() < 1e-9, "{:?}", found.days[0]);
}

/// Presence of relays by day: few relays and long gaps, so that some return after a month.
fn presence() -> impl Strategy<Value = BTreeMap<u32, Vec<u32>>> {
    let day = prop_oneof![0_u32..5, 30_u32..36, 60_u32..70];
    let relays = proptest::collection::btree_set(0_u32..6, 1..6);
    proptest::collection::btree_map(
        day,
        relays.prop_map(|relays| relays.into_iter().collect()),
        1..14,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_relay_is_new_if_no_view_had_it_for_30_days(views in presence()) {
        let mut built = Built::default();
        for (day, relays) in &views {
            built.lists(day * DAY, relays.iter().copied());
        }
        let new_relay = Some(Rate::from_mbit_per_s(50.0));
        let options = ScheduleOptions { new_relay, ..ScheduleOptions::default() };
        let found = built.series(&options).unwrap();
        let first = *views.keys().next().unwrap();
        let is_new = |day: u32, relay: &u32| {
            let had = |(other, relays): (&u32, &Vec<u32>)| {
                *other < day && day - other <= 30 && relays.contains(relay)
            };
            !views.iter().any(had)
        };
        let naive: Vec<(i64, usize)> = views
            .iter()
            .filter(|view| *view.0 != first)
            .map(|(day, relays)| {
                let new = relays.iter().filter(|relay| is_new(*day, relay)).count();
                (i64::from(BEGIN + day * DAY), new)
            })
            .collect();
        let counted: Vec<(i64, usize)> =
            found.arrivals.iter().map(|arrival| (arrival.unix_s, arrival.new_relays)).collect();
        prop_assert_eq!(counted, naive);
        prop_assert_eq!(found.days.len(), views.len());
        // Each new relay has a slot: there is room for all.
        prop_assert_eq!(found.waits_s.len(), found.arrivals.iter().map(|arrival| arrival.new_relays).sum::<usize>());
    }
}
