//! Whether the relay's host is reachable while no cells return.
//!
//! Its open connections may not show it: if the relay's kernel has acknowledged everything, and its receive
//! window or the circuits' windows block more data, then nothing is in flight that it would have to answer.
//! Window updates and retransmissions come unsolicited, so they say nothing about the path to the relay. A new
//! connection is a question that the kernel answers, whether the relay's process runs or not.

#[cfg(test)]
mod tests;

use super::conn::{Conn, Side};
use super::{LoadGenerator, Phase};
use crate::node::{CloseCause, ConnId, Dial, Security};
use crate::time::{Duration, Instant};
use rand_core::Rng;

/// Probes begin after this length of silence.
const FIRST_AFTER: Duration = Duration::from_millis(500);

/// The interval of probes. An unanswered one continues: the kernel retransmits its SYN.
const EVERY: Duration = Duration::from_secs(1);

/// A probe that is unanswered for this number of intervals invalidates earlier answers. Its first packet may
/// have been lost by chance, and the kernel retransmits it after a second.
const MISSED_MAX: u32 = 2;

/// New connections to the relay on which nothing is sent, one after the other.
#[derive(Debug, Default)]
pub(super) struct ReachabilityProbe {
    /// When the current silence began.
    since: Option<Instant>,
    latest_at: Instant,
    /// Whether it is to be dialled.
    next: Option<ConnId>,
    /// The connection to be dialled, or dialled and not answered yet.
    open: Option<ConnId>,
    /// The first answer after which no two consecutive ones were missing.
    answered_at: Option<Instant>,
    /// How many intervals have passed since the open probe was dialled.
    missed: u32,
}

/// How long no cell has returned, and since when the relay's host is known to be reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The length of the silence so far.
    pub length: Duration,
    /// The length at which the relay's host answered a new connection, as it has each time since; `None` if it
    /// has not, or not for the last two seconds.
    pub answered_after: Option<Duration>,
}

impl ReachabilityProbe {
    fn is_of(&self, silent_since: Instant) -> bool {
        self.since == Some(silent_since)
    }

    /// When the next probe is due in the silence that began at `since`.
    pub(super) fn next_at(&self, silent_since: Instant) -> Instant {
        if self.is_of(silent_since) { self.latest_at + EVERY } else { silent_since + FIRST_AFTER }
    }

    /// A probe is due. If the previous one is unanswered, no new one is made, and earlier answers soon expire.
    /// Otherwise there is a new connection, from `connect`, if it is worthwhile. Returns the connection that is
    /// no longer needed.
    fn attempt(
        &mut self,
        now: Instant,
        silent_since: Instant,
        connect: impl FnOnce() -> Option<ConnId>,
    ) -> Option<ConnId> {
        let mut of_another = None;
        if !self.is_of(silent_since) {
            // The open probe belongs to an earlier silence.
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

    /// The host has answered this probe, or it failed. Those of an earlier silence do not count.
    fn conclude(&mut self, now: Instant, conn: ConnId, is_answered: bool) {
        if self.open.take_if(|open| *open == conn).is_some() {
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
    /// How long no cell has returned.
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

    /// Makes a probe if it is due and cells are in flight.
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

    /// The next probe to dial.
    pub(super) fn poll_probe(&mut self) -> Option<Dial> {
        let conn = self.knocks.next.take()?;
        Some(Dial { conn, to: self.config.target.address, security: Security::Plain })
    }

    /// A probe is connected, which is all that it is for.
    pub(super) fn handle_answered(&mut self, now: Instant, conn: ConnId) {
        self.knocks.conclude(now, conn, true);
        self.to_close.push_back(conn);
    }

    /// A probe failed. A refusal is an answer, too.
    pub(super) fn handle_unanswered(&mut self, now: Instant, conn: ConnId, cause: &CloseCause) {
        let is_answer =
            matches!(cause, CloseCause::Refused | CloseCause::Reset | CloseCause::ByPeer);
        self.knocks.conclude(now, conn, is_answer);
    }
}
