use super::*;
use netdoc::{FamilyMember, pieces};
use onion::identity::Ed25519Id;
use proptest::prelude::*;

/// The consensus of an authority in a private network of C tor, and its microdescriptors.
const CONSENSUS: &[u8] = include_bytes!("../../tests/data/consensus-microdesc");
const MICRODESCS: &[u8] = include_bytes!("../../../../engine/netdoc/tests/data/microdescs");

/// A relay in a network of its own, with its number in its name.
pub(crate) fn relay(number: u8) -> RelayInfo {
    let address = Ipv4Addr::new(10, number, 0, 1);
    RelayInfo {
        fingerprint: RsaId([number; 20]),
        nickname: format!("relay{number}").parse().expect("a nickname"),
        hop: NextHop {
            address: SocketAddr::from((address, 9001)),
            ids: RelayIds { rsa: RsaId([number; 20]), ed25519: Some(Ed25519Id([number; 32])) },
            onion_key: [number; 32],
        },
        address,
        ipv6: None,
        flags: [Flag::Running, Flag::Valid, Flag::Fast, Flag::Stable, Flag::Guard, Flag::V2Dir]
            .into_iter()
            .collect(),
        weight_kb_s: 1000,
        policy: PortPolicy::parse(b"accept 80,443").expect("a policy"),
        policy_ipv6: PortPolicy::REJECT_ALL,
        has_congestion_control: true,
        has_conflux: true,
        family: Family::default(),
        family_ids: Vec::new(),
    }
}

/// A network of these relays.
pub(crate) fn netdir(relays: impl IntoIterator<Item = RelayInfo>) -> NetDir {
    let mut relays: Vec<RelayInfo> = relays.into_iter().collect();
    relays.sort_by_key(|relay| relay.fingerprint);
    NetDir { relays, ..NetDir::default() }
}

/// The network with these weights of positions.
pub(crate) fn weighted(netdir: NetDir, weights: &[(&str, i32)]) -> NetDir {
    NetDir { weights: weights.iter().map(|(name, value)| (*name, *value)).collect(), ..netdir }
}

/// Declares relays to be of one operator, by name or by fingerprint.
pub(crate) fn declare(relay: &mut RelayInfo, other: &RelayInfo, by_name: bool) {
    let member = match by_name {
        // Tor ignores the case of nicknames.
        true => FamilyMember::parse(other.nickname.as_str().to_uppercase().as_bytes()),
        false => Some(FamilyMember::Fingerprint(other.fingerprint)),
    };
    relay.family = relay.family.iter().copied().chain(member).collect();
}

#[test]
fn a_recorded_consensus_and_its_microdescriptors_form_a_network() {
    let consensus = Consensus::parse(CONSENSUS).expect("a consensus");
    let texts: Vec<_> = pieces::microdescs(MICRODESCS).map(|piece| piece.text).collect();
    let mut left = texts.iter();
    // That the digests fit is the business of who fetches them.
    let netdir = NetDir::new(&consensus, |_| Microdesc::parse(left.next()?).ok());
    assert_eq!((netdir.relays().len(), texts.len()), (5, 5));
    assert!(netdir.is_whole() && (netdir.path_share() - 1.0).abs() < 1e-9);
    assert_eq!(netdir.relays().iter().filter(|relay| relay.is_exit()).count(), 2);
    assert!(netdir.relays().iter().all(|relay| relay.has_congestion_control));
    let first = &netdir.relays()[0];
    assert_eq!(netdir.find(&first.fingerprint), Some(first));
    assert_eq!(netdir.find(&RsaId([0; 20])), None);

    let half = NetDir::new(&consensus, |digest| {
        (digest[0] & 1 == 0).then(|| Microdesc::parse(texts[0]).ok())?
    });
    assert!(half.relays().len() < 5 && !half.is_whole() && half.path_share() < 1.0);
}

#[test]
fn the_known_share_of_paths_depends_on_weights_and_positions() {
    let with =
        |flags: &[Flag]| [&[Flag::Running, Flag::Valid], flags].concat().into_iter().collect();
    let mut guard = relay(1);
    guard.flags = with(&[Flag::Guard]);
    let mut exit = relay(2);
    exit.flags = with(&[Flag::Exit]);
    let weights =
        [("Wgg", 10_000), ("Wgm", 0), ("Wmg", 0), ("Wmm", 10_000), ("Wme", 0), ("Wee", 10_000)];
    let mut middle = relay(3);
    middle.flags = with(&[]);
    let mut netdir = weighted(netdir([guard, middle, exit]), &weights);
    assert!((netdir.path_share() - 1.0).abs() < 1e-9);

    // Half of the guards' weight, and none of that of other relays.
    netdir.unknown = vec![(with(&[Flag::Guard]), 1000)];
    assert!((netdir.path_share() - 0.5).abs() < 1e-9, "{}", netdir.path_share());
    // And four fifths of the exits'. One that is bad is for the middle.
    netdir
        .unknown
        .extend([(with(&[Flag::Exit]), 4000), (with(&[Flag::Exit, Flag::BadExit]), 1000)]);
    assert!((netdir.path_share() - 0.05).abs() < 1e-9, "{}", netdir.path_share());
    // Many that weigh nothing do not matter, unless all do.
    netdir.unknown = vec![(with(&[Flag::Exit]), 0); 9];
    assert!((netdir.path_share() - 1.0).abs() < 1e-9);
    netdir.relays.iter_mut().for_each(|relay| relay.weight_kb_s = 0);
    assert!((netdir.path_share() - 0.1 * 3.0 / 12.0).abs() < 1e-9, "{}", netdir.path_share());
}

#[test]
fn a_family_needs_declarations_or_proofs_of_both_relays() {
    let (mut a, mut b) = (relay(1), relay(2));
    assert!(!a.is_family_of(&b));
    declare(&mut a, &b, false);
    assert!(!a.is_family_of(&b) && !b.is_family_of(&a), "one alone says so");
    declare(&mut b, &a, true);
    assert!(a.is_family_of(&b) && b.is_family_of(&a));

    let (mut c, mut d) = (relay(3), relay(4));
    c.family_ids = vec!["ed25519:x".into(), "ed25519:y".into()];
    d.family_ids = vec!["ed25519:z".into()];
    assert!(!c.is_family_of(&d));
    d.family_ids.insert(0, "ed25519:y".into());
    assert!(c.is_family_of(&d) && d.is_family_of(&c));
}

proptest! {
    #[test]
    fn relays_share_a_subnet_by_16_bits_of_ipv4_or_32_of_ipv6(a: u32, b: u32, c: u128, d: u128, both: bool) {
        let (mut one, mut other) = (relay(1), relay(2));
        (one.address, other.address) = (a.into(), b.into());
        one.ipv6 = Some(SocketAddrV6::new(c.into(), 1, 0, 0));
        other.ipv6 = both.then(|| SocketAddrV6::new(d.into(), 1, 0, 0));
        let is_near = a >> 16 == b >> 16 || (both && c >> 96 == d >> 96);
        prop_assert_eq!(one.is_near(&other), is_near);
        prop_assert_eq!(other.is_near(&one), is_near);
        other.address = (a ^ 0xffff).into();
        prop_assert!(one.is_near(&other));
        other.address = (a ^ 0x1_0000).into();
        other.ipv6 = Some(SocketAddrV6::new((c ^ 1).into(), 1, 0, 0));
        prop_assert!(one.is_near(&other));
    }
}
