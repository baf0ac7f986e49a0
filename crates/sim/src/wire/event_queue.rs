use super::config::NodeId;
use super::conn::{LinkId, Side};
use super::tcp::{Ack, Chunk};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use onion::Instant;
use onion::node::{CloseCause, DnsAnswer, LookupId};

/// What happens to a connection, or to a node.
#[derive(Debug)]
pub(super) enum Event {
    /// A dial reaches the address it is for.
    Dialled(LinkId),
    /// The dialler hears that it is connected.
    Connected(LinkId),
    /// One side hears that there is no connection, or none any more.
    Gone(LinkId, Side, CloseCause),
    /// Bytes reach the node of one side.
    Reached(LinkId, Side, Load),
    /// They are through what limits its receiving.
    Arrived(LinkId, Side, Load),
    /// One side hears that the other has closed.
    Closed(LinkId, Side),
    /// One side hears what the other's TCP has got.
    Acked(LinkId, Side, Ack),
    /// One side hears that the other takes bytes up to this one.
    Opened(LinkId, Side, u64),
    /// One side has heard nothing of the chunk that begins with this byte.
    Overdue(LinkId, Side, u64),
    /// The domain name system answers.
    Answered(NodeId, LookupId, DnsAnswer),
}

/// What travels.
#[derive(Debug)]
pub(super) enum Load {
    /// Over a path without a model.
    Bytes(Vec<u8>),
    /// Over one with a model.
    Chunk(Chunk),
}

impl Load {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Chunk(chunk) => chunk.bytes.len(),
        }
    }
}

/// An event at its place.
#[derive(Debug)]
struct Planned {
    at: Instant,
    number: u64,
    event: Event,
}

impl Planned {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// What is to happen, by time, and at one time in the order in which it was planned.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: BinaryHeap<Reverse<Planned>>,
    planned: u64,
}

impl EventQueue {
    pub(super) fn plan(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.push(Reverse(Planned { at, number: self.planned, event }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse(first)| first.at)
    }

    /// The next event that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.next_at()? > now {
            return None;
        }
        self.events.pop().map(|Reverse(first)| first.event)
    }
}
