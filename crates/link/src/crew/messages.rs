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

/// Bytes of memory of one connection's chunks that may be on their way from the hub to its thread's TLS.
pub(super) const IN_FLIGHT_MAX: usize = 4 * CHUNK_LEN;

/// Bytes of a small chunk: what a link says while it comes to be, or a few cells. Thousands of links may say so much at a time.
const SMALL_LEN: usize = 2_048;

/// Chunks that a thread keeps for later, of either size.
const SPARE_MAX: usize = 512;

/// One connection, on all threads, for ever: even ones were dialled, odd ones accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Serial(pub(super) u64);

/// Some plaintext.
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    len: usize,
}

impl Chunk {
    fn new(room: usize) -> Self {
        Self { bytes: vec![0; room].into_boxed_slice(), len: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Bytes of memory that it takes, however little is in it.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends what fits; returns how much.
    pub(super) fn append(&mut self, more: &[u8]) -> usize {
        let len = more.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&more[..len]);
        self.len += len;
        len
    }

    /// Lets a record's worth be written from the start of a large one; returns how much was.
    pub(super) fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.len = write(&mut self.bytes[..RECORD_LEN]);
        self.len
    }
}

/// Chunks that were used and will be again. What one thread sends away, another's sendings replace.
#[derive(Default)]
pub(super) struct Spare {
    large: Vec<Chunk>,
    small: Vec<Chunk>,
}

impl Spare {
    /// An empty one for so much at first, or for as much of it as fits into one.
    pub(super) fn take_for(&mut self, len: usize) -> Chunk {
        let is_small = len <= SMALL_LEN;
        let (spare, room) =
            if is_small { (&mut self.small, SMALL_LEN) } else { (&mut self.large, CHUNK_LEN) };
        let mut chunk = spare.pop().unwrap_or_else(|| Chunk::new(room));
        chunk.len = 0;
        chunk
    }

    /// An empty large one.
    pub(super) fn take(&mut self) -> Chunk {
        self.take_for(CHUNK_LEN)
    }

    /// What is in a chunk, in a small one if that has room for it.
    pub(super) fn fit(&mut self, chunk: Chunk) -> Chunk {
        if chunk.len > SMALL_LEN || chunk.held_bytes() == SMALL_LEN {
            return chunk;
        }
        let mut small = self.take_for(chunk.len);
        small.append(chunk.bytes());
        self.give(chunk);
        small
    }

    pub(super) fn give(&mut self, chunk: Chunk) {
        let spare = if chunk.held_bytes() == SMALL_LEN { &mut self.small } else { &mut self.large };
        if spare.len() < SPARE_MAX {
            spare.push(chunk);
        }
    }
}

/// What is on its way from the hub to a thread, or has come there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) bytes: usize,
    /// Memory that its chunks take.
    pub(super) held_bytes: usize,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_little_takes_little_room() {
        let mut spare = Spare::default();
        assert_eq!(spare.take_for(SMALL_LEN).held_bytes(), SMALL_LEN);
        assert_eq!(spare.take_for(SMALL_LEN + 1).held_bytes(), CHUNK_LEN);
        for (len, held_bytes) in
            [(514, SMALL_LEN), (SMALL_LEN, SMALL_LEN), (SMALL_LEN + 1, CHUNK_LEN)]
        {
            let mut chunk = spare.take();
            chunk.fill(|out| {
                out[..len].fill(7);
                len
            });
            let chunk = spare.fit(chunk);
            assert_eq!((chunk.bytes(), chunk.held_bytes()), (&vec![7; len][..], held_bytes));
            spare.give(chunk);
        }
        let mut small = spare.take_for(1);
        assert_eq!(
            (small.bytes().len(), small.append(&[1; 3000]), small.append(&[1])),
            (0, SMALL_LEN, 0)
        );
    }
}
