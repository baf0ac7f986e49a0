//! A measured network: nodes, links between them and metrics of both, from which ranking indices of
//! nodes, links and paths are derived (Panchenko et al., §V-A).
//!
//! A model comes from one's own [`Observations`], from [link observations of relays](of_links),
//! from a file, or from [several sources](merge()), some of which may lie. The latency to first
//! hops ([`Node::entry_rtt_ms`]) is private: it is never published, and never accepted from others.

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

use netdoc::RsaId;
use std::collections::BTreeMap;

/// Limit on an RTT: a slower circuit is useless.
pub const RTT_MAX_MS: f64 = 60_000.0;
/// Limit on a throughput, in kB/s: 10 Gbit/s.
pub const THROUGHPUT_MAX_KB_S: f64 = 1_250_000.0;

/// Metrics of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Node {
    /// RTT from the client to it as a first hop, in ms.
    pub entry_rtt_ms: Option<f64>,
    /// The fastest download through it, in kB/s: a lower bound of its capacity.
    pub throughput_kb_s: Option<f64>,
    /// Circuits through it that were attempted.
    pub circuits: u32,
    /// Attempted circuits through it that failed.
    pub failed: u32,
}

/// Metrics of a link between two relays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// RTT in ms, including processing at both relays.
    pub rtt_ms: Option<f64>,
    /// The fastest download through it, or the maximum that both ends have observed, in kB/s.
    pub throughput_kb_s: Option<f64>,
}

/// An unordered pair of relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair(RsaId, RsaId);

impl Pair {
    /// The pair of these relays.
    #[must_use]
    pub fn new(a: RsaId, b: RsaId) -> Self {
        if a <= b { Self(a, b) } else { Self(b, a) }
    }

    /// Both relays, in ascending order.
    #[must_use]
    pub const fn ends(&self) -> [&RsaId; 2] {
        [&self.0, &self.1]
    }
}

/// Reference values for the indices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Scale {
    /// The 95th percentile of links.
    best_rtt_ms: f64,
    median_rtt_ms: f64,
    best_entry_ms: f64,
    top_kb_s: f64,
    median_kb_s: f64,
}

/// A measured network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    made_unix_s: u64,
    nodes: BTreeMap<RsaId, Node>,
    links: BTreeMap<Pair, Link>,
    /// The mean RTT of the known links of each relay.
    mean_rtts_ms: BTreeMap<RsaId, f64>,
    /// The fastest link or circuit of each relay.
    fastest_kb_s: BTreeMap<RsaId, f64>,
    scale: Scale,
}

/// A value within its limits, rounded to three digits.
fn within(value: Option<f64>, most: f64) -> Option<f64> {
    let possible = value.filter(|value| value.is_finite() && (0.0..=most).contains(value));
    possible.map(|value| (value * 1e3).round() / 1e3)
}

