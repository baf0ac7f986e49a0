//! What streams carry, and how they end.

use super::world::{CIRCUIT, World, content, exit};
use onion::Duration;
use onion::cell::msg::{DestroyReason, EndReason};
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::node::{CloseCause, DnsAnswer, Node};
use onion::router::RouterConfig;
use testkit::fixture::RUN;

#[test]
fn bytes_go_both_ways() {
    let mut world = World::exit();
    let conn = world.open(5);
    let (there, back) = (content(3000), content(20_000));
    for piece in there.chunks(498) {
        world.say(RelayCommand::DATA, 5, piece);
    }
    assert_eq!(world.destination(conn).received, there);
    assert_eq!(world.feed(conn, &back), back.len());
    assert_eq!(world.hear_data(5), back);
    world.hear_nothing();
    assert_eq!(world.router.queued_bytes(), 0);
}

#[test]
fn streams_of_a_circuit_are_kept_apart() {
    let mut world = World::exit();
    let (one, two) = (world.open(5), world.open(6));
    world.say(RelayCommand::DATA, 5, b"one");
    world.say(RelayCommand::DATA, 6, b"two");
    world.feed(two, b"zwei");
    world.feed(one, b"eins");
    assert_eq!(world.destination(one).received, b"one");
    assert_eq!(world.destination(two).received, b"two");
    assert_eq!((world.hear_data(5), world.hear_data(6)), (b"eins".to_vec(), b"zwei".to_vec()));
}

#[test]
fn what_comes_before_the_connection_stands_waits_for_it() {
    let mut world = World::exit();
    world.begin(5, "a.b", 80);
    world.say(RelayCommand::DATA, 5, b"GET ");
    world.answer(DnsAnswer::Addresses(vec![[192, 0, 2, 1].into()]));
    world.say(RelayCommand::DATA, 5, b"/");
    let conn = world.dialled();
    assert_eq!(world.router.queued_bytes(), 5);
    world.connect(conn);
    assert_eq!(world.destination(conn).received, b"GET /");
    assert_eq!(world.hear().command, RelayCommand::CONNECTED);
    world.hear_nothing();
}

#[test]
fn no_sendme_comes_before_connected() {
    let mut world = World::exit();
    world.begin(5, "192.0.2.1", 80);
    for _ in 0..99 {
        world.say(RelayCommand::DATA, 5, &[]);
    }
    world.hear_nothing();
    let conn = world.dialled();
    world.connect(conn);
    assert_eq!(world.hear().command, RelayCommand::CONNECTED);
    let sendme = world.hear();
    assert_eq!((sendme.command, sendme.stream_id), (RelayCommand::SENDME, 5));
    world.hear_nothing();
}

#[test]
fn a_destination_that_closes_ends_its_stream() {
    for (cause, reason) in
        [(CloseCause::ByPeer, EndReason::DONE), (CloseCause::Reset, EndReason::CONN_RESET)]
    {
        let mut world = World::exit();
        let conn = world.open(5);
        world.feed(conn, b"bye");
        world.lose(conn, cause);
        assert_eq!(world.hear_data(5), b"bye");
        assert_eq!(world.hear_end(5), reason);
        // What the client has sent meanwhile is of no use to anybody.
        world.say(RelayCommand::DATA, 5, b"more");
        world.say(RelayCommand::SENDME, 5, &[]);
        world.say(RelayCommand::END, 5, &[6]);
        world.hear_nothing();
        assert_eq!(world.router.open_streams(), 0);
        // The numbers are free again, both of them.
        assert_eq!(world.open(5), conn);
    }
}

#[test]
fn a_client_that_ends_a_stream_is_still_heard_out() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.destination(conn).reads = false;
    world.say(RelayCommand::DATA, 5, &content(400));
    world.say(RelayCommand::END, 5, &[6]);
    assert_eq!(world.closed, []);
    assert_eq!(world.router.receive_limit(conn), 0);
    // The stream is over: its number is free.
    let other = world.open(5);
    assert_ne!(other, conn);
    world.say(RelayCommand::DATA, 5, b"not for the first");
    world.destinations.get_mut(&conn).expect("still there").reads = true;
    let mut buffer = [0; 1000];
    let now = world.now;
    let len = world.router.poll_transmit(now, conn, &mut buffer);
    assert_eq!(buffer[..len], content(400));
    world.settle();
    assert_eq!(world.closed, [conn]);
    assert_eq!(world.router.open_streams(), 1);
    world.hear_nothing();
}

#[test]
fn a_destination_that_takes_nothing_is_given_up_after_the_stream() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.destination(conn).reads = false;
    world.say(RelayCommand::DATA, 5, &content(400));
    world.pass(Duration::from_secs(60));
    assert_eq!(world.closed, [], "nothing times out while the stream is open");
    world.say(RelayCommand::END, 5, &[6]);
    world.pass(Duration::from_secs(26));
    assert_eq!(world.closed, [conn]);
    assert_eq!((world.router.open_streams(), world.router.queued_bytes()), (0, 0));
}

#[test]
fn a_name_that_is_never_answered_ends_the_stream() {
    let mut world = World::exit();
    world.begin(5, "a.b", 80);
    world.say(RelayCommand::RESOLVE, 6, b"a.b");
    world.pass(Duration::from_secs(311));
    assert_eq!(world.hear_end(5), EndReason::TIMEOUT);
    assert_eq!(world.hear().command, RelayCommand::RESOLVED);
    assert_eq!(world.router.open_streams(), 0);
}

