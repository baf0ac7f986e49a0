//! Clients' circuits through the router, cell by cell.

use crate::common::echo_run::Run;
use crate::common::echo_scenario::Scenario;
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::peer::{Peer, created2, extend_data, sealed};
use crate::common::stage::{NodeHandle, Stage};
use onion::Rate;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::ClientHop;
use onion::identity::RelayIds;
use std::net::SocketAddr;
use std::sync::Arc;

crate::common::stage::in_both_worlds! {
    a_circuit_is_extended_and_carries_cells_both_ways
    early_cells_are_relayed_as_such_in_the_forward_direction_only
    the_end_of_a_circuit_is_relayed_to_the_other_side
    a_truncated_circuit_can_be_extended_again
    a_circuit_cannot_be_extended_to_the_relay_itself_or_to_a_closed_port
    an_extend_with_a_wrong_address_does_not_block_others
    a_destroyed_circuit_cancels_its_pending_handshake
    a_closed_link_ends_its_circuits
    a_circuit_cannot_be_extended_to_its_previous_hop
    a_queue_overflow_ends_only_its_circuit
}

pub(crate) fn id(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// A client's circuit of one hop.
pub(crate) struct Built {
    client: NodeHandle,
    circ_id: CircId,
    hop: ClientHop,
    /// The number of relay cells that were received.
    seen: usize,
}

impl Built {
    #[track_caller]
    pub(crate) fn new<S: Stage>(run: &mut Run<'_, S>, client: NodeHandle, circ_id: CircId) -> Self {
        let x = [3; 20];
        run.peer(client).send(circ_id, Command::CREATE_FAST, &x);
        run.until_peer(client, |peer| peer.cell(circ_id, Command::CREATED_FAST).is_some());
        let keys = run.peer(client).fast_keys(circ_id, x).expect("received");
        Self { client, circ_id, hop: ClientHop::new(&keys), seen: 0 }
    }

    pub(crate) fn send_relay<S: Stage>(
        &mut self,
        run: &mut Run<'_, S>,
        command: RelayCommand,
        data: &[u8],
    ) {
        let body = sealed(&mut self.hop, command, 0, data);
        run.peer(self.client).send(self.circ_id, Command::RELAY_EARLY, &body);
    }

    fn send<S: Stage>(&self, run: &mut Run<'_, S>, command: Command, body: &[u8]) {
        run.peer(self.client).send(self.circ_id, command, body);
    }

    /// Waits for the next relay cell.
    #[track_caller]
    fn next<S: Stage>(&mut self, run: &mut Run<'_, S>) -> [u8; BODY_LEN] {
        let (circ_id, seen) = (self.circ_id, self.seen);
        self.seen += 1;
        let nth = move |peer: &Peer| {
            let is_it = |received: &&(CircId, Command, Vec<u8>)| {
                received.0 == circ_id && received.1 == Command::RELAY
            };
            peer.received.iter().filter(is_it).nth(seen).map(|cell| cell.2.clone())
        };
        run.until_peer(self.client, |peer| nth(peer).is_some());
        let body = nth(run.peer(self.client)).expect("received");
        body.try_into().expect("whole")
    }

    /// Waits for the relay's next message.
    #[track_caller]
    fn receive<S: Stage>(&mut self, run: &mut Run<'_, S>) -> (RelayCommand, Vec<u8>) {
        let mut body = self.next(run);
        self.hop.decrypt(&mut body).expect("from the relay");
        let message = RelayMessage::parse(&body).expect("readable");
        (message.command, message.data.to_vec())
    }

    /// Extends it to `next`, where it arrives as the circuit with the ID returned.
    #[track_caller]
    pub(crate) fn extend<S: Stage>(&mut self, run: &mut Run<'_, S>, next: Next) -> CircId {
        let before = creates(run.peer(next.node));
        self.send_relay(
            run,
            RelayCommand::EXTEND2,
            &extend_data(next.address, &identities().next.ids()),
        );
        run.until_peer(next.node, |peer| creates(peer) > before);
        let onward = last_create(run.peer(next.node));
        run.peer(next.node).send(onward, Command::CREATED2, &created2());
        let (command, data) = self.receive(run);
        assert_eq!((command, data), (RelayCommand::EXTENDED2, created2()));
        onward
    }

    #[track_caller]
    pub(crate) fn until_destroyed<S: Stage>(&self, run: &mut Run<'_, S>) -> DestroyReason {
        destroyed(run, self.client, self.circ_id)
    }
}

/// Opens a circuit and extends it to a relay, which must end it; returns the reason.
#[track_caller]
pub(crate) fn refused_extend<S: Stage>(
    run: &mut Run<'_, S>,
    client: NodeHandle,
    circ_id: CircId,
    address: SocketAddr,
    ids: &RelayIds,
) -> DestroyReason {
    let mut circuit = Built::new(run, client, circ_id);
    circuit.send_relay(run, RelayCommand::EXTEND2, &extend_data(address, ids));
    circuit.until_destroyed(run)
}

#[track_caller]
pub(crate) fn destroyed<S: Stage>(
    run: &mut Run<'_, S>,
    node: NodeHandle,
    circ_id: CircId,
) -> DestroyReason {
    run.until_peer(node, |peer| peer.cell(circ_id, Command::DESTROY).is_some());
    DestroyReason::parse(run.peer(node).cell(circ_id, Command::DESTROY).expect("received"))
}

pub(crate) fn creates(peer: &Peer) -> usize {
    peer.received.iter().filter(|cell| cell.1 == Command::CREATE2).count()
}

pub(crate) fn last_create(peer: &Peer) -> CircId {
    peer.received.iter().rfind(|cell| cell.1 == Command::CREATE2).expect("one").0
}

/// Another relay.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) node: NodeHandle,
    pub(crate) address: SocketAddr,
}

