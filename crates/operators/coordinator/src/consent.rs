//! Consent: which relays may be flooded.

use crate::policy::{Declined, PolicyInForce, PolicyRefusal, ZoneRate};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use onion::identity::RsaId;

/// The reason why a relay must not be flooded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsentError {
    /// Not on loopback, not private, not on the list.
    #[error(
        "measuring floods a relay: {address} is public and {relay} has not opted in. If its operator \
         agrees, put its fingerprint on a line of a file and pass it as --opt-in FILE"
    )]
    NotGiven {
        /// The relay's fingerprint.
        relay: RsaId,
        /// Its address.
        address: IpAddr,
    },
    /// The address is not that of a host.
    #[error(
        "{address} is not an address of a relay: it stands for \"any address of this machine\". Give the relay's own address"
    )]
    Unspecified {
        /// The address.
        address: IpAddr,
    },
    /// An address to which others must never have us connect.
    #[error(
        "{address} is for this machine and its neighbours only: no coordinator elsewhere has it measured, \
         listed or not"
    )]
    Never {
        /// The address.
        address: IpAddr,
    },
    /// A private address, on a network that is not declared private.
    #[error(
        "{address} is private and {relay} has not opted in. If all of this network is private, set \
         `private_network = true`; else put the relay's fingerprint and address on a line of the opt-in list"
    )]
    NotPrivate {
        /// The relay's fingerprint.
        relay: RsaId,
        /// Its address.
        address: IpAddr,
    },
    /// On the list, but with another address.
    #[error(
        "relay {relay} has opted in at {}, not at {address}; if it has moved, correct the opt-in list",
        listed.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
    )]
    OtherAddress {
        /// The relay's fingerprint.
        relay: RsaId,
        /// Its reported address.
        address: IpAddr,
        /// Its address in the list.
        listed: BTreeSet<IpAddr>,
    },
    /// Its operator declines, by the measurement policy.
    #[error("relay {relay} declines to be measured: {how}")]
    Declined {
        /// The relay's fingerprint.
        relay: RsaId,
        /// How it declines.
        how: Declined,
    },
    /// It has opted in, but whether it declines by its `ContactInfo` is not known.
    #[error("relay {relay} may decline to be measured: {reason}")]
    MayDecline {
        /// The relay's fingerprint.
        relay: RsaId,
        /// Why it is not known.
        reason: PolicyRefusal,
    },
    /// It has not opted in, and the measurement policy does not permit it either.
    #[error("relay {relay} has not opted in, and {reason}")]
    Policy {
        /// The relay's fingerprint.
        relay: RsaId,
        /// The reason.
        reason: PolicyRefusal,
    },
}

impl ConsentError {
    /// Whether the hour, or a consensus that has not been read yet, is the reason, and not the relay.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        let (Self::Policy { reason, .. } | Self::MayDecline { reason, .. }) = self else {
            return false;
        };
        matches!(reason, PolicyRefusal::OutOfHours(_) | PolicyRefusal::NoConsensus)
    }

    /// Whether the relay may be measured at another hour of the day.
    #[must_use]
    pub const fn is_out_of_hours(&self) -> bool {
        matches!(self, Self::Policy { reason: PolicyRefusal::OutOfHours(_), .. })
    }
}

/// A line of an opt-in list that has no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} is not a fingerprint of 40 hex digits, alone or followed by a blank and an address, without `$` and commas"
)]
pub struct BadOptInLine {
    /// The line, counted from one.
    pub line: usize,
}

/// The relays that may be measured: those that opted in, those that a measurement policy permits, and for local users those on
/// loopback and private addresses.
///
/// Remote coordinators have fewer rights: a thief of a coordinator's key must not make us connect to hosts inside our
/// network.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Private addresses are measured for remote coordinators, too.
    is_private_network: bool,
    /// With the addresses that the list names; with none, any address is permitted.
    opted_in: BTreeMap<RsaId, BTreeSet<IpAddr>>,
    /// The comment with the list's signature; see the crate `control`.
    signature: Option<String>,
    /// The policy of an authority, if there is one.
    policy: Option<PolicyInForce>,
}

impl Consent {
    /// Loopback and private addresses only.
    #[must_use]
    pub fn local_only() -> Self {
        Self::default()
    }

