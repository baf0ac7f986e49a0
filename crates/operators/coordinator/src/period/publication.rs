//! The content of a bandwidth file.

use super::Relay;
use crate::history::{History, HistoryPolicy, PastEstimate};
use crate::mode::Mode;
use crate::record::Record;
use crate::shared::fit_machine;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use onion::identity::{RelayIds, RsaId};
use onion::{Duration, Rate};

/// The entry of a relay in a bandwidth file.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRelay {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// The result.
    pub result: PublishedResult,
}

/// The result of a relay in a bandwidth file.
#[derive(Clone, Debug, PartialEq)]
pub enum PublishedResult {
    /// An estimate, of this period or of an earlier one that is still valid.
    Estimate {
        /// The estimate.
        estimate: PastEstimate,
        /// Its limit, considering the other relays of its host: at most its estimate.
        share: Rate,
    },
    /// There is no estimate.
    Failed {
        /// The reason.
        reason: String,
        /// How it was loaded.
        mode: Option<Mode>,
        /// The time, in Unix seconds.
        tried_unix_s: u64,
    },
}

/// The entries for these relays, from the results of this period, if any.
pub(super) fn publication<'r>(
    relays: impl Iterator<Item = (&'r Relay, Option<&'r Record>)>,
    history: &History,
    policy: &HistoryPolicy,
    slot: Duration,
    begin_unix_s: u64,
    now_unix_s: u64,
) -> Vec<PublishedRelay> {
    let mut all: Vec<PublishedRelay> = Vec::new();
    let mut hosts: BTreeMap<RsaId, Vec<usize>> = BTreeMap::new();
    for (relay, record) in relays {
        let kept = history.kept(policy, relay.id(), record, now_unix_s);
        let result = match (kept, record) {
            (Some(kept), _) => estimate(kept, now_unix_s),
            (None, Some(record)) => PastEstimate::of(record).map_or_else(
                || PublishedResult::Failed {
                    reason: record.to_string(),
                    mode: Some(record.mode),
                    tried_unix_s: record.ended_unix_s.min(now_unix_s),
                },
                |past| estimate(past, now_unix_s),
            ),
            (None, None) => continue,
        };
        // A relay that was measured at another address, and has moved since, shows nothing about its new host.
        let measured_at = record.filter(|_| kept.is_none()).map(|record| record.relay.address.ip());
        if measured_at.is_none_or(|at| at == relay.address.ip()) {
            hosts.entry(relay.host).or_default().push(all.len());
        }
        let (ids, nickname) = (relay.ids, relay.nickname.clone());
        all.push(PublishedRelay { ids, nickname, result });
    }
    hosts.values().for_each(|places| fit_host(&mut all, places, slot, begin_unix_s));
    all
}

/// A result with a later date was made before now, while the clock was ahead.
fn estimate(estimate: PastEstimate, now_unix_s: u64) -> PublishedResult {
    let measured_unix_s = estimate.measured_unix_s.min(now_unix_s);
    let estimate = PastEstimate { measured_unix_s, ..estimate };
    PublishedResult::Estimate { estimate, share: estimate.capacity }
}

/// The relays of one host together get at most the largest joint result at one time. Measurements that ended further
/// apart than `slot` were in different slots.
fn fit_host(all: &mut [PublishedRelay], places: &[usize], slot: Duration, begin_unix_s: u64) {
    let found = |place: &usize| match all.get(*place)?.result {
        PublishedResult::Estimate { estimate, share } => {
            Some((*place, (estimate.measured_unix_s, share)))
        }
        PublishedResult::Failed { .. } => None,
    };
    let (places, mut rates): (Vec<usize>, Vec<(u64, Rate)>) =
        places.iter().filter_map(found).unzip();
    fit_machine(&mut rates, slot, begin_unix_s);
    for (place, (tried_unix_s, rate)) in places.into_iter().zip(rates) {
        let Some(PublishedRelay { result, .. }) = all.get_mut(place) else { continue };
        if rate == Rate::ZERO {
            let reason =
                "the other relays at its address account for the whole measured capacity of their machine".to_owned();
            *result = PublishedResult::Failed { reason, mode: None, tried_unix_s };
        } else if let PublishedResult::Estimate { share, .. } = result {
            *share = rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_a_clock_that_was_ahead_is_dated_now() {
        const NOW: u64 = 1_800_000_000;
        let made = |measured_unix_s| PastEstimate {
            capacity: Rate::from_mbit_per_s(5.0),
            measured_unix_s,
            mode: None,
            is_conclusive: None,
            sockets: None,
        };
        for (at, expected) in [(NOW - 9, NOW - 9), (NOW, NOW), (NOW + 40 * 86_400, NOW)] {
            let PublishedResult::Estimate { estimate, share } = estimate(made(at), NOW) else {
                panic!("no estimate")
            };
            assert_eq!((estimate.measured_unix_s, share), (expected, estimate.capacity));
        }
    }
}
