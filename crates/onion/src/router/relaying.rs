//! Cells on circuits.

use super::circuit::{Hop, Place, Way};
use super::{Conduct, Router};
use crate::cell::msg::{CircuitPadding, DestroyReason};
use crate::cell::relay::{RelayCommand, RelayMessage};
use crate::cell::{BODY_LEN, CELL_LEN, Command};
use crate::time::Instant;
use alloc::vec::Vec;
use rand_core::Rng;

/// RELAY_EARLY cells that a circuit may bring (tor-spec §5.6).
const EARLY_CELLS_MAX: u8 = 8;

impl<R: Rng, C: Conduct> Router<R, C> {
    /// A relay cell from the one who built the circuit. An error is a violation of a measurement's
    /// rules.
    #[inline]
    pub(super) fn relay_forth(
        &mut self,
        now: Instant,
        number: u32,
        command: Command,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let Some(circuit) = self.circuits.get_mut(number) else { return Ok(()) };
        match &mut circuit.hop {
            Hop::Echo(_) => self.echo(now, number, body),
            Hop::Relay(_) => {
                self.padder.handle_use(&mut self.links, circuit, command);
                self.target.handle_client_received(CELL_LEN as u64);
                self.pass_forth(number, command, body);
                Ok(())
            }
        }
    }

    fn pass_forth(&mut self, number: u32, command: Command, body: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let Hop::Relay(hop) = &mut circuit.hop else { return };
        let mut plain = [0; BODY_LEN];
        plain.copy_from_slice(body);
        let is_ours = hop.decrypt(&mut plain);
        if command == Command::RELAY_EARLY {
            circuit.early_cells += 1;
            if circuit.early_cells > EARLY_CELLS_MAX {
                self.destroy(number, DestroyReason::PROTOCOL, None);
                return;
            }
        }
        if is_ours {
            self.handle_message(number, command, &plain);
        } else if !circuit.is_extended {
            self.destroy(number, DestroyReason::PROTOCOL, None);
        } else if !self.queue_cell(number, Way::Forth, command, |out| *out = plain) {
            self.destroy(number, DestroyReason::RESOURCE_LIMIT, None);
        }
    }

    /// A relay cell from the next hop.
    pub(super) fn relay_back(&mut self, number: u32, body: &[u8]) {
        self.target.handle_client_received(CELL_LEN as u64);
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        self.padder.handle_use(&mut self.links, circuit, Command::RELAY);
        let Hop::Relay(hop) = &mut circuit.hop else { return };
        let mut passed = [0; BODY_LEN];
        passed.copy_from_slice(body);
        hop.pass_back(&mut passed);
        if !self.queue_cell(number, Way::Back, Command::RELAY, |out| *out = passed) {
            self.destroy(number, DestroyReason::RESOURCE_LIMIT, None);
        }
    }

    /// A relay message for us.
    fn handle_message(&mut self, number: u32, command: Command, body: &[u8; BODY_LEN]) {
        let Ok(RelayMessage { command: message, stream_id, data }) = RelayMessage::parse(body)
        else {
            self.destroy(number, DestroyReason::PROTOCOL, None);
            return;
        };
        match message {
            // By far the most frequent.
            RelayCommand::DATA => self.handle_data(number, stream_id, data),
            RelayCommand::SENDME => self.handle_sendme(number, stream_id, data),
            RelayCommand::XON | RelayCommand::XOFF => {
                self.handle_xon_xoff(number, stream_id, message, data);
            }
            // C tor drops messages of streams without the number of one, and of circuits with one.
            RelayCommand::BEGIN
            | RelayCommand::BEGIN_DIR
            | RelayCommand::END
            | RelayCommand::RESOLVE
                if stream_id == 0 => {}
            RelayCommand::BEGIN => self.begin_stream(number, stream_id, data),
            RelayCommand::BEGIN_DIR => self.begin_directory_stream(number, stream_id),
            RelayCommand::RESOLVE => self.resolve(number, stream_id, data),
            RelayCommand::END => self.handle_end(number, stream_id),
            // These are for clients: on a stream that stands they are worse than senseless.
            RelayCommand::CONNECTED | RelayCommand::RESOLVED
                if self.is_stream_open(number, stream_id) =>
            {
                self.destroy(number, DestroyReason::PROTOCOL, None);
            }
            // Only RELAY_EARLY extends a circuit (tor-spec §5.6).
            RelayCommand::EXTEND2 if command == Command::RELAY_EARLY && stream_id == 0 => {
                if let Err(reason) = self.extend(number, data) {
                    self.destroy(number, reason, None);
                }
            }
            RelayCommand::TRUNCATE => self.truncate(number),
            RelayCommand::PADDING_NEGOTIATE => self.refuse_padding(number, data),
            // DROP is padding; what we do not know is for relays that do.
            _ => {}
        }
    }

    /// A client asks for a padding machine, and we have none (padding-spec §3).
    fn refuse_padding(&mut self, number: u32, data: &[u8]) {
        let Ok(question) = CircuitPadding::parse(data) else { return };
        if let Some(refusal) = question.refusal() {
            let mut data = Vec::new();
            refusal.encode_into(&mut data);
            self.originate(number, RelayCommand::PADDING_NEGOTIATED, 0, &data);
        }
    }

    /// The one who built the circuit wants the rest of it gone.
    fn truncate(&mut self, number: u32) {
        self.forget_waiting(number);
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let forth = circuit.forth();
        let dropped = circuit.forth_queue.len();
        circuit.forth_queue = super::queue::CellQueue::default();
        circuit.forth_conn = None;
        circuit.forth_id = None;
        circuit.is_extended = false;
        if let Some(place) = forth {
            self.outputs.handle_dropped(place.conn, dropped);
            if let Some(link) = self.links.get_mut(place.conn) {
                link.circuits.remove(place.circ_id);
            }
            self.refuse(place, DestroyReason::REQUESTED);
        }
        let reason = [DestroyReason::REQUESTED.get()];
        self.originate(number, RelayCommand::TRUNCATED, 0, &reason);
    }

    /// Sends a message of our own to the one who built the circuit.
    pub(super) fn originate(
        &mut self,
        number: u32,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let Hop::Relay(hop) = &mut circuit.hop else { return };
        let Ok(mut body) = (RelayMessage { command, stream_id, data }).to_body() else { return };
        hop.originate(&mut body);
        if !self.queue_cell(number, Way::Back, Command::RELAY, |out| *out = body) {
            self.destroy(number, DestroyReason::RESOURCE_LIMIT, None);
        }
    }

    /// One side has ended a circuit: the other hears of it, but not why. Reasons that pass through would
    /// let both sides talk to each other past the client.
    pub(super) fn handle_destroy(&mut self, number: u32, from: Place) {
        self.destroy(number, DestroyReason::DESTROYED, Some(from));
    }
}
