//! A directory authority's measurement policy: which relays may be measured without having opted in, when, and at what
//! rate.
//!
//! A policy is a second, stricter form of consent. Coordinators and measurers decide by it separately, so a thief of a
//! coordinator's key cannot exceed it. The crate `documents` parses the signed document; this module must not know of
//! signatures, files and clocks.

use crate::plan::Slots;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use onion::Rate;
use onion::identity::RsaId;

/// A time in a policy, with its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyTime {
    /// In Unix seconds.
    pub unix_s: u64,
    /// As written in the document, in UTC.
    pub text: String,
}

/// A measurement policy whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The URL of the announcement.
    pub announcement: String,
    /// The day of the announcement.
    pub announced: PolicyTime,
    /// Nothing is permitted before this time.
    pub valid_after: PolicyTime,
    /// Nothing is permitted from this time on.
    pub valid_until: PolicyTime,
    /// The hours in which load is permitted.
    pub hours: Hours,
    /// The ramp: the highest rate for all relays at one address together, from each of these times on.
    pub relay_rates: Vec<(PolicyTime, Rate)>,
    /// The highest rate for all relays of one [network](network_of) together.
    pub network_rate: Rate,
    /// The share of each measurer in every rate, in percent, by public key. A measurer alone cannot know what the others
    /// send, so the rates are divided in advance.
    pub measurers: BTreeMap<[u8; 32], u8>,
    /// The relays that decline.
    pub opt_outs: OptOuts,
}

/// The relays that decline to be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptOuts {
    /// By fingerprint.
    pub relays: BTreeSet<RsaId>,
    /// By address.
    pub prefixes: Vec<Prefix>,
    /// By a text in `ContactInfo`, in any case.
    pub contact_tokens: Vec<String>,
}

impl OptOuts {
    /// Whether an address declines.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether this `ContactInfo` declines.
    #[must_use]
    pub fn is_in_contact(&self, contact: &str) -> bool {
        let contact = contact.to_ascii_lowercase();
        self.contact_tokens.iter().any(|token| contact.contains(&token.to_ascii_lowercase()))
    }
}

/// The addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The addresses that share the first `bits` bits with `address`. `None` if an address has fewer bits, or is an IPv4 address in IPv6
    /// form: relays have none.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        (bits <= bits_max && address.to_canonical() == address)
            .then(|| Self { address: first_bits(address, bits), bits })
    }

    /// Whether an address is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4()
            && first_bits(address, self.bits) == self.address
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// An address with its first `bits` bits; all others are zero.
fn first_bits(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

/// The network of an address, which the network rate of a policy is for: its /16, or /32 with IPv6.
#[must_use]
pub fn network_of(address: IpAddr) -> Prefix {
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { 16 } else { 32 };
    Prefix { address: first_bits(address, bits), bits }
}

/// Hours of the day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(u32);

impl Hours {
    /// The whole day.
    pub const ALL: Self = Self((1 << 24) - 1);

    /// From the hour `from` to the hour `to`, which may be on the next day. `None` if one is above 24, or both are equal.
    #[must_use]
    pub fn between(from: u8, to: u8) -> Option<Self> {
        if from > 23 || to > 24 || from == to {
            return None;
        }
        let is_in = |hour: &u8| {
            if from < to { (from..to).contains(hour) } else { *hour >= from || *hour < to }
        };
        Some(Self((0..24).filter(is_in).fold(0, |hours, hour| hours | 1 << hour)))
    }

    /// Whether this time is in one of the hours.
    #[must_use]
    pub const fn contains(self, unix_s: u64) -> bool {
        self.0 >> (unix_s / 3600 % 24) & 1 == 1
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("00:00 to 24:00 UTC");
        }
        // One range, by construction.
        let is_in = |hour: u32| self.0 >> (hour % 24) & 1 == 1;
        let from = (0..24).find(|hour| is_in(*hour) && !is_in(hour + 23)).unwrap_or_default();
        let to = (from + 1..from + 24).find(|hour| !is_in(*hour)).unwrap_or_default() % 24;
        write!(f, "{from:02}:00 to {to:02}:00 UTC")
    }
}

