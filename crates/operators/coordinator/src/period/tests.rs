//! Whole periods in virtual time.

mod world;

use super::*;
use crate::journal::MeasurementFinished;
use crate::policy::{Hours, Policy};
use onion::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;
use world::{BEGIN, Conduct, Happening, PERIOD_S, World, WorldOptions};

/// The invariants of every period.
fn check(world: &World) {
    let mut open: BTreeSet<(u64, [u8; 20])> = BTreeSet::new();
    let mut done: BTreeMap<(u64, [u8; 20]), u32> = BTreeMap::new();
    let mut follows: BTreeMap<(u64, [u8; 20]), u32> = BTreeMap::new();
    for entry in world.journal.entries() {
        match entry {
            Entry::Started(started) => {
                let key = (started.period_unix_s, started.relay().0);
                open.insert(key);
                let is_alone = world.group_size(started.relay()) == 1;
                let has_final = done.contains_key(&key);
                assert!(!(is_alone && has_final), "measured again: {started:?}");
                assert!(world.may_be_measured(started.relay()), "without consent: {started:?}");
            }
            Entry::Finished(finished) => {
                let MeasurementFinished { begun, is_final, record, .. } = &**finished;
                let key = (begun.period_unix_s, begun.relay().0);
                open.remove(&key);
                let expected = follows.remove(&key);
                let round = record.rounds.first().map(|round| round.number);
                let is_next = expected.is_none() || round.is_none() || round == expected;
                assert!(is_next, "round {round:?} where {expected:?} was to follow");
                if let Some(next) = finished.follows.filter(|_| record.capacity().is_some()) {
                    follows.insert(key, next.round);
                }
                if *is_final {
                    *done.entry(key).or_default() += 1;
                }
                world.check_record(record);
            }
            _ => {}
        }
    }
}

