//! One end of a connection.

use super::kernel::Feedback;
use super::message::{Purpose, SocketKey};
use super::tcp::{Control, Receiver, Sender};
use super::unsent::Unsent;
use alloc::boxed::Box;

/// The state of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Handshakes.
    Opening,
    Open,
    /// The application has closed it; written data is still sent.
    Closing,
}

/// One end of a connection.
///
/// Most sockets are not in the processor's cache when something arrives. So fields that are used together are
/// adjacent: an arriving flight needs the first two cache lines of 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Socket {
    pub(super) uses: u32,
    pub(super) phase: Phase,
    /// Whether it is in the upload's round-robin ring.
    pub(super) is_ready: bool,
    /// Whether the application has more than there was space for.
    pub(super) wants_room: bool,
    pub(super) peer_host: u32,
    pub(super) peer: SocketKey,
    pub(super) latency_ns: u32,
    /// The loss of arrivals, in 2⁻³² per segment.
    pub(super) loss: u32,
    /// The application's number for it.
    pub(super) conn: u32,
    pub(super) rx: Receiver,
    pub(super) purpose: Purpose,
    /// The earliest entry of its RTO; [`u64::MAX`] without any.
    pub(super) watched_at: u64,
    /// FEEDBACK cells among the written and unsent ones. Boxed: most links have none.
    pub(super) feedback: Option<Box<Feedback>>,
    pub(super) tx: Sender,
    /// Written and unsent cells.
    pub(super) unsent: Unsent,
}

const _: () = assert!(size_of::<Socket>() <= 448, "any two relays have two of them");

impl Socket {
    pub(super) fn new(control: Control, window: u64) -> Self {
        Self {
            uses: 0,
            phase: Phase::Free,
            peer_host: 0,
            peer: SocketKey::default(),
            purpose: Purpose::Link,
            latency_ns: 0,
            loss: 0,
            conn: 0,
            tx: Sender::new(control, window),
            rx: Receiver::new(window),
            unsent: Unsent::default(),
            feedback: None,
            is_ready: false,
            wants_room: false,
            watched_at: u64::MAX,
        }
    }

    pub(super) const fn is_link(&self) -> bool {
        matches!(self.purpose, Purpose::Link)
    }

    /// The granularity of sent bytes.
    pub(super) const fn unit(&self) -> u64 {
        if self.is_link() { 514 } else { 1 }
    }

    /// Whether there is a FEEDBACK cell whose predecessors are all sent.
    pub(super) fn has_feedback_to_send(&self) -> bool {
        self.feedback.as_ref().is_some_and(|feedback| feedback.has_any_before(self.tx.sent()))
    }

    /// Received and unread bytes.
    pub(super) const fn unread(&self) -> u64 {
        self.rx.received() - self.rx.read
    }
}
