//! Measurers that something of their own held back, and not the relay.

use crate::account::{Account, Waited};
use crate::allocation::MeasurerId;
use crate::stats::median;
use alloc::vec::Vec;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// Packets that wait for less than this stand in no queue worth the name.
const QUEUE_MIN: Duration = Duration::from_millis(10);

/// Nor do those that wait for less than this part of the round trip without a queue: what long paths take
/// wanders, and the more the longer they are.
const QUEUE_PART: u32 = 10;

/// Sockets that the relay's window holds back for a greater share of their time wait for the relay.
const WINDOW_MAX: f64 = 0.05;

/// A measurer that something of its own held back in a round. What came back to it the relay has done, but
/// it does not show that the relay could not do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hindered {
    /// Who.
    pub measurer: MeasurerId,
    /// By what.
    pub by: Hindrance,
    /// What came back to it all the same, in the median second.
    pub got: Rate,
}

/// What of its own holds a measurer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// A narrow place on its path to the relay: its packets wait longer than those of the others.
    Path {
        /// So much longer, in whole milliseconds.
        queue_ms: u32,
    },
    /// Its processor was busy all the time.
    Processor,
}

impl fmt::Display for Hindered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measurer, by, got } = self;
        match by {
            Hindrance::Path { queue_ms } => write!(
                f,
                "the path of {measurer} held it back at {got}: its packets waited {queue_ms} ms longer than \
                 those of others"
            ),
            Hindrance::Processor => {
                write!(
                    f,
                    "{measurer} is a bottleneck, at {got}: its processor was busy all the time"
                )
            }
        }
    }
}

/// How long the packets of a measurer wait on their path to the relay, in the median second; not at all where
/// most cells [wait](Account::waited) at the relay, or where its window holds them back. A relay that reads when
/// it may, and not when something comes, acknowledges late, by 40 ms and more: its measurers' round trips are
/// long, and no queue stands on their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) measurer: MeasurerId,
    /// The round trip without it.
    least_rtt: Duration,
    pub(crate) wait: Duration,
}

impl Queue {
    /// By the accounts of a measurer's seconds; `None` if they do not tell.
    pub(crate) fn of<'a>(
        measurer: MeasurerId,
        accounts: impl Iterator<Item = &'a Account> + Clone,
    ) -> Option<Self> {
        let least_rtt = accounts.clone().filter_map(|it| it.least_rtt).min()?;
        let wait = |it: &Account| {
            let is_the_paths = it.waited() == Waited::Path && it.peer_window_share() <= WINDOW_MAX;
            let wait = it.mean_rtt?.saturating_sub(least_rtt);
            let wait = if is_the_paths { wait } else { Duration::ZERO };
            Some(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
        };
        let waits = accounts.filter_map(wait);
        let mut waits: Vec<u64> = waits.collect();
        waits.sort_unstable();
        Some(Self { measurer, least_rtt, wait: Duration::from_micros(median(&waits)?) })
    }

    /// Whether a time that packets wait here is that of a queue.
    fn is_queue(&self, wait: Duration) -> bool {
        wait >= QUEUE_MIN.max(self.least_rtt / QUEUE_PART)
    }

    /// Whether a queue stands, be it the relay's or the path's own.
    pub(crate) fn stands(&self) -> bool {
        self.is_queue(self.wait)
    }
}

/// Those whose packets wait in a queue that the others do not meet, and how much longer they do.
///
/// The relay's own link is on everybody's path: a queue there lets the packets of all wait alike. What some
/// wait longer than those who wait least, they wait elsewhere.
pub(crate) fn own_queues(queues: &[Queue]) -> impl Iterator<Item = (MeasurerId, Duration)> {
    let common = queues.iter().map(|it| it.wait).min().unwrap_or_default();
    queues.iter().filter_map(move |queue| {
        let own = queue.wait.saturating_sub(common);
        queue.is_queue(own).then_some((queue.measurer, own))
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

    /// Most of what is not back the relay has not acknowledged.
    fn on_the_path() -> Account {
        Account { outstanding_bytes: 1000, unacked_bytes: 900, ..Account::default() }
    }

    /// Of seconds with these mean round trips.
    fn queue(measurer: usize, least_ms: u64, means_ms: &[u64]) -> Option<Queue> {
        let account = |mean: &u64| Account {
            least_rtt: Some(ms(least_ms)),
            mean_rtt: Some(ms(*mean)),
            ..on_the_path()
        };
        let accounts: Vec<Account> = means_ms.iter().map(account).collect();
        Queue::of(MeasurerId(measurer), accounts.iter())
    }

    fn own(queues: &[Option<Queue>]) -> Vec<(usize, u32)> {
        let queues: Vec<Queue> = queues.iter().copied().flatten().collect();
        own_queues(&queues).map(|(id, wait)| (id.0, whole_ms(wait))).collect()
    }

    #[test]
    fn a_queue_that_all_meet_is_nobodys_own() {
        assert_eq!(own(&[queue(0, 40, &[120]), queue(1, 200, &[284])]), vec![]);
        assert_eq!(own(&[queue(3, 40, &[120])]), vec![], "alone it has nothing to compare with");
    }

    #[test]
    fn a_queue_that_one_meets_is_its_own() {
        let near = queue(0, 40, &[41]);
        assert_eq!(own(&[near, queue(1, 40, &[90])]), vec![(1, 49)]);
        assert_eq!(own(&[near, queue(1, 40, &[50])]), vec![], "less than 10 ms longer");
        assert_eq!(own(&[near, queue(1, 300, &[325])]), vec![], "a long path wanders so far");
        assert_eq!(own(&[near, queue(1, 300, &[332])]), vec![(1, 31)]);
    }

    #[test]
    fn a_relay_that_does_not_read_is_no_queue() {
        let account = |unacked_bytes: u64| Account {
            unacked_bytes,
            least_rtt: Some(ms(1)),
            mean_rtt: Some(ms(36)),
            ..on_the_path()
        };
        let queue = |unacked| Queue::of(MeasurerId(0), [account(unacked)].iter());
        let window = |peer_window: u64| Account {
            socket_time: ms(1000),
            peer_window: ms(peer_window),
            ..account(900)
        };
        let stands = |it| Queue::of(MeasurerId(0), [window(it)].iter()).map(|it| it.stands());
        assert_eq!([40, 60].map(stands), [Some(true), Some(false)], "its window is closed");
        assert_eq!([600, 400].map(|it| queue(it).map(|it| it.stands())), [Some(true), Some(false)]);
        // Whom it holds back has none on its path, so another's is that one's own.
        assert_eq!(own(&[queue(400), self::queue(1, 1, &[41])]), vec![(1, 40)]);
    }

    #[test]
    fn the_median_second_decides_and_who_says_nothing_has_no_queue() {
        assert!(queue(0, 20, &[20, 90, 90]).is_some_and(|it| it.stands()));
        assert!(!queue(0, 20, &[20, 20, 90]).is_some_and(|it| it.stands()));
        assert_eq!(queue(0, 20, &[]), None);
        assert_eq!(Queue::of(MeasurerId(0), [on_the_path()].iter()), None);
    }
}
