//! Floods of cells without effect, both permitted and forbidden.

use super::Attack;
use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use super::line::Depth;
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand};
use onion::cell::{BODY_LEN, CircId, Command};
use std::collections::VecDeque;

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// PADDING, VPADDING and DROP in turn.
#[derive(Default)]
pub(super) struct Padding {
    circuits: Vec<Circuit>,
}

impl Attack for Padding {
    fn act(&mut self, attacker: &mut Attacker) {
        for line in attacker.keep(LINES) {
            if attacker.can_send(line) {
                if attacker.begun(line) == 0 {
                    attacker.begin(line, &[]);
                }
                attacker.send(line, CircId::LINK, Command::PADDING, &[0; BODY_LEN]);
                attacker.send(line, CircId::LINK, Command::VPADDING, &[0; 64]);
            }
        }
        for circuit in &mut self.circuits {
            while attacker.can_send(circuit.line) {
                circuit.send(attacker, RelayCommand::DROP, 0, &[0; MAX_DATA_LEN]);
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

/// SENDMEs for circuits and streams on which nothing was sent. If the relay destroys the circuit, it is replaced at once.
pub(super) struct Sendmes;

impl Sendmes {
    /// Circuits that are being built at a time.
    const AT_ONCE: usize = 500;

    /// Messages on each circuit.
    const EACH: u16 = 8;
}

impl Attack for Sendmes {
    fn act(&mut self, attacker: &mut Attacker) {
        for line in attacker.keep(LINES) {
            if attacker.building() < Self::AT_ONCE && attacker.can_send(line) {
                attacker.begin(line, &[]);
            }
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        // Messages for streams, which do not exist, are first.
        for number in (0..Self::EACH).rev() {
            let tag = [&[1, 0, 20][..], &[7; 20]].concat();
            circuit.send(attacker, RelayCommand::SENDME, number, &tag);
        }
        circuit.destroy(attacker);
    }
}

/// Random bytes instead of TLS, of VERSIONS, of cells on an open link, or of relay messages on a circuit.
#[derive(Default)]
pub(super) struct Garbage {
    lines: VecDeque<(LineId, Stage)>,
    dialled: u32,
}

/// The layer at which random bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Tcp,
    Tls,
    Link,
    Circuit,
}

impl Garbage {
    /// Lines at a time.
    const LINES: usize = 200;

    /// Lines of each address.
    const PER_ADDRESS: u32 = 20;
}

impl Attack for Garbage {
    fn act(&mut self, attacker: &mut Attacker) {
        for _ in 0..8 {
            if self.lines.len() >= Self::LINES {
                break;
            }
            let (stage, depth) = match self.dialled % 4 {
                0 => (Stage::Tcp, Depth::Tcp),
                1 => (Stage::Tls, Depth::Tls),
                2 => (Stage::Link, Depth::Link),
                _ => (Stage::Circuit, Depth::Link),
            };
            let Some(line) = attacker.dial(self.dialled / Self::PER_ADDRESS, depth) else { break };
            self.dialled += 1;
            self.lines.push_back((line, stage));
        }
        for (line, stage) in &self.lines {
            match stage {
                Stage::Tcp | Stage::Tls if attacker.can_send_raw(*line) => {
                    let garbage: [u8; 2048] = attacker.random();
                    attacker.send_raw(*line, &garbage);
                }
                Stage::Link if attacker.can_send(*line) => {
                    // A cell of variable length, so that the relay waits for a long body.
                    let garbage: [u8; 500] = attacker.random();
                    attacker.send(
                        *line,
                        CircId::of_responder(7),
                        Command::new(garbage[0] | 128),
                        &garbage,
                    );
                }
                Stage::Circuit if attacker.can_send(*line) && attacker.building() < 50 => {
                    attacker.begin(*line, &[]);
                }
                _ => {}
            }
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        let garbage: [u8; 400] = attacker.random();
        circuit.send(attacker, RelayCommand(garbage[0]), 7, &garbage);
        circuit.send(attacker, RelayCommand::EXTEND2, 0, &garbage);
        let body: [u8; BODY_LEN] = attacker.random();
        attacker.send(circuit.line, circuit.circ_id, Command::RELAY, &body);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|(its, _)| *its != line);
    }
}
