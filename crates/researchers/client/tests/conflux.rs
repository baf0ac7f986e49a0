//! Circuits that are linked at their exit (proposal 329), with C tor exits and ours.

use crate::common::{Ours, PATIENCE, exit, network};
use client::strategy::{Position, Strategy};
use client::{Choices, Event, LegTraffic, NetDir, RelayInfo, Settings};
use lab::{
    Content, ContentServer, Network, RelaySpec, connect_through, download, download_while,
    read_rest,
};
use link::Clock;
use netdoc::RsaId;
use onion::cell::msg::DesiredUx;
use onion::tunnel::conflux::{LegScheduler, LegState, schedulers};
use onion::{Duration, Instant};
use relay::Relay;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

/// Selects by weight, except the exit, which has this name.
#[derive(Debug)]
struct ExitBy(&'static str);

impl Strategy for ExitBy {
    fn name(&self) -> &'static str {
        "exit-by"
    }

    fn weight(&self, _: &NetDir, relay: &RelayInfo, at: Position, _: &[&RelayInfo]) -> f64 {
        let is_it = relay.nickname.as_str() == self.0;
        f64::from(u8::from((at == Position::Exit) == is_it))
    }
}

fn with_legs(network: &Network, folder: &Path, exit: &'static str, legs: usize) -> Settings {
    let folder = folder.join(format!("client{legs}"));
    Settings {
        choices: Choices { legs, strategy: Box::new(ExitBy(exit)), ..Choices::default() },
        ..Settings::new(network.directory_addrs(), folder)
    }
}

/// A relay of the crate `relay`, published in this network as an exit.
fn our_exit(network: &Network, folder: &Path) -> Relay {
    let config = crate::common::our_exit("ours", network, folder);
    Relay::start(&config.check().expect("sound"), channel().0).expect("started")
}

/// Waits until a first download succeeds: the exits accept streams only from relays in their own
/// consensus.
fn wait_for_exit(client: &mut Ours, port: u16) {
    let clock = Clock::start();
    let content = Content { len: 100, seed: 9 };
    let socks = client.proxy.socks();
    while let Err(error) = download(socks, ("127.0.0.1", port), content, "first", PATIENCE) {
        assert!(clock.now() - Instant::ORIGIN < PATIENCE, "{error}: {:#?}", client.all_events());
        thread::park_timeout(Duration::from_millis(500));
    }
    let _ = traffic(client);
}

/// The traffic of the legs when the latest stream was closed.
fn traffic(client: &mut Ours) -> Vec<LegTraffic> {
    client.wait_for("end of a stream", |event| match event {
        Event::StreamClosed { legs, is_ok: true, .. } => Some(legs.clone()),
        _ => None,
    })
}

/// Downloads all lengths under one name, and so over one set. Returns the final traffic of its legs.
fn downloads(client: &mut Ours, port: u16, what: &str) -> Vec<LegTraffic> {
    let socks = client.proxy.socks();
    let mut last = Vec::new();
    for (number, len) in [0, 1, 498, 100_000, 3 << 20, 10 << 20].into_iter().enumerate() {
        let content = Content { len, seed: number as u64 };
        let done = download(socks, ("127.0.0.1", port), content, "one", PATIENCE);
        let done = done.unwrap_or_else(|error| {
            panic!("{what}, {len} bytes: {error}: {:#?}", client.all_events())
        });
        assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        last = traffic(client);
    }
    last
}

/// The paths of a set's legs, in the order in which they were built.
fn leg_paths(client: &Ours, number: u64) -> Vec<Vec<RsaId>> {
    let mut paths: Vec<(u8, Vec<RsaId>)> = Vec::new();
    for event in &client.seen {
        match event {
            Event::LegBuilt { circuit, leg, path, .. } if *circuit == number => {
                paths.push((*leg, path.iter().map(|hop| hop.fingerprint).collect()));
            }
            Event::LegLost { circuit, leg, .. } if *circuit == number => {
                paths.retain(|(built, _)| built != leg);
            }
            _ => {}
        }
    }
    paths.into_iter().map(|(_, path)| path).collect()
}

/// The guards of legs that a set has lost.
fn lost_guards(client: &Ours, number: u64) -> BTreeSet<RsaId> {
    let of = |event: &Event| match event {
        Event::LegLost { circuit, path, .. } if *circuit == number => Some(path[0].fingerprint),
        _ => None,
    };
    client.seen.iter().filter_map(of).collect()
}

