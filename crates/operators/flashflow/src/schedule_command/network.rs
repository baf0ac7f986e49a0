//! The relays of a consensus with their expected capacities.

use super::ScheduleOptions;
use super::settings::Settings;
use cli::Error;
use coordinator::plan::{Candidate, Machine, machines};
use coordinator::policy::{Contact, PolicyInForce, PolicyRelays, Zone};
use coordinator::{Consent, ConsentError};
use documents::{families, newest, no_weights, read};
use link::unix_time_s;
use netdoc::ServerDescriptor;
use netdoc::consensus::{Consensus, Router};
use onion::Rate;
use onion::identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use terminal::note;

/// A relay in the plan.
#[derive(Clone)]
pub(super) struct Relay {
    pub(super) id: RsaId,
    pub(super) nickname: String,
    pub(super) address: IpAddr,
    pub(super) guess: Rate,
}

/// Relays, by identity.
pub(super) struct Network {
    pub(super) relays: Vec<Relay>,
    pub(super) valid_after: u64,
    /// Pairs of one operator.
    families: Vec<(RsaId, RsaId)>,
    is_apart: bool,
}

impl Network {
    pub(super) fn read(options: &ScheduleOptions, settings: &Settings) -> Result<Self, Error> {
        let what = settings.source.to_string();
        let consensus = settings.source.consensus(unix_time_s())?;
        let (valid_after, mut relays) = relays(&consensus, &what)?;
        if let Some(names) = &settings.relays {
            let named =
                names.iter().map(|name| consensus.find(name).map(|relay| relay.fingerprint));
            let named = named.collect::<Result<BTreeSet<_>, _>>();
            let named = named.map_err(|error| Error::Failed(format!("{what}: {error}")))?;
            relays.retain(|relay| named.contains(&relay.id));
        }
        let mut permitted = None;
        if let Some(consent) = &settings.consent {
            let consent = with_policy_relays(consent, settings, &consensus)?;
            retain_permitted(&mut relays, &consent);
            permitted = Some(consent);
            if relays.is_empty() {
                return Err(Error::Failed(format!(
                    "{what}: no relay may be measured: none is on a private address or has opted in"
                )));
            }
        }
        relays.retain(|relay| drawn(relay.id) >= options.declines);
        if relays.is_empty() {
            return Err(Error::Failed(format!("{what}: all relays decline")));
        }
        let mut families = settings.together.clone();
        if settings.families && settings.descriptors.is_none() {
            note(
                "families are in descriptors: without --descriptors, their relays are planned separately",
            );
        }
        if let Some(path) = &settings.descriptors {
            let text = read(path, "read the descriptors")?;
            // Relays whose descriptors cannot be read have the weight of the consensus.
            let descriptors = newest(path, &text)?.descriptors;
            let mut claims: BTreeMap<RsaId, Rate> = BTreeMap::new();
            for descriptor in &descriptors {
                let most = descriptor.bandwidth_avg_bytes_s.min(descriptor.bandwidth_burst_bytes_s);
                let observed = descriptor.bandwidth_observed_bytes_s.min(most);
                claims.insert(descriptor.fingerprint, Rate::from_byte_per_s(observed));
            }
            for relay in &mut relays {
                relay.guess = claims.get(&relay.id).copied().unwrap_or(relay.guess);
            }
            if settings.families {
                // An old file is read as of its own time.
                families.extend(families::pairs(descriptors.iter(), valid_after));
            }
        }
        if let Some(consent) = &permitted {
            limit_guesses(&mut relays, consent, settings);
        }
        if relays.iter().all(|relay| relay.guess == Rate::ZERO) {
            return Err(no_weights(&what).into());
        }
        let mut rates: Vec<f64> = relays.iter().map(|relay| relay.guess.as_mbit_per_s()).collect();
        let most = options.max_mbit_per_s.unwrap_or(f64::INFINITY);
        fit(&mut rates, options.total_gbit_per_s.map(|gbit| gbit * 1000.0), most).ok_or_else(
            || {
                let count = relays.len();
                Error::Usage(format!("{count} relays of at most {most} Mbit/s have no such sum"))
            },
        )?;
        for (relay, mbit) in relays.iter_mut().zip(rates) {
            relay.guess = Rate::from_mbit_per_s(mbit);
        }
        Ok(Self { relays, valid_after, families, is_apart: options.apart })
    }

