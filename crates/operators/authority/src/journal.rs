//! Writes the coordinator's log to its store, and buffers it while the store cannot be written.

use super::config::Config;
use super::past;
use cli::Error;
use coordinator::journal::PastTurn;
use coordinator::period::PROGRESS_S;
use coordinator::{History, MeasurerId};
use onion::Duration;
use onion::identity::RsaId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use store::{Entry, Past, PathEntry, PeriodProgress, RelayQuery, Store, StoreError};

/// The maximum number of unwritten entries. A measurement takes some tens of kilobytes, and is one entry once it is
/// over. This is a day of measurements of thousands of relays, if few have to be repeated.
const PENDING_MAX: usize = 8192;

/// The number of entries that are written at once, so that an additional entry does not cost a pass over all unwritten
/// ones.
const BATCH: usize = 64;

/// The store, and the unwritten entries.
pub(super) struct Journal(Mutex<Inner>);

struct Inner {
    store: Store,
    pending: VecDeque<Entry>,
    /// The last recorded progress.
    progress: Option<PeriodProgress>,
    /// Whether the write error has been logged.
    is_error_logged: bool,
    /// The number of entries dropped since then, for lack of memory.
    lost: u64,
    /// Entries that were lost before the store could be written again.
    lost_before: u64,
}

impl Journal {
    /// Opens the store of a configuration, or creates it. A new store starts with the estimates of earlier bandwidth
    /// files.
    pub(super) fn open(config: &Config, now_unix_s: u64) -> Result<Self, Error> {
        let mut store = Store::open(&config.store)?;
        let any = RelayQuery { most: 1, ..RelayQuery::default() };
        if store.relays(&any)?.found == 0 {
            let imports = past::imports(&config.out, now_unix_s);
            store.write(&imports)?;
            if !imports.is_empty() {
                tracing::info!("a new store, with {} estimates of bandwidth files", imports.len());
            }
        }
        Ok(Self::new(store))
    }

