//! What waits to be written on each link.

mod parking;
mod serving;
#[cfg(test)]
mod tests;

use super::circuit::Way;
use super::schedule::{Decay, Moment, Recent, Runs, SchedulerConfig, Turns};
use crate::cell::CELLS_PER_RECORD;
use crate::cell::{CELL_LEN, Cell, CircId, Command};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(super) use parking::Parked;

/// Bytes of the cells that one TLS record holds whole.
pub(super) const RECORD_BYTES: u64 = (CELLS_PER_RECORD * CELL_LEN) as u64;

/// Bytes of control cells that may wait on a link before it is held to be flooding us.
pub(super) const CONTROL_MAX: usize = 1 << 20;

/// What waits on one link.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Cells that open and close circuits, and messages: not limited by any rate or scheduler.
    control: Vec<u8>,
    control_start: usize,
    /// Circuits with cells for this link.
    pub(super) turns: Turns,
    /// Cells in the queues of all circuits for this link.
    pub(super) pending_cells: usize,
    pub(super) is_measurers: bool,
    is_queued: bool,
    /// It waits for the scheduler's next run.
    awaits_run: bool,
    /// Bytes that it may give to its socket before the next run; no limit without runs.
    allotment: Option<u64>,
    parked: Parked,
    /// It was woken, and has sent nothing since: its turn is still to come.
    awaits_turn: bool,
    /// It gets closed when its control cells are written.
    is_closing: bool,
}

/// The outputs of all links.
#[derive(Debug)]
pub(super) struct Outputs {
    outputs: Vec<Output>,
    writable: VecDeque<ConnId>,
    parked_clients: VecDeque<ConnId>,
    parked_measurers: VecDeque<ConnId>,
    held_clients: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    queued_cells: usize,
    /// Circuits whose queue has become as short as their streams wait for.
    drained: VecDeque<u32>,
    runs: Runs,
    decay: Decay,
    now: Instant,
    moment: Moment,
    /// Time that cells have waited in circuits' queues, all together: nanoseconds.
    waited_cell_ns: u128,
}

impl Outputs {
    pub(super) fn new(config: &SchedulerConfig, now: Instant) -> Self {
        let decay = Decay::new(config);
        Self {
            outputs: Vec::new(),
            writable: VecDeque::new(),
            parked_clients: VecDeque::new(),
            parked_measurers: VecDeque::new(),
            held_clients: VecDeque::new(),
            to_close: VecDeque::new(),
            queued_cells: 0,
            drained: VecDeque::new(),
            runs: Runs::new(config.scheduler),
            moment: decay.at(now),
            decay,
            now,
            waited_cell_ns: 0,
        }
    }

    /// Prepares for a link that has just got this number.
    pub(super) fn open(&mut self, id: ConnId) {
        let place = id.0 as usize;
        if self.outputs.len() <= place {
            self.outputs.resize_with(place + 1, Output::default);
        }
        let allotment = self.runs.are_there().then_some(0);
        self.outputs[place] = Output { allotment, ..Output::default() };
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Output> {
        self.outputs.get_mut(id.0 as usize)
    }

    /// From now on its cells are measurement traffic: no scheduler's business. It has none yet.
    pub(super) fn set_measurers(&mut self, id: ConnId) {
        if let Some(output) = self.get_mut(id) {
            output.is_measurers = true;
            output.allotment = None;
            output.turns = Turns::InTurn(VecDeque::new());
        }
    }

    /// It is this time now.
    #[inline]
    pub(super) fn handle_time(&mut self, now: Instant) {
        let waited = (now - self.now).as_nanos();
        self.waited_cell_ns += waited * self.queued_cells as u128;
        self.now = now;
        self.moment = self.decay.at(now);
    }

    /// Seconds that cells have waited in circuits' queues, all together.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) const fn waited_cell_s(&self) -> f64 {
        self.waited_cell_ns as f64 * 1e-9
    }

