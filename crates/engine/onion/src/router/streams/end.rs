//! Closing streams (tor-spec §6.3).
//!
//! As in C tor there are no half-closed streams: when either side ends a stream, it is closed. Data that the
//! client has sent before its END is still written to the destination; data after this relay's END is ignored,
//! but counts for the circuit's window.

use super::State;
use super::lookup::ANSWER_TTL_S;
use crate::cell::msg::{End as StreamEnd, EndReason, Resolved};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, StreamId};
use crate::node::{CloseCause, ConnId};
use crate::router::circuits::{CircuitIndex, TunnelIndex};
use crate::router::{Behavior, Core};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    pub(super) fn send_end(&mut self, index: CircuitIndex, stream_id: StreamId, end: StreamEnd) {
        let mut data = Vec::new();
        end.encode_into(&mut data);
        self.originate(index, RelayCommand::END, stream_id, &data);
    }

    /// Ends a stream from this side.
    pub(super) fn end_stream(&mut self, conn: ConnId, end: StreamEnd) {
        let Some((index, stream_id)) = self.circuit_of(conn) else { return };
        self.forget_stream(conn);
        self.send_end(index, stream_id, end);
    }

    /// Ends a stream from this side, and drops data that its destination has not accepted.
    pub(super) fn cut_stream(&mut self, conn: ConnId, end: StreamEnd) {
        let Some((index, stream_id)) = self.circuit_of(conn) else { return };
        self.forget_stream(conn);
        self.streams.close(&mut self.conns, conn);
        self.send_end(index, stream_id, end);
    }

    /// Handles END.
    pub(crate) fn handle_end(&mut self, index: CircuitIndex, stream_id: StreamId) {
        if let Some(conn) = self.find_stream(index, stream_id) {
            self.forget_stream(conn);
        }
    }

    /// Removes a stream from its tunnel. Its connection lives until everything is written.
    pub(super) fn forget_stream(&mut self, conn: ConnId) {
        let Some(stream) = self.conns.stream(conn) else { return };
        let (kind, index, stream_id) = (stream.kind, stream.tunnel, stream.stream_id);
        if stream.state.has_circuit()
            && let Some(tunnel) = self.tunnels.get_mut(index)
        {
            tunnel.streams.remove(stream_id);
            self.streams.handle_over(kind, index, conn);
        }
        self.streams.finish(&mut self.conns, self.outputs.now(), conn);
    }

    /// The last circuit of a tunnel is gone, and its streams with it.
    pub(crate) fn end_tunnel(&mut self, index: TunnelIndex) {
        let Some(tunnel) = self.tunnels.remove(index) else { return };
        self.streams.handle_tunnel_over(index);
        for conn in tunnel.streams.iter() {
            self.streams.finish(&mut self.conns, self.outputs.now(), conn);
        }
    }

    /// The connection to a destination was closed or could not be established.
    pub(crate) fn handle_stream_closed(&mut self, conn: ConnId, cause: &CloseCause) {
        let Some(stream) = self.conns.stream(conn) else { return };
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
            self.end_stream(conn, StreamEnd::of(reason));
        }
        // The shell has closed it: nothing is left to do.
        self.streams.remove(&mut self.conns, conn);
    }

    /// Periodic upkeep of all streams.
    pub(crate) fn expire_streams(&mut self) {
        for conn in self.streams.expire(&mut self.conns, self.outputs.now()) {
            let Some(stream) = self.conns.stream(conn) else { continue };
            let is_asking = matches!(stream.state, State::Asking { .. });
            let Some((index, stream_id)) = self.circuit_of(conn) else { continue };
            if is_asking {
                self.forget_stream(conn);
                let mut data = Vec::new();
                Resolved::TransientError.encode_into(ANSWER_TTL_S, &mut data);
                self.originate(index, RelayCommand::RESOLVED, stream_id, &data);
            } else {
                self.end_stream(conn, StreamEnd::of(EndReason::TIMEOUT));
            }
        }
    }
}
