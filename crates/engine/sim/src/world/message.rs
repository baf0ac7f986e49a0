use alloc::boxed::Box;
use alloc::vec::Vec;
use onion::cell_model::HeaderOnlyCell;

/// A host of the world, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub u32);

/// A socket of a host: its index in the host's table, and how often that index had been used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketKey {
    pub(super) index: u32,
    pub(super) uses: u32,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A link.
    Link,
    /// An exit's connection to a server, for this job.
    Plain(Job),
}

/// The traffic of a stream's two ends. The server learns it with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// A download of this number of bytes.
    Fetch(u32),
    /// The packet model with this seed.
    Packets(u64),
}

/// A message from one host to another.
#[derive(Debug)]
pub struct Mail {
    /// When it arrives at the other host's download queue, in nanoseconds.
    pub(super) at: u64,
    pub(super) from: u32,
    /// How many messages its sender had sent before.
    pub(super) number: u32,
    pub(super) to: u32,
    /// The socket there; none yet for [`MailContent::Open`].
    pub(super) socket: SocketKey,
    /// Whether it is lost: only its receiver knows.
    pub(super) is_lost: bool,
    pub(super) content: MailContent,
}

const _: () = assert!(size_of::<Mail>() <= 72, "it is copied from hand to hand");

#[derive(Debug)]
pub(super) enum MailContent {
    /// A connection begins: the socket there, and its purpose.
    Open(Box<(SocketKey, Purpose)>),
    /// A step of the TCP, TLS and link handshakes.
    Step { back: SocketKey, step: u8 },
    /// A flight of cells. If it is lost, the receiver keeps the cells until the retransmission.
    Cells { number: u32, start: u64, cells: Vec<HeaderOnlyCell> },
    /// A flight of bytes without content.
    Bytes { number: u32, start: u64, bytes: u32 },
    /// A retransmitted flight.
    Retransmit { number: u32, start: u64, bytes: u32 },
    /// This flight has arrived; so has everything before `next`; `window_end` is the right edge of the receive
    /// window.
    Ack { number: u32, next: u64, window_end: u64 },
    /// A FEEDBACK cell with its stream offset.
    Feedback { place: u64, body: Box<[u8]> },
    /// A window update.
    Window { window_end: u64 },
    /// The stream ends at this offset.
    Close { end: u64 },
}

impl Mail {
    /// A placeholder.
    pub(super) const NONE: Self = Self {
        at: 0,
        from: 0,
        number: 0,
        to: 0,
        socket: SocketKey { index: u32::MAX, uses: 0 },
        is_lost: false,
        content: MailContent::Window { window_end: 0 },
    };

    /// When it arrives, in nanoseconds.
    #[must_use]
    pub const fn at_ns(&self) -> u64 {
        self.at
    }

    /// The recipient.
    #[must_use]
    pub const fn to(&self) -> HostId {
        HostId(self.to)
    }
}
