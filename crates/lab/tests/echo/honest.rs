//! An honest relay, whoever is around it.

use crate::common::echo_play::{ALONE_S, Play};
use crate::common::echo_report::{Part, Report};
use crate::common::echo_scenario::{COORDINATOR, MEASURERS, Scenario, UNIX_TIME_S};
use crate::common::party::Party;
use crate::common::stage::{Actor, Stage};
use onion::cell::{CircId, Command};
use onion::measure::load::{Event, LoadFailure, LoadGenerator};
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ErrorCode, Message, Nonce, Proof};
use onion::node::ConnId;
use onion::router::RouterEvent;
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;

crate::common::stage::in_both_worlds! {
    an_honest_relay_is_measured
    clients_are_held_to_their_share_and_have_all_back_after
    a_relay_that_takes_part_can_also_be_measured_in_transit
    the_rate_holds_a_pump_back_where_the_relay_does_not
    sockets_that_are_held_back_begin_in_the_middle
    a_relay_is_measured_again_until_the_quota_is_used_up
    a_coordinator_that_goes_ends_it_for_all
    the_target_closes_the_measurers_links_at_the_end
    a_measurer_that_never_comes_holds_nothing_up_for_long
    one_measurer_of_two_is_enough_for_the_target
    strangers_disturb_neither_a_measurement_nor_clients
    idle_circuits_that_fill_the_relay_end_for_others_and_disturb_no_measurement
    connections_cut_in_any_handshake_leave_nothing
}

fn median(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    Rate::from_byte_per_s(values[values.len() / 2]).as_mbit_per_s()
}

fn an_honest_relay_is_measured<S: Stage>(stage: S) {
    let scenario = Scenario::default();
    let mut play = Play::begin(stage, &scenario);
    let report = play.measure();
    assert!(report.parts.iter().all(|part| part.found.ready == Some((2, 4))));
    let share = report.estimate_over(scenario.limit.expect("there is one"));
    if S::IS_EXACT {
        assert!((0.9..1.05).contains(&share), "{share}");
    }
    play.pass(Duration::from_secs(1));
    assert!(play.told.contains(&RouterEvent::MeasurementOver(None)), "{:?}", play.told);
    assert_eq!(play.open_circuits(), 0);
    if let Some(conns) = play.stage.conns() {
        assert_eq!(conns, 1, "the coordinator's, which may order again");
    }
}

fn clients_are_held_to_their_share_and_have_all_back_after<S: Stage>(stage: S) {
    let scenario = Scenario::with_clients(30.0);
    let mut play = Play::begin(stage, &scenario);
    let before = play.client_bytes(Instant::ORIGIN, play.stage.now());
    let report = play.measure();
    let ended = play.stage.now();
    play.pass(Duration::from_secs(u64::from(ALONE_S) + 2));
    play.assert_clients_live();
    // What is assumed at least, and a tenth for what was saved up before.
    let most = |measured: u64| measured.max(1_250_000) / 3 * 11 / 10;
    if S::IS_EXACT {
        for (place, (measured, client)) in play.measured.iter().enumerate() {
            assert!(*client <= most(*measured), "second {place}: {client} with {measured}");
        }
    } else {
        // On a busy machine a second's clients may be those of the second before.
        let most: u64 = play.measured.iter().map(|(measured, _)| most(*measured)).sum();
        let clients: u64 = play.measured.iter().map(|(_, client)| *client).sum();
        assert!(clients <= most, "{clients}, where {most} are allowed");
    }
    let reported: Vec<u64> = report.client_seconds.iter().map(|it| it.sent_bytes).collect();
    let real: Vec<u64> = play.measured.iter().map(|(_, client)| *client).collect();
    assert_eq!(reported, real);
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.9..1.05).contains(&share), "{share}");
        assert!((28.5..31.5).contains(&median(before)), "all that they want");
        // The clients' own count, a latency later.
        let during = median(play.client_bytes(report.began, ended));
        assert!((during / 10.0 - 1.0).abs() < 0.05, "a quarter of 40 Mbit/s: {during}");
        assert!((during / median(reported) - 1.0).abs() < 0.05);
        let after = play.client_bytes(ended + Duration::from_secs(1), play.stage.now());
        assert!(after.len() >= 2 && (28.5..31.5).contains(&median(after)), "all again");
    }
}

