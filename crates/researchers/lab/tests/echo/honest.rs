//! Measurements of an honest relay, with clients, strangers and failing measurers.

use crate::common::echo_report::Report;
use crate::common::echo_run::{ALONE_S, Relay, Run};
use crate::common::echo_scenario::{COORDINATOR, MEASURERS, Scenario};
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::network::World;
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, Stage};
use onion::cell::{CELL_LEN, CircId, Command};
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, Client, Destination, Server, Transfer};
use onion::measure::load::{Event, LoadFailure, LoadGenerator};
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ClientSecond, ErrorCode, Message, Nonce, Proof};
use onion::node::ConnId;
use onion::router::RouterEvent;
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;

crate::common::stage::in_both_worlds! {
    an_honest_relay_is_measured
    clients_are_limited_to_their_share_during_the_measurement_only
    a_relay_that_takes_part_can_also_be_measured_in_transit
    a_load_generator_is_throttled_by_its_rate_only_below_the_relays_capacity
    sockets_that_are_held_back_start_later
    a_relay_is_measured_again_until_the_quota_is_used_up
    the_measurement_ends_for_all_when_the_coordinator_leaves
    the_target_closes_the_measurers_links_at_the_end
    a_missing_measurer_ends_the_measurement_after_the_timeout
    one_measurer_of_two_is_enough_for_the_target
    strangers_disturb_neither_a_measurement_nor_clients
    downloads_from_the_relays_own_directory_count_as_client_traffic
    a_flood_of_cells_that_are_only_read_does_not_lower_the_estimate
    idle_circuits_are_evicted_and_disturb_no_measurement
    connections_closed_during_any_handshake_leave_nothing
}

fn median(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    Rate::from_byte_per_s(values[values.len() / 2]).as_mbit_per_s()
}

fn an_honest_relay_is_measured<S: Stage>(stage: S) {
    let scenario = Scenario::default();
    let mut run = Run::begin(stage, &scenario);
    let report = run.measure();
    assert!(report.parts.iter().all(|part| part.found.ready == Some((2, 4))));
    let share = report.estimate_over(scenario.limit.expect("there is one"));
    if S::IS_EXACT {
        assert!((0.9..1.05).contains(&share), "{share}");
    }
    run.pass(Duration::from_secs(1));
    assert!(run.events.contains(&RouterEvent::MeasurementOver(None)), "{:?}", run.events);
    assert_eq!(run.open_circuits(), 0);
    if let Some(conns) = run.stage.conns() {
        assert_eq!(conns, 1, "the coordinator's");
    }
}

fn clients_are_limited_to_their_share_during_the_measurement_only<S: Stage>(stage: S) {
    let scenario = Scenario::with_clients(30.0);
    let mut run = Run::begin(stage, &scenario);
    let before = run.client_bytes(Instant::ORIGIN, run.stage.now());
    let report = run.measure();
    let ended = run.stage.now();
    run.pass(Duration::from_secs(u64::from(ALONE_S) + 2));
    run.assert_clients_live();
    // A third of the measured traffic, of which a minimum is assumed, and a tenth for saved-up bytes.
    let most = |measured: u64| measured.max(1_250_000) / 3 * 11 / 10;
    if S::IS_EXACT {
        for (place, (measured, client)) in run.measured.iter().enumerate() {
            assert!(*client <= most(*measured), "second {place}: {client} with {measured}");
        }
    } else {
        // On a busy machine, client traffic may be attributed to the next second.
        let most: u64 = run.measured.iter().map(|(measured, _)| most(*measured)).sum();
        let clients: u64 = run.measured.iter().map(|(_, client)| *client).sum();
        assert!(clients <= most, "{clients} of at most {most}");
    }
    let reported: Vec<u64> =
        report.client_seconds.iter().map(|client_second| client_second.sent_bytes).collect();
    let real: Vec<u64> = run.measured.iter().map(|(_, client)| *client).collect();
    assert_eq!(reported, real);
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.9..1.05).contains(&share), "{share}");
        assert!((28.5..31.5).contains(&median(before)), "all the traffic that they request");
        // As counted by the clients, a latency later.
        let during = median(run.client_bytes(report.began, ended));
        assert!((during / 10.0 - 1.0).abs() < 0.05, "a quarter of 40 Mbit/s: {during}");
        assert!((during / median(reported) - 1.0).abs() < 0.05);
        let after = run.client_bytes(ended + Duration::from_secs(1), run.stage.now());
        assert!(after.len() >= 2 && (28.5..31.5).contains(&median(after)), "all again");
    }
}

