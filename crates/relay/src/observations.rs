//! What a relay sees pass on its links to other relays, for clients that choose paths by it (Panchenko et al., §V-B): off unless the
//! operator wants it, and never in the public network.
//!
//! Whoever knows what a link carries at a time can follow a client over it. So little is said, and late:
//!
//! - of a link the most that it carried in ten seconds, either way, and not when; once in an interval, of an hour at least but in private networks;
//! - nothing of a link while fewer than [`CIRCUITS_MIN`] circuits are on it: what one of them carries is lost among the others. Who opens so many of
//!   their own gets past that, and learns what they carry themselves, and who else doubles it;
//! - rounded down to a power of two of kB/s: as long as nobody doubles the most of a whole interval, nothing changes;
//! - of relays that the consensus lists only: links of clients, of strangers and of measurements are not looked at.
//!
//! It is signed with the relay's Ed25519 identity. What a relay says of its links is believed as far as the other end says the same
//! (`client::model::of_links`).

#[cfg(test)]
mod tests;

use crate::observed::{WINDOW_S, Window};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use files::Access;
use netdoc::Fingerprint;
use onion::identity::RsaId;
use onion::router::RelayLink;
use onion::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use tor_llcrypto::pk::ed25519::{ExpandedKeypair, PublicKey, Signature};

/// Name of the file, in the folder of keys.
pub(crate) const FILE: &str = "link-observations";
/// Circuits that must be on a link for what it carries to be noted.
pub const CIRCUITS_MIN: usize = 8;
/// Links that are written and read of one relay, at most: the public network has half as many relays.
const LINKS_MAX: usize = 20_000;
/// What is read is no longer.
const LEN_MAX: usize = 4 << 20;
/// The first line is no longer.
const LINE_MAX: usize = 256;
/// The first word, and the version.
const MAGIC: &str = "flashflow-links 1";
/// What a signature is over, besides the text.
const CONTEXT: &[u8] = b"flashflow link observations 1\0";

/// What was seen of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedLink {
    /// The relay at the other end.
    pub relay: Fingerprint,
    /// The most that was sent in ten seconds, in kB/s, rounded down to a power of two; 0 if that is nothing.
    pub sent_kb_s: u64,
    /// The most that came.
    pub received_kb_s: u64,
}

/// What a relay saw pass on its links in an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkObservations {
    /// Who has seen it.
    pub relay: Fingerprint,
    /// When the interval was over, in Unix seconds.
    pub until_unix_s: u64,
    /// Relay by relay.
    pub links: Vec<ObservedLink>,
}

/// Why what a relay has seen is not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObservationError {
    /// It is not what a relay writes.
    #[error("it is no account of a relay's links: {0}")]
    Malformed(&'static str),
    /// The network has no such relay, or not with an Ed25519 identity.
    #[error("relay {0} is not known here; ask for a later consensus")]
    Unknown(Fingerprint),
    /// The relay has not signed it.
    #[error("relay {0} has not signed it: it was changed, or somebody else made it")]
    Signature(Fingerprint),
}

impl LinkObservations {
    /// Signs it with the relay's Ed25519 identity.
    #[must_use]
    pub fn sign(&self, key: &ExpandedKeypair) -> Vec<u8> {
        // Names and numbers are JSON whatever they are.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let signature = BASE64.encode(key.sign(&[CONTEXT, &text].concat()).to_bytes());
        [format!("{MAGIC} {signature}\n").as_bytes(), &text].concat()
    }

    /// Reads what a relay has signed. `find` knows relays' Ed25519 identities.
    ///
    /// # Errors
    /// [`ObservationError`] says why it is not believed.
    pub fn verify(
        bytes: &[u8],
        find: impl FnOnce(&Fingerprint) -> Option<[u8; 32]>,
    ) -> Result<Self, ObservationError> {
        let malformed = ObservationError::Malformed;
        if bytes.len() > LEN_MAX {
            return Err(malformed("it is too long"));
        }
        let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.ok_or(malformed("it has no first line"))?);
        let text = &rest[1..];
        let line = str::from_utf8(line).map_err(|_| malformed("its first line is no text"))?;
        let signature = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
        let signature = signature.and_then(|it| BASE64.decode(it).ok()?.try_into().ok());
        let signature: [u8; 64] = signature.ok_or(malformed("its first line is another"))?;
        let read: Self = serde_json::from_slice(text).map_err(|_| malformed("it is cut"))?;
        if read.links.len() > LINKS_MAX {
            return Err(malformed("it has too many links"));
        }
        let relay = read.relay;
        let key = find(&relay).ok_or(ObservationError::Unknown(relay))?;
        let unsigned = || ObservationError::Signature(relay);
        let key = PublicKey::from_bytes(&key).map_err(|_| unsigned())?;
        key.verify(&[CONTEXT, text].concat(), &Signature::from_bytes(&signature))
            .map_err(|_| unsigned())?;
        Ok(read)
    }
}

