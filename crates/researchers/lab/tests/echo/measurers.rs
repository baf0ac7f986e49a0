//! Measurers and strangers that violate the protocol: the consequences, and that no other peer is affected.

use super::honest::{ordered, proven};
use crate::common::echo_run::Run;
use crate::common::echo_scenario::{COORDINATOR, MEASURERS};
use crate::common::identities::identities;
use crate::common::order_test::OrderTest;
use crate::common::stage::{NodeHandle, Stage};
use onion::Duration;
use onion::cell::{Cell, CircId, Command};
use onion::identity::RelayIds;
use onion::measure::load::{LoadFailure, ReturnPath};
use onion::measure::protocol::{ErrorCode, MESSAGE_LEN_MAX, Message, Nonce, Proof};

crate::common::stage::in_both_worlds! {
    a_measurer_with_an_unknown_key_is_refused
    a_proof_is_invalid_on_another_session
    a_measurer_gets_no_more_sockets_than_were_ordered
    a_proof_after_a_circuit_is_refused
    a_measurer_that_requests_a_clients_circuit_ends_the_measurement_for_all
    a_measurer_that_requests_too_many_circuits_ends_the_measurement_for_all
    a_measurer_that_creates_a_circuit_with_id_zero_ends_the_measurement_for_all
    a_measurer_that_proves_its_identity_twice_ends_the_measurement_for_all
    malformed_messages_are_refused_from_any_peer
    messages_that_only_a_relay_sends_are_refused_from_any_peer
}

fn a_measurer_with_an_unknown_key_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, parts) = test.run.prepare();
    let nonce = Nonce([1; 32]);
    // A measurer that is not part of the team.
    let return_path = ReturnPath::Echo { nonce, key_seed: [0x66; 32] };
    let mut stranger = vec![test.run.add_generator(66, return_path)];
    test.run.until(&mut stranger, |_, parts| parts[0].found.result.is_some());
    let unknown = ErrorCode::UNKNOWN_MEASURER;
    assert!(
        matches!(&stranger[0].found.result, Some(Err(LoadFailure::Refused { code, .. })) if *code == unknown)
    );
    assert!(test.run.finish(link, parts).summary().median > 0);
    test.assert_unharmed();
}

fn a_proof_is_invalid_on_another_session<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, nonce, measurer) = ordered(&mut test.run);
    let target = test.run.target.ids;
    let seen = test.run.peer(measurer).exported;
    let proof = Proof::sign(&MEASURERS[0], nonce, &target, &seen);
    assert_eq!(test.refused_with(|_| Message::Proof(proof)), ErrorCode::BAD_SIGNATURE);
    let other = RelayIds { rsa: identities().next.rsa, ..target };
    let code = test.refused_with(|exported| {
        Message::Proof(Proof::sign(&MEASURERS[0], nonce, &other, exported))
    });
    assert_eq!(code, ErrorCode::BAD_SIGNATURE, "for another relay");
    assert!(test.run.peer(measurer).closed.is_none(), "the measurer's link remains open");
    test.stop_and_assert_unharmed(link);
}

fn a_measurer_gets_no_more_sockets_than_were_ordered<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, parts) = test.run.prepare();
    let nonce = Nonce([1; 32]);
    let target = test.run.target.ids;
    let code = test.refused_with(|exported| {
        Message::Proof(Proof::sign(&MEASURERS[0], nonce, &target, exported))
    });
    assert_eq!(code, ErrorCode::TOO_MANY_SOCKETS);
    assert!(test.run.finish(link, parts).summary().median > 0);
    test.assert_unharmed();
}

fn a_proof_after_a_circuit_is_refused<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, nonce, _) = ordered(&mut test.run);
    let peer = test.run.add_peer();
    let circ_id = CircId::of_initiator(1);
    test.run.peer(peer).send(circ_id, Command::CREATE_FAST, &[1; 20]);
    let target = test.run.target.ids;
    let code = test.refused_on(peer, |exported| {
        Message::Proof(Proof::sign(&MEASURERS[0], nonce, &target, exported))
    });
    assert_eq!(code, ErrorCode::OUT_OF_ORDER);
    test.stop_and_assert_unharmed(link);
}

