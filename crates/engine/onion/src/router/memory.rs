//! The memory that peers occupy, and the OOM handler that reclaims it.
//!
//! Memory is reclaimed by age: the circuit with the oldest queued data goes first, until a tenth of the limit
//! is free, so that one scan pays for a tenth of the limit. Data of a peer that reads nothing is older than
//! data of a peer that is served, over however many circuits it is spread. (An OOM handler that kills the
//! *largest* circuit kills the busiest client.) No cell has a timestamp: see
//! [`QueueAge`](super::queue_age::QueueAge).

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

/// Objects that are not cells count as a number of cells, so that the result does not depend on the cell model.
/// An idle circuit with its table entries takes 0.3 to 0.5 KB (`flashflow-lab bench idle`). For 10 to 20 s after each
/// cell it has its expanded keys as well, 1.5 KB, and a ring buffer of 1 KB for each direction, which this leaves out.
const CIRCUIT_CELLS: usize = 3;

/// Hop-by-hop windows of a circuit in both directions, with their cells in flight.
const HOP_WINDOWS_CELLS: usize = 6;
const _: () = assert!(2 * HOP_BYTES_MAX <= HOP_WINDOWS_CELLS * CELL_LEN, "more than is counted");

/// A stream without its buffer.
const STREAM_CELLS: usize = 1;

/// An idle link with its TLS session, without the kernel's buffers: 5 KB (`flashflow-lab bench idle`).
pub(super) const LINK_CELLS: usize = 10;

/// The body of a CREATE2 that waits for a link.
const WAITING_CELLS: usize = 1;

/// The number of control cells that take the memory of a cell: most have a body of a byte or two.
const CONTROLS_PER_CELL: usize = 8;

/// Long queues have spare capacity for one cell in this number.
const CELLS_PER_ROOM: usize = 4;

/// If nothing can be dropped, the next check is not before this time.
const PAUSE: Duration = Duration::from_secs(1);

/// Something that can be dropped.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// A circuit with its queues and streams.
    Circuit(CircuitIndex),
    /// A connection whose stream has ended.
    Stream(ConnId),
    /// A link whose peer does not read its control cells, or what the driver holds for it.
    Link(ConnId),
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Bytes of all queued data: cells, control cells, handshakes, data for destinations, data that the driver
    /// holds, and data that arrived before the peer was authenticated.
    pub(super) const fn waiting_bytes(&self) -> usize {
        let cells = self.outputs.held_controls() / CONTROLS_PER_CELL
            + (self.waiting + self.handshakes.len()) * WAITING_CELLS
            + self.outputs.queued_cells() / CELLS_PER_ROOM;
        self.queued_bytes() + cells * size_of::<S::Cell>() + self.conns.outside.bytes()
    }

    /// Bytes of circuits, streams and links themselves.
    pub(super) const fn standing_bytes(&self) -> usize {
        self.standing_cells() * size_of::<S::Cell>()
    }

    /// The memory of circuits, streams and links, in cells.
    pub(super) const fn standing_cells(&self) -> usize {
        self.circuits.len() * self.circuit_cells()
            + self.conns.stream_count() * STREAM_CELLS
            + self.conns.link_count() * LINK_CELLS
    }

    /// The memory of an idle circuit, in cells.
    pub(super) const fn circuit_cells(&self) -> usize {
        CIRCUIT_CELLS + if self.has_hop_windows { HOP_WINDOWS_CELLS } else { 0 }
    }

    /// Keeps the memory that peers occupy below its limit.
    #[inline]
    pub(super) fn handle_oom(&mut self) {
        if self.held_bytes() > self.config.held_bytes_max
            && self.outputs.now() >= self.next_oom_check
        {
            self.shed();
        }
    }

    /// Drops the oldest queued data until a tenth of the limit is free. As in C tor: data of a peer that reads
    /// nothing is older than data of any peer that is served, however little it occupies at a time and however
    /// many circuits it uses.
    ///
    /// It scans each circuit, stream and link once for each tenth of the limit that has arrived since.
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
        self.totals.oom_runs += 1;
        let bytes = before.saturating_sub(self.held_bytes()) as u64;
        self.totals.reclaimed_bytes += bytes;
        self.report(RouterEvent::MemoryReclaimed { bytes });
    }

    /// Everything that has queued data, and since when.
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
                // The driver drops it before it handles anything else.
                self.conns.outside.forget(id);
                self.outputs.close(&mut self.conns, id);
            }
            Holder::Circuit(index) => self.drop_circuit(index),
        }
    }

    /// Destroys a circuit with everything queued on it.
    pub(super) fn drop_circuit(&mut self, index: CircuitIndex) {
        let conns: Vec<ConnId> =
            self.tunnel_of(index).map(|tunnel| tunnel.iter().collect()).unwrap_or_default();
        for conn in conns {
            // Before the circuit is destroyed: its streams would be drained first.
            if self.conns.stream(conn).is_some_and(|stream| stream.state.is_dialled()) {
                self.streams.close(&mut self.conns, conn);
                self.conns.outside.forget(conn);
            }
        }
        self.destroy_all_legs(index, DestroyReason::RESOURCE_LIMIT);
    }

    /// Checks the accounts against a recount of everything, for tests and fuzzing.
    ///
    /// # Panics
    /// If an account is wrong.
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
                assert_eq!(
                    tunnel.map(|tunnel| tunnel.is_set),
                    Some(end.is_linked),
                    "{index:?} in a set"
                );
                let is_leg = tunnel.is_some_and(|tunnel| tunnel.circuit == index)
                    || self.sets.has_leg(end.tunnel, index);
                assert!(is_leg, "a tunnel without its leg");
            }
        }
        assert_eq!(queued_cells, self.outputs.queued_cells(), "cells in all queues");
        let echoes =
            self.circuits.iter().filter(|(_, circuit)| matches!(circuit.hop, Hop::Echo(_)));
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
        let buffered: usize =
            self.conns.streams().map(|(_, stream)| stream.buffer.held_bytes()).sum();
        assert_eq!(buffered, self.streams.held_bytes(), "bytes in all buffers");
        for (conn, stream) in self.conns.streams().filter(|(_, stream)| stream.state.has_circuit())
        {
            let tunnel = self.tunnels.get(stream.tunnel);
            let found = tunnel.and_then(|tunnel| tunnel.streams.find(stream.stream_id));
            assert_eq!(found, Some(conn), "a stream that its tunnel does not know");
        }
    }
}
