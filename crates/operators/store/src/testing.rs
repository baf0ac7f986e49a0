//! Entries for tests.

use crate::{MeasurementFinished, MeasurementStarted};
use coordinator::{
    Account, Allocation, Assignment, End, Failure, MeasurerId, Mode, Params, Record, RoundRecord,
    Schedule, SecondRecord,
};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::{Duration, Rate};
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) struct Scratch {
    pub(crate) folder: TempDir,
    pub(crate) store: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store.db");
        Self { folder, store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub(crate) fn relay(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: Some(Ed25519Id([number; 32])) }
}

pub(crate) fn begun(ids: RelayIds, period_unix_s: u64, number: u32) -> MeasurementStarted {
    MeasurementStarted {
        ids,
        nickname: format!("relay{}", ids.rsa.0[0]),
        address: ([127, 0, 0, 1], 9001).into(),
        period_unix_s,
        number,
        slot: Some(7),
        started_unix_s: period_unix_s + 100 * u64::from(number),
    }
}

/// A turn in a period, with an estimate.
pub(crate) fn closed(
    ids: RelayIds,
    period_unix_s: u64,
    number: u32,
    bytes_s: u64,
) -> MeasurementFinished {
    let end = End::Measured {
        capacity: Rate::from_byte_per_s(bytes_s),
        round: number,
        inconclusive: None,
    };
    with_end(begun(ids, period_unix_s, number), bytes_s, end)
}

/// A failed measurement.
pub(crate) fn failed(
    ids: RelayIds,
    period_unix_s: u64,
    number: u32,
    reason: Failure,
) -> MeasurementFinished {
    let end = End::Failed { reason, measurer: None, round: number, second: Some(2) };
    with_end(begun(ids, period_unix_s, number), 1_000_000, end)
}

pub(crate) fn with_end(begun: MeasurementStarted, bytes_s: u64, end: End) -> MeasurementFinished {
    let account = Account {
        sockets: 10,
        elapsed: Duration::from_secs(1),
        outstanding_bytes: 1_000_000,
        unacked_bytes: 900_000,
        ..Account::default()
    };
    let seconds = (0..5).map(|second| SecondRecord {
        second,
        returned_bytes: vec![Some(bytes_s)],
        client_bytes: None,
        relay_reported: None,
        accounts: vec![Some(account)],
    });
    let assignment = Assignment {
        measurer: MeasurerId(0),
        rate: Rate::from_byte_per_s(3 * bytes_s),
        sockets: 10,
    };
    let round = RoundRecord {
        number: begun.number,
        guess: Rate::from_byte_per_s(bytes_s),
        allocation: Allocation {
            assignments: vec![assignment],
            needed: Rate::from_byte_per_s(3 * bytes_s),
            available: Rate::from_byte_per_s(3 * bytes_s),
        },
        schedule: Schedule::PLAIN,
        started_unix_s: Some(begun.started_unix_s),
        checked_cells: 100,
        bottlenecks: Vec::new(),
        seconds: seconds.collect(),
    };
    let record = Record {
        relay: begun.subject(),
        ended_unix_s: begun.started_unix_s + 40,
        mode: Mode::Transit,
        params: Params { seconds: 5, ..Params::default() },
        rounds: vec![round],
        processor: None,
        shared: None,
        end,
    };
    MeasurementFinished { begun, record, follows: None, is_final: true, paths: Vec::new() }
}
