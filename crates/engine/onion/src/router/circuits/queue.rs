//! The queue of a circuit's cells in one direction: a ring buffer that allocates nothing in steady state.
//!
//! It owns the cells, their age, the state of the hop-by-hop window, and the circuit's EWMA. It must not know
//! links: [`Outputs::enqueue`](crate::router::links::Outputs::enqueue) adds a cell and updates the link's
//! circuit mux, and the [mux](crate::router::schedule) takes cells out.

use crate::cell_model::Cell;
use crate::flow::hop::{Excess, HopAccount, HopWindow};
use crate::router::queue_age::QueueAge;
use crate::router::schedule::CellCount;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Initial capacity of a queue, in cells. It is small, since a peer may keep many circuits in use with a cell each.
const ROOM_MIN: usize = 2;

/// Up to this capacity, a queue grows by doubling; beyond it, by a quarter. Limits count cells, so a peer that
/// fills many long queues must not make them occupy twice that memory.
const DOUBLED_MAX: usize = 64;

/// The cells of one circuit in one direction that have not been given to their link yet, in FIFO order.
///
/// Most queues are idle at any time. What only a queue in use needs is boxed, and [`rest`](Self::rest) releases
/// it.
#[derive(Debug)]
pub(crate) struct CellQueue<T> {
    /// `None` while it is idle: it has no cells then.
    ring: Option<Box<Ring<T>>>,
    age: QueueAge,
    /// The state of its hop-by-hop window; `None` if the link has none.
    ///
    /// Boxed, since it is rare and every circuit has space for it.
    hops: Option<Box<HopAccount>>,
    /// The EWMA of the cells that it has sent.
    pub(crate) cell_count: CellCount,
    /// The number of cells. Not boxed, nor is the flag below: each cell needs them several times.
    len: u32,
    /// It has cells and its hop-by-hop window is full: it is not in its link's circuit mux.
    is_blocked: bool,
}

/// A ring buffer that grows on demand and shrinks after long periods of low use.
#[derive(Debug)]
struct Ring<T> {
    slots: Vec<T>,
    head: usize,
    /// The maximum length since the last check.
    peak: usize,
    /// How often it has run empty since the last check.
    emptied: u16,
    /// A stream waits until the queue is shorter than this.
    watched: Option<NonZeroU32>,
}

impl<T> Default for CellQueue<T> {
    fn default() -> Self {
        Self {
            ring: None,
            age: QueueAge::default(),
            hops: None,
            cell_count: CellCount::default(),
            len: 0,
            is_blocked: false,
        }
    }
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), head: 0, peak: 0, emptied: 0, watched: None }
    }
}

/// The effect of a new cell on its link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Enqueued {
    /// The queue was empty: it enters the circuit mux with this EWMA.
    First(CellCount),
    /// The queue is in the circuit mux already.
    More,
    /// The window is full: the queue enters the circuit mux when there is space.
    Blocked,
}

/// How often a queue runs empty before its capacity is checked.
const EMPTIED_MAX: u16 = 1000;