impl Next {
    pub(crate) fn new<S: Stage>(run: &mut Run<'_, S>) -> Self {
        let address = run.stage.reserve();
        let peer = Peer::listening(Arc::clone(&identities().next), UNIX_TIME_S);
        Self { node: run.stage.add(peer, &identities().others, &[address]), address }
    }
}

/// A relay without a limit.
pub(crate) fn begin<S: Stage>(stage: S) -> Run<'static, S> {
    static SCENARIO: std::sync::OnceLock<Scenario> = std::sync::OnceLock::new();
    Run::begin(stage, SCENARIO.get_or_init(|| Scenario { limit: None, ..Scenario::default() }))
}

fn a_circuit_is_extended_and_carries_cells_both_ways<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let client = run.add_peer();
    let mut circuit = Built::new(&mut run, client, id(1));
    let onward = circuit.extend(&mut run, next);
    let body = [0x77; BODY_LEN];
    circuit.send(&mut run, Command::RELAY, &body);
    run.until_peer(next.node, |peer| peer.cell(onward, Command::RELAY).is_some());
    assert_ne!(run.peer(next.node).cell(onward, Command::RELAY), Some(&body[..]));
    run.peer(next.node).send(onward, Command::RELAY, &body);
    assert_ne!(circuit.next(&mut run), body);
    assert_eq!(run.open_circuits(), 1);
    assert_eq!(run.totals().client_bytes, 3 * 514, "EXTENDED2 and one each way");
}