/// Relays whose joint load a policy limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zone {
    /// All relays at this address.
    Host(IpAddr),
    /// All relays of the network with this first address.
    Network(IpAddr),
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(address) => write!(f, "{address}"),
            Self::Network(address) => write!(f, "{}", network_of(*address)),
        }
    }
}

/// The highest rate towards a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRate {
    /// The zone.
    pub zone: Zone,
    /// The rate.
    pub rate: Rate,
}

/// What is known of a relay's `ContactInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It does not decline, or the policy has no token for that.
    Silent,
    /// It declines.
    Declines,
    /// The relay's descriptor is missing, and the policy has a token.
    Unknown,
}

/// The relays of a verified consensus, as far as a policy needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRelays {
    /// The consensus is not used from this time on, in Unix seconds.
    pub usable_until_unix_s: u64,
    /// Each relay with its address.
    pub relays: BTreeMap<RsaId, (IpAddr, Contact)>,
}

/// Why a policy does not permit a measurement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// It is not valid yet.
    #[error("the measurement policy is valid from {0} UTC on: wait, or compare the clocks")]
    NotYetValid(String),
    /// It has expired.
    #[error(
        "the measurement policy was valid until {0} UTC: the authority has to sign a new one (flashflow policy sign)"
    )]
    Expired(String),
    /// It permits other hours.
    #[error("the measurement policy permits load from {0} only")]
    OutOfHours(Hours),
    /// There is no consensus by which to decide.
    #[error(
        "the measurement policy is for relays of the consensus, and there is no consensus that is recent enough"
    )]
    NoConsensus,
    /// The consensus does not list the relay.
    #[error("the consensus does not list {0}, so the measurement policy is not for it")]
    NotListed(RsaId),
    /// The consensus lists it with another address.
    #[error(
        "the consensus lists {relay} at {listed}, not at {address}, so the measurement policy is not for it"
    )]
    OtherAddress {
        /// The relay.
        relay: RsaId,
        /// Its address in the consensus.
        listed: IpAddr,
        /// The address at which it was to be measured.
        address: IpAddr,
    },
    /// Its descriptor is missing.
    #[error("the descriptor of {0} is missing, so whether its ContactInfo declines is unknown")]
    ContactUnknown(RsaId),
    /// The policy gives this team, or this measurer, no share.
    #[error(
        "the measurement policy has no line `measurer` with a share for this measurer: the authority has to add its public key"
    )]
    NoShare,
}

/// How a relay declines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// Its fingerprint is on the opt-out list.
    ByFingerprint,
    /// Its address is on the opt-out list.
    ByAddress(Prefix),
    /// By its `ContactInfo`, or by an IPv6 address on the opt-out list.
    ByContact,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByFingerprint => f.write_str("its fingerprint is on the opt-out list"),
            Self::ByAddress(prefix) => write!(f, "its address is on the opt-out list, as {prefix}"),
            Self::ByContact => {
                f.write_str("by its ContactInfo, or by its IPv6 address on the opt-out list")
            }
        }
    }
}

/// A policy with what is needed to decide by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInForce {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The relays of the newest consensus; `None` before the first one was read.
    pub relays: Option<Arc<PolicyRelays>>,
    /// The measurers that decide by it here, by public key: the whole team of a coordinator, or the measurer itself.
    pub team: Vec<[u8; 32]>,
}

