//! Measurers that something of their own held back, and not the relay.

mod unqueued;

pub(crate) use unqueued::{Fared, own_losses, starved};

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

/// What a measurer that something of its own has held back is asked for in a later round, of what it got.
pub(crate) const HINDERED_ASKED: f64 = 1.25;

/// Sockets that the relay's window holds back for a greater share of their time wait for the relay.
const WINDOW_MAX: f64 = 0.05;

/// A measurer that something of its own held back in a round. What came back to it the relay has done, but
/// it does not show that the relay could not do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurerBottleneck {
    /// Who.
    pub measurer: MeasurerId,
    /// By what.
    pub by: Bottleneck,
    /// What came back to it all the same, in the median second.
    pub got: Rate,
}

/// What of its own holds a measurer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// A narrow place on its path to the relay: its packets wait longer than those of the others.
    Path {
        /// So much longer, in whole milliseconds.
        queue_ms: u32,
    },
    /// A narrow place on its path that drops what it does not let through, and keeps no queue: its packets are lost, those of
    /// others are not.
    Loss {
        /// Of a million bytes that it sent, so many it had sent before.
        loss_ppm: u32,
    },
    /// A narrow place of its own that nothing else shows, such as one on the way back from the relay. Socket by socket less
    /// came back to it than to another, to whom all came back that it had to send: a relay that could do no more would have
    /// kept back that one's first.
    Share {
        /// So much of what came back to that one, socket by socket.
        percent: u32,
    },
    /// Its processor was busy all the time.
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
                "the path of {measurer} held it back at {got}: it loses {:.2} % of its packets, and those of others do \
                 not get lost",
                f64::from(*loss_ppm) / 1e4
            ),
            Bottleneck::Share { percent } => write!(
                f,
                "something of its own held {measurer} back at {got}: socket by socket {percent} % came back of what \
                 came back to another, which had no more to send"
            ),
            Bottleneck::Processor => {
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
    pub(crate) least_rtt: Duration,
    pub(crate) wait: Duration,
    /// The same also where it waited for its assigned rate: its packets meet what stands on the relay's own link all the same.
    met: Duration,
}

impl Queue {
    /// By the accounts of a measurer's seconds; `None` if they do not tell.
    pub(crate) fn of<'a>(
        measurer: MeasurerId,
        accounts: impl Iterator<Item = &'a Account> + Clone,
    ) -> Option<Self> {
        let least_rtt = accounts.clone().filter_map(|it| it.least_rtt).min()?;
        let median_wait = |counts: fn(&Account) -> bool| {
            let wait = |it: &Account| {
                let wait = it.mean_rtt?.saturating_sub(least_rtt);
                let wait = if counts(it) { wait } else { Duration::ZERO };
                Some(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
            };
            let mut waits: Vec<u64> = accounts.clone().filter_map(wait).collect();
            waits.sort_unstable();
            median(&waits).map(Duration::from_micros)
        };
        let wait = median_wait(is_on_the_path)?;
        let met = median_wait(|it| is_on_the_path(it) || it.waited() == Waited::AssignedRate)?;
        Some(Self { measurer, least_rtt, wait, met })
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

/// Whether most cells waited on the path in a second, and the relay read what came.
fn is_on_the_path(account: &Account) -> bool {
    account.waited() == Waited::Path && account.peer_window_share() <= WINDOW_MAX
}

/// Those whose packets wait in a queue that the others do not meet, and how much longer they do.
///
/// The relay's own link is on everybody's path: a queue there lets the packets of all wait alike. What some
/// wait longer than those who wait least, they wait elsewhere.
pub(crate) fn own_queues(queues: &[Queue]) -> impl Iterator<Item = (MeasurerId, Duration)> {
    let common = queues.iter().map(|it| it.met).min().unwrap_or_default();
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
    fn a_queue_that_one_meets_who_has_no_more_to_send_is_not_the_others_own() {
        let (time, throttled) = (Duration::from_secs(1), Duration::from_millis(900));
        let served = |mean_ms| Account {
            pump_time: time,
            throttled,
            least_rtt: Some(ms(40)),
            mean_rtt: Some(ms(mean_ms)),
            ..Account::default()
        };
        let served = |mean_ms| Queue::of(MeasurerId(0), [served(mean_ms)].iter());
        assert_eq!(own(&[served(120), queue(1, 40, &[121])]), [], "it stands on the relay's link");
        assert_eq!(own(&[served(41), queue(1, 40, &[121])]), [(1, 80)]);
        assert_eq!(own(&[served(200), queue(1, 40, &[41])]), [], "and nobody is named for it");
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
