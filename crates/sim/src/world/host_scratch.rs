use super::kernel::Event;
use super::message::Mail;
use super::unsent::Pool;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use onion::cell_model::{Cell, HeaderOnlyCell};

/// Cells that are given to a socket at once.
pub(super) const RECORD_CELLS: usize = 31;

/// What a host needs while it lives a window, and not in between. A part has one and lends it to each of its hosts in turn: so it stays in the processor's cache, where
/// queues of each host's own would have to be fetched anew in each window.
#[derive(Debug)]
pub(super) struct HostScratch {
    pub(super) pool: Pool,
    /// What is on its way down; its time is when it is through.
    pub(super) arriving: VecDeque<Mail>,
    /// What was sent.
    pub(super) out: Vec<Mail>,
    pub(super) events: VecDeque<Event>,
    /// Room for cells on their way from the engine to a socket.
    pub(super) record: Vec<HeaderOnlyCell>,
}

impl HostScratch {
    /// One that is lent: it has room for a record.
    pub(super) fn new() -> Self {
        let record = (0..RECORD_CELLS).map(|_| HeaderOnlyCell::EMPTY).collect();
        Self { record, ..Self::none() }
    }

    /// In the place of one that is not there.
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
