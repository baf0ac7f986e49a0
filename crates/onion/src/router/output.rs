//! What waits to be written on each link, and whose turn it is.

use super::circuit::{Circuits, Way};
use super::{Conduct, Router};
use crate::cell::{BODY_LEN, CELL_LEN, Cell, CircId, Command, begin_fixed};
use crate::measure::pump::CELLS_PER_RECORD;
use crate::node::ConnId;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rand_core::Rng;

/// Bytes of the cells that one TLS record holds whole.
pub(super) const RECORD_BYTES: u64 = (CELLS_PER_RECORD * CELL_LEN) as u64;

/// Cells of one circuit before the next has its turn.
const QUANTUM_CELLS: usize = 8;

/// Bytes of control cells that may wait on a link before it is held to be flooding us.
pub(super) const CONTROL_MAX: usize = 1 << 20;

/// Why a link that has cells does not send them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parked {
    #[default]
    No,
    /// The relay's rate limit.
    ByRate,
    /// The clients' share while the relay is measured.
    ByShare,
}

/// What waits on one link.
#[derive(Debug, Default)]
struct Output {
    /// Cells that open and close circuits, and messages: not limited by any rate.
    control: Vec<u8>,
    control_start: usize,
    /// Circuits with cells for this link, each once; some may be gone.
    turns: VecDeque<(u32, Way)>,
    /// Cells in the queues of all circuits for this link.
    pending_cells: usize,
    is_measurers: bool,
    is_queued: bool,
    parked: Parked,
    /// It gets closed when its control cells are written.
    is_closing: bool,
}

/// The outputs of all links.
#[derive(Debug, Default)]
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
}

impl Outputs {
    /// Prepares for a link that has just got this number.
    pub(super) fn open(&mut self, id: ConnId) {
        let place = id.0 as usize;
        if self.outputs.len() <= place {
            self.outputs.resize_with(place + 1, Output::default);
        }
        self.outputs[place] = Output::default();
    }

    #[inline]
    fn get_mut(&mut self, id: ConnId) -> Option<&mut Output> {
        self.outputs.get_mut(id.0 as usize)
    }

    /// From now on its cells are measurement traffic.
    pub(super) fn set_measurers(&mut self, id: ConnId) {
        if let Some(output) = self.get_mut(id) {
            output.is_measurers = true;
        }
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

    pub(super) fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let id = self.writable.pop_front()?;
            // It may be gone since: then it is not to be named any more.
            if let Some(output) = self.get_mut(id)
                && core::mem::take(&mut output.is_queued)
            {
                return Some(id);
            }
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

    /// A cell has been put into a circuit's queue, which was `was_empty`.
    #[inline]
    pub(super) fn handle_queued(&mut self, id: ConnId, number: u32, way: Way, was_empty: bool) {
        self.queued_cells += 1;
        let Some(output) = self.get_mut(id) else { return };
        output.pending_cells += 1;
        if was_empty {
            output.turns.push_back((number, way));
        }
        if output.parked == Parked::No {
            self.wake(id);
        }
    }

    /// A circuit with so many cells for this link is gone.
    pub(super) fn handle_dropped(&mut self, id: ConnId, cells: usize) {
        if let Some(output) = self.get_mut(id) {
            output.pending_cells = output.pending_cells.saturating_sub(cells);
        }
        self.queued_cells = self.queued_cells.saturating_sub(cells);
    }

    /// So many have left their queues.
    #[inline]
    const fn handle_sent(&mut self, cells: usize) {
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
        }
        self.to_close.retain(|closing| *closing != id);
    }

    /// Wakes so many links that the rate limit holds, clients' first.
    pub(super) fn wake_parked(&mut self, mut count: usize) {
        while count > 0
            && let Some(id) =
                self.parked_clients.pop_front().or_else(|| self.parked_measurers.pop_front())
        {
            self.unpark(id, Parked::ByRate);
            count -= 1;
        }
    }

    /// Wakes so many links that the clients' share holds.
    pub(super) fn wake_held(&mut self, mut count: usize) {
        while count > 0
            && let Some(id) = self.held_clients.pop_front()
        {
            self.unpark(id, Parked::ByShare);
            count -= 1;
        }
    }

    fn unpark(&mut self, id: ConnId, from: Parked) {
        if let Some(output) = self.get_mut(id)
            && output.parked == from
        {
            output.parked = Parked::No;
            self.wake(id);
        }
    }

    fn park(&mut self, id: ConnId, why: Parked) {
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return };
        if output.parked != Parked::No {
            return;
        }
        output.parked = why;
        let list = match (why, output.is_measurers) {
            (Parked::No, _) => return,
            (Parked::ByShare, _) => &mut self.held_clients,
            (Parked::ByRate, true) => &mut self.parked_measurers,
            (Parked::ByRate, false) => &mut self.parked_clients,
        };
        list.push_back(id);
    }

    pub(super) fn has_parked(&self) -> bool {
        !self.parked_clients.is_empty() || !self.parked_measurers.is_empty()
    }

    pub(super) fn has_held(&self) -> bool {
        !self.held_clients.is_empty()
    }
}

