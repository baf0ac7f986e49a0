use super::{Link, Model, Node, Pair};
use netdoc::Fingerprint;
use onion::Duration;
use std::collections::BTreeMap;

/// Values of one link that are kept, at most.
const VALUES_MAX: usize = 256;

/// What was observed of a circuit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// First hop first.
    pub path: Vec<Fingerprint>,
    /// Whether it came to stand.
    pub was_built: bool,
    /// The least round trip to each hop, first hop first; `None` where none answered.
    pub rtts: Vec<Option<Duration>>,
    /// What a download by it has come to, in kB/s.
    pub throughput_kb_s: Option<f64>,
}

/// What was observed, circuit by circuit.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    nodes: BTreeMap<Fingerprint, Node>,
    links: BTreeMap<Pair, (Vec<f64>, Option<f64>)>,
}

impl Observations {
    /// Adds a circuit. The round trip of a link is that to its far end less that to its near end, each the least of several: what
    /// queues and busy processors add is in neither. Where noise makes it negative it is nothing.
    pub fn add(&mut self, seen: &Observed) {
        let larger = |old: Option<f64>, new: Option<f64>| match (old, new) {
            (Some(old), Some(new)) => Some(old.max(new)),
            (old, new) => new.or(old),
        };
        for relay in &seen.path {
            let node = self.nodes.entry(*relay).or_default();
            node.circuits = node.circuits.saturating_add(1);
            node.failed = node.failed.saturating_add(u32::from(!seen.was_built));
            node.throughput_kb_s = larger(node.throughput_kb_s, seen.throughput_kb_s);
        }
        let ms = |rtt: &Option<Duration>| rtt.map(|it| it.as_secs_f64() * 1e3);
        if let (Some(first), Some(rtt)) = (seen.path.first(), seen.rtts.first().and_then(ms)) {
            let node = self.nodes.entry(*first).or_default();
            node.entry_rtt_ms = Some(node.entry_rtt_ms.map_or(rtt, |old| old.min(rtt)));
        }
        for (place, pair) in seen.path.windows(2).enumerate() {
            let link = self.links.entry(Pair::new(pair[0], pair[1])).or_default();
            let near = seen.rtts.get(place).and_then(ms);
            let far = seen.rtts.get(place + 1).and_then(ms);
            // A hop that answers before the one in front of it says nothing of the link between them.
            if let (Some(near), Some(far)) = (near, far)
                && far >= near
            {
                if link.0.len() == VALUES_MAX {
                    link.0.remove(0);
                }
                link.0.push(far - near);
            }
            link.1 = larger(link.1, seen.throughput_kb_s);
        }
    }

    /// What follows: of several values of a link's round trip, the median.
    #[must_use]
    pub fn model(&self, unix_time_s: u64) -> Model {
        let link = |(pair, (rtts, throughput_kb_s)): (&Pair, &(Vec<f64>, Option<f64>))| {
            let sorted = super::sorted(rtts.iter().copied());
            let rtt_ms = super::quantile(&sorted, 0.5);
            (*pair, Link { rtt_ms, throughput_kb_s: *throughput_kb_s })
        };
        Model::new(unix_time_s, self.nodes.clone(), self.links.iter().map(link).collect())
    }
}
