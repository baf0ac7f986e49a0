//! Relays of one operator, by their descriptors.

use dirmgr::family::{FamilyId, ProvenFamilies, proven_families};
use netdoc::Fingerprint;
use netdoc::descriptor::ServerDescriptor;
use onion::identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Maximum number of pairs of a relay with later members, by fingerprint, of a family with one key. No team measures more
/// relays of a family at the same time. Keys cost nothing, and all pairs of thousands of relays would take gigabytes. A
/// member list in a descriptor is limited to a few hundred relays anyway.
const PAIRS_MAX: usize = 100;

/// Pairs of relays that both declare to have one operator: each names the other (`family`), or both have certificates by
/// the key of one family (`family-cert`, proposal 321) that are valid at this time. In each pair the smaller fingerprint
/// is first.
pub fn pairs<'d>(
    descriptors: impl Iterator<Item = &'d ServerDescriptor<'d>>,
    now_unix_s: u64,
) -> Vec<(RsaId, RsaId)> {
    let mut declared: BTreeMap<Fingerprint, BTreeSet<Fingerprint>> = BTreeMap::new();
    let mut families: BTreeMap<FamilyId, BTreeSet<Fingerprint>> = BTreeMap::new();
    let mut problems = Vec::new();
    for it in descriptors {
        declared.insert(it.fingerprint, it.family().collect());
        let ProvenFamilies { families: ids, problems: theirs } = proven_families(it, now_unix_s);
        for id in ids {
            families.entry(id).or_default().insert(it.fingerprint);
        }
        problems.extend(theirs.into_iter().map(|problem| (it.fingerprint, problem)));
    }
    if let Some((relay, problem)) = problems.first() {
        tracing::warn!(
            "ignored {} invalid family certificates; the first is of {relay}: {problem}",
            problems.len()
        );
    }
    let mut pairs = mutual(&declared);
    families.values().for_each(|members| pairs.extend(within(members)));
    pairs.into_iter().collect()
}

const fn id(fingerprint: &Fingerprint) -> RsaId {
    RsaId(*fingerprint.as_bytes())
}

/// Pairs of relays that name each other. A declaration by one of them does not count, or a relay could claim any other.
fn mutual(declared: &BTreeMap<Fingerprint, BTreeSet<Fingerprint>>) -> BTreeSet<(RsaId, RsaId)> {
    let mut pairs = BTreeSet::new();
    for (one, family) in declared {
        let others = family.range::<Fingerprint, _>((Bound::Excluded(one), Bound::Unbounded));
        let is_mutual =
            |other: &&Fingerprint| declared.get(*other).is_some_and(|family| family.contains(one));
        pairs.extend(others.filter(is_mutual).map(|other| (id(one), id(other))));
    }
    pairs
}

/// The pairs of a family with one key.
fn within(members: &BTreeSet<Fingerprint>) -> impl Iterator<Item = (RsaId, RsaId)> {
    let after = |one| members.range::<Fingerprint, _>((Bound::Excluded(one), Bound::Unbounded));
    members.iter().flat_map(move |one| after(one).take(PAIRS_MAX).map(|it| (id(one), id(it))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::descriptor::parse_all;
    use proptest::prelude::*;

    /// Written by C tor: `member` is in two families, `other` in the first of them, and they do not name each other.
    const DESCRIPTORS: &[u8] = include_bytes!("../../dirmgr/tests/data/family-descriptors");
    const THEN: u64 = 1_795_440_942;
    /// When the certificates end.
    const END: u64 = 499_454 * 3600;

    fn found(descriptors: &[ServerDescriptor<'_>], now_unix_s: u64) -> usize {
        pairs(descriptors.iter(), now_unix_s).len()
    }

    #[test]
    fn relays_with_certificates_by_one_key_are_a_pair_and_forgeries_are_not() {
        let (descriptors, bad) = parse_all(DESCRIPTORS);
        let [member, other] = &descriptors[..] else { panic!("two: {bad:?}") };
        let mut expected = [id(&member.fingerprint), id(&other.fingerprint)];
        expected.sort_unstable();
        assert_eq!(pairs(descriptors.iter(), THEN), [(expected[0], expected[1])]);
        assert_eq!(found(&descriptors, END), 0, "expired");
        // The key that both have is the first of `member`.
        let with =
            |certs: &[Vec<u8>]| ServerDescriptor { family_certs: certs.to_vec(), ..member.clone() };
        assert_eq!(found(&[with(&member.family_certs[..1]), other.clone()], THEN), 1);
        assert_eq!(found(&[with(&member.family_certs[1..]), other.clone()], THEN), 0);
        // The certificate of another relay, and an invalid signature.
        assert_eq!(found(&[with(&other.family_certs), other.clone()], THEN), 0);
        let mut forged = member.family_certs[0].clone();
        *forged.last_mut().expect("bytes") ^= 1;
        assert_eq!(found(&[with(&[forged]), other.clone()], THEN), 0);
    }

    #[test]
    fn a_huge_family_has_few_pairs_and_is_connected() {
        let relay = |number: u16| {
            let mut bytes = [0; 20];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            Fingerprint::from_bytes(bytes)
        };
        let small: BTreeSet<Fingerprint> = (0..101).map(relay).collect();
        assert_eq!(within(&small).count(), 101 * 100 / 2);
        let huge: BTreeSet<Fingerprint> = (0..5000).map(relay).collect();
        let pairs: BTreeSet<_> = within(&huge).collect();
        assert!(pairs.len() < 5000 * PAIRS_MAX);
        let is_next = |number| pairs.contains(&(id(&relay(number)), id(&relay(number + 1))));
        assert!((0..4999).all(is_next));
    }

    proptest! {
        /// Whatever others declare, a relay is paired only with relays that it names itself.
        #[test]
        fn no_relay_is_paired_by_the_declarations_of_others(
            pairs in proptest::collection::btree_set((0u8..8, 0u8..8), 0..40),
        ) {
            let id = |number: u8| Fingerprint::from_bytes([number; 20]);
            let mut declared: BTreeMap<Fingerprint, BTreeSet<Fingerprint>> = BTreeMap::new();
            for (one, other) in &pairs {
                declared.entry(id(*one)).or_default().insert(id(*other));
            }
            let found = mutual(&declared);
            for one in 0..8 {
                for other in 0..8 {
                    let is_both = pairs.contains(&(one, other)) && pairs.contains(&(other, one));
                    let pair = (RsaId([one; 20]), RsaId([other; 20]));
                    prop_assert_eq!(found.contains(&pair), is_both && one < other);
                }
            }
        }
    }
}
