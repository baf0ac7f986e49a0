//! Times to the last byte of many simultaneous circuits over a star of random relays.

use super::Begin;
use super::chain::{CELL_KB, RELAYS, WIDE_MBIT};
use super::model::cells_per_s;
use crate::reporting::median;
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series, Value};
use serde_json::json;
use sim::star::{StarCircuit, StarNode};

/// Simultaneous circuits over a star.
pub(super) const CIRCUITS: usize = 50;
/// The size of each circuit's transfer.
pub(super) const TRANSFER_KB: f64 = 500.0;
/// The relays of a star, which circuits share.
const STAR_RELAYS: usize = 30;

/// The required gain of the best quantile: the paper has "up to 0.5 seconds".
const GAIN_S: f64 = 0.5;

const CAPTION: &str = "Compare the lower half of the paper's figure 1: transfers take up to 3 s, and CircuitStart \
                       gains up to 0.5 s at some quantiles.";

/// Times to the last byte in seconds, by start-up algorithm.
pub(super) struct Times(Vec<(Begin, Vec<f64>)>);

/// Times to the last byte over one star in seconds, for each of [`Begin::ALL`]; `None` if a transfer did not complete.
pub(super) type Star = Vec<Vec<Option<f64>>>;

/// Simulates a star.
pub(super) fn star(delay: Duration, seed: u64) -> Star {
    Begin::ALL.map(|begin| simulate_star(begin, delay, seed)).into()
}

impl Times {
    /// The times of all these stars.
    pub(super) fn from_stars(stars: &[Star]) -> Self {
        let times = |nth| {
            let times = stars.iter().filter_map(move |star: &Star| star.get(nth)).flatten();
            times.map(|time: &Option<f64>| time.unwrap_or(f64::INFINITY)).collect()
        };
        Self(Begin::ALL.into_iter().enumerate().map(|(nth, begin)| (begin, times(nth))).collect())
    }

    fn begun_by(&self, begin: Begin) -> &[f64] {
        self.0.iter().find(|(its, _)| *its == begin).map_or(&[], |(_, times)| times)
    }

    /// A case for each start-up algorithm.
    pub(super) fn cases(&self) -> Vec<Case> {
        let baseline = self.begun_by(Begin::BackTap);
        self.0.iter().map(|(begin, times)| star_case(*begin, times, baseline)).collect()
    }

    /// The results of `CircuitStart`, for the JSON summary.
    pub(super) fn summary(&self) -> Value {
        let (times, baseline) = (self.begun_by(Begin::CircuitStart), self.begun_by(Begin::BackTap));
        let (_, largest) = gains(times, baseline);
        json!({
            "median_ttlb_s": median_of(times),
            "median_ttlb_baseline_s": median_of(baseline),
            "largest_gain_s": round(largest),
        })
    }

    pub(super) fn cdf(&self) -> ExperimentFigure {
        let title = "Time to the last byte of 50 simultaneous circuits";
        let (x, y) = (Axis::new("seconds"), Axis::new("share of circuits"));
        let figure = ExperimentFigure::new("star", title, x, y).caption(CAPTION);
        self.0.iter().enumerate().fold(figure, |figure, (nth, (begin, times))| {
            let shares = (1..).map(|percent| f64::from(percent) / 100.0);
            let points = quantiles(times).into_iter().zip(shares).collect();
            figure.with(Series::steps(begin.name(), Role::Nth(nth), points))
        })
    }
}

fn simulate_star(begin: Begin, delay: Duration, seed: u64) -> Vec<Option<f64>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut star = sim::star::Star::default();
    let relays: Vec<usize> = (0..STAR_RELAYS)
        .map(|_| {
            let mbit = 10f64.powf(rng.random_range(1.0..2.0));
            let delay = Duration::from_millis(rng.random_range(2..=20));
            star.add_node(StarNode::new(cells_per_s(mbit), delay))
        })
        .collect();
    for _ in 0..CIRCUITS {
        let end = StarNode::new(cells_per_s(WIDE_MBIT), delay);
        let mut path = vec![star.add_node(end)];
        path.extend(sample(&mut rng, relays.len(), RELAYS).iter().map(|place| relays[place]));
        path.push(star.add_node(end));
        let begins = Instant::ORIGIN + Duration::from_millis(rng.random_range(0..100));
        // The nodes of the star send single cells.
        let windows = (0..=RELAYS).map(|_| begin.window(Duration::ZERO)).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some cells")]
        let cells = (TRANSFER_KB / CELL_KB).ceil() as u64;
        star.add_circuit(StarCircuit { path, cells, begins, windows });
    }
    star.run(Instant::ORIGIN + Duration::from_secs(600));
    star.results().iter().map(|circuit| circuit.last_byte.map(|at| at.as_secs_f64())).collect()
}

/// Values at the quantiles of 1 to 99 %.
fn quantiles(times: &[f64]) -> Vec<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (1..100).filter_map(|percent| sorted.get(sorted.len() * percent / 100).copied()).collect()
}

/// The smallest and the largest gain over all quantiles.
fn gains(times: &[f64], baseline: &[f64]) -> (f64, f64) {
    let pairs = quantiles(baseline).into_iter().zip(quantiles(times));
    pairs.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, largest), (baseline, time)| {
        (least.min(baseline - time), largest.max(baseline - time))
    })
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn median_of(times: &[f64]) -> Option<f64> {
    median(times.iter().copied()).map(round)
}

fn star_case(begin: Begin, times: &[f64], baseline: &[f64]) -> Case {
    let (least, largest) = gains(times, baseline);
    let case = Case::named(format!("star, {}", begin.name()))
        .column("begin", begin.name())
        .column("median_ttlb_s", median_of(times))
        .column("median_ttlb_baseline_s", median_of(baseline))
        .column("largest_gain_s", round(largest))
        .column("least_gain_s", round(least));
    let detail = format!(
        "median {:.3} s; compared with BackTap alone the quantiles gain {least:.3} to {largest:.3} s",
        median_of(times).unwrap_or(f64::NAN),
    );
    match begin {
        Begin::CircuitStart | Begin::Again => {
            // A loss of a millisecond is noise.
            let has_gained = least >= -0.001 && largest >= GAIN_S;
            case.ended(CaseVerdict::of(has_gained), detail)
        }
        _ => case.ended(CaseVerdict::Reported, format!("for comparison: {detail}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worse_quantile_or_a_small_gain_is_a_miss() {
        let baseline: Vec<f64> = (0..200).map(|number| 2.0 + f64::from(number) * 0.01).collect();
        let verdict = |gain: &dyn Fn(usize) -> f64| {
            let times: Vec<f64> =
                baseline.iter().enumerate().map(|(place, time)| time - gain(place)).collect();
            star_case(Begin::CircuitStart, &times, &baseline).verdict
        };
        assert_eq!(verdict(&|_| 0.6), CaseVerdict::Held);
        assert_eq!(verdict(&|_| 0.4), CaseVerdict::Missed);
        assert_eq!(verdict(&|place| if place < 100 { 0.6 } else { -0.1 }), CaseVerdict::Missed);
    }
}
