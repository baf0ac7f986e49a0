//! The table of Conflux sets, and the accounting of their memory.

use crate::cell::msg::ConfluxNonce;
use crate::cell::relay::RelayFormat;
use crate::cell_model::CellModel;
use crate::router::circuits::{CircuitIndex, TunnelIndex};
use crate::router::queue_age::QueueAge;
use crate::time::Instant;
use crate::tunnel::conflux::Conflux;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A message that waits for its predecessors, or that may have to be retransmitted.
#[derive(Debug)]
pub(super) struct Held<S: CellModel> {
    /// The circuit on which it arrived, which may be gone; `None` for a sent message.
    pub(super) leg: Option<CircuitIndex>,
    pub(super) format: RelayFormat,
    /// Boxed, so that tree nodes have no unused space for bodies.
    pub(super) body: Box<S::Body>,
}

/// A set of linked circuits.
#[derive(Debug)]
pub(super) struct Set<S: CellModel> {
    pub(super) conflux: Conflux<CircuitIndex, Held<S>>,
    /// The age of the reordering buffer.
    pub(super) age: QueueAge,
    /// The age of the retransmission buffer.
    pub(super) kept_age: QueueAge,
}

impl<S: CellModel> Set<S> {
    /// Messages in both buffers.
    fn held(&self) -> usize {
        self.conflux.early_len() + self.conflux.again_len()
    }
}

/// All sets.
#[derive(Debug)]
pub(crate) struct Sets<S: CellModel> {
    pub(super) by_nonce: BTreeMap<ConfluxNonce, TunnelIndex>,
    pub(super) all: BTreeMap<TunnelIndex, Set<S>>,
    /// Messages in both buffers of all sets.
    held_cells: usize,
}

impl<S: CellModel> Default for Sets<S> {
    fn default() -> Self {
        Self { by_nonce: BTreeMap::new(), all: BTreeMap::new(), held_cells: 0 }
    }
}

impl<S: CellModel> Sets<S> {
    /// Messages in both buffers of all sets.
    pub(crate) const fn held_cells(&self) -> usize {
        self.held_cells
    }

    /// Since when the oldest message of each set has been buffered.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = (TunnelIndex, Instant)> {
        let since = |set: &Set<S>| set.age.since().into_iter().chain(set.kept_age.since()).min();
        self.all.iter().filter_map(move |(tunnel, set)| Some((*tunnel, since(set)?)))
    }

    /// The leg that blocks its set, for each such set: see [`Conflux::take_timed_out_leg`].
    pub(super) fn take_timed_out_legs(&mut self, now: Instant) -> Vec<(TunnelIndex, CircuitIndex)> {
        let silent = |(tunnel, set): (&TunnelIndex, &mut Set<S>)| {
            Some((*tunnel, set.conflux.take_timed_out_leg(now)?))
        };
        self.all.iter_mut().filter_map(silent).collect()
    }

    pub(crate) fn has_leg(&self, tunnel: TunnelIndex, leg: CircuitIndex) -> bool {
        self.all.get(&tunnel).is_some_and(|set| set.conflux.legs().any(|known| known == leg))
    }

    /// Whether the set retransmits.
    pub(crate) fn resumes(&self, tunnel: TunnelIndex) -> bool {
        self.all.get(&tunnel).is_some_and(|set| set.conflux.resumes())
    }

    /// Changes a set and updates the accounting of its memory.
    pub(super) fn change<T>(
        &mut self,
        now: Instant,
        tunnel: TunnelIndex,
        change: impl FnOnce(&mut Set<S>) -> T,
    ) -> Option<T> {
        let set = self.all.get_mut(&tunnel)?;
        let (before, kept_before) = (set.held(), set.conflux.again_len());
        let outcome = change(set);
        self.held_cells = self.held_cells + set.held() - before;
        let kept = set.conflux.again_len();
        if kept > kept_before {
            set.kept_age.handle_added(now, kept - kept_before);
        } else {
            set.kept_age.handle_taken(now, kept_before - kept, kept);
        }
        Some(outcome)
    }

    pub(super) fn remove(&mut self, tunnel: TunnelIndex) {
        if let Some(set) = self.all.remove(&tunnel) {
            self.by_nonce.remove(set.conflux.nonce());
            self.held_cells -= set.held();
        }
    }

    /// Checks the accounting. Panics if it is wrong.
    pub(crate) fn check_accounts(&self) {
        let held: usize = self.all.values().map(Set::held).sum();
        assert_eq!(held, self.held_cells, "messages that sets hold");
        assert_eq!(self.all.len(), self.by_nonce.len(), "sets and their nonces");
        for (tunnel, set) in &self.all {
            assert_eq!(self.by_nonce.get(set.conflux.nonce()), Some(tunnel), "a set's nonce");
            assert!(set.conflux.leg_count() > 0, "a set without legs");
        }
    }
}
