//! Outstanding DNS queries, and the streams that wait for them.

use crate::node::{ConnId, DnsQuery, Lookup, LookupId};
use crate::router::circuits::TunnelIndex;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of outstanding queries of one tunnel. A browser resolves some tens of names at once.
///
/// The resolver has a limited number of outstanding queries, and one that no server answers is outstanding for
/// many seconds: without a limit for each tunnel, a single circuit could block all others.
pub(super) const LOOKUPS_MAX: usize = 64;

/// An unanswered query is given up after this time (C tor: `RESOLVE_MAX_TIMEOUT`).
pub(super) const LOOKUP_MAX: Duration = Duration::from_secs(300);

/// All outstanding queries.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// To be sent.
    questions: VecDeque<Lookup>,
    /// The waiting streams. Closed ones are removed.
    askers: BTreeMap<LookupId, ConnId>,
    /// The tunnel that made each query, and when: until the answer, also if no stream waits for it. `None` if
    /// the tunnel is gone, since its index may be reused.
    under_way: BTreeMap<LookupId, (Option<TunnelIndex>, Instant)>,
    by_tunnel: BTreeMap<TunnelIndex, BTreeSet<LookupId>>,
    made: u32,
}

impl Lookups {
    /// Whether a tunnel may make another query.
    pub(super) fn has_room(&self, tunnel: TunnelIndex) -> bool {
        self.by_tunnel.get(&tunnel).is_none_or(|all| all.len() < LOOKUPS_MAX)
    }

    /// Makes a query for a stream.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        tunnel: TunnelIndex,
        conn: ConnId,
        question: DnsQuery,
    ) -> LookupId {
        self.made = self.made.wrapping_add(1);
        let id = LookupId(self.made);
        self.askers.insert(id, conn);
        self.under_way.insert(id, (Some(tunnel), now));
        self.by_tunnel.entry(tunnel).or_default().insert(id);
        self.questions.push_back(Lookup { id, question });
        id
    }

    /// The stream is closed.
    pub(super) fn forget(&mut self, id: LookupId) {
        self.askers.remove(&id);
    }

    /// The tunnel is gone.
    pub(super) fn handle_tunnel_over(&mut self, tunnel: TunnelIndex) {
        for id in self.by_tunnel.remove(&tunnel).unwrap_or_default() {
            if let Some((owner, _)) = self.under_way.get_mut(&id) {
                *owner = None;
            }
        }
    }

    /// Takes the stream that made an answered query; `None` if it is gone.
    pub(super) fn take_asker(&mut self, id: LookupId) -> Option<ConnId> {
        self.end(id);
        self.askers.remove(&id)
    }

    /// The next query. Those without a waiting stream are skipped.
    pub(super) fn poll(&mut self) -> Option<Lookup> {
        loop {
            let lookup = self.questions.pop_front()?;
            if self.askers.contains_key(&lookup.id) {
                return Some(lookup);
            }
            self.end(lookup.id);
        }
    }

    /// Gives up queries that will not be answered. Called periodically.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_lost = |since: Instant| now - since >= LOOKUP_MAX;
        let lost = self.under_way.iter().filter(|(_, lookup)| is_lost(lookup.1)).map(|(id, _)| *id);
        for id in lost.collect::<alloc::vec::Vec<_>>() {
            self.end(id);
        }
    }

    /// The number of waiting streams.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.askers.len()
    }

    fn end(&mut self, id: LookupId) {
        let Some((Some(tunnel), _)) = self.under_way.remove(&id) else { return };
        if let Some(all) = self.by_tunnel.get_mut(&tunnel) {
            all.remove(&id);
            if all.is_empty() {
                self.by_tunnel.remove(&tunnel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> DnsQuery {
        DnsQuery::Addresses("slow.example".into())
    }

    #[test]
    fn outstanding_queries_of_a_tunnel_are_limited_even_after_its_streams_close() {
        let (now, one, other) = (Instant::ORIGIN, TunnelIndex(1), TunnelIndex(2));
        let mut lookups = Lookups::default();
        let ids: alloc::vec::Vec<_> = (0..LOOKUPS_MAX)
            .map(|number| {
                assert!(lookups.has_room(one), "{number}");
                lookups.ask(now, one, ConnId(u32::try_from(number).expect("few")), name())
            })
            .collect();
        while lookups.poll().is_some() {}
        // The streams are closed; the queries are not.
        ids.iter().for_each(|id| lookups.forget(*id));
        assert!(!lookups.has_room(one) && lookups.has_room(other));
        assert_eq!(lookups.take_asker(ids[0]), None);
        assert!(lookups.has_room(one));
        lookups.expire(now + LOOKUP_MAX);
        assert!(lookups.under_way.is_empty() && lookups.by_tunnel.is_empty());
    }

    #[test]
    fn a_reused_tunnel_index_inherits_no_queries() {
        let (now, tunnel) = (Instant::ORIGIN, TunnelIndex(1));
        let mut lookups = Lookups::default();
        let ask = |lookups: &mut Lookups| lookups.ask(now, tunnel, ConnId(1), name());
        let first: alloc::vec::Vec<_> = (0..LOOKUPS_MAX).map(|_| ask(&mut lookups)).collect();
        while lookups.poll().is_some() {}
        assert!(!lookups.has_room(tunnel));
        lookups.handle_tunnel_over(tunnel);
        assert!(lookups.has_room(tunnel));
        let next = ask(&mut lookups);
        // Answers to the previous tunnel's queries do not free the next one's.
        for id in first {
            lookups.take_asker(id);
        }
        assert_eq!(lookups.by_tunnel[&tunnel].len(), 1);
        assert_eq!(lookups.take_asker(next), Some(ConnId(1)));
        assert!(lookups.under_way.is_empty() && lookups.by_tunnel.is_empty());
    }

    #[test]
    fn a_query_without_a_waiting_stream_is_not_sent() {
        let mut lookups = Lookups::default();
        let id = lookups.ask(Instant::ORIGIN, TunnelIndex(1), ConnId(1), name());
        lookups.forget(id);
        assert!(lookups.poll().is_none());
        assert!(lookups.by_tunnel.is_empty());
    }
}
