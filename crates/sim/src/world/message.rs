use alloc::boxed::Box;
use alloc::vec::Vec;
use onion::cell_model::HeaderOnlyCell;

/// A host of the world, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub u32);

/// A socket of a host: its place in the host's table, and how often that place had been used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketKey {
    pub(super) index: u32,
    pub(super) uses: u32,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Cells.
    Link,
    /// An exit's, to a server, for this job.
    Plain(Job),
}

/// What a stream's two ends do. The server learns of it with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// So many bytes to the client.
    Fetch(u32),
    /// What the packet model says with this seed.
    Packets(u64),
}

/// What is on its way from one host to another.
#[derive(Debug)]
pub struct Mail {
    /// When it comes to the other host's way down: nanoseconds.
    pub(super) at: u64,
    pub(super) from: u32,
    /// How many its sender had sent before.
    pub(super) number: u32,
    pub(super) to: u32,
    /// The socket there; none yet for [`What::Open`].
    pub(super) socket: SocketKey,
    /// It does not come: only its receiver knows.
    pub(super) is_lost: bool,
    pub(super) what: What,
}

const _: () = assert!(size_of::<Mail>() <= 72, "it is copied from hand to hand");

#[derive(Debug)]
pub(super) enum What {
    /// A connection begins: the socket there, and what it is for.
    Open(Box<(SocketKey, Purpose)>),
    /// A step of TCP's, TLS's and the link's handshakes.
    Step { back: SocketKey, step: u8 },
    /// A flight of cells. If it gets lost, the receiver keeps them apart until it is sent again.
    Cells { number: u32, start: u64, cells: Vec<HeaderOnlyCell> },
    /// A flight of bytes that nobody looks at.
    Bytes { number: u32, start: u64, bytes: u32 },
    /// A flight that was sent before, and has got lost.
    Retransmit { number: u32, start: u64, bytes: u32 },
    /// This flight has come; so has all before `next`; nothing from `window_end` on is taken.
    Ack { number: u32, next: u64, window_end: u64 },
    /// A FEEDBACK cell, which stands before this byte of the stream.
    Feedback { place: u64, body: Box<[u8]> },
    /// There is room again.
    Window { window_end: u64 },
    /// Nothing comes from this byte on.
    Close { end: u64 },
}

impl Mail {
    /// Nothing for nobody.
    pub(super) const NONE: Self = Self {
        at: 0,
        from: 0,
        number: 0,
        to: 0,
        socket: SocketKey { index: u32::MAX, uses: 0 },
        is_lost: false,
        what: What::Window { window_end: 0 },
    };

    /// When it comes, in nanoseconds.
    #[must_use]
    pub const fn at_ns(&self) -> u64 {
        self.at
    }

    /// Who gets it.
    #[must_use]
    pub const fn to(&self) -> HostId {
        HostId(self.to)
    }
}
