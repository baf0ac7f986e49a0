//! Hop-by-hop windows between our routers and with our client; and paths on which only some nodes have them.

use crate::common::network::{Net, World};
use crate::common::stage::VirtualTime;
use onion::client::Transfer;
use onion::flow::hop::{HopFlows, HopWindows};
use onion::router::RateLimit;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::wire::PathModel;
use std::sync::Arc;

crate::common::stage::in_both_worlds! {
    transfers_are_intact_at_all_sizes_with_windows_from_hop_to_hop
    transfers_are_intact_with_a_middle_relay_that_has_no_windows
    data_for_a_client_that_does_not_read_waits_at_its_source
}

/// Sizes around those of a cell, of the first trains, and of end-to-end windows.
const SIZES: [u64; 5] = [0, 490, 5_000, 100_000, 1_200 * 498 + 7];

fn flows(windows: HopWindows) -> Arc<HopFlows> {
    Arc::new(windows.flows(SchedulerConfig::INTERVAL))
}

/// A network in which some nodes of the path have windows: one bit each for the client and the relays.
fn net<W: World>(world: W, windows: HopWindows, who: u8) -> Net<W> {
    limited_net(world, windows, who, None)
}

/// A network like that of [`net`] with a limit of the middle relay.
fn limited_net<W: World>(
    world: W,
    windows: HopWindows,
    who: u8,
    limit: Option<RateLimit>,
) -> Net<W> {
    let mut net = Net::with(world, |place, config| {
        if who & (2 << place) != 0 {
            config.flows = flows(windows);
        }
        config.limit = limit.filter(|_| place == 1);
    });
    if who & 1 != 0 {
        net.client().set_flows(flows(windows));
    }
    net
}

const ALL: u8 = 0b1111;

/// Cells are reported to exactly those relays that have windows and a neighbour with windows.
#[track_caller]
fn assert_feedback<W: World>(net: &mut Net<W>, who: u8) {
    for place in 0..3 {
        let neighbours = 0b101u8 << place;
        let has_feedback = who & (2 << place) != 0 && who & neighbours & ALL != 0;
        let cells = net.relay(place).totals().passed_on_cells;
        assert_eq!(cells > 0, has_feedback, "relay {place} of {who:04b}: {cells} cells");
    }
}

fn transfers_are_intact_at_all_sizes_with_windows_from_hop_to_hop<W: World>(world: W) {
    let mut net = net(world, HopWindows::CircuitStartAgain, ALL);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        for (seed, size) in (1..).zip(SIZES) {
            let transfer = Transfer { seed, download_bytes: size, upload_bytes: size };
            net.transfer(circuit, transfer);
        }
        net.client().destroy(circuit);
    }
    net.assert_empty();
    assert_feedback(&mut net, ALL);
    for place in 0..3 {
        let totals = *net.relay(place).totals();
        assert_eq!((totals.feedback_refused, totals.stalled_circuits), (0, 0), "relay {place}");
    }
}

fn transfers_are_intact_with_a_middle_relay_that_has_no_windows<W: World>(world: W) {
    transfers_are_intact(world, 0b1011);
}

fn transfers_are_intact<W: World>(world: W, who: u8) {
    let mut net = net(world, HopWindows::CircuitStart, who);
    let circuit = net.circuit(true);
    let transfer = Transfer { seed: 3, download_bytes: 300_000, upload_bytes: 300_000 };
    net.transfer(circuit, transfer);
    net.client().destroy(circuit);
    net.assert_empty();
    assert_feedback(&mut net, who);
}

#[test]
fn transfers_are_intact_with_windows_at_any_nodes_of_the_path() {
    (0..=ALL).for_each(|who| transfers_are_intact(VirtualTime::new(1, Some(3000)), who));
}

