use super::*;
use crate::policy::network_of;
use onion::Rate;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

mod strategies;

const SLOTS: u32 = 30;
const F: f64 = 2.0;

fn id(number: u8) -> RsaId {
    RsaId([number; 20])
}

fn network(number: u8) -> Prefix {
    network_of([10, number, 0, 1].into())
}

fn team() -> TeamRoom {
    TeamRoom::of(Rate::from_mbit_per_s(100.0))
}

fn arrival(number: u8, priority: Priority) -> Arrival {
    Arrival {
        relay: id(number),
        together: id(number),
        priority,
        first_seen_unix_s: 0,
        network: network(number),
        turn: Attempt::first(Rate::from_mbit_per_s(10.0), 3),
        is_done: false,
        is_pending: false,
        due_by: None,
    }
}

fn schedule(arrivals: &[Arrival], now: u32) -> SlotSchedule {
    SlotSchedule::among(&Seed::from_bytes([1; 32]), SLOTS, &[team()], 0, F, arrivals, now)
}

/// Runs the slots; each measurement ends in its slot, with the closure's result.
fn run_slots(
    schedule: &mut SlotSchedule,
    slots: core::ops::Range<u32>,
    mut follows: impl FnMut(u32, Due) -> Option<Attempt>,
) -> Vec<(u32, RsaId)> {
    let mut measured = vec![];
    for slot in slots {
        for due in schedule.poll_due(slot) {
            measured.push((slot, due.relay));
            schedule.handle_end(due.relay, follows(slot, due), slot);
        }
    }
    measured
}