/// The quantile of a sorted list.
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
    /// A model of these nodes and links. Implausible values are dropped.
    #[must_use]
    pub fn new(
        made_unix_s: u64,
        mut nodes: BTreeMap<RsaId, Node>,
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
        let mut sums: BTreeMap<RsaId, (f64, f64)> = BTreeMap::new();
        let mut fastest_kb_s: BTreeMap<RsaId, f64> = BTreeMap::new();
        for (relay, node) in &nodes {
            fastest_kb_s
                .extend(node.throughput_kb_s.map(|throughput_kb_s| (*relay, throughput_kb_s)));
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
            // A link takes some time. A relay that delays its own refusals makes others look
            // faster.
            best_rtt_ms: quantile(&rtts, 0.05).unwrap_or(1.0).max(1.0),
            median_rtt_ms: quantile(&rtts, 0.5).unwrap_or(1.0),
            best_entry_ms: quantile(&entries, 0.05).unwrap_or(1.0).max(1.0),
            top_kb_s: quantile(&rates, 0.95).unwrap_or(1.0),
            median_kb_s: quantile(&rates, 0.5).unwrap_or(1.0),
        };
        let mean_rtts_ms =
            sums.into_iter().map(|(relay, (sum, count))| (relay, sum / count)).collect();
        Self { made_unix_s, nodes, links, mean_rtts_ms, fastest_kb_s, scale }
    }

    /// When it was measured, in Unix seconds.
    #[must_use]
    pub const fn made_unix_s(&self) -> u64 {
        self.made_unix_s
    }

    /// The relays, in ascending order.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<RsaId, Node> {
        &self.nodes
    }

    /// The links.
    #[must_use]
    pub const fn links(&self) -> &BTreeMap<Pair, Link> {
        &self.links
    }

    /// Whether it has no data for choosing paths.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mean_rtts_ms.is_empty() && self.fastest_kb_s.is_empty()
    }

    fn link(&self, ends: (RsaId, RsaId)) -> Option<&Link> {
        self.links.get(&Pair::new(ends.0, ends.1))
    }

    /// Latency index of several links together, compared with the fastest links: 0 to 1. An unknown
    /// link counts as the median.
    #[must_use]
    pub fn rtt_index(&self, links: &[(RsaId, RsaId)]) -> f64 {
        let of = |ends: &(RsaId, RsaId)| {
            let known = self.link(*ends).and_then(|link| link.rtt_ms);
            known.unwrap_or(self.scale.median_rtt_ms)
        };
        let sum: f64 = links.iter().map(of).sum();
        ratio(self.scale.best_rtt_ms * links.len() as f64, sum)
    }

    /// Latency index of the mean of a relay's links: 0 to 1.
    #[must_use]
    pub fn node_rtt_index(&self, relay: &RsaId) -> f64 {
        let known = self.mean_rtts_ms.get(relay).copied();
        ratio(self.scale.best_rtt_ms, known.unwrap_or(self.scale.median_rtt_ms))
    }

    /// Latency index of a relay as a first hop, compared with the fastest: 0 to 1. Without a
    /// measurement it is [`node_rtt_index`](Self::node_rtt_index).
    #[must_use]
    pub fn entry_index(&self, relay: &RsaId) -> f64 {
        match self.nodes.get(relay).and_then(|node| node.entry_rtt_ms) {
            Some(rtt_ms) => ratio(self.scale.best_entry_ms, rtt_ms),
            None => self.node_rtt_index(relay),
        }
    }

    /// Throughput index of the slowest of several links, compared with the fastest relays: 0 to 1.
    /// An unknown link counts as the median.
    #[must_use]
    pub fn throughput_index(&self, links: &[(RsaId, RsaId)]) -> f64 {
        let of = |ends: &(RsaId, RsaId)| {
            let known = self.link(*ends).and_then(|link| link.throughput_kb_s);
            known.unwrap_or_else(|| {
                let end =
                    |end| self.fastest_kb_s.get(end).copied().unwrap_or(self.scale.median_kb_s);
                end(&ends.0).min(end(&ends.1))
            })
        };
        ratio(links.iter().map(of).fold(f64::INFINITY, f64::min), self.scale.top_kb_s)
    }

    /// Throughput index of the fastest link of a relay, compared with the fastest relays: 0 to 1.
    #[must_use]
    pub fn node_throughput_index(&self, relay: &RsaId) -> f64 {
        let known = self.fastest_kb_s.get(relay).copied();
        ratio(known.unwrap_or(self.scale.median_kb_s), self.scale.top_kb_s)
    }

    /// Latency and throughput index of a whole path, first hop first.
    #[must_use]
    pub fn path_indices(&self, path: &[RsaId]) -> (f64, f64) {
        let links: Vec<_> = path.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if links.is_empty() {
            return (1.0, 1.0);
        }
        (self.rtt_index(&links), self.throughput_index(&links))
    }
}

/// A ratio of at most 1; 0/0 is 1.
fn ratio(part: f64, whole: f64) -> f64 {
    if part >= whole { 1.0 } else { (part / whole).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
