//! What streams carry, and the flow control of both ends (tor-spec §6.2, §7.3, §7.4; proposals 289, 324).

use super::circuit::{Hop, Way};
use super::streams::State;
use super::{Conduct, Router};
use crate::cell::msg::{DestroyReason, End, EndReason, Sendme, Xoff, Xon};
use crate::cell::relay::{HEADER_LEN, RelayCommand, RelayMessage};
use crate::cell::{BODY_LEN, Command, begin_fixed};
use crate::flow::control::{CircuitFlow, FlowError};
use crate::flow::stream::StreamSignal;
use crate::node::ConnId;
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

/// Bytes that may wait for one destination. A client that is told to stop has no more under way, by far;
/// who goes on loses the stream.
pub(super) const STREAM_BUFFER_MAX: usize = 16 << 20;

impl<R: Rng, C: Conduct> Router<R, C> {
    /// The stream of this number on a circuit.
    #[inline]
    pub(super) fn find_stream(&self, number: u32, stream_id: u16) -> Option<ConnId> {
        self.circuits.get(number)?.edge.as_ref()?.find(stream_id)
    }

    /// Whether a circuit has a stream of this number that stands.
    pub(super) fn is_stream_open(&self, number: u32, stream_id: u16) -> bool {
        let conn = self.find_stream(number, stream_id);
        conn.and_then(|conn| self.streams.get(conn)).is_some_and(|it| it.state == State::Open)
    }

    /// Data from the client. It counts for the circuit's window whatever becomes of it.
    pub(super) fn handle_data(&mut self, number: u32, stream_id: u16, data: &[u8]) {
        let Some(edge) = self.edge_mut(number) else { return };
        if edge.flow.handle_received() {
            self.send_sendme(number);
        }
        // Of a stream that is over: some was under way when we ended it.
        let Some(conn) = self.find_stream(number, stream_id) else { return };
        let now = self.now;
        let Some(stream) = self.streams.get(conn) else { return };
        if matches!(stream.state, State::Asking { .. }) {
            return;
        }
        self.streams.buffer(conn, data);
        let Some(stream) = self.streams.get_mut(conn) else { return };
        let buffered_bytes = stream.buffer.len();
        if stream.flow.handle_delivered(now, buffered_bytes).is_err() {
            self.destroy(number, DestroyReason::PROTOCOL, None);
        } else if buffered_bytes > STREAM_BUFFER_MAX {
            self.streams.close(conn);
            self.end_stream(conn, End { reason: EndReason::RESOURCE_LIMIT, refused: None });
        } else {
            self.send_signals(conn);
        }
    }

