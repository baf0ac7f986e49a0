//! An honest client of the relay's directory, which uses the same lines as attacks. The share of its requests that are answered
//! during an attack shows how well the directory still works.

use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use super::requests::get;
use super::{Attack, AttackError, AttackTarget, CircuitAt, RunningAttack};
use link::Clock;
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::{Duration, Instant, Rate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The interval between requests.
const PACE: Duration = Duration::from_millis(500);

/// The maximum time of an answer. A later one does not count.
const PATIENCE: Duration = Duration::from_secs(8);

/// The number of microdescriptors in a request.
const MICRO: usize = 5;

/// The reason DONE of an END message (tor-spec, section 6.3).
const DONE: u8 = 6;

/// The rate limit, far above what an honest client sends.
const RATE_MBIT: f64 = 100.0;

/// One request: when it was sent, and when its answer was complete.
#[derive(Clone, Copy, Debug)]
struct Reading {
    asked: Instant,
    answered: Option<Instant>,
}

/// Asks the relay's directory twice a second for the consensus or for microdescriptors in turn, each on a circuit of its own, until it is
/// dropped.
pub struct Reader {
    readings: Arc<Mutex<Vec<Reading>>>,
    clock: Clock,
    _running: RunningAttack,
}

/// The results of the requests in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// The number of requests.
    pub asked: usize,
    /// The number of requests that were answered in full and in time.
    pub answered: usize,
    /// The times of the answered requests in milliseconds.
    pub ms: Vec<f64>,
}

impl Reader {
    /// Starts the client.
    ///
    /// # Errors
    /// The operating system refuses sockets or a thread.
    pub fn start(target: AttackTarget, clock: Clock) -> Result<Self, AttackError> {
        let readings = Arc::<Mutex<Vec<Reading>>>::default();
        let paths = ["/tor/status-vote/current/consensus-microdesc".to_owned()];
        let paths = [&paths[..], &[target.names().micro_path(MICRO)]].concat();
        let program = Program {
            paths,
            line: None,
            next: None,
            under_way: BTreeMap::new(),
            readings: Arc::clone(&readings),
        };
        let rate = Rate::from_mbit_per_s(RATE_MBIT);
        let running = RunningAttack::run(Box::new(program), target, rate, clock)?;
        Ok(Self { readings, clock, _running: running })
    }

    fn readings(&self) -> Vec<Reading> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The results of the requests in this interval. `wait` pauses, and returns whether to give up waiting for the last answers.
    pub fn reads(&self, from: Instant, until: Instant, mut wait: impl FnMut() -> bool) -> Reads {
        loop {
            let now = self.clock.now();
            let all = self.readings();
            let is_open =
                |reading: &&Reading| reading.answered.is_none() && now <= reading.asked + PATIENCE;
            let of_then = |reading: &&Reading| reading.asked >= from && reading.asked < until;
            if all.iter().filter(of_then).any(|reading| is_open(&reading)) && !wait() {
                continue;
            }
            return Reads::from_readings(all.iter().filter(of_then));
        }
    }
}

impl Reads {
    fn from_readings<'a>(readings: impl Iterator<Item = &'a Reading>) -> Self {
        let mut reads = Self::default();
        for Reading { asked, answered } in readings {
            reads.asked += 1;
            let took = answered.map(|at| at - *asked).filter(|took| *took <= PATIENCE);
            reads.ms.extend(took.map(|took| took.as_secs_f64() * 1e3));
        }
        reads.answered = reads.ms.len();
        reads
    }

    /// The share of requests that were answered.
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    pub fn share(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.answered as f64 / self.asked as f64 }
    }
}

/// A pending request.
struct UnderWay {
    /// The index of the request among the readings.
    place: usize,
    circuit: Option<Circuit>,
    answer: Vec<u8>,
}

struct Program {
    paths: Vec<String>,
    line: Option<LineId>,
    /// When the next request is due; `None` until there has been a link.
    next: Option<Instant>,
    under_way: BTreeMap<CircId, UnderWay>,
    readings: Arc<Mutex<Vec<Reading>>>,
}

