//! Retransmission of the messages of lost legs (proposal 329 §2.7).
//!
//! Each end keeps a copy of what it has sent on a leg until a SENDME acknowledges it. If the leg is lost, the
//! copies are sent on other legs under their old numbers, and the other end drops duplicates. C tor does not
//! support it; the handshake negotiates it.

use super::{Conflux, Removed, Sequence};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of messages kept for a leg. A leg with more in flight cannot be recovered.
const KEPT_MAX: usize = 1 << 13;

/// Maximum number of consecutive messages that no SENDME acknowledges: messages other than data. If an end
/// sends hardly anything else, they are useless to keep unless the other end reports their number.
const UNMARKED_MAX: usize = 512;

/// The number of messages without SENDME after which the other end is notified: fewer than [`UNMARKED_MAX`] are
/// in flight before it is.
const REPORT_EVERY: u32 = 128;

/// The unacknowledged messages of a leg.
#[derive(Debug)]
pub(super) struct RetransmitBuffer<M> {
    /// Ascending by number except for retransmitted ones, with whether a SENDME will acknowledge the message
    /// and all before it.
    messages: VecDeque<(u64, bool, M)>,
    /// Messages since the last one that a SENDME will acknowledge.
    unmarked: usize,
    /// Expected SENDMEs for messages that could not be kept: all of these are older than the kept ones.
    dropped_marks: usize,
    /// The last message that could not be kept will not be acknowledged itself: the SENDME of a kept one covers
    /// it.
    has_dropped_since: bool,
    /// Messages that were sent on the leg before the first kept one.
    before: u64,
    /// Expected SENDMEs for messages that a report has acknowledged. They are older than all others.
    told_marks: usize,
    /// Kept messages that a SENDME will acknowledge.
    marked: usize,
    /// The number of acknowledgements.
    acknowledged: u64,
}

impl<M> Default for RetransmitBuffer<M> {
    fn default() -> Self {
        let messages = VecDeque::new();
        let (dropped_marks, has_dropped_since) = (0, false);
        let (unmarked, before, told_marks, marked) = (0, 0, 0, 0);
        Self {
            messages,
            unmarked,
            dropped_marks,
            has_dropped_since,
            before,
            told_marks,
            marked,
            acknowledged: 0,
        }
    }
}

impl<M> RetransmitBuffer<M> {
    fn push(&mut self, number: u64, is_marked: bool, message: M) {
        self.unmarked = if is_marked { 0 } else { self.unmarked + 1 };
        let is_full = self.messages.len() >= KEPT_MAX || self.unmarked > UNMARKED_MAX;
        if is_full && let Some(is_marked) = self.pop() {
            self.dropped_marks += usize::from(is_marked);
            self.has_dropped_since = !is_marked;
        }
        self.marked += usize::from(is_marked);
        self.messages.push_back((number, is_marked, message));
    }

    /// Whether a SENDME is expected.
    pub(super) const fn is_awaited(&self) -> bool {
        self.marked + self.dropped_marks > 0
    }

    /// The number of acknowledgements.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Drops the oldest; returns whether a SENDME would have acknowledged it.
    fn pop(&mut self) -> Option<bool> {
        let (_, is_marked, _) = self.messages.pop_front()?;
        self.before += 1;
        self.marked -= usize::from(is_marked);
        Some(is_marked)
    }

    /// The other end reports the number of messages that have arrived on the leg.
    fn handle_arrived(&mut self, count: u64) {
        self.acknowledged += 1;
        if count < self.before {
            return;
        }
        // What could not be kept is older, and has arrived, too.
        self.told_marks += core::mem::take(&mut self.dropped_marks);
        self.has_dropped_since = false;
        while self.before < count
            && let Some(is_marked) = self.pop()
        {
            self.told_marks += usize::from(is_marked);
        }
        self.unmarked = self.unmarked.min(self.messages.len());
    }

    /// A SENDME has arrived: they arrive in the order of what they acknowledge.
    fn handle_acknowledged(&mut self) {
        self.acknowledged += 1;
        if self.told_marks > 0 {
            self.told_marks -= 1;
            return;
        }
        if self.dropped_marks > 0 {
            self.dropped_marks -= 1;
            return;
        }
        self.has_dropped_since = false;
        while self.pop() == Some(false) {}
    }

    /// Whether a message that could not be kept is not acknowledged.
    const fn is_incomplete(&self) -> bool {
        self.dropped_marks > 0 || self.has_dropped_since
    }
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// Enables retransmission by both ends. To be called before any leg has carried messages.
    pub const fn set_resumes(&mut self, resumes: bool) {
        self.resumes = resumes;
    }

    /// Whether retransmission is enabled.
    #[must_use]
    pub const fn resumes(&self) -> bool {
        self.resumes
    }

