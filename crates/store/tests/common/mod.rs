//! What the writers write.

use coordinator::{
    Account, Allocation, Assignment, End, MeasurerId, Mode, Params, Record, RoundRecord, Schedule,
    SecondRecord, Subject,
};
use onion::identity::{RelayIds, RsaId};
use onion::{Duration, Rate};
use std::path::{Path, PathBuf};
use store::{Begun, Closed};

pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) const fn relay(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: None }
}

/// A file of SQLite's beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The one with this number: of one of seven relays, in a period of its own.
pub(crate) fn closed(number: u32) -> Closed {
    let capacity = Rate::from_byte_per_s(1_000_000 + u64::from(number));
    let period_unix_s = NOW + u64::from(number);
    let begun = Begun {
        ids: relay(u8::try_from(number % 7).expect("below seven")),
        nickname: "some".to_owned(),
        address: ([127, 0, 0, 1], 9001).into(),
        period_unix_s,
        number: 1,
        slot: Some(number),
        started_unix_s: period_unix_s,
    };
    let account = Account {
        sockets: 10,
        elapsed: Duration::from_secs(1),
        sent_bytes: 1_000_000 + u64::from(number),
        ..Account::default()
    };
    let seconds = (0..5).map(|second| SecondRecord {
        second,
        returned_bytes: vec![Some(capacity.as_byte_per_s() + u64::from(second))],
        client_bytes: None,
        relay_said: None,
        accounts: vec![Some(account)],
    });
    let rate = capacity + capacity + capacity;
    let assignment = Assignment { measurer: MeasurerId(0), rate, sockets: 10 };
    let round = RoundRecord {
        number: 1,
        guess: capacity,
        allocation: Allocation { assignments: vec![assignment], needed: rate, available: rate },
        schedule: Schedule::PLAIN,
        started_unix_s: Some(period_unix_s),
        checked_cells: 100,
        hindered: Vec::new(),
        seconds: seconds.collect(),
    };
    let record = Record {
        relay: Subject {
            nickname: begun.nickname.clone(),
            ids: begun.ids,
            address: begun.address,
            limit: None,
        },
        ended_unix_s: period_unix_s + 40,
        mode: Mode::Transit,
        params: Params { seconds: 5, ..Params::default() },
        rounds: vec![round],
        processor: None,
        end: End::Measured { capacity, round: 1, inconclusive: None },
    };
    Closed { begun, record, follows: None, is_final: true }
}
