//! The kernel's account of a pump's sockets, from sample to sample.

use coordinator::Account;
use link::{Drive, TcpAccount};
use onion::measure::load::{LoadGenerator, Silence};
use onion::node::ConnId;
use onion::{Duration, Instant};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The last sample is taken this long before the end of the last second, since the pump closes the sockets at the end.
/// This is far more than an iteration of the driver takes.
const LAST_SAMPLE_LEAD: Duration = Duration::from_millis(50);

/// A thread that has not sampled for longer than this was suspended: unread data may have arrived long ago. Pumps
/// normally run more often, in particular in a silence, when they try a new connection each second.
const PAUSE_MAX: Duration = Duration::from_millis(1500);

/// Samples a pump's sockets every second, and keeps the differences.
#[derive(Debug, Default)]
pub(super) struct Accountant {
    /// At the end of the previous second, or at the start.
    before: Option<Sample>,
    /// In the last second, before its end.
    last: Option<Sample>,
    /// The latest iteration.
    turned_at: Option<Instant>,
    /// The time at which the pump would give up for silence, and the sample before that: `None` if it was too late.
    silence: Option<(Instant, Option<Account>)>,
}

/// A sample of a pump. All counters start at its beginning.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: Instant,
    /// Sockets to the relay.
    out: BTreeMap<ConnId, TcpAccount>,
    /// The sockets to the relay that have not started to send.
    held_back: BTreeSet<ConnId>,
    /// Sockets over which cells come back: the same ones in echo.
    back: BTreeMap<ConnId, TcpAccount>,
    outstanding_bytes: u64,
    throttled: Duration,
    /// The duration of the silence, and after what part of it the relay's host was reachable.
    silent: Duration,
    answered_after: Option<Duration>,
    /// The processor time that its thread used, or waited for.
    busy: Duration,
}

impl Accountant {
    /// Samples if it is time, and returns the next time. To be called before each iteration of the driver.
    pub(super) fn watch<R: Rng>(
        &mut self,
        drive: &dyn Drive<LoadGenerator<R>>,
        busy: impl Fn() -> Duration,
    ) -> Option<Instant> {
        let (now, pump) = (drive.now(), drive.node());
        if self.before.is_none() && pump.is_sending() {
            self.before = Some(Sample::take(drive, busy()));
        }
        let next = [self.watch_silence(drive), self.watch_end(drive, busy)];
        self.turned_at = Some(now);
        next.into_iter().flatten().min()
    }

    fn watch_end<R: Rng>(
        &mut self,
        drive: &dyn Drive<LoadGenerator<R>>,
        busy: impl Fn() -> Duration,
    ) -> Option<Instant> {
        let ends_at = drive.node().ends_at()?;
        if self.last.is_some() {
            return None;
        }
        if drive.now() + LAST_SAMPLE_LEAD >= ends_at {
            self.last = Some(Sample::take(drive, busy()));
            return None;
        }
        Some(shortly_before(ends_at))
    }

    /// Samples just before the pump gives up for silence.
    fn watch_silence<R: Rng>(&mut self, drive: &dyn Drive<LoadGenerator<R>>) -> Option<Instant> {
        let (now, stalls_at) = (drive.now(), drive.node().stalls_at()?);
        if now < shortly_before(stalls_at) {
            return Some(shortly_before(stalls_at));
        }
        if self.silence.is_none_or(|(of, _)| of != stalls_at) {
            let stood_still = self.turned_at.is_none_or(|at| now - at > PAUSE_MAX);
            let seen = || Sample::take(drive, Duration::ZERO).at_silence();
            self.silence = Some((stalls_at, (!stood_still).then(seen)));
        }
        None
    }

    /// Whether the relay is to blame for the silence for which the pump has just given up
    /// ([`shows_stalled_relay`](Account::shows_stalled_relay)).
    pub(super) fn shows_stalled_relay(&self) -> bool {
        let seen = self.silence.and_then(|(_, seen)| seen);
        seen.is_some_and(|seen| seen.shows_stalled_relay())
    }

    /// The account of the second that has just ended; `None` if the kernel has no data, or if the thread sampled too
    /// late. Of several seconds that are reported at once, the first has the whole interval.
    pub(super) fn close_second<R: Rng>(
        &mut self,
        drive: &dyn Drive<LoadGenerator<R>>,
        busy: impl Fn() -> Duration,
    ) -> Option<Account> {
        let now =
            if drive.node().is_over() { self.last.take()? } else { Sample::take(drive, busy()) };
        let account = self.before.as_ref().and_then(|before| now.since(before));
        self.before = Some(now);
        account
    }
}

