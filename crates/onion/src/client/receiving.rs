//! What comes on circuits.

use super::application::Application;
use super::circuit::{Passage, Stage};
use super::core::Core;
use super::event::{CircuitNumber, ClientEvent, Loss, Outcome, StreamNumber};
use super::streams::Stream;
use crate::cell::msg::{DestroyReason, End, EndReason, Sendme, Xon};
use crate::cell::relay::RelayCommand;
use crate::cell::{CircId, Command};
use crate::circuit::{CircuitError, Step};
use crate::node::ConnId;
use crate::suite::{Body, Layers, Message, StreamId, Stretch, Suite};
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: Suite, A: Application<S>, R: Rng> Core<S, A, R> {
    /// A cell has come on a link that is open.
    pub fn handle_cell(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &S::Body,
    ) {
        self.now = now;
        let number = self.links.get(&conn).and_then(|link| link.circuits.get(&circ_id)).copied();
        // Not those of circuits that are gone, nor those that concern the link itself.
        let Some(number) = number else { return };
        if let Err(cause) = self.handle_circuit_cell(number, command, body) {
            if command != Command::DESTROY {
                self.send(conn, circ_id, Command::DESTROY, &[DestroyReason::PROTOCOL.get()]);
            }
            self.lose_circuit(number, cause);
        }
        // Windows may be open again.
        self.wake(conn);
    }

    fn handle_circuit_cell(
        &mut self,
        number: CircuitNumber,
        command: Command,
        body: &S::Body,
    ) -> Result<(), Loss> {
        let Some(Passage { circuit, .. }) = self.passages.get_mut(&number) else { return Ok(()) };
        let (conn, circ_id) = (circuit.conn, circuit.circ_id);
        match &mut circuit.stage {
            Stage::Building(builder) => {
                match builder.handle_cell(command, body).map_err(Loss::Circuit)? {
                    Step::Send { command, body } => {
                        circuit.hop_times.push(self.now - circuit.began_at);
                        self.send_body(conn, circ_id, command, body);
                    }
                    Step::Built => {
                        self.finish(number);
                        self.begin_waiting(number);
                    }
                }
                Ok(())
            }
            Stage::Up(_) if command == Command::RELAY => self.handle_relay(number, body),
            Stage::Up(_) if command == Command::DESTROY => {
                let reason = DestroyReason::parse(body.bytes());
                Err(Loss::Circuit(CircuitError::Destroyed(reason)))
            }
            Stage::Up(_) => Err(Loss::Circuit(CircuitError::Unexpected(command))),
        }
    }

    fn handle_relay(&mut self, number: CircuitNumber, body: &S::Body) -> Result<(), Loss> {
        let Some(Passage { circuit, streams }) = self.passages.get_mut(&number) else {
            return Ok(());
        };
        let Some(up) = circuit.up() else { return Ok(()) };
        let lost = |error| Loss::Circuit(error);
        let mut plain = body.clone();
        let from = up.layers.open(&mut plain).map_err(|it| lost(CircuitError::Crypt(it)))?;
        let message = plain
            .message(up.layers.format(from))
            .map_err(|it| lost(CircuitError::Malformed(it)))?;
        // A hop has no say on streams that are at another.
        let is_there = |it: &StreamNumber| {
            self.streams.get(it).is_some_and(|it| it.hop.unwrap_or(up.last) == from)
        };
        let stream = streams.tunnel.find(message.stream_id).filter(is_there);
        let is_data = message.command == RelayCommand::DATA && from == up.last;
        if is_data && up.leg.flow.handle_received() {
            let tag = up.layers.received_tag(from);
            let mut data = Vec::new();
            Sendme::Tagged(tag.as_bytes()).encode_into(&mut data);
            self.say(number, RelayCommand::SENDME, StreamId::CIRCUIT, &data);
        }
        match (message.command, stream) {
            (RelayCommand::SENDME, _) if message.stream_id == StreamId::CIRCUIT => {
                self.handle_sendme(number, message.data.bytes())
            }
            (RelayCommand::TRUNCATED, _) => {
                let reason = DestroyReason::parse(message.data.bytes());
                Err(lost(CircuitError::Truncated(reason)))
            }
            (_, Some(stream)) => self.handle_stream(stream, &message),
            // What is for a stream that is over may still be under way; DROP is padding.
            (_, None) => Ok(()),
        }
    }

    /// The last hop acknowledges cells of the circuit.
    fn handle_sendme(&mut self, number: CircuitNumber, data: &[u8]) -> Result<(), Loss> {
        let Some(Passage { circuit, .. }) = self.passages.get_mut(&number) else { return Ok(()) };
        let Some(up) = circuit.up() else { return Ok(()) };
        let sendme = Sendme::parse(data);
        let sendme = sendme.map_err(|it| Loss::Circuit(CircuitError::Malformed(it)))?;
        // Data is packaged when it can leave: it waits nowhere.
        let path = up.leg.path(0);
        up.leg.flow.handle_sendme(self.now, &sendme, path).map_err(Loss::Flow)
    }

    fn handle_stream(
        &mut self,
        number: StreamNumber,
        message: &Message<S::Stretch<'_>>,
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
            (RelayCommand::DATA, _) => {
                self.received_bytes += data.len() as u64;
                stream.receive::<S>(now, data).map_err(Loss::Flow)?
            }
            (RelayCommand::END, _) => Some(Outcome::Ended(End::parse(data.bytes()).reason)),
            (RelayCommand::SENDME, Some(flow)) => {
                flow.handle_sendme().map_err(Loss::Flow)?;
                None
            }
            // As tor: what makes no sense here is passed over.
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

    /// A question is answered or ended; anything else makes no sense and is passed over.
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
        let Some(figures) = self.streams.get_mut(&number).map(|it| it.last_figures(self.now))
        else {
            return;
        };
        // An answer is the end of a question, on both sides.
        let is_lookup = self.streams.get(&number).is_some_and(Stream::is_lookup);
        if is_lookup || matches!(outcome, Outcome::Ended(_)) {
            self.forget_stream(number);
        } else {
            self.end_with(number, EndReason::DONE);
        }
        self.tell(ClientEvent::Over { stream: number, outcome, figures });
    }

    /// Sends what the flow control of a stream has to say.
    pub(super) fn signal(&mut self, number: StreamNumber) {
        while let Some(stream) = self.streams.get_mut(&number) {
            let Some(signal) = stream.poll_signal() else { return };
            let (circuit, hop, id) = (stream.circuit, stream.hop, stream.id);
            let (command, data) = signal.encode();
            self.say_to(circuit, hop, command, id, &data);
        }
    }
}
