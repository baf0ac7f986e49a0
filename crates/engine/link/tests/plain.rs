//! Connections without TLS, over real sockets.

use crate::common::{Puppet, driver, listener, pattern, run, run_driver};
use link::{DriverOptions, Reply, Resolver};
use onion::Duration;
use onion::node::{CloseCause, DnsAnswer, DnsQuery, Security};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

/// More than all buffers of loopback together.
const MUCH: usize = 40_000_000;

/// The port of an echo server that runs until the end of the stream.
fn echo() -> std::net::SocketAddr {
    let (listener, address) = listener();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut out = stream.try_clone().expect("a descriptor");
        io::copy(&mut stream, &mut out)
    });
    address
}

#[test]
fn an_echo_is_complete_and_respects_the_accepted_size() {
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let sent = pattern(3_000_000);
    let node = driver.node_mut();
    let conn = node.dial(1, echo(), Security::Plain);
    node.limits.insert(conn, 0);
    node.send(conn, &sent);
    run(&mut driver, |node| !node.connected.is_empty());
    // Data is accepted in small and large steps.
    for step in (1..).map(|step| 1 + step * 7_919 % 100_000) {
        let expected = (driver.node().received(conn).len() + step).min(sent.len());
        driver.node_mut().take(conn, step);
        run(&mut driver, |node| node.received(conn).len() == expected);
        if expected == sent.len() {
            break;
        }
    }
    assert!(driver.node().received(conn) == sent.as_slice());
    assert_eq!(driver.traffic().sent_bytes, sent.len() as u64);
    assert_eq!(driver.traffic().received_bytes, sent.len() as u64);
}

#[test]
fn a_driver_without_listeners_still_dials() {
    let (listener, address) = listener();
    let mut driver = driver(Puppet::default(), vec![listener], DriverOptions::default());
    driver.stop_listening();
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
    let sent = pattern(100_000);
    let node = driver.node_mut();
    let conn = node.dial(1, echo(), Security::Plain);
    node.send(conn, &sent);
    run(&mut driver, |node| node.received(conn).len() == sent.len());
    assert!(driver.node().received(conn) == sent.as_slice());
}

