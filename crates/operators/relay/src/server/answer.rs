//! Answers GET requests for directory documents (dir-spec.txt, sections 4 and 5), without sockets or a clock.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use dirmgr::documents::{AllDescriptors, CachedDocument};
use dirmgr::{Documents, schedule};
use netdoc::RsaId;
use netdoc::consdiff::ConsensusDigest;
use netdoc::consensus::Flavour;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of documents in one request. Tor requests fewer than a hundred.
const NAMES_MAX: usize = 500;
/// Maximum number of consensuses in `X-Or-Diff-From-Consensus`.
const CONSENSUSES_MAX: usize = 32;
/// How long clients may cache certificates, in seconds.
const CERTIFICATES_S: u64 = 3600;
/// How long clients may cache microdescriptors and descriptors by digest, which never change.
const BY_DIGEST_S: u64 = 48 * 3600;
/// The lifetime of an answer with the descriptors of all relays: tor's `FULL_DIR_CACHE_LIFETIME`.
const ALL_S: u64 = 3600;

/// The relevant parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The path, with or without `.z` at the end.
    pub(crate) path: &'a str,
    /// `Accept-Encoding`, or empty.
    pub(crate) accept_encoding: &'a str,
    /// `If-Modified-Since`, in Unix seconds.
    pub(crate) if_modified_since: Option<u64>,
    /// `X-Or-Diff-From-Consensus`, or empty.
    pub(crate) diff_from: &'a str,
}

/// The content of an answer: concatenated texts of the cache, without copies.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Texts(Vec<Bytes>),
    All(Arc<AllDescriptors>),
}

impl Body {
    pub(crate) fn texts(&self) -> &[Bytes] {
        match self {
            Self::Texts(texts) => texts,
            Self::All(all) => all.texts(),
        }
    }

    /// Bytes of all texts.
    pub(crate) fn len(&self) -> usize {
        self.texts().iter().map(Bytes::len).sum()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The reason phrase.
    pub(crate) reason: &'static str,
    pub(crate) body: Body,
    /// Whether the body is compressed.
    pub(crate) is_deflated: bool,
    /// Whether the client accepts compression.
    pub(crate) wants_deflated: bool,
    /// How long clients may cache it.
    pub(crate) lifetime_s: u64,
    /// Whether it depends on `X-Or-Diff-From-Consensus`, as tor states of consensuses (`Vary`).
    pub(crate) is_consensus: bool,
    /// Whether it is a diff from a consensus of the client.
    pub(crate) is_diff: bool,
}

impl Answer {
    pub(crate) const fn short(status: u16, reason: &'static str) -> Self {
        Self {
            status,
            reason,
            body: Body::Texts(Vec::new()),
            is_deflated: false,
            wants_deflated: false,
            lifetime_s: 0,
            is_consensus: false,
            is_diff: false,
        }
    }

    const NOT_FOUND: Self = Self::short(404, "Not found");
    const NOT_MODIFIED: Self = Self::short(304, "Not modified");

    fn found(body: Body, lifetime_s: u64) -> Self {
        let answer = Self::short(200, "OK");
        Self { body, lifetime_s, ..answer }
    }

    /// This answer with a compressed body.
    pub(crate) fn deflated(self, body: Bytes) -> Self {
        Self { body: Body::Texts(vec![body]), is_deflated: true, ..self }
    }
}

/// Answers from these documents, at this time in Unix seconds.
pub(crate) fn answer(documents: &Documents, request: Request<'_>, now: u64) -> Answer {
    let (path, has_z) = match request.path.strip_suffix(".z") {
        Some(path) => (path, true),
        None => (request.path, false),
    };
    let accepts = |name: &str| {
        let mut all = request.accept_encoding.split(',').map(|one| one.split(';').next());
        all.any(|one| one.is_some_and(|one| one.trim() == name))
    };
    let wants_deflated = has_z || accepts("deflate");
    let Request { if_modified_since: since, diff_from, .. } = request;
    let directory = Directory { documents, now, wants_deflated, since, diff_from };
    if let Some(rest) = path.strip_prefix("/tor/status-vote/current/consensus") {
        return directory.consensus(rest);
    }
    if let Some(names) = path.strip_prefix("/tor/micro/d/") {
        return directory.micro(names);
    }
    if let Some(rest) = path.strip_prefix("/tor/keys/") {
        return directory.keys(rest);
    }
    if let Some(rest) = path.strip_prefix("/tor/server/") {
        return directory.server(rest);
    }
    if let Some(rest) = path.strip_prefix("/tor/extra/") {
        return directory.extra(rest);
    }
    if path == "/tor/robots.txt" {
        let text = Bytes::from_static(b"User-agent: *\r\nDisallow: /\r\n");
        return Answer::found(Body::Texts(vec![text]), 86_400);
    }
    Answer::NOT_FOUND
}

struct Directory<'a> {
    documents: &'a Documents,
    now: u64,
    wants_deflated: bool,
    since: Option<u64>,
    diff_from: &'a str,
}

