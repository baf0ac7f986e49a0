//! Clients' circuits through the router, cell by cell.

use crate::common::echo_play::Play;
use crate::common::echo_scenario::{Scenario, UNIX_TIME_S, cast};
use crate::common::party::{Party, created2, extend_data, sealed};
use crate::common::stage::{Actor, Stage};
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
    early_cells_go_on_as_such_and_do_not_come_back
    the_end_of_a_circuit_is_told_to_either_side
    a_truncated_circuit_can_be_extended_again
    a_circuit_leads_neither_to_the_relay_itself_nor_to_nowhere
    a_wrong_address_keeps_nobody_else_from_a_relay
    a_circuit_that_is_gone_leaves_no_handshake_behind
    a_link_that_goes_takes_its_circuits_along
    a_circuit_does_not_lead_back_where_it_comes_from
    only_the_circuit_dies_whose_queue_overruns
}

pub(crate) fn id(number: u32) -> CircId {
    CircId::of_initiator(number)
}

/// A client's circuit of one hop.
pub(crate) struct Built {
    client: Actor,
    circ_id: CircId,
    hop: ClientHop,
    /// Relay cells that were looked at.
    seen: usize,
}

impl Built {
    #[track_caller]
    pub(crate) fn new<S: Stage>(play: &mut Play<'_, S>, client: Actor, circ_id: CircId) -> Self {
        let x = [3; 20];
        play.party(client).send(circ_id, Command::CREATE_FAST, &x);
        play.until_party(client, |party| party.cell(circ_id, Command::CREATED_FAST).is_some());
        let keys = play.party(client).fast_keys(circ_id, x).expect("it has come");
        Self { client, circ_id, hop: ClientHop::new(&keys), seen: 0 }
    }

    pub(crate) fn say<S: Stage>(
        &mut self,
        play: &mut Play<'_, S>,
        command: RelayCommand,
        data: &[u8],
    ) {
        let body = sealed(&mut self.hop, command, data);
        play.party(self.client).send(self.circ_id, Command::RELAY_EARLY, &body);
    }

    fn send<S: Stage>(&self, play: &mut Play<'_, S>, command: Command, body: &[u8]) {
        play.party(self.client).send(self.circ_id, command, body);
    }

    /// The next relay cell that comes back.
    #[track_caller]
    fn next<S: Stage>(&mut self, play: &mut Play<'_, S>) -> [u8; BODY_LEN] {
        let (circ_id, seen) = (self.circ_id, self.seen);
        self.seen += 1;
        let nth = move |party: &Party| {
            let is_it =
                |came: &&(CircId, Command, Vec<u8>)| came.0 == circ_id && came.1 == Command::RELAY;
            party.came.iter().filter(is_it).nth(seen).map(|it| it.2.clone())
        };
        play.until_party(self.client, |party| nth(party).is_some());
        let body = nth(play.party(self.client)).expect("it has come");
        body.try_into().expect("whole")
    }

    /// The relay's next message.
    #[track_caller]
    fn hear<S: Stage>(&mut self, play: &mut Play<'_, S>) -> (RelayCommand, Vec<u8>) {
        let mut body = self.next(play);
        self.hop.decrypt(&mut body).expect("from the relay");
        let message = RelayMessage::parse(&body).expect("readable");
        (message.command, message.data.to_vec())
    }

    /// Extends it to `next`, where it arrives as the circuit with the ID returned.
    #[track_caller]
    pub(crate) fn extend<S: Stage>(&mut self, play: &mut Play<'_, S>, next: Next) -> CircId {
        let before = creates(play.party(next.actor));
        self.say(play, RelayCommand::EXTEND2, &extend_data(next.address, &cast().next.ids()));
        play.until_party(next.actor, |party| creates(party) > before);
        let forth = last_create(play.party(next.actor));
        play.party(next.actor).send(forth, Command::CREATED2, &created2());
        let (command, data) = self.hear(play);
        assert_eq!((command, data), (RelayCommand::EXTENDED2, created2()));
        forth
    }

