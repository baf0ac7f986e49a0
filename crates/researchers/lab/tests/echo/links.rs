//! Links that other relays have opened: circuits to an authenticated relay use them.

use super::circuits::{Built, Next, begin, creates, destroyed, id, last_create, refused_extend};
use crate::common::echo_run::Run;
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, Stage};
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, CircId, Command};
use std::net::SocketAddr;
use std::sync::Arc;

crate::common::stage::in_both_worlds! {
    circuits_to_a_relay_use_the_link_that_it_has_opened
    a_link_from_an_unauthenticated_peer_carries_no_circuits_to_a_relay
    a_link_serves_another_address_if_the_relays_netinfo_lists_its_source_address
    the_older_of_two_links_is_used_until_it_closes
    each_side_of_a_link_uses_its_half_of_the_circuit_ids
}

/// A relay that listens, and opens an authenticated link to the target.
fn dialler<S: Stage>(run: &mut Run<'_, S>, claims: &[SocketAddr]) -> Next {
    let address = run.stage.reserve();
    let claims = claims.iter().map(|at| at.ip()).collect();
    let identity = Arc::clone(&identities().next);
    let peer = Peer::dialling_as(run.target, identity, claims, UNIX_TIME_S);
    let node = run.stage.add(peer, &identities().others, &[address]);
    run.until_peer(node, Peer::is_open);
    // The target's side of the link is open a little later.
    let mut first = Built::new(run, node, id(1));
    first.send_relay(run, RelayCommand::DROP, &[]);
    run.peer(node).send(id(1), Command::DESTROY, &[0]);
    Next { node, address }
}

/// The relay's port at an address without a listener.
fn elsewhere(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V4(v4) = address else { panic!("of IPv4") };
    let [a, b, c, _] = v4.ip().octets();
    SocketAddr::from(([a, b, c, 99], address.port()))
}

fn circuits_to_a_relay_use_the_link_that_it_has_opened<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = dialler(&mut run, &[]);
    let client = run.add_peer();
    let mut circuit = Built::new(&mut run, client, id(1));
    let onward = circuit.extend(&mut run, next);
    assert!(!onward.is_of_initiator() && onward != CircId::LINK, "{onward}");
    let mut other = Built::new(&mut run, client, id(2));
    assert_ne!(other.extend(&mut run, next), onward);
    assert_eq!(run.peer(next.node).accepted, 0, "no link to it was opened");

    // Cells are relayed in both directions, and the circuit can be destroyed.
    circuit.send_relay(&mut run, RelayCommand::DROP, &[]);
    let body = [0x55; BODY_LEN];
    run.peer(client).send(id(1), Command::RELAY, &body);
    run.until_peer(next.node, |peer| peer.cell(onward, Command::RELAY).is_some());
    run.peer(next.node).send(onward, Command::DESTROY, &[5]);
    assert_eq!(circuit.until_destroyed(&mut run), DestroyReason::DESTROYED);
    // Closing the link ends its circuits.
    run.peer(next.node).close();
    assert_eq!(other.until_destroyed(&mut run), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(run.open_circuits(), 0);
}

fn a_link_from_an_unauthenticated_peer_carries_no_circuits_to_a_relay<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let stranger = run.add_peer();
    let next = Next::new(&mut run);
    let client = run.add_peer();
    Built::new(&mut run, client, id(1)).extend(&mut run, next);
    assert_eq!(run.peer(next.node).accepted, 1);
    assert_eq!(creates(run.peer(stranger)), 0);
}

fn a_link_serves_another_address_if_the_relays_netinfo_lists_its_source_address<S: Stage>(
    stage: S,
) {
    let mut run = begin(stage);
    let quiet = dialler(&mut run, &[]);
    let away = elsewhere(quiet.address);
    let client = run.add_peer();
    let reason = refused_extend(&mut run, client, id(1), away, &identities().next.ids());
    assert_eq!(reason, DestroyReason::CONNECT_FAILED);
    assert_eq!(creates(run.peer(quiet.node)), 0);

    // A claim without the link's source address does not count.
    let liar = dialler(&mut run, &[away]);
    let reason = refused_extend(&mut run, client, id(2), away, &identities().next.ids());
    assert_eq!(reason, DestroyReason::CONNECT_FAILED);
    assert_eq!(creates(run.peer(liar.node)), 0);

    let honest = dialler(&mut run, &[away, quiet.address]);
    let mut circuit = Built::new(&mut run, client, id(3));
    circuit.extend(&mut run, Next { address: away, ..honest });
    // It is also used where the others could be.
    Built::new(&mut run, client, id(4)).extend(&mut run, honest);
    assert_eq!(creates(run.peer(quiet.node)) + creates(run.peer(liar.node)), 0);
}

fn the_older_of_two_links_is_used_until_it_closes<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let older = dialler(&mut run, &[]);
    let newer = dialler(&mut run, &[]);
    let client = run.add_peer();
    for number in 1..4 {
        // Either address may be requested.
        let at = if number % 2 == 0 { older.address } else { newer.address };
        Built::new(&mut run, client, id(number)).extend(&mut run, Next { address: at, ..older });
    }
    run.peer(older.node).close();
    destroyed(&mut run, client, id(3));
    Built::new(&mut run, client, id(4)).extend(&mut run, newer);
    let accepted = |run: &mut Run<'_, S>, node: NodeHandle| run.peer(node).accepted;
    assert_eq!((accepted(&mut run, older.node), accepted(&mut run, newer.node)), (0, 0));
}

fn each_side_of_a_link_uses_its_half_of_the_circuit_ids<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let inbound = dialler(&mut run, &[]);
    let outbound = Next::new(&mut run);
    let client = run.add_peer();
    // An ID of the relay's half, from the side that opened the link.
    for node in [client, inbound.node] {
        run.peer(node).send(CircId::new(9), Command::CREATE_FAST, &[3; 20]);
        assert_eq!(destroyed(&mut run, node, CircId::new(9)), DestroyReason::PROTOCOL);
    }
    Built::new(&mut run, inbound.node, id(2));
    // An ID of the relay's half, from the side that accepted the link. Close the first link, since both have the
    // same identity.
    run.peer(inbound.node).close();
    run.until_peer(inbound.node, |peer| peer.closed.is_some() || !peer.is_accepted());
    let mut circuit = Built::new(&mut run, client, id(1));
    circuit.extend(&mut run, outbound);
    let onward = last_create(run.peer(outbound.node));
    assert!(onward.is_of_initiator(), "{onward}");
    run.peer(outbound.node).send(id(77), Command::CREATE_FAST, &[3; 20]);
    assert_eq!(destroyed(&mut run, outbound.node, id(77)), DestroyReason::PROTOCOL);
    Built::new(&mut run, outbound.node, CircId::new(5));
}
