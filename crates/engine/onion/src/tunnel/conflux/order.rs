//! The order of received messages, and the reordering buffer.

use super::{Conflux, ConfluxError};
use crate::cell::msg::ConfluxSwitch;

/// The position of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Next in order: it is delivered, and then [`poll_early`](Conflux::poll_early) may return others.
    Next,
    /// It has this number, and others precede it: [`hold`](Conflux::hold) buffers it.
    Early(u64),
    /// A duplicate, from a lost leg.
    Duplicate,
}

/// The number of waiting messages at which the next leg is given up, after one was given up at `waiting`: there
/// must be space for what arrives until the other end knows and retransmits.
pub(super) fn overdue_at(before: usize, early_max: usize) -> usize {
    usize::midpoint(before, early_max).max(1)
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// A SWITCH has arrived on a leg.
    ///
    /// # Errors
    /// If there is no such leg, or no message has followed its last SWITCH, which could carry a covert signal
    /// to a relay on the path.
    pub fn handle_switch(&mut self, leg: L, switch: ConfluxSwitch) -> Result<(), ConfluxError> {
        let resumes = self.resumes;
        let sequence = self
            .find_mut(leg)
            .filter(|sequence| !sequence.is_switched)
            .ok_or(ConfluxError::Switch)?;
        sequence.is_switched = true;
        let skipped = match resumes {
            true => i64::from(switch.skipped.cast_signed()),
            false => i64::from(switch.skipped),
        };
        sequence.received =
            sequence.received.checked_add_signed(skipped).ok_or(ConfluxError::Switch)?;
        Ok(())
    }

    /// A stream message has arrived on a leg.
    ///
    /// # Errors
    /// If there is no such leg, or the message is a duplicate.
    pub fn handle_received(&mut self, leg: L) -> Result<Order, ConfluxError> {
        let sequence = self.find_mut(leg).ok_or(ConfluxError::Misplaced)?;
        sequence.is_switched = false;
        sequence.received += 1;
        sequence.received_here += 1;
        let number = sequence.received;
        if number <= self.delivered || self.early.contains_key(&number) {
            return if self.resumes { Ok(Order::Duplicate) } else { Err(ConfluxError::Duplicate) };
        }
        if number == self.delivered + 1 {
            self.delivered = number;
            return Ok(Order::Next);
        }
        Ok(Order::Early(number))
    }

    /// Buffers a message until its predecessors have arrived.
    ///
    /// # Errors
    /// If the buffer is full.
    pub fn hold(&mut self, number: u64, message: M) -> Result<(), ConfluxError> {
        if self.early.len() >= self.early_max {
            return Err(ConfluxError::TooEarly);
        }
        self.early.insert(number, message);
        self.early_peak = self.early_peak.max(self.early.len());
        Ok(())
    }

    /// The next buffered message in order.
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

    /// The leg that blocks the others, once the buffer is half full. To be called when an out-of-order message
    /// has arrived. `None` without retransmission, and if no other leg is left.
    ///
    /// Of the legs that can have the missing message it is the one that has delivered most recently; the next
    /// one only if more messages wait.
    pub fn take_overdue(&mut self) -> Option<L> {
        if !self.resumes || self.legs.len() < 2 || self.early.len() < self.overdue_at {
            return None;
        }
        let leg = self.behind()?;
        self.overdue_at = overdue_at(self.early.len(), self.early_max);
        Some(leg)
    }
}
