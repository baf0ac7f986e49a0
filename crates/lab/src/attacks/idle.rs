//! Idle circuits of one hop, held over links of the attacker's own: each costs the attacker one cell, once, and the relay
//! memory for as long as the link is open.

use super::field::{Field, LineId};
use super::{Attack, CircuitAt, Prey};
use onion::cell::{BODY_LEN, Command};
use onion::cell_model::{CellModel, Handshake, Tor};
use std::collections::BTreeMap;

/// What our relay counts for an idle circuit, in bytes. It lets circuits have half of its bound on memory.
const CIRCUIT_BYTES: u64 = 3 * 514;

/// What a cell takes on the wire, with its share of a TLS record.
const CELL_BYTES: u64 = 520;

/// Circuits of one attack at most: C tor holds each in 16 KB.
const CIRCUITS_MAX: u64 = 200_000;

/// Links that are dialled in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// The number of idle circuits that fill a relay's bound on memory, and a quarter more.
fn circuits_for(memory_mib: u32) -> u64 {
    let fill = (u64::from(memory_mib) << 20) / 2 / CIRCUIT_BYTES;
    (fill + fill / 4).min(CIRCUITS_MAX)
}

/// Bytes that the attacker sends until the relay is full.
pub(super) fn bytes_for(memory_mib: u32) -> u64 {
    circuits_for(memory_mib) * CELL_BYTES
}

/// Opens circuits and does nothing with them. For each that the relay destroys or refuses it opens another.
pub(super) struct Idle {
    command: Command,
    body: Vec<u8>,
    /// Links, each from an address of its own, and circuits on each of them.
    links: usize,
    circuits_per_link: u64,
    open: BTreeMap<LineId, u64>,
}

impl Idle {
    /// By CREATE_FAST, over 40 links: below the bound at which the defences look at the circuits of an address.
    pub(super) fn fast(prey: &Prey) -> Self {
        Self::new(prey, &<Tor as CellModel>::Handshake::fast([9; 20]), 40)
    }

    /// By CREATE2 with ntor, as relays and most clients open circuits.
    pub(super) fn create2(prey: &Prey) -> Self {
        Self::new(prey, &<Tor as CellModel>::Handshake::ntor(prey.relay(), [9; 32]), 40)
    }

    /// From 2,000 addresses, so that each holds about as few circuits as an honest client.
    pub(super) fn thin(prey: &Prey) -> Self {
        Self::new(prey, &<Tor as CellModel>::Handshake::fast([9; 20]), 2_000)
    }

    fn new(prey: &Prey, handshake: &<Tor as CellModel>::Handshake, links: usize) -> Self {
        let (command, body) = handshake.create_cell();
        let circuits_per_link = circuits_for(prey.memory_mib()).div_ceil(links as u64);
        Self { command, body, links, circuits_per_link, open: BTreeMap::new() }
    }
}

impl Attack for Idle {
    fn act(&mut self, field: &mut Field) {
        let soon = self.open.len() + AT_ONCE;
        for line in field.keep(self.links.min(soon)) {
            let open = self.open.entry(line).or_default();
            while *open < self.circuits_per_link && field.takes(line) {
                let circ_id = field.next_id(line);
                field.send(line, circ_id, self.command, &self.body);
                *open += 1;
            }
        }
    }

    fn handle_cell(
        &mut self,
        _field: &mut Field,
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
    fn idle_circuits_are_more_than_a_relay_has_room_for_at_any_bound_on_memory() {
        for memory_mib in [64, 256, 400] {
            let room = (u64::from(memory_mib) << 20) / 2 / CIRCUIT_BYTES;
            assert!(circuits_for(memory_mib) > room, "{memory_mib} MiB");
        }
        assert_eq!(circuits_for(8_192), CIRCUITS_MAX, "for the sake of the machine");
    }
}