    /// For a private network: relays on private addresses may be measured for remote coordinators, too.
    #[must_use]
    pub fn in_private_network(self, is_private_network: bool) -> Self {
        Self { is_private_network, ..self }
    }

    /// Sets the measurement policy, or removes it.
    #[must_use]
    pub fn with_policy(self, policy: Option<PolicyInForce>) -> Self {
        Self { policy, ..self }
    }

    /// The measurement policy, if there is one.
    #[must_use]
    pub const fn policy(&self) -> Option<&PolicyInForce> {
        self.policy.as_ref()
    }

    /// The highest rates of a measurer for a relay that may be measured by the policy only; empty if it has opted in, or
    /// its address is private.
    #[must_use]
    pub fn limits(
        &self,
        measurer: &[u8; 32],
        relay: RsaId,
        address: IpAddr,
        now_unix_s: u64,
    ) -> Vec<ZoneRate> {
        match &self.policy {
            Some(rule) if !is_local(address) && self.check_opt_in(relay, address).is_err() => {
                rule.policy.limits(measurer, address, now_unix_s).into()
            }
            _ => Vec::new(),
        }
    }

    /// Adds the relays of an opt-in list: one fingerprint a line, `#` starts a comment. If an address follows the
    /// fingerprint, the relay may be measured at this address only. Several lines name several addresses.
    ///
    /// # Errors
    /// The first line without a fingerprint.
    pub fn with_list(mut self, text: &str) -> Result<Self, BadOptInLine> {
        for (line, content) in (1..).zip(text.lines()) {
            let (content, comment) = content.split_once('#').unwrap_or((content, ""));
            if content.trim().is_empty() && comment.trim_start().starts_with("signed until ") {
                self.signature = Some(comment.trim().to_string());
            }
            let mut words: Vec<&str> = content.split_whitespace().collect();
            // No group of hex digits is an address, which has dots or colons.
            let address = words.last().and_then(|word| word.parse::<IpAddr>().ok());
            if address.is_some() {
                words.pop();
            } else if words.is_empty() {
                continue;
            }
            let relay = words.concat().parse().map_err(|_| BadOptInLine { line })?;
            let addresses = self.opted_in.entry(relay).or_default();
            addresses.extend(address.map(|address| address.to_canonical()));
        }
        Ok(self)
    }

    /// The relays on opt-in lists, each with the addresses at which it may be measured; any if there are none.
    pub fn entries(&self) -> impl Iterator<Item = (RsaId, &BTreeSet<IpAddr>)> {
        self.opted_in.iter().map(|(relay, addresses)| (*relay, addresses))
    }

    /// The comment with the list's signature, if it has one. This type does not verify it.
    #[must_use]
    pub fn signature(&self) -> Option<&str> {
        self.signature.as_deref()
    }

    /// The number of relays on opt-in lists.
    #[must_use]
    pub fn listed(&self) -> usize {
        self.opted_in.len()
    }

    /// Whether `relay` at `address` may be measured at this time.
    ///
    /// # Errors
    /// [`ConsentError::NotGiven`], which explains how to opt in; [`ConsentError::OtherAddress`];
    /// [`ConsentError::Unspecified`]; with a measurement policy [`ConsentError::Declined`] and [`ConsentError::Policy`].
    pub fn check(
        &self,
        relay: RsaId,
        address: IpAddr,
        now_unix_s: u64,
    ) -> Result<(), ConsentError> {
        if is_unspecified(address) {
            return Err(ConsentError::Unspecified { address });
        }
        if is_local(address) { Ok(()) } else { self.check_public(relay, address, now_unix_s) }
    }

    /// Whether `relay` at `address` may be measured for a coordinator that connected from this peer address. A
    /// coordinator on this machine has our own rights.
    ///
    /// # Errors
    /// As for [`check`](Self::check); [`ConsentError::Never`] for loopback, link-local and unspecified addresses and
    /// for the metadata services of clouds, [`ConsentError::NotPrivate`] for private ones that are on no list.
    pub fn check_for(
        &self,
        coordinator: IpAddr,
        relay: RsaId,
        address: IpAddr,
        now_unix_s: u64,
    ) -> Result<(), ConsentError> {
        if coordinator.to_canonical().is_loopback() {
            return self.check(relay, address, now_unix_s);
        }
        if is_ours_alone(address) {
            return Err(ConsentError::Never { address });
        }
        if !is_local(address) {
            return self.check_public(relay, address, now_unix_s);
        }
        if self.is_private_network {
            return Ok(());
        }
        self.check_opt_in(relay, address).map_err(|error| match error {
            ConsentError::NotGiven { relay, address } => {
                ConsentError::NotPrivate { relay, address }
            }
            other => other,
        })
    }

