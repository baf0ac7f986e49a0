use super::conn::{LinkId, Side};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What happens to a connection.
#[derive(Debug)]
pub(super) enum Event {
    /// A dial reaches the address it is for.
    Dialled(LinkId),
    /// The dialler hears that it is connected.
    Connected(LinkId),
    /// The dialler hears that nobody listens.
    Refused(LinkId),
    /// Bytes reach one side.
    Bytes(LinkId, Side, Vec<u8>),
    /// One side hears that the other has closed.
    Closed(LinkId, Side),
}

/// What is to happen, by time, and at one time in the order in which it was planned.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next event that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
