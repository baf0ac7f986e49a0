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
    /// Some of it could not be kept.
    is_incomplete: bool,
}

impl<M> Default for Kept<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), unmarked: 0, is_incomplete: false }
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
        it.kept.unmarked = if is_marked { 0 } else { it.kept.unmarked + 1 };
        if it.kept.messages.len() >= KEPT_MAX || it.kept.unmarked > UNMARKED_MAX {
            it.kept.is_incomplete = true;
            self.again_len -= usize::from(it.kept.messages.pop_front().is_some());
        }
        it.kept.messages.push_back((it.sent, is_marked, message));
        self.again_len += 1;
    }

    /// A SENDME has come on a leg.
    pub fn handle_acknowledged(&mut self, leg: L) {
        let Some(it) = self.legs.iter_mut().find(|it| it.leg == leg) else { return };
        while let Some((_, is_marked, _)) = it.kept.messages.pop_front() {
            self.again_len -= 1;
            if is_marked {
                return;
            }
        }
    }

    /// A leg is gone: what it has not brought is to be sent again.
    pub(super) fn lose(&mut self, leg: Sequence<L, M>) -> Removed {
        if self.current == Some(leg.leg) {
            self.current = None;
        }
        if leg.kept.is_incomplete || self.legs.is_empty() {
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
