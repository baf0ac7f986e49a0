mod plain;

use super::*;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec;
use core::num::NonZeroUsize;
use onion::link::TlsSession;
use onion::node::{CloseCause, Dial, Security};
use proptest::prelude::*;

/// Dials one address, sends one message, and records what it receives and when; or listens and echoes.
#[derive(Default)]
struct Echo {
    to_dial: Option<SocketAddr>,
    message: Vec<u8>,
    outgoing: BTreeMap<ConnId, VecDeque<u8>>,
    writable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    got: Vec<u8>,
    certificate: Option<Vec<u8>>,
    log: Vec<(u64, String)>,
    refuses: bool,
    closes_after: Option<usize>,
    timeout: Option<Instant>,
    never_idle: bool,
    accepted: u32,
}

impl Echo {
    fn calling(address: SocketAddr, message: &[u8]) -> Self {
        Self { to_dial: Some(address), message: message.to_vec(), ..Self::default() }
    }

    fn note(&mut self, now: Instant, what: &str) {
        self.log.push((now.as_nanos() / 1_000_000, what.to_string()));
    }

    fn queue(&mut self, conn: ConnId, bytes: &[u8]) {
        self.outgoing.entry(conn).or_default().extend(bytes);
        self.writable.push_back(conn);
    }
}

