//! Circuits that are linked at their exit (proposal 329), between our client and our router.

use crate::common::network::{Net, World};
use crate::common::stage::{Stage, VirtualTime};
use onion::cell::msg::DesiredUx;
use onion::client::{
    CircuitNumber, CircuitPlan, ClientEvent, LegFigures, Loss, Outcome, SetPlan, Transfer,
};
use onion::tunnel::conflux::{ConfluxError, LegScheduler, schedulers};
use onion::{Duration, Rate};
use sim::wire::PathModel;

crate::common::stage::in_both_worlds! {
    transfers_over_linked_circuits_are_intact_at_all_sizes_by_each_scheduler
    many_streams_share_linked_circuits_in_both_directions
    linked_circuits_with_counter_galois_onion_are_intact
    a_relay_links_no_circuits_if_the_consensus_forbids_it
    surplus_legs_are_refused_and_the_others_continue
    without_congestion_control_nothing_is_linked
}

/// Sizes around that of a cell, and several windows.
const SIZES: [u64; 6] = [0, 1, 488, 498, 5_000, 700 * 498 + 7];

/// Two to four paths to the third relay: through the first, the second, and both.
fn legs<S: World>(net: &Net<S>, count: usize) -> Vec<CircuitPlan> {
    let paths: [&[usize]; 4] = [&[0, 2], &[1, 2], &[0, 1, 2], &[1, 0, 2]];
    let plan = |path: &&[usize]| CircuitPlan::new(path.iter().map(|hop| net.hops[*hop]).collect());
    paths[..count].iter().map(plan).collect()
}

/// Links circuits.
#[track_caller]
fn linked<S: World>(net: &mut Net<S>, plan: &SetPlan) -> CircuitNumber {
    let now = net.stage.now();
    let set = net.client().open_set(now, plan);
    net.until(|net| net.client().is_built(set));
    assert_eq!(net.client().legs(set).len(), plan.legs.len());
    set
}

/// A network whose relays use this scheduler for all sets.
fn scheduled<W: World>(world: W, scheduler: &'static dyn LegScheduler) -> Net<W> {
    Net::with(world, |_, config| config.conflux_scheduler = Some(scheduler))
}

fn transfers_over_linked_circuits_are_intact_at_all_sizes_by_each_scheduler<W: World>(world: W) {
    let mut net = Net::new(world);
    let mut seed = 0;
    for (place, scheduler) in schedulers::ALL.into_iter().enumerate() {
        let count = 2 + place % 3;
        let plan = SetPlan { scheduler, ..SetPlan::new(legs(&net, count)) };
        let set = linked(&mut net, &plan);
        for size in SIZES {
            for (download_bytes, upload_bytes) in [(size, 0), (0, size), (size, size)] {
                seed += 1;
                let transfer = Transfer { seed, download_bytes, upload_bytes };
                let stream = net.begin(set, transfer);
                let (outcome, figures) = net.over(stream);
                assert_eq!(outcome, Outcome::Complete, "{}, {size}: {figures:?}", scheduler.name());
            }
        }
        net.client().destroy(set);
    }
    assert_eq!(net.relay(2).totals().conflux_sets, schedulers::ALL.len() as u64);
    net.assert_idle();
}

fn many_streams_share_linked_circuits_in_both_directions<W: World>(world: W) {
    let mut net = Net::new(world);
    let plan = SetPlan { scheduler: &schedulers::LowRtt, ..SetPlan::new(legs(&net, 3)) };
    let set = linked(&mut net, &plan);
    let transfer = |seed| Transfer { seed, download_bytes: 400_000, upload_bytes: 300_000 };
    let streams: Vec<_> = (1..=8).map(|seed| net.begin(set, transfer(seed))).collect();
    for stream in streams {
        net.complete(stream);
    }
    let all = net.client().legs(set);
    assert!(all.iter().all(|leg| leg.received > 20 && leg.sent > 20), "{all:?}");
    net.client().destroy(set);
    net.assert_idle();
}

fn linked_circuits_with_counter_galois_onion_are_intact<W: World>(world: W) {
    let mut net = Net::new(world);
    // One leg with each kind of layer: buffered messages have either format.
    let mut paths = legs(&net, 2);
    paths[1].has_cgo = true;
    let plan = SetPlan { scheduler: &schedulers::LowRtt, ..SetPlan::new(paths) };
    let set = linked(&mut net, &plan);
    for (seed, size) in (1..).zip(SIZES) {
        net.transfer(set, Transfer { seed, download_bytes: size, upload_bytes: size });
    }
    net.client().destroy(set);
    net.assert_idle();
}

fn a_relay_links_no_circuits_if_the_consensus_forbids_it<W: World>(world: W) {
    let mut net = Net::new(world);
    let parameters = onion::router::Parameters::from_consensus([("cfx_enabled", 0)]);
    net.relay(2).set_parameters(parameters);
    let plan = SetPlan::new(legs(&net, 2));
    let now = net.stage.now();
    let set = net.client().open_set(now, &plan);
    assert!(matches!(lost(&mut net, set), Loss::Circuit(_)));
    net.assert_idle();
}

