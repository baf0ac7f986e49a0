//! Follows the consensus as a directory cache does (dir-spec.txt, section 4.5): fetches consensuses,
//! the certificates that their signatures need, microdescriptors and server descriptors.
//!
//! # What is verified
//! - **Consensuses**: RSA signatures of more than half of the configured authorities, over the whole
//!   text. The keys are those of the identities that the operator has configured
//!   (`authority_identities`). Without those, each authority states its own, at
//!   `/tor/keys/authority`. That only ensures that no minority of the authorities can forge a
//!   consensus; an adversary on the path to most of them can. A consensus that was patched by a diff
//!   is verified in the same manner.
//! - **Certificates**: the identity key matches the fingerprint and has signed the certificate, which
//!   has not expired.
//! - **Microdescriptors and server descriptors**: their digests are those in the consensus. The
//!   authorities have verified their signatures.
//!
//! Nothing is compressed, stored or served before it is verified.

use crate::cache::Cache;
use crate::documents::disk::{self, StaleFiles};
use crate::documents::{CachedConsensus, Documents, UnverifiedConsensus, Wanted};
use crate::source::{PlainHttp, Source};
use crate::{schedule, verify};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use netdoc::RsaId;
use netdoc::consdiff;
use netdoc::consensus::{Consensus, ConsensusError, Flavour};
use netdoc::fetch::{FetchError, Fetcher, Problem, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest consensus, in bytes.
pub(crate) const CONSENSUS_MAX: usize = 32 << 20;
/// Limits for a consensus. A fetch that fails is repeated later.
const FETCHER: Fetcher = Fetcher {
    connect_timeout: Duration::from_secs(5),
    silence_timeout: Duration::from_secs(10),
    total_timeout: Duration::from_secs(60),
    max_bytes: CONSENSUS_MAX as u64,
};
/// Limits for documents of a few kilobytes.
const SMALL_FETCHER: Fetcher = Fetcher { max_bytes: 4 << 20, ..FETCHER };
/// Documents in one request, as in tor: the path stays below 4 KiB.
const BATCH: usize = 90;
/// Answers with less than half of the requested documents after which a directory is not asked again
/// in this fetch: each answer may take as long as the limits permit.
const POOR_ANSWERS_MAX: usize = 3;

/// Where a fetcher finds and keeps documents.
#[derive(Clone, Debug)]
pub struct FetcherConfig {
    /// The directory addresses of the authorities.
    pub authorities: Vec<SocketAddr>,
    /// The authorities' identities; if empty, each authority is asked for its own.
    pub identities: BTreeSet<RsaId>,
    /// Where documents are stored.
    pub folder: PathBuf,
    /// The index of the authority to begin with, modulo their number. Choose it at random.
    pub first: usize,
}

/// Follows the consensus for one relay or one client.
#[derive(Debug)]
pub struct ConsensusFetcher<S = PlainHttp> {
    config: FetcherConfig,
    /// The identities that authorities state themselves.
    stated: BTreeMap<SocketAddr, RsaId>,
    cache: Cache,
    stale: StaleFiles,
    /// A client needs only the microdesc flavour, and serves nothing.
    is_for_client: bool,
    source: S,
}

/// The outcome of a fetch.
#[derive(Debug)]
pub struct FetchOutcome {
    /// Whether there is a later consensus than before; otherwise, why no directory has given a
    /// usable one.
    pub is_new: Result<bool, FetchProblem>,
    /// Why fetched documents could not be stored. They are used, but lost at a restart.
    pub unstored: Option<StoreError>,
}

/// Why there is no usable consensus from a directory.
#[derive(Debug, thiserror::Error)]
pub enum FetchProblem {
    /// No document was received.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The document cannot be parsed.
    #[error("{0}")]
    Malformed(#[from] ConsensusError),
    /// The document is a consensus of another flavour.
    #[error("{directory} sent a consensus of another flavour than {flavour:?}")]
    WrongFlavour {
        /// Who sent it.
        directory: SocketAddr,
        /// The flavour that was requested.
        flavour: Flavour,
    },
    /// The consensus expired long ago, or is not valid yet.
    #[error("the consensus from {directory} is of another time; is a clock wrong?")]
    NotLive {
        /// Who sent it.
        directory: SocketAddr,
    },
    /// Too few of the known authorities have signed the consensus.
    #[error(
        "the consensus from {directory} is signed by {signers} of the known authorities; {quorum} \
         are needed"
    )]
    TooFewSigners {
        /// Who sent it.
        directory: SocketAddr,
        /// Authorities with valid signatures.
        signers: usize,
        /// Authorities that must have signed.
        quorum: usize,
    },
}

