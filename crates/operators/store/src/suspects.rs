//! Relays that may share a machine, by their measurements.

use crate::error::StoreError;
use crate::open::Reader;
use crate::read::{rate, rsa, time};
use crate::schema;
use crate::write::int;
use coordinator::{CoLocationTest, Suspicion};
use onion::Rate;
use onion::identity::RsaId;
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

/// Two relays that may share a machine, with their nicknames.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The relays, and the evidence.
    pub suspicion: Suspicion,
    /// Their nicknames, in the same order.
    pub nicknames: (String, String),
}

impl Suspect {
    /// The other relay of the pair.
    #[must_use]
    pub fn other(&self, relay: RsaId) -> (RsaId, &str) {
        let (one, other) = self.suspicion.relays;
        if relay == one { (other, &self.nicknames.1) } else { (one, &self.nicknames.0) }
    }
}

impl Reader {
    /// A test with the moves of all relays' estimates between periods, among the newest finished periods that fit. Only conclusive
    /// estimates count. Ends early, with a partial result, if the callback returns `false`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn co_location_test(
        &self,
        before_unix_s: u64,
        mut should_continue: impl FnMut() -> bool,
    ) -> Result<CoLocationTest, StoreError> {
        let mut test = CoLocationTest::default();
        for (first, second) in self.pairs_of_periods(before_unix_s)? {
            if !should_continue() {
                break;
            }
            // For a relay that was measured again with its machine, the last estimate counts.
            let sql = "WITH latest AS (SELECT relay, period_unix_s, max(number) AS number FROM measurement
                           WHERE period_unix_s IN (?1, ?2) AND state = 1 AND is_final GROUP BY relay, period_unix_s)
                       SELECT r.rsa, a.capacity_byte_s, b.capacity_byte_s FROM latest one
                       JOIN latest two ON two.relay = one.relay AND two.period_unix_s = ?2
                       JOIN measurement a ON a.relay = one.relay AND a.period_unix_s = ?1 AND a.number = one.number
                       JOIN measurement b ON b.relay = one.relay AND b.period_unix_s = ?2 AND b.number = two.number
                       JOIN relay r ON r.id = one.relay WHERE one.period_unix_s = ?1";
            let both = |row: &Row<'_>| {
                let rate = |column| rate(row, column).map(Option::unwrap_or_default);
                Ok((rsa(row, 0)?, rate(1)?, rate(2)?))
            };
            let found: Vec<(RsaId, Rate, Rate)> = self.all(sql, [int(first), int(second)], both)?;
            test.add(&found);
        }
        Ok(test)
    }

    /// Pairs of consecutive periods, each period in one pair. The pairs depend on the time alone: otherwise each new
    /// period would change all of them.
    fn pairs_of_periods(&self, before_unix_s: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let most = 2 * CoLocationTest::PAIRS_OF_PERIODS_MAX + 1;
        let sql = "SELECT begin_unix_s, length_s FROM period WHERE begin_unix_s + length_s <= ?1
                   ORDER BY begin_unix_s DESC LIMIT ?2";
        let period = |row: &Row<'_>| Ok((time(row, 0)?, time(row, 1)?));
        let periods = self.all(sql, [int(before_unix_s), i64::from(most)], period)?;
        let by_number: BTreeMap<(u64, u64), u64> = periods
            .into_iter()
            .filter(|(_, length)| *length > 0)
            .map(|(begin, length)| ((length, begin / length), begin))
            .collect();
        let second = |((length, number), first): (&(u64, u64), &u64)| {
            let second = by_number.get(&(*length, number + 1))?;
            number.is_multiple_of(2).then_some((*first, *second))
        };
        Ok(by_number.iter().filter_map(second).collect())
    }

    /// The relays that may share a machine, by the last test, the most likely first: with this relay, or all.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn suspects(&self, relay: Option<RsaId>) -> Result<Vec<Suspect>, StoreError> {
        if !self.has(schema::WITH_SUSPICIONS)? {
            return Ok(Vec::new());
        }
        let sql = "SELECT s.one, s.other, s.moves, s.alike, s.by_chance, coalesce(a.nickname, ''), coalesce(b.nickname, '')
                   FROM suspicion s LEFT JOIN relay a ON a.rsa = s.one LEFT JOIN relay b ON b.rsa = s.other
                   WHERE ?1 IS NULL OR s.one = ?1 OR s.other = ?1 ORDER BY s.by_chance, s.one, s.other";
        let suspect = |row: &Row<'_>| {
            let relays = (rsa(row, 0)?, rsa(row, 1)?);
            let (moves, alike, by_chance) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let suspicion = Suspicion { relays, moves, alike, by_chance };
            Ok(Suspect { suspicion, nicknames: (row.get(5)?, row.get(6)?) })
        };
        self.all(sql, params![relay.map(|relay| relay.0.to_vec())], suspect)
    }
}

