//! Eviction: which idle circuits and links end so that a new circuit can begin.
//!
//! Circuits, streams and links may occupy half of the relay's memory. An idle circuit costs its owner nothing,
//! so a relay that refused new ones could be blocked by a few links for as long as they stay open. Instead, a
//! new circuit always begins, and another one ends:
//!
//! 1. Each neighbour keeps a fair share ([`shares`]). A neighbour that holds less than its share loses nothing. Circuits that are
//!    active count separately, and of those it keeps [`ACTIVE_LEVELS`] times as many.
//! 2. Of those beyond the shares, idle ones end before active ones. Among the idle ones, circuits that have never carried a
//!    cell end first, and then those that have been idle longest.
//!
//! Circuits of a measurement are never evicted: its order bounds them. Each scan frees a tenth of the limit, so
//! the amortised cost of a new circuit is constant.

mod shares;

use super::circuits::CircuitIndex;
use super::links::{Link, Role};
use super::memory::LINK_CELLS;
use super::{Behavior, Core, RouterEvent};
use crate::cell_model::CellModel;
use crate::identity::RsaId;
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;
use rand_core::Rng;
pub(super) use shares::Neighbour;
use shares::{Holding, kept, largest_level, quotas};

/// A circuit is idle if no cell has passed for this time. A client that reads a page, or waits for one, is
/// active.
const IDLE_AFTER: Duration = Duration::from_secs(30);

/// A circuit that has carried no cell, or a link without circuits, is idle after this time: an honest client
/// continues after one round trip.
const UNUSED_AFTER: Duration = Duration::from_secs(5);

/// A neighbour keeps this many times more active circuits than idle ones. Its circuits stay active for one cell in
/// [`IDLE_AFTER`], so active ones have a bound as well.
const ACTIVE_LEVELS: u64 = 8;

/// The share of the limit that other circuits may always use, whatever links, streams and measurements occupy.
const CIRCUITS_PART: usize = 4;

/// If nothing could be evicted, the next scan is not before this time.
const PAUSE: Duration = Duration::from_secs(1);

/// Something that can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evictable {
    Circuit(CircuitIndex),
    Link(ConnId),
}

