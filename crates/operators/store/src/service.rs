//! Relays that seem not to serve clients as they are measured: what the store adds to the test, and the words.

use crate::error::StoreError;
use crate::format::utc;
use crate::open::Reader;
use crate::read::{rate, rsa, time};
use crate::write::int;
use coordinator::{ProbedRelay, ServiceSuspicion};
use onion::Rate;
use onion::identity::RsaId;
use rusqlite::Row;
use std::collections::BTreeMap;

/// When relays were measured, and with which results.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRelays {
    /// The beginning and the end of each turn, by their ends. Turns overlap only where dates were corrected.
    turns: BTreeMap<RsaId, Vec<(u64, u64)>>,
    /// The end of each turn with an estimate, in Unix seconds, and the estimate.
    estimates: BTreeMap<RsaId, Vec<(u64, Rate)>>,
}

impl MeasuredRelays {
    /// Whether the relay was being measured at some time between these, in Unix seconds.
    #[must_use]
    pub fn overlap(&self, relay: RsaId, from_unix_s: u64, to_unix_s: u64) -> bool {
        let turns = self.turns.get(&relay).map_or(&[][..], Vec::as_slice);
        let next = turns.partition_point(|(_, ended)| *ended < from_unix_s);
        turns.get(next).is_some_and(|(began, _)| *began <= to_unix_s)
    }

    /// The smallest estimate that the relays of a path had at a time, in Unix seconds: each relay's last one before it, or else its first
    /// one. `None` if a relay has none. An estimate from after a circuit must not decide whether its download was slow: a relay that
    /// becomes faster would be suspected, and one that becomes slower would be cleared.
    #[must_use]
    pub fn slowest_estimate(&self, path: &[RsaId], at_unix_s: u64) -> Option<Rate> {
        let then = |relay: &RsaId| {
            let all = self.estimates.get(relay)?;
            let later = all.partition_point(|(ended, _)| *ended <= at_unix_s);
            all.get(later.saturating_sub(1)).map(|(_, rate)| *rate)
        };
        path.iter().map(then).min().flatten()
    }
}

impl Reader {
    /// When relays were measured, in turns that ended since then, and the estimates of all turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measured_relays(&self, since_unix_s: u64) -> Result<MeasuredRelays, StoreError> {
        let sql = "SELECT r.rsa, m.started_unix_s, m.ended_unix_s FROM measurement m
                   JOIN relay r ON r.id = m.relay WHERE m.ended_unix_s >= ?1
                   ORDER BY m.ended_unix_s, m.started_unix_s";
        let turn = |row: &Row<'_>| Ok((rsa(row, 0)?, (time(row, 1)?, time(row, 2)?)));
        let mut turns: BTreeMap<RsaId, Vec<(u64, u64)>> = BTreeMap::new();
        for (relay, turn) in self.all(sql, [int(since_unix_s)], turn)? {
            turns.entry(relay).or_default().push(turn);
        }
        let sql = "SELECT r.rsa, m.ended_unix_s, m.capacity_byte_s FROM measurement m
                   JOIN relay r ON r.id = m.relay WHERE m.capacity_byte_s IS NOT NULL ORDER BY m.ended_unix_s";
        let estimate = |row: &Row<'_>| Ok((rsa(row, 0)?, time(row, 1)?, rate(row, 2)?));
        let mut estimates: BTreeMap<RsaId, Vec<(u64, Rate)>> = BTreeMap::new();
        for (relay, ended, rate) in self.all(sql, [], estimate)? {
            estimates.entry(relay).or_default().extend(rate.map(|rate| (ended, rate)));
        }
        Ok(MeasuredRelays { turns, estimates })
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
        return match circuits {
            0 => "No ordinary circuit through it counts yet.".to_owned(),
            _ => format!(
                "Of {circuits} ordinary circuits through it that count, {bad} failed or were too slow: no suspicion."
            ),
        };
    };
    let place = suspicion.position.map(|position| format!(" as {}", position.in_words()));
    let showed = estimate.map(|estimate| format!("Its estimate is {estimate}, but it "));
    let showed = showed.unwrap_or_else(|| "It ".to_owned());
    format!(
        "{showed}seems not to serve clients{}: between {} and {}, {} of {} ordinary circuits through it failed or were slower than a \
         tenth of what such a path gives, with {} different other relays. In the whole network, {:.1} % of circuits do. An honest relay \
         looks like that in a year with a probability of at most {:.0e}. That is a suspicion and no proof, and changes no weight: the prober's path to it may be broken, or \
         relays with more than a tenth of the prober's choices may frame it.",
        place.unwrap_or_default(),
        utc(suspicion.since_unix_s),
        utc(suspicion.until_unix_s),
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
        let measured = store.measured_relays(ended).expect("read");
        let overlaps = |from, to| measured.overlap(relay(1).rsa, from, to);
        assert!(overlaps(began, began) && overlaps(ended, ended + 9) && overlaps(0, began));
        assert!(!overlaps(0, began - 1) && !overlaps(ended + 1, ended + 9));
        assert!(!measured.overlap(relay(2).rsa, began, ended));
        let path = [relay(1).rsa, relay(2).rsa];
        assert_eq!(measured.slowest_estimate(&path, ended), None, "the other has none");
        assert!(measured.slowest_estimate(&path[..1], ended).is_some());
        let later = store.measured_relays(ended + 1).expect("read");
        assert!(!later.overlap(relay(1).rsa, began, ended));
    }

    #[test]
    fn a_later_estimate_says_nothing_about_an_earlier_circuit() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let mut ends = Vec::new();
        for (day, byte_s) in (0..).zip([1_000_000, 20_000_000]) {
            let turn = closed(relay(1), NOW + day * 86_400, 1, byte_s);
            ends.push((turn.record.ended_unix_s, Rate::from_byte_per_s(byte_s)));
            store.write(&[Entry::Finished(Box::new(turn))]).expect("room");
        }
        let measured = store.measured_relays(0).expect("read");
        let at = |unix_s| measured.slowest_estimate(&[relay(1).rsa], unix_s);
        let [(first, slow), (second, fast)] = ends[..] else { panic!("two turns") };
        assert_eq!([at(0), at(first), at(second - 1)], [Some(slow); 3]);
        assert_eq!([at(second), at(second + 86_400)], [Some(fast); 2]);
    }

    #[test]
    fn a_suspicion_has_its_evidence_and_calls_itself_one() {
        let probed = ProbedRelay { circuits: 30, bad: 12 };
        let suspicion = ServiceSuspicion {
            relay: relay(1).rsa,
            position: Some(HopPosition::Middle),
            since_unix_s: 1_800_000_000,
            until_unix_s: 1_800_086_400,
            circuits: 13,
            bad: 12,
            neighbours: 24,
            network_bad_share: 0.031,
            by_chance: 0.00042,
        };
        let words = explain_service(probed, Some(&suspicion), Some(Rate::from_mbit_per_s(80.0)));
        for part in [
            "Its estimate is 80",
            "not to serve clients as middle hop: between 2027-01-15 08:00 UTC and 2027-01-16 08:00 UTC, 12 of 13 ordinary circuits",
            "with 24 different other relays",
            "3.1 %",
            "at most 4e-4",
            "no proof, and changes no weight",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(explain_service(probed, None, None).contains("Of 30 ordinary circuits"));
        let never = explain_service(ProbedRelay::default(), None, None);
        assert_eq!(never, "No ordinary circuit through it counts yet.");
        let unknown = explain_service(probed, Some(&suspicion), None);
        assert!(unknown.starts_with("It seems not to serve clients"), "{unknown}");
    }
}
