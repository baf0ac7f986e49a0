//! The model of a circuit of five nodes with one bottleneck, and the evaluation of a window over time.

use super::Begin;
use onion::{Duration, Instant};
use sim::star::{Star, StarCircuit, StarNode, optimal_window_cells};
use std::ops::{RangeBounds, RangeInclusive};

/// The payload of a cell, as on the paper's axes.
pub(super) const CELL_KB: f64 = 0.512;

/// Relays of a circuit, between its source and its sink.
pub(super) const RELAYS: usize = 3;

/// The rate of all nodes except the bottleneck, in Mbit/s.
pub(super) const WIDE_MBIT: f64 = 100.0;

/// Cells that the windows permit to queue at the next hop.
const QUEUED_CELLS: f64 = 4.0;

/// The tolerance within which a window counts as settled at the optimum.
pub(super) const SETTLED: f64 = 0.10;

/// The changes of a window: the time of each, and the new size in cells.
pub(super) type Sizes = Vec<(Instant, u32)>;

/// A circuit of a source, three relays and a sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Hops from the source to the bottleneck.
    pub(super) distance: usize,
    /// The rate of the bottleneck in each direction.
    pub(super) narrow_cells_per_s: f64,
    /// The rate of all other nodes.
    pub(super) wide_cells_per_s: f64,
    /// The latency from each node to the centre of the star.
    pub(super) delay: Duration,
    /// The windows ignore queueing delays below this.
    pub(super) grain: Duration,
}

impl Chain {
    fn nodes(&self) -> Vec<StarNode> {
        let rate = |node| {
            if node == self.distance { self.narrow_cells_per_s } else { self.wide_cells_per_s }
        };
        (0..RELAYS + 2).map(|node| StarNode::new(rate(node), self.delay)).collect()
    }

    /// The smallest window of the source that keeps the bottleneck busy.
    pub(super) fn optimal_cells(&self) -> f64 {
        optimal_window_cells(&self.nodes())
    }

    /// Queued cells that are permitted in addition to the optimum.
    pub(super) fn queued_cells(&self) -> f64 {
        QUEUED_CELLS + self.grain.as_secs_f64() * self.narrow_cells_per_s
    }

    /// The sizes of a settled window with this optimum: within 10 % of it, plus the permitted queued cells.
    pub(super) fn settled_at_optimum(&self, optimal_cells: f64) -> RangeInclusive<f64> {
        optimal_cells * (1.0 - SETTLED)..=optimal_cells * (1.0 + SETTLED) + self.queued_cells()
    }

    /// The sizes of a settled window in the model.
    pub(super) fn settled_cells(&self) -> RangeInclusive<f64> {
        self.settled_at_optimum(self.optimal_cells())
    }

    /// The chain with twice the rate of its bottleneck.
    pub(super) fn doubled(self) -> Self {
        Self { narrow_cells_per_s: 2.0 * self.narrow_cells_per_s, ..self }
    }

    /// The round trip from the source to the bottleneck without queueing.
    pub(super) fn round_trip(&self) -> Duration {
        let hop = Duration::from_secs_f64(1.0 / self.narrow_cells_per_s) + 4 * self.delay;
        hop * u32::try_from(self.distance).unwrap_or(1)
    }

    /// A window that stays at an optimum for this time has reached it: enough for a ramp-up at the bottleneck and
    /// then at the source.
    pub(super) fn patience(&self) -> Duration {
        3 * self.round_trip()
    }

    /// The source's window in the model. The bottleneck's rate doubles after `doubles`, if given.
    pub(super) fn simulate(
        &self,
        begin: Begin,
        length: Duration,
        doubles: Option<Duration>,
    ) -> Sizes {
        let mut star = Star::default();
        let path: Vec<usize> = self.nodes().into_iter().map(|node| star.add_node(node)).collect();
        if let Some(after) = doubles {
            let rate = self.doubled().narrow_cells_per_s;
            star.change(Instant::ORIGIN + after, path[self.distance], rate);
        }
        let windows = (0..=RELAYS).map(|_| begin.window(self.grain)).collect();
        star.add_circuit(StarCircuit { path, cells: u64::MAX, begins: Instant::ORIGIN, windows });
        star.run(Instant::ORIGIN + length);
        star.results().swap_remove(0).trace
    }
}

/// The time from which a window stays at these sizes.
pub(super) fn settled_at(
    sizes: &[(Instant, u32)],
    settled: &RangeInclusive<f64>,
) -> Option<Instant> {
    let last_outside = sizes.iter().rposition(|(_, size)| !settled.contains(&f64::from(*size)));
    let first = last_outside.map_or(0, |place| place + 1);
    sizes.get(first).map(|(at, _)| *at)
}

/// The median of a window's size over a period of time.
pub(super) fn median_cells(sizes: &[(Instant, u32)], from: Instant, to: Instant) -> Option<u32> {
    let untils = sizes.iter().skip(1).map(|(at, _)| *at).chain([to]);
    let mut times: Vec<(u32, Duration)> = sizes
        .iter()
        .zip(untils)
        .map(|((at, size), until)| (*size, until.min(to) - (*at).max(from)))
        .filter(|(_, time)| !time.is_zero())
        .collect();
    times.sort_unstable();
    let whole: Duration = times.iter().map(|(_, time)| *time).sum();
    let mut passed = Duration::ZERO;
    times.into_iter().find_map(|(size, time)| {
        passed += time;
        (passed * 2 >= whole).then_some(size)
    })
}