impl PolicyInForce {
    /// Whether a relay declines, and how. This also holds before and after the policy's validity.
    #[must_use]
    pub fn declined(&self, relay: RsaId, address: IpAddr) -> Option<Declined> {
        let opt_outs = &self.policy.opt_outs;
        if opt_outs.relays.contains(&relay) {
            return Some(Declined::ByFingerprint);
        }
        if let Some(prefix) = opt_outs.prefixes.iter().find(|prefix| prefix.contains(address)) {
            return Some(Declined::ByAddress(*prefix));
        }
        let listed = self.relays.as_ref().and_then(|known| known.relays.get(&relay));
        matches!(listed, Some((_, Contact::Declines))).then_some(Declined::ByContact)
    }

    /// The relays of the consensus, if it is recent enough.
    fn recent_relays(&self, now_unix_s: u64) -> Option<&PolicyRelays> {
        self.relays.as_deref().filter(|relays| now_unix_s < relays.usable_until_unix_s)
    }

    /// Why it is not known whether a relay declines by its `ContactInfo`. A relay that no consensus lists has none.
    #[must_use]
    pub fn declines_perhaps(&self, relay: RsaId, now_unix_s: u64) -> Option<PolicyRefusal> {
        if !self.policy.has_contact_tokens() {
            return None;
        }
        let Some(known) = self.recent_relays(now_unix_s) else {
            return Some(PolicyRefusal::NoConsensus);
        };
        let is_unknown = matches!(known.relays.get(&relay), Some((_, Contact::Unknown)));
        is_unknown.then_some(PolicyRefusal::ContactUnknown(relay))
    }

    /// Whether a relay that does not decline may be loaded at this time.
    ///
    /// # Errors
    /// The reason. [`PolicyRefusal::OutOfHours`] only if there is no other.
    pub fn check(
        &self,
        relay: RsaId,
        address: IpAddr,
        now_unix_s: u64,
    ) -> Result<(), PolicyRefusal> {
        let Policy { valid_after, valid_until, hours, .. } = &*self.policy;
        if now_unix_s < valid_after.unix_s {
            return Err(PolicyRefusal::NotYetValid(valid_after.text.clone()));
        }
        if now_unix_s >= valid_until.unix_s {
            return Err(PolicyRefusal::Expired(valid_until.text.clone()));
        }
        let known = self.recent_relays(now_unix_s).ok_or(PolicyRefusal::NoConsensus)?;
        match known.relays.get(&relay) {
            None => return Err(PolicyRefusal::NotListed(relay)),
            Some((listed, _)) if *listed != address.to_canonical() => {
                return Err(PolicyRefusal::OtherAddress { relay, listed: *listed, address });
            }
            // One that declines was refused before.
            Some((_, Contact::Unknown | Contact::Declines)) => {
                return Err(PolicyRefusal::ContactUnknown(relay));
            }
            Some((_, Contact::Silent)) => {}
        }
        if self.team.iter().all(|measurer| self.policy.share(measurer) == 0) {
            return Err(PolicyRefusal::NoShare);
        }
        if !hours.contains(now_unix_s) {
            return Err(PolicyRefusal::OutOfHours(*hours));
        }
        Ok(())
    }
}

impl Policy {
    /// Whether relays can decline by their `ContactInfo`.
    #[must_use]
    pub fn has_contact_tokens(&self) -> bool {
        !self.opt_outs.contact_tokens.is_empty()
    }

    /// The share of a measurer in every rate, in percent.
    #[must_use]
    pub fn share(&self, measurer: &[u8; 32]) -> u8 {
        self.measurers.get(measurer).copied().unwrap_or(0)
    }

    /// The highest rate for all relays at one address at this time; zero before the ramp.
    #[must_use]
    pub fn relay_rate(&self, now_unix_s: u64) -> Rate {
        let begun = self.relay_rates.iter().filter(|(from, _)| from.unix_s <= now_unix_s);
        begun.max_by_key(|(from, _)| from.unix_s).map_or(Rate::ZERO, |(_, rate)| *rate)
    }

