use super::*;
use crate::testing::id;
use core::net::{IpAddr, Ipv4Addr};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec;

mod advantage;

const F: f64 = 2.0;

fn mbit(rate: f64) -> Rate {
    Rate::from_mbit_per_s(rate)
}

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn single(number: u16, rate: f64) -> Machine {
    Machine::single(id(number), mbit(rate))
}

fn team(capacity: f64) -> TeamRoom {
    TeamRoom::of(mbit(capacity))
}

/// Relays of these capacities, at these addresses.
fn candidates(relays: &[(u16, u8)]) -> Vec<Candidate> {
    let candidate = |(number, (rate, host)): (u16, &(u16, u8))| Candidate {
        relay: id(number),
        guess: mbit(f64::from(*rate)),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, *host)),
    };
    (0..).zip(relays).map(candidate).collect()
}

#[test]
fn no_relay_has_a_closed_slot() {
    let closed: Vec<u32> = (0..60).filter(|slot| slot % 3 > 0).collect();
    let slots = Slots { count: 60, closed };
    let machines: Vec<Machine> = (0..40).map(|number| single(number, 10.0)).collect();
    let due = machines.iter().map(|machine| (machine.clone(), Some(7))).collect();
    for mut plan in [
        Plan::randomised(&seed(1), slots.clone(), &[team(50.0)], F, machines),
        Plan::memoryless(&seed(1), slots, &[team(50.0)], F, due),
    ] {
        plan.admit(&single(99, 1.0), Priority::New, 1);
        let places = plan.places();
        assert!(places.len() > 30 && places.iter().any(|place| place.relay == id(99)));
        assert!(places.iter().all(|place| place.slot % 3 == 0), "{places:?}");
    }
}

/// Checks the invariants of a plan, by its places alone.
fn check(plan: &Plan, teams: &[TeamRoom], machines: &[Machine]) {
    let places = plan.places();
    let mut used: BTreeMap<(usize, u32), (Rate, u32)> = BTreeMap::new();
    for machine in machines {
        for (number, team) in teams.iter().enumerate() {
            let slots: BTreeSet<Option<u32>> =
                machine.relays().map(|relay| plan.slot(relay, number)).collect();
            assert_eq!(slots.len(), 1, "{machine:?} is measured at several times");
            let Some(Some(slot)) = slots.first() else { continue };
            let used = used.entry((number, *slot)).or_default();
            used.0 = used.0 + machine.guess().scaled(F).min(team.capacity);
            used.1 += machine.count().min(team.at_once_max);
        }
        let relay = machine.key();
        let slots: Vec<u32> =
            (0..teams.len()).filter_map(|number| plan.slot(relay, number)).collect();
        let different: BTreeSet<&u32> = slots.iter().collect();
        assert_eq!(different.len(), slots.len(), "two teams at once: {machine:?}");
    }
    for ((number, slot), (rate, relays)) in &used {
        let team = teams[*number];
        assert!(*rate <= team.capacity && *relays <= team.at_once_max, "{slot}: {rate} {relays}");
        assert_eq!(plan.used(*number)[*slot as usize], *rate);
    }
    let once: BTreeSet<(usize, RsaId)> =
        places.iter().map(|place| (place.team, place.relay)).collect();
    assert_eq!(once.len(), places.len(), "a relay twice by one team");
    assert!(places.iter().all(|place| place.slot < plan.slots()));
    assert_eq!(plan.used_slots(), places.last().map_or(0, |place| place.slot + 1));
}

fn relays() -> impl Strategy<Value = Vec<(u16, u8)>> {
    vec((0u16..60, 0u8..40), 0..60)
}

fn teams() -> impl Strategy<Value = Vec<TeamRoom>> {
    let team = (0u16..300, prop_oneof![Just(u32::MAX), 1u32..6]);
    let team = team.prop_map(|(capacity, at_once_max)| TeamRoom {
        capacity: mbit(f64::from(capacity)),
        at_once_max,
    });
    vec(team, 1..4)
}

