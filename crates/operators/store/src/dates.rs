//! Corrects dates that came from a wrong clock.

use crate::error::StoreError;
use crate::open::Store;
use crate::series;
use crate::write::int;
use coordinator::Record;
use rusqlite::Connection;

/// Times of observations, with the condition that finds those of the future without reading whole tables.
const TIMES: [(&str, &str, &str); 12] = [
    ("measurement", "started_unix_s", "ended_unix_s > ?1 AND started_unix_s > ?1"),
    ("measurement", "started_unix_s", "state = 0 AND started_unix_s > ?1"),
    ("measurement", "started_unix_s", "state = 4 AND started_unix_s > ?1"),
    ("measurement", "ended_unix_s", "ended_unix_s > ?1"),
    ("relay", "first_seen_unix_s", "first_seen_unix_s > ?1"),
    ("relay", "last_seen_unix_s", "last_seen_unix_s > ?1"),
    ("relay", "estimated_unix_s", "estimated_unix_s > ?1"),
    ("relay", "last_ended_unix_s", "last_ended_unix_s > ?1"),
    ("consensus", "seen_unix_s", "seen_unix_s > ?1"),
    ("measurer", "since_unix_s", "since_unix_s > ?1"),
    ("progress", "at_unix_s", "at_unix_s > ?1"),
    ("path", "seen_unix_s", "seen_unix_s > ?1"),
];

impl Store {
    /// Gives dates after `now_unix_s` this time: they came from a clock that was ahead, and nothing was observed later than now.
    /// Removes what its date identifies: bandwidth files and measurers' events of the future, and periods without measurements.
    /// Returns the number of measurements whose dates were wrong.
    ///
    /// Call it only when the present time is known to be right. With a clock that is behind, right dates would become wrong by as
    /// much.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn correct_dates(&mut self, now_unix_s: u64) -> Result<usize, StoreError> {
        let now = int(now_unix_s);
        self.change(|db| {
            correct_records(db, now_unix_s)?;
            let mut measurements = 0;
            for (table, column, condition) in TIMES {
                let sql = format!("UPDATE {table} SET {column} = ?1 WHERE {condition}");
                let changed = db.prepare_cached(&sql)?.execute([now])?;
                if column == "ended_unix_s" {
                    measurements = changed;
                }
            }
            for future in [
                "DELETE FROM bandwidth_file WHERE created_unix_s > ?1",
                "DELETE FROM measurer_event WHERE at_unix_s > ?1",
                "DELETE FROM period WHERE begin_unix_s > ?1
                 AND NOT EXISTS (SELECT 1 FROM measurement WHERE period_unix_s = begin_unix_s)",
            ] {
                db.prepare_cached(future)?.execute([now])?;
            }
            Ok(measurements)
        })
    }
}

