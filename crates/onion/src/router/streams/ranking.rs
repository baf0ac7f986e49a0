use crate::node::ConnId;
use crate::router::circuits::TunnelIndex;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Streams of one kind by their tunnels, and which tunnel has most of them.
///
/// Each step costs the logarithm of the number of tunnels, and one look at the streams of one of them.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    /// Of each tunnel, the oldest stream first.
    streams: BTreeMap<TunnelIndex, Vec<ConnId>>,
    by_count: BTreeSet<(usize, TunnelIndex)>,
}

impl Ranking {
    pub(super) fn add(&mut self, tunnel: TunnelIndex, conn: ConnId) {
        let streams = self.streams.entry(tunnel).or_default();
        self.by_count.remove(&(streams.len(), tunnel));
        streams.push(conn);
        self.by_count.insert((streams.len(), tunnel));
    }

    /// Does nothing if there is none.
    pub(super) fn remove(&mut self, tunnel: TunnelIndex, conn: ConnId) {
        let Some(streams) = self.streams.get_mut(&tunnel) else { return };
        let Some(place) = streams.iter().rposition(|it| *it == conn) else { return };
        self.by_count.remove(&(streams.len(), tunnel));
        streams.remove(place);
        if streams.is_empty() {
            self.streams.remove(&tunnel);
        } else {
            self.by_count.insert((streams.len(), tunnel));
        }
    }

    pub(super) fn remove_tunnel(&mut self, tunnel: TunnelIndex) {
        let Some(streams) = self.streams.remove(&tunnel) else { return };
        self.by_count.remove(&(streams.len(), tunnel));
    }

    /// The newest stream of the tunnel that has most, if that has so many more than this one that giving one up for
    /// it leaves it no poorer.
    pub(super) fn richer_than(&self, tunnel: TunnelIndex) -> Option<ConnId> {
        let (most, richest) = self.by_count.last()?;
        let own = self.streams.get(&tunnel).map_or(0, Vec::len);
        let newest = self.streams.get(richest)?.last()?;
        (*most > own + 1).then_some(*newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_richest_is_known_whatever_comes_and_goes(
            steps in prop::collection::vec((0u32..5, 0u32..40, 0u8..8), 0..300),
        ) {
            let mut ranking = Ranking::default();
            let mut model: BTreeMap<TunnelIndex, Vec<ConnId>> = BTreeMap::new();
            for (tunnel, conn, kind) in steps {
                let (tunnel, conn) = (TunnelIndex(tunnel), ConnId(conn));
                let streams = model.entry(tunnel).or_default();
                match kind {
                    0..5 if !streams.contains(&conn) => {
                        ranking.add(tunnel, conn);
                        streams.push(conn);
                    }
                    5 | 6 => {
                        ranking.remove(tunnel, conn);
                        streams.retain(|it| *it != conn);
                    }
                    7 => {
                        ranking.remove_tunnel(tunnel);
                        streams.clear();
                    }
                    _ => {}
                }
                let own = model[&tunnel].len();
                let most = model.values().map(Vec::len).max().unwrap_or(0);
                let found = ranking.richer_than(tunnel);
                prop_assert_eq!(found.is_some(), most > own + 1);
                if let Some(conn) = found {
                    let is_richest = |it: &Vec<ConnId>| it.len() == most && it.last() == Some(&conn);
                    prop_assert!(model.values().any(is_richest));
                }
                prop_assert_eq!(ranking.by_count.len(), ranking.streams.len());
            }
        }
    }
}
