//! The way of a cell into the relay: from its link into the queue of its circuit, or to us.

use super::circuits::{CircuitIndex, Direction, Hop, NextLink, OnLink};
use super::links::Role;
use super::{Behavior, Core, ForwardAction};
use crate::cell::msg::{CircuitPadding, DestroyReason};
use crate::cell::relay::RelayCommand;
use crate::cell::{CELL_LEN, CircId, Command};
use crate::cell_model::{Body, Cell, CellModel, Layer, Message, PayloadSlice, StreamId};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

/// RELAY_EARLY cells that a circuit may bring (tor-spec §5.6).
const EARLY_CELLS_MAX: u8 = 8;

/// Why a link is to be closed.
pub(super) type Violation = &'static str;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// A cell of fixed length has come on an open link. False if the link is ours no more: nothing that it
    /// brings is to be handed over.
    #[inline]
    pub fn handle_cell(
        &mut self,
        now: Instant,
        conn: ConnId,
        (circ_id, command): (CircId, Command),
        body: &S::Body,
    ) -> bool {
        self.outputs.set_now(now);
        // By far the most frequent.
        let outcome = if command == Command::RELAY || command == Command::RELAY_EARLY {
            self.handle_relay_cell(OnLink { conn, circ_id }, command, body)
        } else {
            self.handle_rare_cell(OnLink { conn, circ_id }, command, body)
        };
        self.handle_oom();
        let Err(problem) = outcome else { return self.conns.link(conn).is_some() };
        self.handle_violation(now, conn, problem);
        false
    }

    #[inline]
    fn handle_relay_cell(
        &mut self,
        at: OnLink,
        command: Command,
        body: &S::Body,
    ) -> Result<(), Violation> {
        let found = self.conns.link_mut(at.conn).and_then(|link| {
            link.received_cells += 1;
            link.circuits.find(at.circ_id)
        });
        match found {
            Some((index, Direction::Forward)) => return self.relay_forward(index, command, body),
            Some((index, Direction::Backward)) if command == Command::RELAY => {
                self.relay_backward(index, body)
            }
            // It would tell the client's side more than a relay may (tor-spec §5.6).
            Some((index, Direction::Backward)) => {
                self.destroy(index, DestroyReason::PROTOCOL, None)
            }
            None => {} // of a circuit that is gone
        }
        Ok(())
    }

    fn handle_rare_cell(
        &mut self,
        at: OnLink,
        command: Command,
        body: &S::Body,
    ) -> Result<(), Violation> {
        let Some(link) = self.conns.link_mut(at.conn) else { return Ok(()) };
        if command == Command::PADDING_NEGOTIATE {
            self.padder.negotiate(at.conn, link, body.bytes());
            return Ok(());
        }
        let found = link.circuits.find(at.circ_id);
        if found.is_none() && self.handshakes.contains(at) {
            self.handle_unanswered(at, command);
            return Ok(());
        }
        let Some(link) = self.conns.link(at.conn) else { return Ok(()) };
        match (command, found) {
            (Command::CREATE_FAST | Command::CREATE2, None) if at.circ_id == CircId::LINK => {
                return Err("a circuit without a number");
            }
            (Command::CREATE_FAST | Command::CREATE2, None) if link.is_our_choice(at.circ_id) => {
                self.refuse(at, DestroyReason::PROTOCOL);
            }
            (Command::CREATE_FAST | Command::CREATE2, None) if self.is_shutting_down => {
                self.refuse(at, DestroyReason::HIBERNATING);
            }
            (Command::CREATE_FAST, None) => return self.create_fast(at, body),
            (Command::CREATE | Command::CREATE2, None) if link.role == Role::Measurer => {
                return Err("a circuit other than a measurement's on a measurer's link");
            }
            (Command::CREATE2, None) => self.create2(at, body),
            (Command::CREATE_FAST | Command::CREATE2, Some((index, _))) => {
                self.destroy(index, DestroyReason::PROTOCOL, None);
            }
            (Command::CREATED2, Some((index, Direction::Backward))) => {
                self.handle_created(index, at, body.bytes());
            }
            (Command::DESTROY, Some((index, _))) => self.handle_destroy(index, at),
            _ => {} // padding, and cells of circuits that are gone
        }
        Ok(())
    }

    /// A cell of a circuit whose handshake waits for its answer.
    fn handle_unanswered(&mut self, at: OnLink, command: Command) {
        match command {
            Command::DESTROY => self.handshakes.cancel(at),
            Command::CREATE_FAST | Command::CREATE2 => {
                self.handshakes.cancel(at);
                self.refuse(at, DestroyReason::PROTOCOL);
            }
            _ => {} // too early
        }
    }

    /// A relay cell from the one who built the circuit.
    #[inline]
    fn relay_forward(
        &mut self,
        index: CircuitIndex,
        command: Command,
        body: &S::Body,
    ) -> Result<(), Violation> {
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        let Hop::Relay(layer) = &mut circuit.hop else { return self.echo(index, body) };
        self.target.handle_client_received(CELL_LEN as u64);
        circuit.forward_queue.handle_came();
        if command == Command::RELAY_EARLY {
            circuit.early_cells += 1;
            if circuit.early_cells > EARLY_CELLS_MAX {
                self.destroy(index, DestroyReason::PROTOCOL, None);
                return Ok(());
            }
        }
        let queue = &mut circuit.forward_queue;
        let is_full = queue.len() >= self.config.queue_limit_cells as usize;
        let NextLink::Open(out) = circuit.next_link else {
            self.end_here(index, command, body, DestroyReason::PROTOCOL);
            return Ok(());
        };
        if is_full {
            self.end_here(index, command, body, DestroyReason::RESOURCE_LIMIT);
            return Ok(());
        }
        // It is decrypted where it will wait: most cells go on.
        let enqueued = queue.next_enqueued();
        let passed = queue.push(self.outputs.now()).begin(out.circ_id, command);
        passed.clone_from(body);
        if layer.decrypt(command, passed) {
            let cell = queue.unpush();
            queue.handle_taken_in();
            if queue.has_news() {
                self.outputs.note_passed(index, Direction::Forward);
            }
            self.padder.handle_use(&mut self.conns, circuit, command);
            self.handle_message(index, command, cell.body());
            return Ok(());
        }
        let action = self.behavior.pass(&mut self.rng, circuit.back, body, passed);
        self.padder.handle_use(&mut self.conns, circuit, command);
        if action != ForwardAction::Drop {
            self.outputs.handle_queued(
                &mut self.conns,
                out.conn,
                (index, Direction::Forward),
                enqueued,
            );
            self.send_unsolicited(out.conn);
        }
        if action != ForwardAction::Forward {
            self.forward_dishonestly(index, action);
        }
        Ok(())
    }

    /// The same where the circuit does not go on, or cannot: the cell is for us, or wrong.
    fn end_here(
        &mut self,
        index: CircuitIndex,
        command: Command,
        body: &S::Body,
        otherwise: DestroyReason,
    ) {
        let now = self.outputs.now();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        // The first cell of any circuit comes here: it does not go on yet.
        (circuit.used_at, circuit.is_used) = (now, true);
        self.padder.handle_use(&mut self.conns, circuit, command);
        let Hop::Relay(layer) = &mut circuit.hop else { return };
        let mut plain = body.clone();
        if layer.decrypt(command, &mut plain) {
            circuit.forward_queue.handle_taken_in();
            if circuit.forward_queue.has_news() {
                self.outputs.note_passed(index, Direction::Forward);
            }
            self.handle_message(index, command, &plain);
        } else {
            self.note_stalled(index, Direction::Forward);
            self.destroy(index, otherwise, None);
        }
    }

    /// A relay cell from the next hop.
    #[inline]
    fn relay_backward(&mut self, index: CircuitIndex, body: &S::Body) {
        self.target.handle_client_received(CELL_LEN as u64);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        self.padder.handle_use(&mut self.conns, circuit, Command::RELAY);
        let Hop::Relay(layer) = &mut circuit.hop else { return };
        let queue = &mut circuit.backward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.note_stalled(index, Direction::Backward);
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return;
        }
        queue.handle_came();
        let enqueued = queue.next_enqueued();
        let passed = queue.push(self.outputs.now()).begin(circuit.back.circ_id, Command::RELAY);
        passed.clone_from(body);
        layer.pass_back(passed);
        let conn = circuit.back.conn;
        self.outputs.handle_queued(&mut self.conns, conn, (index, Direction::Backward), enqueued);
    }

    /// A relay message for us.
    fn handle_message(&mut self, index: CircuitIndex, command: Command, body: &S::Body) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let Hop::Relay(layer) = &circuit.hop else { return };
        let Ok(Message { command: message, stream_id, data }) = body.message(layer.format()) else {
            self.destroy(index, DestroyReason::PROTOCOL, None);
            return;
        };
        if message == RelayCommand::DATA {
            self.count_data(index);
        }
        let circuit = self.circuits.get(index);
        let is_linked = circuit.and_then(|it| it.end.as_ref()).is_some_and(|end| end.is_linked);
        let message = Message { command: message, stream_id, data };
        if is_linked && message.command.is_multiplexed() {
            self.handle_set_message(index, command, body, &message);
        } else {
            self.handle_message_in_turn(index, command, &message);
        }
    }

    /// The same, of a message whose turn it is.
    pub(super) fn handle_message_in_turn(
        &mut self,
        index: CircuitIndex,
        command: Command,
        message: &Message<S::PayloadSlice<'_>>,
    ) {
        let Message { command: message, stream_id, data } = *message;
        let is_circuit = stream_id == StreamId::CIRCUIT;
        match message {
            // By far the most frequent.
            RelayCommand::DATA => self.handle_data(index, stream_id, data),
            RelayCommand::CONFLUX_LINK
            | RelayCommand::CONFLUX_LINKED
            | RelayCommand::CONFLUX_LINKED_ACK
            | RelayCommand::CONFLUX_SWITCH => self.handle_conflux(index, message, data.bytes()),
            RelayCommand::SENDME => self.handle_sendme(index, stream_id, data.bytes()),
            RelayCommand::XON | RelayCommand::XOFF => {
                self.handle_xon_xoff(index, stream_id, message, data.bytes());
            }
            // C tor drops messages of streams without the number of one, and of circuits with one.
            RelayCommand::BEGIN
            | RelayCommand::BEGIN_DIR
            | RelayCommand::END
            | RelayCommand::RESOLVE
                if is_circuit => {}
            RelayCommand::BEGIN => self.begin_stream(index, stream_id, data.bytes()),
            RelayCommand::BEGIN_DIR => self.begin_directory_stream(index, stream_id),
            RelayCommand::RESOLVE => self.resolve(index, stream_id, data.bytes()),
            RelayCommand::END => self.handle_end(index, stream_id),
            // These are for clients: on a stream that stands they are worse than senseless.
            RelayCommand::CONNECTED | RelayCommand::RESOLVED
                if self.is_stream_open(index, stream_id) =>
            {
                self.destroy(index, DestroyReason::PROTOCOL, None);
            }
            // Only RELAY_EARLY extends a circuit (tor-spec §5.6).
            RelayCommand::EXTEND2 if command == Command::RELAY_EARLY && is_circuit => {
                if let Err(reason) = self.extend(index, data.bytes()) {
                    self.destroy(index, reason, None);
                }
            }
            RelayCommand::TRUNCATE => self.truncate(index),
            RelayCommand::PADDING_NEGOTIATE => self.refuse_padding(index, data.bytes()),
            // DROP is padding; what we do not know is for relays that do.
            _ => {}
        }
    }

    /// A client asks for a padding machine, and we have none (padding-spec §3).
    fn refuse_padding(&mut self, index: CircuitIndex, data: &[u8]) {
        let Ok(question) = CircuitPadding::parse(data) else { return };
        if let Some(refusal) = question.refusal() {
            let mut data = Vec::new();
            refusal.encode_into(&mut data);
            self.originate(index, RelayCommand::PADDING_NEGOTIATED, StreamId::CIRCUIT, &data);
        }
    }

    /// Sends a message of our own to the one who built the circuit.
    pub(super) fn originate(
        &mut self,
        index: CircuitIndex,
        command: RelayCommand,
        stream_id: StreamId,
        data: &[u8],
    ) {
        let index = if command.is_multiplexed() { self.leg_for_message(index) } else { index };
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Hop::Relay(layer) = &mut circuit.hop else { return };
        let queue = &mut circuit.backward_queue;
        let is_full = queue.len() >= self.config.queue_limit_cells as usize;
        let enqueued = queue.next_enqueued();
        let body = queue.push(self.outputs.now()).begin(circuit.back.circ_id, Command::RELAY);
        let message = Message { command, stream_id, data: S::PayloadSlice::from_bytes(data) };
        if is_full || body.write(layer.format(), &message).is_err() {
            queue.unpush();
            if is_full {
                // Of a set all: its message has a number, and would be missed.
                self.destroy_all_legs(index, DestroyReason::RESOURCE_LIMIT);
            }
            return;
        }
        let set = circuit.end.as_ref().filter(|end| end.is_linked).map(|end| end.tunnel);
        let is_kept = set.is_some_and(|tunnel| self.sets.resumes(tunnel));
        let copy = (is_kept && command.is_multiplexed()).then(|| (layer.format(), body.clone()));
        layer.originate(body);
        let conn = circuit.back.conn;
        self.outputs.handle_queued(&mut self.conns, conn, (index, Direction::Backward), enqueued);
        if let Some((format, body)) = copy {
            self.keep(index, format, &body, false);
        }
    }
}
