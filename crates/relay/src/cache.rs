//! The documents that the relay serves as a directory: consensuses, microdescriptors, server
//! descriptors and authority certificates.
//!
//! [`Documents`] is a snapshot; the thread that follows the consensus makes a new one from the old
//! one, which is cheap, since documents themselves are shared. What was verified is said where they
//! are fetched, in [`following`](crate::following).

mod all;
pub(crate) mod diffs;
pub(crate) mod disk;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod times;
pub(crate) mod verify;

pub(crate) use all::AllDescriptors;
use bytes::Bytes;
use diffs::{DiffCounts, Earlier};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use netdoc::consdiff::{self, ConsensusDigest};
use netdoc::consensus::{Consensus, Flavour};
use netdoc::{Fingerprint, descriptor, pieces, signed};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, PoisonError, RwLock};

/// A microdescriptor that no consensus has named for so long is dropped: tor's
/// `TOLERATE_MICRODESC_AGE`.
const UNLISTED_MAX_S: u64 = 7 * 24 * 3600;
/// Documents of a kind that are kept, at most: several times the public network.
const DOCUMENTS_MAX: usize = 60_000;
/// Certificates that are kept, at most, of authorities that nobody here knows: what was kept on disk may be of such.
const CERTIFICATES_MAX: usize = 200;
/// Certificates of one authority that are kept: those that were published last. One is for the present, one for its successor.
const CERTIFICATES_OF_ONE_MAX: usize = 4;
/// The longest microdescriptor or server descriptor: authorities take none that is longer.
const DOCUMENT_MAX: usize = 20_000;
/// The best compression in proportion to its time, since some of it is done for single requests.
const LEVEL: Compression = Compression::new(5);

/// SHA-256 of a microdescriptor.
pub(crate) type MicroDigest = [u8; 32];
/// SHA-1 of what is signed of a server descriptor.
pub(crate) type DescriptorDigest = [u8; 20];

/// Compresses as `Content-Encoding: deflate` means it, which is zlib's format (RFC 1950).
pub(crate) fn deflate(text: &[u8]) -> Bytes {
    deflate_all([text])
}

/// Compresses several texts as one.
pub(crate) fn deflate_all<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let mut encoder = ZlibEncoder::new(Vec::new(), LEVEL);
    for text in texts {
        // Writing into memory does not fail.
        let _ = encoder.write_all(text);
    }
    encoder.finish().unwrap_or_default().into()
}

/// A consensus as it is served.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) text: Bytes,
    /// The same, compressed once for all.
    pub(crate) deflated: Bytes,
    /// By what those who have it ask for differences to it.
    pub(crate) digest: ConsensusDigest,
    /// What was read of it.
    pub(crate) content: Arc<Consensus>,
    /// The authorities that signed it, by their identities.
    pub(crate) signers: BTreeSet<Fingerprint>,
}

impl Listing {
    /// Reads a consensus of this flavour. What is wrong with it otherwise, for people.
    pub(crate) fn read(text: Vec<u8>, flavour: Flavour) -> Result<Self, String> {
        let content = Consensus::parse(&text).map_err(|error| error.to_string())?;
        if content.flavour != flavour {
            return Err(format!("not a consensus of the flavour {flavour:?}"));
        }
        let (_, signatures) = signed::consensus_signatures(&text).unwrap_or_default();
        let signers = signatures.iter().map(|signature| signature.identity).collect();
        let digest = consdiff::digest_as_signed(&text).unwrap_or_default();
        let (deflated, content) = (deflate(&text), Arc::new(content));
        Ok(Self { text: text.into(), deflated, digest, content, signers })
    }
}

/// A document and when a consensus last named it, in Unix seconds.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) text: Bytes,
    last_listed: u64,
}

/// An authority's certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) text: Bytes,
    pub(crate) identity: Fingerprint,
    pub(crate) signing_key: Fingerprint,
    /// The signing key, in DER.
    pub(crate) signing_key_der: Vec<u8>,
    pub(crate) published: u64,
    pub(crate) expires: u64,
}

