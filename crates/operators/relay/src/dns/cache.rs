//! Cached answers.

use onion::node::{DnsAnswer, DnsQuery};
use onion::{Duration, Instant};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on answers.
const ANSWERS_MAX: usize = 16_384;

/// The lifetime of an answer, in seconds. The minimum spares name servers; the maximum limits the
/// age of an address.
///
/// As in C tor, lifetimes are random: a relay serves all clients from one cache. If each answer
/// lived as long as its record says, an adversary that resolves a name repeatedly could learn to
/// the second when another client first resolved it. The lifetime is therefore independent of the
/// record and never disclosed.
const HOLDS_S: std::ops::Range<u64> = 180..480;

/// The lifetime for a name that does not exist: it may exist soon.
const NO_NAME_HOLDS_S: std::ops::Range<u64> = 30..90;

/// Answers by their queries, each with its own expiry.
#[derive(Debug)]
pub(super) struct Cache {
    answers: BTreeMap<DnsQuery, (Instant, DnsAnswer)>,
    /// When each expires.
    ends: BTreeSet<(Instant, DnsQuery)>,
    rng: StdRng,
}

impl Cache {
    pub(super) const fn new(rng: StdRng) -> Self {
        Self { answers: BTreeMap::new(), ends: BTreeSet::new(), rng }
    }

    /// The cached answer, if it has not expired.
    pub(super) fn find(&mut self, now: Instant, question: &DnsQuery) -> Option<DnsAnswer> {
        while let Some((end, _)) = self.ends.first()
            && *end <= now
        {
            self.drop_first();
        }
        self.answers.get(question).map(|(_, answer)| answer.clone())
    }

    /// Stores an answer. Failures are not stored: the next query may succeed.
    pub(super) fn keep(&mut self, now: Instant, question: DnsQuery, answer: &DnsAnswer) {
        let holds_s = match answer {
            DnsAnswer::Addresses(_) | DnsAnswer::Name(_) => HOLDS_S,
            DnsAnswer::NoSuchName => NO_NAME_HOLDS_S,
            DnsAnswer::Failed => return,
        };
        let millis = self.rng.random_range(holds_s.start * 1000..holds_s.end * 1000);
        let end = now + Duration::from_millis(millis);
        if let Some((before, _)) = self.answers.insert(question.clone(), (end, answer.clone())) {
            self.ends.remove(&(before, question.clone()));
        }
        self.ends.insert((end, question));
        if self.answers.len() > ANSWERS_MAX {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, question)) = self.ends.pop_first() {
            self.answers.remove(&question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn question(number: usize) -> DnsQuery {
        DnsQuery::Addresses(format!("{number}.test"))
    }

    fn answer() -> DnsAnswer {
        DnsAnswer::Addresses(vec![[192, 0, 2, 1].into()])
    }

    /// The lifetime of an answer, in whole seconds.
    fn holds_s(cache: &mut Cache, begin: Instant, number: usize, answer: &DnsAnswer) -> u64 {
        cache.keep(begin, question(number), answer);
        let at = |second| begin + Duration::from_secs(second);
        (0..).find(|second| cache.find(at(*second), &question(number)).is_none()).expect("it ends")
    }

    #[test]
    fn lifetimes_are_random() {
        let mut cache = Cache::new(StdRng::seed_from_u64(1));
        let begin = Instant::from_millis(7);
        let all: BTreeSet<u64> =
            (0..50).map(|_| holds_s(&mut cache, begin, 1, &answer())).collect();
        assert!(all.len() > 30, "{all:?}");
        assert!(all.iter().all(|second| (180..=480).contains(second)), "{all:?}");
        let none = holds_s(&mut cache, begin, 1, &DnsAnswer::NoSuchName);
        assert!((30..=90).contains(&none), "{none}");
        assert_eq!(holds_s(&mut cache, begin, 1, &DnsAnswer::Failed), 0);
    }

    #[test]
    fn the_number_of_cached_answers_is_limited_and_expired_ones_are_removed() {
        let mut cache = Cache::new(StdRng::seed_from_u64(2));
        let begin = Instant::from_millis(7);
        for number in 0..ANSWERS_MAX + 100 {
            cache.keep(begin, question(number), &answer());
            cache.keep(begin, question(number), &answer());
        }
        assert_eq!((cache.answers.len(), cache.ends.len()), (ANSWERS_MAX, ANSWERS_MAX));
        assert_eq!(cache.find(begin + Duration::from_secs(480), &question(1)), None);
        assert_eq!((cache.answers.len(), cache.ends.len()), (0, 0));
    }
}
