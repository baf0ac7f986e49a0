use crate::flow::hop::HopWindow;
use crate::router::oldest::Oldest;
use crate::router::schedule::Recent;
use crate::suite::Cell;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Cells that a new queue has room for.
const ROOM_MIN: usize = 8;

/// Up to this room doubles; from there it grows by a quarter. What is counted are cells, and who has many long queues filled
/// should not have us hold twice as much.
const DOUBLED_MAX: usize = 64;

/// Cells of one circuit that wait to be given to its link, in the order in which they came.
///
/// A ring that grows to what is needed, and gives back what was not needed for long.
#[derive(Debug)]
pub(in crate::router) struct CellQueue<T> {
    slots: Vec<T>,
    head: usize,
    len: usize,
    /// Most cells that waited at once since it was last looked at.
    peak: usize,
    oldest: Oldest,
    /// Times that it has run empty since then.
    emptied: u32,
    /// Somebody waits for it to be as short as this.
    watched: Option<u32>,
    /// What may be under way to the next hop; no bound if there is none.
    ///
    /// In two boxes: it is rare, and the room for it is in every circuit.
    window: Option<Box<Box<dyn HopWindow>>>,
    /// It has cells and its window has no room: it is out of its link's turns.
    is_held: bool,
    /// What has left it of late.
    pub(in crate::router) recent: Recent,
}

impl<T> Default for CellQueue<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            head: 0,
            len: 0,
            peak: 0,
            oldest: Oldest::default(),
            emptied: 0,
            watched: None,
            window: None,
            is_held: false,
            recent: Recent::default(),
        }
    }
}

/// What a link has to know of a cell that is put into a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) enum Joined {
    /// The queue was empty: it gets a place in the link's turns. With what has left it of late.
    Empty(Recent),
    /// It has its place.
    Waiting,
    /// Its window is full: it will get its place when there is room.
    Held,
}

/// Times that a queue runs empty before its room is looked at.
const EMPTIED_MAX: u32 = 1000;

impl<T: Cell> CellQueue<T> {
    #[inline]
    pub(in crate::router) const fn len(&self) -> usize {
        self.len
    }

    /// Since when its first cell has waited, as far as is known.
    pub(in crate::router) fn oldest_since(&self) -> Option<Instant> {
        self.oldest.since()
    }

    /// What the link has to know of the next cell.
    #[inline]
    pub(in crate::router) const fn joining(&self) -> Joined {
        if self.is_held {
            Joined::Held
        } else if self.len == 0 {
            Joined::Empty(self.recent)
        } else {
            Joined::Waiting
        }
    }

    /// A slot at the end of the queue; it holds something of an earlier cell.
    #[inline]
    pub(in crate::router) fn push(&mut self, now: Instant) -> &mut T {
        if self.len == self.slots.len() {
            self.grow();
        }
        let at = self.place(self.len);
        self.len += 1;
        self.oldest.handle_added(now, 1);
        self.peak = self.peak.max(self.len);
        &mut self.slots[at]
    }

    /// Takes back the cell that was pushed last; its link does not know of it yet.
    pub(in crate::router) fn unpush(&mut self) -> T {
        debug_assert!(self.len > 0, "nothing was pushed");
        self.len -= 1;
        self.oldest.handle_taken_back(self.len);
        let at = self.place(self.len);
        core::mem::replace(&mut self.slots[at], T::EMPTY)
    }

    /// Moves cells into `out` until either has no more; returns how many.
    #[inline]
    pub(in crate::router) fn pop_into(&mut self, now: Instant, out: &mut [T]) -> usize {
        let count = out.len().min(self.len);
        let until_end = (self.slots.len() - self.head).min(count);
        let (first, second) = out[..count].split_at_mut(until_end);
        T::shift(&mut self.slots[self.head..self.head + until_end], first);
        T::shift(&mut self.slots[..second.len()], second);
        self.len -= count;
        self.oldest.handle_taken(now, count, self.len);
        if self.len == 0 {
            self.head = 0;
            self.emptied += 1;
            if self.emptied > EMPTIED_MAX {
                self.shrink();
            }
        } else {
            self.head = self.place(count);
        }
        if let Some(window) = &mut self.window {
            window.handle_sent(now, u32::try_from(count).unwrap_or(u32::MAX));
        }
        count
    }

    /// Bounds what may be under way to the next hop.
    pub(in crate::router) fn set_window(&mut self, window: Option<Box<dyn HopWindow>>) {
        self.window = window.map(Box::new);
    }

    /// Cells that may leave as far as the next hop goes.
    #[inline]
    pub(in crate::router) fn room_cells(&self, now: Instant) -> usize {
        self.window.as_ref().map_or(usize::MAX, |window| window.room_cells(now) as usize)
    }

    /// There is no room for more of its cells: it leaves its link's turns.
    pub(in crate::router) const fn hold(&mut self) {
        self.is_held = true;
    }

    pub(in crate::router) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// The next hop has passed cells on. True if the queue is held no more: it gets its place in the turns
    /// again.
    pub(in crate::router) fn handle_feedback(&mut self, now: Instant, cells: u32) -> bool {
        let Some(window) = &mut self.window else { return false };
        window.handle_feedback(now, cells);
        let is_released = self.is_held && window.room_cells(now) > 0;
        self.is_held &= !is_released;
        is_released
    }

