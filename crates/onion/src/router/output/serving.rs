//! Which link is served next, and how much it may send: the [`schedule`](crate::router::schedule),
//! applied.

use super::{Output, Outputs};
use crate::cell::CELL_LEN;
use crate::cell::CELLS_PER_RECORD;
use crate::node::{ConnId, SocketState};
use crate::router::circuit::Circuits;
use crate::router::schedule::{RECORD_OVERHEAD_BYTES, Runs, SchedulerConfig};
use crate::time::Instant;

impl Output {
    /// Cells of a record that it may send now.
    #[inline]
    fn allotted_cells(&self) -> usize {
        match self.allotment {
            None => CELLS_PER_RECORD,
            Some(bytes) => {
                let cells = bytes.saturating_sub(RECORD_OVERHEAD_BYTES) / CELL_LEN as u64;
                usize::try_from(cells).map_or(CELLS_PER_RECORD, |cells| cells.min(CELLS_PER_RECORD))
            }
        }
    }

    pub(super) fn has_allotment(&self) -> bool {
        self.allotted_cells() > 0
    }
}

impl Outputs {
    /// Schedules like this from now on.
    pub(in crate::router) fn set_scheduler(&mut self, config: &SchedulerConfig) {
        self.runs = Runs::new(config.scheduler);
        self.decay = super::Decay::new(config);
        self.moment = self.decay.at(self.now);
        let allotment = self.runs.are_there().then_some(0);
        for (number, output) in (0..).zip(&mut self.outputs) {
            output.awaits_run = false;
            if output.is_measurers {
                continue;
            }
            output.allotment = allotment;
            if output.pending_cells > 0 && !output.is_parked() {
                output.awaits_run = allotment.is_some();
                if allotment.is_some() {
                    self.runs.wait(ConnId(number));
                } else if !core::mem::replace(&mut output.is_queued, true) {
                    self.writable.push_back(ConnId(number));
                }
            }
        }
    }

    /// A link has cells that it may send as far as parking goes: now, or in the next run.
    #[inline]
    pub(super) fn want(&mut self, id: ConnId) {
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return };
        if output.allotment.is_none() {
            self.wake(id);
        } else if !output.awaits_run {
            output.awaits_run = true;
            self.runs.wait(id);
        }
    }

    /// When the next run is due, if one is wanted.
    pub(in crate::router) fn next_run_at(&self) -> Option<Instant> {
        self.runs.next_at()
    }

    /// The next link whose socket the scheduler wants to know of, at the time of
    /// [`handle_time`](Self::handle_time).
    pub(in crate::router) fn poll_socket_query(&mut self) -> Option<ConnId> {
        self.begin_run();
        self.runs.ask()
    }

    pub(in crate::router) fn handle_socket_state(
        &mut self,
        id: ConnId,
        state: Option<&SocketState>,
    ) {
        if let Some(limit_bytes) = self.runs.answer(id, state) {
            self.allot(id, limit_bytes);
        }
    }

    pub(in crate::router) fn poll_writable(&mut self) -> Option<ConnId> {
        // Drivers that don't ask for queries have begun no run either.
        self.begin_run();
        while let Some((id, limit_bytes)) = self.runs.unasked() {
            self.allot(id, limit_bytes);
        }
        while let Some(id) = self.writable.pop_front() {
            // It may be gone since: then it is not to be named any more.
            if let Some(output) = self.get_mut(id)
                && core::mem::take(&mut output.is_queued)
            {
                return Some(id);
            }
        }
        self.runs.next()
    }

    fn begin_run(&mut self) {
        let outputs = &mut self.outputs;
        self.runs.begin(self.now, |id| {
            let Some(output) = outputs.get_mut(id.0 as usize) else { return false };
            output.awaits_run = false;
            output.pending_cells > 0 && !output.is_parked()
        });
    }

    fn allot(&mut self, id: ConnId, limit_bytes: u64) {
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return };
        if output.allotment.is_none() {
            return; // it has become a measurer's
        }
        output.allotment = Some(limit_bytes);
        if output.has_allotment() {
            let rank = output.turns.rank(&self.moment);
            self.runs.enter(id, rank);
        } else {
            self.want(id);
        }
    }

    /// Cells that a link may put into a record now; zero if it has none, or if others go first.
    #[inline]
    pub(in crate::router) fn wanted_cells(&mut self, id: ConnId) -> usize {
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return 0 };
        let pending = output.pending_cells;
        if output.allotment.is_none() {
            return pending.min(CELLS_PER_RECORD);
        }
        if pending == 0 {
            // Cells that come later wait for the next run, as all others do.
            output.allotment = Some(0);
            return 0;
        }
        let allotted = output.allotted_cells();
        if allotted == 0 {
            self.want(id);
            return 0;
        }
        let (turns, moment) = (&mut output.turns, &self.moment);
        if !self.runs.may_give(id, || turns.rank(moment)) {
            return 0;
        }
        pending.min(allotted)
    }

    /// Fills `out` with cells of a link's circuits; returns how many.
    #[inline]
    pub(in crate::router) fn take_cells(
        &mut self,
        id: ConnId,
        circuits: &mut Circuits,
        out: &mut [[u8; CELL_LEN]],
    ) -> usize {
        let Some(output) = self.outputs.get_mut(id.0 as usize) else { return 0 };
        let cells = output.turns.take(id, &self.moment, circuits, &mut self.drained, out);
        output.pending_cells = output.pending_cells.saturating_sub(cells);
        output.awaits_turn &= cells == 0;
        self.queued_cells = self.queued_cells.saturating_sub(cells);
        if let Some(allotment) = &mut output.allotment {
            let bytes = (cells * CELL_LEN) as u64 + RECORD_OVERHEAD_BYTES;
            *allotment = allotment.saturating_sub(bytes);
        }
        cells
    }
}
