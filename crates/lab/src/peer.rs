//! A relay for tests, honest or lying, as a [`Node`](onion::node::Node): the same body runs on real sockets and in
//! virtual time.
//!
//! It does what tor does at a middle hop, and nothing else: it accepts links, answers CREATE_FAST,
//! extends circuits (one connection to each RSA identity), passes relay cells both ways with its
//! layer taken off or put on, and tells both sides when a circuit ends. What it does amiss is its
//! [`Behaviour`].
//!
//! Its queues are bounded: a circuit that wants to put more on a connection whose queue is full is
//! destroyed with reason 5, and a connection that brings too many circuits has them refused.

mod behaviour;
mod circuit;
mod conn;
mod extend;
mod node;
mod tamper;

pub use behaviour::Behaviour;

use circuit::{Circuits, Way};
use conn::{Conns, OwnedCell};
use onion::cell::msg::{CreatedFast, DestroyReason, encode_created2_into, parse_created2};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{RelayHop, fast};
use onion::identity::OwnIdentity;
use onion::node::{ConnId, Dial};
use rand::Rng;
use std::collections::VecDeque;
use std::sync::Arc;

/// Circuits at a time; more are refused.
const CIRCUITS_MAX: usize = 10_000;

/// Lies whose places are remembered.
const LIES_MAX: usize = 4096;

/// Where a relay has lied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie {
    /// The circuit, by the order in which they were opened.
    pub circuit: u32,
    /// The cell that it passed on wrongly or not at all, by the order in which they came, from zero.
    pub cell: u64,
}

/// A relay for tests. See the [module](self).
pub struct Peer<R> {
    identity: Arc<OwnIdentity>,
    behaviour: Behaviour,
    unix_time_s: u64,
    rng: R,
    conns: Conns,
    circuits: Circuits,
    to_dial: VecDeque<Dial>,
    to_close: VecDeque<ConnId>,
    passed_cells: u64,
    lies: Vec<Lie>,
    is_silent: bool,
}

impl<R: Rng> Peer<R> {
    /// A relay of this identity; `unix_time_s` is the time that it checks certificates against.
    pub const fn new(
        identity: Arc<OwnIdentity>,
        behaviour: Behaviour,
        unix_time_s: u64,
        rng: R,
    ) -> Self {
        Self {
            identity,
            behaviour,
            unix_time_s,
            rng,
            conns: Conns::new(),
            circuits: Circuits::new(),
            to_dial: VecDeque::new(),
            to_close: VecDeque::new(),
            passed_cells: 0,
            lies: Vec::new(),
            is_silent: false,
        }
    }

    /// Cells that came to be passed on to the next hop.
    #[must_use]
    pub const fn passed_cells(&self) -> u64 {
        self.passed_cells
    }

    /// Where it has lied: the first few thousand places.
    #[must_use]
    pub fn lies(&self) -> &[Lie] {
        &self.lies
    }