/// Documents could not be written.
#[derive(Debug, thiserror::Error)]
#[error("machine: cannot write documents to `{}`: {source}", folder.display())]
pub struct StoreError {
    folder: PathBuf,
    source: std::io::Error,
}

impl ConsensusFetcher {
    /// A fetcher for a relay, which serves what it fetches. Begins with the stored documents, which
    /// it puts into `cache`.
    #[must_use]
    pub fn for_relay(config: FetcherConfig, cache: Cache, now: u64) -> Self {
        Self::new(config, cache, PlainHttp, now)
    }
}

impl<S: Source> ConsensusFetcher<S> {
    /// A fetcher for a client: only the microdesc flavour, requested through `source`. Begins with
    /// the stored documents.
    #[must_use]
    pub fn for_client(config: FetcherConfig, source: S, now: u64) -> Self {
        Self { is_for_client: true, ..Self::new(config, Cache::default(), source, now) }
    }

    fn new(config: FetcherConfig, cache: Cache, source: S, now: u64) -> Self {
        let mut documents = disk::load(&config.folder, now);
        documents.own.clone_from(&cache.get().own);
        cache.set(documents);
        let (stated, stale) = (BTreeMap::new(), StaleFiles::default());
        Self { config, stated, cache, stale, is_for_client: false, source }
    }

    /// The current documents.
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The consensus of the microdesc flavour, if it may still be used.
    #[must_use]
    pub fn consensus(&self, now: u64) -> Option<Arc<Consensus>> {
        let documents = self.cache.get();
        let content = Arc::clone(&documents.microdesc.as_ref()?.content);
        schedule::is_reasonably_live(&content, now).then_some(content)
    }

    /// The text of a microdescriptor.
    #[must_use]
    pub fn microdesc(&self, digest: &[u8; 32]) -> Option<Bytes> {
        self.cache.get().micro.get(digest).map(|document| document.text.clone())
    }

    /// Fetches the latest consensuses, and the documents that they list. Blocks, possibly for minutes.
    pub fn fetch(&mut self, now: u64) -> FetchOutcome {
        self.config.first = self.config.first.wrapping_add(1);
        self.learn_identities();
        let mut documents = Documents::clone(&self.cache.get());
        let ns = match self.is_for_client {
            true => Ok(false),
            false => self.fetch_consensus(&mut documents, Flavour::Ns, now),
        };
        // Serve it at once: the missing documents may take long.
        self.cache.set(documents.clone());
        let microdesc = self.fetch_consensus(&mut documents, Flavour::Microdesc, now);
        self.cache.set(documents.clone());
        if !self.is_for_client {
            documents.make_diffs();
            self.cache.set(documents.clone());
        }
        let unstored = self.complete(documents, now);
        let is_new = ns.and_then(|ns| Ok(ns | microdesc?));
        FetchOutcome { is_new, unstored }
    }

    /// Fetches only documents that the consensuses list and that are missing. Returns why they could
    /// not be stored.
    pub fn fetch_documents(&mut self, now: u64) -> Option<StoreError> {
        self.config.first = self.config.first.wrapping_add(1);
        let documents = Documents::clone(&self.cache.get());
        self.complete(documents, now)
    }

    /// Fetches missing documents, then stores and serves all.
    fn complete(&mut self, mut documents: Documents, now: u64) -> Option<StoreError> {
        self.fetch_missing(&mut documents, now);
        self.source.close_idle();
        let folder = &self.config.folder;
        let stored = disk::save(folder, &documents, std::mem::take(&mut self.stale));
        self.cache.set(documents);
        stored.err().map(|source| StoreError { folder: folder.clone(), source })
    }

