//! Buffers that a part lends to the host that is running.

use super::kernel::Event;
use super::message::Mail;
use super::unsent::Pool;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use onion::cell_model::{Cell, HeaderOnlyCell};

/// Maximum number of cells that are given to a socket at once.
pub(super) const RECORD_CELLS: usize = 31;

/// Buffers that a host needs while it runs a window, and not in between. A part has one set and lends it to
/// each of its hosts in turn: it stays in the processor's cache, while queues of each host would have to be
/// reloaded in each window.
#[derive(Debug)]
pub(super) struct HostScratch {
    pub(super) pool: Pool,
    /// Mail in the download queue, by the time when it has passed it.
    pub(super) arriving: VecDeque<Mail>,
    /// Sent mail.
    pub(super) out: Vec<Mail>,
    pub(super) events: VecDeque<Event>,
    /// A buffer for cells on their way from the engine to a socket.
    pub(super) record: Vec<HeaderOnlyCell>,
}

impl HostScratch {
    /// Buffers to lend, with space for a record.
    pub(super) fn new() -> Self {
        let record = (0..RECORD_CELLS).map(|_| HeaderOnlyCell::EMPTY).collect();
        Self { record, ..Self::none() }
    }

    /// A placeholder for lent buffers.
    pub(super) const fn none() -> Self {
        Self {
            pool: Pool::new(),
            arriving: VecDeque::new(),
            out: Vec::new(),
            events: VecDeque::new(),
            record: Vec::new(),
        }
    }
}
