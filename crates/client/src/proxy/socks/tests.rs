use super::*;
use proptest::prelude::*;

/// What becomes of a conversation whose parts of the program's come cut at every `step` bytes; and what was answered.
fn talk(parts: &[&[u8]], step: usize) -> (Step, Vec<u8>) {
    let mut greeting = Greeting::new();
    let mut answer = Vec::new();
    let all = parts.concat();
    let (last, before) = all.chunks(step.max(1)).collect::<Vec<_>>().split_last().map_or_else(
        || (Vec::new(), Vec::new()),
        |(last, before)| (last.to_vec(), before.iter().map(|it| it.to_vec()).collect()),
    );
    for piece in &before {
        match greeting.handle_bytes(piece, &mut answer) {
            Step::More => {}
            over => return (over, answer),
        }
    }
    (greeting.handle_bytes(&last, &mut answer), answer)
}

fn wanted(parts: &[&[u8]], step: usize) -> (Request, Vec<u8>, Vec<u8>) {
    match talk(parts, step) {
        (Step::Wants(request, early), answer) => (request, early, answer),
        (Step::More, _) => panic!("it waits for more"),
        (Step::Refused, _) => panic!("it is refused"),
    }
}

const NO_NAME: &[u8] = &[5, 1, 0];
const WITH_NAME: &[u8] = &[5, 2, 0, 2];
const ALICE: &[u8] = b"\x01\x05alice\x03pwd";

#[test]
fn connect_by_name_and_address_is_understood_however_it_is_cut() {
    let by_name: &[u8] = b"\x05\x01\x00\x03\x0bexample.org\x01\xbb";
    for step in 1..40 {
        let (request, early, answer) = wanted(&[NO_NAME, by_name], step);
        assert_eq!(
            (&*request.target, early.is_empty(), &answer[..]),
            ("example.org:443", true, &[5, 0][..])
        );
        assert_eq!(request.isolation, Isolation(None));
        assert_eq!(request.need, Need::Port { port: 443, is_ipv6: false });
        let to = Destination::Host("example.org".to_owned(), 443, BeginFlags::IPV6_OK);
        assert_eq!(request.destination(), Ok(to));

        let (request, _, answer) = wanted(&[WITH_NAME, ALICE, by_name], step);
        assert_eq!(answer, [5, 2, 1, 0]);
        assert_eq!(request.isolation, Isolation(Some((b"alice".to_vec(), b"pwd".to_vec()))));
    }
    let (request, early, _) =
        wanted(&[NO_NAME, b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50GET"], 100);
    assert_eq!((&*request.target, &early[..]), ("192.0.2.1:80", &b"GET"[..]));
    assert_eq!(request.granted()[..2], [5, 0]);
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

#[test]
fn questions_are_asked_and_answered() {
    let (request, _, _) = wanted(&[NO_NAME, b"\x05\xf0\x00\x03\x06a.test\x00\x00"], 100);
    assert!(request.is_lookup());
    assert_eq!(request.destination(), Ok(Destination::Lookup("a.test".to_owned())));
    let mut data = Vec::new();
    Resolved::Address([192, 0, 2, 9].into()).encode_into(60, &mut data);
    assert_eq!(request.answered(&data), (vec![5, 0, 0, 1, 192, 0, 2, 9, 0, 0], true));
    let mut none = Vec::new();
    Resolved::Error.encode_into(60, &mut none);
    for data in [&none[..], b"", b"\x04\x05"] {
        let (reply, is_found) = request.answered(data);
        assert_eq!((&reply[..2], is_found), (&[5, 4][..], false));
    }

    let (request, _, _) = wanted(&[NO_NAME, b"\x05\xf1\x00\x01\x01\x02\x03\x04\x00\x00"], 100);
    let name = "4.3.2.1.in-addr.arpa".to_owned();
    assert_eq!(request.destination(), Ok(Destination::Lookup(name)));
    assert!(
        reverse_name("2001:db8::1".parse().expect("an address"))
            .ends_with("8.b.d.0.1.0.0.2.ip6.arpa")
    );
}

#[test]
fn what_is_not_ours_to_do_is_refused() {
    for request in [
        &b"\x05\x02\x00\x01\xc0\x00\x02\x01\x00\x50"[..], // BIND
        b"\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x50",      // UDP ASSOCIATE
        b"\x05\x01\x00\x07\xc0\x00\x02\x01\x00\x50",
        b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00",
    ] {
        assert!(matches!(talk(&[NO_NAME, request], 100).0, Step::Refused), "{request:?}");
    }
    assert!(matches!(talk(&[b"GET / HTTP/1.0\r\n\r\n"], 100).0, Step::Refused));
    assert!(matches!(talk(&[&[5, 1, 1]], 100).0, Step::Refused), "another way to log in");
    let (request, _, _) = wanted(&[NO_NAME, b"\x05\x01\x00\x03\x08ab.Onion\x00\x50"], 100);
    assert!(request.destination().expect_err("refused").contains("onion"));
}

#[test]
fn each_end_has_its_status() {
    for (reason, status) in [
        (EndReason::CONNECT_REFUSED, 5),
        (EndReason::RESOLVE_FAILED, 4),
        (EndReason::EXIT_POLICY, 2),
        (EndReason::TIMEOUT, 6),
        (EndReason::MISC, 1),
    ] {
        assert_eq!(u8::from(status_of(reason)), status, "{reason}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_it_never_says_more_than_it_must(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
        is_greeted: bool,
        step in 1_usize..400,
    ) {
        let mut all: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if is_greeted {
            all.insert(0, NO_NAME);
        }
        let (_, answer) = talk(&all, step);
        prop_assert!(answer.len() <= 4);
    }
}
