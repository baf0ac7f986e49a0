//! How streams end (tor-spec §6.3).
//!
//! As in C tor there are no half-closed streams here: whichever side ends a stream, it is over. What the
//! client has sent before its END is still written to the destination; what it sends after ours is
//! ignored, but counts for the circuit's window.

use super::streams::{Edge, State};
use super::{Conduct, Router};
use crate::cell::CELL_LEN;
use crate::cell::msg::{DestroyReason, End, EndReason, Resolved};
use crate::cell::relay::RelayCommand;
use crate::node::{CloseCause, ConnId};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use rand_core::Rng;

impl<R: Rng, C: Conduct> Router<R, C> {
    pub(super) fn send_end(&mut self, number: u32, stream_id: u16, end: End) {
        let mut data = Vec::new();
        end.encode_into(&mut data);
        self.originate(number, RelayCommand::END, stream_id, &data);
    }

    /// Ends a stream from our side.
    pub(super) fn end_stream(&mut self, conn: ConnId, end: End) {
        let Some(stream) = self.streams.get(conn) else { return };
        let (number, stream_id) = (stream.circuit, stream.stream_id);
        self.forget_stream(conn);
        self.send_end(number, stream_id, end);
    }

    /// The client has ended a stream.
    pub(super) fn handle_end(&mut self, number: u32, stream_id: u16) {
        if let Some(conn) = self.find_stream(number, stream_id) {
            self.forget_stream(conn);
        }
    }

    /// A stream is no more its circuit's. Its connection lives until all is written.
    pub(super) fn forget_stream(&mut self, conn: ConnId) {
        let Some(stream) = self.streams.get(conn) else { return };
        let (number, stream_id) = (stream.circuit, stream.stream_id);
        if let Some(edge) = self.circuits.get_mut(number).and_then(|it| it.edge.as_mut()) {
            edge.remove(stream_id);
        }
        if self.streams.finish(self.now, conn) {
            self.links.release(conn);
        }
    }

    /// A circuit is gone, and its streams with it.
    pub(super) fn end_streams(&mut self, edge: &Edge) {
        for conn in edge.conns() {
            if self.streams.finish(self.now, conn) {
                self.links.release(conn);
            }
        }
    }

    /// The connection to a destination is gone, or could not be made.
    pub(super) fn handle_stream_closed(&mut self, conn: ConnId, cause: &CloseCause) {
        let Some(stream) = self.streams.get(conn) else { return };
        let is_open = stream.state == State::Open;
        if is_open || matches!(stream.state, State::Connecting { .. }) {
            let reason = match cause {
                CloseCause::ByPeer if is_open => EndReason::DONE,
                CloseCause::ByPeer | CloseCause::Refused => EndReason::CONNECT_REFUSED,
                CloseCause::TimedOut => EndReason::TIMEOUT,
                CloseCause::Reset => EndReason::CONN_RESET,
                CloseCause::NoRoute => EndReason::NO_ROUTE,
                CloseCause::NoResources => EndReason::RESOURCE_LIMIT,
                CloseCause::Tls(_) | CloseCause::Other(_) => EndReason::MISC,
            };
            self.end_stream(conn, End { reason, refused: None });
        }
        // The shell has closed it: nothing is left to be done.
        self.streams.remove(conn);
        self.links.release(conn);
    }

    /// Looks through all streams from time to time.
    pub(super) fn keep_streams_up(&mut self, now: Instant) {
        for conn in self.streams.keep_up(now) {
            let Some(stream) = self.streams.get(conn) else { continue };
            let (number, stream_id) = (stream.circuit, stream.stream_id);
            if matches!(stream.state, State::Asking { .. }) {
                self.forget_stream(conn);
                let mut data = Vec::new();
                Resolved::TransientError.encode_into(0, &mut data);
                self.originate(number, RelayCommand::RESOLVED, stream_id, &data);
            } else {
                self.end_stream(conn, End { reason: EndReason::TIMEOUT, refused: None });
            }
        }
    }

    /// Bytes that wait in all queues and buffers.
    pub(super) const fn held_bytes(&self) -> usize {
        self.outputs.queued_cells() * CELL_LEN + self.streams.buffered_bytes()
    }

    /// Keeps what all queues and buffers hold together under its bound.
    pub(super) fn shed_excess(&mut self) {
        while self.held_bytes() > self.config.held_bytes_max && self.shed() {}
    }

    /// Drops what holds most, if all together hold too much: a circuit with its queues and streams, or
    /// a connection whose stream is over. It is what an attacker fills, or as good as dead. False if
    /// there is none.
    #[cold]
    pub(super) fn shed(&mut self) -> bool {
        let mut held: Vec<usize> = vec![0; self.circuits.numbers()];
        for (_, stream) in self.streams.iter().filter(|(_, stream)| stream.state.has_circuit()) {
            if let Some(bytes) = held.get_mut(stream.circuit as usize) {
                *bytes += stream.buffer.len();
            }
        }
        let circuit =
            self.circuits.longest(|number| held.get(number as usize).copied().unwrap_or(0));
        let draining = self.streams.longest_draining();
        match (circuit, draining) {
            (circuit, Some((conn, bytes))) if circuit.is_none_or(|(_, most)| most < bytes) => {
                self.streams.close(conn);
            }
            (Some((number, _)), _) => {
                let edge = self.circuits.get_mut(number).and_then(|circuit| circuit.edge.as_ref());
                let conns: Vec<ConnId> = edge.map(|it| it.conns().collect()).unwrap_or_default();
                for conn in conns {
                    // Before the circuit goes: its streams would drain first.
                    if self.streams.get(conn).is_some_and(|stream| stream.state.is_dialled()) {
                        self.streams.close(conn);
                    }
                }
                self.destroy(number, DestroyReason::RESOURCE_LIMIT, None);
            }
            (None, _) => return false,
        }
        true
    }
}
