//! Which link is served next and how much it may send, by the [`schedule`](crate::router::schedule).

use super::{Output, Outputs, Parking};
use crate::cell::{CELL_LEN, CELLS_PER_RECORD};
use crate::cell_model::CellModel;
use crate::node::{ConnId, SocketState};
use crate::router::circuits::Circuits;
use crate::router::conns::Conns;
use crate::router::schedule::{
    Decay, RECORD_OVERHEAD_BYTES, Runs, SchedulerConfig, Served, ServedCells,
};
use crate::time::Instant;

/// Cells of a record on a link with hop-by-hop windows: as many as TCP sends in a scheduler interval, as far as
/// known.
///
/// The cells of a record arrive when its last byte arrives. In a long record on a slow link, the first cell
/// waits for all others. A window that follows the delay mistakes this for a queue, and the burst is forwarded,
/// reported and sent as a burst forever.
fn record_cells(state: &SocketState) -> usize {
    let interval_us = u64::try_from(SchedulerConfig::INTERVAL.as_micros()).unwrap_or(u64::MAX);
    let window_bytes = u64::from(state.cwnd_segments) * u64::from(state.mss_bytes);
    let bytes = window_bytes.saturating_mul(interval_us) / u64::from(state.rtt_us).max(1);
    usize::try_from(bytes / CELL_LEN as u64)
        .map_or(CELLS_PER_RECORD, |cells| cells.clamp(1, CELLS_PER_RECORD))
}

impl Output {
    /// Cells that it may put into a record now.
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
    /// Sets the scheduler.
    pub(crate) fn set_scheduler<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        config: &SchedulerConfig,
    ) {
        self.runs = Runs::new(config.scheduler);
        self.decay = Decay::new(config);
        (self.ewma_tick, self.ewma_tick_at) = (self.decay.at(self.now), self.now);
        let allotment = self.runs.are_there().then_some(0);
        for (id, link) in conns.links_mut() {
            let output = &mut link.output;
            output.awaits_run = false;
            if output.is_measurers {
                continue;
            }
            output.allotment = allotment;
            if output.pending_cells > 0 && !output.is_parked() {
                output.awaits_run = allotment.is_some();
                if allotment.is_some() {
                    self.runs.wait(id);
                } else if !core::mem::replace(&mut output.is_queued, true) {
                    self.writable.push_back(id);
                }
            }
        }
    }

    /// A link has cells and is not parked: it sends now, or in the next run.
    #[inline]
    pub(super) fn want<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        let Some(output) = conns.output_mut(id) else { return };
        if output.allotment.is_none() {
            self.wake(conns, id);
        } else if !output.awaits_run {
            output.awaits_run = true;
            self.runs.wait(id);
        }
    }

    /// When the next run is due, if any link waits for it.
    pub(crate) fn next_run_at(&self) -> Option<Instant> {
        self.runs.next_at()
    }

    /// The next link whose socket state the scheduler needs.
    pub(crate) fn poll_socket_query<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
    ) -> Option<ConnId> {
        self.begin_run(conns);
        self.runs.ask()
    }

    pub(crate) fn handle_socket_state<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        state: Option<&SocketState>,
    ) {
        let Some(limit_bytes) = self.runs.answer(id, state) else { return };
        if let Some(link) = conns.link_mut(id).filter(|link| link.has_feedback) {
            link.output.record_cells = state.map(record_cells);
        }
        self.allot(conns, id, limit_bytes);
    }

    pub(crate) fn poll_writable<S: CellModel>(&mut self, conns: &mut Conns<S>) -> Option<ConnId> {
        // Drivers that do not poll for queries have begun no run either.
        self.begin_run(conns);
        while let Some((id, limit_bytes)) = self.runs.unasked() {
            self.allot(conns, id, limit_bytes);
        }
        while let Some(id) = self.writable.pop_front() {
            // The link may be closed since: it must not be named then.
            if let Some(output) = conns.output_mut(id)
                && core::mem::take(&mut output.is_queued)
            {
                return Some(id);
            }
        }
        self.runs.next()
    }

    fn begin_run<S: CellModel>(&mut self, conns: &mut Conns<S>) {
        self.runs.begin(self.now, |id| {
            let Some(output) = conns.output_mut(id) else { return false };
            output.awaits_run = false;
            output.pending_cells > 0 && !output.is_parked()
        });
    }

    fn allot<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, limit_bytes: u64) {
        let Some(output) = conns.output_mut(id) else { return };
        if output.allotment.is_none() {
            return; // it has become a measurer's
        }
        output.allotment = Some(limit_bytes);
        if output.has_allotment() {
            let rank = output.mux.rank(&self.ewma_tick());
            self.runs.enter(id, rank);
        } else {
            self.want(conns, id);
        }
    }

    /// Cells that a link may put into a record now; zero if it has none or if others go first.
    #[inline]
    pub(crate) fn wanted_cells<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) -> usize {
        let Some(output) = conns.output_mut(id) else { return 0 };
        let pending = output.pending_cells;
        if output.allotment.is_none() {
            return pending.min(CELLS_PER_RECORD);
        }
        if pending == 0 {
            // Cells that arrive later wait for the next run.
            output.allotment = Some(0);
            return 0;
        }
        let allotted = output.allotted_cells();
        if allotted == 0 {
            self.want(conns, id);
            return 0;
        }
        let (mux, ewma_tick) = (&mut output.mux, self.ewma_tick());
        if !self.runs.may_give(id, || mux.rank(&ewma_tick)) {
            return 0;
        }
        pending.min(allotted).min(output.record_cells.unwrap_or(CELLS_PER_RECORD))
    }

    /// Fills `out` with cells of a link's circuits. With `notes_own`, the result has the number of cells that this
    /// relay has made itself.
    #[inline]
    pub(crate) fn take_cells<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        circuits: &mut Circuits<S>,
        id: ConnId,
        notes_own: bool,
        out: &mut [S::Cell],
    ) -> ServedCells {
        let ewma_tick = self.ewma_tick();
        let Some(output) = conns.output_mut(id) else { return ServedCells::default() };
        let (drained, passed) = (&mut self.drained, &mut self.passed);
        let served = Served { conn: id, now: self.now, notes_own, drained, passed };
        let taken = output.mux.serve(served, &ewma_tick, circuits, out);
        let cells = taken.cells;
        output.take_pending(cells + taken.blocked_cells);
        if cells > 0 && output.parking == Parking::Woken {
            output.parking = Parking::No;
        }
        debug_assert!(cells <= self.queued_cells, "more cells sent than were queued");
        self.queued_cells = self.queued_cells.saturating_sub(cells);
        if let Some(allotment) = &mut output.allotment {
            let bytes = (cells * CELL_LEN) as u64 + RECORD_OVERHEAD_BYTES;
            *allotment = allotment.saturating_sub(bytes);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_tcp_sends_in_two_milliseconds() {
        let state = |cwnd_segments, rtt_us| SocketState {
            cwnd_segments,
            unacked_segments: 0,
            mss_bytes: 1448,
            notsent_bytes: 0,
            unwritten_bytes: 0,
            rtt_us,
        };
        // 10 Mbit/s over 20 ms: 2,500 bytes.
        assert_eq!(record_cells(&state(17, 20_000)), 4);
        assert_eq!(record_cells(&state(17, 200_000)), 1, "a cell at least");
        assert_eq!(record_cells(&state(10, 50)), CELLS_PER_RECORD);
        assert_eq!(record_cells(&state(10, 0)), CELLS_PER_RECORD, "nothing is known yet");
    }
}
