//! Flow control with fixed windows, and forged SENDMEs.

use super::world::{CIRCUIT, World, content};
use onion::cell::msg::{DestroyReason, Sendme};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand};
use onion::node::{ConnId, Node};
use testkit::fixture::RUN;

const PROTOCOL: Option<DestroyReason> = Some(DestroyReason::PROTOCOL);

/// More data than any window permits.
fn flood() -> Vec<u8> {
    content(2000 * MAX_DATA_LEN)
}

fn cells(world: &World) -> usize {
    world.circuits[&CIRCUIT].tags.len()
}

#[test]
fn a_destination_fills_the_streams_window_and_no_more() {
    let mut world = World::exit();
    let conn = world.open(5);
    let flood = flood();
    let taken = world.feed(conn, &flood);
    assert_eq!(cells(&world), 500);
    assert!(taken > 499 * MAX_DATA_LEN && taken < 500 * MAX_DATA_LEN, "{taken} bytes");
    assert!(!world.destination(conn).is_readable);
    world.send(RelayCommand::SENDME, 5, &[]);
    assert!(world.destination(conn).is_readable);
    let more = world.feed(conn, &flood[taken..]);
    assert_eq!(cells(&world), 550);
    assert_eq!(world.take_data(5), flood[..taken + more]);
    world.expect_nothing();
}

#[test]
fn all_streams_together_fill_the_circuits_window_and_no_more() {
    let mut world = World::exit();
    let conns = [5, 6, 7].map(|stream_id| world.open(stream_id));
    for conn in conns {
        world.feed(conn, &flood());
    }
    assert_eq!(cells(&world), 1000);
    // The circuit's queue had space at times; now the window is used up.
    world.readable.clear();
    world.advance(RUN);
    assert_eq!(world.readable, []);
    world.acknowledge(0);
    // Two streams have used up their own windows.
    assert_eq!(world.readable, [conns[2]]);
    for conn in conns {
        world.feed(conn, &flood());
    }
    assert_eq!(cells(&world), 1100);
    world.acknowledge(1);
    world.acknowledge(2);
    world.feed(conns[2], &flood());
    assert_eq!((cells(&world), world.destroyed()), (1300, None));
}

#[test]
fn streams_take_turns_when_the_window_reopens() {
    let mut world = World::exit();
    let conns: Vec<ConnId> = (5..9).map(|stream_id| world.open(stream_id)).collect();
    let mut cells_of = [0; 4];
    let mut turns = Vec::new();
    world.readable.clone_from(&conns);
    for round in 0..28 {
        // The first stream fills the window, as with a driver that finds one socket full of data.
        turns.push(world.readable[0]);
        for conn in core::mem::take(&mut world.readable) {
            world.feed(conn, &flood());
        }
        let messages =
            core::mem::take(&mut world.circuits.get_mut(&CIRCUIT).expect("one").messages);
        for cell in messages {
            let count = &mut cells_of[usize::from(cell.stream_id) - 5];
            *count += 1;
            if *count % 50 == 0 {
                world.send(RelayCommand::SENDME, cell.stream_id, &[]);
            }
        }
        if cells(&world) == 1000 + round * 100 {
            world.readable.clear();
            world.acknowledge(round);
        }
        assert_eq!(world.destroyed(), None);
    }
    let count = |conn: &ConnId| turns.iter().filter(|turn| *turn == conn).count();
    let counts: Vec<usize> = conns.iter().map(count).collect();
    assert!(counts.iter().all(|count| (5..=9).contains(count)), "{counts:?}");
}

#[test]
fn one_in_31_cells_has_random_padding_bytes() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.feed(conn, &vec![0; 400 * MAX_DATA_LEN]);
    let lens: Vec<usize> =
        world.circuits[&CIRCUIT].messages.iter().map(|message| message.data.len()).collect();
    for window in lens.windows(31) {
        assert!(window.iter().any(|len| *len <= MAX_DATA_LEN - 20), "{window:?}");
    }
    let short = lens.iter().filter(|len| **len < MAX_DATA_LEN).count();
    assert!(short <= lens.len() / 31 + 1, "{short} of {}", lens.len());
}

#[test]
fn a_circuit_sendme_without_the_right_tag_ends_the_circuit() {
    let forgeries: [fn(&World) -> Vec<u8>; 7] = [
        |_| Vec::new(),
        |_| vec![0, 0, 0],
        |_| vec![1, 0, 20],
        |_| [&[1, 0, 20][..], &[0; 20]].concat(),
        |world| tagged(&world.circuits[&CIRCUIT].tags[100]),
        |world| tagged(&world.circuits[&CIRCUIT].tags[99][..19]),
        |world| [&[2], &tagged(&world.circuits[&CIRCUIT].tags[99])[1..]].concat(),
    ];
    for (number, forge) in forgeries.into_iter().enumerate() {
        let mut world = World::exit();
        let conn = world.open(5);
        world.feed(conn, &content(150 * MAX_DATA_LEN));
        let forged = forge(&world);
        world.send(RelayCommand::SENDME, 0, &forged);
        assert_eq!(world.destroyed(), PROTOCOL, "number {number}");
        assert_eq!(world.closed, [conn]);
    }
}

