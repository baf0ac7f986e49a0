//! Expected capacities of relays, from the bandwidths that they published around a time.

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Descriptor, Origin, RelayId, Relays, Staged, Status};
use crate::times::{DAY_S, month};
use coordinator::Percentile;
use onion::Rate;
use std::collections::BTreeMap;

/// Bandwidths published within this time before a view determine the expected capacity of new relays.
const RECENT_S: i64 = 30 * DAY_S;

/// A published bandwidth.
#[derive(Clone, Copy, Debug)]
struct Published {
    unix_s: u32,
    observed_byte_per_s: u32,
    /// The smaller of rate and burst.
    limit_byte_per_s: u32,
}

/// Published bandwidths by relay, of the months that the newest view needs.
pub(super) struct Capacities<'a> {
    dataset: &'a Dataset,
    around_s: i64,
    months: Vec<String>,
    loaded: BTreeMap<String, Vec<Descriptor>>,
    /// By relay, in order of time.
    published: Vec<Vec<Published>>,
    /// By relay, if tornettools staged it.
    staged: BTreeMap<RelayId, Rate>,
}

/// The capacity of a relay of a staged network by section 3 of the paper: the observed bandwidth, at most the relay's limits.
pub(super) fn of_staged(row: &Staged) -> Rate {
    Rate::from_mbit_per_s(row.limited_byte_per_s() * 8e-6)
}

impl<'a> Capacities<'a> {
    pub(super) fn new(
        dataset: &'a Dataset,
        around_s: i64,
        relays: &mut Relays,
    ) -> Result<Self, ArchiveError> {
        let staged: Vec<Staged> = dataset.read_all(relays)?;
        Ok(Self {
            dataset,
            around_s,
            months: dataset.parts("descriptors")?.into_iter().map(|part| part.0).collect(),
            loaded: BTreeMap::new(),
            published: Vec::new(),
            staged: staged.iter().map(|row| (row.relay, of_staged(row))).collect(),
        })
    }

    /// Loads the months that views between two times need. The bandwidths are those of the views' `origin`. Relay lists have no
    /// bandwidths; for them, those of the only other origin are used.
    pub(super) fn load(
        &mut self,
        (from_unix_s, until_unix_s): (i64, i64),
        origin: Origin,
        relays: &mut Relays,
    ) -> Result<(), ArchiveError> {
        let first = month(from_unix_s.saturating_sub(self.around_s.max(RECENT_S)).max(0));
        let last = month(until_unix_s.saturating_add(self.around_s).min(u32::MAX.into()));
        let wanted: Vec<String> =
            self.months.iter().filter(|month| (&first..=&last).contains(month)).cloned().collect();
        if wanted.iter().eq(self.loaded.keys()) {
            return Ok(());
        }
        self.loaded.retain(|month, _| wanted.contains(month));
        for month in wanted {
            if !self.loaded.contains_key(&month) {
                let rows = self.dataset.read(&month, relays)?;
                self.loaded.insert(month, rows);
            }
        }
        self.published.clear();
        self.published.resize(relays.len(), Vec::new());
        let mut used = None;
        for row in self.loaded.values().flatten() {
            let counts = match origin {
                Origin::Membership => *used.get_or_insert(row.origin) == row.origin,
                _ => row.origin == origin,
            };
            if !counts && origin == Origin::Membership {
                return Err(ArchiveError::Missing(
                    "relay lists have no bandwidths, and the dataset has bandwidths of several origins: import the lists and one source of bandwidths into a new dataset".to_owned(),
                ));
            }
            if let (true, Some(published)) = (counts, self.published.get_mut(row.relay.0 as usize))
            {
                published.push(Published {
                    unix_s: row.published_unix_s,
                    observed_byte_per_s: row
                        .observed_byte_per_s
                        .unwrap_or(row.advertised_byte_per_s),
                    limit_byte_per_s: [row.rate_byte_per_s, row.burst_byte_per_s]
                        .into_iter()
                        .flatten()
                        .min()
                        .unwrap_or(u32::MAX),
                });
            }
        }
        Ok(())
    }

    /// The expected capacity of a relay in a view: the largest bandwidth that it observed around that time, at most the limits of the
    /// descriptor in force. Without descriptors, its staged capacity, else its weight.
    pub(super) fn of(&self, row: &Status) -> Option<Rate> {
        let published = self.published.get(row.relay.0 as usize).map_or(&[][..], Vec::as_slice);
        let now = i64::from(row.valid_after_unix_s);
        let place = |unix_s: i64| {
            published.partition_point(|descriptor| i64::from(descriptor.unix_s) <= unix_s)
        };
        // A relay may be listed before its first descriptor in the dataset.
        let in_force = published.get(place(now).saturating_sub(1));
        let around = published.get(place(now - self.around_s - 1)..place(now + self.around_s));
        let around = around.into_iter().flatten().filter(|_| in_force.is_some());
        let observed =
            around.chain(in_force).map(|descriptor| descriptor.observed_byte_per_s).max();
        let limit = in_force.map(|descriptor| descriptor.limit_byte_per_s);
        let of_descriptors = observed.zip(limit).map(|(observed, limit)| observed.min(limit));
        of_descriptors
            .map(|capacity| Rate::from_byte_per_s(capacity.into()))
            .or_else(|| self.staged.get(&row.relay).copied())
            .or_else(|| Some(Rate::from_byte_per_s(u64::from(row.weight_kb_per_s?) * 1000)))
    }

    /// Expected capacity of new relays: the 75th percentile of the bandwidths published in the 30 days before or, if there are none, of
    /// the capacities of the listed relays.
    pub(super) fn of_new_relays(&self, unix_s: i64, present: &[Rate]) -> Rate {
        let recent = |descriptor: &&Published| {
            (unix_s - RECENT_S..unix_s).contains(&i64::from(descriptor.unix_s))
        };
        let advertised = |descriptor: &Published| {
            descriptor.observed_byte_per_s.min(descriptor.limit_byte_per_s)
        };
        let published = self.published.iter().flatten().filter(recent).map(advertised);
        let mut rates: Vec<Rate> =
            published.map(|published| Rate::from_byte_per_s(published.into())).collect();
        if rates.is_empty() {
            rates = present.to_vec();
        }
        rates.sort_unstable();
        Percentile::P75.of(&rates).unwrap_or_default()
    }
}
