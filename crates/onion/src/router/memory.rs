//! What a relay holds in memory for others, and what goes when it is too much.

use super::circuits::CircuitIndex;
use super::streams::State;
use super::{Conduct, Core};
use crate::cell::msg::DestroyReason;
use crate::node::ConnId;
use crate::suite::{Buffer, Suite};
use alloc::vec;
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: Suite, R: Rng, C: Conduct<S>> Core<S, R, C> {
    /// Bytes that wait in all queues and buffers.
    pub(super) const fn held_bytes(&self) -> usize {
        self.outputs.queued_cells() * size_of::<S::Cell>() + self.streams.held_bytes()
    }

    /// Keeps what all queues and buffers hold together under its bound.
    #[inline]
    pub(super) fn shed_excess(&mut self) {
        while self.held_bytes() > self.config.held_bytes_max && self.shed() {}
    }

    /// Drops what holds most, if all together hold too much: a circuit with its queues and streams, or
    /// a connection whose stream is over. It is what an attacker fills, or as good as dead. False if
    /// there is none.
    #[cold]
    fn shed(&mut self) -> bool {
        let circuit = self.largest_circuit();
        let draining = self
            .conns
            .streams()
            .filter(|(_, stream)| stream.state == State::Draining)
            .map(|(conn, stream)| (conn, stream.buffer.held_bytes()))
            .max_by_key(|(_, bytes)| *bytes);
        match (circuit, draining) {
            (circuit, Some((conn, bytes))) if circuit.is_none_or(|(_, most)| most < bytes) => {
                self.streams.close(&mut self.conns, conn);
            }
            (Some((index, _)), _) => {
                let conns: Vec<ConnId> =
                    self.tunnel_of(index).map(|it| it.iter().collect()).unwrap_or_default();
                for conn in conns {
                    // Before the circuit goes: its streams would drain first.
                    if self.conns.stream(conn).is_some_and(|stream| stream.state.is_dialled()) {
                        self.streams.close(&mut self.conns, conn);
                    }
                }
                self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            }
            (None, _) => return false,
        }
        true
    }

    /// The circuit with most bytes in its queues and its streams' buffers, and how many.
    fn largest_circuit(&self) -> Option<(CircuitIndex, usize)> {
        let mut buffered: Vec<usize> = vec![0; self.circuits.numbers()];
        for (_, stream) in self.conns.streams().filter(|(_, stream)| stream.state.has_circuit()) {
            let circuit = self.tunnels.get(stream.tunnel).map(|tunnel| tunnel.circuit);
            if let Some(bytes) = circuit.and_then(|index| buffered.get_mut(index.0 as usize)) {
                *bytes += stream.buffer.held_bytes();
            }
        }
        let bytes = |index: CircuitIndex, cells: usize| {
            cells * size_of::<S::Cell>() + buffered.get(index.0 as usize).copied().unwrap_or(0)
        };
        let all = self.circuits.iter();
        all.map(|(index, it)| (index, bytes(index, it.queued_cells()))).max_by_key(|(_, it)| *it)
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
                if !queue.is_held() {
                    pending[at.conn.0 as usize] += queue.len();
                }
                let known = self.conns.link(at.conn).map(|link| link.circuits.contains(at.circ_id));
                assert_eq!(known, Some(true), "{index:?} is unknown to {:?}", at.conn);
            }
            if let Some(end) = &circuit.end {
                let circuit = self.tunnels.get(end.tunnel).map(|tunnel| tunnel.circuit);
                assert_eq!(circuit, Some(index), "a tunnel without its leg");
            }
        }
        assert_eq!(queued_cells, self.outputs.queued_cells(), "cells in all queues");
        for (id, link) in self.conns.links() {
            let expected = pending[id.0 as usize];
            assert_eq!(link.output.pending_cells(), expected, "cells pending on {id:?}");
        }
        let buffered: usize = self.conns.streams().map(|(_, it)| it.buffer.held_bytes()).sum();
        assert_eq!(buffered, self.streams.held_bytes(), "bytes in all buffers");
        for (conn, stream) in self.conns.streams().filter(|(_, it)| it.state.has_circuit()) {
            let tunnel = self.tunnels.get(stream.tunnel);
            let found = tunnel.and_then(|tunnel| tunnel.streams.find(stream.stream_id));
            assert_eq!(found, Some(conn), "a stream that its tunnel does not know");
        }
    }
}
