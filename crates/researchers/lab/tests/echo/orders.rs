//! Coordinators with invalid orders: they are refused, and no other peer is affected.

use super::honest::{ordered, proven};
use crate::common::echo_scenario::{COORDINATOR, MEASURERS};
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::order_test::OrderTest;
use crate::common::stage::Stage;
use onion::Duration;
use onion::cell::{CircId, Command};
use onion::identity::RelayIds;
use onion::measure::protocol::{CoordinatorKey, ErrorCode, MeasurerKey, Message, Order, Proof};

crate::common::stage::in_both_worlds! {
    an_order_is_invalid_on_another_session
    an_order_by_a_key_that_is_not_allowed_is_refused
    an_order_that_is_not_signed_by_its_coordinator_is_refused
    an_order_outside_of_its_validity_is_refused
    an_order_for_another_relay_is_refused
    an_order_with_invalid_parameters_is_refused
    an_order_for_too_long_a_measurement_is_refused
    a_relay_that_allows_no_measurements_refuses_orders
    an_order_is_accepted_once
    a_second_order_on_a_link_ends_the_first
    an_order_on_another_link_during_a_measurement_is_refused
    a_violation_by_the_coordinator_ends_the_measurement_for_all
}

fn an_order_is_invalid_on_another_session<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let order = test.run.next_order();
    let (seen, thief) = (test.run.add_peer(), test.run.add_peer());
    let signed = order.sign(&COORDINATOR, &test.run.peer(seen).exported);
    let code = test.refused_on(thief, |_| Message::Order(signed.clone()));
    assert_eq!(code, ErrorCode::UNKNOWN_COORDINATOR);
    // On its own session the order is accepted.
    test.run.peer(seen).send_message(&Message::Order(signed));
    let accepted = Message::Accepted { nonce: order.nonce };
    test.run.until_peer(seen, |peer| peer.messages() == [accepted.clone()]);
    test.run.peer(seen).close();
    test.run.pass(Duration::from_millis(100));
    test.assert_unharmed();
}

fn an_order_by_a_key_that_is_not_allowed_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let mut order = test.run.next_order();
    order.coordinator = CoordinatorKey::of_seed(&[0x66; 32]);
    let code = test.refused_with(|exported| Message::Order(order.sign(&[0x66; 32], exported)));
    assert_eq!(code, ErrorCode::UNKNOWN_COORDINATOR);
    test.assert_unharmed();
}

/// `Order::sign` writes the key of its seed, so the coordinator is replaced in the encoded order.
fn an_order_that_is_not_signed_by_its_coordinator_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let order = test.run.next_order();
    let peer = test.run.add_peer();
    let forger = [0x66; 32];
    let exported = test.run.peer(peer).exported;
    let mut body = Message::Order(order.sign(&forger, &exported)).encode();
    let (theirs, allowed) =
        (CoordinatorKey::of_seed(&forger), CoordinatorKey::of_seed(&COORDINATOR));
    let at = body.windows(32).position(|window| window == theirs.0).expect("encoded");
    body[at..at + 32].copy_from_slice(&allowed.0);
    test.run.peer(peer).send(CircId::LINK, Command::MEASURE, &body);
    assert_eq!(test.error_code(peer, 0), ErrorCode::UNKNOWN_COORDINATOR);
    test.assert_unharmed();
}

fn an_order_outside_of_its_validity_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let code = test.refused(|order| order.expires_unix_s = UNIX_TIME_S - 1);
    assert_eq!(code, ErrorCode::EXPIRED);
    let code = test.refused(|order| order.expires_unix_s = UNIX_TIME_S + 2 * 3600);
    assert_eq!(code, ErrorCode::TOO_FAR_AHEAD);
    let code = test.refused(|order| order.expires_unix_s = u64::MAX);
    assert_eq!(code, ErrorCode::TOO_FAR_AHEAD);
    test.assert_unharmed();
}

fn an_order_for_another_relay_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let next = identities().next.ids();
    let code = test.refused(|order| order.target = next);
    assert_eq!(code, ErrorCode::WRONG_TARGET);
    let code = test.refused(|order| order.target = RelayIds { ed25519: None, ..order.target });
    assert_eq!(code, ErrorCode::WRONG_TARGET);
    test.assert_unharmed();
}

fn an_order_with_invalid_parameters_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    for change in [
        |order: &mut Order| order.seconds = 0,
        |order: &mut Order| order.sockets = 0,
        |order: &mut Order| order.measurers.clear(),
    ] {
        assert_eq!(test.refused(change), ErrorCode::BAD_PARAMETERS);
    }
    test.assert_unharmed();
}

fn an_order_for_too_long_a_measurement_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    assert_eq!(test.refused(|order| order.seconds = 11), ErrorCode::TOO_LONG);
    assert_eq!(test.refused(|order| order.seconds = u16::MAX), ErrorCode::TOO_LONG);
    test.assert_unharmed();
}

fn a_relay_that_allows_no_measurements_refuses_orders<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let params = test.run.scenario.target_params();
    let relay = test.run.relay;
    let router: &mut crate::common::echo_run::Relay = test.run.stage.node(relay);
    router.set_target_params(onion::measure::target::TargetParams {
        is_allowed: false,
        ..params.clone()
    });
    assert_eq!(test.refused(|_| {}), ErrorCode::NOT_ALLOWED);
    let router: &mut crate::common::echo_run::Relay = test.run.stage.node(relay);
    router.set_target_params(params);
    test.assert_unharmed();
}

fn an_order_is_accepted_once<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let nonce = {
        let (link, nonce, _) = ordered(&mut test.run);
        test.run.stop_order(link);
        nonce
    };
    test.run.pass(Duration::from_millis(100));
    assert_eq!(test.refused(|order| order.nonce = nonce), ErrorCode::REPLAYED);
    test.assert_unharmed();
}

fn a_second_order_on_a_link_ends_the_first<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (first, second) = (test.run.next_order(), test.run.next_order());
    let peer = test.accepted(&first);
    let measurer = proven(&mut test.run, first.nonce);
    let code =
        test.refused_on(peer, |exported| Message::Order(second.sign(&COORDINATOR, exported)));
    assert_eq!(code, ErrorCode::BUSY);
    assert_eq!(test.error_code(measurer, 1), ErrorCode::VIOLATION);
    test.assert_unharmed();
}

fn an_order_on_another_link_during_a_measurement_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, parts) = test.run.prepare();
    assert_eq!(test.refused(|_| {}), ErrorCode::BUSY, "the same key, on another link");
    assert!(test.run.finish(link, parts).summary().median > 0);
    test.assert_unharmed();
}

fn a_violation_by_the_coordinator_ends_the_measurement_for_all<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let order = test.run.next_order();
    assert_eq!(order.measurers[0], MeasurerKey::of_seed(&MEASURERS[0]));
    let peer = test.accepted(&order);
    let measurer = proven(&mut test.run, order.nonce);
    // The coordinator is also a measurer, but must not measure on this link.
    let target = test.run.target.ids;
    let code = test.refused_on(peer, |exported| {
        Message::Proof(Proof::sign(&MEASURERS[0], order.nonce, &target, exported))
    });
    assert_eq!(code, ErrorCode::OUT_OF_ORDER);
    assert_eq!(test.error_code(measurer, 1), ErrorCode::VIOLATION);
    test.assert_unharmed();
}
