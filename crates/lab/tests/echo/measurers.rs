//! Measurers and strangers that violate the protocol: the consequences, and that nobody else is affected.

use super::honest::{ordered, proven};
use crate::common::echo_play::Play;
use crate::common::echo_scenario::{COORDINATOR, MEASURERS};
use crate::common::echo_scene::Scene;
use crate::common::stage::{Actor, Stage};
use onion::Duration;
use onion::cell::{Cell, CircId, Command};
use onion::identity::RelayIds;
use onion::measure::load::{LoadFailure, ReturnPath};
use onion::measure::protocol::{ErrorCode, MESSAGE_LEN_MAX, Message, Nonce, Proof};

crate::common::stage::in_both_worlds! {
    a_measurer_with_an_unknown_key_is_refused
    a_proof_seen_on_another_session_is_worth_nothing
    a_measurer_gets_no_more_sockets_than_were_ordered
    a_proof_after_a_circuit_comes_too_late
    a_measurer_that_asks_for_a_clients_circuit_ends_it_for_all
    a_measurer_that_asks_for_too_many_circuits_ends_it_for_all
    a_measurer_that_sends_no_cells_ends_it_for_all
    a_measurer_that_orders_or_proves_twice_ends_it_for_all
    messages_that_cannot_be_read_are_refused_whoever_sends_them
    messages_that_only_a_relay_sends_are_refused_whoever_sends_them
}

fn a_measurer_with_an_unknown_key_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, parts) = scene.play.prepare();
    let nonce = Nonce([1; 32]);
    // As a measurer that takes itself for one of the team.
    let return_path = ReturnPath::Echo { nonce, key_seed: [0x66; 32] };
    let mut stranger = vec![scene.play.add_pump(66, return_path)];
    scene.play.until(&mut stranger, |_, parts| parts[0].found.result.is_some());
    let unknown = ErrorCode::UNKNOWN_MEASURER;
    assert!(
        matches!(&stranger[0].found.result, Some(Err(LoadFailure::Refused { code, .. })) if *code == unknown)
    );
    assert!(scene.play.run(link, parts).summary().median > 0);
    scene.assert_unharmed();
}

fn a_proof_seen_on_another_session_is_worth_nothing<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, nonce, measurer) = ordered(&mut scene.play);
    let target = scene.play.target.ids;
    let seen = scene.play.party(measurer).exported;
    let proof = Proof::sign(&MEASURERS[0], nonce, &target, &seen);
    assert_eq!(scene.refused_with(|_| Message::Proof(proof)), ErrorCode::BAD_SIGNATURE);
    let other = RelayIds { rsa: crate::common::echo_scenario::cast().next.rsa, ..target };
    let code =
        scene.refused_with(|it| Message::Proof(Proof::sign(&MEASURERS[0], nonce, &other, it)));
    assert_eq!(code, ErrorCode::BAD_SIGNATURE, "for another relay");
    assert!(scene.play.party(measurer).closed.is_none(), "the measurer stays");
    scene.play.stop_order(link);
    scene.play.pass(Duration::from_millis(100));
    scene.assert_unharmed();
}

fn a_measurer_gets_no_more_sockets_than_were_ordered<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, parts) = scene.play.prepare();
    let nonce = Nonce([1; 32]);
    let target = scene.play.target.ids;
    let code =
        scene.refused_with(|it| Message::Proof(Proof::sign(&MEASURERS[0], nonce, &target, it)));
    assert_eq!(code, ErrorCode::TOO_MANY_SOCKETS);
    assert!(scene.play.run(link, parts).summary().median > 0);
    scene.assert_unharmed();
}

fn a_proof_after_a_circuit_comes_too_late<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, nonce, _) = ordered(&mut scene.play);
    let party = scene.play.add_party();
    let circ_id = CircId::of_initiator(1);
    scene.play.party(party).send(circ_id, Command::CREATE_FAST, &[1; 20]);
    let target = scene.play.target.ids;
    let code = scene
        .refused_on(party, |it| Message::Proof(Proof::sign(&MEASURERS[0], nonce, &target, it)));
    assert_eq!(code, ErrorCode::OUT_OF_ORDER);
    scene.play.stop_order(link);
    scene.play.pass(Duration::from_millis(100));
    scene.assert_unharmed();
}