/// Corrects the dates in whole records.
fn correct_records(db: &Connection, now_unix_s: u64) -> rusqlite::Result<()> {
    let sql =
        "SELECT d.measurement, d.json FROM measurement m JOIN record d ON d.measurement = m.id
               WHERE m.ended_unix_s > ?1";
    let mut select = db.prepare_cached(sql)?;
    let found = select.query_map([int(now_unix_s)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: Vec<(i64, Vec<u8>)> = found.collect::<rusqlite::Result<_>>()?;
    for (measurement, json) in found {
        // One that cannot be read is not changed.
        let Ok(mut record) = series::inflate::<Record>(&json) else { continue };
        record.ended_unix_s = record.ended_unix_s.min(now_unix_s);
        for round in &mut record.rounds {
            round.started_unix_s = round.started_unix_s.map(|at| at.min(now_unix_s));
        }
        let sql = "UPDATE record SET json = ?2 WHERE measurement = ?1";
        db.prepare_cached(sql)?
            .execute(rusqlite::params![measurement, series::deflate(&record)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{NOW, Scratch, closed, relay};
    use crate::{Entry, MeasurerHealth, MeasurerState, PeriodEntry, PublishedFile, Store};
    use onion::Rate;

    const DAY: u64 = 24 * 3600;

    fn period(begin_unix_s: u64) -> Entry {
        Entry::Period(PeriodEntry { begin_unix_s, length_s: DAY, slot_s: 71, seed: None })
    }

    fn file(created_unix_s: u64) -> Entry {
        let path = "out".to_owned();
        Entry::Published(PublishedFile {
            created_unix_s,
            path,
            lines: 1,
            voted: 1,
            capacity_kb_s: 1,
            scanner_country: None,
        })
    }

    fn health(at_unix_s: u64, capacity: f64) -> Entry {
        Entry::Measurer(MeasurerHealth {
            key: "key".to_owned(),
            place: 0,
            address: "127.0.0.1:1".to_owned(),
            capacity: Rate::from_mbit_per_s(capacity),
            state: MeasurerState::Up,
            detail: String::new(),
            at_unix_s,
        })
    }

    #[test]
    fn nothing_is_dated_after_now_and_nothing_else_is_changed() {
        for ahead in [130, 7200, 3 * DAY, 40 * DAY] {
            let scratch = Scratch::new();
            let mut store = Store::open(&scratch.store).expect("new");
            let measured = |number, at, mbyte: u64| {
                Entry::Finished(Box::new(closed(relay(number), at, 1, mbyte * 1_000_000)))
            };
            let past = [
                period(NOW - DAY),
                measured(1, NOW - DAY, 5),
                measured(2, NOW - DAY, 6),
                file(NOW - 9),
                health(NOW - 9, 1.0),
            ];
            store.write(&past).expect("room");
            let untouched = store.measurements_of(relay(2).rsa, 9).expect("read");
            let wrong = [
                period(NOW + ahead),
                measured(1, NOW + ahead, 7),
                file(NOW + ahead),
                health(NOW + ahead, 2.0),
            ];
            store.write(&wrong).expect("room");
            assert_eq!(store.correct_dates(NOW).expect("room"), 1);
            let last = store.history().expect("read").last(relay(1).rsa).copied().expect("one");
            assert_eq!((last.capacity.as_byte_per_s(), last.measured_unix_s), (7_000_000, NOW));
            let of_one = store.measurements_of(relay(1).rsa, 9).expect("read");
            for measurement in &of_one {
                assert!(
                    measurement.started_unix_s <= NOW && measurement.ended_unix_s <= Some(NOW),
                    "{measurement:?}"
                );
                let record = store.record(measurement.id).expect("read").expect("kept");
                assert_eq!(Some(record.ended_unix_s), measurement.ended_unix_s);
                let starts = record.rounds.iter().filter_map(|round| round.started_unix_s);
                assert!(starts.max() <= Some(NOW));
            }
            assert_eq!(store.measurements_of(relay(2).rsa, 9).expect("read"), untouched);
            let files = store.files(9).expect("read");
            assert_eq!(files.iter().map(|file| file.created_unix_s).collect::<Vec<_>>(), [NOW - 9]);
            assert_eq!(store.measurers(NOW).expect("read")[0].since_unix_s, NOW - 9);
            // The next measurement counts, also within the second.
            store.write([&measured(1, NOW - 140, 4)]).expect("room");
            let last = store.history().expect("read").last(relay(1).rsa).copied().expect("one");
            assert_eq!(last.capacity.as_byte_per_s(), 4_000_000);
            assert_eq!(store.correct_dates(NOW).expect("room"), 0, "once");
            store.check_all().expect("sound");
        }
    }

    #[test]
    fn a_period_of_the_future_without_measurements_is_removed() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        store.write(&[period(NOW - DAY), period(NOW + 3 * DAY)]).expect("room");
        store.correct_dates(NOW).expect("room");
        let left: Vec<u64> = store
            .periods(9)
            .expect("read")
            .iter()
            .map(|period| period.period.begin_unix_s)
            .collect();
        assert_eq!(left, [NOW - DAY]);
    }

    #[test]
    fn the_measurement_made_last_counts_whatever_its_date() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        for (at, mbyte) in [(NOW, 5), (NOW + 40 * DAY, 7), (NOW + 7200, 8), (NOW + 60, 6)] {
            let made = Entry::Finished(Box::new(closed(relay(1), at, 1, mbyte * 1_000_000)));
            store.write([&made]).expect("room");
            let last = store.history().expect("read").last(relay(1).rsa).copied().expect("one");
            assert_eq!(last.capacity.as_byte_per_s(), mbyte * 1_000_000);
            // Written again, it changes nothing.
            store.write([&made]).expect("room");
            let row = store.relay(relay(1).rsa).expect("read").expect("known");
            assert_eq!(row.last_ended_unix_s, Some(at + 140));
        }
    }
}