fn early_cells_are_relayed_as_such_in_the_forward_direction_only<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let client = run.add_peer();
    let mut circuit = Built::new(&mut run, client, id(1));
    let onward = circuit.extend(&mut run, next);
    circuit.send(&mut run, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    // It may contain an EXTEND2 for the next hop.
    run.until_peer(next.node, |peer| peer.cell(onward, Command::RELAY_EARLY).is_some());
    run.peer(next.node).send(onward, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    assert_eq!(circuit.until_destroyed(&mut run), DestroyReason::PROTOCOL);

    let circuit = Built::new(&mut run, client, id(2));
    for _ in 0..9 {
        circuit.send(&mut run, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    }
    assert_eq!(circuit.until_destroyed(&mut run), DestroyReason::PROTOCOL);
    assert_eq!(run.open_circuits(), 0);
}

fn the_end_of_a_circuit_is_relayed_to_the_other_side<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let client = run.add_peer();
    let mut one = Built::new(&mut run, client, id(1));
    let mut other = Built::new(&mut run, client, id(2));
    let (one_onward, other_onward) = (one.extend(&mut run, next), other.extend(&mut run, next));
    one.send(&mut run, Command::DESTROY, &[9]);
    // The reason is not relayed: it could be used to communicate past the client.
    assert_eq!(destroyed(&mut run, next.node, one_onward), DestroyReason::DESTROYED);
    run.peer(next.node).send(other_onward, Command::DESTROY, &[5]);
    assert_eq!(other.until_destroyed(&mut run), DestroyReason::DESTROYED);
    assert_eq!(
        run.peer(client).cell(id(1), Command::DESTROY),
        None,
        "not to the side that ended it"
    );
    assert_eq!(run.open_circuits(), 0);
}

fn a_truncated_circuit_can_be_extended_again<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let client = run.add_peer();
    let mut circuit = Built::new(&mut run, client, id(1));
    let onward = circuit.extend(&mut run, next);
    circuit.send_relay(&mut run, RelayCommand::TRUNCATE, &[]);
    let requested = DestroyReason::REQUESTED;
    assert_eq!(circuit.receive(&mut run), (RelayCommand::TRUNCATED, vec![requested.get()]));
    assert_eq!(destroyed(&mut run, next.node, onward), requested);
    let again = circuit.extend(&mut run, next);
    assert_ne!(again, onward);
    assert_eq!(run.open_circuits(), 1);
}

fn a_circuit_cannot_be_extended_to_the_relay_itself_or_to_a_closed_port<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let client = run.add_peer();
    let target = run.target;
    // Like C tor, which fails to connect to itself.
    let reason = refused_extend(&mut run, client, id(1), target.address, &target.ids);
    assert_eq!(reason, DestroyReason::CONNECT_FAILED);

    // A port without a listener.
    let nowhere = run.stage.nowhere();
    let reason = refused_extend(&mut run, client, id(2), nowhere, &identities().next.ids());
    assert_eq!(reason, DestroyReason::CONNECT_FAILED);

    let next = Next::new(&mut run);
    let wrong = identities().landings[0].ids();
    let reason = refused_extend(&mut run, client, id(3), next.address, &wrong);
    assert_eq!(reason, DestroyReason::CHANNEL_CLOSED);
    assert_eq!(run.open_circuits(), 0);
}

/// Adds a node that accepts connections and sends nothing; returns its address.
fn mute<S: Stage>(run: &mut Run<'_, S>) -> SocketAddr {
    let address = run.stage.reserve();
    run.stage.add(Peer::mute(UNIX_TIME_S), &identities().others, &[address]);
    address
}

fn an_extend_with_a_wrong_address_does_not_block_others<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let (next, wrong) = (Next::new(&mut run), mute(&mut run));
    let client = run.add_peer();
    let mut misled = Built::new(&mut run, client, id(1));
    misled.send_relay(
        &mut run,
        RelayCommand::EXTEND2,
        &extend_data(wrong, &identities().next.ids()),
    );
    let mut circuit = Built::new(&mut run, client, id(2));
    circuit.extend(&mut run, next);
    // Once the link is open, the address does not matter.
    let mut other = Built::new(&mut run, client, id(3));
    other.extend(&mut run, Next { address: wrong, ..next });
}

fn a_destroyed_circuit_cancels_its_pending_handshake<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let address = run.stage.reserve();
    let mut slow = Peer::listening(Arc::clone(&identities().next), UNIX_TIME_S);
    slow.is_held = true;
    let slow = run.stage.add(slow, &identities().others, &[address]);
    let client = run.add_peer();
    for number in 1..=3 {
        let mut circuit = Built::new(&mut run, client, id(number));
        let mut data = extend_data(address, &identities().next.ids());
        // The last byte of the handshake distinguishes them.
        *data.last_mut().expect("some") = u8::try_from(number).expect("few");
        circuit.send_relay(&mut run, RelayCommand::EXTEND2, &data);
        if number < 3 {
            circuit.send(&mut run, Command::DESTROY, &[0]);
        }
    }
    run.until_peer(slow, |peer| peer.is_accepted());
    run.pass(onion::Duration::from_millis(200));
    run.peer(slow).release();
    run.until_peer(slow, |peer| creates(peer) > 0);
    run.pass(onion::Duration::from_millis(200));
    assert_eq!(creates(run.peer(slow)), 1, "of the remaining circuit");
    let circ_id = last_create(run.peer(slow));
    let create = run.peer(slow).cell(circ_id, Command::CREATE2).expect("received");
    assert_eq!(create[4 + 83], 3, "its own handshake");
}

