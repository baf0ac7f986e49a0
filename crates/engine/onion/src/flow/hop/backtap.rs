//! BackTap and its ramp-ups.

use super::HopWindow;
use super::flight::Flight;
use super::reramp::{Advice, Reramp};
use super::train::{HopPath, Sign, Train, queued_cells};
use crate::time::{Duration, Instant};

/// The window of a new circuit, in cells.
const INITIAL: u32 = 2;

/// The maximum window: the queue limit of the next hop.
const SIZE_MAX: u32 = 2_000;

/// The target number of cells queued at the next hop: with fewer the window grows, with more it shrinks. Vegas'
/// α and β, with the values of `BackTap`'s authors.
pub(super) const QUEUED: (f64, f64) = (2.0, 4.0);

/// A window that follows the delay, with or without a ramp-up.
///
/// **`BackTap`** (Tschorsch and Scheuermann, *Mind the Gap*, NSDI 2016): the next hop reports that it has
/// *forwarded* a cell, so the time in its queue is part of the round-trip time. Once per round trip, the window
/// is compared with the bandwidth-delay product: one cell more if fewer than two are queued at the next hop,
/// one less if more than four are. So the smallest window of a circuit takes effect back to its source: blocked
/// cells are not forwarded and not reported.
///
/// **`CircuitStart`** (Döpmann and Tschorsch, SIGCOMM 2018 posters) begins with trains of 2, 4, 8, … cells,
/// each when the last one has been forwarded completely, until a train exceeds the capacity. The window is then
/// the number of its cells forwarded so far.
#[derive(Debug)]
pub struct BackTap {
    size: u32,
    flight: Flight,
    /// The minimum round-trip time.
    base: Option<Duration>,
    /// Additional time that does not count as queueing.
    grain: Duration,
    /// Total numbers of cells sent and forwarded.
    sent: u64,
    passed: u64,
    phase: Phase,
    /// When to ramp up again.
    reramp: Option<Reramp>,
}

#[derive(Debug)]
enum Phase {
    /// Trains, each twice as long as the previous one if `doubles`; otherwise a single one.
    Trains {
        train: Train,
        doubles: bool,
        /// The window before it, which was full without queueing.
        size_before: u32,
    },
    /// One cell more for each forwarded cell, until a cell is queued for too long; then half.
    SlowStart,
    /// One cell more or less in each round.
    Avoidance(Round),
}

/// One round trip of congestion avoidance.
#[derive(Debug)]
struct Round {
    /// It ends when this cell is forwarded.
    until: u64,
    min_rtt: Duration,
    /// Whether the window was full in it.
    was_full: bool,
}

impl BackTap {
    /// Without a ramp-up: from two cells on, one more in each round trip.
    #[must_use]
    pub fn new() -> Self {
        Self::beginning(INITIAL, |_| Phase::Avoidance(Round::new(0)))
    }

    /// With `CircuitStart`, once.
    #[must_use]
    pub fn with_circuit_start() -> Self {
        Self::beginning(INITIAL, |size| Phase::Trains {
            train: doubling(0, size),
            doubles: true,
            size_before: size,
        })
    }

    /// With `CircuitStart`, and again after calm rounds, which indicate additional capacity: the paper's future
    /// work.
    #[must_use]
    pub fn with_reramp() -> Self {
        Self { reramp: Some(Reramp::new()), ..Self::with_circuit_start() }
    }

    /// With the slow start of a TCP connection: doubled in each round trip, and halved at its end.
    #[must_use]
    pub fn with_slow_start() -> Self {
        Self::beginning(INITIAL, |_| Phase::SlowStart)
    }

    /// With `JumpStart` (Liu et al., PFLDnet 2007): this number of cells at once, and then as large a window as
    /// was forwarded of them.
    #[must_use]
    pub fn with_jump_start(cells: u32) -> Self {
        Self::beginning(cells.clamp(INITIAL, SIZE_MAX), |size| Phase::Trains {
            train: Train::new(0, size, size),
            doubles: false,
            size_before: INITIAL,
        })
    }

    /// For a next hop that sends cells in scheduler runs with this interval: shorter waits are not queueing.
    ///
    /// The authors' simulated hops send cells one by one. A relay with KIST gathers them, so that each waits
    /// for up to an interval, and most of them longer than the fastest ever. With a window of 40 cells and a
    /// round-trip time of 20 ms, two of these would look like a queue of four.
    #[must_use]
    pub const fn with_grain(mut self, grain: Duration) -> Self {
        self.grain = grain;
        self
    }

    fn beginning(size: u32, phase: impl FnOnce(u32) -> Phase) -> Self {
        Self {
            size,
            flight: Flight::default(),
            base: None,
            grain: Duration::ZERO,
            sent: 0,
            passed: 0,
            phase: phase(size),
            reramp: None,
        }
    }

