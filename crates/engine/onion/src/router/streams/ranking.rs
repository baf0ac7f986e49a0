use crate::node::ConnId;
use crate::router::circuits::TunnelIndex;
use crate::router::eviction::Neighbour;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Streams of one kind by tunnel and by neighbour, and which of these has most streams.
///
/// Each operation is logarithmic in the number of tunnels, plus one scan of the streams of one tunnel.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    tunnels: BTreeMap<TunnelIndex, Streams>,
    /// By neighbour, number of streams and tunnel.
    by_count: BTreeSet<(Source, usize, TunnelIndex)>,
    /// The number of streams of each neighbour.
    sources: BTreeMap<Source, usize>,
    sources_by_count: BTreeSet<(usize, Source)>,
}

/// The neighbour that created a tunnel, if neighbours matter; `None` is one source for all.
pub(super) type Source = Option<Neighbour>;

/// The streams of one tunnel.
#[derive(Debug)]
struct Streams {
    source: Source,
    /// Oldest first.
    conns: Vec<ConnId>,
}

impl Ranking {
    /// All streams of a tunnel have the same source.
    pub(super) fn add(&mut self, source: Source, tunnel: TunnelIndex, conn: ConnId) {
        let streams =
            self.tunnels.entry(tunnel).or_insert_with(|| Streams { source, conns: Vec::new() });
        let source = streams.source;
        self.by_count.remove(&(source, streams.conns.len(), tunnel));
        streams.conns.push(conn);
        self.by_count.insert((source, streams.conns.len(), tunnel));
        let count = self.of_source(source) + 1;
        self.set_source(source, count);
    }

    /// Removes a stream, if it exists.
    pub(super) fn remove(&mut self, tunnel: TunnelIndex, conn: ConnId) {
        let Some(streams) = self.tunnels.get_mut(&tunnel) else { return };
        let Some(place) = streams.conns.iter().rposition(|other| *other == conn) else { return };
        let source = streams.source;
        self.by_count.remove(&(source, streams.conns.len(), tunnel));
        streams.conns.remove(place);
        if streams.conns.is_empty() {
            self.tunnels.remove(&tunnel);
        } else {
            self.by_count.insert((source, streams.conns.len(), tunnel));
        }
        let count = self.of_source(source) - 1;
        self.set_source(source, count);
    }

    pub(super) fn remove_tunnel(&mut self, tunnel: TunnelIndex) {
        let Some(Streams { source, conns }) = self.tunnels.remove(&tunnel) else { return };
        self.by_count.remove(&(source, conns.len(), tunnel));
        let count = self.of_source(source) - conns.len();
        self.set_source(source, count);
    }

