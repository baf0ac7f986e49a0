//! The read limit: how much the relay reads from its links, and which of them is read next.
//!
//! Like C tor's read bucket, one bucket counts all bytes that arrive on links: TLS handshakes, records and their
//! overhead, link padding, and cells of every kind. If it is empty, the driver stops reading, the kernel's
//! receive buffers fill, and TCP slows the peers down. Data from destinations and from the directory server is
//! not counted: it is read only when it can be sent.
//!
//! # Turns
//! A link that may not be read waits for a turn. A turn is paid in advance, so that a link that was not waiting
//! cannot take it away. The turns alternate between links of listed relays, all other links, and TLS handshakes;
//! within each class they go round-robin over the neighbours. So a stranger with any number of links delays the
//! link of a listed relay by one turn, and another client by one turn for each of its own addresses.
//!
//! # Relayed traffic
//! Sending must stay the bottleneck of what is relayed. Otherwise cells would queue in the kernel, where no
//! scheduler chooses the quietest circuit, and not in the relay. So reading may run ahead of the bucket by the
//! cells that are queued here, up to [`AHEAD`]. And since sending counts cells without TLS, each sent cell gives
//! back the overhead of a record ([`RECORD_OVERHEAD_BYTES`]). Traffic that is not relayed gets neither.
//!
//! # Measurements
//! Links of measurers are always read: otherwise a stranger who sends would lower the estimate. Their cells
//! count when they are echoed, without the clients' share of them, which remains for reading clients' links. A
//! coordinator's link waits like that of a client.

use super::link::{Link, Role};
use crate::cell::CELL_LEN;
use crate::cell_model::CellModel;
use crate::flow::TokenBucket;
use crate::node::ConnId;
use crate::router::conns::Conns;
use crate::router::eviction::Neighbour;
use crate::router::fair_queue::FairQueue;
use crate::router::schedule::RECORD_OVERHEAD_BYTES;
use crate::router::{Behavior, Core, RateLimit};
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use rand_core::Rng;

/// A turn has the bytes that the rate earns in this time.
const TURN: Duration = Duration::from_millis(2);

/// Reading runs ahead of sending by at most what the rate permits in this time.
const AHEAD: Duration = Duration::from_secs(2);

/// Minimum of a turn: a few cells.
const TURN_MIN_BYTES: u64 = 2048;

/// Maximum of a turn.
const TURN_MAX_BYTES: u64 = 64 * 1024;

/// The reading of one link under the read limit.
#[derive(Debug, Default)]
pub(crate) struct ReadTurn {
    /// It waits for a turn, in the queue of this neighbour.
    waits_as: Option<Neighbour>,
    /// Bytes of its turn, which are paid.
    prepaid_bytes: u64,
}

/// The read limit of the relay, and the links that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    limit: Option<ReadLimit>,
    /// Links that may be read again, to be named to the driver.
    readable: VecDeque<ConnId>,
}

/// The classes of readers, in the order of their turns.
#[derive(Clone, Copy, Debug)]
enum Class {
    ListedRelays,
    Strangers,
    Handshakes,
}

#[derive(Debug)]
struct ReadLimit {
    bucket: TokenBucket,
    turn_bytes: u64,
    ahead_max_bytes: u64,
    listed_relays: FairQueue<Neighbour, ConnId>,
    strangers: FairQueue<Neighbour, ConnId>,
    are_handshakes_waiting: bool,
    /// Bytes that TLS handshakes may read, which are paid.
    handshakes_prepaid_bytes: u64,
    /// The class that is next in turn.
    next: Class,
}

impl ReadLimit {
    fn new(limit: RateLimit, now: Instant) -> Self {
        Self {
            bucket: limit.bucket(now),
            turn_bytes: limit.rate.bytes_in(TURN).clamp(TURN_MIN_BYTES, TURN_MAX_BYTES),
            ahead_max_bytes: limit.rate.bytes_in(AHEAD),
            listed_relays: FairQueue::default(),
            strangers: FairQueue::default(),
            are_handshakes_waiting: false,
            handshakes_prepaid_bytes: 0,
            next: Class::ListedRelays,
        }
    }

