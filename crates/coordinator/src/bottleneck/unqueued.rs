//! Narrow places that keep no queue, and those that nothing but their effect shows.

use super::is_on_the_path;
use crate::account::Account;
use crate::allocation::{Assignment, MeasurerId};
use onion::{Duration, Rate};

/// To whom so much of what it was assigned came back, came all: the rest is the grain of buckets and seconds.
const SERVED: f64 = 0.9;

/// To whom less than so many percent came back, socket by socket, of what came back to one that was served, the relay was not what held it
/// back. Relays share alike, but not to the cell.
const UNFAIR_PERCENT: u32 = 75;

/// Fewer packets lost are chance.
const LOST_MIN: u64 = 30;

/// Who loses so many times as large a share as another loses it elsewhere than on the relay's own link, which drops
/// everybody's packets alike.
const LOSES_MORE: u64 = 4;

/// The other may have been lucky: so many packets more it might have lost.
const LUCK: u64 = 8;

/// Bytes of a full segment.
const SEGMENT_BYTES: u64 = 1448;

/// How a measurer fared in the seconds of a round that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fared {
    pub(crate) assignment: Assignment,
    /// What came back to it in the median second.
    pub(crate) got: Rate,
    sent_segments: u64,
    lost_segments: u64,
    /// The least round trip, if that is known.
    rtt: Option<Duration>,
    /// In most seconds most of its cells waited on the path.
    waits_on_path: bool,
}

