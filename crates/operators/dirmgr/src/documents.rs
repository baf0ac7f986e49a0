//! The documents of a directory: consensuses, microdescriptors, server descriptors and authority
//! certificates.
//!
//! [`Documents`] is a snapshot. The thread that follows the consensus makes the next one from it,
//! which is cheap, because the documents themselves are shared. The `put_*` methods verify digests
//! and certificates; signatures of consensuses are verified by the [`fetcher`](crate::fetcher).

mod all_descriptors;
pub(crate) mod disk;
mod past;
#[cfg(test)]
mod tests;

use crate::verify::{Certificate, Certificates};
pub use all_descriptors::AllDescriptors;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use netdoc::consdiff::{self, ConsensusDigest};
use netdoc::consensus::{Consensus, ConsensusError, Flavour};
use netdoc::{RsaId, descriptor, pieces, signed};
pub use past::{ConsensusDiff, PAST_MAX, PastConsensuses};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

/// A document that no consensus has listed for this time is dropped: tor's
/// `TOLERATE_MICRODESC_AGE`.
const UNLISTED_MAX_S: u64 = 7 * 24 * 3600;
/// Limit on documents of one kind: several times the size of the public network.
const DOCUMENTS_MAX: usize = 60_000;
/// Limit on certificates of authorities that are not trusted: the files on disk may hold some.
const CERTIFICATES_MAX: usize = 200;
/// Certificates kept for one authority, the latest first: the current one and its successor, with
/// room to spare.
const CERTIFICATES_OF_ONE_MAX: usize = 4;
/// The longest microdescriptor or server descriptor, in bytes: authorities accept no longer ones.
const DOCUMENT_MAX: usize = 20_000;
/// Some documents are compressed for a single request: this level has the best ratio for its time.
const LEVEL: Compression = Compression::new(5);

/// SHA-256 of a microdescriptor.
pub type MicroDigest = [u8; 32];
/// SHA-1 of the signed part of a server descriptor.
pub type DescriptorDigest = [u8; 20];

/// Compresses texts, one after another, for `Content-Encoding: deflate`: zlib's format (RFC 1950).
pub fn deflate<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let mut encoder = ZlibEncoder::new(Vec::new(), LEVEL);
    for text in texts {
        // Writing to memory does not fail.
        let _ = encoder.write_all(text);
    }
    encoder.finish().unwrap_or_default().into()
}

/// A parsed consensus. Its signatures may not have been verified.
#[derive(Debug)]
pub(crate) struct UnverifiedConsensus {
    pub(crate) text: Vec<u8>,
    pub(crate) content: Consensus,
}

impl UnverifiedConsensus {
    /// Parses a consensus. `Ok(None)` if it is of another flavour.
    pub(crate) fn parse(text: Vec<u8>, flavour: Flavour) -> Result<Option<Self>, ConsensusError> {
        let content = Consensus::parse(&text)?;
        Ok((content.flavour == flavour).then_some(Self { text, content }))
    }

    /// Prepares a consensus for serving, which includes compressing it. Call it only once the
    /// signatures are verified: compression takes most of a second for the public network.
    pub(crate) fn into_cached(self) -> CachedConsensus {
        let Self { text, content } = self;
        let (_, signatures) = signed::consensus_signatures(&text).unwrap_or_default();
        let signers = signatures.iter().map(|signature| signature.identity).collect();
        let digest = consdiff::digest_as_signed(&text).unwrap_or_default();
        let (deflated, content) = (deflate([&text[..]]), Arc::new(content));
        CachedConsensus { text: text.into(), deflated, digest, content, signers }
    }
}

/// A consensus as a directory serves it.
#[derive(Clone, Debug)]
pub struct CachedConsensus {
    /// The whole text.
    pub text: Bytes,
    /// The text, compressed by [`deflate`].
    pub deflated: Bytes,
    /// The digest by which others request diffs from this consensus.
    pub digest: ConsensusDigest,
    /// The parsed text.
    pub content: Arc<Consensus>,
    /// The identities of all authorities whose signatures are attached.
    pub signers: BTreeSet<RsaId>,
}

impl CachedConsensus {
    /// Parses a consensus whose signatures need no verification, such as one that was verified
    /// before it was stored. `None` if it is not a consensus of this flavour.
    #[must_use]
    pub fn parse(text: Vec<u8>, flavour: Flavour) -> Option<Self> {
        Some(UnverifiedConsensus::parse(text, flavour).ok()??.into_cached())
    }
}