    /// Handles what a connection brought.
    fn handle_cells(&mut self, id: ConnId, plaintext: &[u8]) {
        let Some(channel) = self.conns.get_mut(id).and_then(|conn| conn.channel.as_mut()) else {
            return;
        };
        let was_open = channel.is_open();
        let mut cells = Vec::new();
        let mut input = plaintext;
        let result = loop {
            match channel.handle_bytes(&mut input) {
                Ok(Some(cell)) if cell.body.len() == BODY_LEN => {
                    let mut body = [0; BODY_LEN];
                    body.copy_from_slice(cell.body);
                    cells.push(OwnedCell { circ_id: cell.circ_id, command: cell.command, body });
                }
                Ok(Some(_)) => {} // of variable length: none of them concerns circuits
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let (opened, has_output) = (!was_open && channel.is_open(), channel.queued_len() > 0);
        if has_output {
            self.conns.wake(id);
        }
        if opened {
            self.create_waiting(id);
        }
        for cell in cells {
            self.handle_cell(id, &cell);
        }
        if result.is_err() {
            self.lose_conn(id);
            self.to_close.push_back(id);
        }
    }

    fn handle_cell(&mut self, id: ConnId, cell: &OwnedCell) {
        let known = self.circuits.find((id, cell.circ_id));
        match (cell.command, known) {
            (Command::CREATE_FAST, None) => self.answer_create_fast(id, cell),
            (Command::RELAY | Command::RELAY_EARLY, Some((number, Way::Forth))) => {
                self.handle_forth(number, cell);
            }
            (Command::RELAY | Command::RELAY_EARLY, Some((number, Way::Back))) => {
                self.pass_back(number, cell.body);
            }
            (Command::CREATED2, Some((number, Way::Back))) => self.handle_created(number, cell),
            (Command::DESTROY, Some((number, way))) => {
                let reason = DestroyReason::parse(&cell.body);
                self.handle_destroy(number, way, reason);
            }
            // We do not end circuits of clients that use public-key cryptography for that.
            (Command::CREATE2, None) => {
                let reason = [DestroyReason::PROTOCOL.get()];
                self.conns.send(id, cell.circ_id, Command::DESTROY, &reason);
            }
            // Padding, and cells of circuits that are gone.
            _ => {}
        }
    }

    fn answer_create_fast(&mut self, id: ConnId, cell: &OwnedCell) {
        if self.circuits.len() >= CIRCUITS_MAX {
            let reason = [DestroyReason::RESOURCE_LIMIT.get()];
            self.conns.send(id, cell.circ_id, Command::DESTROY, &reason);
            return;
        }
        let (mut x, mut y) = ([0; 20], [0; 20]);
        x.copy_from_slice(&cell.body[..20]);
        self.rng.fill_bytes(&mut y);
        let (created, keys) = fast::respond(&x, y);
        if self.circuits.add((id, cell.circ_id), RelayHop::new(&keys)) {
            let mut body = Vec::new();
            CreatedFast::encode_into(&created, &mut body);
            self.conns.send(id, cell.circ_id, Command::CREATED_FAST, &body);
        }
    }

    /// A cell from the one who built the circuit: for us, or for the next hop.
    fn handle_forth(&mut self, number: u32, cell: &OwnedCell) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let mut honest = cell.body;
        if circuit.hop.decrypt(&mut honest) {
            self.handle_message(number, cell.command, &honest);
            return;
        }
        let Some(forth) = circuit.forth().filter(|_| circuit.is_extended) else {
            self.destroy(number, DestroyReason::PROTOCOL);
            return;
        };
        let index = circuit.tamper.next_index();
        let passed = circuit.tamper.pass(&self.behaviour, &mut self.rng, &cell.body, honest);
        if passed.is_lie && self.lies.len() < LIES_MAX {
            self.lies.push(Lie { circuit: number, cell: index });
        }
        self.passed_cells += 1;
        for body in passed.cells {
            if !self.conns.send(forth.0, forth.1, Command::RELAY, &body) {
                self.destroy(number, DestroyReason::RESOURCE_LIMIT);
                return;
            }
        }
        match self.behaviour {
            Behaviour::Stalls(after) if self.passed_cells >= after => self.is_silent = true,
            Behaviour::CarriesStranger(every) if self.passed_cells.is_multiple_of(every.get()) => {
                // No handshake type that exists, on circuit IDs that our own circuits never reach.
                let number = u32::try_from(self.passed_cells).unwrap_or(u32::MAX);
                let circ_id = CircId::of_initiator(0x4000_0000 | number);
                self.conns.send(forth.0, circ_id, Command::CREATE2, &[0xff; 4]);
            }
            Behaviour::Closes(after) if self.passed_cells == after => {
                let all = self.conns.ids();
                all.iter().for_each(|id| self.lose_conn(*id));
                self.to_close.extend(all);
            }
            Behaviour::DestroysCircuits(after) if self.passed_cells == after => {
                for number in self.circuits.numbers() {
                    self.destroy(number, DestroyReason::RESOURCE_LIMIT);
                }
            }
            _ => {}
        }
    }

    /// A relay message for us.
    fn handle_message(&mut self, number: u32, command: Command, body: &[u8; BODY_LEN]) {
        match RelayMessage::parse(body) {
            Ok(message) if message.command == RelayCommand::DROP => {}
            Ok(message)
                if message.command == RelayCommand::EXTEND2 && command == Command::RELAY_EARLY =>
            {
                if let Err(reason) = self.extend(number, message.data) {
                    self.destroy(number, reason);
                }
            }
            _ => self.destroy(number, DestroyReason::PROTOCOL),
        }
    }

    /// The next hop has answered: the circuit is extended.
    fn handle_created(&mut self, number: u32, cell: &OwnedCell) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let answer = parse_created2(&cell.body).map(|answer| {
            let mut data = Vec::new();
            encode_created2_into(answer, &mut data);
            data
        });
        match answer {
            Ok(data) if !circuit.is_extended => {
                circuit.is_extended = true;
                self.send_message(number, RelayCommand::EXTENDED2, &data);
            }
            _ => self.destroy(number, DestroyReason::PROTOCOL),
        }
    }

    /// Sends a message of our own to the one who built the circuit.
    fn send_message(&mut self, number: u32, command: RelayCommand, data: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let back = circuit.back;
        let Ok(mut body) = (RelayMessage { command, stream_id: 0, data }).to_body() else { return };
        circuit.hop.originate(&mut body);
        self.conns.send(back.0, back.1, Command::RELAY, &body);
    }

    /// A cell from the next hop to the one who built the circuit.
    fn pass_back(&mut self, number: u32, mut body: [u8; BODY_LEN]) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        let back = circuit.back;
        circuit.hop.pass_back(&mut body);
        if !self.conns.send(back.0, back.1, Command::RELAY, &body) {
            self.destroy(number, DestroyReason::RESOURCE_LIMIT);
        }
    }

    /// One side has ended a circuit. As in tor, its builder hears of the next hop's end by a message.
    fn handle_destroy(&mut self, number: u32, way: Way, reason: DestroyReason) {
        match way {
            Way::Forth => {
                if let Some((id, circ_id)) =
                    self.circuits.remove(number).and_then(|circuit| circuit.forth())
                {
                    self.conns.send(id, circ_id, Command::DESTROY, &[reason.get()]);
                }
            }
            Way::Back => {
                self.circuits.cut_forth(number);
                self.send_message(number, RelayCommand::TRUNCATED, &[reason.get()]);
            }
        }
    }

    /// Ends a circuit, and tells both sides.
    fn destroy(&mut self, number: u32, reason: DestroyReason) {
        let Some(circuit) = self.circuits.remove(number) else { return };
        for (id, circ_id) in [Some(circuit.back), circuit.forth()].into_iter().flatten() {
            self.conns.send(id, circ_id, Command::DESTROY, &[reason.get()]);
        }
    }

    /// A connection is gone: so are its circuits.
    fn lose_conn(&mut self, id: ConnId) {
        let Some(conn) = self.conns.remove(id) else { return };
        let is_open = conn.channel.is_some_and(|channel| channel.is_open());
        let reason =
            if is_open { DestroyReason::CHANNEL_CLOSED } else { DestroyReason::CONNECT_FAILED };
        for number in self.circuits.on(id) {
            self.destroy(number, reason);
        }
    }
}
