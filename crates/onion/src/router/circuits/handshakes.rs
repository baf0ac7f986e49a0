//! Handshakes of circuits that are answered away from the thread of cells.
//!
//! An answer takes as long as some hundred cells (two or three multiplications on a curve). So no cell waits behind one: CREATE2 bodies
//! wait here, are handed out as [`HandshakeJob`]s to any other thread, and come back as [`HandshakeDone`].

use super::OnLink;
use crate::cell::CircId;
use crate::cell::msg::Create2;
use crate::cell_model::{Body, CellModel, HandshakeReply};
use crate::flow::control::Agreed;
use crate::node::ConnId;
use crate::router::dos::Place;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;

/// Handshakes that wait at most, of all peers together.
const WAITING_MAX: usize = 4096;

/// Nobody is answered who has waited longer: he has given up, or soon will (C tor: `MaxOnionQueueDelay`).
const WAIT_MAX: Duration = Duration::from_millis(1750);

/// Who asks: an address with all its links, or a link without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::router) enum Asker {
    /// Some address.
    Place(Place),
    /// A link whose address is not known.
    Link(ConnId),
}

/// Names a handshake, so that a circuit that was given up and begun again under its number is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

/// A handshake to be answered, on any thread.
pub struct HandshakeJob<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    identity: S::Identity,
    body: S::Body,
    offered: Agreed,
    ephemeral: [u8; 32],
}

impl<S: CellModel> HandshakeJob<S> {
    /// Answers it. Takes some ten to hundred microseconds.
    #[must_use]
    pub fn run(self) -> HandshakeDone<S> {
        let Self { at, ticket, identity, body, offered, ephemeral } = self;
        let create = Create2::parse(body.bytes()).ok();
        let answer = create.and_then(|create| S::answer(&identity, &create, offered, || ephemeral));
        HandshakeDone { at, ticket, answer }
    }
}

impl<S: CellModel> fmt::Debug for HandshakeJob<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandshakeJob").field("at", &self.at).finish_non_exhaustive()
    }
}

/// An answered handshake, or one that could not be answered.
#[derive(Debug)]
pub struct HandshakeDone<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    answer: Option<HandshakeReply<S>>,
}

/// A CREATE2 that waits.
#[derive(Debug)]
struct Waiting<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    since: Instant,
    body: S::Body,
}

/// What comes of a look for the next one.
pub(in crate::router) enum Next<S: CellModel> {
    /// This is to be answered with that identity.
    Answer(Unanswered<S>),
    /// This has waited too long.
    TooLate(OnLink),
}

/// One that is handed out.
pub(in crate::router) struct Unanswered<S: CellModel>(Waiting<S>);

impl<S: CellModel> Unanswered<S> {
    pub(in crate::router) fn job(
        self,
        identity: S::Identity,
        offered: Agreed,
        ephemeral: [u8; 32],
    ) -> HandshakeJob<S> {
        let Waiting { at, ticket, body, .. } = self.0;
        HandshakeJob { at, ticket, identity, body, offered, ephemeral }
    }
}

/// Handshakes that wait or are being answered.
///
/// Whoever asks has his turn, however many others ask for: a flood waits behind itself. Each step costs the logarithm
/// of the number of those who ask.
#[derive(Debug)]
pub(in crate::router) struct Handshakes<S: CellModel> {
    /// Those whose peer still waits for the answer.
    known: BTreeMap<OnLink, Ticket>,
    /// In order of coming. One that nobody waits for any more stays until its turn, and counts.
    waiting: BTreeMap<Asker, VecDeque<Waiting<S>>>,
    by_count: BTreeSet<(usize, Asker)>,
    turns: VecDeque<Asker>,
    len: usize,
    under_way: usize,
    tickets: u64,
}

impl<S: CellModel> Default for Handshakes<S> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            waiting: BTreeMap::new(),
            by_count: BTreeSet::new(),
            turns: VecDeque::new(),
            len: 0,
            under_way: 0,
            tickets: 0,
        }
    }
}

