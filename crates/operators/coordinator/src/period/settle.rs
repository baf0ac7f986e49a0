//! Finished measurements: their records, results to publish, and following turns.

use super::groups::repeat_together;
use super::{Action, Event, Finished, Now, Period, publication};
use crate::campaign::{Priority, RelayIndex, RelayTurn};
use crate::failure::Failure;
use crate::journal::{Entry, MeasurementFinished, MeasurementStarted, PathEntry};
use crate::record::Record;
use crate::turn::Attempt;
use alloc::boxed::Box;
use alloc::vec::Vec;
use onion::Duration;

impl Period {
    pub(super) fn publish(&mut self, now: Now) {
        let relays = (0..).map(RelayIndex).zip(&self.relays);
        let relays = relays.map(|(place, relay)| (relay, self.records.get(&place)));
        let slot = Duration::from_secs(u64::from(self.config.params.seconds) / 2);
        let begin_unix_s = self.config.bounds.begin_unix_s;
        let policy = &self.config.policy;
        let all = publication::publication(
            relays,
            &self.history,
            policy,
            slot,
            begin_unix_s,
            now.unix_s(),
        );
        self.actions.push_back(Action::Publish(all));
    }

    /// Records settled measurements, reports finished relays, and queues the following turns if there are no slots.
    pub(super) fn settle(&mut self, now: Now, mut settled: Vec<Finished>) {
        if self.slots.is_none() && !self.is_winding_up {
            repeat_together(&mut settled);
            let priority = |relay: RelayIndex| {
                self.relays.get(relay.0).map_or(Priority::New, |relay| relay.guess.priority())
            };
            let next_turn = |measurement: &Finished| {
                let (relay, turn) = (measurement.relay, measurement.follows?);
                Some(RelayTurn { relay, priority: priority(relay), turn })
            };
            let follow: Vec<_> = settled.iter().filter_map(next_turn).collect();
            if !follow.is_empty() {
                self.queue(now, &follow);
            }
        }
        for Finished { relay, record, started, follows, .. } in settled {
            self.record(started, &record, follows);
            let whole = match self.records.remove(&relay) {
                Some(earlier) => earlier.followed_by(record),
                None => record,
            };
            if follows.is_none() && !self.is_winding_up {
                self.event(Event::RelayDone(Box::new(whole.clone())));
            }
            self.records.insert(relay, whole);
            self.record_progress(now);
        }
    }

    pub(super) fn record(
        &mut self,
        begun: MeasurementStarted,
        record: &Record,
        follows: Option<Attempt>,
    ) {
        // A measurement that was interrupted because the coordinator ends is to be repeated.
        let is_cancelled = matches!(record.failure(), Some(Failure::Cancelled));
        let is_final = follows.is_none() && !is_cancelled;
        let (relay, seen_unix_s) = (record.relay.ids.rsa, record.ended_unix_s);
        let keys = self.measurers.keys();
        let mut paths = Vec::new();
        for (measurer, path) in record.paths() {
            self.history.add_path(relay, measurer, path, seen_unix_s);
            if let Some(measurer) = keys.get(measurer.0).cloned() {
                paths.push(PathEntry { relay, measurer, path, seen_unix_s });
            }
        }
        self.history.add_record(record, begun.started_unix_s);
        let record = record.clone();
        let finished = MeasurementFinished { begun, record, follows, is_final, paths };
        self.journal(Entry::Finished(Box::new(finished)));
    }
}
