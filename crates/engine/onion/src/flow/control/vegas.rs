//! Tor's Vegas (proposal 324 §3.3), with the rules and roundings of C tor 0.4.9.

mod rtt;

use super::{
    CircuitEnd, CircuitFlow, CongestionParams, FlowError, FlowState, PathKind, PathState,
    QueueLimits,
};
use crate::flow::stream::{StreamFlow, XonXoff};
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use rtt::RoundTrips;

/// A window that follows the circuit's queue in the network.
///
/// The cells of the window are either in flight or queued. In flight is the bandwidth-delay product: the window
/// times the shortest round-trip time, divided by the current one. The rest is queued: below `alpha` the window
/// grows, above `beta` it shrinks, above `delta` it falls at once. A blocked link of this end counts as a long
/// queue.
#[derive(Clone, Debug)]
pub struct Vegas {
    params: Arc<CongestionParams>,
    path: PathKind,
    sendme_cells: u8,
    /// Cells received since the last SENDME that was sent.
    received_cells: u8,
    is_in_slow_start: bool,
    /// Whether the window was full recently, so that it may grow.
    is_full: bool,
    /// Whether the link was blocked at the last SENDME.
    is_link_blocked: bool,
    window_cells: u32,
    in_flight_cells: u32,
    /// The bandwidth-delay product, in cells.
    delay_product_cells: u32,
    /// SENDMEs until the window may change again.
    sendmes_to_step: u32,
    /// SENDMEs until a whole window is acknowledged.
    sendmes_to_window: u32,
    round_trips: RoundTrips,
    /// When the cells that wait for a SENDME were sent.
    sent_at: VecDeque<Instant>,
}

impl Vegas {
    /// The window of a new circuit, with one negotiated SENDME for each `sendme_cells`.
    #[must_use]
    pub fn new(params: Arc<CongestionParams>, path: PathKind, sendme_cells: u8) -> Self {
        let sendme_cells = sendme_cells.max(1);
        Self {
            path,
            sendme_cells,
            received_cells: 0,
            is_in_slow_start: true,
            is_full: false,
            is_link_blocked: false,
            // Less than one increment would block forever.
            window_cells: params.window_initial_cells.max(u32::from(sendme_cells)),
            in_flight_cells: 0,
            delay_product_cells: 0,
            sendmes_to_step: 1,
            sendmes_to_window: 0,
            round_trips: RoundTrips::default(),
            sent_at: VecDeque::new(),
            params,
        }
    }

    /// The congestion window, in cells.
    #[must_use]
    pub const fn window_cells(&self) -> u32 {
        self.window_cells
    }

    /// Cells in flight. After the window has shrunk, they may exceed it for a while.
    #[must_use]
    pub const fn in_flight_cells(&self) -> u32 {
        self.in_flight_cells
    }

    /// The bandwidth-delay product in cells, at the last SENDME.
    #[must_use]
    pub const fn delay_product_cells(&self) -> u32 {
        self.delay_product_cells
    }

    /// The average round-trip time in microseconds; zero before the first.
    #[must_use]
    pub const fn average_rtt_us(&self) -> u64 {
        self.round_trips.average_us
    }

    /// The shortest average round-trip time in microseconds; zero before the first.
    #[must_use]
    pub const fn min_rtt_us(&self) -> u64 {
        self.round_trips.min_us
    }

    /// Whether it is in slow start.
    #[must_use]
    pub const fn is_in_slow_start(&self) -> bool {
        self.is_in_slow_start
    }

    /// The parameters of the circuit.
    #[must_use]
    pub fn params(&self) -> &CongestionParams {
        &self.params
    }

    fn limits(&self) -> QueueLimits {
        *self.params.limits(self.path)
    }

    /// The minimum window: less than one increment would block forever.
    fn floor_cells(&self) -> u32 {
        self.params.window_min_cells.max(u32::from(self.sendme_cells))
    }