impl<S: CellModel> Handshakes<S> {
    /// How many wait.
    pub(in crate::router) const fn len(&self) -> usize {
        self.len
    }

    /// How many are being answered.
    pub(in crate::router) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether the circuit with this number waits for an answer.
    pub(in crate::router) fn contains(&self, at: OnLink) -> bool {
        self.known.contains_key(&at)
    }

    /// Takes one up. Where there is no room for it, returns whose circuit is to be refused for it: the newest of the
    /// asker who has most.
    pub(in crate::router) fn add(
        &mut self,
        now: Instant,
        asker: Asker,
        at: OnLink,
        body: &S::Body,
    ) -> Option<OnLink> {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.known.insert(at, ticket);
        let one = Waiting { at, ticket, since: now, body: body.clone() };
        if !self.waiting.contains_key(&asker) {
            self.turns.push_back(asker);
        }
        self.change(asker, |queue| queue.push_back(one));
        if self.len <= WAITING_MAX {
            return None;
        }
        let (most, greediest) = *self.by_count.last()?;
        let loser = if most > 1 { greediest } else { asker };
        let dropped = self.change(loser, VecDeque::pop_back)?;
        if !self.waiting.contains_key(&loser) {
            // It has just come, with its only one.
            self.turns.pop_back();
        }
        self.forget(dropped.at, dropped.ticket).then_some(dropped.at)
    }

    /// The next one, the askers in turn.
    pub(in crate::router) fn next(&mut self, now: Instant) -> Option<Next<S>> {
        loop {
            let asker = self.turns.pop_front()?;
            let one = self.change(asker, VecDeque::pop_front);
            if self.waiting.contains_key(&asker) {
                self.turns.push_back(asker);
            }
            let Some(one) = one else { continue };
            if self.known.get(&one.at) != Some(&one.ticket) {
                continue;
            }
            if now - one.since > WAIT_MAX {
                self.known.remove(&one.at);
                return Some(Next::TooLate(one.at));
            }
            self.under_way += 1;
            return Some(Next::Answer(Unanswered(one)));
        }
    }

    /// One has been answered. Where its peer still waits for that, says which circuit it is, and what the answer is.
    pub(in crate::router) fn take(
        &mut self,
        done: HandshakeDone<S>,
    ) -> Option<(OnLink, Option<HandshakeReply<S>>)> {
        self.under_way -= 1;
        self.forget(done.at, done.ticket).then_some((done.at, done.answer))
    }

    /// Nobody waits for this one any more.
    pub(in crate::router) fn cancel(&mut self, at: OnLink) {
        self.known.remove(&at);
    }

    /// A link is gone.
    pub(in crate::router) fn cancel_link(&mut self, conn: ConnId) {
        let first = OnLink { conn, circ_id: CircId::LINK };
        let all = self.known.range(first..).map(|(at, _)| *at);
        let of_link: Vec<_> = all.take_while(|at| at.conn == conn).collect();
        for at in of_link {
            self.known.remove(&at);
        }
    }

    fn forget(&mut self, at: OnLink, ticket: Ticket) -> bool {
        let is_known = self.known.get(&at) == Some(&ticket);
        if is_known {
            self.known.remove(&at);
        }
        is_known
    }

    /// Changes an asker's queue, and keeps what is known of its length.
    fn change<T>(
        &mut self,
        asker: Asker,
        change: impl FnOnce(&mut VecDeque<Waiting<S>>) -> T,
    ) -> T {
        let queue = self.waiting.entry(asker).or_default();
        let before = queue.len();
        let outcome = change(queue);
        let after = queue.len();
        self.by_count.remove(&(before, asker));
        if after == 0 {
            self.waiting.remove(&asker);
        } else {
            self.by_count.insert((after, asker));
        }
        self.len = self.len + after - before;
        outcome
    }
}

#[cfg(test)]
mod tests;