    /// Messages that are kept until they are acknowledged, or wait for retransmission.
    #[must_use]
    pub const fn again_len(&self) -> usize {
        self.again_len
    }

    /// Keeps the message that was sent last on a leg. `is_marked` if a SENDME will acknowledge it and all
    /// before it.
    pub fn keep(&mut self, leg: L, message: M, is_marked: bool) {
        if !self.resumes {
            return;
        }
        let Some(sequence) = self.legs.iter_mut().find(|sequence| sequence.leg == leg) else {
            return;
        };
        let before = sequence.kept.messages.len();
        sequence.kept.push(sequence.sent, is_marked, message);
        self.again_len = self.again_len + sequence.kept.messages.len() - before;
    }

    /// A SENDME has arrived on a leg.
    pub fn handle_acknowledged(&mut self, leg: L) {
        let Some(sequence) = self.legs.iter_mut().find(|sequence| sequence.leg == leg) else {
            return;
        };
        let before = sequence.kept.messages.len();
        sequence.kept.handle_acknowledged();
        self.again_len -= before - sequence.kept.messages.len();
    }

    /// The other end reports the number of stream messages that have arrived on a leg.
    pub fn handle_arrived(&mut self, leg: L, count: u64) {
        let Some(sequence) = self.legs.iter_mut().find(|sequence| sequence.leg == leg) else {
            return;
        };
        let before = sequence.kept.messages.len();
        sequence.kept.handle_arrived(count);
        self.again_len -= before - sequence.kept.messages.len();
    }

    /// A message has arrived on a leg. Returns the number to report to the other end now, if a report is due:
    /// in time for messages that no SENDME acknowledges.
    pub fn take_report(&mut self, leg: L, is_data: bool) -> Option<u64> {
        let sequence = self.legs.iter_mut().find(|sequence| sequence.leg == leg)?;
        sequence.unreported += u32::from(!is_data);
        if !self.resumes || sequence.unreported < REPORT_EVERY {
            return None;
        }
        sequence.unreported = 0;
        Some(sequence.received_here)
    }

    /// These legs are lost, by their numbers. Returns those of them that exist here and are to be removed. None
    /// of the numbers will be linked again.
    pub fn handle_lost_legs(&mut self, numbers: &[u8]) -> Vec<L> {
        self.lost_legs.extend(numbers);
        let is_gone = |sequence: &&Sequence<L, M>| numbers.contains(&sequence.number);
        self.legs.iter().filter(is_gone).map(|leg| leg.leg).collect()
    }

    /// The number of a leg.
    #[must_use]
    pub fn number_of(&self, leg: L) -> Option<u8> {
        self.find(leg).map(|sequence| sequence.number)
    }

    /// The numbers of all lost legs, ascending.
    #[must_use]
    pub fn lost_legs(&self) -> Vec<u8> {
        self.lost_legs.iter().copied().collect()
    }

    /// Whether a leg with this number exists or is known to be lost.
    pub(super) fn has_had(&self, number: u8) -> bool {
        self.lost_legs.contains(&number) || self.legs.iter().any(|leg| leg.number == number)
    }

    /// A leg is lost: its unacknowledged messages are to be retransmitted.
    pub(super) fn lose(&mut self, leg: Sequence<L, M>) -> Removed {
        if self.current == Some(leg.leg) {
            self.current = None;
        }
        // Legs that are not linked yet can only start a new set: an exit that has lost all legs forgets its
        // state.
        if leg.kept.is_incomplete() || self.legs.is_empty() && self.has_carried() {
            self.again_len -= leg.kept.messages.len();
            return Removed::Broken;
        }
        for (number, _, message) in leg.kept.messages {
            if self.lost.insert(number, message).is_some() {
                self.again_len -= 1;
            }
        }
        Removed::Spare
    }

    /// The next message to retransmit.
    #[must_use]
    pub fn next_lost(&self) -> Option<&M> {
        self.lost.first_key_value().map(|(_, message)| message)
    }

    /// Takes it for this leg, with the content of the SWITCH that must precede it, if any. It counts as sent.
    pub fn take_lost(&mut self, leg: L) -> Option<(Option<u32>, M)> {
        let sequence = self.legs.iter_mut().find(|sequence| sequence.leg == leg)?;
        let (number, message) = self.lost.pop_first()?;
        self.again_len -= 1;
        // In two's complement: both are far from the limits.
        let before = number.saturating_sub(1);
        let is_forth = before >= sequence.sent;
        let distance = u32::try_from(before.abs_diff(sequence.sent)).unwrap_or(u32::MAX);
        let skipped = if is_forth { distance } else { distance.wrapping_neg() };
        sequence.sent = number;
        sequence.sent_here += 1;
        self.current = Some(leg);
        Some(((skipped != 0).then_some(skipped), message))
    }
}