    /// SENDMEs of one window, rounded.
    const fn sendmes_per_window(&self) -> u32 {
        let each = self.sendme_cells as u32;
        self.window_cells.saturating_add(each / 2) / each
    }

    /// SENDMEs between two changes of the window.
    fn sendmes_per_step(&self) -> u32 {
        if self.is_in_slow_start {
            return 1;
        }
        let each = self.params.steps_per_window * u32::from(self.sendme_cells);
        self.window_cells.saturating_add(each / 2) / each
    }

    /// Handles the round-trip time and the state of the link. Returns false if there is no new information.
    fn estimate(&mut self, now: Instant, sent_at: Instant, path: PathState) -> bool {
        let steps = self.sendmes_per_step();
        let average_count = if self.is_in_slow_start {
            self.params.average_slow_start
        } else {
            let share = u64::from(steps) * u64::from(self.params.average_percent) / 100;
            u32::try_from(share).unwrap_or(u32::MAX).min(self.params.average_max)
        };
        let may_forget = !self.is_in_slow_start && self.window_cells == self.floor_cells();
        let reset_percent = may_forget.then_some(self.params.rtt_reset_percent);
        let sample_us = u64::try_from((now - sent_at).as_micros()).unwrap_or(u64::MAX);
        let is_measured = self.round_trips.add(
            sample_us,
            u64::from(average_count.max(2)),
            reset_percent,
            self.is_in_slow_start,
        );

        let was_blocked = self.is_link_blocked;
        self.is_link_blocked = path.is_link_blocked;
        if self.round_trips.average_us == 0 {
            // The clock has not advanced since the circuit began: only the local queue is known.
            let queued_cells = if path.is_link_blocked { path.queued_cells } else { 0 };
            let rest = self.window_cells.saturating_sub(queued_cells);
            self.delay_product_cells =
                if path.is_link_blocked { rest.max(self.floor_cells()) } else { rest };
            return path.is_link_blocked;
        }
        let product = u128::from(self.window_cells) * u128::from(self.round_trips.min_us)
            / u128::from(self.round_trips.average_us);
        self.delay_product_cells = u32::try_from(product).unwrap_or(u32::MAX);
        if was_blocked != path.is_link_blocked {
            // A separate signal, independent of the interval of changes.
            self.sendmes_to_step = 0;
        }
        path.is_link_blocked || is_measured
    }

    /// Changes the window by the queue length.
    fn adapt(&mut self) {
        let queue_cells = self.window_cells.saturating_sub(self.delay_product_cells);
        self.update_fullness();
        if self.is_in_slow_start {
            self.adapt_in_slow_start(queue_cells);
        } else if self.sendmes_to_step == 0 {
            self.adapt_in_steady_state(queue_cells);
        }
        if self.sendmes_to_window == 0 {
            self.sendmes_to_window = self.sendmes_per_window();
        }
        if self.sendmes_to_step == 0 {
            self.sendmes_to_step = self.sendmes_per_step();
        }
        let has_ended = if self.params.is_full_per_window {
            self.sendmes_to_window == self.sendmes_per_window()
        } else {
            self.sendmes_to_step == self.sendmes_per_step()
        };
        if has_ended {
            self.is_full = false;
        }
    }

    fn update_fullness(&mut self) {
        let (in_flight, window) = (u64::from(self.in_flight_cells), u64::from(self.window_cells));
        let gap = u64::from(self.params.full_gap_sendmes) * u64::from(self.sendme_cells);
        if in_flight + gap >= window {
            self.is_full = true;
        } else if 100 * in_flight < u64::from(self.params.full_min_percent) * window {
            self.is_full = false;
        }
    }