fn options() -> impl Strategy<Value = WorldOptions> {
    let happening = prop_oneof![
        3 => Just(Happening::Crash),
        2 => (0usize..3).prop_map(Happening::MeasurerLost),
        1 => (0usize..3).prop_map(Happening::MeasurerLies),
        1 => (-200i64..200).prop_map(Happening::ClockSet),
        1 => Just(Happening::NoConsensus),
    ];
    let happenings = prop::collection::vec((1u64..PERIOD_S, happening), 0..5);
    let timing = prop_oneof![3 => Just(Timing::Slots), 1 => Just(Timing::Greedy)];
    let lengths = (
        prop::sample::select(vec![45_u64, 8, 5]),
        prop::sample::select(vec![20_u64, 1500, 3900, 8000]),
    );
    (any::<u64>(), timing, happenings, lengths, prop::bool::weighted(0.2)).prop_map(
        |(seed, timing, happenings, (slot_s, setup_ms), has_policy)| WorldOptions {
            timing,
            happenings,
            slot_s,
            setup_ms,
            ..if has_policy { by_policy(seed) } else { WorldOptions::undisturbed(seed) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_period_keeps_its_invariants_under_any_disturbances(options in options()) {
        let mut world = World::new(&options);
        world.run_period();
        check(&world);
        let undisturbed = {
            let happenings = Vec::new();
            let mut world = World::new(&WorldOptions { happenings, ..options });
            world.run_period();
            check(&world);
            world
        };
        world.compare(&undisturbed);
    }
}

#[test]
fn an_undisturbed_period_measures_every_relay_that_consents_to_its_capacity() {
    let mut world = World::new(&WorldOptions::undisturbed(7));
    world.run_period();
    check(&world);
    let conclusive = world.conclusive();
    for (relay, rate) in &conclusive {
        let relay = world.relay(*relay);
        assert_eq!(relay.conduct, Conduct::Honest);
        let share = rate.as_byte_per_s() as f64 / relay.capacity as f64;
        let is_whole = world.group_size(relay.ids.rsa) > 1 || share > 0.95;
        assert!(is_whole && share <= 1.01, "{share} of {relay:?}");
    }
    let honest = world.relays.iter().filter(|relay| relay.conduct == Conduct::Honest).count();
    // A new relay whose first guess was too low may find no second slot.
    assert!(conclusive.len() * 10 > honest * 9, "{} of {honest}", conclusive.len());
}

#[test]
fn by_the_papers_plan_each_known_relay_has_one_slot_and_by_ours_some_have_none() {
    let done = |timing| {
        let options =
            WorldOptions { timing, length_s: 86_400, slot_s: 33, ..WorldOptions::undisturbed(5) };
        let mut world = World::new(&options);
        world.run_until(1);
        let counts = world.period.counts();
        assert_eq!(counts.without_slot, 0, "{counts:?}");
        counts.done
    };
    // Those in the first slot that cannot be reached.
    assert!(done(Timing::PaperSlots) < 5);
    // 0.4 of those with an estimate.
    assert!((40..100).contains(&done(Timing::Slots)));
}

/// Each relay needs most of the team, and nearly all slots have one. A slot is as long as the load of a measurement.
#[test]
fn measurements_follow_each_other_without_a_gap() {
    let options = WorldOptions {
        relays: 140,
        slot_s: 28,
        seconds: 25,
        setup_ms: 1500,
        are_large: true,
        ..WorldOptions::undisturbed(17)
    };
    let mut world = World::new(&options);
    world.run_period();
    check(&world);
    let measured = world.conclusive().len();
    assert!(measured > 70, "{measured} relays");
    // After an empty slot there is a gap.
    let mut gaps: Vec<Duration> =
        world.gaps.iter().copied().filter(|gap| *gap < Duration::from_secs(5)).collect();
    gaps.sort_unstable();
    let middle = gaps[gaps.len() / 2];
    assert!(gaps.len() > 60 && middle < Duration::from_millis(50), "{gaps:?}");
}

#[test]
fn a_restarted_process_continues_with_the_recorded_state() {
    let mut world = World::new(&WorldOptions::undisturbed(9));
    world.run_until(PERIOD_S / 2);
    let known: BTreeMap<_, Record> =
        world.period.records().map(|record| (record.relay.ids.rsa, record.clone())).collect();
    assert!(known.len() > 50);
    let pasts = world.journal.pasts(world.bounds.begin_unix_s);
    let recorded: BTreeMap<_, Record> =
        pasts.into_iter().filter_map(|(id, past)| Some((id, past.record?))).collect();
    assert_eq!(known, recorded);
}

/// Two coordinators that plan by one seed measure no relay at the same time.
#[test]
fn two_coordinators_with_one_seed_measure_no_relay_at_the_same_time() {
    let options = WorldOptions::undisturbed(3);
    let mut worlds = [0, 1].map(|own| World::of_team(&options, own, 2));
    let [one, other] = worlds.each_mut().map(|world| {
        world.run_period();
        check(world);
        world.first_slots()
    });
    assert!(one.len() > 150);
    for (relay, slot) in &one {
        assert_ne!(other.get(relay), Some(slot), "{relay:?}");
    }
}

#[test]
fn a_relay_that_declines_is_asked_once_more_in_another_slot() {
    let mut world = World::new(&WorldOptions::undisturbed(5));
    world.run_period();
    let mut asked: BTreeMap<RsaId, Vec<Option<u32>>> = BTreeMap::new();
    for entry in world.journal.entries() {
        if let Entry::Started(started) = entry
            && world.conduct(started.relay()) == Conduct::Declines
        {
            asked.entry(started.relay()).or_default().push(started.slot);
        }
    }
    assert!(!asked.is_empty());
    for (relay, slots) in asked {
        let is_late = slots[0] > Some(world.bounds.slots() - 5);
        assert!(slots.len() == 2 || (is_late && slots.len() == 1), "{relay}: {slots:?}");
        assert_ne!(slots.first(), slots.get(1));
    }
}

/// Clients starve all relays in a part of the period. What a relay can do shows in its later slots.
#[test]
fn a_fall_is_measured_again_at_other_times_and_the_largest_result_stands() {
    let starved_until_s = PERIOD_S / 2;
    let mut world = World::new(&WorldOptions { starved_until_s, ..WorldOptions::undisturbed(21) });
    world.run_period();
    check(&world);
    let mut results: BTreeMap<RsaId, Vec<(Option<u32>, Rate)>> = BTreeMap::new();
    for entry in world.journal.entries() {
        if let Entry::Finished(finished) = entry
            && let Some(capacity) = finished.record.capacity()
        {
            results
                .entry(finished.begun.relay())
                .or_default()
                .push((finished.begun.slot, capacity));
        }
    }
    let pasts = world.journal.pasts(world.bounds.begin_unix_s);
    let (mut fallen, mut right) = (0, 0);
    for (relay, all) in results {
        // New relays have no earlier results, and relays of one host divide it.
        let is_known = relay.0[0] % 10 != 3 && world.group_size(relay) == 1;
        let full = Rate::from_byte_per_s(world.relay(relay).capacity).scaled(0.9);
        if !is_known || all[0].1 > full {
            continue;
        }
        fallen += 1;
        let is_late = all.last().is_some_and(|turn| turn.0 > Some(world.bounds.slots() - 5));
        assert!(all.len() > 1 || is_late, "{relay}: {all:?}");
        let slots: BTreeSet<Option<u32>> = all.iter().map(|turn| turn.0).collect();
        assert_eq!(slots.len(), all.len(), "at other times: {all:?}");
        let largest = all.iter().map(|turn| turn.1).max().expect("one at least");
        let stands = pasts[&relay].record.as_ref().and_then(Record::capacity);
        assert_eq!(stands, Some(largest), "{relay}: {all:?}");
        right += u32::from(largest > full);
    }
    assert!(fallen > 50 && right * 10 > fallen * 7, "{right} of {fallen}");
}

/// Most relays are measured by a policy. The invariants of the world contain its rates and hours.
fn by_policy(seed: u64) -> WorldOptions {
    let sound = crate::policy::fixture::policy();
    let time = crate::policy::fixture::time;
    let rate = Rate::from_mbit_per_s;
    let policy = Policy {
        announced: time(0),
        valid_after: time(BEGIN - 1),
        valid_until: time(BEGIN + PERIOD_S * 2),
        hours: Hours::ALL,
        relay_rates: [(time(BEGIN - 1), rate(60.0))].into(),
        network_rate: rate(150.0),
        // The third measurer has no share.
        measurers: [([1; 32], 50), ([2; 32], 25)].into(),
        ..sound
    };
    WorldOptions { policy: Some(policy), ..WorldOptions::undisturbed(seed) }
}

fn measured_by_policy(world: &World) -> BTreeSet<RsaId> {
    let started = world.journal.entries().iter().filter_map(|entry| match entry {
        Entry::Started(started) => Some(started.relay()),
        _ => None,
    });
    started.filter(|relay| world.conduct(*relay) == Conduct::NotAsked).collect()
}

#[test]
fn relays_are_measured_within_the_rates_of_a_policy() {
    for seed in 0..5 {
        let mut world = World::new(&by_policy(seed));
        world.run_period();
        check(&world);
        let measured = measured_by_policy(&world);
        let all = world.relays.iter().filter(|relay| relay.conduct == Conduct::NotAsked).count();
        assert!(all > 100 && measured.len() * 10 > all * 9, "{} of {all}", measured.len());
        let conclusive = world.conclusive();
        // 75 % of 60 Mbit/s, divided by the excess factor.
        let most =
            Rate::from_mbit_per_s(45.0).scaled(1.0 / crate::Params::default().excess_factor());
        for relay in measured {
            let capacity = Rate::from_byte_per_s(world.relay(relay).capacity);
            if world.group_size(relay) == 1 && capacity > most.scaled(1.05) {
                assert!(!conclusive.contains_key(&relay), "{relay}: {capacity}");
            }
        }
    }
}

#[test]
fn no_relay_is_measured_by_a_policy_that_is_not_valid_or_out_of_hours() {
    let options = by_policy(3);
    let policy = options.policy.clone().expect("one");
    let time = crate::policy::fixture::time;
    let hour = u8::try_from(BEGIN / 3600 % 24).expect("an hour");
    for policy in [
        Policy { valid_until: time(BEGIN), ..policy.clone() },
        Policy { valid_after: time(BEGIN + 2 * PERIOD_S), ..policy.clone() },
        Policy {
            hours: Hours::between((hour + 3) % 24, (hour + 4) % 24).expect("one"),
            ..policy.clone()
        },
        Policy { measurers: [([3; 32], 0)].into(), ..policy },
    ] {
        for timing in [Timing::Slots, Timing::Greedy] {
            let policy = Some(policy.clone());
            let mut world = World::new(&WorldOptions { timing, policy, ..options.clone() });
            world.run_period();
            assert!(measured_by_policy(&world).is_empty(), "{timing:?}");
        }
    }
}

#[test]
fn slots_are_in_the_hours_of_a_policy() {
    let options = by_policy(4);
    let policy = options.policy.clone().expect("one");
    let change = BEGIN + 3600;
    let hour = u8::try_from(change / 3600 % 24).expect("an hour");
    let hours = Hours::between(hour, (hour + 1) % 24).expect("one");
    let policy = Some(Policy { hours, ..policy });
    let (timing, length_s) = (Timing::PaperSlots, 5400);
    let mut world = World::new(&WorldOptions { policy, timing, length_s, ..options });
    world.run_period();
    check(&world);
    assert!(measured_by_policy(&world).len() > 20);
    let first = world.bounds.slot(change);
    assert!(world.first_slots().values().all(|slot| *slot >= first), "one plan for all relays");
}

#[test]
fn a_relay_whose_consent_is_withdrawn_is_no_longer_measured() {
    let mut world = World::new(&WorldOptions::undisturbed(11));
    world.list_all();
    let public = |world: &World| {
        let started = world.journal.entries().iter().filter_map(|entry| match entry {
            Entry::Started(started) => Some(started.relay()),
            _ => None,
        });
        started.filter(|started| world.conduct(*started) == Conduct::NotAsked).count()
    };
    world.run_until(PERIOD_S / 2);
    let before = public(&world);
    world.withdraw_consent();
    world.run_period();
    assert!(before > 0, "some were measured while they were listed");
    assert_eq!(public(&world), before);
}

#[test]
fn a_newer_consensus_without_a_relay_to_measure_is_refused_with_the_reason() {
    let mut world = World::new(&WorldOptions::undisturbed(11));
    world.run_until(PERIOD_S / 2);
    let empty = NetworkView { routers: Vec::new(), ..world.view() };
    world.period.handle_network(world.time(), empty, None);
    world.run_period();
    let [reason] = &world.refused[..] else { panic!("{:?}", world.refused) };
    assert!(reason.contains("may be measured"), "{reason}");
}
