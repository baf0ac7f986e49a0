//! Opening of streams, and refusals.

use super::world::{CIRCUIT, World, exit, middle};
use onion::cell::msg::{BeginFlags, Connected, DestroyReason, End, EndReason, Resolved};
use onion::cell::relay::RelayCommand;
use onion::identity::RsaId;
use onion::node::{CloseCause, DnsAnswer, DnsQuery};
use onion::router::{ExitConfig, ExitPolicy, RouterConfig};
use std::net::IpAddr;
use testkit::vectors::IDENTITIES;

/// The TTL reported to clients, which is constant.
const TTL_S: u32 = 60;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn with_policy(rules: &[&str]) -> RouterConfig {
    let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    let exit = exit();
    let policy = ExitPolicy::new(rules);
    RouterConfig { exit: Some(ExitConfig { policy, ..exit.exit.expect("one") }), ..exit }
}

#[track_caller]
fn connected(world: &mut World) -> Option<(IpAddr, u32)> {
    let message = world.next_message();
    assert_eq!(message.command, RelayCommand::CONNECTED);
    Connected::parse(&message.data).expect("readable").to
}

#[test]
fn a_stream_to_an_address_is_dialled_at_once() {
    for (host, to) in [("192.0.2.7", "192.0.2.7:443"), ("2001:db8::7", "[2001:db8::7]:443")] {
        let mut world = World::exit();
        world.begin(5, host, 443);
        let conn = world.dialled();
        assert_eq!(world.destination(conn).to.to_string(), to);
        world.expect_nothing();
        world.connect(conn);
        assert_eq!(connected(&mut world), Some((ip(host), TTL_S)));
        assert_eq!((world.router.open_streams(), world.router.totals().streams), (1, 1));
    }
}

#[test]
fn a_name_is_looked_up_before_the_connection() {
    let mut world = World::exit();
    world.begin(5, "Www.Example.com", 80);
    let question = DnsQuery::Addresses("www.example.com".into());
    assert_eq!(world.queries[0].1, question);
    assert!(world.destinations.is_empty());
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.9")]));
    let conn = world.dialled();
    assert_eq!(world.destination(conn).to.to_string(), "192.0.2.9:80");
    world.connect(conn);
    assert_eq!(connected(&mut world), Some((ip("192.0.2.9"), TTL_S)));
}

#[test]
fn a_clients_flags_select_the_address_family() {
    let (v4, v6) = ("192.0.2.9", "2001:db8::9");
    let (v6_ok, no_v4, prefers_v6) = (1, 2, 4);
    for (flags, answer, to) in [
        (0, &[v6, v4][..], Some(v4)),
        (0, &[v6], None),
        (v6_ok, &[v6, v4], Some(v4)),
        (v6_ok, &[v6], Some(v6)),
        (v6_ok | prefers_v6, &[v4, v6], Some(v6)),
        (v6_ok | prefers_v6, &[v4], Some(v4)),
        (v6_ok | no_v4, &[v4, v6], Some(v6)),
        (v6_ok | no_v4, &[v4], None),
    ] {
        let mut world = World::exit();
        world.begin_with(5, "a.b", 80, BeginFlags(flags));
        world.answer(DnsAnswer::Addresses(answer.iter().map(|address| ip(address)).collect()));
        match to {
            Some(to) => {
                let conn = world.dialled();
                assert_eq!(world.destination(conn).to.ip(), ip(to), "{flags} {answer:?}");
            }
            None => assert_eq!(world.expect_end(5), EndReason::RESOLVE_FAILED, "{flags}"),
        }
    }
}

#[test]
fn the_exit_policy_applies_after_the_lookup() {
    let mut world = World::new(with_policy(&["reject 192.0.2.0/24:*", "accept *:80"]), false);
    for (host, port) in [("192.0.2.1", 80), ("198.51.100.1", 81)] {
        world.begin(5, host, port);
        let end = End::parse(&world.next_message().data);
        assert_eq!(end, End { reason: EndReason::EXIT_POLICY, refused: Some((ip(host), TTL_S)) });
    }
    world.begin(5, "a.b", 80);
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.1")]));
    let end = End::parse(&world.next_message().data);
    assert_eq!(end.refused, Some((ip("192.0.2.1"), TTL_S)));
    world.begin(5, "a.b", 80);
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.1"), ip("198.51.100.1")]));
    let conn = world.dialled();
    assert_eq!(world.destination(conn).to.to_string(), "198.51.100.1:80", "the permitted address");
}