fn a_relay_that_takes_part_can_also_be_measured_in_transit<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 3, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    let generator = play.add_transit(3, scenario.rate);
    let (mut bytes, mut is_over) = (Vec::new(), false);
    play.stage.until(Duration::from_secs(20), |stage| {
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

/// Windows so small that each circuit carries as much as any other, whatever the relay could do.
fn sockets_that_are_held_back_begin_in_the_middle<S: Stage>(stage: S) {
    let scenario = Scenario {
        measurers: 1,
        seconds: 6,
        held_back: Some(Duration::from_secs(3)),
        window_cap_cells: 16,
        ..Scenario::default()
    };
    let mut play = Play::begin(stage, &scenario);
    let report = play.measure();
    let seconds = &report.parts[0].found.seconds;
    let bytes: Vec<u64> = seconds.iter().map(|it| it.bytes).collect();
    assert_eq!(bytes.len(), 6);
    assert!(bytes.iter().all(|it| *it > 0), "{bytes:?}");
    if S::IS_EXACT {
        let growth = median(bytes[3..].to_vec()) / median(bytes[..3].to_vec());
        assert!((1.9..2.1).contains(&growth), "{growth}: {bytes:?}");
    }
}

/// Measures in transit at this rate; returns the share of the time in which the rate blocked the load
/// generator. Cells in flight are within the circuits' windows, and half of the connections are outbound.
fn share_throttled<S: Stage>(play: &mut Play<'_, S>, rate: Rate) -> f64 {
    const SECONDS: u32 = 3;
    let actor = play.add_transit(SECONDS, rate);
    let window_bytes = u64::from(4 * play.scenario.window_cap_cells) * 514;
    let (mut throttled, mut outstanding_most, mut is_over) = (Duration::ZERO, 0, false);
    let mut ends_at = None;
    play.stage.until(Duration::from_secs(20), |stage| {
        let now = stage.now();
        let generator: &mut LoadGenerator<ChaCha8Rng> = stage.node(actor);
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
    play.pass(Duration::from_secs(1));
    let now = play.stage.now();
    let generator: &mut LoadGenerator<ChaCha8Rng> = play.stage.node(actor);
    assert_eq!(generator.throttled(now), throttled, "it has stopped sending");
    assert!(!generator.is_sending() && throttled <= Duration::from_secs(SECONDS.into()));
    assert!(outstanding_most > 0 && outstanding_most <= window_bytes, "{outstanding_most}");
    throttled.as_secs_f64() / f64::from(SECONDS)
}

fn the_rate_holds_a_pump_back_where_the_relay_does_not<S: Stage>(stage: S) {
    let scenario = Scenario::default();
    let mut play = Play::begin(stage, &scenario);
    let limit = scenario.limit.expect("there is one");
    let by_rate = share_throttled(&mut play, limit.scaled(0.25));
    let by_relay = share_throttled(&mut play, limit.scaled(3.0));
    assert!(by_rate > by_relay, "{by_rate} {by_relay}");
    if S::IS_EXACT {
        assert!(by_rate > 0.95 && by_relay < 0.3, "{by_rate} {by_relay}");
    }
}

fn a_relay_is_measured_again_until_the_quota_is_used_up<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    for _ in 0..2 {
        assert!(play.measure().summary().median > 0);
    }
    let order = play.next_order();
    let link = play.add_order(order);
    assert_eq!(refusal(&play.answer(link)), ErrorCode::QUOTA_EXCEEDED);
}

#[track_caller]
fn refusal(event: &OrderEvent) -> ErrorCode {
    match event {
        OrderEvent::Failed(OrderFailure::Refused { code, .. }) => *code,
        other => panic!("{other:?}"),
    }
}

fn a_coordinator_that_goes_ends_it_for_all<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 20, ..Scenario::with_clients(30.0) };
    let mut play = Play::begin(stage, &scenario);
    let (link, mut parts) = play.prepare();
    play.start(&parts);
    play.until(&mut parts, |_, parts| parts.iter().all(|part| part.found.seconds.len() == 2));
    play.stop_order(link);
    play.until(&mut parts, |_, parts| parts.iter().all(|part| part.found.result.is_some()));
    for part in &parts {
        let called_off = ErrorCode::CALLED_OFF;
        assert!(
            matches!(&part.found.result, Some(Err(LoadFailure::Refused { code, .. })) if *code == called_off),
            "{part:?}"
        );
    }
    let ended = play.stage.now();
    play.pass(Duration::from_secs(3));
    play.assert_clients_live();
    let after = play.client_bytes(ended + Duration::from_millis(300), play.stage.now());
    assert!(!S::IS_EXACT || median(after) > 28.5, "clients have it all again");
    assert_eq!(play.open_circuits(), 4, "the clients'");
}

/// A party that has proved to be the first measurer.
#[track_caller]
pub(crate) fn proven<S: Stage>(play: &mut Play<'_, S>, nonce: Nonce) -> Actor {
    let party = play.add_party();
    let target = play.target.ids;
    let said = play.party(party);
    let proof = Proof::sign(&MEASURERS[0], nonce, &target, &said.exported);
    said.say(&Message::Proof(proof));
    play.until_party(party, |party| party.messages() == [Message::Proven]);
    party
}

/// An order that was accepted, and a party that has proved to be the first measurer.
#[track_caller]
pub(crate) fn ordered<S: Stage>(play: &mut Play<'_, S>) -> (Actor, Nonce, Actor) {
    let order = play.next_order();
    let nonce = order.nonce;
    let link = play.add_order(order);
    assert_eq!(play.answer(link), OrderEvent::Accepted);
    let party = proven(play, nonce);
    (link, nonce, party)
}

fn the_target_closes_the_measurers_links_at_the_end<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    let (link, nonce, party) = ordered(&mut play);
    let idle = proven(&mut play, nonce);
    let circ_id = CircId::of_initiator(1);
    play.party(party).send(circ_id, Command::CREATE_FAST, &[5; 20]);
    play.until_party(party, |party| party.cell(circ_id, Command::CREATED_FAST).is_some());
    play.party(party).send(circ_id, Command::RELAY, &[6; 509]);
    play.until_party(party, |party| party.closed.is_some());
    play.until_party(idle, |party| party.closed.is_some());
    assert!(play.party(party).cell(circ_id, Command::RELAY).is_some());
    assert_eq!(play.party(party).messages(), [Message::Proven], "in good order");
    assert!(matches!(play.answer(link), OrderEvent::ClientSecond(..)));
    assert_eq!(play.answer(link), OrderEvent::Finished);
    assert_eq!(play.measured, [(514, 0)]);
}

