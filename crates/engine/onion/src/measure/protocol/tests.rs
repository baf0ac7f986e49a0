use super::*;
use crate::identity::{Ed25519Id, RelayIds, RsaId};
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

const SEED: [u8; 32] = [7; 32];
const SESSION: [u8; 32] = [9; 32];

fn order() -> Order {
    Order {
        coordinator: CoordinatorKey::of_seed(&SEED),
        target: RelayIds { rsa: RsaId([1; 20]), ed25519: Some(Ed25519Id([2; 32])) },
        measurers: Vec::from([MeasurerKey([3; 32]), MeasurerKey([4; 32])]),
        seconds: 30,
        client_share: ClientShare::DEFAULT,
        sockets: 160,
        expires_unix_s: 1_800_000_000,
        nonce: Nonce([5; 32]),
    }
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<(u16, u16, u64)>().prop_map(|(seconds, sockets, expires_unix_s)| {
            let order = Order { seconds, sockets, expires_unix_s, ..order() };
            Message::Order(order.sign(&SEED, &SESSION))
        }),
        any::<[u8; 32]>().prop_map(|nonce| Message::Accepted { nonce: Nonce(nonce) }),
        any::<[u8; 32]>().prop_map(|nonce| {
            Message::Proof(Proof::sign(&SEED, Nonce(nonce), &order().target, &SESSION))
        }),
        Just(Message::Proven),
        (any::<(u16, u64, u64)>(), prop::collection::vec(any::<(u8, u64)>(), 0..=MEASURERS_MAX))
            .prop_map(|((second, received_bytes, sent_bytes), sent_back)| {
                let sent_back = sent_back.into_iter().map(|(measurer, bytes)| SentBack {
                    measurer: MeasurerKey([measurer; 32]),
                    bytes,
                });
                let second = ClientSecond { second, received_bytes, sent_bytes };
                Message::ClientSecond(second, sent_back.collect())
            }),
        (any::<u16>(), "[a-z ä]{0,60}").prop_map(|(code, text)| Message::Error {
            code: ErrorCode::new(code),
            text: text.trim().into(),
        }),
    ]
}

proptest! {
    #[test]
    fn a_message_survives_a_round_trip(message in messages()) {
        prop_assert_eq!(Message::parse(&message.encode()), Ok(message));
    }

    #[test]
    fn a_truncated_message_is_rejected(message in messages(), cut in 1usize..400) {
        let encoded = message.encode();
        let kept = encoded.len().saturating_sub(cut);
        let Ok(found) = Message::parse(&encoded[..kept]) else { return Ok(()) };
        match (message, found) {
            // An error's text may be omitted: it is for people.
            (Message::Error { code, .. }, found) => {
                prop_assert_eq!(found, Message::Error { code, text: String::new() });
            }
            // The bytes returned to each measurer may be omitted: older relays do not report them.
            (Message::ClientSecond(second, all), Message::ClientSecond(found, some)) => {
                prop_assert_eq!(found, second);
                prop_assert!(some.len() < all.len() && all.starts_with(&some));
            }
            _ => return Err(TestCaseError::fail("read without its end")),
        }
    }

    #[test]
    fn fields_of_unknown_types_are_skipped(message in messages(), field_type in 1000u16.., value: Vec<u8>) {
        let mut encoded = message.encode();
        fields::push(&mut encoded, field_type, &value);
        prop_assert_eq!(Message::parse(&encoded), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Message::Order(signed)) = Message::parse(&bytes)
            && let Ok(order) = signed.claims()
        {
            prop_assert!(signed.verify(&order, &SESSION).is_err());
        }
    }

    #[test]
    fn an_altered_order_does_not_verify(at in 0usize..300, bit in 0u8..8) {
        let mut signed = order().sign(&SEED, &SESSION);
        let len = signed.body.len();
        signed.body[at % len] ^= 1 << bit;
        if let Ok(claimed) = signed.claims() {
            prop_assert_eq!(signed.verify(&claimed, &SESSION), Err(SignatureInvalid));
        }
    }
}