/// A microdescriptor or a server descriptor.
#[derive(Clone, Debug)]
pub struct CachedDocument {
    /// The whole text.
    pub text: Bytes,
    /// When a consensus last listed it, in Unix seconds.
    last_listed: u64,
}

/// All documents that a directory has at one time.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// The current consensus of the ns flavour.
    pub ns: Option<Arc<CachedConsensus>>,
    /// The current consensus of the microdesc flavour.
    pub microdesc: Option<Arc<CachedConsensus>>,
    past_ns: PastConsensuses,
    past_microdesc: PastConsensuses,
    /// Microdescriptors.
    pub micro: BTreeMap<MicroDigest, CachedDocument>,
    /// Server descriptors.
    pub descriptors: BTreeMap<DescriptorDigest, CachedDocument>,
    /// The latest server descriptor of each relay.
    pub by_relay: BTreeMap<RsaId, DescriptorDigest>,
    /// The latest descriptors of all relays, ordered by fingerprint. [`Cache::set`] fills it in.
    ///
    /// [`Cache::set`]: crate::Cache::set
    pub all: Arc<AllDescriptors>,
    /// Verified certificates by identity and signing key.
    pub certificates: Certificates,
    /// The documents that this relay has published itself.
    pub own: OwnDocuments,
}

/// The documents of the relay that serves the directory, as last published.
#[derive(Clone, Debug, Default)]
pub struct OwnDocuments {
    /// The server descriptor; empty if there is none.
    pub descriptor: Bytes,
    /// The extra-info document; empty if there is none.
    pub extra_info: Bytes,
    /// The relay's fingerprint.
    pub fingerprint: Option<RsaId>,
    /// The digest of the server descriptor.
    pub descriptor_digest: DescriptorDigest,
    /// The digest of the extra-info document.
    pub extra_info_digest: DescriptorDigest,
}

impl Documents {
    /// The current consensus of a flavour.
    #[must_use]
    pub const fn consensus(&self, flavour: Flavour) -> Option<&Arc<CachedConsensus>> {
        match flavour {
            Flavour::Ns => self.ns.as_ref(),
            Flavour::Microdesc => self.microdesc.as_ref(),
        }
    }

    /// The latest server descriptor of a relay.
    #[must_use]
    pub fn latest(&self, relay: &RsaId) -> Option<&Bytes> {
        if self.own.fingerprint == Some(*relay) {
            return Some(&self.own.descriptor).filter(|text| !text.is_empty());
        }
        Some(&self.descriptors.get(self.by_relay.get(relay)?)?.text)
    }

    /// The consensuses before the current one.
    #[must_use]
    pub const fn past(&self, flavour: Flavour) -> &PastConsensuses {
        match flavour {
            Flavour::Ns => &self.past_ns,
            Flavour::Microdesc => &self.past_microdesc,
        }
    }

    /// Computes the diffs from past consensuses to the current ones that are still missing. Takes a
    /// second or more for the public network.
    pub fn make_diffs(&mut self) {
        let Self { ns, microdesc, past_ns, past_microdesc, .. } = self;
        for (current, past) in [(ns, past_ns), (microdesc, past_microdesc)] {
            if let Some(current) = current {
                past.make_diffs(current);
            }
        }
    }

    /// Makes a consensus the current one of its flavour.
    pub fn put_consensus(&mut self, now: u64, consensus: CachedConsensus) {
        for router in consensus.content.routers() {
            let micro = router.microdesc_digest.and_then(|digest| self.micro.get_mut(&digest));
            let server =
                router.descriptor_digest.and_then(|digest| self.descriptors.get_mut(&digest));
            for document in micro.into_iter().chain(server) {
                document.last_listed = now;
            }
        }
        let (current, past) = match consensus.content.flavour {
            Flavour::Ns => (&mut self.ns, &mut self.past_ns),
            Flavour::Microdesc => (&mut self.microdesc, &mut self.past_microdesc),
        };
        if let Some(before) = current.replace(Arc::new(consensus)) {
            past.push(&before);
        }
        let is_recent =
            |document: &CachedDocument| now.saturating_sub(document.last_listed) < UNLISTED_MAX_S;
        self.micro.retain(|_, document| is_recent(document));
        self.descriptors.retain(|_, document| is_recent(document));
        let Self { by_relay, descriptors, .. } = self;
        by_relay.retain(|_, digest| descriptors.contains_key(digest));
    }

    /// Microdescriptors that the consensus lists and that are not here.
    #[must_use]
    pub fn missing_micro(&self) -> Vec<MicroDigest> {
        let routers = self.microdesc.iter().flat_map(|consensus| consensus.content.routers());
        let digests = routers.filter_map(|router| router.microdesc_digest);
        digests.filter(|digest| !self.micro.contains_key(digest)).collect()
    }

