//! Handling of received cells.

use super::application::Application;
use super::circuit::{Circuit, Passage, Stage};
use super::core::Core;
use super::event::{CircuitNumber, ClientEvent, Loss, Outcome, StreamNumber};
use super::streams::Stream;
use crate::cell::msg::{DestroyReason, End, EndReason, Sendme, Xon};
use crate::cell::relay::RelayCommand;
use crate::cell::{CircId, Command};
use crate::cell_model::{Body, CellModel, Layers, Message, PayloadSlice, StreamId};
use crate::circuit::{CircuitError, Step};
use crate::node::ConnId;
use crate::time::Instant;
use crate::tunnel::conflux::ConfluxError;
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Handles a cell of an open link.
    pub fn handle_cell(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &S::Body,
    ) {
        self.now = now;
        let Some(link) = self.links.get(&conn) else { return };
        let has_feedback = link.has_feedback;
        // Cells of circuits that are gone, and cells that concern the link itself, are ignored.
        let Some(number) = link.circuits.get(&circ_id).copied() else { return };
        let passage = self.passages.get(&number);
        let place = passage
            .and_then(|passage| passage.place(conn, circ_id).map(|at| (at, passage.legs[at].leg)));
        let Some((place, leg)) = place else { return };
        if has_feedback && command == Command::RELAY {
            self.note_received(number, place);
        }
        if let Err(cause) = self.handle_circuit_cell(number, place, command, body) {
            if command != Command::DESTROY {
                self.send(conn, circ_id, Command::DESTROY, &[DestroyReason::PROTOCOL.get()]);
            }
            self.lose_leg(number, leg, cause);
        }
        // Windows may have opened.
        self.wake(conn);
    }

    fn handle_circuit_cell(
        &mut self,
        number: CircuitNumber,
        place: usize,
        command: Command,
        body: &S::Body,
    ) -> Result<(), Loss> {
        let Some(Passage { legs, .. }) = self.passages.get_mut(&number) else { return Ok(()) };
        let Some(circuit) = legs.get_mut(place) else { return Ok(()) };
        let (conn, circ_id) = (circuit.conn, circuit.circ_id);
        match &mut circuit.stage {
            Stage::Building(builder) => {
                match builder.handle_cell(command, body).map_err(Loss::Circuit)? {
                    Step::Send { command, body } => {
                        circuit.hop_times.push(self.now - circuit.began_at);
                        self.send_body(conn, circ_id, command, body);
                    }
                    Step::Built => return self.finish(number, place),
                }
                Ok(())
            }
            Stage::Up(_) if command == Command::RELAY => self.handle_relay(number, place, body),
            Stage::Up(_) if command == Command::DESTROY => {
                let reason = DestroyReason::parse(body.bytes());
                Err(Loss::Circuit(CircuitError::Destroyed(reason)))
            }
            Stage::Up(_) => Err(Loss::Circuit(CircuitError::Unexpected(command))),
        }
    }

    fn handle_relay(
        &mut self,
        number: CircuitNumber,
        place: usize,
        body: &S::Body,
    ) -> Result<(), Loss> {
        let Some(Passage { legs, streams, set }) = self.passages.get_mut(&number) else {
            return Ok(());
        };
        let (is_set, circuit) = (set.is_some(), legs.get_mut(place));
        let leg = circuit.as_ref().map_or(0, |circuit| circuit.leg);
        let Some(up) = circuit.and_then(Circuit::up_mut) else { return Ok(()) };
        let lost = |error| Loss::Circuit(error);
        let mut plain = body.clone();
        let from = up.layers.open(&mut plain).map_err(|error| lost(CircuitError::Crypt(error)))?;
        let (format, last) = (up.layers.format(from), up.last);
        let is_last = from == last;
        let message =
            plain.message(format).map_err(|error| lost(CircuitError::Malformed(error)))?;
        let stream = streams.tunnel.find(message.stream_id);
        let is_data = message.command == RelayCommand::DATA && is_last;
        if is_data && up.leg.flow.handle_received() {
            let tag = up.layers.received_tag(from);
            self.queue_sendme(number, leg, tag.as_bytes());
        }
        let is_of_set = message.command.is_multiplexed() || message.command.is_of_conflux();
        match message.command {
            RelayCommand::SENDME if message.stream_id == StreamId::CIRCUIT => {
                self.handle_sendme(number, place, message.data.bytes())
            }
            RelayCommand::TRUNCATED => {
                let reason = DestroyReason::parse(message.data.bytes());
                Err(lost(CircuitError::Truncated(reason)))
            }
            // A message from another hop would be an injection by a relay on the path.
            _ if is_set && is_of_set && !is_last => Err(ConfluxError::Misplaced.into()),
            _ if is_set && is_of_set => {
                self.handle_set_message(number, leg, format, &plain, &message)
            }
            command if command.is_of_conflux() => Err(ConfluxError::Handshake.into()),
            _ => match stream {
                // A hop has no authority over streams at another hop.
                Some(stream) if self.hop_of(stream).unwrap_or(last) == from => {
                    self.handle_stream(stream, &message)
                }
                // Messages for a closed stream may still be in flight; DROP is padding.
                _ => Ok(()),
            },
        }
    }

    /// The hop of a stream; `None` for the last one.
    fn hop_of(&self, stream: StreamNumber) -> Option<usize> {
        self.streams.get(&stream).and_then(|stream| stream.hop)
    }

    /// Handles the next multiplexed message in order.
    pub(super) fn handle_stream_message(
        &mut self,
        number: CircuitNumber,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Result<(), Loss> {
        let passage = self.passages.get(&number);
        match passage.and_then(|passage| passage.streams.tunnel.find(message.stream_id)) {
            Some(stream) => self.handle_stream(stream, message),
            None => Ok(()),
        }
    }

    /// Handles a circuit-level SENDME.
    fn handle_sendme(
        &mut self,
        number: CircuitNumber,
        place: usize,
        data: &[u8],
    ) -> Result<(), Loss> {
        let Some(Passage { legs, .. }) = self.passages.get_mut(&number) else { return Ok(()) };
        let Some(up) = legs.get_mut(place).and_then(Circuit::up_mut) else { return Ok(()) };
        let sendme = Sendme::parse(data);
        let sendme = sendme.map_err(|error| Loss::Circuit(CircuitError::Malformed(error)))?;
        // Data is packaged when it can be sent: it is not queued.
        let path = up.leg.path(0);
        up.leg.flow.handle_sendme(self.now, &sendme, path).map_err(Loss::Flow)?;
        self.handle_leg_acknowledged(number, place);
        Ok(())
    }

    fn handle_stream(
        &mut self,
        number: StreamNumber,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Result<(), Loss> {
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        let data = message.data;
        if stream.is_lookup() {
            self.handle_lookup(number, message.command, data.bytes());
            return Ok(());
        }
        let outcome = match (message.command, &mut stream.flow) {
            (RelayCommand::CONNECTED, _) if !stream.is_connected => {
                stream.connect::<S>(now);
                if stream.hop.is_none()
                    && let Some(Passage { streams, .. }) = self.passages.get_mut(&stream.circuit)
                {
                    streams.sending.push_back(number);
                }
                None
            }
            // Data for a stream that is not open belongs to nobody.
            (RelayCommand::DATA, _) if stream.is_connected => {
                self.received_bytes += data.len() as u64;
                stream.receive::<S>(now, data).map_err(Loss::Flow)?
            }
            (RelayCommand::END, _) => Some(Outcome::Ended(End::parse(data.bytes()).reason)),
            (RelayCommand::SENDME, Some(flow)) => {
                flow.handle_sendme().map_err(Loss::Flow)?;
                None
            }
            // As in C tor, other messages are ignored.
            (RelayCommand::XOFF, Some(flow)) => {
                let _ = flow.handle_xoff();
                None
            }
            (RelayCommand::XON, Some(flow)) => {
                if let Ok(xon) = Xon::parse(data.bytes()) {
                    let _ = flow.handle_xon(now, xon);
                }
                None
            }
            _ => None,
        };
        self.signal(number);
        if let Some(outcome) = outcome {
            self.finish_stream(number, outcome);
        }
        Ok(())
    }

    /// A RESOLVE is answered or ended. Other messages are ignored.
    fn handle_lookup(&mut self, number: StreamNumber, command: RelayCommand, data: &[u8]) {
        if command == RelayCommand::END {
            self.finish_stream(number, Outcome::Ended(End::parse(data).reason));
        } else if command == RelayCommand::RESOLVED {
            if let Some(stream) = self.streams.get_mut(&number) {
                stream.application_mut().handle_answer(data);
            }
            self.finish_stream(number, Outcome::Complete);
        }
    }

    fn finish_stream(&mut self, number: StreamNumber, outcome: Outcome) {
        let Some(figures) =
            self.streams.get_mut(&number).map(|stream| stream.last_figures(self.now))
        else {
            return;
        };
        // The answer closes the stream on both sides.
        let is_lookup = self.streams.get(&number).is_some_and(Stream::is_lookup);
        if is_lookup || matches!(outcome, Outcome::Ended(_)) {
            self.forget_stream(number);
        } else {
            self.end_with(number, EndReason::DONE);
        }
        self.report(ClientEvent::Over { stream: number, outcome, figures });
    }

    /// Sends the flow control messages of a stream.
    pub(super) fn signal(&mut self, number: StreamNumber) {
        while let Some(stream) = self.streams.get_mut(&number) {
            let Some(signal) = stream.poll_signal() else { return };
            let (circuit, hop, id) = (stream.circuit, stream.hop, stream.id);
            let (command, data) = signal.encode();
            self.queue_message_to(circuit, hop, command, id, &data);
        }
    }
}
