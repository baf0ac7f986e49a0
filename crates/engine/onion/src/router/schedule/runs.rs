//! Scheduler runs: all links with cells are considered together, and each writes up to its limit.

use super::{AnyScheduler, Scheduler};
use crate::node::{ConnId, SocketState};
use crate::time::Instant;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Maximum number of records of one link before another link is served: what a driver writes at once. The order
/// of links matters for waiting cells; the granularity in which cells reach the kernel within a millisecond
/// does not, but each write costs a system call.
const TURN_RECORDS: u32 = 4;

/// When links are served, in the order of their ranks.
///
/// A run has two parts: the driver is asked for the state of the sockets; then links are served, lowest rank
/// first, until all have reached their limits or have no more cells.
#[derive(Debug)]
pub(crate) struct Runs {
    scheduler: AnyScheduler,
    /// Links with cells that wait for the next run, each once.
    waiting: Vec<ConnId>,
    /// Links of this run whose socket state is still to be requested.
    to_ask: Vec<ConnId>,
    asked: Option<ConnId>,
    /// Links of this run that have a limit, by rank.
    turns: BinaryHeap<Reverse<(u64, u32)>>,
    /// The link being served, and the number of records that it has written.
    current: Option<(ConnId, u32)>,
    ran_at: Option<Instant>,
}

impl Runs {
    pub(crate) const fn new(scheduler: AnyScheduler) -> Self {
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

    /// Whether the scheduler has runs.
    pub(crate) fn are_there(&self) -> bool {
        self.scheduler.interval().is_some()
    }

    /// A link with cells waits for the next run; it must not be waiting yet.
    #[inline]
    pub(crate) fn wait(&mut self, id: ConnId) {
        self.waiting.push(id);
    }

    /// When the next run is due; `None` if no link waits for it.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        let interval = self.scheduler.interval()?;
        Some(self.ran_at.map_or(Instant::ORIGIN, |at| at + interval))
    }

    /// Begins a run if one is due, with the waiting links that `takes_part` accepts. No link waits afterwards.
    pub(crate) fn begin(&mut self, now: Instant, takes_part: impl FnMut(ConnId) -> bool) -> bool {
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

    /// The next link whose socket state is to be requested. A link without an answer is skipped.
    pub(crate) fn ask(&mut self) -> Option<ConnId> {
        if self.scheduler.needs_sockets() {
            self.asked = self.to_ask.pop();
            return self.asked;
        }
        None
    }

    /// The limit of a link in this run. `None` if its socket state was not requested.
    pub(crate) fn answer(&mut self, id: ConnId, state: Option<&SocketState>) -> Option<u64> {
        (self.asked.take() == Some(id)).then(|| self.scheduler.limit_bytes(state))
    }

    /// A link whose socket state is not requested, and its limit.
    pub(crate) fn unasked(&mut self) -> Option<(ConnId, u64)> {
        let id = self.asked.take().or_else(|| self.to_ask.pop())?;
        Some((id, self.scheduler.limit_bytes(None)))
    }

    /// Adds a link to be served.
    pub(crate) fn enter(&mut self, id: ConnId, rank: u64) {
        self.turns.push(Reverse((rank, id.0)));
    }

    /// The link to serve now.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        let Reverse((_, number)) = self.turns.pop()?;
        let id = ConnId(number);
        self.current = Some((id, 0));
        Some(id)
    }

    /// Whether a link may write another record now. If not, it is served again later.
    ///
    /// A link whose socket was full resumes outside the order, within its limit.
    #[inline]
    pub(crate) fn may_give(&mut self, id: ConnId, rank: impl FnOnce() -> u64) -> bool {
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

    /// The link is closed: its number may be given to another.
    pub(crate) fn forget(&mut self, id: ConnId) {
        self.waiting.retain(|waiting| *waiting != id);
        self.to_ask.retain(|waiting| *waiting != id);
        self.turns.retain(|Reverse((_, number))| *number != id.0);
        self.asked = self.asked.filter(|asked| *asked != id);
        self.current = self.current.filter(|(current, _)| *current != id);
    }
}
