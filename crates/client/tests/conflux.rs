//! Circuits that are linked at their exit (proposal 329), with stock exits and ours.

use crate::common::{Ours, PATIENCE, exit, network};
use client::strategy::{Position, Strategy};
use client::{Choices, Event, LegTraffic, NetDir, RelayInfo, Settings};
use lab::{
    Content, ContentServer, Network, RelaySpec, connect_through, download, download_while,
    read_rest,
};
use link::Clock;
use netdoc::Fingerprint;
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

/// By weight, but for the exit, which has this name.
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
        assert!(clock.now() - Instant::ORIGIN < PATIENCE, "{error}: {:#?}", client.heard());
        thread::park_timeout(Duration::from_millis(500));
    }
    let _ = traffic(client);
}

/// What the legs had carried when the latest stream was closed.
fn traffic(client: &mut Ours) -> Vec<LegTraffic> {
    client.wait_for("end of a stream", |event| match event {
        Event::StreamClosed { legs, is_ok: true, .. } => Some(legs.clone()),
        _ => None,
    })
}

/// Downloads of all lengths under one name, and so over one set; what its legs have carried at the end.
fn downloads(client: &mut Ours, port: u16, what: &str) -> Vec<LegTraffic> {
    let socks = client.proxy.socks();
    let mut last = Vec::new();
    for (number, len) in [0, 1, 498, 100_000, 3 << 20, 10 << 20].into_iter().enumerate() {
        let content = Content { len, seed: number as u64 };
        let done = download(socks, ("127.0.0.1", port), content, "one", PATIENCE);
        let done = done
            .unwrap_or_else(|error| panic!("{what}, {len} bytes: {error}: {:#?}", client.heard()));
        assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        last = traffic(client);
    }
    last
}

/// The paths of the legs that a set has, in the order in which they stood.
fn leg_paths(client: &Ours, number: u64) -> Vec<Vec<Fingerprint>> {
    let mut paths: Vec<(u8, Vec<Fingerprint>)> = Vec::new();
    for event in &client.heard {
        match event {
            Event::LegBuilt { circuit, leg, path, .. } if *circuit == number => {
                paths.push((*leg, path.iter().map(|hop| hop.fingerprint).collect()));
            }
            Event::LegLost { circuit, leg, .. } if *circuit == number => {
                paths.retain(|(it, _)| it != leg);
            }
            _ => {}
        }
    }
    paths.into_iter().map(|(_, path)| path).collect()
}

/// The guards of legs that a set has lost.
fn lost_guards(client: &Ours, number: u64) -> BTreeSet<Fingerprint> {
    let of = |event: &Event| match event {
        Event::LegLost { circuit, path, .. } if *circuit == number => Some(path[0].fingerprint),
        _ => None,
    };
    client.heard.iter().filter_map(of).collect()
}

/// All legs have carried, by ways of their own.
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
fn downloads_come_whole_over_two_to_four_legs_to_a_stock_exit_and_all_carry() {
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

/// The exit chooses legs by what the client wishes, the client by any rule.
#[test]
fn data_comes_whole_both_ways_over_two_to_four_legs_to_our_exit_by_each_scheduler_of_the_client() {
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
        let mut stream = begun(&client, port, &(0..len).map(byte_at).collect::<Vec<_>>());
        let mut answer = [0; 5];
        let answered = stream.read_exact(&mut answer);
        assert!(answered.is_ok(), "{scheduler}: {answered:?}: {:#?}", client.heard());
        assert!(taker.join().expect("no panic"), "{scheduler}: not what was sent");
    }
    // Asked for latency, it keeps to one leg, but for when another becomes faster.
    let mut settings = with_legs(&network, folder.path(), "ours", 2);
    settings.choices.desired = DesiredUx::MinLatency;
    let mut client = Ours::start_with(settings);
    wait_for_exit(&mut client, port);
    let last = downloads(&mut client, port, "latency");
    assert_eq!(last.len(), 2, "{last:?}");
}

/// What the server at this port says to that request, without any network between.
fn said_by(port: u16, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(request).expect("sent");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("answered");
    said
}

/// A stream to this port of our machine on which that was said.
fn begun(client: &Ours, port: u16, request: &[u8]) -> TcpStream {
    let socks = client.proxy.socks();
    let mut stream =
        connect_through(socks, ("127.0.0.1", port), "begun", PATIENCE).expect("granted");
    stream.write_all(request).expect("sent");
    stream
}

/// A stock exit does not send again what was under way on a leg (proposal 329 §2.4.3): the stream ends, and what has
/// come of it is right. Nothing hangs, and the next stream goes another way.
#[test]
fn a_leg_that_is_killed_in_the_middle_ends_the_stream_and_nothing_wrong_has_come() {
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
    let mut stream = begun(&client, port, request);
    // One leg alone has no room for this amount at once: now both carry data.
    let mut came = vec![0; 5_000_000];
    stream.read_exact(&mut came).expect("it comes");
    let number = client.last_circuit();
    let paths = leg_paths(&client, number);
    assert_eq!(paths.len(), 2, "both are linked");
    let guard = paths.last().expect("two legs")[0];
    let node = network.nodes().iter().find(|node| node.rsa() == *guard.as_bytes());
    node.expect("a stock relay").kill();
    came.extend(read_rest(&mut stream).expect("it ends"));
    assert!(came.len() < 50_000_000, "{} bytes came", came.len());
    assert!(said_by(port, request).starts_with(&came), "{} bytes are wrong", came.len());
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
        let is_right = done.as_ref().is_ok_and(|it| it.is_right);
        let is_cut = done.as_ref().map_or(true, |it| it.received < content.len);
        assert!(is_right || (is_cut && tried < 20), "{done:?}: {:#?}", client.heard());
        whole += u64::from(is_right);
    }
}