    fn queue(&mut self, neighbour: Neighbour) -> &mut FairQueue<Neighbour, ConnId> {
        match neighbour {
            Neighbour::Relay(_) => &mut self.listed_relays,
            Neighbour::Place(_) | Neighbour::Unknown(_) => &mut self.strangers,
        }
    }

    fn has_waiting(&self) -> bool {
        self.are_handshakes_waiting || !self.listed_relays.is_empty() || !self.strangers.is_empty()
    }

    /// The bytes of queued cells by which reading may run ahead.
    fn ahead_bytes(&self, queued_cells: usize) -> u64 {
        ((queued_cells * CELL_LEN) as u64).min(self.ahead_max_bytes)
    }

    /// Bytes that may be read without a turn: nobody overtakes those that wait.
    fn unclaimed_bytes(&mut self, now: Instant, queued_cells: usize) -> u64 {
        let ahead_bytes = self.ahead_bytes(queued_cells);
        // A whole turn later is better than fragments now: every microsecond earns a few bytes.
        let is_enough =
            !self.has_waiting() && self.bucket.available_ahead(now, ahead_bytes) >= self.turn_bytes;
        if is_enough { self.turn_bytes } else { 0 }
    }

    /// Bytes were read, of which some are paid.
    fn settle(&mut self, now: Instant, prepaid_bytes: u64, read_bytes: u64) {
        self.bucket.give(prepaid_bytes.saturating_sub(read_bytes));
        self.bucket.charge(now, read_bytes.saturating_sub(prepaid_bytes));
    }

    /// The next class in order, among those that wait.
    fn next_class(&mut self) -> Option<Class> {
        for _ in 0..3 {
            let class = self.next;
            let (next, is_waiting) = match class {
                Class::ListedRelays => (Class::Strangers, !self.listed_relays.is_empty()),
                Class::Strangers => (Class::Handshakes, !self.strangers.is_empty()),
                Class::Handshakes => (Class::ListedRelays, self.are_handshakes_waiting),
            };
            self.next = next;
            if is_waiting {
                return Some(class);
            }
        }
        None
    }
}

