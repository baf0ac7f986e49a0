//! The data of streams, and their ends.

use super::world::{CIRCUIT, World, content, exit};
use onion::Duration;
use onion::cell::msg::{DestroyReason, EndReason};
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::node::{CloseCause, DnsAnswer, Node};
use onion::router::RouterConfig;
use testkit::fixture::RUN;
use testkit::vectors::IDENTITIES;

#[test]
fn data_flows_in_both_directions() {
    let mut world = World::exit();
    let conn = world.open(5);
    let (upload, download) = (content(3000), content(20_000));
    for piece in upload.chunks(498) {
        world.send(RelayCommand::DATA, 5, piece);
    }
    assert_eq!(world.destination(conn).received, upload);
    assert_eq!(world.feed(conn, &download), download.len());
    assert_eq!(world.take_data(5), download);
    world.expect_nothing();
    assert_eq!(world.router.queued_bytes(), 0);
}

#[test]
fn streams_of_a_circuit_are_kept_apart() {
    let mut world = World::exit();
    let (one, two) = (world.open(5), world.open(6));
    world.send(RelayCommand::DATA, 5, b"one");
    world.send(RelayCommand::DATA, 6, b"two");
    world.feed(two, b"zwei");
    world.feed(one, b"eins");
    assert_eq!(world.destination(one).received, b"one");
    assert_eq!(world.destination(two).received, b"two");
    assert_eq!((world.take_data(5), world.take_data(6)), (b"eins".to_vec(), b"zwei".to_vec()));
}

#[test]
fn data_received_before_the_connection_opens_is_queued() {
    let mut world = World::exit();
    world.begin(5, "a.b", 80);
    world.send(RelayCommand::DATA, 5, b"GET ");
    world.answer(DnsAnswer::Addresses(vec![[192, 0, 2, 1].into()]));
    world.send(RelayCommand::DATA, 5, b"/");
    let conn = world.dialled();
    assert_eq!(world.router.queued_bytes(), 5);
    world.connect(conn);
    assert_eq!(world.destination(conn).received, b"GET /");
    assert_eq!(world.next_message().command, RelayCommand::CONNECTED);
    world.expect_nothing();
}

#[test]
fn no_sendme_is_sent_before_connected() {
    let mut world = World::exit();
    world.begin(5, "192.0.2.1", 80);
    for _ in 0..99 {
        world.send(RelayCommand::DATA, 5, &[]);
    }
    world.expect_nothing();
    let conn = world.dialled();
    world.connect(conn);
    assert_eq!(world.next_message().command, RelayCommand::CONNECTED);
    let sendme = world.next_message();
    assert_eq!((sendme.command, sendme.stream_id), (RelayCommand::SENDME, 5));
    world.expect_nothing();
}

#[test]
fn a_destination_that_closes_ends_its_stream() {
    for (cause, reason) in
        [(CloseCause::ByPeer, EndReason::DONE), (CloseCause::Reset, EndReason::CONN_RESET)]
    {
        let mut world = World::exit();
        let conn = world.open(5);
        world.feed(conn, b"bye");
        world.close_destination(conn, cause);
        assert_eq!(world.take_data(5), b"bye");
        assert_eq!(world.expect_end(5), reason);
        // Messages that the client sent meanwhile are ignored.
        world.send(RelayCommand::DATA, 5, b"more");
        world.send(RelayCommand::SENDME, 5, &[]);
        world.send(RelayCommand::END, 5, &[6]);
        world.expect_nothing();
        assert_eq!(world.router.open_streams(), 0);
        // Stream ID and connection ID are free again.
        assert_eq!(world.open(5), conn);
    }
}

#[test]
fn data_sent_before_end_is_still_delivered() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.destination(conn).reads = false;
    world.send(RelayCommand::DATA, 5, &content(400));
    world.send(RelayCommand::END, 5, &[6]);
    assert_eq!(world.closed, []);
    assert_eq!(world.router.receive_limit(conn), 0);
    // The stream has ended: its ID is free.
    let other = world.open(5);
    assert_ne!(other, conn);
    world.send(RelayCommand::DATA, 5, b"not for the first");
    world.destinations.get_mut(&conn).expect("still there").reads = true;
    let mut buffer = [0; 1000];
    let now = world.now;
    let len = world.router.poll_transmit(now, conn, &mut buffer);
    assert_eq!(buffer[..len], content(400));
    world.settle();
    assert_eq!(world.closed, [conn]);
    assert_eq!(world.router.open_streams(), 1);
    world.expect_nothing();
}

#[test]
fn a_destination_that_reads_nothing_is_closed_after_its_stream() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.destination(conn).reads = false;
    world.send(RelayCommand::DATA, 5, &content(400));
    world.advance(Duration::from_secs(60));
    assert_eq!(world.closed, [], "nothing times out while the stream is open");
    world.send(RelayCommand::END, 5, &[6]);
    world.advance(Duration::from_secs(26));
    assert_eq!(world.closed, [conn]);
    assert_eq!((world.router.open_streams(), world.router.queued_bytes()), (0, 0));
}

