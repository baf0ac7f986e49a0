//! Attacks on the relay's directory server over its directory port, in plain HTTP. Without circuits an attacker is faster. Our
//! relay has this port on loopback only, for its own BEGIN_DIR streams; there the attacker is a local user.

use super::attacker::{Attacker, LineId};
use super::directory::slow_request;
use super::requests::Requests;
use super::{Attack, AttackTarget};
use onion::{Duration, Instant};
use std::collections::{BTreeSet, VecDeque};

/// Connections of each address.
const PER_ADDRESS: u32 = 40;

/// New connections in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// Opens a connection for each request, which is expensive to answer.
pub(super) struct Work {
    lines: BTreeSet<LineId>,
    dialled: u32,
    requests: Requests,
}

impl Work {
    const LINES: usize = 400;

    pub(super) fn new(target: &AttackTarget) -> Self {
        let requests = Requests::new(target.names().clone());
        Self { lines: BTreeSet::new(), dialled: 0, requests }
    }
}

impl Attack for Work {
    fn act(&mut self, attacker: &mut Attacker) {
        for _ in 0..AT_ONCE.min(Self::LINES.saturating_sub(self.lines.len())) {
            let Some(line) = attacker.dial_dir_port(self.dialled / PER_ADDRESS, false) else {
                return;
            };
            self.dialled += 1;
            let request = self.requests.next(&mut attacker.rng);
            attacker.send_raw(line, &request);
            attacker.counts().count_request();
            self.lines.insert(line);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.remove(&line);
    }
}

/// Connections that occupy the directory server: half never end their request, half do not read the answer.
#[derive(Default)]
pub(super) struct SlowReaders {
    lines: VecDeque<(LineId, Instant)>,
    dialled: u32,
}

impl SlowReaders {
    const LINES: usize = 2_000;

    /// Each connection is replaced after this time: the attacker reads nothing, so it does not notice when the relay closes one.
    const LIFETIME: Duration = Duration::from_secs(10);
}

impl Attack for SlowReaders {
    fn act(&mut self, attacker: &mut Attacker) {
        for _ in 0..AT_ONCE {
            let is_old = |since: Instant| attacker.now().saturating_since(since) > Self::LIFETIME;
            if self.lines.len() >= Self::LINES {
                match self.lines.front() {
                    Some((oldest, since)) if is_old(*since) => attacker.close(*oldest),
                    _ => return,
                }
                self.lines.pop_front();
            }
            let Some(line) = attacker.dial_dir_port(self.dialled / PER_ADDRESS, true) else {
                return;
            };
            self.dialled += 1;
            attacker.send_raw(line, &slow_request(self.dialled));
            attacker.stop_reading(line);
            attacker.counts().count_request();
            self.lines.push_back((line, attacker.now()));
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|(its, _)| *its != line);
    }
}
