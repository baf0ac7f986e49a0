//! The output of each link.

mod parking;
mod serving;
#[cfg(test)]
mod tests;

use crate::cell::{BODY_LEN, CELL_LEN, CELLS_PER_RECORD, CircId, Command};
use crate::cell_model::{Body, Cell, CellModel};
use crate::node::ConnId;
use crate::router::circuits::{CellQueue, CircuitIndex, Enqueued, OnLink, QueueId};
use crate::router::conns::Conns;
use crate::router::queue_age::QueueAge;
use crate::router::schedule::{CircuitMux, Decay, EwmaTick, Runs, SchedulerConfig};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(crate) use parking::ParkedBy;
use parking::Parking;

/// The bytes of the whole cells that fit into one TLS record.
pub(crate) const RECORD_BYTES: u64 = (CELLS_PER_RECORD * CELL_LEN) as u64;

/// Maximum number of queued control bytes of a link, before its peer is considered to be flooding.
const CONTROL_MAX: usize = 1 << 20;

/// A control cell: it opens or closes a circuit, or concerns its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The circuit, or [`CircId::LINK`].
    pub circ_id: CircId,
    /// The command.
    pub command: Command,
    /// The body, without padding.
    pub body: Box<[u8]>,
}

impl Control {
    /// Its size on the wire, in bytes.
    fn weight_bytes(&self) -> usize {
        let is_variable = self.command.is_variable_length();
        if is_variable { self.body.len() + CELL_LEN - BODY_LEN + 2 } else { CELL_LEN }
    }

    /// Writes it into `cell`. For fixed-length commands.
    pub fn fill<S: CellModel>(&self, cell: &mut S::Cell) {
        *cell.begin(self.circ_id, self.command) = S::Body::from_bytes(&self.body);
    }
}

/// The output of one link. The fields that each queued cell needs come first.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Output {
    /// Cells for this link in the queues of all circuits that are not blocked by a hop-by-hop window.
    pending_cells: usize,
    /// Bytes that it may write before the next scheduler run; unlimited without runs.
    allotment: Option<u64>,
    parking: Parking,
    /// It waits for the next scheduler run.
    awaits_run: bool,
    /// It is in [`Outputs::writable`].
    is_queued: bool,
    /// Its cells are measurement traffic.
    pub(crate) is_measurers: bool,
    /// It will be closed when its control cells are written.
    is_closing: bool,
    /// The circuits with cells for this link.
    mux: CircuitMux,
    /// Maximum number of cells in a record, if hop-by-hop windows require a smaller one.
    record_cells: Option<usize>,
    /// Control cells, not subject to rate limit or scheduler.
    control: VecDeque<Control>,
    /// Their size on the wire, in bytes.
    control_bytes: usize,
    control_age: QueueAge,
    /// Queues with forwarded cells from this link that have not been reported; some may be gone.
    pub(crate) unreported: Vec<QueueId>,
    /// At this length, duplicates are removed.
    unreported_max: usize,
}

/// Minimum of [`Output::unreported_max`].
const UNREPORTED_MIN: usize = 64;

/// The output of all links: which have something to write, and how much they may.
#[derive(Debug)]
pub(crate) struct Outputs {
    writable: VecDeque<ConnId>,
    parked_clients: VecDeque<ConnId>,
    parked_measurers: VecDeque<ConnId>,
    held_clients: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Cells in the queues of all circuits.
    queued_cells: usize,
    /// Control cells of all links.
    held_controls: usize,
    /// Circuits whose queue has become as short as their streams requested.
    drained: VecDeque<CircuitIndex>,
    /// Queues with forwarded cells to report to the previous hop.
    passed: Vec<QueueId>,
    runs: Runs,
    decay: Decay,
    now: Instant,
    /// The EWMA tick at [`now`](Self::now) or earlier. It costs a power of two, and most events do not need it.
    ewma_tick: EwmaTick,
    ewma_tick_at: Instant,
    /// The sum of the queueing delays of all cells, in nanoseconds.
    waited_cell_ns: u128,
}

