//! The authors' own data of their speed test: the folder `speedtest-2019` that docs/archives.md describes.

use super::{changes, source};
use crate::dataset::{Imported, Writer};
use crate::error::ArchiveError;
use crate::rows::{Campaign, NETWORK, NetworkHour, Relays, Variation};
use netdoc::RsaId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum decompressed size of a file.
const FILE_MAX: u64 = 1 << 28;
/// Beginning and end of the test in Unix time, from the authors' scripts.
const STARTED_UNIX_S: u32 = 1_565_123_400;
const ENDED_UNIX_S: u32 = 1_565_307_900;
/// The keys of the hourly file are valid-after times in UTC that were read as the authors' local time, which was UTC−4.
const KEY_OFFSET_S: u32 = 4 * 3600;
/// The year of the variations began on 2018-08-01.
const YEAR_UNIX_S: u32 = 1_533_081_600;

#[derive(Deserialize)]
struct Change {
    weight: Pair<f64>,
    advbw: Pair<f64>,
}

#[derive(Deserialize)]
struct Pair<T> {
    before: T,
    after: T,
}

#[derive(Deserialize)]
struct Hour {
    total: f64,
    measured: f64,
    unmeasured: f64,
}

pub(super) fn import(
    folder: &Path,
    writer: &mut Writer,
    relays: &mut Relays,
    entry: &mut Imported,
    new_rows: &mut u64,
) -> Result<(), ArchiveError> {
    let mut changes: BTreeMap<RsaId, Change> = file(folder, "speedtest.diffs.json")?;
    let measured: BTreeSet<RsaId> = file(folder, "speedtest.measured.json")?;
    let mut campaigns = Vec::new();
    let all: BTreeSet<RsaId> = changes.keys().chain(&measured).copied().collect();
    for fingerprint in all {
        let change = changes.remove(&fingerprint);
        let share = |value: fn(&Change) -> f64| change.as_ref().map(value);
        campaigns.push(Campaign {
            relay: relays.id(fingerprint),
            started_unix_s: STARTED_UNIX_S,
            ended_unix_s: ENDED_UNIX_S,
            is_measured: measured.contains(&fingerprint),
            weight_share_before: share(|change| change.weight.before),
            weight_share_after: share(|change| change.weight.after),
            advertised_before_byte_per_s: share(|change| change.advbw.before).map(bytes),
            advertised_after_byte_per_s: share(|change| change.advbw.after).map(bytes),
        });
    }
    let hours: BTreeMap<String, Hour> = file(folder, "advbw_over_time.json")?;
    let network = relays.id(RsaId(NETWORK));
    let mut rows = Vec::new();
    for (key, hour) in hours {
        let Ok(key) = key.parse::<f64>() else {
            let problem = format!("advbw_over_time.json: {key:?} is not a Unix time");
            return Err(ArchiveError::Source { path: folder.to_owned(), problem });
        };
        rows.push(NetworkHour {
            relay: network,
            valid_after_unix_s: bytes(key).saturating_sub(KEY_OFFSET_S),
            advertised_byte_per_s: hour.total,
            measured_byte_per_s: hour.measured,
            unmeasured_byte_per_s: hour.unmeasured,
        });
    }
    let mut variations = Vec::new();
    if changes::table_file(folder, "relay_rsds.json").is_some() {
        let rsds: BTreeMap<RsaId, f64> = file(folder, "relay_rsds.json")?;
        variations.extend(rsds.into_iter().map(|(fingerprint, rsd)| Variation {
            relay: relays.id(fingerprint),
            from_unix_s: YEAR_UNIX_S,
            advertised_rsd_week: rsd,
        }));
    }
    for (kind, count) in [
        ("relay before and after", campaigns.len()),
        ("hour", rows.len()),
        ("relay's variation", variations.len()),
    ] {
        entry.documents.insert(kind.to_owned(), count as u64);
    }
    *new_rows += writer.add(campaigns, relays)?;
    *new_rows += writer.add(rows, relays)?;
    *new_rows += writer.add(variations, relays)?;
    Ok(())
}

/// A JSON number as an integer, saturated to the type's range.
#[expect(clippy::cast_possible_truncation, reason = "casts from floats saturate")]
const fn bytes(number: f64) -> u32 {
    number as u32
}

fn file<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, ArchiveError> {
    let Some(path) = changes::table_file(folder, name) else {
        let problem = format!("there is no {name}, {name}.xz or {name}.gz");
        return Err(ArchiveError::Source { path: folder.to_owned(), problem });
    };
    let text = source::read_all(&path, FILE_MAX).map_err(ArchiveError::file("read", &path))?;
    serde_json::from_slice(&text)
        .map_err(|error| ArchiveError::Source { path, problem: error.to_string() })
}
