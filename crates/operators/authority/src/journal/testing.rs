//! Relays and records for tests.

use coordinator::journal::{Entry, MeasurementFinished, MeasurementStarted, PathEntry};
use coordinator::{
    Account, Allocation, Assignment, Failure, MeasurerId, Mode, Params, Record, RoundRecord,
    Schedule, SecondRecord,
};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};

pub(super) const NOW: u64 = 1_800_000_000;

pub(super) const fn id(number: u8) -> RsaId {
    RsaId([number; 20])
}

/// The relay's measurement of this number in the period that began at [`NOW`].
pub(super) fn started(relay: u8, number: u32, slot: Option<u32>) -> MeasurementStarted {
    MeasurementStarted {
        ids: RelayIds { rsa: id(relay), ed25519: None },
        nickname: format!("relay{relay}"),
        address: ([127, 0, 0, 1], 9001).into(),
        period_unix_s: NOW,
        number,
        slot,
        started_unix_s: NOW,
    }
}

/// Its end, by a team with these keys.
pub(super) fn finished(begun: MeasurementStarted, record: Record, team: &[String]) -> Entry {
    let is_final = !matches!(record.failure(), Some(Failure::Cancelled));
    let (relay, seen_unix_s) = (begun.relay(), record.ended_unix_s);
    let path = |(measurer, path): (MeasurerId, _)| {
        let measurer = team.get(measurer.0)?.clone();
        Some(PathEntry { relay, measurer, path, seen_unix_s })
    };
    let paths = record.paths().into_iter().filter_map(path).collect();
    Entry::Finished(Box::new(MeasurementFinished { begun, record, follows: None, is_final, paths }))
}

pub(super) fn record(relay: u8, end: coordinator::End) -> Record {
    Record {
        relay: started(relay, 1, None).subject(),
        ended_unix_s: NOW + 40,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end,
    }
}

/// The record with a round, by measurers with these round trips.
pub(super) fn seen_by(record: Record, rtts_ms: &[u64]) -> Record {
    let assignment = |measurer| Assignment {
        measurer: MeasurerId(measurer),
        rate: Rate::from_mbit_per_s(50.0),
        sockets: 4,
    };
    let account = |rtt_ms: &u64| {
        let min_rtt = Some(onion::Duration::from_millis(*rtt_ms));
        Some(Account { min_rtt, ..Account::default() })
    };
    let second = |second| SecondRecord {
        second,
        returned_bytes: vec![Some(1_000_000); rtts_ms.len()],
        client_bytes: None,
        relay_reported: None,
        accounts: rtts_ms.iter().map(account).collect(),
    };
    let needed = Rate::from_mbit_per_s(100.0);
    let assignments = (0..rtts_ms.len()).map(assignment).collect();
    let round = RoundRecord {
        number: 1,
        guess: needed,
        allocation: Allocation { assignments, needed, available: needed },
        schedule: Schedule::PLAIN,
        started_unix_s: None,
        checked_cells: 0,
        bottlenecks: Vec::new(),
        seconds: (0..record.params.seconds).map(second).collect(),
    };
    Record { rounds: vec![round], ..record }
}

pub(super) fn measured() -> coordinator::End {
    let capacity = Rate::from_mbit_per_s(30.0);
    coordinator::End::Measured { capacity, round: 1, inconclusive: None }
}
