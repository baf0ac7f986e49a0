//! Past consensuses, and the diffs from them to the current one.
//!
//! A diff takes a large part of a second to compute for the public network. The thread that follows
//! the consensus computes each once; requests are answered with what exists.

use super::{CachedConsensus, deflate};
use crate::fetcher::CONSENSUS_MAX;
use bytes::Bytes;
use flate2::read::ZlibDecoder;
use netdoc::consdiff::{self, ConsensusDigest};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;

/// Past consensuses kept for each flavour: half a day of the public network. A client that was
/// offline for longer fetches a complete consensus.
pub const PAST_MAX: usize = 12;
/// Limit on their compressed size in bytes: twenty times what they take in the public network.
const PAST_MAX_BYTES: usize = 64 << 20;

/// A consensus diff as a directory serves it.
#[derive(Clone, Debug)]
pub struct ConsensusDiff {
    /// The whole text.
    pub text: Bytes,
    /// The text, compressed by [`deflate`].
    pub deflated: Bytes,
}

/// A past consensus.
#[derive(Clone, Debug)]
struct PastConsensus {
    digest: ConsensusDigest,
    deflated: Bytes,
}

/// Past consensuses of a flavour, and diffs from them to the current one.
#[derive(Clone, Debug, Default)]
pub struct PastConsensuses {
    /// Latest first.
    past: VecDeque<PastConsensus>,
    diffs: BTreeMap<ConsensusDigest, Arc<ConsensusDiff>>,
    /// Whether all diffs to the current consensus have been computed.
    is_complete: bool,
}

impl PastConsensuses {
    /// Adds the consensus that was the current one until now.
    pub(super) fn push(&mut self, consensus: &CachedConsensus) {
        self.diffs.clear();
        self.is_complete = false;
        let CachedConsensus { digest, deflated, .. } = consensus;
        self.past.retain(|past| past.digest != *digest);
        self.past.push_front(PastConsensus { digest: *digest, deflated: deflated.clone() });
        self.past.truncate(PAST_MAX);
        let bytes = |past: &VecDeque<PastConsensus>| -> usize {
            past.iter().map(|consensus| consensus.deflated.len()).sum()
        };
        while bytes(&self.past) > PAST_MAX_BYTES {
            self.past.pop_back();
        }
    }

    /// Computes the diffs to the current consensus unless that is done.
    pub(super) fn make_diffs(&mut self, current: &CachedConsensus) {
        if std::mem::replace(&mut self.is_complete, true) {
            return;
        }
        for past in self.past.iter().filter(|past| past.digest != current.digest) {
            let mut text = Vec::new();
            let limit = u64::try_from(CONSENSUS_MAX).unwrap_or(u64::MAX);
            let read = ZlibDecoder::new(&past.deflated[..]).take(limit).read_to_end(&mut text);
            // `make` refuses a diff that is as long as the consensus: it would save nothing.
            let Some(text) = read.ok().and_then(|_| consdiff::make(&text, &current.text).ok())
            else {
                continue;
            };
            let diff = ConsensusDiff { deflated: deflate([&text[..]]), text: text.into() };
            self.diffs.insert(past.digest, Arc::new(diff));
        }
    }

    /// The diff to the current consensus from the first of `have` for which it exists.
    #[must_use]
    pub fn find(&self, have: &[ConsensusDigest]) -> Option<&Arc<ConsensusDiff>> {
        have.iter().find_map(|digest| self.diffs.get(digest))
    }
}