    fn of_source(&self, source: Source) -> usize {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    fn set_source(&mut self, source: Source, count: usize) {
        if let Some(before) = self.sources.remove(&source) {
            self.sources_by_count.remove(&(before, source));
        }
        if count > 0 {
            self.sources.insert(source, count);
            self.sources_by_count.insert((count, source));
        }
    }

    /// The newest stream of the tunnel that has most of the neighbour that has most, if that neighbour has at least two more than this
    /// one. Otherwise the newest stream of the tunnel that has most of this neighbour, by the same rule among tunnels.
    pub(super) fn richer_than(&self, source: Source, tunnel: TunnelIndex) -> Option<ConnId> {
        let (most, richest) = self.sources_by_count.last()?;
        if *most > self.of_source(source) + 1 && *richest != source {
            return self.richest_of(*richest).map(|(_, newest)| newest);
        }
        let own = self.tunnels.get(&tunnel).map_or(0, |streams| streams.conns.len());
        self.richest_of(source).filter(|(most, _)| *most > own + 1).map(|(_, newest)| newest)
    }

    /// The number of streams of the tunnel that has most of a neighbour, and the newest of them.
    fn richest_of(&self, source: Source) -> Option<(usize, ConnId)> {
        let last = (source, usize::MAX, TunnelIndex(u32::MAX));
        let (of, count, tunnel) = self.by_count.range(..=last).next_back()?;
        let newest = self.tunnels.get(tunnel)?.conns.last()?;
        (*of == source).then_some((*count, *newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn neighbour(number: u32) -> Source {
        Some(Neighbour::Unknown(ConnId(number)))
    }

    /// The source of a tunnel, one of this number of neighbours with some tunnels each.
    fn source_of(tunnel: TunnelIndex, neighbours: u32) -> Source {
        neighbour(tunnel.0 % neighbours).filter(|_| neighbours > 1)
    }

    proptest! {
        #[test]
        fn the_richest_is_always_known(
            neighbours in 1u32..4,
            steps in prop::collection::vec((0u32..7, 0u32..40, 0u8..8), 0..300),
        ) {
            let mut ranking = Ranking::default();
            let mut model: BTreeMap<TunnelIndex, Vec<ConnId>> = BTreeMap::new();
            for (tunnel, conn, kind) in steps {
                let (tunnel, conn) = (TunnelIndex(tunnel), ConnId(conn));
                let source = source_of(tunnel, neighbours);
                let streams = model.entry(tunnel).or_default();
                match kind {
                    0..5 if !streams.contains(&conn) => {
                        ranking.add(source, tunnel, conn);
                        streams.push(conn);
                    }
                    5 | 6 => {
                        ranking.remove(tunnel, conn);
                        streams.retain(|stream| *stream != conn);
                    }
                    7 => {
                        ranking.remove_tunnel(tunnel);
                        streams.clear();
                    }
                    _ => {}
                }
                let mut by_source: BTreeMap<Source, usize> = BTreeMap::new();
                for (tunnel, streams) in &model {
                    *by_source.entry(source_of(*tunnel, neighbours)).or_default() += streams.len();
                }
                let most_of = |of: Source| {
                    let of_it = model.iter().filter(|(tunnel, _)| source_of(**tunnel, neighbours) == of);
                    of_it.map(|(_, streams)| streams.len()).max().unwrap_or(0)
                };
                let (own_of_source, own) = (by_source[&source], model[&tunnel].len());
                let most_of_all = by_source.values().max().copied().unwrap_or(0);
                let found = ranking.richer_than(source, tunnel);
                let is_other = most_of_all > own_of_source + 1;
                prop_assert_eq!(found.is_some(), is_other || most_of(source) > own + 1);
                if let Some(conn) = found {
                    // The owner, by neighbours and then by tunnels.
                    let is_it = |(tunnel, streams): (&TunnelIndex, &Vec<ConnId>)| {
                        let of = source_of(*tunnel, neighbours);
                        let is_of = match is_other {
                            true => by_source[&of] == most_of_all,
                            false => of == source,
                        };
                        is_of && streams.len() == most_of(of) && streams.last() == Some(&conn)
                    };
                    prop_assert!(model.iter().any(is_it));
                }
                prop_assert_eq!(ranking.by_count.len(), ranking.tunnels.len());
                prop_assert_eq!(ranking.sources_by_count.len(), ranking.sources.len());
            }
        }
    }

    #[test]
    fn a_neighbour_with_many_circuits_yields_streams_to_another() {
        let mut ranking = Ranking::default();
        let (attacker, other) = (neighbour(1), neighbour(2));
        for number in 0..1_000 {
            ranking.add(attacker, TunnelIndex(number), ConnId(10 + number));
        }
        let newcomer = TunnelIndex(5_000);
        assert_eq!(
            ranking.richer_than(attacker, newcomer),
            None,
            "no circuit of it has more than one stream"
        );
        for number in 0..500 {
            let given_up = ranking.richer_than(other, newcomer).expect("the attacker has more");
            let tunnel = TunnelIndex(given_up.0 - 10);
            ranking.remove(tunnel, given_up);
            ranking.add(other, TunnelIndex(6_000 + number), ConnId(6_000 + number));
        }
        assert_eq!(ranking.richer_than(other, newcomer), None, "both have the same number");
    }
}
