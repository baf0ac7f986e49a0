//! Three attacks of the literature on the users of a relay, as areas under the curve of true against false positives.

use super::attack_world::{AttackWorld, GUARDS, VICTIMS, Watched};
use super::scenes::LinkScheduler;
use crate::correlation::Correlation;
use crate::reporting::median;
use serde::{Deserialize, Serialize};
use sim::world::{HostId, Record};

/// The areas under the curve of a run: 0.5 is guessing, 1 certainty, `None` without observations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Areas {
    /// Where is a victim? By the latency of its answers (Hopper, Vasserman and Chan-Tin, 2007).
    pub(super) latency: Option<f64>,
    /// Which guard has a victim? By the throughput of probes (Mittal and others, 2011).
    pub(super) throughput: Option<f64>,
    /// Which client is at the other end of an exit's circuit? By the traffic of each second.
    pub(super) correlation: Option<f64>,
}

/// Requests of a victim whose latency is one observation.
const REQUESTS: usize = 5;

/// Seconds over which throughput is averaged.
const BIN_S: usize = 5;

/// Plays all attacks in one run.
pub(super) fn areas(scheduler: LinkScheduler, seconds: u32, seed: u64) -> Areas {
    let world = AttackWorld::new(scheduler, seed);
    let watched = world.run(seconds, seed);
    Areas {
        latency: latency(&world, &watched),
        throughput: throughput(&world, &watched, seconds as usize),
        correlation: correlation(&world, &watched),
    }
}

/// Scores of observations that belong together, and of those that do not.
#[derive(Default)]
struct Scores {
    right: Vec<f64>,
    wrong: Vec<f64>,
}

impl Scores {
    /// Adds an observation; a score that is not finite does not count.
    fn add(&mut self, is_right: bool, score: f64) {
        if score.is_finite() {
            if is_right { &mut self.right } else { &mut self.wrong }.push(score);
        }
    }

    /// How often a right one has a larger score than a wrong one; equal scores count half. `None` without pairs.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pairs")]
    fn area(&self) -> Option<f64> {
        let over = |right: f64, wrong: f64| match right.total_cmp(&wrong) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Greater => 1.0,
        };
        let pairs = self.right.len() * self.wrong.len();
        let all = self
            .right
            .iter()
            .flat_map(|right| self.wrong.iter().map(move |wrong| over(*right, *wrong)));
        (pairs > 0).then(|| all.sum::<f64>() / pairs as f64)
    }
}

fn first_byte_s(record: &Record) -> f64 {
    record.first_byte.map_or(f64::NAN, |time| time.as_secs_f64())
}

/// The adversary knows from two clients of its own, near and far, how distance delays the first byte behind each guard, and guesses which of
/// the places a victim is at. The near client is at the first place, and the far one at the last.
#[expect(clippy::cast_precision_loss, reason = "few places")]
fn latency(world: &AttackWorld, watched: &Watched) -> Option<f64> {
    let usual = |host: HostId| median(watched.downloads(host).map(first_byte_s));
    let mut scores = Scores::default();
    for (number, victim) in world.victims.iter().enumerate() {
        let guard = number % GUARDS;
        let Some((near, far)) = usual(world.near[guard]).zip(usual(world.far[guard])) else {
            continue;
        };
        let times: Vec<f64> = watched.downloads(*victim).map(first_byte_s).collect();
        for group in times.chunks_exact(REQUESTS) {
            let time = median(group.iter().copied()).unwrap_or(f64::NAN);
            let place = 1.0 + (time - near) / (far - near) * (VICTIMS - 1) as f64;
            for guess in 1..=VICTIMS {
                let distance = (place - guess as f64).abs();
                scores.add(guess == number + 1, -distance);
            }
        }
    }
    scores.area()
}

/// A probe of the victim's guard is slow when the victim is.
fn throughput(world: &AttackWorld, watched: &Watched, seconds: usize) -> Option<f64> {
    let rates = |host: &HostId| rates(watched.downloads(*host), seconds);
    let probes: Vec<_> = world.near.iter().map(rates).collect();
    let mut scores = Scores::default();
    for (number, victim) in world.victims.iter().enumerate() {
        let victim = rates(victim);
        for (guard, probe) in probes.iter().enumerate() {
            let both = victim.iter().zip(probe).filter_map(|(one, other)| (*one).zip(*other));
            let correlation = Correlation::from_pairs(&both.collect::<Vec<_>>());
            scores.add(guard == number % GUARDS, correlation.coefficient);
        }
    }
    scores.area()
}

/// The rate of downloads while they receive, in each bin; `None` without any.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn rates<'r>(records: impl Iterator<Item = &'r Record>, seconds: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0.0); seconds.div_ceil(BIN_S)];
    for record in records {
        let (Some(first), Some(last)) = (record.first_byte, record.last_byte) else { continue };
        let [from, to] = [first, last].map(|time| (record.begun + time).as_nanos() as f64 * 1e-9);
        let rate = record.bytes as f64 / (to - from).max(1e-3);
        for (bin, (bytes, active)) in sums.iter_mut().enumerate() {
            let start = (bin * BIN_S) as f64;
            let overlap = (to.min(start + BIN_S as f64) - from.max(start)).max(0.0);
            *bytes += rate * overlap;
            *active += overlap;
        }
    }
    sums.into_iter().map(|(bytes, active)| (active > 0.0).then(|| bytes / active)).collect()
}

/// A client acknowledges what an exit has sent for it.
fn correlation(world: &AttackWorld, watched: &Watched) -> Option<f64> {
    let mut scores = Scores::default();
    for (number, exit) in world.exits.iter().enumerate() {
        let sent = watched.sent(*exit);
        for (other, victim) in world.victims.iter().enumerate() {
            let acknowledged = watched.sent(*victim);
            let both: Vec<_> = sent.iter().copied().zip(acknowledged).collect();
            scores.add(number == other, Correlation::from_pairs(&both).coefficient);
        }
    }
    scores.area()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_the_share_of_pairs_in_the_right_order() {
        let scores = Scores { right: vec![3.0, 1.0], wrong: vec![0.0, 1.0, 2.0] };
        // 3 is over all of them, 1 over one and equal to another.
        assert_eq!(scores.area(), Some(4.5 / 6.0));
        assert_eq!(Scores::default().area(), None);
        let mut scores = Scores { right: vec![1.0], wrong: Vec::new() };
        scores.add(false, Correlation::from_pairs(&[(1.0, 3.0), (1.0, 2.0)]).coefficient);
        assert_eq!(scores.area(), None, "a constant has no correlation");
    }

    #[test]
    fn the_attacks_work_and_are_repeatable() {
        let found = areas(LinkScheduler::Vanilla, 40, 1);
        assert_eq!(found, areas(LinkScheduler::Vanilla, 40, 1));
        assert!(found.latency > Some(0.6) && found.correlation > Some(0.7), "{found:?}");
        assert!(found.throughput > Some(0.5), "{found:?}");
    }
}