    /// The authorities. Each fetch begins with another one, so that they share the load.
    fn authorities(&self) -> impl Iterator<Item = SocketAddr> + use<S> {
        let mut authorities = self.config.authorities.clone();
        if !authorities.is_empty() {
            let first = self.config.first % authorities.len();
            authorities.rotate_left(first);
        }
        authorities.into_iter()
    }

    /// All directories, for documents that prove themselves.
    fn directories(&mut self) -> impl Iterator<Item = SocketAddr> + use<S> {
        self.source.mirrors().into_iter().chain(self.authorities())
    }

    /// Requests a document of a few kilobytes.
    fn get_small(&mut self, from: SocketAddr, path: String) -> Result<Vec<u8>, FetchError> {
        self.source.get_since(from, &Resource::Path(path), &[], &SMALL_FETCHER)
    }

    /// Asks authorities for their own identities, unless these are configured or known.
    fn learn_identities(&mut self) {
        if !self.config.identities.is_empty() {
            return;
        }
        for authority in self.authorities() {
            if self.stated.contains_key(&authority) {
                continue;
            }
            let own = "/tor/keys/authority".to_owned();
            let Ok(text) = self.get_small(authority, own) else { continue };
            // The certificate itself is verified where it is used.
            let identity = netdoc::signed::certificates(&text).next().map(|cert| cert.fingerprint);
            self.stated.extend(identity.map(|identity| (authority, identity)));
        }
    }

    fn trusted(&self) -> BTreeSet<RsaId> {
        if self.config.identities.is_empty() {
            self.stated.values().copied().collect()
        } else {
            self.config.identities.clone()
        }
    }

    /// The number of signatures that a consensus needs: more than half.
    fn quorum(&self) -> usize {
        let FetcherConfig { authorities, identities, .. } = &self.config;
        let all = if identities.is_empty() { authorities.len() } else { identities.len() };
        all / 2 + 1
    }

