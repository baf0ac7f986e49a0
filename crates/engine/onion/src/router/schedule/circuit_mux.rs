//! The order of the circuits of one link, like C tor's `circuitmux.c`.

use super::{CellCount, EwmaTick};
use crate::cell_model::{Cell, CellModel};
use crate::node::ConnId;
use crate::router::circuits::{CellQueue, CircuitIndex, Circuits, QueueId};
use crate::time::Instant;
use alloc::collections::binary_heap::PeekMut;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Maximum number of cells of one circuit before another circuit is served.
const QUANTUM_CELLS: usize = 8;

/// A circuit with cells, and its EWMA: the bits of non-negative floats are ordered like the numbers.
type Entry = Reverse<(u64, QueueId)>;

/// The circuits with cells for one link, each once; some may be gone.
#[derive(Debug)]
pub(crate) enum CircuitMux {
    /// Round-robin: on links of measurers.
    RoundRobin(VecDeque<QueueId>),
    /// Smallest EWMA first. The number is the tick of the counts.
    Ewma(BinaryHeap<Entry>, u64),
}

impl Default for CircuitMux {
    fn default() -> Self {
        Self::Ewma(BinaryHeap::new(), 0)
    }
}

impl CircuitMux {
    /// A circuit that had no cells has some.
    #[inline]
    pub(crate) fn add(&mut self, id: QueueId, cell_count: CellCount, now: &EwmaTick) {
        match self {
            Self::RoundRobin(ring) => ring.push_back(id),
            Self::Ewma(heap, tick) => {
                if *tick != now.tick {
                    rescale(heap, tick, now);
                }
                heap.push(Reverse((cell_count.at(now).to_bits(), id)));
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::RoundRobin(ring) => ring.clear(),
            Self::Ewma(heap, _) => heap.clear(),
        }
    }

    /// The EWMA of the circuit that has sent least: smaller goes first. The maximum without circuits.
    #[inline]
    pub(crate) fn rank(&mut self, now: &EwmaTick) -> u64 {
        match self {
            Self::RoundRobin(_) => 0,
            Self::Ewma(heap, tick) => {
                if *tick != now.tick {
                    rescale(heap, tick, now);
                }
                heap.peek().map_or(u64::MAX, |Reverse((count, ..))| *count)
            }
        }
    }

    /// Fills `out` with cells. Circuits whose hop-by-hop window is full leave the mux.
    pub(crate) fn serve<S: CellModel>(
        &mut self,
        served: Served<'_>,
        ewma_tick: &EwmaTick,
        circuits: &mut Circuits<S>,
        out: &mut [S::Cell],
    ) -> ServedCells {
        let Served { conn, now, notes_own, drained, passed } = served;
        let mut note = |id: QueueId, queue: &mut CellQueue<S::Cell>| {
            if queue.has_report() {
                passed.push(id);
            }
            if queue.has_become_short() {
                drained.push_back(id.index);
            }
        };
        let mut taken = ServedCells::default();
        match self {
            Self::RoundRobin(ring) => {
                while taken.cells < out.len()
                    && let Some(id) = ring.pop_front()
                {
                    let Some(queue) = circuits.queue_for(id, conn) else { continue };
                    if taken.from(queue, now, out) {
                        ring.push_back(id);
                    }
                    note(id, queue);
                }
            }
            Self::Ewma(heap, tick) => {
                if *tick != ewma_tick.tick {
                    rescale(heap, tick, ewma_tick);
                }
                while taken.cells < out.len()
                    && let Some(mut first) = heap.peek_mut()
                {
                    let (_, id) = first.0;
                    let Some(queue) = circuits.queue_for(id, conn) else {
                        PeekMut::pop(first);
                        continue;
                    };
                    let before = taken.cells;
                    let has_more = taken.from(queue, now, out);
                    let count = taken.cells - before;
                    queue.cell_count.add(count, ewma_tick);
                    if has_more {
                        first.0.0 = queue.cell_count.at(ewma_tick).to_bits();
                    } else {
                        PeekMut::pop(first);
                    }
                    note(id, queue);
                    if notes_own && circuits.are_own_cells(id) {
                        taken.own_cells += count;
                    }
                }
            }
        }
        taken
    }
}

/// The link that is served, and where its queues are noted.
#[derive(Debug)]
pub(crate) struct Served<'a> {
    pub(crate) conn: ConnId,
    pub(crate) now: Instant,
    /// Whether [`ServedCells::own_cells`] are counted.
    pub(crate) notes_own: bool,
    /// Gets the circuits whose queues have become as short as requested.
    pub(crate) drained: &'a mut VecDeque<CircuitIndex>,
    /// Gets the queues with forwarded cells to report to the previous hop.
    pub(crate) passed: &'a mut Vec<QueueId>,
}

/// The result of serving a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServedCells {
    /// Cells to send.
    pub(crate) cells: usize,
    /// Cells among them that this relay has made itself.
    pub(crate) own_cells: usize,
    /// Cells of circuits that have left the mux because their window is full.
    pub(crate) blocked_cells: usize,
}

impl ServedCells {
    /// Serves a circuit; returns true if it stays in the mux.
    #[inline]
    fn from<T: Cell>(&mut self, queue: &mut CellQueue<T>, now: Instant, out: &mut [T]) -> bool {
        // It has a second entry by the index of a circuit that is gone.
        if queue.is_blocked() {
            return false;
        }
        let room = queue.room_cells(now);
        let quantum = QUANTUM_CELLS.min(out.len() - self.cells).min(room);
        let count = queue.pop_into(now, &mut out[self.cells..self.cells + quantum]);
        self.cells += count;
        if count == room && queue.len() > 0 {
            queue.block();
            self.blocked_cells += queue.len();
            return false;
        }
        queue.len() > 0
    }
}

/// Converts counts to the current tick. Their order stays, but small ones may become equal.
#[cold]
fn rescale(heap: &mut BinaryHeap<Entry>, tick: &mut u64, now: &EwmaTick) {
    let factor = now.since(*tick);
    let entries = core::mem::take(heap).into_iter();
    *heap = entries
        .map(|Reverse((count, id))| Reverse(((f64::from_bits(count) * factor).to_bits(), id)))
        .collect();
    *tick = now.tick;
}