impl Node for Echo {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.certificate = tls.peer_certificate().map(<[u8]>::to_vec);
        self.note(now, "connected");
        let message = self.message.clone();
        self.queue(conn, &message);
    }

    fn handle_accepted(
        &mut self,
        now: Instant,
        _: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        assert_eq!(tls.peer_certificate(), None);
        self.note(now, "accepted");
        self.accepted += 1;
        (!self.refuses).then_some(ConnId(100 + self.accepted))
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        assert!(!plaintext.is_empty());
        if self.got.is_empty() {
            self.note(now, "first byte");
        }
        self.got.extend_from_slice(plaintext);
        if conn.0 > 100 {
            self.queue(conn, plaintext);
        }
        if self.closes_after.is_some_and(|len| self.got.len() >= len) {
            self.to_close.push_back(conn);
        }
    }

    fn handle_closed(&mut self, now: Instant, _: ConnId, cause: CloseCause) {
        self.note(now, &cause.to_string());
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.note(now, "timeout");
        if !self.never_idle {
            self.timeout = None;
        }
    }

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        self.to_dial.take().map(|to| Dial { conn: ConnId(0), to, security: Security::Tls })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.writable.pop_front()
    }

    fn poll_transmit(&mut self, _: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(queue) = self.outgoing.get_mut(&conn) else { return 0 };
        let len = queue.len().min(out.len());
        out.iter_mut().zip(queue.drain(..len)).for_each(|(out, byte)| *out = byte);
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// A dialler and an echo at port 1.
fn pair(config: WireConfig, message: &[u8], echo: Echo) -> (Wire, NodeId, NodeId) {
    let mut wire = Wire::new(config);
    let echo = wire.add(echo);
    wire.listen(echo, address(1), b"certificate").expect("free");
    let caller = wire.add(Echo::calling(address(1), message));
    (wire, caller, echo)
}

fn log(wire: &Wire, node: NodeId) -> Vec<(u64, &str)> {
    let node: &Echo = wire.node(node).expect("an echo");
    node.log.iter().map(|(ms, what)| (*ms, &what[..])).collect()
}

fn got(wire: &Wire, node: NodeId) -> &[u8] {
    &wire.node::<Echo>(node).expect("an echo").got
}

#[test]
fn connecting_and_a_round_trip_take_two_latencies_each() {
    let (mut wire, caller, echo) = pair(WireConfig::default(), b"hello", Echo::default());
    wire.set_latency(caller, echo, Duration::from_millis(30));
    wire.drive_bounded(100).expect("ends");
    assert_eq!(log(&wire, echo), [(30, "accepted"), (90, "first byte")]);
    assert_eq!(log(&wire, caller), [(60, "connected"), (120, "first byte")]);
    assert_eq!(got(&wire, caller), b"hello");
    let certificate = &wire.node::<Echo>(caller).expect("an echo").certificate;
    assert_eq!(certificate.as_deref(), Some(&b"certificate"[..]));
    assert_eq!(wire.conns_len(), 1);
}

#[test]
fn bytes_and_kernel_buffers_of_a_node_are_reported() {
    let (mut wire, caller, echo) = pair(WireConfig::default(), &[5; 30_000], Echo::default());
    wire.set_all_paths(PathModel::default());
    let tally = |sent_bytes, received_bytes, buffered_bytes| Tally {
        sent_bytes,
        received_bytes,
        buffered_bytes,
    };
    assert_eq!(wire.tally(caller), Tally::default());
    // Connected after 20 ms; ten segments of the initial window arrive 10 ms later, and their acknowledgements
    // with the echo's initial window after 10 more.
    for (ms, of_caller, of_echo) in [
        (29, tally(30_000, 0, 30_000), tally(0, 0, 0)),
        (39, tally(30_000, 0, 30_000), tally(14_480, 14_480, 14_480)),
        (41, tally(30_000, 14_480, 15_520), tally(14_480, 14_480, 14_480)),
        (999, tally(30_000, 30_000, 0), tally(30_000, 30_000, 0)),
    ] {
        wire.run_until(Instant::from_millis(ms), |_| false).expect("no node spins");
        assert_eq!((wire.tally(caller), wire.tally(echo)), (of_caller, of_echo), "at {ms} ms");
    }
}

#[test]
fn a_dial_without_a_listener_is_refused_after_a_round_trip() {
    let mut wire = Wire::new(WireConfig::default());
    let caller = wire.add(Echo::calling(address(9), b""));
    wire.drive_bounded(100).expect("ends");
    assert_eq!(log(&wire, caller), [(20, "connection refused")]);
    assert_eq!(wire.conns_len(), 0);
}

#[test]
fn a_refused_connection_is_closed_by_the_peer() {
    let picky = Echo { refuses: true, ..Echo::default() };
    let (mut wire, caller, _) = pair(WireConfig::default(), b"", picky);
    wire.drive_bounded(100).expect("ends");
    assert_eq!(log(&wire, caller), [(20, "connected"), (20, "closed by the peer")]);
    assert_eq!(wire.conns_len(), 0);
}

#[test]
fn data_sent_before_a_close_arrives_before_it() {
    let message = vec![7; 40_000];
    let closing = Echo { closes_after: Some(40_000), ..Echo::default() };
    let config = WireConfig { send_buffer_bytes: 1 << 20, ..WireConfig::default() };
    let (mut wire, caller, echo) = pair(config, &message, closing);
    wire.set_egress(echo, Rate::from_byte_per_s(100_000));
    wire.drive_bounded(1000).expect("ends");
    // Writes precede closes: the last piece, too.
    assert_eq!(got(&wire, caller).len(), 40_000);
    assert_eq!(log(&wire, caller).last().expect("an end").1, "closed by the peer");
    assert_eq!(log(&wire, echo).last().expect("something").1, "first byte");
    assert_eq!(wire.conns_len(), 0);
}

#[test]
fn a_nodes_rate_and_send_buffer_are_limited() {
    let message = vec![1; 300_000];
    let config = WireConfig { send_buffer_bytes: 50_000, ..WireConfig::default() };
    let (mut wire, caller, echo) = pair(config, &message, Echo::default());
    wire.set_egress(caller, Rate::from_byte_per_s(100_000));
    let ended = wire.run_until(Instant::from_millis(2030), |_| false).expect("no node spins");
    assert_eq!(ended, Ended::AtDeadline);
    assert_eq!(wire.now(), Instant::from_millis(2030));
    let arrived = got(&wire, echo).len();
    assert!((184_000..=200_000).contains(&arrived), "{arrived}");
    let left = wire.node::<Echo>(caller).expect("an echo").outgoing[&ConnId(0)].len();
    assert!((33_000..=70_000).contains(&(300_000 - arrived - left)), "{left}");
    let has_all = |wire: &mut Wire| got(wire, caller).len() == 300_000;
    assert_eq!(wire.run_until(Instant::from_millis(9000), has_all), Ok(Ended::Satisfied));
    assert_eq!(got(&wire, caller), &message[..]);
}

#[test]
fn a_node_that_is_never_idle_is_detected() {
    let mut wire = Wire::new(WireConfig::default());
    let due = Some(Instant::from_millis(5));
    let node = wire.add(Echo { timeout: due, never_idle: true, ..Echo::default() });
    let at = Instant::from_millis(5);
    assert_eq!(wire.drive_bounded(u64::MAX), Err(WireError::NeverIdle { node, at }));
}

#[test]
fn an_endless_run_is_stopped() {
    let (mut wire, _, _) = pair(WireConfig::default(), b"hello", Echo::default());
    assert_eq!(wire.drive_bounded(2), Err(WireError::TooManySteps { allowed: 2 }));
}

#[test]
fn commands_between_steps_are_executed() {
    let (mut wire, caller, echo) = pair(WireConfig::default(), b"hello", Echo::default());
    wire.drive_bounded(100).expect("ends");
    wire.node_mut::<Echo>(caller).expect("an echo").to_close.push_back(ConnId(0));
    wire.drive_bounded(100).expect("ends");
    assert_eq!(log(&wire, echo).last(), Some(&(50, "closed by the peer")));
    assert_eq!(wire.conns_len(), 0);
    assert_eq!(wire.listen(echo, address(1), b""), Err(WireError::AddressTaken(address(1))));
}

proptest! {
    #[test]
    fn all_bytes_arrive_in_order_and_equal_seeds_give_equal_runs(
        message in prop::collection::vec(any::<u8>(), 1..60_000),
        piece in 1usize..5000, seed: u64, buffer in 1usize..100_000,
    ) {
        let run = |seed| {
            let config = WireConfig {
                piece_max_bytes: NonZeroUsize::new(piece),
                seed,
                send_buffer_bytes: buffer,
                ..WireConfig::default()
            };
            let (mut wire, caller, echo) = pair(config, &message, Echo::default());
            wire.drive_bounded(1_000_000).expect("ends");
            assert_eq!(got(&wire, echo), &message[..]);
            assert_eq!(got(&wire, caller), &message[..]);
            (wire.fingerprint(), wire.now())
        };
        prop_assert_eq!(run(seed), run(seed));
    }
}
