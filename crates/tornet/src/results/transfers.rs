//! Benchmarks' downloads one by one.

use super::files::asked_bytes;
use crate::network::Network;
use crate::run::Outcome;
use serde::{Deserialize, Serialize};
use sim::world::{Ending, Record};
use std::collections::BTreeMap;

/// Downloads of one size, of all benchmarks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// Of the download.
    pub bytes: u32,
    /// Seconds to the first byte of those that came whole.
    pub first_byte_s: Vec<f64>,
    /// Seconds to the last, in the same order.
    pub last_byte_s: Vec<f64>,
    /// Those that did not come whole, in time or at all.
    pub failed: usize,
    /// How large a share of each client's failed, of clients that had any.
    pub failed_of_client: Vec<f64>,
}

/// Downloads that began after so many seconds, by size.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
pub fn transfers(network: &Network, outcome: &Outcome, from_s: u32) -> Vec<Transfers> {
    let mut by_size: BTreeMap<u32, BTreeMap<u32, Vec<&Record>>> = BTreeMap::new();
    for record in
        outcome.records.iter().filter(|it| it.begun.as_nanos() >= u64::from(from_s) * 1_000_000_000)
    {
        if let Some(bytes) = asked_bytes(network, record) {
            by_size.entry(bytes).or_default().entry(record.client.0).or_default().push(record);
        }
    }
    let of_size = |(bytes, clients): (u32, BTreeMap<u32, Vec<&Record>>)| {
        let mut size = Transfers { bytes, ..Transfers::default() };
        for records in clients.values() {
            let before = size.last_byte_s.len();
            for record in records.iter().filter(|it| it.ending == Ending::Complete) {
                let Some((first, last)) = record.first_byte.zip(record.last_byte) else { continue };
                size.first_byte_s.push(first.as_secs_f64());
                size.last_byte_s.push(last.as_secs_f64());
            }
            let failed = records.len() - (size.last_byte_s.len() - before);
            size.failed += failed;
            size.failed_of_client.push(failed as f64 / records.len() as f64);
        }
        size
    };
    by_size.into_iter().map(of_size).collect()
}
