//! Cells into queues, and out of them onto links.

use super::circuit::Way;
use super::output::Parked;
use super::{Conduct, Router};
use crate::cell::{BODY_LEN, CELL_LEN, Command, begin_fixed};
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<R: Rng, C: Conduct> Router<R, C> {
    /// Puts a relay cell into a circuit's queue, to be filled; false if the queue is full.
    #[inline]
    pub(super) fn queue_cell(
        &mut self,
        number: u32,
        way: Way,
        command: Command,
        fill: impl FnOnce(&mut [u8; BODY_LEN]),
    ) -> bool {
        let Some(circuit) = self.circuits.get_mut(number) else { return true };
        let Some(out) = circuit.way_out(way) else { return true };
        let queue = circuit.queue_mut(way);
        if queue.len() >= self.config.queue_limit_cells as usize {
            return false;
        }
        let was_empty = (queue.len() == 0).then_some(queue.recent);
        let body = begin_fixed(queue.push(), out.circ_id, command);
        if let Ok(body) = body.try_into() {
            fill(body);
        }
        self.outputs.handle_queued(out.conn, number, way, was_empty);
        true
    }

    /// Fills `out` with what a link has to send now.
    pub(super) fn transmit(&mut self, now: Instant, id: ConnId, out: &mut [u8]) -> usize {
        let channel = self.links.get_mut(id).and_then(|link| link.channel.as_mut());
        let handshake = channel.map_or(0, |channel| channel.poll_transmit(out));
        if handshake > 0 {
            return handshake;
        }
        self.outputs.handle_time(now);
        let Some(output) = self.outputs.get_mut(id) else { return 0 };
        let is_measurers = output.is_measurers;
        let control = output.take_control(out);
        if control > 0 {
            return control;
        }
        let (slots, _) = out.as_chunks_mut::<CELL_LEN>();
        let wanted = self.outputs.wanted_cells(id).min(slots.len());
        if wanted == 0 {
            return 0;
        }
        if let Some(rate) = self.conduct.rate_while_measured() {
            self.change_rate(now, rate); // an honest relay has no such code
        }
        let affordable = self.bucket.as_mut().map_or(u64::MAX, |b| b.available_bytes(now));
        if affordable < (wanted * CELL_LEN) as u64 {
            // Better a whole record later than crumbs now.
            self.outputs.park(id, Parked::ByRate);
            return 0;
        }
        let mut allowed = wanted;
        if !is_measurers {
            let bytes = self.conduct.clients_may_send(self.target.clients_may_send(now));
            let cells = usize::try_from(bytes / CELL_LEN as u64).unwrap_or(usize::MAX);
            allowed = wanted.min(cells);
            if allowed == 0 {
                self.outputs.park(id, Parked::ByShare);
                return 0;
            }
        }
        let cells = self.outputs.take_cells(id, &mut self.circuits, &mut slots[..allowed]);
        let bytes = (cells * CELL_LEN) as u64;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes);
        }
        if is_measurers {
            self.target.handle_measured(bytes);
            self.totals.measured_bytes += bytes;
        } else {
            self.target.handle_client_sent(bytes);
            self.totals.client_bytes += bytes;
        }
        cells * CELL_LEN
    }
}
