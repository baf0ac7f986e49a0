use super::{Link, Model, Node, Pair};
use netdoc::RsaId;
use onion::Duration;
use std::collections::BTreeMap;

/// Limit on stored values of one link.
const VALUES_MAX: usize = 256;

/// Observations of one circuit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// First hop first.
    pub path: Vec<RsaId>,
    /// Whether it was built.
    pub was_built: bool,
    /// The minimum RTT to each hop, first hop first; `None` if the hop did not answer.
    pub rtts: Vec<Option<Duration>>,
    /// Throughput of a download through it, in kB/s.
    pub throughput_kb_s: Option<f64>,
}

/// Observations of circuits.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    nodes: BTreeMap<RsaId, Node>,
    links: BTreeMap<Pair, (Vec<f64>, Option<f64>)>,
}

impl Observations {
    /// Adds a circuit. The RTT of a link is the difference of the minimum RTTs to its ends, which
    /// excludes queueing and processing. A negative difference counts as zero.
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
        let ms = |rtt: &Option<Duration>| rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
        if let (Some(first), Some(rtt)) = (seen.path.first(), seen.rtts.first().and_then(ms)) {
            let node = self.nodes.entry(*first).or_default();
            node.entry_rtt_ms = Some(node.entry_rtt_ms.map_or(rtt, |old| old.min(rtt)));
        }
        for (place, pair) in seen.path.windows(2).enumerate() {
            let link = self.links.entry(Pair::new(pair[0], pair[1])).or_default();
            let near = seen.rtts.get(place).and_then(ms);
            let far = seen.rtts.get(place + 1).and_then(ms);
            // A hop that answers before its predecessor gives no information about the link between
            // them.
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

    /// The resulting model. The RTT of a link is the median of its values.
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