    pub(super) fn relay(&self, id: RsaId) -> Option<&Relay> {
        let at = self.relays.binary_search_by_key(&id, |relay| relay.id).ok()?;
        self.relays.get(at)
    }

    pub(super) fn machines(&self) -> Vec<Machine> {
        self.together(&self.relays)
    }

    /// The machines of these relays, as far as the network reveals them.
    pub(super) fn together(&self, relays: &[Relay]) -> Vec<Machine> {
        if self.is_apart {
            return relays.iter().map(|relay| Machine::single(relay.id, relay.guess)).collect();
        }
        let candidates: Vec<Candidate> = relays.iter().map(Relay::candidate).collect();
        machines(&candidates, &self.families)
    }
}

/// A number below 1, the same for a relay each time: fingerprints are uniform.
fn drawn(relay: RsaId) -> f64 {
    // The first bytes would be alike in a part of a consensus, which is sorted.
    let [.., a, b, c, d] = relay.0;
    f64::from(u32::from_be_bytes([a, b, c, d])) / 2.0_f64.powi(32)
}

/// The consent with what its measurement policy, if it has one, needs to decide: the relays of the consensus, and the team.
fn with_policy_relays(
    consent: &Consent,
    settings: &Settings,
    consensus: &Consensus,
) -> Result<Consent, Error> {
    let Some(rule) = consent.policy() else { return Ok(consent.clone()) };
    let text = match &settings.descriptors {
        Some(path) => read(path, "read the descriptors")?,
        None => Vec::new(),
    };
    let newest = netdoc::descriptor::newest(&text).descriptors;
    let contact = |descriptor: &ServerDescriptor<'_>| {
        (descriptor.fingerprint, descriptor.contact().unwrap_or_default().into_owned())
    };
    let contacts: BTreeMap<RsaId, String> = newest.iter().map(contact).collect();
    if rule.policy.has_contact_tokens() && settings.descriptors.is_none() {
        note(
            "relays that decline by their ContactInfo are planned: that is in descriptors, and there are no --descriptors",
        );
    }
    let relay = |router: &Router| {
        let contact = contacts.get(&router.fingerprint).map(String::as_str);
        let contact = match documents::policy::contact(&rule.policy, router, contact) {
            Contact::Unknown => Contact::Silent,
            known => known,
        };
        (router.fingerprint, (IpAddr::from(router.address), contact))
    };
    let relays = consensus.routers().iter().map(relay).collect();
    let relays = PolicyRelays { usable_until_unix_s: u64::MAX, relays };
    let rule = PolicyInForce {
        policy: Arc::clone(&rule.policy),
        relays: Some(Arc::new(relays)),
        team: settings.measurers.clone(),
    };
    Ok(consent.clone().with_policy(Some(rule)))
}

/// The time for which relays are planned: now, or the first day of a measurement policy that is not valid yet.
fn planned_for(consent: &Consent) -> u64 {
    let begin = consent.policy().map_or(0, |rule| rule.policy.valid_after.unix_s);
    unix_time_s().max(begin)
}

/// Plans no more load for a relay than a measurement policy permits.
fn limit_guesses(relays: &mut [Relay], consent: &Consent, settings: &Settings) {
    let now_unix_s = planned_for(consent);
    for relay in relays {
        let limits = |measurer| consent.limits(measurer, relay.id, relay.address, now_unix_s);
        // A zone's share of each measurer: their sum is its rate.
        let mut zones: BTreeMap<Zone, Rate> = BTreeMap::new();
        for limit in settings.measurers.iter().flat_map(limits) {
            let rate = zones.entry(limit.zone).or_default();
            *rate = *rate + limit.rate;
        }
        let most = zones.into_values().min();
        if let Some(most) = most {
            relay.guess = relay.guess.min(most.scaled(1.0 / settings.excess));
        }
    }
}

