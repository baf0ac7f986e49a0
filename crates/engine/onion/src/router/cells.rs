//! Incoming cells: from a link into the queue of their circuit, or to this relay.
//!
//! The path of a relayed cell: the face's `Channel` frames it, [`Core::handle_cell`] finds its circuit in the
//! link's table, and `relay_forward` copies it into the slot of the circuit's queue and decrypts it *there*
//! (`relay_backward` encrypts). The [scheduler](super::schedule) lets it out, and [`transmit`](super::transmit)
//! moves it into the driver's buffer: two copies per cell.

use super::circuits::{CircuitIndex, Direction, Hop, NextLink, OnLink, QueueId};
use super::links::Role;
use super::{Behavior, Core, ForwardAction, Violation};
use crate::cell::msg::{CircuitPadding, DestroyReason};
use crate::cell::relay::RelayCommand;
use crate::cell::{CELL_LEN, CircId, Command};
use crate::cell_model::{Body, Cell, CellModel, Layer, Message, PayloadSlice, StreamId};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

/// The maximum number of RELAY_EARLY cells on a circuit (tor-spec §5.6).
const EARLY_CELLS_MAX: u8 = 8;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles a fixed-length cell of an open link. Returns false if the link is closed: the caller discards
    /// its remaining input.
    #[inline]
    pub fn handle_cell(
        &mut self,
        now: Instant,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: &S::Body,
    ) -> bool {
        self.outputs.set_now(now);
        // The hot path.
        let outcome = if command == Command::RELAY || command == Command::RELAY_EARLY {
            self.handle_relay_cell(OnLink { conn, circ_id }, command, body)
        } else {
            self.handle_rare_cell(OnLink { conn, circ_id }, command, body)
        };
        self.handle_oom();
        let Err(violation) = outcome else { return self.conns.link(conn).is_some() };
        self.handle_violation(now, conn, violation);
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
                self.relay_backward(index, body);
            }
            // The origin may learn only what a relay may send it (tor-spec §5.6).
            Some((index, Direction::Backward)) => {
                self.destroy(index, DestroyReason::PROTOCOL, None);
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
        // Whatever the circuit ID, and also during a shutdown: the attempt is the violation, as in C tor.
        let creates_client_circuit = matches!(command, Command::CREATE | Command::CREATE2);
        if creates_client_circuit && link.role == Role::Measurer {
            return Err(Violation::NotAMeasurementCircuit);
        }
        if command == Command::PADDING_NEGOTIATE {
            self.padder.negotiate(at.conn, link, body.bytes());
            return self.note_padding(at.conn, 1);
        }
        let found = link.circuits.find(at.circ_id);
        if found.is_none() && self.handshakes.contains(at) {
            self.handle_unanswered(at, command);
            return Ok(());
        }
        let Some(link) = self.conns.link(at.conn) else { return Ok(()) };
        match (command, found) {
            (Command::CREATE_FAST | Command::CREATE2, None) if at.circ_id == CircId::LINK => {
                return Err(Violation::ZeroCircuitId);
            }
            (Command::CREATE_FAST | Command::CREATE2, None) if link.is_our_choice(at.circ_id) => {
                self.refuse(at, DestroyReason::PROTOCOL);
            }
            (Command::CREATE_FAST | Command::CREATE2, None) if self.is_shutting_down => {
                self.refuse(at, DestroyReason::HIBERNATING);
            }
            (Command::CREATE_FAST, None) => return self.create_fast(at, body),
            (Command::CREATE2, None) => self.create2(at, body),
            (Command::CREATE_FAST | Command::CREATE2, Some((index, _))) => {
                self.destroy(index, DestroyReason::PROTOCOL, None);
            }
            (Command::CREATED2, Some((index, Direction::Backward))) => {
                self.handle_created(index, at, body.bytes());
            }
            (Command::DESTROY, Some((index, _))) => self.handle_destroy(index, at),
            // The circuit is gone.
            (Command::DESTROY | Command::CREATED2, _) => {}
            // Padding, and what this relay does not know.
            _ => return self.note_padding(at.conn, 1),
        }
        Ok(())
    }

    /// Handles a cell of a circuit whose handshake has not been answered yet.
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

    /// Handles a relay cell in the forward direction.
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
        circuit.forward_queue.handle_arrived();
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
        // The cell is decrypted in its queue slot: most cells are forwarded.
        let passed = queue.push(self.outputs.now()).begin(out.circ_id, command);
        passed.clone_from(body);
        if layer.decrypt(command, passed) {
            let cell = queue.unpush();
            queue.handle_consumed();
            if queue.has_report() {
                self.outputs.note_passed(QueueId::forward(index));
            }
            self.padder.handle_use(&mut self.conns, circuit, command);
            self.handle_message(index, command, cell.body());
            return Ok(());
        }
        let action = self.behavior.forward(&mut self.rng, circuit.back, body, passed);
        let (id, enqueued) = (QueueId::forward(index), queue.enqueued());
        self.padder.handle_use(&mut self.conns, circuit, command);
        if action != ForwardAction::Drop {
            self.outputs.handle_queued(&mut self.conns, out.conn, id, enqueued);
            self.send_unsolicited(out.conn);
        }
        if action != ForwardAction::Forward {
            self.forward_dishonestly(index, action);
        }
        Ok(())
    }

    /// Handles a forward cell that cannot be forwarded: it is either for this relay, or an error with the
    /// reason `otherwise`.
    fn end_here(
        &mut self,
        index: CircuitIndex,
        command: Command,
        body: &S::Body,
        otherwise: DestroyReason,
    ) {
        let now = self.outputs.now();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        // The first cell of every circuit arrives here: the circuit is not extended yet.
        (circuit.used_at, circuit.is_used) = (now, true);
        self.padder.handle_use(&mut self.conns, circuit, command);
        let Hop::Relay(layer) = &mut circuit.hop else { return };
        let mut plain = body.clone();
        if layer.decrypt(command, &mut plain) {
            circuit.forward_queue.handle_consumed();
            if circuit.forward_queue.has_report() {
                self.outputs.note_passed(QueueId::forward(index));
            }
            self.handle_message(index, command, &plain);
        } else {
            self.note_stalled(index, Direction::Forward);
            self.destroy(index, otherwise, None);
        }
    }

    /// Handles a relay cell in the backward direction.
    #[inline]
    fn relay_backward(&mut self, index: CircuitIndex, body: &S::Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if circuit.end.is_none() {
            self.target.handle_client_received(CELL_LEN as u64);
        }
        self.padder.handle_use(&mut self.conns, circuit, Command::RELAY);
        let Hop::Relay(layer) = &mut circuit.hop else { return };
        let queue = &mut circuit.backward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.note_stalled(index, Direction::Backward);
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return;
        }
        queue.handle_arrived();
        let id = QueueId::backward(index);
        self.outputs.enqueue(&mut self.conns, circuit.back, id, queue, |passed| {
            passed.clone_from(body);
            layer.pass_back(passed);
            true
        });
    }

    /// Handles a relay message that is addressed to this relay.
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
        let is_linked =
            circuit.and_then(|circuit| circuit.end.as_ref()).is_some_and(|end| end.is_linked);
        let message = Message { command: message, stream_id, data };
        if is_linked && message.command.is_multiplexed() {
            self.handle_set_message(index, command, body, &message);
        } else {
            self.handle_message_in_turn(index, command, &message);
        }
    }

    /// Handles the next message in order: on linked circuits, reordering is done.
    pub(super) fn handle_message_in_turn(
        &mut self,
        index: CircuitIndex,
        command: Command,
        message: &Message<S::PayloadSlice<'_>>,
    ) {
        let Message { command: message, stream_id, data } = *message;
        let is_circuit = stream_id == StreamId::CIRCUIT;
        match message {
            // The hot path.
            RelayCommand::DATA => self.handle_data(index, stream_id, data),
            RelayCommand::CONFLUX_LINK
            | RelayCommand::CONFLUX_LINKED
            | RelayCommand::CONFLUX_LINKED_ACK
            | RelayCommand::CONFLUX_SWITCH => self.handle_conflux(index, message, data.bytes()),
            RelayCommand::SENDME => self.handle_sendme(index, stream_id, data.bytes()),
            RelayCommand::XON | RelayCommand::XOFF => {
                self.handle_xon_xoff(index, stream_id, message, data.bytes());
            }
            // C tor drops stream messages with stream ID 0, and circuit messages with another.
            RelayCommand::BEGIN
            | RelayCommand::BEGIN_DIR
            | RelayCommand::END
            | RelayCommand::RESOLVE
                if is_circuit => {}
            RelayCommand::BEGIN => self.begin_stream(index, stream_id, data.bytes()),
            RelayCommand::BEGIN_DIR => self.begin_directory_stream(index, stream_id),
            RelayCommand::RESOLVE => self.resolve(index, stream_id, data.bytes()),
            RelayCommand::END => self.handle_end(index, stream_id),
            // Only relays send these. On an open stream they are a protocol violation.
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
            RelayCommand::DROP => self.handle_drop(index),
            // Relays ignore commands that they do not know.
            _ => {}
        }
    }

    /// Handles DROP, which is padding. No client pads a circuit towards a relay that has refused to.
    ///
    /// A relay forwards the cells of many clients: its link does not end because of one of them.
    fn handle_drop(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let conn = circuit.back.conn;
        if self.conns.link(conn).is_some_and(|link| link.is_relays()) {
            return;
        }
        if let Err(violation) = self.note_padding(conn, 1) {
            self.handle_violation(self.outputs.now(), conn, violation);
        }
    }

    /// Refuses a padding machine: this relay has none (padding-spec §3).
    fn refuse_padding(&mut self, index: CircuitIndex, data: &[u8]) {
        let Ok(question) = CircuitPadding::parse(data) else { return };
        if let Some(refusal) = question.refusal() {
            let mut data = Vec::new();
            refusal.encode_into(&mut data);
            self.originate(index, RelayCommand::PADDING_NEGOTIATED, StreamId::CIRCUIT, &data);
        }
    }

    /// Sends a message of this relay towards the origin.
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
        if queue.len() >= self.config.queue_limit_cells as usize {
            // On a set all legs: the message has a sequence number, and its absence would be noticed.
            self.destroy_all_legs(index, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        let set = circuit.end.as_ref().filter(|end| end.is_linked).map(|end| end.tunnel);
        let is_kept = command.is_multiplexed() && set.is_some_and(|set| self.sets.resumes(set));
        let message = Message { command, stream_id, data: S::PayloadSlice::from_bytes(data) };
        let format = layer.format();
        let (id, mut copy) = (QueueId::backward(index), None);
        self.outputs.enqueue(&mut self.conns, circuit.back, id, queue, |body| {
            if body.write(format, &message).is_err() {
                return false;
            }
            copy = is_kept.then(|| body.clone());
            layer.originate(body);
            true
        });
        if let Some(body) = copy {
            self.keep(index, format, &body, false);
        }
    }
}
