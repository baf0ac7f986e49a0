//! The consensus as clients follow it: the same fetching and the same verifying as the relay's own, of
//! less.

use crate::cache::{Cache, times};
use crate::following::{Following, Found};
use crate::source::Source;
use bytes::Bytes;
use netdoc::consensus::Flavour;
use netdoc::{Consensus, Fingerprint};
use onion::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Follows the consensus of the microdesc flavour and the microdescriptors that it names, for a client. It asks directories by a
/// [`Source`], keeps what it has in a folder, and verifies what a relay verifies.
pub struct Follower<S> {
    following: Following<S>,
}

/// What a look at the authorities has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// A consensus later than the one before has come.
    pub is_new: bool,
    /// No authority gave a usable consensus, and why the last one that was asked didn't.
    pub problem: Option<String>,
    /// What has come could not be stored, and why: it is used, but fetched again after a restart.
    pub unstored: Option<String>,
}

impl<S: Source> Follower<S> {
    /// Begins with what is in the folder. `identities` are the authorities whose signatures count, by their identity keys; if
    /// there are none, those count that the authorities state themselves. `first` is any number: with whom to begin.
    #[must_use]
    pub fn new(
        authorities: Vec<SocketAddr>,
        identities: BTreeSet<Fingerprint>,
        folder: PathBuf,
        unix_time_s: u64,
        first: usize,
        source: S,
    ) -> Self {
        let cache = Cache::default();
        let following = Following::new(authorities, identities, folder, cache, unix_time_s, first);
        Self { following: following.for_client(source) }
    }

    /// Fetches the latest consensus, and the microdescriptors that it names and that are not here. Takes its time.
    pub fn fetch(&mut self, unix_time_s: u64) -> Followed {
        let (found, unstored) = self.following.fetch(unix_time_s);
        let problem = match found {
            Found::New => return Followed { is_new: true, problem: None, unstored },
            Found::Nothing => None,
            Found::Problem(problem) => Some(problem),
        };
        Followed { is_new: false, problem, unstored }
    }

    /// The consensus, if there is one that may still be used.
    #[must_use]
    pub fn consensus(&self, unix_time_s: u64) -> Option<Arc<Consensus>> {
        let documents = self.following.cache().get();
        let content = Arc::clone(&documents.listing(Flavour::Microdesc)?.content);
        times::is_reasonably_live(&content, unix_time_s).then_some(content)
    }

    /// The text of a microdescriptor, by its SHA-256.
    #[must_use]
    pub fn microdesc(&self, digest: &[u8; 32]) -> Option<Bytes> {
        self.following.cache().get().micro.get(digest).map(|kept| kept.text.clone())
    }

    /// How long to wait before the next fetch; `chance` is a random number from 0 to 1.
    #[must_use]
    pub fn pause(consensus: &Consensus, unix_time_s: u64, chance: f64) -> Duration {
        times::pause(consensus, unix_time_s, chance)
    }
}

impl<S> std::fmt::Debug for Follower<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}