/// Asserts that all legs have carried data, over disjoint paths.
fn check_legs(client: &mut Ours, last: &[LegTraffic], count: usize, what: &str) {
    assert_eq!(last.len(), count, "{what}: {last:?}");
    assert!(last.iter().all(|leg| leg.received_messages > 100), "{what}: {last:?}");
    let all: u64 = last.iter().map(|leg| leg.received_messages).sum();
    assert!(all > (13 << 20) / 498, "{what}: {last:?}");
    let number = client.last_circuit();
    let paths = leg_paths(client, number);
    assert_eq!(paths.len(), count, "{what}: {paths:?}");
    for place in 0..2 {
        let relays: BTreeSet<_> = paths.iter().map(|path| path[place]).collect();
        assert_eq!(relays.len(), count, "{what}: relays at place {place} differ: {paths:?}");
    }
    assert!(paths.iter().all(|path| path[2] == paths[0][2]), "{what}: one exit: {paths:?}");
}

fn relays(count: usize) -> Vec<RelaySpec> {
    (0..count).map(|number| RelaySpec::new(&format!("middle{number}"))).collect()
}

#[test]
fn downloads_over_two_to_four_legs_to_a_c_tor_exit_are_complete_and_use_all_legs() {
    let mut specs = relays(4);
    specs.push(exit("stock"));
    let network = network(specs);
    let folder = tempfile::tempdir().expect("a folder");
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    for legs in 2..=4 {
        let settings = with_legs(&network, folder.path(), "stock", legs);
        let mut client = Ours::start_with(settings);
        let last = downloads(&mut client, port, &format!("{legs} legs"));
        check_legs(&mut client, &last, legs, &format!("{legs} legs"));
    }
}

/// The exit selects legs as the client requests; the client uses each scheduler.
#[test]
fn uploads_and_downloads_over_two_to_four_legs_to_our_exit_are_complete_with_each_scheduler() {
    let network = network(relays(4));
    let folder = tempfile::tempdir().expect("a folder");
    let relay = our_exit(&network, folder.path());
    network.wait_until_known(&[relay.rsa().0], PATIENCE).expect("listed");
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    for (legs, leg_scheduler) in (2..=4).cycle().zip(schedulers::ALL) {
        let scheduler = leg_scheduler.name();
        let own = folder.path().join(scheduler);
        fs::create_dir(&own).expect("made");
        let mut settings = with_legs(&network, &own, "ours", legs);
        settings.choices.leg_scheduler = leg_scheduler;
        let mut client = Ours::start_with(settings);
        wait_for_exit(&mut client, port);
        let before = relay.totals();
        let last = downloads(&mut client, port, scheduler);
        check_legs(&mut client, &last, legs, scheduler);
        let after = relay.totals();
        assert!(after.conflux_switches > before.conflux_switches, "{after:?}");
        let (listener, len) = (TcpListener::bind("127.0.0.1:0").expect("a port"), 4_000_000);
        let port = listener.local_addr().expect("bound").port();
        let taker = taking(listener, len);
        let mut stream = open_stream(&client, port, &(0..len).map(byte_at).collect::<Vec<_>>());
        let mut answer = [0; 5];
        let answered = stream.read_exact(&mut answer);
        assert!(answered.is_ok(), "{scheduler}: {answered:?}: {:#?}", client.all_events());
        assert!(taker.join().expect("no panic"), "{scheduler}: not what was sent");
    }
    // For latency, the exit uses one leg until another becomes faster.
    let mut settings = with_legs(&network, folder.path(), "ours", 2);
    settings.choices.desired = DesiredUx::MinLatency;
    let mut client = Ours::start_with(settings);
    wait_for_exit(&mut client, port);
    let last = downloads(&mut client, port, "latency");
    assert_eq!(last.len(), 2, "{last:?}");
}

/// The server's answer to this request on a direct connection.
fn answer_of(port: u16, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    answer
}

/// A stream to this port of loopback on which the request was sent.
fn open_stream(client: &Ours, port: u16, request: &[u8]) -> TcpStream {
    let socks = client.proxy.socks();
    let mut stream =
        connect_through(socks, ("127.0.0.1", port), "begun", PATIENCE).expect("granted");
    stream.write_all(request).expect("sent");
    stream
}

