//! Outgoing cells: from the queue of their circuit onto a link.

use super::circuits::OnLink;
use super::links::{Control, ParkedBy};
use super::schedule::ServedCells;
use super::{Behavior, Core};
use crate::cell::{CELL_LEN, Command};
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Queues a control cell. Returns false if there are too many.
    pub(super) fn control(&mut self, at: OnLink, command: Command, body: &[u8]) -> bool {
        let control = Control { circ_id: at.circ_id, command, body: body.into() };
        self.outputs.control(&mut self.conns, at.conn, control)
    }

    /// The next control cell of a link. Control cells go before all others.
    #[must_use]
    pub fn poll_control(&mut self, now: Instant, conn: ConnId) -> Option<Control> {
        self.outputs.set_now(now);
        let control = self.outputs.poll_control(&mut self.conns, conn);
        let feedback =
            |core: &mut Self| core.has_hop_windows.then(|| core.poll_feedback(conn)).flatten();
        let control = control.or_else(|| feedback(self))?;
        self.handle_transfer(now, conn);
        Some(control)
    }

    /// Fills `out` with cells of circuits that a link has to send now; returns the number of cells.
    /// [`poll_control`](Self::poll_control) must have returned `None` before.
    #[must_use]
    pub fn poll_cells(&mut self, now: Instant, conn: ConnId, out: &mut [S::Cell]) -> usize {
        self.outputs.set_now(now);
        let allowed = self.allowed_cells(conn, out.len());
        if allowed == 0 {
            return 0;
        }
        let (conns, circuits) = (&mut self.conns, &mut self.circuits);
        let notes_own = self.target.is_measuring();
        let served = self.outputs.take_cells(conns, circuits, conn, notes_own, &mut out[..allowed]);
        if served.cells > 0 {
            self.account_sent(conn, served);
            self.handle_transfer(now, conn);
            self.wake_unblocked();
        }
        served.cells
    }

    /// The number of cells that a link may send now, by the scheduler, the rate limit and the clients' share.
    #[inline]
    fn allowed_cells(&mut self, conn: ConnId, most: usize) -> usize {
        let Some(output) = self.conns.output(conn) else { return 0 };
        let is_measurers = output.is_measurers;
        let wanted = self.outputs.wanted_cells(&mut self.conns, conn).min(most);
        if wanted == 0 {
            return 0;
        }
        if let Some(rate) = self.behavior.rate_while_measured() {
            self.change_rate(rate); // an honest relay has no such code
        }
        let now = self.outputs.now();
        let affordable = self.bucket.as_mut().map_or(u64::MAX, |b| b.available_bytes(now));
        if affordable < (wanted * CELL_LEN) as u64 {
            // A whole record later is better than fragments now.
            self.totals.limited += 1;
            self.outputs.park(&mut self.conns, conn, ParkedBy::Rate);
            return 0;
        }
        if is_measurers {
            return wanted;
        }
        let bytes = self.behavior.clients_may_send(self.target.clients_may_send(now));
        let cells = usize::try_from(bytes / CELL_LEN as u64).unwrap_or(usize::MAX);
        let allowed = wanted.min(cells);
        if allowed == 0 {
            self.outputs.park(&mut self.conns, conn, ParkedBy::Share);
        }
        allowed
    }

    #[inline]
    fn account_sent(&mut self, conn: ConnId, served: ServedCells) {
        let bytes = (served.cells * CELL_LEN) as u64;
        if let Some(link) = self.conns.link_mut(conn) {
            link.sent_cells += served.cells as u64;
        }
        self.reading.handle_sent(served.cells);
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes);
        }
        if self.conns.output(conn).is_some_and(|output| output.is_measurers) {
            self.target.handle_measured(conn, bytes);
            let now = self.outputs.now();
            self.reading.handle_echoed(now, self.target.without_clients_share(bytes));
            self.totals.measured_bytes += bytes;
        } else {
            self.target.handle_client_sent(bytes);
            self.target.handle_client_received((served.own_cells * CELL_LEN) as u64);
            self.totals.client_bytes += bytes;
        }
    }
}