    /// The highest rates for this measurer's load of a relay at `address`.
    #[must_use]
    pub fn limits(&self, measurer: &[u8; 32], address: IpAddr, now_unix_s: u64) -> [ZoneRate; 2] {
        let address = address.to_canonical();
        let share = |rate: Rate| {
            let bits = u128::from(rate.as_bit_per_s()) * u128::from(self.share(measurer)) / 100;
            Rate::from_bit_per_s(u64::try_from(bits).unwrap_or(u64::MAX))
        };
        let network = network_of(address).address;
        [
            ZoneRate { zone: Zone::Host(address), rate: share(self.relay_rate(now_unix_s)) },
            ZoneRate { zone: Zone::Network(network), rate: share(self.network_rate) },
        ]
    }

    /// The slots of a period with loads of this length. Those out of hours are closed.
    #[must_use]
    pub fn slots(&self, count: u32, begin_unix_s: u64, slot_s: u64, load_s: u64) -> Slots {
        let is_closed = |slot: &u32| {
            let begin = begin_unix_s + u64::from(*slot) * slot_s;
            !self.hours.contains(begin) || !self.hours.contains(begin + load_s)
        };
        Slots { count, closed: (0..count).filter(is_closed).collect() }
    }

    /// The reason for which it is not a sound policy, if it is none.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let shares: u32 = self.measurers.values().map(|share| u32::from(*share)).sum();
        let text = if self.valid_until <= self.valid_after {
            "`valid-until` is not after `valid-after`"
        } else if self.announced.unix_s > self.valid_after.unix_s {
            "`announcement`: measurements begin before they are announced"
        } else if self.relay_rate(self.valid_after.unix_s) == Rate::ZERO {
            "no `relay-rate` begins at or before `valid-after`, or it is 0"
        } else if self.measurers.is_empty() {
            "there is no `measurer`"
        } else if shares > 100 {
            "the shares of the measurers are more than 100 percent together"
        } else {
            return None;
        };
        Some(text.to_string())
    }
}

