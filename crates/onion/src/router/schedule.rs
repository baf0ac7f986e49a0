//! When links may give their cells to their sockets, and how many.
//!
//! What a socket has taken cannot be overtaken any more. A relay that fills its sockets as far as the
//! kernel lets it (*Vanilla*) has its queues there: a quiet circuit's cell waits behind megabytes of
//! other circuits' cells. *KIST* (Jansen et al., "KIST: Kernel-Informed Socket Transport for Tor") asks
//! the kernel how much each connection can send soon, gives it no more, and so keeps the queues here,
//! where the circuit that was most quiet goes first.
//!
//! Links of clients and relays are scheduled so. Links of measurers are always served at once, their
//! circuits in turn.

mod circuit_mux;
mod ewma;
mod runs;
#[cfg(test)]
mod tests;

use super::Parameters;
use crate::cell::CELL_LEN;
use crate::node::SocketState;
use crate::time::Duration;
pub(super) use circuit_mux::CircuitMux;
pub(super) use ewma::{CellCount, Decay, EwmaTick};
pub(super) use runs::Runs;

/// What TLS adds to a record: its header, content type and tag.
pub(super) const RECORD_OVERHEAD_BYTES: u64 = 22;

/// What a link gives to a socket of which nothing is known: C tor's `OR_CONN_HIGHWATER`.
const LITE_LIMIT_BYTES: u64 = 32 * 1024;

/// Decides when links are served, and what each may give to its socket.
///
/// Which circuit of a link goes first, and which link, is decided by priority: those that have sent
/// least of late.
pub trait Scheduler {
    /// Least time from one run to the next. Links with cells wait for a run, which begins at once if
    /// there was none for that long. `None`: there are no runs, and each link is served when it has
    /// something.
    fn interval(&self) -> Option<Duration>;

    /// Whether a run begins by asking for the state of the sockets of all links that have cells.
    fn needs_sockets(&self) -> bool;

    /// Bytes that a link may give to its socket in this run, TLS included. `state` is what the kernel
    /// says of it, if it was asked and knows.
    fn limit_bytes(&self, state: Option<&SocketState>) -> u64;
}

/// As much as the socket takes, as soon as there is something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vanilla;

impl Scheduler for Vanilla {
    fn interval(&self) -> Option<Duration> {
        None
    }

    fn needs_sockets(&self) -> bool {
        false
    }

    fn limit_bytes(&self, _state: Option<&SocketState>) -> u64 {
        u64::MAX
    }
}

/// Runs, but without the kernel: 32 KiB for each link in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KistLite {
    /// From one run to the next.
    pub interval: Duration,
}

impl Scheduler for KistLite {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn needs_sockets(&self) -> bool {
        false
    }

    fn limit_bytes(&self, _state: Option<&SocketState>) -> u64 {
        LITE_LIMIT_BYTES
    }
}

/// As much as TCP can send now, and `sock_buf_size_factor` congestion windows more, so that it has
/// something to send until the next run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kist {
    /// From one run to the next: `KISTSchedRunInterval`.
    pub interval: Duration,
    /// `KISTSockBufSizeFactor`.
    pub sock_buf_size_factor: f64,
}

impl Scheduler for Kist {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn needs_sockets(&self) -> bool {
        true
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a conversion from floating point saturates, and windows are far below 2^53 bytes"
    )]
    fn limit_bytes(&self, state: Option<&SocketState>) -> u64 {
        let Some(state) = state else { return LITE_LIMIT_BYTES };
        let mss = u64::from(state.mss_bytes);
        let tcp_space = u64::from(state.cwnd_segments.saturating_sub(state.unacked_segments)) * mss;
        let window = u64::from(state.cwnd_segments) * mss;
        let extra = (window as f64 * self.sock_buf_size_factor) as u64;
        let waiting = u64::from(state.notsent_bytes) + u64::from(state.unwritten_bytes);
        let limit = tcp_space.saturating_add(extra).saturating_sub(waiting);
        // A window that is smaller than a cell must not keep a link silent for ever.
        let is_empty = state.unacked_segments == 0 && waiting == 0;
        if is_empty { limit.max(CELL_LEN as u64 + RECORD_OVERHEAD_BYTES) } else { limit }
    }
}

/// One of the schedulers, chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyScheduler {
    /// See [`Vanilla`].
    Vanilla(Vanilla),
    /// See [`KistLite`].
    KistLite(KistLite),
    /// See [`Kist`].
    Kist(Kist),
}

impl AnyScheduler {
    fn as_dyn(&self) -> &dyn Scheduler {
        match self {
            Self::Vanilla(it) => it,
            Self::KistLite(it) => it,
            Self::Kist(it) => it,
        }
    }
}

impl Scheduler for AnyScheduler {
    fn interval(&self) -> Option<Duration> {
        self.as_dyn().interval()
    }

    fn needs_sockets(&self) -> bool {
        self.as_dyn().needs_sockets()
    }

    fn limit_bytes(&self, state: Option<&SocketState>) -> u64 {
        self.as_dyn().limit_bytes(state)
    }
}

/// How a router schedules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Which scheduler serves the links of clients and relays.
    pub scheduler: AnyScheduler,
    /// After this time a cell that was sent counts half in its circuit's priority:
    /// `CircuitPriorityHalflifeMsec`.
    pub priority_halflife: Duration,
    /// How often counts are brought up to date: `CircuitPriorityTickSecs`.
    pub priority_tick: Duration,
    /// The interval of runs is the operator's choice, not the consensus'.
    pub is_interval_fixed: bool,
}

impl SchedulerConfig {
    /// The default of [`Kist::interval`].
    pub const INTERVAL: Duration = Duration::from_millis(2);

    /// This scheduler, with C tor's priority.
    #[must_use]
    pub const fn new(scheduler: AnyScheduler) -> Self {
        Self {
            scheduler,
            priority_halflife: Duration::from_secs(30),
            priority_tick: Duration::from_secs(10),
            is_interval_fixed: false,
        }
    }

    /// Does as the consensus asks, but for what the operator has chosen.
    pub(super) const fn follow(&mut self, parameters: &Parameters) {
        self.priority_halflife = parameters.circuit_priority_halflife;
        if self.is_interval_fixed {
            return;
        }
        match &mut self.scheduler {
            AnyScheduler::Vanilla(_) => {}
            AnyScheduler::KistLite(it) => it.interval = parameters.kist_sched_run_interval,
            AnyScheduler::Kist(it) => it.interval = parameters.kist_sched_run_interval,
        }
    }

    /// Vanilla.
    #[must_use]
    pub const fn vanilla() -> Self {
        Self::new(AnyScheduler::Vanilla(Vanilla))
    }

    /// KISTLite.
    #[must_use]
    pub const fn kist_lite(interval: Duration) -> Self {
        Self::new(AnyScheduler::KistLite(KistLite { interval }))
    }

    /// KIST, with one congestion window more than TCP can send now.
    #[must_use]
    pub const fn kist(interval: Duration) -> Self {
        Self::new(AnyScheduler::Kist(Kist { interval, sock_buf_size_factor: 1.0 }))
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self::kist(Self::INTERVAL)
    }
}
