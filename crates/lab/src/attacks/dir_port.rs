//! Work for the relay's directory, and places in it, over its directory port in plain HTTP: without circuits between, an attacker
//! is faster. Our relay has this port on loopback only, for its own BEGIN_DIR streams; there the attacker is a local user.

use super::directory::slow_request;
use super::field::{Field, LineId};
use super::requests::Requests;
use super::{Attack, Prey};
use onion::{Duration, Instant};
use std::collections::{BTreeSet, VecDeque};

/// Connections of each address.
const PER_ADDRESS: u32 = 40;

/// New ones in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// A connection for each request that has the directory work.
pub(super) struct Work {
    lines: BTreeSet<LineId>,
    dialled: u32,
    requests: Requests,
}

impl Work {
    const LINES: usize = 400;

    pub(super) fn new(prey: &Prey) -> Self {
        let requests = Requests::new(prey.names().clone());
        Self { lines: BTreeSet::new(), dialled: 0, requests }
    }
}

impl Attack for Work {
    fn act(&mut self, field: &mut Field) {
        for _ in 0..AT_ONCE.min(Self::LINES.saturating_sub(self.lines.len())) {
            let Some(line) = field.dial_dir_port(self.dialled / PER_ADDRESS, false) else { return };
            self.dialled += 1;
            let request = self.requests.next(&mut field.rng);
            field.send_raw(line, &request);
            field.counts().count_request();
            self.lines.insert(line);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.remove(&line);
    }
}

/// Connections that hold a place: half never end their request, half do not read the answer.
#[derive(Default)]
pub(super) struct SlowReaders {
    lines: VecDeque<(LineId, Instant)>,
    dialled: u32,
}

impl SlowReaders {
    const LINES: usize = 2_000;

    /// Nothing is read, so the relay's end of a connection is not noticed: each is replaced after so long.
    const LIFETIME: Duration = Duration::from_secs(10);
}

impl Attack for SlowReaders {
    fn act(&mut self, field: &mut Field) {
        for _ in 0..AT_ONCE {
            let is_old = |since: Instant| field.now().saturating_since(since) > Self::LIFETIME;
            if self.lines.len() >= Self::LINES {
                match self.lines.front() {
                    Some((oldest, since)) if is_old(*since) => field.close(*oldest),
                    _ => return,
                }
                self.lines.pop_front();
            }
            let Some(line) = field.dial_dir_port(self.dialled / PER_ADDRESS, true) else { return };
            self.dialled += 1;
            field.send_raw(line, &slow_request(self.dialled));
            field.deafen(line);
            field.counts().count_request();
            self.lines.push_back((line, field.now()));
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|(its, _)| *its != line);
    }
}