/// Policies for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// The start of the fixture's validity: 2027-01-01, 00:00.
    pub(crate) const BEGIN: u64 = 1_798_761_600;
    /// The end: 28 days later.
    pub(crate) const END: u64 = BEGIN + 28 * 86_400;
    /// The first measurer, with three quarters of every rate; the second has the rest.
    pub(crate) const MEASURERS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

    pub(crate) fn time(unix_s: u64) -> PolicyTime {
        PolicyTime { unix_s, text: unix_s.to_string() }
    }

    /// A policy for 100 Mbit/s, after a week 1,000, and 2,000 for a network, from 22:00 to 06:00.
    pub(crate) fn policy() -> Policy {
        let rate = Rate::from_mbit_per_s;
        Policy {
            announcement: "https://example.org/announced".to_string(),
            announced: time(BEGIN - 30 * 86_400),
            valid_after: time(BEGIN),
            valid_until: time(END),
            hours: Hours::between(22, 6).expect("hours"),
            relay_rates: [(time(BEGIN), rate(100.0)), (time(BEGIN + 7 * 86_400), rate(1000.0))]
                .into(),
            network_rate: rate(2000.0),
            measurers: MEASURERS.into_iter().zip([75, 25]).collect(),
            opt_outs: OptOuts::default(),
        }
    }

    /// The policy with these relays of a consensus, for the first measurer.
    pub(crate) fn in_force(policy: Policy, relays: &[(RsaId, IpAddr)]) -> PolicyInForce {
        let relays = relays.iter().map(|(relay, at)| (*relay, (*at, Contact::Silent))).collect();
        let relays = PolicyRelays { usable_until_unix_s: u64::MAX, relays };
        PolicyInForce {
            policy: Arc::new(policy),
            relays: Some(Arc::new(relays)),
            team: [MEASURERS[0]].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::*;
    use super::*;
    use proptest::prelude::*;
    use std::format;

    const RELAY: RsaId = RsaId([0xab; 20]);

    fn at() -> IpAddr {
        IpAddr::from([198, 51, 100, 7])
    }

    #[test]
    fn a_policy_permits_relays_of_the_consensus_at_its_times() {
        let rule = in_force(policy(), &[(RELAY, at())]);
        let text = |now| rule.check(RELAY, at(), now).expect_err("refused").to_string();
        for now in [BEGIN, BEGIN + 6 * 3600 - 1, BEGIN + 22 * 3600, END - 1] {
            assert_eq!(rule.check(RELAY, at(), now), Ok(()), "{now}");
        }
        assert!(text(BEGIN - 1).contains("is valid from"), "{}", text(BEGIN - 1));
        assert!(text(END).contains("was valid until"), "{}", text(END));
        for now in [BEGIN + 6 * 3600, BEGIN + 22 * 3600 - 1] {
            assert!(text(now).contains("from 22:00 to 06:00 UTC only"), "{}", text(now));
        }
        let other = rule.check(RsaId([1; 20]), at(), BEGIN).expect_err("another relay");
        assert_eq!(other, PolicyRefusal::NotListed(RsaId([1; 20])));
        let elsewhere = IpAddr::from([198, 51, 100, 8]);
        let moved = rule.check(RELAY, elsewhere, BEGIN).expect_err("another address");
        assert!(moved.to_string().contains("at 198.51.100.7, not at 198.51.100.8"), "{moved}");
        let mapped = "::ffff:198.51.100.7".parse().expect("an address");
        assert_eq!(rule.check(RELAY, mapped, BEGIN), Ok(()));
    }

    #[test]
    fn a_policy_permits_nothing_without_a_recent_consensus_or_a_share() {
        let mut rule = in_force(policy(), &[(RELAY, at())]);
        let without = PolicyInForce { relays: None, ..rule.clone() };
        assert_eq!(without.check(RELAY, at(), BEGIN), Err(PolicyRefusal::NoConsensus));
        let mut relays = (**rule.relays.as_ref().expect("some")).clone();
        relays.usable_until_unix_s = BEGIN + 1;
        relays.relays.insert(RsaId([2; 20]), (at(), Contact::Unknown));
        rule.relays = Some(Arc::new(relays));
        assert_eq!(rule.check(RELAY, at(), BEGIN), Ok(()));
        assert_eq!(rule.check(RELAY, at(), BEGIN + 1), Err(PolicyRefusal::NoConsensus));
        let unknown = rule.check(RsaId([2; 20]), at(), BEGIN);
        assert_eq!(unknown, Err(PolicyRefusal::ContactUnknown(RsaId([2; 20]))));
        rule.team = [[9; 32]].into();
        assert_eq!(rule.check(RELAY, at(), BEGIN), Err(PolicyRefusal::NoShare));
    }

    #[test]
    fn relays_decline_by_fingerprint_address_and_contact() {
        let mut rule = in_force(policy(), &[(RELAY, at())]);
        assert_eq!(rule.declined(RELAY, at()), None);
        let with = |opt_outs: OptOuts| {
            let policy = Policy { opt_outs, ..policy() };
            PolicyInForce { policy: Arc::new(policy), ..rule.clone() }.declined(RELAY, at())
        };
        let relays = [RELAY].into();
        let by = with(OptOuts { relays, ..OptOuts::default() });
        assert_eq!(by, Some(Declined::ByFingerprint));
        for (prefix, declines) in [
            ("198.51.100.7/32", true),
            ("198.51.100.0/24", true),
            ("0.0.0.0/0", true),
            ("198.51.100.8/32", false),
            ("2001:db8::/32", false),
        ] {
            let (address, bits) = prefix.split_once('/').expect("a prefix");
            let parsed =
                Prefix::new(address.parse().expect("an address"), bits.parse().expect("a number"));
            let parsed = parsed.expect("a prefix");
            assert_eq!(parsed.to_string(), prefix);
            let prefixes = [parsed].into();
            let by = with(OptOuts { prefixes, ..OptOuts::default() });
            assert_eq!(by.is_some(), declines, "{prefix}");
        }
        assert_eq!(Prefix::new(at(), 33), None);
        let relays = PolicyRelays {
            usable_until_unix_s: u64::MAX,
            relays: [(RELAY, (at(), Contact::Declines))].into(),
        };
        rule.relays = Some(Arc::new(relays));
        assert_eq!(rule.declined(RELAY, at()), Some(Declined::ByContact));
        let contact_tokens = ["flashflow:no".to_string()].into();
        let tokens = OptOuts { contact_tokens, ..OptOuts::default() };
        assert!(tokens.is_in_contact("me <me AT example> [FlashFlow:No]"));
        assert!(!tokens.is_in_contact("me <me AT example>"));
    }

    #[test]
    fn hours_are_one_range_of_the_day() {
        let text = |from, to| Hours::between(from, to).expect("hours").to_string();
        for (from, to, expected) in [
            (22, 6, "22:00 to 06:00 UTC"),
            (0, 24, "00:00 to 24:00 UTC"),
            (5, 24, "05:00 to 00:00 UTC"),
            (23, 0, "23:00 to 00:00 UTC"),
        ] {
            assert_eq!(text(from, to), expected);
        }
        for (from, to) in [(3, 3), (24, 3), (0, 25)] {
            assert_eq!(Hours::between(from, to), None);
        }
    }

    #[test]
    fn an_unsound_policy_is_named() {
        assert_eq!(policy().problem(), None);
        let unsound = [
            (Policy { valid_until: time(BEGIN), ..policy() }, "valid-until"),
            (Policy { announced: time(BEGIN + 1), ..policy() }, "announcement"),
            (Policy { relay_rates: Vec::new(), ..policy() }, "relay-rate"),
            (Policy { measurers: BTreeMap::new(), ..policy() }, "measurer"),
            (
                Policy { measurers: MEASURERS.into_iter().zip([75, 26]).collect(), ..policy() },
                "100 percent",
            ),
        ];
        for (policy, word) in unsound {
            let problem = policy.problem().expect(word);
            assert!(problem.contains(word), "{problem}");
        }
    }

    proptest! {
        /// Whatever a thief orders, the team's joint load of an address and of a network is within the policy.
        #[test]
        fn the_shares_of_all_measurers_are_together_at_most_the_policys_rates(
            shares in proptest::collection::vec(0u8..40, 1..6), now in BEGIN..END, last in any::<[u8; 4]>(),
        ) {
            let measurers: BTreeMap<[u8; 32], u8> =
                (0u8..).zip(&shares).map(|(n, share)| ([n; 32], *share)).collect();
            let policy = Policy { measurers, ..policy() };
            if policy.problem().is_none() {
                let address = IpAddr::from(last);
                let sums = policy.measurers.keys().fold([Rate::ZERO; 2], |sums, measurer| {
                    let [host, network] = policy.limits(measurer, address, now);
                    [sums[0] + host.rate, sums[1] + network.rate]
                });
                let expected = if now < BEGIN + 7 * 86_400 { 100.0 } else { 1000.0 };
                prop_assert!(sums[0] <= Rate::from_mbit_per_s(expected));
                prop_assert!(sums[1] <= Rate::from_mbit_per_s(2000.0));
                let stranger = policy.limits(&[99; 32], address, now);
                prop_assert!(stranger.iter().all(|limit| limit.rate == Rate::ZERO));
            }
        }

        #[test]
        fn addresses_of_one_network_have_one_zone(address in any::<u32>(), other in any::<u32>()) {
            let zone = |bits: u32| policy().limits(&MEASURERS[0], IpAddr::V4(bits.into()), BEGIN)[1].zone;
            prop_assert_eq!(zone(address) == zone(other), address >> 16 == other >> 16);
            let shown = format!("{}", zone(address));
            prop_assert!(shown.ends_with("/16"), "{}", shown);
        }
    }
}