    /// A relay that declines is refused although it is on an opt-in list: consent can be withdrawn at any time.
    fn check_public(
        &self,
        relay: RsaId,
        address: IpAddr,
        now_unix_s: u64,
    ) -> Result<(), ConsentError> {
        let Some(rule) = &self.policy else { return self.check_opt_in(relay, address) };
        if let Some(how) = rule.declined(relay, address) {
            return Err(ConsentError::Declined { relay, how });
        }
        let not_listed = match self.check_opt_in(relay, address) {
            Ok(()) => {
                let doubt = rule.declines_perhaps(relay, now_unix_s);
                return doubt
                    .map_or(Ok(()), |reason| Err(ConsentError::MayDecline { relay, reason }));
            }
            Err(error) => error,
        };
        rule.check(relay, address, now_unix_s).map_err(|reason| match not_listed {
            // At another hour the policy permits it.
            ConsentError::OtherAddress { .. }
                if !matches!(reason, PolicyRefusal::OutOfHours(_)) =>
            {
                not_listed
            }
            _ => ConsentError::Policy { relay, reason },
        })
    }

    fn check_opt_in(&self, relay: RsaId, address: IpAddr) -> Result<(), ConsentError> {
        match self.opted_in.get(&relay) {
            None => Err(ConsentError::NotGiven { relay, address }),
            Some(listed) if listed.is_empty() || listed.contains(&address.to_canonical()) => Ok(()),
            Some(listed) => {
                Err(ConsentError::OtherAddress { relay, address, listed: listed.clone() })
            }
        }
    }
}

/// Whether packets to `address` stay on this machine or this site.
#[must_use]
pub fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => {
            v6 == Ipv6Addr::LOCALHOST || v6.is_unique_local() || v6.is_unicast_link_local()
        }
    }
}

/// Whether no host has this `address`: 0.0.0.0/8 (RFC 1122, section 3.2.1.3) and `::`.
fn is_unspecified(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unspecified(),
    }
}

