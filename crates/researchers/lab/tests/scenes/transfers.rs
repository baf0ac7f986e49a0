//! Normal streams.

use crate::common::network::{Net, World};
use onion::cell::msg::EndReason;
use onion::client::{CircuitPlan, Destination, Outcome, Transfer};
use onion::router::RateLimit;
use onion::{Duration, Rate};

crate::common::stage::in_both_worlds! {
    downloads_through_three_relays_are_intact_at_all_sizes
    uploads_through_three_relays_are_intact_at_all_sizes
    transfers_in_both_directions_are_intact_at_all_sizes_with_counter_galois_onion
    simultaneous_transfers_in_both_directions_are_intact_with_either_flow_control
    directory_streams_reach_the_relays_own_directory
    many_streams_share_a_circuit
    both_ends_report_their_transfers
    a_refused_begin_has_a_reason
    a_rate_limit_is_fully_used
}

/// Sizes around those of a cell, a stream's window and a circuit's window.
const SIZES: [u64; 10] =
    [0, 1, 489, 490, 491, 498, 5_000, 490 * 498, 500 * 498 + 1, 1_200 * 498 + 7];

fn downloads_through_three_relays_are_intact_at_all_sizes<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        for (seed, size) in (1..).zip(SIZES) {
            let figures = net.transfer(circuit, Transfer::download(seed, size));
            assert_eq!(figures.received_bytes, size + 8);
            assert!(figures.to_first_byte() <= Some(figures.to_last()));
        }
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

fn uploads_through_three_relays_are_intact_at_all_sizes<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        for (seed, size) in (1..).zip(SIZES) {
            let figures = net.transfer(circuit, Transfer::upload(seed, size));
            assert_eq!(figures.sent_bytes, size + 24);
        }
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

/// Only the last hop uses Counter Galois Onion; paths of two and of three hops.
fn transfers_in_both_directions_are_intact_at_all_sizes_with_counter_galois_onion<W: World>(
    world: W,
) {
    /// Sizes around that of such a cell.
    const CELL_SIZES: [u64; 4] = [480, 487, 488, 700 * 488];
    let mut net = Net::new(world);
    for hops in [3, 2] {
        let asked = CircuitPlan { has_congestion_control: true, has_cgo: true, ..net.path(hops) };
        let circuit = net.built(&asked);
        for (seed, size) in (1..).zip(SIZES.into_iter().chain(CELL_SIZES)) {
            let transfer = Transfer { seed, download_bytes: size, upload_bytes: size };
            net.transfer(circuit, transfer);
        }
        net.client().destroy(circuit);
        assert_eq!(net.relay(hops - 1).totals().cgo_circuits, 1, "the last hop of {hops} alone");
    }
    assert_eq!(net.relay(0).totals().cgo_circuits, 0);
    net.assert_empty();
}

fn simultaneous_transfers_in_both_directions_are_intact_with_either_flow_control<W: World>(
    world: W,
) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        let transfer = Transfer { seed: 5, download_bytes: 400_000, upload_bytes: 400_000 };
        net.transfer(circuit, transfer);
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

fn directory_streams_reach_the_relays_own_directory<W: World>(world: W) {
    let mut net = Net::new(world);
    for hops in [1, 3] {
        let path = CircuitPlan { is_fast: hops == 1, ..net.path(hops) };
        let circuit = net.built(&path);
        let transfer = Transfer::download(9, 100_000);
        let stream = net.begin_to(circuit, Destination::Directory, transfer);
        net.complete(stream);
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

fn many_streams_share_a_circuit<W: World>(world: W) {
    let mut net = Net::new(world);
    let circuit = net.circuit(false);
    let streams: Vec<_> =
        (0..40).map(|seed| net.begin(circuit, Transfer::download(seed, 20_000))).collect();
    for stream in streams {
        net.complete(stream);
    }
    net.client().destroy(circuit);
    net.assert_empty();
}

fn both_ends_report_their_transfers<W: World>(world: W) {
    let mut net = Net::new(world);
    let circuit = net.circuit(false);
    let transfers = [
        Transfer::download(1, 20_000),
        Transfer { upload_bytes: 3_000, ..Transfer::download(2, 0) },
    ];
    for transfer in transfers {
        let figures = net.transfer(circuit, transfer);
        let answer = net.server().poll_answer().expect("the server has answered");
        assert_eq!(answer.transfer, transfer);
        if W::IS_EXACT {
            assert!(figures.connected_at < Some(answer.began_at));
            assert!(Some(answer.began_at) < figures.first_byte_at);
        }
    }
    assert_eq!(net.server().poll_answer(), None);
    assert_eq!(net.client().received_bytes(), 20_000 + 8 + 8);
}

fn a_refused_begin_has_a_reason<W: World>(world: W) {
    let mut net = Net::new(world);
    let circuit = net.circuit(false);
    let round_trip = net.round_trip(circuit);
    if W::IS_EXACT {
        // Three links in each direction, ten milliseconds each.
        assert_eq!(round_trip, Duration::from_millis(60));
    }
    let nowhere = net.stage.nowhere();
    let stream = net.begin_to(circuit, nowhere.into(), Transfer::download(0, 0));
    assert_eq!(net.over(stream).0, Outcome::Ended(EndReason::CONNECT_REFUSED));
    let name = Destination::Host("no.such.name".into(), 80, Default::default());
    let stream = net.begin_to(circuit, name, Transfer::download(0, 0));
    assert_eq!(net.over(stream).0, Outcome::Ended(EndReason::RESOLVE_FAILED));
    net.client().destroy(circuit);
    // An exit refuses circuits of one hop.
    let path = net.path(1);
    let circuit = net.built(&path);
    let stream = net.begin(circuit, Transfer::download(0, 0));
    assert_eq!(net.over(stream).0, Outcome::Ended(EndReason::TOR_PROTOCOL));
    net.client().destroy(circuit);
    net.assert_empty();
}

fn a_rate_limit_is_fully_used<W: World>(world: W) {
    let rate = Rate::from_mbit_per_s(16.0);
    // KIST sends whole records every ten milliseconds: with a smaller burst, bytes would be lost between them.
    let limit = Some(RateLimit { rate, burst_bytes: 60_000 });
    let mut net = Net::with(world, |place, config| {
        if place == 1 {
            config.limit = limit;
        }
    });
    let circuit = net.circuit(false);
    let bytes = 1_000_000;
    let figures = net.transfer(circuit, Transfer::download(3, bytes));
    let took = figures.last_at - figures.first_byte_at.expect("there are bytes");
    let sent = net.relay(1).totals().client_bytes;
    let share = |bytes| Rate::from_bytes_over(bytes, took).as_mbit_per_s() / rate.as_mbit_per_s();
    // A cell of 514 bytes carries at most 498; saved-up bytes may be sent at once.
    let (used, got) = (share(sent), share(bytes));
    let least = if W::IS_EXACT { 0.9 } else { 0.4 };
    assert!((least..1.1).contains(&used) && got > 0.6 * used, "{used}, {got}");
}