#[test]
fn ipv6_streams_are_opened_only_if_configured() {
    let mut config = exit();
    config.exit.as_mut().expect("one").ipv6 = false;
    let mut world = World::new(config, false);
    world.begin(5, "2001:db8::1", 80);
    assert_eq!(world.expect_end(5), EndReason::EXIT_POLICY);
    world.begin_with(6, "a.b", 80, BeginFlags(5));
    world.answer(DnsAnswer::Addresses(vec![ip("2001:db8::1"), ip("192.0.2.1")]));
    let conn = world.dialled();
    assert!(world.destination(conn).to.is_ipv4());
}

#[test]
fn a_relay_that_is_no_exit_refuses_streams() {
    let mut world = World::new(middle(), false);
    world.begin(5, "192.0.2.1", 80);
    assert_eq!(world.expect_end(5), EndReason::EXIT_POLICY);
    world.send(RelayCommand::BEGIN_DIR, 6, &[]);
    assert_eq!(world.expect_end(6), EndReason::NOT_DIRECTORY);
    world.send(RelayCommand::RESOLVE, 7, b"a.b\0");
    let message = world.next_message();
    assert_eq!((message.command, message.stream_id), (RelayCommand::RESOLVED, 7));
    assert_eq!(Resolved::parse(&message.data).expect("readable"), [(Resolved::Error, TTL_S)]);
    assert!(world.queries.is_empty());
    world.expect_nothing();
}

#[test]
fn single_hop_streams_are_refused_unless_the_configuration_allows_them() {
    let mut world = World::new(exit(), true);
    world.begin(5, "192.0.2.1", 80);
    assert_eq!(world.expect_end(5), EndReason::TOR_PROTOCOL);
    world.send(RelayCommand::BEGIN_DIR, 6, &[]);
    let conn = world.dialled();
    assert_eq!(world.destination(conn).to.port(), 9030, "a directory stream needs no further hop");
    let mut config = exit();
    config.exit.as_mut().expect("one").allows_single_hop = true;
    let mut world = World::new(config, true);
    world.open(5);
}

#[test]
fn connected_of_a_directory_stream_has_no_address() {
    let mut world = World::exit();
    world.send(RelayCommand::BEGIN_DIR, 6, &[]);
    let conn = world.dialled();
    assert_eq!(world.destination(conn).to.to_string(), "127.0.0.1:9030");
    world.connect(conn);
    assert_eq!(connected(&mut world), None);
    world.send(RelayCommand::DATA, 6, b"GET /tor/ HTTP/1.0\r\n\r\n");
    assert_eq!(world.destination(conn).received, b"GET /tor/ HTTP/1.0\r\n\r\n");
}

#[test]
fn a_malformed_begin_ends_the_stream_but_not_the_circuit() {
    let mut world = World::exit();
    for data in [&b""[..], b"192.0.2.1:80", b"192.0.2.1\0", b"192.0.2.1:0\0", b":80\0"] {
        world.send(RelayCommand::BEGIN, 5, data);
        assert_eq!(world.expect_end(5), EndReason::TOR_PROTOCOL, "{data:?}");
    }
    world.begin(5, "a b", 80);
    assert_eq!(world.expect_end(5), EndReason::RESOLVE_FAILED);
    world.expect_nothing();
}

#[test]
fn a_begin_with_the_id_of_an_open_stream_is_dropped() {
    let mut world = World::exit();
    world.open(5);
    world.begin(5, "192.0.2.2", 80);
    world.send(RelayCommand::BEGIN_DIR, 5, &[]);
    world.send(RelayCommand::RESOLVE, 5, b"a.b\0");
    assert!(world.queries.is_empty() && world.destinations.len() == 1);
    world.expect_nothing();
}