    #[track_caller]
    pub(crate) fn until_destroyed<S: Stage>(&self, play: &mut Play<'_, S>) -> DestroyReason {
        destroyed(play, self.client, self.circ_id)
    }
}

#[track_caller]
pub(crate) fn destroyed<S: Stage>(
    play: &mut Play<'_, S>,
    actor: Actor,
    circ_id: CircId,
) -> DestroyReason {
    play.until_party(actor, |party| party.cell(circ_id, Command::DESTROY).is_some());
    DestroyReason::parse(play.party(actor).cell(circ_id, Command::DESTROY).expect("it has come"))
}

pub(crate) fn creates(party: &Party) -> usize {
    party.came.iter().filter(|it| it.1 == Command::CREATE2).count()
}

pub(crate) fn last_create(party: &Party) -> CircId {
    party.came.iter().rfind(|it| it.1 == Command::CREATE2).expect("one").0
}

/// Another relay.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) actor: Actor,
    pub(crate) address: SocketAddr,
}

impl Next {
    pub(crate) fn new<S: Stage>(play: &mut Play<'_, S>) -> Self {
        let address = play.stage.reserve();
        let party = Party::listening(Arc::clone(&cast().next), UNIX_TIME_S);
        Self { actor: play.stage.add(party, &cast().others, &[address]), address }
    }
}

pub(crate) fn scene<S: Stage>(stage: S) -> Play<'static, S> {
    static SCENARIO: std::sync::OnceLock<Scenario> = std::sync::OnceLock::new();
    Play::begin(stage, SCENARIO.get_or_init(|| Scenario { limit: None, ..Scenario::default() }))
}

fn a_circuit_is_extended_and_carries_cells_both_ways<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let client = play.add_party();
    let mut circuit = Built::new(&mut play, client, id(1));
    let forth = circuit.extend(&mut play, next);
    let body = [0x77; BODY_LEN];
    circuit.send(&mut play, Command::RELAY, &body);
    play.until_party(next.actor, |party| party.cell(forth, Command::RELAY).is_some());
    assert_ne!(play.party(next.actor).cell(forth, Command::RELAY), Some(&body[..]));
    play.party(next.actor).send(forth, Command::RELAY, &body);
    assert_ne!(circuit.next(&mut play), body);
    assert_eq!(play.open_circuits(), 1);
    assert_eq!(play.totals().client_bytes, 3 * 514, "EXTENDED2 and one each way");
}

fn early_cells_go_on_as_such_and_do_not_come_back<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let client = play.add_party();
    let mut circuit = Built::new(&mut play, client, id(1));
    let forth = circuit.extend(&mut play, next);
    circuit.send(&mut play, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    // As it must be for whoever is to be extended there.
    play.until_party(next.actor, |party| party.cell(forth, Command::RELAY_EARLY).is_some());
    play.party(next.actor).send(forth, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::PROTOCOL);

    let circuit = Built::new(&mut play, client, id(2));
    for _ in 0..9 {
        circuit.send(&mut play, Command::RELAY_EARLY, &[0x77; BODY_LEN]);
    }
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::PROTOCOL);
    assert_eq!(play.open_circuits(), 0);
}

fn the_end_of_a_circuit_is_told_to_either_side<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let client = play.add_party();
    let mut one = Built::new(&mut play, client, id(1));
    let mut other = Built::new(&mut play, client, id(2));
    let (one_forth, other_forth) = (one.extend(&mut play, next), other.extend(&mut play, next));
    one.send(&mut play, Command::DESTROY, &[9]);
    // But not why: that would be a way to talk past the client.
    assert_eq!(destroyed(&mut play, next.actor, one_forth), DestroyReason::DESTROYED);
    play.party(next.actor).send(other_forth, Command::DESTROY, &[5]);
    assert_eq!(other.until_destroyed(&mut play), DestroyReason::DESTROYED);
    assert_eq!(play.party(client).cell(id(1), Command::DESTROY), None, "who ended it knows");
    assert_eq!(play.open_circuits(), 0);
}