impl Outputs {
    pub(crate) fn new(config: &SchedulerConfig, now: Instant) -> Self {
        let decay = Decay::new(config);
        Self {
            writable: VecDeque::new(),
            parked_clients: VecDeque::new(),
            parked_measurers: VecDeque::new(),
            held_clients: VecDeque::new(),
            to_close: VecDeque::new(),
            queued_cells: 0,
            held_controls: 0,
            drained: VecDeque::new(),
            passed: Vec::new(),
            runs: Runs::new(config.scheduler),
            ewma_tick: decay.at(now),
            ewma_tick_at: now,
            decay,
            now,
            waited_cell_ns: 0,
        }
    }

    /// The output of a new link.
    pub(crate) fn begin(&self) -> Output {
        Output { allotment: self.runs.are_there().then_some(0), ..Output::default() }
    }

    /// Marks a link's cells as measurement traffic, which is not scheduled. It must have no cells yet.
    pub(crate) fn set_measurers<S: CellModel>(conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id) {
            output.is_measurers = true;
            output.allotment = None;
            output.mux = CircuitMux::RoundRobin(VecDeque::new());
        }
    }

    /// The time of the current event: the router has no other clock.
    #[inline]
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock to `now`.
    #[inline]
    pub(crate) fn set_now(&mut self, now: Instant) {
        if now == self.now {
            return;
        }
        let waited = (now - self.now).as_nanos();
        self.waited_cell_ns += waited * self.queued_cells as u128;
        self.now = now;
    }

    /// The EWMA tick at `now`.
    #[inline]
    fn ewma_tick(&mut self) -> EwmaTick {
        if self.ewma_tick_at != self.now {
            self.ewma_tick_at = self.now;
            self.ewma_tick = self.decay.at(self.now);
        }
        self.ewma_tick
    }

    /// The sum of the queueing delays of all cells, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) const fn waited_cell_s(&self) -> f64 {
        self.waited_cell_ns as f64 * 1e-9
    }

    /// Queues a link for writing, once.
    #[inline]
    pub(crate) fn wake<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id)
            && !output.is_queued
        {
            output.is_queued = true;
            self.writable.push_back(id);
        }
    }

    /// Queues a control cell. Returns false if there are too many.
    pub(crate) fn control<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        control: Control,
    ) -> bool {
        let Some(output) = conns.output_mut(id) else { return true };
        if output.is_closing {
            return true;
        }
        if output.control_bytes > CONTROL_MAX {
            return false;
        }
        output.control_bytes += control.weight_bytes();
        output.control_age.handle_added(self.now, 1);
        self.held_controls += 1;
        output.control.push_back(control);
        self.wake(conns, id);
        true
    }

    /// Puts a relay cell into a circuit's queue for a link. `write` fills its body; if it returns false, the cell
    /// is withdrawn.
    #[inline]
    pub(crate) fn enqueue<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        to: OnLink,
        id: QueueId,
        queue: &mut CellQueue<S::Cell>,
        write: impl FnOnce(&mut S::Body) -> bool,
    ) {
        if write(queue.push(self.now).begin(to.circ_id, Command::RELAY)) {
            self.handle_queued(conns, to.conn, id, queue.enqueued());
        } else {
            queue.unpush();
        }
    }

    /// A cell has been put into a circuit's queue.
    #[inline]
    pub(crate) fn handle_queued<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        conn: ConnId,
        id: QueueId,
        enqueued: Enqueued,
    ) {
        self.queued_cells += 1;
        let Some(output) = conns.output_mut(conn) else { return };
        match enqueued {
            Enqueued::Blocked => return,
            Enqueued::More => {}
            Enqueued::First(cell_count) => {
                output.mux.add(id, cell_count, &self.ewma_tick());
            }
        }
        output.pending_cells += 1;
        if !output.is_parked() {
            self.want(conns, conn);
        }
    }

    /// A queue that was blocked by its hop-by-hop window may send again.
    pub(crate) fn handle_released<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        conn: ConnId,
        id: QueueId,
        queue: &CellQueue<S::Cell>,
    ) {
        let Some(output) = conns.output_mut(conn) else { return };
        output.mux.add(id, queue.cell_count, &self.ewma_tick());
        output.pending_cells += queue.len();
        if !output.is_parked() {
            self.want(conns, conn);
        }
    }

    /// The queue of a destroyed circuit had `cells` for this link; none of them was pending if it
    /// `was_blocked`.
    pub(crate) fn handle_dropped<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        cells: usize,
        was_blocked: bool,
    ) {
        debug_assert!(cells <= self.queued_cells, "more cells dropped than were queued");
        self.queued_cells = self.queued_cells.saturating_sub(cells);
        if let Some(output) = conns.output_mut(id).filter(|_| !was_blocked) {
            output.take_pending(cells);
        }
    }

    /// The next circuit whose queue has become as short as its streams requested.
    pub(crate) fn poll_drained(&mut self) -> Option<CircuitIndex> {
        self.drained.pop_front()
    }

    /// A queue has forwarded cells to report to the previous hop.
    pub(crate) fn note_passed(&mut self, id: QueueId) {
        self.passed.push(id);
    }

    /// Takes one of the queues with forwarded cells to report.
    #[inline]
    pub(crate) fn poll_passed(&mut self) -> Option<QueueId> {
        self.passed.pop()
    }

    /// The next control cell of a link.
    pub(crate) fn poll_control<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
    ) -> Option<Control> {
        let output = conns.output_mut(id)?;
        let control = output.control.pop_front()?;
        output.control_bytes -= control.weight_bytes();
        output.control_age.handle_taken(self.now, 1, output.control.len());
        self.held_controls -= 1;
        if output.control.is_empty() {
            output.control = VecDeque::new();
        }
        Some(control)
    }

    /// Discards a link's control cells.
    pub(crate) fn drop_control<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        let Some(output) = conns.output_mut(id) else { return };
        self.held_controls -= output.held_controls();
        output.control = VecDeque::new();
        output.control_bytes = 0;
        output.control_age = QueueAge::default();
    }

    /// Control cells of all links.
    pub(crate) const fn held_controls(&self) -> usize {
        self.held_controls
    }

    /// Cells in the queues of all circuits.
    pub(crate) const fn queued_cells(&self) -> usize {
        self.queued_cells
    }

    /// Closes the link after its control cells are written.
    pub(crate) fn close<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        let Some(output) = conns.output_mut(id) else { return };
        if output.is_closing {
            return;
        }
        output.is_closing = true;
        debug_assert!(output.pending_cells == 0, "its circuits are closed");
        output.mux.clear();
        // The driver asks for closes after it has written everything.
        self.wake(conns, id);
        self.to_close.push_back(id);
    }

    pub(crate) fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    /// The link is closed, by either side.
    pub(crate) fn forget<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id) {
            let gone = core::mem::take(output);
            self.held_controls -= gone.held_controls();
            // Its number may be given to another link.
            if gone.is_parked() {
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
    /// Since when its first control cell has been queued, as far as known.
    pub(crate) fn oldest_control_since(&self) -> Option<Instant> {
        self.control_age.since()
    }

    /// A queue has forwarded cells that came from this link.
    ///
    /// An entry appears once, until its circuit is gone and the index is reused. A link whose peer does not
    /// read has at most one entry for each index.
    pub(crate) fn note_unreported(&mut self, id: QueueId) {
        if self.unreported.len() >= self.unreported_max {
            self.unreported.sort_unstable();
            self.unreported.dedup();
            self.unreported_max = (self.unreported.len() * 2).max(UNREPORTED_MIN);
        }
        self.unreported.push(id);
    }

    /// The number of queued control cells.
    pub(crate) fn held_controls(&self) -> usize {
        self.control.len()
    }

    /// Whether nothing is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.pending_cells == 0
    }

    /// Cells that hop-by-hop windows allow to send.
    pub(crate) const fn pending_cells(&self) -> usize {
        self.pending_cells
    }

    /// Subtracts from `pending_cells`.
    #[inline]
    fn take_pending(&mut self, cells: usize) {
        debug_assert!(cells <= self.pending_cells, "no more cells leave than were pending");
        self.pending_cells = self.pending_cells.saturating_sub(cells);
    }
}