fn a_relay_that_takes_part_can_also_be_measured_in_transit<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 3, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    let generator = run.add_transit(3, scenario.rate);
    let (mut bytes, mut is_over) = (Vec::new(), false);
    run.stage.until(Duration::from_secs(20), |stage| {
        let now = stage.now();
        let generator: &mut LoadGenerator<ChaCha8Rng> = stage.node(generator);
        match generator.poll_event() {
            Some(Event::Ready { sockets: 2, circuits: 4 }) => generator.start(now, now),
            Some(Event::Second(second)) => bytes.push(second.bytes),
            Some(Event::Finished) => is_over = true,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        is_over
    });
    assert_eq!(bytes.len(), 3);
    let median = median(bytes);
    assert!(median > 0.0);
    if S::IS_EXACT {
        assert!((36.0..42.0).contains(&median), "{median}");
    }
}

/// The windows are so small that they limit each circuit to the same rate.
fn sockets_that_are_held_back_start_later<S: Stage>(stage: S) {
    let scenario = Scenario {
        measurers: 1,
        seconds: 6,
        held_back: Some(Duration::from_secs(3)),
        window_cap_cells: 16,
        ..Scenario::default()
    };
    let mut run = Run::begin(stage, &scenario);
    let report = run.measure();
    let seconds = &report.parts[0].found.seconds;
    let bytes: Vec<u64> = seconds.iter().map(|second| second.bytes).collect();
    assert_eq!(bytes.len(), 6);
    assert!(bytes.iter().all(|count| *count > 0), "{bytes:?}");
    if S::IS_EXACT {
        let growth = median(bytes[3..].to_vec()) / median(bytes[..3].to_vec());
        assert!((1.9..2.1).contains(&growth), "{growth}: {bytes:?}");
    }
}