    fn adapt_in_slow_start(&mut self, queue_cells: u32) {
        let gamma = self.limits().gamma_cells;
        if queue_cells >= gamma || self.is_link_blocked {
            self.window_cells = self.delay_product_cells.saturating_add(gamma);
            self.is_in_slow_start = false;
        } else if self.is_full {
            let growth = self.slow_start_growth_cells();
            self.window_cells = self.window_cells.saturating_add(growth);
            // Slower than the steps after slow start: it is no longer worthwhile.
            let by_steps = self.params.step_cells * self.params.steps_per_window;
            if u64::from(growth) * u64::from(self.sendmes_per_window()) <= u64::from(by_steps) {
                self.is_in_slow_start = false;
            }
        }
        if self.window_cells >= self.params.slow_start_max_cells {
            self.window_cells = self.params.slow_start_max_cells;
            self.is_in_slow_start = false;
        }
    }

    /// Limited slow start (RFC 3742).
    fn slow_start_growth_cells(&self) -> u32 {
        let (each, cap) =
            (u64::from(self.sendme_cells), u64::from(self.limits().slow_start_cap_cells));
        let window = u64::from(self.window_cells);
        let growth = if window <= cap {
            (u64::from(self.params.slow_start_percent) * each + 50) / 100
        } else {
            ((each * cap + window) / (2 * window)).max(1)
        };
        u32::try_from(growth).unwrap_or(u32::MAX)
    }

    fn adapt_in_steady_state(&mut self, queue_cells: u32) {
        let (limits, step) = (self.limits(), self.params.step_cells);
        if queue_cells > limits.delta_cells {
            self.window_cells =
                self.delay_product_cells.saturating_add(limits.delta_cells).saturating_sub(step);
        } else if queue_cells > limits.beta_cells || self.is_link_blocked {
            self.window_cells = self.window_cells.saturating_sub(step);
        } else if self.is_full && queue_cells < limits.alpha_cells {
            self.window_cells = self.window_cells.saturating_add(step);
        }
    }
}

impl CircuitFlow for Vegas {
    fn room_cells(&self) -> u32 {
        self.window_cells.saturating_sub(self.in_flight_cells)
    }

    fn handle_sent(&mut self, now: Instant) -> bool {
        self.in_flight_cells += 1;
        let is_last = self.in_flight_cells.is_multiple_of(u32::from(self.sendme_cells));
        if is_last {
            self.sent_at.push_back(now);
        }
        is_last
    }

    fn handle_sendme(&mut self, now: Instant, path: PathState) -> Result<(), FlowError> {
        let sent_at = self.sent_at.pop_front().ok_or(FlowError::UnexpectedSendme)?;
        self.sendmes_to_step = self.sendmes_to_step.saturating_sub(1);
        self.sendmes_to_window = self.sendmes_to_window.saturating_sub(1);
        if self.estimate(now, sent_at, path) {
            self.adapt();
            self.window_cells =
                self.window_cells.max(self.floor_cells()).min(self.params.window_max_cells);
        }
        self.in_flight_cells = self.in_flight_cells.saturating_sub(u32::from(self.sendme_cells));
        Ok(())
    }

    fn handle_received(&mut self) -> bool {
        self.received_cells += 1;
        let is_due = self.received_cells >= self.sendme_cells;
        if is_due {
            self.received_cells = 0;
        }
        is_due
    }

    fn sendme_cells(&self) -> u32 {
        self.sendme_cells.into()
    }

    fn stream(&self, end: CircuitEnd) -> StreamFlow {
        let params = match end {
            CircuitEnd::Origin => self.params.client_streams,
            CircuitEnd::Exit => self.params.exit_streams,
        };
        StreamFlow::Rated(XonXoff::new(params))
    }

    fn state(&self) -> FlowState {
        let time = |us: u64| (us > 0).then(|| Duration::from_micros(us));
        FlowState {
            window_cells: self.window_cells,
            in_flight_cells: self.in_flight_cells,
            rtt: time(self.round_trips.average_us),
            last_rtt: time(self.round_trips.last_us),
            is_in_slow_start: self.is_in_slow_start,
        }
    }
}

#[cfg(test)]
mod tests;
