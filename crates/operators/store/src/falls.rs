//! Relays whose estimates have fallen sharply.

use crate::error::StoreError;
use crate::open::Reader;
use crate::read::{rate, rsa};
use crate::write::int;
use onion::Rate;
use onion::identity::RsaId;
use rusqlite::params;

/// Estimates of this time before the last one are recent.
const RECENT_S: u64 = 7 * 24 * 3600;

/// The last estimates of a day and the largest of the time before. The index `measurement_by_end` has all columns of `recent`.
const FALLS: &str = "WITH recent AS MATERIALIZED (SELECT id, relay, ended_unix_s AS ended, capacity_byte_s AS capacity
                     FROM measurement WHERE ended_unix_s > ?1 - ?2 AND is_final),
                   last AS (SELECT relay, max(id) AS id, ended, capacity FROM recent
                     WHERE ended > ?1 AND capacity > 0 GROUP BY relay)
                   SELECT r.rsa, r.nickname, last.capacity AS now, max(p.capacity) AS before
                   FROM last JOIN recent p ON p.relay = last.relay AND p.id < last.id AND p.ended > last.ended - ?2
                   JOIN relay r ON r.id = last.relay GROUP BY r.id HAVING before IS NOT NULL ORDER BY before - now DESC, r.id";

/// Relays that were measured within a day, and those that fell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Falls {
    /// The number of relays with a final estimate of the last 24 hours, and a recent one before.
    pub compared: u64,
    /// Those whose last estimate is more than a third below the largest recent one. Those that lost most come first.
    pub fallen: Vec<Fall>,
}

/// A relay whose last estimate is more than a third below its recent ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fall {
    /// The relay.
    pub relay: RsaId,
    /// Its nickname.
    pub nickname: String,
    /// The last estimate.
    pub last: Rate,
    /// The largest of the week before that.
    pub recent: Rate,
}

impl Reader {
    /// The relays that were measured within a day, compared with the week before.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn falls(&self, now_unix_s: u64) -> Result<Falls, StoreError> {
        let day = int(now_unix_s.saturating_sub(24 * 3600));
        let all = self.all(FALLS, params![day, int(RECENT_S)], |row| {
            Ok(Fall {
                relay: rsa(row, 0)?,
                nickname: row.get(1)?,
                last: rate(row, 2)?.unwrap_or_default(),
                recent: rate(row, 3)?.unwrap_or_default(),
            })
        })?;
        let compared = all.len() as u64;
        let has_fallen = |fall: &Fall| {
            let (last, recent) = (fall.last.as_byte_per_s(), fall.recent.as_byte_per_s());
            last.saturating_mul(3) < recent.saturating_mul(2)
        };
        Ok(Falls { compared, fallen: all.into_iter().filter(has_fallen).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retention::OLD_RECORDS;
    use crate::testing::{NOW, Scratch, closed, relay};
    use crate::{Entry, Store};

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_relay_has_fallen_if_it_is_a_third_below_the_best_of_a_week() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let mut measured = |number, days_ago: u64, kbyte: u64, is_final| {
            let made = closed(relay(number), NOW - days_ago * DAY - 1000, 1, kbyte * 1000);
            let made = crate::MeasurementFinished { is_final, ..made };
            store.write([&Entry::Finished(Box::new(made))]).expect("room");
        };
        // Slowly, in a day, not yet, at first, long ago, and one with a turn that is to follow.
        for (number, history) in [
            (1, &[(3, 900), (2, 800), (1, 700), (0, 590)][..]),
            (2, &[(1, 900), (0, 599)]),
            (3, &[(1, 900), (0, 600)]),
            (4, &[(0, 100)]),
            // Longer ago than a week before the last one, and within a week of today's first second.
            (5, &[(7, 900), (0, 100)]),
            (6, &[(2, 900), (1, 100)]),
        ] {
            for (days_ago, kbyte) in history {
                measured(number, *days_ago, *kbyte, true);
            }
        }
        measured(7, 1, 900, true);
        measured(7, 0, 100, false);
        let Falls { compared, fallen } = store.falls(NOW).expect("read");
        assert_eq!(compared, 3);
        let fallen: Vec<_> = fallen
            .iter()
            .map(|fall| {
                (fall.nickname.as_str(), fall.last.as_byte_per_s(), fall.recent.as_byte_per_s())
            })
            .collect();
        assert_eq!(fallen, [("relay1", 590_000, 900_000), ("relay2", 599_000, 900_000)]);
    }

    #[test]
    fn estimates_of_a_week_are_read_from_the_index_alone() {
        let scratch = Scratch::new();
        let store = Store::open(&scratch.store).expect("new");
        let plan = |sql: &str| {
            let steps = store
                .reader
                .all(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get::<_, String>(3));
            steps.expect("planned").join("\n")
        };
        let recent = plan(&FALLS.replace("?1", "2").replace("?2", "1"));
        assert!(recent.contains("measurement USING COVERING INDEX measurement_by_end"), "{recent}");
        let old = plan(&OLD_RECORDS.replace("?1", "1").replace("?2", "1"));
        assert!(old.contains("record USING COVERING INDEX record_by_end"), "{old}");
    }
}
