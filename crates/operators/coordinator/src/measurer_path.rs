//! The measurers' hosts, and what they have observed of their paths to a relay.

use crate::account::Account;
use crate::allocation::MeasurerId;
use crate::bottleneck::{Bottleneck, LIMITED_ASKED};
use crate::params::Params;
use crate::record::RoundRecord;
use alloc::collections::BTreeMap;
use onion::{Duration, Rate};

/// A measurer's host and path to a relay, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasurerPath {
    /// The number of its host. Measurers of one host share its link, so one of them does not show another's bottleneck.
    /// `None` is a host of its own.
    pub host: Option<u32>,
    /// Its path to the relay.
    pub path: PathSeen,
}

/// What a measurer's sockets have shown of its path to a relay. The default is an unknown path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSeen {
    /// The minimum round trip.
    pub rtt: Option<Duration>,
    /// Retransmitted bytes per million, towards the relay ([`Account::retransmitted_share`]); `None` if nothing was
    /// sent or there is no account.
    pub loss_ppm: Option<u32>,
    /// The bytes that it got back in the median second, if the path limited it; `None` otherwise.
    pub limit: Option<Rate>,
}

impl PathSeen {
    /// The maximum load in the next round, if others have the rest: the path would only limit it again.
    #[must_use]
    pub fn asked_at_most(&self) -> Rate {
        self.limit.map_or(Rate::MAX, |got| got.scaled(LIMITED_ASKED))
    }

    /// What the full-length rounds of a measurement, in order, have shown of the participants' paths. The latest value
    /// counts; of round trips the minimum.
    pub(crate) fn in_rounds(rounds: &[RoundRecord], params: &Params) -> BTreeMap<MeasurerId, Self> {
        let mut paths: BTreeMap<MeasurerId, Self> = BTreeMap::new();
        for round in rounds.iter().filter(|round| is_whole(round, params)) {
            for (place, assignment) in round.allocation.assignments.iter().enumerate() {
                if got_anything(round, place) {
                    paths.entry(assignment.measurer).or_default().see(round, place, params);
                }
            }
        }
        paths
    }

    /// Adds one more round, for the participant at this place. A round that ended early does not show which path
    /// limited.
    pub(crate) fn see(&mut self, round: &RoundRecord, place: usize, params: &Params) {
        self.see_accounts(round, place);
        if let Some(own) = round.allocation.assignments.get(place)
            && is_whole(round, params)
        {
            let held =
                round.bottlenecks.iter().find(|bottleneck| bottleneck.measurer == own.measurer);
            let held = held.filter(|bottleneck| bottleneck.by != Bottleneck::Processor);
            self.limit = held.map(|bottleneck| bottleneck.got);
        }
    }

    fn see_accounts(&mut self, round: &RoundRecord, place: usize) {
        let of = |counts: bool| {
            let seconds = round.seconds.iter();
            let seconds =
                seconds.filter(move |seconds| !counts || round.schedule.counts(seconds.second));
            seconds.filter_map(move |second| second.accounts.get(place)?.as_ref())
        };
        let least = of(false).filter_map(|account| account.min_rtt).min();
        self.rtt = [self.rtt, least].into_iter().flatten().min();
        // Losses of slow start are not those of the path.
        self.loss_ppm = loss_ppm(of(true)).or(self.loss_ppm);
    }
}

fn is_whole(round: &RoundRecord, params: &Params) -> bool {
    round.seconds.len() >= round.schedule.lead_s.saturating_add(params.seconds) as usize
}

fn got_anything(round: &RoundRecord, place: usize) -> bool {
    let returned = |bytes: &Option<u64>| bytes.is_some_and(|bytes| bytes > 0);
    round.seconds.iter().any(|second| second.returned_bytes.get(place).is_some_and(returned))
}

