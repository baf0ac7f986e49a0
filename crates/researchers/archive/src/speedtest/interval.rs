//! The analysis of a speed test for any interval of a dataset.

use super::{Change, GBIT_PER_BYTE, Hour, MEMORY_S, SpeedTest};
use crate::engine::{Engine, View, integers, numbers, texts};
use crate::error::ArchiveError;
use crate::times::minute;
use std::collections::BTreeSet;

/// Compares the relays of a dataset in the five days before the beginning of an interval with the five days after it.
///
/// # Errors
/// The dataset has no relays at that time, or cannot be read.
pub fn of_interval(
    engine: &Engine,
    view: View,
    (from, until): (i64, i64),
    measured: Option<&BTreeSet<String>>,
) -> Result<SpeedTest, ArchiveError> {
    engine.view(view)?;
    let is_before =
        format!("valid_after_unix_s > {} AND valid_after_unix_s <= {from}", from - MEMORY_S);
    let is_after =
        format!("valid_after_unix_s > {from} AND valid_after_unix_s <= {}", from + MEMORY_S);
    let rows = engine.query(&format!(
        "SELECT relay, MAX(CASE WHEN {is_before} THEN advertised_byte_per_s END) AS a_before, \
         MAX(CASE WHEN {is_after} THEN advertised_byte_per_s END) AS a_after, \
         AVG(CASE WHEN {is_before} THEN weight_share END) AS w_before, \
         AVG(CASE WHEN {is_after} THEN weight_share END) AS w_after \
         FROM relay_hours GROUP BY relay ORDER BY relay"
    ))?;
    let column = |name: &str| numbers(&rows, name);
    let advertised = column("a_before")?.into_iter().zip(column("a_after")?);
    let weights = column("w_before")?.into_iter().zip(column("w_after")?);
    let mut changes = Vec::new();
    for ((relay, (a_before, a_after)), (w_before, w_after)) in
        texts(&rows, 0).into_iter().zip(advertised).zip(weights)
    {
        if let Some(advertised_byte_per_s) = a_before.zip(a_after) {
            let is_measured = measured.is_none_or(|measured| measured.contains(&relay));
            let weight_share = (w_before, w_after);
            changes.push(Change { is_measured, weight_share, advertised_byte_per_s });
        }
    }
    if changes.is_empty() {
        return Err(ArchiveError::Missing(format!(
            "no relay has an advertised bandwidth both in the five days before {} and in those after it",
            minute(from)
        )));
    }
    let hours = engine.query(&format!(
        "SELECT valid_after_unix_s AS t, SUM(advertised_byte_per_s) AS a FROM relay_hours \
         WHERE valid_after_unix_s > {} AND valid_after_unix_s <= {} GROUP BY valid_after_unix_s ORDER BY valid_after_unix_s",
        from - 2 * MEMORY_S,
        until + 2 * MEMORY_S,
    ))?;
    let hours =
        integers(&hours, "t")?.into_iter().zip(numbers(&hours, "a")?).map(|(unix_s, total)| Hour {
            unix_s,
            total_gbit_per_s: total.unwrap_or_default() * GBIT_PER_BYTE,
            ..Hour::default()
        });
    Ok(SpeedTest {
        from_unix_s: from,
        until_unix_s: until,
        measured_relays: measured.map_or(changes.len(), BTreeSet::len),
        changes,
        hours: hours.collect(),
        notes: Vec::new(),
    })
}
