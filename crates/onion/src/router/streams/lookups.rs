//! Questions to the domain name system that are under way, and who waits for the answers.

use crate::node::{ConnId, DnsQuery, Lookup, LookupId};
use crate::router::circuits::TunnelIndex;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Questions of one tunnel that are under way, at most. A browser asks for some tens of names at once.
///
/// Who looks names up has room for so many questions of all, and one that no server ever answers takes its room for many
/// seconds: without a bound of each, a single circuit would keep all others from their names.
pub(super) const LOOKUPS_MAX: usize = 64;

/// A lookup that is not answered for so long never will be (C tor: `RESOLVE_MAX_TIMEOUT`).
pub(super) const LOOKUP_MAX: Duration = Duration::from_secs(300);

/// All questions under way.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// To be asked.
    questions: VecDeque<Lookup>,
    /// The streams that wait. Of those that are over there is none.
    askers: BTreeMap<LookupId, ConnId>,
    /// For whose tunnel, and since when: until the answer, also where nobody waits for it any more. None where the tunnel is
    /// gone: its number is another's then.
    under_way: BTreeMap<LookupId, (Option<TunnelIndex>, Instant)>,
    by_tunnel: BTreeMap<TunnelIndex, BTreeSet<LookupId>>,
    made: u32,
}

impl Lookups {
    /// Whether a tunnel may ask for one more.
    pub(super) fn has_room(&self, tunnel: TunnelIndex) -> bool {
        self.by_tunnel.get(&tunnel).is_none_or(|all| all.len() < LOOKUPS_MAX)
    }

    /// Asks on behalf of a stream.
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

    /// The stream is over: nobody waits any more.
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

    /// The stream that has asked this, which is answered; none if it is gone.
    pub(super) fn take_asker(&mut self, id: LookupId) -> Option<ConnId> {
        self.end(id);
        self.askers.remove(&id)
    }

    /// The next question. Those for which nobody waits are not asked.
    pub(super) fn poll(&mut self) -> Option<Lookup> {
        loop {
            let lookup = self.questions.pop_front()?;
            if self.askers.contains_key(&lookup.id) {
                return Some(lookup);
            }
            self.end(lookup.id);
        }
    }

    /// Gives up those that will not be answered any more. Once in a while.
    pub(super) fn keep_up(&mut self, now: Instant) {
        let is_lost = |since: Instant| now - since >= LOOKUP_MAX;
        let lost = self.under_way.iter().filter(|(_, it)| is_lost(it.1)).map(|(id, _)| *id);
        for id in lost.collect::<alloc::vec::Vec<_>>() {
            self.end(id);
        }
    }

    /// Streams that wait for answers.
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
    fn a_tunnel_has_so_many_questions_under_way_and_no_more_whatever_becomes_of_its_streams() {
        let (now, one, other) = (Instant::ORIGIN, TunnelIndex(1), TunnelIndex(2));
        let mut lookups = Lookups::default();
        let ids: alloc::vec::Vec<_> = (0..LOOKUPS_MAX)
            .map(|number| {
                assert!(lookups.has_room(one), "{number}");
                lookups.ask(now, one, ConnId(u32::try_from(number).expect("few")), name())
            })
            .collect();
        while lookups.poll().is_some() {}
        // The streams are over; the questions are not.
        ids.iter().for_each(|id| lookups.forget(*id));
        assert!(!lookups.has_room(one) && lookups.has_room(other));
        assert_eq!(lookups.take_asker(ids[0]), None);
        assert!(lookups.has_room(one));
        lookups.keep_up(now + LOOKUP_MAX);
        assert!(lookups.under_way.is_empty() && lookups.by_tunnel.is_empty());
    }

    #[test]
    fn whoever_gets_the_number_of_a_tunnel_that_is_gone_does_not_get_its_questions() {
        let (now, tunnel) = (Instant::ORIGIN, TunnelIndex(1));
        let mut lookups = Lookups::default();
        let ask = |lookups: &mut Lookups| lookups.ask(now, tunnel, ConnId(1), name());
        let first: alloc::vec::Vec<_> = (0..LOOKUPS_MAX).map(|_| ask(&mut lookups)).collect();
        while lookups.poll().is_some() {}
        assert!(!lookups.has_room(tunnel));
        lookups.handle_tunnel_over(tunnel);
        assert!(lookups.has_room(tunnel));
        let next = ask(&mut lookups);
        // Answers to the former one's are no room for the next one's.
        for id in first {
            lookups.take_asker(id);
        }
        assert_eq!(lookups.by_tunnel[&tunnel].len(), 1);
        assert_eq!(lookups.take_asker(next), Some(ConnId(1)));
        assert!(lookups.under_way.is_empty() && lookups.by_tunnel.is_empty());
    }

    #[test]
    fn a_question_that_nobody_waits_for_any_more_is_not_asked_and_takes_no_room() {
        let mut lookups = Lookups::default();
        let id = lookups.ask(Instant::ORIGIN, TunnelIndex(1), ConnId(1), name());
        lookups.forget(id);
        assert!(lookups.poll().is_none());
        assert!(lookups.by_tunnel.is_empty());
    }
}
