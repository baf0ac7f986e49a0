//! The way in: what has come, what has come too early, what got lost.

use crate::world::message::What;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::cell_model::HeaderOnlyCell;

/// What a flight brings.
#[derive(Debug)]
pub(in crate::world) enum Payload {
    Cells(Vec<HeaderOnlyCell>),
    Bytes(u32),
}

impl Payload {
    pub(in crate::world) fn bytes(&self) -> u64 {
        match self {
            Self::Cells(cells) => cells.len() as u64 * 514,
            Self::Bytes(bytes) => u64::from(*bytes),
        }
    }
}

/// One side's way in.
#[derive(Debug)]
#[repr(C)]
pub(in crate::world) struct Receiver {
    /// All before has come.
    next: u64,
    /// Bytes that were read.
    pub(in crate::world) read: u64,
    /// What was told last of what is taken.
    told_end: u64,
    window: u64,
    /// In a box: most connections have none, and there are many.
    gaps: Option<Box<Gaps>>,
    /// Nothing comes from here on.
    pub(in crate::world) end: u64,
}

/// What keeps bytes from being in order.
#[derive(Debug, Default)]
struct Gaps {
    /// What has come behind a gap, by its first byte.
    early: BTreeMap<u64, Payload>,
    /// What has got lost and will be sent again.
    lost: BTreeMap<u64, Payload>,
}

impl Receiver {
    pub(in crate::world) const fn new(window: u64) -> Self {
        Self { next: 0, read: 0, window, told_end: window, gaps: None, end: u64::MAX }
    }

    /// It has got lost on its way.
    pub(in crate::world) fn lose(&mut self, start: u64, payload: Payload) {
        self.gaps.get_or_insert_default().lost.insert(start, payload);
    }

    /// What has got lost comes again.
    pub(in crate::world) fn find(&mut self, start: u64) -> Option<Payload> {
        self.gaps.as_mut()?.lost.remove(&start)
    }

    /// It has come: gives what is in order now.
    pub(in crate::world) fn receive(
        &mut self,
        start: u64,
        payload: Payload,
        mut deliver: impl FnMut(Payload),
    ) {
        if start > self.next {
            self.gaps.get_or_insert_default().early.insert(start, payload);
            return;
        }
        self.next += payload.bytes();
        deliver(payload);
        let Some(gaps) = &mut self.gaps else { return };
        while let Some(first) = gaps.early.first_entry().filter(|it| *it.key() == self.next) {
            let payload = first.remove();
            self.next += payload.bytes();
            deliver(payload);
        }
        if gaps.early.is_empty() && gaps.lost.is_empty() {
            self.gaps = None;
        }
    }

    /// Bytes that are in order.
    pub(in crate::world) const fn received(&self) -> u64 {
        self.next
    }

    /// What to say of a flight that has come.
    pub(in crate::world) fn ack(&mut self, number: u32) -> What {
        self.told_end = self.read + self.window;
        What::Ack { number, next: self.next, window_end: self.told_end }
    }

    /// What to say of room that the sender does not know of: when it is half of all.
    pub(in crate::world) fn news(&mut self) -> Option<What> {
        let window_end = self.read + self.window;
        if window_end - self.told_end < self.window / 2 {
            return None;
        }
        self.told_end = window_end;
        Some(What::Window { window_end })
    }

    /// Whether all has come that ever will.
    pub(in crate::world) const fn is_over(&self) -> bool {
        self.next >= self.end
    }
}
