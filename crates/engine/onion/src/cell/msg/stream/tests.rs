use super::*;
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    // CONNECTED cannot carry 0.0.0.0.
    prop_oneof![
        (1u32..).prop_map(|v4| IpAddr::from(v4.to_be_bytes())),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

#[test]
fn begin_is_encoded_as_by_c_tor() {
    let begin = Begin::parse(b"www.example.com:443\0").expect("readable");
    assert_eq!((begin.host, begin.port, begin.flags.0), ("www.example.com", 443, 0));
    let begin = Begin::parse(b"[2001:db8::1]:80\0\0\0\0\x07rest").expect("readable");
    assert_eq!((begin.host, begin.port, begin.flags.0), ("2001:db8::1", 80, 7));
    assert!(begin.flags.contains(BeginFlags::IPV6_PREFERRED));
    assert!(!BeginFlags::default().contains(BeginFlags::IPV6_OK));
}

#[test]
fn begin_requires_host_port_and_terminator() {
    for data in [
        &b"a:1"[..],
        b"a\0",
        b"a:\0",
        b"a:0\0",
        b"a:65536\0",
        b"a:+1\0",
        b":1\0",
        b"[a:1\0",
        b"",
        b"\0",
        b"\xff:1\0",
    ] {
        assert!(Begin::parse(data).is_err(), "{data:?}");
    }
}

#[test]
fn answers_are_encoded_as_by_c_tor() {
    let error = encoded(|out| Resolved::Error.encode_into(60, out));
    assert_eq!(error, [&[0xf1, 24][..], ERROR_TEXT, &[0, 0, 0, 60]].concat());
    let v4 = encoded(|out| Resolved::Address([1, 2, 3, 4].into()).encode_into(1, out));
    assert_eq!(v4, [4, 4, 1, 2, 3, 4, 0, 0, 0, 1]);
}

#[test]
fn an_end_without_a_reason_is_misc() {
    assert_eq!(End::parse(&[]), End { reason: EndReason::MISC, refused: None });
}

proptest! {
    #[test]
    fn begin_survives_a_round_trip(host in "[a-z0-9.-]{1,80}", port in 1u16.., flags: u32) {
        let begin = Begin { host: &host, port, flags: BeginFlags(flags) };
        let data = encoded(|out| begin.encode_into(out));
        prop_assert_eq!(Begin::parse(&data), Ok(begin));
    }

    #[test]
    fn connected_and_end_survive_a_round_trip(address in any_address(), ttl_s: u32, reason: u8) {
        for to in [None, Some((address, ttl_s))] {
            let connected = Connected { to };
            let data = encoded(|out| connected.encode_into(out));
            prop_assert_eq!(Connected::parse(&data), Ok(connected));
        }
        let is_refused = reason == EndReason::EXIT_POLICY.0;
        let end = End { reason: EndReason(reason), refused: is_refused.then_some((address, ttl_s)) };
        prop_assert_eq!(End::parse(&encoded(|out| end.encode_into(out))), end);
    }

    #[test]
    fn resolved_survives_a_round_trip(name in "[a-z.]{0,255}", address in any_address(), ttl_s: u32) {
        let answers = vec![
            (Resolved::Address(address), ttl_s),
            (Resolved::Name(&name), ttl_s ^ 1),
            (Resolved::Error, 0),
            (Resolved::TransientError, 1),
        ];
        let data = encoded(|out| answers.iter().for_each(|(answer, ttl_s)| answer.encode_into(*ttl_s, out)));
        prop_assert_eq!(Resolved::parse(&data), Ok(answers));
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..60), text: String) {
        for data in [&data[..], text.as_bytes()] {
            let _ = (Begin::parse(data), Connected::parse(data), Resolved::parse(data));
            let _ = End::parse(data);
        }
    }
}