    /// Fetches a consensus from the first directory that has a later one. Returns whether there was
    /// one.
    fn fetch_consensus(
        &mut self,
        documents: &mut Documents,
        flavour: Flavour,
        now: u64,
    ) -> Result<bool, FetchProblem> {
        let mut problem = None;
        let current = documents.consensus(flavour).cloned();
        // A single answer that there is no later consensus is not enough once the current one has
        // expired; that of a mirror is not enough once every directory should have a later one.
        let has_expired = current.as_ref().is_some_and(|current| now > current.content.valid_until);
        let is_overdue =
            current.as_ref().is_some_and(|current| schedule::is_overdue(&current.content, now));
        for directory in self.directories() {
            let is_authority = self.config.authorities.contains(&directory);
            let is_conclusive = !has_expired && (!is_overdue || is_authority);
            match self.fetch_later(documents, directory, flavour, now) {
                Ok(Some(consensus)) => {
                    documents.put_consensus(now, consensus);
                    self.stale.consensuses = true;
                    return Ok(true);
                }
                Ok(None) if is_conclusive => return Ok(false),
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or(Ok(false), Err)
    }

    /// Fetches and verifies a consensus. `None` if it is not later than the current one.
    fn fetch_later(
        &mut self,
        documents: &mut Documents,
        directory: SocketAddr,
        flavour: Flavour,
        now: u64,
    ) -> Result<Option<CachedConsensus>, FetchProblem> {
        let current = documents.consensus(flavour).cloned();
        let fetched = fetch_text(&mut self.source, directory, flavour, current.as_deref())?;
        let Some(FetchedText { text, is_patched }) = fetched else { return Ok(None) };
        let consensus = UnverifiedConsensus::parse(text, flavour)?
            .ok_or(FetchProblem::WrongFlavour { directory, flavour })?;
        self.verify(directory, documents, &consensus, now)?;
        if is_patched {
            self.cache.diffs().count_applied();
        }
        let before = current.map_or(0, |current| current.content.valid_after);
        Ok((consensus.content.valid_after > before).then(|| consensus.into_cached()))
    }

    /// Verifies that a consensus is live and that enough authorities have signed it.
    fn verify(
        &mut self,
        directory: SocketAddr,
        documents: &mut Documents,
        consensus: &UnverifiedConsensus,
        now: u64,
    ) -> Result<(), FetchProblem> {
        if !schedule::is_reasonably_live(&consensus.content, now) {
            return Err(FetchProblem::NotLive { directory });
        }
        let trusted = self.trusted();
        if verify::lacks_certificates(&consensus.text, &trusted, &documents.certificates, now)
            && let Ok(text) = self.get_small(directory, "/tor/keys/all".to_owned())
        {
            documents.put_certificates(now, &text, Wanted::These(&trusted));
            self.stale.certificates = true;
        }
        let signers =
            verify::signers(&consensus.text, &trusted, &documents.certificates, now).len();
        let quorum = self.quorum();
        if signers < quorum {
            return Err(FetchProblem::TooFewSigners { directory, signers, quorum });
        }
        Ok(())
    }

    /// Fetches documents that the consensuses list and that are missing. If one directory lacks some,
    /// the next is asked; what all lack is requested again in the next fetch.
    fn fetch_missing(&mut self, documents: &mut Documents, now: u64) {
        for directory in self.directories() {
            let (micro, descriptors) = (documents.missing_micro(), documents.missing_descriptors());
            if micro.is_empty() && descriptors.is_empty() {
                return;
            }
            let mut poor_answers = 0;
            in_batches(&micro, &mut poor_answers, |batch| {
                let names: Vec<_> =
                    batch.iter().map(|digest| STANDARD_NO_PAD.encode(digest)).collect();
                let path = format!("/tor/micro/d/{}", names.join("-"));
                let text = self.get_small(directory, path).ok()?;
                let wanted = batch.iter().copied().collect();
                let new = documents.put_micro(now, &text, Wanted::These(&wanted));
                self.stale.documents |= new > 0;
                Some(new)
            });
            in_batches(&descriptors, &mut poor_answers, |batch| {
                let names: Vec<_> = batch.iter().map(hex::encode_upper).collect();
                let path = format!("/tor/server/d/{}", names.join("+"));
                let text = self.get_small(directory, path).ok()?;
                let wanted = batch.iter().copied().collect();
                let new = documents.put_descriptors(now, &text, Wanted::These(&wanted));
                self.stale.documents |= new > 0;
                Some(new)
            });
        }
    }
}

/// Requests documents in batches until all were requested, a request fails, or too many answers were
/// poor. `ask` returns the number of new documents of a batch.
fn in_batches<T>(
    wanted: &[T],
    poor_answers: &mut usize,
    mut ask: impl FnMut(&[T]) -> Option<usize>,
) {
    for batch in wanted.chunks(BATCH) {
        if *poor_answers >= POOR_ANSWERS_MAX {
            return;
        }
        let Some(new) = ask(batch) else { return };
        *poor_answers += usize::from(new * 2 < batch.len());
    }
}

/// The text of a consensus, not verified.
struct FetchedText {
    text: Vec<u8>,
    /// Whether it was made from the current consensus and a diff.
    is_patched: bool,
}

/// Fetches a consensus, as a diff to the current one where the directory has that. If the diff does
/// not apply, it fetches the complete text. `None` if the directory has nothing later.
fn fetch_text(
    source: &mut impl Source,
    directory: SocketAddr,
    flavour: Flavour,
    current: Option<&CachedConsensus>,
) -> Result<Option<FetchedText>, FetchError> {
    let resource = match flavour {
        Flavour::Ns => Resource::Consensus,
        Flavour::Microdesc => Resource::ConsensusMicrodesc,
    };
    let complete = |text| Some(FetchedText { text, is_patched: false });
    let mut get = |have: &[_]| source.get_since(directory, &resource, have, &FETCHER);
    let Some(current) = current else { return get(&[]).map(complete) };
    let text = match get(&[current.digest]) {
        Err(FetchError { problem: Problem::Status { status: 304 }, .. }) => return Ok(None),
        other => other?,
    };
    if !consdiff::is_diff(&text) {
        return Ok(complete(text));
    }
    match consdiff::apply(&current.text, &text, CONSENSUS_MAX) {
        Ok(text) => Ok(Some(FetchedText { text, is_patched: true })),
        Err(_) => get(&[]).map(complete),
    }
}

#[cfg(test)]
mod tests;
