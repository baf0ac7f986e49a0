use super::*;
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

fn team() -> TeamRoom {
    TeamRoom::of(Rate::from_mbit_per_s(100.0))
}

fn arrival(number: u8, standing: Priority) -> Arrival {
    Arrival {
        relay: id(number),
        together: id(number),
        standing,
        turn: Attempt::first(Rate::from_mbit_per_s(10.0), 3),
        is_done: false,
        due_by: None,
    }
}

fn rota(arrivals: &[Arrival], now: u32) -> SlotSchedule {
    SlotSchedule::new(&Seed::from_bytes([1; 32]), SLOTS, team(), F, arrivals, now)
}

/// Runs the slots; each measurement ends in its slot, with the closure's result.
fn play(
    rota: &mut SlotSchedule,
    slots: core::ops::Range<u32>,
    mut follows: impl FnMut(u32, Due) -> Option<Attempt>,
) -> Vec<(u32, RsaId)> {
    let mut measured = vec![];
    for slot in slots {
        for due in rota.poll_due(slot) {
            measured.push((slot, due.relay));
            rota.handle_end(due.relay, follows(slot, due), slot);
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
    let mut rota = rota(&old.chain(new).collect::<Vec<_>>(), 0);
    let measured = play(&mut rota, 0..SLOTS, |_, _| None);
    assert_eq!(numbers(&measured), (1..50).collect::<Vec<u8>>());
    let of_new = measured.iter().filter(|(_, relay)| relay.0[0] >= 40).map(|it| it.0).max();
    assert!(of_new < Some(SLOTS / 2), "new ones come first, not at random: {of_new:?}");
    assert_eq!(rota.counts(), Counts { done: 49, ..Counts::default() });
}

#[test]
fn relays_that_are_to_be_measured_together_are_wherever_they_are() {
    let beside = |number: u8, standing| {
        let together = id(if number < 30 { 3 } else { 30 });
        Arrival { together, ..arrival(number, standing) }
    };
    let mut all: Vec<_> = (1..20).map(|number| arrival(number, Priority::Known)).collect();
    all.extend([20, 21].map(|number| beside(number, Priority::Known)));
    all.extend([30, 31].map(|number| beside(number, Priority::New)));
    // A relay that has left is in no group.
    all.push(Arrival { together: id(99), ..arrival(40, Priority::Known) });
    let measured = play(&mut rota(&all, 0), 0..SLOTS, |_, _| None);
    assert_eq!(measured.len(), 24);
    let slot_of = |number: u8| measured.iter().find(|it| it.1 == id(number)).map(|it| it.0);
    assert!(slot_of(3) == slot_of(20) && slot_of(3) == slot_of(21), "{measured:?}");
    assert_eq!(slot_of(30), slot_of(31), "{measured:?}");
}

#[test]
fn whoever_was_missed_is_measured_later_in_the_period() {
    let all: Vec<_> = (1..40).map(|number| arrival(number, Priority::Known)).collect();
    // No call for a third of the period.
    let mut paused = rota(&all, 0);
    let mut measured = play(&mut paused, 0..5, |_, _| None);
    measured.extend(play(&mut paused, 15..SLOTS, |_, _| None));
    assert_eq!(numbers(&measured), (1..40).collect::<Vec<u8>>());
    // Half of them were absent for most of it.
    let mut away = rota(&all[..20], 0);
    away.handle_consensus(&all, 0);
    away.handle_consensus(&all[..20], 0);
    let mut measured = play(&mut away, 0..25, |_, _| None);
    assert!(measured.iter().all(|(_, relay)| relay.0[0] <= 20));
    away.handle_consensus(&all, 25);
    measured.extend(play(&mut away, 25..SLOTS, |_, _| None));
    assert_eq!(numbers(&measured), (1..40).collect::<Vec<u8>>());
}

#[test]
fn a_coordinator_that_starts_anew_goes_on_where_it_was() {
    let mut all: Vec<_> = (1..40).map(|number| arrival(number, Priority::Known)).collect();
    let mut whole = rota(&all, 0);
    let expected = play(&mut whole, 0..SLOTS, |_, _| None);
    let mut before = rota(&all, 0);
    let mut measured = play(&mut before, 0..12, |_, _| None);
    for arrival in &mut all {
        arrival.is_done = measured.iter().any(|(_, relay)| *relay == arrival.relay);
    }
    let mut after = rota(&all, 12);
    measured.extend(play(&mut after, 12..SLOTS, |_, _| None));
    assert_eq!(measured, expected);
    // They were new when they were measured: their slots of the plan may be ahead.
    all.iter_mut().for_each(|arrival| arrival.is_done = true);
    assert_eq!(play(&mut rota(&all, 1), 1..SLOTS, |_, _| None), []);
}

#[test]
fn a_turn_that_follows_has_another_slot_and_whoever_shares_the_machine_comes_too() {
    let mut all: Vec<_> = (1..4).map(|number| arrival(number, Priority::Known)).collect();
    all[1].together = all[0].together;
    let mut rota = rota(&all, 0);
    let measured = play(&mut rota, 0..SLOTS, |_, due| {
        let is_first = due.relay == id(1) && due.turn.round == 1;
        is_first.then(|| due.turn.enlarged(Rate::ZERO)).flatten()
    });
    let slots = |number| {
        let of_it = measured.iter().filter(|(_, relay)| *relay == id(number));
        of_it.map(|(slot, _)| *slot).collect::<Vec<_>>()
    };
    assert_eq!((slots(1).len(), slots(3).len()), (2, 1));
    assert_eq!(slots(1), slots(2), "alone, either would have the whole machine");
}

#[test]
fn a_newcomer_beside_a_relay_whose_turn_is_over_waits_for_the_next_period() {
    let mut all = vec![arrival(1, Priority::Known), arrival(2, Priority::New)];
    all[1].together = all[0].together;
    let mut rota = rota(&all[..1], 0);
    assert_eq!(numbers(&play(&mut rota, 0..SLOTS - 1, |_, _| None)), [1]);
    rota.handle_consensus(&all, SLOTS - 1);
    assert_eq!(rota.counts(), Counts { done: 1, without_slot: 1, ..Counts::default() });
    assert!(rota.poll_due(SLOTS - 1).is_empty());
}

#[test]
fn teams_with_one_seed_never_measure_a_relay_in_the_same_slot() {
    let all: Vec<_> = (1..100).map(|number| arrival(number, Priority::Known)).collect();
    let teams = [team(), TeamRoom::of(Rate::from_mbit_per_s(300.0)), team()];
    let seed = Seed::from_bytes([1; 32]);
    let slots_of = |own| {
        let mut rota = SlotSchedule::among(&seed, SLOTS, &teams, own, F, &all, 0);
        play(&mut rota, 0..SLOTS, |_, _| None)
    };
    let mut places: Vec<(u32, RsaId)> = (0..teams.len()).flat_map(slots_of).collect();
    assert_eq!(places.len(), 3 * all.len());
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3 * all.len(), "two teams at once");
}

#[test]
fn a_team_that_claims_to_have_no_room_shuts_nobody_out_of_the_others() {
    let all: Vec<_> = (1..40)
        .map(|number| arrival(number, if number < 20 { Priority::Known } else { Priority::New }))
        .collect();
    for rate in [Rate::ZERO, Rate::from_bit_per_s(1)] {
        let teams = [TeamRoom::of(rate), team()];
        let seed = Seed::from_bytes([1; 32]);
        let mut rota = SlotSchedule::among(&seed, SLOTS, &teams, 1, F, &all, 0);
        let mut later = all.clone();
        // One that shares a machine comes later, too.
        later.push(Arrival { together: all[0].together, ..arrival(60, Priority::New) });
        rota.handle_consensus(&later, 0);
        let measured = play(&mut rota, 0..SLOTS, |_, _| None);
        assert_eq!(measured.len(), 40, "{rate}: {measured:?}");
    }
}

proptest! {
    /// Whatever happens, no relay is measured twice at once, and turns never exceed a relay's limit.
    #[test]
    fn no_relay_is_handed_out_twice_at_once(
        consensuses in vec(vec(1u8..20, 0..20), 1..6), lengths in vec(0u32..4, SLOTS as usize),
    ) {
        // Two each share a machine, so that the end of one measurement may bring another of a relay that still runs.
        let one = |number: u8| {
            let standing = if number % 6 < 2 { Priority::New } else { Priority::Known };
            Arrival { together: id(number / 2), ..arrival(number, standing) }
        };
        let of = |numbers: &[u8]| {
            let numbers: BTreeSet<u8> = numbers.iter().copied().collect();
            numbers.into_iter().map(one).collect::<Vec<_>>()
        };
        let mut rota = rota(&of(&consensuses[0]), 0);
        let mut running: Vec<(u32, Due)> = vec![];
        for slot in 0..SLOTS {
            if let Some(numbers) = consensuses.get(slot as usize / 5).filter(|_| slot % 5 == 4) {
                rota.handle_consensus(&of(numbers), slot);
            }
            let (over, rest): (Vec<_>, Vec<_>) = running.into_iter().partition(|(end, _)| *end <= slot);
            running = rest;
            for (end, due) in over {
                let follows = if end % 2 == 0 { due.turn.enlarged(Rate::ZERO) } else { None };
                rota.handle_end(due.relay, follows, slot);
            }
            for due in rota.poll_due(slot) {
                prop_assert!(running.iter().all(|(_, it)| it.relay != due.relay));
                prop_assert!(due.turn.round <= due.turn.rounds_max);
                running.push((slot + lengths[slot as usize], due));
            }
            prop_assert_eq!(rota.counts().running, running.len());
        }
    }
}

/// Measured alone, it could use what the other does not use then.
#[test]
fn a_turn_that_follows_waits_until_nobody_of_the_machine_is_being_measured() {
    let mut all: Vec<_> = (1..3).map(|number| arrival(number, Priority::Known)).collect();
    all[1].together = all[0].together;
    let mut rota = rota(&all, 0);
    let (first, due) = (0..SLOTS)
        .map(|slot| (slot, rota.poll_due(slot)))
        .find(|(_, due)| !due.is_empty())
        .expect("their slot");
    assert_eq!(due.len(), 2);
    // One is done soon and is to be measured again; the other takes longer.
    rota.handle_end(id(1), due[0].turn.enlarged(Rate::ZERO), first);
    let half = first + (SLOTS - first) / 2;
    assert!((first + 1..half).all(|slot| rota.poll_due(slot).is_empty()));
    rota.handle_end(id(2), None, half - 1);
    let again: Vec<_> = (half..SLOTS).flat_map(|slot| rota.poll_due(slot)).collect();
    let again: Vec<_> = again.into_iter().map(|it| it.relay).collect();
    assert_eq!(again, [id(1), id(2)]);
}
