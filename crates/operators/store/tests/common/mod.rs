//! The entries that the writing processes write.

#[expect(dead_code, reason = "unit tests use the rest")]
#[path = "../../src/testing.rs"]
mod testing;

use coordinator::End;
use onion::Rate;
use std::path::{Path, PathBuf};
use store::{MeasurementFinished, MeasurementStarted};

pub(crate) use testing::{NOW, relay};

/// The file that SQLite keeps next to the database under this suffix.
pub(crate) fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The measurement with this number, of one of seven relays, in a separate period.
pub(crate) fn closed(number: u32) -> MeasurementFinished {
    let bytes_s = 1_000_000 + u64::from(number);
    let ids = relay(u8::try_from(number % 7).expect("below seven"));
    let period_unix_s = NOW + u64::from(number);
    let begun = testing::begun(ids, period_unix_s, 1);
    let begun = MeasurementStarted { slot: Some(number), started_unix_s: period_unix_s, ..begun };
    let capacity = Rate::from_byte_per_s(bytes_s);
    testing::with_end(begun, bytes_s, End::Measured { capacity, round: 1, inconclusive: None })
}
