use crate::cell_model::Cell;
use crate::flow::hop::{Excess, HopAccount, HopWindow};
use crate::router::queue_age::QueueAge;
use crate::router::schedule::CellCount;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;

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
    age: QueueAge,
    /// Times that it has run empty since then.
    emptied: u16,
    /// Somebody waits for it to be shorter than this.
    watched: Option<NonZeroU32>,
    /// Its part in windows from hop to hop; there is no bound for what may be under way if there is none.
    ///
    /// In a box: it is rare, and the room for it is in every circuit.
    hops: Option<Box<HopAccount>>,
    /// It has cells and its window has no room: it is out of its link's turns.
    is_blocked: bool,
    /// What has left it of late.
    pub(in crate::router) cell_count: CellCount,
}

impl<T> Default for CellQueue<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            head: 0,
            len: 0,
            peak: 0,
            age: QueueAge::default(),
            emptied: 0,
            watched: None,
            hops: None,
            is_blocked: false,
            cell_count: CellCount::default(),
        }
    }
}

/// What a link has to know of a cell that is put into a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) enum Enqueued {
    /// The queue was empty: it gets a place in the link's turns. With what has left it of late.
    First(CellCount),
    /// It has its place.
    More,
    /// Its window is full: it will get its place when there is room.
    Blocked,
}

/// Times that a queue runs empty before its room is looked at.
const EMPTIED_MAX: u16 = 1000;

impl<T: Cell> CellQueue<T> {
    #[inline]
    pub(in crate::router) const fn len(&self) -> usize {
        self.len
    }

    /// Since when its first cell has waited, as far as is known.
    pub(in crate::router) fn oldest_since(&self) -> Option<Instant> {
        self.age.since()
    }

    /// When a cell came or left last, as far as is known; the driver's origin if there was none.
    pub(in crate::router) const fn moved_at(&self) -> Instant {
        self.age.moved_at()
    }

    /// What the link has to know of the next cell.
    #[inline]
    pub(in crate::router) const fn next_enqueued(&self) -> Enqueued {
        if self.is_blocked {
            Enqueued::Blocked
        } else if self.len == 0 {
            Enqueued::First(self.cell_count)
        } else {
            Enqueued::More
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
        self.age.handle_added(now, 1);
        self.peak = self.peak.max(self.len);
        &mut self.slots[at]
    }

    /// Takes back the cell that was pushed last; its link does not know of it yet.
    pub(in crate::router) fn unpush(&mut self) -> T {
        debug_assert!(self.len > 0, "nothing was pushed");
        self.len -= 1;
        self.age.handle_taken_back(self.len);
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
        self.age.handle_taken(now, count, self.len);
        if self.len == 0 {
            self.head = 0;
            self.emptied += 1;
            if self.emptied > EMPTIED_MAX {
                self.shrink();
            }
        } else {
            self.head = self.place(count);
        }
        if let Some(hops) = &mut self.hops {
            hops.handle_left(now, u32::try_from(count).unwrap_or(u32::MAX));
        }
        count
    }

    /// Bounds what may be under way to the next hop.
    pub(in crate::router) fn set_window(&mut self, window: Option<Box<dyn HopWindow>>) {
        if window.is_some() || self.hops.is_some() {
            self.hops.get_or_insert_default().set_window(window);
        }
    }

    /// The hop before is to be told of cells that are passed on, from now on.
    pub(in crate::router) fn tell_hop_before(&mut self) {
        self.hops.get_or_insert_default().tell();
    }

    /// The hop before is no more: another may come.
    pub(in crate::router) fn forget_hop_before(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.forget_before();
        }
    }

    /// A cell has come from the hop before.
    #[inline]
    pub(in crate::router) fn handle_came(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.handle_came();
        }
    }

    /// A cell that has come from there was for this relay.
    #[inline]
    pub(in crate::router) fn handle_taken_in(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.pass_on(1);
        }
    }

    /// There is something to tell the hop before: true once, until that is [taken](Self::take_untold).
    #[inline]
    pub(in crate::router) fn has_news(&mut self) -> bool {
        self.hops.as_mut().is_some_and(|hops| hops.has_news())
    }

    /// Cells that were passed on, and of which the hop before was not told: as many as one entry says.
    pub(in crate::router) fn take_untold(&mut self) -> u16 {
        self.hops.as_mut().map_or(0, |hops| hops.take_untold())
    }

    /// Cells that the next hop got and has not passed on, as far as it says.
    pub(in crate::router) fn in_flight(&self) -> u32 {
        self.hops.as_ref().map_or(0, |hops| hops.in_flight())
    }

    /// Takes all cells out, and all that concerns the next hop. What is left is for another.
    pub(in crate::router) fn cut(&mut self) -> Self {
        let cut = core::mem::take(self);
        self.hops = cut.hops.as_ref().and_then(|hops| hops.cut()).map(Box::new);
        cut
    }

    /// Cells that may leave as far as the next hop goes.
    #[inline]
    pub(in crate::router) fn room_cells(&self, now: Instant) -> usize {
        self.hops.as_ref().map_or(usize::MAX, |hops| hops.room_cells(now))
    }

    /// There is no room for more of its cells: it leaves its link's turns.
    pub(in crate::router) const fn block(&mut self) {
        self.is_blocked = true;
    }

    pub(in crate::router) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Its cells wait for a next hop that has not said anything of them for some seconds.
    pub(in crate::router) fn is_stalled(&self, now: Instant) -> bool {
        self.is_blocked && self.hops.as_ref().is_some_and(|hops| hops.is_silent(now))
    }

    /// The next hop has passed cells on. True if the queue is held no more: it gets its place in the turns
    /// again.
    pub(in crate::router) fn handle_feedback(
        &mut self,
        now: Instant,
        cells: u32,
    ) -> Result<bool, Excess> {
        let hops = self.hops.as_mut().ok_or(Excess)?;
        hops.handle_feedback(now, cells)?;
        let is_released = self.is_blocked && hops.room_cells(now) > 0;
        self.is_blocked &= !is_released;
        Ok(is_released)
    }

    /// Somebody waits until no more than so many cells wait.
    pub(in crate::router) fn watch(&mut self, cells: usize) {
        self.watched = u32::try_from(cells + 1).ok().and_then(NonZeroU32::new);
    }

    /// Whether it has become as short as somebody waits for: true once.
    #[inline]
    pub(in crate::router) fn has_become_short(&mut self) -> bool {
        let is_short = self.watched.is_some_and(|cells| self.len < cells.get() as usize);
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
mod tests;
