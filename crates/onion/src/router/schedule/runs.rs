//! Runs: all links that have cells are looked at together, and each gives its socket what it may.

use super::{AnyScheduler, Scheduler};
use crate::node::{ConnId, SocketState};
use crate::time::Instant;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Records of one link before another may have its turn: what a driver writes at once. Who goes first
/// matters to those that wait; in what pieces the run's cells reach the kernel, within a millisecond,
/// does not, but costs a call each.
const TURN_RECORDS: u32 = 4;

/// When links are served, one after the other in the order of their ranks.
///
/// A run has two parts: the driver is asked for the state of the sockets; then links have turns, the one
/// with the lowest rank first, until all have reached their limits or have nothing more.
#[derive(Debug)]
pub(in crate::router) struct Runs {
    scheduler: AnyScheduler,
    /// Links with cells that wait for the next run, each once.
    waiting: Vec<ConnId>,
    /// Links of this run whose sockets are yet to be asked.
    to_ask: Vec<ConnId>,
    asked: Option<ConnId>,
    /// Links of this run that have a limit, by their ranks.
    turns: BinaryHeap<Reverse<(u64, u32)>>,
    /// The link that has its turn, and how many records it has given.
    current: Option<(ConnId, u32)>,
    ran_at: Option<Instant>,
}

impl Runs {
    pub(in crate::router) const fn new(scheduler: AnyScheduler) -> Self {
        Self {
            scheduler,
            waiting: Vec::new(),
            to_ask: Vec::new(),
            asked: None,
            turns: BinaryHeap::new(),
            current: None,
            ran_at: None,
        }
    }

    /// Whether links wait for runs at all.
    pub(in crate::router) fn are_there(&self) -> bool {
        self.scheduler.interval().is_some()
    }

    /// A link has cells and waits for the next run; it does not wait yet.
    #[inline]
    pub(in crate::router) fn wait(&mut self, id: ConnId) {
        self.waiting.push(id);
    }

    /// When the next run is due; `None` if nobody waits for it.
    pub(in crate::router) fn next_at(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        let interval = self.scheduler.interval()?;
        Some(self.ran_at.map_or(Instant::ORIGIN, |at| at + interval))
    }

    /// Begins a run if one is due, with those links that waited for it and that `takes_part` does not
    /// turn away. None of them waits any more.
    pub(in crate::router) fn begin(
        &mut self,
        now: Instant,
        takes_part: impl FnMut(ConnId) -> bool,
    ) -> bool {
        let is_under_way = !self.to_ask.is_empty() || self.asked.is_some();
        if is_under_way || self.next_at().is_none_or(|at| at > now) {
            return false;
        }
        self.ran_at = Some(now);
        core::mem::swap(&mut self.waiting, &mut self.to_ask);
        let mut takes_part = takes_part;
        self.to_ask.retain(|id| takes_part(*id));
        true
    }

    /// The next link whose socket is to be asked. One that was not answered for is passed over.
    pub(in crate::router) fn ask(&mut self) -> Option<ConnId> {
        if self.scheduler.needs_sockets() {
            self.asked = self.to_ask.pop();
            return self.asked;
        }
        None
    }

    /// What a link may give in this run. `None` if it was not asked for.
    pub(in crate::router) fn answer(
        &mut self,
        id: ConnId,
        state: Option<&SocketState>,
    ) -> Option<u64> {
        (self.asked.take() == Some(id)).then(|| self.scheduler.limit_bytes(state))
    }

    /// A link whose socket nobody has asked or will ask, and what it may give.
    pub(in crate::router) fn unasked(&mut self) -> Option<(ConnId, u64)> {
        let id = self.asked.take().or_else(|| self.to_ask.pop())?;
        Some((id, self.scheduler.limit_bytes(None)))
    }

    /// A link is to have its turn.
    pub(in crate::router) fn enter(&mut self, id: ConnId, rank: u64) {
        self.turns.push(Reverse((rank, id.0)));
    }

    /// The link whose turn it is now.
    pub(in crate::router) fn next(&mut self) -> Option<ConnId> {
        let Reverse((_, number)) = self.turns.pop()?;
        let id = ConnId(number);
        self.current = Some((id, 0));
        Some(id)
    }

    /// Whether a link may give another record in this turn. If not, it has another turn later.
    ///
    /// A link that goes on outside its turn, since its socket was full, may: within its limit.
    #[inline]
    pub(in crate::router) fn may_give(&mut self, id: ConnId, rank: impl FnOnce() -> u64) -> bool {
        let Some((current, given)) = &mut self.current else { return true };
        if *current != id || *given < TURN_RECORDS {
            *given += 1;
            return true;
        }
        let Some(Reverse((next, _))) = self.turns.peek() else { return true };
        let (rank, next) = (rank(), *next);
        if rank <= next {
            return true;
        }
        self.current = None;
        self.enter(id, rank);
        false
    }

    /// The link is gone: its number may be given to another.
    pub(in crate::router) fn forget(&mut self, id: ConnId) {
        self.waiting.retain(|waiting| *waiting != id);
        self.to_ask.retain(|waiting| *waiting != id);
        self.turns.retain(|Reverse((_, number))| *number != id.0);
        self.asked = self.asked.filter(|asked| *asked != id);
        self.current = self.current.filter(|(current, _)| *current != id);
    }
}