/// The time from `from` until a window has one of these sizes and keeps to them for `stays`, which excludes ramp-ups
/// that end too early. The window does not change after the last entry.
pub(super) fn reached(
    sizes: &[(Instant, u32)],
    from: Instant,
    cells: impl RangeBounds<f64>,
    stays: Duration,
) -> Option<Duration> {
    let untils = sizes.iter().skip(1).map(|(at, _)| *at).chain([Instant::from_nanos(u64::MAX)]);
    let mut since = None;
    for ((at, size), until) in sizes.iter().zip(untils).filter(|(_, until)| *until > from) {
        if !cells.contains(&f64::from(*size)) {
            since = None;
            continue;
        }
        let since = *since.get_or_insert(from.max(*at));
        if until - since >= stays {
            return Some(since - from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn chain(distance: usize) -> Chain {
        Chain {
            distance,
            narrow_cells_per_s: 2_500.0,
            wide_cells_per_s: 25_000.0,
            delay: Duration::from_millis(5),
            grain: Duration::ZERO,
        }
    }

    /// As in the paper's figure for one and three hops.
    #[test]
    fn windows_settle_within_200_ms_at_each_distance() {
        for distance in 1..=RELAYS {
            for delay_ms in 2..=5 {
                let chain = Chain { delay: Duration::from_millis(delay_ms), ..chain(distance) };
                let sizes = chain.simulate(Begin::CircuitStart, Duration::from_secs(2), None);
                let settled = settled_at(&sizes, &chain.settled_cells()).expect("it settles");
                assert!(settled <= at(200), "{distance} hops, {delay_ms} ms: {settled}");
            }
        }
    }

    #[test]
    fn a_window_has_settled_once_it_stays_at_the_optimum() {
        let sizes = [(at(0), 2), (at(10), 50), (at(20), 80), (at(30), 53), (at(40), 51)];
        assert_eq!(settled_at(&sizes, &(45.0..=59.0)), Some(at(30)));
        assert_eq!(settled_at(&sizes[..3], &(45.0..=59.0)), None);
        assert_eq!(settled_at(&[], &(45.0..=59.0)), None);
    }

    #[test]
    fn the_median_of_a_window_is_weighted_by_time() {
        let sizes = [(at(0), 2), (at(10), 50), (at(90), 80), (at(91), 81), (at(92), 82)];
        assert_eq!(median_cells(&sizes, at(0), at(100)), Some(50));
        assert_eq!(median_cells(&sizes, at(90), at(100)), Some(82));
        assert_eq!(median_cells(&[], at(0), at(100)), None);
        // Later changes do not count.
        assert_eq!(median_cells(&sizes, at(0), at(8)), Some(2));
    }

    #[test]
    fn a_size_is_reached_once_the_window_keeps_it() {
        let sizes = [(at(0), 2), (at(10), 50), (at(20), 80), (at(30), 60)];
        let ms = Duration::from_millis;
        assert_eq!(reached(&sizes, at(12), 70.0.., ms(10)), Some(ms(8)));
        assert_eq!(reached(&sizes, at(12), 70.0.., ms(11)), None, "it does not stay there");
        assert_eq!(reached(&sizes, at(2), 50.0.., ms(100)), Some(ms(8)), "larger sizes count");
        assert_eq!(reached(&sizes, at(12), 50.0.., ms(1)), Some(Duration::ZERO));
        assert_eq!(reached(&sizes, at(2), 50.0..=70.0, ms(10)), Some(ms(8)));
        assert_eq!(reached(&sizes, at(2), 50.0..=70.0, ms(11)), Some(ms(28)), "smaller again");
        assert_eq!(reached(&sizes, at(31), 70.0.., ms(1)), None, "only before");
        assert_eq!(reached(&sizes, at(31), 60.0.., ms(1_000)), Some(Duration::ZERO));
    }

    #[test]
    fn the_optimum_doubles_with_the_bottleneck() {
        for distance in 1..=RELAYS {
            let chain = chain(distance);
            let ratio = chain.doubled().optimal_cells() / chain.optimal_cells();
            assert!((1.95..2.01).contains(&ratio), "{ratio}");
        }
    }

    /// At 10 and at 20 Mbit/s, and with shorter paths.
    #[test]
    fn windows_adapt_to_a_doubled_bottleneck_within_five_round_trips() {
        for (narrow_cells_per_s, delay_ms) in [(2_441.0, 5), (4_883.0, 5), (2_441.0, 3)] {
            for distance in 1..=RELAYS {
                let delay = Duration::from_millis(delay_ms);
                check_doubling(&Chain { narrow_cells_per_s, delay, ..chain(distance) });
            }
        }
    }

    fn check_doubling(chain: &Chain) {
        let (distance, doubles) = (chain.distance, Duration::from_secs(2));
        let sizes = chain.simulate(Begin::Again, 2 * doubles, Some(doubles));
        let optimal = chain.doubled().optimal_cells();
        let took = reached(&sizes, Instant::ORIGIN + doubles, optimal.., chain.patience());
        let took = took.expect("it is reached");
        let round_trips = took.as_secs_f64() / chain.round_trip().as_secs_f64();
        assert!(round_trips <= 5.0, "{distance}: {round_trips}");
        // It stays there.
        let end = Instant::ORIGIN + 2 * doubles;
        let late = Instant::ORIGIN + doubles + Duration::from_secs(1);
        let size = median_cells(&sizes, late, end).expect("some");
        let most = optimal * 1.1 + chain.queued_cells();
        assert!((optimal..most).contains(&size.into()), "{distance}: {size} of {optimal}");
    }
}