fn a_measurer_that_never_comes_holds_nothing_up_for_long<S: Stage>(stage: S) {
    let max_duration = Duration::from_secs(2);
    let scenario = Scenario { seconds: 1, max_duration, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    let order = play.next_order();
    let link = play.add_order(order);
    assert_eq!(play.answer(link), OrderEvent::Accepted);
    assert_eq!(refusal(&play.answer(link)), ErrorCode::TIMED_OUT);
    // The next may be slow, on a busy machine.
    let params = Scenario::default().target_params();
    let relay = play.relay;
    let router: &mut crate::common::echo_play::Relay = play.stage.node(relay);
    router.set_target_params(params);
    assert!(play.measure().summary().median > 0, "the next may come");
}

fn one_measurer_of_two_is_enough_for_the_target<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 2, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    let order = play.next_order();
    let nonce = order.nonce;
    let link = play.add_order(order);
    assert_eq!(play.answer(link), OrderEvent::Accepted);
    let mut parts = vec![play.add_measurer(1, nonce)];
    play.until(&mut parts, |_, parts| parts[0].found.ready.is_some());
    let report = play.run(link, parts);
    assert!(report.summary().median > 0);
}

/// Sends a message that is not permitted, and gets an error.
fn strange<S: Stage>(play: &mut Play<'_, S>, message: impl Fn(&Party) -> Message) {
    let party = play.add_party();
    let message = message(play.party(party));
    play.party(party).say(&message);
    play.until_party(party, |party| party.closed.is_some());
    assert!(matches!(play.party(party).messages()[..], [Message::Error { .. }]));
}

