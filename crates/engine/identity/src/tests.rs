use super::*;
use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use proptest::prelude::*;

const HEX: &str = "0011BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0";

#[test]
fn a_fingerprint_is_read_in_any_case_with_or_without_a_dollar() {
    for text in [HEX.to_owned(), HEX.to_lowercase(), format!("${HEX}")] {
        assert_eq!(text.parse::<RsaId>().unwrap().to_string(), HEX);
    }
}

#[test]
fn a_fingerprint_with_a_nickname_is_rejected_and_the_error_says_so() {
    for text in [format!("${HEX}~alice"), format!("{HEX}=alice")] {
        let error = text.parse::<RsaId>().unwrap_err();
        assert!(matches!(error, IdError::HasNickname { .. }), "{error}");
        assert!(error.to_string().contains("40 hex digits"), "{error}");
    }
}

#[test]
fn a_damaged_fingerprint_is_rejected() {
    let too_long = format!("{HEX}0");
    for text in ["", "$", &HEX[1..], &too_long, "zz11BDCBC261E7B9B45CF515BF5A8D7A2DBCD8B0", "é"] {
        assert!(matches!(text.parse::<RsaId>(), Err(IdError::NotAFingerprint { .. })));
    }
}

#[test]
fn an_ed25519_identity_is_written_without_padding() {
    let id = Ed25519Id([0xab; 32]);
    let text = id.to_string();
    assert_eq!(text.len(), 43);
    assert_eq!(text.parse::<Ed25519Id>().unwrap(), id);
    assert_eq!(format!("{text}=").parse::<Ed25519Id>().unwrap(), id);
    for text in [&text[1..], "", "=", &"A".repeat(44), &"A".repeat(86), &"=".repeat(43)] {
        assert!(text.parse::<Ed25519Id>().is_err(), "{text}");
    }
}

#[test]
fn a_nickname_has_1_to_19_letters_and_digits() {
    assert_eq!("a234567890123456789".parse::<Nickname>().unwrap().as_str().len(), 19);
    for bad in ["", "a2345678901234567890", "a b", "a-b", "é"] {
        assert!(bad.parse::<Nickname>().is_err(), "{bad:?}");
    }
}

#[test]
fn names_are_padded_as_text_is() {
    assert_eq!(format!("{:<42}|", RsaId([0xab; 20])), format!("{}  |", "AB".repeat(20)));
    assert_eq!(format!("{:>44}", Ed25519Id([0; 32])), format!(" {}", "A".repeat(43)));
    assert_eq!(format!("{:.8}", RsaId([0xab; 20])), "ABABABAB");
}

#[test]
fn debug_output_is_in_tors_notation() {
    assert_eq!(format!("{:?}", RsaId([0xab; 20])), format!("${}", "AB".repeat(20)));
    assert_eq!(format!("{:?}", Ed25519Id([0; 32])), format!("ed25519:{}", "A".repeat(43)));
}

/// Tables of all relays have them as keys.
#[test]
fn an_identity_takes_no_more_memory_than_its_bytes() {
    assert_eq!((size_of::<RsaId>(), align_of::<RsaId>()), (20, 1));
    assert_eq!((size_of::<Ed25519Id>(), align_of::<Ed25519Id>()), (32, 1));
    assert_eq!(size_of::<Option<Ed25519Id>>(), 33);
}

proptest! {
    #[test]
    fn identities_survive_a_round_trip(rsa: [u8; 20], ed25519: [u8; 32]) {
        let rsa = RsaId(rsa);
        prop_assert_eq!(rsa.to_string().parse::<RsaId>().unwrap(), rsa);
        let ed25519 = Ed25519Id(ed25519);
        prop_assert_eq!(ed25519.to_string().parse::<Ed25519Id>().unwrap(), ed25519);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = RsaId::parse(&bytes);
        let _ = Ed25519Id::parse(&bytes);
        let _ = Nickname::parse(&bytes);
    }
}

#[cfg(feature = "serde")]
mod serialized {
    use super::*;
    use alloc::collections::BTreeMap;
    use serde::{Deserialize, Serialize};

    #[test]
    fn names_are_json_strings() {
        let id: RsaId = HEX.parse().unwrap();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{HEX}\""));
        assert_eq!(serde_json::from_str::<RsaId>(&json).unwrap(), id);
        let id = Ed25519Id([0xab; 32]);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<Ed25519Id>(&json).unwrap(), id);
        let name: Nickname = serde_json::from_str("\"alice\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"alice\"");
        assert!(serde_json::from_str::<Nickname>("\"no spaces\"").is_err());
    }

    #[test]
    fn identities_can_be_keys_of_json_objects() {
        let map = BTreeMap::from([(RsaId([0xab; 20]), Ed25519Id([0; 32]))]);
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(json, format!("{{\"{}\":\"{}\"}}", "AB".repeat(20), "A".repeat(43)));
        assert_eq!(serde_json::from_str::<BTreeMap<RsaId, Ed25519Id>>(&json).unwrap(), map);
    }

    proptest! {
        /// Stores, records and messages of earlier versions have arrays.
        #[test]
        fn arrays_of_bytes_are_read_as_identities(rsa: [u8; 20], ed25519: [u8; 32]) {
            let json = serde_json::to_string(&rsa).unwrap();
            prop_assert_eq!(serde_json::from_str::<RsaId>(&json).unwrap(), RsaId(rsa));
            let value = serde_json::to_value(rsa).unwrap();
            prop_assert_eq!(serde_json::from_value::<RsaId>(value).unwrap(), RsaId(rsa));
            let json = serde_json::to_string(&ed25519).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ed25519Id>(&json).unwrap(), Ed25519Id(ed25519));
        }
    }

    #[test]
    fn arrays_of_another_length_and_other_values_are_rejected() {
        for len in [0, 19, 21, 32] {
            let json = serde_json::to_string(&[7].repeat(len)).unwrap();
            assert!(serde_json::from_str::<RsaId>(&json).is_err(), "{len}");
            let value = serde_json::to_value([7].repeat(len)).unwrap();
            assert!(serde_json::from_value::<RsaId>(value).is_err(), "{len}");
        }
        let large = serde_json::to_string(&[256; 20]).unwrap();
        for json in [&large, "5", "null", "{}", "\"\"", "\"AB\""] {
            assert!(serde_json::from_str::<RsaId>(json).is_err(), "{json}");
            assert!(serde_json::from_str::<Ed25519Id>(json).is_err(), "{json}");
        }
        let error = serde_json::from_str::<RsaId>("5").unwrap_err().to_string();
        assert!(error.contains("expected a relay fingerprint of 40 hex digits"), "{error}");
    }

    #[test]
    fn toml_has_the_same_forms() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Relay {
            rsa: RsaId,
        }
        let relay = Relay { rsa: RsaId([0xab; 20]) };
        let text = format!("rsa = \"{}\"\n", "AB".repeat(20));
        assert_eq!(toml::to_string(&relay).unwrap(), text);
        assert_eq!(toml::from_str::<Relay>(&text).unwrap(), relay);
        let array: String = format!("rsa = {:?}", [0xab; 20]);
        assert_eq!(toml::from_str::<Relay>(&array).unwrap(), relay);
    }
}