#[test]
fn stream_messages_with_stream_id_zero_are_ignored() {
    let mut world = World::exit();
    for command in [1, 3, 4, 11, 12, 13, 2, 43, 44].map(RelayCommand) {
        world.send(command, 0, b"192.0.2.1:80\0");
    }
    assert!(world.destinations.is_empty());
    world.expect_nothing();
}

#[test]
fn the_end_reason_describes_the_connection_failure() {
    for (cause, reason) in [
        (CloseCause::Refused, EndReason::CONNECT_REFUSED),
        (CloseCause::TimedOut, EndReason::TIMEOUT),
        (CloseCause::Reset, EndReason::CONN_RESET),
        (CloseCause::Other("no route".into()), EndReason::MISC),
    ] {
        let mut world = World::exit();
        world.begin(5, "192.0.2.1", 80);
        let conn = world.dialled();
        world.close_destination(conn, cause);
        assert_eq!(world.expect_end(5), reason);
        assert_eq!(world.router.open_streams(), 0);
    }
}

#[test]
fn a_failed_lookup_ends_the_stream() {
    for answer in [DnsAnswer::NoSuchName, DnsAnswer::Failed, DnsAnswer::Name("a.b".into())] {
        let mut world = World::exit();
        world.begin(5, "a.b", 80);
        world.answer(answer);
        assert_eq!(world.expect_end(5), EndReason::RESOLVE_FAILED);
        assert_eq!(world.router.open_streams(), 0);
    }
}

#[test]
fn a_stream_that_ends_during_its_lookup_leaves_no_state() {
    let mut world = World::exit();
    world.begin(5, "a.b", 80);
    world.send(RelayCommand::END, 5, &[6]);
    assert_eq!(world.router.open_streams(), 0);
    // Its stream ID is reused during the lookup.
    world.begin(5, "c.d", 80);
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.1")]));
    assert!(world.destinations.is_empty(), "the answer to the ended stream is ignored");
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.2")]));
    let conn = world.dialled();
    world.send(RelayCommand::END, 5, &[6]);
    assert_eq!(world.closed, [conn]);
    assert_eq!(world.router.open_streams(), 0);
    world.expect_nothing();
}

#[track_caller]
fn resolve(world: &mut World, name: &[u8], answer: Option<DnsAnswer>) -> Vec<(String, u32)> {
    world.send(RelayCommand::RESOLVE, 9, name);
    if let Some(answer) = answer {
        world.answer(answer);
    }
    let message = world.next_message();
    assert_eq!((message.command, message.stream_id), (RelayCommand::RESOLVED, 9));
    assert_eq!(world.router.open_streams(), 0);
    let answers = Resolved::parse(&message.data).expect("readable");
    answers.iter().map(|(answer, ttl)| (format!("{answer:?}"), *ttl)).collect()
}

#[test]
fn names_and_addresses_are_resolved() {
    let mut world = World::exit();
    let all = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"].map(ip).to_vec();
    let found = resolve(&mut world, b"a.b\0", Some(DnsAnswer::Addresses(all)));
    let one_each =
        [("Address(192.0.2.1)".to_owned(), TTL_S), ("Address(2001:db8::1)".to_owned(), TTL_S)];
    assert_eq!(found, one_each);
    assert_eq!(resolve(&mut world, b"192.0.2.1", None), [("Address(192.0.2.1)".to_owned(), TTL_S)]);
    world.send(RelayCommand::RESOLVE, 9, b"4.4.8.8.in-addr.arpa");
    assert_eq!(world.queries[0].1, DnsQuery::Name(ip("8.8.4.4")));
    world.answer(DnsAnswer::Name("dns.example".into()));
    let message = world.next_message();
    let answers = Resolved::parse(&message.data).expect("readable");
    assert_eq!(answers, [(Resolved::Name("dns.example"), TTL_S)]);
    world.expect_nothing();
}