fn numbers(measured: &[(u32, RsaId)]) -> Vec<u8> {
    let mut numbers: Vec<u8> = measured.iter().map(|(_, relay)| relay.0[0]).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn each_relay_is_measured_once_in_a_period() {
    let old = (1..40).map(|number| arrival(number, Priority::Known));
    let new = (40..50).map(|number| arrival(number, Priority::New));
    let mut schedule = schedule(&old.chain(new).collect::<Vec<_>>(), 0);
    let measured = run_slots(&mut schedule, 0..SLOTS, |_, _| None);
    assert_eq!(numbers(&measured), (1..50).collect::<Vec<u8>>());
    let of_new = measured.iter().filter(|(_, relay)| relay.0[0] >= 40).map(|(slot, _)| *slot).max();
    assert!(of_new < Some(SLOTS / 2), "new relays come first, not at random: {of_new:?}");
    assert_eq!(schedule.counts(), Counts { done: 49, ..Counts::default() });
}

#[test]
fn relays_of_one_group_are_measured_together_at_any_addresses() {
    let grouped = |number: u8, priority| {
        let together = id(if number < 30 { 3 } else { 30 });
        Arrival { together, ..arrival(number, priority) }
    };
    let mut all: Vec<_> = (1..20).map(|number| arrival(number, Priority::Known)).collect();
    all.extend([20, 21].map(|number| grouped(number, Priority::Known)));
    all.extend([30, 31].map(|number| grouped(number, Priority::New)));
    // A relay that has left is in no group.
    all.push(Arrival { together: id(99), ..arrival(40, Priority::Known) });
    let measured = run_slots(&mut schedule(&all, 0), 0..SLOTS, |_, _| None);
    assert_eq!(measured.len(), 24);
    let slot_of =
        |number: u8| measured.iter().find(|(_, relay)| *relay == id(number)).map(|(slot, _)| *slot);
    assert!(slot_of(3) == slot_of(20) && slot_of(3) == slot_of(21), "{measured:?}");
    assert_eq!(slot_of(30), slot_of(31), "{measured:?}");
}

#[test]
fn relays_whose_slot_was_missed_are_measured_later_in_the_period() {
    let all: Vec<_> = (1..40).map(|number| arrival(number, Priority::Known)).collect();
    // No call for a third of the period.
    let mut paused = schedule(&all, 0);
    let mut measured = run_slots(&mut paused, 0..5, |_, _| None);
    measured.extend(run_slots(&mut paused, 15..SLOTS, |_, _| None));
    assert_eq!(numbers(&measured), (1..40).collect::<Vec<u8>>());
    // Half of them were absent for most of it.
    let mut away = schedule(&all[..20], 0);
    away.handle_consensus(&all, 0);
    away.handle_consensus(&all[..20], 0);
    let mut measured = run_slots(&mut away, 0..25, |_, _| None);
    assert!(measured.iter().all(|(_, relay)| relay.0[0] <= 20));
    away.handle_consensus(&all, 25);
    measured.extend(run_slots(&mut away, 25..SLOTS, |_, _| None));
    assert_eq!(numbers(&measured), (1..40).collect::<Vec<u8>>());
}

#[test]
fn a_restarted_coordinator_continues_the_period() {
    let mut all: Vec<_> = (1..40).map(|number| arrival(number, Priority::Known)).collect();
    let mut whole = schedule(&all, 0);
    let expected = run_slots(&mut whole, 0..SLOTS, |_, _| None);
    let mut before = schedule(&all, 0);
    let mut measured = run_slots(&mut before, 0..12, |_, _| None);
    for arrival in &mut all {
        arrival.is_done = measured.iter().any(|(_, relay)| *relay == arrival.relay);
    }
    let mut after = schedule(&all, 12);
    measured.extend(run_slots(&mut after, 12..SLOTS, |_, _| None));
    assert_eq!(measured, expected);
    // They were new when they were measured, so the plan may have later slots for them.
    all.iter_mut().for_each(|arrival| arrival.is_done = true);
    assert_eq!(run_slots(&mut schedule(&all, 1), 1..SLOTS, |_, _| None), []);
}

#[test]
fn a_pending_turn_gets_a_slot_after_a_restart_even_if_the_plan_has_none() {
    let mut all: Vec<_> = (1..40).map(|number| arrival(number, Priority::Known)).collect();
    let seed = Seed::from_bytes([1; 32]);
    let schedule =
        |all: &[Arrival]| SlotSchedule::memoryless(&seed, SLOTS, &[team()], 0, F, all, 3);
    let unplanned = schedule(&all).counts().done;
    assert!(unplanned > 5, "{unplanned} relays have no slot");
    all.iter_mut().for_each(|arrival| arrival.is_pending = true);
    let mut after = schedule(&all);
    assert_eq!((after.counts().done, after.counts().without_slot), (0, 0));
    let measured = run_slots(&mut after, 3..SLOTS, |_, _| None);
    let relays: BTreeSet<_> = measured.iter().map(|(_, relay)| *relay).collect();
    assert_eq!(relays.len(), all.len());
}

#[test]
fn a_following_turn_gets_another_slot_together_with_its_machine() {
    let mut all: Vec<_> = (1..4).map(|number| arrival(number, Priority::Known)).collect();
    all[1].together = all[0].together;
    let mut schedule = schedule(&all, 0);
    let measured = run_slots(&mut schedule, 0..SLOTS, |_, due| {
        let is_first = due.relay == id(1) && due.turn.round == 1;
        is_first.then(|| due.turn.enlarged(Rate::ZERO)).flatten()
    });
    let slots = |number| {
        let of_it = measured.iter().filter(|(_, relay)| *relay == id(number));
        of_it.map(|(slot, _)| *slot).collect::<Vec<_>>()
    };
    assert_eq!((slots(1).len(), slots(3).len()), (2, 1));
    assert_eq!(slots(1), slots(2), "alone, each could use the whole machine");
}

#[test]
fn a_new_relay_on_a_measured_machine_waits_for_the_next_period() {
    let mut all = vec![arrival(1, Priority::Known), arrival(2, Priority::New)];
    all[1].together = all[0].together;
    let mut schedule = schedule(&all[..1], 0);
    assert_eq!(numbers(&run_slots(&mut schedule, 0..SLOTS - 1, |_, _| None)), [1]);
    schedule.handle_consensus(&all, SLOTS - 1);
    assert_eq!(schedule.counts(), Counts { done: 1, without_slot: 1, ..Counts::default() });
    assert!(schedule.poll_due(SLOTS - 1).is_empty());
}

#[test]
fn teams_with_one_seed_never_measure_a_relay_in_the_same_slot() {
    let all: Vec<_> = (1..100).map(|number| arrival(number, Priority::Known)).collect();
    let teams = [team(), TeamRoom::of(Rate::from_mbit_per_s(300.0)), team()];
    let seed = Seed::from_bytes([1; 32]);
    let slots_of = |own| {
        let mut schedule = SlotSchedule::among(&seed, SLOTS, &teams, own, F, &all, 0);
        run_slots(&mut schedule, 0..SLOTS, |_, _| None)
    };
    let mut places: Vec<(u32, RsaId)> = (0..teams.len()).flat_map(slots_of).collect();
    assert_eq!(places.len(), 3 * all.len());
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3 * all.len(), "two teams at once");
}

#[test]
fn a_team_that_claims_to_have_no_room_excludes_no_relay_from_the_others() {
    let all: Vec<_> = (1..40)
        .map(|number| arrival(number, if number < 20 { Priority::Known } else { Priority::New }))
        .collect();
    for rate in [Rate::ZERO, Rate::from_bit_per_s(1)] {
        let teams = [TeamRoom::of(rate), team()];
        let seed = Seed::from_bytes([1; 32]);
        let mut schedule = SlotSchedule::among(&seed, SLOTS, &teams, 1, F, &all, 0);
        let mut later = all.clone();
        // A relay that shares a machine arrives later, too.
        later.push(Arrival { together: all[0].together, ..arrival(60, Priority::New) });
        schedule.handle_consensus(&later, 0);
        let measured = run_slots(&mut schedule, 0..SLOTS, |_, _| None);
        assert_eq!(measured.len(), 40, "{rate}: {measured:?}");
    }
}