/// The order of eviction: smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_active: bool,
    is_used: bool,
    since: Instant,
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Makes space for one more circuit on this link, which is kept. Returns false if there is none and nothing
    /// can be evicted.
    pub(super) fn make_room_for_circuit(&mut self, on: ConnId) -> bool {
        if self.has_room_for_circuit() {
            return true;
        }
        if self.outputs.now() < self.evicts_at {
            return false;
        }
        self.evict(on);
        let has_room = self.has_room_for_circuit();
        if !has_room {
            self.evicts_at = self.outputs.now() + PAUSE;
        }
        has_room
    }

    /// The limit on circuits, streams and links together: half of all memory, so that the OOM handler always
    /// finds queued data.
    const fn standing_cells_max(&self) -> usize {
        self.config.held_bytes_max / 2 / size_of::<S::Cell>()
    }

    const fn has_room_for_circuit(&self) -> bool {
        let most = self.standing_cells_max();
        let circuits = self.circuits.len() - self.measurement_circuits;
        self.standing_cells() < most || circuits * self.circuit_cells() < most / CIRCUITS_PART
    }

    /// Evicts what exceeds the shares, except for this link.
    #[cold]
    fn evict(&mut self, but: ConnId) {
        let (mut idle, mut active) = self.holdings();
        idle.sort_unstable();
        active.sort_unstable();
        let held = idle.iter().chain(&active).map(|holding| holding.amount).sum::<u64>();
        let most = self.standing_cells_max();
        let fixed = (self.standing_cells() as u64).saturating_sub(held);
        let room = (most as u64 / 10 * 9)
            .saturating_sub(fixed)
            .max((most / CIRCUITS_PART) as u64 / 10 * 9);
        let level = largest_level(held, |level| {
            kept(&idle, level) + kept(&active, level.saturating_mul(ACTIVE_LEVELS)) <= room
        });
        let mut beyond = self.beyond(&idle, &quotas(&idle, level), false);
        let active_quotas = quotas(&active, level.saturating_mul(ACTIVE_LEVELS));
        beyond.extend(self.beyond(&active, &active_quotas, true));
        beyond.sort_unstable();
        let (mut circuits, mut links) = (0, 0);
        let enough = fixed + room;
        for (_, evictable) in beyond {
            if self.standing_cells() as u64 <= enough {
                break;
            }
            match evictable {
                Evictable::Circuit(index) => {
                    let Some(circuit) = self.circuits.get(index) else { continue };
                    let conn = circuit.back.conn;
                    self.drop_circuit(index);
                    circuits += 1;
                    links += u64::from(conn != but && self.close_unused(conn));
                }
                Evictable::Link(conn) => links += u64::from(conn != but && self.close_unused(conn)),
            }
        }
        self.totals.evicted_circuits += circuits;
        self.totals.evicted_links += links;
        if circuits + links > 0 {
            self.report_limited(RouterEvent::Evicted { circuits, links });
        }
    }

    /// The idle and active holdings of each link, in cells.
    fn holdings(&self) -> (Vec<Holding>, Vec<Holding>) {
        let (mut idle, mut active) = (Vec::new(), Vec::new());
        for (conn, link) in self.conns.links().filter(|(_, link)| link.role == Role::Ordinary) {
            let neighbour = self.neighbour(conn, link);
            let (mut of_idle, mut of_active) = (0, 0);
            for (rank, _) in self.evictable(conn, link) {
                if rank.is_active {
                    of_active += 1;
                } else {
                    of_idle += 1;
                }
            }
            let is_circuits = link.circuits.len() > 0;
            let each = if is_circuits { self.circuit_cells() as u64 } else { LINK_CELLS as u64 };
            // A link with circuits is evicted with the last of them.
            let own = if is_circuits && self.is_closable(link) { LINK_CELLS as u64 } else { 0 };
            let holding =
                |count: u64, own| Holding { neighbour, link: conn, amount: count * each + own };
            if of_idle > 0 {
                idle.push(holding(of_idle, if of_active == 0 { own } else { 0 }));
            }
            if of_active > 0 {
                active.push(holding(of_active, own));
            }
        }
        (idle, active)
    }

    /// The excess of each link over its quota, for one kind.
    fn beyond(
        &self,
        holdings: &[Holding],
        quotas: &[u64],
        is_active: bool,
    ) -> Vec<(Rank, Evictable)> {
        let mut all = Vec::new();
        for (holding, quota) in
            holdings.iter().zip(quotas).filter(|(holding, quota)| holding.amount > **quota)
        {
            let Some(link) = self.conns.link(holding.link) else { continue };
            let of_kind =
                self.evictable(holding.link, link).filter(|(rank, _)| rank.is_active == is_active);
            let mut of_kind: Vec<_> = of_kind.collect();
            let count = (holding.amount - quota).div_ceil(self.circuit_cells() as u64);
            let count = of_kind.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            if count < of_kind.len() {
                of_kind.select_nth_unstable(count);
                of_kind.truncate(count);
            }
            all.append(&mut of_kind);
        }
        all
    }

    /// What can be evicted of a link: the circuits created by the peer, or the link itself if it has none.
    fn evictable(&self, conn: ConnId, link: &Link) -> impl Iterator<Item = (Rank, Evictable)> {
        let now = self.outputs.now();
        let circuits = link.circuits.created_by_peer().filter_map(move |index| {
            let circuit = self.circuits.get(index)?;
            let since = circuit.moved_at();
            let idle_after = if circuit.is_used { IDLE_AFTER } else { UNUSED_AFTER };
            let end = circuit.end.as_ref().and_then(|end| self.tunnels.get(end.tunnel));
            let has_streams = end.is_some_and(|tunnel| !tunnel.streams.is_empty());
            let is_active = has_streams || now - since < idle_after;
            // A new circuit has had no time for a cell.
            let is_used = circuit.is_used || is_active;
            Some((Rank { is_active, is_used, since }, Evictable::Circuit(index)))
        });
        // A new link may belong to a measurer that has not authenticated yet.
        let is_unused = link.circuits.len() == 0 && now - link.used_at >= UNUSED_AFTER;
        let itself = (is_unused && self.is_closable(link)).then(|| {
            let rank = Rank { is_active: false, is_used: false, since: link.used_at };
            (rank, Evictable::Link(conn))
        });
        circuits.chain(itself)
    }

    /// The party whose share a link's circuits count for.
    pub(super) fn neighbour(&self, conn: ConnId, link: &Link) -> Neighbour {
        match (self.listed(link), link.ip()) {
            (Some(rsa), _) => Neighbour::Relay(rsa),
            (None, Some(ip)) => Neighbour::Place(super::Place::of(ip)),
            (None, None) => Neighbour::Unknown(conn),
        }
    }

    /// The peer, if it is a listed relay.
    fn listed(&self, link: &Link) -> Option<RsaId> {
        link.peer().map(|ids| ids.rsa).filter(|rsa| self.config.relays.list(rsa))
    }

    /// Whether a link may be closed for lack of memory. Links that this relay dialled and links of listed
    /// relays may not. Other relay identities do not count: anybody can create a key pair.
    fn is_closable(&self, link: &Link) -> bool {
        let is_ordinary = link.role == Role::Ordinary && link.is_open;
        is_ordinary && link.dialled.is_none() && self.listed(link).is_none()
    }

    /// Closes a link without circuits: it occupies as much memory as three circuits.
    fn close_unused(&mut self, conn: ConnId) -> bool {
        let is_unused = self
            .conns
            .link(conn)
            .is_some_and(|link| link.circuits.len() == 0 && self.is_closable(link));
        if is_unused {
            self.close(conn);
        }
        is_unused
    }
}

#[cfg(test)]
mod tests;