/// Measures in transit at this rate; returns the share of the time in which the rate blocked the load
/// generator. Cells in flight are within the circuits' windows, and half of the connections are outbound.
fn share_throttled<S: Stage>(run: &mut Run<'_, S>, rate: Rate) -> f64 {
    const SECONDS: u32 = 3;
    let node = run.add_transit(SECONDS, rate);
    let window_bytes = u64::from(4 * run.scenario.window_cap_cells) * 514;
    let (mut throttled, mut outstanding_most, mut is_over) = (Duration::ZERO, 0, false);
    let mut ends_at = None;
    run.stage.until(Duration::from_secs(20), |stage| {
        let now = stage.now();
        let generator: &mut LoadGenerator<ChaCha8Rng> = stage.node(node);
        outstanding_most = generator.outstanding_bytes().max(outstanding_most);
        if generator.is_sending() {
            assert_eq!(generator.ends_at(), ends_at);
            let conns = || (0..8).map(ConnId);
            let out = conns().filter(|conn| generator.is_outbound(*conn)).count();
            let back = conns().filter(|conn| generator.carries_back(*conn)).count();
            let both =
                conns().any(|conn| generator.is_outbound(conn) && generator.carries_back(conn));
            assert!(out == 2 && back == 2 && !both, "{out} out, {back} back");
        }
        throttled = generator.throttled(now);
        assert!(ends_at.is_some() || throttled.is_zero(), "it does not send yet");
        match generator.poll_event() {
            Some(Event::Ready { .. }) => {
                generator.start(now, now);
                ends_at = Some(now + Duration::from_secs(SECONDS.into()));
            }
            Some(Event::Finished) => is_over = true,
            Some(Event::Second(_)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        is_over
    });
    run.pass(Duration::from_secs(1));
    let now = run.stage.now();
    let generator: &mut LoadGenerator<ChaCha8Rng> = run.stage.node(node);
    assert_eq!(generator.throttled(now), throttled, "it has stopped sending");
    assert!(!generator.is_sending() && throttled <= Duration::from_secs(SECONDS.into()));
    assert!(outstanding_most > 0 && outstanding_most <= window_bytes, "{outstanding_most}");
    throttled.as_secs_f64() / f64::from(SECONDS)
}

fn a_load_generator_is_throttled_by_its_rate_only_below_the_relays_capacity<S: Stage>(stage: S) {
    let scenario = Scenario::default();
    let mut run = Run::begin(stage, &scenario);
    let limit = scenario.limit.expect("there is one");
    let by_rate = share_throttled(&mut run, limit.scaled(0.25));
    let by_relay = share_throttled(&mut run, limit.scaled(3.0));
    assert!(by_rate > by_relay, "{by_rate} {by_relay}");
    if S::IS_EXACT {
        assert!(by_rate > 0.95 && by_relay < 0.3, "{by_rate} {by_relay}");
    }
}

fn a_relay_is_measured_again_until_the_quota_is_used_up<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    for _ in 0..2 {
        assert!(run.measure().summary().median > 0);
    }
    let order = run.next_order();
    let link = run.add_order(order);
    assert_eq!(refusal(&run.answer(link)), ErrorCode::QUOTA_EXCEEDED);
}

#[track_caller]
fn refusal(event: &OrderEvent) -> ErrorCode {
    match event {
        OrderEvent::Failed(OrderFailure::Refused { code, .. }) => *code,
        other => panic!("{other:?}"),
    }
}

fn the_measurement_ends_for_all_when_the_coordinator_leaves<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 20, ..Scenario::with_clients(30.0) };
    let mut run = Run::begin(stage, &scenario);
    let (link, mut parts) = run.prepare();
    run.start(&parts);
    run.until(&mut parts, |_, parts| parts.iter().all(|part| part.found.seconds.len() == 2));
    run.stop_order(link);
    run.until(&mut parts, |_, parts| parts.iter().all(|part| part.found.result.is_some()));
    for part in &parts {
        let called_off = ErrorCode::CALLED_OFF;
        assert!(
            matches!(&part.found.result, Some(Err(LoadFailure::Refused { code, .. })) if *code == called_off),
            "{part:?}"
        );
    }
    let ended = run.stage.now();
    run.pass(Duration::from_secs(3));
    run.assert_clients_live();
    let after = run.client_bytes(ended + Duration::from_millis(300), run.stage.now());
    assert!(!S::IS_EXACT || median(after) > 28.5, "the clients' limit has ended");
    assert_eq!(run.open_circuits(), 4, "the clients'");
}

/// Adds a peer that has proved to be the first measurer.
#[track_caller]
pub(crate) fn proven<S: Stage>(run: &mut Run<'_, S>, nonce: Nonce) -> NodeHandle {
    let peer = run.add_peer();
    let target = run.target.ids;
    let sender = run.peer(peer);
    let proof = Proof::sign(&MEASURERS[0], nonce, &target, &sender.exported);
    sender.send_message(&Message::Proof(proof));
    run.until_peer(peer, |peer| peer.messages() == [Message::Proven]);
    peer
}

/// Sends an order, which must be accepted, and adds a peer that has proved to be the first measurer.
#[track_caller]
pub(crate) fn ordered<S: Stage>(run: &mut Run<'_, S>) -> (NodeHandle, Nonce, NodeHandle) {
    let order = run.next_order();
    let nonce = order.nonce;
    let link = run.add_order(order);
    assert_eq!(run.answer(link), OrderEvent::Accepted);
    let peer = proven(run, nonce);
    (link, nonce, peer)
}

fn the_target_closes_the_measurers_links_at_the_end<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    let (link, nonce, peer) = ordered(&mut run);
    let idle = proven(&mut run, nonce);
    let circ_id = CircId::of_initiator(1);
    run.peer(peer).send(circ_id, Command::CREATE_FAST, &[5; 20]);
    run.until_peer(peer, |peer| peer.cell(circ_id, Command::CREATED_FAST).is_some());
    run.peer(peer).send(circ_id, Command::RELAY, &[6; 509]);
    run.until_peer(peer, |peer| peer.closed.is_some());
    run.until_peer(idle, |peer| peer.closed.is_some());
    assert!(run.peer(peer).cell(circ_id, Command::RELAY).is_some());
    assert_eq!(run.peer(peer).messages(), [Message::Proven], "without an error");
    assert!(matches!(run.answer(link), OrderEvent::ClientSecond(..)));
    assert_eq!(run.answer(link), OrderEvent::Finished);
    assert_eq!(run.measured, [(514, 0)]);
}

