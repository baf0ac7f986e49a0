//! The network as it was measured: nodes, the links between them, and metrics of both, from which follow ranking indices of nodes,
//! links and paths (Panchenko et al., §V-A).
//!
//! A model comes from [`Observations`] of one's own, from what relays [say of their links](of_links), from a file, or from [several sources](merge()) of which some may lie.
//! What a client learns of its own way into the network ([`Node::entry_rtt_ms`]) is nobody else's business: it is in no
//! file that is given away, and taken from none.

mod directory;
mod file;
mod links;
mod merge;
mod observe;
mod server;

pub use directory::{MODEL_AGE_MAX_S, Published, SignedError, public_key, sign, verify};
pub use file::{FileError, read, write};
pub use links::of_links;
pub use merge::{merge, strip};
pub use observe::{Observations, Observed};
pub use server::{DirectoryServer, PATH};

use netdoc::Fingerprint;
use std::collections::BTreeMap;

/// No round trip in a model is longer: a circuit that takes so long to answer is as good as none.
pub const RTT_MAX_MS: f64 = 60_000.0;
/// No throughput in a model is larger, in kB/s: 10 Gbit/s.
pub const THROUGHPUT_MAX_KB_S: f64 = 1_250_000.0;

/// What is known of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Node {
    /// From here to it as a first hop and back, in ms.
    pub entry_rtt_ms: Option<f64>,
    /// The fastest download on a circuit through it, in kB/s: it can do so much at least.
    pub throughput_kb_s: Option<f64>,
    /// Circuits through it that were tried.
    pub circuits: u32,
    /// Those of them that have not come to stand.
    pub failed: u32,
}

/// What is known of a link between two relays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// There and back, in ms, with what both relays need.
    pub rtt_ms: Option<f64>,
    /// The fastest download on a circuit by it, or the most that both ends saw pass, in kB/s.
    pub throughput_kb_s: Option<f64>,
}

/// Two relays, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair(Fingerprint, Fingerprint);

impl Pair {
    /// Of these.
    #[must_use]
    pub fn new(a: Fingerprint, b: Fingerprint) -> Self {
        if a <= b { Self(a, b) } else { Self(b, a) }
    }

    /// Both, in ascending order.
    #[must_use]
    pub const fn ends(&self) -> [&Fingerprint; 2] {
        [&self.0, &self.1]
    }
}

/// Against what values are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Scale {
    /// That which only one in twenty links is faster than.
    best_rtt_ms: f64,
    median_rtt_ms: f64,
    best_entry_ms: f64,
    top_kb_s: f64,
    median_kb_s: f64,
}

/// The network as it was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    made_unix_s: u64,
    nodes: BTreeMap<Fingerprint, Node>,
    links: BTreeMap<Pair, Link>,
    /// For each relay that has links with a known round trip: their mean.
    mean_rtts_ms: BTreeMap<Fingerprint, f64>,
    /// The fastest link or circuit of each relay.
    fastest_kb_s: BTreeMap<Fingerprint, f64>,
    scale: Scale,
}

/// A value that can be one, to three digits: from nothing to the most.
fn within(value: Option<f64>, most: f64) -> Option<f64> {
    let possible = value.filter(|it| it.is_finite() && (0.0..=most).contains(it));
    possible.map(|it| (it * 1e3).round() / 1e3)
}

/// The value that the share of the sorted ones does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    let place = (sorted.len().saturating_sub(1) as f64 * share).floor() as usize;
    sorted.get(place).copied()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

impl Model {
    /// Of these nodes and links. Values that no network has are left out.
    #[must_use]
    pub fn new(
        made_unix_s: u64,
        mut nodes: BTreeMap<Fingerprint, Node>,
        mut links: BTreeMap<Pair, Link>,
    ) -> Self {
        for node in nodes.values_mut() {
            node.entry_rtt_ms = within(node.entry_rtt_ms, RTT_MAX_MS);
            node.throughput_kb_s = within(node.throughput_kb_s, THROUGHPUT_MAX_KB_S);
        }
        links.retain(|pair, _| pair.0 != pair.1);
        for link in links.values_mut() {
            link.rtt_ms = within(link.rtt_ms, RTT_MAX_MS);
            link.throughput_kb_s = within(link.throughput_kb_s, THROUGHPUT_MAX_KB_S);
        }
        let mut sums: BTreeMap<Fingerprint, (f64, f64)> = BTreeMap::new();
        let mut fastest_kb_s: BTreeMap<Fingerprint, f64> = BTreeMap::new();
        for (relay, node) in &nodes {
            fastest_kb_s.extend(node.throughput_kb_s.map(|it| (*relay, it)));
        }
        for (pair, link) in &links {
            for end in pair.ends() {
                if let Some(rtt_ms) = link.rtt_ms {
                    let sum = sums.entry(*end).or_default();
                    *sum = (sum.0 + rtt_ms, sum.1 + 1.0);
                }
                if let Some(kb_s) = link.throughput_kb_s {
                    let fastest = fastest_kb_s.entry(*end).or_default();
                    *fastest = fastest.max(kb_s);
                }
            }
        }
        let rtts = sorted(links.values().filter_map(|link| link.rtt_ms));
        let entries = sorted(nodes.values().filter_map(|node| node.entry_rtt_ms));
        let rates = sorted(fastest_kb_s.values().copied());
        let scale = Scale {
            // A link takes some time. Who delays its own refusals has others look as if they took none.
            best_rtt_ms: quantile(&rtts, 0.05).unwrap_or(1.0).max(1.0),
            median_rtt_ms: quantile(&rtts, 0.5).unwrap_or(1.0),
            best_entry_ms: quantile(&entries, 0.05).unwrap_or(1.0).max(1.0),
            top_kb_s: quantile(&rates, 0.95).unwrap_or(1.0),
            median_kb_s: quantile(&rates, 0.5).unwrap_or(1.0),
        };
        let mean_rtts_ms = sums.into_iter().map(|(it, (sum, count))| (it, sum / count)).collect();
        Self { made_unix_s, nodes, links, mean_rtts_ms, fastest_kb_s, scale }
    }

