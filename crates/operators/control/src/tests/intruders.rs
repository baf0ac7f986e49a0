//! Unauthorised connections: keys of other teams, and arbitrary clients.

use super::world::*;
use crate::ConnectError;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

#[test]
fn a_coordinator_of_another_team_is_refused_with_the_reason() {
    let daemon = Daemon::start();
    let strangers = remotes(STRANGER);
    let measurer = remote(&strangers, daemon.address());
    let error = measurer.abilities().expect_err("a foreign key");
    assert!(matches!(error, ConnectError::RefusesOurKey { own, .. } if own == public(STRANGER)));
    let text = error.to_string();
    assert!(text.contains("key of another team") && text.contains("`coordinators`"), "{text}");
    let (reporter, received) = reports();
    let mut member = measurer.member();
    measurer::Member::prepare(&mut member, crate::testing::order(), reporter).expect("a thread");
    assert_broken(&received, "key of another team");

    let ours = remotes(COORDINATOR);
    let measurer = remote(&ours, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn a_measurer_of_another_team_gets_no_orders() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remotes.measurer(daemon.address(), public(STRANGER)).expect("a good key");
    let error = measurer.abilities().expect_err("a foreign key");
    let is_foreign = matches!(
        error,
        ConnectError::ForeignKey { shown, pinned, .. }
            if shown == public(MEASURER) && pinned == public(STRANGER)
    );
    assert!(is_foreign, "{error}");
    assert!(error.to_string().contains("key of another team"), "{error}");
}

#[test]
fn garbage_on_the_port_does_not_disturb_sessions() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    measurer.abilities().expect("a session");
    let silent = TcpStream::connect(daemon.address()).expect("a connection");
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 5000], b"\x16\x03\x01\xff\xff", b"PRI * HT"]
    {
        let mut stream = TcpStream::connect(daemon.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The daemon may close the connection early.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 100, "an alert at most");
    }
    assert_measures(&daemon, &mut measurer.member());
    drop(silent);
}

#[test]
fn silent_connections_do_not_exclude_coordinators() {
    let daemon = Daemon::start();
    // More than the places of all coordinators, and than the limit for one unauthenticated address.
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(daemon.address()).expect("a connection")).collect();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
    drop(silent);
}

#[test]
fn a_server_that_is_no_measurer_is_reported_as_such() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"220 mail.example.com ESMTP\r\n").expect("written");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, address);
    let error = measurer.abilities().expect_err("no measurer");
    assert!(matches!(error, ConnectError::OtherProtocol { .. }), "{error}");
    server.join().expect("no panic");

    let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().unwrap();
    let measurer = remote(&remotes, free);
    let error = measurer.abilities().expect_err("no listener").to_string();
    assert!(error.contains("is `flashflow measurer` running?"), "{error}");
}