fn a_missing_measurer_ends_the_measurement_after_the_timeout<S: Stage>(stage: S) {
    let max_duration = Duration::from_secs(2);
    let scenario = Scenario { seconds: 1, max_duration, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    let order = run.next_order();
    let link = run.add_order(order);
    assert_eq!(run.answer(link), OrderEvent::Accepted);
    assert_eq!(refusal(&run.answer(link)), ErrorCode::TIMED_OUT);
    // The next measurement may be slow on a busy machine.
    let params = Scenario::default().target_params();
    let relay = run.relay;
    let router: &mut Relay = run.stage.node(relay);
    router.set_target_params(params);
    assert!(run.measure().summary().median > 0, "the relay can be measured again");
}

fn one_measurer_of_two_is_enough_for_the_target<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 2, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    let order = run.next_order();
    let nonce = order.nonce;
    let link = run.add_order(order);
    assert_eq!(run.answer(link), OrderEvent::Accepted);
    let mut parts = vec![run.add_measurer(1, nonce)];
    run.until(&mut parts, |_, parts| parts[0].found.ready.is_some());
    let report = run.finish(link, parts);
    assert!(report.summary().median > 0);
}

/// Sends a message that is not permitted, and gets an error.
fn send_as_stranger<S: Stage>(run: &mut Run<'_, S>, message: impl Fn(&Peer) -> Message) {
    let peer = run.add_peer();
    let message = message(run.peer(peer));
    run.peer(peer).send_message(&message);
    run.until_peer(peer, |peer| peer.closed.is_some());
    assert!(matches!(run.peer(peer).messages()[..], [Message::Error { .. }]));
}

fn strangers_disturb_neither_a_measurement_nor_clients<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 3, ..Scenario::with_clients(5.0) };
    let mut run = Run::begin(stage, &scenario);
    let (link, parts) = run.prepare();
    let began = run.start(&parts);
    let nonce = Nonce([1; 32]);
    let target = run.target.ids;
    let order = scenario.order(77);
    for _ in 0..5 {
        send_as_stranger(&mut run, |_| {
            Message::Proof(Proof::sign(&[0x66; 32], nonce, &target, &[0; 32]))
        });
        send_as_stranger(&mut run, |peer| {
            Message::Proof(Proof::sign(&MEASURERS[0], Nonce([9; 32]), &target, &peer.exported))
        });
        send_as_stranger(&mut run, |peer| Message::Order(order.sign(&[0x66; 32], &peer.exported)));
        send_as_stranger(&mut run, |_| Message::Order(order.sign(&COORDINATOR, &[0; 32])));
        send_as_stranger(&mut run, |_| Message::Proven);
        send_as_stranger(&mut run, |_| Message::Accepted { nonce });
    }
    let report = Report { began, ..run.finish(link, parts) };
    assert_eq!(report.client_seconds.len(), 3);
    assert!(report.summary().median > 0);
    run.assert_clients_live();
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.9..1.05).contains(&share), "{share}");
        let clients = median(run.client_bytes(Instant::ORIGIN, run.stage.now()));
        assert!(clients > 4.7, "less than their share: {clients}");
    }
}

