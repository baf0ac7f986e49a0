//! Where a measurer's sockets waited, as reported by the kernel.

mod micros;

use onion::Duration;
use serde::{Deserialize, Serialize};

/// The kernel's account of a measurer's sockets to the relay in one second: why they did not send more, and the state
/// of the returned data.
///
/// Sums over sockets of the changes between two samples (`struct tcp_info` of `linux/tcp.h`, whose members are named
/// here). Times have the resolution of the kernel's tick, 1 to 10 ms. Samples are about a second apart, and shares
/// refer to the actual interval. They are from zero to one, or slightly more due to ticks, and zero for an empty
/// interval.
///
/// The measurer reports it, and no one can verify it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Time between the two samples; of several pumps the longest.
    #[serde(rename = "elapsed_us", with = "micros")]
    pub elapsed: Duration,
    /// The time between samples, summed over the pumps.
    #[serde(rename = "pump_time_us", with = "micros")]
    pub pump_time: Duration,
    /// The time between samples, summed over the sockets to the relay.
    #[serde(rename = "socket_time_us", with = "micros")]
    pub socket_time: Duration,
    /// The number of sampled sockets to the relay, without those that have not started to send.
    pub sockets: u32,
    /// Time with data under way or waiting to be sent, summed over the sockets to the relay
    /// (`tcpi_busy_time`). The two times that follow are parts of it.
    #[serde(rename = "busy_us", with = "micros")]
    pub busy: Duration,
    /// Time in which the relay's receive window was full (`tcpi_rwnd_limited`): the relay did not read.
    #[serde(rename = "rwnd_limited_us", alias = "peer_window_us", with = "micros")]
    pub rwnd_limited: Duration,
    /// Time in which the send buffer of the measurer's kernel limited the socket (`tcpi_sndbuf_limited`).
    #[serde(rename = "sndbuf_limited_us", alias = "send_buffer_us", with = "micros")]
    pub sndbuf_limited: Duration,
    /// Time of the sockets that had sent all their data, which was less than their congestion windows allowed
    /// (`tcpi_delivery_rate_app_limited`, and no `tcpi_notsent_bytes`): circuits' windows or the assigned rate limited
    /// them. The state at the second sample is assumed for the whole interval.
    #[serde(rename = "app_limited_us", with = "micros")]
    pub app_limited: Duration,
    /// Bytes of the TCP streams to the relay that were sent for the first time, TLS included
    /// (`tcpi_bytes_sent` less `tcpi_bytes_retrans`).
    pub sent_bytes: u64,
    /// Retransmitted bytes (`tcpi_bytes_retrans`). A relay that does not read causes some, too: its kernel drops what
    /// exceeds its buffer.
    pub retransmitted_bytes: u64,
    /// Unsent bytes in the measurer's kernel, at the second sample (`tcpi_notsent_bytes`); over several seconds the
    /// mean, as for the next two.
    pub unsent_bytes: u64,
    /// Unacknowledged bytes to the relay, at the second sample (`tcpi_unacked` times `tcpi_snd_mss`): in flight, or
    /// lost.
    pub unacked_bytes: u64,
    /// Bytes of cells that had been sent and not returned, at the second sample; see
    /// [`taken_bytes`](Self::taken_bytes).
    pub outstanding_bytes: u64,
    /// The minimum round trip of any socket to the relay in the last minutes (`tcpi_min_rtt`); `None` without any.
    #[serde(rename = "min_rtt_us", alias = "least_rtt_us", with = "micros::optional")]
    pub min_rtt: Option<Duration>,
    /// The mean of the smoothed round trips of the sockets to the relay at the second sample (`tcpi_rtt`); `None`
    /// without any. The excess over the minimum is queueing delay.
    #[serde(rename = "mean_rtt_us", with = "micros::optional")]
    pub mean_rtt: Option<Duration>,
    /// Segments with data from the relay (`tcpi_data_segs_in`): at the landings in transit, on the sockets to the relay
    /// in echo.
    pub received_segments: u64,
    /// Packets that arrived out of order (`tcpi_rcv_ooopack`): loss or reordering on the return path. The kernel may
    /// have joined several segments to one packet.
    pub out_of_order_packets: u64,
    /// The duration of the silence at the second sample; of several pumps the shortest.
    #[serde(rename = "silent_us", with = "micros", default)]
    pub silent: Duration,
    /// The duration of the silence when the relay's host answered a new connection, if it has answered each one since;
    /// `None` otherwise. A connection is tried after half a second, and then once a second.
    #[serde(rename = "answered_after_us", with = "micros::optional", default)]
    pub answered_after: Option<Duration>,
    /// Time in which the assigned rate prevented a pump from sending what its circuits had room for, summed over the
    /// pumps.
    #[serde(rename = "throttled_us", with = "micros")]
    pub throttled: Duration,
    /// Time in which the thread of a pump ran or was ready to run; of several pumps the busiest one's.
    #[serde(rename = "busiest_us", with = "micros")]
    pub busiest: Duration,
}

