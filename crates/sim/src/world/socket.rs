use super::kernel::Feedback;
use super::message::{Purpose, SocketKey};
use super::tcp::{Control, Receiver, Sender};
use super::unsent::Unsent;
use alloc::boxed::Box;

/// What one end of a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Handshakes are under way.
    Opening,
    Open,
    /// The application has closed it; what it has written is still sent.
    Closing,
}

/// One end of a connection.
///
/// Of most sockets nothing is in the processor's cache when something comes to them. So what is used together lies together: a flight that comes needs the first two lines of 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Socket {
    pub(super) uses: u32,
    pub(super) phase: Phase,
    /// It waits for its turn on the way up.
    pub(super) is_ready: bool,
    /// The application has more than there was room for.
    pub(super) wants_room: bool,
    pub(super) peer_host: u32,
    pub(super) peer: SocketKey,
    pub(super) latency_ns: u32,
    /// Of what comes: of 2³² segments so many get lost.
    pub(super) loss: u32,
    /// How the application calls it.
    pub(super) conn: u32,
    pub(super) rx: Receiver,
    pub(super) purpose: Purpose,
    /// The earliest entry for its silence; [`u64::MAX`] without any.
    pub(super) watched_at: u64,
    /// FEEDBACK cells among those that were written and not sent. In a box: most links have none.
    pub(super) feedback: Option<Box<Feedback>>,
    pub(super) tx: Sender,
    /// Cells that were written and not sent.
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

    /// Bytes of which only whole numbers are sent.
    pub(super) const fn unit(&self) -> u64 {
        if self.is_link() { 514 } else { 1 }
    }

    /// Whether there is a FEEDBACK cell before which nothing is to be sent any more.
    pub(super) fn has_feedback_to_send(&self) -> bool {
        self.feedback.as_ref().is_some_and(|it| it.has_some_before(self.tx.sent()))
    }

    /// Bytes that have come and were not read.
    pub(super) const fn unread(&self) -> u64 {
        self.rx.received() - self.rx.read
    }
}
