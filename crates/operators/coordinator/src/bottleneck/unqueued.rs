//! Bottlenecks without a queue, and those without any symptom but the reduced rate.

use super::{Bottleneck, is_on_the_path};
use crate::account::Account;
use crate::allocation::{Assignment, MeasurerId};
use onion::{Duration, Rate};

/// The minimum share of its assigned load at which a measurer counts as fully served: token buckets and seconds have a
/// granularity.
const SERVED: f64 = 0.9;

/// If a measurer's share per socket is below this percentage of a fully served one's, the relay is not the cause.
/// Relays share alike, but not to the cell.
const UNFAIR_PERCENT: u32 = 75;

/// Fewer lost packets are chance.
const LOST_MIN: u64 = 30;

/// A measurer whose loss is this number of times another's loses packets elsewhere than on the relay's own link, which
/// drops all packets alike.
const LOSES_MORE: u64 = 4;

/// Margin for chance: the number of additional packets that the other might have lost.
const LUCK: u64 = 8;

/// The bytes of a full segment.
const SEGMENT_BYTES: u64 = 1448;

/// A measurer's results in the seconds of a round that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeasurerResult {
    pub(crate) assignment: Assignment,
    /// The bytes that it got back in the median second.
    pub(crate) got: Rate,
    sent_segments: u64,
    lost_segments: u64,
    /// The minimum round trip, if known.
    rtt: Option<Duration>,
    /// In most seconds most of its cells waited on the path.
    waits_on_path: bool,
}

impl MeasurerResult {
    /// From the returned bytes, and the accounts of its seconds, if any.
    pub(crate) fn new<'a>(
        assignment: Assignment,
        got: Rate,
        accounts: impl Iterator<Item = &'a Account>,
    ) -> Self {
        let (mut sent, mut lost, mut seconds, mut on_path) = (0u64, 0u64, 0u32, 0u32);
        let mut rtt = None;
        for account in accounts {
            rtt = [rtt, account.min_rtt].into_iter().flatten().min();
            sent =
                sent.saturating_add(account.sent_bytes).saturating_add(account.retransmitted_bytes);
            lost = lost.saturating_add(account.retransmitted_bytes);
            seconds += 1;
            on_path += u32::from(is_on_the_path(account));
        }
        Self {
            assignment,
            got,
            sent_segments: sent / SEGMENT_BYTES,
            lost_segments: lost / SEGMENT_BYTES,
            rtt,
            waits_on_path: 2 * on_path > seconds,
        }
    }

    pub(crate) const fn id(&self) -> MeasurerId {
        self.assignment.measurer
    }

    /// Whether it got back its whole assigned load: then only the assignment limited it.
    fn is_served(&self) -> bool {
        self.got >= self.assignment.rate.scaled(SERVED)
    }

    fn per_socket(&self) -> Rate {
        self.got.scaled(1.0 / f64::from(self.assignment.sockets.max(1)))
    }

    /// Its returned bytes per socket, in percent of another's. If it waits on the path, the bytes in flight: flows
    /// share a full queue in proportion to their round-trip times.
    fn percent_of(&self, other: &Self) -> u32 {
        let rtts = self.rtt.zip(other.rtt).filter(|_| self.waits_on_path);
        let (own, others) = rtts.unwrap_or((Duration::from_secs(1), Duration::from_secs(1)));
        let product = |rate: Rate, rtt: Duration| {
            u128::from(rate.as_bit_per_s()).saturating_mul(rtt.as_micros())
        };
        let of = product(other.per_socket(), others);
        let percent = product(self.per_socket(), own).saturating_mul(100).checked_div(of);
        percent.and_then(|percent| u32::try_from(percent).ok()).unwrap_or(u32::MAX)
    }

    /// Whether the difference between its loss and another's is too large for a common bottleneck. A measurer whose own
    /// cells wait on their path, as before the relay's own link, is no evidence: a full queue drops more of some flows.
    fn loses_more_than(&self, other: &Self) -> bool {
        if other.waits_on_path {
            return false;
        }
        let product = |one: u64, two: u64| u128::from(one) * u128::from(two);
        let most = LOSES_MORE.saturating_mul(other.lost_segments.saturating_add(LUCK));
        product(self.lost_segments, other.sent_segments) >= product(most, self.sent_segments)
    }

    fn loss_ppm(&self) -> u32 {
        let share = u128::from(self.lost_segments) * 1_000_000;
        let share = share.checked_div(u128::from(self.sent_segments)).unwrap_or_default();
        u32::try_from(share).unwrap_or(u32::MAX)
    }
}

