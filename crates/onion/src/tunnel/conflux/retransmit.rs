//! What is sent again when its leg is lost (proposal 329 §2.7).
//!
//! Each end keeps a copy of what it has sent on a leg until a SENDME tells that it has come. When the leg is lost, these copies
//! go on other legs, under their old numbers. Some have come already: the other end drops them. C tor does not do it; whether the
//! other end does is agreed on in the handshake.

use super::{Conflux, Removed, Sequence};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Messages of a leg that are kept, at most. A leg that has more under way cannot be made good.
const KEPT_MAX: usize = 1 << 13;

/// Messages in a row of which a SENDME acknowledges none, at most: not of data, that is. Who sends hardly anything else has them
/// kept in vain, unless the other end tells how many have come.
const UNMARKED_MAX: usize = 512;

/// Messages that no SENDME acknowledges of which the other end is told at once: few enough that no more than
/// [`UNMARKED_MAX`] are under way before it hears of them.
const TOLD_EVERY: u32 = 128;

/// What was sent on a leg and is not acknowledged.
#[derive(Debug)]
pub(super) struct Kept<M> {
    /// By number, ascending but for what was sent again; with whether a SENDME will acknowledge it and all before it.
    messages: VecDeque<(u64, bool, M)>,
    /// Since the last that a SENDME will acknowledge.
    unmarked: usize,
    /// SENDMEs that are to come for messages that could not be kept: all of these are older than those that are.
    dropped_marks: usize,
    /// The last that could not be kept is none that a SENDME acknowledges: one for a message that is kept will tell of it.
    has_dropped_since: bool,
    /// Messages that were sent on the leg before the first that is kept.
    before: u64,
    /// SENDMEs that are to come for messages of which it is known otherwise that they have come. They are older than all others.
    told_marks: usize,
    /// Messages that are kept and that a SENDME will acknowledge.
    marked: usize,
    /// How often the other end has acknowledged something.
    acknowledged: u64,
}

impl<M> Default for Kept<M> {
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

impl<M> Kept<M> {
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

    /// Whether a SENDME is to come.
    pub(super) const fn is_awaited(&self) -> bool {
        self.marked + self.dropped_marks > 0
    }

    /// How often the other end has acknowledged something.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Forgets the oldest; whether a SENDME would have acknowledged it.
    fn pop(&mut self) -> Option<bool> {
        let (_, is_marked, _) = self.messages.pop_front()?;
        self.before += 1;
        self.marked -= usize::from(is_marked);
        Some(is_marked)
    }

    /// The other end says that so many have come on the leg.
    fn handle_came(&mut self, count: u64) {
        self.acknowledged += 1;
        if count < self.before {
            return;
        }
        // What could not be kept is older, and has come, too.
        self.told_marks += core::mem::take(&mut self.dropped_marks);
        self.has_dropped_since = false;
        while self.before < count
            && let Some(is_marked) = self.pop()
        {
            self.told_marks += usize::from(is_marked);
        }
        self.unmarked = self.unmarked.min(self.messages.len());
    }

    /// A SENDME has come: they come in the order of what they acknowledge.
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

    /// Something that could not be kept is not acknowledged.
    const fn is_incomplete(&self) -> bool {
        self.dropped_marks > 0 || self.has_dropped_since
    }
}

impl<L: Copy + PartialEq, M> Conflux<L, M> {
    /// Both ends send again what a lost leg has not brought. To be set before any leg has carried anything.
    pub const fn set_resumes(&mut self, resumes: bool) {
        self.resumes = resumes;
    }

    /// Whether they do.
    #[must_use]
    pub const fn resumes(&self) -> bool {
        self.resumes
    }

    /// Messages that are kept until they are acknowledged, or wait to be sent again.
    #[must_use]
    pub const fn again_len(&self) -> usize {
        self.again_len
    }