/// Replaces the earlier suspicions.
pub(crate) fn write(db: &Connection, suspicions: &[Suspicion]) -> rusqlite::Result<()> {
    db.execute("DELETE FROM suspicion", [])?;
    let sql = "INSERT OR REPLACE INTO suspicion (one, other, moves, alike, by_chance) VALUES (?1, ?2, ?3, ?4, ?5)";
    for Suspicion { relays: (one, other), moves, alike, by_chance } in suspicions {
        let values = params![&one.0[..], &other.0[..], moves, alike, by_chance];
        db.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, Scratch, closed, relay, with_end};
    use crate::{Entry, MeasurementFinished, PeriodEntry, Store};
    use coordinator::{End, Inconclusive};

    const DAY: u64 = 24 * 3600;
    const RELAYS: u8 = 30;

    /// A pseudorandom number, equal in each run.
    fn drawn(relay: u8, day: u64) -> u64 {
        let mixed = ((u64::from(relay) << 32) | day).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    }

    fn fill(store: &mut Store, days: u64, measured: impl Fn(u8, u64) -> MeasurementFinished) {
        for day in 0..days {
            let (begin_unix_s, length_s) = (first() + day * DAY, DAY);
            let period = PeriodEntry { begin_unix_s, length_s, slot_s: 71, seed: None };
            let entries =
                (1..=RELAYS).map(|number| Entry::Finished(Box::new(measured(number, day))));
            let entries: Vec<Entry> = entries.chain([Entry::Period(period)]).collect();
            store.write(&entries).expect("room");
        }
    }

    /// The beginning of an even day.
    fn first() -> u64 {
        NOW - NOW % (2 * DAY)
    }

    /// Relays 1 and 2 share a machine, and 2 has a third of relay 1's capacity.
    fn shared(number: u8, day: u64) -> MeasurementFinished {
        let (machine, part) = if number == 2 { (1, 3) } else { (number, 1) };
        let bytes = (20_000_000 + drawn(machine, day) % 9_000_000) / part;
        closed(relay(number), first() + day * DAY, 1, bytes)
    }

    #[test]
    fn relays_that_move_together_are_suspected_and_the_suspicion_is_stored() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        fill(&mut store, 101, shared);
        let after = first() + 102 * DAY;
        let test = store.co_location_test(after, || true).expect("read");
        let found = test.suspicions(|_, _| false);
        assert_eq!(found.len(), 1, "{found:?}");
        let pair = (relay(1).rsa, relay(2).rsa);
        assert_eq!((found[0].relays, found[0].alike == found[0].moves), (pair, true));
        assert!((40..=50).contains(&found[0].moves), "a middle one has not moved: {found:?}");
        // Writing it twice has no further effect.
        let entry = Entry::Suspicions(found.clone());
        store.write([&entry, &entry]).expect("room");
        for of in [None, Some(relay(1).rsa), Some(relay(2).rsa)] {
            let read = store.suspects(of).expect("read");
            assert_eq!(read.len(), 1);
            assert_eq!(read[0].suspicion, found[0]);
            assert_eq!(read[0].other(relay(1).rsa), (relay(2).rsa, "relay2"));
            assert_eq!(read[0].other(relay(2).rsa), (relay(1).rsa, "relay1"));
        }
        assert_eq!(store.suspects(Some(relay(3).rsa)).expect("read"), []);
        store.write([&Entry::Suspicions(Vec::new())]).expect("room");
        assert_eq!(store.suspects(None).expect("read"), []);
        // A test that ends at once has read nothing, and an unfinished period does not count.
        for (at, should_continue) in [(after, false), (first() + DAY, true)] {
            let none = store.co_location_test(at, || should_continue).expect("read");
            assert_eq!(none.suspicions(|_, _| false), []);
        }
    }

    #[test]
    fn only_the_last_turn_of_a_relay_in_a_period_counts() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        // The first turn's value is neither up nor down.
        fill(&mut store, 101, |number, day| match number {
            1 => closed(relay(1), first() + day * DAY, 1, 90_000_000),
            _ => shared(number, day),
        });
        for day in 0..101 {
            let MeasurementFinished { record, .. } = shared(1, day);
            let bytes = record.capacity().expect("measured").as_byte_per_s();
            let again = closed(relay(1), first() + day * DAY, 2, bytes);
            store.write(&[Entry::Finished(Box::new(again))]).expect("room");
        }
        let test = store.co_location_test(first() + 102 * DAY, || true).expect("read");
        let found = test.suspicions(|_, _| false);
        let pairs: Vec<_> = found
            .iter()
            .map(|suspicion| (suspicion.relays, suspicion.alike == suspicion.moves))
            .collect();
        assert_eq!(pairs, [((relay(1).rsa, relay(2).rsa), true)]);
    }

    #[test]
    fn lower_bounds_do_not_count() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        fill(&mut store, 101, |number, day| {
            let MeasurementFinished { begun, record, .. } = shared(number, day);
            let capacity = record.capacity().expect("measured");
            let inconclusive = Some(Inconclusive::RoundLimit { rounds: 2 });
            let end = End::Measured { capacity, round: 1, inconclusive };
            with_end(begun, capacity.as_byte_per_s(), end)
        });
        let test = store.co_location_test(first() + 102 * DAY, || true).expect("read");
        assert_eq!(test.suspicions(|_, _| false), []);
    }

    #[test]
    fn a_store_of_an_older_schema_version_has_no_suspicions_until_it_is_migrated() {
        let scratch = Scratch::new();
        drop(schema::create(&scratch.store, 1).expect("room"));
        let reader = Reader::open(&scratch.store).expect("an older schema version can be read");
        assert_eq!(reader.suspects(None).expect("read"), []);
        drop(reader);
        let mut store = Store::open(&scratch.store).expect("migrated");
        let suspicion = Suspicion {
            relays: (relay(1).rsa, relay(2).rsa),
            moves: 9,
            alike: 9,
            by_chance: 0.001,
        };
        store.write([&Entry::Suspicions(vec![suspicion])]).expect("room");
        let read = store.suspects(None).expect("read");
        assert_eq!(read[0].nicknames, (String::new(), String::new()), "relays that are gone");
        store.check_all().expect("sound");
    }
}