/// One-hop circuits of strangers keep the relay's queues full, so that the directory is read only at times.
fn downloads_from_the_relays_own_directory_count_as_client_traffic<S: World>(stage: S) {
    const CLIENTS: usize = 10;
    const CIRCUITS: usize = 20;
    let scenario = Scenario::default();
    let mut run = Run::begin(stage, &scenario);
    let directory = run.stage.reserve();
    run.stage.add_plain(Server::new(), directory);
    let relay: &mut Relay = run.stage.node(run.relay);
    relay.set_directory(Some(directory));
    let hop = NextHop::to_own(&identities().relay, run.target.address);
    let path = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![hop]) };
    let mut streams = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::new(UNIX_TIME_S, scenario.rng(200 + number as u64));
        let node = run.stage.add(client, &identities().others, &[]);
        let now = run.stage.now();
        let client: &mut Client<ChaCha8Rng> = run.stage.node(node);
        for _ in 0..CIRCUITS {
            let circuit = client.open(now, &path);
            let endless = Transfer::download(1, 1 << 40);
            streams.push((node, client.begin(now, circuit, Destination::Directory, endless)));
        }
    }
    run.stage.until(Duration::from_secs(60), |stage| {
        streams.iter().all(|(node, stream)| {
            let client: &mut Client<ChaCha8Rng> = stage.node(*node);
            client.figures(*stream).is_some_and(|stream| stream.received_bytes > 0)
        })
    });
    let report = run.measure();
    let sum = |of: fn(&ClientSecond) -> u64| -> u64 { report.client_seconds.iter().map(of).sum() };
    let (received, sent) = (sum(|stream| stream.received_bytes), sum(|stream| stream.sent_bytes));
    assert!(sent > 1_000_000, "{sent}");
    assert!((sent..sent + sent / 5).contains(&received), "{received} of {sent}");
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.95..1.05).contains(&share), "{share}");
    }
}

/// The relay's read limit is used up by strangers, and measurers do not wait for it.
fn a_flood_of_cells_that_are_only_read_does_not_lower_the_estimate<S: Stage>(stage: S) {
    let scenario = Scenario::with_clients(5.0);
    let mut run = Run::begin(stage, &scenario);
    let (link, parts) = run.prepare();
    let mut cell = [0x55; CELL_LEN];
    cell[..4].copy_from_slice(&CircId::of_initiator(9).get().to_be_bytes());
    cell[4] = Command::RELAY.get();
    // Together more than the relay may read before the end.
    for _ in 0..8 {
        let flooder = run.add_peer();
        run.peer(flooder).send_raw(&cell.repeat(10_000));
    }
    let report = run.finish(link, parts);
    run.assert_clients_live();
    // On a busy machine, the relay may not reach its limit.
    if S::IS_EXACT {
        assert!(run.totals().limited_reads > 100, "{:?}", run.totals());
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.95..1.05).contains(&share), "{share}");
    }
}

fn connections_closed_during_any_handshake_leave_nothing<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    for steps in 0..25 {
        let peer = Peer::dialling(run.target, UNIX_TIME_S);
        let peer = run.stage.add(peer, &identities().others, &[]);
        for _ in 0..steps {
            run.stage.step();
        }
        run.peer(peer).send_raw(&[0; 3]);
        run.peer(peer).close();
    }
    run.pass(Duration::from_secs(1));
    assert!(run.stage.conns().is_none_or(|conns| conns == 0));
    assert!(run.measure().summary().median > 0);
}

/// The relay has memory for 1,360 circuits. Strangers open 1,500 before the measurement and 1,500 during it.
fn idle_circuits_are_evicted_and_disturb_no_measurement<S: Stage>(stage: S) {
    let scenario = Scenario { held_bytes_max: 4 << 20, ..Scenario::default() };
    let mut run = Run::begin(stage, &scenario);
    let flood = |run: &mut Run<'_, S>, circuits: u32| {
        let stranger = run.add_peer();
        for number in 1..=circuits {
            run.peer(stranger).send(CircId::of_initiator(number), Command::CREATE_FAST, &[7; 20]);
        }
        stranger
    };
    let created = |peer: &Peer| {
        peer.received.iter().filter(|(_, command, _)| *command == Command::CREATED_FAST).count()
    };
    let first = flood(&mut run, 1_500);
    run.until_peer(first, |peer| created(peer) == 1_500);
    assert!(run.totals().evicted_circuits > 100, "{:?}", run.totals());
    let (link, parts) = run.prepare();
    assert!(parts.iter().all(|part| part.found.ready == Some((2, 4))));
    let second = flood(&mut run, 1_500);
    let report = run.finish(link, parts);
    assert!(report.parts.iter().all(|part| part.found.result == Some(Ok(()))), "{report:?}");
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.8..1.05).contains(&share), "{share}");
    }
    run.until_peer(second, |peer| created(peer) == 1_500);
    let honest = run.add_peer();
    run.peer(honest).send(CircId::of_initiator(1), Command::CREATE_FAST, &[7; 20]);
    run.until_peer(honest, |peer| created(peer) == 1);
    assert!(run.open_circuits() <= 1_360);
}
