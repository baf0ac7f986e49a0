//! Trains of cells: the rounds of a ramp-up.

use super::pace::{Mark, Pace};
use crate::time::{Duration, Instant};

/// Cells beyond the bandwidth-delay product that may be queued at the next hop: the paper's γ (CircuitStart,
/// §2).
const QUEUED_MAX: f64 = 4.0;

/// Cells queued at the next hop with a window found by the pace: between Vegas' α and β.
const QUEUED: u32 = 3;

/// A pause of this fraction of the minimum round-trip time: the next hop's own ramp-up has ended, and it waits
/// for its excess cells.
const PAUSE: f64 = 0.25;

/// A pace covers two stretches of this fraction of the minimum round-trip time each, ...
const STRETCH: f64 = 0.08;

/// ... and of this number of the next hop's runs: the cells of one run are sent at once.
const STRETCH_RUNS: u32 = 2;

/// The path to the next hop and back, and the hop's scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopPath {
    /// The minimum round-trip time, including a scheduler interval.
    pub(super) base: Duration,
    /// The interval of the next hop's runs.
    pub(super) grain: Duration,
}

/// The cells of one round of a ramp-up: sent as fast as they arrive, and observed as they are forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// The number of its first cell, among all cells sent.
    first: u64,
    len: u32,
    /// The number of the next train's first cell.
    next_len: u32,
    sent: u32,
    passed: u32,
    /// Its first cell forwarded since the next hop was idle; after the first pause, if there was one.
    begun: Option<Mark>,
    last_passed: Instant,
    has_paused: bool,
    pace: Pace,
    /// Maximum number of cells in flight during it.
    peak: u32,
}

/// The result of observing a forwarded cell of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The train continues.
    Going,
    /// All of it was forwarded, and nothing was queued for long.
    Whole,
    /// With this number of cells in flight, the next hop is saturated.
    Full(u32),
}

impl Train {
    pub(super) const fn new(first: u64, len: u32, next_len: u32) -> Self {
        Self {
            first,
            len,
            next_len,
            sent: 0,
            passed: 0,
            begun: None,
            last_passed: Instant::ORIGIN,
            has_paused: false,
            pace: Pace::new(),
            peak: 0,
        }
    }

    /// Another train of the same length.
    pub(super) const fn again(&self, first: u64) -> Self {
        Self::new(first, self.len, self.next_len)
    }

    /// Its cells that were not sent yet.
    pub(super) const fn left(&self) -> u32 {
        self.len - self.sent
    }

    pub(super) fn handle_sent(&mut self, cells: u32, in_flight: u32) {
        self.sent += cells.min(self.left());
        self.peak = self.peak.max(in_flight);
    }

    /// Whether the window limited it, and not the source or the link.
    pub(super) const fn has_filled_window(&self) -> bool {
        self.peak.saturating_mul(2) >= self.len
    }

    /// The cell with this number was forwarded.
    ///
    /// The paper compares the round-trip time of "the latest round" with the minimum. A train is sent at once,
    /// so each cell waits behind the previous ones at the bottleneck: this is the train's length, not queueing.
    /// A window of *k* cells would see the time in which the bottleneck passes *k*. With the time of the latest
    /// cell the ramp-up would end at twice the square root of the capacity; with that of the first cell, as
    /// soon as the next hop's own ramp-up lags behind a little. If no more than a few cells are queued, the
    /// source is slow.
    ///
    /// It takes a round trip until the capacity is forwarded. If the next hop forwards cells [evenly](Pace),
    /// and more slowly than they were sent, the capacity is known earlier; if the next train would exceed it,
    /// there is none.
    ///
    /// The capacity is that of the path alone, without the interval of the next hop's scheduler: congestion avoidance
    /// finds out whether cells wait for it.
    pub(super) fn handle_passed(
        &mut self,
        sent_at: Instant,
        now: Instant,
        number: u64,
        path: HopPath,
    ) -> Sign {
        if number < self.first {
            return Sign::Going;
        }
        self.passed += 1;
        let cell = Mark { passed: self.passed, passed_at: now, sent_at };
        let begun = self.begun(cell, path);
        let passed = cell.passed - begun.passed + 1;
        let spacing_s = cell.spacing_s(&begun);
        let waited_s = (now - sent_at).saturating_sub(path.base).as_secs_f64();
        let queued = queued_cells(passed.into(), spacing_s * f64::from(passed), path.base);
        if queued > QUEUED_MAX && waited_s > spacing_s * QUEUED_MAX {
            return Sign::Full(passed.saturating_sub(fit_cells(path.grain, spacing_s)));
        }
        let half = path.base.mul_f64(STRETCH).max(path.grain * STRETCH_RUNS);
        if let Some(spacing_s) = self.pace.handle_passed(cell, half)
            && waited_s > spacing_s * QUEUED_MAX
        {
            let fit = fit_cells(path.base, spacing_s);
            if f64::from(self.next_len) > f64::from(fit) + QUEUED_MAX {
                let fit = fit_cells(path.base.saturating_sub(path.grain), spacing_s);
                return Sign::Full((fit + QUEUED).min(self.next_len));
            }
        }
        if self.passed >= self.len { Sign::Whole } else { Sign::Going }
    }

    /// The cell from which on the train is evaluated.
    ///
    /// It is the first one that finds the next hop idle: if the source or the previous hop has no cells for a
    /// while, that time says nothing about the next hop's pace. One pause of the next hop is ignored: a hop
    /// that sends cells in runs seems to pause after each.
    fn begun(&mut self, cell: Mark, path: HopPath) -> Mark {
        let silent = cell.passed_at - core::mem::replace(&mut self.last_passed, cell.passed_at);
        let is_pause = !self.has_paused && silent > path.base.mul_f64(PAUSE);
        match self.begun {
            Some(begun) if !is_pause && path.has_waited(&cell, &begun) => begun,
            before => {
                self.has_paused |= before.is_some_and(|begun| path.has_waited(&cell, &begun));
                self.pace = Pace::new();
                *self.begun.insert(cell)
            }
        }
    }
}

impl HopPath {
    /// Whether a cell found others queued at the next hop, which has forwarded cells since `begun`.
    fn has_waited(&self, cell: &Mark, since: &Mark) -> bool {
        let least_s = self.base.saturating_sub(self.grain).as_secs_f64();
        let took_s = (cell.passed_at - cell.sent_at).as_secs_f64();
        took_s > least_s + cell.spacing_s(since) * 0.5
    }
}

/// The paper's diff: the number of queued cells of a window, for a round-trip time of `rtt_s` seconds compared
/// with the minimum.
pub(super) fn queued_cells(window: f64, rtt_s: f64, base: Duration) -> f64 {
    window * rtt_s / base.as_secs_f64().max(1e-9) - window
}

/// The number of cells with this spacing that are forwarded in a time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn fit_cells(time: Duration, spacing_s: f64) -> u32 {
    (time.as_secs_f64() / spacing_s.max(1e-9)) as u32
}