fn tagged(tag: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    Sendme::Tagged(tag).encode_into(&mut data);
    data
}

#[test]
fn an_unexpected_circuit_sendme_ends_the_circuit() {
    // Before any stream exists, and before a hundred cells were sent.
    let mut world = World::exit();
    world.send_sendme(&[0; 20]);
    assert_eq!(world.destroyed(), PROTOCOL);
    let mut world = World::exit();
    let conn = world.open(5);
    world.feed(conn, &content(99 * 470));
    let tag = *world.circuits[&CIRCUIT].tags.last().expect("some");
    world.send_sendme(&tag);
    assert_eq!(world.destroyed(), PROTOCOL);
    // The same SENDME twice.
    let mut world = World::exit();
    let conn = world.open(5);
    world.feed(conn, &content(150 * MAX_DATA_LEN));
    world.acknowledge(0);
    assert_eq!(world.destroyed(), None);
    world.acknowledge(0);
    assert_eq!(world.destroyed(), PROTOCOL);
}

#[test]
fn a_stream_sendme_must_be_due_unless_the_stream_has_ended() {
    let mut world = World::exit();
    world.send(RelayCommand::SENDME, 9, &[]);
    world.begin(5, "192.0.2.1", 80);
    world.send(RelayCommand::SENDME, 5, &[]);
    world.expect_nothing();
    let conn = world.dialled();
    world.connect(conn);
    world.feed(conn, &content(48 * MAX_DATA_LEN));
    world.send(RelayCommand::SENDME, 5, &[]);
    assert_eq!(world.destroyed(), PROTOCOL);
}

#[test]
fn xon_and_xoff_without_congestion_control_are_ignored() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.send(RelayCommand::XOFF, 5, &[0]);
    world.send(RelayCommand::XON, 5, &[0, 0, 0, 0, 1]);
    world.send(RelayCommand::XON, 5, &[]);
    world.send(RelayCommand::XOFF, 9, &[0]);
    world.feed(conn, b"on");
    assert_eq!(world.take_data(5), b"on");
    world.expect_nothing();
}

#[test]
fn each_hundred_cells_are_acknowledged_with_the_tag_of_the_last() {
    let mut world = World::exit();
    let conn = world.open(5);
    for number in 1..=350u32 {
        // Data for ended streams counts as well.
        let stream_id = if number % 3 == 0 { 9 } else { 5 };
        world.send(RelayCommand::DATA, stream_id, &number.to_be_bytes());
        let tag = world.circuits[&CIRCUIT].hop.sent_tag();
        if number % 100 == 0 {
            let sendme = world.next_message();
            assert_eq!((sendme.command, sendme.stream_id), (RelayCommand::SENDME, 0));
            assert_eq!(Sendme::parse(&sendme.data), Ok(Sendme::Tagged(&tag)));
        }
        let of_stream = number - number / 3;
        if number % 3 != 0 && of_stream % 50 == 0 {
            let sendme = world.next_message();
            assert_eq!((sendme.command, sendme.stream_id), (RelayCommand::SENDME, 5));
            assert!(sendme.data.is_empty());
        }
    }
    world.expect_nothing();
    assert_eq!(world.destination(conn).received.len(), 234 * 4);
}

#[test]
fn a_stream_whose_destination_reads_nothing_gets_no_sendmes() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.destination(conn).reads = false;
    let sendmes = |world: &mut World| {
        let messages = &mut world.circuits.get_mut(&CIRCUIT).expect("one").messages;
        let count = messages.iter().filter(|message| message.stream_id == 5).count();
        assert!(messages.iter().all(|message| message.command == RelayCommand::SENDME));
        messages.clear();
        count
    };
    for _ in 0..500 {
        world.send(RelayCommand::DATA, 5, &[1; MAX_DATA_LEN]);
    }
    assert_eq!(sendmes(&mut world), 0);
    assert_eq!(world.router.queued_bytes(), 500 * MAX_DATA_LEN);
    world.resume(conn);
    assert_eq!(sendmes(&mut world), 10);
    world.destination(conn).reads = false;
    for _ in 0..500 {
        world.send(RelayCommand::DATA, 5, &[1; MAX_DATA_LEN]);
    }
    assert_eq!(world.destroyed(), None);
    world.send(RelayCommand::DATA, 5, &[1; MAX_DATA_LEN]);
    assert_eq!(world.destroyed(), PROTOCOL, "the window is exceeded");
}

#[test]
fn a_client_that_reads_nothing_stops_its_destinations() {
    let mut world = World::exit();
    let conns = [5, 6].map(|stream_id| world.open(stream_id));
    world.set_reads(false);
    for conn in conns {
        world.feed(conn, &flood());
        assert_eq!(world.router.receive_limit(conn), 0);
    }
    assert_eq!(world.router.queued_bytes(), 256 * 514);
    // Streams are not read until ten cells are left.
    world.read_link(245 * 514);
    assert_eq!(world.readable, []);
    world.read_link(514);
    assert_eq!(world.readable, [conns[1], conns[0]], "the stream that was read last is last");
    world.feed(conns[1], &flood());
    assert_eq!(world.router.queued_bytes(), 256 * 514);
    world.set_reads(true);
    world.read_link(usize::MAX);
    assert_eq!(world.destroyed(), None);
}
