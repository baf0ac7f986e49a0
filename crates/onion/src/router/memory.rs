//! What a relay holds in memory for others, and what goes when it is too much.

use super::circuits::{CircuitIndex, Hop};
use super::links::Output;
use super::streams::State;
use super::{Behavior, Core, RouterEvent};
use crate::cell::CELL_LEN;
use crate::cell::msg::DestroyReason;
use crate::cell_model::{Buffer, CellModel};
use crate::flow::hop::HOP_BYTES_MAX;
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use rand_core::Rng;

/// What is no cell is counted as if it were some, so that the same happens whatever a suite's cells hold. A circuit on which
/// nothing waits, with its keys and its entries on its links: 1.2 to 1.7 KB (`flashflow-lab bench idle`).
const CIRCUIT_CELLS: usize = 3;

/// Windows from hop to hop, both ways, with what is under way.
const HOP_WINDOWS_CELLS: usize = 6;
const _: () = assert!(2 * HOP_BYTES_MAX <= HOP_WINDOWS_CELLS * CELL_LEN, "more than is counted");

/// A stream, but for its buffer.
const STREAM_CELLS: usize = 1;

/// A link at rest with its TLS session, but for what the kernel holds of it: 5 KB (`flashflow-lab bench idle`).
pub(super) const LINK_CELLS: usize = 10;

/// The body of a CREATE2 that waits for a link.
const WAITING_CELLS: usize = 1;

/// So many control cells take as much as a cell: most have a byte or two to say.
const CONTROLS_PER_CELL: usize = 8;

/// Long queues have room for one more for so many of their cells.
const CELLS_PER_ROOM: usize = 4;

