//! What is sent again when its leg is lost (proposal 329 §2.7).
//!
//! Each end keeps a copy of what it has sent on a leg until a SENDME tells that it has come. When the leg is lost, these copies
//! go on other legs, under their old numbers. Some have come already: the other end drops them. C tor does not do it; whether the
//! other end does is agreed on in the handshake.

use super::{Conflux, Removed, Sequence};
use alloc::collections::VecDeque;

/// Messages of a leg that are kept, at most. A leg that has more under way cannot be made good.
const KEPT_MAX: usize = 1 << 13;

/// Messages in a row of which a SENDME acknowledges none, at most: not of data, that is. Who sends hardly anything else has them
/// kept in vain.
const UNMARKED_MAX: usize = 512;

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
}

impl<M> Default for Kept<M> {
    fn default() -> Self {
        let messages = VecDeque::new();
        Self { messages, unmarked: 0, dropped_marks: 0, has_dropped_since: false }
    }
}

impl<M> Kept<M> {
    fn push(&mut self, number: u64, is_marked: bool, message: M) {
        self.unmarked = if is_marked { 0 } else { self.unmarked + 1 };
        let is_full = self.messages.len() >= KEPT_MAX || self.unmarked > UNMARKED_MAX;
        if is_full && let Some((_, is_marked, _)) = self.messages.pop_front() {
            self.dropped_marks += usize::from(is_marked);
            self.has_dropped_since = !is_marked;
        }
        self.messages.push_back((number, is_marked, message));
    }

    /// A SENDME has come: they come in the order of what they acknowledge.
    fn handle_acknowledged(&mut self) {
        if self.dropped_marks > 0 {
            self.dropped_marks -= 1;
            return;
        }
        self.has_dropped_since = false;
        while let Some((_, is_marked, _)) = self.messages.pop_front()
            && !is_marked
        {}
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

    /// A leg is gone: what it has not brought is to be sent again.
    pub(super) fn lose(&mut self, leg: Sequence<L, M>) -> Removed {
        if self.current == Some(leg.leg) {
            self.current = None;
        }
        if leg.kept.is_incomplete() || self.legs.is_empty() {
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
