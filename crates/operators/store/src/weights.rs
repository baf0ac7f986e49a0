//! Capacities and consensus weights, over time and by relay, and each measurer's observations of its paths.

use crate::error::StoreError;
use crate::open::Reader;
use crate::read::{path_seen, rate, rsa, time};
use crate::schema::{self, WITH_PATHS, WITH_WEIGHTS};
use crate::write::int;
use coordinator::PathSeen;
use onion::Rate;
use onion::identity::RsaId;
use std::collections::BTreeMap;

/// A sum over all relays at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// The time.
    pub at_unix_s: u64,
    /// The sum.
    pub sum: Rate,
}

/// A relay with an estimate and a weight in the newest consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// Its nickname.
    pub nickname: String,
    /// Its last estimate.
    pub capacity: Rate,
    /// Whether that estimate is conclusive, if known.
    pub is_conclusive: Option<bool>,
    /// Its weight.
    pub weight: Rate,
}

/// A measurer's observation of its path to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRow {
    /// The relay.
    pub relay: RsaId,
    /// Its nickname.
    pub nickname: String,
    /// The observation.
    pub path: PathSeen,
    /// The time of the observation.
    pub seen_unix_s: u64,
}

impl Reader {
    /// Whether the schema has at least this version. A dashboard may run before the coordinator has migrated the store.
    pub(crate) fn has(&self, version: i64) -> Result<bool, StoreError> {
        let of = |source| StoreError::of(&self.path, source);
        Ok(schema::layout(&self.db).map_err(of)? >= version)
    }

    /// The mean round-trip time from the measurers to each relay, in milliseconds.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn mean_round_trips_ms(&self) -> Result<BTreeMap<RsaId, f64>, StoreError> {
        if !self.has(WITH_PATHS)? {
            return Ok(BTreeMap::new());
        }
        let sql = "SELECT r.rsa, avg(p.rtt_us) / 1000.0 FROM path p JOIN relay r ON r.id = p.relay
                   WHERE p.rtt_us IS NOT NULL GROUP BY p.relay";
        let means = self.all(sql, [], |row| Ok((rsa(row, 0)?, row.get(1)?)))?;
        Ok(means.into_iter().collect())
    }

    /// The capacities in the bandwidth files since a time, and the weights in the consensuses.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn totals(&self, since_unix_s: u64) -> Result<[Vec<Total>; 2], StoreError> {
        if !self.has(WITH_WEIGHTS)? {
            return Ok(Default::default());
        }
        let files = "SELECT created_unix_s, capacity_kb_s FROM bandwidth_file
                     WHERE created_unix_s >= ?1 AND capacity_kb_s IS NOT NULL ORDER BY 1";
        let consensuses = "SELECT valid_after_unix_s, weight_kb_s FROM consensus
                           WHERE valid_after_unix_s >= ?1 AND weight_kb_s > 0 ORDER BY 1";
        let total = |sql| {
            self.all(sql, [int(since_unix_s)], |row| {
                let sum = Rate::from_byte_per_s(time(row, 1)?.saturating_mul(1000));
                Ok(Total { at_unix_s: time(row, 0)?, sum })
            })
        };
        Ok([total(files)?, total(consensuses)?])
    }

    /// The relays with an estimate and a weight.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn weighed(&self) -> Result<Vec<Weighed>, StoreError> {
        if !self.has(WITH_WEIGHTS)? {
            return Ok(Vec::new());
        }
        let sql = "SELECT nickname, capacity_byte_s, is_conclusive, weight_kb_s FROM relay
                   WHERE capacity_byte_s > 0 AND weight_kb_s > 0 ORDER BY id";
        self.all(sql, [], |row| {
            Ok(Weighed {
                nickname: row.get(0)?,
                capacity: rate(row, 1)?.unwrap_or_default(),
                is_conclusive: row.get(2)?,
                weight: Rate::from_byte_per_s(time(row, 3)?.saturating_mul(1000)),
            })
        })
    }

    /// A measurer's paths, by its public key: those with the most loss first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn paths_of(&self, measurer: &str) -> Result<Vec<PathRow>, StoreError> {
        if !self.has(WITH_PATHS)? {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT r.rsa, r.nickname, p.seen_unix_s, p.rtt_us, p.loss_ppm, p.held_back_byte_s
                   FROM path p JOIN relay r ON r.id = p.relay WHERE p.measurer = ?1
                   ORDER BY p.loss_ppm DESC, p.rtt_us DESC, r.id";
        self.all(sql, [measurer], |row| {
            let (relay, nickname, seen_unix_s) = (rsa(row, 0)?, row.get(1)?, time(row, 2)?);
            Ok(PathRow { relay, nickname, path: path_seen(row, 3)?, seen_unix_s })
        })
    }
}
