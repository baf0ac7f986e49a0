//! The driver's and the shell's part for a router's links: proofs that are verified elsewhere, and unwritten
//! bytes.

use super::{feed, output};
use onion::cell::{CELL_LEN, CircId, Command};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::node::{CloseCause, ConnId, ListenerId, Node, Unwritten};
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use testkit::vectors::{self, RecordedTls, identity_landing, identity_link, link_to_relay};

const NOW: Instant = Instant::ORIGIN;

/// A session that exports something for any use.
#[derive(Clone)]
struct Tls(RecordedTls);

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.peer_certificate()
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        Some([3; 32])
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

fn router(handshakes_at_once: usize) -> Router<ChaCha8Rng> {
    let identity = Arc::new(identity_landing());
    let config = RouterConfig::new(identity, link_to_relay().u64("unix_time_s"));
    let config = RouterConfig { handshakes_at_once, held_bytes_max: 1_000_000, ..config };
    Router::new(config, ChaCha8Rng::seed_from_u64(1), NOW)
}

/// Somebody who has dialled the router and has its answer: the connection, and his side with all that he says then.
fn dial(
    router: &mut Router<ChaCha8Rng>,
    authentication: Authentication,
    random: u8,
) -> (ConnId, Channel) {
    let tls = Tls(vectors::own_tls());
    let expected = ExpectedPeer { ids: identity_landing().ids(), address: [10, 0, 0, 1].into() };
    let unix_time_s = link_to_relay().u64("unix_time_s");
    let initiator = Channel::initiator(expected, authentication, &tls, [random; 24], unix_time_s);
    let mut initiator = initiator.expect("usable");
    let conn = router.handle_accepted(NOW, ListenerId(0), &tls).expect("accepted");
    router.handle_bytes(NOW, conn, &output(&mut initiator));
    let mut said = vec![0; 16_384];
    let len = router.poll_transmit(NOW, conn, &mut said);
    feed(&mut initiator, &said[..len]).expect("honest");
    assert!(initiator.is_open());
    (conn, initiator)
}

fn as_relay() -> Authentication {
    Authentication::AsRelay(Arc::new(identity_link()))
}

fn begin_circuit(channel: &mut Channel) {
    channel.send(CircId::of_initiator(1), Command::CREATE_FAST, &[9; 20]);
}

fn closed(router: &mut Router<ChaCha8Rng>) -> Vec<ConnId> {
    while router.poll_writable().is_some() {}
    std::iter::from_fn(|| router.poll_close()).collect()
}

#[test]
fn cells_after_a_relays_handshake_wait_for_its_proof_but_not_those_of_other_links() {
    let mut router = router(2);
    let (conn, mut relay) = dial(&mut router, as_relay(), 5);
    begin_circuit(&mut relay);
    let held = router.held_bytes();
    // In pieces, as they may come.
    for piece in output(&mut relay).chunks(700) {
        router.handle_bytes(NOW, conn, piece);
    }
    assert_eq!(
        (router.open_circuits(), router.held_bytes()),
        (0, held + CELL_LEN),
        "it is counted"
    );
    let proof = router.poll_work(NOW).expect("its proof");
    assert!(router.poll_work(NOW).is_none(), "there is one");
    let (other, mut client) = dial(&mut router, Authentication::Anonymous, 6);
    begin_circuit(&mut client);
    router.handle_bytes(NOW, other, &output(&mut client));
    assert_eq!(router.open_circuits(), 1, "a client proves nothing");
    router.handle_work(NOW, proof.run());
    assert_eq!(router.open_circuits(), 2);
    assert!(closed(&mut router).is_empty());
    router.check_accounts();
}

#[test]
fn without_worker_threads_a_proof_is_verified_at_once() {
    let mut router = router(0);
    let (conn, mut relay) = dial(&mut router, as_relay(), 5);
    begin_circuit(&mut relay);
    router.handle_bytes(NOW, conn, &output(&mut relay));
    assert!(router.poll_work(NOW).is_none());
    assert_eq!(router.open_circuits(), 1);
}