fn shortly_before(at: Instant) -> Instant {
    Instant::ORIGIN + (at - (Instant::ORIGIN + LAST_SAMPLE_LEAD))
}

impl Sample {
    fn take<R: Rng>(drive: &dyn Drive<LoadGenerator<R>>, busy: Duration) -> Self {
        let (now, pump) = (drive.now(), drive.node());
        let Silence { length: silent, answered_after } = pump.silence(now);
        let mut look = Self {
            at: now,
            outstanding_bytes: pump.outstanding_bytes(),
            throttled: pump.throttled(now),
            silent,
            answered_after,
            busy,
            ..Self::default()
        };
        drive.tcp_accounts(&mut |conn, account| {
            if pump.is_outbound(conn) {
                look.out.insert(conn, account);
                if pump.is_held_back(conn) {
                    look.held_back.insert(conn);
                }
            }
            if pump.carries_back(conn) {
                look.back.insert(conn, account);
            }
        });
        look
    }

    /// The current state of the sockets, and the duration of the silence, for an empty interval.
    fn at_silence(&self) -> Account {
        let sum = |bytes: fn(&TcpAccount) -> u64| self.out.values().map(bytes).sum();
        Account {
            outstanding_bytes: self.outstanding_bytes,
            unsent_bytes: sum(|tcp| tcp.unsent_bytes),
            unacked_bytes: sum(|tcp| tcp.unacked_bytes),
            silent: self.silent,
            answered_after: self.answered_after,
            ..Account::default()
        }
    }

    /// The differences from an earlier sample. A new socket counts from its beginning; a closed one, or one that has
    /// not started, counts nothing. `None` if the interval is empty, or no socket to the relay has data.
    fn since(&self, before: &Self) -> Option<Account> {
        let elapsed = self.at - before.at;
        let sends = |(conn, _): &(&ConnId, &TcpAccount)| !self.held_back.contains(conn);
        let sending = || self.out.iter().filter(sends);
        let sockets = u32::try_from(sending().count()).ok()?;
        if elapsed.is_zero() || self.out.is_empty() {
            return None;
        }
        let mut account = Account {
            elapsed,
            pump_time: elapsed,
            socket_time: elapsed * sockets,
            sockets,
            outstanding_bytes: self.outstanding_bytes,
            throttled: self.throttled.saturating_sub(before.throttled),
            silent: self.silent,
            answered_after: self.answered_after,
            busiest: self.busy.saturating_sub(before.busy),
            ..Account::default()
        };
        for (conn, now) in sending() {
            let then = before.out.get(conn).copied().unwrap_or_default();
            account.busy += now.busy.saturating_sub(then.busy);
            account.rwnd_limited += now.rwnd_limited.saturating_sub(then.rwnd_limited);
            account.sndbuf_limited += now.sndbuf_limited.saturating_sub(then.sndbuf_limited);
            account.app_limited += if now.is_app_limited { elapsed } else { Duration::ZERO };
            account.sent_bytes += now.sent_bytes.saturating_sub(then.sent_bytes);
            account.retransmitted_bytes +=
                now.retransmitted_bytes.saturating_sub(then.retransmitted_bytes);
            account.unsent_bytes += now.unsent_bytes;
            account.unacked_bytes += now.unacked_bytes;
        }
        account.min_rtt = sending().filter_map(|(_, tcp)| tcp.min_rtt).min();
        let rtts: Vec<Duration> = sending().filter_map(|(_, tcp)| tcp.rtt).collect();
        let count = u32::try_from(rtts.len()).unwrap_or(u32::MAX);
        account.mean_rtt = rtts.iter().sum::<Duration>().checked_div(count);
        for (conn, now) in &self.back {
            let then = before.back.get(conn).copied().unwrap_or_default();
            // A 32-bit counter, which may wrap.
            account.received_segments +=
                u64::from(now.received_segments.wrapping_sub(then.received_segments));
            account.out_of_order_packets +=
                u64::from(now.out_of_order_packets.wrapping_sub(then.out_of_order_packets));
        }
        Some(account)
    }
}

#[cfg(test)]
mod tests;
