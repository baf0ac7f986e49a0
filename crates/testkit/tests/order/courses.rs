//! The events for a relay's messages.

use super::world::{
    EXPORTED, NONCE, OTHER, RELAY, SECONDS, SEED, World, client_second, traffic, violation,
};
use onion::cell::{CircId, Command};
use onion::measure::order::{OrderEvent, OrderFailure, OrderViolation};
use onion::measure::protocol::{CoordinatorKey, ErrorCode, Message, Nonce};
use proptest::prelude::*;

/// Everything that an honest relay says.
fn honest() -> Vec<Message> {
    let seconds = (0..SECONDS).map(traffic);
    [Message::Accepted { nonce: NONCE }].into_iter().chain(seconds).collect()
}

/// The events for the first messages of it.
fn told(messages: usize) -> Vec<OrderEvent> {
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
    let signed = world.given();
    let order = signed.claims().expect("readable");
    assert_eq!(order.coordinator, CoordinatorKey::of_seed(&SEED));
    assert_eq!(order.target, RELAY.ids(), "with the key that nobody knew before");
    assert_eq!((order.nonce, order.seconds, order.sockets), (NONCE, SECONDS, 4));
    signed.verify(&order, &EXPORTED).expect("signed for this session");
    signed.verify(&order, &[0; 32]).expect_err("and for no other");
}

#[test]
fn a_stranger_hears_no_order() {
    let mut world = World::connected(&OTHER);
    let events = world.events();
    let [OrderEvent::Failed(OrderFailure::NoLink { problem })] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(!problem.is_empty());
    assert_eq!((world.closed, world.heard.len()), (1, 0));
}

#[test]
fn a_whole_course_is_told_as_it_comes_and_leaves_the_link_open() {
    let mut world = World::ordered();
    let mut all = Vec::new();
    for (number, message) in honest().iter().enumerate() {
        all.extend(world.says(message));
        assert_eq!(all, told(number + 1));
    }
    assert_eq!(world.says(&traffic(SECONDS)), [], "there are no more events");
    assert_eq!(world.sends(CircId::LINK, Command::MEASURE, &[255]), []);
    assert!(!world.link.is_over());
    assert_eq!((world.closed, world.heard.len()), (0, 1), "we said no more than the order");
    world.link.stop();
    world.exchange();
    assert_eq!((world.closed, world.link.is_over(), world.events()), (1, true, Vec::new()));
}

#[test]
fn what_comes_in_one_piece_is_told_as_if_it_came_message_by_message() {
    let mut world = World::ordered();
    for message in honest().iter().chain(&[traffic(0), Message::Proven]) {
        world.queue(CircId::LINK, Command::MEASURE, &message.encode());
    }
    world.exchange();
    assert_eq!(world.events(), told(honest().len()));
    assert!(!world.link.is_over());
}

#[test]
fn cells_that_are_no_message_to_us_mean_nothing() {
    let mut world = World::ordered();
    let circuit = CircId::of_initiator(1);
    for message in honest() {
        let events = world.sends(CircId::LINK, Command::PADDING, &[]);
        assert_eq!(events, []);
        assert_eq!(world.sends(circuit, Command::RELAY, &[1; 20]), []);
        assert_eq!(world.sends(circuit, Command::MEASURE, &message.encode()), []);
        assert!(!world.says(&message).is_empty());
    }
    assert_eq!(world.closed, 0);
}

#[test]
fn a_refusal_is_told_in_the_relays_own_words_whenever_it_comes() {
    for said_before in 0..=usize::from(SECONDS) {
        let mut world = World::ordered();
        for message in honest().iter().take(said_before) {
            world.says(message);
        }
        let (code, text) = (ErrorCode::BUSY, "not today".to_owned());
        let events = world.says(&Message::Error { code, text: text.clone() });
        assert_eq!(events, [OrderEvent::Failed(OrderFailure::Refused { code, text })]);
        assert_eq!(world.closed, 1);
    }
}

/// An invalid message instead of the honest message with this index.
fn wrong() -> impl Strategy<Value = (usize, Message, OrderViolation)> {
    let places = usize::from(SECONDS) + 1;
    let accepted = (any::<[u8; 32]>(), 0..places).prop_map(|(nonce, place)| {
        let violation = match place {
            0 => OrderViolation::OtherNonce,
            _ => OrderViolation::OutOfOrder,
        };
        (place, Message::Accepted { nonce: Nonce(nonce) }, violation)
    });
    let twice = (1..places)
        .prop_map(|place| (place, Message::Accepted { nonce: NONCE }, OrderViolation::OutOfOrder));
    let others = (0..places).prop_map(|place| (place, Message::Proven, OrderViolation::OutOfOrder));
    let second = (any::<u16>(), 0..places).prop_map(|(found, place)| {
        let next = u32::try_from(place).expect("few").checked_sub(1);
        let violation = match next {
            None => OrderViolation::OutOfOrder,
            Some(expected) => OrderViolation::WrongSecond { expected, found: u32::from(found) },
        };
        (place, traffic(found), violation)
    });
    let near = (0..SECONDS + 2, 1..places).prop_map(|(found, place)| {
        let expected = u32::try_from(place - 1).expect("few");
        let found_s = u32::from(found);
        (place, traffic(found), OrderViolation::WrongSecond { expected, found: found_s })
    });
    prop_oneof![accepted, twice, others, second, near]
        .prop_filter("honest", |(place, message, _)| honest()[*place] != *message)
}

proptest! {
    #[test]
    fn what_must_not_be_said_ends_it_wherever_it_stands_and_however_bytes_are_cut(
        (place, wrong, why) in wrong(), piece_max_bytes in 1..2000usize,
    ) {
        let mut world = World::ordered();
        world.piece_max_bytes = piece_max_bytes;
        let mut events = Vec::new();
        for message in honest().iter().take(place).chain([&wrong]).chain(&honest()) {
            events.extend(world.says(message));
        }
        let mut expected = told(place);
        expected.push(violation(why));
        prop_assert_eq!(events, expected);
        prop_assert!(world.link.is_over());
        prop_assert_eq!((world.closed, world.heard.len()), (1, 1));
    }

    #[test]
    fn bytes_that_are_no_message_end_it(body in prop::collection::vec(any::<u8>(), 0..100)) {
        let is_message = Message::parse(&body).is_ok();
        prop_assume!(!is_message);
        let mut world = World::accepted();
        let events = world.sends(CircId::LINK, Command::MEASURE, &body);
        let malformed = matches!(
            &events[..],
            [OrderEvent::Failed(OrderFailure::Violation(OrderViolation::Malformed(problem)))]
                if !problem.is_empty()
        );
        prop_assert!(malformed, "{:?}", events);
        prop_assert_eq!(world.closed, 1);
    }
}
