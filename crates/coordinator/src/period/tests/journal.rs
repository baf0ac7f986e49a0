//! A coordinator's journal in memory, with the semantics of `store`.

use super::super::*;
use crate::journal::PastTurn;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A coordinator's entries, and the state that a new one reads from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Like `store`.
    pub(super) fn pasts(&self, begin_unix_s: u64) -> BTreeMap<RsaId, Past> {
        let mut turns: BTreeMap<(RsaId, u32), PastTurn> = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Started(it) if it.period_unix_s == begin_unix_s => {
                    let (is_final, follows, record) = (false, None, None);
                    let turn = PastTurn { number: it.number, is_final, follows, record };
                    turns.insert((it.relay(), it.number), turn);
                }
                Entry::Finished(it) if it.begun.period_unix_s == begin_unix_s => {
                    let turn = PastTurn {
                        number: it.begun.number,
                        is_final: it.is_final,
                        follows: it.follows,
                        record: Some(it.record.clone()),
                    };
                    turns.insert((it.begun.relay(), it.begun.number), turn);
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

    pub(super) fn history(&self, before: &History) -> History {
        let mut history = before.clone();
        for entry in &self.entries {
            if let Entry::Finished(it) = entry {
                history.add_record(&it.record, it.begun.started_unix_s);
            }
        }
        history
    }
}