proptest! {
    #[test]
    fn slots_are_not_overfull_relays_are_planned_once_and_machines_stay_together(
        relays in relays(), teams in teams(), slots in 1u32..30, byte: u8,
    ) {
        let machines = machines(&candidates(&relays), &[]);
        let plan = Plan::randomised(&seed(byte), slots, &teams, F, machines.clone());
        check(&plan, &teams, &machines);
        // A machine without a slot fits in no slot.
        for number in 0..teams.len() {
            for relay in plan.without_slot(number) {
                let entry = &plan.entries[&plan.entry_of[&relay]];
                prop_assert_eq!(plan.first_slot(entry, number, 0), None);
            }
        }
    }

    #[test]
    fn the_greedy_plan_has_the_same_invariants_and_includes_every_relay(
        relays in relays(), teams in teams(),
    ) {
        let machines = machines(&candidates(&relays), &[]);
        let plan = Plan::greedy(&teams, F, machines.clone());
        check(&plan, &teams, &machines);
        for (number, team) in teams.iter().enumerate() {
            let left_out = plan.without_slot(number).len();
            let expected = if team.capacity == Rate::ZERO { relays.len() } else { 0 };
            prop_assert_eq!(left_out, expected);
        }
        // No later machine would have fitted into an earlier slot.
        if let [team] = &teams[..] && team.at_once_max == u32::MAX && team.capacity > Rate::ZERO {
            let used = plan.used(0);
            for machine in &machines {
                let needed = machine.guess().scaled(F).min(team.capacity);
                let slot = plan.slot(machine.key(), 0).expect("all have one");
                for earlier in &used[..slot as usize] {
                    prop_assert!(needed > team.capacity.saturating_sub(*earlier));
                }
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_plans_in_any_order_of_relays(
        relays in relays(), slots in 1u32..30, byte: u8,
    ) {
        let teams = [team(150.0), team(100.0)];
        let mut candidates = candidates(&relays);
        let one = Plan::randomised(&seed(byte), slots, &teams, F, machines(&candidates, &[]));
        candidates.reverse();
        let other = Plan::randomised(&seed(byte), slots, &teams, F, machines(&candidates, &[]));
        prop_assert_eq!(one.places(), other.places());
        prop_assert_eq!(one.fingerprint(), other.fingerprint());
    }

    #[test]
    fn new_relays_get_the_first_slots_with_room_and_move_no_old_ones(
        old in relays(), new in relays(), from in 0u32..20, byte: u8,
    ) {
        let teams = [team(150.0), team(100.0)];
        let old_ones = machines(&candidates(&old), &[]);
        let mut plan = Plan::randomised(&seed(byte), 20, &teams, F, old_ones.clone());
        let before = plan.places();
        let mut all = old_ones;
        for (number, (rate, _)) in (1000..).zip(&new) {
            let machine = single(number, f64::from(*rate));
            let mut alone = plan.clone();
            let admission = plan.admit(&machine, Priority::New, from);
            if let Admission::Placed(last) = admission {
                // It did not fit into the slot before.
                let slots = [0, 1].map(|team| plan.slot(id(number), team).expect("placed"));
                prop_assert!(slots.iter().all(|slot| *slot >= from));
                prop_assert_eq!(slots.into_iter().max(), Some(last));
                let entry = Entry::new(machine.clone(), Priority::New, 2);
                prop_assert_eq!(alone.first_slot(&entry, 0, from), Some(slots[0]));
                all.push(machine);
            } else {
                prop_assert_eq!(admission, Admission::NextPeriod);
                prop_assert_eq!(plan.places(), alone.places());
                prop_assert_eq!(plan.slot(id(number), 0), None);
                prop_assert_eq!(alone.admit(&machine, Priority::New, 20), Admission::NextPeriod);
            }
        }
        check(&plan, &teams, &all);
        let after: BTreeSet<Place> = plan.places().into_iter().collect();
        prop_assert!(before.iter().all(|place| after.contains(place)));
    }

    #[test]
    fn rescheduled_relays_keep_the_plan_within_capacity(
        relays in relays(), again in vec((0u16..60, 0u32..20, 0u16..200), 0..40), byte: u8,
    ) {
        let teams = [team(150.0), team(100.0)];
        let machines = machines(&candidates(&relays), &[]);
        let mut plan = Plan::randomised(&seed(byte), 20, &teams, F, machines);
        for (relay, from, rate) in again {
            let slot = plan.reschedule(id(relay), 1, from, mbit(f64::from(rate)));
            prop_assert_eq!(slot, plan.slot(id(relay), 1));
            prop_assert!(slot.is_none_or(|slot| slot >= from));
        }
        for (number, team) in teams.iter().enumerate() {
            prop_assert!(plan.used(number).iter().all(|used| *used <= team.capacity));
        }
    }
}

#[test]
fn relays_at_one_address_or_named_together_share_a_machine() {
    let relays = candidates(&[(1, 1), (1, 2), (1, 1), (1, 3), (1, 4), (1, 4)]);
    let count = |together: &[(RsaId, RsaId)]| {
        machines(&relays, together).iter().map(Machine::count).collect::<Vec<_>>()
    };
    assert_eq!(count(&[]), [2, 1, 1, 2]);
    // Connected by either: 0 and 2 by address, 1 with 2 and 1 with 3 by name.
    assert_eq!(count(&[(id(2), id(1)), (id(3), id(1)), (id(3), id(99))]), [4, 2]);
    let local = |candidate: &Candidate| Candidate {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        ..*candidate
    };
    let local: Vec<Candidate> = relays.iter().map(local).collect();
    assert_eq!(machines(&local, &[]).len(), 6);
}

#[test]
fn uncertain_groups_are_limited_by_the_teams_capacity() {
    let relays = candidates(&[(10, 1), (10, 2), (10, 3), (10, 4), (10, 4), (10, 4)]);
    let all: Vec<(RsaId, RsaId)> = (0..6).map(|number| (id(0), id(number))).collect();
    let within = |most, at_once_max| {
        let room = TeamRoom { capacity: mbit(most), at_once_max };
        machines_within(&relays, &[], &all, room).iter().map(Machine::count).collect::<Vec<_>>()
    };
    let count = |most| within(most, u32::MAX);
    let certain = machines_within(&relays, &all, &all, TeamRoom::of(Rate::ZERO));
    assert_eq!(
        certain.iter().map(Machine::count).collect::<Vec<_>>(),
        [6],
        "declared by the operator"
    );
    // Three at one address share a machine whatever the limit. A pair of a relay with itself is ignored.
    assert_eq!(count(0.0), [1, 1, 1, 3]);
    assert_eq!(count(20.0), [2, 1, 3]);
    assert_eq!(count(30.0), [3, 3]);
    assert_eq!(count(59.0), [3, 3]);
    assert_eq!(count(60.0), [6]);
    // Also with small expected capacities.
    assert_eq!([1, 2, 3, 5].map(|most| within(60.0, most).len()), [4, 3, 2, 2]);
    assert_eq!(within(60.0, 6), [6]);
}

#[test]
fn a_newcomer_on_a_planned_machine_joins_it_or_waits() {
    let teams = [team(100.0)];
    let plan = |slots, other| {
        let machines = vec![single(1, 20.0), single(3, other)];
        Plan::randomised(&seed(1), slots, &teams, F, machines)
    };
    let mut ahead = plan(10, 0.0);
    let slot = ahead.slot(id(1), 0).expect("room");
    assert_eq!(
        ahead.admit(&single(1, 20.0).with(id(2), mbit(20.0)), Priority::New, slot),
        Admission::Joined
    );
    assert_eq!(ahead.slot(id(2), 0), Some(slot));
    assert_eq!(ahead.used(0)[slot as usize], mbit(80.0));
    // Its slot is over, or has no more room.
    for (mut plan, from) in [(plan(10, 0.0), slot + 1), (plan(1, 25.0), 0)] {
        let before = plan.places();
        let both = single(1, 20.0).with(id(2), mbit(20.0));
        assert_eq!(plan.admit(&both, Priority::New, from), Admission::NextPeriod);
        assert_eq!((plan.places(), plan.slot(id(2), 0)), (before, None));
    }
    // A relay that is already in the plan.
    assert_eq!(plan(10, 0.0).admit(&single(1, 50.0), Priority::New, 0), Admission::Joined);
}

#[test]
fn an_old_relay_that_arrives_late_cannot_choose_its_slot() {
    let late = |byte, priority| {
        let mut plan = Plan::randomised(&seed(byte), 100, &[team(100.0)], F, vec![]);
        assert!(matches!(plan.admit(&single(1, 10.0), priority, 50), Admission::Placed(50..)));
        plan.slot(id(1), 0).expect("placed")
    };
    assert!((0..20).all(|byte| late(byte, Priority::New) == 50), "first come, first served");
    let slots: BTreeSet<u32> = (0..20).map(|byte| late(byte, Priority::Known)).collect();
    assert!(slots.len() > 10, "{slots:?}");
}

#[test]
fn a_rescheduled_machine_gets_a_common_later_slot() {
    let machine = single(1, 10.0).with(id(2), mbit(10.0));
    let mut plan = Plan::randomised(&seed(1), 100, &[team(100.0)], F, vec![machine]);
    let slot = plan.slot(id(1), 0).expect("room");
    let later = plan.reschedule(id(1), 0, slot + 1, mbit(20.0)).expect("room");
    assert!(later > slot);
    // The other one was inconclusive, too: the slot has room for both.
    assert_eq!(plan.reschedule(id(2), 0, slot + 1, mbit(20.0)), Some(later));
    assert_eq!(plan.used(0)[later as usize], mbit(80.0));
    assert_eq!(plan.reschedule(id(1), 0, 100, mbit(20.0)), None, "the period is over");
    assert_eq!(plan.reschedule(id(9), 0, 0, mbit(20.0)), None, "unknown relay");
}

#[test]
fn a_relay_larger_than_the_team_gets_all_of_it() {
    let plan = Plan::greedy(&[team(100.0)], F, vec![single(1, 80.0), single(2, 1.0)]);
    assert_eq!(plan.used(0), [mbit(100.0), mbit(2.0)]);
}

#[test]
fn a_greedy_plan_wastes_neither_capacity_nor_places() {
    // Eight large machines need a slot each, with room for little. Together with forty small ones there is one place too few for each in
    // six slots, and the large ones have to leave places.
    let team = TeamRoom { capacity: Rate::from_mbit_per_s(100.0), at_once_max: 6 };
    let large = (0..8).map(|number| single(number, 90.0));
    let small = (8..48).map(|number| single(number, 2.0));
    let plan = Plan::greedy(&[team], 1.0, large.chain(small).collect());
    assert_eq!(plan.used_slots(), 8, "800 of 800 Mbit/s, 48 of 48 places");
}

#[test]
fn two_teams_fill_their_places_although_no_machine_is_measured_by_both_at_once() {
    let team = TeamRoom { capacity: Rate::from_mbit_per_s(100.0), at_once_max: 6 };
    let large = (0..2).map(|number| single(number, 90.0));
    let small = (2..42).map(|number| single(number, 2.0));
    let plan = Plan::greedy(&[team; 2], 1.0, large.chain(small).collect());
    for team in 0..2 {
        let places = plan.places();
        let first = places.iter().filter(|place| (place.slot, place.team) == (0, team)).count();
        assert_eq!(first, 6, "team {team} in the first slot");
    }
}

#[test]
fn periods_of_different_lengths_have_different_seeds_and_contributions() {
    let (begin, master) = (1_800_057_600, seed(7));
    assert_ne!(master.of_period(begin, 86_400), master.of_period(begin, 172_800));
    assert_ne!(master.contribution(begin, 86_400), master.contribution(begin, 172_800));
}

#[test]
fn the_same_seed_gives_the_same_plan_on_every_machine() {
    // A change of the derivation would make coordinators of different versions disagree.
    let machines: Vec<Machine> = (0..50).map(|number| single(number, f64::from(number))).collect();
    let plan = Plan::randomised(&seed(7), 2880, &[team(3000.0); 9], 2.84, machines);
    let shown = |bytes: &[u8]| {
        bytes.iter().map(|byte| std::format!("{byte:02x}")).collect::<std::string::String>()
    };
    assert_eq!(shown(&plan.fingerprint()[..8]), "7ff9948026278d8f");
    let of_period = seed(7).of_period(1_800_057_600, 86_400);
    assert_eq!(shown(&of_period.as_bytes()[..8]), "9203e218b5644091");
    assert_ne!(of_period, seed(7).of_period(1_800_144_000, 86_400));
    let longer = seed(7).of_period(1_800_057_600, 172_800);
    assert_eq!(shown(&longer.as_bytes()[..8]), "defe1512bff9876d");
    assert_eq!(std::format!("{of_period:?} {plan:?}").matches("secret").count(), 2);
}