#[test]
fn a_lookup_that_times_out_ends_the_stream() {
    let mut world = World::exit();
    world.begin(5, "a.b", 80);
    world.send(RelayCommand::RESOLVE, 6, b"a.b");
    world.advance(Duration::from_secs(311));
    assert_eq!(world.expect_end(5), EndReason::TIMEOUT);
    assert_eq!(world.next_message().command, RelayCommand::RESOLVED);
    assert_eq!(world.router.open_streams(), 0);
}

#[test]
fn closing_a_circuit_closes_its_streams() {
    let gone: [fn(&mut World); 2] = [
        |world| {
            world.queue(CIRCUIT, Command::DESTROY, &[9]);
            world.exchange();
        },
        World::close_link,
    ];
    for go in gone {
        let mut world = World::exit();
        let (idle, slow) = (world.open(5), world.open(6));
        world.begin(7, "a.b", 80);
        world.begin(8, "192.0.2.2", 80);
        let dialled = world.destinations.iter().find(|(_, destination)| !destination.is_connected);
        let dialled = *dialled.expect("one").0;
        world.send(RelayCommand::RESOLVE, 9, b"a.b");
        world.destination(slow).reads = false;
        world.send(RelayCommand::DATA, 6, b"late");
        go(&mut world);
        let mut closed = world.closed.clone();
        closed.sort_unstable();
        assert_eq!(closed, [idle, dialled], "the data of the slow one is still to be written");
        world.resume(slow);
        assert_eq!(world.router.open_streams(), 0);
        // Answers are ignored.
        while !world.queries.is_empty() {
            world.answer(DnsAnswer::Failed);
        }
    }
}

#[test]
fn truncate_leaves_the_streams_alone() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.send(RelayCommand::TRUNCATE, 0, &[]);
    assert_eq!(world.next_message().command, RelayCommand::TRUNCATED);
    world.feed(conn, b"on");
    assert_eq!(world.take_data(5), b"on");
}

#[test]
fn extend2_without_relay_early_or_to_an_invalid_address_is_refused() {
    let mut world = World::exit();
    world.send(RelayCommand::EXTEND2, 0, &[0; 100]);
    world.expect_nothing();
    for (number, address) in
        [[0, 0, 0, 0, 1, 1], [224, 0, 0, 1, 1, 1], [255, 255, 255, 255, 1, 1], [192, 0, 2, 1, 0, 0]]
            .into_iter()
            .enumerate()
    {
        let circ_id = CircId::of_initiator(10 + u32::try_from(number).expect("few"));
        world.create(circ_id);
        world.send_early(circ_id, RelayCommand::EXTEND2, &IDENTITIES.extend2(address));
        assert_eq!(
            world.circuits[&circ_id].destroyed,
            Some(DestroyReason::PROTOCOL),
            "{address:?}"
        );
    }
}

#[test]
fn a_driver_that_reads_beyond_the_limit_loses_only_the_stream() {
    let mut world = World::exit();
    let conn = world.open(5);
    let limit = world.router.receive_limit(conn);
    let now = world.now;
    world.router.handle_bytes(now, conn, &content(limit + 1));
    world.settle();
    world.advance(RUN);
    assert_eq!(world.expect_end(5), EndReason::INTERNAL);
    assert_eq!(world.closed, [conn]);
    world.open(6);
}

#[test]
fn a_relay_that_stops_being_an_exit_opens_no_streams() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.router.set_exit(None);
    world.router.set_directory(None);
    world.begin(6, "192.0.2.1", 80);
    assert_eq!(world.expect_end(6), EndReason::EXIT_POLICY);
    world.send(RelayCommand::BEGIN_DIR, 6, &[]);
    assert_eq!(world.expect_end(6), EndReason::NOT_DIRECTORY);
    world.feed(conn, b"still");
    assert_eq!(world.take_data(5), b"still");
}

#[test]
fn streams_are_limited_in_total_and_per_circuit() {
    let mut world = World::new(RouterConfig { streams_max: 2, ..exit() }, false);
    let other = CircId::of_initiator(2);
    world.create(other);
    let one = world.open(5);
    world.open(6);
    world.begin(7, "192.0.2.1", 80);
    assert_eq!(world.expect_end(7), EndReason::RESOURCE_LIMIT);
    // Another circuit without streams takes one from it, but not its last.
    world.open_on(other, 6);
    assert_eq!(world.expect_end(6), EndReason::RESOURCE_LIMIT);
    world.send_on(other, RelayCommand::BEGIN, 7, b"192.0.2.1:80\0\0\0\0\0");
    assert_eq!(world.router.open_streams(), 2);
    world.expect_nothing();
    world.close_destination(one, CloseCause::ByPeer);
    assert_eq!(world.expect_end(5), EndReason::DONE);
    world.open(7);

    let mut world = World::exit();
    for stream_id in 1..=1024 {
        world.begin(stream_id, "192.0.2.1", 80);
    }
    world.expect_nothing();
    world.begin(2000, "192.0.2.1", 80);
    assert_eq!(world.expect_end(2000), EndReason::MISC);
    world.send(RelayCommand::RESOLVE, 2000, b"a.b");
    assert_eq!(world.next_message().data[0], 0xf0, "a transient error");
    world.create(other);
    world.open_on(other, 1);
}
