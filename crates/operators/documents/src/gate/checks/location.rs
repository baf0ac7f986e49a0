//! The checks whether estimates depend on the location of relays.

use super::{NO_OTHERS, Question, Subject, Votes};
use crate::gate::bias::{self, GroupDifference, NETWORKS_MIN, Pair};
use crate::gate::{Check, CheckName, Unit};
use netdoc::RsaId;
use std::collections::BTreeMap;

/// Groups by distance from the measurers.
const DISTANCES: usize = 5;

impl Subject<'_> {
    pub(super) fn biases(&self, votes: &Votes) -> [Check; 2] {
        let limit = self.limits.bias_max_percent;
        let name = "bias_max_percent";
        let distance = Question::at_most(CheckName::BiasByDistance, limit, name, Unit::Percent);
        let country = Question::at_most(CheckName::BiasByCountry, limit, name, Unit::Percent);
        let common = self.common(votes);
        let Some(others) = self.with.others.filter(|_| !common.is_empty()) else {
            return [distance, country].map(|question| question.unknown(NO_OTHERS));
        };
        let address = |relay: &RsaId| {
            let router = self.with.consensus.and_then(|consensus| consensus.by_fingerprint(relay));
            router.map(|router| router.address).or_else(|| others.measurable.get(relay).copied())
        };
        let located: Vec<(RsaId, Pair)> = common
            .iter()
            .filter_map(|(relay, ours, theirs)| {
                let (ours, theirs) = (*ours, *theirs);
                Some((*relay, Pair { address: address(relay)?, ours, theirs }))
            })
            .collect();
        let pairs: Vec<Pair> = located.iter().map(|(_, pair)| *pair).collect();
        let rest = bias::without_size(&pairs);
        let networks = bias::by_network(pairs.iter().map(|pair| pair.address).zip(rest));
        let network = |pair: &Pair| {
            let [a, b, c, _] = pair.address.octets();
            [a, b, c]
        };
        let distance = match self.with.round_trips_ms {
            None => distance.unknown("round trips to relays are not known (--store)"),
            Some(round_trips_ms) => {
                let known = located
                    .iter()
                    .filter_map(|(relay, pair)| Some((pair.address, *round_trips_ms.get(relay)?)));
                let far = bias::by_network(known);
                let mut values: Vec<(f64, f64)> = far
                    .iter()
                    .filter_map(|(place, ms)| Some((*ms, *networks.get(place)?)))
                    .collect();
                values.sort_by(|left, right| left.0.total_cmp(&right.0));
                self.bias(distance, &by_distance(&values), |group| {
                    let (from, to) = (quantile(&values, *group), quantile(&values, group + 1));
                    format!("at {from:.0} to {to:.0} ms from the measurers")
                })
            }
        };
        let country = match self.with.countries {
            None => country.unknown("the countries of addresses are not known (--geoip)"),
            Some(countries) => {
                let found = located.iter().filter_map(|(_, pair)| {
                    Some((network(pair), countries.find(pair.address.into())?))
                });
                let found: BTreeMap<_, _> = found.collect();
                let values = found.into_iter();
                let values: Vec<_> = values
                    .filter_map(|(place, country)| Some((country, *networks.get(&place)?)))
                    .collect();
                self.bias(country, &values, |country| format!("in {country}"))
            }
        };
        [distance, country]
    }

    fn bias<G: Ord + Clone>(
        &self,
        question: Question,
        values: &[(G, f64)],
        name: impl Fn(&G) -> String,
    ) -> Check {
        let differences = bias::differences(values);
        let least =
            differences.iter().min_by(|left, right| left.probability.total_cmp(&right.probability));
        let Some(least) = least else {
            return question.unknown(format!(
                "no group has {NETWORKS_MIN} networks, with as many outside it: {} networks in all",
                values.len()
            ));
        };
        let level = self.limits.bias_level;
        let clear = differences.iter().filter(|difference| difference.probability < level);
        let largest = clear.max_by(|left, right| left.percent().total_cmp(&right.percent()));
        let groups = differences.len();
        let Some(largest) = largest else {
            let found = format!(
                "relays of none of {groups} groups differ from the others beyond chance; the least probable, {}: p = {:.2}",
                name(&least.group),
                least.probability
            );
            return question.answer(0.0, found, "");
        };
        let GroupDifference { group, networks, log_ratio, probability } = largest;
        let verb = if *log_ratio < 0.0 { "less" } else { "more" };
        let found = format!(
            "relays {} get {:.2} times what others give them, compared with all other relays, which is {verb} ({networks} networks, \
             p = {probability:.1e}, {groups} groups)",
            name(group),
            log_ratio.exp()
        );
        let remedy =
            "Find out who is wrong about them: compare with files of other places (--place)";
        question.answer(largest.percent(), found, remedy)
    }
}

/// The values, in order of their distances, in groups of equal size.
fn by_distance(sorted: &[(f64, f64)]) -> Vec<(usize, f64)> {
    let group = |place: usize| place * DISTANCES / sorted.len().max(1);
    sorted.iter().enumerate().map(|(place, (_, value))| (group(place), *value)).collect()
}

/// The distance at which a group begins, or the largest one.
fn quantile(sorted: &[(f64, f64)], group: usize) -> f64 {
    let place = (group * sorted.len()).div_ceil(DISTANCES).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(0.0, |(distance, _)| *distance)
}