/// A C tor exit does not retransmit the data of a lost leg (proposal 329 §2.4.3): the stream ends, and the data received
/// until then is correct. The next stream uses another path.
#[test]
fn with_a_c_tor_exit_a_killed_guard_ends_the_stream_after_correct_data() {
    let mut specs = relays(5);
    specs.push(exit("stock"));
    let network = network(specs);
    let folder = tempfile::tempdir().expect("a folder");
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    let mut client = Ours::start_with(with_legs(&network, folder.path(), "stock", 2));
    client.wait_for("set", |event| match event {
        Event::CircuitBuilt { legs: 2, .. } => Some(()),
        _ => None,
    });
    let request = b"GET /50000000/1 HTTP/1.0\r\n\r\n";
    let mut stream = open_stream(&client, port, request);
    // More than the window of one leg: both carry data.
    let mut received = vec![0; 5_000_000];
    stream.read_exact(&mut received).expect("data arrives");
    let number = client.last_circuit();
    let paths = leg_paths(&client, number);
    assert_eq!(paths.len(), 2, "both are linked");
    let guard = paths.last().expect("two legs")[0];
    let node = network.nodes().iter().find(|node| node.rsa() == guard.0);
    node.expect("a C tor relay").kill();
    received.extend(read_rest(&mut stream).expect("it ends"));
    assert!(received.len() < 50_000_000, "{} bytes received", received.len());
    assert!(answer_of(port, request).starts_with(&received), "{} bytes are wrong", received.len());
    client.wait_for("end of the set", |event| match event {
        Event::CircuitClosed { circuit, .. } if *circuit == number => Some(()),
        _ => None,
    });
    // Sets with the dead relay in the middle of a leg are noticed when its neighbours close their
    // links: their streams end, too.
    let (mut whole, mut tried) = (0, 0);
    while whole < 3 {
        tried += 1;
        let content = Content { len: 500_000, seed: tried };
        let done = download(client.proxy.socks(), ("127.0.0.1", port), content, "", PATIENCE);
        let is_right = done.as_ref().is_ok_and(|done| done.is_right);
        let is_cut = done.as_ref().map_or(true, |done| done.received < content.len);
        assert!(is_right || (is_cut && tried < 20), "{done:?}: {:#?}", client.all_events());
        whole += u64::from(is_right);
    }
}

/// Our exit and our client retransmit unacknowledged data on the remaining legs.
fn legs_that_are_killed_lose_nothing(legs: usize) {
    // A guard and a middle for each leg.
    let network = network(relays(2 * legs));
    let folder = tempfile::tempdir().expect("a folder");
    let relay = our_exit(&network, folder.path());
    network.wait_until_known(&[relay.rsa().0], PATIENCE).expect("listed");
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    let mut client = Ours::start_with(with_legs(&network, folder.path(), "ours", legs));
    wait_for_exit(&mut client, port);
    let before = relay.totals();
    let (mut received, mut killed) = (0_u64, BTreeSet::new());
    let content = Content { len: 60 << 20, seed: 1 };
    let socks = client.proxy.socks();
    let mut kill = |bytes| {
        received += bytes;
        // Twice during the download, kill the guard of a leg that carries data.
        if received > (killed.len() as u64 + 1) * (15 << 20) && killed.len() < 2 {
            let number = client.last_circuit();
            // A leg whose guard was killed may not have been noticed yet.
            let mut guards = leg_paths(&client, number).into_iter().map(|path| path[0]);
            let guard = guards.find(|guard| !killed.contains(guard)).expect("a leg that is left");
            killed.insert(guard);
            let node = network.nodes().iter().find(|node| node.rsa() == guard.0);
            node.expect("a C tor relay").kill();
        }
        true
    };
    let from = ("127.0.0.1", port);
    let done = download_while(socks, from, content, "first", PATIENCE, &mut kill);
    let done = done.unwrap_or_else(|error| panic!("{error}: {:#?}", client.all_events()));
    assert!(done.is_right, "{done:?}: {:#?}", client.all_events());
    assert_eq!(killed.len(), 2);
    let number = client.last_circuit();
    let lost = lost_guards(&client, number);
    assert!(killed.is_subset(&lost), "{killed:?} were killed: {:#?}", client.all_events());
    let after = relay.totals();
    assert!(after.conflux_resent > before.conflux_resent, "{after:?}");
}

#[test]
fn our_exit_loses_no_data_when_two_of_three_guards_are_killed() {
    legs_that_are_killed_lose_nothing(3);
}

#[test]
fn our_exit_loses_no_data_when_two_of_four_guards_are_killed() {
    legs_that_are_killed_lose_nothing(4);
}

#[test]
fn without_an_exit_that_links_circuits_one_circuit_is_used() {
    let plain = RelaySpec {
        extra_torrc: [exit("plain").extra_torrc, vec!["ConfluxEnabled 0".to_owned()]].concat(),
        ..RelaySpec::new("plain")
    };
    let network = network(vec![plain]);
    let folder = tempfile::tempdir().expect("a folder");
    let server = ContentServer::start().expect("a server");
    // The exit announces Conflux but refuses it; five legs also need more guards and middles than exist.
    let mut client = Ours::start_with(with_legs(&network, folder.path(), "plain", 5));
    let content = Content { len: 100_000, seed: 1 };
    let from = ("127.0.0.1", server.address().port());
    let done = download(client.proxy.socks(), from, content, "one", PATIENCE);
    assert!(done.expect("whole").is_right);
    assert_eq!(traffic(&mut client), []);
    let is_reported =
        |event: &Event| matches!(event, Event::Trouble { reason } if reason.contains("linked"));
    assert!(client.all_events().iter().any(is_reported), "{:#?}", client.all_events());
}

