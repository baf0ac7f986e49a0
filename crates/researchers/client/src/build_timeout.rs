//! Circuit build timeouts, learned from completed circuits (path-spec §2.4, simplified: the
//! empirical quantile instead of a fitted Pareto distribution).

use netdoc::consensus::Params;
use onion::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Stored build times: path-spec's `CBT_NCIRCUITS_TO_OBSERVE`.
const TIMES_MAX: usize = 1000;
/// Lower bound of the timeout: scheduling delays of a busy host must not count as network latency.
const FLOOR: Duration = Duration::from_secs(1);

/// Consensus parameters (param-spec, `cbt…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CbtParams {
    quantile: usize,
    close_quantile: usize,
    times_min: usize,
    initial_ms: u32,
    recent: usize,
    timeouts_max: usize,
}

impl CbtParams {
    fn from_params(params: &Params) -> Self {
        let get = |name, default, min, max| params.get_clamped(name, default, min, max);
        let size = |value: i32| usize::try_from(value).unwrap_or(0);
        Self {
            quantile: size(get("cbtquantile", 80, 10, 99)),
            close_quantile: size(get("cbtclosequantile", 99, 10, 99)),
            times_min: size(get("cbtmincircs", 100, 1, 10_000)).min(TIMES_MAX),
            initial_ms: get("cbtinitialtimeout", 60_000, 10, i32::MAX).unsigned_abs(),
            recent: size(get("cbtrecentcount", 20, 3, 1000)),
            timeouts_max: size(get("cbtmaxtimeouts", 18, 3, 10_000)),
        }
    }
}

impl Default for CbtParams {
    fn default() -> Self {
        Self::from_params(&Params::default())
    }
}

/// Circuit build times in milliseconds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BuildTimes {
    times_ms: VecDeque<u32>,
    #[serde(skip)]
    rules: CbtParams,
    /// Whether each of the latest circuits timed out, oldest first.
    #[serde(skip)]
    latest: VecDeque<bool>,
}

impl BuildTimes {
    /// Applies the parameters of the consensus.
    pub fn set_params(&mut self, params: &Params) {
        self.rules = CbtParams::from_params(params);
    }

    /// The time after which a circuit is not used, although building continues in order to learn.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.at_quantile(self.rules.quantile).unwrap_or_else(|| self.initial()).max(FLOOR)
    }

    /// The time after which a circuit is closed.
    #[must_use]
    pub fn close_timeout(&self) -> Duration {
        let learnt = self.at_quantile(self.rules.close_quantile);
        learnt.unwrap_or_default().max(self.initial()).max(self.timeout())
    }

    fn initial(&self) -> Duration {
        Duration::from_millis(self.rules.initial_ms.into())
    }

    /// The build time of the given percentile, if enough are stored.
    fn at_quantile(&self, percent: usize) -> Option<Duration> {
        if self.times_ms.len() < self.rules.times_min {
            return None;
        }
        let mut sorted: Vec<u32> = self.times_ms.iter().copied().collect();
        sorted.sort_unstable();
        let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(place).map(|time_ms| Duration::from_millis(u64::from(*time_ms)))
    }

    /// Records a completed circuit.
    pub fn handle_built(&mut self, took: Duration) {
        while self.times_ms.len() >= TIMES_MAX {
            self.times_ms.pop_front();
        }
        self.times_ms.push_back(u32::try_from(took.as_millis()).unwrap_or(u32::MAX));
        self.note(false);
    }

    /// Records a timeout. If most recent circuits timed out, the network has changed, and all build
    /// times are discarded.
    pub fn handle_timeout(&mut self) {
        self.note(true);
        let timeouts = self.latest.iter().filter(|was_timeout| **was_timeout).count();
        if timeouts >= self.rules.timeouts_max {
            self.times_ms.clear();
            self.latest.clear();
        }
    }

    fn note(&mut self, was_timeout: bool) {
        self.latest.push_back(was_timeout);
        while self.latest.len() > self.rules.recent {
            self.latest.pop_front();
        }
    }

    /// The number of stored build times.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn nothing_is_learnt_from_few_circuits_and_the_quantile_from_many() {
        let mut times = BuildTimes::default();
        for place in 1..100 {
            times.handle_built(ms(place * 20));
            assert_eq!(times.timeout(), ms(60_000), "{place}");
        }
        times.handle_built(ms(2000));
        assert_eq!(times.timeout(), ms(1600));
        // The close timeout is never below the initial timeout.
        assert_eq!(times.close_timeout(), ms(60_000));
        for _ in 0..TIMES_MAX {
            times.handle_built(ms(3));
        }
        assert_eq!((times.len(), times.timeout()), (TIMES_MAX, FLOOR));
    }

    #[test]
    fn a_network_that_has_become_slow_is_learnt_again() {
        let mut times = BuildTimes::default();
        (0..200).for_each(|_| times.handle_built(ms(1500)));
        for count in 1..=18 {
            assert_eq!(times.timeout(), ms(1500), "{count}");
            times.handle_timeout();
        }
        assert_eq!((times.timeout(), times.is_empty()), (ms(60_000), true));
    }

    #[test]
    fn the_consensus_sets_quantile_and_number() {
        let mut times = BuildTimes::default();
        let set = [("cbtquantile", 50), ("cbtmincircs", 4), ("cbtinitialtimeout", 9000)];
        times.set_params(&set.into_iter().collect());
        assert_eq!(times.timeout(), ms(9000));
        [5000, 2000, 3000, 4000].into_iter().for_each(|time| times.handle_built(ms(time)));
        assert_eq!(times.timeout(), ms(3000));
    }

    proptest! {
        #[test]
        fn the_timeout_is_one_of_the_times_that_the_quantile_separates(
            seen in prop::collection::vec(1000_u64..50_000, 100..400),
        ) {
            let mut times = BuildTimes::default();
            seen.iter().for_each(|time| times.handle_built(ms(*time)));
            let timeout = times.timeout();
            let within = seen.iter().filter(|time| ms(**time) <= timeout).count();
            let below = seen.iter().filter(|time| ms(**time) < timeout).count();
            prop_assert!(within * 100 >= seen.len() * 80 && below * 100 < seen.len() * 80);
            prop_assert!(times.close_timeout() >= timeout);
        }
    }
}