    /// Somebody waits until no more than so many cells wait.
    pub(in crate::router) fn watch(&mut self, cells: usize) {
        self.watched = u32::try_from(cells).ok();
    }

    /// Whether it has become as short as somebody waits for: true once.
    #[inline]
    pub(in crate::router) fn has_become_short(&mut self) -> bool {
        let is_short = self.watched.is_some_and(|cells| self.len <= cells as usize);
        if is_short {
            self.watched = None;
        }
        is_short
    }

    /// Gives all room back, if no cell has come since the last call or look.
    pub(in crate::router) fn rest(&mut self) {
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

    /// The slot of the cell that so many are before, or would be: at most as many as there are slots.
    #[inline]
    const fn place(&self, before: usize) -> usize {
        let at = self.head + before;
        if at >= self.slots.len() { at - self.slots.len() } else { at }
    }

    #[cold]
    fn grow(&mut self) {
        self.slots.rotate_left(self.head);
        self.head = 0;
        let room = self.slots.len();
        let more = if room < DOUBLED_MAX { room.max(ROOM_MIN) } else { room / 4 };
        self.slots.reserve_exact(more);
        self.slots.resize(room + more, T::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CELL_LEN;
    use crate::flow::hop::FixedHopWindow;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    const NOW: Instant = Instant::ORIGIN;

    #[test]
    fn a_queue_whose_window_is_full_is_held_until_the_next_hop_has_passed_cells_on() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        assert_eq!(queue.room_cells(NOW), usize::MAX);
        queue.set_window(Some(Box::new(FixedHopWindow::new(3))));
        (0..5).for_each(|_| _ = queue.push(NOW));
        assert_eq!(queue.pop_into(NOW, &mut [[0; CELL_LEN]; 2]), 2);
        assert_eq!(queue.room_cells(NOW), 1);
        queue.pop_into(NOW, &mut [[0; CELL_LEN]; 1]);
        queue.hold();
        assert!(matches!(queue.joining(), Joined::Held));
        assert!(queue.handle_feedback(NOW, 2) && !queue.handle_feedback(NOW, 9));
        assert_eq!((queue.room_cells(NOW), queue.len()), (3, 2), "never more than its size");
    }

    #[test]
    fn what_was_pushed_last_can_be_taken_back() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        (1..=9).for_each(|number| queue.push(NOW)[0] = number);
        assert_eq!(queue.unpush()[0], 9);
        let mut out = [[0; CELL_LEN]; 9];
        assert_eq!(queue.pop_into(NOW, &mut out), 8);
        assert_eq!(out.map(|cell| cell[0]), [1, 2, 3, 4, 5, 6, 7, 8, 0]);
    }

    #[test]
    fn room_that_is_not_needed_is_given_back() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        let mut out = [[0; CELL_LEN]; 64];
        for count in [64, 1] {
            for _ in 0..20_000 {
                (0..count).for_each(|_| queue.push(NOW)[0] = 1);
                assert_eq!(queue.pop_into(NOW, &mut out), count);
            }
            assert!(queue.slots.len() <= count.max(ROOM_MIN), "{} slots", queue.slots.len());
        }
    }

    #[test]
    fn a_long_queue_has_hardly_more_room_than_it_needs() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        for count in 1..=2_500 {
            queue.push(NOW)[0] = 1;
            let room = queue.slots.capacity();
            assert!(
                room <= (count * 2).clamp(ROOM_MIN, DOUBLED_MAX.max(count / 4 * 5 + 5)),
                "{room}"
            );
        }
    }

    #[test]
    fn it_tells_once_that_it_is_short() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        (0..20).for_each(|_| _ = queue.push(NOW));
        assert!(!queue.has_become_short());
        queue.watch(10);
        queue.pop_into(NOW, &mut [[0; CELL_LEN]; 9]);
        assert!(!queue.has_become_short());
        queue.pop_into(NOW, &mut [[0; CELL_LEN]; 1]);
        assert!(queue.has_become_short() && !queue.has_become_short());
    }

    #[test]
    fn a_queue_that_rests_takes_no_room() {
        let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
        queue.push(NOW)[0] = 1;
        queue.rest();
        assert_eq!(queue.len(), 1);
        queue.pop_into(NOW, &mut [[0; CELL_LEN]; 9]);
        queue.rest();
        queue.rest();
        assert_eq!(queue.slots.capacity(), 0);
    }

    proptest! {
        #[test]
        fn it_is_a_queue(
            steps in prop::collection::vec((0usize..40, 0usize..45, any::<bool>()), 0..3000),
        ) {
            let (mut queue, mut model) = (CellQueue::<[u8; CELL_LEN]>::default(), VecDeque::new());
            let mut next = 0u64;
            for (pushes, pops, rests) in steps {
                if rests {
                    queue.rest();
                }
                for _ in 0..pushes {
                    queue.push(NOW)[..8].copy_from_slice(&next.to_be_bytes());
                    model.push_back(next);
                    next += 1;
                }
                let mut out = [[0; CELL_LEN]; 45];
                let count = queue.pop_into(NOW, &mut out[..pops]);
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
