//! Server descriptors: dir-spec.txt, section 2.1.1.
//!
//! [`iter`] walks a file or an authority's answer of many concatenated descriptors, with or without
//! `@type` annotations, and borrows their texts. One bad descriptor doesn't cost the others: it comes
//! out as a [`BadDescriptor`] in its place. Signatures aren't verified, nor is the fingerprint
//! checked against the key.

mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use self::parse::Iter;
use crate::id::{Ed25519Identity, Fingerprint, Nickname};
use crate::text;

/// Why a part of a file isn't a whole descriptor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("descriptor at line {first_line}{}: line {line}: {reason}", whose(fingerprint.as_ref()))]
pub struct BadDescriptor {
    /// The line at which the descriptor (or the stray text) begins, from 1.
    pub first_line: usize,
    /// The line that is wrong, from 1.
    pub line: usize,
    /// Whose it is, if that much could be read.
    pub fingerprint: Option<Fingerprint>,
    /// What is wrong, and the remedy where there is one.
    pub reason: String,
}

fn whose(fingerprint: Option<&Fingerprint>) -> String {
    fingerprint.map(|f| format!(" of {f}")).unwrap_or_default()
}

/// What a relay says of itself. Nobody checked any of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerDescriptor<'a> {
    /// The name its operator gave it.
    pub nickname: Nickname,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its onion-router port.
    pub or_port: u16,
    /// Its directory port; 0 is none.
    pub dir_port: u16,
    /// Its RSA identity.
    pub fingerprint: Fingerprint,
    /// Its Ed25519 identity, from `master-key-ed25519`, else from the certificate in
    /// `identity-ed25519`; relays older than 0.2.7 have none.
    pub ed25519: Option<Ed25519Identity>,
    /// The public key of its ntor handshake.
    pub ntor_onion_key: Option<[u8; 32]>,
    /// What it is willing to carry for long, in bytes/s: the least of its rate, burst and
    /// `MaxAdvertisedBandwidth` settings. No measured bandwidth may exceed it.
    pub bandwidth_avg_bytes_s: u64,
    /// What it is willing to carry for a short while, in bytes/s.
    pub bandwidth_burst_bytes_s: u64,
    /// The most it carried for ten seconds within the last days, in bytes/s.
    pub bandwidth_observed_bytes_s: u64,
    /// When the descriptor was made, in Unix seconds.
    pub published: u64,
    /// How long the relay had run then, in seconds.
    pub uptime_s: Option<u64>,
    /// Whether it has used up its traffic allowance and refuses circuits (`hibernating 1`).
    pub hibernating: bool,
    /// When it last ran out of some resource, in Unix seconds (`overload-general`); cleared 72 hours
    /// later.
    pub overload_general: Option<u64>,
    /// The versions of protocols it speaks, as written: `Link=1-5 Relay=1-2 …`.
    pub proto: Option<&'a str>,
    /// The bytes of its `platform` line, such as `Tor 0.4.8.12 on Linux`.
    pub platform_bytes: Option<&'a [u8]>,
    /// The bytes of its `contact` line; old ones aren't always UTF-8.
    pub contact_bytes: Option<&'a [u8]>,
    /// The relays it declares to be run by the same operator, as written.
    pub family_text: Option<&'a str>,
    /// Certificates by the keys of families to which it says that it belongs (`family-cert`, proposal 321), as they are. Nobody has
    /// verified them: `dirmgr::family::proven_families` does.
    pub family_certs: Vec<Vec<u8>>,
}

impl<'a> ServerDescriptor<'a> {
    /// The platform; bytes that aren't UTF-8 become `\u{fffd}`.
    #[must_use]
    pub fn platform(&self) -> Option<Cow<'a, str>> {
        self.platform_bytes.map(String::from_utf8_lossy)
    }

    /// How to reach its operator; bytes that aren't UTF-8 become `\u{fffd}`.
    #[must_use]
    pub fn contact(&self) -> Option<Cow<'a, str>> {
        self.contact_bytes.map(String::from_utf8_lossy)
    }

    /// The version of tor it runs, such as `0.4.8.12`, if the platform says so.
    #[must_use]
    pub fn tor_version(&self) -> Option<&'a str> {
        let mut words = text::words(self.platform_bytes?);
        (words.next()? == b"Tor").then(|| words.next().and_then(text::utf8)).flatten()
    }

    /// The members of its family that are named by fingerprint, with or without a nickname after it.
    /// Those named by nickname alone are left out: tor ignores them too.
    pub fn family(&self) -> impl Iterator<Item = Fingerprint> + use<'a> {
        let members = text::words(self.family_text.unwrap_or_default().as_bytes());
        members.filter_map(|member| {
            let member = member.strip_prefix(b"$")?;
            match member.get(40) {
                None | Some(b'~' | b'=') => Fingerprint::parse(member.get(..40)?).ok(),
                Some(_) => None,
            }
        })
    }
}

/// The descriptors of a file, one by one, in one pass.
#[must_use]
pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter::new(bytes)
}

/// All descriptors of a file, and what was wrong with the others.
///
/// The bad ones are results too: report them, or say why they don't matter.
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

/// The descriptors of a file, one for each relay. Made by [`newest`].
#[derive(Clone, Debug, Default)]
pub struct Newest<'a> {
    /// The newest of each relay, by `published`, in ascending order of fingerprint. Of two with one date the first counts, as in tor.
    pub descriptors: Vec<ServerDescriptor<'a>>,
    /// Descriptors of which there is a newer one, or another with the same date.
    pub replaced: usize,
    /// What could not be read.
    pub bad: Vec<BadDescriptor>,
}

impl Newest<'_> {
    /// What could not be read, in words; `None` if everything could.
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
}

/// The newest descriptor of each relay in a file, and what is wrong with the others.
#[must_use]
pub fn newest(bytes: &[u8]) -> Newest<'_> {
    let (good, bad) = parse_all(bytes);
    let mut known: BTreeMap<Fingerprint, ServerDescriptor<'_>> = BTreeMap::new();
    let count = good.len();
    for it in good {
        match known.get(&it.fingerprint) {
            Some(other) if other.published >= it.published => {}
            _ => {
                known.insert(it.fingerprint, it);
            }
        }
    }
    let replaced = count - known.len();
    Newest { descriptors: known.into_values().collect(), replaced, bad }
}
