//! Coordinators with invalid orders: the consequences, and that nobody else is affected.

use super::honest::{ordered, proven};
use crate::common::echo_scenario::{COORDINATOR, MEASURERS, UNIX_TIME_S};
use crate::common::echo_scene::Scene;
use crate::common::stage::Stage;
use onion::Duration;
use onion::cell::{CircId, Command};
use onion::identity::RelayIds;
use onion::measure::protocol::{CoordinatorKey, ErrorCode, MeasurerKey, Message, Order, Proof};

crate::common::stage::in_both_worlds! {
    an_order_seen_on_another_session_is_worth_nothing
    an_order_by_a_key_that_is_not_allowed_is_refused
    an_order_that_is_not_signed_by_its_coordinator_is_refused
    an_order_out_of_its_time_is_refused
    an_order_for_another_relay_is_refused
    an_order_that_makes_no_sense_is_refused
    an_order_for_too_long_is_refused
    a_relay_that_allows_nobody_says_so
    an_order_is_used_once
    a_second_order_while_the_first_is_on_ends_the_first
    another_coordinators_order_while_one_is_on_is_refused_and_does_no_harm
    a_coordinator_that_breaks_the_rules_ends_it_for_all
}

fn an_order_seen_on_another_session_is_worth_nothing<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let order = scene.play.next_order();
    let (seen, thief) = (scene.play.add_party(), scene.play.add_party());
    let signed = order.sign(&COORDINATOR, &scene.play.party(seen).exported);
    let code = scene.refused_on(thief, |_| Message::Order(signed.clone()));
    assert_eq!(code, ErrorCode::UNKNOWN_COORDINATOR);
    // Where it belongs it is good.
    scene.play.party(seen).say(&Message::Order(signed));
    let accepted = Message::Accepted { nonce: order.nonce };
    scene.play.until_party(seen, |party| party.messages() == [accepted.clone()]);
    scene.play.party(seen).close();
    scene.play.pass(Duration::from_millis(100));
    scene.assert_unharmed();
}

fn an_order_by_a_key_that_is_not_allowed_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let mut order = scene.play.next_order();
    order.coordinator = CoordinatorKey::of_seed(&[0x66; 32]);
    let code = scene.refused_with(|exported| Message::Order(order.sign(&[0x66; 32], exported)));
    assert_eq!(code, ErrorCode::UNKNOWN_COORDINATOR);
    scene.assert_unharmed();
}

/// `Order::sign` puts in the key of its seed, so the name is changed in the bytes.
fn an_order_that_is_not_signed_by_its_coordinator_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let order = scene.play.next_order();
    let party = scene.play.add_party();
    let forger = [0x66; 32];
    let exported = scene.play.party(party).exported;
    let mut body = Message::Order(order.sign(&forger, &exported)).encode();
    let (theirs, allowed) =
        (CoordinatorKey::of_seed(&forger), CoordinatorKey::of_seed(&COORDINATOR));
    let at = body.windows(32).position(|it| it == theirs.0).expect("it is named");
    body[at..at + 32].copy_from_slice(&allowed.0);
    scene.play.party(party).send(CircId::LINK, Command::MEASURE, &body);
    assert_eq!(scene.told(party, 0), ErrorCode::UNKNOWN_COORDINATOR);
    scene.assert_unharmed();
}

fn an_order_out_of_its_time_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let code = scene.refused(|order| order.expires_unix_s = UNIX_TIME_S - 1);
    assert_eq!(code, ErrorCode::EXPIRED);
    let code = scene.refused(|order| order.expires_unix_s = UNIX_TIME_S + 2 * 3600);
    assert_eq!(code, ErrorCode::TOO_FAR_AHEAD);
    let code = scene.refused(|order| order.expires_unix_s = u64::MAX);
    assert_eq!(code, ErrorCode::TOO_FAR_AHEAD);
    scene.assert_unharmed();
}

fn an_order_for_another_relay_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let next = crate::common::echo_scenario::cast().next.ids();
    let code = scene.refused(|order| order.target = next);
    assert_eq!(code, ErrorCode::WRONG_TARGET);
    let code = scene.refused(|order| order.target = RelayIds { ed25519: None, ..order.target });
    assert_eq!(code, ErrorCode::WRONG_TARGET);
    scene.assert_unharmed();
}

