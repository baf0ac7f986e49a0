//! Relays that seem not to serve clients as they are measured: what the store adds to the test, and the words.

use crate::error::StoreError;
use crate::format::utc;
use crate::open::Reader;
use crate::read::{rsa, time};
use crate::write::int;
use coordinator::{ProbedRelay, ServiceSuspicion};
use onion::Rate;
use onion::identity::RsaId;
use rusqlite::Row;
use std::collections::BTreeMap;

/// When relays were measured.
#[derive(Clone, Debug, Default)]
pub struct MeasuredTimes(BTreeMap<RsaId, Vec<(u64, u64)>>);

impl MeasuredTimes {
    /// Whether the relay was being measured at some time between these, in Unix seconds.
    #[must_use]
    pub fn overlap(&self, relay: RsaId, from_unix_s: u64, to_unix_s: u64) -> bool {
        let mut all = self.0.get(&relay).into_iter().flatten();
        all.any(|(began, ended)| *began <= to_unix_s && from_unix_s <= *ended)
    }
}

impl Reader {
    /// When relays were measured, in turns that ended since then.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measured_times(&self, since_unix_s: u64) -> Result<MeasuredTimes, StoreError> {
        let sql = "SELECT r.rsa, m.started_unix_s, m.ended_unix_s FROM measurement m
                   JOIN relay r ON r.id = m.relay WHERE m.ended_unix_s >= ?1";
        let turn = |row: &Row<'_>| Ok((rsa(row, 0)?, (time(row, 1)?, time(row, 2)?)));
        let mut times: BTreeMap<RsaId, Vec<(u64, u64)>> = BTreeMap::new();
        for (relay, turn) in self.all(sql, [int(since_unix_s)], turn)? {
            times.entry(relay).or_default().push(turn);
        }
        Ok(MeasuredTimes(times))
    }
}

/// Explains to the operator of the coordinator what ordinary circuits show about a relay with this estimate.
#[must_use]
pub fn explain_service(
    probed: ProbedRelay,
    suspicion: Option<&ServiceSuspicion>,
    estimate: Option<Rate>,
) -> String {
    let ProbedRelay { circuits, bad } = probed;
    let Some(suspicion) = suspicion else {
        return format!(
            "Of {circuits} ordinary circuits through it that count, {bad} failed or were slower than a tenth of the median: no suspicion."
        );
    };
    let place = suspicion.position.map(|position| format!(" as {}", position.in_words()));
    let showed =
        estimate.map(|estimate| format!("It showed {estimate} when it was measured, but "));
    let showed = showed.unwrap_or_else(|| "It ".to_owned());
    format!(
        "{showed}seems not to serve clients{}: since {}, {} of {} ordinary circuits through it failed or were slower than a tenth of \
         the median, with {} different other relays. Of all circuits, {:.1} % do. An honest relay looks like that in a year with a \
         probability of at most {:.0e}. That is a suspicion and no proof, and changes no weight: the prober's path to it may be broken, or \
         relays with more than a tenth of the prober's choices may frame it.",
        place.unwrap_or_default(),
        utc(suspicion.since_unix_s),
        suspicion.bad,
        suspicion.circuits,
        suspicion.neighbours,
        100.0 * suspicion.network_bad_share,
        suspicion.by_chance,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, Scratch, closed, relay};
    use crate::{Entry, Store};
    use coordinator::HopPosition;

    #[test]
    fn the_times_of_measurements_are_known() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let turn = closed(relay(1), NOW, 1, 1_000_000);
        let (began, ended) = (turn.begun.started_unix_s, turn.record.ended_unix_s);
        assert!(began < ended);
        store.write(&[Entry::Finished(Box::new(turn))]).expect("room");
        let times = store.measured_times(ended).expect("read");
        let overlaps = |from, to| times.overlap(relay(1).rsa, from, to);
        assert!(overlaps(began, began) && overlaps(ended, ended + 9) && overlaps(0, began));
        assert!(!overlaps(0, began - 1) && !overlaps(ended + 1, ended + 9));
        assert!(!times.overlap(relay(2).rsa, began, ended));
        let later = store.measured_times(ended + 1).expect("read");
        assert!(!later.overlap(relay(1).rsa, began, ended));
    }

    #[test]
    fn a_suspicion_has_its_evidence_and_calls_itself_one() {
        let probed = ProbedRelay { circuits: 30, bad: 12 };
        let suspicion = ServiceSuspicion {
            relay: relay(1).rsa,
            position: Some(HopPosition::Middle),
            since_unix_s: 1_800_000_000,
            circuits: 13,
            bad: 12,
            neighbours: 24,
            network_bad_share: 0.031,
            by_chance: 0.00042,
        };
        let words = explain_service(probed, Some(&suspicion), Some(Rate::from_mbit_per_s(80.0)));
        for part in [
            "It showed 80",
            "not to serve clients as middle hop: since 2027-01-15 08:00 UTC, 12 of 13 ordinary circuits",
            "with 24 different other relays",
            "3.1 %",
            "at most 4e-4",
            "no proof, and changes no weight",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(explain_service(probed, None, None).contains("Of 30 ordinary circuits"));
        let unknown = explain_service(probed, Some(&suspicion), None);
        assert!(unknown.starts_with("It seems not to serve clients"), "{unknown}");
    }
}