/// Removes relays that may not be measured.
fn retain_permitted(relays: &mut Vec<Relay>, consent: &Consent) {
    let now_unix_s = planned_for(consent);
    let mut declined: u64 = 0;
    relays.retain(|relay| {
        match consent.check(relay.id, relay.address, now_unix_s) {
            Ok(()) => {}
            Err(error) if error.is_out_of_hours() => {}
            Err(ConsentError::Declined { .. }) => {
                declined += 1;
                return false;
            }
            Err(_) => return false,
        }
        true
    });
    if consent.policy().is_some() {
        let relays = report::plural(declined, "relay");
        note(format!("{relays} declined, by the measurement policy"));
    }
}

impl Relay {
    const fn candidate(&self) -> Candidate {
        Candidate { relay: self.id, guess: self.guess, address: self.address }
    }
}

/// The valid-after time of a consensus, and its relays with their weights as capacities.
pub(super) fn relays(
    consensus: &Consensus,
    what: impl fmt::Display,
) -> Result<(u64, Vec<Relay>), Error> {
    let relay = |router: &Router| Relay {
        id: router.fingerprint,
        nickname: router.nickname.to_string(),
        address: router.address.into(),
        guess: Rate::from_byte_per_s(u64::from(router.bandwidth_kb_s.unwrap_or(0)) * 1000),
    };
    let relays: Vec<Relay> =
        consensus.routers().iter().filter(|router| router.is_measurable()).map(relay).collect();
    if relays.is_empty() {
        return Err(Error::Failed(format!("{what} has no relay that is up")));
    }
    Ok((consensus.valid_after, relays))
}

/// Scales rates so that their sum is `total`, if it is given, and none is above `most`. `None` if that is impossible.
fn fit(rates: &mut [f64], total: Option<f64>, most: f64) -> Option<()> {
    let Some(total) = total else {
        rates.iter_mut().for_each(|rate| *rate = rate.min(most));
        return Some(());
    };
    let mut falling: Vec<f64> = rates.to_vec();
    falling.sort_by(|one, other| other.total_cmp(one));
    let mut rest: f64 = falling.iter().sum();
    let mut left = total;
    let mut factor = None;
    // The largest rates are capped, one more in each step; the others share the rest.
    for rate in falling {
        let candidate = left / rest;
        if !candidate.is_finite() || candidate < 0.0 {
            break;
        }
        if rate * candidate <= most {
            factor = Some(candidate);
            break;
        }
        left -= most;
        rest -= rate;
    }
    let factor = factor?;
    rates.iter_mut().for_each(|rate| *rate = (*rate * factor).min(most));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capping_the_largest_rates_raises_the_others() {
        let mut rates = [100.0, 1.0, 3.0, 0.0];
        fit(&mut rates, Some(18.0), 10.0).expect("possible");
        assert_eq!(rates, [10.0, 2.0, 6.0, 0.0]);
        assert_eq!(fit(&mut rates, Some(40.1), 10.0), None, "three have something");
        assert_eq!(fit(&mut [0.0], Some(1.0), 10.0), None);
        let mut rates = [100.0, 1.0];
        fit(&mut rates, None, 10.0).expect("possible");
        assert_eq!(rates, [10.0, 1.0]);
    }

    proptest! {
        #[test]
        fn scaled_rates_have_their_sum_and_bound_and_keep_their_order(
            weights in proptest::collection::vec(1.0f64..1e6, 1..50), share in 0.01f64..0.99,
        ) {
            let (most, mut rates) = (10.0, weights.clone());
            let total = share * most * weights.len() as f64;
            fit(&mut rates, Some(total), most).expect("possible");
            prop_assert!((rates.iter().sum::<f64>() / total - 1.0).abs() < 1e-6);
            prop_assert!(rates.iter().all(|rate| *rate <= most));
            for (one, other) in weights.iter().zip(&rates).zip(weights.iter().zip(&rates).skip(1)) {
                prop_assert!((one.0 - other.0) * (one.1 - other.1) >= 0.0);
            }
        }
    }
}