/// Addresses that are never measured for remote coordinators: this machine, its link, and the metadata services from
/// which cloud hosts get their secrets.
fn is_ours_alone(address: IpAddr) -> bool {
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || is_unspecified(address),
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unicast_link_local()
                || is_unspecified(address)
                || v6 == METADATA
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{BEGIN, END, MEASURERS, in_force, policy};
    use crate::policy::{Contact, OptOuts, Policy, PolicyInForce, Zone};
    use alloc::sync::Arc;
    use alloc::vec;
    use onion::Rate;
    use std::format;

    const NOW: u64 = BEGIN;

    const RELAY: RsaId = RsaId([0xab; 20]);

    fn public() -> IpAddr {
        IpAddr::from([198, 51, 100, 7])
    }

    fn list(content: &str) -> Result<Consent, BadOptInLine> {
        Consent::local_only().with_list(content)
    }

    #[test]
    fn public_relays_are_refused_with_instructions_to_opt_in() {
        let consent = Consent::local_only();
        for local in ["127.0.0.9", "10.1.2.3", "192.168.0.1", "172.16.9.9", "::1", "fd00::1"] {
            consent.check(RELAY, local.parse().expect("an address"), NOW).expect("local");
        }
        for public in ["198.51.100.7", "172.32.0.1", "2001:db8::1", "::ffff:198.51.100.7"] {
            let error = consent.check(RELAY, public.parse().expect("an address"), NOW);
            let text = error.expect_err(public).to_string();
            assert!(text.contains("--opt-in"), "{text}");
        }
    }

    #[test]
    fn an_unspecified_address_is_refused_whatever_the_list() {
        let listed = list(&"AB".repeat(20)).expect("well-formed");
        for consent in [Consent::local_only(), listed] {
            for nowhere in ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"] {
                let error = consent.check(RELAY, nowhere.parse().expect("an address"), NOW);
                let text = error.expect_err(nowhere).to_string();
                assert!(text.contains("not an address of a relay"), "{text}");
                assert!(!text.contains("public") && !text.contains("--opt-in"), "{text}");
            }
        }
    }

    #[test]
    fn remote_coordinators_reach_private_addresses_only_in_a_private_network_and_local_ones_never()
    {
        let elsewhere = IpAddr::from([10, 0, 0, 9]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let listed = format!("{}\n", "AB".repeat(20));
        let consents =
            [Consent::local_only(), list(&listed).expect("well-formed").in_private_network(true)];
        for consent in &consents {
            for never in [
                "127.0.0.1",
                "127.9.9.9",
                "::1",
                "::ffff:127.0.0.1",
                "169.254.169.254",
                "fe80::1",
                "fd00:ec2::254",
                "0.0.0.0",
                "::",
            ] {
                let error = consent.check_for(elsewhere, RELAY, ip(never), NOW).expect_err(never);
                assert!(matches!(error, ConsentError::Never { .. }), "{never}: {error}");
                let here = consent.check_for(ip("::ffff:127.0.0.1"), RELAY, ip(never), NOW);
                assert_eq!(here.is_ok(), consent.check(RELAY, ip(never), NOW).is_ok(), "{never}");
            }
        }
        let [consent, listed] = &consents;
        for private in ["10.1.2.3", "192.168.0.1", "172.16.9.9", "fd00::1", "::ffff:10.1.2.3"] {
            let error = consent.check_for(elsewhere, RELAY, ip(private), NOW).expect_err(private);
            assert!(error.to_string().contains("private_network = true"), "{error}");
            listed.check_for(elsewhere, RELAY, ip(private), NOW).expect(private);
            listed.check_for(elsewhere, RsaId([1; 20]), ip(private), NOW).expect(private);
            let in_private = consent.clone().in_private_network(true);
            in_private.check_for(elsewhere, RELAY, ip(private), NOW).expect(private);
        }
        listed.check_for(elsewhere, RELAY, public(), NOW).expect("listed");
        let error =
            listed.check_for(elsewhere, RsaId([1; 20]), public(), NOW).expect_err("not listed");
        assert!(matches!(error, ConsentError::NotGiven { .. }));
    }

    #[test]
    fn a_relay_on_the_list_may_be_measured() {
        let listed = format!("# mine\n\n ${} # at home\n", "aB".repeat(20));
        list(&listed).expect("well-formed").check(RELAY, public(), NOW).expect("opted in");
        let other = "CD".repeat(20);
        assert!(list(&other).expect("well-formed").check(RELAY, public(), NOW).is_err());
    }

    #[test]
    fn a_relay_listed_with_an_address_may_be_measured_there_only() {
        let relay = "AB".repeat(20);
        let consent = list(&format!("{relay} 198.51.100.7 # at home\n{relay} 2001:db8::1\n"));
        let consent = consent.expect("well-formed");
        for listed in ["198.51.100.7", "::ffff:198.51.100.7", "2001:db8::1", "127.0.0.1"] {
            consent.check(RELAY, listed.parse().expect("an address"), NOW).expect(listed);
        }
        let error = consent.check(RELAY, [198, 51, 100, 8].into(), NOW).expect_err("a third party");
        assert!(matches!(error, ConsentError::OtherAddress { .. }));
        let text = error.to_string();
        assert!(text.contains("198.51.100.7, 2001:db8::1, not at 198.51.100.8"), "{text}");
    }

    #[test]
    fn a_line_without_a_fingerprint_is_an_error() {
        for bad in ["AB", "zz", &"AB".repeat(21), "é", "198.51.100.7"] {
            let text = list(&format!("{}\n{bad}", "AB".repeat(20))).expect_err(bad).to_string();
            assert!(text.contains("line 2"), "{text}");
        }
    }

    #[test]
    fn a_policy_permits_what_has_not_opted_in_within_its_limits() {
        let rule = in_force(policy(), &[(RELAY, public())]);
        let consent = Consent::local_only().with_policy(Some(rule));
        consent.check(RELAY, public(), NOW).expect("by the policy");
        let text = |consent: &Consent, relay, now| {
            consent.check(relay, public(), now).expect_err("refused").to_string()
        };
        let expired = text(&consent, RELAY, END);
        assert!(expired.contains("has not opted in, and the measurement policy was"), "{expired}");
        assert!(text(&consent, RsaId([1; 20]), NOW).contains("does not list"));
        let limits =
            |consent: &Consent, address| consent.limits(&MEASURERS[0], RELAY, address, NOW);
        let rates: Vec<(Zone, f64)> = limits(&consent, public())
            .into_iter()
            .map(|limit| (limit.zone, Rate::as_mbit_per_s(limit.rate)))
            .collect();
        let network = IpAddr::from([198, 51, 0, 0]);
        assert_eq!(rates, [(Zone::Host(public()), 75.0), (Zone::Network(network), 1500.0)]);
        assert!(limits(&consent, IpAddr::from([10, 0, 0, 1])).is_empty(), "a private network");
        // Opt-in needs no policy.
        let listed = consent.with_list(&"AB".repeat(20)).expect("well-formed");
        listed.check(RELAY, public(), END).expect("opted in");
        assert!(limits(&listed, public()).is_empty());
    }

    #[test]
    fn a_relay_that_declines_is_refused_although_it_is_on_an_opt_in_list() {
        let opt_outs = OptOuts { relays: [RELAY].into(), ..OptOuts::default() };
        let rule = in_force(Policy { opt_outs, ..policy() }, &[(RELAY, public())]);
        let listed = list(&"AB".repeat(20)).expect("well-formed").with_policy(Some(rule));
        for now in [0, NOW, END] {
            let error = listed.check(RELAY, public(), now).expect_err("declined");
            assert!(matches!(error, ConsentError::Declined { .. }), "{error}");
        }
        listed.check(RELAY, IpAddr::from([127, 0, 0, 1]), NOW).expect("here");
    }

    #[test]
    fn a_relay_that_may_decline_is_refused_although_it_is_on_an_opt_in_list() {
        let contact_tokens = vec!["flashflow:no".to_string()];
        let opt_outs = OptOuts { contact_tokens, ..OptOuts::default() };
        let mut rule = in_force(Policy { opt_outs, ..policy() }, &[(RELAY, public())]);
        let check = |rule: &PolicyInForce| {
            let listed = list(&"AB".repeat(20)).expect("well-formed");
            listed.with_policy(Some(rule.clone())).check(RELAY, public(), NOW)
        };
        check(&rule).expect("it does not decline");
        let known = rule.relays.take().expect("a consensus");
        let error = check(&rule).expect_err("there is no consensus");
        assert!(matches!(error, ConsentError::MayDecline { .. }), "{error}");
        let mut known = (*known).clone();
        known.relays.insert(RELAY, (public(), Contact::Unknown));
        rule.relays = Some(Arc::new(known));
        let error = check(&rule).expect_err("there is no descriptor");
        assert!(matches!(error, ConsentError::MayDecline { .. }), "{error}");
    }

    #[test]
    fn a_policy_permits_a_relay_at_no_other_address_than_its_own() {
        let rule = in_force(policy(), &[(RELAY, public())]);
        let at = format!("{} 198.51.100.200", "AB".repeat(20));
        let consent = list(&at).expect("well-formed").with_policy(Some(rule));
        consent.check(RELAY, public(), NOW).expect("as the consensus has it");
        let error = consent.check(RELAY, [198, 51, 100, 8].into(), NOW).expect_err("elsewhere");
        assert!(matches!(error, ConsentError::OtherAddress { .. }), "{error}");
    }

    #[test]
    fn a_remote_coordinator_gets_private_addresses_by_no_policy() {
        let private = IpAddr::from([10, 1, 2, 3]);
        let rule = in_force(policy(), &[(RELAY, private)]);
        let consent = Consent::local_only().with_policy(Some(rule));
        let elsewhere = IpAddr::from([192, 0, 2, 1]);
        let error = consent.check_for(elsewhere, RELAY, private, NOW).expect_err("private");
        assert!(matches!(error, ConsentError::NotPrivate { .. }), "{error}");
    }
}
