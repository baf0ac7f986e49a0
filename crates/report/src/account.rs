//! Where a measurer's sockets waited in a round.

use crate::text::percent;
use coordinator::{Account, Bottleneck, Record, RoundRecord, Waited};
use onion::Duration;
use serde::Serialize;

/// What the kernels of a measurer said of its sockets to the relay, over a round. Shares are from zero to
/// one, or a little more, since the kernel's clock is coarse; each is explained at
/// [`coordinator::Account`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RoundAccount {
    /// The round, counted from one.
    pub round: u32,
    /// The measurer, by its number in the team.
    pub measurer: usize,
    /// What of its own held the measurer back, if something did.
    pub limited_by: Option<Bottleneck>,
    /// Where most of its cells waited.
    pub waited: Waited,
    /// Seconds of which there is an account.
    pub seconds: u32,
    /// Its sockets to the relay.
    pub sockets: u32,
    /// Share of their time in which the relay's receive window held them back.
    pub rwnd_limited_share: f64,
    /// In which our send buffer did.
    pub sndbuf_limited_share: f64,
    /// In which they were busy and neither did: the congestion window, or all was under way.
    pub congestion_share: f64,
    /// In which they had less to send than they might have.
    pub app_limited_share: f64,
    /// Share of the time in which the assigned rate held the measurer back.
    pub throttled_share: f64,
    /// In which its busiest thread ran, or was ready to run.
    pub busiest_share: f64,
    /// Share of the bytes that were sent again.
    pub retransmitted_share: f64,
    /// Packets out of order, for each segment that came back.
    pub out_of_order_share: f64,
    /// The least round trip, in ms.
    pub min_rtt_ms: Option<f64>,
    /// The mean round trip, in ms.
    pub mean_rtt_ms: Option<f64>,
    /// Bytes of cells that were sent and not back, on an average.
    pub outstanding_bytes: u64,
    /// Those of them that the relay's kernel had acknowledged.
    pub taken_bytes: u64,
    /// Bytes that our kernel had not sent yet, on an average.
    pub unsent_bytes: u64,
    /// Bytes that the relay's kernel had not acknowledged, on an average.
    pub unacked_bytes: u64,
}

impl RoundAccount {
    /// Those of all rounds and measurers of which there is any.
    pub(crate) fn all(record: &Record) -> Vec<Self> {
        let mut all = Vec::new();
        for round in &record.rounds {
            for (place, assignment) in round.allocation.assignments.iter().enumerate() {
                all.extend(Self::of(round, place, assignment.measurer.0));
            }
        }
        all
    }

    fn of(round: &RoundRecord, place: usize, measurer: usize) -> Option<Self> {
        let seconds = round.seconds.iter();
        let accounts: Vec<&Account> =
            seconds.filter_map(|it| it.accounts.get(place)?.as_ref()).collect();
        let sum = |sum: Account, it: &&Account| sum.followed_by(it);
        let (first, rest) = accounts.split_first()?;
        let whole = rest.iter().fold(**first, sum);
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        Some(Self {
            round: round.number,
            measurer,
            limited_by: round
                .bottlenecks
                .iter()
                .find(|it| it.measurer.0 == measurer)
                .map(|it| it.by),
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

    /// It in words.
    pub(crate) fn in_words(&self) -> String {
        let rtt = match (self.min_rtt_ms, self.mean_rtt_ms) {
            (Some(least), Some(mean)) => {
                format!("; round trips least {least:.1} ms, mean {mean:.1} ms")
            }
            _ => String::new(),
        };
        let own = match self.limited_by {
            Some(Bottleneck::Path { queue_ms }) => {
                format!(
                    "held back by a narrow place of its own, where packets waited {queue_ms} ms; "
                )
            }
            Some(Bottleneck::Loss { loss_ppm }) => {
                let share = percent(f64::from(loss_ppm) / 1e6);
                format!("held back by a narrow place of its own, which dropped {share}; ")
            }
            Some(Bottleneck::Share { percent }) => format!(
                "held back by something of its own: each socket received {percent} % of what another measurer's received; "
            ),
            Some(Bottleneck::Processor) => "held back by its processor; ".to_owned(),
            None => String::new(),
        };
        let waited = match self.waited {
            Waited::Relay => "cells waited mostly at the relay or on the return path",
            Waited::Path => "cells waited mostly on the path to the relay",
            Waited::Processor => "cells waited mostly for the processor",
            Waited::AssignedRate => "the assigned rate allowed no more",
        };
        let outstanding = self.outstanding_bytes.max(1) as f64;
        format!(
            "{own}{waited}; held back by the relay’s window {}, congestion {} (with little to send {}), our buffer {}, \
             the assigned rate {}; busiest thread {}; of what is not back the relay has taken {}; sent again {}, out of order on the \
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
