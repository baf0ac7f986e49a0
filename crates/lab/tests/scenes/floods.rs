//! Abusive clients, and a quiet circuit that must not be affected.

use crate::common::network::{Net, World};
use crate::common::party::{Party, sealed};
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::client::Transfer;
use onion::crypto::ClientHop;

crate::common::stage::in_both_worlds! {
    a_flood_of_creates_is_refused_beyond_a_bound_and_disturbs_nobody
    a_flood_of_begins_is_refused_beyond_a_bound
    cells_that_do_not_decrypt_end_their_circuit_alone
    data_beyond_the_window_ends_the_circuit_alone
}

fn a_flood_of_creates_is_refused_beyond_a_bound_and_disturbs_nobody<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let before = net.round_trip(quiet);
    let flooder = net.add_party(0);
    let (bound, over) = (10_000, 500);
    for number in (1..).take(bound + over) {
        let party: &mut Party = net.stage.node(flooder);
        party.send(CircId::of_initiator(number), Command::CREATE_FAST, &[7; 20]);
    }
    let during = net.round_trip(quiet);
    if W::IS_EXACT {
        assert_eq!(before, during);
    }
    net.until(|net| net.stage.node::<Party>(flooder).came.len() == bound + over);
    assert_eq!(net.relay(0).open_circuits(), bound + 1);
    let came = &net.stage.node::<Party>(flooder).came;
    let refused = came.iter().filter(|(_, command, body)| {
        *command == Command::DESTROY && DestroyReason::parse(body) == DestroyReason::RESOURCE_LIMIT
    });
    assert_eq!(refused.count(), over);
    net.stage.node::<Party>(flooder).close();
    net.until(|net| net.relay(0).open_circuits() == 1);
    net.round_trip(quiet);
}

/// A circuit of one hop that a party has opened.
fn open_one<W: World>(
    net: &mut Net<W>,
    relay: usize,
) -> (crate::common::stage::Actor, CircId, ClientHop) {
    let (actor, circ_id) = (net.add_party(relay), CircId::of_initiator(1));
    let party: &mut Party = net.stage.node(actor);
    party.send(circ_id, Command::CREATE_FAST, &[7; 20]);
    net.until(|net| !net.stage.node::<Party>(actor).came.is_empty());
    let keys = net.stage.node::<Party>(actor).fast_keys(circ_id, [7; 20]).expect("answered");
    (actor, circ_id, ClientHop::new(&keys))
}

/// The reason with which its circuit was destroyed.
fn destroyed<W: World>(
    net: &mut Net<W>,
    actor: crate::common::stage::Actor,
    circ_id: CircId,
) -> DestroyReason {
    net.until(|net| net.stage.node::<Party>(actor).cell(circ_id, Command::DESTROY).is_some());
    let body = net.stage.node::<Party>(actor).cell(circ_id, Command::DESTROY).expect("it is there");
    DestroyReason::parse(body)
}

fn a_flood_of_begins_is_refused_beyond_a_bound<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (flooder, circ_id, mut hop) = open_one(&mut net, 2);
    net.server().pause();
    for stream_id in 1..=2_000 {
        let body = with_stream(&mut hop, RelayCommand::BEGIN_DIR, stream_id, b"");
        net.stage.node::<Party>(flooder).send(circ_id, Command::RELAY, &body);
    }
    // The directory has 1,000 places; each BEGIN_DIR beyond them is answered with an END.
    net.until(|net| net.stage.node::<Party>(flooder).came.len() == 2_001);
    assert_eq!(net.relay(2).open_streams(), 1_000);
    net.round_trip(quiet);
    net.stage.node::<Party>(flooder).send(circ_id, Command::DESTROY, &[0]);
    // A peer that does not read does not receive DESTROY either.
    net.server().resume();
    net.until(|net| net.relay(2).open_streams() == 0 && net.server().open_conns() == 0);
    let stream = net.begin(quiet, Transfer::download(1, 10_000));
    net.complete(stream);
}

fn with_stream(
    hop: &mut ClientHop,
    command: RelayCommand,
    stream_id: u16,
    data: &[u8],
) -> [u8; BODY_LEN] {
    let message = onion::cell::relay::RelayMessage { command, stream_id, data };
    let mut body = message.to_body().expect("it fits");
    hop.encrypt(&mut body);
    body
}

fn cells_that_do_not_decrypt_end_their_circuit_alone<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (party, circ_id, mut hop) = open_one(&mut net, 0);
    let mut body = sealed(&mut hop, RelayCommand::DROP, b"x");
    body[300] ^= 1;
    net.stage.node::<Party>(party).send(circ_id, Command::RELAY, &body);
    assert_eq!(destroyed(&mut net, party, circ_id), DestroyReason::PROTOCOL);
    net.round_trip(quiet);
    assert!(net.stage.node::<Party>(party).is_open(), "the link is not to blame");
}

fn data_beyond_the_window_ends_the_circuit_alone<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (party, circ_id, mut hop) = open_one(&mut net, 2);
    net.server().pause();
    let begin = with_stream(&mut hop, RelayCommand::BEGIN_DIR, 1, b"");
    net.stage.node::<Party>(party).send(circ_id, Command::RELAY, &begin);
    net.until(|net| net.stage.node::<Party>(party).came.len() == 2);
    // SENDMEs may still come for what the kernel takes: more than that.
    for _ in 0..30_000 {
        let body = with_stream(&mut hop, RelayCommand::DATA, 1, &[1; 498]);
        net.stage.node::<Party>(party).send(circ_id, Command::RELAY, &body);
    }
    let reason = destroyed(&mut net, party, circ_id);
    assert_eq!(reason, DestroyReason::PROTOCOL);
    net.until(|net| net.relay(2).queued_bytes() == 0);
    net.server().resume();
    let stream = net.begin(quiet, Transfer::download(1, 10_000));
    net.complete(stream);
}