impl Program {
    /// Records a request or an answer, and returns the index of the request.
    fn note(&self, change: impl FnOnce(&mut Vec<Reading>)) -> usize {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut readings);
        readings.len().saturating_sub(1)
    }
}

impl Attack for Program {
    fn act(&mut self, attacker: &mut Attacker) {
        if self.line.is_none() {
            self.line = attacker.dial_honestly();
        }
        let asked = attacker.now();
        if self.next.is_none() && self.line.is_some_and(|line| attacker.can_send(line)) {
            self.next = Some(asked);
        }
        let Some(next) = self.next.filter(|next| asked >= *next) else { return };
        self.next = Some(next + PACE);
        // A request without a link counts as unanswered.
        let place = self.note(|all| all.push(Reading { asked, answered: None }));
        if let Some(line) = self.line.filter(|line| attacker.can_send(*line)) {
            let circ_id = attacker.begin(line, &[]);
            let under_way = UnderWay { place, circuit: None, answer: Vec::new() };
            self.under_way.insert(circ_id, under_way);
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        let Some(request) = self.under_way.get_mut(&circuit.circ_id) else { return };
        circuit.send(attacker, RelayCommand::BEGIN_DIR, 1, &[]);
        for part in get(&self.paths[request.place % self.paths.len()]).chunks(MAX_DATA_LEN) {
            circuit.send(attacker, RelayCommand::DATA, 1, part);
        }
        request.circuit = Some(circuit);
    }

    fn handle_cell(
        &mut self,
        attacker: &mut Attacker,
        CircuitAt { circ_id, .. }: CircuitAt,
        command: Command,
        body: &[u8; BODY_LEN],
    ) {
        if command == Command::DESTROY {
            self.under_way.remove(&circ_id);
            return;
        }
        let Some(request) = self.under_way.get_mut(&circ_id) else { return };
        let opened = request.circuit.as_mut().and_then(|circuit| circuit.open(body));
        match opened {
            Some((RelayCommand::DATA, _, data)) => request.answer.extend_from_slice(&data),
            Some((RelayCommand::END, _, reason)) => {
                let (place, now) = (request.place, attacker.now());
                let is_whole = reason.first() == Some(&DONE) && is_whole(&request.answer);
                if let Some(circuit) =
                    self.under_way.remove(&circ_id).and_then(|request| request.circuit)
                {
                    circuit.destroy(attacker);
                }
                if is_whole {
                    self.note(|all| all[place].answered = Some(now));
                }
            }
            _ => {}
        }
    }

    fn handle_lost(&mut self, _line: LineId) {
        self.line = None;
        self.under_way.clear();
    }
}

/// Whether this is a successful HTTP response with its complete body.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head_len) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..head_len]);
    let mut lines = head.split("\r\n");
    if lines.next().and_then(|line| line.split(' ').nth(1)) != Some("200") {
        return false;
    }
    let body_len = answer.len() - head_len - 4;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.map_or(body_len > 0, |length| length == body_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_successful_response_counts() {
        let whole = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_whole(whole));
        assert!(is_whole(b"HTTP/1.0 200 OK\r\n\r\nabc"), "C tor streams some without a length");
        assert!(!is_whole(&whole[..whole.len() - 1]), "cut");
        assert!(!is_whole(b"HTTP/1.0 503 Directory busy\r\nContent-Length: 0\r\n\r\n"));
        assert!(!is_whole(b"HTTP/1.0 200 OK\r\n\r\n"), "no body");
        assert!(!is_whole(b""));
    }

    #[test]
    fn a_late_answer_does_not_count() {
        let asked = Instant::ORIGIN;
        let answered = |ms| Reading { asked, answered: Some(asked + Duration::from_millis(ms)) };
        let all = [answered(20), answered(8_001), Reading { asked, answered: None }, answered(40)];
        let reads = Reads::from_readings(all.iter());
        assert_eq!((reads.asked, reads.answered, reads.share()), (4, 2, 0.5));
        assert_eq!(reads.ms, [20.0, 40.0]);
    }
}
