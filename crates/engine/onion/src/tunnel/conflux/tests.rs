mod retransmit;

use super::*;
use crate::cell::msg::ConfluxSwitch;
use alloc::collections::VecDeque;
use alloc::vec;
use proptest::prelude::*;

const NONCE: ConfluxNonce = ConfluxNonce([7; 32]);
const NOW: Instant = Instant::ORIGIN;

fn end(early_max: usize) -> Conflux<usize, u64> {
    Conflux::new(NONCE, &schedulers::LowRtt, early_max)
}

/// One end with this number of legs with a known round-trip time.
fn linked(legs: usize, early_max: usize) -> Conflux<usize, u64> {
    let mut end = end(early_max);
    for leg in 0..legs {
        let link = end.link(DesiredUx::NoOpinion);
        end.add_leg(leg, &link, &link, NOW).expect("a good leg");
        end.handle_answered(Instant::from_millis(10 + leg as u64), leg).expect("the first answer");
    }
    end
}

/// Messages in flight on a leg.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Switch(u32),
    Message(u64),
}

fn send(end: &mut Conflux<usize, u64>, ways: &mut [VecDeque<Sent>], leg: usize, message: u64) {
    if let Some(skipped) = end.handle_chosen(leg) {
        ways[leg].push_back(Sent::Switch(skipped));
    }
    end.handle_sent(leg);
    ways[leg].push_back(Sent::Message(message));
}

/// Delivers the next message of a leg. Returns what the receiver delivers.
fn arrive(end: &mut Conflux<usize, u64>, leg: usize, sent: Sent) -> Result<Vec<u64>, ConfluxError> {
    let mut delivered = vec![];
    match sent {
        Sent::Switch(skipped) => end.handle_switch(leg, ConfluxSwitch { skipped })?,
        Sent::Message(message) => match end.handle_received(leg)? {
            Order::Next => {
                delivered.push(message);
                delivered.extend(core::iter::from_fn(|| end.poll_early()));
            }
            Order::Early(number) => end.hold(number, message)?,
            Order::Duplicate => {}
        },
    }
    Ok(delivered)
}

/// Proposal 329 §2.6: ten on the first leg, 21 on the second, then the first again.
#[test]
fn the_example_of_proposal_329_gives_the_stated_switches() {
    let mut end = linked(2, 100);
    assert_eq!(end.handle_chosen(0), None, "the first message of all needs no SWITCH");
    (0..10).for_each(|_| end.handle_sent(0));
    assert_eq!(end.handle_chosen(1), Some(10));
    (0..21).for_each(|_| end.handle_sent(1));
    assert_eq!(end.handle_chosen(0), Some(21));
    assert_eq!(end.handle_chosen(0), None);
    assert_eq!(end.sent(), 31);
}

#[test]
fn a_set_begins_on_any_leg_without_a_switch() {
    let mut end = linked(2, 100);
    assert_eq!(end.handle_chosen(1), None);
    end.handle_sent(1);
    assert_eq!(end.handle_chosen(0), Some(1));
}

/// An unmodified exit may switch before it has sent anything.
#[test]
fn a_switch_that_skips_nothing_is_accepted() {
    let mut end = linked(2, 100);
    assert_eq!(end.handle_switch(1, ConfluxSwitch { skipped: 0 }), Ok(()));
    assert_eq!(end.handle_received(1), Ok(Order::Next));
}

#[test]
fn switches_without_following_data_break_the_set() {
    let mut end = linked(2, 100);
    end.handle_switch(0, ConfluxSwitch { skipped: 3 }).expect("the first");
    end.handle_switch(1, ConfluxSwitch { skipped: 3 }).expect("on another leg");
    let again = end.handle_switch(0, ConfluxSwitch { skipped: 3 });
    assert_eq!(again, Err(ConfluxError::Switch));
    assert_eq!(end.handle_switch(5, ConfluxSwitch { skipped: 0 }), Err(ConfluxError::Switch));
}

#[test]
fn a_delivered_or_buffered_number_is_a_duplicate() {
    let mut end = linked(2, 100);
    assert_eq!(end.handle_received(0), Ok(Order::Next));
    assert_eq!(end.handle_received(1), Err(ConfluxError::Duplicate), "the first was delivered");
    let mut end = linked(2, 100);
    end.handle_switch(0, ConfluxSwitch { skipped: 4 }).expect("good");
    end.handle_switch(1, ConfluxSwitch { skipped: 4 }).expect("a valid SWITCH");
    assert_eq!(end.handle_received(0), Ok(Order::Early(5)));
    end.hold(5, 0).expect("room");
    assert_eq!(end.handle_received(1), Err(ConfluxError::Duplicate));
}