fn strangers_disturb_neither_a_measurement_nor_clients<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 3, ..Scenario::with_clients(5.0) };
    let mut play = Play::begin(stage, &scenario);
    let (link, parts) = play.prepare();
    let began = play.start(&parts);
    let nonce = Nonce([1; 32]);
    let target = play.target.ids;
    let order = scenario.order(77);
    for _ in 0..5 {
        strange(&mut play, |_| Message::Proof(Proof::sign(&[0x66; 32], nonce, &target, &[0; 32])));
        strange(&mut play, |it| {
            Message::Proof(Proof::sign(&MEASURERS[0], Nonce([9; 32]), &target, &it.exported))
        });
        strange(&mut play, |it| Message::Order(order.sign(&[0x66; 32], &it.exported)));
        strange(&mut play, |_| Message::Order(order.sign(&COORDINATOR, &[0; 32])));
        strange(&mut play, |_| Message::Proven);
        strange(&mut play, |_| Message::Accepted { nonce });
    }
    let report = finish(&mut play, link, parts, began);
    assert_eq!(report.client_seconds.len(), 3);
    assert!(report.summary().median > 0);
    play.assert_clients_live();
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.9..1.05).contains(&share), "{share}");
        let clients = median(play.client_bytes(Instant::ORIGIN, play.stage.now()));
        assert!(clients > 4.7, "they want less than their share: {clients}");
    }
}

/// The result of a measurement that has been started.
fn finish<S: Stage>(
    play: &mut Play<'_, S>,
    link: Actor,
    parts: Vec<Part>,
    began: Instant,
) -> Report {
    let report = play.run(link, parts);
    Report { began, ..report }
}

fn connections_cut_in_any_handshake_leave_nothing<S: Stage>(stage: S) {
    let scenario = Scenario { seconds: 1, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    for steps in 0..25 {
        let party = Party::dialling(play.target, UNIX_TIME_S);
        let party = play.stage.add(party, &crate::common::echo_scenario::cast().others, &[]);
        for _ in 0..steps {
            play.stage.step();
        }
        play.party(party).send_raw(&[0; 3]);
        play.party(party).close();
    }
    play.pass(Duration::from_secs(1));
    assert!(play.stage.conns().is_none_or(|conns| conns == 0));
    assert!(play.measure().summary().median > 0);
}

/// Memory for 1,360 circuits, and strangers who begin 1,500 before the measurement and as many while it runs.
fn idle_circuits_that_fill_the_relay_end_for_others_and_disturb_no_measurement<S: Stage>(stage: S) {
    let scenario = Scenario { held_bytes_max: 4 << 20, ..Scenario::default() };
    let mut play = Play::begin(stage, &scenario);
    let flood = |play: &mut Play<'_, S>, circuits: u32| {
        let stranger = play.add_party();
        for number in 1..=circuits {
            play.party(stranger).send(CircId::of_initiator(number), Command::CREATE_FAST, &[7; 20]);
        }
        stranger
    };
    let created = |party: &Party| {
        party.came.iter().filter(|(_, command, _)| *command == Command::CREATED_FAST).count()
    };
    let first = flood(&mut play, 1_500);
    play.until_party(first, |party| created(party) == 1_500);
    assert!(play.totals().evicted_circuits > 100, "{:?}", play.totals());
    let (link, parts) = play.prepare();
    assert!(parts.iter().all(|part| part.found.ready == Some((2, 4))));
    let second = flood(&mut play, 1_500);
    let report = play.run(link, parts);
    assert!(report.parts.iter().all(|part| part.found.result == Some(Ok(()))), "{report:?}");
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.expect("there is one"));
        assert!((0.8..1.05).contains(&share), "{share}");
    }
    play.until_party(second, |party| created(party) == 1_500);
    let honest = play.add_party();
    play.party(honest).send(CircId::of_initiator(1), Command::CREATE_FAST, &[7; 20]);
    play.until_party(honest, |party| created(party) == 1);
    assert!(play.open_circuits() <= 1_360);
}
