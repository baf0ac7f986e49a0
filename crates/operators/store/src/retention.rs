//! Removes old data.

use crate::error::StoreError;
use crate::open::Store;
use crate::write::int;
use rusqlite::params;

/// The retention times, in days; zero: forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Whole records, with each kernel's account: some kilobytes for each measurement.
    pub records_days: u32,
    /// Measurements with their seconds: some hundred bytes for each. A relay's last estimate is kept as long as the
    /// relay.
    pub measurements_days: u32,
}

impl Default for Retention {
    /// A month of records, and two years of measurements.
    fn default() -> Self {
        Self { records_days: 30, measurements_days: 730 }
    }
}

/// The removed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Whole records.
    pub records: usize,
    /// Measurements.
    pub measurements: usize,
    /// Relays without measurements that have not been listed for the same time.
    pub relays: usize,
    /// Whether all that is old was removed: a call removes only some thousand rows.
    pub is_all: bool,
}

/// The maximum number of rows of each kind that one call removes, so that readers and the writer do not wait longer.
const BATCH: usize = 5000;

/// Records that ended before a time, up to a number of them.
pub(crate) const OLD_RECORDS: &str = "DELETE FROM record WHERE measurement IN
    (SELECT measurement FROM record WHERE ended_unix_s < ?1 LIMIT ?2)";

impl Store {
    /// Removes some old data. Call it again later if there is more.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn remove_old(
        &mut self,
        retention: Retention,
        now_unix_s: u64,
    ) -> Result<Removed, StoreError> {
        let before = |days: u32| {
            let kept_s = u64::from(days) * 24 * 3600;
            // With zero days no row is old.
            if days == 0 { 0 } else { int(now_unix_s.saturating_sub(kept_s)) }
        };
        let batch = int(BATCH as u64);
        let (records, measurements) =
            (before(retention.records_days), before(retention.measurements_days));
        let removed = self.change(|db| {
            let records = db.execute(OLD_RECORDS, [records, batch])?;
            let old = "DELETE FROM measurement WHERE id IN (SELECT id FROM measurement
                       WHERE ended_unix_s < ?1 OR (state = 4 AND started_unix_s < ?1) LIMIT ?2)";
            let gone = db.execute(old, [measurements, batch])?;
            for (table, time) in [
                ("period", "begin_unix_s"),
                ("consensus", "valid_after_unix_s"),
                ("bandwidth_file", "created_unix_s"),
                ("measurer_event", "at_unix_s"),
                ("path", "seen_unix_s"),
            ] {
                db.execute(&format!("DELETE FROM {table} WHERE {time} < ?1"), [measurements])?;
            }
            let strangers = "DELETE FROM relay WHERE last_seen_unix_s < ?1
                             AND NOT EXISTS (SELECT 1 FROM measurement m WHERE m.relay = relay.id)";
            let relays = db.execute(strangers, params![measurements])?;
            let is_all = records < BATCH && gone < BATCH;
            Ok(Removed { records, measurements: gone, relays, is_all })
        })?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, Scratch, closed, relay};
    use crate::{Entry, schema};

    const DAY: u64 = 24 * 3600;

    #[test]
    fn old_measurements_are_removed_and_the_last_estimate_is_kept() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        for days_ago in [800, 100, 1] {
            let at = NOW - days_ago * DAY;
            let entry = Entry::Finished(Box::new(closed(relay(1), at, 1, 5_000_000)));
            store.write([&entry]).expect("room");
        }
        let removed_relay =
            Entry::Finished(Box::new(closed(relay(2), NOW - 900 * DAY, 1, 1_000_000)));
        store.write([&removed_relay]).expect("room");
        let kept = store.remove_old(Retention { records_days: 0, measurements_days: 0 }, NOW);
        assert_eq!(kept.expect("room"), Removed { is_all: true, ..Removed::default() });
        let removed = store.remove_old(Retention::default(), NOW).expect("room");
        // Records are removed with their measurements, too.
        assert_eq!(removed, Removed { records: 3, measurements: 2, relays: 1, is_all: true });
        let left = store.measurements_of(relay(1).rsa, 10).expect("read");
        assert_eq!(left.len(), 2);
        assert!(store.record(left[0].id).expect("read").is_some());
        assert!(store.record(left[1].id).expect("read").is_none());
        assert!(!left[1].seconds.is_empty(), "the seconds are kept longer");
        let history = store.history().expect("read");
        assert!(history.last(relay(1).rsa).is_some() && history.last(relay(2).rsa).is_none());
        store.check_all().expect("sound");
    }

    #[test]
    fn records_of_an_earlier_schema_are_removed_by_the_dates_of_their_measurements() {
        let scratch = Scratch::new();
        let old = schema::create(&scratch.store, 6).expect("room");
        let at = |days_ago: u64| NOW - days_ago * DAY;
        old.execute_batch(&format!(
            "INSERT INTO relay (id, rsa, nickname, address, first_seen_unix_s, last_seen_unix_s)
             VALUES (1, zeroblob(20), 'old', '', {first}, {last});
             INSERT INTO measurement (id, relay, period_unix_s, number, started_unix_s, ended_unix_s, state)
             VALUES (1, 1, {first}, 1, {first}, {first}, 1), (2, 1, {last}, 1, {last}, {last}, 1);
             INSERT INTO record (measurement, json) VALUES (1, x''), (2, x'');",
            first = at(31),
            last = at(29)
        ))
        .expect("room");
        drop(old);
        let mut store = Store::open(&scratch.store).expect("migrated");
        let removed = store.remove_old(Retention::default(), NOW).expect("room");
        assert_eq!(removed, Removed { records: 1, is_all: true, ..Removed::default() });
        let left =
            store.reader.all("SELECT measurement FROM record", [], |row| row.get::<_, i64>(0));
        assert_eq!(left.expect("read"), [2]);
    }
}
