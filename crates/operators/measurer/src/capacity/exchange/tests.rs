use super::*;
use sim::wire::{Ended, NodeId, Wire, WireConfig};

const TOKEN: Token = Token::from_bytes([3; 32]);
const START: Instant = Instant::from_millis(1000);
const SECONDS: u32 = 3;
const SOCKETS: usize = 4;

fn address(index: u16) -> SocketAddr {
    let [_, low] = index.to_be_bytes();
    SocketAddr::from(([10, 0, 0, low + 1], 7000))
}

/// The part of member `index` of a team of `count`.
fn config(index: u16, count: u16) -> ExchangeConfig {
    let route = |other: u16| Route {
        index: other,
        from: address(other).ip(),
        to: vec![address(other); SOCKETS],
    };
    ExchangeConfig {
        token: TOKEN,
        index,
        routes: (0..count).filter(|other| *other != index).map(route).collect(),
        accepted_max: SOCKETS * usize::from(count - 1),
        start: START,
        seconds: SECONDS,
        rate: Rate::from_mbit_per_s(8.0),
    }
}

/// A network of these members.
fn network(team: impl IntoIterator<Item = ExchangeConfig>) -> (Wire, Vec<NodeId>) {
    let mut wire = Wire::new(WireConfig::default());
    let nodes = team.into_iter().map(|config| {
        let listen = address(config.index);
        let node = wire.add(Exchange::new(config));
        wire.listen(node, listen, b"certificate").expect("a free address");
        node
    });
    let nodes = nodes.collect();
    (wire, nodes)
}

fn finish(wire: &mut Wire) {
    let deadline = START + Duration::from_secs(60);
    assert_eq!(wire.run_until(deadline, |_| false), Ok(Ended::Idle));
}

fn report(wire: &Wire, node: NodeId) -> (Vec<Counts>, u64) {
    let exchange = wire.node::<Exchange>(node).expect("of this type");
    assert!(exchange.is_over());
    exchange.report()
}

fn sums(counts: &Counts) -> (u64, u64) {
    let sum = |count: fn(&PairSecond) -> u64| counts.seconds.iter().map(count).sum();
    (sum(|second| second.sent_bytes), sum(|second| second.received_bytes))
}

#[test]
fn all_pairs_exchange_load_and_each_member_divides_its_rate_equally() {
    let (mut wire, nodes) = network((0..3).map(|index| config(index, 3)));
    finish(&mut wire);
    for node in nodes {
        let (counts, strangers) = report(&wire, node);
        assert_eq!((counts.len(), strangers), (2, 0));
        for counts in counts {
            assert!(counts.is_proven && counts.problem.is_none());
            assert_eq!((counts.planned, counts.open), (4, 4));
            // 4 Mbit/s to each, in records of 16 KB.
            for second in &counts.seconds {
                let rates = [second.sent_bytes, second.received_bytes];
                let is_share = |bytes: &u64| (430_000..570_000).contains(bytes);
                assert!(rates.iter().all(is_share), "{second:?}");
            }
            let (sent, received) = sums(&counts);
            assert!(received.abs_diff(sent) < 100_000, "{received} and {sent}");
            assert_eq!(sent % CELL_LEN as u64, 0, "whole cells");
        }
    }
    assert_eq!(wire.conns_len(), 0, "all are closed");
}

#[test]
fn a_member_with_another_token_gets_no_load_and_its_own_does_not_count() {
    let foreign = ExchangeConfig { token: Token::from_bytes([4; 32]), ..config(1, 2) };
    let (mut wire, nodes) = network([config(0, 2), foreign]);
    finish(&mut wire);
    for node in nodes {
        let (counts, strangers) = report(&wire, node);
        assert!(!counts[0].is_proven);
        assert_eq!((sums(&counts[0]), counts[0].open), ((0, 0), 0));
        assert!(counts[0].problem.is_some());
        assert_eq!(strangers, SOCKETS as u64);
    }
}

#[test]
fn a_member_cannot_pass_for_another() {
    // It knows the token, and dials as member 2, of which member 0 knows nothing.
    let other = ExchangeConfig { index: 2, ..config(1, 2) };
    let (mut wire, nodes) = network([config(0, 2)]);
    let node = wire.add(Exchange::new(other));
    wire.listen(node, address(1), b"certificate").expect("a free address");
    finish(&mut wire);
    let (counts, strangers) = report(&wire, nodes[0]);
    assert_eq!((sums(&counts[0]), counts[0].open), ((0, 0), 0));
    assert_eq!(strangers, SOCKETS as u64);
}

