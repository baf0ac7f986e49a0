//! The number of cells that circuits have sent recently: an exponentially weighted moving average like C tor's
//! `circuitmux_ewma.c` (Tang and Goldberg, "An Improved Algorithm for Tor Circuit Scheduling").

use super::SchedulerConfig;
use crate::time::{Duration, Instant};

/// The decay of counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decay {
    tick_ns: u64,
    /// Half-lives per tick.
    halflives_per_tick: f64,
}

/// A time on the scale of the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EwmaTick {
    /// Ticks since the origin.
    pub(super) tick: u64,
    /// The weight of a cell that is sent now, relative to one at the beginning of the tick.
    pub(super) weight: f64,
    halflives_per_tick: f64,
}

/// Maximum number of half-lives per tick: a cell's weight must stay finite.
const HALFLIVES_PER_TICK_MAX: f64 = 256.0;

#[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are three months")]
impl Decay {
    pub(crate) fn new(config: &SchedulerConfig) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let (tick_ns, halflife_ns) = (nanos(config.priority_tick), nanos(config.priority_halflife));
        let halflives_per_tick = tick_ns as f64 / halflife_ns as f64;
        Self { tick_ns, halflives_per_tick: halflives_per_tick.min(HALFLIVES_PER_TICK_MAX) }
    }

    pub(crate) fn at(&self, now: Instant) -> EwmaTick {
        let nanos = u64::try_from((now - Instant::ORIGIN).as_nanos()).unwrap_or(u64::MAX);
        let fraction = (nanos % self.tick_ns) as f64 / self.tick_ns as f64;
        let halflives_per_tick = self.halflives_per_tick;
        let weight = libm::exp2(fraction * halflives_per_tick);
        EwmaTick { tick: nanos / self.tick_ns, weight, halflives_per_tick }
    }
}

impl EwmaTick {
    /// The factor from counts of `tick` to counts of this tick.
    #[expect(clippy::cast_precision_loss, reason = "after 2^53 ticks the count is zero anyway")]
    pub(super) fn since(&self, tick: u64) -> f64 {
        libm::exp2(-(self.tick.saturating_sub(tick) as f64 * self.halflives_per_tick))
    }
}

/// The EWMA of a circuit in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CellCount {
    cells: f64,
    /// The tick that `cells` belongs to.
    tick: u64,
}

impl CellCount {
    /// Adds cells that were sent.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "a turn has few cells")]
    pub(super) fn add(&mut self, cells: usize, ewma_tick: &EwmaTick) {
        self.cells = self.at(ewma_tick) + cells as f64 * ewma_tick.weight;
        self.tick = ewma_tick.tick;
    }

    /// The count at `ewma_tick`. Never negative; comparable with others of the same tick.
    #[inline]
    pub(super) fn at(&self, ewma_tick: &EwmaTick) -> f64 {
        if self.tick == ewma_tick.tick {
            self.cells
        } else {
            self.cells * ewma_tick.since(self.tick)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// C tor's formula: a cell sent X ticks ago counts factor^X, factor = 0.5^(tick / half-life).
        #[test]
        fn a_cell_counts_half_after_each_half_life(
            sent_ms in 0u64..200_000, later_ms in 0u64..200_000, cells in 1usize..100,
        ) {
            let decay = Decay::new(&SchedulerConfig::default());
            let (then, now) = (Instant::from_millis(sent_ms), Instant::from_millis(sent_ms + later_ms));
            let mut old = CellCount::default();
            old.add(cells, &decay.at(then));
            let mut new = CellCount::default();
            new.add(cells, &decay.at(now));
            let ewma_tick = decay.at(now);
            let expected = 0.5f64.powf(later_ms as f64 / 30_000.0);
            prop_assert!((old.at(&ewma_tick) / new.at(&ewma_tick) / expected - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn old_counts_decay_to_zero_and_stay_finite() {
        let config =
            SchedulerConfig { priority_halflife: Duration::from_millis(1), ..Default::default() };
        let decay = Decay::new(&config);
        let mut cell_count = CellCount::default();
        for second in [0, 1, 9, 10, 1000, 100_000] {
            cell_count.add(31, &decay.at(Instant::from_millis(second * 1000 + 999)));
            let count = cell_count.at(&decay.at(Instant::from_millis(second * 1000 + 999)));
            assert!(count.is_finite() && count > 0.0, "{count}");
        }
        assert_eq!(cell_count.at(&decay.at(Instant::from_millis(1_000_000_000))), 0.0);
    }
}