/// The retransmitted share; `None` if nothing was sent.
fn loss_ppm<'a>(accounts: impl Iterator<Item = &'a Account>) -> Option<u32> {
    let (sent, again) = accounts.fold((0u64, 0u64), |(sent, again), account| {
        (sent.saturating_add(account.sent_bytes), again.saturating_add(account.retransmitted_bytes))
    });
    let all = u128::from(sent) + u128::from(again);
    let share = (u128::from(again) * 1_000_000).checked_div(all)?;
    u32::try_from(share).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{Allocation, Assignment};
    use crate::bottleneck::MeasurerBottleneck;
    use crate::second::SecondRecord;
    use crate::socket_ramp::Schedule;
    use std::vec;
    use std::vec::Vec;

    const SECONDS: u32 = 4;

    fn mbit(mbit: f64) -> Rate {
        Rate::from_mbit_per_s(mbit)
    }

    /// A round of two measurers, the second of which loses this share; returns the limited measurer and the cause.
    fn round(seconds: u32, loss_percent: u64, bottlenecks: &[(usize, Bottleneck)]) -> RoundRecord {
        let account = |second: u32, loss: u64| Account {
            min_rtt: Some(Duration::from_millis(40 + u64::from(second))),
            sent_bytes: 1_000_000 - loss * 10_000,
            // In the lead, before second 1, slow start loses half.
            retransmitted_bytes: if second == 0 { 500_000 } else { loss * 10_000 },
            ..Account::default()
        };
        let assignment =
            |measurer| Assignment { measurer: MeasurerId(measurer), rate: mbit(100.0), sockets: 4 };
        let second = |second| SecondRecord {
            second,
            returned_bytes: vec![Some(1_000_000), Some(1_000_000), Some(0)],
            client_bytes: None,
            relay_reported: None,
            accounts: vec![Some(account(second, 0)), Some(account(second, loss_percent)), None],
        };
        let bottlenecks = bottlenecks.iter().map(|(measurer, by)| MeasurerBottleneck {
            measurer: MeasurerId(*measurer),
            by: *by,
            got: mbit(8.0),
        });
        RoundRecord {
            number: 1,
            guess: mbit(100.0),
            allocation: Allocation {
                assignments: [0, 1, 2].map(assignment).to_vec(),
                needed: mbit(300.0),
                available: mbit(300.0),
            },
            schedule: Schedule { lead_s: 1, held_back_s: None, few_circuits_s: 0 },
            started_unix_s: None,
            checked_cells: 0,
            bottlenecks: bottlenecks.collect(),
            seconds: (0..seconds).map(second).collect::<Vec<_>>(),
        }
    }

    fn seen(rounds: &[RoundRecord]) -> Vec<(usize, Option<u32>, Option<Rate>)> {
        let params = Params { seconds: SECONDS, ..Params::default() };
        let paths = PathSeen::in_rounds(rounds, &params);
        assert!(
            paths.values().all(|path| path.rtt == Some(Duration::from_millis(40))),
            "{paths:?}"
        );
        paths.into_iter().map(|(id, path)| (id.0, path.loss_ppm, path.limit)).collect()
    }

    const QUEUE: Bottleneck = Bottleneck::Path { queue_ms: 80 };

    #[test]
    fn observations_come_from_full_rounds_without_slow_start() {
        let whole = round(SECONDS + 1, 1, &[(1, QUEUE)]);
        let both = [(0, Some(0), None), (1, Some(10_000), Some(mbit(8.0)))];
        assert_eq!(
            seen(core::slice::from_ref(&whole)),
            both,
            "no observation without returned bytes"
        );
        let better = round(SECONDS + 1, 0, &[]);
        let free = [(0, Some(0), None), (1, Some(0), None)];
        assert_eq!(seen(&[whole.clone(), better]), free, "the latest counts");
        // A round that ended early has no result.
        let cut = round(SECONDS, 1, &[]);
        assert_eq!(seen(&[whole, cut]), both);
    }

    #[test]
    fn a_busy_processor_is_not_attributed_to_the_path() {
        let busy = round(SECONDS + 1, 0, &[(0, Bottleneck::Processor)]);
        assert_eq!(seen(&[busy])[0].2, None);
    }

    #[test]
    fn a_limited_measurer_is_assigned_little_more_than_it_got() {
        let path = PathSeen { limit: Some(mbit(8.0)), ..PathSeen::default() };
        assert_eq!(path.asked_at_most(), mbit(10.0));
        assert_eq!(PathSeen::default().asked_at_most(), Rate::MAX);
    }
}
