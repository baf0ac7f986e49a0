//! Following the consensus as a directory cache does (dir-spec.txt, section 4.5): consensuses of both
//! flavours, the certificates that their signatures need, microdescriptors and server descriptors.
//!
//! # What is verified
//! - **Consensuses**: RSA signatures of more than half of the configured authorities, over the whole
//!   text. Whose keys those are: the identities that the operator has set
//!   (`authority_identities`), or else those that each authority states itself, at
//!   `/tor/keys/authority`. The latter is no more than that no minority of the authorities can make a
//!   consensus; who controls the path to most of them can.
//!   A consensus that came as a difference to the one before is looked at in the same way, once it is put
//!   together.
//! - **Certificates**: that the identity key has the fingerprint, signed the certificate, and that it
//!   has not ended.
//! - **Microdescriptors and server descriptors**: that their digests are those in the consensus.
//!   Authorities have verified their signatures.

use crate::cache::diffs::CONSENSUS_MAX;
use crate::cache::disk::{self, Changed};
use crate::cache::{Cache, Documents, Listing, Wanted, times, verify};
use crate::source::{PlainHttp, Source};
use netdoc::Fingerprint;
use netdoc::consdiff;
use netdoc::consensus::Flavour;
use netdoc::fetch::{FetchError, Fetcher, Problem, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Patient enough for a consensus, and not more: there is always a next attempt.
const FETCHER: Fetcher = Fetcher {
    connect_timeout: Duration::from_secs(5),
    silence_timeout: Duration::from_secs(10),
    total_timeout: Duration::from_secs(60),
    max_bytes: 32 << 20,
};
/// For documents of a few kilobytes each.
const SMALL_FETCHER: Fetcher = Fetcher { max_bytes: 4 << 20, ..FETCHER };
/// Documents that are asked for at once: as tor does, so that a path has less than 4 KiB.
const BATCH: usize = 90;
/// Who has answered so often with less than half of what he was asked for is not asked for more in this look: each answer may take
/// as long as the limits permit.
const POOR_ANSWERS_MAX: usize = 3;

/// Follows the consensus for one relay, or one client.
pub(crate) struct Following<S = PlainHttp> {
    authorities: Vec<SocketAddr>,
    /// The identities that the operator has set; none means that the authorities are asked.
    pinned: BTreeSet<Fingerprint>,
    /// What the authorities say of themselves.
    stated: BTreeMap<SocketAddr, Fingerprint>,
    folder: PathBuf,
    cache: Cache,
    /// With whom to begin: another one each time, so that they share the load.
    first: usize,
    changed: Changed,
    /// Only what clients need: the microdesc flavour, and nothing to serve to others.
    is_for_client: bool,
    source: S,
}

/// What a look at the authorities has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A consensus that is later than the one before.
    New,
    /// Nothing later.
    Nothing,
    /// No authority gives a usable consensus, and why the last one that was asked doesn't.
    Problem(String),
}

impl Following {
    /// Begins with what is on disk. `first` is any number.
    pub(crate) fn new(
        authorities: Vec<SocketAddr>,
        pinned: BTreeSet<Fingerprint>,
        folder: PathBuf,
        cache: Cache,
        now: u64,
        first: usize,
    ) -> Self {
        let mut documents = disk::load(&folder, now);
        documents.own.clone_from(&cache.get().own);
        cache.set(documents);
        let stated = BTreeMap::new();
        let changed = Changed::default();
        let (is_for_client, source) = (false, PlainHttp);
        Self { authorities, pinned, stated, folder, cache, first, changed, is_for_client, source }
    }

    /// The same for a client, which serves nothing to others, and asks in its own way.
    pub(crate) fn for_client<S>(self, source: S) -> Following<S> {
        let Self { authorities, pinned, stated, folder, cache, first, changed, .. } = self;
        let is_for_client = true;
        Following {
            authorities,
            pinned,
            stated,
            folder,
            cache,
            first,
            changed,
            is_for_client,
            source,
        }
    }
}

impl<S: Source> Following<S> {
    pub(crate) const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Fetches the latest consensuses, and what belongs to them. The worst problem with storing them
    /// is given, too.
    pub(crate) fn fetch(&mut self, now: u64) -> (Found, Option<String>) {
        self.first = self.first.wrapping_add(1);
        self.learn_identities();
        let mut documents = Documents::clone(&self.cache.get());
        let ns = match self.is_for_client {
            true => Ok(false),
            false => self.fetch_listing(&mut documents, Flavour::Ns, now),
        };
        // As soon as it is there: what is missing may take long.
        self.cache.set(documents.clone());
        let microdesc = self.fetch_listing(&mut documents, Flavour::Microdesc, now);
        self.cache.set(documents.clone());
        if !self.is_for_client {
            documents.make_diffs();
            self.cache.set(documents.clone());
        }
        self.fetch_missing(&mut documents, now);
        self.source.rest();
        let unstored = self.keep(documents);
        let found = match (ns, microdesc) {
            (Err(problem), _) | (_, Err(problem)) => Found::Problem(problem),
            (Ok(true), _) | (_, Ok(true)) => Found::New,
            (Ok(false), Ok(false)) => Found::Nothing,
        };
        (found, unstored)
    }