impl Reading {
    /// Sets the limit. All links that wait may be read.
    pub(crate) fn set_limit<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        now: Instant,
        limit: Option<RateLimit>,
    ) {
        let former =
            core::mem::replace(&mut self.limit, limit.map(|rate| ReadLimit::new(rate, now)));
        let Some(mut former) = former else { return };
        while let Some(id) = former.listed_relays.pop().or_else(|| former.strangers.pop()) {
            self.resume(conns, id, 0);
        }
    }

    /// A link may be read.
    fn resume<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, prepaid_bytes: u64) {
        if let Some(link) = conns.link_mut(id) {
            link.read_turn = ReadTurn { waits_as: None, prepaid_bytes };
            self.readable.push_back(id);
        }
    }

    /// A link no longer waits.
    pub(crate) fn forget(&mut self, id: ConnId, read_turn: &mut ReadTurn) {
        let ReadTurn { waits_as, prepaid_bytes } = core::mem::take(read_turn);
        let Some(limit) = &mut self.limit else { return };
        limit.bucket.give(prepaid_bytes);
        if let Some(neighbour) = waits_as {
            limit.queue(neighbour).remove(neighbour, &id);
        }
    }

    /// A link that waits need not wait any longer: it is a measurer's.
    pub(crate) fn exempt<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId) {
        let Some(link) = conns.link_mut(id) else { return };
        if link.read_turn.waits_as.is_some() {
            self.forget(id, &mut link.read_turn);
            self.readable.push_back(id);
        }
    }

    /// Gives turns to those that wait, as far as the bucket has bytes for them.
    pub(crate) fn wake<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        now: Instant,
        queued_cells: usize,
    ) {
        while let Some(limit) = &mut self.limit
            && let ahead_bytes = limit.ahead_bytes(queued_cells)
            && limit.bucket.available_ahead(now, ahead_bytes) >= limit.turn_bytes
            && let Some(class) = limit.next_class()
        {
            let turn_bytes = limit.turn_bytes;
            limit.bucket.charge(now, turn_bytes);
            let link = match class {
                Class::ListedRelays => limit.listed_relays.pop(),
                Class::Strangers => limit.strangers.pop(),
                Class::Handshakes => {
                    limit.are_handshakes_waiting = false;
                    limit.handshakes_prepaid_bytes += turn_bytes;
                    None
                }
            };
            if let Some(id) = link {
                self.resume(conns, id, turn_bytes);
            }
        }
    }

    /// When the next turn is paid for, if somebody waits.
    pub(crate) fn next_turn_at(&self, queued_cells: usize) -> Option<Instant> {
        let limit = self.limit.as_ref().filter(|limit| limit.has_waiting())?;
        let ahead_bytes = limit.ahead_bytes(queued_cells);
        Some(limit.bucket.available_ahead_at(limit.turn_bytes, ahead_bytes))
    }

    /// Cells were sent.
    #[inline]
    pub(crate) fn handle_sent(&mut self, cells: usize) {
        if let Some(limit) = &mut self.limit {
            limit.bucket.give(cells as u64 * RECORD_OVERHEAD_BYTES);
        }
    }

    /// Bytes of measurers count, as far as there are any: they owe nothing.
    #[inline]
    pub(crate) fn handle_echoed(&mut self, now: Instant, bytes: u64) {
        if let Some(limit) = &mut self.limit {
            let available = limit.bucket.available_bytes(now);
            limit.bucket.take(bytes.min(available));
        }
    }

    /// The next link that may be read again.
    pub(crate) fn poll_readable<S: CellModel>(&mut self, conns: &Conns<S>) -> Option<ConnId> {
        loop {
            let id = self.readable.pop_front()?;
            if conns.link(id).is_some() {
                return Some(id);
            }
        }
    }
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// The number of bytes that the driver may read from a link now; see
    /// [`Node::poll_read_limit`](crate::node::Node::poll_read_limit).
    #[must_use]
    pub fn poll_read_limit(&mut self, now: Instant, conn: Option<ConnId>) -> usize {
        self.outputs.set_now(now);
        let queued_cells = self.outputs.queued_cells();
        let Some(limit) = &mut self.reading.limit else { return usize::MAX };
        let Some(id) = conn else {
            let bytes =
                limit.unclaimed_bytes(now, queued_cells).max(limit.handshakes_prepaid_bytes);
            if bytes == 0 && !core::mem::replace(&mut limit.are_handshakes_waiting, true) {
                self.totals.limited_reads += 1;
            }
            return usize::try_from(bytes).unwrap_or(usize::MAX);
        };
        // A link that is about to be closed needs no more data.
        let Some(link) = self.conns.link(id) else { return 0 };
        let Link { role, read_turn, .. } = link;
        if *role == Role::Measurer {
            return usize::MAX;
        }
        if read_turn.waits_as.is_some() {
            return 0;
        }
        let bytes = match read_turn.prepaid_bytes {
            0 => limit.unclaimed_bytes(now, queued_cells),
            prepaid_bytes => prepaid_bytes,
        };
        if bytes == 0 {
            self.wait_to_be_read(id);
        }
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    #[cold]
    fn wait_to_be_read(&mut self, id: ConnId) {
        let Some(link) = self.conns.link(id) else { return };
        let neighbour = self.neighbour(id, link);
        if let Some(link) = self.conns.link_mut(id)
            && let Some(limit) = &mut self.reading.limit
        {
            link.read_turn.waits_as = Some(neighbour);
            limit.queue(neighbour).push(neighbour, id);
            self.totals.limited_reads += 1;
        }
    }

    /// The driver has read bytes from a link; see [`Node::handle_read`](crate::node::Node::handle_read).
    pub fn handle_read(&mut self, now: Instant, conn: Option<ConnId>, bytes: usize) {
        self.outputs.set_now(now);
        let Some(limit) = &mut self.reading.limit else { return };
        let prepaid_bytes = match conn {
            None => core::mem::take(&mut limit.handshakes_prepaid_bytes),
            Some(id) => match self.conns.link_mut(id) {
                Some(link) if link.role == Role::Measurer => return,
                Some(link) => core::mem::take(&mut link.read_turn.prepaid_bytes),
                None => 0,
            },
        };
        limit.settle(now, prepaid_bytes, bytes as u64);
    }
}
