//! How much of a scarce resource each neighbour keeps: max-min fairness over links, addresses and networks.
//!
//! One number, the *level*, decides for all neighbours. An address keeps at most one level, over all its links. Addresses
//! are cheap in bulk, so the networks that contain them have limits as well. The level is the largest one at which
//! everything that is kept fits. A neighbour that holds less than its limit keeps everything, whatever others hold.

use crate::identity::RsaId;
use crate::node::ConnId;
use crate::router::dos::Place;
use alloc::vec;
use alloc::vec::Vec;

/// Levels that a listed relay keeps: its circuits belong to many clients.
const RELAY_LEVELS: u64 = 16;

/// Levels that all addresses of an IPv4 /24 keep together, or all /64 networks of an IPv6 /48.
const NETWORK_LEVELS: u64 = 8;

/// Levels that all addresses of an IPv4 /16, or an IPv6 /32, keep together: as much as a registry gives to one provider.
const PROVIDER_LEVELS: u64 = 64;

/// The party at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Neighbour {
    /// A relay that the consensus lists and that has proved its identity. A client at a relay's address is not the relay.
    Relay(RsaId),
    /// Any other party, by its address.
    Place(Place),
    /// A link whose address is not known.
    Unknown(ConnId),
}

/// How far two neighbours belong together. The order is from the outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Provider,
    Network,
    Neighbour,
}

impl Scope {
    const fn inner(self) -> Option<Self> {
        match self {
            Self::Provider => Some(Self::Network),
            Self::Network => Some(Self::Neighbour),
            Self::Neighbour => None,
        }
    }
}

impl Neighbour {
    fn shares(self, other: Self, scope: Scope) -> bool {
        match (self, other) {
            (Self::Place(one), Self::Place(other)) => match scope {
                Scope::Provider => one.provider() == other.provider(),
                Scope::Network => one.network() == other.network(),
                Scope::Neighbour => one == other,
            },
            _ => self == other,
        }
    }

    /// How many levels everything in this scope around the neighbour keeps together.
    const fn levels(self, scope: Scope) -> u64 {
        match (self, scope) {
            (Self::Relay(_), _) => RELAY_LEVELS,
            (Self::Unknown(_), _) | (Self::Place(_), Scope::Neighbour) => 1,
            (Self::Place(_), Scope::Network) => NETWORK_LEVELS,
            (Self::Place(_), Scope::Provider) => PROVIDER_LEVELS,
        }
    }
}

/// The amount that one link holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holding {
    pub(super) neighbour: Neighbour,
    pub(super) link: ConnId,
    pub(super) amount: u64,
}

/// The total amount that all links keep at this level. `holdings` are sorted.
pub(super) fn kept(holdings: &[Holding], level: u64) -> u64 {
    kept_within(holdings, level, Scope::Provider)
}

/// The amount that each link keeps at this level, in the order of `holdings`, which are sorted.
pub(super) fn quotas(holdings: &[Holding], level: u64) -> Vec<u64> {
    let mut quotas = vec![0; holdings.len()];
    fill_quotas(holdings, level, Scope::Provider, &mut quotas);
    quotas
}