#[test]
fn backpressure_reaches_the_peer_through_tcp() {
    let (listener, address) = listener();
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let conn = driver.node_mut().dial(1, address, Security::Plain);
    driver.node_mut().limits.insert(conn, 0);
    run(&mut driver, |node| !node.connected.is_empty());
    let (mut peer, _) = listener.accept().expect("it has dialled");
    peer.set_nonblocking(true).expect("a socket");
    let sent = pattern(MUCH);
    let mut written = 0;
    // The peer's data stays in the kernel until its buffers are full.
    loop {
        match peer.write(&sent[written..]) {
            Ok(len) => written += len,
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        driver.turn(driver.now() + Duration::from_millis(1)).expect("it waits");
    }
    assert!(written < MUCH, "there is no back-pressure");
    assert!(driver.node().received(conn).is_empty());
    peer.set_nonblocking(false).expect("a socket");
    let writer = thread::spawn(move || peer.write_all(&sent[written..]));
    driver.node_mut().take(conn, usize::MAX);
    run(&mut driver, |node| node.closed.contains_key(&conn));
    writer.join().expect("no panic").expect("written");
    assert_eq!(driver.node().closed[&conn], CloseCause::ByPeer);
    assert!(driver.node().received(conn) == pattern(MUCH).as_slice());
}

#[test]
fn a_peer_that_never_reads_affects_no_other_connection() {
    let (listener, address) = listener();
    let options =
        DriverOptions { linger_timeout: Duration::from_secs(1), ..DriverOptions::default() };
    let mut driver = driver(Puppet::default(), vec![], options);
    let deaf = driver.node_mut().dial(1, address, Security::Plain);
    driver.node_mut().send(deaf, &vec![7; MUCH]);
    let lively = driver.node_mut().dial(2, echo(), Security::Plain);
    driver.node_mut().send(lively, b"are you there?");
    run(&mut driver, |node| node.received(lively) == b"are you there?");
    let (mut peer, _) = listener.accept().expect("it has dialled");
    assert!(!driver.node().outgoing[&deaf].is_empty());
    // It is closed with bytes that cannot be written, until their timeout.
    driver.node_mut().closing.push_back(deaf);
    run(&mut driver, |node| node.closing.is_empty());
    assert_eq!(driver.open_sockets(), 2);
    run_driver(&mut driver, |driver| driver.open_sockets() == 1);
    let mut read = Vec::new();
    let _reset = peer.read_to_end(&mut read);
    assert!(read.len() < MUCH);
}

#[test]
fn transmitted_data_is_written_before_the_connection_closes() {
    let (listener, address) = listener();
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let conn = driver.node_mut().dial(1, address, Security::Plain);
    let sent = pattern(MUCH);
    driver.node_mut().send(conn, &sent);
    run(&mut driver, |node| !node.connected.is_empty());
    let (mut peer, _) = listener.accept().expect("it has dialled");
    let reader = thread::spawn(move || {
        let mut read = Vec::new();
        peer.read_to_end(&mut read).map(|_| read)
    });
    run(&mut driver, |node| node.outgoing[&conn].is_empty());
    driver.node_mut().closing.push_back(conn);
    run_driver(&mut driver, |driver| driver.open_sockets() == 0);
    assert!(reader.join().expect("no panic").expect("no reset") == sent);
    assert!(driver.node().closed.is_empty(), "the node closed it, and gets no more events for it");
}

#[test]
fn the_cause_of_a_close_is_reported() {
    let (listener, address) = listener();
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let node = driver.node_mut();
    let [reset, ended] = [1, 2].map(|conn| node.dial(conn, address, Security::Plain));
    run(&mut driver, |node| node.connected.len() == 2);
    let mut peers = [listener.accept().expect("one").0, listener.accept().expect("two").0];
    if peers[0].peer_addr().is_ok() {
        // The connections are identified by their data.
        driver.node_mut().send(reset, b"r");
        driver.node_mut().send(ended, b"e");
        run(&mut driver, |node| node.outgoing.values().all(|bytes| bytes.is_empty()));
    }
    for peer in &mut peers {
        let mut request = [0];
        peer.read_exact(&mut request).expect("a message");
        if request == *b"r" {
            socket2::SockRef::from(&*peer).set_linger(Some(Duration::ZERO)).expect("an option");
        } else {
            peer.write_all(b"bye").expect("written");
        }
    }
    drop(peers);
    drop(listener);
    let refused = driver.node_mut().dial(3, address, Security::Plain);
    run(&mut driver, |node| node.closed.len() == 3);
    let node = driver.node();
    assert_eq!(node.closed[&reset], CloseCause::Reset);
    assert_eq!(node.closed[&ended], CloseCause::ByPeer);
    assert_eq!(node.received(ended), b"bye");
    assert_eq!(node.closed[&refused], CloseCause::Refused);
    assert_eq!(driver.open_sockets(), 0);
}

#[test]
fn an_early_answer_of_a_server_is_kept() {
    let (listener, address) = listener();
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let conn = driver.node_mut().dial(1, address, Security::Plain);
    driver.node_mut().send(conn, &vec![1; MUCH]);
    driver.node_mut().limits.insert(conn, 0);
    run(&mut driver, |node| !node.connected.is_empty());
    let (mut peer, _) = listener.accept().expect("it has dialled");
    peer.write_all(b"too long").expect("written");
    drop(peer); // with unread bytes: a reset
    run(&mut driver, |node| node.outgoing[&conn].len() < MUCH);
    driver.node_mut().take(conn, 100);
    run(&mut driver, |node| node.closed.contains_key(&conn));
    assert_eq!(driver.node().received(conn), b"too long");
    assert_eq!(driver.node().closed[&conn], CloseCause::Reset);
}

#[test]
fn half_open_connections_time_out() {
    let options =
        DriverOptions { handshake_timeout: Duration::from_millis(100), ..DriverOptions::default() };
    // One whose listener's backlog is full, and one that never starts TLS.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let full = full.expect("a socket");
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    full.listen(0).expect("it listens");
    let address = full.local_addr().expect("it listens").as_socket().expect("IPv4");
    let _fills = TcpStream::connect(address).expect("there is space for one");
    let (own, own_address) = listener();
    let mut driver = driver(Puppet::default(), vec![own], options);
    let conn = driver.node_mut().dial(1, address, Security::Plain);
    let mut silent = TcpStream::connect(own_address).expect("it listens");
    run(&mut driver, |node| node.closed.contains_key(&conn));
    assert_eq!(driver.node().closed[&conn], CloseCause::TimedOut);
    run_driver(&mut driver, |driver| driver.open_sockets() == 0);
    assert_eq!(silent.read(&mut [0]).expect("closed in good order"), 0);
    assert_eq!(driver.node().accepted, 0);
    let _ = silent.shutdown(Shutdown::Both);
}

#[test]
fn an_unadmitted_connection_is_closed_before_tls() {
    let (listener, address) = listener();
    let refused = Some(address.ip());
    let puppet = Puppet { refused, ..Puppet::default() };
    let mut driver = driver(puppet, vec![listener], DriverOptions::default());
    let mut stream = TcpStream::connect(address).expect("TCP connects");
    run(&mut driver, |node| node.asked == [address.ip()]);
    assert_eq!(stream.read(&mut [0]).expect("closed in good order"), 0);
    assert_eq!((driver.open_sockets(), driver.node().accepted), (0, 0));
    // The next connection is admitted, after one request.
    driver.node_mut().refused = None;
    let _open = TcpStream::connect(address).expect("TCP connects");
    run_driver(&mut driver, |driver| driver.open_sockets() == 1);
    assert_eq!(driver.node().asked.len(), 2);
}

/// Answers from another thread, except for some names.
struct OtherThread;

impl Resolver for OtherThread {
    fn ask(&mut self, question: DnsQuery, reply: Reply) {
        thread::spawn(move || match question {
            DnsQuery::Addresses(name) if name == "known" => {
                reply.answer(DnsAnswer::Addresses(vec![[10, 0, 0, 1].into()]));
            }
            _ => drop(reply),
        });
    }
}

#[test]
fn every_dns_query_is_answered_by_the_resolver_thread() {
    let mut driver = driver(Puppet::default(), vec![], DriverOptions::default());
    let unresolved = driver.node_mut().ask(1, "known");
    run(&mut driver, |node| node.answers.contains_key(&unresolved));
    assert_eq!(driver.node().answers[&unresolved], DnsAnswer::Failed, "there is no resolver");
    driver.set_resolver(Box::new(OtherThread));
    let (known, lost) = (driver.node_mut().ask(2, "known"), driver.node_mut().ask(3, "lost"));
    run(&mut driver, |node| node.answers.len() == 3);
    let expected = DnsAnswer::Addresses(vec![[10, 0, 0, 1].into()]);
    assert_eq!(driver.node().answers[&known], expected);
    assert_eq!(driver.node().answers[&lost], DnsAnswer::Failed);
}
