use super::*;
use crate::cell::relay::{RelayCommand, RelayMessage};
use alloc::vec;
use proptest::prelude::*;

fn bytes(len: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

proptest! {
    #[test]
    fn versions_survive_a_round_trip(versions in prop::collection::vec(any::<u16>(), 0..20)) {
        let cell = encode_versions_cell(&versions);
        let back: Vec<u16> = parse_versions(&cell[5..]).expect("even").collect();
        prop_assert_eq!(back, versions);
    }

    #[test]
    fn certs_survive_a_round_trip(certs in prop::collection::btree_map(any::<u8>(), bytes(0..900), 0..9)) {
        let certs: Vec<(u8, &[u8])> = certs.iter().map(|(kind, cert)| (*kind, &cert[..])).collect();
        let mut body = vec![];
        Certs::encode_into(&certs, &mut body);
        prop_assert_eq!(Certs::parse(&body).expect("well-formed"), Certs { certs });
    }

    #[test]
    fn netinfo_survives_a_round_trip(
        timestamp: u32, other: Option<[u8; 4]>, mine in prop::collection::vec(any::<[u8; 16]>(), 0..5),
    ) {
        let other = Some(IpAddr::from(other.unwrap_or_default()));
        let netinfo = NetInfo { timestamp, other, mine: mine.into_iter().map(IpAddr::from).collect() };
        let mut body = vec![];
        netinfo.encode_into(&mut body);
        body.resize(509, 0);
        prop_assert_eq!(NetInfo::parse(&body).expect("well-formed"), netinfo);
    }

    #[test]
    fn auth_challenge_survives_a_round_trip(challenge: [u8; 32], methods in prop::collection::vec(any::<u16>(), 0..9)) {
        let message = AuthChallenge { challenge, methods };
        let mut body = vec![];
        message.encode_into(&mut body);
        prop_assert_eq!(AuthChallenge::parse(&body).expect("well-formed"), message);
    }

    #[test]
    fn extend2_survives_a_round_trip_through_a_relay_cell(
        specifiers in prop::collection::vec((any::<u8>(), bytes(0..33)), 0..5),
        handshake_type: u16, data in bytes(0..120),
    ) {
        let link_specifiers = specifiers.iter().map(|(kind, bytes)| (*kind, &bytes[..])).collect();
        let extend = Extend2 { link_specifiers, create: Create2 { handshake_type, data: &data } };
        let mut encoded = vec![];
        extend.encode_into(&mut encoded);
        let message = RelayMessage { command: RelayCommand::EXTEND2, stream_id: 0, data: &encoded };
        let body = message.to_body().expect("fits");
        let back = RelayMessage::parse(&body).expect("well-formed");
        prop_assert_eq!(back, message);
        prop_assert_eq!(Extend2::parse(back.data).expect("well-formed"), extend);
    }

    #[test]
    fn a_truncated_message_is_an_error(bytes in bytes(0..600)) {
        let _ = parse_versions(&bytes).map(Iterator::count);
        let _ = Certs::parse(&bytes);
        let _ = AuthChallenge::parse(&bytes);
        let _ = NetInfo::parse(&bytes);
        let _ = Create2::parse(&bytes);
        let _ = parse_created2(&bytes);
        let _ = CreatedFast::parse(&bytes);
        let _ = RelayMessage::parse(&bytes).map(|message| Extend2::parse(message.data).is_ok());
    }
}

#[test]
fn a_repeated_certificate_type_is_rejected() {
    let mut body = vec![];
    Certs::encode_into(&[(4, b"one"), (4, b"two")], &mut body);
    assert!(Certs::parse(&body).is_err());
}
