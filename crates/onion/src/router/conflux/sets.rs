//! What is kept of all sets, and the account of what they hold.

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

/// A message whose turn has not come, or that may have to be sent again.
#[derive(Debug)]
pub(super) struct Held<S: CellModel> {
    /// The circuit that has brought it, if it has come; it may be gone.
    pub(super) leg: Option<CircuitIndex>,
    pub(super) format: RelayFormat,
    /// Apart, so that memory is taken for what is there and not for room in a tree.
    pub(super) body: Box<S::Body>,
}

/// A set of linked circuits.
#[derive(Debug)]
pub(super) struct Set<S: CellModel> {
    pub(super) conflux: Conflux<CircuitIndex, Held<S>>,
    /// Of what waits for its turn.
    pub(super) age: QueueAge,
    /// Of what is kept, to be sent again if its leg is lost.
    pub(super) kept_age: QueueAge,
}

impl<S: CellModel> Set<S> {
    /// Messages in memory.
    fn held(&self) -> usize {
        self.conflux.early_len() + self.conflux.again_len()
    }
}

/// All sets.
#[derive(Debug)]
pub(in crate::router) struct Sets<S: CellModel> {
    pub(super) by_nonce: BTreeMap<ConfluxNonce, TunnelIndex>,
    pub(super) all: BTreeMap<TunnelIndex, Set<S>>,
    /// Messages that wait for their turn, or are kept to be sent again.
    held_cells: usize,
}

impl<S: CellModel> Default for Sets<S> {
    fn default() -> Self {
        Self { by_nonce: BTreeMap::new(), all: BTreeMap::new(), held_cells: 0 }
    }
}

impl<S: CellModel> Sets<S> {
    /// Messages that wait for their turn, or are kept to be sent again, of all sets.
    pub(in crate::router) const fn held_cells(&self) -> usize {
        self.held_cells
    }

    /// Since when the oldest of them has waited, of each set that has some.
    pub(in crate::router) fn oldest(&self) -> impl Iterator<Item = (TunnelIndex, Instant)> {
        let since = |set: &Set<S>| set.age.since().into_iter().chain(set.kept_age.since()).min();
        self.all.iter().filter_map(move |(tunnel, set)| Some((*tunnel, since(set)?)))
    }

    /// A leg of each set that it keeps waiting: see [`Conflux::take_timed_out_legs`].
    pub(super) fn take_timed_out_legs(&mut self, now: Instant) -> Vec<(TunnelIndex, CircuitIndex)> {
        let silent = |(tunnel, set): (&TunnelIndex, &mut Set<S>)| {
            Some((*tunnel, set.conflux.take_timed_out_leg(now)?))
        };
        self.all.iter_mut().filter_map(silent).collect()
    }

    pub(in crate::router) fn has_leg(&self, tunnel: TunnelIndex, leg: CircuitIndex) -> bool {
        self.all.get(&tunnel).is_some_and(|set| set.conflux.legs().any(|it| it == leg))
    }

    /// Whether what the set sends is kept, to be sent again.
    pub(in crate::router) fn resumes(&self, tunnel: TunnelIndex) -> bool {
        self.all.get(&tunnel).is_some_and(|set| set.conflux.resumes())
    }

    /// Changes a set, and keeps the account of what it holds.
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

    /// Compares what is kept on the way with what is there. Panics if they differ.
    pub(in crate::router) fn check_accounts(&self) {
        let held: usize = self.all.values().map(Set::held).sum();
        assert_eq!(held, self.held_cells, "messages that sets hold");
        assert_eq!(self.all.len(), self.by_nonce.len(), "sets and their nonces");
        for (tunnel, set) in &self.all {
            assert_eq!(self.by_nonce.get(set.conflux.nonce()), Some(tunnel), "a set's nonce");
            assert!(set.conflux.leg_count() > 0, "a set without legs");
        }
    }
}