    /// Server descriptors that the consensus lists and that are not here.
    #[must_use]
    pub fn missing_descriptors(&self) -> Vec<DescriptorDigest> {
        let routers = self.ns.iter().flat_map(|consensus| consensus.content.routers());
        let digests = routers.filter_map(|router| router.descriptor_digest);
        digests.filter(|digest| !self.descriptors.contains_key(digest)).collect()
    }

    /// Adds the microdescriptors of `text` whose digests are `wanted`. Returns the number of new
    /// ones.
    pub fn put_micro(&mut self, now: u64, text: &[u8], wanted: Wanted<'_, MicroDigest>) -> usize {
        let before = self.micro.len();
        for piece in pieces::microdescs(text) {
            let digest = Sha256::digest(piece.digested).into();
            if wanted.contains(&digest) && fits(&self.micro, piece.text) {
                let text = Bytes::copy_from_slice(piece.text);
                self.micro.entry(digest).or_insert(CachedDocument { text, last_listed: now });
            }
        }
        self.micro.len() - before
    }

    /// Adds the server descriptors of `text` whose digests are `wanted`. Returns the number of new
    /// ones.
    pub fn put_descriptors(
        &mut self,
        now: u64,
        text: &[u8],
        wanted: Wanted<'_, DescriptorDigest>,
    ) -> usize {
        let before = self.descriptors.len();
        for piece in pieces::server_descriptors(text) {
            let digest: DescriptorDigest = Sha1::digest(piece.digested).into();
            let read = descriptor::iter(piece.text).next().and_then(Result::ok);
            let Some(read) = read.filter(|_| wanted.contains(&digest)) else { continue };
            if !fits(&self.descriptors, piece.text) {
                continue;
            }
            let text = Bytes::copy_from_slice(piece.text);
            self.descriptors.entry(digest).or_insert(CachedDocument { text, last_listed: now });
            let published = |digest: &DescriptorDigest| {
                let text = self.descriptors.get(digest).map(|document| &document.text[..])?;
                descriptor::iter(text).next()?.ok().map(|read| read.published)
            };
            let latest = self.by_relay.get(&read.fingerprint).and_then(published);
            if latest.is_none_or(|latest| latest <= read.published) {
                self.by_relay.insert(read.fingerprint, digest);
            }
        }
        self.descriptors.len() - before
    }

    /// Adds the certificates of `text` that are valid, have not expired and are of `wanted`
    /// authorities.
    ///
    /// Anyone can make valid certificates for their own identities. Certificates of unknown
    /// authorities therefore never displace those of the authorities asked for.
    pub fn put_certificates(&mut self, now: u64, text: &[u8], wanted: Wanted<'_, RsaId>) {
        let verified = signed::certificates(text)
            .filter_map(|certificate| Certificate::verified(&certificate));
        for certificate in verified {
            let identity = certificate.identity;
            let is_known = matches!(wanted, Wanted::These(_));
            let has_room = is_known || self.certificates.len() < CERTIFICATES_MAX;
            if certificate.expires > now && wanted.contains(&identity) && has_room {
                self.certificates.insert((identity, certificate.signing_key), certificate);
                self.drop_older_certificates(identity);
            }
        }
        self.certificates.retain(|_, certificate| certificate.expires > now);
    }

    /// Keeps only the latest certificates of this authority.
    fn drop_older_certificates(&mut self, identity: RsaId) {
        let own = self.certificates.iter().filter(|((of, _), _)| *of == identity);
        let mut own: Vec<_> =
            own.map(|(name, certificate)| (certificate.published, *name)).collect();
        own.sort_unstable();
        let surplus = own.len().saturating_sub(CERTIFICATES_OF_ONE_MAX);
        for (_, name) in &own[..surplus] {
            self.certificates.remove(name);
        }
    }
}

/// Whether there is room for one more document, and its length is acceptable.
fn fits<K>(documents: &BTreeMap<K, CachedDocument>, text: &[u8]) -> bool {
    documents.len() < DOCUMENTS_MAX && text.len() <= DOCUMENT_MAX
}

/// Which documents of an answer to accept.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a, T> {
    /// All: they come from the relay's own disk.
    All,
    /// The requested documents.
    These(&'a BTreeSet<T>),
}

impl<T: Ord> Wanted<'_, T> {
    fn contains(self, digest: &T) -> bool {
        match self {
            Self::All => true,
            Self::These(wanted) => wanted.contains(digest),
        }
    }
}
