//! Measurers that were limited by a cause of their own, and not by the relay.

mod unqueued;

pub(crate) use unqueued::{MeasurerResult, own_losses, starved};

use crate::account::{Account, Waited};
use crate::allocation::MeasurerId;
use crate::stats::median;
use alloc::vec::Vec;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// The minimum queueing delay.
const QUEUE_MIN: Duration = Duration::from_millis(10);

/// A queueing delay must also exceed this share of the base round trip: the round-trip time of long paths varies in
/// proportion.
const QUEUE_PART: u32 = 10;

/// The load of a limited measurer in a later round, relative to what it achieved.
pub(crate) const LIMITED_ASKED: f64 = 1.25;

/// Sockets that the relay's window limits for a greater share of their time wait for the relay.
const WINDOW_MAX: f64 = 0.05;

/// A measurer that was limited by a cause of its own in a round. The relay did return those bytes, but they do not show
/// its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurerBottleneck {
    /// The measurer.
    pub measurer: MeasurerId,
    /// The cause.
    pub by: Bottleneck,
    /// The bytes that it got back, in the median second.
    pub got: Rate,
}

/// The cause that limits a measurer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Bottleneck {
    /// A bottleneck with a queue on its path to the relay: its packets wait longer than those of the others.
    Path {
        /// The additional delay, in whole milliseconds.
        queue_ms: u32,
    },
    /// A bottleneck without a queue on its path, such as a policer: its packets are lost, and those of others are not.
    Loss {
        /// Retransmitted bytes per million.
        loss_ppm: u32,
    },
    /// A bottleneck without other symptoms, such as one on the return path. Per socket, less came back to it than to
    /// another measurer that got back everything it sent. A relay at its limit would have reduced the other's share
    /// first.
    Share {
        /// Its share per socket, in percent of the other's.
        percent: u32,
    },
    /// Its processor had no idle time, in the whole round or in at least half of its seconds.
    Processor,
}

impl fmt::Display for MeasurerBottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measurer, by, got } = self;
        match by {
            Bottleneck::Path { queue_ms } => write!(
                f,
                "the path of {measurer} held it back at {got}: its packets waited {queue_ms} ms longer than \
                 those of others"
            ),
            Bottleneck::Loss { loss_ppm } => write!(
                f,
                "the path of {measurer} held it back at {got}: it loses {:.2} % of its packets, and the paths of others \
                 do not",
                f64::from(*loss_ppm) / 1e4
            ),
            Bottleneck::Share { percent } => write!(
                f,
                "a bottleneck of its own held {measurer} back at {got}: per socket it got {percent} % of the bytes of \
                 another, which got back its whole load"
            ),
            Bottleneck::Processor => write!(
                f,
                "{measurer} is a bottleneck, at {got}: its processor was busy in most seconds"
            ),
        }
    }
}

/// The queueing delay on a measurer's path to the relay, in the median second. It is zero if most cells
/// [wait](Account::waited) at the relay, or if its window limits them. A relay that reads periodically, and not on
/// arrival, delays acknowledgements by 40 ms and more: the round-trip times of its measurers are long without a queue
/// on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) measurer: MeasurerId,
    /// The round trip without queueing.
    pub(crate) min_rtt: Duration,
    pub(crate) wait: Duration,
    /// The delay even if the measurer waited for its assigned rate: its packets still meet the queue on the relay's own
    /// link.
    met: Duration,
}

impl Queue {
    /// From the accounts of a measurer's seconds; `None` if they have no such data.
    pub(crate) fn from_accounts<'a>(
        measurer: MeasurerId,
        accounts: impl Iterator<Item = &'a Account> + Clone,
    ) -> Option<Self> {
        let min_rtt = accounts.clone().filter_map(|account| account.min_rtt).min()?;
        let median_wait = |counts: fn(&Account) -> bool| {
            let wait = |account: &Account| {
                let wait = account.mean_rtt?.saturating_sub(min_rtt);
                let wait = if counts(account) { wait } else { Duration::ZERO };
                Some(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
            };
            let mut waits: Vec<u64> = accounts.clone().filter_map(wait).collect();
            waits.sort_unstable();
            median(&waits).map(Duration::from_micros)
        };
        let wait = median_wait(is_on_the_path)?;
        let met = median_wait(|account| {
            is_on_the_path(account) || account.waited() == Waited::AssignedRate
        })?;
        Some(Self { measurer, min_rtt, wait, met })
    }

    /// Whether a delay is long enough for a queue.
    fn is_queue(&self, wait: Duration) -> bool {
        wait >= QUEUE_MIN.max(self.min_rtt / QUEUE_PART)
    }

    /// Whether there is a queue, on the relay's link or elsewhere on the path.
    pub(crate) fn exists(&self) -> bool {
        self.is_queue(self.wait)
    }
}

/// Whether, in a second, most cells waited on the path, and the relay read its input.
fn is_on_the_path(account: &Account) -> bool {
    account.waited() == Waited::Path && account.rwnd_limited_share() <= WINDOW_MAX
}

