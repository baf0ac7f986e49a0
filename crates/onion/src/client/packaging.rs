//! Data on its way out: which circuit and stream has its turn.

use super::Client;
use super::circuit::State;
use super::event::CircuitNumber;
use super::link::Link;
use crate::cell::CELLS_PER_RECORD;
use crate::cell::relay::{MAX_DATA_LEN, RelayCommand};
use crate::flow::control::CircuitFlow;
use crate::link::Channel;
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<R: Rng> Client<R> {
    /// Packages a record's worth of DATA cells on a link; false if nothing may be sent now.
    pub(super) fn package(&mut self, now: Instant, conn: ConnId) -> bool {
        let mut cells = 0;
        let turns = self.links.get(&conn).map_or(0, |link| link.circuits.len());
        for _ in 0..turns {
            let number = self.links.get_mut(&conn).and_then(Link::take_turn);
            let Some(number) = number else { break };
            self.with_links_channel(conn, |client, channel| {
                cells += client.package_circuit(now, channel, number, CELLS_PER_RECORD - cells);
            });
            if cells >= CELLS_PER_RECORD {
                break;
            }
        }
        cells > 0
    }

    fn with_links_channel(&mut self, conn: ConnId, act: impl FnOnce(&mut Self, &mut Channel)) {
        let channel = self.links.get_mut(&conn).and_then(|link| link.channel.take());
        let Some(mut channel) = channel else { return };
        act(self, &mut channel);
        if let Some(link) = self.links.get_mut(&conn) {
            link.channel = Some(channel);
        }
    }

    fn package_circuit(
        &mut self,
        now: Instant,
        channel: &mut Channel,
        number: CircuitNumber,
        cells_max: usize,
    ) -> usize {
        let Some(circuit) = self.circuits.get_mut(&number) else { return 0 };
        let State::Up(up) = &mut circuit.state else { return 0 };
        let (mut cells, mut blocked) = (0, 0);
        let mut data = [0; MAX_DATA_LEN];
        while cells < cells_max && blocked < circuit.sending.len() && up.flow.room_cells() > 0 {
            let Some(stream) = circuit.sending.pop_front() else { break };
            let Some(it) = self.streams.get_mut(&stream).filter(|it| it.has_more_to_send()) else {
                continue;
            };
            circuit.sending.push_back(stream);
            let len = it.package(now, &mut data);
            if len == 0 {
                blocked += 1;
                let room_at = it.room_at();
                self.room_at = self.room_at.into_iter().chain(room_at).min();
                continue;
            }
            blocked = 0;
            up.send(channel, circuit.circ_id, RelayCommand::DATA, it.id, &data[..len]);
            cells += 1;
            if up.flow.handle_sent(now) {
                up.tags.expect(up.layers.sent_tag(up.last));
            }
        }
        cells
    }
}