/// All that the directory has at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents {
    pub(crate) ns: Option<Arc<Listing>>,
    pub(crate) microdesc: Option<Arc<Listing>>,
    /// Those before them.
    pub(crate) earlier_ns: Earlier,
    pub(crate) earlier_microdesc: Earlier,
    pub(crate) micro: BTreeMap<MicroDigest, Kept>,
    pub(crate) descriptors: BTreeMap<DescriptorDigest, Kept>,
    /// The latest descriptor of each relay.
    pub(crate) by_relay: BTreeMap<Fingerprint, DescriptorDigest>,
    /// Those of all relays, in the order of their fingerprints; [`Cache::set`] makes it.
    pub(crate) all: Arc<AllDescriptors>,
    /// By identity and signing key.
    pub(crate) certificates: BTreeMap<(Fingerprint, Fingerprint), Certificate>,
    pub(crate) own: Own,
}

/// Our own documents, as they were published last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    pub(crate) descriptor: Bytes,
    pub(crate) extra_info: Bytes,
    /// By what others may ask for them.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) descriptor_digest: DescriptorDigest,
    pub(crate) extra_info_digest: DescriptorDigest,
}

impl Documents {
    pub(crate) fn listing(&self, flavour: Flavour) -> Option<&Arc<Listing>> {
        match flavour {
            Flavour::Ns => self.ns.as_ref(),
            Flavour::Microdesc => self.microdesc.as_ref(),
        }
    }

    /// The latest descriptor of a relay.
    pub(crate) fn latest(&self, relay: &Fingerprint) -> Option<&Bytes> {
        if self.own.fingerprint == Some(*relay) {
            return Some(&self.own.descriptor).filter(|text| !text.is_empty());
        }
        Some(&self.descriptors.get(self.by_relay.get(relay)?)?.text)
    }

    /// The consensuses before the present one.
    pub(crate) const fn earlier(&self, flavour: Flavour) -> &Earlier {
        match flavour {
            Flavour::Ns => &self.earlier_ns,
            Flavour::Microdesc => &self.earlier_microdesc,
        }
    }

    /// Makes the differences from earlier consensuses to the present ones, as far as that is not done. Takes a
    /// second or more.
    pub(crate) fn make_diffs(&mut self) {
        let Self { ns, microdesc, earlier_ns, earlier_microdesc, .. } = self;
        for (present, earlier) in [(ns, earlier_ns), (microdesc, earlier_microdesc)] {
            if let Some(present) = present {
                earlier.make(present);
            }
        }
    }

    /// Takes a consensus for the present one of its flavour.
    pub(crate) fn put_listing(&mut self, now: u64, listing: Listing) {
        for router in listing.content.routers() {
            let micro = router.microdesc_digest.and_then(|digest| self.micro.get_mut(&digest));
            let server =
                router.descriptor_digest.and_then(|digest| self.descriptors.get_mut(&digest));
            for kept in micro.into_iter().chain(server) {
                kept.last_listed = now;
            }
        }
        let (present, earlier) = match listing.content.flavour {
            Flavour::Ns => (&mut self.ns, &mut self.earlier_ns),
            Flavour::Microdesc => (&mut self.microdesc, &mut self.earlier_microdesc),
        };
        if let Some(before) = present.replace(Arc::new(listing)) {
            earlier.push(&before);
        }
        let is_young = |kept: &Kept| now.saturating_sub(kept.last_listed) < UNLISTED_MAX_S;
        self.micro.retain(|_, kept| is_young(kept));
        self.descriptors.retain(|_, kept| is_young(kept));
        let Self { by_relay, descriptors, .. } = self;
        by_relay.retain(|_, digest| descriptors.contains_key(digest));
    }

    /// Microdescriptors that the consensus names and that are not here.
    pub(crate) fn missing_micro(&self) -> Vec<MicroDigest> {
        let routers = self.microdesc.iter().flat_map(|listing| listing.content.routers());
        let digests = routers.filter_map(|router| router.microdesc_digest);
        digests.filter(|digest| !self.micro.contains_key(digest)).collect()
    }

    /// Server descriptors that the consensus names and that are not here.
    pub(crate) fn missing_descriptors(&self) -> Vec<DescriptorDigest> {
        let routers = self.ns.iter().flat_map(|listing| listing.content.routers());
        let digests = routers.filter_map(|router| router.descriptor_digest);
        digests.filter(|digest| !self.descriptors.contains_key(digest)).collect()
    }