#[test]
fn failed_lookups_return_permanent_or_transient_errors() {
    let mut world = World::exit();
    let error = |kind: &str| [(kind.to_owned(), TTL_S)];
    assert_eq!(resolve(&mut world, b"a.b", Some(DnsAnswer::NoSuchName)), error("Error"));
    assert_eq!(resolve(&mut world, b"a.b", Some(DnsAnswer::Failed)), error("TransientError"));
    for name in [&b"1.0.0.10.in-addr.arpa"[..], b"x.in-addr.arpa", b"", b"\0", b"a b", b"\xff"] {
        assert_eq!(resolve(&mut world, name, None), error("Error"), "{name:?}");
    }
    world.expect_nothing();
}

#[test]
fn connected_and_resolved_from_a_client_end_the_circuit_of_an_open_stream() {
    for command in [RelayCommand::CONNECTED, RelayCommand::RESOLVED] {
        let mut world = World::exit();
        world.send(command, 5, &[]);
        world.expect_nothing();
        let conn = world.open(5);
        world.send(command, 5, &[]);
        assert_eq!(world.destroyed(), Some(DestroyReason::PROTOCOL));
        assert_eq!(world.closed, [conn]);
    }
}

#[test]
fn a_padding_machine_is_refused() {
    let mut world = World::exit();
    world.send(RelayCommand::PADDING_NEGOTIATE, 0, &[0, 2, 9, 0, 1, 2, 3, 4]);
    let message = world.next_message();
    assert_eq!(message.command, RelayCommand::PADDING_NEGOTIATED);
    assert_eq!(message.data, [0, 2, 2, 9, 1, 2, 3, 4]);
    // Requests to stop a machine and malformed requests are not answered.
    for data in [&[0, 1, 9, 0, 1, 2, 3, 4][..], &[1, 2, 9, 0, 1, 2, 3, 4], &[0, 2, 9], &[]] {
        world.send(RelayCommand::PADDING_NEGOTIATE, 0, data);
    }
    world.send(RelayCommand::DROP, 0, &[1; 400]);
    world.send(RelayCommand(99), 0, &[1; 400]);
    world.queue(CIRCUIT, onion::cell::Command::PADDING, &[]);
    world.queue(
        onion::cell::CircId::LINK,
        onion::cell::Command::PADDING_NEGOTIATE,
        &[0, 2, 0, 9, 0, 9],
    );
    world.exchange();
    world.expect_nothing();
}

#[test]
fn streams_to_the_or_port_of_a_relay_are_refused() {
    let relays = ["192.0.2.7:9001", "[2001:db8::7]:9001"].map(|text| text.parse().expect("both"));
    let config = RouterConfig { relays: relays.into_iter().collect(), ..exit() };
    let mut world = World::new(config, false);
    for (stream_id, host) in [(1, "192.0.2.7"), (2, "2001:db8::7"), (3, "::ffff:192.0.2.7")] {
        world.begin(stream_id, host, 9001);
        assert_eq!(world.expect_end(stream_id), EndReason::CONNECT_REFUSED);
    }
    world.begin(4, "www.example.com", 9001);
    world.answer(DnsAnswer::Addresses(vec![ip("192.0.2.7")]));
    assert_eq!(world.expect_end(4), EndReason::CONNECT_REFUSED);
    assert!(world.destinations.is_empty() && world.router.open_streams() == 0);
    // Another port, another address, and a relay that is no longer listed are permitted.
    world.begin(5, "192.0.2.7", 80);
    world.begin(6, "192.0.2.8", 9001);
    assert_eq!(world.destinations.len(), 2);
    world.router.set_relays(onion::router::KnownRelays::default());
    world.begin(7, "192.0.2.7", 9001);
    assert_eq!(world.destinations.len(), 3);
}

#[test]
fn a_peer_outside_the_consensus_gets_no_streams() {
    let mut world = World::exit();
    let stranger = onion::router::KnownRelays::default().with_identities([RsaId([9; 20])]);
    world.router.set_relays(stranger);
    world.begin(5, "192.0.2.1", 80);
    assert_eq!(world.expect_end(5), EndReason::MISC);
    assert!(world.destinations.is_empty());
    let known = onion::router::KnownRelays::default().with_identities([IDENTITIES.other.rsa]);
    world.router.set_relays(known);
    world.open(5);
}
