//! The capacity of a relay with its clients, from a measurement in transit, which does not count their traffic.

use crate::history::PastEstimate;
use crate::mode::Mode;
use crate::outcome::Bounds;
use crate::params::Params;
use onion::Rate;

impl PastEstimate {
    /// The capacity with clients, if this is a lower bound in transit.
    ///
    /// `advertised` is the relay's own claim: the smaller of its rate limit and its observed bandwidth, the most that it carried in ten
    /// seconds of the last five days (dir-spec, "bandwidth"). That includes our measurement, so an honest relay that we have loaded
    /// fully claims its capacity. As by echo, where a relay reports its clients' traffic, a claim counts up to the share *r* of clients:
    /// at most what was measured divided by 1−*r*.
    #[must_use]
    pub fn with_clients(&self, advertised: Rate, params: &Params) -> Option<Rate> {
        let is_bound = self.mode == Some(Mode::Transit) && self.is_conclusive == Some(false);
        is_bound.then(|| advertised.min(most(self.capacity, params)).max(self.capacity))
    }

    /// The bounds of the true capacity, if the relay's clients had at most their share *r* while it was measured, and this is a lower
    /// bound in transit.
    #[must_use]
    pub fn bounds_with_clients(&self, params: &Params) -> Option<Bounds> {
        let most = self.with_clients(Rate::from_bit_per_s(u64::MAX), params)?;
        let upper = Bounds::new(most, true, params).upper;
        Some(Bounds { upper, ..Bounds::new(self.capacity, false, params) })
    }
}

/// What a relay carries if this was measured and clients had the rest, as much as they may.
fn most(measured: Rate, params: &Params) -> Rate {
    measured.scaled(1.0 / (1.0 - params.ratio))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured(mbit: f64, mode: Mode, is_conclusive: bool) -> PastEstimate {
        PastEstimate {
            capacity: Rate::from_mbit_per_s(mbit),
            measured_unix_s: 1,
            mode: Some(mode),
            is_conclusive: Some(is_conclusive),
            sockets: None,
        }
    }

    #[test]
    fn a_claim_counts_only_for_a_lower_bound_in_transit() {
        let claim = Rate::from_mbit_per_s(110.0);
        let with = |mode, is_conclusive| {
            measured(100.0, mode, is_conclusive).with_clients(claim, &Params::default())
        };
        assert_eq!(with(Mode::Transit, false), Some(claim));
        assert_eq!(with(Mode::Transit, true), None, "it has no clients");
        assert_eq!(with(Mode::Echo, false), None, "their traffic was counted");
    }

    #[test]
    fn the_bounds_contain_any_capacity_of_which_clients_had_their_share() {
        let params = Params::default();
        let bounds = measured(75.0, Mode::Transit, false).bounds_with_clients(&params).unwrap();
        let upper = bounds.upper.unwrap();
        for mbit in [75.0, 100.0] {
            let capacity = Rate::from_mbit_per_s(mbit);
            assert!(bounds.lower < capacity && capacity < upper, "{bounds:?}");
        }
        assert!(upper < Rate::from_mbit_per_s(101.0 / (1.0 - params.epsilon_below)));
    }

    proptest! {
        /// Neither a lie nor a modest claim changes a result by more than a measurement by echo would believe.
        #[test]
        fn no_claim_counts_for_more_than_the_share_of_clients(
            measured_bit_per_s in 1..1_u64 << 40,
            claim_bit_per_s: u64,
            ratio in 0.0..0.9,
        ) {
            let params = Params { ratio, ..Params::default() };
            let capacity = Rate::from_bit_per_s(measured_bit_per_s);
            let past = PastEstimate { capacity, ..measured(1.0, Mode::Transit, false) };
            let claim = Rate::from_bit_per_s(claim_bit_per_s);
            let with = past.with_clients(claim, &params).unwrap();
            prop_assert!(capacity <= with);
            prop_assert!(with.as_mbit_per_s() <= capacity.as_mbit_per_s() / (1.0 - ratio) * 1.000_001 + 1e-6);
            prop_assert!(with == claim || with == capacity || with == most(capacity, &params));
        }
    }
}
