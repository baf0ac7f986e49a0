//! Future events in order of time.

use super::config::NodeId;
use super::conn::{LinkId, Side};
use super::tcp::{Ack, Chunk};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use onion::Instant;
use onion::node::{CloseCause, DnsAnswer, LookupId};

/// An event of a connection or a node.
#[derive(Debug)]
pub(super) enum Event {
    /// A dial arrives at its address.
    Dialled(LinkId),
    /// The dialler is connected.
    Connected(LinkId),
    /// One side learns that the connection failed or was closed.
    Gone(LinkId, Side, CloseCause),
    /// Bytes arrive at the node of one side.
    Reached(LinkId, Side, Load),
    /// They have passed its receive rate limit.
    Arrived(LinkId, Side, Load),
    /// One side learns that the other has closed.
    Closed(LinkId, Side),
    /// One side gets an acknowledgement.
    Acked(LinkId, Side, Ack),
    /// One side gets a window update.
    Opened(LinkId, Side, u64),
    /// The RTO of the chunk that begins with this byte has expired.
    Overdue(LinkId, Side, u64),
    /// A DNS answer arrives.
    Answered(NodeId, LookupId, DnsAnswer),
}

/// The transported data.
#[derive(Debug)]
pub(super) enum Load {
    /// Over a path without a model.
    Bytes(Vec<u8>),
    /// Over a path with a model.
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

/// An event with its position.
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

/// Future events by time, and at equal times in the order in which they were scheduled.
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
