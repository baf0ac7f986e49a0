//! When a window ramps up again.

use super::backtap::QUEUED;

/// With fewer queued cells than this, a round is calm: there may be additional capacity.
const CALM: f64 = 1.0;

/// This number of consecutive calm rounds begins another ramp-up; more after a useless one, up to the second.
///
/// Unless no cells were queued since then: it ended too early, before the next hop's own window was found.
const CALM_ROUNDS: (u32, u32) = (3, 6);

/// After this number of rounds with queued cells, one calm round fewer suffices again.
const FORGOTTEN_AFTER: u32 = 8;

/// If cells were queued for this number of rounds, the window at which that began is obsolete.
const HISTORY_AFTER: u32 = 16;

/// The first calm round restores the window at which cells were last queued, if that is at most this fraction
/// larger.
const BACK_PART: u32 = 4;

/// Each calm round adds at most this fraction of the window. The effect shows two rounds later.
const STEP_PART: u32 = 8;

/// A ramp-up was useful if the window has grown by this factor.
const WORTH: f64 = 1.5;

/// The change of a window after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Add this number of cells if it grows.
    Step(u32),
    /// Another ramp-up.
    Ramp,
}

/// When a window ramps up again because of additional capacity: the future work of `CircuitStart`'s paper.
///
/// A balanced window has two to four queued cells, so several consecutive *calm* rounds without any suggest
/// additional capacity. It is not certain:
///
/// - Noise lengthens round-trip times and shrinks windows; when it ends, a round is calm. So each consecutive
///   calm round adds twice as many cells as the one before it: after noise, these are soon queued.
/// - At a next hop that sends cells in runs, cells wait for a whole interval or not at all. There a balanced
///   window oscillates, and rounds are calm while it grows. So calm rounds do not count until the window
///   exceeds the one at which cells were last queued; the first of them restores that window.
#[derive(Debug)]
pub(super) struct Reramp {
    /// Required number of consecutive calm rounds.
    needed: u32,
    /// Rounds with queued cells since that number last changed.
    proofs: u32,
    /// Whether cells were queued since the last ramp-up.
    is_proved: bool,
    /// Consecutive calm rounds.
    calm: u32,
    /// Rounds with queued cells since the last calm one.
    waiting: u32,
    /// The window at which they began to be queued.
    waited_cells: u32,
    /// The window of the previous round. Cells forwarded in a round were sent in the previous one.
    last_cells: u32,
}

impl Reramp {
    /// For a new window.
    pub(super) const fn new() -> Self {
        Self {
            needed: CALM_ROUNDS.0,
            proofs: 0,
            is_proved: false,
            calm: 0,
            waiting: 0,
            waited_cells: 0,
            last_cells: 0,
        }
    }

    /// A ramp-up from a window of `before` cells has ended with one of `cells`.
    pub(super) fn handle_ramp_end(&mut self, cells: u32, before_cells: u32) {
        let is_worth = f64::from(cells) >= WORTH * f64::from(before_cells);
        let needed = if is_worth { CALM_ROUNDS.0 } else { (self.needed * 2).min(CALM_ROUNDS.1) };
        let waited_cells = self.waited_cells;
        *self = Self { needed, waited_cells, last_cells: cells, ..Self::new() };
    }

    /// A round of congestion avoidance has ended, with a window of `cells`, of which `queued` were queued.
    /// `was_full` if the window was full for a while.
    pub(super) fn handle_round(&mut self, cells: u32, queued: f64, was_full: bool) -> Advice {
        let is_calm = was_full && queued < CALM;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if is_calm {
            self.waiting = 0;
        } else if queued >= QUEUED.0 {
            self.handle_waiting(cells);
        }
        let seen_cells = core::mem::replace(&mut self.last_cells, cells);
        let needed = if self.is_proved { self.needed } else { CALM_ROUNDS.0 };
        if self.calm >= needed && seen_cells > self.waited_cells {
            return Advice::Ramp;
        }
        Advice::Step(self.step(cells))
    }

    fn step(&self, cells: u32) -> u32 {
        let step = match self.calm {
            0 => 1,
            1 => (self.waited_cells + 1).saturating_sub(cells).min(cells / BACK_PART),
            calm => 1u32.checked_shl(calm - 1).unwrap_or(u32::MAX).min(cells / STEP_PART),
        };
        step.max(1)
    }