/// A measurer violates the protocol: the measurement ends for all parties.
#[track_caller]
fn ends_the_measurement_for_all<S: Stage + 'static>(
    stage: S,
    expected: ErrorCode,
    breach: impl FnOnce(&mut Run<'static, S>, NodeHandle, Nonce),
) {
    let mut test = OrderTest::new(stage);
    let (link, nonce, measurer) = ordered(&mut test.run);
    let other = proven(&mut test.run, nonce);
    breach(&mut test.run, measurer, nonce);
    assert_eq!(test.error_code(measurer, 1), expected, "the violator");
    assert_eq!(test.error_code(other, 1), ErrorCode::VIOLATION, "another measurer");
    assert_eq!(test.ended(link), ErrorCode::VIOLATION, "the coordinator");
    test.assert_unharmed();
}

fn a_measurer_that_requests_a_clients_circuit_ends_the_measurement_for_all<S: Stage + 'static>(
    stage: S,
) {
    ends_the_measurement_for_all(stage, ErrorCode::VIOLATION, |run, measurer, _| {
        run.peer(measurer).send(CircId::of_initiator(1), Command::CREATE2, &[0, 2, 0, 84]);
    });
}

fn a_measurer_that_requests_too_many_circuits_ends_the_measurement_for_all<S: Stage + 'static>(
    stage: S,
) {
    ends_the_measurement_for_all(stage, ErrorCode::VIOLATION, |run, measurer, _| {
        for number in 1..=17 {
            let circ_id = CircId::of_initiator(number);
            run.peer(measurer).send(circ_id, Command::CREATE_FAST, &[1; 20]);
        }
    });
}

fn a_measurer_that_creates_a_circuit_with_id_zero_ends_the_measurement_for_all<
    S: Stage + 'static,
>(
    stage: S,
) {
    ends_the_measurement_for_all(stage, ErrorCode::VIOLATION, |run, measurer, _| {
        // Circuit ID zero is the link itself.
        run.peer(measurer).send(CircId::LINK, Command::CREATE_FAST, &[1; 20]);
    });
}

fn a_measurer_that_proves_its_identity_twice_ends_the_measurement_for_all<S: Stage + 'static>(
    stage: S,
) {
    ends_the_measurement_for_all(stage, ErrorCode::OUT_OF_ORDER, |run, measurer, nonce| {
        let target = run.target.ids;
        let peer = run.peer(measurer);
        let proof = Proof::sign(&MEASURERS[1], nonce, &target, &peer.exported);
        peer.send_message(&Message::Proof(proof));
    });
}

fn malformed_messages_are_refused_from_any_peer<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, nonce, _) = ordered(&mut test.run);
    let order = Message::Order(test.run.next_order().sign(&COORDINATOR, &[0; 32])).encode();
    let target = test.run.target.ids;
    let proof = Message::Proof(Proof::sign(&MEASURERS[0], nonce, &target, &[0; 32])).encode();
    let twice = [&proof[..], &proof[1..]].concat();
    let bodies = [
        vec![],
        vec![99],
        order[..order.len() - 1].to_vec(),
        order[..5].to_vec(),
        proof[..40].to_vec(),
        twice,
        vec![4; MESSAGE_LEN_MAX + 1],
    ];
    for body in bodies {
        let peer = test.run.add_peer();
        test.run.peer(peer).send(CircId::LINK, Command::MEASURE, &body);
        assert_eq!(test.error_code(peer, 0), ErrorCode::MALFORMED, "{} bytes", body.len());
    }
    // Longer than any cell: the link is closed without an error message.
    let peer = test.run.add_peer();
    let mut cell = Vec::new();
    Cell { circ_id: CircId::LINK, command: Command::MEASURE, body: &[0; 65_535] }
        .encode_into(&mut cell);
    test.run.peer(peer).send_raw(&cell);
    test.run.until_peer(peer, |peer| peer.closed.is_some());
    // On a circuit that does not exist: ignored.
    let peer = test.run.add_peer();
    test.run.peer(peer).send(CircId::of_initiator(1), Command::MEASURE, &order);
    test.run.pass(Duration::from_millis(200));
    assert!(test.run.peer(peer).closed.is_none());
    test.stop_and_assert_unharmed(link);
}

fn messages_that_only_a_relay_sends_are_refused_from_any_peer<S: Stage + 'static>(stage: S) {
    let mut test = OrderTest::new(stage);
    let (link, nonce, _) = ordered(&mut test.run);
    for message in [
        Message::Accepted { nonce },
        Message::Proven,
        Message::ClientSecond(Default::default(), Vec::new()),
    ] {
        assert_eq!(test.refused_with(|_| message), ErrorCode::OUT_OF_ORDER);
    }
    test.stop_and_assert_unharmed(link);
}
