use super::*;
use onion::cell::msg::Resolved;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// A program on this machine.
const FROM: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

/// The result of a conversation in which the program's bytes arrive in pieces of `step` bytes, and the replies.
fn talk(parts: &[&[u8]], step: usize) -> (Step, Vec<u8>) {
    let mut greeting = Greeting::new(FROM);
    let mut answer = Vec::new();
    let all = parts.concat();
    let mut pieces: Vec<&[u8]> = all.chunks(step.max(1)).collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match greeting.handle_bytes(piece, &mut answer) {
            Step::More => {}
            over => return (over, answer),
        }
    }
    (greeting.handle_bytes(last, &mut answer), answer)
}

fn wanted(parts: &[&[u8]], step: usize) -> (Request, Vec<u8>, Vec<u8>) {
    match talk(parts, step) {
        (Step::Wants(request, early), answer) => (request, early, answer),
        (Step::More, _) => panic!("it waits for more"),
        (Step::Refused(refusal), _) => panic!("{refusal:?}"),
    }
}

/// The destination of a request.
fn carried(request: &Request) -> Destination {
    match request.verdict(false) {
        Verdict::Carry(destination) => destination,
        Verdict::Answer(reply) => panic!("answered: {reply:?}"),
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    }
}

const NO_NAME: &[u8] = &[5, 1, 0];
const WITH_NAME: &[u8] = &[5, 2, 0, 2];
const ALICE: &[u8] = b"\x01\x05alice\x03pwd";

fn isolated(user: &[u8], password: &[u8]) -> Isolation {
    Isolation { version: 5, from: FROM, user: user.to_vec(), password: password.to_vec() }
}

