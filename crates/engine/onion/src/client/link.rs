use super::event::CircuitNumber;
use crate::cell::CircId;
use crate::cell_model::CellModel;
use crate::circuit::NextHop;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

/// A link to a first hop.
#[derive(Debug)]
pub(super) struct Link<S: CellModel> {
    pub(super) to: NextHop,
    /// Reserved for one circuit.
    is_own: bool,
    /// Whether circuits may be created on it.
    pub(super) is_open: bool,
    /// Whether it is to be closed and not used for new circuits.
    pub(super) is_closing: bool,
    /// Whether both sides report forwarded cells.
    pub(super) has_feedback: bool,
    /// Circuits with received cells that have not been reported.
    pub(super) unreported: Vec<CircId>,
    pub(super) circuits: BTreeMap<CircId, CircuitNumber>,
    opened: u32,
    /// The circuit that sent data last.
    turn: CircId,
    /// Whether it is in the queue of writable links.
    pub(super) is_queued: bool,
    /// Queued cells other than data.
    cells: VecDeque<S::Cell>,
}

impl<S: CellModel> Link<S> {
    pub(super) const fn new(to: NextHop, is_own: bool) -> Self {
        Self {
            to,
            is_own,
            is_open: false,
            is_closing: false,
            has_feedback: false,
            unreported: Vec::new(),
            circuits: BTreeMap::new(),
            opened: 0,
            turn: CircId::LINK,
            is_queued: false,
            cells: VecDeque::new(),
        }
    }

    /// Whether a circuit through this relay may share it.
    pub(super) fn serves(&self, first: &NextHop) -> bool {
        let is_to = self.to.address == first.address && self.to.ids == first.ids;
        is_to && !self.is_own && !self.is_closing
    }

    pub(super) fn add_circuit(&mut self, number: CircuitNumber) -> CircId {
        self.opened += 1;
        let circ_id = CircId::of_initiator(self.opened);
        self.circuits.insert(circ_id, number);
        circ_id
    }

    /// The next circuit in order, after the one served last.
    pub(super) fn take_turn(&mut self) -> Option<(CircId, CircuitNumber)> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let next = self.circuits.range(after).next().or_else(|| self.circuits.iter().next());
        let (circ_id, number) = next?;
        self.turn = *circ_id;
        Some((*circ_id, *number))
    }

    /// Whether nothing but data is queued.
    pub(super) fn is_drained(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn push(&mut self, cell: S::Cell) {
        self.cells.push_back(cell);
    }

    /// Moves queued cells to the output; returns their number.
    pub(super) fn pop_into(&mut self, out: &mut [S::Cell]) -> usize {
        let count = self.cells.len().min(out.len());
        for (place, cell) in out.iter_mut().zip(self.cells.drain(..count)) {
            *place = cell;
        }
        count
    }
}
