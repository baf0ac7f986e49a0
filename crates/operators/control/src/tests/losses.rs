//! Lost sessions, and parties that die.

use super::world::*;
use crate::messages::FromCoordinator;
use crate::testing::order;
use measurer::Member as _;
use measurer::member::{FailureKind, MemberReport, RoundOrder};
use onion::Rate;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn a_lost_session_stops_its_round_and_releases_its_share() {
    let daemon = Daemon::start();
    run(async {
        let session = route(COORDINATOR, daemon.address()).connect().await.expect("a session");
        let all = RoundOrder { rate: Rate::from_mbit_per_s(1000.0), ..order() };
        let message = FromCoordinator::Prepare { round: 1, order: all };
        session.to_measurer.send(message).await.expect("a session");
        let _ = daemon.prepared();
    });
    // The coordinator is gone, with all its sockets.
    daemon.stopped();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn a_coordinator_that_ends_stops_its_rounds_and_reports_them() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    let mut member = measurer.member();
    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    let _ = daemon.prepared();
    drop(remotes);
    assert_broken(&received, "the coordinator is ending");
    daemon.stopped();
    let (reporter, _) = reports();
    let error = member.prepare(order(), reporter).expect_err("no thread left").to_string();
    assert!(error.contains("have ended"), "{error}");
}

#[test]
fn a_daemon_that_ends_breaks_the_round_and_a_restarted_one_gets_the_next() {
    let daemon = Daemon::start();
    let address = daemon.address();
    let remotes = remotes(COORDINATOR);
    let mut member = remote(&remotes, address).member();
    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    let _ = daemon.prepared();
    drop(daemon);
    assert_broken(&received, "the measurer is ending");

    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    assert_broken(&received, "cannot be reached");

    let daemon = Daemon::start_at(address);
    assert_measures(&daemon, &mut member);
}

#[test]
fn a_failure_inside_the_measurer_is_reported() {
    let daemon = Daemon::start();
    let remotes = remotes(COORDINATOR);
    let mut member = remote(&remotes, daemon.address()).member();
    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    let (_, report) = daemon.prepared();
    let detail = "out of sockets\nand memory".to_owned();
    report(MemberReport::Failed { kind: FailureKind::Broken, detail });
    assert_broken(&received, "out of sockets and memory");
    daemon.stopped();
    assert_measures(&daemon, &mut member);
}

/// Forwards bytes until it is frozen: then its connections stay open without traffic.
struct Proxy {
    address: SocketAddr,
    frozen: Arc<AtomicBool>,
}

impl Proxy {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().unwrap();
        let frozen = Arc::new(AtomicBool::new(false));
        let is_frozen = Arc::clone(&frozen);
        // Both end with the test's process.
        thread::spawn(move || {
            let (near, _) = listener.accept().expect("a connection");
            let far = TcpStream::connect(target).expect("the daemon");
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for (from, to) in [(near, far), back] {
                let is_frozen = Arc::clone(&is_frozen);
                thread::spawn(move || forward(from, to, &is_frozen));
            }
        });
        Self { address, frozen }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_frozen: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !is_frozen.load(Ordering::Relaxed) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn both_sides_detect_a_silent_peer() {
    let daemon = Daemon::start();
    let proxy = Proxy::to(daemon.address());
    let remotes = remotes(COORDINATOR);
    let mut member = remote(&remotes, proxy.address).member();
    let (reporter, received) = reports();
    member.prepare(order(), reporter).expect("a thread");
    let (_, report) = daemon.prepared();
    report(MemberReport::Ready { sockets: 8 });
    assert_eq!(received.recv_timeout(PATIENCE), Ok(MemberReport::Ready { sockets: 8 }));
    proxy.frozen.store(true, Ordering::Relaxed);
    assert_broken(&received, "is lost");
    daemon.stopped();
}
