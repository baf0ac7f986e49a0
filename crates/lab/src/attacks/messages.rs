//! Floods of cells without effect, both permitted and forbidden.

use super::Attack;
use super::circuits::Circuit;
use super::field::{Field, LineId};
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
    fn act(&mut self, field: &mut Field) {
        for line in field.keep(LINES) {
            if field.takes(line) {
                if field.begun(line) == 0 {
                    field.begin(line, &[]);
                }
                field.send(line, CircId::LINK, Command::PADDING, &[0; BODY_LEN]);
                field.send(line, CircId::LINK, Command::VPADDING, &[0; 64]);
            }
        }
        for circuit in &mut self.circuits {
            while field.takes(circuit.line) {
                circuit.send(field, RelayCommand::DROP, 0, &[0; MAX_DATA_LEN]);
            }
        }
    }

    fn handle_built(&mut self, _field: &mut Field, circuit: Circuit) {
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
    fn act(&mut self, field: &mut Field) {
        for line in field.keep(LINES) {
            if field.building() < Self::AT_ONCE && field.takes(line) {
                field.begin(line, &[]);
            }
        }
    }

    fn handle_built(&mut self, field: &mut Field, mut circuit: Circuit) {
        // Messages for streams, which do not exist, are first.
        for number in (0..Self::EACH).rev() {
            let tag = [&[1, 0, 20][..], &[7; 20]].concat();
            circuit.send(field, RelayCommand::SENDME, number, &tag);
        }
        circuit.destroy(field);
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
    fn act(&mut self, field: &mut Field) {
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
            let Some(line) = field.dial(self.dialled / Self::PER_ADDRESS, depth) else { break };
            self.dialled += 1;
            self.lines.push_back((line, stage));
        }
        for (line, stage) in &self.lines {
            match stage {
                Stage::Tcp | Stage::Tls if field.takes_raw(*line) => {
                    let garbage: [u8; 2048] = field.random();
                    field.send_raw(*line, &garbage);
                }
                Stage::Link if field.takes(*line) => {
                    // A cell of variable length, so that the relay waits for a long body.
                    let garbage: [u8; 500] = field.random();
                    field.send(
                        *line,
                        CircId::of_responder(7),
                        Command::new(garbage[0] | 128),
                        &garbage,
                    );
                }
                Stage::Circuit if field.takes(*line) && field.building() < 50 => {
                    field.begin(*line, &[]);
                }
                _ => {}
            }
        }
    }

    fn handle_built(&mut self, field: &mut Field, mut circuit: Circuit) {
        let garbage: [u8; 400] = field.random();
        circuit.send(field, RelayCommand(garbage[0]), 7, &garbage);
        circuit.send(field, RelayCommand::EXTEND2, 0, &garbage);
        let body: [u8; BODY_LEN] = field.random();
        field.send(circuit.line, circuit.circ_id, Command::RELAY, &body);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|(its, _)| *its != line);
    }
}