/// Our exit and our client keep what is not acknowledged, and send it again on the legs that are left.
fn legs_that_are_killed_lose_nothing(legs: usize) {
    // Of a guard and a middle for each leg.
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
        // Twice in the middle: the guard of a leg that carries.
        if received > (killed.len() as u64 + 1) * (15 << 20) && killed.len() < 2 {
            let number = client.last_circuit();
            // A leg whose guard was killed may not have been noticed yet.
            let mut guards = leg_paths(&client, number).into_iter().map(|path| path[0]);
            let guard = guards.find(|it| !killed.contains(it)).expect("a leg that is left");
            killed.insert(guard);
            let node = network.nodes().iter().find(|node| node.rsa() == *guard.as_bytes());
            node.expect("a stock relay").kill();
        }
        true
    };
    let from = ("127.0.0.1", port);
    let done = download_while(socks, from, content, "first", PATIENCE, &mut kill);
    let done = done.unwrap_or_else(|error| panic!("{error}: {:#?}", client.heard()));
    assert!(done.is_right, "{done:?}: {:#?}", client.heard());
    assert_eq!(killed.len(), 2);
    let number = client.last_circuit();
    let lost = lost_guards(&client, number);
    assert!(killed.is_subset(&lost), "{killed:?} were killed: {:#?}", client.heard());
    let after = relay.totals();
    assert!(after.conflux_resent > before.conflux_resent, "{after:?}");
}

#[test]
fn two_of_three_legs_that_are_killed_in_the_middle_lose_nothing_where_the_exit_is_ours() {
    legs_that_are_killed_lose_nothing(3);
}

#[test]
fn two_of_four_legs_that_are_killed_in_the_middle_lose_nothing_where_the_exit_is_ours() {
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
    // It announces what it refuses; five legs need more guards and middles than there are, too.
    let mut client = Ours::start_with(with_legs(&network, folder.path(), "plain", 5));
    let content = Content { len: 100_000, seed: 1 };
    let from = ("127.0.0.1", server.address().port());
    let done = download(client.proxy.socks(), from, content, "one", PATIENCE);
    assert!(done.expect("whole").is_right);
    assert_eq!(traffic(&mut client), []);
    let is_told = |event: &Event| matches!(event, Event::Trouble(why) if why.contains("linked"));
    assert!(client.heard().iter().any(is_told), "{:#?}", client.heard());
}

/// Relays that are stopped as processes: no link of theirs breaks, and nothing passes. They go on at the end of this.
struct Stopped(Vec<u32>);

impl Stopped {
    fn stop(network: &Network, guards: &[Fingerprint]) -> Self {
        let is_one = |node: &&lab::Node| guards.iter().any(|it| node.rsa() == *it.as_bytes());
        let stopped = Self(network.nodes().iter().filter(is_one).map(lab::Node::pid).collect());
        assert_eq!(stopped.0.len(), guards.len(), "stock relays");
        stopped.signal("-STOP");
        stopped
    }

    fn signal(&self, signal: &str) {
        let pids = self.0.iter().map(u32::to_string);
        let done = Command::new("kill").arg(signal).args(pids).status();
        assert!(done.is_ok_and(|it| it.success()), "{signal} {:?}", self.0);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// The leg on which most may be sent: so all carry.
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

/// What is uploaded, at this place: of a prime period, so that no cell is like another.
fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 65_521 * 31 % 251).expect("less than 251")
}

/// Takes one upload of this length; answers when it has all, and says whether all was right.
fn taking(listener: TcpListener, len: usize) -> thread::JoinHandle<bool> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let (mut place, mut room) = (0, vec![0; 1 << 16]);
        while place < len {
            let count = stream.read(&mut room).expect("it comes");
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
fn uploads_come_whole_though_guards_of_two_of_three_legs_fall_silent() {
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
        let mut stream = begun(&client, port, &bytes[..before]);
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        let target = format!("127.0.0.1:{port}");
        let number = client.wait_for("upload", |event| match event {
            Event::StreamOpened { circuit, target: it, .. } if *it == target => Some(*circuit),
            _ => None,
        });
        let guards: Vec<_> = leg_paths(&client, number).iter().map(|path| path[0]).collect();
        assert_eq!(guards.len(), 3, "{len}: {:#?}", client.heard());
        let silent = Stopped::stop(&network, &guards[..2]);
        stream.write_all(&bytes[before..]).expect("taken");
        let mut answer = [0; 5];
        let answered = stream.read_exact(&mut answer);
        assert!(answered.is_ok(), "{len}: {answered:?}: {:#?}", client.heard());
        assert!(taker.join().expect("no panic"), "{len} bytes, and not those that were sent");
        let _all = client.heard();
        let lost = lost_guards(&client, number);
        let are_silent = !lost.is_empty() && lost.iter().all(|it| guards[..2].contains(it));
        assert!(are_silent, "{len}, circuit {number}: {lost:?} of {guards:?}: {:#?}", client.heard);
        drop(silent);
    }
}
