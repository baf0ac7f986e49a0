//! Answers that are known.

use onion::node::{DnsAnswer, DnsQuery};
use onion::{Duration, Instant};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};

/// Answers at a time.
const ANSWERS_MAX: usize = 16_384;

/// How long one holds, in seconds. The least is what spares name servers; the most, how old an address may be.
///
/// As C tor does, and for its reasons: a relay serves all its clients from one cache. Were each answer kept for as
/// long as its record says, whoever asks for a name again and again would see to the second when another
/// client first asked for it. So each is kept for a time that is drawn by lot, whatever its record says, and nobody is told it.
const HOLDS_S: std::ops::Range<u64> = 180..480;

/// The same for a name that does not exist: it may exist soon.
const NO_NAME_HOLDS_S: std::ops::Range<u64> = 30..90;

/// Answers by their questions, each until a time of its own.
#[derive(Debug)]
pub(super) struct Cache {
    answers: BTreeMap<DnsQuery, (Instant, DnsAnswer)>,
    /// When each goes.
    ends: BTreeSet<(Instant, DnsQuery)>,
    rng: StdRng,
}

impl Cache {
    pub(super) const fn new(rng: StdRng) -> Self {
        Self { answers: BTreeMap::new(), ends: BTreeSet::new(), rng }
    }

    /// The answer, if it is known and still holds.
    pub(super) fn find(&mut self, now: Instant, question: &DnsQuery) -> Option<DnsAnswer> {
        while let Some((end, _)) = self.ends.first()
            && *end <= now
        {
            self.drop_first();
        }
        self.answers.get(question).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer. A failure is none: the next may succeed.
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

    /// For how long it holds this, in whole seconds.
    fn holds_s(cache: &mut Cache, begin: Instant, number: usize, answer: &DnsAnswer) -> u64 {
        cache.keep(begin, question(number), answer);
        let at = |second| begin + Duration::from_secs(second);
        (0..).find(|second| cache.find(at(*second), &question(number)).is_none()).expect("it ends")
    }

    #[test]
    fn how_long_an_answer_holds_is_drawn_anew_each_time() {
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
    fn it_has_a_bound_and_forgets_nothing_halfway() {
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