    /// A cell was forwarded.
    fn handle_passed(&mut self, sent_at: Instant, now: Instant) {
        let rtt = now - sent_at;
        let base = self.base.map_or(rtt, |base| base.min(rtt));
        self.base = Some(base);
        let base = base + self.grain;
        let number = self.passed;
        self.passed += 1;
        match &mut self.phase {
            Phase::Trains { train, doubles, size_before } => {
                let (before, doubles) = (*size_before, *doubles);
                let path = HopPath { base, grain: self.grain };
                match train.handle_passed(sent_at, now, number, path) {
                    Sign::Going => self.restart_if_paused(),
                    Sign::Full(cells) => self.end_ramp(cells, before),
                    Sign::Whole if !doubles => self.end_ramp(self.size, before),
                    Sign::Whole => {
                        self.size = self.size.saturating_mul(2).min(SIZE_MAX);
                        *train = doubling(self.sent, self.size);
                    }
                }
            }
            Phase::SlowStart => {
                let is_full = self.flight.cells() + 1 >= self.size;
                if queued_cells(self.size.into(), rtt.as_secs_f64(), base) > QUEUED.1 {
                    self.end_ramp(self.size / 2, INITIAL);
                } else if is_full {
                    self.size = (self.size + 1).min(SIZE_MAX);
                }
            }
            Phase::Avoidance(round) => {
                round.min_rtt = round.min_rtt.min(rtt);
                if number >= round.until {
                    self.end_round(base);
                }
            }
        }
    }

    /// The source had nothing to send for a round trip: the rest of the train becomes a new one.
    fn restart_if_paused(&mut self) {
        if let Phase::Trains { train, .. } = &mut self.phase
            && self.flight.cells() == 0
            && train.left() > 0
        {
            *train = train.again(self.sent);
        }
    }

    fn end_ramp(&mut self, size: u32, before: u32) {
        // A window that was full without queueing before the ramp-up does fit.
        self.size = size.clamp(before.max(INITIAL), SIZE_MAX);
        if let Some(reramp) = &mut self.reramp {
            reramp.handle_ramp_end(self.size, before);
        }
        self.phase = Phase::Avoidance(Round::new(self.sent));
    }

    fn end_round(&mut self, base: Duration) {
        let Phase::Avoidance(Round { min_rtt, was_full, .. }) = self.phase else { return };
        let queued = queued_cells(self.size.into(), min_rtt.as_secs_f64(), base);
        let reramp = self.reramp.as_mut();
        let advice = reramp
            .map_or(Advice::Step(1), |reramp| reramp.handle_round(self.size, queued, was_full));
        let step = match advice {
            Advice::Step(cells) => cells,
            Advice::Ramp => return self.ramp_again(),
        };
        if queued > QUEUED.1 {
            self.size = (self.size - 1).max(INITIAL);
        } else if queued < QUEUED.0 && was_full {
            self.size = self.size.saturating_add(step).min(SIZE_MAX);
        }
        self.phase = Phase::Avoidance(Round::new(self.sent));
    }

    fn ramp_again(&mut self) {
        let size_before = self.size;
        self.size = self.size.saturating_mul(2).min(SIZE_MAX);
        let train = doubling(self.sent, self.size);
        self.phase = Phase::Trains { train, doubles: true, size_before };
    }
}

/// A train of this length; twice as many would follow.
fn doubling(first: u64, len: u32) -> Train {
    Train::new(first, len, len.saturating_mul(2).min(SIZE_MAX))
}

impl Default for BackTap {
    fn default() -> Self {
        Self::new()
    }
}

impl Round {
    const fn new(until: u64) -> Self {
        Self { until, min_rtt: Duration::MAX, was_full: false }
    }
}

impl HopWindow for BackTap {
    fn size_cells(&self) -> u32 {
        self.size
    }

    fn room_cells(&self, _now: Instant) -> u32 {
        let room = self.size.saturating_sub(self.flight.cells());
        match &self.phase {
            Phase::Trains { train, .. } => room.min(train.left()),
            Phase::SlowStart | Phase::Avoidance(_) => room,
        }
    }

    fn handle_sent(&mut self, now: Instant, cells: u32) {
        self.flight.handle_sent(now, cells);
        self.sent += u64::from(cells);
        let in_flight = self.flight.cells();
        match &mut self.phase {
            Phase::Trains { train, doubles, .. } => {
                train.handle_sent(cells, in_flight);
                // The window is not the limit now, but it would be if the next train had to wait until all of
                // this one has been forwarded.
                if *doubles && train.left() == 0 && !train.has_filled_window() {
                    *train = train.again(self.sent);
                }
            }
            Phase::Avoidance(round) => round.was_full |= in_flight >= self.size,
            Phase::SlowStart => {}
        }
    }

    fn handle_feedback(&mut self, now: Instant, cells: u32) {
        for _ in 0..cells {
            // A peer that reports more cells than it received gains nothing.
            let Some(sent_at) = self.flight.handle_passed() else { break };
            self.handle_passed(sent_at, now);
        }
    }
}

#[cfg(test)]
mod tests;
