//! Whose turn it is among the circuits of one link.

use super::{CellCount, EwmaTick};
use crate::cell_model::{Cell, CellModel};
use crate::node::ConnId;
use crate::router::circuits::{CellQueue, CircuitIndex, Circuits, Direction};
use crate::time::Instant;
use alloc::collections::binary_heap::PeekMut;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Cells of one circuit before another may have its turn.
const QUANTUM_CELLS: usize = 8;

/// A circuit with cells, and what it has sent of late: numbers that are not negative are ordered as
/// their bits are.
type Entry = Reverse<(u64, CircuitIndex, Direction)>;

/// Circuits with cells for one link, each once; some may be gone.
#[derive(Debug)]
pub(in crate::router) enum CircuitMux {
    /// One after the other: on links of measurers.
    RoundRobin(VecDeque<(CircuitIndex, Direction)>),
    /// The one that has sent least of late goes first. The number is the tick of the counts.
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
    pub(in crate::router) fn add(
        &mut self,
        index: CircuitIndex,
        direction: Direction,
        cell_count: CellCount,
        now: &EwmaTick,
    ) {
        match self {
            Self::RoundRobin(turns) => turns.push_back((index, direction)),
            Self::Ewma(turns, tick) => {
                if *tick != now.tick {
                    rescale(turns, tick, now);
                }
                turns.push(Reverse((cell_count.at(now).to_bits(), index, direction)));
            }
        }
    }

    pub(in crate::router) fn clear(&mut self) {
        match self {
            Self::RoundRobin(turns) => turns.clear(),
            Self::Ewma(turns, _) => turns.clear(),
        }
    }

    /// What the quietest circuit has sent of late: less goes first. The last of all without circuits.
    #[inline]
    pub(in crate::router) fn rank(&mut self, now: &EwmaTick) -> u64 {
        match self {
            Self::RoundRobin(_) => 0,
            Self::Ewma(turns, tick) => {
                if *tick != now.tick {
                    rescale(turns, tick, now);
                }
                turns.peek().map_or(u64::MAX, |Reverse((count, ..))| *count)
            }
        }
    }

    /// Fills `out` with cells for link `id`. Circuits whose queues have become as short as somebody waits
    /// for are noted in `drained`, those that have something to tell the hop before in `passed`; those whose next hop takes no more leave
    /// the turns.
    pub(in crate::router) fn take<S: CellModel>(
        &mut self,
        (id, now): (ConnId, Instant),
        ewma_tick: &EwmaTick,
        circuits: &mut Circuits<S>,
        drained: &mut VecDeque<CircuitIndex>,
        passed: &mut Vec<(CircuitIndex, Direction)>,
        out: &mut [S::Cell],
    ) -> Taken {
        let mut taken = Taken::default();
        match self {
            Self::RoundRobin(turns) => {
                while taken.cells < out.len()
                    && let Some((index, direction)) = turns.pop_front()
                {
                    let Some(queue) = circuits.queue_for(index, direction, id) else { continue };
                    if taken.from(queue, now, out) {
                        turns.push_back((index, direction));
                    }
                    if queue.has_news() {
                        passed.push((index, direction));
                    }
                    if queue.has_become_short() {
                        drained.push_back(index);
                    }
                }
            }
            Self::Ewma(turns, tick) => {
                if *tick != ewma_tick.tick {
                    rescale(turns, tick, ewma_tick);
                }
                while taken.cells < out.len()
                    && let Some(mut first) = turns.peek_mut()
                {
                    let (_, index, direction) = first.0;
                    let Some(queue) = circuits.queue_for(index, direction, id) else {
                        PeekMut::pop(first);
                        continue;
                    };
                    let before = taken.cells;
                    let has_more = taken.from(queue, now, out);
                    queue.cell_count.add(taken.cells - before, ewma_tick);
                    if queue.has_news() {
                        passed.push((index, direction));
                    }
                    if has_more {
                        first.0.0 = queue.cell_count.at(ewma_tick).to_bits();
                    } else {
                        PeekMut::pop(first);
                    }
                    if queue.has_become_short() {
                        drained.push_back(index);
                    }
                }
            }
        }
        taken
    }
}

/// What has come of a link's turns.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::router) struct Taken {
    /// Cells that are to be sent.
    pub(in crate::router) cells: usize,
    /// Cells of circuits that have left the turns: the next hop takes no more.
    pub(in crate::router) held_cells: usize,
}

impl Taken {
    /// Takes a circuit's turn; true if it is to have another.
    #[inline]
    fn from<T: Cell>(&mut self, queue: &mut CellQueue<T>, now: Instant, out: &mut [T]) -> bool {
        // It has a second place by the number of a circuit that is gone.
        if queue.is_blocked() {
            return false;
        }
        let room = queue.room_cells(now);
        let quantum = QUANTUM_CELLS.min(out.len() - self.cells).min(room);
        let count = queue.pop_into(now, &mut out[self.cells..self.cells + quantum]);
        self.cells += count;
        if count == room && queue.len() > 0 {
            queue.block();
            self.held_cells += queue.len();
            return false;
        }
        queue.len() > 0
    }
}

/// Brings counts to the tick of now. Their order stays, but equal ones may come out of small ones.
#[cold]
fn rescale(turns: &mut BinaryHeap<Entry>, tick: &mut u64, now: &EwmaTick) {
    let factor = now.since(*tick);
    let entries = core::mem::take(turns).into_iter();
    *turns = entries
        .map(|Reverse((count, index, direction))| {
            Reverse(((f64::from_bits(count) * factor).to_bits(), index, direction))
        })
        .collect();
    *tick = now.tick;
}
