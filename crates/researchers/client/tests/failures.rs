//! Failures of streams, and isolation.

use crate::common::{Ours, PATIENCE, exit, exit_with, network};
use client::Event;
use lab::{Content, ContentServer, Network, download};
use netdoc::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Kills the relay at this position of the latest stream's path.
fn kill_hop(network: &Network, ours: &mut Ours, place: usize) -> String {
    let circuit = ours.last_circuit();
    let hop = ours.path(circuit)[place];
    let node = network.nodes().iter().find(|node| node.rsa() == hop.fingerprint.0);
    let node = node.expect("a C tor relay");
    node.kill();
    node.nickname().to_owned()
}

#[test]
fn a_killed_relay_ends_the_stream_with_an_error_and_the_next_stream_works() {
    let relays = ["a", "b", "c", "d", "e"].map(|name| exit(&format!("exit{name}")));
    let network = network(relays.to_vec());
    let folder = tempfile::tempdir().expect("a folder");
    let mut ours = Ours::start(&network, folder.path());
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (ours.proxy.socks(), server.address().port());
    // The exit first, then the guard: two possible guards are left besides the authorities.
    for (number, place) in [(1, 2), (2, 0)] {
        let name = format!("broken{number}");
        // Nobody reads the stream after its first bytes, so most data is still in flight.
        let mut stream = connect(socks, port, &name);
        let mut first = [0; 16];
        stream.write_all(b"GET /50000000/1 HTTP/1.0\r\n\r\n").expect("sent");
        stream.read_exact(&mut first).expect("it begins");
        let killed = kill_hop(&network, &mut ours, place);
        let mut rest = Vec::new();
        // The stream is ended or reset before it is complete.
        let _ended = stream.read_to_end(&mut rest);
        assert!(rest.len() < 50_000_000, "{killed} was killed, and {} bytes arrived", rest.len());
        ours.wait_for("end of the stream", |event| match event {
            Event::StreamClosed { is_ok: false, received_bytes, .. } => {
                (*received_bytes > 0 && *received_bytes < 50_000_000).then_some(())
            }
            _ => None,
        });
        for next in 0..3 {
            let content = Content { len: 200_000, seed: next };
            let done = download(socks, ("127.0.0.1", port), content, &name, PATIENCE);
            let done = done.unwrap_or_else(|error| {
                panic!("{killed} was killed, {next}: {error}: {:#?}", ours.all_events())
            });
            assert!(done.is_right, "{done:?}");
            let circuit = ours.last_circuit();
            let path = ours.path(circuit);
            assert!(path.iter().all(|hop| hop.nickname.as_str() != killed), "{path:?}");
        }
    }
}

/// A stream to this port of loopback, with this user name.
fn connect(socks: SocketAddr, port: u16, name: &str) -> TcpStream {
    let mut stream = TcpStream::connect(socks).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let len = u8::try_from(name.len()).expect("short");
    let mut asked = vec![5, 1, 2, 1, len];
    asked.extend_from_slice(name.as_bytes());
    asked.extend_from_slice(&[1, b'x', 5, 1, 0, 1, 127, 0, 0, 1]);
    asked.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&asked).expect("sent");
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).expect("answered");
    assert_eq!(answer[..6], [5, 2, 1, 0, 5, 0], "granted");
    stream
}

/// The relays on the path of an open circuit.
fn path_of(event: &Event) -> Option<Vec<RsaId>> {
    match event {
        Event::CircuitBuilt { path, .. } => Some(path.iter().map(|hop| hop.fingerprint).collect()),
        _ => None,
    }
}

