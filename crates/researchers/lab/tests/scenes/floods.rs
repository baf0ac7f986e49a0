//! Abusive clients, and a quiet circuit that must not be affected.

use crate::common::network::{Net, Relay, World};
use crate::common::peer::{Peer, sealed};
use crate::common::stage::NodeHandle;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::client::Transfer;
use onion::crypto::ClientHop;
use onion::router::RateLimit;
use onion::{Duration, Rate};

crate::common::stage::in_both_worlds! {
    a_flood_of_creates_is_refused_beyond_a_bound_and_delays_no_other_circuit
    a_flood_of_begins_is_refused_beyond_a_bound
    undecryptable_cells_end_only_their_circuit
    data_beyond_the_window_ends_only_its_circuit
    a_limited_relay_reads_no_more_than_its_limit_and_serves_others_meanwhile
}

fn a_flood_of_creates_is_refused_beyond_a_bound_and_delays_no_other_circuit<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let before = net.round_trip(quiet);
    let flooder = net.add_peer(0);
    let (bound, over) = (10_000, 500);
    for number in (1..).take(bound + over) {
        let peer: &mut Peer = net.stage.node(flooder);
        peer.send(CircId::of_initiator(number), Command::CREATE_FAST, &[7; 20]);
    }
    let during = net.round_trip(quiet);
    if W::IS_EXACT {
        assert_eq!(before, during);
    }
    net.until(|net| net.stage.node::<Peer>(flooder).received.len() == bound + over);
    assert_eq!(net.relay(0).open_circuits(), bound + 1);
    let received = &net.stage.node::<Peer>(flooder).received;
    let refused = received.iter().filter(|(_, command, body)| {
        *command == Command::DESTROY && DestroyReason::parse(body) == DestroyReason::RESOURCE_LIMIT
    });
    assert_eq!(refused.count(), over);
    net.stage.node::<Peer>(flooder).close();
    net.until(|net| net.relay(0).open_circuits() == 1);
    net.round_trip(quiet);
}

/// Opens a circuit of one hop from a peer.
fn open_one<W: World>(net: &mut Net<W>, relay: usize) -> (NodeHandle, CircId, ClientHop) {
    let (node, circ_id) = (net.add_peer(relay), CircId::of_initiator(1));
    let peer: &mut Peer = net.stage.node(node);
    peer.send(circ_id, Command::CREATE_FAST, &[7; 20]);
    net.until(|net| !net.stage.node::<Peer>(node).received.is_empty());
    let keys = net.stage.node::<Peer>(node).fast_keys(circ_id, [7; 20]).expect("answered");
    (node, circ_id, ClientHop::new(&keys))
}

/// Waits until a circuit is destroyed, and returns the reason.
fn destroyed<W: World>(net: &mut Net<W>, node: NodeHandle, circ_id: CircId) -> DestroyReason {
    net.until(|net| net.stage.node::<Peer>(node).cell(circ_id, Command::DESTROY).is_some());
    let body = net.stage.node::<Peer>(node).cell(circ_id, Command::DESTROY).expect("it is there");
    DestroyReason::parse(body)
}

fn a_flood_of_begins_is_refused_beyond_a_bound<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (flooder, circ_id, mut hop) = open_one(&mut net, 2);
    net.server().pause();
    for stream_id in 1..=2_000 {
        let body = sealed(&mut hop, RelayCommand::BEGIN_DIR, stream_id, b"");
        net.stage.node::<Peer>(flooder).send(circ_id, Command::RELAY, &body);
    }
    // The directory has 1,000 places; each BEGIN_DIR beyond them is answered with an END.
    net.until(|net| net.stage.node::<Peer>(flooder).received.len() == 2_001);
    assert_eq!(net.relay(2).open_streams(), 1_000);
    net.round_trip(quiet);
    net.stage.node::<Peer>(flooder).send(circ_id, Command::DESTROY, &[0]);
    // A peer that does not read does not receive DESTROY either.
    net.server().resume();
    net.until(|net| net.relay(2).open_streams() == 0 && net.server().open_conns() == 0);
    net.transfer(quiet, Transfer::download(1, 10_000));
}