fn a_truncated_circuit_can_be_extended_again<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let client = play.add_party();
    let mut circuit = Built::new(&mut play, client, id(1));
    let forth = circuit.extend(&mut play, next);
    circuit.say(&mut play, RelayCommand::TRUNCATE, &[]);
    let requested = DestroyReason::REQUESTED;
    assert_eq!(circuit.hear(&mut play), (RelayCommand::TRUNCATED, vec![requested.get()]));
    assert_eq!(destroyed(&mut play, next.actor, forth), requested);
    let again = circuit.extend(&mut play, next);
    assert_ne!(again, forth);
    assert_eq!(play.open_circuits(), 1);
}

fn a_circuit_leads_neither_to_the_relay_itself_nor_to_nowhere<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let client = play.add_party();
    let target = play.target;
    let mut circuit = Built::new(&mut play, client, id(1));
    let itself = extend_data(target.address, &target.ids);
    circuit.say(&mut play, RelayCommand::EXTEND2, &itself);
    // As C tor, which fails to dial itself.
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::CONNECT_FAILED);

    // A socket that is closed again: nobody listens there.
    let nowhere = play.stage.nowhere();
    let mut circuit = Built::new(&mut play, client, id(2));
    circuit.say(&mut play, RelayCommand::EXTEND2, &extend_data(nowhere, &cast().next.ids()));
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::CONNECT_FAILED);

    let next = Next::new(&mut play);
    let mut circuit = Built::new(&mut play, client, id(3));
    let impostor = extend_data(next.address, &cast().landings[0].ids());
    circuit.say(&mut play, RelayCommand::EXTEND2, &impostor);
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(play.open_circuits(), 0);
}

/// Who accepts connections and then says nothing.
fn mute<S: Stage>(play: &mut Play<'_, S>) -> SocketAddr {
    let address = play.stage.reserve();
    play.stage.add(Party::mute(UNIX_TIME_S), &cast().others, &[address]);
    address
}

fn a_wrong_address_keeps_nobody_else_from_a_relay<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let (next, wrong) = (Next::new(&mut play), mute(&mut play));
    let client = play.add_party();
    let mut misled = Built::new(&mut play, client, id(1));
    misled.say(&mut play, RelayCommand::EXTEND2, &extend_data(wrong, &cast().next.ids()));
    let mut circuit = Built::new(&mut play, client, id(2));
    circuit.extend(&mut play, next);
    // Once the link is open, the address does not matter.
    let mut other = Built::new(&mut play, client, id(3));
    other.extend(&mut play, Next { address: wrong, ..next });
}

fn a_circuit_that_is_gone_leaves_no_handshake_behind<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let address = play.stage.reserve();
    let mut slow = Party::listening(Arc::clone(&cast().next), UNIX_TIME_S);
    slow.is_held = true;
    let slow = play.stage.add(slow, &cast().others, &[address]);
    let client = play.add_party();
    for number in 1..=3 {
        let mut circuit = Built::new(&mut play, client, id(number));
        let mut data = extend_data(address, &cast().next.ids());
        // The last byte of the handshake distinguishes them.
        *data.last_mut().expect("some") = u8::try_from(number).expect("few");
        circuit.say(&mut play, RelayCommand::EXTEND2, &data);
        if number < 3 {
            circuit.send(&mut play, Command::DESTROY, &[0]);
        }
    }
    play.until_party(slow, |party| party.is_accepted());
    play.pass(onion::Duration::from_millis(200));
    play.party(slow).release();
    play.until_party(slow, |party| creates(party) > 0);
    play.pass(onion::Duration::from_millis(200));
    assert_eq!(creates(play.party(slow)), 1, "of the one that is left");
    let circ_id = last_create(play.party(slow));
    let create = play.party(slow).cell(circ_id, Command::CREATE2).expect("it has come");
    assert_eq!(create[4 + 83], 3, "its own handshake");
}

