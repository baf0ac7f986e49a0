use super::super::{FamilyId, FamilyKey};
use super::*;
use netdoc::descriptor::parse_all;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tor_llcrypto::pk::ed25519;

/// What two relays of stock tor 0.4.9.11 published: `member` is of two families, `other` of the first of them.
const STOCK: &[u8] = include_bytes!("../../../tests/data/family-descriptors");
/// What `tor --keygen-family` said of them.
const ONE: &str = "JH11G3aA3hpxvBfNQRC44xWGVFqzbQkC+2wO1oRQb4I";
const TWO: &str = "Bd2udpXhGN/uqks1N5DQbr7O8G0EKxQ4r1K7sBvPkH8";
/// When those descriptors were published, and the hour in which the certificates in the first of them end.
const THEN: u64 = 1_795_440_942;
const END: u64 = 499_454 * 3600;

fn stock() -> Vec<ServerDescriptor<'static>> {
    let (good, bad) = parse_all(STOCK);
    assert!(bad.is_empty(), "{bad:?}");
    good
}

fn names(descriptor: &ServerDescriptor<'_>, now_unix_s: u64) -> Vec<String> {
    proven(descriptor, now_unix_s).0.iter().map(FamilyId::to_string).collect()
}

fn problems(descriptor: &ServerDescriptor<'_>, now_unix_s: u64) -> Vec<String> {
    proven(descriptor, now_unix_s).1.iter().map(CertError::to_string).collect()
}

#[test]
fn stock_tors_certificates_prove_its_families_until_they_end() {
    let [member, other] = &stock()[..] else { panic!("two") };
    assert_eq!(names(member, THEN), [TWO, ONE]);
    assert_eq!(names(other, THEN), [ONE]);
    assert!(problems(member, THEN).is_empty());
    assert_eq!(names(member, END - 1).len(), 2);
    assert!(names(member, END).is_empty());
    assert!(problems(member, END).iter().all(|it| it.contains("expired")));
    assert_eq!(problems(member, END).len(), 2);
}

#[test]
fn the_certificate_of_another_relay_proves_nothing() {
    let [member, other] = &stock()[..] else { panic!("two") };
    // A stranger shows what a member has published.
    let stranger = ServerDescriptor { family_certs: member.family_certs.clone(), ..other.clone() };
    assert!(names(&stranger, THEN).is_empty());
    assert_eq!(problems(&stranger, THEN).len(), 2);
    assert!(problems(&stranger, THEN).iter().all(|it| it.contains("is for another relay")));
    // One without an Ed25519 identity is nobody.
    assert!(names(&ServerDescriptor { ed25519: None, ..member.clone() }, THEN).is_empty());
}

#[test]
fn no_certificate_survives_a_change_of_any_bit() {
    let other = stock().pop().expect("two");
    let cert = &other.family_certs[0];
    assert_eq!(names(&other, THEN), [ONE]);
    for bit in 0..cert.len() * 8 {
        let mut changed = cert.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let liar = ServerDescriptor { family_certs: vec![changed], ..other.clone() };
        assert!(names(&liar, THEN).is_empty(), "bit {bit}");
        assert_eq!(problems(&liar, THEN).len(), 1, "bit {bit}");
    }
    for len in 0..cert.len() {
        let cut = ServerDescriptor { family_certs: vec![cert[..len].to_vec()], ..other.clone() };
        assert!(names(&cut, THEN).is_empty(), "{len} bytes");
    }
    // It costs the others nothing.
    let mixed = vec![vec![1, 12], cert.clone(), Vec::new()];
    let mixed = ServerDescriptor { family_certs: mixed, ..other };
    assert_eq!((names(&mixed, THEN).len(), problems(&mixed, THEN).len()), (1, 2));
}

fn key(seed: u8) -> ed25519::Keypair {
    ed25519::Keypair::from_bytes(&[seed; 32])
}

/// A certificate of ours for `identity`.
fn certified(family: u8, identity: &ed25519::Keypair, expiry: SystemTime) -> Vec<u8> {
    let family = FamilyKey::new(ed25519::ExpandedKeypair::from(&key(family)));
    family.certify(&identity.verifying_key(), expiry).expect("certified")
}

#[test]
fn our_own_certificates_prove_the_same_and_not_by_another_key_or_for_another_purpose() {
    let relay = key(1);
    let expiry = UNIX_EPOCH + Duration::from_secs(END);
    let cert = certified(2, &relay, expiry);
    let shown = |cert: Vec<u8>| ServerDescriptor {
        ed25519: Some(netdoc::Ed25519Identity::from_bytes(relay.verifying_key().to_bytes())),
        family_certs: vec![cert],
        ..stock().remove(0)
    };
    let family = FamilyId(key(2).verifying_key().to_bytes()).to_string();
    assert_eq!(names(&shown(cert.clone()), THEN), [family]);
    assert!(names(&shown(cert.clone()), END).is_empty());
    // It names the family's key, and somebody else has signed it.
    let mut forged = certified(3, &relay, expiry);
    let named = cert.len() - 64 - 32;
    forged[named..named + 32].copy_from_slice(&cert[named..named + 32]);
    assert!(problems(&shown(forged), THEN)[0].contains("signature"));
    // The relay's own key as the family's: it is a family of its own, and nobody else's.
    let own = names(&shown(certified(1, &relay, expiry)), THEN);
    assert_eq!(own, [FamilyId(relay.verifying_key().to_bytes()).to_string()]);
}