impl<T: Cell> CellQueue<T> {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Since when the first cell has been queued, as far as known.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.age.since()
    }

    /// When a cell was queued or sent last, as far as known; the driver's origin if none was.
    pub(crate) const fn moved_at(&self) -> Instant {
        self.age.moved_at()
    }

    /// The effect of the cell that was pushed last on the link.
    #[inline]
    pub(crate) const fn enqueued(&self) -> Enqueued {
        if self.is_blocked {
            Enqueued::Blocked
        } else if self.len == 1 {
            Enqueued::First(self.cell_count)
        } else {
            Enqueued::More
        }
    }

    /// Adds a slot at the end. It holds the remains of an earlier cell.
    #[inline]
    pub(crate) fn push(&mut self, now: Instant) -> &mut T {
        self.age.handle_added(now, 1);
        let len = self.len();
        self.len += 1;
        self.ring.get_or_insert_default().push(len)
    }

    /// Removes the cell that was pushed last. Its link must not have been notified of it.
    pub(crate) fn unpush(&mut self) -> T {
        let Some(ring) = &mut self.ring else { unreachable!("a cell was pushed") };
        debug_assert!(self.len > 0, "nothing was pushed");
        self.len -= 1;
        self.age.handle_taken_back(self.len as usize);
        core::mem::replace(ring.slot(self.len as usize), T::EMPTY)
    }

    /// Moves cells into `out` until `out` is full or the queue is empty; returns the number of cells.
    #[inline]
    pub(crate) fn pop_into(&mut self, now: Instant, out: &mut [T]) -> usize {
        let count = out.len().min(self.len());
        let cells = u32::try_from(count).unwrap_or(u32::MAX);
        self.len -= cells;
        let remaining = self.len();
        if let Some(ring) = &mut self.ring {
            ring.pop_into(&mut out[..count], remaining);
        }
        self.age.handle_taken(now, count, remaining);
        if let Some(hops) = &mut self.hops {
            hops.handle_left(now, cells);
        }
        count
    }

    /// Sets the window for cells on their way to the next hop; `None` removes it.
    pub(crate) fn set_window(&mut self, window: Option<Box<dyn HopWindow>>) {
        if window.is_some() || self.hops.is_some() {
            self.hops.get_or_insert_default().set_window(window);
        }
    }

    /// Reports forwarded cells to the previous hop.
    pub(crate) fn report_to_previous_hop(&mut self) {
        self.hops.get_or_insert_default().enable_reports();
    }

    /// The previous hop is gone; another one may follow.
    pub(crate) fn forget_previous_hop(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.forget_before();
        }
    }

    /// A cell has arrived from the previous hop.
    #[inline]
    pub(crate) fn handle_arrived(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.handle_arrived();
        }
    }

    /// A cell from the previous hop was addressed to this relay.
    #[inline]
    pub(crate) fn handle_consumed(&mut self) {
        if let Some(hops) = &mut self.hops {
            hops.pass_on(1);
        }
    }

    /// Whether there is something to report to the previous hop: true once, until
    /// [`take_unreported`](Self::take_unreported).
    #[inline]
    pub(crate) fn has_report(&mut self) -> bool {
        self.hops.as_mut().is_some_and(|hops| hops.has_report())
    }

    /// Takes the number of forwarded cells not yet reported to the previous hop, at most as many as one
    /// FEEDBACK entry can hold.
    pub(crate) fn take_unreported(&mut self) -> u16 {
        self.hops.as_mut().map_or(0, |hops| hops.take_unreported())
    }

    /// Cells that were sent to the next hop and not reported as forwarded.
    pub(crate) fn in_flight(&self) -> u32 {
        self.hops.as_ref().map_or(0, |hops| hops.in_flight())
    }

    /// Takes all cells and the state of the next hop out of the queue, for another next hop.
    pub(crate) fn cut(&mut self) -> Self {
        let cut = core::mem::take(self);
        self.hops = cut.hops.as_ref().and_then(|hops| hops.cut()).map(Box::new);
        cut
    }

    /// Cells that the hop-by-hop window allows to send.
    #[inline]
    pub(crate) fn room_cells(&self, now: Instant) -> usize {
        self.hops.as_ref().map_or(usize::MAX, |hops| hops.room_cells(now))
    }

    /// The window is full: the queue leaves its link's circuit mux.
    pub(crate) const fn block(&mut self) {
        self.is_blocked = true;
    }

    pub(crate) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether the next hop has not reported any cells for several seconds although the window is full.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.is_blocked && self.hops.as_ref().is_some_and(|hops| hops.is_silent(now))
    }

    /// The next hop reports forwarded cells. Returns true if the queue was blocked and enters the circuit mux
    /// again.
    pub(crate) fn handle_feedback(&mut self, now: Instant, cells: u32) -> Result<bool, Excess> {
        let hops = self.hops.as_mut().ok_or(Excess)?;
        hops.handle_feedback(now, cells)?;
        let is_released = self.is_blocked && hops.room_cells(now) > 0;
        self.is_blocked &= !is_released;
        Ok(is_released)
    }

    /// Requests a notification when at most this number of cells are queued.
    pub(crate) fn watch(&mut self, cells: usize) {
        let watched = u32::try_from(cells + 1).ok().and_then(NonZeroU32::new);
        self.ring.get_or_insert_default().watched = watched;
    }

    /// Whether the queue has become as short as [`watch`](Self::watch) requested: true once.
    #[inline]
    pub(crate) fn has_become_short(&mut self) -> bool {
        let len = self.len();
        self.ring.as_mut().is_some_and(|ring| ring.has_become_short(len))
    }

    /// Releases the ring buffer if no cell has been queued since the last call.
    pub(crate) fn rest(&mut self) {
        if self.len == 0 {
            self.ring.take_if(|ring| ring.is_unused());
        }
    }

    #[cfg(test)]
    pub(super) const fn is_at_rest(&self) -> bool {
        self.ring.is_none()
    }
}

impl<T: Cell> Ring<T> {
    /// Adds a slot behind `len` cells.
    #[inline]
    fn push(&mut self, len: usize) -> &mut T {
        if len == self.slots.len() {
            self.grow();
        }
        self.peak = self.peak.max(len + 1);
        self.slot(len)
    }

    /// Fills `out` with cells; `remaining` are left.
    #[inline]
    fn pop_into(&mut self, out: &mut [T], remaining: usize) {
        let until_end = (self.slots.len() - self.head).min(out.len());
        let (first, second) = out.split_at_mut(until_end);
        T::shift(&mut self.slots[self.head..self.head + until_end], first);
        T::shift(&mut self.slots[..second.len()], second);
        if remaining == 0 {
            self.head = 0;
            self.emptied += 1;
            if self.emptied > EMPTIED_MAX {
                self.shrink();
            }
        } else {
            self.head = self.place(out.len());
        }
    }

    #[inline]
    fn has_become_short(&mut self, len: usize) -> bool {
        let is_short = self.watched.is_some_and(|cells| len < cells.get() as usize);
        if is_short {
            self.watched = None;
        }
        is_short
    }

    /// Whether an empty ring buffer is watched by no one and had no cells since the last call.
    fn is_unused(&mut self) -> bool {
        core::mem::take(&mut self.peak) == 0 && self.watched.is_none()
    }

    /// Halves the capacity of an empty queue that did not need it.
    #[cold]
    fn shrink(&mut self) {
        self.emptied = 0;
        let peak = core::mem::take(&mut self.peak);
        if self.slots.len() > ROOM_MIN && peak <= self.slots.len() / 4 {
            self.slots.truncate(self.slots.len() / 2);
            self.slots.shrink_to_fit();
        }
    }

    /// The slot that is `before` cells behind the head.
    #[inline]
    fn slot(&mut self, before: usize) -> &mut T {
        let at = self.place(before);
        &mut self.slots[at]
    }

    /// The index of that slot.
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
