//! Circuits that end, or are never built.

use crate::common::identities::UNIX_TIME_S;
use crate::common::network::{Net, SOON, TorClient, World, identities};
use crate::common::peer::Peer;
use onion::Duration;
use onion::cell::msg::DestroyReason;
use onion::circuit::{CircuitError, NextHop};
use onion::client::{CircuitPlan, Loss, Transfer};
use std::sync::Arc;

crate::common::stage::in_both_worlds! {
    a_destroyed_circuit_leaves_nothing
    an_ended_stream_leaves_nothing
    a_client_that_vanishes_leaves_nothing
    extending_to_itself_to_a_closed_port_and_to_another_relay_fails_with_a_reason
    a_next_hop_that_never_answers_does_not_delay_other_circuits
    a_circuit_survives_jumps_of_the_wall_clock
}

fn a_destroyed_circuit_leaves_nothing<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        let down = net.begin(circuit, Transfer::download(1, 5_000_000));
        let up = net.begin(circuit, Transfer::upload(2, 5_000_000));
        net.until(|net| {
            let client = net.client();
            client.figures(down).is_some_and(|figures| figures.received_bytes > 100_000)
                && client.figures(up).is_some_and(|figures| figures.sent_bytes > 100_000)
        });
        net.client().destroy(circuit);
        net.assert_empty();
    }
}

fn an_ended_stream_leaves_nothing<W: World>(world: W) {
    let mut net = Net::new(world);
    let circuit = net.circuit(false);
    let stream = net.begin(circuit, Transfer::download(1, 5_000_000));
    net.until(|net| {
        net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 100_000)
    });
    net.client().end(stream);
    net.until(|net| net.relay(2).open_streams() == 0 && net.server().open_conns() == 0);
    // Cells in flight have used some of the circuit's window, which SENDMEs restore.
    net.transfer(circuit, Transfer::download(2, 1_000_000));
    net.client().destroy(circuit);
    net.assert_empty();
}

fn a_client_that_vanishes_leaves_nothing<W: World>(world: W) {
    let mut net = Net::new(world);
    let other = net.add_client();
    net.begin_from(other, Transfer::download(1, 50_000_000));
    net.until(|net| net.server().open_conns() == 1 && net.relay(2).open_streams() == 1);
    // Its links close without a DESTROY.
    let client: &mut TorClient = net.stage.node(other);
    client.close_all();
    net.assert_empty();
}

fn extending_to_itself_to_a_closed_port_and_to_another_relay_fails_with_a_reason<W: World>(
    world: W,
) {
    let mut net = Net::new(world);
    let quiet = net.circuit(false);
    let first = net.hops[0];
    // A relay without links.
    let other = Arc::clone(&identities().relays[3]);
    let nowhere = NextHop::to_own(&other, net.stage.nowhere());
    // Another relay listens at this address.
    let stranger = NextHop::to_own(&other, net.hops[2].address);
    for (next, reason) in [
        (first, DestroyReason::CONNECT_FAILED),
        (nowhere, DestroyReason::CONNECT_FAILED),
        (stranger, DestroyReason::CHANNEL_CLOSED),
    ] {
        let circuit =
            net.open(&CircuitPlan { has_own_link: true, ..CircuitPlan::new(vec![first, next]) });
        let Loss::Circuit(CircuitError::Destroyed(found)) = net.lost(circuit) else {
            panic!("not destroyed")
        };
        let is_as_expected =
            found == reason || next == stranger && found == DestroyReason::CONNECT_FAILED;
        assert!(is_as_expected, "{found} for {reason}");
        net.round_trip(quiet);
    }
    net.client().destroy(quiet);
    net.client().close_idle();
    net.until(|net| (0..3).all(|place| net.relay(place).open_circuits() == 0));
}

fn a_next_hop_that_never_answers_does_not_delay_other_circuits<W: World>(world: W) {
    let mut net = Net::new(world);
    let mute_at = net.stage.reserve();
    let mute = Peer::mute(UNIX_TIME_S);
    let mute = net.stage.add(mute, &identities().issuer, &[mute_at]);
    let hop = NextHop::to_own(&Arc::clone(&identities().relays[3]), mute_at);
    let path = CircuitPlan::new(vec![net.hops[0], hop]);
    let waiting = net.open(&path);
    net.stage.until(SOON, |stage| stage.node::<Peer>(mute).is_accepted());
    let circuit = net.circuit(false);
    net.transfer(circuit, Transfer::download(1, 100_000));
    assert!(!net.client().is_built(waiting));
    if W::IS_EXACT {
        // The relay abandons the link after half a minute.
        let Loss::Circuit(CircuitError::Destroyed(_)) = net.lost(waiting) else {
            panic!("not destroyed")
        };
    } else {
        net.client().destroy(waiting);
    }
    net.client().destroy(circuit);
    net.until(|net| (0..3).all(|place| net.relay(place).open_circuits() == 0));
}

fn a_circuit_survives_jumps_of_the_wall_clock<W: World>(world: W) {
    let mut net = Net::new(world);
    let circuit = net.circuit(true);
    let year = 366 * 86_400;
    for unix_time_s in [20 * year, 80 * year, UNIX_TIME_S] {
        let now = net.stage.now();
        (0..3).for_each(|place| net.relay(place).set_unix_time(now, unix_time_s));
        net.transfer(circuit, Transfer::download(unix_time_s, 200_000));
    }
    if W::IS_EXACT {
        // A suspended machine: hours pass at once.
        net.pass(Duration::from_secs(7 * 3600));
        net.transfer(circuit, Transfer::download(7, 200_000));
    }
    net.client().destroy(circuit);
    net.assert_empty();
}
