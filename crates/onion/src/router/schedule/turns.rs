//! Whose turn it is among the circuits of one link.

use super::{Moment, Recent};
use crate::cell::CELL_LEN;
use crate::node::ConnId;
use crate::router::circuit::{Circuits, Way};
use alloc::collections::binary_heap::PeekMut;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

/// Cells of one circuit before another may have its turn.
const QUANTUM_CELLS: usize = 8;

/// A circuit with cells, and what it has sent of late: numbers that are not negative are ordered as
/// their bits are.
type Entry = Reverse<(u64, u32, Way)>;

/// Circuits with cells for one link, each once; some may be gone.
#[derive(Debug)]
pub(in crate::router) enum Turns {
    /// One after the other: on links of measurers.
    InTurn(VecDeque<(u32, Way)>),
    /// The one that has sent least of late goes first. The number is the tick of the counts.
    Quietest(BinaryHeap<Entry>, u64),
}

impl Default for Turns {
    fn default() -> Self {
        Self::Quietest(BinaryHeap::new(), 0)
    }
}

impl Turns {
    /// A circuit that had no cells has some.
    #[inline]
    pub(in crate::router) fn add(&mut self, number: u32, way: Way, recent: Recent, now: &Moment) {
        match self {
            Self::InTurn(turns) => turns.push_back((number, way)),
            Self::Quietest(turns, tick) => {
                if *tick != now.tick {
                    rescale(turns, tick, now);
                }
                turns.push(Reverse((recent.at(now).to_bits(), number, way)));
            }
        }
    }

    pub(in crate::router) fn clear(&mut self) {
        match self {
            Self::InTurn(turns) => turns.clear(),
            Self::Quietest(turns, _) => turns.clear(),
        }
    }

    /// What the quietest circuit has sent of late: less goes first. The last of all without circuits.
    #[inline]
    pub(in crate::router) fn rank(&mut self, now: &Moment) -> u64 {
        match self {
            Self::InTurn(_) => 0,
            Self::Quietest(turns, tick) => {
                if *tick != now.tick {
                    rescale(turns, tick, now);
                }
                turns.peek().map_or(u64::MAX, |Reverse((count, ..))| *count)
            }
        }
    }

    /// Fills `out` with cells for link `id`; returns how many. Circuits whose queues have become as
    /// short as somebody waits for are noted in `drained`.
    pub(in crate::router) fn take(
        &mut self,
        id: ConnId,
        now: &Moment,
        circuits: &mut Circuits,
        drained: &mut VecDeque<u32>,
        out: &mut [[u8; CELL_LEN]],
    ) -> usize {
        let mut written = 0;
        match self {
            Self::InTurn(turns) => {
                while written < out.len()
                    && let Some((number, way)) = turns.pop_front()
                {
                    let Some(queue) = circuits.queue_for(number, way, id) else { continue };
                    let quantum = QUANTUM_CELLS.min(out.len() - written);
                    written += queue.pop_into(&mut out[written..written + quantum]);
                    if queue.has_become_short() {
                        drained.push_back(number);
                    }
                    if queue.len() > 0 {
                        turns.push_back((number, way));
                    }
                }
            }
            Self::Quietest(turns, tick) => {
                if *tick != now.tick {
                    rescale(turns, tick, now);
                }
                while written < out.len()
                    && let Some(mut first) = turns.peek_mut()
                {
                    let (_, number, way) = first.0;
                    let Some(queue) = circuits.queue_for(number, way, id) else {
                        PeekMut::pop(first);
                        continue;
                    };
                    let quantum = QUANTUM_CELLS.min(out.len() - written);
                    let count = queue.pop_into(&mut out[written..written + quantum]);
                    written += count;
                    queue.recent.add(count, now);
                    if queue.has_become_short() {
                        drained.push_back(number);
                    }
                    if queue.len() > 0 {
                        first.0.0 = queue.recent.at(now).to_bits();
                    } else {
                        PeekMut::pop(first);
                    }
                }
            }
        }
        written
    }
}

/// Brings counts to the tick of now. Their order stays, but equal ones may come out of small ones.
#[cold]
fn rescale(turns: &mut BinaryHeap<Entry>, tick: &mut u64, now: &Moment) {
    let factor = now.since(*tick);
    let entries = core::mem::take(turns).into_iter();
    *turns = entries
        .map(|Reverse((count, number, way))| {
            Reverse(((f64::from_bits(count) * factor).to_bits(), number, way))
        })
        .collect();
    *tick = now.tick;
}
