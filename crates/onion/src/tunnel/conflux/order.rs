//! What has come: in which order, and what waits.

use super::{Conflux, ConfluxError};
use crate::cell::msg::ConfluxSwitch;

/// Where a message stands that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is its turn: it is delivered, and then [`poll_early`](Conflux::poll_early) may have others.
    Next,
    /// This is its number, and others come before it: it goes to [`hold`](Conflux::hold).
    Early(u64),
    /// It has come before, on a leg that was lost, and is of no use.
    Duplicate,
}

/// How many must wait for a leg to be given up, if so many did when one was given up last: there must be room for what comes until
/// the other end knows, and sends again.
pub(super) fn overdue_at(before: usize, early_max: usize) -> usize {
    usize::midpoint(before, early_max).max(1)
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// A SWITCH has come on a leg.
    ///
    /// # Errors
    /// Where the leg is none, or its last SWITCH was followed by nothing: it would only tell a relay on the way something.
    pub fn handle_switch(&mut self, leg: L, switch: ConfluxSwitch) -> Result<(), ConfluxError> {
        let resumes = self.resumes;
        let it = self.find_mut(leg).filter(|it| !it.is_switched).ok_or(ConfluxError::Switch)?;
        it.is_switched = true;
        let skipped = match resumes {
            true => i64::from(switch.skipped.cast_signed()),
            false => i64::from(switch.skipped),
        };
        it.received = it.received.checked_add_signed(skipped).ok_or(ConfluxError::Switch)?;
        Ok(())
    }

    /// A message of streams has come on a leg.
    ///
    /// # Errors
    /// Where the leg is none, and where that message has come before.
    pub fn handle_received(&mut self, leg: L) -> Result<Order, ConfluxError> {
        let it = self.find_mut(leg).ok_or(ConfluxError::Misplaced)?;
        it.is_switched = false;
        it.received += 1;
        it.received_here += 1;
        let number = it.received;
        if number <= self.delivered || self.early.contains_key(&number) {
            return if self.resumes { Ok(Order::Duplicate) } else { Err(ConfluxError::Duplicate) };
        }
        if number == self.delivered + 1 {
            self.delivered = number;
            return Ok(Order::Next);
        }
        Ok(Order::Early(number))
    }

    /// Keeps a message until its turn.
    ///
    /// # Errors
    /// Where more wait than may.
    pub fn hold(&mut self, number: u64, message: M) -> Result<(), ConfluxError> {
        if self.early.len() >= self.early_max {
            return Err(ConfluxError::TooEarly);
        }
        self.early.insert(number, message);
        self.early_peak = self.early_peak.max(self.early.len());
        Ok(())
    }

    /// The next message whose turn has come.
    pub fn poll_early(&mut self) -> Option<M> {
        let first = self.early.first_entry()?;
        if *first.key() != self.delivered + 1 {
            return None;
        }
        self.delivered += 1;
        let message = first.remove();
        if self.early.is_empty() {
            self.overdue_at = overdue_at(0, self.early_max);
        }
        Some(message)
    }

    /// The leg that keeps the others waiting, once half of what may wait does: it is silent, whether anybody knows or not. To be
    /// asked when something has come early. None where nothing is sent again, and where no other leg is left.
    ///
    /// Of those that can bring what is missing it is the one that has brought most lately; the next only when more waits.
    pub fn take_overdue(&mut self) -> Option<L> {
        if !self.resumes || self.legs.len() < 2 || self.early.len() < self.overdue_at {
            return None;
        }
        let leg = self.behind()?;
        self.overdue_at = overdue_at(self.early.len(), self.early_max);
        Some(leg)
    }
}