/// A measurer violates the rules on its link: all parties are notified.
#[track_caller]
fn ends_it_for_all<S: Stage + 'static>(
    stage: S,
    expected: ErrorCode,
    breach: impl FnOnce(&mut Play<'static, S>, Actor, Nonce),
) {
    let mut scene = Scene::new(stage);
    let (link, nonce, measurer) = ordered(&mut scene.play);
    let other = proven(&mut scene.play, nonce);
    breach(&mut scene.play, measurer, nonce);
    assert_eq!(scene.told(measurer, 1), expected, "the one who did it");
    assert_eq!(scene.told(other, 1), ErrorCode::VIOLATION, "another measurer");
    assert_eq!(scene.ended(link), ErrorCode::VIOLATION, "the coordinator");
    scene.assert_unharmed();
}

fn a_measurer_that_asks_for_a_clients_circuit_ends_it_for_all<S: Stage + 'static>(stage: S) {
    ends_it_for_all(stage, ErrorCode::VIOLATION, |play, measurer, _| {
        play.party(measurer).send(CircId::of_initiator(1), Command::CREATE2, &[0, 2, 0, 84]);
    });
}

fn a_measurer_that_asks_for_too_many_circuits_ends_it_for_all<S: Stage + 'static>(stage: S) {
    ends_it_for_all(stage, ErrorCode::VIOLATION, |play, measurer, _| {
        for number in 1..=17 {
            let circ_id = CircId::of_initiator(number);
            play.party(measurer).send(circ_id, Command::CREATE_FAST, &[1; 20]);
        }
    });
}

fn a_measurer_that_sends_no_cells_ends_it_for_all<S: Stage + 'static>(stage: S) {
    ends_it_for_all(stage, ErrorCode::VIOLATION, |play, measurer, _| {
        // A circuit on the link itself.
        play.party(measurer).send(CircId::LINK, Command::CREATE_FAST, &[1; 20]);
    });
}

fn a_measurer_that_orders_or_proves_twice_ends_it_for_all<S: Stage + 'static>(stage: S) {
    ends_it_for_all(stage, ErrorCode::OUT_OF_ORDER, |play, measurer, nonce| {
        let target = play.target.ids;
        let party = play.party(measurer);
        let proof = Proof::sign(&MEASURERS[1], nonce, &target, &party.exported);
        party.say(&Message::Proof(proof));
    });
}

fn messages_that_cannot_be_read_are_refused_whoever_sends_them<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, nonce, _) = ordered(&mut scene.play);
    let order = Message::Order(scene.play.next_order().sign(&COORDINATOR, &[0; 32])).encode();
    let target = scene.play.target.ids;
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
        let party = scene.play.add_party();
        scene.play.party(party).send(CircId::LINK, Command::MEASURE, &body);
        assert_eq!(scene.told(party, 0), ErrorCode::MALFORMED, "{} bytes", body.len());
    }
    // Longer than any cell: there are no words for that.
    let party = scene.play.add_party();
    let mut cell = Vec::new();
    Cell { circ_id: CircId::LINK, command: Command::MEASURE, body: &[0; 65_535] }
        .encode_into(&mut cell);
    scene.play.party(party).send_raw(&cell);
    scene.play.until_party(party, |party| party.closed.is_some());
    // Not on the link itself: a cell of a circuit that does not exist.
    let party = scene.play.add_party();
    scene.play.party(party).send(CircId::of_initiator(1), Command::MEASURE, &order);
    scene.play.pass(Duration::from_millis(200));
    assert!(scene.play.party(party).closed.is_none());
    scene.play.stop_order(link);
    scene.play.pass(Duration::from_millis(100));
    scene.assert_unharmed();
}

fn messages_that_only_a_relay_sends_are_refused_whoever_sends_them<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (link, nonce, _) = ordered(&mut scene.play);
    for message in [
        Message::Accepted { nonce },
        Message::Proven,
        Message::ClientSecond(Default::default(), Vec::new()),
    ] {
        assert_eq!(scene.refused_with(|_| message), ErrorCode::OUT_OF_ORDER);
    }
    scene.play.stop_order(link);
    scene.play.pass(Duration::from_millis(100));
    scene.assert_unharmed();
}
