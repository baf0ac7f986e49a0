//! Relays of one operator, by their descriptors.

use dirmgr::family::{FamilyId, ProvenFamilies, proven_families};
use netdoc::descriptor::ServerDescriptor;
use netdoc::{Family, FamilyMember, Nickname};
use onion::identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Maximum number of pairs of a relay with later members, by fingerprint, of a family with one key or one nickname. No
/// team measures more relays of a family at the same time. Keys and nicknames cost nothing, and all pairs of thousands of
/// relays would take gigabytes. A list of fingerprints in a descriptor is limited to a few hundred relays anyway.
const PAIRS_MAX: usize = 100;

/// What a relay declares about its operator.
struct Declaration {
    /// Its nickname, in lower case.
    nickname: Nickname,
    family: Family,
}

/// Pairs of relays that both declare to have one operator: each names the other (`family`), or both have certificates by
/// the key of one family (`family-cert`, proposal 321) that are valid at this time. In each pair the smaller fingerprint
/// is first.
pub fn pairs<'d>(
    descriptors: impl Iterator<Item = &'d ServerDescriptor<'d>>,
    now_unix_s: u64,
) -> Vec<(RsaId, RsaId)> {
    let mut declared: BTreeMap<RsaId, Declaration> = BTreeMap::new();
    let mut families: BTreeMap<FamilyId, BTreeSet<RsaId>> = BTreeMap::new();
    let mut problems = Vec::new();
    for descriptor in descriptors {
        let nickname = descriptor.nickname.to_lowercase();
        declared
            .insert(descriptor.fingerprint, Declaration { nickname, family: descriptor.family() });
        let ProvenFamilies { families: ids, problems: theirs } =
            proven_families(descriptor, now_unix_s);
        for id in ids {
            families.entry(id).or_default().insert(descriptor.fingerprint);
        }
        problems.extend(theirs.into_iter().map(|problem| (descriptor.fingerprint, problem)));
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

/// Pairs of relays that name each other, by fingerprint or nickname. A declaration by one of them does not count, or a
/// relay could claim any other.
fn mutual(declared: &BTreeMap<RsaId, Declaration>) -> BTreeSet<(RsaId, RsaId)> {
    let mut by_nickname: BTreeMap<Nickname, BTreeSet<RsaId>> = BTreeMap::new();
    for (relay, Declaration { nickname, .. }) in declared {
        by_nickname.entry(*nickname).or_default().insert(*relay);
    }
    let mut pairs = BTreeSet::new();
    for (one, Declaration { nickname, family }) in declared {
        let names_it = |other: &&RsaId| {
            declared.get(*other).is_some_and(|other| other.family.names(one, nickname))
        };
        for member in family.iter() {
            match member {
                FamilyMember::Fingerprint(other) => {
                    let other = Some(other).filter(|other| *other > one).filter(names_it);
                    pairs.extend(other.map(|other| (*one, *other)));
                }
                FamilyMember::Nickname(name) => {
                    let others =
                        by_nickname.get(name).into_iter().flat_map(|relays| after(relays, one));
                    let others = others.filter(names_it).take(PAIRS_MAX);
                    pairs.extend(others.map(|other| (*one, *other)));
                }
            }
        }
    }
    pairs
}

/// The relays of a set behind one of them, by fingerprint.
fn after<'s>(
    relays: &'s BTreeSet<RsaId>,
    one: &RsaId,
) -> impl Iterator<Item = &'s RsaId> + use<'s> {
    relays.range::<RsaId, _>((Bound::Excluded(one), Bound::Unbounded))
}

/// The pairs of a family with one key.
fn within(members: &BTreeSet<RsaId>) -> impl Iterator<Item = (RsaId, RsaId)> {
    let pairs = |one| after(members, one).take(PAIRS_MAX).map(move |other| (*one, *other));
    members.iter().flat_map(pairs)
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
        let mut expected = [member.fingerprint, other.fingerprint];
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
            RsaId(bytes)
        };
        let small: BTreeSet<RsaId> = (0..101).map(relay).collect();
        assert_eq!(within(&small).count(), 101 * 100 / 2);
        let huge: BTreeSet<RsaId> = (0..5000).map(relay).collect();
        let pairs: BTreeSet<_> = within(&huge).collect();
        assert!(pairs.len() < 5000 * PAIRS_MAX);
        let is_next = |number| pairs.contains(&(relay(number), relay(number + 1)));
        assert!((0..4999).all(is_next));
    }

    /// As C tor 0.4.9: `nodefamily_contains_node`.
    #[test]
    fn relays_that_name_each_other_in_any_spelling_are_a_family() {
        let (descriptors, _) =
            parse_all(include_bytes!("../../../engine/netdoc/tests/data/server-descriptors"));
        let [a, b] = [&descriptors[0], &descriptors[1]];
        assert_ne!(a.nickname, b.nickname);
        let (hex, name) =
            (|descriptor: &ServerDescriptor<'_>| descriptor.fingerprint.to_string(), "dC6JGK5b");
        assert!(a.nickname.as_str().eq_ignore_ascii_case(name));
        let spellings = [hex(a), hex(a).to_lowercase(), format!("${}", hex(a)), name.to_owned()];
        for of_b in &spellings {
            let with = |of_a: &str, of_b: &str| {
                let a = ServerDescriptor { family_text: Some(of_a), ..a.clone() };
                let b = ServerDescriptor { family_text: Some(of_b), ..b.clone() };
                pairs([&a, &b].into_iter(), THEN).len()
            };
            for of_a in [&hex(b), "Unnamed", &format!("{}~x", hex(b))] {
                assert_eq!(with(of_a, of_b), 1, "{of_a}, {of_b}");
            }
            assert_eq!(with("", of_b), 0, "only one names the other");
            assert_eq!(with(&hex(b)[1..], of_b), 0, "a wrong fingerprint");
        }
    }

    proptest! {
        /// Whatever others declare, a relay is paired only with relays that it names itself.
        #[test]
        fn no_relay_is_paired_by_the_declarations_of_others(
            pairs in proptest::collection::btree_set((0u8..8, 0u8..8), 0..40),
        ) {
            let id = |number: u8| RsaId([number; 20]);
            let nickname = |number: u8| format!("relay{number}").parse().expect("a nickname");
            // Even relays name others by fingerprint, odd ones by nickname.
            let member = |(one, other): &(u8, u8)| match one % 2 {
                0 => FamilyMember::Fingerprint(id(*other)),
                _ => FamilyMember::Nickname(nickname(*other)),
            };
            let declared = (0..8).map(|one| {
                let family = pairs.iter().filter(|pair| pair.0 == one).map(member).collect();
                (id(one), Declaration { nickname: nickname(one), family })
            });
            let found = mutual(&declared.collect());
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