#[test]
fn the_reordering_buffer_is_bounded() {
    let mut end = linked(2, 3);
    end.handle_switch(1, ConfluxSwitch { skipped: 1 }).expect("good");
    for number in 2..=4 {
        assert_eq!(arrive(&mut end, 1, Sent::Message(number)), Ok(vec![]));
    }
    assert_eq!(arrive(&mut end, 1, Sent::Message(5)), Err(ConfluxError::TooEarly));
    assert_eq!((end.early_len(), end.early_peak()), (3, 3));
    assert_eq!(arrive(&mut end, 0, Sent::Message(1)), Ok(vec![1, 2, 3, 4]));
    assert_eq!((end.early_len(), end.early_peak()), (0, 3));
}

/// C tor's TROVE-2023-007: legs whose ends count differently were linked, which ended in a use after free.
#[test]
fn legs_with_inconsistent_counts_are_not_linked() {
    let mut end = linked(1, 100);
    (0..5).for_each(|_| _ = end.handle_received(0));
    (0..7).for_each(|_| end.handle_sent(0));
    let ours = end.link(DesiredUx::NoOpinion);
    assert_eq!((ours.last_sent, ours.last_received), (7, 5));
    let theirs = |last_sent, last_received| ConfluxLink { last_sent, last_received, ..ours };
    let mut add = |theirs| end.add_leg(9, &ours, &theirs, NOW);
    assert_eq!(add(theirs(6, 7)), Err(ConfluxError::Desynchronised), "one is lost");
    assert_eq!(add(theirs(5, 8)), Err(ConfluxError::Desynchronised), "never sent");
    let of_others = ConfluxLink { nonce: ConfluxNonce([8; 32]), ..ours };
    assert_eq!(add(of_others), Err(ConfluxError::Handshake));
    assert_eq!(add(theirs(5, 7)), Ok(()));
    assert_eq!(add(theirs(5, 7)), Err(ConfluxError::Handshake), "twice");
    // Messages on the new leg are counted from there.
    assert_eq!(end.handle_received(9), Ok(Order::Next));
    assert_eq!(end.delivered(), 6);
}

/// An unmodified client writes its LINK before the leg's circuit is built. It counts what the set carries
/// meanwhile by the LINKED.
#[test]
fn a_late_leg_counts_from_the_numbers_in_its_handshake() {
    let mut exit = linked(1, 100);
    let early = exit.link(DesiredUx::NoOpinion);
    (0..5).for_each(|_| exit.handle_sent(0));
    let ours = exit.link(DesiredUx::NoOpinion);
    assert_eq!((early.last_received, ours.last_sent), (0, 5));
    exit.add_leg(9, &ours, &early, NOW).expect("nothing is missing");
    (0..3).for_each(|_| exit.handle_sent(0));
    // The client has it at 5, as stated to it.
    assert_eq!(exit.handle_chosen(9), Some(3));
}

/// C tor's bug 40810: too many legs, since those that were closed early still counted.
#[test]
fn closed_legs_make_room_for_new_ones() {
    let mut end = linked(LEGS_MAX, 1);
    let link = end.link(DesiredUx::NoOpinion);
    assert_eq!(end.add_leg(99, &link, &link, NOW), Err(ConfluxError::TooManyLegs));
    assert_eq!(end.remove_leg(3, 0, true), Removed::Spare);
    assert_eq!(end.add_leg(99, &link, &link, NOW), Ok(()));
}

/// C tor's bugs 40827, 40834 and 40842: a set without legs was used.
#[test]
fn a_set_without_legs_sends_and_receives_nothing() {
    let mut end = linked(1, 100);
    assert_eq!(end.remove_leg(0, 0, true), Removed::Spare);
    assert_eq!(end.choose(|_| LegState::default()), None);
    assert_eq!(end.choose_for_message(|_| LegState::default()), None);
    assert_eq!(end.handle_chosen(0), None);
    assert_eq!(end.handle_received(0), Err(ConfluxError::Misplaced));
    assert_eq!((end.leg_count(), end.sent(), end.poll_early()), (0, 0, None));
}

#[test]
fn only_the_first_answer_of_a_leg_gives_an_rtt() {
    let mut end = linked(1, 100);
    assert_eq!(end.handle_answered(NOW, 0), Err(ConfluxError::Handshake));
    assert_eq!(end.handle_answered(NOW, 1), Err(ConfluxError::Handshake));
}