impl Fared {
    /// By what came back, and by the accounts of its seconds, if there are any.
    pub(crate) fn new<'a>(
        assignment: Assignment,
        got: Rate,
        accounts: impl Iterator<Item = &'a Account>,
    ) -> Self {
        let (mut sent, mut lost, mut seconds, mut on_path) = (0u64, 0u64, 0u32, 0u32);
        let mut rtt = None;
        for it in accounts {
            rtt = [rtt, it.least_rtt].into_iter().flatten().min();
            sent = sent.saturating_add(it.sent_bytes).saturating_add(it.retransmitted_bytes);
            lost = lost.saturating_add(it.retransmitted_bytes);
            seconds += 1;
            on_path += u32::from(is_on_the_path(it));
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

    /// Whether all came back that it was assigned: then nothing held it back but its assignment.
    fn is_served(&self) -> bool {
        self.got >= self.assignment.rate.scaled(SERVED)
    }

    fn per_socket(&self) -> Rate {
        self.got.scaled(1.0 / f64::from(self.assignment.sockets.max(1)))
    }

    /// What came back to it of what came back to another, socket by socket, in percent. Where it waits on the path, what it has
    /// under way: flows before a full queue share it by their round trips.
    fn percent_of(&self, other: &Self) -> u32 {
        let rtts = self.rtt.zip(other.rtt).filter(|_| self.waits_on_path);
        let (own, others) = rtts.unwrap_or((Duration::from_secs(1), Duration::from_secs(1)));
        let product = |rate: Rate, rtt: Duration| {
            u128::from(rate.as_bit_per_s()).saturating_mul(rtt.as_micros())
        };
        let of = product(other.per_socket(), others);
        let percent = product(self.per_socket(), own).saturating_mul(100).checked_div(of);
        percent.and_then(|it| u32::try_from(it).ok()).unwrap_or(u32::MAX)
    }

    /// Whether it loses so much more than another that they do not lose it at the same place. One whose own cells wait on
    /// their path, as before the relay's own link, says nothing: of a full queue some lose more than others.
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

/// Those whose cells wait on a path that loses packets, while another's do not wait there and get lost far less; with how many of
/// a million.
///
/// A policer lets through what it may and drops the rest: there is no queue, and twice the sockets bring no more. But who
/// loses nothing meets no such place; so it is not on the relay's link.
pub(crate) fn own_losses(fared: &[Fared]) -> impl Iterator<Item = (MeasurerId, u32)> {
    let is_it = |it: &&Fared| {
        it.waits_on_path
            && it.lost_segments >= LOST_MIN
            && fared.iter().any(|other| other.id() != it.id() && it.loses_more_than(other))
    };
    fared.iter().filter(is_it).map(|it| (it.id(), it.loss_ppm()))
}

/// Those to whom less came back, socket by socket, than to one who had no more to send; with how many percent of that.
///
/// A relay that could do no more would have kept back from that one first: so it could do more, and something else held
/// these back, wherever it is and whatever their kernels say.
pub(crate) fn starved(fared: &[Fared]) -> impl Iterator<Item = (MeasurerId, u32)> {
    let found = |it: &Fared| {
        let others = fared.iter().filter(|other| other.is_served());
        let percent = others.map(|other| it.percent_of(other)).min()?;
        let is_it = !it.is_served() && it.got > Rate::ZERO && percent < UNFAIR_PERCENT;
        is_it.then_some((it.id(), percent))
    };
    fared.iter().filter_map(found)
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

    fn fared(measurer: usize, assigned: f64, got: f64) -> Fared {
        Fared::new(assignment(measurer, assigned, 4), mbit(got), [].into_iter())
    }

    /// Who sent so many segments, and so many of them again; most of what is not back is unacknowledged, or not.
    fn losing(measurer: usize, sent: u64, lost: u64, is_on_path: bool) -> Fared {
        let account = Account {
            sent_bytes: (sent - lost) * SEGMENT_BYTES,
            retransmitted_bytes: lost * SEGMENT_BYTES,
            outstanding_bytes: 1000,
            unacked_bytes: if is_on_path { 900 } else { 100 },
            ..Account::default()
        };
        Fared::new(assignment(measurer, 100.0, 4), mbit(20.0), [account].iter())
    }

    fn lossy(fared: &[Fared]) -> Vec<(usize, u32)> {
        own_losses(fared).map(|(id, ppm)| (id.0, ppm)).collect()
    }

    #[test]
    fn a_path_that_loses_what_another_does_not_is_named() {
        let clear = losing(0, 300_000, 0, false);
        assert_eq!(lossy(&[clear, losing(1, 30_000, 150, true)]), [(1, 5000)]);
        assert_eq!(lossy(&[clear, losing(1, 30_000, 150, false)]), [], "the relay did not read");
        assert_eq!(lossy(&[clear, losing(1, 30_000, 29, true)]), [], "chance");
        assert_eq!(
            lossy(&[losing(1, 30_000, 150, true)]),
            [],
            "alone it has nothing to compare with"
        );
        assert_eq!(lossy(&[]), []);
    }

    #[test]
    fn a_loss_that_all_have_is_nobodys_own() {
        let pairs =
            [((300_000, 3000), (30_000, 300)), ((300_000, 100), (30_000, 31)), ((40, 0), (40, 30))];
        for ((sent, lost), (others_sent, others_lost)) in pairs {
            let both = [losing(0, sent, lost, false), losing(1, others_sent, others_lost, true)];
            assert_eq!(lossy(&both), [], "{both:?}");
        }
        // Before the relay's own link both wait.
        assert_eq!(lossy(&[losing(0, 300_000, 0, true), losing(1, 30_000, 150, true)]), []);
    }

    #[test]
    fn who_gets_less_than_one_that_was_served_is_not_held_back_by_the_relay() {
        let found = |all: &[Fared]| -> Vec<(usize, u32)> {
            starved(all).map(|(id, percent)| (id.0, percent)).collect()
        };
        assert_eq!(found(&[fared(0, 400.0, 20.0), fared(1, 190.0, 190.0)]), [(0, 10)]);
        assert_eq!(
            found(&[fared(0, 400.0, 20.0), fared(1, 190.0, 150.0)]),
            [],
            "both are held back"
        );
        assert_eq!(found(&[fared(0, 400.0, 80.0), fared(1, 100.0, 100.0)]), [], "nearly as much");
        assert_eq!(found(&[fared(0, 20.0, 20.0), fared(1, 190.0, 190.0)]), [], "all are served");
        assert_eq!(found(&[fared(0, 400.0, 0.0), fared(1, 190.0, 190.0)]), [], "it said nothing");
        assert_eq!(found(&[fared(0, 400.0, 20.0)]), []);
        // Before the relay's own link it is by round trips that they share, if that is where they wait.
        let at = |measurer, assigned, got, rtt_ms: u64, unacked_bytes| {
            let least_rtt = Some(Duration::from_millis(rtt_ms));
            let outstanding_bytes = 1000;
            let account =
                Account { least_rtt, outstanding_bytes, unacked_bytes, ..Account::default() };
            Fared::new(assignment(measurer, assigned, 4), mbit(got), [account].iter())
        };
        let near = at(1, 190.0, 190.0, 20, 900);
        assert_eq!(found(&[at(0, 400.0, 20.0, 200, 900), near]), []);
        assert_eq!(
            found(&[at(0, 400.0, 20.0, 200, 100), near]),
            [(0, 10)],
            "it waits at the relay"
        );
        // Twice the sockets, twice as much.
        let wide = Fared::new(assignment(1, 190.0, 8), mbit(190.0), [].into_iter());
        assert_eq!(found(&[fared(0, 400.0, 80.0), wide]), []);
    }

    proptest! {
        /// A relay that gives each socket the same, as far as it is asked for, lets nobody seem to be held back.
        #[test]
        fn a_relay_that_shares_alike_names_nobody(
            team in prop::collection::vec((1.0f64..500.0, 1u32..80), 1..6), capacity in 1.0f64..1000.0,
        ) {
            // Filled up from below: what a socket gets is the same for all that are not served.
            let mut level = f64::INFINITY;
            let mut left = capacity;
            let mut open: Vec<(f64, u32)> = team.clone();
            open.sort_by(|a, b| (a.0 / f64::from(a.1)).total_cmp(&(b.0 / f64::from(b.1))));
            let mut sockets: u32 = open.iter().map(|it| it.1).sum();
            for (rate, count) in open {
                let even = left / f64::from(sockets);
                if rate / f64::from(count) > even {
                    level = even;
                    break;
                }
                left -= rate;
                sockets -= count;
            }
            let all: Vec<Fared> = team.iter().enumerate().map(|(number, (rate, count))| {
                let got = rate.min(level * f64::from(*count));
                Fared::new(assignment(number, *rate, *count), mbit(got), [].into_iter())
            }).collect();
            prop_assert_eq!(starved(&all).collect::<Vec<_>>(), vec![], "{:?}", all);
        }
    }
}