#[test]
fn an_order_is_bound_to_its_session_and_its_signer() {
    let signed = order().sign(&SEED, &SESSION);
    let claims = signed.claims().expect("readable");
    assert_eq!(claims, order());
    assert_eq!(signed.verify(&claims, &SESSION), Ok(()));
    assert_eq!(signed.verify(&claims, &[8; 32]), Err(SignatureInvalid));
    // The holder of another key cannot claim this identity.
    let other = order().sign(&[6; 32], &SESSION);
    let claimed = other.claims().expect("readable");
    assert_eq!(claimed.coordinator, CoordinatorKey::of_seed(&[6; 32]));
    assert_eq!(other.verify(&order(), &SESSION), Err(SignatureInvalid));
}

#[test]
fn a_proof_is_bound_to_session_target_and_measurement() {
    let target = order().target;
    let proof = Proof::sign(&SEED, Nonce([5; 32]), &target, &SESSION);
    assert_eq!(proof.verify(&target, &SESSION), Ok(()));
    assert_eq!(proof.verify(&target, &[8; 32]), Err(SignatureInvalid));
    let elsewhere = RelayIds { rsa: RsaId([6; 20]), ..target };
    assert_eq!(proof.verify(&elsewhere, &SESSION), Err(SignatureInvalid));
    let later = Proof { nonce: Nonce([6; 32]), ..proof };
    assert_eq!(later.verify(&target, &SESSION), Err(SignatureInvalid));
}

#[test]
fn an_order_is_not_a_valid_proof_even_with_the_same_key() {
    let signed = order().sign(&SEED, &SESSION);
    let forged = Proof {
        nonce: Nonce([5; 32]),
        measurer: MeasurerKey::of_seed(&SEED),
        signature: signed.signature,
    };
    assert_eq!(forged.verify(&order().target, &SESSION), Err(SignatureInvalid));
}

#[test]
fn oversized_and_repeated_fields_are_rejected() {
    // Complete except for its length: fields of unknown types would be skipped.
    let mut long = Message::Proven.encode();
    fields::push(&mut long, 1000, &[0; MESSAGE_LEN_MAX - 5]);
    assert_eq!((long.len(), Message::parse(&long)), (MESSAGE_LEN_MAX, Ok(Message::Proven)));
    long.truncate(1);
    fields::push(&mut long, 1000, &[0; MESSAGE_LEN_MAX - 4]);
    assert!(Message::parse(&long).is_err());
    let mut texts = Message::Error { code: ErrorCode::OTHER, text: "one".into() }.encode();
    fields::push(&mut texts, 9, b"two");
    assert!(Message::parse(&texts).is_err());
    let mut twice = Message::Accepted { nonce: Nonce([1; 32]) }.encode();
    fields::push(&mut twice, 3, &[1; 32]);
    assert!(Message::parse(&twice).is_err());
    let measurers = (0..=MEASURERS_MAX).map(|_| MeasurerKey([3; 32])).collect();
    let crowd = Order { measurers, ..order() }.sign(&SEED, &SESSION);
    assert!(crowd.claims().is_err());
}

#[test]
fn control_characters_of_a_peer_are_removed() {
    let nasty = String::from("\x1b[2Jgone\nand more");
    let message = Message::Error { code: ErrorCode::OTHER, text: nasty };
    let Ok(Message::Error { text, .. }) = Message::parse(&message.encode()) else {
        panic!("readable");
    };
    assert_eq!(text, "[2Jgone and more");
}

#[test]
fn codes_have_distinct_numbers() {
    let mut numbers: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.get()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ErrorCode::ALL.len());
}

#[test]
fn clients_get_their_share_during_a_measurement() {
    assert_eq!(ClientShare::DEFAULT.allowance(300), 100);
    assert_eq!(ClientShare::from_permille(0).map(|none| none.allowance(300)), Some(0));
    assert_eq!(ClientShare::from_permille(1000), None);
    assert_eq!(
        ClientShare::from_permille(999).map(|most| most.allowance(u64::MAX)),
        Some(u64::MAX)
    );
}
