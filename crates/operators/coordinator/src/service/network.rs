//! What the circuits of all relays show: how many are bad, and what a slow download is.

use super::{ALTERNATIVES, CircuitOutcome, FRAMED, ProbedCircuit, SLOW};
use crate::stats::median;
use alloc::vec::Vec;
use onion::Rate;

/// Days with circuits over which bad ones are counted.
const DAYS: usize = 7;

/// What is assumed before there are circuits: 5 of 100 are bad.
const PRIOR: Counts = Counts { circuits: 100, bad: 5 };

/// The number of downloads of a day from which their median is computed, at least and at most.
const DOWNLOADS: (usize, usize) = (20, 4096);

/// The prober's last circuits: if all of them failed, its own connection may be the cause.
const LAST: u8 = 0b1111;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    circuits: u64,
    bad: u64,
}

/// What a circuit adds to the log likelihood ratio of a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) if_bad: f64,
    pub(super) if_good: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NetworkState {
    day: Option<u64>,
    /// Today first. Only circuits without a relay in doubt.
    days: [Counts; DAYS],
    /// Rates of today's downloads, in bytes per second.
    downloads: Vec<u64>,
    /// The median of the downloads of the day before.
    median: Option<Rate>,
    /// A bit for each of the last circuits, set if it failed.
    failed: u8,
    /// *b* at the start of the day.
    bad_share: f64,
    steps: [Step; ALTERNATIVES.len()],
}

impl NetworkState {
    /// Uses what the circuits of the days before showed.
    pub(super) fn begin_day(&mut self, day: u64) {
        if self.day == Some(day) {
            return;
        }
        self.day = Some(day);
        let total = self.days.iter().fold(PRIOR, |sum, counts| Counts {
            circuits: sum.circuits + counts.circuits,
            bad: sum.bad + counts.bad,
        });
        self.days.rotate_right(1);
        self.days[0] = Counts::default();
        self.bad_share = total.bad as f64 / total.circuits as f64;
        if self.downloads.len() >= DOWNLOADS.0 {
            self.downloads.sort_unstable();
            self.median = median(&self.downloads).map(Rate::from_byte_per_s);
        }
        self.downloads.clear();
        let with = |share: f64| self.bad_share + (1.0 - self.bad_share) * share;
        let honest = with(FRAMED);
        self.steps = ALTERNATIVES.map(|(_, dropped)| Step {
            if_bad: libm::log(with(dropped) / honest),
            if_good: libm::log((1.0 - with(dropped)) / (1.0 - honest)),
        });
    }

    pub(super) fn is_bad(&self, circuit: &ProbedCircuit<'_>) -> bool {
        let CircuitOutcome::Worked { download } = circuit.outcome else { return true };
        let expected = self
            .median
            .zip(circuit.slowest_estimate)
            .map(|(median, estimate)| median.min(estimate));
        download.zip(expected).is_some_and(|(rate, expected)| rate < expected.scaled(SLOW))
    }

    /// Whether one of the prober's last circuits worked.
    pub(super) const fn prober_works(&self) -> bool {
        self.failed & LAST != LAST
    }

    pub(super) fn add(&mut self, outcome: CircuitOutcome, is_bad: bool, counts: bool) {
        self.failed = (self.failed << 1) | u8::from(outcome == CircuitOutcome::Failed);
        if counts {
            self.days[0].circuits += 1;
            self.days[0].bad += u64::from(is_bad);
        }
        if let CircuitOutcome::Worked { download: Some(rate) } = outcome
            && self.downloads.len() < DOWNLOADS.1
        {
            self.downloads.push(rate.as_byte_per_s());
        }
    }

    pub(super) const fn bad_share(&self) -> f64 {
        self.bad_share
    }

    pub(super) const fn steps(&self) -> &[Step; ALTERNATIVES.len()] {
        &self.steps
    }
}
