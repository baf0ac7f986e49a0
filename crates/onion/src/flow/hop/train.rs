use super::pace::{Mark, Pace};
use crate::time::{Duration, Instant};

/// Cells more than fit on the way that may wait at the next hop: the paper's γ (CircuitStart, §2).
const QUEUED_MAX: f64 = 4.0;

/// Cells that wait at the next hop with a window that is found by the pace: between Vegas' α and β.
const QUEUED: u32 = 3;

/// Nothing is passed on for as much of the least round trip: the next hop's own ramp-up has ended, and it waits for what was too much.
const PAUSE: f64 = 0.25;

/// A pace is that of two stretches of so much of the least round trip each, ...
const STRETCH: f64 = 0.08;

/// ... and of so many of the next hop's runs: what one of them gives out comes at once.
const STRETCH_RUNS: u32 = 2;

/// The way to the next hop and back, and what happens there.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopPath {
    /// The least round trip, with a run's interval.
    pub(super) base: Duration,
    /// How far apart the next hop's runs are.
    pub(super) grain: Duration,
}

/// The cells of one round of a ramp-up: sent as fast as they come, and watched as they are passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// The number of its first cell, among all that are ever sent.
    first: u64,
    len: u32,
    /// That of the train that would come after it.
    next_len: u32,
    sent: u32,
    passed: u32,
    /// Its first cell that was passed on, since the next hop was idle; after the first pause, if there was one.
    begun: Option<Mark>,
    last_passed: Instant,
    has_paused: bool,
    pace: Pace,
    /// Most cells under way while it went.
    peak: u32,
}

/// What a cell that was passed on says of its train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// There is more to come.
    Going,
    /// All of it has passed, and nothing had to wait for long.
    Whole,
    /// With so many under way the next hop is as busy as it can be.
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

    /// Another one of the same length.
    pub(super) const fn again(&self, first: u64) -> Self {
        Self::new(first, self.len, self.next_len)
    }

    /// Cells of it that were not sent yet.
    pub(super) const fn left(&self) -> u32 {
        self.len - self.sent
    }

    pub(super) fn handle_sent(&mut self, cells: u32, in_flight: u32) {
        self.sent += cells.min(self.left());
        self.peak = self.peak.max(in_flight);
    }

    /// Whether the window was what held it back, and not the lack of cells or the own link.
    pub(super) const fn has_filled_window(&self) -> bool {
        self.peak.saturating_mul(2) >= self.len
    }

    /// The cell with this number was passed on.
    ///
    /// The paper compares the round trip of "the latest round" with the least. A train is sent at once, so each of its cells
    /// waits behind those before it, at the slowest place on its way: that is the train's length, and no queue. What a window
    /// of *k* cells would see is the time in which the slowest place passes *k*. With the plain time of the latest cell the ramp would
    /// end at twice the square root of what fits on the way; with that of the first one as soon as the next hop's own ramp
    /// lags a little behind. Where no more than a few cells wait, it is the source that is slow.
    ///
    /// It takes a round trip until as many have passed as fit. Where the next hop passes them on [evenly](Pace), more slowly than they
    /// were sent, it is known before how many these will be; and if the next train has more, there is none.
    pub(super) fn handle_passed(
        &mut self,
        (sent_at, now): (Instant, Instant),
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
            return Sign::Full(passed);
        }
        let half = path.base.mul_f64(STRETCH).max(path.grain * STRETCH_RUNS);
        if let Some(spacing_s) = self.pace.handle_passed(cell, half)
            && waited_s > spacing_s * QUEUED_MAX
        {
            let fit = fit_cells(path.base, spacing_s);
            if f64::from(self.next_len) > f64::from(fit) + QUEUED_MAX {
                return Sign::Full((fit + QUEUED).min(self.next_len));
            }
        }
        if self.passed >= self.len { Sign::Whole } else { Sign::Going }
    }

    /// From which cell on it is looked at.
    ///
    /// That is the first one that comes when nothing is at the next hop: where the source, or the hop before, has nothing for a while, the time until there is
    /// more says nothing of the next hop's pace. And a pause of that hop is forgotten, once: one that gives cells out in runs seems to make one after each.
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
    /// Whether a cell has found others at the next hop, which has passed cells on since that one.
    fn has_waited(&self, cell: &Mark, since: &Mark) -> bool {
        let least_s = self.base.saturating_sub(self.grain).as_secs_f64();
        let took_s = (cell.passed_at - cell.sent_at).as_secs_f64();
        took_s > least_s + cell.spacing_s(since) * 0.5
    }
}

/// The paper's diff: how many of a window's cells wait, by a round trip of `rtt_s` seconds beside the least.
pub(super) fn queued_cells(window: f64, rtt_s: f64, base: Duration) -> f64 {
    window * rtt_s / base.as_secs_f64().max(1e-9) - window
}

/// Cells so far apart that are passed on in the least round trip.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn fit_cells(base: Duration, spacing_s: f64) -> u32 {
    (base.as_secs_f64() / spacing_s.max(1e-9)) as u32
}