#[test]
fn streams_with_different_credentials_never_share_a_circuit() {
    let network = network(vec![exit("exita"), exit("exitb")]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut ours = Ours::start(&network, folder.path());
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (ours.proxy.socks(), server.address().port());
    let mut by_name: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for round in 0..4 {
        for name in ["alice", "bob", "carol", "dave", "eve"] {
            let content = Content { len: 2000, seed: round };
            let done = download(socks, ("127.0.0.1", port), content, name, PATIENCE);
            assert!(done.expect("whole").is_right);
            by_name.entry(name.to_owned()).or_default().push(ours.last_circuit());
        }
    }
    let mut seen = Vec::new();
    for (name, mut circuits) in by_name {
        circuits.sort_unstable();
        circuits.dedup();
        assert_eq!(circuits.len(), 1, "{name} used {circuits:?}");
        seen.extend(circuits);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5, "five names, five circuits");

    // Guards are kept, also after a restart: the first serves all paths, except those with the first as exit.
    // All five names may have used the same exit: continue until both have been used.
    let mut more = 0;
    let guards = loop {
        let paths: Vec<_> = ours.all_events().iter().filter_map(path_of).collect();
        let of = |place: usize| -> BTreeSet<_> { paths.iter().map(|path| path[place]).collect() };
        if of(2).len() == 2 {
            break of(0);
        }
        more += 1;
        let content = Content { len: 2000, seed: more };
        let done = download(socks, ("127.0.0.1", port), content, &format!("more{more}"), PATIENCE);
        assert!(done.expect("whole").is_right);
    };
    assert!(guards.len() <= 2, "{guards:?}");
    drop(ours);
    let mut again = Ours::start(&network, folder.path());
    let built = again.wait_for("circuit", |event| path_of(event).map(|path| path[0]));
    assert!(guards.contains(&built), "{built}");
}

#[test]
fn unreachable_destinations_are_refused_and_programs_that_disconnect_do_not_affect_others() {
    let but_mail = |nickname| exit_with(nickname, "reject *:25,accept *:*");
    let network = network(vec![but_mail("exita"), but_mail("exitb")]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut ours = Ours::start(&network, folder.path());
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (ours.proxy.socks(), server.address().port());
    drop(server);
    let content = Content { len: 100, seed: 1 };
    // C tor 0.4.9 exits report MISC for a destination that refuses the connection.
    let refused = download(socks, ("127.0.0.1", port), content, "x", PATIENCE);
    let problem = refused.expect_err("nobody listens").to_string();
    assert!(problem.contains("code 1") || problem.contains("code 5"), "{problem}");
    ours.wait_for("end of the stream", |event| match event {
        Event::StreamClosed { is_ok: false, received_bytes: 0, .. } => Some(()),
        _ => None,
    });
    let onion = download(socks, ("abc.onion", 80), content, "x", PATIENCE);
    let problem = onion.expect_err("no onion services").to_string();
    assert!(problem.contains("code 1"), "{problem}");
    // Without a suitable exit, the request fails at once.
    let mail = download(socks, ("127.0.0.1", 25), content, "x", PATIENCE);
    let problem = mail.expect_err("no exit lets it out").to_string();
    assert!(problem.contains("code 1"), "{problem}");
    let odd = download(socks, ("a:b", 80), content, "x", PATIENCE);
    let problem = odd.expect_err("no name").to_string();
    assert!(problem.contains("code 1"), "{problem}");
    // A program that uses the port as an HTTP proxy gets a page.
    let mut stream = TcpStream::connect(socks).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ended_or_reset = stream.read_to_end(&mut answer);
    let page = String::from_utf8_lossy(&answer);
    assert!(page.starts_with("HTTP/1.0 501 ") && page.contains("SOCKS"), "{page}");
    for part in ["abc.onion", "malformed", "HTTP"] {
        ours.wait_for(part, |event| match event {
            Event::RequestRefused { .. } if event.to_string().contains(part) => Some(()),
            _ => None,
        });
    }

    let server = ContentServer::start().expect("a server");
    for _ in 0..20 {
        drop(connect(socks, server.address().port(), "leaver"));
    }
    for _ in 0..20 {
        ours.wait_for("end of a stream", |event| match event {
            Event::StreamClosed { is_ok: true, .. } => Some(()),
            _ => None,
        });
    }
    let from = ("127.0.0.1", server.address().port());
    assert!(download(socks, from, content, "leaver", PATIENCE).expect("whole").is_right);
}