#[test]
fn a_leg_is_spare_only_if_none_of_its_messages_can_be_missing() {
    let removed = |prepare: fn(&mut Conflux<usize, u64>), in_flight, is_idle| {
        let mut end = linked(2, 100);
        prepare(&mut end);
        end.remove_leg(0, in_flight, is_idle)
    };
    assert_eq!(removed(|_| (), 0, false), Removed::Spare, "it has carried nothing");
    let one_each = |end: &mut Conflux<usize, u64>| {
        for leg in [0, 1] {
            end.handle_chosen(leg);
            end.handle_sent(leg);
        }
    };
    assert_eq!(removed(one_each, 0, true), Removed::Spare);
    assert_eq!(removed(one_each, 1, true), Removed::Broken, "a cell is in flight");
    assert_eq!(removed(one_each, 0, false), Removed::Broken, "a stream may miss the last message");
    let last = |end: &mut Conflux<usize, u64>| {
        end.handle_chosen(0);
        end.handle_sent(0);
    };
    assert_eq!(removed(last, 0, true), Removed::Broken, "it was sent on last");
    let waiting = |end: &mut Conflux<usize, u64>| {
        end.handle_received(0).expect("the first");
        end.handle_switch(1, ConfluxSwitch { skipped: 2 }).expect("good");
        arrive(end, 1, Sent::Message(3)).expect("good");
    };
    assert_eq!(removed(waiting, 0, true), Removed::Broken, "the predecessor was on it");
}

#[test]
fn other_messages_do_not_wait_for_the_window_of_data() {
    let mut end = linked(2, 100);
    let full = |_| LegState { window_cells: 1, in_flight_cells: 1, ..LegState::default() };
    assert_eq!(end.choose(full), None);
    assert_eq!(end.choose_for_message(full), Some(0), "the leg that answered first");
    end.handle_chosen(1);
    assert_eq!(end.choose_for_message(full), Some(1), "the leg that was sent on last");
}

proptest! {
    /// Whatever messages the legs carry and whenever they deliver them: each arrives once, and in order.
    #[test]
    fn each_message_is_delivered_once_and_in_order(
        legs in 1usize..=LEGS_MAX,
        steps in prop::collection::vec((0usize..LEGS_MAX, any::<bool>()), 1..400),
    ) {
        let (mut from, mut to) = (linked(legs, 1000), linked(legs, 1000));
        let mut ways = vec![VecDeque::new(); legs];
        let (mut sent, mut got) = (0, vec![]);
        for (leg, is_sending) in steps {
            let leg = leg % legs;
            if is_sending {
                sent += 1;
                send(&mut from, &mut ways, leg, sent);
            } else if let Some(next) = ways[leg].pop_front() {
                got.extend(arrive(&mut to, leg, next).expect("honest"));
            }
        }
        for leg in (0..legs).rev() {
            while let Some(next) = ways[leg].pop_front() {
                got.extend(arrive(&mut to, leg, next).expect("honest"));
            }
        }
        prop_assert_eq!(got, (1..=sent).collect::<Vec<u64>>());
        prop_assert_eq!((to.early_len(), to.delivered()), (0, sent));
        let carried: u64 = (0..legs).map(|leg| to.figures(leg).unwrap().received).sum();
        prop_assert_eq!(carried, sent);
    }

    /// Whatever the other end sends: delivered messages have ascending numbers without gaps, and the buffer
    /// stays within its limit.
    #[test]
    fn arbitrary_input_never_breaks_the_order_or_the_buffer_limit(
        steps in prop::collection::vec((0usize..4, prop::option::of(0u32..6)), 1..300),
    ) {
        let mut end = linked(3, 10);
        // A message's content is the number that the set gave it.
        let mut last = 0;
        for (leg, switch) in steps {
            if let Some(skipped) = switch {
                if end.handle_switch(leg, ConfluxSwitch { skipped }).is_err() {
                    break;
                }
                continue;
            }
            match end.handle_received(leg) {
                Ok(Order::Next) => {
                    last += 1;
                    prop_assert_eq!(end.delivered(), last);
                    while let Some(number) = end.poll_early() {
                        last += 1;
                        prop_assert_eq!(number, last);
                    }
                }
                Ok(Order::Early(number)) => {
                    prop_assert!(number > last + 1);
                    if end.hold(number, number).is_err() {
                        prop_assert_eq!(end.early_len(), 10);
                        break;
                    }
                }
                Ok(Order::Duplicate) | Err(_) => break,
            }
            prop_assert!(end.early_len() <= 10);
        }
    }
}
