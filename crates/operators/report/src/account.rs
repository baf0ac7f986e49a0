//! What limited a measurer's sockets in a round.

use crate::text::percent;
use coordinator::{Account, Bottleneck, Record, RoundRecord, Waited};
use onion::Duration;
use schemars::JsonSchema;
use serde::Serialize;

/// Kernel statistics of a measurer's sockets to the relay, over a round. [`coordinator::Account`] explains each. Shares are from zero to
/// one, or slightly more, because the kernel's clock is coarse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RoundAccount {
    /// The round, counted from one.
    pub round: u32,
    /// The measurer, by its number in the team.
    pub measurer: usize,
    /// The measurer's own bottleneck, if any.
    pub limited_by: Option<Bottleneck>,
    /// Where most of its cells were queued.
    pub waited: Waited,
    /// Number of seconds with statistics.
    pub seconds: u32,
    /// Number of its sockets to the relay.
    pub sockets: u32,
    /// Share of their time in which they were limited by the relay's receive window (`rwnd_limited`).
    pub rwnd_limited_share: f64,
    /// Share of their time in which they were limited by the send buffer (`sndbuf_limited`).
    pub sndbuf_limited_share: f64,
    /// Share of their time in which they were busy without these limits: limited by the congestion window, or with all data in flight.
    pub congestion_share: f64,
    /// Share of their time in which they had less to send than permitted.
    pub app_limited_share: f64,
    /// Share of the time in which the assigned rate limited the measurer.
    pub throttled_share: f64,
    /// Share of the time in which its busiest thread was running or runnable.
    pub busiest_share: f64,
    /// Share of retransmitted bytes.
    pub retransmitted_share: f64,
    /// Out-of-order packets per received segment.
    pub out_of_order_share: f64,
    /// The minimum round-trip time, in ms.
    pub min_rtt_ms: Option<f64>,
    /// The mean round-trip time, in ms.
    pub mean_rtt_ms: Option<f64>,
    /// Mean number of bytes of cells that were sent and had not returned.
    pub outstanding_bytes: u64,
    /// Mean number of those bytes that the relay's kernel had acknowledged.
    pub taken_bytes: u64,
    /// Mean number of bytes in the measurer's kernel that were not sent yet.
    pub unsent_bytes: u64,
    /// Mean number of bytes that the relay's kernel had not acknowledged.
    pub unacked_bytes: u64,
}

impl RoundAccount {
    /// The statistics of all rounds and measurers that have them.
    pub(crate) fn all(record: &Record) -> Vec<Self> {
        let mut all = Vec::new();
        for round in &record.rounds {
            for (place, assignment) in round.allocation.assignments.iter().enumerate() {
                all.extend(Self::from_round(round, place, assignment.measurer.0));
            }
        }
        all
    }

    fn from_round(round: &RoundRecord, place: usize, measurer: usize) -> Option<Self> {
        let seconds = round.seconds.iter();
        let accounts: Vec<&Account> =
            seconds.filter_map(|second| second.accounts.get(place)?.as_ref()).collect();
        let sum = |sum: Account, account: &&Account| sum.followed_by(account);
        let (first, rest) = accounts.split_first()?;
        let whole = rest.iter().fold(**first, sum);
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        Some(Self {
            round: round.number,
            measurer,
            limited_by: round
                .bottlenecks
                .iter()
                .find(|bottleneck| bottleneck.measurer.0 == measurer)
                .map(|bottleneck| bottleneck.by),
            waited: whole.waited(),
            seconds: u32::try_from(accounts.len()).unwrap_or(u32::MAX),
            sockets: whole.sockets,
            rwnd_limited_share: whole.rwnd_limited_share(),
            sndbuf_limited_share: whole.sndbuf_limited_share(),
            congestion_share: whole.congestion_share(),
            app_limited_share: whole.app_limited_share(),
            throttled_share: whole.throttled_share(),
            busiest_share: whole.busiest_share(),
            retransmitted_share: whole.retransmitted_share(),
            out_of_order_share: whole.out_of_order_share(),
            min_rtt_ms: whole.min_rtt.map(ms),
            mean_rtt_ms: whole.mean_rtt.map(ms),
            outstanding_bytes: whole.outstanding_bytes,
            taken_bytes: whole.taken_bytes(),
            unsent_bytes: whole.unsent_bytes,
            unacked_bytes: whole.unacked_bytes,
        })
    }

    /// A description in words.
    pub(crate) fn in_words(&self) -> String {
        let rtt = match (self.min_rtt_ms, self.mean_rtt_ms) {
            (Some(least), Some(mean)) => {
                format!("; round trip: minimum {least:.1} ms, mean {mean:.1} ms")
            }
            _ => String::new(),
        };
        let own = match self.limited_by {
            Some(Bottleneck::Path { queue_ms }) => {
                format!(
                    "held back by a bottleneck of its own, where packets were queued for {queue_ms} ms; "
                )
            }
            Some(Bottleneck::Loss { loss_ppm }) => {
                let share = percent(f64::from(loss_ppm) / 1e6);
                format!("held back by a bottleneck of its own, which dropped {share}; ")
            }
            Some(Bottleneck::Share { percent }) => format!(
                "held back by a bottleneck of its own: each socket received {percent} % of the bytes of another measurer's socket; "
            ),
            Some(Bottleneck::Processor) => "held back by its processor; ".to_owned(),
            None => String::new(),
        };
        let waited = match self.waited {
            Waited::Relay => "cells were queued mostly at the relay or on the return path",
            Waited::Path => "cells were queued mostly on the path to the relay",
            Waited::Processor => "cells waited mostly for the processor",
            Waited::AssignedRate => "limited by the assigned rate",
        };
        let outstanding = self.outstanding_bytes.max(1) as f64;
        format!(
            "{own}{waited}; held back by the relay’s window {}, congestion {} (with little to send {}), our buffer {}, \
             the assigned rate {}; busiest thread {}; of the cells not returned yet the relay has acknowledged {}; retransmitted {}, out of order on the \
             return path {}{rtt}",
            percent(self.rwnd_limited_share),
            percent(self.congestion_share),
            percent(self.app_limited_share),
            percent(self.sndbuf_limited_share),
            percent(self.throttled_share),
            percent(self.busiest_share),
            percent(self.taken_bytes as f64 / outstanding),
            percent(self.retransmitted_share),
            percent(self.out_of_order_share),
        )
    }
}

#[cfg(test)]
mod tests;
