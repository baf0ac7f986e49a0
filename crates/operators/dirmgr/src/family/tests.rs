use super::*;
use netdoc::descriptor::parse_all;

/// Descriptors of two relays of tor 0.4.9.11: `member` is in two families, `other` in the first of them.
const DESCRIPTORS: &[u8] = include_bytes!("../../tests/data/family-descriptors");
/// Their names, as `tor --keygen-family` printed them.
const ONE: &str = "JH11G3aA3hpxvBfNQRC44xWGVFqzbQkC+2wO1oRQb4I";
const TWO: &str = "Bd2udpXhGN/uqks1N5DQbr7O8G0EKxQ4r1K7sBvPkH8";
/// When the descriptors were published, and when the certificates in the first of them expire.
const THEN: u64 = 1_795_440_942;
const END: u64 = 499_454 * 3600;

fn tor_descriptors() -> Vec<ServerDescriptor<'static>> {
    let (good, bad) = parse_all(DESCRIPTORS);
    assert!(bad.is_empty(), "{bad:?}");
    good
}

fn names(descriptor: &ServerDescriptor<'_>, now_unix_s: u64) -> Vec<String> {
    proven_families(descriptor, now_unix_s).families.iter().map(FamilyId::to_string).collect()
}

fn problems(descriptor: &ServerDescriptor<'_>, now_unix_s: u64) -> Vec<String> {
    proven_families(descriptor, now_unix_s).problems.iter().map(CertError::to_string).collect()
}

#[test]
fn certificates_of_unmodified_tor_prove_its_families_until_they_expire() {
    let [member, other] = &tor_descriptors()[..] else { panic!("two") };
    assert_eq!(names(member, THEN), [TWO, ONE]);
    assert_eq!(names(other, THEN), [ONE]);
    assert!(problems(member, THEN).is_empty());
    assert_eq!(names(member, END - 1).len(), 2);
    assert!(names(member, END).is_empty());
    assert!(problems(member, END).iter().all(|problem| problem.contains("expired")));
    assert_eq!(problems(member, END).len(), 2);
}

#[test]
fn the_certificate_of_another_relay_proves_nothing() {
    let [member, other] = &tor_descriptors()[..] else { panic!("two") };
    // Another relay copies a member's certificates.
    let copycat = ServerDescriptor { family_certs: member.family_certs.clone(), ..other.clone() };
    assert!(names(&copycat, THEN).is_empty());
    assert_eq!(problems(&copycat, THEN).len(), 2);
    assert!(
        problems(&copycat, THEN).iter().all(|problem| problem.contains("is for another relay"))
    );
    // A relay without an Ed25519 identity is in no family.
    assert!(names(&ServerDescriptor { ed25519: None, ..member.clone() }, THEN).is_empty());
}

#[test]
fn no_certificate_survives_a_change_of_any_bit() {
    let other = tor_descriptors().pop().expect("two");
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
    // Invalid certificates do not affect the others.
    let mixed = vec![vec![1, 12], cert.clone(), Vec::new()];
    let mixed = ServerDescriptor { family_certs: mixed, ..other };
    assert_eq!((names(&mixed, THEN).len(), problems(&mixed, THEN).len()), (1, 2));
}
