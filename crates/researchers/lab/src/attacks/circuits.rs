//! Circuits of an attacker, and idle circuits through another relay.

use super::attacker::{Attacker, LineId};
use super::{Attack, CircuitAt};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::cell_model::{CellModel, Handshake, Tor};
use onion::circuit::{Builder, NextHop, Step};
use onion::crypto::Layers;
use std::collections::BTreeMap;

/// An open circuit.
pub(super) struct Circuit {
    pub(super) line: LineId,
    pub(super) circ_id: CircId,
    layers: Layers,
}

impl Circuit {
    pub(super) const fn at(&self) -> CircuitAt {
        CircuitAt { line: self.line, circ_id: self.circ_id }
    }

    /// Sends a message to the last hop of the circuit.
    pub(super) fn send(
        &mut self,
        attacker: &mut Attacker,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        self.send_in(attacker, Command::RELAY, command, stream_id, data);
    }

    /// Sends a message to the last hop in a cell with this command.
    pub(super) fn send_in(
        &mut self,
        attacker: &mut Attacker,
        cell: Command,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        // Messages of attacks always fit into a cell.
        if let Ok(mut body) = (RelayMessage { command, stream_id, data }).to_body() {
            self.layers.seal(self.layers.len().saturating_sub(1), cell, &mut body);
            attacker.send(self.line, self.circ_id, cell, &body);
        }
    }

    /// Decrypts a received cell: command, stream and data of its message. `None` if it contains no valid message.
    pub(super) fn open(&mut self, body: &[u8; BODY_LEN]) -> Option<(RelayCommand, u16, Vec<u8>)> {
        let mut body = *body;
        let from = self.layers.open(&mut body).ok()?;
        let message = self.layers.format(from).parse(&body).ok()?;
        Some((message.command, message.stream_id, message.data.to_vec()))
    }

    /// Destroys the circuit.
    pub(super) fn destroy(self, attacker: &mut Attacker) {
        attacker.send(self.line, self.circ_id, Command::DESTROY, &[0]);
    }
}

/// Circuits that are being built.
#[derive(Default)]
pub(super) struct PendingCircuits {
    building: BTreeMap<CircuitAt, Builder>,
    begun: BTreeMap<LineId, u32>,
}

impl PendingCircuits {
    /// Forgets a lost line and its circuits.
    pub(super) fn handle_lost(&mut self, line: LineId) {
        self.building.retain(|at, _| at.line != line);
        self.begun.remove(&line);
    }
}

impl Attacker {
    /// The number of circuits that are being built.
    pub(super) fn building(&self) -> usize {
        self.pending.building.len()
    }

    /// Whether a circuit is being built.
    pub(super) fn is_building(&self, line: LineId, circ_id: CircId) -> bool {
        self.pending.building.contains_key(&CircuitAt { line, circ_id })
    }

    /// The number of circuits that were begun on a line.
    pub(super) fn begun(&self, line: LineId) -> u32 {
        self.pending.begun.get(&line).copied().unwrap_or_default()
    }

    /// A circuit ID that was never used on the line.
    pub(super) fn next_id(&mut self, line: LineId) -> CircId {
        let begun = self.pending.begun.entry(line).or_default();
        *begun += 1;
        CircId::of_initiator(*begun)
    }

    /// Begins a circuit with CREATE_FAST, and extends it with ntor. Returns its circuit ID.
    pub(super) fn begin(&mut self, line: LineId, onward: &[NextHop]) -> CircId {
        type Half = <Tor as CellModel>::Handshake;
        let circ_id = self.next_id(line);
        let first = Half::fast(self.random());
        let onward = onward.iter().map(|hop| (*hop, Half::ntor(hop, self.random()))).collect();
        let builder = Builder::new(circ_id, first, onward);
        if let Some((command, body)) = builder.create() {
            self.send(line, circ_id, command, &body);
        }
        self.pending.building.insert(CircuitAt { line, circ_id }, builder);
        circ_id
    }

    /// Handles a cell. Returns the circuit if it is now open.
    pub(super) fn handle_cell(
        &mut self,
        line: LineId,
        circ_id: CircId,
        command: Command,
        body: &[u8; BODY_LEN],
    ) -> Option<Circuit> {
        let at = CircuitAt { line, circ_id };
        let builder = self.pending.building.get_mut(&at)?;
        match builder.handle_cell(command, body) {
            Ok(Step::Send { command, body }) => {
                self.send(line, circ_id, command, &body);
                None
            }
            Ok(Step::Built) => {
                let layers = builder.take_built().layers;
                self.pending.building.remove(&at);
                Some(Circuit { line, circ_id, layers })
            }
            // Refused.
            Err(_) => {
                self.pending.building.remove(&at);
                None
            }
        }
    }
}

/// Idle circuits to the relay through another one: a limit for the links of clients may also apply to the links of relays.
#[derive(Default)]
pub(super) struct Idle {
    circuits: Vec<Circuit>,
}

impl Idle {
    const LINES: usize = 24;
    /// Circuits that are being built at a time, few enough that the other relay is not overloaded.
    const AT_ONCE: usize = 400;
}

impl Attack for Idle {
    fn act(&mut self, attacker: &mut Attacker) {
        let relay = *attacker.target().relay();
        let lines = attacker.keep_via(Self::LINES);
        for line in lines {
            if attacker.building() < Self::AT_ONCE && attacker.can_send(line) {
                attacker.begin(line, &[relay]);
            }
        }
    }

    fn handle_built(&mut self, _attacker: &mut Attacker, circuit: Circuit) {
        self.circuits.push(circuit);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.circuits.retain(|circuit| circuit.line != line);
    }
}