/// Waits until a set is lost, and returns the cause.
fn lost<S: World>(net: &mut Net<S>, set: CircuitNumber) -> Loss {
    let was_built = net.client().is_built(set);
    let mut found = None;
    net.until(|net| {
        while let Some(event) = net.client().poll_event() {
            match event {
                ClientEvent::Lost { circuit, cause } if circuit == set => found = Some(cause),
                ClientEvent::Built { circuit, .. } if circuit == set && !was_built => {
                    panic!("{event:?}")
                }
                _ => {}
            }
        }
        found.is_some()
    });
    found.expect("lost")
}

fn surplus_legs_are_refused_and_the_others_continue<W: World>(world: W) {
    let mut net = Net::new(world);
    let paths: Vec<_> = legs(&net, 4).into_iter().cycle().take(8).collect();
    let set = linked(&mut net, &SetPlan::new(paths.clone()));
    let now = net.stage.now();
    assert_eq!(net.client().add_leg(now, set, &paths[0]), None);
    net.transfer(set, Transfer::download(1, 300_000));
    assert_eq!(net.client().legs(set).len(), 8);
    net.client().destroy(set);
    net.assert_idle();
}

fn without_congestion_control_nothing_is_linked<W: World>(world: W) {
    let mut net = Net::new(world);
    // CREATE_FAST negotiates no congestion control.
    let only = CircuitPlan { is_fast: true, ..net.path(1) };
    let now = net.stage.now();
    let set = net.client().open_set(now, &SetPlan::new(vec![only]));
    assert_eq!(lost(&mut net, set), Loss::Conflux(ConfluxError::Unsuitable));
    assert_eq!(net.relay(0).totals().conflux_sets, 0);
    net.assert_idle();
}

/// A leg is cut during a transfer: its cells are lost, so the set ends at both ends. The client checks each byte on
/// arrival.
#[test]
fn without_retransmission_a_broken_leg_ends_the_set_at_both_ends() {
    for leg in [0, 1] {
        let mut net = uneven([20, 30], 10.0);
        let plan = SetPlan { resumes: false, ..SetPlan::new(legs(&net, 2)) };
        let set = linked(&mut net, &plan);
        assert!(!net.client().resumes(set));
        let stream = net.begin(set, Transfer::download(1, 20_000_000));
        let has_received = |net: &mut Net<VirtualTime>| {
            net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 1_000_000)
        };
        net.until(has_received);
        let all = net.client().legs(set);
        assert!(all.iter().all(|leg| leg.received > 50), "{all:?}");
        let (guard, exit) = (net.stage.nodes[leg], net.stage.nodes[2]);
        net.stage.wire.cut(guard, exit);
        assert!(matches!(lost(&mut net, set), Loss::Circuit(_)));
        assert_eq!(net.client().open_streams(), 0);
        net.assert_idle();
    }
}

/// Two legs are cut during a transfer and another one joins: each byte still arrives once, in order. A set without
/// legs ends.
#[test]
fn with_retransmission_broken_legs_lose_nothing() {
    for (download_bytes, upload_bytes) in [(8_000_000, 0), (0, 8_000_000), (5_000_000, 5_000_000)] {
        for leg in [0, 1] {
            let mut net = uneven([20, 30], 10.0);
            let plan = SetPlan { scheduler: &schedulers::LowRtt, ..SetPlan::new(legs(&net, 2)) };
            let set = linked(&mut net, &plan);
            assert!(net.client().resumes(set));
            let stream = net.begin(set, Transfer { seed: 1, download_bytes, upload_bytes });
            let has_received = |net: &mut Net<VirtualTime>, bytes| {
                let figures = net.client().figures(stream);
                figures.is_some_and(|figures| figures.received_bytes + figures.sent_bytes > bytes)
            };
            net.until(|net| has_received(net, 2_000_000));
            let all = net.client().legs(set);
            assert!(all.iter().all(|leg| leg.received + leg.sent > 50), "{all:?}");
            let (guard, exit) = (net.stage.nodes[leg], net.stage.nodes[2]);
            net.stage.wire.cut(guard, exit);
            net.until(|net| net.client().legs(set).len() == 1);
            // Another path to the exit joins during the transfer.
            let (now, paths) = (net.stage.now(), legs(&net, 4));
            net.client().add_leg(now, set, &paths[3 - leg]).expect("a set");
            net.until(|net| net.client().legs(set).len() == 2);
            net.until(|net| has_received(net, 5_000_000));
            let (one, other) = (net.stage.nodes[1 - leg], net.stage.nodes[2]);
            net.stage.wire.cut(one, other);
            net.until(|net| net.client().legs(set).len() < 2 || net.client().open_circuits() == 0);
            if net.client().open_circuits() == 0 {
                // Both legs used that link.
                net.assert_idle();
                continue;
            }
            net.complete(stream);
            if download_bytes > 0 {
                assert!(net.relay(2).totals().conflux_resent > 0);
            }
            net.client().destroy(set);
            net.assert_idle();
        }
    }
}

