//! Hop-by-hop windows between the client and its first hops (`docs/protocol.md`).
//!
//! The client is the source of a circuit's forward cells, and its window limits them: data waits here until the
//! first hop reports forwarded cells. For the backward direction the client reports received cells. Messages
//! other than data do not wait, since streams depend on them; they reduce the space for the following data.

use super::application::Application;
use super::core::Core;
use super::event::CircuitNumber;
use super::link::Link;
use crate::cell::msg::FeedbackEntry;
use crate::cell::{CircId, Command};
use crate::cell_model::{Cell, CellModel};
use crate::flow::hop::{Excess, HopAccount};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::string::ToString;
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Whether hop-by-hop windows are offered to first hops: if the [flows](Self::set_flows) have them.
    #[must_use]
    pub fn has_hop_windows(&self) -> bool {
        self.flows.hop().is_some()
    }

    /// Handles a FEEDBACK cell. Returns false if the report is invalid, and the link is closed.
    pub fn handle_feedback(&mut self, now: Instant, conn: ConnId, body: &[u8]) -> bool {
        self.now = now;
        if !self.links.get(&conn).is_some_and(|link| link.has_feedback) {
            return self.links.contains_key(&conn);
        }
        let outcome = FeedbackEntry::parse(body).map_err(|malformed| malformed.to_string());
        let entries: Vec<FeedbackEntry> = match outcome {
            Ok(entries) => entries.collect(),
            Err(problem) => {
                self.handle_broken(now, conn, problem);
                return false;
            }
        };
        for FeedbackEntry { circ_id, cells } in entries {
            // The peer may have sent the report before it received DESTROY.
            let Some(account) = self.account_mut(conn, circ_id) else { continue };
            if let Err(Excess) = account.handle_feedback(now, cells.into()) {
                self.handle_broken(now, conn, alloc::format!("it {Excess}"));
                return false;
            }
        }
        self.wake(conn);
        true
    }

    /// The body of a FEEDBACK cell for a link.
    #[must_use]
    pub fn poll_feedback(&mut self, conn: ConnId) -> Option<Vec<u8>> {
        let has_report = |link: &&mut Link<S>| link.is_open && !link.unreported.is_empty();
        let link = self.links.get_mut(&conn).filter(has_report)?;
        let mut unreported = core::mem::take(&mut link.unreported);
        let body = FeedbackEntry::encode_cell(&mut unreported, |circ_id| {
            Some(FeedbackEntry {
                circ_id,
                cells: self.account_mut(conn, circ_id)?.take_unreported(),
            })
        });
        if let Some(link) = self.links.get_mut(&conn).filter(|_| !unreported.is_empty()) {
            link.unreported = unreported;
        }
        body
    }

    /// A relay cell has arrived from the first hop.
    pub(super) fn note_received(&mut self, number: CircuitNumber, place: usize) {
        let circuit =
            self.passages.get_mut(&number).and_then(|passage| passage.legs.get_mut(place));
        let Some(circuit) = circuit else { return };
        let (conn, circ_id) = (circuit.conn, circuit.circ_id);
        let Some(account) = &mut circuit.account else { return };
        account.handle_arrived();
        account.pass_on(1);
        if account.has_report()
            && let Some(link) = self.links.get_mut(&conn)
        {
            link.unreported.push(circ_id);
        }
    }

    /// Cells leave on a link.
    pub(super) fn note_left(&mut self, conn: ConnId, cells: &[S::Cell]) {
        if !self.links.get(&conn).is_some_and(|link| link.has_feedback) {
            return;
        }
        let now = self.now;
        for cell in cells {
            if matches!(cell.command(), Command::RELAY | Command::RELAY_EARLY)
                && let Some(account) = self.account_mut(conn, cell.circ_id())
            {
                account.handle_left(now, 1);
            }
        }
    }

    /// The account of a circuit on a link with windows.
    fn account_mut(&mut self, conn: ConnId, circ_id: CircId) -> Option<&mut HopAccount> {
        let number = self.links.get(&conn)?.circuits.get(&circ_id)?;
        let legs = &mut self.passages.get_mut(number)?.legs;
        legs.iter_mut().find(|leg| leg.is(conn, circ_id))?.account.as_deref_mut()
    }
}
