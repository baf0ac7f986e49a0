use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// Times that are kept. Whoever passes on much and then nothing more cannot have us keep one for each cell.
const TIMES_MAX: usize = 512;

/// Cells that are under way to the next hop, in the order in which they went.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// When, and how many at once.
    sent: VecDeque<(Instant, u32)>,
    cells: u32,
}

impl Flight {
    pub(super) const fn cells(&self) -> u32 {
        self.cells
    }

    pub(super) fn handle_sent(&mut self, now: Instant, cells: u32) {
        if cells == 0 {
            return;
        }
        self.cells += cells;
        let is_full = self.sent.len() >= TIMES_MAX;
        match self.sent.back_mut() {
            Some((at, count)) if *at == now => *count += cells,
            // As if they had gone with those before: the round trip seems longer than it is.
            Some((_, count)) if is_full => *count += cells,
            _ => self.sent.push_back((now, cells)),
        }
    }

    /// The first of them is passed on: how long that took. `None` if none is under way, whatever the peer says.
    pub(super) fn handle_passed(&mut self, now: Instant) -> Option<Duration> {
        let (at, count) = self.sent.front_mut()?;
        let rtt = now - *at;
        *count -= 1;
        if *count == 0 {
            self.sent.pop_front();
        }
        self.cells -= 1;
        Some(rtt)
    }
}