    /// Queues a link for writing, once.
    #[inline]
    pub(super) fn wake(&mut self, id: ConnId) {
        if let Some(output) = self.outputs.get_mut(id.0 as usize)
            && !output.is_queued
        {
            output.is_queued = true;
            self.writable.push_back(id);
        }
    }

    /// Queues a cell that opens or closes a circuit, or a message. False if too many wait.
    pub(super) fn control(
        &mut self,
        id: ConnId,
        circ_id: CircId,
        command: Command,
        body: &[u8],
    ) -> bool {
        let Some(output) = self.get_mut(id) else { return true };
        if output.is_closing {
            return true;
        }
        if output.control.len() - output.control_start > CONTROL_MAX {
            return false;
        }
        // A queue that never runs empty would keep all that it ever sent.
        if output.control_start > output.control.len() / 2 {
            output.control.drain(..output.control_start);
            output.control_start = 0;
        }
        Cell { circ_id, command, body }.encode_into(&mut output.control);
        self.wake(id);
        true
    }

    /// A cell has been put into a circuit's queue. It was empty if there is a count of what has left
    /// it.
    #[inline]
    pub(super) fn handle_queued(
        &mut self,
        id: ConnId,
        number: u32,
        way: Way,
        was_empty: Option<Recent>,
    ) {
        self.queued_cells += 1;
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return };
        output.pending_cells += 1;
        if let Some(recent) = was_empty {
            output.turns.add(number, way, recent, &self.moment);
        }
        if output.parked == Parked::No {
            self.want(id);
        }
    }

    /// A circuit with so many cells for this link is gone.
    pub(super) fn handle_dropped(&mut self, id: ConnId, cells: usize) {
        if let Some(output) = self.get_mut(id) {
            output.pending_cells = output.pending_cells.saturating_sub(cells);
        }
        self.queued_cells = self.queued_cells.saturating_sub(cells);
    }

    /// The next circuit whose queue has become as short as its streams wait for.
    pub(super) fn poll_drained(&mut self) -> Option<u32> {
        self.drained.pop_front()
    }

    /// Cells in the queues of all circuits.
    pub(super) const fn queued_cells(&self) -> usize {
        self.queued_cells
    }

    /// Whether nothing waits on a link.
    pub(super) fn is_idle(&self, id: ConnId) -> bool {
        let output = self.outputs.get(id.0 as usize);
        output.is_none_or(|output| output.control.is_empty() && output.pending_cells == 0)
    }

    /// Closes the link once its control cells are written.
    pub(super) fn close(&mut self, id: ConnId) {
        let Some(output) = self.get_mut(id) else { return };
        if output.is_closing {
            return;
        }
        output.is_closing = true;
        output.pending_cells = 0;
        output.turns.clear();
        // Writing comes first: the driver asks for closes when nothing is left to write.
        self.wake(id);
        self.to_close.push_back(id);
    }

    pub(super) fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    /// It is closed, by us or by the peer.
    pub(super) fn forget(&mut self, id: ConnId) {
        if let Some(output) = self.get_mut(id) {
            let gone = core::mem::take(output);
            // Its number may be given to another link.
            if gone.parked != Parked::No {
                let lists =
                    [&mut self.parked_clients, &mut self.parked_measurers, &mut self.held_clients];
                lists.into_iter().for_each(|list| list.retain(|waiting| *waiting != id));
            }
            self.runs.forget(id);
        }
        self.to_close.retain(|closing| *closing != id);
    }
}

impl Output {
    pub(super) fn take_control(&mut self, out: &mut [u8]) -> usize {
        let queued = &self.control[self.control_start..];
        let len = queued.len().min(out.len());
        out[..len].copy_from_slice(&queued[..len]);
        self.control_start += len;
        if self.control_start == self.control.len() {
            self.control = Vec::new();
            self.control_start = 0;
        }
        len
    }
}
