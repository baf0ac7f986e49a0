//! The receiver: data in order, out-of-order data, lost data.

use crate::world::message::MailContent;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use onion::cell_model::HeaderOnlyCell;

/// The content of a flight.
#[derive(Debug)]
pub(crate) enum Payload {
    Cells(Vec<HeaderOnlyCell>),
    Bytes(u32),
}

impl Payload {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Cells(cells) => cells.len() as u64 * 514,
            Self::Bytes(bytes) => u64::from(*bytes),
        }
    }
}

/// The receiving state of one side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// Everything before this offset has arrived.
    next: u64,
    /// Bytes read.
    pub(crate) read: u64,
    /// The right edge that was last advertised.
    advertised_end: u64,
    window: u64,
    /// Boxed: most connections have none, and there are many.
    gaps: Option<Box<Gaps>>,
    /// The end of the stream.
    pub(crate) end: u64,
}

/// Data that is not in order.
#[derive(Debug, Default)]
struct Gaps {
    /// Out-of-order flights, by first byte.
    early: BTreeMap<u64, Payload>,
    /// Lost flights that will be retransmitted.
    lost: BTreeMap<u64, Payload>,
}

impl Receiver {
    pub(crate) const fn new(window: u64) -> Self {
        Self { next: 0, read: 0, window, advertised_end: window, gaps: None, end: u64::MAX }
    }

    /// The flight is lost in transit.
    pub(crate) fn lose(&mut self, start: u64, payload: Payload) {
        self.gaps.get_or_insert_default().lost.insert(start, payload);
    }

    /// The retransmission of a lost flight.
    pub(crate) fn find(&mut self, start: u64) -> Option<Payload> {
        self.gaps.as_mut()?.lost.remove(&start)
    }

    /// It has arrived: returns what is in order now.
    pub(crate) fn receive(
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
        while let Some(first) = gaps.early.first_entry().filter(|entry| *entry.key() == self.next) {
            let payload = first.remove();
            self.next += payload.bytes();
            deliver(payload);
        }
        if gaps.early.is_empty() && gaps.lost.is_empty() {
            self.gaps = None;
        }
    }

    /// Bytes in order.
    pub(crate) const fn received(&self) -> u64 {
        self.next
    }

    /// The acknowledgement of a flight.
    pub(crate) fn ack(&mut self, number: u32) -> MailContent {
        self.advertised_end = self.read + self.window;
        MailContent::Ack { number, next: self.next, window_end: self.advertised_end }
    }

    /// The window update that the sender does not know, if it is at least half of the buffer.
    pub(crate) fn window_update(&mut self) -> Option<MailContent> {
        let window_end = self.read + self.window;
        if window_end - self.advertised_end < self.window / 2 {
            return None;
        }
        self.advertised_end = window_end;
        Some(MailContent::Window { window_end })
    }

    /// Whether everything has arrived.
    pub(crate) const fn is_over(&self) -> bool {
        self.next >= self.end
    }
}
