//! The comparison with bandwidth files of teams at other places.

use super::{NAMED_MAX, Question, Subject, Votes, list};
use crate::gate::bias::median;
use crate::gate::{Check, CheckName, Limits, Unit};
use crate::places::{Place, UnreadPlace};
use netdoc::RsaId;

impl Subject<'_> {
    /// Compares the weights of relays that both files have: as a whole, and relay by relay. Both teams measure capacities, so weights are
    /// compared, and not shares as with other authorities.
    pub(super) fn place(&self, votes: &Votes, place: &Result<Place, UnreadPlace>) -> [Check; 2] {
        let Limits {
            deviation_percent: most,
            place_ratio_max_factor,
            place_deviating_max_percent,
            ..
        } = *self.limits;
        let ratio = Question::at_most(
            CheckName::PlaceRatio,
            place_ratio_max_factor,
            "place_ratio_max_factor",
            Unit::Factor,
        );
        let deviating = Question::at_most(
            CheckName::PlaceDeviating,
            place_deviating_max_percent,
            "place_deviating_max_percent",
            Unit::Percent,
        );
        let name = match place {
            Ok(place) => place.name.clone(),
            Err(unread) => unread.path.display().to_string(),
        };
        let named = |check: Check| Check { place: Some(name.clone()), ..check };
        let unknown = |why: String| {
            [ratio, deviating].map(|question| named(question.unknown(format!("{name}: {why}"))))
        };
        let place = match place {
            Ok(place) => place,
            Err(unread) => return unknown(unread.to_string()),
        };
        let apart_s = votes.file.timestamp.abs_diff(place.file.timestamp);
        if apart_s as f64 / 3600.0 > self.limits.age_max_h {
            let hours = apart_s / 3600;
            return unknown(format!(
                "its newest result and ours are {hours} h apart; get a file of the same time"
            ));
        }
        let theirs = Votes::new(&place.bytes, self.with);
        let theirs = theirs.map(|votes| votes.kb_s).unwrap_or_default();
        let common: Vec<(RsaId, f64, f64)> = votes
            .kb_s
            .iter()
            .filter_map(|(relay, ours)| {
                let theirs = theirs.get(relay).filter(|theirs| **theirs > 0)?;
                (*ours > 0).then_some((*relay, *ours as f64, *theirs as f64))
            })
            .collect();
        if common.is_empty() {
            return unknown("no relay has a vote in both files".to_owned());
        }
        let typical = median(common.iter().map(|(_, ours, theirs)| ours / theirs));
        let found = format!(
            "{name}: the median of {} relays that it measured, too, is {typical:.2} times the weight there",
            common.len()
        );
        let remedy = "Find out which place is wrong: flashflow bwfile explain --place compares the estimates of a relay";
        let ratio = ratio.answer(typical.max(typical.recip()), found, remedy);

        // By weight, so that many small relays that serve teams differently hold back no file: each counts with the larger of its two
        // weights.
        let larger = |(_, ours, theirs): &(RsaId, f64, f64)| ours.max(theirs * typical);
        let ratio_to = |(_, ours, theirs): &(RsaId, f64, f64)| ours / theirs / typical;
        let mut beyond: Vec<&(RsaId, f64, f64)> =
            common.iter().filter(|pair| (ratio_to(pair) - 1.0).abs() * 100.0 > most).collect();
        // Those with most weight come first.
        beyond.sort_by(|left, right| larger(right).total_cmp(&larger(left)));
        let first = beyond.iter().take(NAMED_MAX);
        let first = list(first.map(|pair| format!("{} {:.2} times", pair.0, ratio_to(pair))));
        let found = format!(
            "{name}: {} of {} relays differ by more than {most} % from the median ratio{first}",
            beyond.len(),
            common.len()
        );
        let sum: f64 = common.iter().map(larger).sum();
        let share = beyond.iter().copied().map(larger).sum::<f64>() * 100.0 / sum;
        [ratio, deviating.answer(share, found, remedy)].map(named)
    }
}
