//! The events for a relay's messages.

use super::world::{
    EXPORTED, NONCE, OTHER, RELAY, SECONDS, SEED, World, client_second, traffic, violation,
};
use onion::cell::{CircId, Command};
use onion::measure::order::{OrderEvent, OrderFailure, OrderViolation};
use onion::measure::protocol::{CoordinatorKey, ErrorCode, Message, Nonce};
use proptest::prelude::*;

/// The messages of an honest relay.
fn honest() -> Vec<Message> {
    let seconds = (0..SECONDS).map(traffic);
    [Message::Accepted { nonce: NONCE }].into_iter().chain(seconds).collect()
}

/// The events for the first of these messages.
fn events_of(messages: usize) -> Vec<OrderEvent> {
    let seconds =
        (0..SECONDS).map(|second| OrderEvent::ClientSecond(client_second(second), Vec::new()));
    let mut all: Vec<OrderEvent> = [OrderEvent::Accepted].into_iter().chain(seconds).collect();
    all.truncate(messages);
    if messages == honest().len() {
        all.push(OrderEvent::Finished);
    }
    all
}

#[test]
fn the_order_names_signer_and_proven_relay_and_is_bound_to_the_session() {
    let world = World::ordered();
    let signed = world.signed_order();
    let order = signed.claims().expect("readable");
    assert_eq!(order.coordinator, CoordinatorKey::of_seed(&SEED));
    assert_eq!(order.target, RELAY.ids(), "with the Ed25519 identity from the link");
    assert_eq!((order.nonce, order.seconds, order.sockets), (NONCE, SECONDS, 4));
    signed.verify(&order, &EXPORTED).expect("valid for this session");
    signed.verify(&order, &[0; 32]).expect_err("invalid for others");
}

#[test]
fn no_order_is_sent_to_another_relay() {
    let mut world = World::connected(&OTHER);
    let events = world.events();
    let [OrderEvent::Failed(OrderFailure::NoLink { problem })] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(!problem.is_empty());
    assert_eq!((world.closed, world.received.len()), (1, 0));
}

#[test]
fn a_whole_measurement_is_reported_second_by_second_and_leaves_the_link_open() {
    let mut world = World::ordered();
    let mut all = Vec::new();
    for (number, message) in honest().iter().enumerate() {
        all.extend(world.send_message(message));
        assert_eq!(all, events_of(number + 1));
    }
    assert_eq!(world.send_message(&traffic(SECONDS)), [], "no more events");
    assert_eq!(world.send_cell(CircId::LINK, Command::MEASURE, &[255]), []);
    assert!(!world.link.is_over());
    assert_eq!(
        (world.closed, world.received.len()),
        (0, 1),
        "the coordinator has sent only the order"
    );
    world.link.stop();
    world.exchange();
    assert_eq!((world.closed, world.link.is_over(), world.events()), (1, true, Vec::new()));
}

#[test]
fn messages_received_at_once_cause_the_events_of_messages_received_singly() {
    let mut world = World::ordered();
    for message in honest().iter().chain(&[traffic(0), Message::Proven]) {
        world.queue(CircId::LINK, Command::MEASURE, &message.encode());
    }
    world.exchange();
    assert_eq!(world.events(), events_of(honest().len()));
    assert!(!world.link.is_over());
}

#[test]
fn cells_that_are_not_messages_to_the_coordinator_are_ignored() {
    let mut world = World::ordered();
    let circuit = CircId::of_initiator(1);
    for message in honest() {
        let events = world.send_cell(CircId::LINK, Command::PADDING, &[]);
        assert_eq!(events, []);
        assert_eq!(world.send_cell(circuit, Command::RELAY, &[1; 20]), []);
        assert_eq!(world.send_cell(circuit, Command::MEASURE, &message.encode()), []);
        assert!(!world.send_message(&message).is_empty());
    }
    assert_eq!(world.closed, 0);
}

#[test]
fn a_refusal_at_any_time_is_reported_with_the_relays_text() {
    for sent_before in 0..=usize::from(SECONDS) {
        let mut world = World::ordered();
        for message in honest().iter().take(sent_before) {
            world.send_message(message);
        }
        let (code, text) = (ErrorCode::BUSY, "not today".to_owned());
        let events = world.send_message(&Message::Error { code, text: text.clone() });
        assert_eq!(events, [OrderEvent::Failed(OrderFailure::Refused { code, text })]);
        assert_eq!(world.closed, 1);
    }
}

/// An invalid message instead of the honest message with this index.
fn wrong() -> impl Strategy<Value = (usize, Message, OrderViolation)> {
    let indexes = usize::from(SECONDS) + 1;
    let accepted = (any::<[u8; 32]>(), 0..indexes).prop_map(|(nonce, index)| {
        let violation = match index {
            0 => OrderViolation::OtherNonce,
            _ => OrderViolation::OutOfOrder,
        };
        (index, Message::Accepted { nonce: Nonce(nonce) }, violation)
    });
    let twice = (1..indexes)
        .prop_map(|index| (index, Message::Accepted { nonce: NONCE }, OrderViolation::OutOfOrder));
    let others =
        (0..indexes).prop_map(|index| (index, Message::Proven, OrderViolation::OutOfOrder));
    let second = (any::<u16>(), 0..indexes).prop_map(|(found, index)| {
        let next = u32::try_from(index).expect("few").checked_sub(1);
        let violation = match next {
            None => OrderViolation::OutOfOrder,
            Some(expected) => OrderViolation::WrongSecond { expected, found: u32::from(found) },
        };
        (index, traffic(found), violation)
    });
    let near = (0..SECONDS + 2, 1..indexes).prop_map(|(found, index)| {
        let expected = u32::try_from(index - 1).expect("few");
        let found_s = u32::from(found);
        (index, traffic(found), OrderViolation::WrongSecond { expected, found: found_s })
    });
    prop_oneof![accepted, twice, others, second, near]
        .prop_filter("honest", |(index, message, _)| honest()[*index] != *message)
}

proptest! {
    #[test]
    fn an_invalid_message_at_any_position_ends_the_link_however_bytes_are_split(
        (index, wrong, why) in wrong(), piece_max_bytes in 1..2000usize,
    ) {
        let mut world = World::ordered();
        world.piece_max_bytes = piece_max_bytes;
        let mut events = Vec::new();
        for message in honest().iter().take(index).chain([&wrong]).chain(&honest()) {
            events.extend(world.send_message(message));
        }
        let mut expected = events_of(index);
        expected.push(violation(why));
        prop_assert_eq!(events, expected);
        prop_assert!(world.link.is_over());
        prop_assert_eq!((world.closed, world.received.len()), (1, 1));
    }

    #[test]
    fn malformed_messages_end_the_link(body in prop::collection::vec(any::<u8>(), 0..100)) {
        let is_message = Message::parse(&body).is_ok();
        prop_assume!(!is_message);
        let mut world = World::accepted();
        let events = world.send_cell(CircId::LINK, Command::MEASURE, &body);
        let malformed = matches!(
            &events[..],
            [OrderEvent::Failed(OrderFailure::Violation(OrderViolation::Malformed(problem)))]
                if !problem.is_empty()
        );
        prop_assert!(malformed, "{:?}", events);
        prop_assert_eq!(world.closed, 1);
    }
}
