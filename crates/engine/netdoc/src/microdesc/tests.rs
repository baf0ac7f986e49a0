use super::*;
use crate::family::FamilyMember;
use crate::pieces;
use proptest::prelude::*;

/// Microdescriptors from authorities of C tor 0.4.9 in a private network: of an exit, and of a relay that is not one.
const REAL: &[u8] = include_bytes!("../../tests/data/microdescs");

const KEY: &str = "ntor-onion-key AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

fn parsed(lines: &str) -> Microdesc {
    let text = format!("onion-key\n{KEY}{lines}");
    Microdesc::parse(text.as_bytes()).expect("a microdescriptor")
}

#[test]
fn microdescriptors_from_unmodified_authorities_are_read() {
    let found: Vec<_> = pieces::microdescs(REAL)
        .map(|piece| Microdesc::parse(piece.text).expect("a microdescriptor"))
        .collect();
    assert!(found.len() >= 2, "{}", found.len());
    assert!(
        found
            .iter()
            .all(|microdesc| microdesc.ed25519.is_some() && microdesc.ntor_onion_key != [0; 32])
    );
    assert!(found.iter().any(|microdesc| microdesc.policy.allows(443)));
    assert!(found.iter().any(|microdesc| microdesc.policy.rejects_all()));
    let with_family =
        found.iter().find(|microdesc| !microdesc.family.is_empty()).expect("a family");
    assert!(with_family.family.iter().all(|member| matches!(member, FamilyMember::Fingerprint(_))));
}

#[test]
fn families_policies_and_addresses_are_read() {
    let hex = "0123456789ABCDEF0123456789ABCDEF01234567";
    let found = parsed(&format!(
        "a [2001:db8::1]:9001\na [2001:db8::2]:9001\nfamily nick ${hex}=name ${hex} $12 ${hex}x\n\
         family-ids ed25519:xyz other:1\np accept 80,443\np6 reject 25\nid rsa1024 x\n\
         id ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nfuture thing\n"
    ));
    assert_eq!(found.ipv6, Some("[2001:db8::1]:9001".parse().expect("an address")));
    let fingerprint = FamilyMember::Fingerprint(hex.parse().expect("a fingerprint"));
    let nickname = FamilyMember::Nickname("nick".parse().expect("a nickname"));
    assert_eq!(found.family[..], [fingerprint, nickname]);
    assert_eq!(found.family_ids, ["ed25519:xyz", "other:1"]);
    assert!(found.policy.allows(80) && !found.policy.allows(81));
    assert!(found.policy_ipv6.allows(26) && !found.policy_ipv6.allows(25));
    assert_eq!(found.ed25519, Some(Ed25519Id([0; 32])));
    let none = parsed("p nonsense\n");
    assert!(none.policy.rejects_all() && none.policy_ipv6.rejects_all() && none.ed25519.is_none());
}

#[test]
fn an_unusable_microdescriptor_is_rejected_with_a_reason() {
    let refusal =
        |text: String| Microdesc::parse(text.as_bytes()).expect_err("must be refused").to_string();
    assert!(refusal("x".to_owned()).contains("expected `onion-key`"));
    assert!(refusal("onion-key\n".to_owned()).contains("no `ntor-onion-key`"));
    assert!(refusal(format!("onion-key\n{KEY}p acc")).contains("cut"));
    assert!(refusal(format!("onion-key\n-----BEGIN X-----\nAA\n{KEY}")).contains("key is cut"));
    assert!(refusal(format!("onion-key\n{KEY}{KEY}")).contains("one ntor key"));
    assert!(refusal("onion-key\nntor-onion-key AAAA\n".to_owned()).contains("line 2"));
    assert!(refusal(format!("onion-key\n{KEY}id ed25519 x\n")).contains("Ed25519"));
    assert!(refusal("onion-key\n".repeat(LEN_MAX)).contains("longer"));
    assert!(refusal(format!("onion-key\n{KEY}p accept\0 80\n")).contains("NUL"));
    assert!(refusal(format!("onion-key\n{KEY}\0\0\0")).contains("NUL"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_the_result_is_bounded(
        text in "onion-key\n((ntor-onion-key|family|family-ids|p|p6|a|id|-----BEGIN X-----|-----END X-----)[ a-z0-9$\\[\\]:,-]{0,60}\n){0,20}",
    ) {
        if let Ok(found) = Microdesc::parse(text.as_bytes()) {
            prop_assert!(found.family.len() + found.family_ids.len() <= text.len());
        }
    }

    #[test]
    fn a_truncated_microdescriptor_is_rejected_or_lacks_only_its_end(cut in 0_usize..2000) {
        let whole = pieces::microdescs(REAL).next().expect("one").text;
        let part = &whole[..cut.min(whole.len())];
        if let Ok(found) = Microdesc::parse(part) {
            let all = Microdesc::parse(whole).expect("whole");
            prop_assert_eq!(found.ntor_onion_key, all.ntor_onion_key);
        }
    }
}