#[test]
fn an_invalid_proof_closes_its_link() {
    let mut router = router(2);
    let (conn, mut relay) = dial(&mut router, as_relay(), 5);
    let mut said = output(&mut relay);
    // In the signature of AUTHENTICATE, which is before NETINFO.
    let place = said.len() - CELL_LEN - 10;
    said[place] ^= 1;
    begin_circuit(&mut relay);
    said.extend(output(&mut relay));
    router.handle_bytes(NOW, conn, &said);
    let proof = router.poll_work(NOW).expect("its proof");
    assert!(closed(&mut router).is_empty(), "it is not known yet");
    router.handle_work(NOW, proof.run());
    assert_eq!((closed(&mut router), router.open_circuits()), (vec![conn], 0));
    router.check_accounts();
}

#[test]
fn the_proof_of_a_closed_link_opens_no_other() {
    let mut router = router(1);
    let (conn, mut relay) = dial(&mut router, as_relay(), 5);
    begin_circuit(&mut relay);
    router.handle_bytes(NOW, conn, &output(&mut relay));
    let first = router.poll_work(NOW).expect("its proof");
    router.handle_closed(NOW, conn, CloseCause::ByPeer);
    let held = router.held_bytes();
    let (again, mut relay) = dial(&mut router, as_relay(), 6);
    assert_eq!(again, conn, "numbers are used again");
    begin_circuit(&mut relay);
    router.handle_bytes(NOW, conn, &output(&mut relay));
    assert!(router.poll_work(NOW).is_none(), "one at a time");
    router.handle_work(NOW, first.run());
    assert_eq!(router.open_circuits(), 0);
    let second = router.poll_work(NOW).expect("its work");
    router.handle_work(NOW, second.run());
    assert_eq!(router.open_circuits(), 1);
    router.handle_closed(NOW, conn, CloseCause::ByPeer);
    assert_eq!(router.held_bytes(), held, "nothing is left of it");
    router.check_accounts();
}

#[test]
fn a_peer_that_floods_before_its_proof_is_verified_is_disconnected() {
    let mut router = router(1);
    let (conn, mut relay) = dial(&mut router, as_relay(), 5);
    router.handle_bytes(NOW, conn, &output(&mut relay));
    let bytes = [0; 100 * CELL_LEN];
    let mut sent = 0;
    while closed(&mut router).is_empty() {
        router.handle_bytes(NOW, conn, &bytes);
        sent += bytes.len();
        assert!(sent < 400_000, "no bound");
    }
    assert!(sent > 200_000, "what waiting circuits have to say has room: {sent}");
    router.check_accounts();
}

#[test]
fn unwritten_data_counts_and_circuits_that_read_nothing_are_dropped_first() {
    let mut router = router(0);
    let held = router.held_bytes();
    let mut links = Vec::new();
    for random in 1..=12 {
        let (conn, mut client) = dial(&mut router, Authentication::Anonymous, random);
        router.handle_bytes(NOW, conn, &output(&mut client));
        links.push(conn);
    }
    let standing = router.held_bytes() - held;
    let notify = |router: &mut Router<ChaCha8Rng>, second, conn, written_bytes, held_bytes| {
        let now = NOW + Duration::from_secs(second);
        let unwritten = Unwritten { pending_bytes: 50_000, written_bytes, held_bytes };
        router.handle_unwritten(now, conn, unwritten);
        router.check_accounts();
    };
    let [deaf, others @ ..] = &links[..] else { panic!("twelve") };
    // They begin before the one that reads next to nothing, but theirs goes.
    for conn in others {
        notify(&mut router, 1, *conn, 0, 60_000);
    }
    notify(&mut router, 3, *deaf, 0, 150_000);
    for conn in others {
        notify(&mut router, 5, *conn, 50_000, 60_000);
    }
    for second in 6..9 {
        notify(&mut router, second, *deaf, 100, 150_000);
    }
    assert_eq!(router.held_bytes(), held + standing + 11 * 60_000 + 150_000);
    assert!(closed(&mut router).is_empty());
    let room = 1_000_000 - router.held_bytes();
    notify(&mut router, 9, others[0], 0, 60_000 + room + 1);
    assert_eq!(closed(&mut router), [*deaf]);
    assert!(router.held_bytes() <= 850_000, "all of his");
    // All is written.
    for conn in others {
        router.handle_unwritten(NOW + Duration::from_secs(10), *conn, Unwritten::default());
    }
    assert!(router.held_bytes() <= held + standing);
    router.check_accounts();
}