    fn new(store: Store) -> Self {
        let pending = VecDeque::new();
        let inner = Inner {
            store,
            pending,
            progress: None,
            is_error_logged: false,
            lost: 0,
            lost_before: 0,
        };
        Self(Mutex::new(inner))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code that holds the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The results of earlier periods, and of this one so far. Of paths, those of measurers with these keys, by their
    /// places.
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

    /// Begins or continues a period. Returns the progress of its relays; no measurement is running now.
    pub(super) fn resume(&self, period_unix_s: u64) -> Result<BTreeMap<RsaId, Past>, Error> {
        let mut inner = self.inner();
        inner.flush();
        let closed = inner.store.close_unfinished();
        inner.log_interrupted(closed)?;
        let mut pasts = inner.store.period(period_unix_s)?;
        inner.add_unwritten(period_unix_s, &mut pasts);
        Ok(pasts)
    }

    /// A second in which no period with results began; waits for the next one if necessary. A period is named by the second
    /// in which it begins, so a run that begins in the second of another one would only continue it.
    pub(super) fn unused_second(&self, mut now_unix_s: impl FnMut() -> u64) -> Result<u64, Error> {
        loop {
            let begin_unix_s = now_unix_s();
            if self.resume(begin_unix_s)?.is_empty() {
                return Ok(begin_unix_s);
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Corrects dates of the future, now that the clock is known to be right.
    pub(super) fn correct_dates(&self, now_unix_s: u64) {
        let mut inner = self.inner();
        inner.flush();
        match inner.store.correct_dates(now_unix_s) {
            Ok(0) => {}
            Ok(count) => tracing::warn!(
                "{count} measurements were dated after now, by a clock that was ahead: they count as made now"
            ),
            Err(error) => inner.log_once(&error),
        }
    }

    /// The names of the reasons why estimates are lower bounds.
    pub(super) fn lower_bound_causes(&self) -> Result<BTreeMap<RsaId, String>, Error> {
        Ok(self.inner().store.lower_bound_causes()?)
    }

    /// The number of measurements that ended since then, and of those that failed for no reason of the relay.
    pub(super) fn attempts(&self, since_unix_s: u64) -> Result<(u64, u64), Error> {
        Ok(self.inner().store.attempts(since_unix_s)?)
    }

    /// The mean round-trip time from the measurers to each relay, in milliseconds.
    pub(super) fn mean_round_trips_ms(&self) -> Result<BTreeMap<RsaId, f64>, Error> {
        Ok(self.inner().store.mean_round_trips_ms()?)
    }

    /// Records an entry.
    pub(super) fn note(&self, entry: Entry) {
        self.inner().note(entry);
    }

    /// Records the last progress again, with this time, if it is old: nothing happens until the next period.
    pub(super) fn repeat_progress(&self, now_unix_s: u64) {
        let mut inner = self.inner();
        let is_old = |last: &PeriodProgress| now_unix_s.abs_diff(last.at_unix_s) >= PROGRESS_S;
        if let Some(last) = inner.progress.filter(is_old) {
            inner.note(Entry::Progress(PeriodProgress { at_unix_s: now_unix_s, ..last }));
        }
    }

    /// The number of entries that the store does not have, after another attempt to write them.
    pub(super) fn unwritten(&self) -> u64 {
        let mut inner = self.inner();
        inner.flush();
        inner.pending.len() as u64 + inner.lost + inner.lost_before
    }

    /// Publishes the seeds of finished periods that are not published yet. `seed_of` returns the seed of the period that
    /// begins at a time and has a length: a longer one with the same beginning may be running.
    pub(super) fn publish_seeds(
        &self,
        now_unix_s: u64,
        seed_of: impl Fn(u64, u64) -> Option<[u8; 32]>,
    ) -> Result<(), Error> {
        /// Earlier seeds were published before.
        const LAST: usize = 40;
        let mut inner = self.inner();
        for summary in inner.store.periods(LAST)? {
            let period = summary.period;
            let is_over = period.begin_unix_s.saturating_add(period.length_s) <= now_unix_s;
            if is_over && period.seed.is_none() && period.slot_s > 0 {
                let seed = seed_of(period.begin_unix_s, period.length_s);
                inner.note(Entry::Period(store::PeriodEntry { seed, ..period }));
            }
        }
        Ok(())
    }

    /// Periodic maintenance: retries failed writes, and removes old entries if the time is known: by a clock that is ahead, all would be
    /// old.
    pub(super) fn tidy(&self, config: &Config, now_unix_s: Option<u64>) {
        /// More than a day of measurements of the whole network, so one call a day is enough.
        const TIMES: usize = 10;
        self.inner().flush();
        let Some(now_unix_s) = now_unix_s else { return };
        for _ in 0..TIMES {
            // Other writers get their turn in between.
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
                Err(error) => return inner.log_once(&error),
            }
        }
    }
}

impl Inner {
    fn note(&mut self, entry: Entry) {
        self.keep(entry);
        self.flush();
    }

    /// Queues an entry, in place of those that it supersedes.
    fn keep(&mut self, entry: Entry) {
        match &entry {
            Entry::Progress(progress) => {
                self.progress = Some(*progress);
                self.pending.retain(|queued| !matches!(queued, Entry::Progress(_)));
            }
            Entry::Finished(closed) => {
                let is_its = |queued: &Entry| match queued {
                    Entry::Started(begun) => *begun == closed.begun,
                    _ => false,
                };
                if let Some(place) = self.pending.iter().rposition(is_its) {
                    self.pending.remove(place);
                }
            }
            _ => {}
        }
        if self.pending.len() >= PENDING_MAX {
            // The newest entries matter most.
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

    /// Logs how many measurements were interrupted. On a full disk they stay unfinished in the store until the next period
    /// begins, and measuring continues.
    fn log_interrupted(&mut self, closed: Result<usize, StoreError>) -> Result<(), StoreError> {
        match closed {
            Ok(0) => Ok(()),
            Ok(interrupted) => {
                tracing::warn!(
                    "{interrupted} measurements were interrupted when the coordinator ended"
                );
                Ok(())
            }
            Err(error) if error.is_temporary() => {
                self.log_once(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Adds the queued measurements of a period to the progress of its relays. Otherwise they would be repeated with the same
    /// numbers, and the store would ignore the second results.
    fn add_unwritten(&self, period_unix_s: u64, pasts: &mut BTreeMap<RsaId, Past>) {
        for entry in &self.pending {
            let (begun, is_final, follows, record) = match entry {
                Entry::Started(begun) => (begun, false, None, None),
                Entry::Finished(closed) => {
                    (&closed.begun, closed.is_final, closed.follows, Some(closed.record.clone()))
                }
                _ => continue,
            };
            if begun.period_unix_s == period_unix_s {
                let past = pasts.remove(&begun.relay()).unwrap_or_default();
                let turn = PastTurn { number: begun.number, is_final, follows, record };
                pasts.insert(begun.relay(), past.then(turn));
            }
        }
    }

    /// Writes the queued entries. On an error they stay queued: measuring continues, and nothing is lost.
    fn flush(&mut self) {
        while !self.pending.is_empty() {
            let count = self.pending.len().min(BATCH);
            if let Err(error) = self.store.write(self.pending.iter().take(count)) {
                return self.log_once(&error);
            }
            self.pending.drain(..count);
            if self.is_error_logged {
                self.lost_before += self.lost;
                match std::mem::take(&mut self.lost) {
                    0 => tracing::info!("the store can be written again: nothing is lost"),
                    lost => {
                        tracing::warn!("the store can be written again: {lost} entries are lost");
                    }
                }
                self.is_error_logged = false;
            }
        }
    }

    fn log_once(&mut self, error: &StoreError) {
        if !self.is_error_logged {
            tracing::error!("{error}; {} entries wait in memory", self.pending.len());
            self.is_error_logged = true;
        }
    }
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