fn an_order_that_makes_no_sense_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    for change in [
        |order: &mut Order| order.seconds = 0,
        |order: &mut Order| order.sockets = 0,
        |order: &mut Order| order.measurers.clear(),
    ] {
        assert_eq!(scene.refused(change), ErrorCode::BAD_PARAMETERS);
    }
    scene.assert_unharmed();
}

fn an_order_for_too_long_is_refused<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    assert_eq!(scene.refused(|order| order.seconds = 11), ErrorCode::TOO_LONG);
    assert_eq!(scene.refused(|order| order.seconds = u16::MAX), ErrorCode::TOO_LONG);
    scene.assert_unharmed();
}

fn a_relay_that_allows_nobody_says_so<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let params = scene.play.scenario.target_params();
    let relay = scene.play.relay;
    let router: &mut crate::common::echo_play::Relay = scene.play.stage.node(relay);
    router.set_target_params(onion::measure::target::TargetParams {
        is_allowed: false,
        ..params.clone()
    });
    assert_eq!(scene.refused(|_| {}), ErrorCode::NOT_ALLOWED);
    let router: &mut crate::common::echo_play::Relay = scene.play.stage.node(relay);
    router.set_target_params(params);
    scene.assert_unharmed();
}

fn an_order_is_used_once<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let nonce = {
        let (link, nonce, _) = ordered(&mut scene.play);
        scene.play.stop_order(link);
        nonce
    };
    scene.play.pass(Duration::from_millis(100));
    assert_eq!(scene.refused(|order| order.nonce = nonce), ErrorCode::REPLAYED);
    scene.assert_unharmed();
}

fn a_second_order_while_the_first_is_on_ends_the_first<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let (first, second) = (scene.play.next_order(), scene.play.next_order());
    let party = scene.play.add_party();
    let exported = scene.play.party(party).exported;
    scene.play.party(party).say(&Message::Order(first.sign(&COORDINATOR, &exported)));
    let accepted = Message::Accepted { nonce: first.nonce };
    scene.play.until_party(party, |party| party.messages() == [accepted.clone()]);
    let measurer = proven(&mut scene.play, first.nonce);
    let code = scene.refused_on(party, |it| Message::Order(second.sign(&COORDINATOR, it)));
    assert_eq!(code, ErrorCode::BUSY);
    assert_eq!(scene.told(measurer, 1), ErrorCode::VIOLATION);
    scene.assert_unharmed();
}

fn another_coordinators_order_while_one_is_on_is_refused_and_does_no_harm<S: Stage + 'static>(
    stage: S,
) {
    let mut scene = Scene::new(stage);
    let (link, parts) = scene.play.prepare();
    assert_eq!(scene.refused(|_| {}), ErrorCode::BUSY, "it has the same key, on another link");
    assert!(scene.play.run(link, parts).summary().median > 0);
    scene.assert_unharmed();
}

fn a_coordinator_that_breaks_the_rules_ends_it_for_all<S: Stage + 'static>(stage: S) {
    let mut scene = Scene::new(stage);
    let order = scene.play.next_order();
    assert_eq!(order.measurers[0], MeasurerKey::of_seed(&MEASURERS[0]));
    let party = scene.play.add_party();
    let exported = scene.play.party(party).exported;
    scene.play.party(party).say(&Message::Order(order.sign(&COORDINATOR, &exported)));
    let accepted = Message::Accepted { nonce: order.nonce };
    scene.play.until_party(party, |party| party.messages() == [accepted.clone()]);
    let measurer = proven(&mut scene.play, order.nonce);
    // It measures, too: on its own link it must not.
    let target = scene.play.target.ids;
    let code = scene.refused_on(party, |it| {
        Message::Proof(Proof::sign(&MEASURERS[0], order.nonce, &target, it))
    });
    assert_eq!(code, ErrorCode::OUT_OF_ORDER);
    assert_eq!(scene.told(measurer, 1), ErrorCode::VIOLATION);
    scene.assert_unharmed();
}
