//! Sending: the order of circuits and streams.

use super::application::Application;
use super::circuit::Passage;
use super::core::Core;
use super::event::CircuitNumber;
use super::set::{LEG_CHECK_INTERVAL, leg_state};
use crate::cell::relay::RelayCommand;
use crate::cell::{CELLS_PER_RECORD, CircId, Command};
use crate::cell_model::{Cell, CellModel, Layers, StreamId};
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Fills `out` with cells for a link; returns their number, zero for none.
    ///
    /// DATA cells come last, and no more of them than fit into a record.
    #[must_use]
    pub fn poll_cells(&mut self, now: Instant, conn: ConnId, out: &mut [S::Cell]) -> usize {
        self.now = now;
        let Some(link) = self.links.get_mut(&conn).filter(|link| link.is_open) else { return 0 };
        let count = link.pop_into(out);
        self.note_left(conn, &out[..count]);
        let most = out.len().min(count + CELLS_PER_RECORD);
        count + self.package(conn, &mut out[count..most])
    }

    /// Sends DROP messages to the last hop of an open circuit: long-range padding, which takes the path of data
    /// and is discarded (tor-spec §7.2). It is neither acknowledged nor limited by a window: all of it is
    /// queued at once.
    pub fn send_drops(&mut self, now: Instant, circuit: CircuitNumber, cells: usize) {
        self.now = now;
        for _ in 0..cells {
            self.queue_message(circuit, RelayCommand::DROP, StreamId::CIRCUIT, &[]);
        }
    }

    /// Packages data of the circuits of a link, round-robin.
    fn package(&mut self, conn: ConnId, out: &mut [S::Cell]) -> usize {
        let mut cells = 0;
        let turns = self.links.get(&conn).map_or(0, |link| link.circuits.len());
        for _ in 0..turns {
            if cells == out.len() {
                break;
            }
            let Some(link) = self.links.get_mut(&conn).filter(|link| link.is_drained()) else {
                break;
            };
            let Some((circ_id, number)) = link.take_turn() else { break };
            cells += self.package_circuit(number, conn, circ_id, &mut out[cells..]);
        }
        cells
    }

    /// Packages data of the streams of a circuit, round-robin.
    fn package_circuit(
        &mut self,
        number: CircuitNumber,
        conn: ConnId,
        circ_id: CircId,
        out: &mut [S::Cell],
    ) -> usize {
        let (mut cells, mut blocked) = (0, 0);
        while let Some(passage) = self.passages.get_mut(&number)
            && cells < out.len()
            && blocked < passage.streams.sending.len()
        {
            let Some(place) = passage.place(conn, circ_id) else { break };
            let Passage { legs, streams, set } = passage;
            if let Some(set) = set {
                let chosen = set.conflux.choose(|leg| leg_state(legs, leg));
                if chosen != Some(legs[place].leg) {
                    // The scheduler has chosen another leg, or none.
                    let other = legs.iter().find(|leg| Some(leg.leg) == chosen).map(|leg| leg.conn);
                    other.into_iter().for_each(|conn| self.wake(conn));
                    break;
                }
            }
            let circuit = &mut legs[place];
            if circuit.room_cells(self.now) == 0 {
                break;
            }
            let Some(up) = circuit.up_mut().filter(|up| up.leg.flow.room_cells() > 0) else {
                break;
            };
            let format = up.leg.format();
            let Some(stream) = streams.sending.pop_front() else { break };
            let sender =
                self.streams.get_mut(&stream).filter(|stream| stream.has_more_to_send::<S>());
            let Some(sender) = sender else { continue };
            streams.sending.push_back(stream);
            let body = out[cells].begin(circ_id, Command::RELAY);
            if !sender.package::<S>(self.now, format, body) {
                blocked += 1;
                self.room_at = self.room_at.into_iter().chain(sender.room_at()).min();
                continue;
            }
            blocked = 0;
            let copy = set.as_ref().and_then(|set| set.copy(format, out[cells].body()));
            let switched = set.as_mut().and_then(|set| set.begin_message(circuit));
            let Some(up) = circuit.up_mut() else { break };
            let body = out[cells].body_mut();
            up.layers.seal(up.last, Command::RELAY, body);
            let is_marked = up.leg.flow.handle_sent(self.now, || up.layers.sent_tag(up.last));
            if let (Some(set), Some(copy)) = (set, copy) {
                set.conflux.keep(circuit.leg, copy, is_marked);
                self.leg_check_at.get_or_insert(self.now + LEG_CHECK_INTERVAL);
            }
            let Some(switch) = switched else {
                circuit.handle_left(self.now, 1);
                cells += 1;
                continue;
            };
            // SWITCH goes first. What does not fit stays queued, and nothing overtakes it.
            let Some(link) = self.links.get_mut(&conn) else { break };
            link.push(switch);
            link.push(core::mem::replace(&mut out[cells], S::Cell::EMPTY));
            let count = link.pop_into(&mut out[cells..]);
            let is_drained = link.is_drained();
            self.note_left(conn, &out[cells..cells + count]);
            cells += count;
            if !is_drained {
                break;
            }
        }
        cells
    }
}