    /// When it was made, in Unix seconds.
    #[must_use]
    pub const fn made_unix_s(&self) -> u64 {
        self.made_unix_s
    }

    /// The relays, in ascending order.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<Fingerprint, Node> {
        &self.nodes
    }

    /// The links.
    #[must_use]
    pub const fn links(&self) -> &BTreeMap<Pair, Link> {
        &self.links
    }

    /// Whether it knows nothing that paths could be chosen by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mean_rtts_ms.is_empty() && self.fastest_kb_s.is_empty()
    }

    fn link(&self, ends: (Fingerprint, Fingerprint)) -> Option<&Link> {
        self.links.get(&Pair::new(ends.0, ends.1))
    }

    /// How fast these links answer together, beside as many of the fastest: 0 to 1. An unknown one counts as the median.
    #[must_use]
    pub fn rtt_index(&self, links: &[(Fingerprint, Fingerprint)]) -> f64 {
        let of = |ends: &(Fingerprint, Fingerprint)| {
            let known = self.link(*ends).and_then(|link| link.rtt_ms);
            known.unwrap_or(self.scale.median_rtt_ms)
        };
        let sum: f64 = links.iter().map(of).sum();
        ratio(self.scale.best_rtt_ms * links.len() as f64, sum)
    }

    /// The same of the mean of all links of a relay.
    #[must_use]
    pub fn node_rtt_index(&self, relay: &Fingerprint) -> f64 {
        let known = self.mean_rtts_ms.get(relay).copied();
        ratio(self.scale.best_rtt_ms, known.unwrap_or(self.scale.median_rtt_ms))
    }

    /// How fast a relay answers from here as a first hop, beside the fastest: 0 to 1. Of one that was never one here, as
    /// [`node_rtt_index`](Self::node_rtt_index).
    #[must_use]
    pub fn entry_index(&self, relay: &Fingerprint) -> f64 {
        match self.nodes.get(relay).and_then(|node| node.entry_rtt_ms) {
            Some(rtt_ms) => ratio(self.scale.best_entry_ms, rtt_ms),
            None => self.node_rtt_index(relay),
        }
    }

    /// What the slowest of these links has carried, beside the fastest relays: 0 to 1. An unknown one counts as the median.
    #[must_use]
    pub fn throughput_index(&self, links: &[(Fingerprint, Fingerprint)]) -> f64 {
        let of = |ends: &(Fingerprint, Fingerprint)| {
            let known = self.link(*ends).and_then(|link| link.throughput_kb_s);
            known.unwrap_or_else(|| {
                let end =
                    |end| self.fastest_kb_s.get(end).copied().unwrap_or(self.scale.median_kb_s);
                end(&ends.0).min(end(&ends.1))
            })
        };
        ratio(links.iter().map(of).fold(f64::INFINITY, f64::min), self.scale.top_kb_s)
    }

    /// What the fastest link of a relay has carried, beside the fastest relays: 0 to 1.
    #[must_use]
    pub fn node_throughput_index(&self, relay: &Fingerprint) -> f64 {
        let known = self.fastest_kb_s.get(relay).copied();
        ratio(known.unwrap_or(self.scale.median_kb_s), self.scale.top_kb_s)
    }

    /// Both indices of a whole path, first hop first: by round trip, and by throughput.
    #[must_use]
    pub fn path_indices(&self, path: &[Fingerprint]) -> (f64, f64) {
        let links: Vec<_> = path.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if links.is_empty() {
            return (1.0, 1.0);
        }
        (self.rtt_index(&links), self.throughput_index(&links))
    }
}

/// At most 1; nothing over nothing is 1: no slower than the best.
fn ratio(part: f64, whole: f64) -> f64 {
    if part >= whole { 1.0 } else { (part / whole).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