/// The measurers whose packets wait in a queue that the others do not meet, with the additional delay as the cause.
///
/// The relay's own link is on every path, and a queue there delays all packets alike. A delay beyond the shortest one
/// arises elsewhere.
pub(crate) fn own_queues(queues: &[Queue]) -> impl Iterator<Item = (MeasurerId, Bottleneck)> {
    let common = queues.iter().map(|queue| queue.met).min().unwrap_or_default();
    queues.iter().filter_map(move |queue| {
        let own = queue.wait.saturating_sub(common);
        let cause = Bottleneck::Path { queue_ms: whole_ms(own) };
        queue.is_queue(own).then_some((queue.measurer, cause))
    })
}

/// In whole milliseconds.
pub(crate) fn whole_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The relay has not acknowledged most of the missing bytes.
    fn on_the_path() -> Account {
        Account { outstanding_bytes: 1000, unacked_bytes: 900, ..Account::default() }
    }

    /// The queue of a measurer whose seconds have these mean round-trip times.
    fn queue(measurer: usize, least_ms: u64, means_ms: &[u64]) -> Option<Queue> {
        let account = |mean: &u64| Account {
            min_rtt: Some(ms(least_ms)),
            mean_rtt: Some(ms(*mean)),
            ..on_the_path()
        };
        let accounts: Vec<Account> = means_ms.iter().map(account).collect();
        Queue::from_accounts(MeasurerId(measurer), accounts.iter())
    }

    /// The places of measurers with a queue of their own, and its delay in milliseconds.
    fn own(queues: &[Option<Queue>]) -> Vec<(usize, u32)> {
        let queues: Vec<Queue> = queues.iter().copied().flatten().collect();
        let delay = |(id, cause): (MeasurerId, Bottleneck)| match cause {
            Bottleneck::Path { queue_ms } => (id.0, queue_ms),
            other => panic!("{other:?}"),
        };
        own_queues(&queues).map(delay).collect()
    }

    #[test]
    fn a_queue_on_all_paths_is_attributed_to_no_measurer() {
        assert_eq!(own(&[queue(0, 40, &[120]), queue(1, 200, &[284])]), vec![]);
        assert_eq!(
            own(&[queue(3, 40, &[120])]),
            vec![],
            "there is no other measurer to compare with"
        );
    }

    #[test]
    fn a_queue_that_a_rate_limited_measurer_also_meets_is_not_attributed_to_the_other() {
        let (time, throttled) = (Duration::from_secs(1), Duration::from_millis(900));
        let served = |mean_ms| Account {
            pump_time: time,
            throttled,
            min_rtt: Some(ms(40)),
            mean_rtt: Some(ms(mean_ms)),
            ..Account::default()
        };
        let served = |mean_ms| Queue::from_accounts(MeasurerId(0), [served(mean_ms)].iter());
        assert_eq!(
            own(&[served(120), queue(1, 40, &[121])]),
            [],
            "the queue is on the relay's link"
        );
        assert_eq!(own(&[served(41), queue(1, 40, &[121])]), [(1, 80)]);
        assert_eq!(own(&[served(200), queue(1, 40, &[41])]), [], "no measurer is named");
    }

    #[test]
    fn a_queue_on_one_path_is_attributed_to_its_measurer() {
        let near = queue(0, 40, &[41]);
        assert_eq!(own(&[near, queue(1, 40, &[90])]), vec![(1, 49)]);
        assert_eq!(own(&[near, queue(1, 40, &[50])]), vec![], "less than 10 ms longer");
        assert_eq!(own(&[near, queue(1, 300, &[325])]), vec![], "a long path varies by as much");
        assert_eq!(own(&[near, queue(1, 300, &[332])]), vec![(1, 31)]);
    }

    #[test]
    fn a_relay_that_does_not_read_is_not_taken_for_a_queue() {
        let account = |unacked_bytes: u64| Account {
            unacked_bytes,
            min_rtt: Some(ms(1)),
            mean_rtt: Some(ms(36)),
            ..on_the_path()
        };
        let queue = |unacked| Queue::from_accounts(MeasurerId(0), [account(unacked)].iter());
        let window = |rwnd_limited: u64| Account {
            socket_time: ms(1000),
            rwnd_limited: ms(rwnd_limited),
            ..account(900)
        };
        let exists = |rwnd_limited| {
            Queue::from_accounts(MeasurerId(0), [window(rwnd_limited)].iter())
                .map(|queue| queue.exists())
        };
        assert_eq!([40, 60].map(exists), [Some(true), Some(false)], "its window is closed");
        assert_eq!(
            [600, 400].map(|unacked| queue(unacked).map(|queue| queue.exists())),
            [Some(true), Some(false)]
        );
        // The limited measurer has no queue on its path, so the other's queue is its own.
        assert_eq!(own(&[queue(400), self::queue(1, 1, &[41])]), vec![(1, 40)]);
    }

    #[test]
    fn the_median_second_decides_and_a_measurer_without_data_has_no_queue() {
        assert!(queue(0, 20, &[20, 90, 90]).is_some_and(|queue| queue.exists()));
        assert!(!queue(0, 20, &[20, 20, 90]).is_some_and(|queue| queue.exists()));
        assert_eq!(queue(0, 20, &[]), None);
        assert_eq!(Queue::from_accounts(MeasurerId(0), [on_the_path()].iter()), None);
    }
}
