use proptest::prelude::*;

use super::*;

const HEX: &str = "0011BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0";

#[test]
fn a_fingerprint_is_read_in_any_case_with_or_without_a_dollar() {
    for text in [HEX.to_owned(), HEX.to_lowercase(), format!("${HEX}")] {
        assert_eq!(text.parse::<Fingerprint>().unwrap().to_string(), HEX);
    }
}

#[test]
fn a_fingerprint_with_a_nickname_is_rejected_and_the_error_says_so() {
    for text in [format!("${HEX}~alice"), format!("{HEX}=alice")] {
        let error = text.parse::<Fingerprint>().unwrap_err();
        assert!(matches!(error, IdError::HasNickname { .. }), "{error}");
        assert!(error.to_string().contains("40 hex digits"), "{error}");
    }
}

#[test]
fn a_damaged_fingerprint_is_rejected() {
    let too_long = format!("{HEX}0");
    for text in ["", "$", &HEX[1..], &too_long, "zz11BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0", "é"] {
        assert!(matches!(text.parse::<Fingerprint>(), Err(IdError::NotAFingerprint { .. })));
    }
}

#[test]
fn an_ed25519_identity_is_written_without_padding() {
    let id = Ed25519Identity::from_bytes([0xab; 32]);
    let text = id.to_string();
    assert_eq!(text.len(), 43);
    assert_eq!(text.parse::<Ed25519Identity>().unwrap(), id);
    assert_eq!(format!("{text}=").parse::<Ed25519Identity>().unwrap(), id);
    assert!(text[1..].parse::<Ed25519Identity>().is_err());
}

#[test]
fn a_nickname_has_1_to_19_letters_and_digits() {
    assert_eq!("a234567890123456789".parse::<Nickname>().unwrap().as_str().len(), 19);
    for bad in ["", "a2345678901234567890", "a b", "a-b", "é"] {
        assert!(bad.parse::<Nickname>().is_err(), "{bad:?}");
    }
}

#[test]
fn identities_are_json_strings() {
    let id: Fingerprint = HEX.parse().unwrap();
    let json = serde_json::to_string(&id).unwrap();
    assert_eq!(json, format!("\"{HEX}\""));
    assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), id);
    assert!(serde_json::from_str::<Nickname>("\"no spaces\"").is_err());
}

proptest! {
    #[test]
    fn identities_survive_a_round_trip(rsa: [u8; 20], ed: [u8; 32]) {
        let rsa = Fingerprint::from_bytes(rsa);
        prop_assert_eq!(rsa.to_string().parse::<Fingerprint>().unwrap(), rsa);
        let ed = Ed25519Identity::from_bytes(ed);
        prop_assert_eq!(ed.to_string().parse::<Ed25519Identity>().unwrap(), ed);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Fingerprint::parse(&bytes);
        let _ = Ed25519Identity::parse(&bytes);
        let _ = Nickname::parse(&bytes);
    }
}
