//! Paths with loss, bottlenecks and latencies: in virtual time only.

use crate::common::network::Net;
use crate::common::stage::VirtualTime;
use onion::client::{Figures, Transfer};
use onion::node::{DnsAnswer, DnsQuery};
use onion::{Duration, Rate};
use sim::wire::PathModel;

fn world(seed: u64, model: PathModel) -> Net<VirtualTime> {
    let mut stage = VirtualTime::new(seed, Some(3000));
    stage.wire.set_all_paths(model);
    Net::new(stage)
}

fn download(net: &mut Net<VirtualTime>, has_congestion_control: bool, bytes: u64) -> Figures {
    let circuit = net.circuit(has_congestion_control);
    let figures = net.transfer(circuit, Transfer::download(1, bytes));
    net.client().destroy(circuit);
    figures
}

#[test]
fn loss_slows_a_download_and_does_not_break_it() {
    for has_congestion_control in [false, true] {
        let took: Vec<Duration> = [0, 3_000, 30_000]
            .into_iter()
            .map(|loss_per_million| {
                let mut net = world(1, PathModel { loss_per_million, ..PathModel::default() });
                let figures = download(&mut net, has_congestion_control, 1_500_000);
                net.assert_empty();
                figures.to_last()
            })
            .collect();
        assert!(took.is_sorted_by(|less, more| *less * 11 < *more * 10), "{took:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let run = |seed| {
        let mut net = world(seed, PathModel { loss_per_million: 5_000, ..PathModel::default() });
        download(&mut net, true, 300_000);
        net.assert_empty();
        (net.stage.wire.fingerprint(), net.stage.wire.now(), net.stage.wire.steps())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn a_bottleneck_is_fully_used() {
    let rate = Rate::from_mbit_per_s(8.0);
    let mut net = world(1, PathModel::default());
    let nodes = net.stage.nodes.clone();
    let narrow = PathModel { rate: Some(rate), ..PathModel::default() };
    net.stage.wire.set_path(nodes[1], nodes[2], narrow);
    for has_congestion_control in [false, true] {
        let figures = download(&mut net, has_congestion_control, 3_000_000);
        let took = figures.last_at - figures.first_byte_at.expect("there are bytes");
        let share = Rate::from_bytes_over(3_000_000, took).as_mbit_per_s() / 8.0;
        assert!((0.75..1.0).contains(&share), "{share}");
    }
}

#[test]
fn circuits_of_a_very_slow_client_are_killed_and_no_others() {
    let mut stage = VirtualTime::new(1, None);
    stage.wire.set_all_paths(PathModel::default());
    let bound = 4 << 20;
    let mut net = Net::with(stage, |_, config| config.held_bytes_max = bound);
    let quiet = net.circuit(false);
    let slow = net.add_client();
    // A connection that takes almost nothing.
    let (slow_node, guard) = (net.stage.nodes[slow.0], net.stage.nodes[net.relays[0].0]);
    let trickle = Rate::from_byte_per_s(2_000);
    let model =
        PathModel { rate: Some(trickle), queue: Duration::from_secs(60), ..PathModel::default() };
    net.stage.wire.set_path(slow_node, guard, model);
    for _ in 0..40 {
        net.begin_from(slow, Transfer::download(1, 5_000_000));
    }
    let mut most = 0;
    for _ in 0..600 {
        net.pass(Duration::from_secs(1));
        most = most.max(net.relay(0).queued_bytes());
    }
    assert!(most > bound / 2, "the queues did not fill: {most}");
    assert!(most <= bound + 20_000, "{most}");
    assert!(net.relay(0).open_circuits() < 41, "no circuit was killed");
    net.transfer(quiet, Transfer::download(2, 200_000));
}

#[test]
fn bulk_traffic_below_the_capacity_does_not_delay_a_quiet_circuit() {
    let mut net = world(1, PathModel::default());
    let quiet = net.circuit(false);
    let before = net.round_trip(quiet);
    let bulk = net.add_client();
    for seed in 0..5 {
        net.begin_from(bulk, Transfer::download(seed, 2_000_000));
    }
    net.pass(Duration::from_secs(1));
    let during = net.round_trip(quiet);
    assert!(during < before * 2, "{during:?} after {before:?}");
}

#[test]
fn host_names_are_resolved() {
    let mut net = world(1, PathModel::default());
    let to = net.server_at;
    let question = DnsQuery::Addresses("a.test".into());
    net.stage.wire.set_answer(question, DnsAnswer::Addresses(vec![to.ip()]));
    let circuit = net.circuit(true);
    let to = onion::client::Destination::Host("a.test".into(), to.port(), Default::default());
    let stream = net.begin_to(circuit, to, Transfer::download(1, 1000));
    net.complete(stream);
}

#[test]
fn a_broken_link_between_relays_ends_only_its_circuits() {
    let mut net = world(1, PathModel::default());
    let long = net.circuit(false);
    let short = {
        let path = net.path(1);
        net.built(&path)
    };
    let stream = net.begin(long, Transfer::download(1, 5_000_000));
    net.until(|net| {
        net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 500_000)
    });
    let (one, other) = (net.stage.nodes[net.relays[0].0], net.stage.nodes[net.relays[1].0]);
    net.stage.wire.cut(one, other);
    net.lost(long);
    assert!(net.client().is_built(short));
    net.client().destroy(short);
    net.assert_empty();
}