/// When nothing is found that could go, memory is not looked through again for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// What can be dropped.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// A circuit with its queues and streams.
    Circuit(CircuitIndex),
    /// A connection whose stream is over.
    Stream(ConnId),
    /// A link that does not read its control cells, or what the driver has for it.
    Link(ConnId),
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Bytes of all that waits: cells, control cells, handshakes, data on its way to destinations, what the driver has to
    /// write, and what comes before a link's other end is known.
    pub(super) const fn waiting_bytes(&self) -> usize {
        let cells = self.outputs.held_controls() / CONTROLS_PER_CELL
            + (self.waiting + self.handshakes.len()) * WAITING_CELLS
            + self.outputs.queued_cells() / CELLS_PER_ROOM;
        self.queued_bytes() + cells * size_of::<S::Cell>() + self.conns.outside.bytes()
    }

    /// Bytes of circuits, streams and links on which nothing waits.
    pub(super) const fn standing_bytes(&self) -> usize {
        self.standing_cells() * size_of::<S::Cell>()
    }

    /// The memory of circuits, streams and links, in cells.
    pub(super) const fn standing_cells(&self) -> usize {
        self.circuits.len() * self.circuit_cells()
            + self.conns.stream_count() * STREAM_CELLS
            + self.conns.link_count() * LINK_CELLS
    }

    /// What a circuit on which nothing waits counts.
    pub(super) const fn circuit_cells(&self) -> usize {
        CIRCUIT_CELLS + if self.has_hop_windows { HOP_WINDOWS_CELLS } else { 0 }
    }

    /// Keeps what peers have us hold under its bound.
    #[inline]
    pub(super) fn handle_oom(&mut self) {
        if self.held_bytes() > self.config.held_bytes_max
            && self.outputs.now() >= self.next_oom_check
        {
            self.shed();
        }
    }

    /// Drops what has waited longest, until a tenth of the bound is free. As C tor: who reads nothing is
    /// older than anybody who is served, however little he has us hold at a time, and in however many circuits.
    ///
    /// It looks at each circuit, stream and link once for each tenth of the bound that has come in since.
    #[cold]
    fn shed(&mut self) {
        let enough = self.config.held_bytes_max / 10 * 9;
        let before = self.held_bytes();
        let mut all = self.holders();
        all.sort_unstable_by_key(|(since, _)| *since);
        for (_, holder) in all {
            if self.held_bytes() <= enough {
                break;
            }
            self.drop_holder(holder);
        }
        if self.held_bytes() > enough {
            self.next_oom_check = self.outputs.now() + PAUSE;
        }
        self.totals.sheds += 1;
        let bytes = before.saturating_sub(self.held_bytes()) as u64;
        self.totals.shed_bytes += bytes;
        self.tell(RouterEvent::Shed { bytes });
    }

    /// All that holds something that waits, and since when.
    fn holders(&self) -> Vec<(Instant, Holder)> {
        let mut of_circuits: Vec<Option<Instant>> = vec![None; self.circuits.numbers()];
        for (index, circuit) in self.circuits.iter() {
            of_circuits[index.0 as usize] = circuit.oldest_since();
        }
        let mut all = Vec::new();
        let outside: BTreeMap<ConnId, Instant> = self.conns.outside.since().collect();
        for (conn, stream) in self.conns.streams() {
            let both = [stream.age.since(), outside.get(&conn).copied()];
            let Some(since) = both.into_iter().flatten().min() else { continue };
            if stream.state == State::Draining {
                all.push((since, Holder::Stream(conn)));
            } else if let Some(tunnel) = self.tunnels.get(stream.tunnel)
                && stream.state.has_circuit()
            {
                let of_circuit = &mut of_circuits[tunnel.circuit.0 as usize];
                *of_circuit = Some(of_circuit.map_or(since, |other| other.min(since)));
            }
        }
        for (tunnel, since) in self.sets.oldest() {
            if let Some(tunnel) = self.tunnels.get(tunnel) {
                let of_circuit = &mut of_circuits[tunnel.circuit.0 as usize];
                *of_circuit = Some(of_circuit.map_or(since, |other| other.min(since)));
            }
        }
        for (id, link) in self.conns.links() {
            let both = [link.output.oldest_control_since(), outside.get(&id).copied()];
            let since = both.into_iter().flatten().min();
            all.extend(since.map(|since| (since, Holder::Link(id))));
        }
        let circuits = (0..).map(CircuitIndex).zip(of_circuits);
        all.extend(circuits.filter_map(|(index, since)| Some((since?, Holder::Circuit(index)))));
        all
    }

    fn drop_holder(&mut self, holder: Holder) {
        match holder {
            Holder::Stream(conn) => {
                self.streams.close(&mut self.conns, conn);
                self.conns.outside.forget(conn);
            }
            Holder::Link(id) => {
                self.lose(id, DestroyReason::CHANNEL_CLOSED);
                self.outputs.drop_control(&mut self.conns, id);
                // The driver drops it before anything else is handled.
                self.conns.outside.forget(id);
                self.outputs.close(&mut self.conns, id);
            }
            Holder::Circuit(index) => self.drop_circuit(index),
        }
    }

    /// Destroys a circuit for lack of memory, with everything that it holds.
    pub(super) fn drop_circuit(&mut self, index: CircuitIndex) {
        let conns: Vec<ConnId> =
            self.tunnel_of(index).map(|it| it.iter().collect()).unwrap_or_default();
        for conn in conns {
            // Before the circuit goes: its streams would drain first.
            if self.conns.stream(conn).is_some_and(|stream| stream.state.is_dialled()) {
                self.streams.close(&mut self.conns, conn);
                self.conns.outside.forget(conn);
            }
        }
        self.destroy_all_legs(index, DestroyReason::RESOURCE_LIMIT);
    }

    /// Compares the accounts that are kept on the way with what really is there.
    ///
    /// # Panics
    /// If they differ. For tests and fuzzing: it looks at everything.
    pub fn check_accounts(&self) {
        let mut pending = vec![0; self.conns.numbers()];
        let mut queued_cells = 0;
        for (index, circuit) in self.circuits.iter() {
            assert_eq!(
                circuit.queued_cells(),
                circuit.queues().map(|(_, queue)| queue.len()).sum::<usize>(),
                "{index:?} has cells for a next hop and none to give them to"
            );
            for (at, queue) in circuit.queues() {
                queued_cells += queue.len();
                if !queue.is_blocked() {
                    pending[at.conn.0 as usize] += queue.len();
                }
                let known = self.conns.link(at.conn).map(|link| link.circuits.contains(at.circ_id));
                assert_eq!(known, Some(true), "{index:?} is unknown to {:?}", at.conn);
            }
            if let Some(end) = &circuit.end {
                let tunnel = self.tunnels.get(end.tunnel);
                assert_eq!(tunnel.map(|it| it.is_set), Some(end.is_linked), "{index:?} in a set");
                let is_leg = tunnel.is_some_and(|it| it.circuit == index)
                    || self.sets.has_leg(end.tunnel, index);
                assert!(is_leg, "a tunnel without its leg");
            }
        }
        assert_eq!(queued_cells, self.outputs.queued_cells(), "cells in all queues");
        let echoes = self.circuits.iter().filter(|(_, it)| matches!(it.hop, Hop::Echo(_)));
        assert_eq!(echoes.count(), self.measurement_circuits, "circuits of measurements");
        self.sets.check_accounts();
        self.conns.outside.check();
        for (id, link) in self.conns.links() {
            let expected = pending[id.0 as usize];
            assert_eq!(link.output.pending_cells(), expected, "cells pending on {id:?}");
        }
        let control = (0..self.conns.numbers()).filter_map(|number| {
            self.conns.output(ConnId(u32::try_from(number).unwrap_or(u32::MAX)))
        });
        let control: usize = control.map(Output::held_controls).sum();
        assert_eq!(control, self.outputs.held_controls(), "control cells");
        let waiting: usize = self.conns.links().map(|(_, link)| link.waiting.len()).sum();
        assert_eq!(waiting, self.waiting, "handshakes that wait");
        let buffered: usize = self.conns.streams().map(|(_, it)| it.buffer.held_bytes()).sum();
        assert_eq!(buffered, self.streams.held_bytes(), "bytes in all buffers");
        for (conn, stream) in self.conns.streams().filter(|(_, it)| it.state.has_circuit()) {
            let tunnel = self.tunnels.get(stream.tunnel);
            let found = tunnel.and_then(|tunnel| tunnel.streams.find(stream.stream_id));
            assert_eq!(found, Some(conn), "a stream that its tunnel does not know");
        }
    }
}
