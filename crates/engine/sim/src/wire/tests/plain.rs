//! Plain connections, names, and paths with a model.

use super::super::*;
use alloc::collections::VecDeque;
use alloc::vec;
use core::num::NonZeroUsize;
use onion::link::TlsSession;
use onion::node::{CloseCause, Dial, LookupId, SocketState};
use proptest::prelude::*;

/// Dials without TLS and sends, or listens and accepts no more than its limit.
#[derive(Default)]
struct Peer {
    to_dial: Option<(SocketAddr, Security)>,
    outgoing: usize,
    sent: usize,
    got: Vec<u8>,
    most_at_once: usize,
    allowed: usize,
    is_open_again: bool,
    asks_state: bool,
    state: Option<SocketState>,
    to_ask: VecDeque<onion::node::Lookup>,
    answers: Vec<(LookupId, DnsAnswer)>,
    events: Vec<&'static str>,
    closed: Option<CloseCause>,
    is_writable: bool,
    closes: bool,
}

const CONN: ConnId = ConnId(0);

impl Node for Peer {
    fn handle_connected(&mut self, _: Instant, _: ConnId, _: &dyn TlsSession) {
        self.events.push("connected");
    }
    fn handle_plain_connected(&mut self, _: Instant, _: ConnId) {
        self.events.push("plain");
        self.is_writable = true;
    }
    fn handle_accepted(
        &mut self,
        _: Instant,
        _: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        assert_eq!(tls.export_keying_material(b"", b""), None);
        self.events.push("accepted");
        Some(CONN)
    }
    fn handle_bytes(&mut self, _: Instant, _: ConnId, plaintext: &[u8]) {
        assert!(plaintext.len() <= self.allowed);
        self.allowed -= plaintext.len();
        self.most_at_once = self.most_at_once.max(plaintext.len());
        self.got.extend_from_slice(plaintext);
    }
    fn handle_closed(&mut self, _: Instant, _: ConnId, cause: CloseCause) {
        self.closed = Some(cause);
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        self.to_dial.take().map(|(to, security)| Dial { conn: CONN, to, security })
    }
    fn poll_writable(&mut self) -> Option<ConnId> {
        core::mem::take(&mut self.is_writable).then_some(CONN)
    }
    fn poll_transmit(&mut self, _: Instant, _: ConnId, out: &mut [u8]) -> usize {
        let len = out.len().min(self.outgoing);
        for place in &mut out[..len] {
            *place = (self.sent % 251).to_le_bytes()[0];
            self.sent += 1;
        }
        self.outgoing -= len;
        len
    }
    fn poll_close(&mut self) -> Option<ConnId> {
        (self.outgoing == 0 && core::mem::take(&mut self.closes)).then_some(CONN)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn receive_limit(&self, _: ConnId) -> usize {
        self.allowed
    }
    fn poll_readable(&mut self) -> Option<ConnId> {
        core::mem::take(&mut self.is_open_again).then_some(CONN)
    }
    fn poll_lookup(&mut self) -> Option<onion::node::Lookup> {
        self.to_ask.pop_front()
    }
    fn handle_answer(&mut self, _: Instant, id: LookupId, answer: DnsAnswer) {
        self.answers.push((id, answer));
    }
    fn poll_socket_query(&mut self) -> Option<ConnId> {
        core::mem::take(&mut self.asks_state).then_some(CONN)
    }
    fn handle_socket_state(&mut self, _: Instant, _: ConnId, state: Option<SocketState>) {
        self.state = state;
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// A node that sends and then closes, and one that accepts `allowed` bytes.
fn pair(
    config: WireConfig,
    model: Option<PathModel>,
    bytes: usize,
    allowed: usize,
) -> (Wire, NodeId, NodeId) {
    let mut wire = Wire::new(config);
    if let Some(model) = model {
        wire.set_all_paths(model);
    }
    let to_dial = Some((address(1), Security::Plain));
    let sender = Peer { to_dial, outgoing: bytes, closes: true, ..Peer::default() };
    let sender = wire.add(sender);
    let receiver = wire.add(Peer { allowed, ..Peer::default() });
    wire.listen_plain(receiver, address(1)).expect("free");
    (wire, sender, receiver)
}

fn peer(wire: &Wire, node: NodeId) -> &Peer {
    wire.node(node).expect("a peer")
}

proptest! {
    #[test]
    fn unread_data_is_buffered_and_stops_the_sender(
        bytes in 1usize..300_000, steps in prop::collection::vec(1usize..90_000, 0..8),
        has_model: bool, loss_per_million in 0u32..100_000,
    ) {
        let model = PathModel { loss_per_million, ..PathModel::default() };
        let config = WireConfig {
            send_buffer_bytes: 20_000,
            receive_buffer_bytes: 20_000,
            piece_max_bytes: NonZeroUsize::new(7_000),
            ..WireConfig::default()
        };
        let (mut wire, sender, receiver) = pair(config, has_model.then_some(model), bytes, 0);
        let mut allowed = 0;
        for step in steps.into_iter().chain([bytes]) {
            wire.drive_bounded(100_000).expect("it becomes idle");
            prop_assert_eq!(peer(&wire, receiver).got.len(), allowed.min(bytes));
            // Both buffers, and the excess of one transmission.
            prop_assert!(peer(&wire, sender).sent <= allowed + 40_000 + 16_000);
            prop_assert!(allowed >= bytes || peer(&wire, receiver).closed.is_none());
            allowed += step;
            let node = wire.node_mut::<Peer>(receiver).expect("a peer");
            (node.allowed, node.is_open_again) = (node.allowed + step, true);
        }
        wire.drive_bounded(100_000).expect("it becomes idle");
        let receiver = peer(&wire, receiver);
        prop_assert!(receiver.got.iter().enumerate().all(|(at, byte)| *byte == (at % 251).to_le_bytes()[0]));
        prop_assert_eq!((receiver.got.len(), &receiver.closed), (bytes, &Some(CloseCause::ByPeer)));
        prop_assert_eq!(wire.conns_len(), 0);
    }
}

#[test]
fn tls_and_plain_connections_do_not_mix() {
    let (mut wire, _, receiver) = pair(WireConfig::default(), None, 5, 10);
    let dial = |to: SocketAddr, security| Peer { to_dial: Some((to, security)), ..Peer::default() };
    let with_tls = wire.add(dial(address(1), Security::Tls));
    wire.listen(receiver, address(2), b"certificate").expect("free");
    let without = wire.add(dial(address(2), Security::Plain));
    wire.drive_bounded(100).expect("ends");
    assert_eq!(peer(&wire, receiver).events, ["accepted"]);
    assert!(matches!(peer(&wire, with_tls).closed, Some(CloseCause::Tls(_))));
    assert_eq!(peer(&wire, without).closed, Some(CloseCause::ByPeer));
}

#[test]
fn names_are_resolved_from_the_configured_table() {
    let mut wire = Wire::new(WireConfig::default());
    let (known, unknown) = (DnsQuery::Addresses("a".into()), DnsQuery::Addresses("b".into()));
    let answer = DnsAnswer::Addresses(vec![[10, 0, 0, 9].into()]);
    wire.set_answer(known.clone(), answer.clone());
    let lookup = |id, question: &DnsQuery| {
        let (id, question) = (LookupId(id), question.clone());
        onion::node::Lookup { id, question }
    };
    let to_ask = [lookup(1, &known), lookup(2, &unknown)].into();
    let node = wire.add(Peer { to_ask, ..Peer::default() });
    wire.drive_bounded(100).expect("ends");
    assert_eq!(wire.now(), Instant::from_millis(20));
    let expected = [(LookupId(1), answer), (LookupId(2), DnsAnswer::NoSuchName)];
    assert_eq!(peer(&wire, node).answers, expected);
}

#[test]
fn only_a_modelled_path_has_a_socket_state() {
    let narrow = PathModel { rate: Some(Rate::from_mbit_per_s(1.0)), ..PathModel::default() };
    for model in [None, Some(narrow)] {
        let (mut wire, sender, _) = pair(WireConfig::default(), model, 3_000_000, 3_000_000);
        let _ = wire.run_until(Instant::from_millis(500), |_| false).expect("no node spins");
        wire.node_mut::<Peer>(sender).expect("a peer").asks_state = true;
        let _ = wire.run_until(Instant::from_millis(501), |_| false).expect("no node spins");
        let state = peer(&wire, sender).state;
        assert_eq!(state.is_some(), model.is_some());
        if let Some(state) = state {
            assert!(state.unacked_segments > 0 && state.cwnd_segments > 0);
            assert!(state.notsent_bytes > 500_000 && state.rtt_us >= 20_000, "{state:?}");
        }
    }
}

#[test]
fn a_broken_path_resets_connections_at_both_ends() {
    let (mut wire, sender, receiver) = pair(WireConfig::default(), None, 3_000_000, 1);
    wire.drive_bounded(1000).expect("becomes idle");
    wire.cut(receiver, sender);
    wire.drive_bounded(10).expect("ends");
    for node in [sender, receiver] {
        assert_eq!(peer(&wire, node).closed, Some(CloseCause::Reset));
    }
    assert_eq!(wire.conns_len(), 0);
}

#[test]
fn data_above_the_receive_rate_is_queued_or_lost() {
    for model in [None, Some(PathModel::default())] {
        let (mut wire, _, receiver) = pair(WireConfig::default(), model, 500_000, 500_000);
        wire.set_ingress(receiver, Rate::from_byte_per_s(250_000));
        wire.drive_bounded(100_000).expect("ends");
        assert_eq!(peer(&wire, receiver).got.len(), 500_000);
        assert_eq!(peer(&wire, receiver).closed, Some(CloseCause::ByPeer));
        let took = wire.now().as_nanos() / 1_000_000;
        assert!((2_000..2_900).contains(&took), "{took} ms");
    }
}
