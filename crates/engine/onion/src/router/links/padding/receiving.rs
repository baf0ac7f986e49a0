//! The peer's padding: how much a link may send that means nothing.

use super::Padder;
use crate::cell::CELL_LEN;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::links::Role;
use crate::router::links::upkeep::PERIOD;
use crate::router::{Behavior, Core, RouterEvent, Violation};
use crate::time::{Duration, Instant};
use rand_core::Rng;

/// Padding cells between two upkeeps that no peer is blamed for: keepalives, and peers with other parameters.
const CELLS_ALLOWED: u32 = 32;

/// A peer may send this many times the padding that padding-spec permits.
const TOLERANCE: u32 = 4;

/// The interval of padding that is assumed if the consensus does not limit it, and the minimum of that interval.
const INTERVAL_DEFAULT_MS: u32 = 1500;
const INTERVAL_MIN_MS: u32 = 100;

impl Padder {
    /// Maximum number of padding cells that a link may receive between two upkeeps. By padding-spec, a link is
    /// padded once in `nf_ito_low`, after a time without traffic.
    fn cells_max(&self) -> u32 {
        let interval_ms = if self.low_ms == 0 { INTERVAL_DEFAULT_MS } else { self.low_ms };
        let interval = Duration::from_millis(interval_ms.max(INTERVAL_MIN_MS).into());
        let permitted = PERIOD.as_millis().div_ceil(interval.as_millis());
        CELLS_ALLOWED + TOLERANCE * u32::try_from(permitted).unwrap_or(u32::MAX / TOLERANCE / 2)
    }
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles a variable-length cell of `len` bytes that is padding, or unknown. Returns false if the link is
    /// closed.
    pub fn handle_padding(&mut self, now: Instant, conn: ConnId, len: usize) -> bool {
        self.outputs.set_now(now);
        let cells = u32::try_from(len.div_ceil(CELL_LEN)).unwrap_or(u32::MAX).max(1);
        let outcome = self.note_padding(conn, cells);
        if let Err(violation) = outcome {
            self.handle_violation(now, conn, violation);
        }
        outcome.is_ok()
    }

    /// Counts cells that are padding, or that mean nothing to this relay. Links of listed relays and of
    /// measurements are exempt.
    pub(crate) fn note_padding(&mut self, conn: ConnId, cells: u32) -> Result<(), Violation> {
        let Some(link) = self.conns.link_mut(conn) else { return Ok(()) };
        link.padding_cells = link.padding_cells.saturating_add(cells);
        let is_excess = link.padding_cells > self.padder.cells_max();
        if !is_excess || link.role != Role::Ordinary {
            return Ok(());
        }
        let peer = link.peer().map(|ids| ids.rsa);
        if peer.is_some_and(|rsa| self.config.relays.list(&rsa)) {
            return Ok(());
        }
        self.totals.padding_refused += 1;
        self.report_limited(RouterEvent::PaddingRefused { peer });
        Err(Violation::ExcessPadding)
    }
}