fn a_link_that_goes_takes_its_circuits_along<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let (client, other) = (play.add_party(), play.add_party());
    let mut one = Built::new(&mut play, client, id(1));
    let mut two = Built::new(&mut play, other, id(1));
    let forth = one.extend(&mut play, next);
    two.extend(&mut play, next);
    play.party(client).close();
    assert_eq!(destroyed(&mut play, next.actor, forth), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(play.open_circuits(), 1);
    play.party(next.actor).close();
    assert_eq!(two.until_destroyed(&mut play), DestroyReason::CHANNEL_CLOSED);
    assert_eq!(play.open_circuits(), 0);
}

/// In circles a circuit would multiply what its client sends.
fn a_circuit_does_not_lead_back_where_it_comes_from<S: Stage>(stage: S) {
    let mut play = scene(stage);
    let next = Next::new(&mut play);
    let client = play.add_party();
    Built::new(&mut play, client, id(1)).extend(&mut play, next);
    // The link is the relay's: the other side's numbers lack the highest bit.
    let mut circuit = Built::new(&mut play, next.actor, CircId::new(5));
    let back = extend_data(next.address, &cast().next.ids());
    circuit.say(&mut play, RelayCommand::EXTEND2, &back);
    assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::PROTOCOL);
    // Half of its identity is enough, whatever the other half.
    let (own, other) = (&cast().next, &cast().landings[0]);
    for (number, rsa, ed25519) in [(6, own, other), (7, other, own)] {
        let ids = RelayIds { rsa: rsa.rsa, ed25519: Some(ed25519.ed25519) };
        let mut circuit = Built::new(&mut play, next.actor, CircId::new(number));
        circuit.say(&mut play, RelayCommand::EXTEND2, &extend_data(next.address, &ids));
        assert_eq!(circuit.until_destroyed(&mut play), DestroyReason::PROTOCOL);
    }
}

fn only_the_circuit_dies_whose_queue_overruns<S: Stage>(stage: S) {
    let scenario = Scenario {
        limit: Some(Rate::from_mbit_per_s(1.0)),
        queue_limit_cells: 50,
        ..Scenario::default()
    };
    let mut play = Play::begin(stage, &scenario);
    let next = Next::new(&mut play);
    let (client, other) = (play.add_party(), play.add_party());
    let mut flooded = Built::new(&mut play, client, id(1));
    let mut beside = Built::new(&mut play, client, id(2));
    let mut elsewhere = Built::new(&mut play, other, id(1));
    flooded.extend(&mut play, next);
    let forth = [beside.extend(&mut play, next), elsewhere.extend(&mut play, next)];
    for _ in 0..400 {
        flooded.send(&mut play, Command::RELAY, &[1; BODY_LEN]);
    }
    assert_eq!(flooded.until_destroyed(&mut play), DestroyReason::RESOURCE_LIMIT);
    beside.send(&mut play, Command::RELAY, &[1; BODY_LEN]);
    elsewhere.send(&mut play, Command::RELAY, &[1; BODY_LEN]);
    for circ_id in forth {
        play.until_party(next.actor, |party| party.cell(circ_id, Command::RELAY).is_some());
    }
    assert_eq!(play.open_circuits(), 2);
}

/// What takes minutes: in virtual time only.
mod upkeep {
    use super::*;
    use crate::common::stage::VirtualTime;
    use onion::Duration;

    #[test]
    fn a_link_that_nobody_uses_is_closed_and_one_with_a_circuit_is_not() {
        let mut play = scene(VirtualTime::new(1, None));
        let (idle, user) = (play.add_party(), play.add_party());
        let _circuit = Built::new(&mut play, user, id(1));
        assert!(play.party(idle).is_open());
        play.pass(Duration::from_secs(400));
        assert_eq!(play.stage.conns(), Some(1));
        assert_eq!(play.open_circuits(), 1);
        assert!(play.party(user).cell(id(1), Command::DESTROY).is_none());
    }
}