/// Where most of a measurer's cells waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Waited {
    /// At the relay, or on the return path: the relay's kernel had acknowledged most of the missing bytes, or its
    /// window was full.
    #[default]
    Relay,
    /// On the path to the relay: in the measurer's kernel, in flight, or lost.
    Path,
    /// For the measurer's processor, which had no idle time.
    Processor,
    /// For the assigned rate.
    AssignedRate,
}

impl Waited {
    /// The place, as it follows "waited for".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Relay => "the relay",
            Self::Path => "the path to the relay",
            Self::Processor => "a measurer's processor",
            Self::AssignedRate => "the assigned load",
        }
    }
}

/// A measurer whose busiest thread exceeds this share has no spare processor time.
pub(crate) const BUSY_MAX: f64 = 0.95;

/// A cause that limits for a greater share of the time is the main one.
const MOSTLY: f64 = 0.5;

impl Account {
    /// Where most cells waited. That a second waited for the relay proves nothing: a relay with spare capacity and one
    /// without look alike if the circuits' windows are the limit. But a round that mostly waited for our own side has not
    /// shown the relay's limit ([`HeldSeconds::own_cause`](crate::HeldSeconds::own_cause)).
    #[must_use]
    pub fn waited(&self) -> Waited {
        if self.busiest_share() > BUSY_MAX {
            Waited::Processor
        } else if self.throttled_share() > MOSTLY {
            Waited::AssignedRate
        } else if self.rwnd_limited_share() > MOSTLY
            || self.taken_bytes() as f64 >= MOSTLY * self.outstanding_bytes as f64
        {
            Waited::Relay
        } else {
            Waited::Path
        }
    }

    /// Busy time that neither the relay's window nor the send buffer explains: either the congestion window limited the
    /// sockets, *or all their data was in flight*. These times do not distinguish the two;
    /// [`app_limited`](Self::app_limited) helps.
    #[must_use]
    pub const fn congestion(&self) -> Duration {
        self.busy.saturating_sub(self.rwnd_limited).saturating_sub(self.sndbuf_limited)
    }

    /// Bytes that the relay's kernel had acknowledged and that had not returned: in its receive buffers, in the relay,
    /// or on the return path. If a relay is slower than its sockets, its queue appears here long before its receive
    /// window closes.
    #[must_use]
    pub const fn taken_bytes(&self) -> u64 {
        self.outstanding_bytes.saturating_sub(self.unsent_bytes).saturating_sub(self.unacked_bytes)
    }

    /// Whether the relay had data to send back and sent nothing, although its path had worked for long enough to
    /// exclude the effect of an earlier interruption. After one, TCP retransmits at growing intervals: by the time the
    /// outage has lasted twice as long, plus the first interval, it has retransmitted.
    #[must_use]
    pub fn shows_stalled_relay(&self) -> bool {
        const FIRST_AGAIN: Duration = Duration::from_millis(500);
        let is_settled = |after: Duration| self.silent >= after * 2 + FIRST_AGAIN;
        self.taken_bytes() > 0 && self.answered_after.is_some_and(is_settled)
    }

    /// Share of the sockets' time in which the relay's receive window held them back.
    #[must_use]
    pub fn rwnd_limited_share(&self) -> f64 {
        share(self.rwnd_limited, self.socket_time)
    }

    /// Share of the sockets' time in which the send buffer limited them.
    #[must_use]
    pub fn sndbuf_limited_share(&self) -> f64 {
        share(self.sndbuf_limited, self.socket_time)
    }

    /// Share of the sockets' time that is [`congestion`](Self::congestion).
    #[must_use]
    pub fn congestion_share(&self) -> f64 {
        share(self.congestion(), self.socket_time)
    }

    /// Share of the sockets' time in which they had less to send than their windows allowed.
    #[must_use]
    pub fn app_limited_share(&self) -> f64 {
        share(self.app_limited, self.socket_time)
    }

    /// Share of retransmitted bytes among those sent to the relay.
    #[must_use]
    pub fn retransmitted_share(&self) -> f64 {
        let sent = self.sent_bytes.saturating_add(self.retransmitted_bytes);
        part(self.retransmitted_bytes, sent)
    }

    /// Packets out of order on the return path, per returned segment.
    #[must_use]
    pub fn out_of_order_share(&self) -> f64 {
        part(self.out_of_order_packets, self.received_segments)
    }

