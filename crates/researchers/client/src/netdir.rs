//! The network directory: the consensus combined with microdescriptors. It must not know strategies
//! or circuits.

use netdoc::consensus::{Consensus, Flag, Flags, Params, Router};
use netdoc::descriptor::ServerDescriptor;
use netdoc::microdesc::Microdesc;
use netdoc::{Family, Nickname, PortPolicy};
use onion::circuit::NextHop;
use onion::identity::{RelayIds, RsaId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// A position in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first hop, which knows the client.
    Guard,
    /// A hop between the others.
    Middle,
    /// The last hop, which knows the destination.
    Exit,
}

/// A relay that a circuit may lead through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayInfo {
    /// Its RSA identity.
    pub fingerprint: RsaId,
    /// Its nickname.
    pub nickname: Nickname,
    /// What is needed to extend a circuit to it.
    pub hop: NextHop,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its IPv6 address and OR port.
    pub ipv6: Option<SocketAddrV6>,
    /// Its flags in the consensus.
    pub flags: Flags,
    /// Its weight in the consensus, in KB/s; 0 if there is none.
    pub weight_kb_s: u32,
    /// Its exit policy for IPv4.
    pub policy: PortPolicy,
    /// Its exit policy for IPv6.
    pub policy_ipv6: PortPolicy,
    /// Whether it supports congestion control, `FlowCtrl=2` (proposal 324).
    pub has_congestion_control: bool,
    /// Whether it supports Conflux, `Conflux=1` (proposal 329).
    pub has_conflux: bool,
    family: Family,
    family_ids: Vec<String>,
}

impl RelayInfo {
    fn new(router: &Router, micro: Microdesc) -> Self {
        Self {
            fingerprint: router.fingerprint,
            nickname: router.nickname,
            hop: NextHop {
                address: SocketAddr::from((router.address, router.or_port)),
                ids: RelayIds { rsa: router.fingerprint, ed25519: micro.ed25519 },
                onion_key: micro.ntor_onion_key,
            },
            address: router.address,
            ipv6: micro.ipv6.or(router.ipv6),
            flags: router.flags,
            weight_kb_s: router.bandwidth_kb_s.unwrap_or(0),
            policy: micro.policy,
            policy_ipv6: micro.policy_ipv6,
            has_congestion_control: router.supports("FlowCtrl", 2),
            has_conflux: router.supports("Conflux", 1),
            family: micro.family,
            family_ids: micro.family_ids,
        }
    }

    /// A relay from the consensus alone, for studies. No circuit can be built through it, since its
    /// keys are unknown. A relay with the flag `Exit` is assumed to permit all ports.
    fn without_keys(router: &Router, family: Family) -> Self {
        let is_exit = router.flags.contains(Flag::Exit) && !router.flags.contains(Flag::BadExit);
        let everywhere = || PortPolicy::parse(b"accept 1-65535").unwrap_or_default();
        let policy = if is_exit { everywhere() } else { PortPolicy::REJECT_ALL };
        let micro = Microdesc {
            ntor_onion_key: [0; 32],
            ed25519: None,
            family,
            family_ids: Vec::new(),
            policy,
            policy_ipv6: PortPolicy::REJECT_ALL,
            ipv6: None,
        };
        Self::new(router, micro)
    }

    /// Whether its exit policy permits any port, and it lacks the flag `BadExit`.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        let rejects_all = self.policy.rejects_all() && self.policy_ipv6.rejects_all();
        !rejects_all && !self.flags.contains(Flag::BadExit)
    }

    /// Whether a client may use the relay as a guard: it has the flags `Guard` and `V2Dir`.
    #[must_use]
    pub fn may_be_guard(&self) -> bool {
        self.flags.contains(Flag::Guard) && self.flags.contains(Flag::V2Dir)
    }

    /// Whether both belong to one family: they list each other, or have proved to have a common
    /// family key.
    #[must_use]
    pub fn is_family_of(&self, other: &Self) -> bool {
        let names = |a: &Self, b: &Self| a.family.names(&b.fingerprint, &b.nickname);
        let is_common = |id: &String| other.family_ids.binary_search(id).is_ok();
        (names(self, other) && names(other, self)) || self.family_ids.iter().any(is_common)
    }

    /// Whether both are in one IPv4 /16 or IPv6 /32 network (path-spec §2.2).
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        let ours = self.ipv6.map(|at| at.ip().octets());
        let theirs = other.ipv6.map(|at| at.ip().octets());
        let is_near_by_ipv6 = ours.zip(theirs).is_some_and(|(a, b)| a[..4] == b[..4]);
        self.address.octets()[..2] == other.address.octets()[..2] || is_near_by_ipv6
    }

    /// Whether its exit policy permits this port, for IPv4 or IPv6.
    #[must_use]
    pub fn allows(&self, port: u16, is_ipv6: bool) -> bool {
        let policy = if is_ipv6 { &self.policy_ipv6 } else { &self.policy };
        self.is_exit() && policy.allows(port)
    }
}

/// The network as a client knows it.
#[derive(Clone, Debug, Default)]
pub struct NetDir {
    relays: Vec<RelayInfo>,
    /// Running relays of the consensus without a known microdescriptor: flags, and weight in KB/s.
    unknown: Vec<(Flags, u32)>,
    weights: Params,
    params: Params,
    /// When a newer consensus should exist, in Unix seconds.
    pub fresh_until: u64,
    /// When the consensus expires, in Unix seconds.
    pub valid_until: u64,
}

