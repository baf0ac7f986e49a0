//! Server descriptors: dir-spec.txt, section 2.1.1.
//!
//! [`iter`] walks a file or an authority's answer of many concatenated descriptors, with or without
//! `@type` annotations, and borrows their texts. A bad descriptor does not affect the others: it is
//! returned as a [`BadDescriptor`] in its place. Signatures are not verified, nor is the
//! fingerprint checked against the key.

mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use self::parse::Iter;
use crate::family::Family;
use crate::text;
use identity::{Ed25519Id, Nickname, RsaId};

/// Why a part of a file is not a complete descriptor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("descriptor at line {first_line}{}: line {line}: {reason}", whose(fingerprint.as_ref()))]
pub struct BadDescriptor {
    /// The line at which the descriptor (or the stray text) begins, from 1.
    pub first_line: usize,
    /// The malformed line, from 1.
    pub line: usize,
    /// The relay, if that could be read.
    pub fingerprint: Option<RsaId>,
    /// The kind of document that it is instead, such as "extra-info documents", if known. Then
    /// nothing is damaged.
    pub document: Option<&'static str>,
    /// The reason, with the remedy where there is one.
    pub reason: String,
}

fn whose(fingerprint: Option<&RsaId>) -> String {
    fingerprint.map(|f| format!(" of {f}")).unwrap_or_default()
}

/// What a relay claims about itself. Nothing of it is verified.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerDescriptor<'a> {
    /// Its nickname.
    pub nickname: Nickname,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its onion-router port.
    pub or_port: u16,
    /// Its directory port; 0 is none.
    pub dir_port: u16,
    /// Its RSA identity.
    pub fingerprint: RsaId,
    /// Its Ed25519 identity, from `master-key-ed25519`, else from the certificate in
    /// `identity-ed25519`; relays older than 0.2.7 have none.
    pub ed25519: Option<Ed25519Id>,
    /// The public key of its ntor handshake.
    pub ntor_onion_key: Option<[u8; 32]>,
    /// The average bandwidth that it is willing to carry, in bytes/s: the minimum of its rate,
    /// burst and `MaxAdvertisedBandwidth`. No measured bandwidth may exceed it.
    pub bandwidth_avg_bytes_s: u64,
    /// The burst bandwidth that it is willing to carry, in bytes/s.
    pub bandwidth_burst_bytes_s: u64,
    /// The maximum that it carried for ten seconds within the last days, in bytes/s.
    pub bandwidth_observed_bytes_s: u64,
    /// When the descriptor was published, in Unix seconds.
    pub published: u64,
    /// Its uptime at that time, in seconds.
    pub uptime_s: Option<u64>,
    /// Whether it has exceeded its accounting limit and refuses circuits (`hibernating 1`).
    pub hibernating: bool,
    /// When it last ran out of a resource, in Unix seconds (`overload-general`); cleared after 72
    /// hours.
    pub overload_general: Option<u64>,
    /// The versions of protocols it supports, as written: `Link=1-5 Relay=1-2 …`.
    pub proto: Option<&'a str>,
    /// The bytes of its `platform` line, such as `Tor 0.4.8.12 on Linux`.
    pub platform_bytes: Option<&'a [u8]>,
    /// The bytes of its `contact` line; old ones are not always UTF-8.
    pub contact_bytes: Option<&'a [u8]>,
    /// The relays that it declares as its family, as written.
    pub family_text: Option<&'a str>,
    /// Certificates by family keys (`family-cert`, proposal 321), not verified:
    /// `dirmgr::family::proven_families` does that.
    pub family_certs: Vec<Vec<u8>>,
}

impl<'a> ServerDescriptor<'a> {
    /// The platform; invalid UTF-8 becomes `\u{fffd}`.
    #[must_use]
    pub fn platform(&self) -> Option<Cow<'a, str>> {
        self.platform_bytes.map(String::from_utf8_lossy)
    }

    /// The operator's contact information; invalid UTF-8 becomes `\u{fffd}`.
    #[must_use]
    pub fn contact(&self) -> Option<Cow<'a, str>> {
        self.contact_bytes.map(String::from_utf8_lossy)
    }

    /// The version of tor it runs, such as `0.4.8.12`, if the platform contains it.
    #[must_use]
    pub fn tor_version(&self) -> Option<&'a str> {
        let mut words = text::words(self.platform_bytes?);
        (words.next()? == b"Tor").then(|| words.next().and_then(text::utf8)).flatten()
    }

    /// The relays that it declares as its family, as tor reads them.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::parse(self.family_text.unwrap_or_default().as_bytes())
    }
}

/// Iterates over the descriptors of a file in one pass.
#[must_use]
pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter::new(bytes)
}

/// All descriptors of a file, and the errors of the others.
///
/// The errors are results, too: report them, or explain why they do not matter.
#[must_use]
pub fn parse_all(bytes: &[u8]) -> (Vec<ServerDescriptor<'_>>, Vec<BadDescriptor>) {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for item in iter(bytes) {
        match item {
            Ok(descriptor) => good.push(descriptor),
            Err(error) => bad.push(error),
        }
    }
    (good, bad)
}

/// The descriptors of a file, one for each relay. Returned by [`newest`].
#[derive(Clone, Debug, Default)]
pub struct Newest<'a> {
    /// The newest descriptor of each relay, by `published`, in ascending order of fingerprint. Of
    /// two with the same date the first counts, as in tor.
    pub descriptors: Vec<ServerDescriptor<'a>>,
    /// The number of superseded descriptors.
    pub replaced: usize,
    /// The unreadable descriptors.
    pub bad: Vec<BadDescriptor>,
    /// The number of other documents in the file, by kind, such as "extra-info documents".
    pub others: BTreeMap<&'static str, usize>,
}

impl Newest<'_> {
    /// A message about unreadable descriptors; `None` if there are none.
    #[must_use]
    pub fn dropped(&self) -> Option<String> {
        let first = self.bad.first()?;
        let count = self.bad.len();
        Some(if count == 1 {
            format!("1 descriptor cannot be read and does not count: {first}")
        } else {
            format!("{count} descriptors cannot be read and do not count; the first: {first}")
        })
    }

    /// A message about documents of other kinds, which are left out; `None` if there are none.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        let kinds: Vec<_> =
            self.others.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
        let kinds = kinds.join("; ");
        (!kinds.is_empty()).then(|| format!("left out, as no server descriptors: {kinds}"))
    }
}

/// The newest descriptor of each relay in a file, and the errors of the others.
#[must_use]
pub fn newest(bytes: &[u8]) -> Newest<'_> {
    let (good, wrong) = parse_all(bytes);
    let (mut bad, mut others) = (Vec::new(), BTreeMap::new());
    for part in wrong {
        match part.document {
            Some(kind) => *others.entry(kind).or_default() += 1,
            None => bad.push(part),
        }
    }
    let mut known: BTreeMap<RsaId, ServerDescriptor<'_>> = BTreeMap::new();
    let count = good.len();
    for descriptor in good {
        match known.get(&descriptor.fingerprint) {
            Some(other) if other.published >= descriptor.published => {}
            _ => {
                known.insert(descriptor.fingerprint, descriptor);
            }
        }
    }
    let replaced = count - known.len();
    Newest { descriptors: known.into_values().collect(), replaced, bad, others }
}