/// Two linked circuits, of which the second is far slower; the client requests minimum latency.
fn with_a_slow_leg() -> (Net<VirtualTime>, CircuitNumber) {
    let mut net = Net::new(VirtualTime::new(1, None));
    let nodes = net.stage.nodes.clone();
    let slow = PathModel { latency: Duration::from_millis(200), ..PathModel::default() };
    net.stage.wire.set_path(nodes[1], nodes[2], slow);
    let plan = SetPlan { desired: DesiredUx::MinLatency, ..SetPlan::new(legs(&net, 2)) };
    let set = linked(&mut net, &plan);
    (net, set)
}

/// A leg on which nothing was sent yet closes, and the stream continues on the other.
#[test]
fn a_broken_leg_that_carried_nothing_does_not_affect_the_stream() {
    let (mut net, set) = with_a_slow_leg();
    let stream = net.begin(set, Transfer::download(1, 2_000_000));
    net.until(|net| {
        net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 200_000)
    });
    let nodes = net.stage.nodes.clone();
    net.stage.wire.cut(nodes[1], nodes[2]);
    net.complete(stream);
    assert_eq!(net.client().legs(set).len(), 1);
    // Another leg joins while the set is idle, and is used.
    let now = net.stage.now();
    let paths = legs(&net, 3);
    net.client().add_leg(now, set, &paths[2]).expect("a set");
    net.until(|net| net.client().legs(set).len() == 2);
    net.transfer(set, Transfer::download(2, 2_000_000));
    net.client().destroy(set);
    net.assert_idle();
}

/// A network whose first two paths have these latencies in each direction, and a bottleneck each.
fn uneven(one_way_ms: [u64; 2], mbit_per_s: f64) -> Net<VirtualTime> {
    let mut net = scheduled(VirtualTime::new(1, None), &schedulers::LowRtt);
    let nodes = net.stage.nodes.clone();
    for (guard, latency_ms) in one_way_ms.into_iter().enumerate() {
        let path = PathModel {
            latency: Duration::from_millis(latency_ms),
            rate: Some(Rate::from_mbit_per_s(mbit_per_s)),
            ..PathModel::default()
        };
        net.stage.wire.set_path(nodes[guard], nodes[2], path);
    }
    net
}

fn throughput(net: &mut Net<VirtualTime>, count: usize) -> (Duration, Vec<LegFigures>) {
    let plan = SetPlan::new(legs(net, count));
    let set = linked(net, &plan);
    let took = net.transfer(set, Transfer::download(1, 8_000_000)).to_last();
    let figures = net.client().legs(set);
    net.client().destroy(set);
    net.assert_idle();
    (took, figures)
}

#[test]
fn two_limited_legs_carry_nearly_twice_as_much_as_one() {
    let mut net = uneven([20, 30], 10.0);
    let (one, _) = throughput(&mut net, 1);
    let (two, figures) = throughput(&mut net, 2);
    assert!(two.as_secs_f64() < 0.6 * one.as_secs_f64(), "{one:?} by one, {two:?} by two");
    let shares: Vec<u64> = figures.iter().map(|leg| leg.received).collect();
    assert!(shares.iter().all(|share| *share > 6_000), "{figures:?}");
}

/// Paper, §3: out-of-order data waits at the receiver, the more the legs differ.
#[test]
fn out_of_order_data_is_bounded_and_a_blocking_leg_is_given_up() {
    let mut net = uneven([5, 400], 20.0);
    let plan = SetPlan::new(legs(&net, 2));
    let set = linked(&mut net, &plan);
    net.transfer(set, Transfer::download(1, 6_000_000));
    let peak = net.client().early_peak_cells(set);
    assert!((200..10_000).contains(&peak), "{peak} cells");
    net.client().destroy(set);
    // Without retransmission the set is lost.
    let strict = SetPlan { early_max_cells: peak / 2, resumes: false, ..plan.clone() };
    let set = linked(&mut net, &strict);
    net.begin(set, Transfer::download(1, 6_000_000));
    assert_eq!(lost(&mut net, set), Loss::Conflux(ConfluxError::TooEarly));
    net.assert_idle();
    // With retransmission, the leg that blocks the others is given up once the buffer is half full. The other half
    // is for data that arrives until the exit is informed.
    let strict = SetPlan { early_max_cells: 2000, ..plan };
    let set = linked(&mut net, &strict);
    net.transfer(set, Transfer::download(1, 6_000_000));
    let early = net.client().early_peak_cells(set);
    assert!(early <= 2000, "{early} cells");
    assert_eq!(net.client().legs(set).len(), 1, "the slow leg is given up: {early} cells");
    net.client().destroy(set);
    net.assert_idle();
}

#[test]
fn an_exit_with_minimum_latency_uses_the_fastest_leg() {
    let (mut net, set) = with_a_slow_leg();
    net.transfer(set, Transfer::download(1, 3_000_000));
    let figures = net.client().legs(set);
    assert!(figures[0].received > 6_000 && figures[1].received == 0, "{figures:?}");
    net.client().destroy(set);
    net.assert_idle();
}
