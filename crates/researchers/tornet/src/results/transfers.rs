//! The downloads of benchmarks, one by one.

use super::files::asked_bytes;
use super::waits::Waits;
use crate::network::Network;
use crate::run::Outcome;
use serde::{Deserialize, Serialize};
use sim::world::{Ending, Record};
use std::collections::BTreeMap;

/// Downloads of one size, of all benchmarks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// The size.
    pub bytes: u32,
    /// Seconds to the first byte of completed downloads.
    pub first_byte_s: Vec<f64>,
    /// Seconds to the last byte, in the same order.
    pub last_byte_s: Vec<f64>,
    /// Downloads that did not complete before the end of the run.
    pub unfinished: Vec<Unfinished>,
    /// The failure rate of each client, for clients with finished downloads.
    pub failed_of_client: Vec<f64>,
}

/// A download that did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// How long it had been running at the end of the run; `None` if it failed: it timed out, or no circuit
    /// carried it.
    pub under_way_s: Option<f64>,
    /// Seconds to its first byte, if that arrived.
    pub first_byte_s: Option<f64>,
}

impl Unfinished {
    /// One that failed without a byte.
    pub const FAILED: Self = Self { under_way_s: None, first_byte_s: None };

    const fn has_failed(&self) -> bool {
        self.under_way_s.is_none()
    }
}

impl Transfers {
    /// The number of downloads that did not complete.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.unfinished.iter().filter(|download| download.has_failed()).count()
    }

    /// The number of downloads running at the end.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.unfinished.len() - self.failed()
    }

    /// Times to the first byte, of all downloads that began.
    #[must_use]
    pub fn first_byte(&self) -> Waits {
        let unfinished = self.unfinished.iter().filter_map(|download| download.first_byte_s);
        let over = self.first_byte_s.iter().copied().chain(unfinished);
        self.waits(over.collect(), |download| download.first_byte_s.is_none())
    }

    /// Times to the last byte, of all downloads that began.
    #[must_use]
    pub fn last_byte(&self) -> Waits {
        self.waits(self.last_byte_s.clone(), |_| true)
    }

    fn waits(&self, mut over: Vec<f64>, does_wait: impl Fn(&Unfinished) -> bool) -> Waits {
        let mut longer_than = Vec::new();
        for download in self.unfinished.iter().filter(|download| does_wait(download)) {
            match download.under_way_s {
                Some(so_far) => longer_than.push(so_far),
                None => over.push(f64::INFINITY),
            }
        }
        Waits::new(over, longer_than)
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
    fn add_client(&mut self, records: &[&Record], end_s: f64) {
        let (mut over, mut failed) = (0, 0);
        for record in records {
            let first_byte_s = record.first_byte.map(|time| time.as_secs_f64());
            let under_way_s = match (record.ending, first_byte_s, record.last_byte) {
                (Ending::Complete, Some(first), Some(last)) => {
                    self.first_byte_s.push(first);
                    self.last_byte_s.push(last.as_secs_f64());
                    over += 1;
                    continue;
                }
                (Ending::UnderWay, ..) => {
                    Some((end_s - record.begun.as_nanos() as f64 * 1e-9).max(0.0))
                }
                _ => {
                    over += 1;
                    failed += 1;
                    None
                }
            };
            self.unfinished.push(Unfinished { under_way_s, first_byte_s });
        }
        if over > 0 {
            self.failed_of_client.push(f64::from(failed) / f64::from(over));
        }
    }
}

/// Downloads that began after this number of seconds, by size.
#[must_use]
pub fn transfers(network: &Network, outcome: &Outcome, from_s: u32) -> Vec<Transfers> {
    let mut by_size: BTreeMap<u32, BTreeMap<u32, Vec<&Record>>> = BTreeMap::new();
    for record in outcome
        .records
        .iter()
        .filter(|record| record.begun.as_nanos() >= u64::from(from_s) * 1_000_000_000)
    {
        if let Some(bytes) = asked_bytes(network, record) {
            by_size.entry(bytes).or_default().entry(record.client.0).or_default().push(record);
        }
    }
    let of_size = |(bytes, clients): (u32, BTreeMap<u32, Vec<&Record>>)| {
        let mut size = Transfers { bytes, ..Transfers::default() };
        clients.values().for_each(|records| size.add_client(records, outcome.simulated_s));
        size
    };
    by_size.into_iter().map(of_size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::{Duration, Instant};
    use sim::world::HostId;

    fn record(ending: Ending, begun_s: u64, first: Option<u64>, last: Option<u64>) -> Record {
        Record {
            client: HostId(0),
            size: Some(0),
            probe: None,
            bytes: 0,
            begun: Instant::ORIGIN + Duration::from_secs(begun_s),
            first_byte: first.map(Duration::from_secs),
            last_byte: last.map(Duration::from_secs),
            ending,
        }
    }

    #[test]
    fn each_download_counts_as_completed_failed_or_censored() {
        let records = [
            record(Ending::Complete, 40, Some(1), Some(3)),
            record(Ending::TimedOut, 40, Some(2), None),
            record(Ending::Lost, 50, None, None),
            record(Ending::UnderWay, 80, Some(4), None),
            record(Ending::UnderWay, 85, None, None),
        ];
        let mut size = Transfers::default();
        size.add_client(&records.each_ref(), 90.0);
        assert_eq!((size.last_byte_s.len(), size.failed(), size.under_way()), (1, 2, 2));
        assert_eq!(size.failed_of_client, [2.0 / 3.0], "of those that are over");
        let endless = f64::INFINITY;
        assert_eq!(size.last_byte(), Waits::new(vec![3.0, endless, endless], vec![10.0, 5.0]));
        assert_eq!(size.first_byte(), Waits::new(vec![1.0, 2.0, 4.0, endless], vec![5.0]));
        let mut open = Transfers::default();
        open.add_client(&[&records[4]], 90.0);
        assert!(open.failed_of_client.is_empty(), "no download has ended, so no share is known");
    }
}
