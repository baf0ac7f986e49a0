//! Whose vote decides a relay's weight.

use documents::Vote;
use netdoc::RsaId;
use serde::Serialize;

/// Fewer authorities with a measurement decide nothing: the consensus then has the relay's own claim (dir-spec.txt, section 3.8).
const DECIDING: usize = 3;

/// The measurement of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Measured<'a> {
    pub(super) authority: &'a str,
    pub(super) measured_kb_s: u32,
    /// Whether it is the low median, which the consensus has.
    pub(super) is_median: bool,
}

/// The votes about a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision<'a> {
    /// The smallest first; those of equal measurements in the order of the authorities' nicknames.
    pub(super) votes: Vec<Measured<'a>>,
    /// The number of authorities with any measurements, of this relay or others.
    measuring: usize,
}

impl<'a> Decision<'a> {
    pub(super) fn new(votes: &'a [Vote], relay: RsaId) -> Self {
        let measured = votes.iter().filter_map(|vote| {
            let measured_kb_s = *vote.measured_kb_s.get(&relay)?;
            Some(Measured { authority: &vote.authority, measured_kb_s, is_median: false })
        });
        let mut measured: Vec<Measured<'_>> = measured.collect();
        measured.sort_by_key(|vote| vote.measured_kb_s);
        if measured.len() >= DECIDING {
            let median = measured[(measured.len() - 1) / 2].measured_kb_s;
            for vote in &mut measured {
                vote.is_median = vote.measured_kb_s == median;
            }
        }
        let measuring = votes.iter().filter(|vote| !vote.measured_kb_s.is_empty()).count();
        Self { votes: measured, measuring }
    }

    /// The weight that the consensus has by these votes, if it is a measured one.
    pub(super) fn weight_kb_s(&self) -> Option<u32> {
        self.votes.iter().find(|vote| vote.is_median).map(|vote| vote.measured_kb_s)
    }

    /// The rule in words; empty if there are no votes.
    pub(super) fn rule(&self) -> String {
        if self.measuring == 0 {
            return String::new();
        }
        let (measured, all) = (self.votes.len(), self.measuring);
        match self.weight_kb_s() {
            Some(kb_s) => format!(
                "{measured} of {all} authorities that measure have a measurement of this relay. The consensus takes the median, of two the \
                 lower: {kb_s} KB/s."
            ),
            None => format!(
                "{measured} of {all} authorities that measure have a measurement of this relay. With fewer than {DECIDING}, the consensus \
                 takes the relay's own claim, and marks it as unmeasured, so that clients rarely use the relay."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(authority: &str, measured_kb_s: Option<u32>) -> Vote {
        let [here, other] = [1, 2].map(|byte| RsaId([byte; 20]));
        let here = measured_kb_s.map(|kb_s| (here, kb_s));
        Vote {
            authority: authority.to_owned(),
            valid_after_unix_s: 0,
            measured_kb_s: here.into_iter().chain([(other, 1)]).collect(),
        }
    }

    fn decided(measured: &[Option<u32>]) -> (Option<u32>, Vec<String>, String) {
        let votes: Vec<Vote> = ["a", "b", "c", "d", "e"]
            .iter()
            .zip(measured)
            .map(|(name, kb_s)| vote(name, *kb_s))
            .collect();
        let decision = Decision::new(&votes, RsaId([1; 20]));
        let medians = decision.votes.iter().filter(|vote| vote.is_median);
        let medians = medians.map(|vote| vote.authority.to_owned()).collect();
        (decision.weight_kb_s(), medians, decision.rule())
    }

    #[test]
    fn the_low_median_of_three_or_more_decides() {
        let (kb_s, medians, rule) = decided(&[Some(30), Some(10), Some(20)]);
        assert_eq!((kb_s, medians), (Some(20), vec!["c".to_owned()]));
        assert!(rule.starts_with("3 of 3") && rule.contains("20 KB/s"), "{rule}");
        let (kb_s, medians, _) = decided(&[Some(40), Some(10), Some(20), Some(30)]);
        assert_eq!((kb_s, medians), (Some(20), vec!["c".to_owned()]), "the lower of two");
        let (kb_s, medians, _) = decided(&[Some(5), Some(5), Some(5), None, Some(9)]);
        assert_eq!((kb_s, medians.join("")), (Some(5), "abc".to_owned()), "equal votes");
    }

    #[test]
    fn fewer_than_three_decide_nothing() {
        let (kb_s, medians, rule) = decided(&[Some(30), None, Some(20)]);
        assert_eq!((kb_s, medians.len()), (None, 0));
        assert!(rule.starts_with("2 of 3") && rule.contains("own claim"), "{rule}");
        assert_eq!(Decision::new(&[], RsaId([1; 20])).rule(), "");
    }
}
