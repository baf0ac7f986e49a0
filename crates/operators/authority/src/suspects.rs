//! Detects relays that may share a machine, once in a period, concurrently with the measurements.

use super::Common;
use onion::identity::RsaId;
use std::collections::BTreeMap;
use store::{Entry, Reader};

/// Tests the results of all finished periods, and records relays that move together. Relays with the same name in
/// `together` are measured together anyway, and those that are missing in it are no longer measured.
///
/// It has its own connection to the store, and blocks nothing else.
pub(super) fn look(
    Common { config, journal, interrupt, .. }: Common<'_>,
    before_unix_s: u64,
    together: &BTreeMap<RsaId, RsaId>,
) {
    let should_continue = || !interrupt.is_requested();
    let found = Reader::open(&config.store)
        .and_then(|reader| reader.co_location_test(before_unix_s, should_continue));
    let mut test = match found {
        Ok(test) => test,
        Err(error) => {
            tracing::warn!("no search for relays that share a machine in this period: {error}");
            return;
        }
    };
    if interrupt.is_requested() {
        return;
    }
    // Pairs with relays that have left are of no use.
    test.retain(|relay| together.contains_key(&relay));
    let is_known = |one: RsaId, other: RsaId| {
        together.get(&one).is_some_and(|name| together.get(&other) == Some(name))
    };
    let suspicions = test.suspicions(is_known);
    if !suspicions.is_empty() {
        let count = suspicions.len();
        tracing::warn!(
            "{count} pairs of relays may share machines: `flashflow export --what suspicions` names them"
        );
    }
    journal.note(Entry::Suspicions(suspicions));
}
