//! Circuit handshakes that are computed outside the thread that handles cells.
//!
//! A handshake takes as long as several hundred cells (two or three scalar multiplications). To keep cells from
//! waiting, CREATE2 bodies are queued here, handed to any other thread as [`HandshakeJob`]s and returned as
//! [`HandshakeDone`].
//!
//! The queue is limited by number and by delay, and requesters are served round-robin.
//! [`RouterConfig::handshakes_at_once`](crate::router::RouterConfig::handshakes_at_once) limits the outstanding
//! ones; with zero, handshakes are computed where they arrive.

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

/// Maximum number of queued handshakes of all peers.
const WAITING_MAX: usize = 4096;

/// Handshakes that have been queued for longer are not answered: the client has given up, or soon will (C tor:
/// `MaxOnionQueueDelay`).
const WAIT_MAX: Duration = Duration::from_millis(1750);

/// The requesting party: an address with all its links, or a link without a known address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requester {
    /// An address.
    Place(Place),
    /// A link whose address is unknown.
    Link(ConnId),
}

/// Identifies a handshake. A circuit ID that was cancelled and created again gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

/// A handshake to compute, on any thread.
pub struct HandshakeJob<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    identity: S::Identity,
    body: S::Body,
    offered: Agreed,
    ephemeral: [u8; 32],
}

impl<S: CellModel> HandshakeJob<S> {
    /// Computes the answer. Takes 10 to 100 µs.
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

/// A computed handshake, or one that failed.
#[derive(Debug)]
pub struct HandshakeDone<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    answer: Option<HandshakeReply<S>>,
}

/// A queued CREATE2.
#[derive(Debug)]
struct Waiting<S: CellModel> {
    at: OnLink,
    ticket: Ticket,
    since: Instant,
    body: S::Body,
}

/// The result of looking for the next handshake.
pub(crate) enum Next<S: CellModel> {
    /// A handshake to compute with this identity.
    Answer(Unanswered<S>),
    /// A handshake that was queued for too long.
    TooLate(OnLink),
}

/// A handshake that was handed out.
pub(crate) struct Unanswered<S: CellModel>(Waiting<S>);

impl<S: CellModel> Unanswered<S> {
    pub(crate) fn job(
        self,
        identity: S::Identity,
        offered: Agreed,
        ephemeral: [u8; 32],
    ) -> HandshakeJob<S> {
        let Waiting { at, ticket, body, .. } = self.0;
        HandshakeJob { at, ticket, identity, body, offered, ephemeral }
    }
}

/// Queued and outstanding handshakes.
///
/// Requesters are served round-robin, so a flood delays only itself. Each operation is logarithmic in the
/// number of requesters.
#[derive(Debug)]
pub(crate) struct Handshakes<S: CellModel> {
    /// Handshakes whose peer still expects an answer.
    known: BTreeMap<OnLink, Ticket>,
    /// Requesters in round-robin order. A requester without handshakes stays until its turn, and counts.
    waiting: BTreeMap<Requester, VecDeque<Waiting<S>>>,
    by_count: BTreeSet<(usize, Requester)>,
    turns: VecDeque<Requester>,
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
    /// The number of queued handshakes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The number of outstanding handshakes.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether this circuit has a queued or outstanding handshake.
    pub(crate) fn contains(&self, at: OnLink) -> bool {
        self.known.contains_key(&at)
    }

    /// Whether any circuit of a link has a queued or outstanding handshake.
    pub(crate) fn has_any_of(&self, conn: ConnId) -> bool {
        self.of_link(conn).next().is_some()
    }

    /// The circuits of a link that have a queued or outstanding handshake.
    fn of_link(&self, conn: ConnId) -> impl Iterator<Item = OnLink> {
        let first = OnLink { conn, circ_id: CircId::LINK };
        let from_there = self.known.range(first..).map(|(at, _)| *at);
        from_there.take_while(move |at| at.conn == conn)
    }

    /// Queues a handshake. If the queue is full, returns the circuit to refuse: the newest of the requester
    /// that has most.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        requester: Requester,
        at: OnLink,
        body: &S::Body,
    ) -> Option<OnLink> {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.known.insert(at, ticket);
        let one = Waiting { at, ticket, since: now, body: body.clone() };
        if !self.waiting.contains_key(&requester) {
            self.turns.push_back(requester);
        }
        self.change(requester, |queue| queue.push_back(one));
        if self.len <= WAITING_MAX {
            return None;
        }
        let (most, greediest) = *self.by_count.last()?;
        let loser = if most > 1 { greediest } else { requester };
        let dropped = self.change(loser, VecDeque::pop_back)?;
        if !self.waiting.contains_key(&loser) {
            // It was the requester's only one, added just now.
            self.turns.pop_back();
        }
        self.forget(dropped.at, dropped.ticket).then_some(dropped.at)
    }

    /// The next handshake, requesters round-robin.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Next<S>> {
        loop {
            let requester = self.turns.pop_front()?;
            let one = self.change(requester, VecDeque::pop_front);
            if self.waiting.contains_key(&requester) {
                self.turns.push_back(requester);
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

    /// A handshake was computed. If its peer still expects an answer, returns the circuit and the answer.
    pub(crate) fn take(
        &mut self,
        done: HandshakeDone<S>,
    ) -> Option<(OnLink, Option<HandshakeReply<S>>)> {
        self.under_way -= 1;
        self.forget(done.at, done.ticket).then_some((done.at, done.answer))
    }

    /// The peer no longer expects an answer.
    pub(crate) fn cancel(&mut self, at: OnLink) {
        self.known.remove(&at);
    }

    /// A link is closed.
    pub(crate) fn cancel_link(&mut self, conn: ConnId) {
        let of_link: Vec<_> = self.of_link(conn).collect();
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

    /// Changes a requester's queue and updates the index by length.
    fn change<T>(
        &mut self,
        requester: Requester,
        change: impl FnOnce(&mut VecDeque<Waiting<S>>) -> T,
    ) -> T {
        let queue = self.waiting.entry(requester).or_default();
        let before = queue.len();
        let outcome = change(queue);
        let after = queue.len();
        self.by_count.remove(&(before, requester));
        if after == 0 {
            self.waiting.remove(&requester);
        } else {
            self.by_count.insert((after, requester));
        }
        self.len = self.len + after - before;
        outcome
    }
}

#[cfg(test)]
mod tests;