    /// Keeps the message that was sent last on a leg. `is_marked`: a SENDME will acknowledge it, and all before it.
    pub fn keep(&mut self, leg: L, message: M, is_marked: bool) {
        if !self.resumes {
            return;
        }
        let Some(it) = self.legs.iter_mut().find(|it| it.leg == leg) else { return };
        let before = it.kept.messages.len();
        it.kept.push(it.sent, is_marked, message);
        self.again_len = self.again_len + it.kept.messages.len() - before;
    }

    /// A SENDME has come on a leg.
    pub fn handle_acknowledged(&mut self, leg: L) {
        let Some(it) = self.legs.iter_mut().find(|it| it.leg == leg) else { return };
        let before = it.kept.messages.len();
        it.kept.handle_acknowledged();
        self.again_len -= before - it.kept.messages.len();
    }

    /// The other end says that so many messages of streams have come on a leg.
    pub fn handle_came(&mut self, leg: L, count: u64) {
        let Some(it) = self.legs.iter_mut().find(|it| it.leg == leg) else { return };
        let before = it.kept.messages.len();
        it.kept.handle_came(count);
        self.again_len -= before - it.kept.messages.len();
    }

    /// A message has come on a leg. How many the other end is to be told of now, if it is: in time for those that no SENDME
    /// acknowledges.
    pub fn take_came(&mut self, leg: L, is_data: bool) -> Option<u64> {
        let it = self.legs.iter_mut().find(|it| it.leg == leg)?;
        it.untold += u32::from(!is_data);
        if !self.resumes || it.untold < TOLD_EVERY {
            return None;
        }
        it.untold = 0;
        Some(it.received_here)
    }

    /// These legs are gone, as both ends call them: those of them that are here, and are to be removed. None of these numbers will
    /// be linked again.
    pub fn handle_gone(&mut self, numbers: &[u8]) -> Vec<L> {
        self.gone.extend(numbers);
        let is_gone = |it: &&Sequence<L, M>| numbers.contains(&it.number);
        self.legs.iter().filter(is_gone).map(|it| it.leg).collect()
    }

    /// What both ends call a leg.
    #[must_use]
    pub fn number_of(&self, leg: L) -> Option<u8> {
        self.find(leg).map(|it| it.number)
    }

    /// All that are gone, by their numbers, ascending.
    #[must_use]
    pub fn gone(&self) -> Vec<u8> {
        self.gone.iter().copied().collect()
    }

    /// Whether a leg of this number is there, or is known to be gone.
    pub(super) fn has_had(&self, number: u8) -> bool {
        self.gone.contains(&number) || self.legs.iter().any(|it| it.number == number)
    }

    /// A leg is gone: what it has not brought is to be sent again.
    pub(super) fn lose(&mut self, leg: Sequence<L, M>) -> Removed {
        if self.current == Some(leg.leg) {
            self.current = None;
        }
        // Legs that are not linked yet can go on from nothing only: an exit that has lost them all forgets what it had.
        let has_carried = self.sent > 0 || self.delivered > 0 || !self.early.is_empty();
        if leg.kept.is_incomplete() || self.legs.is_empty() && has_carried {
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

    /// The next message to be sent again.
    #[must_use]
    pub fn next_lost(&self) -> Option<&M> {
        self.lost.first_key_value().map(|(_, message)| message)
    }

    /// It goes on this leg: what its SWITCH must say, if one must come before it, and the message itself. As good as sent.
    pub fn take_lost(&mut self, leg: L) -> Option<(Option<u32>, M)> {
        let it = self.legs.iter_mut().find(|it| it.leg == leg)?;
        let (number, message) = self.lost.pop_first()?;
        self.again_len -= 1;
        // In two's complement: both are far from the bounds.
        let before = number.saturating_sub(1);
        let is_forth = before >= it.sent;
        let distance = u32::try_from(before.abs_diff(it.sent)).unwrap_or(u32::MAX);
        let skipped = if is_forth { distance } else { distance.wrapping_neg() };
        it.sent = number;
        it.sent_here += 1;
        self.current = Some(leg);
        Some(((skipped != 0).then_some(skipped), message))
    }
}
