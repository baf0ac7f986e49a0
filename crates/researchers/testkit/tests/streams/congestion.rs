//! Streams of circuits with congestion control (proposal 324).

use super::world::{World, content};
use onion::Duration;
use onion::cell::CircId;
use onion::cell::msg::{DestroyReason, EndReason, Sendme, Xon};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand};
use onion::node::{ConnId, Node};

const CIRCUIT: CircId = CircId::of_initiator(7);

/// A circuit with congestion control, and a stream on it.
fn stream() -> (World, ConnId) {
    let mut world = World::exit();
    world.create_with_congestion_control(CIRCUIT);
    let conn = world.open_on(CIRCUIT, 5);
    (world, conn)
}

fn flood() -> Vec<u8> {
    content(2000 * MAX_DATA_LEN)
}

fn xon(advised_kbyte_per_s: u32) -> Vec<u8> {
    let mut data = Vec::new();
    Xon { advised_kbyte_per_s }.encode_into(&mut data);
    data
}

fn cells(world: &World) -> usize {
    world.circuits[&CIRCUIT].tags.len()
}

/// Acknowledges 31 cells; `thirty_one` counts from zero.
fn acknowledge(world: &mut World, thirty_one: usize) {
    let tag = world.circuits[&CIRCUIT].tags[thirty_one * 31 + 30];
    let mut data = Vec::new();
    Sendme::Tagged(&tag).encode_into(&mut data);
    world.send_on(CIRCUIT, RelayCommand::SENDME, 0, &data);
}

#[test]
fn sendmes_grow_the_circuits_window_and_streams_have_no_windows() {
    let (mut world, conn) = stream();
    world.feed(conn, &flood());
    assert_eq!(cells(&world), 124);
    for thirty_one in 0..20 {
        world.advance(Duration::from_millis(5));
        acknowledge(&mut world, thirty_one);
        assert_eq!(world.circuits[&CIRCUIT].destroyed, None);
        world.feed(conn, &flood());
    }
    assert!(cells(&world) > 124 + 20 * 31 + 100, "{} cells", cells(&world));
}

#[test]
fn with_congestion_control_a_stream_sendme_ends_the_circuit() {
    let (mut world, conn) = stream();
    world.feed(conn, &content(100 * MAX_DATA_LEN));
    world.send_on(CIRCUIT, RelayCommand::SENDME, 5, &[]);
    assert_eq!(world.circuits[&CIRCUIT].destroyed, Some(DestroyReason::PROTOCOL));
}

#[test]
fn every_window_has_random_padding_bytes() {
    let (mut world, conn) = stream();
    world.feed(conn, &vec![0; 124 * MAX_DATA_LEN]);
    let lens: Vec<usize> =
        world.circuits[&CIRCUIT].messages.iter().map(|message| message.data.len()).collect();
    for window in lens.chunks(31) {
        assert!(window.iter().any(|len| *len <= MAX_DATA_LEN - 20), "{window:?}");
    }
}

#[test]
fn xoff_stops_a_destination_and_xon_resumes_it() {
    let (mut world, conn) = stream();
    world.send_on(CIRCUIT, RelayCommand::XOFF, 5, &[0]);
    assert_eq!(world.router.receive_limit(conn), 0);
    // A second XOFF and a malformed XON change nothing.
    world.send_on(CIRCUIT, RelayCommand::XOFF, 5, &[0]);
    world.send_on(CIRCUIT, RelayCommand::XON, 5, &[1, 0, 0, 0, 0]);
    assert_eq!((world.router.receive_limit(conn), &world.readable[..]), (0, &[][..]));
    world.send_on(CIRCUIT, RelayCommand::XON, 5, &xon(0));
    assert_eq!(world.readable, [conn]);
    world.feed(conn, &flood());
    assert_eq!(cells(&world), 124);
}

#[test]
fn xon_limits_the_rate_of_a_destination() {
    let (mut world, conn) = stream();
    // 20,000 bytes per second; the circuit would permit more.
    world.send_on(CIRCUIT, RelayCommand::XON, 5, &xon(20));
    let (mut taken, mut acknowledged, began) = (0, 0, world.now);
    for _ in 0..40 {
        world.readable.clear();
        taken += world.feed(conn, &flood());
        while cells(&world) >= (acknowledged + 1) * 31 {
            acknowledge(&mut world, acknowledged);
            acknowledged += 1;
        }
        let wake = world.router.poll_timeout();
        assert!(wake.is_some(), "the stream is to be read later");
        world.advance(Duration::from_millis(100));
    }
    let took = world.now - began;
    assert!((4..5).contains(&took.as_secs()), "{took:?}");
    let due = usize::try_from(20 * took.as_millis()).expect("some thousands");
    let most = due + 20_000 + 498;
    assert!(taken <= most && taken > due - 20_000, "{taken} bytes in {took:?}");
    assert_eq!(world.readable, [conn]);
    // After XOFF, the stream is not read.
    world.readable.clear();
    world.feed(conn, &flood());
    world.send_on(CIRCUIT, RelayCommand::XOFF, 5, &[0]);
    world.advance(Duration::from_secs(3));
    assert_eq!(world.readable, []);
}

#[test]
fn a_client_gets_xoff_when_its_destination_stops_reading_and_xon_when_it_resumes() {
    let (mut world, conn) = stream();
    world.destination(conn).reads = false;
    let signals = |world: &mut World| {
        let messages = &mut world.circuits.get_mut(&CIRCUIT).expect("one").messages;
        messages.retain(|message| message.stream_id == 5);
        messages.drain(..).map(|message| message.command).collect::<Vec<_>>()
    };
    for _ in 0..600 {
        world.advance(Duration::from_millis(1));
        world.send_on(CIRCUIT, RelayCommand::DATA, 5, &[1; MAX_DATA_LEN]);
    }
    assert_eq!(signals(&mut world), [RelayCommand::XOFF]);
    world.resume(conn);
    assert_eq!(signals(&mut world).last(), Some(&RelayCommand::XON));
}

#[test]
fn a_client_that_does_not_stop_loses_the_stream() {
    let (mut world, conn) = stream();
    world.destination(conn).reads = false;
    let most = 16 << 20;
    let mut sent = 0;
    while world.destinations.contains_key(&conn) {
        world.send_on(CIRCUIT, RelayCommand::DATA, 5, &[1; MAX_DATA_LEN]);
        world
            .circuits
            .get_mut(&CIRCUIT)
            .expect("one")
            .messages
            .retain(|message| message.command == RelayCommand::END);
        sent += MAX_DATA_LEN;
        assert!(world.router.queued_bytes() <= most && sent <= most + MAX_DATA_LEN);
    }
    assert!(sent > most);
    let end = world.next_message_on(CIRCUIT);
    assert_eq!(
        (end.command, &end.data[..]),
        (RelayCommand::END, &[EndReason::RESOURCE_LIMIT.0][..])
    );
    assert_eq!(world.circuits[&CIRCUIT].destroyed, None);
    assert_eq!(world.router.queued_bytes(), 0);
}
