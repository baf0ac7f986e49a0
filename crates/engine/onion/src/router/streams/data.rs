//! Stream data, and the flow control of both ends (tor-spec §6.2, §7.3, §7.4; proposals 289, 324).

use super::State;
use crate::cell::msg::{DestroyReason, End as StreamEnd, EndReason, Sendme, Xoff, Xon};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{Body, CellModel, Layer, Message, PayloadSlice, Salt, StreamId};
use crate::flow::control::FlowError;
use crate::node::ConnId;
use crate::router::circuits::{CircuitIndex, Hop, QueueId};
use crate::router::{Behavior, Core};
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

/// Maximum number of bytes buffered for one destination. A client that obeys XOFF has far less in flight; one
/// that does not loses the stream.
const STREAM_BUFFER_MAX: usize = 16 << 20;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// The stream with this ID on a circuit.
    #[inline]
    pub(crate) fn find_stream(&self, index: CircuitIndex, stream_id: StreamId) -> Option<ConnId> {
        self.tunnel_of(index)?.find(stream_id)
    }

    /// Whether a circuit has an open stream with this ID.
    pub(crate) fn is_stream_open(&self, index: CircuitIndex, stream_id: StreamId) -> bool {
        let conn = self.find_stream(index, stream_id);
        conn.and_then(|conn| self.conns.stream(conn))
            .is_some_and(|stream| stream.state == State::Open)
    }

    /// Counts a DATA cell for the circuit's window, whatever becomes of its data.
    pub(crate) fn count_data(&mut self, index: CircuitIndex) {
        let Some(end) = self.end_mut(index) else { return };
        if end.leg.flow.handle_received() {
            self.send_sendme(index);
        }
    }

    /// Handles the next data of a stream in order.
    pub(crate) fn handle_data(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        data: S::PayloadSlice<'_>,
    ) {
        // The stream is closed: data was in flight when this relay ended it.
        let Some(conn) = self.find_stream(index, stream_id) else { return };
        let now = self.outputs.now();
        let Some(stream) = self.conns.stream(conn) else { return };
        if matches!(stream.state, State::Asking { .. }) {
            return;
        }
        let buffered_bytes = self.streams.buffer(now, &mut self.conns, conn, data);
        let Some(stream) = self.conns.stream_mut(conn) else { return };
        if stream.flow.handle_delivered(now, buffered_bytes).is_err() {
            self.destroy(index, DestroyReason::PROTOCOL, None);
        } else if buffered_bytes > STREAM_BUFFER_MAX {
            let end = StreamEnd::of(EndReason::RESOURCE_LIMIT);
            self.cut_stream(conn, end);
        } else {
            self.send_signals(conn);
        }
    }

    /// Sends a SENDME for the cells up to the last received one (proposal 289).
    fn send_sendme(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let Hop::Relay(layer) = &circuit.hop else { return };
        let mut data = Vec::new();
        Sendme::Tagged(layer.received_tag().as_bytes()).encode_into(&mut data);
        self.originate(index, RelayCommand::SENDME, StreamId::CIRCUIT, &data);
    }

    /// Sends the flow control messages of a stream. Not before CONNECTED.
    pub(crate) fn send_signals(&mut self, conn: ConnId) {
        while let Some(stream) = self.conns.stream_mut(conn)
            && stream.state == State::Open
            && let Some(signal) = stream.flow.poll_signal()
        {
            let (command, data) = signal.encode();
            let Some((index, stream_id)) = self.circuit_of(conn) else { return };
            self.originate(index, command, stream_id, &data);
        }
    }

    /// Handles SENDME of a circuit or a stream.
    pub(crate) fn handle_sendme(&mut self, index: CircuitIndex, stream_id: StreamId, data: &[u8]) {
        let outcome = if stream_id == StreamId::CIRCUIT {
            self.handle_circuit_sendme(index, data)
        } else {
            self.handle_stream_sendme(index, stream_id)
        };
        if outcome.is_err() {
            self.destroy(index, DestroyReason::PROTOCOL, None);
        }
    }

    fn handle_circuit_sendme(&mut self, index: CircuitIndex, data: &[u8]) -> Result<(), FlowError> {
        let now = self.outputs.now();
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        let end = circuit.end.as_mut().ok_or(FlowError::UnexpectedSendme)?;
        let sendme = Sendme::parse(data).map_err(|_| FlowError::WrongTag)?;
        let had_room = end.leg.flow.room_cells() > 0;
        let path = end.leg.path(circuit.backward_queue.len());
        end.leg.flow.handle_sendme(now, &sendme, path)?;
        let (has_room, is_linked) = (end.leg.flow.room_cells() > 0, end.is_linked);
        if is_linked {
            self.handle_leg_acknowledged(index);
        }
        // On a set, the scheduler may choose another leg next.
        if has_room && (!had_room || is_linked) {
            self.wake_streams(index);
        }
        Ok(())
    }

    fn handle_stream_sendme(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
    ) -> Result<(), FlowError> {
        let Some(conn) = self.find_stream(index, stream_id) else { return Ok(()) };
        let stream = self.conns.stream_mut(conn).filter(|stream| stream.state == State::Open);
        // C tor drops it before the stream is open.
        let Some(stream) = stream else { return Ok(()) };
        stream.flow.handle_sendme()?;
        self.wake_stream(conn);
        Ok(())
    }

    /// Handles XOFF and XON. Invalid ones are ignored, as in C tor.
    pub(crate) fn handle_xon_xoff(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        command: RelayCommand,
        data: &[u8],
    ) {
        let now = self.outputs.now();
        let Some(conn) = self.find_stream(index, stream_id) else { return };
        let stream = self.conns.stream_mut(conn).filter(|stream| stream.state == State::Open);
        let Some(stream) = stream else { return };
        let outcome = if command == RelayCommand::XOFF {
            Xoff::parse(data).is_ok_and(|_| stream.flow.handle_xoff().is_ok())
        } else {
            Xon::parse(data).is_ok_and(|xon| stream.flow.handle_xon(now, xon).is_ok())
        };
        if outcome {
            self.wake_stream(conn);
        }
    }

    /// A stream's flow control has changed: reading may start or stop.
    fn wake_stream(&mut self, conn: ConnId) {
        let now = self.outputs.now();
        let could_be_read = self.conns.stream(conn).is_some_and(|stream| stream.room_bytes > 0);
        if self.streams.update_room(&mut self.conns, now, conn) && !could_be_read {
            self.streams.wake_reading(&mut self.conns, conn);
        }
    }

    /// A circuit has space again: its streams may be read, round-robin.
    pub(crate) fn wake_streams(&mut self, index: CircuitIndex) {
        let end = self.circuits.get(index).and_then(|circuit| circuit.end.as_ref());
        let Some(tunnel) = end.and_then(|end| self.tunnels.get(end.tunnel)) else { return };
        for conn in tunnel.streams.in_turn() {
            if self.conns.stream(conn).is_some_and(|stream| stream.room_bytes > 0) {
                self.streams.wake_reading(&mut self.conns, conn);
            }
        }
    }

    /// Wakes the streams of circuits whose queues have become short enough.
    pub(crate) fn wake_unblocked(&mut self) {
        while let Some(index) = self.outputs.poll_drained() {
            let end = self.circuits.get_mut(index).and_then(|circuit| circuit.end.as_mut());
            if end.is_some_and(|end| end.leg.handle_unblocked()) {
                self.resend(index);
                self.wake_streams(index);
            }
        }
    }

    /// The number of bytes that a destination may send now.
    pub(crate) fn stream_limit(&self, conn: ConnId) -> Option<usize> {
        let stream = self.conns.stream(conn)?;
        if stream.state != State::Open {
            return Some(0);
        }
        let Some(index) = self.leg_for_data(stream.tunnel) else { return Some(0) };
        let circuit = self.circuits.get(index)?;
        let end = circuit.end.as_ref()?;
        Some(end.leg.room_bytes(circuit.backward_queue.len(), stream.room_bytes))
    }

    /// Handles data from a destination: it is queued for the client at once.
    pub fn handle_stream_data(
        &mut self,
        now: Instant,
        conn: ConnId,
        mut data: S::PayloadSlice<'_>,
    ) {
        self.outputs.set_now(now);
        if data.len() > self.stream_limit(conn).unwrap_or(0) {
            // The shell violates its contract. Dropping data would corrupt the stream.
            if self.conns.stream(conn).is_some_and(|stream| stream.state == State::Open) {
                self.cut_stream(conn, StreamEnd::of(EndReason::INTERNAL));
            }
            return;
        }
        let leg = self.conns.stream(conn).and_then(|stream| self.leg_for_data(stream.tunnel));
        let Some(leg) = leg else { return };
        while !data.is_empty() {
            match self.package(now, conn, leg, data) {
                Some(rest) => data = rest,
                None => return,
            }
        }
        self.streams.update_room(&mut self.conns, now, conn);
        self.handle_oom();
    }

    /// Fills a cell of a circuit with a stream's data, and returns the rest.
    fn package<'a>(
        &mut self,
        now: Instant,
        conn: ConnId,
        index: CircuitIndex,
        data: S::PayloadSlice<'a>,
    ) -> Option<S::PayloadSlice<'a>> {
        let tunnel = self.conns.stream(conn)?.tunnel;
        let is_set = self.tunnels.get(tunnel)?.is_set;
        if is_set {
            self.begin_message(tunnel, index);
        }
        let is_kept = is_set && self.sets.resumes(tunnel);
        let stream = self.conns.stream_mut(conn)?;
        let tunnel = self.tunnels.get_mut(stream.tunnel)?;
        let circuit = self.circuits.get_mut(index)?;
        let (Hop::Relay(layer), Some(end)) = (&mut circuit.hop, &mut circuit.end) else {
            return None;
        };
        let filling = end.leg.fill(data.len());
        let (data, rest) = data.split_at(filling.data_len);

        let stream_id = stream.stream_id;
        stream.flow.handle_packaged(filling.data_len as u64);
        tunnel.streams.handle_served(stream_id);
        let (id, queue) = (QueueId::backward(index), &mut circuit.backward_queue);
        let message = Message { command: RelayCommand::DATA, stream_id, data };
        let format = layer.format();
        let mut copy = None;
        self.outputs.enqueue(&mut self.conns, circuit.back, id, queue, |body| {
            let written = body.write(format, &message);
            debug_assert!(written.is_ok(), "a cell was to be filled with more than fits");
            if let Some(at) = filling.salt_at {
                let mut salt = Salt::default();
                self.rng.fill_bytes(&mut salt);
                body.salt(format, at, &salt);
            }
            copy = is_kept.then(|| body.clone());
            layer.originate(body);
            true
        });

        let is_marked = end.leg.flow.handle_sent(now, || layer.sent_tag());
        if let Some(cells) = end.leg.handle_packaged(queue.len()) {
            queue.watch(cells);
        }
        if let Some(body) = copy {
            self.keep(index, format, &body, is_marked);
        }
        Some(rest)
    }

    /// Moves data for a destination into `room`; returns the number of bytes of the stream.
    #[must_use]
    pub fn poll_stream_data(&mut self, now: Instant, conn: ConnId, room: S::Room<'_>) -> usize {
        self.outputs.set_now(now);
        let (taken, left) = self.streams.unbuffer(now, &mut self.conns, conn, room);
        let Some(stream) = self.conns.stream_mut(conn).filter(|_| taken > 0) else { return taken };
        if stream.state == State::Draining {
            if left == 0 {
                self.streams.close(&mut self.conns, conn);
            }
        } else {
            stream.flow.handle_drained(now, taken, left);
            self.send_signals(conn);
        }
        taken
    }
}