fn a_closed_link_ends_its_circuits<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let (client, other) = (run.add_peer(), run.add_peer());
    let mut one = Built::new(&mut run, client, id(1));
    let mut two = Built::new(&mut run, other, id(1));
    let onward = one.extend(&mut run, next);
    two.extend(&mut run, next);
    run.peer(client).close();
    assert_eq!(destroyed(&mut run, next.node, onward), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(run.open_circuits(), 1);
    run.peer(next.node).close();
    assert_eq!(two.until_destroyed(&mut run), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(run.open_circuits(), 0);
}

/// A circuit with a loop would multiply its client's traffic.
fn a_circuit_cannot_be_extended_to_its_previous_hop<S: Stage>(stage: S) {
    let mut run = begin(stage);
    let next = Next::new(&mut run);
    let client = run.add_peer();
    Built::new(&mut run, client, id(1)).extend(&mut run, next);
    // The relay has opened the link: the other side's circuit IDs lack the highest bit.
    // One of the two identities is sufficient.
    let (own, other) = (&identities().next, &identities().landings[0]);
    for (number, rsa, ed25519) in [(5, own, own), (6, own, other), (7, other, own)] {
        let ids = RelayIds { rsa: rsa.rsa, ed25519: Some(ed25519.ed25519) };
        let circ_id = CircId::new(number);
        let reason = refused_extend(&mut run, next.node, circ_id, next.address, &ids);
        assert_eq!(reason, DestroyReason::PROTOCOL);
    }
}

fn a_queue_overflow_ends_only_its_circuit<S: Stage>(stage: S) {
    let scenario = Scenario {
        limit: Some(Rate::from_mbit_per_s(1.0)),
        queue_limit_cells: 50,
        ..Scenario::default()
    };
    let mut run = Run::begin(stage, &scenario);
    let next = Next::new(&mut run);
    let (client, other) = (run.add_peer(), run.add_peer());
    let mut flooded = Built::new(&mut run, client, id(1));
    let mut same_link = Built::new(&mut run, client, id(2));
    let mut other_link = Built::new(&mut run, other, id(1));
    flooded.extend(&mut run, next);
    let onward = [same_link.extend(&mut run, next), other_link.extend(&mut run, next)];
    for _ in 0..400 {
        flooded.send(&mut run, Command::RELAY, &[1; BODY_LEN]);
    }
    assert_eq!(flooded.until_destroyed(&mut run), DestroyReason::RESOURCE_LIMIT);
    same_link.send(&mut run, Command::RELAY, &[1; BODY_LEN]);
    other_link.send(&mut run, Command::RELAY, &[1; BODY_LEN]);
    for circ_id in onward {
        run.until_peer(next.node, |peer| peer.cell(circ_id, Command::RELAY).is_some());
    }
    assert_eq!(run.open_circuits(), 2);
}

/// Tests that take minutes: in virtual time only.
mod upkeep {
    use super::*;
    use crate::common::stage::VirtualTime;
    use onion::Duration;

    #[test]
    fn an_unused_link_is_closed_and_one_with_a_circuit_is_not() {
        let mut run = begin(VirtualTime::new(1, None));
        let (idle, user) = (run.add_peer(), run.add_peer());
        let _circuit = Built::new(&mut run, user, id(1));
        assert!(run.peer(idle).is_open());
        run.pass(Duration::from_secs(400));
        assert_eq!(run.stage.conns(), Some(1));
        assert_eq!(run.open_circuits(), 1);
        assert!(run.peer(user).cell(id(1), Command::DESTROY).is_none());
    }
}