#[test]
fn connections_from_other_addresses_or_beyond_the_limit_are_refused() {
    let mut exchange = Exchange::new(config(0, 2));
    assert!(exchange.admits(Instant::ORIGIN, address(1).ip()));
    assert!(!exchange.admits(Instant::ORIGIN, address(2).ip()));
    assert_eq!(exchange.report().1, 1);

    let few = ExchangeConfig { accepted_max: 1, ..config(0, 2) };
    let (mut wire, nodes) = network([few, config(1, 2)]);
    finish(&mut wire);
    let (counts, strangers) = report(&wire, nodes[0]);
    assert_eq!((counts[0].open, strangers), (4, 3));
    assert_eq!(report(&wire, nodes[1]).0[0].open, 1);
}

#[test]
fn lost_connections_are_missing_at_the_end_and_named() {
    let (mut wire, nodes) = network((0..2).map(|index| config(index, 2)));
    let middle = START + Duration::from_millis(1500);
    assert_eq!(wire.run_until(middle, |_| false), Ok(Ended::AtDeadline));
    wire.cut(nodes[0], nodes[1]);
    finish(&mut wire);
    for node in nodes {
        let (counts, _) = report(&wire, node);
        assert_eq!((counts[0].planned, counts[0].open), (4, 0));
        assert_eq!(counts[0].problem.as_deref(), Some("reset by the peer"));
        assert_eq!(counts[0].seconds[2], PairSecond::default());
    }
}

#[test]
fn a_member_that_ends_a_little_earlier_is_not_lost() {
    let early = ExchangeConfig { start: Instant::from_millis(200), ..config(1, 2) };
    let (mut wire, nodes) = network([config(0, 2), early]);
    finish(&mut wire);
    for node in nodes {
        let (counts, _) = report(&wire, node);
        assert_eq!((counts[0].open, counts[0].problem.as_deref()), (4, None));
    }
}

#[test]
fn an_absent_member_ends_the_exchange_at_its_start() {
    let (mut wire, nodes) = network([config(0, 2)]);
    let deadline = START + Duration::from_millis(1);
    assert_eq!(wire.run_until(deadline, |_| false), Ok(Ended::Idle));
    let (counts, _) = report(&wire, nodes[0]);
    assert!(!counts[0].is_proven);
    assert_eq!(counts[0].problem.as_deref(), Some("connection refused"));
}

/// A session that exports the same keying material to all.
struct Session;

impl TlsSession for Session {
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        Some([5; 32])
    }
}

/// Member 0 with one connection to member 1, which answers with this proof; the load has begun.
fn answered(shown: &Proof) -> (Exchange, ConnId) {
    let mut config = ExchangeConfig { rate: Rate::from_mbit_per_s(10_000.0), ..config(0, 2) };
    config.routes[0].to.truncate(1);
    let mut exchange = Exchange::new(config);
    let id = exchange.poll_dial(Instant::ORIGIN).expect("one connection").conn;
    exchange.handle_connected(Instant::ORIGIN, id, &Session);
    let mut claim = [0; 2 * CLAIM_LEN];
    assert_eq!(exchange.poll_writable(), Some(id));
    assert_eq!(exchange.poll_transmit(Instant::ORIGIN, id, &mut claim), CLAIM_LEN);
    exchange.handle_bytes(Instant::ORIGIN, id, &shown[..20]);
    exchange.handle_bytes(Instant::ORIGIN, id, &shown[20..]);
    exchange.handle_timeout(START);
    (exchange, id)
}

#[test]
fn load_goes_only_to_an_acceptor_that_proves_itself() {
    let mut record = [0; RECORD_BYTES];
    let (mut exchange, id) = answered(&proof(&TOKEN, Prover::Dialler, 0, 1, &[5; 32]));
    assert_eq!((exchange.poll_close(), exchange.poll_writable()), (Some(id), None));
    assert_eq!(exchange.poll_transmit(START, id, &mut record), 0);
    assert!(!exchange.report().0[0].is_proven && exchange.report().0[0].problem.is_some());

    let (mut exchange, id) = answered(&proof(&TOKEN, Prover::Acceptor, 0, 1, &[5; 32]));
    assert_eq!((exchange.poll_close(), exchange.poll_writable()), (None, Some(id)));
    assert_eq!(exchange.poll_transmit(START, id, &mut record), RECORD_BYTES);
}

#[test]
fn a_connection_lets_the_driver_read_after_its_turn() {
    let (mut exchange, id) = answered(&proof(&TOKEN, Prover::Acceptor, 0, 1, &[5; 32]));
    let mut record = [0; RECORD_BYTES];
    for _ in 0..2 {
        assert_eq!(exchange.poll_writable(), Some(id));
        let turn = std::iter::from_fn(|| Some(exchange.poll_transmit(START, id, &mut record)));
        let bytes: usize = turn.take_while(|len| *len > 0).take(100).sum();
        assert_eq!(bytes, TURN_BYTES / RECORD_BYTES * RECORD_BYTES);
        assert_eq!(exchange.poll_writable(), None, "until the next timeout");
        let at_once = START + Duration::from_nanos(1);
        assert_eq!(exchange.poll_timeout(), Some(at_once));
        exchange.handle_timeout(START);
    }
}