    /// Share of the pumps' time in which the assigned rate held them back.
    #[must_use]
    pub fn throttled_share(&self) -> f64 {
        share(self.throttled, self.pump_time)
    }

    /// Share of the time in which the busiest thread ran or was ready to run.
    #[must_use]
    pub fn busiest_share(&self) -> f64 {
        share(self.busiest, self.elapsed)
    }

    /// The sum of two accounts of the same interval: of two pumps, or of two measurers.
    #[must_use]
    pub fn combined(&self, other: &Self) -> Self {
        // An empty interval has no information about silence.
        let reports = [self, other].into_iter().filter(|report| !report.elapsed.is_zero());
        Self {
            elapsed: self.elapsed.max(other.elapsed),
            sockets: self.sockets.saturating_add(other.sockets),
            unsent_bytes: self.unsent_bytes.saturating_add(other.unsent_bytes),
            unacked_bytes: self.unacked_bytes.saturating_add(other.unacked_bytes),
            outstanding_bytes: self.outstanding_bytes.saturating_add(other.outstanding_bytes),
            busiest: self.busiest.max(other.busiest),
            silent: reports.map(|report| report.silent).min().unwrap_or_default(),
            answered_after: [self.answered_after, other.answered_after].into_iter().flatten().min(),
            ..self.and(other)
        }
    }

    /// The sum of this account and a later one.
    #[must_use]
    pub fn followed_by(&self, later: &Self) -> Self {
        let mean = |before, after| mean([(self.elapsed, before), (later.elapsed, after)]);
        Self {
            elapsed: self.elapsed.saturating_add(later.elapsed),
            sockets: self.sockets.max(later.sockets),
            unsent_bytes: mean(self.unsent_bytes, later.unsent_bytes),
            unacked_bytes: mean(self.unacked_bytes, later.unacked_bytes),
            outstanding_bytes: mean(self.outstanding_bytes, later.outstanding_bytes),
            busiest: self.busiest.saturating_add(later.busiest),
            silent: later.silent,
            answered_after: later.answered_after,
            ..self.and(later)
        }
    }

    /// Adds the fields that are additive in both time and number; the rest is this account's.
    fn and(&self, other: &Self) -> Self {
        let add = u64::saturating_add;
        Self {
            pump_time: self.pump_time.saturating_add(other.pump_time),
            socket_time: self.socket_time.saturating_add(other.socket_time),
            busy: self.busy.saturating_add(other.busy),
            rwnd_limited: self.rwnd_limited.saturating_add(other.rwnd_limited),
            sndbuf_limited: self.sndbuf_limited.saturating_add(other.sndbuf_limited),
            app_limited: self.app_limited.saturating_add(other.app_limited),
            sent_bytes: add(self.sent_bytes, other.sent_bytes),
            retransmitted_bytes: add(self.retransmitted_bytes, other.retransmitted_bytes),
            min_rtt: [self.min_rtt, other.min_rtt].into_iter().flatten().min(),
            mean_rtt: mean_rtt(self, other),
            received_segments: add(self.received_segments, other.received_segments),
            out_of_order_packets: add(self.out_of_order_packets, other.out_of_order_packets),
            throttled: self.throttled.saturating_add(other.throttled),
            ..*self
        }
    }
}

/// The mean of two means, weighted by their sockets' time.
fn mean_rtt(one: &Account, two: &Account) -> Option<Duration> {
    let (Some(rtt), Some(other)) = (one.mean_rtt, two.mean_rtt) else {
        return one.mean_rtt.or(two.mean_rtt);
    };
    let weights = one.socket_time.saturating_add(two.socket_time);
    let weight = if weights.is_zero() { 0.5 } else { share(two.socket_time, weights) };
    let (low, high) = (rtt.min(other), rtt.max(other));
    let weight = if rtt <= other { weight } else { 1.0 - weight };
    Some(low.saturating_add((high - low).mul_f64(weight)))
}

/// The mean of two numbers, weighted by their time.
fn mean([(time, one), (later, two)]: [(Duration, u64); 2]) -> u64 {
    let (time, later) = (time.as_micros(), later.as_micros());
    let sum = time.saturating_mul(one.into()).saturating_add(later.saturating_mul(two.into()));
    u64::try_from(sum.checked_div(time + later).unwrap_or_default()).unwrap_or(u64::MAX)
}

fn share(time: Duration, of: Duration) -> f64 {
    if of.is_zero() { 0.0 } else { time.as_secs_f64() / of.as_secs_f64() }
}

fn part(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}

#[cfg(test)]
mod tests;