#[test]
fn a_circuit_that_goes_takes_its_streams_along() {
    let gone: [fn(&mut World); 2] = [
        |world| {
            world.queue(CIRCUIT, Command::DESTROY, &[9]);
            world.exchange();
        },
        World::hang_up,
    ];
    for go in gone {
        let mut world = World::exit();
        let (idle, slow) = (world.open(5), world.open(6));
        world.begin(7, "a.b", 80);
        world.begin(8, "192.0.2.2", 80);
        let dialled = world.destinations.iter().find(|(_, it)| !it.is_connected);
        let dialled = *dialled.expect("one").0;
        world.say(RelayCommand::RESOLVE, 9, b"a.b");
        world.destination(slow).reads = false;
        world.say(RelayCommand::DATA, 6, b"late");
        go(&mut world);
        let mut closed = world.closed.clone();
        closed.sort_unstable();
        assert_eq!(closed, [idle, dialled], "the slow one is still to be written");
        world.release(slow);
        assert_eq!(world.router.open_streams(), 0);
        // Answers come to nobody.
        while !world.questions.is_empty() {
            world.answer(DnsAnswer::Failed);
        }
    }
}

#[test]
fn truncate_leaves_the_streams_alone() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.say(RelayCommand::TRUNCATE, 0, &[]);
    assert_eq!(world.hear().command, RelayCommand::TRUNCATED);
    world.feed(conn, b"on");
    assert_eq!(world.hear_data(5), b"on");
}

#[test]
fn nobody_is_extended_without_relay_early_or_to_nowhere() {
    let mut world = World::exit();
    world.say(RelayCommand::EXTEND2, 0, &[0; 100]);
    world.hear_nothing();
    let body = |address: [u8; 6]| {
        let mut data = vec![2, 0, 6];
        data.extend(address);
        data.extend([2, 20]);
        data.extend([9; 20]);
        data.extend([0, 2, 0, 84]);
        data.extend([7; 84]);
        data
    };
    for (number, address) in
        [[0, 0, 0, 0, 1, 1], [224, 0, 0, 1, 1, 1], [255, 255, 255, 255, 1, 1], [192, 0, 2, 1, 0, 0]]
            .into_iter()
            .enumerate()
    {
        let circ_id = CircId::of_initiator(10 + u32::try_from(number).expect("few"));
        world.create(circ_id);
        world.say_early(circ_id, RelayCommand::EXTEND2, &body(address));
        assert_eq!(
            world.circuits[&circ_id].destroyed,
            Some(DestroyReason::PROTOCOL),
            "{address:?}"
        );
    }
}

#[test]
fn a_shell_that_reads_too_much_loses_the_stream_and_nothing_else() {
    let mut world = World::exit();
    let conn = world.open(5);
    let limit = world.router.receive_limit(conn);
    let now = world.now;
    world.router.handle_bytes(now, conn, &content(limit + 1));
    world.settle();
    world.pass(RUN);
    assert_eq!(world.hear_end(5), EndReason::INTERNAL);
    assert_eq!(world.closed, [conn]);
    world.open(6);
}

#[test]
fn who_is_an_exit_no_more_opens_no_streams() {
    let mut world = World::exit();
    let conn = world.open(5);
    world.router.set_exit(None);
    world.router.set_directory(None);
    world.begin(6, "192.0.2.1", 80);
    assert_eq!(world.hear_end(6), EndReason::EXIT_POLICY);
    world.say(RelayCommand::BEGIN_DIR, 6, &[]);
    assert_eq!(world.hear_end(6), EndReason::NOT_DIRECTORY);
    world.feed(conn, b"still");
    assert_eq!(world.hear_data(5), b"still");
}

#[test]
fn streams_are_limited_in_all_and_on_each_circuit() {
    let mut world = World::new(RouterConfig { streams_max: 2, ..exit() }, false);
    let other = CircId::of_initiator(2);
    world.create(other);
    let one = world.open(5);
    world.open(6);
    world.begin(7, "192.0.2.1", 80);
    assert_eq!(world.hear_end(7), EndReason::RESOURCE_LIMIT);
    // Another circuit that has none takes one of its two, but not the last.
    world.open_on(other, 6);
    assert_eq!(world.hear_end(6), EndReason::RESOURCE_LIMIT);
    world.say_on(other, RelayCommand::BEGIN, 7, b"192.0.2.1:80\0\0\0\0\0");
    assert_eq!(world.router.open_streams(), 2);
    world.hear_nothing();
    world.lose(one, CloseCause::ByPeer);
    assert_eq!(world.hear_end(5), EndReason::DONE);
    world.open(7);

    let mut world = World::exit();
    for stream_id in 1..=1024 {
        world.begin(stream_id, "192.0.2.1", 80);
    }
    world.hear_nothing();
    world.begin(2000, "192.0.2.1", 80);
    assert_eq!(world.hear_end(2000), EndReason::MISC);
    world.say(RelayCommand::RESOLVE, 2000, b"a.b");
    assert_eq!(world.hear().data[0], 0xf0, "later, perhaps");
    world.create(other);
    world.open_on(other, 1);
}