impl NetDir {
    /// Combines a consensus of the microdesc flavour with microdescriptors. Drops relays that are
    /// not running or not valid, or whose microdescriptor `find` does not return.
    pub fn new(
        consensus: &Consensus,
        mut find: impl FnMut(&[u8; 32]) -> Option<Microdesc>,
    ) -> Self {
        let runs = |router: &&Router| {
            let is_reachable = router.or_port != 0 && !IpAddr::V4(router.address).is_unspecified();
            router.flags.contains(Flag::Running)
                && router.flags.contains(Flag::Valid)
                && is_reachable
        };
        let (mut relays, mut unknown) = (Vec::new(), Vec::new());
        for router in consensus.routers().iter().filter(runs) {
            match router.microdesc_digest.as_ref().and_then(&mut find) {
                Some(micro) => relays.push(RelayInfo::new(router, micro)),
                None => unknown.push((router.flags, router.bandwidth_kb_s.unwrap_or(0))),
            }
        }
        Self { unknown, ..Self::from_relays(relays, consensus) }
    }

    /// A network for studies, from a consensus of either flavour and the families in the relays'
    /// server descriptors. No circuit can be built in it.
    #[must_use]
    pub fn for_study(consensus: &Consensus, descriptors: &[ServerDescriptor<'_>]) -> Self {
        let families =
            descriptors.iter().map(|descriptor| (descriptor.fingerprint, descriptor.family()));
        let mut families: BTreeMap<RsaId, Family> = families.collect();
        let runs = |router: &&Router| {
            router.flags.contains(Flag::Running) && router.flags.contains(Flag::Valid)
        };
        let relay = |router: &Router| {
            RelayInfo::without_keys(
                router,
                families.remove(&router.fingerprint).unwrap_or_default(),
            )
        };
        let relays: Vec<RelayInfo> = consensus.routers().iter().filter(runs).map(relay).collect();
        Self::from_relays(relays, consensus)
    }

    fn from_relays(relays: Vec<RelayInfo>, consensus: &Consensus) -> Self {
        Self {
            unknown: Vec::new(),
            relays,
            weights: consensus.bandwidth_weights.clone(),
            params: consensus.params.clone(),
            fresh_until: consensus.fresh_until,
            valid_until: consensus.valid_until,
        }
    }

    /// The relays, in ascending order of fingerprint.
    #[must_use]
    pub fn relays(&self) -> &[RelayInfo] {
        &self.relays
    }

    /// A copy with only the relays for which `keep` returns true.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&RelayInfo) -> bool) -> Self {
        let relays = self.relays.iter().filter(|relay| keep(relay)).cloned().collect();
        Self { relays, ..self.clone() }
    }

    /// The relay with this fingerprint.
    #[must_use]
    pub fn find(&self, fingerprint: &RsaId) -> Option<&RelayInfo> {
        let at = self.relays.binary_search_by_key(fingerprint, |relay| relay.fingerprint).ok()?;
        self.relays.get(at)
    }

    /// Whether the microdescriptors of all running relays are known.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.unknown.is_empty()
    }

    /// The share of paths that can be built, compared with all microdescriptors known: the product
    /// of the shares of guards, middles and exits, each weighted for its position. Without weights
    /// all relays count equally; a position without relays counts as complete.
    #[must_use]
    pub fn path_share(&self) -> f64 {
        let shares = [Position::Guard, Position::Middle, Position::Exit].map(|position| {
            let is_fit = |flags: &Flags| match position {
                Position::Guard => flags.contains(Flag::Guard),
                Position::Middle => true,
                Position::Exit => flags.contains(Flag::Exit) && !flags.contains(Flag::BadExit),
            };
            let known = self.relays.iter().map(|relay| (relay.flags, relay.weight_kb_s));
            let known: Vec<_> = known.filter(|(flags, _)| is_fit(flags)).collect();
            let missing = self.unknown.iter().copied().filter(|(flags, _)| is_fit(flags));
            let missing: Vec<_> = missing.collect();
            let sum = |all: &[(Flags, u32)]| -> f64 {
                let weighed = all.iter().map(|(flags, weight_kb_s)| {
                    f64::from(*weight_kb_s) * self.position_share(*flags, position)
                });
                weighed.sum()
            };
            let (of_known, of_all) = match sum(&known) + sum(&missing) {
                all if all > 0.0 => (sum(&known), all),
                // Some thousands: exact in floating point.
                _ => (known.len() as f64, (known.len() + missing.len()) as f64),
            };
            if of_all > 0.0 { of_known / of_all } else { 1.0 }
        });
        shares.iter().product()
    }

    /// The weight of a position for a class of relays, such as `Wgd` (dir-spec §3.8.3): 0 to 1, and
    /// 1 if the consensus has none.
    #[must_use]
    pub fn position_weight(&self, name: &str) -> f64 {
        f64::from(self.weights.get_clamped(name, 10_000, 0, 10_000)) / 10_000.0
    }

    /// The weight of a position for a relay with these flags (dir-spec §3.8.3): 0 to 1.
    #[must_use]
    pub fn position_share(&self, flags: Flags, position: Position) -> f64 {
        let is_exit = flags.contains(Flag::Exit) && !flags.contains(Flag::BadExit);
        let is_guard = flags.contains(Flag::Guard);
        let name = match (position, is_guard, is_exit) {
            (Position::Guard, true, true) => "Wgd",
            (Position::Guard, true, false) => "Wgg",
            (Position::Guard, false, _) => "Wgm",
            (Position::Middle, true, true) => "Wmd",
            (Position::Middle, true, false) => "Wmg",
            (Position::Middle, false, true) => "Wme",
            (Position::Middle, false, false) => "Wmm",
            (Position::Exit, true, true) => "Wed",
            (Position::Exit, true, false) => "Weg",
            (Position::Exit, false, true) => "Wee",
            (Position::Exit, false, false) => "Wem",
        };
        self.position_weight(name)
    }

    /// The parameters of the consensus.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }
}

#[cfg(test)]
pub(crate) mod tests;
