//! Questions to the domain name system that are under way, and who waits for the answers.

use crate::node::{ConnId, Lookup, LookupId, Question};
use crate::router::circuits::TunnelIndex;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};

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
    /// For whose tunnel, and since when: until the answer, also where nobody waits for it any more.
    under_way: BTreeMap<LookupId, (TunnelIndex, Instant)>,
    counts: BTreeMap<TunnelIndex, usize>,
    made: u32,
}

impl Lookups {
    /// Whether a tunnel may ask for one more.
    pub(super) fn has_room(&self, tunnel: TunnelIndex) -> bool {
        self.counts.get(&tunnel).is_none_or(|count| *count < LOOKUPS_MAX)
    }

    /// Asks on behalf of a stream.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        tunnel: TunnelIndex,
        conn: ConnId,
        question: Question,
    ) -> LookupId {
        self.made = self.made.wrapping_add(1);
        let id = LookupId(self.made);
        self.askers.insert(id, conn);
        self.under_way.insert(id, (tunnel, now));
        *self.counts.entry(tunnel).or_default() += 1;
        self.questions.push_back(Lookup { id, question });
        id
    }

    /// The stream is over: nobody waits any more.
    pub(super) fn forget(&mut self, id: LookupId) {
        self.askers.remove(&id);
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
        let is_lost = |(_, since): &(TunnelIndex, Instant)| now - *since >= LOOKUP_MAX;
        let lost = self.under_way.iter().filter(|(_, it)| is_lost(it)).map(|(id, _)| *id);
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
        let Some((tunnel, _)) = self.under_way.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&tunnel) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tunnel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Question {
        Question::Addresses("slow.example".into())
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
        assert!(lookups.under_way.is_empty() && lookups.counts.is_empty());
    }

    #[test]
    fn a_question_that_nobody_waits_for_any_more_is_not_asked_and_takes_no_room() {
        let mut lookups = Lookups::default();
        let id = lookups.ask(Instant::ORIGIN, TunnelIndex(1), ConnId(1), name());
        lookups.forget(id);
        assert!(lookups.poll().is_none());
        assert!(lookups.counts.is_empty());
    }
}
