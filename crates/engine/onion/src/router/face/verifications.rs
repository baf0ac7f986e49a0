//! Verification of peers' certificates outside the thread that handles cells.
//!
//! One RSA and three Ed25519 signatures take as long as hundreds of cells, and anybody can send them on each
//! link. So they are handed to any other thread as [`LinkProof`]s and returned as [`LinkVerified`].

use crate::link::{Verification, Verified};
use crate::node::ConnId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of bytes buffered for a link during verification. A relay may have circuits that waited for
/// the link, with a cell or two on each.
const EARLY_MAX: usize = 256 * 1024;

/// A link whose peer is being verified.
#[derive(Debug)]
struct Entry {
    ticket: u64,
    /// Bytes that arrived after the handshake.
    early: Vec<u8>,
}

/// A proof to verify, on any thread.
#[derive(Debug)]
pub(super) struct LinkProof {
    conn: ConnId,
    ticket: u64,
    verification: Verification,
}

impl LinkProof {
    /// Verifies it. Takes 140 to 180 µs.
    pub(super) fn run(self) -> LinkVerified {
        let Self { conn, ticket, verification } = self;
        LinkVerified { conn, ticket, verified: verification.run() }
    }
}

/// A verified or rejected proof.
#[derive(Debug)]
pub(super) struct LinkVerified {
    pub(super) conn: ConnId,
    ticket: u64,
    pub(super) verified: Verified,
}

/// Queued and outstanding proofs.
///
/// FIFO: each has cost its peer a TLS handshake, which is more expensive and is scheduled fairly by address.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    waiting: VecDeque<LinkProof>,
    links: BTreeMap<ConnId, Entry>,
    under_way: usize,
    tickets: u64,
}

impl Verifications {
    /// Queues the proof of a link.
    pub(super) fn add(&mut self, conn: ConnId, verification: Verification) {
        let ticket = self.tickets;
        self.tickets += 1;
        self.links.insert(conn, Entry { ticket, early: Vec::new() });
        self.waiting.push_back(LinkProof { conn, ticket, verification });
    }

    /// Buffers input of a link during verification. Returns the number of bytes buffered in all, or `None` if
    /// there are too many.
    pub(super) fn keep(&mut self, conn: ConnId, bytes: &[u8]) -> Option<usize> {
        let early = &mut self.links.get_mut(&conn)?.early;
        if early.len() + bytes.len() > EARLY_MAX {
            return None;
        }
        early.extend_from_slice(bytes);
        Some(early.len())
    }

    /// The next proof to verify, if fewer than `at_once` are outstanding.
    pub(super) fn next(&mut self, at_once: usize) -> Option<LinkProof> {
        while self.under_way < at_once {
            let proof = self.waiting.pop_front()?;
            // Its link may be closed.
            if self.links.get(&proof.conn).is_some_and(|entry| entry.ticket == proof.ticket) {
                self.under_way += 1;
                return Some(proof);
            }
        }
        None
    }

    /// A proof was verified. Returns the buffered input of its link, if the link still exists.
    pub(super) fn take(&mut self, done: &LinkVerified) -> Option<Vec<u8>> {
        self.under_way -= 1;
        let is_it = self.links.get(&done.conn).is_some_and(|entry| entry.ticket == done.ticket);
        if is_it { self.links.remove(&done.conn).map(|entry| entry.early) } else { None }
    }

    /// A link is closed.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.links.remove(&conn);
    }
}
