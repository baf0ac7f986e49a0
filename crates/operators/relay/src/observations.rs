//! Observes the links to other relays and writes the signed document of
//! [`dirmgr::LinkObservations`], which explains what is revealed and why no more.

#[cfg(test)]
mod tests;

use crate::rolling_window::{RollingWindow, WINDOW_S};
use dirmgr::{CIRCUITS_MIN, LINKS_MAX, LinkObservations, ObservedLink};
use files::Access;
use onion::identity::RsaId;
use onion::keys::Ed25519Key;
use onion::router::RelayLink;
use onion::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Name of the file, in the folder of keys.
pub(crate) const FILE: &str = "link-observations";

/// The state of one link. The arrays are: received, sent.
#[derive(Debug, Default)]
struct LinkState {
    /// Bytes transferred before the last observation.
    before: [u64; 2],
    windows: [RollingWindow; 2],
    /// The maximum of ten seconds, in bytes.
    maximum: [u64; 2],
}

/// Observes all links once a second.
#[derive(Debug, Default)]
pub(crate) struct LinkObserver {
    links: BTreeMap<RsaId, LinkState>,
}

impl LinkObserver {
    /// Observes what links have transferred until now. `seconds` have passed since the last call; the
    /// bytes of that time count as evenly spread.
    pub(crate) fn note(&mut self, seconds: u64, links: impl Iterator<Item = RelayLink>) {
        // Several links may lead to one relay.
        let mut now: BTreeMap<RsaId, ([u64; 2], usize)> = BTreeMap::new();
        for link in links {
            let (bytes, circuits) = now.entry(link.relay).or_default();
            bytes[0] += link.received_bytes;
            bytes[1] += link.sent_bytes;
            *circuits += link.circuits;
        }
        self.links.retain(|relay, link| {
            let is_open = now.contains_key(relay);
            if !is_open {
                (link.before, link.windows) = Default::default();
            }
            is_open || link.maximum != [0; 2]
        });
        for (relay, (bytes, circuits)) in now {
            let link = self.links.entry(relay).or_default();
            let before = std::mem::replace(&mut link.before, bytes);
            if circuits < CIRCUITS_MIN {
                link.windows = Default::default();
                continue;
            }
            for direction in 0..2 {
                // The sum decreases when one of several links closes.
                let each = bytes[direction].saturating_sub(before[direction]) / seconds.max(1);
                for _ in 0..seconds.min(WINDOW_S) {
                    let sum = link.windows[direction].note_second(each).unwrap_or(0);
                    link.maximum[direction] = link.maximum[direction].max(sum);
                }
            }
        }
    }

    /// Returns the observations since the last call, at the end of an interval.
    pub(crate) fn take(&mut self) -> Vec<ObservedLink> {
        let observed = |(relay, link): (&RsaId, &mut LinkState)| {
            let [received_kb_s, sent_kb_s] = std::mem::take(&mut link.maximum).map(rounded_kb_s);
            (received_kb_s + sent_kb_s > 0).then_some(ObservedLink {
                relay: *relay,
                sent_kb_s,
                received_kb_s,
            })
        };
        let mut all: Vec<ObservedLink> = self.links.iter_mut().filter_map(observed).collect();
        if all.len() > LINKS_MAX {
            all.sort_by_key(|link| Reverse(link.sent_kb_s.max(link.received_kb_s)));
            all.truncate(LINKS_MAX);
        }
        // Links that are closed are dropped.
        self.links.retain(|_, link| link.before != [0; 2]);
        all
    }
}

/// Observes links, and writes a signed document at the end of each interval.
pub(crate) struct ObservationWriter {
    observer: LinkObserver,
    every: Duration,
    next: Instant,
    relay: RsaId,
    /// The relay's Ed25519 identity.
    key: Ed25519Key,
    path: PathBuf,
}

impl ObservationWriter {
    pub(crate) fn new(
        now: Instant,
        every: Duration,
        relay: RsaId,
        key: Ed25519Key,
        path: PathBuf,
    ) -> Self {
        Self { observer: LinkObserver::default(), every, next: now + every, relay, key, path }
    }

    /// Observes what links have transferred in the last `seconds`.
    ///
    /// # Errors
    /// The I/O error if the document cannot be written.
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
        let observed = LinkObservations { relay: self.relay, until_unix_s: unix_time_s, links };
        files::replace(&self.path, &observed.sign(&self.key), Access::Owner)
    }
}

/// Bytes of ten seconds as kB/s, rounded down to a power of two.
fn rounded_kb_s(bytes: u64) -> u64 {
    let kb_s = bytes / WINDOW_S / 1000;
    kb_s.checked_ilog2().map_or(0, |power| 1 << power)
}
