//! What proves who is at the other ends of links, verified away from the thread of cells.
//!
//! An RSA signature and three of Ed25519 take as long as hundreds of cells, and anybody can send some on each link that he opens. So they are
//! handed out as [`LinkProof`]s to any other thread, and come back as [`LinkVerified`].

use crate::link::{Verification, Verified};
use crate::node::ConnId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Bytes that may come on a link while its proof is looked at. A relay has circuits that have waited for the link, with
/// a cell or two on each.
const EARLY_MAX: usize = 256 * 1024;

/// A link whose peer's proof is looked at.
#[derive(Debug)]
struct Entry {
    ticket: u64,
    /// What came behind the handshake.
    early: Vec<u8>,
}

/// A proof to be verified, on any thread.
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

/// A proof that has been looked at.
#[derive(Debug)]
pub(super) struct LinkVerified {
    pub(super) conn: ConnId,
    ticket: u64,
    pub(super) verified: Verified,
}

/// Links whose peers' proofs wait, or are being looked at.
///
/// In the order of their coming: each has cost its peer a TLS handshake, which takes longer, and where addresses have
/// their turns.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    waiting: VecDeque<LinkProof>,
    links: BTreeMap<ConnId, Entry>,
    under_way: usize,
    tickets: u64,
}

impl Verifications {
    /// A link's proof is to be verified.
    pub(super) fn add(&mut self, conn: ConnId, verification: Verification) {
        let ticket = self.tickets;
        self.tickets += 1;
        self.links.insert(conn, Entry { ticket, early: Vec::new() });
        self.waiting.push_back(LinkProof { conn, ticket, verification });
    }

    /// Keeps what comes meanwhile; says how many bytes that are in all, or `None` if there may be no more.
    pub(super) fn keep(&mut self, conn: ConnId, bytes: &[u8]) -> Option<usize> {
        let early = &mut self.links.get_mut(&conn)?.early;
        if early.len() + bytes.len() > EARLY_MAX {
            return None;
        }
        early.extend_from_slice(bytes);
        Some(early.len())
    }

    /// The next proof to be handed out, if fewer than `at_once` are.
    pub(super) fn next(&mut self, at_once: usize) -> Option<LinkProof> {
        while self.under_way < at_once {
            let proof = self.waiting.pop_front()?;
            // Its link may be gone.
            if self.links.get(&proof.conn).is_some_and(|entry| entry.ticket == proof.ticket) {
                self.under_way += 1;
                return Some(proof);
            }
        }
        None
    }

    /// One has been looked at: what came on its link meanwhile, if that is there still.
    pub(super) fn take(&mut self, done: &LinkVerified) -> Option<Vec<u8>> {
        self.under_way -= 1;
        let is_it = self.links.get(&done.conn).is_some_and(|entry| entry.ticket == done.ticket);
        if is_it { self.links.remove(&done.conn).map(|entry| entry.early) } else { None }
    }

    /// A link is gone.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.links.remove(&conn);
    }
}