/// One link, as it is looked at.
#[derive(Debug, Default)]
struct Seen {
    /// What it had carried when it was last looked at, both ways: received, sent.
    before: [u64; 2],
    windows: [Window; 2],
    /// The most of ten seconds, in bytes.
    most: [u64; 2],
}

/// Looks at links once a second.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    links: BTreeMap<RsaId, Seen>,
}

impl Observer {
    /// Notes what links have carried until now. `seconds` have passed since the last time: what came in them counts as evenly spread.
    pub(crate) fn note(&mut self, seconds: u64, links: impl Iterator<Item = RelayLink>) {
        // Several links may lead to one relay.
        let mut now: BTreeMap<RsaId, ([u64; 2], usize)> = BTreeMap::new();
        for link in links {
            let (bytes, circuits) = now.entry(link.relay).or_default();
            bytes[0] += link.received_bytes;
            bytes[1] += link.sent_bytes;
            *circuits += link.circuits;
        }
        self.links.retain(|relay, seen| {
            let is_here = now.contains_key(relay);
            if !is_here {
                (seen.before, seen.windows) = Default::default();
            }
            is_here || seen.most != [0; 2]
        });
        for (relay, (bytes, circuits)) in now {
            let seen = self.links.entry(relay).or_default();
            let before = std::mem::replace(&mut seen.before, bytes);
            if circuits < CIRCUITS_MIN {
                seen.windows = Default::default();
                continue;
            }
            for way in 0..2 {
                // With one of several links gone there may be less.
                let each = bytes[way].saturating_sub(before[way]) / seconds.max(1);
                for _ in 0..seconds.min(WINDOW_S) {
                    let sum = seen.windows[way].note_second(each).unwrap_or(0);
                    seen.most[way] = seen.most[way].max(sum);
                }
            }
        }
    }

    /// What was seen since this was last asked for. An interval is over.
    pub(crate) fn take(&mut self) -> Vec<ObservedLink> {
        let observed = |(relay, seen): (&RsaId, &mut Seen)| {
            let [received_kb_s, sent_kb_s] = std::mem::take(&mut seen.most).map(rounded_kb_s);
            let relay = Fingerprint::from_bytes(relay.0);
            (received_kb_s + sent_kb_s > 0).then_some(ObservedLink {
                relay,
                sent_kb_s,
                received_kb_s,
            })
        };
        let mut all: Vec<ObservedLink> = self.links.iter_mut().filter_map(observed).collect();
        if all.len() > LINKS_MAX {
            all.sort_by_key(|it| Reverse(it.sent_kb_s.max(it.received_kb_s)));
            all.truncate(LINKS_MAX);
        }
        // Those that are gone are forgotten.
        self.links.retain(|_, seen| seen.before != [0; 2]);
        all
    }
}

/// Looks at links, and writes what was seen when an interval is over.
pub(crate) struct Observing {
    observer: Observer,
    every: Duration,
    next: Instant,
    relay: Fingerprint,
    /// The relay's secret Ed25519 key.
    key: [u8; 64],
    path: PathBuf,
}

impl Observing {
    pub(crate) fn new(
        now: Instant,
        every: Duration,
        relay: Fingerprint,
        key: [u8; 64],
        path: PathBuf,
    ) -> Self {
        Self { observer: Observer::default(), every, next: now + every, relay, key, path }
    }

    /// Notes what links have carried in so many seconds.
    ///
    /// # Errors
    /// The system's answer where it cannot be written.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        unix_time_s: u64,
        seconds: u64,
        links: impl Iterator<Item = RelayLink>,
    ) -> io::Result<()> {
        self.observer.note(seconds, links);
        if now < self.next {
            return Ok(());
        }
        self.next = now + self.every;
        let links = self.observer.take();
        let said = LinkObservations { relay: self.relay, until_unix_s: unix_time_s, links };
        let key = ExpandedKeypair::from_secret_key_bytes(self.key);
        let key = key.ok_or_else(|| io::Error::other("the Ed25519 key is of no use"))?;
        files::replace(&self.path, &said.sign(&key), Access::Owner)
    }
}

/// Bytes of ten seconds as kB/s, rounded down to a power of two.
fn rounded_kb_s(bytes: u64) -> u64 {
    let kb_s = bytes / WINDOW_S / 1000;
    kb_s.checked_ilog2().map_or(0, |power| 1 << power)
}
