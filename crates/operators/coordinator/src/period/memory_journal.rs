//! A coordinator's journal in memory, for periods in virtual time.

use super::{Knowledge, MeasurerConfig};
use crate::allocation::MeasurerId;
use crate::history::History;
use crate::journal::{Entry, Past, PastTurn};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::identity::RsaId;

/// The [journaled](super::Action::Journal) entries of a coordinator, in order. A restarted coordinator obtains the same
/// [`Knowledge`] from them as from the crate `store`.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    entries: Vec<Entry>,
}

impl MemoryJournal {
    /// Appends an entry.
    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The state from which a coordinator continues the period that began at `begin_unix_s`. `before` are the results of
    /// earlier periods. Observed paths are of the measurers with the names of this team.
    #[must_use]
    pub fn knowledge(
        &self,
        before: &History,
        team: &[MeasurerConfig],
        begin_unix_s: u64,
    ) -> Knowledge {
        let mut history = before.clone();
        for entry in &self.entries {
            let finished = match entry {
                Entry::Finished(finished) => finished,
                Entry::Consensus(consensus) => {
                    let relays = consensus.relays.iter();
                    relays.for_each(|relay| history.see(relay.ids.rsa, consensus.at_unix_s));
                    continue;
                }
                _ => continue,
            };
            history.add_record(&finished.record, finished.begun.started_unix_s);
            for path in &finished.paths {
                if let Some(place) = team.iter().position(|known| known.name == path.measurer) {
                    let measurer = MeasurerId(place);
                    history.add_path(path.relay, measurer, path.path, path.seen_unix_s);
                }
            }
        }
        Knowledge { history, pasts: self.pasts(begin_unix_s) }
    }

    /// The progress of each relay in that period.
    #[must_use]
    pub fn pasts(&self, begin_unix_s: u64) -> BTreeMap<RsaId, Past> {
        let mut turns: BTreeMap<(RsaId, u32), PastTurn> = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Started(started) if started.period_unix_s == begin_unix_s => {
                    let (is_final, follows, record) = (false, None, None);
                    let turn = PastTurn { number: started.number, is_final, follows, record };
                    turns.insert((started.relay(), started.number), turn);
                }
                Entry::Finished(finished) if finished.begun.period_unix_s == begin_unix_s => {
                    let turn = PastTurn {
                        number: finished.begun.number,
                        is_final: finished.is_final,
                        follows: finished.follows,
                        record: Some(finished.record.clone()),
                    };
                    turns.insert((finished.begun.relay(), finished.begun.number), turn);
                }
                _ => {}
            }
        }
        let mut pasts: BTreeMap<RsaId, Past> = BTreeMap::new();
        for ((relay, _), turn) in turns {
            let past = pasts.remove(&relay).unwrap_or_default();
            pasts.insert(relay, past.then(turn));
        }
        pasts
    }
}