/// New relays, all but one of them of this number of networks, in the order of their measurements. The one came with another consensus.
fn order_of_newcomers(seed: [u8; 32], networks: u8, one: u8, seen_unix_s: u64) -> Vec<u8> {
    let all = (1..40).map(|number| Arrival {
        first_seen_unix_s: if number == one { seen_unix_s } else { 2 },
        network: network(if number == one { 0 } else { 1 + number % networks }),
        // A slot has room for one of them.
        turn: Attempt::first(Rate::from_mbit_per_s(50.0), 3),
        ..arrival(number, Priority::New)
    });
    let (seed, all) = (Seed::from_bytes(seed), all.collect::<Vec<_>>());
    let mut schedule = SlotSchedule::among(&seed, 40, &[team()], 0, F, &all, 0);
    run_slots(&mut schedule, 0..40, |_, _| None).iter().map(|(_, relay)| relay.0[0]).collect()
}

#[test]
fn new_relays_wait_in_order_of_arrival_and_cannot_choose_their_place_by_identity() {
    for first in [1, 17, 39] {
        assert_eq!(order_of_newcomers([1; 32], 100, first, 1)[0], first);
    }
    let orders = [1, 2].map(|seed| order_of_newcomers([seed; 32], 100, 1, 1));
    assert_ne!(orders[0], orders[1]);
    assert!(orders.iter().all(|order| order.len() == 39 && !order.is_sorted()), "{orders:?}");
}

#[test]
fn a_flood_delays_a_newcomer_by_one_relay_of_each_of_its_networks() {
    for networks in [1, 2, 5] {
        for late in [1, 17, 39] {
            let order = order_of_newcomers([1; 32], networks, late, 3);
            let place = order.iter().position(|number| *number == late);
            assert_eq!(place, Some(networks.into()), "{networks} networks: {order:?}");
        }
    }
}

proptest! {
    /// No relay is measured twice at once, and turns never exceed a relay's limit.
    #[test]
    fn no_relay_is_due_while_it_is_being_measured(
        consensuses in vec(vec(1u8..20, 0..20), 1..6), lengths in vec(0u32..4, SLOTS as usize),
    ) {
        // Pairs share a machine, so the end of one measurement could start another of a relay that is still running.
        let one = |number: u8| {
            let priority = if number % 6 < 2 { Priority::New } else { Priority::Known };
            Arrival { together: id(number / 2), ..arrival(number, priority) }
        };
        let of = |numbers: &[u8]| {
            let numbers: BTreeSet<u8> = numbers.iter().copied().collect();
            numbers.into_iter().map(one).collect::<Vec<_>>()
        };
        let mut schedule = schedule(&of(&consensuses[0]), 0);
        let mut running: Vec<(u32, Due)> = vec![];
        for slot in 0..SLOTS {
            if let Some(numbers) = consensuses.get(slot as usize / 5).filter(|_| slot % 5 == 4) {
                schedule.handle_consensus(&of(numbers), slot);
            }
            let (over, rest): (Vec<_>, Vec<_>) = running.into_iter().partition(|(end, _)| *end <= slot);
            running = rest;
            for (end, due) in over {
                let follows = if end % 2 == 0 { due.turn.enlarged(Rate::ZERO) } else { None };
                schedule.handle_end(due.relay, follows, slot);
            }
            for due in schedule.poll_due(slot) {
                prop_assert!(running.iter().all(|(_, other)| other.relay != due.relay));
                prop_assert!(due.turn.round <= due.turn.rounds_max);
                running.push((slot + lengths[slot as usize], due));
            }
            prop_assert_eq!(schedule.counts().running, running.len());
        }
    }
}

/// Measured alone, it could use the capacity that the other leaves.
#[test]
fn a_following_turn_waits_until_no_relay_of_its_machine_is_being_measured() {
    let mut all: Vec<_> = (1..3).map(|number| arrival(number, Priority::Known)).collect();
    all[1].together = all[0].together;
    let mut schedule = schedule(&all, 0);
    let (first, due) = (0..SLOTS)
        .map(|slot| (slot, schedule.poll_due(slot)))
        .find(|(_, due)| !due.is_empty())
        .expect("their slot");
    assert_eq!(due.len(), 2);
    // One ends early and is to be measured again; the other takes longer.
    schedule.handle_end(id(1), due[0].turn.enlarged(Rate::ZERO), first);
    let half = first + (SLOTS - first) / 2;
    assert!((first + 1..half).all(|slot| schedule.poll_due(slot).is_empty()));
    schedule.handle_end(id(2), None, half - 1);
    let again: Vec<_> = (half..SLOTS).flat_map(|slot| schedule.poll_due(slot)).collect();
    let again: Vec<_> = again.into_iter().map(|due| due.relay).collect();
    assert_eq!(again, [id(1), id(2)]);
}