#[test]
fn transfers_are_intact_with_windows_of_each_kind() {
    let all = [
        HopWindows::BackTap,
        HopWindows::CircuitStart,
        HopWindows::CircuitStartAgain,
        HopWindows::SlowStart,
        HopWindows::JumpStart { cells: 200 },
        HopWindows::Fixed { cells: 3 },
    ];
    for windows in all {
        let mut net = net(VirtualTime::new(1, Some(3000)), windows, ALL);
        let circuit = net.circuit(false);
        let transfer = Transfer { seed: 4, download_bytes: 60_000, upload_bytes: 60_000 };
        net.transfer(circuit, transfer);
        net.client().destroy(circuit);
        net.assert_empty();
        assert_feedback(&mut net, ALL);
    }
}

fn data_for_a_client_that_does_not_read_waits_at_its_source<W: World>(world: W) {
    let mut net = net(world, HopWindows::CircuitStart, ALL);
    let circuit = net.circuit(false);
    let stream = net.begin(circuit, Transfer::download(1, 6_000_000));
    net.client().pause(stream);
    net.until(|net| {
        net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 400 * 490)
    });
    net.pass(Duration::from_millis(if W::IS_EXACT { 20_000 } else { 300 }));
    // Relays queue nothing, and the client has received at most the window of a stream.
    net.until(|net| (0..2).all(|place| net.relay(place).queued_bytes() == 0));
    let received = net.client().figures(stream).expect("it is open").received_bytes;
    assert!(received <= 500 * 498, "{received} bytes");
    let now = net.stage.now();
    net.client().resume(now, stream);
    net.complete(stream);
    net.client().destroy(circuit);
    net.assert_empty();
    assert_feedback(&mut net, ALL);
}

/// The result of a download through a relay with a rate limit.
struct LimitedDownload {
    took: Duration,
    /// The mean time that a cell waits at that relay.
    waits: Duration,
}

/// Downloads through three relays with 20 ms between them; the middle one is limited to 8 Mbit/s.
fn download_through_a_limited_middle(windows: HopWindows, who: u8) -> LimitedDownload {
    let mut stage = VirtualTime::new(1, None);
    stage
        .wire
        .set_all_paths(PathModel { latency: Duration::from_millis(20), ..PathModel::default() });
    let limit = RateLimit { rate: Rate::from_mbit_per_s(8.0), burst_bytes: 60_000 };
    let mut net = limited_net(stage, windows, who, Some(limit));
    let circuit = net.circuit(false);
    let (sent, waited) = (net.relay(1).totals().client_bytes, net.relay(1).waited_cell_s());
    let took = net.transfer(circuit, Transfer::download(1, 4_000_000)).to_last();
    let cells = (net.relay(1).totals().client_bytes - sent) as f64 / 514.0;
    let waits = Duration::from_secs_f64((net.relay(1).waited_cell_s() - waited) / cells);
    net.client().destroy(circuit);
    net.assert_empty();
    LimitedDownload { took, waits }
}

#[test]
fn with_windows_cells_wait_at_their_source_and_not_at_the_bottleneck() {
    let without = download_through_a_limited_middle(HopWindows::CircuitStart, 0);
    let with = download_through_a_limited_middle(HopWindows::CircuitStart, ALL);
    // A stream's window of 500 cells takes a quarter of a second at 8 Mbit/s; all cells that are not in flight wait
    // here.
    assert!(without.waits > Duration::from_millis(100), "{:?}", without.waits);
    assert!(with.waits * 2 < without.waits, "{:?} and {:?}", with.waits, without.waits);
    assert!(with.took < without.took * 5 / 4, "{:?} and {:?}", with.took, without.took);
}

#[test]
fn a_bottleneck_without_windows_is_controlled_from_end_to_end() {
    let without = download_through_a_limited_middle(HopWindows::CircuitStart, 0);
    let mixed = download_through_a_limited_middle(HopWindows::CircuitStart, 0b1011);
    let (waits, other) = (mixed.waits, without.waits);
    assert!(waits > other * 4 / 5 && waits < other * 6 / 5, "{waits:?} and {other:?}");
    assert!(mixed.took < without.took * 11 / 10, "{:?} and {:?}", mixed.took, without.took);
}