    /// Fetches only what the consensuses name and is not here. A problem with storing it is given.
    pub(crate) fn fetch_documents(&mut self, now: u64) -> Option<String> {
        self.first = self.first.wrapping_add(1);
        let mut documents = Documents::clone(&self.cache.get());
        self.fetch_missing(&mut documents, now);
        self.source.rest();
        self.keep(documents)
    }

    /// Stores and serves these documents.
    fn keep(&mut self, documents: Documents) -> Option<String> {
        let changed = std::mem::take(&mut self.changed);
        let stored = disk::save(&self.folder, &documents, changed);
        self.cache.set(documents);
        stored.err().map(|error| {
            format!("machine: cannot write documents to `{}`: {error}", self.folder.display())
        })
    }

    /// The authorities, in this round's order.
    fn in_turn(&self) -> impl Iterator<Item = SocketAddr> + use<S> {
        let mut authorities = self.authorities.clone();
        if !authorities.is_empty() {
            let first = self.first % authorities.len();
            authorities.rotate_left(first);
        }
        authorities.into_iter()
    }

    /// Whom to ask for what anybody may give away: it proves itself.
    fn anybody(&mut self) -> impl Iterator<Item = SocketAddr> + use<S> {
        self.source.nearer().into_iter().chain(self.in_turn())
    }

    /// Asks for a document of a few kilobytes.
    fn get_small(&mut self, from: SocketAddr, path: String) -> Result<Vec<u8>, FetchError> {
        self.source.get_since(from, &Resource::Path(path), &[], &SMALL_FETCHER)
    }

    /// Asks those authorities for their certificates that have not told yet.
    fn learn_identities(&mut self) {
        if !self.pinned.is_empty() {
            return;
        }
        for authority in self.in_turn() {
            if self.stated.contains_key(&authority) {
                continue;
            }
            let own = "/tor/keys/authority".to_owned();
            let Ok(text) = self.get_small(authority, own) else { continue };
            // Its certification is verified where it is used.
            let identity = netdoc::signed::certificates(&text).next().map(|cert| cert.fingerprint);
            self.stated.extend(identity.map(|identity| (authority, identity)));
        }
    }

    fn trusted(&self) -> BTreeSet<Fingerprint> {
        if self.pinned.is_empty() {
            self.stated.values().copied().collect()
        } else {
            self.pinned.clone()
        }
    }

    /// Signatures that a consensus needs: more than half.
    fn quorum(&self) -> usize {
        let all = if self.pinned.is_empty() { self.authorities.len() } else { self.pinned.len() };
        all / 2 + 1
    }

