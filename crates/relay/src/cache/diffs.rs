//! Earlier consensuses, and the differences from them to the present one.
//!
//! Who asks gets what has been made before: making one takes a good part of a second in the public network, and
//! is done once for each earlier consensus, by the thread that follows the consensus.

use super::{Listing, deflate};
use bytes::Bytes;
use flate2::read::ZlibDecoder;
use netdoc::consdiff::{self, ConsensusDigest};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Earlier consensuses of a flavour that are kept: those of half a day. Who is longer away fetches a whole one.
pub(crate) const EARLIER_MAX: usize = 12;
/// Bytes that they take, compressed, at most: twenty times what they take in the public network.
const EARLIER_MAX_BYTES: usize = 64 << 20;
/// The longest consensus, uncompressed.
pub(crate) const CONSENSUS_MAX: usize = 32 << 20;

/// A difference as it is served.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) text: Bytes,
    /// The same, compressed once for all.
    pub(crate) deflated: Bytes,
}

/// An earlier consensus.
#[derive(Clone, Debug)]
struct Base {
    digest: ConsensusDigest,
    deflated: Bytes,
}

/// Earlier consensuses of a flavour, and differences from them to the present one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier {
    /// Latest first.
    bases: VecDeque<Base>,
    to_present: BTreeMap<ConsensusDigest, Arc<Difference>>,
    /// Of what differences have been made, or cannot be of use.
    is_made: bool,
}

impl Earlier {
    /// A consensus is the present one no more.
    pub(super) fn push(&mut self, listing: &Listing) {
        self.to_present.clear();
        self.is_made = false;
        let Listing { digest, deflated, .. } = listing;
        self.bases.retain(|base| base.digest != *digest);
        self.bases.push_front(Base { digest: *digest, deflated: deflated.clone() });
        self.bases.truncate(EARLIER_MAX);
        let bytes = |bases: &VecDeque<Base>| -> usize {
            bases.iter().map(|base| base.deflated.len()).sum()
        };
        while bytes(&self.bases) > EARLIER_MAX_BYTES {
            self.bases.pop_back();
        }
    }

    /// Makes the differences to this consensus, the present one, unless that is done.
    pub(super) fn make(&mut self, present: &Listing) {
        if std::mem::replace(&mut self.is_made, true) {
            return;
        }
        for base in self.bases.iter().filter(|base| base.digest != present.digest) {
            let mut text = Vec::new();
            let limit = u64::try_from(CONSENSUS_MAX).unwrap_or(u64::MAX);
            let read = ZlibDecoder::new(&base.deflated[..]).take(limit).read_to_end(&mut text);
            // What is as long as the consensus itself is of no use to anybody.
            let Some(text) = read.ok().and_then(|_| consdiff::make(&text, &present.text).ok())
            else {
                continue;
            };
            let difference = Difference { deflated: deflate(&text), text: text.into() };
            self.to_present.insert(base.digest, Arc::new(difference));
        }
    }

    /// The difference to the present consensus for somebody who has one of these, the first that there is.
    pub(crate) fn find(&self, have: &[ConsensusDigest]) -> Option<&Arc<Difference>> {
        have.iter().find_map(|digest| self.to_present.get(digest))
    }
}

/// How often differences were of use.
#[derive(Debug, Default)]
pub(crate) struct DiffCounts {
    served: AtomicU64,
    applied: AtomicU64,
}

/// How many consensuses have come and gone as differences since a relay began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffTotals {
    /// Sent to those who have asked for them.
    pub served: u64,
    /// Fetched, and turned into consensuses that enough authorities had signed.
    pub applied: u64,
}

impl DiffCounts {
    pub(crate) fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_applied(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> DiffTotals {
        DiffTotals {
            served: self.served.load(Ordering::Relaxed),
            applied: self.applied.load(Ordering::Relaxed),
        }
    }
}
