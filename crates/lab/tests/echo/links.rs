//! Links that other relays have dialled: who proves who it is gets its circuits over them.

use super::circuits::{Built, Next, creates, destroyed, id, last_create, scene};
use crate::common::echo_play::Play;
use crate::common::echo_scenario::{UNIX_TIME_S, cast};
use crate::common::party::{Party, extend_data};
use crate::common::stage::{Actor, Stage};
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, CircId, Command};
use std::net::SocketAddr;
use std::sync::Arc;

crate::common::stage::in_both_worlds! {
    a_relay_that_has_dialled_us_gets_its_circuits_over_that_link
    who_proves_nothing_is_dialled
    at_another_address_a_link_serves_if_the_relay_says_where_it_comes_from
    of_two_links_the_older_serves_until_it_closes
    each_side_of_a_link_chooses_its_own_half_of_the_circuit_ids
}

/// A relay that listens, and dials the target as itself.
fn dialler<S: Stage>(play: &mut Play<'_, S>, claims: &[SocketAddr]) -> Next {
    let address = play.stage.reserve();
    let claims = claims.iter().map(|at| at.ip()).collect();
    let identity = Arc::clone(&cast().next);
    let party = Party::dialling_as(play.target, identity, claims, UNIX_TIME_S);
    let actor = play.stage.add(party, &cast().others, &[address]);
    play.until_party(actor, Party::is_open);
    // The target's side of it is open a little later.
    let mut first = Built::new(play, actor, id(1));
    first.say(play, RelayCommand::DROP, &[]);
    play.party(actor).send(id(1), Command::DESTROY, &[0]);
    Next { actor, address }
}

/// The relay's port at an address where nobody listens.
fn elsewhere(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V4(v4) = address else { panic!("of IPv4") };
    let [a, b, c, _] = v4.ip().octets();
    SocketAddr::from(([a, b, c, 99], address.port()))
}

fn a_relay_that_has_dialled_us_gets_its_circuits_over_that_link<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = dialler(&mut play, &[]);
    let client = play.add_party();
    let mut circuit = Built::new(&mut play, client, id(1));
    let forth = circuit.extend(&mut play, next);
    assert!(!forth.is_of_initiator() && forth != CircId::LINK, "{forth}");
    let mut other = Built::new(&mut play, client, id(2));
    assert_ne!(other.extend(&mut play, next), forth);
    assert_eq!(play.party(next.actor).accepted, 0, "nobody has dialled it");

    // Cells pass both ways, and the circuit ends as any.
    circuit.say(&mut play, RelayCommand::DROP, &[]);
    let body = [0x55; BODY_LEN];
    play.party(client).send(id(1), Command::RELAY, &body);
    play.until_party(next.actor, |party| party.cell(forth, Command::RELAY).is_some());
    play.party(next.actor).send(forth, Command::DESTROY, &[5]);
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::DESTROYED);
    // With the link go its circuits.
    play.party(next.actor).close();
    assert_eq!(other.until_destroyed(&mut play), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(play.open_circuits(), 0);
}

fn who_proves_nothing_is_dialled<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let stranger = play.add_party();
    let next = Next::new(&mut play);
    let client = play.add_party();
    Built::new(&mut play, client, id(1)).extend(&mut play, next);
    assert_eq!(play.party(next.actor).accepted, 1);
    assert_eq!(creates(play.party(stranger)), 0);
}

fn at_another_address_a_link_serves_if_the_relay_says_where_it_comes_from<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let quiet = dialler(&mut play, &[]);
    let away = elsewhere(quiet.address);
    let client = play.add_party();
    let mut circuit = Built::new(&mut play, client, id(1));
    circuit.say(&mut play, RelayCommand::EXTEND2, &extend_data(away, &cast().next.ids()));
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::CONNECT_FAILED);
    assert_eq!(creates(play.party(quiet.actor)), 0);

    // What it says of other places does not count.
    let liar = dialler(&mut play, &[away]);
    let mut circuit = Built::new(&mut play, client, id(2));
    circuit.say(&mut play, RelayCommand::EXTEND2, &extend_data(away, &cast().next.ids()));
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::CONNECT_FAILED);
    assert_eq!(creates(play.party(liar.actor)), 0);

    let honest = dialler(&mut play, &[away, quiet.address]);
    let mut circuit = Built::new(&mut play, client, id(3));
    circuit.extend(&mut play, Next { address: away, ..honest });
    // It serves also where the others would do.
    Built::new(&mut play, client, id(4)).extend(&mut play, honest);
    assert_eq!(creates(play.party(quiet.actor)) + creates(play.party(liar.actor)), 0);
}

fn of_two_links_the_older_serves_until_it_closes<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let older = dialler(&mut play, &[]);
    let newer = dialler(&mut play, &[]);
    let client = play.add_party();
    for number in 1..4 {
        // The address is that of either.
        let at = if number % 2 == 0 { older.address } else { newer.address };
        Built::new(&mut play, client, id(number)).extend(&mut play, Next { address: at, ..older });
    }
    play.party(older.actor).close();
    destroyed(&mut play, client, id(3));
    Built::new(&mut play, client, id(4)).extend(&mut play, newer);
    let accepted = |play: &mut Play<'_, S>, it: Actor| play.party(it).accepted;
    assert_eq!((accepted(&mut play, older.actor), accepted(&mut play, newer.actor)), (0, 0));
}

fn each_side_of_a_link_chooses_its_own_half_of_the_circuit_ids<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let inbound = dialler(&mut play, &[]);
    let outbound = Next::new(&mut play);
    let client = play.add_party();
    // A number that the relay would choose itself, from whoever dialled it.
    for actor in [client, inbound.actor] {
        play.party(actor).send(CircId::new(9), Command::CREATE_FAST, &[3; 20]);
        assert_eq!(destroyed(&mut play, actor, CircId::new(9)), DestroyReason::PROTOCOL);
    }
    Built::new(&mut play, inbound.actor, id(2));
    // And from whom it dialled; the identity there must be another than that of the first link.
    play.party(inbound.actor).close();
    play.until_party(inbound.actor, |party| party.closed.is_some() || !party.is_accepted());
    let mut circuit = Built::new(&mut play, client, id(1));
    circuit.extend(&mut play, outbound);
    let forth = last_create(play.party(outbound.actor));
    assert!(forth.is_of_initiator(), "{forth}");
    play.party(outbound.actor).send(id(77), Command::CREATE_FAST, &[3; 20]);
    assert_eq!(destroyed(&mut play, outbound.actor, id(77)), DestroyReason::PROTOCOL);
    Built::new(&mut play, outbound.actor, CircId::new(5));
}
