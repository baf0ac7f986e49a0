//! What waits to be written on each link.

mod parking;
mod serving;
#[cfg(test)]
mod tests;

use crate::cell::{BODY_LEN, CELL_LEN, CELLS_PER_RECORD, CircId, Command};
use crate::cell_model::{Body, Cell, CellModel};
use crate::node::ConnId;
use crate::router::circuits::{CircuitIndex, Direction, Enqueued};
use crate::router::conns::Conns;
use crate::router::queue_age::QueueAge;
use crate::router::schedule::{CellCount, CircuitMux, Decay, EwmaTick, Runs, SchedulerConfig};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(in crate::router) use parking::Parked;

/// Bytes of the cells that one TLS record holds whole.
pub(in crate::router) const RECORD_BYTES: u64 = (CELLS_PER_RECORD * CELL_LEN) as u64;

/// Bytes on the wire of control cells that may wait on a link before it is held to be flooding us.
const CONTROL_MAX: usize = 1 << 20;

/// A cell that opens or closes a circuit, or concerns its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The circuit, or [`CircId::LINK`].
    pub circ_id: CircId,
    /// What it asks for.
    pub command: Command,
    /// What it says, without padding.
    pub body: Box<[u8]>,
}

impl Control {
    /// Bytes of it on the wire.
    fn weight_bytes(&self) -> usize {
        let is_variable = self.command.is_variable_length();
        if is_variable { self.body.len() + CELL_LEN - BODY_LEN + 2 } else { CELL_LEN }
    }

    /// Makes `cell` this one. For commands of fixed length.
    pub fn fill<S: CellModel>(&self, cell: &mut S::Cell) {
        *cell.begin(self.circ_id, self.command) = S::Body::from_bytes(&self.body);
    }
}

/// What waits on one link. What a cell that is queued needs comes first.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::router) struct Output {
    /// Cells for this link in the queues of all circuits but those that wait for the next hop.
    pending_cells: usize,
    /// Bytes that it may give to its socket before the next run; no limit without runs.
    allotment: Option<u64>,
    parked: Parked,
    /// It waits for the scheduler's next run.
    awaits_run: bool,
    is_queued: bool,
    pub(in crate::router) is_measurers: bool,
    /// It was woken, and has sent nothing since: its turn is still to come.
    awaits_turn: bool,
    /// It gets closed when its control cells are written.
    is_closing: bool,
    /// Circuits with cells for this link.
    mux: CircuitMux,
    /// Cells of a record, at most, where windows from hop to hop have it shorter.
    record_cells: Option<usize>,
    /// Cells that open and close circuits, and messages: not limited by any rate or scheduler.
    control: VecDeque<Control>,
    /// Bytes of them on the wire.
    control_bytes: usize,
    control_age: QueueAge,
    /// Queues of circuits that have passed on cells from it, which is to be told; some may be gone.
    pub(in crate::router) to_tell: Vec<(CircuitIndex, Direction)>,
    /// When these are as many, they are looked through for those that are there twice.
    to_tell_most: usize,
}

/// The least of [`Output::to_tell_most`].
const TO_TELL_MIN: usize = 64;

/// Which links have something to write, and what they may.
#[derive(Debug)]
pub(in crate::router) struct Outputs {
    writable: VecDeque<ConnId>,
    parked_clients: VecDeque<ConnId>,
    parked_measurers: VecDeque<ConnId>,
    held_clients: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Cells in the queues of all circuits.
    queued_cells: usize,
    /// Control cells of all links.
    held_controls: usize,
    /// Circuits whose queue has become as short as their streams wait for.
    drained: VecDeque<CircuitIndex>,
    /// Queues that have passed cells on, of which the hop before is to be told.
    passed: Vec<(CircuitIndex, Direction)>,
    runs: Runs,
    decay: Decay,
    now: Instant,
    /// Of [`now`](Self::now) or an earlier time: it takes a power of two, and by far not all that happens needs it.
    ewma_tick: EwmaTick,
    ewma_tick_at: Instant,
    /// Time that cells have waited in circuits' queues, all together: nanoseconds.
    waited_cell_ns: u128,
}

impl Outputs {
    pub(in crate::router) fn new(config: &SchedulerConfig, now: Instant) -> Self {
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

    /// What a new link begins with.
    pub(in crate::router) fn begin(&self) -> Output {
        Output { allotment: self.runs.are_there().then_some(0), ..Output::default() }
    }

    /// From now on a link's cells are measurement traffic: no scheduler's business. It has none yet.
    pub(in crate::router) fn set_measurers<S: CellModel>(conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id) {
            output.is_measurers = true;
            output.allotment = None;
            output.mux = CircuitMux::RoundRobin(VecDeque::new());
        }
    }

    /// The time of what is being handled: there is no other in the router.
    #[inline]
    pub(in crate::router) const fn now(&self) -> Instant {
        self.now
    }

    /// It is this time from now on.
    #[inline]
    pub(in crate::router) fn set_now(&mut self, now: Instant) {
        if now == self.now {
            return;
        }
        let waited = (now - self.now).as_nanos();
        self.waited_cell_ns += waited * self.queued_cells as u128;
        self.now = now;
    }

    /// Now, as counts see it.
    #[inline]
    fn ewma_tick(&mut self) -> EwmaTick {
        if self.ewma_tick_at != self.now {
            self.ewma_tick_at = self.now;
            self.ewma_tick = self.decay.at(self.now);
        }
        self.ewma_tick
    }

