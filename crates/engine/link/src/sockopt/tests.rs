use super::*;
use crate::Clock;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

#[test]
fn unread_data_shows_up_in_the_socket_state() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut stream = TcpStream::connect(address).expect("connects");
    let (peer, _) = listener.accept().expect("accepts");
    let idle = socket_state(&stream, 5).expect("Linux supports it");
    assert!(idle.cwnd_segments >= 2 && idle.mss_bytes >= 500, "{idle:?}");
    assert_eq!((idle.unacked_segments, idle.notsent_bytes, idle.unwritten_bytes), (0, 0, 5));
    stream.set_nonblocking(true).expect("possible");
    let mut written = 0;
    loop {
        match stream.write(&[0; 65_536]) {
            Ok(len) => written += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    let full = socket_state(&stream, 0).expect("Linux supports it");
    assert!(full.notsent_bytes > 0, "{full:?}");
    assert!(usize::try_from(full.notsent_bytes).expect("fits") <= written, "{full:?}");
    drop(peer);
}

#[test]
fn sockets_without_tcp_have_no_state() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    assert_eq!(socket_state(&socket, 0), None);
    assert_eq!(tcp_bytes(&socket), None);
    assert_eq!(tcp_account(&socket), None);
}

#[test]
fn transferred_bytes_are_counted_at_both_ends() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let (mut peer, _) = listener.accept().expect("accepts");
    let before = tcp_bytes(&stream).expect("Linux supports it");
    stream.write_all(&[7; 100_000]).expect("takes it");
    peer.read_exact(&mut [0; 100_000]).expect("gets it");
    peer.write_all(&[7; 10]).expect("takes it");
    stream.read_exact(&mut [0; 10]).expect("gets it");
    let (ours, theirs) = (tcp_bytes(&stream), tcp_bytes(&peer));
    let [ours, theirs] = [ours, theirs].map(|bytes| bytes.expect("Linux supports it"));
    assert_eq!((ours.sent - before.sent, ours.received), (100_000, 10));
    assert_eq!(theirs.received, 100_000);
}

/// A connection over loopback: our end, which does not wait, and the other's.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_nonblocking(true).expect("possible");
    let (peer, _) = listener.accept().expect("accepts");
    (stream, peer)
}

/// Writes until the kernel accepts no more.
fn fill(stream: &mut TcpStream) -> usize {
    let mut written = 0;
    loop {
        match stream.write(&[0; 65_536]) {
            Ok(len) => written += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break written,
            Err(error) => panic!("{error}"),
        }
    }
}

fn account(stream: &TcpStream) -> TcpAccount {
    tcp_account(stream).expect("Linux supports it")
}

/// Queries the state until it is as expected: the kernel's counters need time.
fn poll_until(stream: &TcpStream, is_there: impl Fn(&TcpAccount) -> bool) -> TcpAccount {
    let clock = Clock::start();
    loop {
        let found = account(stream);
        if is_there(&found) {
            return found;
        }
        assert!(clock.now() < onion::Instant::from_millis(30_000), "not in time: {found:?}");
        clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_that_does_not_read_makes_the_connection_rwnd_limited() {
    let (mut stream, mut peer) = connection();
    let idle = account(&stream);
    assert_eq!((idle.busy, idle.sent_bytes, idle.unsent_bytes), (Duration::ZERO, 0, 0), "{idle:?}");
    assert!(idle.rtt.is_some() && idle.min_rtt.is_some(), "of the handshake: {idle:?}");
    let written = fill(&mut stream) as u64;
    let limit = Duration::from_millis(50);
    let held = poll_until(&stream, |account| account.rwnd_limited >= limit);
    assert!(held.busy >= held.rwnd_limited + held.sndbuf_limited, "{held:?}");
    assert!(held.unsent_bytes > 0 && held.sent_bytes < written, "{held:?}");
    assert_eq!(held.sent_bytes + held.unsent_bytes, written, "{held:?}");
    assert!(!held.is_app_limited, "more data is queued: {held:?}");
    let mut rest = vec![0; usize::try_from(written).expect("fits")];
    peer.read_exact(&mut rest).expect("gets it");
    let done =
        poll_until(&stream, |account| (account.unsent_bytes, account.unacked_bytes) == (0, 0));
    // What did not fit into the peer's buffer was sent again, though no path has lost it.
    assert_eq!(done.sent_bytes, written, "{done:?}");
    assert!(!done.is_app_limited, "there was always more, and nothing was written since: {done:?}");
    let theirs = account(&peer);
    assert!(theirs.received_segments > 0 && theirs.sent_bytes == 0, "{theirs:?}");
    assert_eq!(theirs.busy, Duration::ZERO, "{theirs:?}");
}

#[test]
fn an_application_limited_connection_is_not_rwnd_limited() {
    let (mut stream, mut peer) = connection();
    for _ in 0..100 {
        stream.write_all(&[7; 100]).expect("there is room");
        peer.read_exact(&mut [0; 100]).expect("gets it");
    }
    let found = poll_until(&stream, |account| account.unacked_bytes == 0);
    assert_eq!((found.sent_bytes, found.rwnd_limited), (10_000, Duration::ZERO), "{found:?}");
    assert!(found.is_app_limited, "{found:?}");
}

#[test]
fn fields_missing_in_an_older_kernel_are_not_reported_as_zero() {
    let (stream, _peer) = connection();
    let mut info = tcp_info(&stream).expect("Linux supports it");
    assert!(info.account().is_some());
    info.len = RCV_OOOPACK;
    assert_eq!(info.account(), None);
    let (bytes, last) = (info.number(NOTSENT_BYTES), info.number(RCV_OOOPACK));
    assert_eq!((bytes, last), (Some(0), None));
}
