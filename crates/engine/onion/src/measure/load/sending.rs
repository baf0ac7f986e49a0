//! Sending: cells for circuits with space, within the rate.

use super::circuit::State;
use super::conn::Side;
use super::{LoadGenerator, Phase};
use crate::cell::CELLS_PER_RECORD;
use crate::cell::{CELL_LEN, Command, begin_fixed};
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<R: Rng> LoadGenerator<R> {
    /// Fills `out` with cells for the circuits of one connection, round-robin.
    pub(super) fn write_cells(&mut self, now: Instant, id: ConnId, out: &mut [u8]) -> usize {
        let Phase::Running(running) = &mut self.phase else { return 0 };
        if !running.has_begun {
            return 0;
        }
        let Some(conn) = self.conns.get_mut(id) else { return 0 };
        if conn.side != Side::Outbound {
            return 0; // landings only receive: their circuits are fed from the other end
        }
        if conn.is_held_back && running.held_back_until.is_some() {
            return 0; // a timer wakes it
        }
        let few = self.config.few_circuits.filter(|_| running.few_circuits_until.is_some());
        if few.is_some() && !conn.has_few_circuits {
            return 0; // the same timer
        }
        let per_socket = self.config.circuits_per_socket.max(1);
        let is_sending = |number: u32| few.is_none_or(|few| number % per_socket < few.per_socket);
        let (slots, _) = out.as_chunks_mut::<CELL_LEN>();
        let affordable = running.bucket.available_bytes(now) / CELL_LEN as u64;
        let affordable = usize::try_from(affordable).unwrap_or(usize::MAX);
        if affordable < slots.len().min(CELLS_PER_RECORD) {
            // Less than a record: a whole record later is better than fragments now.
            if !conn.is_throttled {
                conn.is_throttled = true;
                self.throttled.push(id);
            }
            // A connection whose circuits have no space waits for the relay, whatever the rate.
            let has_room = |number: u32| match &self.circuits[number as usize].state {
                State::Up(flow) => is_sending(number) && flow.window.room_cells() > 0,
                _ => false,
            };
            if !self.throttle.holds() && conn.circuits.numbers().any(has_room) {
                self.throttle.hold(now);
            }
            return 0;
        }
        let mut rest = &mut slots[..];
        let mut written = 0;
        for _ in 0..conn.circuits.len() {
            let Some((circ_id, number)) = conn.circuits.take_turn() else { break };
            if !is_sending(number) {
                continue; // a timer wakes its connection
            }
            let State::Up(flow) = &mut self.circuits[number as usize].state else { continue };
            let room = flow.window.room_cells();
            let count = rest.len().min(room as usize);
            if count == 0 {
                continue;
            }
            let (now_filled, later) = rest.split_at_mut(count);
            for slot in now_filled {
                flow.content.write_next(begin_fixed(slot, circ_id, Command::RELAY));
            }
            flow.window.handle_sent(now, u32::try_from(count).unwrap_or(u32::MAX));
            written += count;
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        running.bucket.take((written * CELL_LEN) as u64);
        written * CELL_LEN
    }
}