    /// Fetches a consensus from the first authority that has a later one. Whether there was one; an
    /// error if there was none that is of any use.
    fn fetch_listing(
        &mut self,
        documents: &mut Documents,
        flavour: Flavour,
        now: u64,
    ) -> Result<bool, String> {
        let resource = match flavour {
            Flavour::Ns => Resource::Consensus,
            Flavour::Microdesc => Resource::ConsensusMicrodesc,
        };
        let mut problem = None;
        let present = documents.listing(flavour).cloned();
        // Once it has ended, there should be a later one: then nobody's word alone is believed that there is none. A directory that is
        // no authority is not believed that any longer than until each should have it.
        let has_ended = present.as_ref().is_some_and(|it| now > it.content.valid_until);
        let is_overdue = present.as_ref().is_some_and(|it| times::is_overdue(&it.content, now));
        for authority in self.anybody() {
            let is_enough = !has_ended && (!is_overdue || self.authorities.contains(&authority));
            let fetched = fetch_text(&mut self.source, authority, &resource, present.as_deref());
            let listing = match fetched {
                Ok(Fetched::Nothing) if !is_enough => continue,
                Ok(Fetched::Nothing) => return Ok(false),
                Ok(Fetched::Text { text, is_by_diff }) => Listing::read(text, flavour)
                    .and_then(|listing| self.verified(authority, documents, listing, now))
                    .inspect(|_| {
                        if is_by_diff {
                            self.cache.diffs().count_applied();
                        }
                    }),
                Err(error) => Err(error.to_string()),
            };
            match listing {
                Ok(listing) => {
                    let before = documents.listing(flavour);
                    let before = before.map_or(0, |before| before.content.valid_after);
                    // No other authority has a later one, or soon all have.
                    let is_later = listing.content.valid_after > before;
                    if is_later {
                        documents.put_listing(now, listing);
                        self.changed.listings = true;
                    } else if !is_enough {
                        continue;
                    }
                    return Ok(is_later);
                }
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or(Ok(false), Err)
    }

    /// The consensus, if it holds now and enough authorities have signed it.
    fn verified(
        &mut self,
        authority: SocketAddr,
        documents: &mut Documents,
        mut listing: Listing,
        now: u64,
    ) -> Result<Listing, String> {
        if !times::is_reasonably_live(&listing.content, now) {
            return Err(format!(
                "the consensus of {authority} is of another time; is a clock wrong?"
            ));
        }
        let trusted = self.trusted();
        if verify::lacks_certificates(&listing.text, &trusted, &documents.certificates)
            && let Ok(text) = self.get_small(authority, "/tor/keys/all".to_owned())
        {
            documents.put_certificates(now, &text, Wanted::These(&trusted));
            self.changed.certificates = true;
        }
        let signers = verify::signers(&listing.text, &trusted, &documents.certificates);
        let quorum = self.quorum();
        if signers.len() < quorum {
            return Err(format!(
                "the consensus of {authority} is signed by {} of the authorities that are known \
                 here; {quorum} are needed",
                signers.len()
            ));
        }
        listing.signers.extend(signers);
        Ok(listing)
    }

    /// Fetches the documents that the consensuses name and that are not here. One authority may lack
    /// what another has; what none has is asked for again next time.
    fn fetch_missing(&mut self, documents: &mut Documents, now: u64) {
        for authority in self.anybody() {
            let (micro, descriptors) = (documents.missing_micro(), documents.missing_descriptors());
            if micro.is_empty() && descriptors.is_empty() {
                return;
            }
            let mut poor_answers = 0;
            in_batches(&micro, &mut poor_answers, |batch| {
                let names = batch.iter().map(|digest| netdoc_base64(digest)).collect::<Vec<_>>();
                let path = format!("/tor/micro/d/{}", names.join("-"));
                let text = self.get_small(authority, path).ok()?;
                let wanted = batch.iter().copied().collect();
                let new = documents.put_micro(now, &text, Wanted::These(&wanted));
                self.changed.documents |= new > 0;
                Some(new)
            });
            in_batches(&descriptors, &mut poor_answers, |batch| {
                let names = batch.iter().map(hex::encode_upper).collect::<Vec<_>>();
                let path = format!("/tor/server/d/{}", names.join("+"));
                let text = self.get_small(authority, path).ok()?;
                let wanted = batch.iter().copied().collect();
                let new = documents.put_descriptors(now, &text, Wanted::These(&wanted));
                self.changed.documents |= new > 0;
                Some(new)
            });
        }
    }
}

/// Asks somebody for documents, some at a time, until all have been asked for, one answer is none, or too many were poor. `ask` says how many of a batch have come.
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

/// What an authority has given.
enum Fetched {
    /// Nothing later than what is here.
    Nothing,
    /// A consensus; whether it was made of the present one and a difference.
    Text { text: Vec<u8>, is_by_diff: bool },
}

/// Fetches a consensus, as a difference to the present one where the authority has that. A difference that
/// does not fit is no reason to do without: then it is asked for a whole one.
fn fetch_text(
    source: &mut impl Source,
    authority: SocketAddr,
    resource: &Resource,
    present: Option<&Listing>,
) -> Result<Fetched, FetchError> {
    let whole = |text| Fetched::Text { text, is_by_diff: false };
    let mut get = |have: &[_]| source.get_since(authority, resource, have, &FETCHER);
    let Some(present) = present else { return get(&[]).map(whole) };
    let text = match get(&[present.digest]) {
        Err(FetchError { problem: Problem::Status { status: 304 }, .. }) => {
            return Ok(Fetched::Nothing);
        }
        other => other?,
    };
    if !consdiff::is_diff(&text) {
        return Ok(whole(text));
    }
    match consdiff::apply(&present.text, &text, CONSENSUS_MAX) {
        Ok(text) => Ok(Fetched::Text { text, is_by_diff: true }),
        Err(_) => get(&[]).map(whole),
    }
}

/// Base64 as in `/tor/micro/d/`: without padding.
fn netdoc_base64(digest: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest)
}

#[cfg(test)]
mod tests;