    const fn handle_waiting(&mut self, cells: u32) {
        if self.waiting == 0 || self.waiting >= HISTORY_AFTER {
            self.waited_cells = cells;
        }
        self.waiting += 1;
        self.is_proved = true;
        self.proofs += 1;
        if self.proofs >= FORGOTTEN_AFTER {
            self.proofs = 0;
            if self.needed > CALM_ROUNDS.0 {
                self.needed -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A balanced window.
    fn balanced(cells: u32) -> Reramp {
        let mut reramp = Reramp::new();
        reramp.handle_ramp_end(cells, 2);
        assert_eq!(reramp.handle_round(cells, 3.0, true), Advice::Step(1));
        reramp
    }

    /// The windows of calm rounds that grow as advised, until a ramp-up begins.
    fn calm(reramp: &mut Reramp, cells: u32) -> Vec<u32> {
        let mut sizes = [cells].to_vec();
        while let Advice::Step(step) = reramp.handle_round(sizes[sizes.len() - 1], 0.0, true) {
            sizes.push(sizes[sizes.len() - 1] + step);
            assert!(sizes.len() < 20, "it never ramps: {sizes:?}");
        }
        sizes
    }

    #[test]
    fn each_calm_round_doubles_the_step_and_the_third_starts_a_ramp_up() {
        assert_eq!(calm(&mut balanced(50), 50), [50, 51, 53]);
    }

    #[test]
    fn queued_cells_or_an_unfilled_window_interrupt_the_calm_rounds() {
        for (queued, was_full) in [(2.0, true), (1.5, true), (0.0, false)] {
            let mut reramp = balanced(50);
            (0..2).for_each(|_| _ = reramp.handle_round(51, 0.0, true));
            assert_eq!(reramp.handle_round(52, queued, was_full), Advice::Step(1));
            assert_eq!(calm(&mut reramp, 52).len(), 3);
        }
    }

    #[test]
    fn calm_rounds_count_only_above_the_window_at_which_cells_were_last_queued() {
        let falling = || {
            let mut reramp = balanced(60);
            for cells in [59, 58, 57] {
                assert_eq!(reramp.handle_round(cells, 4.5, true), Advice::Step(1));
            }
            reramp
        };
        let mut reramp = falling();
        for cells in [57, 58, 59, 60, 60, 61] {
            assert!(matches!(reramp.handle_round(cells, 0.0, true), Advice::Step(_)));
        }
        // Cells forwarded in the last of them were sent in the previous one.
        assert_eq!(reramp.handle_round(61, 0.0, true), Advice::Ramp);
        // It soon has that size again.
        assert_eq!(calm(&mut falling(), 57), [57, 61, 63]);
    }

    #[test]
    fn a_much_larger_earlier_window_is_not_restored() {
        let mut reramp = balanced(100);
        (0..10).for_each(|_| _ = reramp.handle_round(40, 9.0, true));
        assert_eq!(reramp.handle_round(40, 0.0, true), Advice::Step(10));
    }

    #[test]
    fn long_queueing_makes_the_earlier_window_obsolete() {
        let mut reramp = balanced(100);
        for cells in (50..100).rev() {
            reramp.handle_round(cells, 9.0, true);
        }
        assert_eq!(calm(&mut reramp, 50), [50, 51, 53]);
    }

    #[test]
    fn a_useless_ramp_up_raises_the_threshold_until_cells_are_queued_again() {
        let after = |rounds| {
            let mut reramp = balanced(50);
            calm(&mut reramp, 50);
            reramp.handle_ramp_end(55, 53);
            (0..rounds).for_each(|_| _ = reramp.handle_round(55, 3.0, true));
            calm(&mut reramp, 55).len()
        };
        assert_eq!((after(1), after(8), after(16), after(24), after(80)), (6, 5, 4, 3, 3));
    }

    #[test]
    fn a_ramp_up_without_queueing_ended_too_early() {
        let mut reramp = balanced(50);
        calm(&mut reramp, 50);
        reramp.handle_ramp_end(55, 53);
        assert_eq!(calm(&mut reramp, 55).len(), 3);
    }

    #[test]
    fn each_step_is_at_most_a_fraction_of_the_window() {
        let mut reramp = Reramp::new();
        reramp.waited_cells = u32::MAX - 1;
        assert_eq!(reramp.handle_round(40, 0.0, true), Advice::Step(10), "back");
        for _ in 0..100 {
            let Advice::Step(step) = reramp.handle_round(40, 0.0, true) else {
                panic!("it was never so large")
            };
            assert!((1..=5).contains(&step), "{step}");
        }
    }
}