impl Output {
    fn take_control(&mut self, out: &mut [u8]) -> usize {
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

    /// Fills `out` with cells, circuit by circuit in turn; returns how many.
    fn take_cells(
        &mut self,
        circuits: &mut Circuits,
        drained: &mut VecDeque<u32>,
        out: &mut [[u8; CELL_LEN]],
    ) -> usize {
        let mut written = 0;
        while written < out.len() {
            let Some((number, way)) = self.turns.pop_front() else { break };
            let Some(circuit) = circuits.get_mut(number) else { continue };
            let quantum = QUANTUM_CELLS.min(out.len() - written);
            let queue = circuit.queue_mut(way);
            written += queue.pop_into(&mut out[written..written + quantum]);
            if queue.has_become_short() {
                drained.push_back(number);
            }
            if queue.len() > 0 {
                self.turns.push_back((number, way));
            }
        }
        self.pending_cells = self.pending_cells.saturating_sub(written);
        written
    }
}

impl<R: Rng, C: Conduct> Router<R, C> {
    /// Puts a relay cell into a circuit's queue, to be filled; false if the queue is full.
    #[inline]
    pub(super) fn queue_cell(
        &mut self,
        number: u32,
        way: Way,
        command: Command,
        fill: impl FnOnce(&mut [u8; BODY_LEN]),
    ) -> bool {
        let Some(circuit) = self.circuits.get_mut(number) else { return true };
        let Some(out) = circuit.way_out(way) else { return true };
        let queue = circuit.queue_mut(way);
        if queue.len() >= self.config.queue_limit_cells as usize {
            return false;
        }
        let was_empty = queue.len() == 0;
        let body = begin_fixed(queue.push(), out.circ_id, command);
        if let Ok(body) = body.try_into() {
            fill(body);
        }
        self.outputs.handle_queued(out.conn, number, way, was_empty);
        true
    }

    /// Fills `out` with what a link has to send now.
    pub(super) fn transmit(&mut self, now: Instant, id: ConnId, out: &mut [u8]) -> usize {
        let channel = self.links.get_mut(id).and_then(|link| link.channel.as_mut());
        let handshake = channel.map_or(0, |channel| channel.poll_transmit(out));
        if handshake > 0 {
            return handshake;
        }
        let Some(output) = self.outputs.get_mut(id) else { return 0 };
        let control = output.take_control(out);
        if control > 0 {
            return control;
        }
        let (slots, _) = out.as_chunks_mut::<CELL_LEN>();
        let wanted = output.pending_cells.min(slots.len()).min(CELLS_PER_RECORD);
        if wanted == 0 {
            return 0;
        }
        let is_measurers = output.is_measurers;
        if let Some(rate) = self.conduct.rate_while_measured() {
            self.change_rate(now, rate); // an honest relay has no such code
        }
        let affordable = self.bucket.as_mut().map_or(u64::MAX, |b| b.available_bytes(now));
        if affordable < (wanted * CELL_LEN) as u64 {
            // Better a whole record later than crumbs now.
            self.outputs.park(id, Parked::ByRate);
            return 0;
        }
        let mut allowed = wanted;
        if !is_measurers {
            let bytes = self.conduct.clients_may_send(self.target.clients_may_send(now));
            let cells = usize::try_from(bytes / CELL_LEN as u64).unwrap_or(usize::MAX);
            allowed = wanted.min(cells);
            if allowed == 0 {
                self.outputs.park(id, Parked::ByShare);
                return 0;
            }
        }
        let Outputs { outputs, drained, .. } = &mut self.outputs;
        let Some(output) = outputs.get_mut(id.0 as usize) else { return 0 };
        let cells = output.take_cells(&mut self.circuits, drained, &mut slots[..allowed]);
        self.outputs.handle_sent(cells);
        let bytes = (cells * CELL_LEN) as u64;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes);
        }
        if is_measurers {
            self.target.handle_measured(bytes);
            self.totals.measured_bytes += bytes;
        } else {
            self.target.handle_client_sent(bytes);
            self.totals.client_bytes += bytes;
        }
        cells * CELL_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that reads just fast enough never lets the queue run empty.
    #[test]
    fn a_queue_that_never_runs_empty_does_not_keep_what_it_has_sent() {
        let (mut outputs, id) = (Outputs::default(), ConnId(0));
        outputs.open(id);
        let mut out = [0; CELL_LEN];
        for _ in 0..10_000 {
            assert!(outputs.control(id, CircId::new(1), Command::DESTROY, &[1]));
            let output = outputs.get_mut(id).expect("open");
            if output.control.len() - output.control_start > 2 * CELL_LEN {
                assert_eq!(output.take_control(&mut out), CELL_LEN);
            }
            assert!(output.control.len() <= 16 * CELL_LEN, "{} bytes", output.control.len());
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_gets_no_more_than_so_much() {
        let (mut outputs, id) = (Outputs::default(), ConnId(0));
        outputs.open(id);
        while outputs.control(id, CircId::new(1), Command::DESTROY, &[1]) {}
        let output = outputs.get_mut(id).expect("open");
        assert!(output.control.len() <= CONTROL_MAX + CELL_LEN, "{} bytes", output.control.len());
    }
}