#[test]
fn connect_by_name_and_address_is_parsed_however_bytes_are_split() {
    let by_name: &[u8] = b"\x05\x01\x00\x03\x0bexample.org\x01\xbb";
    for step in 1..40 {
        let (request, early, answer) = wanted(&[NO_NAME, by_name], step);
        assert_eq!(
            (&*request.target, early.is_empty(), &answer[..]),
            ("example.org:443", true, &[5, 0][..])
        );
        assert_eq!(request.isolation, isolated(b"", b""));
        assert_eq!(request.need, Need::Port { port: 443, is_ipv6: false });
        let to = Destination::Host("example.org".to_owned(), 443, BeginFlags::IPV6_OK);
        assert_eq!(carried(&request), to);

        let (request, _, answer) = wanted(&[WITH_NAME, ALICE, by_name], step);
        assert_eq!(answer, [5, 2, 1, 0]);
        assert_eq!(request.isolation, isolated(b"alice", b"pwd"));

        let (request, early, answer) =
            wanted(&[b"\x04\x01\x00\x50\x00\x00\x00\x01bob\0a.test\0GET"], step);
        assert_eq!((&*request.target, answer.is_empty()), ("a.test:80", true));
        assert!(b"GET".starts_with(&early), "{early:?}");
        assert_eq!(request.isolation, Isolation { version: 4, ..isolated(b"bob", b"") });
        assert_eq!(request.granted(), [0, 0x5a, 0, 0, 0, 0, 0, 0]);
    }
    let (request, early, _) =
        wanted(&[NO_NAME, b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50GET"], 100);
    assert_eq!((&*request.target, &early[..]), ("192.0.2.1:80", &b"GET"[..]));
    assert_eq!(request.granted(), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let v6: &[u8] = &[5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80];
    let (request, _, _) = wanted(&[NO_NAME, v6], 7);
    assert_eq!(request.need, Need::Port { port: 80, is_ipv6: true });
    assert_eq!(request.target, "[2001:db8::1]:80");
    // However much comes at once behind it.
    let early_bytes = [7; 5000];
    let (_, early, _) = wanted(&[NO_NAME, v6, &early_bytes], 10_000);
    assert_eq!(early, early_bytes);
    // An address that is given as a name is one.
    let (request, _, _) = wanted(&[NO_NAME, b"\x05\x01\x00\x03\x032::\x00\x50"], 100);
    assert_eq!(request.need, Need::Port { port: 80, is_ipv6: true });
}

/// C tor writes the second answer over the first, so this is not compared with it.
#[test]
fn messages_received_at_once_get_one_reply_each() {
    let resolve: &[u8] = b"\x05\xf0\x00\x01\xc0\x00\x02\x01\x00\x50";
    let (_, _, answer) = wanted(&[WITH_NAME, ALICE, resolve], 1000);
    assert_eq!(answer, [5, 2, 1, 0]);
    let (step, answer) = talk(&[NO_NAME, b"\x05\x02\x00\x01\xc0\x00\x02\x01\x00\x50"], 1000);
    assert_eq!(answer, [5, 0]);
    assert!(
        matches!(step, Step::Refused(refusal) if refusal.reply == [5, 7, 0, 1, 0, 0, 0, 0, 0, 0])
    );
}

#[test]
fn lookups_are_parsed_and_answered() {
    let (request, _, _) = wanted(&[NO_NAME, b"\x05\xf0\x00\x03\x06a.test\x00\x00"], 100);
    assert!(request.is_lookup());
    assert_eq!(carried(&request), Destination::Lookup("a.test".to_owned()));
    let encoded = |answers: &[Resolved<'_>]| {
        let mut data = Vec::new();
        answers.iter().for_each(|answer| answer.encode_into(60, &mut data));
        data
    };
    let (v4, v6) = (IpAddr::from([192, 0, 2, 9]), IpAddr::from([9; 16]));
    let both = encoded(&[Resolved::Address(v6), Resolved::Address(v4)]);
    assert_eq!(request.answered(&both, true), (vec![5, 0, 0, 1, 192, 0, 2, 9, 0, 0], true));
    let name = encoded(&[Resolved::Name("a.test")]);
    let none = encoded(&[Resolved::Error]);
    for data in [&none[..], &name, b"", b"\x04\x05"] {
        let (reply, is_found) = request.answered(data, false);
        assert_eq!((&reply[..], is_found), (&[5, 4, 0, 0, 0, 0, 0, 0, 0, 0][..], false));
    }
    let private = encoded(&[Resolved::Address([10, 0, 0, 1].into())]);
    assert!(request.answered(&private, false).1 && !request.answered(&private, true).1);

    let (request, _, _) = wanted(&[NO_NAME, b"\x05\xf1\x00\x01\x01\x02\x03\x04\x00\x00"], 100);
    assert_eq!(carried(&request), Destination::Lookup("4.3.2.1.in-addr.arpa".to_owned()));
    assert_eq!(request.answered(&name, true), (b"\x05\0\0\x03\x06a.test\0\0".to_vec(), true));
    assert!(!request.answered(&both, true).1, "an address is not a name");
    let address = "2001:db8::1".parse().expect("an address");
    assert!(hosts::reverse_name(address).ends_with("8.b.d.0.1.0.0.2.ip6.arpa"));

    let (request, _, _) = wanted(&[b"\x04\xf0\x00\x00\x00\x00\x00\x01\0a.test\0"], 100);
    assert_eq!(request.answered(&both, true).0, [0, 0x5a, 0, 0, 192, 0, 2, 9]);
    let only_v6 = encoded(&[Resolved::Address(v6)]);
    assert_eq!(request.answered(&only_v6, true).0, [0, 0x5b, 0, 0, 0, 0, 0, 0]);
}

/// C tor sends such a name to an exit, which learns it.
#[test]
fn a_name_under_onion_or_exit_never_leaves_the_client_even_with_a_trailing_dot() {
    for name in ["ab.onion.", "ab.exit.", "AB.ONION."] {
        let len = u8::try_from(name.len()).expect("short");
        for (command, reply) in
            [(1, &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]), (0xf0, &[5, 4, 0, 0, 0, 0, 0, 0, 0, 0])]
        {
            let asked = [&[5, command, 0, 3, len], name.as_bytes(), &[0, 80]].concat();
            let (request, _, _) = wanted(&[NO_NAME, &asked], 100);
            let Verdict::Refuse(refusal) = request.verdict(false) else { panic!("{name}") };
            assert_eq!(refusal.reply, reply, "{name} {command}");
        }
    }
}

#[test]
fn begin_flags_depend_on_the_programs_address_family() {
    let flags = |parts: &[&[u8]]| match carried(&wanted(parts, 100).0) {
        Destination::Host(_, _, flags) => flags,
        other => panic!("{other:?}"),
    };
    let only_v6 = BeginFlags(BeginFlags::IPV6_OK.0 | BeginFlags::IPV4_NOT_OK.0);
    assert_eq!(flags(&[NO_NAME, b"\x05\x01\x00\x03\x06a.test\x00\x50"]), BeginFlags::IPV6_OK);
    assert_eq!(flags(&[NO_NAME, b"\x05\x01\x00\x03\x052::34\x00\x50"]), only_v6);
    let v4 = b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50";
    assert_eq!(flags(&[NO_NAME, v4]), BeginFlags::default());
    let socks4a = b"\x04\x01\x00\x50\x00\x00\x00\x01\0a.test\0";
    assert_eq!(flags(&[socks4a]), BeginFlags::default());
}

#[test]
fn each_end_reason_has_its_status() {
    for (reason, status) in [
        (EndReason::CONNECT_REFUSED, 5),
        (EndReason::CONN_RESET, 5),
        (EndReason::DONE, 5),
        (EndReason::RESOLVE_FAILED, 4),
        (EndReason::NO_ROUTE, 4),
        (EndReason::EXIT_POLICY, 2),
        (EndReason::TIMEOUT, 6),
        (EndReason::MISC, 1),
        (EndReason::RESOURCE_LIMIT, 1),
        (EndReason(77), 1),
    ] {
        assert_eq!(Status::from_reason(reason), Status(status), "{reason}");
    }
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic_or_an_overlong_reply(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
        is_greeted: bool,
        step in 1_usize..400,
    ) {
        let mut all: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if is_greeted {
            all.insert(0, NO_NAME);
        }
        let (step, answer) = talk(&all, step);
        prop_assert!(answer.len() <= 4);
        if let Step::Wants(request, _) = step {
            let _never_panics = request.verdict(is_greeted);
        }
    }

    #[test]
    fn results_do_not_depend_on_how_messages_are_split(
        tail in prop::collection::vec(any::<u8>(), 0..40),
        command in prop::sample::select(vec![1_u8, 2, 3, 9, 0xf0, 0xf1]),
        step in 1_usize..40,
    ) {
        let request = [&[5, command, 0][..], &tail].concat();
        let parts: [&[u8]; 3] = [WITH_NAME, ALICE, &request];
        let result = |(step, answer): (Step, Vec<u8>)| match step {
            Step::More => (answer, "more".to_owned()),
            Step::Wants(request, _) => (answer, request.target),
            Step::Refused(refusal) => (answer, format!("{refusal:?}")),
        };
        prop_assert_eq!(result(talk(&parts, step)), result(talk(&parts, 1000)));
    }
}
