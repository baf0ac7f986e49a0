use super::{Link, Model, Node, Pair};
use netdoc::RsaId;
use std::collections::{BTreeMap, BTreeSet};

/// The model without private values.
#[must_use]
pub fn strip(model: &Model) -> Model {
    let nodes =
        model.nodes.iter().map(|(relay, node)| (*relay, Node { entry_rtt_ms: None, ..*node }));
    Model::new(model.made_unix_s, nodes.collect(), model.links.clone())
}

/// Merges one's own model with those of others, of whom less than half may lie.
///
/// - One's own values take precedence.
/// - Among others' values the median counts; for an even number, the worse of the middle two. If
///   less than half of those who report a value lie, it is between two honest values.
/// - A value that at most half of all others report is dropped: a minority cannot invent
///   measurements.
#[must_use]
pub fn merge(own: Option<&Model>, others: &[Model]) -> Model {
    let quorum = others.len() / 2 + 1;
    let all = || own.into_iter().chain(others);
    let value = |mine: Option<f64>, theirs: Vec<f64>, is_less_better: bool| {
        mine.or_else(|| middle(theirs, quorum, is_less_better))
    };
    let node = |relay: &RsaId| {
        let mine = own.and_then(|model| model.nodes.get(relay));
        let theirs = || others.iter().filter_map(|model| model.nodes.get(relay));
        let rates = theirs().filter_map(|node| node.throughput_kb_s).collect();
        // Counts of circuits are evidence only for the client that tried them.
        Node {
            throughput_kb_s: value(mine.and_then(|node| node.throughput_kb_s), rates, false),
            ..mine.copied().unwrap_or_default()
        }
    };
    let link = |pair: &Pair| {
        let mine = own.and_then(|model| model.links.get(pair));
        let theirs = || others.iter().filter_map(|model| model.links.get(pair));
        let rtts = theirs().filter_map(|link| link.rtt_ms).collect();
        let rates = theirs().filter_map(|link| link.throughput_kb_s).collect();
        Link {
            rtt_ms: value(mine.and_then(|link| link.rtt_ms), rtts, true),
            throughput_kb_s: value(mine.and_then(|link| link.throughput_kb_s), rates, false),
        }
    };
    let relays: BTreeSet<RsaId> = all().flat_map(|model| model.nodes.keys().copied()).collect();
    let pairs: BTreeSet<Pair> = all().flat_map(|model| model.links.keys().copied()).collect();
    let nodes: BTreeMap<RsaId, Node> = relays.iter().map(|relay| (*relay, node(relay))).collect();
    let mut links: BTreeMap<Pair, Link> = pairs.iter().map(|pair| (*pair, link(pair))).collect();
    links.retain(|_, link| *link != Link::default());
    // The median also of the age: no single model makes the result older or newer.
    let times = others.iter().map(|model| model.made_unix_s as f64).collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a date in seconds"
    )]
    let their_time = middle(times, quorum, false).map(|middle| middle as u64);
    let made_unix_s = own.map(Model::made_unix_s).or(their_time).unwrap_or(0);
    Model::new(made_unix_s, nodes, links)
}

/// The median of the values, if they reach the quorum.
fn middle(mut values: Vec<f64>, quorum: usize, is_less_better: bool) -> Option<f64> {
    values.retain(|value| value.is_finite());
    if values.len() < quorum {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let place = if is_less_better { values.len() / 2 } else { (values.len() - 1) / 2 };
    values.get(place).copied()
}