/// The largest level up to `most` that `fits`. It fits at zero, and at any level below one at which it fits.
pub(super) fn largest_level(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(most) {
        return most;
    }
    let (mut low, mut high) = (0, most.saturating_sub(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn kept_within(holdings: &[Holding], level: u64, scope: Scope) -> u64 {
    let groups = holdings.chunk_by(|one, other| one.neighbour.shares(other.neighbour, scope));
    groups.map(|group| kept_inside(group, level, scope).min(limit(group, level, scope))).sum()
}

/// The amount that the members of one group keep, without the group's own limit.
fn kept_inside(group: &[Holding], level: u64, scope: Scope) -> u64 {
    match scope.inner() {
        Some(inner) => kept_within(group, level, inner),
        None => group.iter().map(|holding| holding.amount.min(limit(group, level, scope))).sum(),
    }
}

fn fill_quotas(holdings: &[Holding], level: u64, scope: Scope, mut quotas: &mut [u64]) {
    for group in holdings.chunk_by(|one, other| one.neighbour.shares(other.neighbour, scope)) {
        let limit = limit(group, level, scope);
        // Where the limit binds, the members share it at their own level.
        let level = largest_level(level, |level| kept_inside(group, level, scope) <= limit);
        let (of_group, others) = core::mem::take(&mut quotas).split_at_mut(group.len());
        quotas = others;
        match scope.inner() {
            Some(inner) => fill_quotas(group, level, inner, of_group),
            None => {
                let limit = self::limit(group, level, scope);
                let each = of_group.iter_mut().zip(group);
                each.for_each(|(quota, holding)| *quota = holding.amount.min(limit));
            }
        }
    }
}

fn limit(group: &[Holding], level: u64, scope: Scope) -> u64 {
    group.first().map_or(0, |holding| holding.neighbour.levels(scope).saturating_mul(level))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn at(ip: IpAddr, link: u32, amount: u64) -> Holding {
        Holding { neighbour: Neighbour::Place(Place::of(ip)), link: ConnId(link), amount }
    }

    fn v4(ip: [u8; 4], link: u32, amount: u64) -> Holding {
        at(Ipv4Addr::from(ip).into(), link, amount)
    }

    /// The quotas at the largest level at which no more than `room` is kept.
    fn shared(holdings: &mut [Holding], room: u64) -> Vec<(Holding, u64)> {
        holdings.sort_unstable();
        let most = holdings.iter().map(|holding| holding.amount).sum();
        let level = largest_level(most, |level| kept(holdings, level) <= room);
        holdings.iter().copied().zip(quotas(holdings, level)).collect()
    }

    fn kept_by(shared: &[(Holding, u64)], link: u32) -> u64 {
        shared
            .iter()
            .find(|(holding, _)| holding.link == ConnId(link))
            .map_or(0, |(_, quota)| *quota)
    }

    #[test]
    fn links_of_one_address_share_the_quota_of_one_link() {
        let mut holdings: Vec<Holding> = (0..40).map(|link| v4([10, 0, 0, 1], link, 500)).collect();
        holdings.push(v4([192, 0, 2, 7], 40, 300));
        holdings.push(v4([198, 51, 100, 7], 41, 9_000));
        let shared = shared(&mut holdings, 10_000);
        assert_eq!(kept_by(&shared, 40), 300, "less than its share");
        let attackers: u64 = (0..40).map(|link| kept_by(&shared, link)).sum();
        assert!((4_800..=4_850).contains(&attackers), "{attackers}");
        assert!((4_800..=4_850).contains(&kept_by(&shared, 41)));
    }

    #[test]
    fn a_client_is_unaffected_by_a_greedy_one_at_its_address() {
        let mut holdings = [v4([10, 0, 0, 1], 0, 20_000), v4([10, 0, 0, 1], 1, 10)];
        assert_eq!(kept_by(&shared(&mut holdings, 5_000), 1), 10);
    }

    #[test]
    fn a_network_counts_as_8_addresses_and_a_provider_as_64() {
        let of_networks = |bits: u32| {
            let networks = (0..4096u128).map(|number| {
                let ip = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (number << bits));
                at(ip.into(), u32::try_from(number).expect("few"), 100)
            });
            let mut holdings: Vec<Holding> = networks.collect();
            holdings.push(v4([192, 0, 2, 7], 5_000, 40));
            holdings.push(v4([198, 51, 100, 7], 5_001, 100_000));
            shared(&mut holdings, 90_000)
        };
        // Networks of 64 bits in one of 48, then in one of 32.
        for (bits, levels) in [(64, 8), (80, 64)] {
            let shared = of_networks(bits);
            assert_eq!(kept_by(&shared, 5_000), 40);
            let greedy = kept_by(&shared, 5_001);
            let spread: u64 = (0..4096).map(|link| kept_by(&shared, link)).sum();
            assert!(spread <= levels * greedy && greedy > 1_000, "{spread}, {greedy}");
        }
    }

    #[test]
    fn a_listed_relay_counts_as_16_addresses() {
        let relay = Neighbour::Relay(RsaId([7; 20]));
        let mut holdings = [
            Holding { neighbour: relay, link: ConnId(0), amount: 8_000 },
            v4([192, 0, 2, 7], 1, 9_000),
            v4([198, 51, 100, 7], 2, 9_000),
        ];
        let shared = shared(&mut holdings, 10_000);
        assert_eq!((kept_by(&shared, 0), kept_by(&shared, 1)), (8_000, 1_000));
    }

    fn any_holding() -> impl Strategy<Value = Holding> {
        let ip = prop_oneof![
            (0u8..3, 0u8..3, 0u8..3).prop_map(|(a, b, c)| IpAddr::from([10, a, b, c])),
            (0u16..3, 0u16..3).prop_map(|(a, b)| IpAddr::from([0x2001, a, b, 0, 0, 0, 0, 1])),
        ];
        let neighbour = prop_oneof![
            4 => ip.prop_map(|ip| Neighbour::Place(Place::of(ip))),
            1 => (0u8..3).prop_map(|number| Neighbour::Relay(RsaId([number; 20]))),
            1 => (0u32..3).prop_map(|number| Neighbour::Unknown(ConnId(number))),
        ];
        (neighbour, any::<u32>(), 0u64..5_000).prop_map(|(neighbour, link, amount)| Holding {
            neighbour,
            link: ConnId(link),
            amount,
        })
    }

    proptest! {
        #[test]
        fn quotas_fit_and_are_max_min_fair(
            mut holdings in prop::collection::vec(any_holding(), 1..60),
            part in 1u64..=100,
        ) {
            let all: u64 = holdings.iter().map(|holding| holding.amount).sum();
            let room = all * part / 100;
            let shared = shared(&mut holdings, room);
            prop_assert!(shared.iter().map(|(_, quota)| quota).sum::<u64>() <= room);
            prop_assert!(shared.iter().all(|(holding, quota)| *quota <= holding.amount));
            // Of one address.
            let mut sums: alloc::collections::BTreeMap<Neighbour, (u64, u64)> = Default::default();
            for (holding, quota) in &shared {
                let (held, keeps) = sums.entry(holding.neighbour).or_default();
                *held += holding.amount;
                *keeps += quota;
            }
            let alone = |neighbour: &Neighbour| !matches!(neighbour, Neighbour::Place(_));
            for (loser, (held, keeps)) in &sums {
                // Networks have their own limits. Of the others, none loses that holds less than another keeps.
                if held > keeps && alone(loser) {
                    let most = sums.iter().filter(|(neighbour, _)| !matches!(neighbour, Neighbour::Relay(_)));
                    let most = most.map(|(_, (_, keeps))| *keeps).max().unwrap_or(0);
                    prop_assert!(*held + 60 >= most, "{loser:?} holds {held} and loses, {most}");
                }
            }
        }

        #[test]
        fn more_room_reduces_no_quota(
            mut holdings in prop::collection::vec(any_holding(), 1..60),
            level in 0u64..5_000,
            more in 0u64..5_000,
        ) {
            holdings.sort_unstable();
            let (less, more) = (quotas(&holdings, level), quotas(&holdings, level + more));
            prop_assert!(less.iter().zip(&more).all(|(less, more)| less <= more));
            prop_assert!(less.iter().sum::<u64>() <= kept(&holdings, level));
        }
    }
}
