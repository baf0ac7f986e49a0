//! Cells on circuits.

use super::circuit::{Hop, Place, Way};
use super::{Conduct, Router};
use crate::cell::msg::DestroyReason;
use crate::cell::relay::{RelayCommand, RelayMessage};
use crate::cell::{BODY_LEN, CELL_LEN, Command};
use crate::time::Instant;
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
        let Ok(message) = RelayMessage::parse(body) else {
            self.destroy(number, DestroyReason::PROTOCOL, None);
            return;
        };
        match message.command {
            RelayCommand::EXTEND2 if command == Command::RELAY_EARLY => {
                if let Err(reason) = self.extend(number, message.data) {
                    self.destroy(number, reason, None);
                }
            }
            RelayCommand::EXTEND2 => self.destroy(number, DestroyReason::PROTOCOL, None),
            RelayCommand::TRUNCATE => self.truncate(number),
            // We are no exit and no directory.
            RelayCommand::BEGIN | RelayCommand::RESOLVE => {
                self.originate(number, RelayCommand::END, message.stream_id, &[END_EXIT_POLICY]);
            }
            RelayCommand::BEGIN_DIR => {
                self.originate(number, RelayCommand::END, message.stream_id, &[END_NO_DIRECTORY]);
            }
            // DROP is padding; what we do not know is for relays that do.
            _ => {}
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

    /// One side has ended a circuit: the other hears of it.
    pub(super) fn handle_destroy(&mut self, number: u32, from: Place, reason: DestroyReason) {
        self.destroy(number, reason, Some(from));
    }
}

/// Reasons in END (tor-spec §6.3).
const END_EXIT_POLICY: u8 = 4;
const END_NO_DIRECTORY: u8 = 14;