    /// Takes in microdescriptors that `wanted` names by their digests; others are left out. How many
    /// were new.
    pub(crate) fn put_micro(
        &mut self,
        now: u64,
        text: &[u8],
        wanted: Wanted<'_, MicroDigest>,
    ) -> usize {
        let before = self.micro.len();
        for piece in pieces::microdescs(text) {
            let digest = Sha256::digest(piece.digested).into();
            if wanted.names(&digest) && fits(&self.micro, piece.text) {
                let text = Bytes::copy_from_slice(piece.text);
                self.micro.entry(digest).or_insert(Kept { text, last_listed: now });
            }
        }
        self.micro.len() - before
    }

    /// The same for server descriptors.
    pub(crate) fn put_descriptors(
        &mut self,
        now: u64,
        text: &[u8],
        wanted: Wanted<'_, DescriptorDigest>,
    ) -> usize {
        let before = self.descriptors.len();
        for piece in pieces::server_descriptors(text) {
            let digest: DescriptorDigest = Sha1::digest(piece.digested).into();
            let read = descriptor::iter(piece.text).next().and_then(Result::ok);
            let Some(read) = read.filter(|_| wanted.names(&digest)) else { continue };
            if !fits(&self.descriptors, piece.text) {
                continue;
            }
            let text = Bytes::copy_from_slice(piece.text);
            self.descriptors.entry(digest).or_insert(Kept { text, last_listed: now });
            let published = |digest: &DescriptorDigest| {
                let text = self.descriptors.get(digest).map(|kept| &kept.text[..])?;
                descriptor::iter(text).next()?.ok().map(|read| read.published)
            };
            let latest = self.by_relay.get(&read.fingerprint).and_then(published);
            if latest.is_none_or(|latest| latest <= read.published) {
                self.by_relay.insert(read.fingerprint, digest);
            }
        }
        self.descriptors.len() - before
    }

    /// Takes in those certificates whose certification holds and that have not ended, of these authorities. Anybody can make
    /// certificates for identities of his own: whoever hands on such ones takes no room from those that are asked for.
    pub(crate) fn put_certificates(
        &mut self,
        now: u64,
        text: &[u8],
        wanted: Wanted<'_, Fingerprint>,
    ) {
        for certificate in signed::certificates(text).filter_map(|cert| verify::certificate(&cert))
        {
            let identity = certificate.identity;
            let is_known = matches!(wanted, Wanted::These(_));
            let has_room = is_known || self.certificates.len() < CERTIFICATES_MAX;
            if certificate.expires > now && wanted.names(&identity) && has_room {
                self.certificates.insert((identity, certificate.signing_key), certificate);
                self.forget_older_certificates(identity);
            }
        }
        self.certificates.retain(|_, certificate| certificate.expires > now);
    }

    /// Keeps the latest certificates of this authority.
    fn forget_older_certificates(&mut self, identity: Fingerprint) {
        let of_it = self.certificates.iter().filter(|((of, _), _)| *of == identity);
        let mut of_it: Vec<_> = of_it.map(|(name, it)| (it.published, *name)).collect();
        of_it.sort_unstable();
        let surplus = of_it.len().saturating_sub(CERTIFICATES_OF_ONE_MAX);
        for (_, name) in &of_it[..surplus] {
            self.certificates.remove(name);
        }
    }
}

/// Whether there is room for one more document, and it is of a sane size.
fn fits<K>(kept: &BTreeMap<K, Kept>, text: &[u8]) -> bool {
    kept.len() < DOCUMENTS_MAX && text.len() <= DOCUMENT_MAX
}

/// Which documents are to be taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a, T> {
    /// All: they come from our own disk.
    All,
    /// These, which were asked for.
    These(&'a BTreeSet<T>),
}

impl<T: Ord> Wanted<'_, T> {
    fn names(self, digest: &T) -> bool {
        match self {
            Self::All => true,
            Self::These(wanted) => wanted.contains(digest),
        }
    }
}

/// The present documents: one thread writes, another reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache(Arc<RwLock<Arc<Documents>>>, Arc<DiffCounts>);

impl Cache {
    /// What there is now.
    pub(crate) fn get(&self) -> Arc<Documents> {
        // Nobody panics while holding it.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often differences were of use.
    pub(crate) fn diffs(&self) -> &DiffCounts {
        &self.1
    }

    /// Replaces everything. What was compressed of the descriptors of all relays is kept as long as they are the same.
    pub(crate) fn set(&self, mut documents: Documents) {
        let all = AllDescriptors::of(&documents);
        let before = Arc::clone(&self.get().all);
        documents.all = if before.has_same_texts(&all) { before } else { Arc::new(all) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(documents);
    }
}