fn undecryptable_cells_end_only_their_circuit<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (peer, circ_id, mut hop) = open_one(&mut net, 0);
    let mut body = sealed(&mut hop, RelayCommand::DROP, 0, b"x");
    body[300] ^= 1;
    net.stage.node::<Peer>(peer).send(circ_id, Command::RELAY, &body);
    assert_eq!(destroyed(&mut net, peer, circ_id), DestroyReason::PROTOCOL);
    net.round_trip(quiet);
    assert!(net.stage.node::<Peer>(peer).is_open(), "the link remains open");
}

fn data_beyond_the_window_ends_only_its_circuit<W: World>(world: W) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let (peer, circ_id, mut hop) = open_one(&mut net, 2);
    net.server().pause();
    let begin = sealed(&mut hop, RelayCommand::BEGIN_DIR, 1, b"");
    net.stage.node::<Peer>(peer).send(circ_id, Command::RELAY, &begin);
    net.until(|net| net.stage.node::<Peer>(peer).received.len() == 2);
    // The kernel's buffers take some cells, which are acknowledged: send more.
    for _ in 0..30_000 {
        let body = sealed(&mut hop, RelayCommand::DATA, 1, &[1; 498]);
        net.stage.node::<Peer>(peer).send(circ_id, Command::RELAY, &body);
    }
    let reason = destroyed(&mut net, peer, circ_id);
    assert_eq!(reason, DestroyReason::PROTOCOL);
    net.until(|net| net.relay(2).queued_bytes() == 0);
    net.server().resume();
    net.transfer(quiet, Transfer::download(1, 10_000));
}

/// The flooders send cells of circuits that do not exist: nothing but the read limit stops them.
fn a_limited_relay_reads_no_more_than_its_limit_and_serves_others_meanwhile<W: World>(world: W) {
    const FLOODERS: usize = 12;
    const FLOOD_CELLS: usize = 200;
    let limit = RateLimit { rate: Rate::from_mbit_per_s(2.0), burst_bytes: 30_000 };
    let mut net = Net::with(world, |place, config| {
        config.limit = (place == 0).then_some(limit);
    });
    let quiet = net.circuit(false);
    let flooders: Vec<NodeHandle> = (0..FLOODERS).map(|_| net.add_peer(0)).collect();
    let mut cell = [0x55; onion::cell::CELL_LEN];
    cell[..4].copy_from_slice(&CircId::of_initiator(9).get().to_be_bytes());
    cell[4] = Command::RELAY.get();
    let relay = net.relays[0];
    let received = |net: &mut Net<W>| net.stage.received_bytes::<Relay>(relay);
    assert_eq!(net.relay(0).totals().limited_reads, 0);
    let (began, before) = (net.stage.now(), received(&mut net));
    for flooder in &flooders {
        net.stage.node::<Peer>(*flooder).send_raw(&cell.repeat(FLOOD_CELLS));
    }
    // The relay's queue is full, and an honest client goes on.
    net.until(|net| net.relay(0).totals().limited_reads > 20);
    let round_trip = net.round_trip(quiet);
    if W::IS_EXACT {
        assert!(round_trip < Duration::from_secs(1), "{round_trip:?}");
    }
    net.transfer(quiet, Transfer::download(1, 20_000));
    let flooded = (FLOODERS * FLOOD_CELLS * onion::cell::CELL_LEN) as u64;
    let so_far = received(&mut net) - before;
    assert!(so_far < flooded * 9 / 10, "served while the flood lasts: {so_far} of {flooded}");
    net.until(|net| {
        let (took, bytes) = (net.stage.now() - began, received(net) - before);
        // In addition, what is queued and the overhead of TLS for each cell that is sent.
        let permitted = limit.rate.bytes_in(took) + limit.burst_bytes + 20_000;
        assert!(bytes <= permitted, "{bytes} bytes in {took:?}");
        bytes >= flooded
    });
    let took = net.stage.now() - began;
    if W::IS_EXACT {
        let used = (received(&mut net) - before) as f64 / limit.rate.bytes_in(took) as f64;
        assert!(used > 0.95, "the limit is used: {used}");
    }
    // All is well afterwards, and nobody was closed.
    net.round_trip(quiet);
    for flooder in flooders {
        assert!(net.stage.node::<Peer>(flooder).is_open());
    }
}
