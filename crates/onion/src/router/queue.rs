use crate::cell::CELL_LEN;
use alloc::vec::Vec;

/// Cells that a new queue has room for.
const ROOM_MIN: usize = 8;

/// Cells that wait to be written, encoded, in the order in which they came.
///
/// A ring that grows to what is needed, and gives back what was not needed for long.
#[derive(Debug, Default)]
pub(super) struct CellQueue {
    slots: Vec<[u8; CELL_LEN]>,
    head: usize,
    len: usize,
    /// Most cells that waited at once since it was last looked at.
    peak: usize,
    /// Times that it has run empty since then.
    emptied: u32,
    /// Somebody waits for it to be as short as this.
    watched: Option<u32>,
}

/// Times that a queue runs empty before its room is looked at.
const EMPTIED_MAX: u32 = 1000;

impl CellQueue {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A slot at the end of the queue; it holds the bytes of some earlier cell.
    #[inline]
    pub(super) fn push(&mut self) -> &mut [u8; CELL_LEN] {
        if self.len == self.slots.len() {
            self.grow();
        }
        // The ring's size is a power of two.
        let at = (self.head + self.len) & (self.slots.len() - 1);
        self.len += 1;
        self.peak = self.peak.max(self.len);
        &mut self.slots[at]
    }

    /// Moves cells into `out` until either has no more; returns how many.
    #[inline]
    pub(super) fn pop_into(&mut self, out: &mut [[u8; CELL_LEN]]) -> usize {
        let count = out.len().min(self.len);
        let until_end = (self.slots.len() - self.head).min(count);
        let (first, second) = out[..count].split_at_mut(until_end);
        first.copy_from_slice(&self.slots[self.head..self.head + until_end]);
        second.copy_from_slice(&self.slots[..second.len()]);
        self.len -= count;
        if self.len == 0 {
            self.head = 0;
            self.emptied += 1;
            if self.emptied > EMPTIED_MAX {
                self.shrink();
            }
        } else {
            self.head = (self.head + count) & (self.slots.len() - 1);
        }
        count
    }

    /// Somebody waits until no more than so many cells wait.
    pub(super) fn watch(&mut self, cells: usize) {
        self.watched = u32::try_from(cells).ok();
    }

    /// Whether it has become as short as somebody waits for: true once.
    #[inline]
    pub(super) fn has_become_short(&mut self) -> bool {
        let is_short = self.watched.is_some_and(|cells| self.len <= cells as usize);
        if is_short {
            self.watched = None;
        }
        is_short
    }

    /// Gives all room back, if no cell has come since the last call or look.
    pub(super) fn rest(&mut self) {
        if self.len == 0 && core::mem::take(&mut self.peak) == 0 {
            self.slots = Vec::new();
        }
    }

    /// Halves the room of an empty queue that did not need it.
    #[cold]
    fn shrink(&mut self) {
        self.emptied = 0;
        let peak = core::mem::take(&mut self.peak);
        if self.slots.len() > ROOM_MIN && peak < self.slots.len() / 4 {
            self.slots.truncate(self.slots.len() / 2);
            self.slots.shrink_to_fit();
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.slots.rotate_left(self.head);
        self.head = 0;
        let room = (self.slots.len() * 2).max(ROOM_MIN);
        self.slots.resize(room, [0; CELL_LEN]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[test]
    fn room_that_is_not_needed_is_given_back() {
        let mut queue = CellQueue::default();
        let mut out = [[0; CELL_LEN]; 64];
        for count in [64, 1] {
            for _ in 0..20_000 {
                (0..count).for_each(|_| queue.push()[0] = 1);
                assert_eq!(queue.pop_into(&mut out), count);
            }
            assert!(queue.slots.len() <= count.max(ROOM_MIN), "{} slots", queue.slots.len());
        }
    }

    #[test]
    fn it_tells_once_that_it_is_short() {
        let mut queue = CellQueue::default();
        (0..20).for_each(|_| _ = queue.push());
        assert!(!queue.has_become_short());
        queue.watch(10);
        queue.pop_into(&mut [[0; CELL_LEN]; 9]);
        assert!(!queue.has_become_short());
        queue.pop_into(&mut [[0; CELL_LEN]; 1]);
        assert!(queue.has_become_short() && !queue.has_become_short());
    }

    #[test]
    fn a_queue_that_rests_takes_no_room() {
        let mut queue = CellQueue::default();
        queue.push()[0] = 1;
        queue.rest();
        assert_eq!(queue.len(), 1);
        queue.pop_into(&mut [[0; CELL_LEN]; 9]);
        queue.rest();
        queue.rest();
        assert_eq!(queue.slots.capacity(), 0);
    }

    proptest! {
        #[test]
        fn it_is_a_queue(
            steps in prop::collection::vec((0usize..40, 0usize..45, any::<bool>()), 0..3000),
        ) {
            let (mut queue, mut model) = (CellQueue::default(), VecDeque::new());
            let mut next = 0u64;
            for (pushes, pops, rests) in steps {
                if rests {
                    queue.rest();
                }
                for _ in 0..pushes {
                    queue.push()[..8].copy_from_slice(&next.to_be_bytes());
                    model.push_back(next);
                    next += 1;
                }
                let mut out = [[0; CELL_LEN]; 45];
                let count = queue.pop_into(&mut out[..pops]);
                prop_assert_eq!(count, pops.min(model.len()));
                for cell in &out[..count] {
                    let mut number = [0; 8];
                    number.copy_from_slice(&cell[..8]);
                    prop_assert_eq!(Some(u64::from_be_bytes(number)), model.pop_front());
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