impl Directory<'_> {
    /// Answers a request for a consensus. `rest` follows the word `consensus`: a flavour, and the authorities whose signatures are
    /// wanted. A client that lists its consensuses gets a diff from one of them, or else the full consensus. If it accepts only a diff
    /// (`/diff/`) and there is none, the answer is 404.
    fn consensus(&self, rest: &str) -> Answer {
        let (flavour, mut wanted) = match rest.split_once('/') {
            Some((flavour, wanted)) => (flavour, Some(wanted)),
            None => (rest, None),
        };
        let flavour = match flavour {
            "" | "-ns" => Flavour::Ns,
            "-microdesc" => Flavour::Microdesc,
            _ => return Answer::NOT_FOUND,
        };
        let mut have = digests_of_consensuses(self.diff_from);
        let diff_only = wanted.and_then(|wanted| wanted.strip_prefix("diff/"));
        if let Some(rest) = diff_only {
            let (digest, authorities) = match rest.split_once('/') {
                Some((digest, authorities)) => (digest, Some(authorities)),
                None => (rest, None),
            };
            have = digests_of_consensuses(digest);
            wanted = authorities;
        }
        let Some(listing) = self.documents.consensus(flavour) else { return Answer::NOT_FOUND };
        if !schedule::is_reasonably_live(&listing.content, self.now) {
            return Answer::short(404, "Consensus is too old");
        }
        if let Some(wanted) = wanted {
            // As in tor, these are prefixes of identities.
            let wanted: Vec<_> =
                wanted.split('+').filter(|one| !one.is_empty()).map(str::to_uppercase).collect();
            let has_signed = |one: &&String| {
                listing.signers.iter().any(|signer| signer.to_string().starts_with(one.as_str()))
            };
            if wanted.len() > NAMES_MAX
                || wanted.iter().filter(has_signed).count() < wanted.len() / 2 + 1
            {
                let reason = "Consensus not signed by sufficient number of requested authorities";
                return Answer::short(404, reason);
            }
        }
        if self.since.is_some_and(|since| listing.content.valid_after <= since) {
            return Answer::NOT_MODIFIED;
        }
        if have.contains(&listing.digest) {
            return Answer::NOT_MODIFIED;
        }
        let difference = self.documents.past(flavour).find(&have);
        let (text, deflated) = match difference {
            Some(difference) => (&difference.text, &difference.deflated),
            None if diff_only.is_some() => return Answer::short(404, "No such diff available"),
            None => (&listing.text, &listing.deflated),
        };
        let lifetime_s = listing.content.fresh_until.saturating_sub(self.now);
        let found = Answer::found(Body::Texts(vec![text.clone()]), lifetime_s);
        let found = Answer { is_consensus: true, is_diff: difference.is_some(), ..found };
        if self.wants_deflated { found.deflated(deflated.clone()) } else { found }
    }

    /// Concatenated documents.
    fn texts(&self, texts: Vec<Bytes>, lifetime_s: u64) -> Answer {
        self.body(Body::Texts(texts), lifetime_s)
    }

    fn body(&self, body: Body, lifetime_s: u64) -> Answer {
        if body.texts().is_empty() {
            return Answer::NOT_FOUND;
        }
        let found = Answer::found(body, lifetime_s);
        Answer { wants_deflated: self.wants_deflated, ..found }
    }

    fn micro(&self, names: &str) -> Answer {
        let digest =
            |name: &str| STANDARD_NO_PAD.decode(name.trim_end_matches('=')).ok()?.try_into().ok();
        self.by_digest(&self.documents.micro, names.split('-').map(digest), &[])
    }

    fn by_digest<K: Ord>(
        &self,
        kept: &BTreeMap<K, CachedDocument>,
        names: impl Iterator<Item = Option<K>>,
        own: &[(K, &Bytes)],
    ) -> Answer {
        let names: BTreeSet<K> = names.take(NAMES_MAX).flatten().collect();
        let find = |name: &K| {
            let own = own.iter().find(|(digest, text)| digest == name && !text.is_empty());
            own.map(|(_, text)| *text).or_else(|| kept.get(name).map(|kept| &kept.text)).cloned()
        };
        self.texts(names.iter().filter_map(find).collect(), BY_DIGEST_S)
    }

    fn keys(&self, rest: &str) -> Answer {
        let all = || self.documents.certificates.values();
        let chosen: Vec<_> = if rest == "all" {
            all().collect()
        } else if let Some(names) = rest.strip_prefix("fp/") {
            let latest = fingerprints(names).into_iter().filter_map(|identity| {
                all().filter(|cert| cert.identity == identity).max_by_key(|cert| cert.published)
            });
            latest.collect()
        } else if let Some(names) = rest.strip_prefix("sk/") {
            let keys = fingerprints(names);
            all().filter(|cert| keys.contains(&cert.signing_key)).collect()
        } else if let Some(pairs) = rest.strip_prefix("fp-sk/") {
            let pair = |pair: &str| {
                let (identity, key) = pair.split_once('-')?;
                Some((fingerprint(identity)?, fingerprint(key)?))
            };
            let pairs: BTreeSet<_> = pairs.split('+').take(NAMES_MAX).filter_map(pair).collect();
            pairs.iter().filter_map(|pair| self.documents.certificates.get(pair)).collect()
        } else {
            return Answer::short(400, "Bad request");
        };
        let is_new = |published: u64| self.since.is_none_or(|since| published >= since);
        let texts: Vec<_> = chosen
            .iter()
            .filter(|cert| is_new(cert.published))
            .map(|cert| cert.text.clone())
            .collect();
        if texts.is_empty() && !chosen.is_empty() {
            return Answer::NOT_MODIFIED;
        }
        self.texts(texts, CERTIFICATES_S)
    }

    fn server(&self, rest: &str) -> Answer {
        let Documents { descriptors, own, .. } = self.documents;
        if rest == "authority" {
            return self.own(&own.descriptor);
        }
        if let Some(names) = rest.strip_prefix("d/") {
            let own = [(own.descriptor_digest, &own.descriptor)];
            return self.by_digest(descriptors, digests(names), &own);
        }
        if rest == "all" {
            return self.body(Body::All(Arc::clone(&self.documents.all)), ALL_S);
        }
        let Some(names) = rest.strip_prefix("fp/") else { return Answer::NOT_FOUND };
        let latest = |relay: &RsaId| self.documents.latest(relay).cloned();
        self.texts(fingerprints(names).iter().filter_map(latest).collect(), 0)
    }

    /// The directory has only the relay's own extra-info document.
    fn extra(&self, rest: &str) -> Answer {
        let own = &self.documents.own;
        let is_asked_for = match rest.split_once('/') {
            None => rest == "authority",
            Some(("fp", names)) => {
                own.fingerprint.is_some_and(|own| fingerprints(names).contains(&own))
            }
            Some(("d", names)) => {
                digests(names).flatten().any(|name| name == own.extra_info_digest)
            }
            Some(_) => false,
        };
        if is_asked_for { self.own(&own.extra_info) } else { Answer::NOT_FOUND }
    }

    fn own(&self, text: &Bytes) -> Answer {
        self.texts(Some(text.clone()).into_iter().filter(|text| !text.is_empty()).collect(), 0)
    }
}

/// Parses digests of consensuses, and skips invalid ones.
fn digests_of_consensuses(text: &str) -> Vec<ConsensusDigest> {
    let digest = |word| {
        let mut digest = [0; 32];
        hex::decode_to_slice(word, &mut digest).ok().map(|()| digest)
    };
    text.split_whitespace().take(CONSENSUSES_MAX).filter_map(digest).collect()
}

fn fingerprint(text: &str) -> Option<RsaId> {
    RsaId::parse(text.as_bytes()).ok()
}

fn fingerprints(names: &str) -> BTreeSet<RsaId> {
    names.split('+').take(NAMES_MAX).filter_map(fingerprint).collect()
}

fn digests(names: &str) -> impl Iterator<Item = Option<[u8; 20]>> {
    names.split('+').map(|name| {
        let mut digest = [0; 20];
        hex::decode_to_slice(name, &mut digest).ok()?;
        Some(digest)
    })
}

#[cfg(test)]
mod tests;
