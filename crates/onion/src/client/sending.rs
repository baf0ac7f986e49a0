//! Data on its way out: which circuit and stream has its turn.

use super::application::Application;
use super::circuit::Passage;
use super::core::Core;
use super::event::CircuitNumber;
use super::link::Link;
use crate::cell::relay::RelayCommand;
use crate::cell::{CELLS_PER_RECORD, Command};
use crate::node::ConnId;
use crate::suite::{Cell, Layers, StreamId, Suite};
use crate::time::Instant;
use rand_core::Rng;

impl<S: Suite, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Fills `out` with cells for a link; returns how many, zero for none.
    ///
    /// Cells of data come last, and no more of them than a record holds.
    #[must_use]
    pub fn poll_cells(&mut self, now: Instant, conn: ConnId, out: &mut [S::Cell]) -> usize {
        self.now = now;
        let Some(link) = self.links.get_mut(&conn).filter(|link| link.is_open) else { return 0 };
        let count = link.pop_into(out);
        let most = out.len().min(count + CELLS_PER_RECORD);
        count + self.package(conn, &mut out[count..most])
    }

    /// Sends so many DROP messages to the last hop of a circuit that stands: long-range padding, which takes the way of data and
    /// arrives nowhere (tor-spec §7.2). Nothing acknowledges it, and no window holds it back: all of it waits here at once.
    pub fn send_drops(&mut self, now: Instant, circuit: CircuitNumber, cells: usize) {
        self.now = now;
        for _ in 0..cells {
            self.say(circuit, RelayCommand::DROP, StreamId::CIRCUIT, &[]);
        }
    }

    /// Packages data of the circuits of a link, in turn.
    fn package(&mut self, conn: ConnId, out: &mut [S::Cell]) -> usize {
        let mut cells = 0;
        let turns = self.links.get(&conn).map_or(0, |link| link.circuits.len());
        for _ in 0..turns {
            if cells == out.len() {
                break;
            }
            let number = self.links.get_mut(&conn).and_then(Link::take_turn);
            let Some(number) = number else { break };
            cells += self.package_circuit(number, &mut out[cells..]);
        }
        cells
    }

    /// Packages data of the streams of a circuit, in turn.
    fn package_circuit(&mut self, number: CircuitNumber, out: &mut [S::Cell]) -> usize {
        let Some(Passage { circuit, streams }) = self.passages.get_mut(&number) else { return 0 };
        let circ_id = circuit.circ_id;
        let Some(up) = circuit.up() else { return 0 };
        let (mut cells, mut blocked) = (0, 0);
        while cells < out.len() && blocked < streams.sending.len() && up.leg.flow.room_cells() > 0 {
            let Some(stream) = streams.sending.pop_front() else { break };
            let it = self.streams.get_mut(&stream).filter(|it| it.has_more_to_send::<S>());
            let Some(it) = it else { continue };
            streams.sending.push_back(stream);
            let body = out[cells].begin(circ_id, Command::RELAY);
            if !it.package::<S>(self.now, up.leg.format(), body) {
                blocked += 1;
                self.room_at = self.room_at.into_iter().chain(it.room_at()).min();
                continue;
            }
            blocked = 0;
            up.layers.seal(up.last, Command::RELAY, body);
            up.leg.flow.handle_sent(self.now, || up.layers.sent_tag(up.last));
            cells += 1;
        }
        cells
    }
}
