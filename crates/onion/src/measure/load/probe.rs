//! Whether the relay's host is in reach while nothing comes back.
//!
//! On its links that may not be seen: where the relay's kernel had acknowledged all, and its receive window or our own
//! circuits' windows let nothing more be sent, nothing is under way that it would have to answer. A window that it announces, and what
//! it sends again, come unasked, and so say nothing of the way there. A new connection is a question, and it is the kernel that answers,
//! whether the relay's process runs or not.

#[cfg(test)]
mod tests;

use super::conn::{Conn, Side};
use super::{LoadGenerator, Phase};
use crate::node::{CloseCause, ConnId, Dial, Security};
use crate::time::{Duration, Instant};
use rand_core::Rng;

/// A silence is longer than this before anything is tried.
const FIRST_AFTER: Duration = Duration::from_millis(500);

/// From one try to the next. One that has no answer by then goes on: the kernel repeats it.
const EVERY: Duration = Duration::from_secs(1);

/// A try that is not answered for so many times this ends what was said before. Its first packet may have got lost by chance, and the kernel repeats that after a
/// second.
const MISSED_MAX: u32 = 2;

/// New connections to the relay that nothing is sent on, one after the other.
#[derive(Debug, Default)]
pub(super) struct ReachabilityProbe {
    /// When the silence began that they are of.
    since: Option<Instant>,
    latest_at: Instant,
    /// To be dialled.
    next: Option<ConnId>,
    /// To be dialled, or dialled and not answered yet.
    open: Option<ConnId>,
    /// The first answer after which no two in a row were missing.
    answered_at: Option<Instant>,
    /// How often it was time for another since the one that is open was dialled.
    missed: u32,
}

/// How long nothing has come back, and since when the relay's host is known to be in reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Its length, until now.
    pub length: Duration,
    /// How long it had lasted when the relay's host answered a new connection, as it has each time since; `None` if it has not, or not
    /// for the last two seconds.
    pub answered_after: Option<Duration>,
}

impl ReachabilityProbe {
    fn is_of(&self, silent_since: Instant) -> bool {
        self.since == Some(silent_since)
    }

    /// When it is to be tried next in the silence that began then, or for the first time.
    pub(super) fn next_at(&self, silent_since: Instant) -> Instant {
        if self.is_of(silent_since) { self.latest_at + EVERY } else { silent_since + FIRST_AFTER }
    }

    /// A try is due. The one before may not be answered yet: then nothing new is tried, and what was said before it does soon not count any more.
    /// Otherwise there is a new connection, from `connect`, if it is worth while. Tells which connection is of no use any more.
    fn attempt(
        &mut self,
        now: Instant,
        silent_since: Instant,
        connect: impl FnOnce() -> Option<ConnId>,
    ) -> Option<ConnId> {
        let mut of_another = None;
        if !self.is_of(silent_since) {
            // What is still awaited belongs to a silence that is over.
            of_another = self.open;
            *self = Self { since: Some(silent_since), ..Self::default() };
        }
        self.latest_at = now;
        if self.open.is_none() {
            self.open = connect();
            self.next = self.open;
            self.missed = 0;
        } else {
            self.missed += 1;
            if self.missed >= MISSED_MAX {
                self.answered_at = None;
            }
        }
        of_another
    }

    /// The host has answered this one, or it came to nothing. Those of a silence that is over do not count.
    fn conclude(&mut self, now: Instant, conn: ConnId, is_answered: bool) {
        if self.open.take_if(|it| *it == conn).is_some() {
            self.answered_at = is_answered.then(|| self.answered_at.unwrap_or(now));
        }
    }

    /// See [`Silence`].
    fn answered_after(&self, silent_since: Instant) -> Option<Duration> {
        let answered_at = self.answered_at.filter(|_| self.is_of(silent_since))?;
        Some(answered_at.saturating_since(silent_since))
    }
}

impl<R: Rng> LoadGenerator<R> {
    /// How long nothing has come back.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Silence {
        let Phase::Running(running) = &self.phase else {
            return Silence { length: Duration::ZERO, answered_after: None };
        };
        Silence {
            length: now.saturating_since(running.silent_since),
            answered_after: self.knocks.answered_after(running.silent_since),
        }
    }

    /// Time has passed: tries it, if it is time and cells are under way.
    pub(super) fn probe(&mut self, now: Instant) {
        let Phase::Running(running) = &self.phase else { return };
        let silent_since = running.silent_since;
        if now < self.knocks.next_at(silent_since) {
            return;
        }
        let is_loaded = self.is_loaded();
        let conns = &mut self.conns;
        let connect = || is_loaded.then(|| conns.add(Conn::new(Side::Probe, None)));
        let useless = self.knocks.attempt(now, silent_since, connect);
        self.to_close.extend(useless);
    }

    /// The next to be dialled.
    pub(super) fn poll_probe(&mut self) -> Option<Dial> {
        let conn = self.knocks.next.take()?;
        Some(Dial { conn, to: self.config.target.address, security: Security::Plain })
    }

    /// A new connection stands, of which no more is wanted.
    pub(super) fn handle_answered(&mut self, now: Instant, conn: ConnId) {
        self.knocks.conclude(now, conn, true);
        self.to_close.push_back(conn);
    }

    /// A new connection came to nothing. A refusal, too, is an answer.
    pub(super) fn handle_unanswered(&mut self, now: Instant, conn: ConnId, cause: &CloseCause) {
        let is_answer =
            matches!(cause, CloseCause::Refused | CloseCause::Reset | CloseCause::ByPeer);
        self.knocks.conclude(now, conn, is_answer);
    }
}
