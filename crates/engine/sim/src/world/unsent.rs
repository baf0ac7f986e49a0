use alloc::collections::VecDeque;
use alloc::vec::Vec;
use onion::cell_model::{Cell, HeaderOnlyCell};

/// Maximum number of cells of a piece: those of the largest flight.
const PIECE_CELLS: usize = 31;

/// Cells of a small piece. Most flights are no larger, and there are many in flight: unused capacity would
/// occupy the cache.
const SMALL_CELLS: usize = 8;

/// Recycled buffers. A part lends them to each of its hosts in turn, so that they stay in the processor's
/// cache.
#[derive(Debug, Default)]
pub(super) struct Pool {
    small: Vec<Vec<HeaderOnlyCell>>,
    large: Vec<Vec<HeaderOnlyCell>>,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { small: Vec::new(), large: Vec::new() }
    }

    /// A buffer for at least this number of cells.
    fn room(&mut self, cells: usize) -> Vec<HeaderOnlyCell> {
        let (pool, most) = if cells <= SMALL_CELLS {
            (&mut self.small, SMALL_CELLS)
        } else {
            (&mut self.large, PIECE_CELLS)
        };
        pool.pop().unwrap_or_else(|| Vec::with_capacity(most))
    }
}

/// Written and unsent cells of a socket, in pieces as they were written. A piece that a flight takes completely
/// is moved: its cells are not touched.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// The cells of the first piece that have been sent.
    taken: usize,
    first: Vec<HeaderOnlyCell>,
    rest: VecDeque<Vec<HeaderOnlyCell>>,
}

impl Unsent {
    pub(super) fn push(&mut self, cells: &mut [HeaderOnlyCell], pool: &mut Pool) {
        let last = self.rest.back_mut().unwrap_or(&mut self.first);
        let last = if last.len() + cells.len() > last.capacity() {
            let piece = pool.room(cells.len());
            if self.first.is_empty() {
                pool_back(core::mem::replace(&mut self.first, piece), pool);
                &mut self.first
            } else {
                self.rest.push_back(piece);
                let Some(last) = self.rest.back_mut() else { return };
                last
            }
        } else {
            last
        };
        last.extend(cells.iter_mut().map(take));
    }

    /// The next cells: at most this number.
    pub(super) fn take(&mut self, count: usize, pool: &mut Pool) -> Vec<HeaderOnlyCell> {
        if self.taken == 0 && self.first.len() == count {
            let whole = core::mem::take(&mut self.first);
            self.step();
            return whole;
        }
        let mut cells = pool.room(count);
        while cells.len() < count && !self.first.is_empty() {
            let until = self.first.len().min(self.taken + count - cells.len());
            cells.extend(self.first[self.taken..until].iter_mut().map(take));
            self.taken = until;
            if until == self.first.len() {
                pool_back(core::mem::take(&mut self.first), pool);
                self.step();
            }
        }
        cells
    }

    /// The whole first piece has been sent.
    fn step(&mut self) {
        self.taken = 0;
        self.first = self.rest.pop_front().unwrap_or_default();
        if self.rest.is_empty() {
            self.rest.clear();
        }
    }
}

fn take(cell: &mut HeaderOnlyCell) -> HeaderOnlyCell {
    core::mem::replace(cell, HeaderOnlyCell::EMPTY)
}

/// Pre-allocated flights.
const POOL_MAX: usize = 1 << 16;

/// Recycles a buffer.
pub(super) fn pool_back(mut cells: Vec<HeaderOnlyCell>, pool: &mut Pool) {
    cells.clear();
    let pool = if cells.capacity() < PIECE_CELLS { &mut pool.small } else { &mut pool.large };
    if cells.capacity() >= SMALL_CELLS && pool.len() < POOL_MAX {
        pool.push(cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::cell::{CircId, Command};
    use proptest::prelude::*;

    fn cell(number: u32) -> HeaderOnlyCell {
        let mut cell = HeaderOnlyCell::EMPTY;
        cell.begin(CircId::of_initiator(number), Command::RELAY);
        cell
    }

    proptest! {
        #[test]
        fn cells_leave_in_order_for_any_pattern_of_writes(
            steps in prop::collection::vec((1u32..=31, 0u32..=31), 1..200),
        ) {
            let (mut unsent, mut pool) = (Unsent::default(), Pool::new());
            let (mut written, mut taken) = (0u32, 0u32);
            for (write, wanted) in steps {
                let mut cells: Vec<_> = (written..).take(write as usize).map(cell).collect();
                unsent.push(&mut cells, &mut pool);
                written += write;
                let count = wanted.min(written - taken);
                let got = unsent.take(count as usize, &mut pool);
                let expected: Vec<_> = (taken..).take(count as usize).map(cell).collect();
                prop_assert_eq!(&got, &expected);
                taken += count;
                pool_back(got, &mut pool);
            }
        }
    }
}
