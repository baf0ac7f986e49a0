//! Links of the network without users: paths that cover them, and their round trips compared with the truth.

use super::judge::{rounded, with};
use super::network::SelectionNetwork;
use super::uniform;
use crate::error::{Error, Result};
use crate::simulated::Interval;
use client::NetDir;
use client::model::{Model, Pair};
use client::probe::Subject;
use lab::processors::Load;
use onion::Duration;
use rand::rngs::StdRng;
use report::experiment::{Case, CaseVerdict};
use std::collections::BTreeSet;

/// The maximum relative error of a link's round trip.
const CLOSE: f64 = 0.10;
/// If the processors were busier than this, an error is inconclusive.
const BUSY: f64 = 0.9;
/// The number of random paths from which the one with the most new links is taken.
const CANDIDATES: u32 = 30;

/// Draws paths of three hops that cover many links.
pub(super) fn covering(view: &NetDir, count: u32, rng: &mut StdRng) -> Result<Vec<Subject>> {
    let mut covered = BTreeSet::new();
    let mut all = Vec::new();
    for _ in 0..count {
        let candidates = uniform(view, 3, CANDIDATES, rng)?;
        let new_links =
            |subject: &Subject| pairs(subject).filter(|pair| !covered.contains(pair)).count();
        let best = candidates.into_iter().max_by_key(new_links);
        let best = best.ok_or_else(|| Error::Failed("uniform: no path".to_owned()))?;
        covered.extend(pairs(&best));
        all.push(best);
    }
    Ok(all)
}

fn pairs(subject: &Subject) -> impl Iterator<Item = Pair> {
    subject.path.windows(2).map(|link| Pair::new(link[0], link[1]))
}

/// Compares links' round trips with the truth; `None` without distances.
pub(super) fn case(model: &Model, network: &SelectionNetwork, load: Load) -> Option<Case> {
    let of_link = |pair: &Pair, rtt_ms: Option<f64>| {
        let [a, b] = pair.ends();
        Some((rtt_ms?, network.true_rtt(a, b)?))
    };
    let all: Vec<(f64, Duration)> = model
        .links()
        .iter()
        .filter_map(|(parameter, link)| of_link(parameter, link.rtt_ms))
        .collect();
    (!all.is_empty()).then(|| compared(&all, load))
}

fn compared(links: &[(f64, Duration)], load: Load) -> Case {
    let error = |(rtt_ms, truth): &(f64, Duration)| rtt_ms / (truth.as_secs_f64() * 1e3) - 1.0;
    let errors: Vec<f64> = links.iter().map(error).collect();
    let worst = errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
    let close = errors.iter().filter(|error| error.abs() <= CLOSE).count();
    let mean = Interval::of(&errors);
    let verdict = match close == errors.len() {
        true => CaseVerdict::Held,
        false if load.machine > BUSY => CaseVerdict::Inconclusive,
        false => CaseVerdict::Missed,
    };
    let detail = format!(
        "{close} of {} within 10 % of the truth; maximum error {:.1} %, mean error {:+.1} %; processors {:.0} % busy",
        errors.len(),
        worst * 100.0,
        mean.mean * 100.0,
        load.machine * 100.0,
    );
    let case = Case::named("links' round trips")
        .column("links", errors.len())
        .column("within_tenth", close)
        .column("worst_error", rounded(worst))
        .column("machine_used", rounded(load.machine));
    with(case, "mean_error", mean).ended(verdict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_wrong_link_is_a_miss_unless_the_machine_was_busy() {
        let ms = Duration::from_millis;
        let close = [(109.0, ms(100)), (36.1, ms(40))];
        let off = [(100.0, ms(100)), (44.1, ms(40))];
        let (calm, busy) = (Load::default(), Load { machine: 0.95, ..Load::default() });
        assert_eq!(compared(&close, busy).verdict, CaseVerdict::Held);
        assert_eq!(compared(&off, calm).verdict, CaseVerdict::Missed);
        assert_eq!(compared(&off, busy).verdict, CaseVerdict::Inconclusive);
        assert!(compared(&off, calm).detail.starts_with("1 of 2 within 10 %"));
    }
}