/// Relays whose processes are stopped: their links stay open, but carry nothing. Dropping it resumes them.
struct Stopped(Vec<u32>);

impl Stopped {
    fn stop(network: &Network, guards: &[RsaId]) -> Self {
        let is_one = |node: &&lab::Node| guards.iter().any(|guard| node.rsa() == guard.0);
        let stopped = Self(network.nodes().iter().filter(is_one).map(lab::Node::pid).collect());
        assert_eq!(stopped.0.len(), guards.len(), "C tor relays");
        stopped.signal("-STOP");
        stopped
    }

    fn signal(&self, signal: &str) {
        let pids = self.0.iter().map(u32::to_string);
        let done = Command::new("kill").arg(signal).args(pids).status();
        assert!(done.is_ok_and(|status| status.success()), "{signal} {:?}", self.0);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// Selects the leg with the most space in its window, so that all carry data.
#[derive(Debug)]
struct MostRoom;

impl LegScheduler for MostRoom {
    fn name(&self) -> &'static str {
        "most-room"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        let with_room = legs.iter().enumerate().filter(|(_, leg)| leg.has_room());
        with_room.max_by_key(|(_, leg)| leg.room_cells()).map(|(place, _)| place)
    }
}

/// The uploaded byte at this offset; the period is prime, so that no two cells are equal.
fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 65_521 * 31 % 251).expect("less than 251")
}

/// Receives one upload of this length, and answers. Returns whether the data was correct.
fn taking(listener: TcpListener, len: usize) -> thread::JoinHandle<bool> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut place, mut room) = (0, vec![0; 1 << 16]);
        while place < len {
            let count = stream.read(&mut room).expect("data arrives");
            let is_right =
                room[..count].iter().zip(place..).all(|(byte, place)| *byte == byte_at(place));
            if count == 0 || !is_right {
                return false;
            }
            place += count;
        }
        stream.write_all(b"whole").expect("answered");
        place == len
    })
}

/// Guards that stop forwarding while a client uploads, much or little: the upload completes, and no
/// link is closed for it.
#[test]
fn uploads_are_complete_though_the_guards_of_two_of_three_legs_stall() {
    let network = network(relays(6));
    let folder = tempfile::tempdir().expect("a folder");
    let relay = our_exit(&network, folder.path());
    network.wait_until_known(&[relay.rsa().0], PATIENCE).expect("listed");
    let server = ContentServer::start().expect("a server");
    // The exit notices the larger upload by its queue; it notices the smaller one only by its
    // timer.
    for (len, before) in [(40_000_000, 10_000_000), (3_000_000, 1_500_000)] {
        let own = folder.path().join(len.to_string());
        fs::create_dir(&own).expect("made");
        let mut settings = with_legs(&network, &own, "ours", 3);
        settings.choices.leg_scheduler = &MostRoom;
        let mut client = Ours::start_with(settings);
        wait_for_exit(&mut client, server.address().port());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let taker = taking(listener, len);
        let bytes: Vec<u8> = (0..len).map(byte_at).collect();
        let mut stream = open_stream(&client, port, &bytes[..before]);
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        let target = format!("127.0.0.1:{port}");
        let number = client.wait_for("upload", |event| match event {
            Event::StreamOpened { circuit, target: opened, .. } if *opened == target => {
                Some(*circuit)
            }
            _ => None,
        });
        let guards: Vec<_> = leg_paths(&client, number).iter().map(|path| path[0]).collect();
        assert_eq!(guards.len(), 3, "{len}: {:#?}", client.all_events());
        let silent = Stopped::stop(&network, &guards[..2]);
        stream.write_all(&bytes[before..]).expect("taken");
        let mut answer = [0; 5];
        let answered = stream.read_exact(&mut answer);
        assert!(answered.is_ok(), "{len}: {answered:?}: {:#?}", client.all_events());
        assert!(taker.join().expect("no panic"), "{len} bytes, and not those that were sent");
        let _all = client.all_events();
        let lost = lost_guards(&client, number);
        let are_silent = !lost.is_empty() && lost.iter().all(|guard| guards[..2].contains(guard));
        assert!(are_silent, "{len}, circuit {number}: {lost:?} of {guards:?}: {:#?}", client.seen);
        drop(silent);
    }
}
