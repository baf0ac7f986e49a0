//! Cells that circuits have sent of late: an exponentially weighted count, as C tor's
//! `circuitmux_ewma.c` keeps it (Tang and Goldberg, "An Improved Algorithm for Tor Circuit
//! Scheduling").

use super::SchedulerConfig;
use crate::time::{Duration, Instant};

/// How fast counts decay.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) struct Decay {
    tick_ns: u64,
    /// Halflives in a tick.
    halflives_per_tick: f64,
}

/// A time as counts see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) struct EwmaTick {
    /// Ticks since the origin.
    pub(super) tick: u64,
    /// What a cell sent now counts, if one at the beginning of the tick counts 1.
    pub(super) weight: f64,
    halflives_per_tick: f64,
}

/// Halflives in a tick at most: a cell's weight is to stay a number.
const HALFLIVES_PER_TICK_MAX: f64 = 256.0;

#[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are three months")]
impl Decay {
    pub(in crate::router) fn new(config: &SchedulerConfig) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let (tick_ns, halflife_ns) = (nanos(config.priority_tick), nanos(config.priority_halflife));
        let halflives_per_tick = tick_ns as f64 / halflife_ns as f64;
        Self { tick_ns, halflives_per_tick: halflives_per_tick.min(HALFLIVES_PER_TICK_MAX) }
    }

    pub(in crate::router) fn at(&self, now: Instant) -> EwmaTick {
        let nanos = u64::try_from((now - Instant::ORIGIN).as_nanos()).unwrap_or(u64::MAX);
        let fraction = (nanos % self.tick_ns) as f64 / self.tick_ns as f64;
        let halflives_per_tick = self.halflives_per_tick;
        let weight = exp2(fraction * halflives_per_tick);
        EwmaTick { tick: nanos / self.tick_ns, weight, halflives_per_tick }
    }
}

impl EwmaTick {
    /// What a count of that tick is worth in this one.
    #[expect(clippy::cast_precision_loss, reason = "nothing is left after so many ticks anyway")]
    pub(super) fn since(&self, tick: u64) -> f64 {
        exp2(-(self.tick.saturating_sub(tick) as f64 * self.halflives_per_tick))
    }
}

/// What a circuit has sent one way of late.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::router) struct CellCount {
    cells: f64,
    /// The tick that `cells` belongs to.
    tick: u64,
}

impl CellCount {
    /// So many cells have been sent.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "a turn has few cells")]
    pub(super) fn add(&mut self, cells: usize, ewma_tick: &EwmaTick) {
        self.cells = self.at(ewma_tick) + cells as f64 * ewma_tick.weight;
        self.tick = ewma_tick.tick;
    }

    /// The count now. It is never negative, and may be compared with others of the same tick.
    #[inline]
    pub(super) fn at(&self, ewma_tick: &EwmaTick) -> f64 {
        if self.tick == ewma_tick.tick {
            self.cells
        } else {
            self.cells * ewma_tick.since(self.tick)
        }
    }
}

/// 2 to the power of `x`; zero where that is too small for a number of full precision. `core` has no
/// such function.
#[expect(clippy::cast_possible_truncation, reason = "what is too large has been seen to")]
fn exp2(x: f64) -> f64 {
    if x < -1021.0 {
        return 0.0;
    }
    let x = x.min(1023.0);
    // Halves away from the whole part, so that the series converges fast.
    let whole = (x + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    #[expect(clippy::cast_precision_loss, reason = "four digits")]
    let y = (x - whole as f64) * core::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..=13 {
        term *= y / f64::from(n);
        sum += term;
    }
    let exponent = u64::try_from(whole + 1023).unwrap_or(0);
    sum * f64::from_bits(exponent << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn powers_of_two_are_as_the_standard_library_has_them(x in -1000.0..1000.0f64) {
            let (ours, theirs) = (exp2(x), x.exp2());
            prop_assert!((ours / theirs - 1.0).abs() < 1e-12, "{ours} {theirs}");
        }

        /// tor's formula: a cell sent X ticks ago counts factor^X, factor = 0.5^(tick / halflife).
        #[test]
        fn a_cell_counts_half_after_each_halflife(
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
    fn counts_of_long_ago_vanish_and_stay_numbers() {
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
