//! What the coordinator does gets into its store, also when that cannot be written for a while.

use super::config::Config;
use super::past;
use cli::Error;
use coordinator::{History, MeasurerId};
use onion::identity::RsaId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{Entry, Past, PathEntry, RelayQuery, Store, StoreError};

/// What waits to be written. A measurement takes some tens of kilobytes, and is one entry as soon as it is over: these are a day's of a network of thousands of
/// relays, as long as few have to be measured again.
const PENDING_MAX: usize = 8192;

/// What is written at once: so one entry more does not cost a pass over all that wait for room on the disk.
const BATCH: usize = 64;

/// The store, and what has yet to get into it.
pub(super) struct Journal(Mutex<Inner>);

struct Inner {
    store: Store,
    pending: VecDeque<Entry>,
    /// Whether it has been told that nothing can be written.
    is_told: bool,
    /// Entries that there was no room for since then, not even in memory.
    lost: u64,
}

impl Journal {
    /// Opens the store of a configuration, or makes it. A new one begins with what earlier bandwidth files tell.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let mut store = Store::open(&config.store)?;
        let any = RelayQuery { most: 1, ..RelayQuery::default() };
        if store.relays(&any)?.found == 0 {
            let imports = past::imports(&config.out);
            store.write(&imports)?;
            if !imports.is_empty() {
                tracing::info!("a new store, with {} estimates of bandwidth files", imports.len());
            }
        }
        let pending = VecDeque::new();
        Ok(Self(Mutex::new(Inner { store, pending, is_told: false, lost: 0 })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What earlier periods found out, and this one so far. Of paths, those of measurers with these keys, by their places.
    pub(super) fn history(&self, team: &[String]) -> Result<History, Error> {
        let inner = self.inner();
        let mut history = inner.store.history()?;
        let mut paths = inner.store.paths()?;
        for entry in &inner.pending {
            let Entry::Finished(closed) = entry else { continue };
            history.add_record(&closed.record, closed.begun.started_unix_s);
            paths.extend(closed.paths.iter().cloned());
        }
        for PathEntry { relay, measurer, path, seen_unix_s } in paths {
            if let Some(place) = team.iter().position(|key| *key == measurer) {
                history.add_path(relay, MeasurerId(place), path, seen_unix_s);
            }
        }
        Ok(history)
    }

    /// A period begins, or goes on. What has become of its relays so far; nobody is being measured now.
    pub(super) fn take_up(&self, period_unix_s: u64) -> Result<BTreeMap<RsaId, Past>, Error> {
        let mut inner = self.inner();
        inner.flush();
        let broken_off = inner.store.close_unfinished()?;
        if broken_off > 0 {
            tracing::warn!(
                "{broken_off} measurements were broken off by an end of the coordinator"
            );
        }
        Ok(inner.store.period(period_unix_s)?)
    }

    /// Records something.
    pub(super) fn note(&self, entry: Entry) {
        self.inner().note(entry);
    }

    /// Tells the seeds of periods that are over, as far as they are not told.
    pub(super) fn tell_seeds(
        &self,
        now_unix_s: u64,
        seed_of: impl Fn(u64) -> Option<[u8; 32]>,
    ) -> Result<(), Error> {
        /// Those before were told at their time.
        const LAST: usize = 40;
        let mut inner = self.inner();
        for pass in inner.store.passes(LAST)? {
            let period = pass.period;
            let is_over = period.begin_unix_s.saturating_add(period.length_s) <= now_unix_s;
            if is_over && period.seed.is_none() && period.slot_s > 0 {
                let seed = seed_of(period.begin_unix_s);
                inner.note(Entry::Period(store::PeriodEntry { seed, ..period }));
            }
        }
        Ok(())
    }

    /// Once in a while: what could not be written is tried again, and what is too old goes.
    pub(super) fn tidy(&self, config: &Config, now_unix_s: u64) {
        /// More than a day of measurements of the whole network: who looks once a day keeps up.
        const TIMES: usize = 10;
        self.inner().flush();
        for _ in 0..TIMES {
            // Others come to write in between.
            let mut inner = self.inner();
            match inner.store.remove_old(config.retention, now_unix_s) {
                Ok(removed) => {
                    if removed.measurements + removed.records > 0 {
                        let (measurements, records) = (removed.measurements, removed.records);
                        tracing::info!(
                            "removed {measurements} old measurements, {records} old records"
                        );
                    }
                    if removed.is_all {
                        return;
                    }
                }
                Err(error) => return inner.tell(&error),
            }
        }
    }
}

impl Inner {
    fn note(&mut self, entry: Entry) {
        self.keep(entry);
        self.flush();
    }

    /// Has it wait, in place of what it makes idle.
    fn keep(&mut self, entry: Entry) {
        match &entry {
            Entry::Progress(_) => self.pending.retain(|it| !matches!(it, Entry::Progress(_))),
            Entry::Finished(closed) => {
                let is_its =
                    |it: &Entry| matches!(it, Entry::Started(begun) if *begun == closed.begun);
                if let Some(place) = self.pending.iter().rposition(is_its) {
                    self.pending.remove(place);
                }
            }
            _ => {}
        }
        if self.pending.len() >= PENDING_MAX {
            // What is newest matters most.
            self.pending.pop_front();
            if self.lost == 0 {
                tracing::error!(
                    "the store could not be written for so long that measurements are lost from here on"
                );
            }
            self.lost += 1;
        }
        self.pending.push_back(entry);
    }

    /// Writes what waits. If that fails, it waits on: measuring goes on, and nothing is forgotten.
    fn flush(&mut self) {
        while !self.pending.is_empty() {
            let count = self.pending.len().min(BATCH);
            if let Err(error) = self.store.write(self.pending.iter().take(count)) {
                return self.tell(&error);
            }
            self.pending.drain(..count);
            if self.is_told {
                match std::mem::take(&mut self.lost) {
                    0 => tracing::info!("the store can be written again: nothing is lost"),
                    lost => {
                        tracing::warn!("the store can be written again: {lost} entries are lost");
                    }
                }
                self.is_told = false;
            }
        }
    }

    fn tell(&mut self, error: &StoreError) {
        if !self.is_told {
            tracing::error!("{error}; {} entries wait in memory", self.pending.len());
            self.is_told = true;
        }
    }
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
