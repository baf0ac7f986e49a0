//! Messages between the node's thread (the hub) and the I/O threads. Their limits keep a slow
//! thread from being flooded.

use crate::tls::TlsConfigs;
use onion::cell::CELLS_PER_RECORD;
use onion::link::TlsSession;
use onion::node::{CloseCause, ListenerId, Security, Unwritten};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Bytes of a large chunk: the maximum of a TLS record.
pub(super) const CHUNK_LEN: usize = 16_384;

/// Bytes of the cells that fill a record: the most requested from a node at once.
pub(super) const RECORD_LEN: usize = CELLS_PER_RECORD * onion::cell::CELL_LEN;

/// Bytes that an I/O thread may read from a link, or from all its TLS handshakes, before the hub grants
/// more: it spares each new link a round trip between the threads.
pub(super) const FIRST_GRANT: usize = 4_096;

/// Limit on the bytes of a link, or of the handshakes of a thread, that may be read without the hub.
pub(super) const GRANT_MAX: usize = 1 << 20;

/// Limit on the memory of one connection's chunks between the hub and TLS.
pub(super) const IN_FLIGHT_MAX: usize = 4 * CHUNK_LEN;

/// Bytes of a small chunk: a message of the link handshake, or a few cells. Thousands of links may
/// send those at a time.
const SMALL_LEN: usize = 2_048;

/// Unused chunks that a thread keeps, of either size.
const POOL_MAX: usize = 512;

/// Identifies a connection across all threads and time: even numbers were dialled, odd ones
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Serial(pub(super) u64);

/// A buffer of plaintext.
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

    /// Bytes of memory, however little it contains.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends what fits. Returns the number of bytes.
    pub(super) fn append(&mut self, more: &[u8]) -> usize {
        let len = more.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&more[..len]);
        self.len += len;
        len
    }

    /// Lets `write` fill up to a record from the start of a large chunk. Returns the number of
    /// bytes.
    pub(super) fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.len = write(&mut self.bytes[..RECORD_LEN]);
        self.len
    }
}

/// Unused chunks. A thread that sends chunks away gets as many back from others.
#[derive(Default)]
pub(super) struct ChunkPool {
    large: Vec<Chunk>,
    small: Vec<Chunk>,
}

impl ChunkPool {
    /// An empty chunk with room for `len` bytes, or a large one if no chunk has.
    pub(super) fn take_for(&mut self, len: usize) -> Chunk {
        let is_small = len <= SMALL_LEN;
        let (pool, room) =
            if is_small { (&mut self.small, SMALL_LEN) } else { (&mut self.large, CHUNK_LEN) };
        let mut chunk = pool.pop().unwrap_or_else(|| Chunk::new(room));
        chunk.len = 0;
        chunk
    }

    /// An empty large chunk.
    pub(super) fn take(&mut self) -> Chunk {
        self.take_for(CHUNK_LEN)
    }

    /// Moves the content to a small chunk if it fits.
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
        let pool = if chunk.held_bytes() == SMALL_LEN { &mut self.small } else { &mut self.large };
        if pool.len() < POOL_MAX {
            pool.push(chunk);
        }
    }
}

/// Data between the hub and the TLS layer of an I/O thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) bytes: usize,
    /// Memory of its chunks.
    pub(super) held_bytes: usize,
}

/// A command from the hub to an I/O worker.
pub(super) enum IoCommand {
    Dial {
        serial: Serial,
        to: SocketAddr,
        security: Security,
    },
    /// Encrypt and write this.
    Send(Serial, Chunk),
    /// Permits reading this number of further bytes from a connection: of plaintext without TLS, and
    /// from the socket with TLS.
    Grant(Serial, usize),
    /// Permits the same for all TLS handshakes together.
    GrantHandshakes(usize),
    /// Close after the queued data is written.
    Close(Serial),
    /// Use another certificate for incoming connections.
    Tls(Box<TlsConfigs>),
    /// Stop accepting connections.
    StopListening,
}

/// An event from an I/O worker to the hub.
pub(super) enum IoEvent {
    /// A dialled connection is open.
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
    /// This amount of queued data has been encrypted; there is room for more.
    Room(Serial, InFlight),
    /// This number of bytes has been read from the socket of a connection with TLS, or from those of
    /// all TLS handshakes.
    Read(Option<Serial>, usize),
    /// Data that is encrypted but not written.
    Unwritten(Serial, Unwritten),
    Closed(Serial, CloseCause),
    /// The I/O worker has failed.
    Failed(String),
    /// Wakes the hub.
    Wake,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_take_little_memory() {
        let mut pool = ChunkPool::default();
        assert_eq!(pool.take_for(SMALL_LEN).held_bytes(), SMALL_LEN);
        assert_eq!(pool.take_for(SMALL_LEN + 1).held_bytes(), CHUNK_LEN);
        for (len, held_bytes) in
            [(514, SMALL_LEN), (SMALL_LEN, SMALL_LEN), (SMALL_LEN + 1, CHUNK_LEN)]
        {
            let mut chunk = pool.take();
            chunk.fill(|out| {
                out[..len].fill(7);
                len
            });
            let chunk = pool.fit(chunk);
            assert_eq!((chunk.bytes(), chunk.held_bytes()), (&vec![7; len][..], held_bytes));
            pool.give(chunk);
        }
        let mut small = pool.take_for(1);
        assert_eq!(
            (small.bytes().len(), small.append(&[1; 3000]), small.append(&[1])),
            (0, SMALL_LEN, 0)
        );
    }
}