/// The measurers whose cells wait on a path that loses packets, while another's do not wait there and get lost far
/// less; with the loss as the cause.
///
/// A policer passes its limit and drops the rest: there is no queue, and twice the sockets do not increase the rate. A
/// measurer without loss does not pass the policer, so the policer is not on the relay's link.
pub(crate) fn own_losses(
    results: &[MeasurerResult],
) -> impl Iterator<Item = (MeasurerId, Bottleneck)> {
    let is_it = |result: &&MeasurerResult| {
        result.waits_on_path
            && result.lost_segments >= LOST_MIN
            && results
                .iter()
                .any(|other| other.id() != result.id() && result.loses_more_than(other))
    };
    results
        .iter()
        .filter(is_it)
        .map(|result| (result.id(), Bottleneck::Loss { loss_ppm: result.loss_ppm() }))
}

/// The measurers that got less back, per socket, than one that was fully served; with their share of it as the cause.
///
/// A relay at its limit would have reduced the fully served one's share first. So the relay had spare capacity, and
/// something else limited these measurers, wherever it is and whatever their kernels report.
pub(crate) fn starved(
    results: &[MeasurerResult],
) -> impl Iterator<Item = (MeasurerId, Bottleneck)> {
    let found = |result: &MeasurerResult| {
        let others = results.iter().filter(|other| other.is_served());
        let percent = others.map(|other| result.percent_of(other)).min()?;
        let is_it = !result.is_served() && result.got > Rate::ZERO && percent < UNFAIR_PERCENT;
        is_it.then_some((result.id(), Bottleneck::Share { percent }))
    };
    results.iter().filter_map(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn mbit(mbit: f64) -> Rate {
        Rate::from_mbit_per_s(mbit)
    }

    fn assignment(measurer: usize, rate: f64, sockets: u32) -> Assignment {
        Assignment { measurer: MeasurerId(measurer), rate: mbit(rate), sockets }
    }

    fn result(measurer: usize, assigned: f64, got: f64) -> MeasurerResult {
        MeasurerResult::new(assignment(measurer, assigned, 4), mbit(got), [].into_iter())
    }

    /// A measurer with these numbers of segments and retransmissions; most of the missing bytes are unacknowledged, or
    /// not.
    fn losing(measurer: usize, sent: u64, lost: u64, is_on_path: bool) -> MeasurerResult {
        let account = Account {
            sent_bytes: (sent - lost) * SEGMENT_BYTES,
            retransmitted_bytes: lost * SEGMENT_BYTES,
            outstanding_bytes: 1000,
            unacked_bytes: if is_on_path { 900 } else { 100 },
            ..Account::default()
        };
        MeasurerResult::new(assignment(measurer, 100.0, 4), mbit(20.0), [account].iter())
    }

    fn number((id, cause): (MeasurerId, Bottleneck)) -> (usize, u32) {
        match cause {
            Bottleneck::Loss { loss_ppm: number } | Bottleneck::Share { percent: number } => {
                (id.0, number)
            }
            other => panic!("{other:?}"),
        }
    }

    fn lossy(results: &[MeasurerResult]) -> Vec<(usize, u32)> {
        own_losses(results).map(number).collect()
    }

    #[test]
    fn a_path_that_loses_far_more_than_another_is_named() {
        let clear = losing(0, 300_000, 0, false);
        assert_eq!(lossy(&[clear, losing(1, 30_000, 150, true)]), [(1, 5000)]);
        assert_eq!(lossy(&[clear, losing(1, 30_000, 150, false)]), [], "the relay did not read");
        assert_eq!(lossy(&[clear, losing(1, 30_000, 29, true)]), [], "chance");
        assert_eq!(
            lossy(&[losing(1, 30_000, 150, true)]),
            [],
            "there is no other measurer to compare with"
        );
        assert_eq!(lossy(&[]), []);
    }

    #[test]
    fn a_loss_on_all_paths_is_attributed_to_no_measurer() {
        let pairs =
            [((300_000, 3000), (30_000, 300)), ((300_000, 100), (30_000, 31)), ((40, 0), (40, 30))];
        for ((sent, lost), (others_sent, others_lost)) in pairs {
            let both = [losing(0, sent, lost, false), losing(1, others_sent, others_lost, true)];
            assert_eq!(lossy(&both), [], "{both:?}");
        }
        // Both wait before the relay's own link.
        assert_eq!(lossy(&[losing(0, 300_000, 0, true), losing(1, 30_000, 150, true)]), []);
    }

    #[test]
    fn a_measurer_with_less_per_socket_than_a_fully_served_one_is_not_limited_by_the_relay() {
        let found =
            |all: &[MeasurerResult]| -> Vec<(usize, u32)> { starved(all).map(number).collect() };
        assert_eq!(found(&[result(0, 400.0, 20.0), result(1, 190.0, 190.0)]), [(0, 10)]);
        assert_eq!(
            found(&[result(0, 400.0, 20.0), result(1, 190.0, 150.0)]),
            [],
            "neither is fully served"
        );
        assert_eq!(
            found(&[result(0, 400.0, 80.0), result(1, 100.0, 100.0)]),
            [],
            "nearly the same share"
        );
        assert_eq!(found(&[result(0, 20.0, 20.0), result(1, 190.0, 190.0)]), [], "all are served");
        assert_eq!(
            found(&[result(0, 400.0, 0.0), result(1, 190.0, 190.0)]),
            [],
            "it got nothing back"
        );
        assert_eq!(found(&[result(0, 400.0, 20.0)]), []);
        // Flows that wait before the relay's own link share it in proportion to their round-trip times.
        let at = |measurer, assigned, got, rtt_ms: u64, unacked_bytes| {
            let min_rtt = Some(Duration::from_millis(rtt_ms));
            let outstanding_bytes = 1000;
            let account =
                Account { min_rtt, outstanding_bytes, unacked_bytes, ..Account::default() };
            MeasurerResult::new(assignment(measurer, assigned, 4), mbit(got), [account].iter())
        };
        let near = at(1, 190.0, 190.0, 20, 900);
        assert_eq!(found(&[at(0, 400.0, 20.0, 200, 900), near]), []);
        assert_eq!(
            found(&[at(0, 400.0, 20.0, 200, 100), near]),
            [(0, 10)],
            "it waits at the relay"
        );
        // Twice the sockets, twice the rate.
        let wide = MeasurerResult::new(assignment(1, 190.0, 8), mbit(190.0), [].into_iter());
        assert_eq!(found(&[result(0, 400.0, 80.0), wide]), []);
    }

    proptest! {
        /// A relay that gives each socket an equal share, up to its demand, makes no measurer appear limited.
        #[test]
        fn no_measurer_of_a_fair_relay_is_named(
            team in prop::collection::vec((1.0f64..500.0, 1u32..80), 1..6), capacity in 1.0f64..1000.0,
        ) {
            // Max-min fair: all sockets that are not fully served get the same.
            let mut level = f64::INFINITY;
            let mut left = capacity;
            let mut open: Vec<(f64, u32)> = team.clone();
            open.sort_by(|a, b| (a.0 / f64::from(a.1)).total_cmp(&(b.0 / f64::from(b.1))));
            let mut sockets: u32 = open.iter().map(|(_, count)| *count).sum();
            for (rate, count) in open {
                let even = left / f64::from(sockets);
                if rate / f64::from(count) > even {
                    level = even;
                    break;
                }
                left -= rate;
                sockets -= count;
            }
            let all: Vec<MeasurerResult> = team.iter().enumerate().map(|(number, (rate, count))| {
                let got = rate.min(level * f64::from(*count));
                MeasurerResult::new(assignment(number, *rate, *count), mbit(got), [].into_iter())
            }).collect();
            prop_assert_eq!(starved(&all).collect::<Vec<_>>(), vec![], "{:?}", all);
        }
    }
}