    /// Acknowledges the cells up to the one that has come last (proposal 289).
    fn send_sendme(&mut self, number: u32) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let Hop::Relay(hop) = &circuit.hop else { return };
        let mut data = Vec::new();
        Sendme::Tagged(&hop.received_tag()).encode_into(&mut data);
        self.originate(number, RelayCommand::SENDME, 0, &data);
    }

    /// Tells the client what the stream's flow control has to say. Not before CONNECTED.
    pub(super) fn send_signals(&mut self, conn: ConnId) {
        while let Some(stream) = self.streams.get_mut(conn)
            && stream.state == State::Open
            && let Some(signal) = stream.flow.poll_signal()
        {
            let (number, stream_id) = (stream.circuit, stream.stream_id);
            let mut data = Vec::new();
            let command = match signal {
                StreamSignal::Sendme => RelayCommand::SENDME,
                StreamSignal::Xoff => {
                    Xoff.encode_into(&mut data);
                    RelayCommand::XOFF
                }
                StreamSignal::Xon(xon) => {
                    xon.encode_into(&mut data);
                    RelayCommand::XON
                }
            };
            self.originate(number, command, stream_id, &data);
        }
    }

    /// A SENDME of a circuit or of a stream.
    pub(super) fn handle_sendme(&mut self, number: u32, stream_id: u16, data: &[u8]) {
        let outcome = if stream_id == 0 {
            self.handle_circuit_sendme(number, data)
        } else {
            self.handle_stream_sendme(number, stream_id)
        };
        if outcome.is_err() {
            self.destroy(number, DestroyReason::PROTOCOL, None);
        }
    }

    fn handle_circuit_sendme(&mut self, number: u32, data: &[u8]) -> Result<(), FlowError> {
        let now = self.now;
        let Some(circuit) = self.circuits.get_mut(number) else { return Ok(()) };
        let edge = circuit.edge.as_mut().ok_or(FlowError::UnexpectedSendme)?;
        let sendme = Sendme::parse(data).map_err(|_| FlowError::WrongTag)?;
        // Who proves nothing is nobody's client any more: tor has had tags since 0.4.1.
        edge.tags.handle_sendme(&sendme, false)?;
        let had_room = edge.flow.room_cells() > 0;
        edge.flow.handle_sendme(now, edge.path(circuit.back_queue.len()))?;
        if !had_room && edge.flow.room_cells() > 0 {
            self.wake_streams(number);
        }
        Ok(())
    }

    fn handle_stream_sendme(&mut self, number: u32, stream_id: u16) -> Result<(), FlowError> {
        let Some(conn) = self.find_stream(number, stream_id) else { return Ok(()) };
        let stream = self.streams.get_mut(conn).filter(|stream| stream.state == State::Open);
        // C tor drops it before the stream stands.
        let Some(stream) = stream else { return Ok(()) };
        stream.flow.handle_sendme()?;
        self.wake_stream(conn);
        Ok(())
    }

    /// XOFF and XON. What does not belong here is ignored, as in C tor.
    pub(super) fn handle_xon_xoff(
        &mut self,
        number: u32,
        stream_id: u16,
        command: RelayCommand,
        data: &[u8],
    ) {
        let now = self.now;
        let Some(conn) = self.find_stream(number, stream_id) else { return };
        let stream = self.streams.get_mut(conn).filter(|stream| stream.state == State::Open);
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

    /// A stream's flow control has changed: it may be read again, or not any more.
    fn wake_stream(&mut self, conn: ConnId) {
        let could_be_read = self.streams.get(conn).is_some_and(|stream| stream.room_bytes > 0);
        if self.streams.update_room(self.now, conn) && !could_be_read {
            self.streams.wake_reading(conn);
        }
    }

    /// A circuit has room again: its streams may be read, each in its turn.
    pub(super) fn wake_streams(&mut self, number: u32) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let Some(edge) = &circuit.edge else { return };
        for conn in edge.wake().iter() {
            if self.streams.get(conn).is_some_and(|stream| stream.room_bytes > 0) {
                self.streams.wake_reading(conn);
            }
        }
    }

    /// Queues to links have become short enough for the streams that wait for it.
    pub(super) fn wake_unblocked(&mut self) {
        while let Some(number) = self.outputs.poll_drained() {
            let edge = self.circuits.get_mut(number).and_then(|circuit| circuit.edge.as_mut());
            if edge.is_some_and(|edge| edge.handle_unblocked()) {
                self.wake_streams(number);
            }
        }
    }

    /// How many bytes a destination may send now.
    pub(super) fn stream_limit(&self, conn: ConnId) -> Option<usize> {
        let stream = self.streams.get(conn)?;
        if stream.state != State::Open {
            return Some(0);
        }
        let circuit = self.circuits.get(stream.circuit)?;
        let edge = circuit.edge.as_ref()?;
        Some(edge.room_bytes(circuit.back_queue.len(), stream.room_bytes))
    }

    /// Bytes from a destination: they are on their way to the client at once.
    pub(super) fn package(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        if bytes.len() > self.stream_limit(conn).unwrap_or(0) {
            // The shell breaks its contract. To drop some would corrupt the stream.
            if self.streams.get(conn).is_some_and(|stream| stream.state == State::Open) {
                self.streams.close(conn);
                self.end_stream(conn, End { reason: EndReason::INTERNAL, refused: None });
            }
            return;
        }
        while !bytes.is_empty() {
            let Some(stream) = self.streams.get_mut(conn) else { return };
            let (number, stream_id) = (stream.circuit, stream.stream_id);
            let Some(circuit) = self.circuits.get_mut(number) else { return };
            let (Hop::Relay(hop), Some(edge)) = (&mut circuit.hop, &mut circuit.edge) else {
                return;
            };
            let filling = edge.fill(bytes.len());
            let (data, rest) = bytes.split_at(filling.data_len);
            bytes = rest;

            let queue = &mut circuit.back_queue;
            let was_empty = (queue.len() == 0).then_some(queue.recent);
            let slot = begin_fixed(queue.push(), circuit.back.circ_id, Command::RELAY);
            let Ok(body) = <&mut [u8; BODY_LEN]>::try_from(slot) else { return };
            let message = RelayMessage { command: RelayCommand::DATA, stream_id, data };
            message.write_into(body).unwrap_or_default();
            if let Some((begin, end)) = filling.random {
                self.rng.fill_bytes(&mut body[HEADER_LEN + begin..HEADER_LEN + end]);
            }
            hop.originate(body);

            if edge.flow.handle_sent(now) {
                edge.tags.expect(hop.sent_tag());
            }
            stream.flow.handle_packaged(filling.data_len as u64);
            if let Some(cells) = edge.handle_packaged(stream_id, circuit.back_queue.len()) {
                circuit.back_queue.watch(cells);
            }
            self.outputs.handle_queued(circuit.back.conn, number, Way::Back, was_empty);
        }
        self.streams.update_room(now, conn);
    }

    /// Fills `out` with bytes for a destination.
    pub(super) fn transmit_stream(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        self.now = now;
        let (taken, left) = self.streams.unbuffer(now, conn, out);
        let Some(stream) = self.streams.get_mut(conn).filter(|_| taken > 0) else { return taken };
        if stream.state == State::Draining {
            if left == 0 {
                self.streams.close(conn);
            }
        } else {
            stream.flow.handle_drained(now, taken, left);
            self.send_signals(conn);
        }
        taken
    }
}
