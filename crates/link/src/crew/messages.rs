//! What threads tell each other: the bounds are what keeps a slow one from being flooded.

use crate::tls::TlsConfigs;
use onion::cell::CELLS_PER_RECORD;
use onion::link::TlsSession;
use onion::node::{CloseCause, ListenerId, Security, Unwritten};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Bytes of a chunk: what a TLS record holds at most.
pub(super) const CHUNK_LEN: usize = 16_384;

/// Bytes of cells that fill a record: more is not asked of a node at once.
pub(super) const RECORD_LEN: usize = CELLS_PER_RECORD * onion::cell::CELL_LEN;

/// Chunks of one connection that may be on their way from the hub to its thread's TLS. Each takes its whole room, however little is in it.
pub(super) const IN_FLIGHT_MAX: usize = 4;

/// Chunks that a thread keeps for later.
const SPARE_MAX: usize = 512;

/// One connection, on all threads, for ever: even ones were dialled, odd ones accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Serial(pub(super) u64);

/// Some plaintext.
pub(super) struct Chunk {
    bytes: Box<[u8; CHUNK_LEN]>,
    len: usize,
}

impl Chunk {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends what fits; returns how much.
    pub(super) fn append(&mut self, more: &[u8]) -> usize {
        let len = more.len().min(CHUNK_LEN - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&more[..len]);
        self.len += len;
        len
    }

    /// Lets a record's worth be written from the start; returns how much was.
    pub(super) fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.len = write(&mut self.bytes[..RECORD_LEN]);
        self.len
    }
}

/// Chunks that were used and will be again. What one thread sends away, another's sendings replace.
#[derive(Default)]
pub(super) struct Spare(Vec<Chunk>);

impl Spare {
    /// An empty one.
    pub(super) fn take(&mut self) -> Chunk {
        let empty = |mut chunk: Chunk| {
            chunk.len = 0;
            chunk
        };
        let fresh = || Chunk { bytes: Box::new([0; CHUNK_LEN]), len: 0 };
        self.0.pop().map_or_else(fresh, empty)
    }

    pub(super) fn give(&mut self, chunk: Chunk) {
        if self.0.len() < SPARE_MAX {
            self.0.push(chunk);
        }
    }
}

/// What is on its way from the hub to a thread, or has come there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) bytes: usize,
    /// Whole ones.
    pub(super) chunks: usize,
}

/// From the hub to a porter.
pub(super) enum Errand {
    Dial {
        serial: Serial,
        to: SocketAddr,
        security: Security,
    },
    /// To be encrypted and written.
    Send(Serial, Chunk),
    /// So many bytes more may be read of a connection without TLS.
    Grant(Serial, usize),
    /// Once what was to be sent is written.
    Close(Serial),
    /// Another certificate for connections that come in.
    Tls(Box<TlsConfigs>),
    /// No connections come in any more.
    StopListening,
}

/// From a porter to the hub.
pub(super) enum Event {
    /// A dialled connection stands.
    Connected {
        serial: Serial,
        tls: Option<Box<dyn TlsSession + Send>>,
        socket: Option<OwnedFd>,
    },
    Accepted {
        serial: Serial,
        listener: ListenerId,
        tls: Box<dyn TlsSession + Send>,
        socket: Option<OwnedFd>,
    },
    Bytes(Serial, Chunk),
    /// Of what was to be sent so much is encrypted, and behind it there is room again.
    Room(Serial, Load),
    /// A thread holds so much that is encrypted and not written.
    Unwritten(Serial, Unwritten),
    Closed(Serial, CloseCause),
    /// A porter can't go on.
    Failed(String),
    /// Somebody has something to tell the hub's owner.
    Wake,
}
