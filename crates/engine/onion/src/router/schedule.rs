//! When links write to their sockets, and how much.
//!
//! Data in a socket's buffer can no longer be overtaken. A relay that fills its sockets as far as the kernel
//! allows (*Vanilla*) has its queues there: a cell of a quiet circuit waits behind megabytes of other circuits'
//! cells. *KIST* (Jansen et al., "KIST: Kernel-Informed Socket Transport for Tor") asks the kernel how much
//! each connection can send soon and writes no more, so that the queues stay in the relay, where the circuit
//! that has sent least goes first.
//!
//! Links of clients and relays are scheduled. Links of measurers are always served immediately, their circuits
//! round-robin.
//!
//! In a run with KIST, the kernel reports what each socket can send at once (`TCP_INFO`). Links are then served
//! in the order of their quietest circuits, four records at a time, until each has filled its socket. C tor
//! takes one cell at a time across all links. Within a link the order of cells is the same; across links it
//! matters only under a rate limit, and whole records are what makes the relay fast.

mod circuit_mux;
mod ewma;
mod runs;
#[cfg(test)]
mod tests;

use super::Parameters;
use crate::cell::CELL_LEN;
use crate::node::SocketState;
use crate::time::Duration;
pub(super) use circuit_mux::{CircuitMux, Served, ServedCells};
pub(super) use ewma::{CellCount, Decay, EwmaTick};
pub(super) use runs::Runs;

/// The overhead of a TLS record: header, content type and tag.
pub(super) const RECORD_OVERHEAD_BYTES: u64 = 22;

/// Bytes that a link may write to a socket of unknown state: C tor's `OR_CONN_HIGHWATER`.
const LITE_LIMIT_BYTES: u64 = 32 * 1024;

/// Decides when links are served and how much each may write to its socket.
///
/// The order of circuits and links is by priority: those that have sent least recently go first.
pub trait Scheduler {
    /// The minimum interval of scheduler runs. Links with cells wait for a run, which begins immediately if
    /// there was none for this long. `None`: there are no runs, and each link is served as soon as it has
    /// cells.
    fn interval(&self) -> Option<Duration>;

    /// Whether a run begins by asking for the socket states of all links with cells.
    fn needs_sockets(&self) -> bool;

    /// Bytes that a link may write in this run, including TLS. `state` is the kernel's report, if it was asked
    /// for and is available.
    fn limit_bytes(&self, state: Option<&SocketState>) -> u64;
}

/// As much as the socket accepts, as soon as there are cells.
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

/// Runs without the kernel's state: 32 KiB for each link in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KistLite {
    /// The interval of runs.
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

/// As much as TCP can send now, plus `sock_buf_size_factor` congestion windows, so that it has data until the
/// next run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kist {
    /// The interval of runs: `KISTSchedRunInterval`.
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
        // A window smaller than a cell must not block a link forever.
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
            Self::Vanilla(scheduler) => scheduler,
            Self::KistLite(scheduler) => scheduler,
            Self::Kist(scheduler) => scheduler,
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

/// The scheduler configuration of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// The scheduler for links of clients and relays.
    pub scheduler: AnyScheduler,
    /// The half-life of a cell in its circuit's priority: `CircuitPriorityHalflifeMsec`.
    pub priority_halflife: Duration,
    /// The update interval of the counts: `CircuitPriorityTickSecs`.
    pub priority_tick: Duration,
    /// Whether the operator has chosen the interval; otherwise the consensus sets it.
    pub is_interval_fixed: bool,
}

impl SchedulerConfig {
    /// The default of [`Kist::interval`].
    pub const INTERVAL: Duration = Duration::from_millis(2);

    /// This scheduler with C tor's priority.
    #[must_use]
    pub const fn new(scheduler: AnyScheduler) -> Self {
        Self {
            scheduler,
            priority_halflife: Duration::from_secs(30),
            priority_tick: Duration::from_secs(10),
            is_interval_fixed: false,
        }
    }

    /// Applies the consensus, except for what the operator has chosen.
    pub(super) const fn follow(&mut self, parameters: &Parameters) {
        self.priority_halflife = parameters.circuit_priority_halflife;
        if self.is_interval_fixed {
            return;
        }
        match &mut self.scheduler {
            AnyScheduler::Vanilla(_) => {}
            AnyScheduler::KistLite(scheduler) => {
                scheduler.interval = parameters.kist_sched_run_interval;
            }
            AnyScheduler::Kist(scheduler) => {
                scheduler.interval = parameters.kist_sched_run_interval;
            }
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

    /// KIST with one congestion window more than TCP can send now.
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
