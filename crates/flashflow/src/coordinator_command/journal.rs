//! What the coordinator does gets into its store, also when that cannot be written for a while.

use super::campaign::Common;
use super::config::Config;
use super::past;
use super::relays::Relay;
use cli::Error;
use coordinator::{
    Decline, Failure, History, MeasurerId, Mode, PastEstimate, PathSeen, Record, Turn,
};
use onion::identity::RsaId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{Begun, Closed, Entry, MeasurerPath, Past, RelayQuery, Store, StoreError};

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
    /// Turns that have begun, of each relay in the period.
    turns: BTreeMap<RsaId, u32>,
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
        let (pending, turns) = (VecDeque::new(), BTreeMap::new());
        Ok(Self(Mutex::new(Inner { store, pending, turns, is_told: false, lost: 0 })))
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
            let Entry::Ended(closed) = entry else { continue };
            let (relay, record) = (closed.begun.relay(), &closed.record);
            let decline = record.failure().and_then(|it| Decline::of(it, record.ended_unix_s));
            if let Some(estimate) = PastEstimate::of(record) {
                history.add(relay, estimate);
            } else if record.failure().is_some_and(Failure::is_about_relay) {
                history.refute(relay, record.ended_unix_s);
            }
            decline.into_iter().for_each(|it| history.decline(relay, it));
            if record.mode == Mode::Echo && !record.failure().is_some_and(Failure::is_not_now) {
                history.order(relay, closed.begun.started_unix_s);
            }
            paths.extend(closed.paths.iter().cloned());
        }
        for MeasurerPath { relay, measurer, path, seen_unix_s } in paths {
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
        let pasts = inner.store.period(period_unix_s)?;
        inner.turns = pasts.iter().map(|(relay, past)| (*relay, past.turns)).collect();
        Ok(pasts)
    }

    /// A relay's turn begins.
    pub(super) fn begin(
        &self,
        relay: &Relay,
        period_unix_s: u64,
        slot: Option<u32>,
        now_unix_s: u64,
    ) -> Begun {
        let mut inner = self.inner();
        let target = relay.subject.target();
        let number = inner.turns.entry(target.ids.rsa).or_default();
        *number += 1;
        let begun = Begun {
            ids: target.ids,
            nickname: relay.nickname.to_string(),
            address: target.address,
            period_unix_s,
            number: *number,
            slot,
            started_unix_s: now_unix_s,
        };
        inner.note(Entry::Begun(begun.clone()));
        begun
    }

    /// It has ended, and this has to follow, or nothing. Measurers have places in a team with these keys.
    pub(super) fn end(
        &self,
        team: &[String],
        begun: Begun,
        record: &Record,
        follows: Option<Turn>,
    ) {
        // What was broken off because we have to end is to be done again.
        let is_cancelled = matches!(record.failure(), Some(Failure::Cancelled));
        let is_final = follows.is_none() && !is_cancelled;
        let (relay, seen_unix_s) = (record.relay.ids.rsa, record.ended_unix_s);
        let path = |(measurer, path): (MeasurerId, PathSeen)| {
            let measurer = team.get(measurer.0)?.clone();
            Some(MeasurerPath { relay, measurer, path, seen_unix_s })
        };
        let paths = record.paths().into_iter().filter_map(path).collect();
        let closed = Closed { begun, record: record.clone(), follows, is_final, paths };
        self.note(Entry::Ended(Box::new(closed)));
    }

    /// Anything else.
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
                inner.note(Entry::Period(store::Period { seed, ..period }));
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
            Entry::Ended(closed) => {
                let is_its =
                    |it: &Entry| matches!(it, Entry::Begun(begun) if *begun == closed.begun);
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

/// What the store is to know of a whole pass without slots.
pub(super) fn pass(common: Common<'_>, begin_unix_s: u64) -> Result<(), Error> {
    let Common { config, journal, .. } = common;
    journal.take_up(begin_unix_s)?;
    let length_s = config.period.as_secs();
    let period = store::Period { begin_unix_s, length_s, slot_s: 0, seed: None };
    journal.note(Entry::Period(period));
    Ok(())
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