    /// Seconds that cells have waited in circuits' queues, all together.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(in crate::router) const fn waited_cell_s(&self) -> f64 {
        self.waited_cell_ns as f64 * 1e-9
    }

    /// Queues a link for writing, once.
    #[inline]
    pub(in crate::router) fn wake<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id)
            && !output.is_queued
        {
            output.is_queued = true;
            self.writable.push_back(id);
        }
    }

    /// Queues a cell that opens or closes a circuit, or a message. False if too many wait.
    pub(in crate::router) fn control<S: CellModel>(
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

    /// A cell has been put into a circuit's queue.
    #[inline]
    pub(in crate::router) fn handle_queued<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        (index, direction): (CircuitIndex, Direction),
        enqueued: Enqueued,
    ) {
        self.queued_cells += 1;
        let Some(output) = conns.output_mut(id) else { return };
        match enqueued {
            Enqueued::Blocked => return,
            Enqueued::More => {}
            Enqueued::First(cell_count) => {
                output.mux.add(index, direction, cell_count, &self.ewma_tick())
            }
        }
        output.pending_cells += 1;
        if output.parked == Parked::No {
            self.want(conns, id);
        }
    }

    /// A circuit that waited for the next hop may send again; it has so many cells.
    pub(in crate::router) fn handle_released<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        (index, direction): (CircuitIndex, Direction),
        (cells, cell_count): (usize, CellCount),
    ) {
        let Some(output) = conns.output_mut(id) else { return };
        output.mux.add(index, direction, cell_count, &self.ewma_tick());
        output.pending_cells += cells;
        if output.parked == Parked::No {
            self.want(conns, id);
        }
    }

    /// A circuit with so many cells for this link is gone; none of them was pending if it `was_held`.
    pub(in crate::router) fn handle_dropped<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
        cells: usize,
        was_held: bool,
    ) {
        debug_assert!(cells <= self.queued_cells, "more cells dropped than were queued");
        self.queued_cells = self.queued_cells.saturating_sub(cells);
        if let Some(output) = conns.output_mut(id).filter(|_| !was_held) {
            output.take_pending(cells);
        }
    }

    /// The next circuit whose queue has become as short as its streams wait for.
    pub(in crate::router) fn poll_drained(&mut self) -> Option<CircuitIndex> {
        self.drained.pop_front()
    }

    /// A queue has passed cells on, of which the hop before is to be told.
    pub(in crate::router) fn note_passed(&mut self, index: CircuitIndex, direction: Direction) {
        self.passed.push((index, direction));
    }

    /// The last of the queues that have passed cells on.
    #[inline]
    pub(in crate::router) fn poll_passed(&mut self) -> Option<(CircuitIndex, Direction)> {
        self.passed.pop()
    }

    /// The next control cell of a link.
    pub(in crate::router) fn poll_control<S: CellModel>(
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

    /// A link's control cells are not to be written any more.
    pub(in crate::router) fn drop_control<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        id: ConnId,
    ) {
        let Some(output) = conns.output_mut(id) else { return };
        self.held_controls -= output.held_controls();
        output.control = VecDeque::new();
        output.control_bytes = 0;
        output.control_age = QueueAge::default();
    }

    /// Control cells of all links.
    pub(in crate::router) const fn held_controls(&self) -> usize {
        self.held_controls
    }

    /// Cells in the queues of all circuits.
    pub(in crate::router) const fn queued_cells(&self) -> usize {
        self.queued_cells
    }

    /// Closes the link once its control cells are written.
    pub(in crate::router) fn close<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        let Some(output) = conns.output_mut(id) else { return };
        if output.is_closing {
            return;
        }
        output.is_closing = true;
        debug_assert!(output.pending_cells == 0, "its circuits are gone");
        output.mux.clear();
        // Writing comes first: the driver asks for closes when nothing is left to write.
        self.wake(conns, id);
        self.to_close.push_back(id);
    }

    pub(in crate::router) fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop_front()
    }

    /// It is closed, by us or by the peer.
    pub(in crate::router) fn forget<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        if let Some(output) = conns.output_mut(id) {
            let gone = core::mem::take(output);
            self.held_controls -= gone.held_controls();
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
    /// Since when its first control cell has waited, as far as is known.
    pub(in crate::router) fn oldest_control_since(&self) -> Option<Instant> {
        self.control_age.since()
    }

    /// A queue has passed on cells that came from this link.
    ///
    /// Each is there once, until its circuit goes and the next gets its number: a link that is not read keeps no more than there are
    /// numbers.
    pub(in crate::router) fn note_to_tell(&mut self, index: CircuitIndex, direction: Direction) {
        if self.to_tell.len() >= self.to_tell_most {
            self.to_tell.sort_unstable();
            self.to_tell.dedup();
            self.to_tell_most = (self.to_tell.len() * 2).max(TO_TELL_MIN);
        }
        self.to_tell.push((index, direction));
    }

    /// Control cells that wait.
    pub(in crate::router) fn held_controls(&self) -> usize {
        self.control.len()
    }

    /// Whether nothing waits.
    pub(in crate::router) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.pending_cells == 0
    }

    /// Cells that may be sent as far as hops go.
    pub(in crate::router) const fn pending_cells(&self) -> usize {
        self.pending_cells
    }

    /// So many cells are pending no more.
    #[inline]
    fn take_pending(&mut self, cells: usize) {
        debug_assert!(cells <= self.pending_cells, "more cells gone than were pending");
        self.pending_cells = self.pending_cells.saturating_sub(cells);
    }
}
