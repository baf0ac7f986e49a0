//! Whether the relay's host is in reach while nothing comes back.
//!
//! On its links that may not be seen: where the relay's kernel had acknowledged all, and its receive window or our own
//! circuits' windows let nothing more be sent, nothing is under way that it would have to answer. A window that it announces, and what
//! it sends again, come unasked, and so say nothing of the way there. A new connection is a question, and it is the kernel that answers,
//! whether the relay's process runs or not.

use super::conn::{Conn, Side};
use super::{Phase, Pump};
use crate::node::{CloseCause, ConnId, Dial, Security};
use crate::time::{Duration, Instant};
use rand_core::Rng;

/// A silence is longer than this before anything is tried.
const FIRST_AFTER: Duration = Duration::from_millis(500);

/// From one try to the next. One that has no answer by then goes on: the kernel repeats it.
const EVERY: Duration = Duration::from_secs(1);

/// New connections to the relay that nothing is sent on, one after the other.
#[derive(Debug, Default)]
pub(super) struct Knocks {
    /// When the silence began that they are of.
    since: Option<Instant>,
    latest_at: Instant,
    /// To be dialled.
    next: Option<ConnId>,
    /// To be dialled, or dialled and not answered yet.
    open: Option<ConnId>,
    /// The first answer after which none was missing.
    answered_at: Option<Instant>,
}

/// How long nothing has come back, and since when the relay's host is known to be in reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Its length, until now.
    pub length: Duration,
    /// How long it had lasted when the relay's host answered a new connection, as it has each time since; `None` if it has not, or not
    /// the last time.
    pub answered_after: Option<Duration>,
}

impl<R: Rng> Pump<R> {
    /// How long nothing has come back.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Silence {
        let Phase::Running(running) = &self.phase else {
            return Silence { length: Duration::ZERO, answered_after: None };
        };
        let began = running.last_arrival;
        let is_of_it = self.knocks.since == Some(began);
        let answered_at = self.knocks.answered_at.filter(|_| is_of_it);
        Silence {
            length: now.saturating_since(began),
            answered_after: answered_at.map(|at| at.saturating_since(began)),
        }
    }

    /// When it is to be tried next, or for the first time: soon after the beginning of a silence, and then again and again.
    pub(super) fn next_knock_at(&self, silent_since: Instant) -> Instant {
        let is_of_it = self.knocks.since == Some(silent_since);
        if is_of_it { self.knocks.latest_at + EVERY } else { silent_since + FIRST_AFTER }
    }

    /// Time has passed: tries it, if it is time and cells are under way.
    pub(super) fn knock(&mut self, now: Instant) {
        let Phase::Running(running) = &self.phase else { return };
        let began = running.last_arrival;
        if now < self.next_knock_at(began) {
            return;
        }
        if self.knocks.since != Some(began) {
            // What is still awaited belongs to a silence that is over.
            self.to_close.extend(self.knocks.open);
            self.knocks = Knocks { since: Some(began), ..Knocks::default() };
        }
        self.knocks.latest_at = now;
        if self.knocks.open.is_some() {
            self.knocks.answered_at = None;
        } else if self.is_loaded() {
            let conn = self.conns.add(Conn::new(Side::Knock, None));
            (self.knocks.next, self.knocks.open) = (Some(conn), Some(conn));
        }
    }

    /// The next to be dialled.
    pub(super) fn poll_knock(&mut self) -> Option<Dial> {
        let conn = self.knocks.next.take()?;
        Some(Dial { conn, to: self.config.target.address, security: Security::Plain })
    }

    /// A new connection stands, of which no more is wanted.
    pub(super) fn handle_answered(&mut self, now: Instant, conn: ConnId) {
        self.note_answer(now, conn);
        self.to_close.push_back(conn);
    }

    /// A new connection came to nothing. A refusal, too, is an answer.
    pub(super) fn handle_unanswered(&mut self, now: Instant, conn: ConnId, cause: &CloseCause) {
        if matches!(cause, CloseCause::Refused | CloseCause::Reset | CloseCause::ByPeer) {
            self.note_answer(now, conn);
        } else if self.knocks.open.take_if(|it| *it == conn).is_some() {
            self.knocks.answered_at = None;
        }
    }

    fn note_answer(&mut self, now: Instant, conn: ConnId) {
        if self.knocks.open.take_if(|it| *it == conn).is_some() {
            self.knocks.answered_at.get_or_insert(now);
        }
    }
}
