//! Connections that cost the relay more than the attacker.

use super::Attack;
use super::attacker::{Attacker, LineId};
use super::line::Depth;
use onion::cell::Command;
use std::collections::VecDeque;

/// Links of each address: below the live consensus' `DoSConnectionMaxConcurrentCount`.
const PER_ADDRESS: u32 = 40;

/// The number of links of all addresses together: what one of our processes can hold.
const LINES: usize = 4_000;

/// New links in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// Lines from changing addresses. The oldest are closed for new ones.
#[derive(Default)]
struct ChangingLines {
    all: VecDeque<LineId>,
    dialled: u32,
}

impl ChangingLines {
    fn more(&mut self, attacker: &mut Attacker, depth: Depth) {
        for _ in 0..AT_ONCE {
            let Some(line) = attacker.dial(self.dialled / PER_ADDRESS, depth) else { return };
            self.dialled += 1;
            self.all.push_back(line);
        }
        while self.all.len() > LINES
            && let Some(oldest) = self.all.pop_front()
        {
            attacker.close(oldest);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.all.retain(|kept| *kept != line);
    }
}

/// Open links that send nothing. At some thousands the oldest are closed for new ones.
#[derive(Default)]
pub(super) struct Idle {
    lines: ChangingLines,
}

impl Attack for Idle {
    fn act(&mut self, attacker: &mut Attacker) {
        self.lines.more(attacker, Depth::Link);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.handle_lost(line);
    }
}

/// Connections that never become links: half of them without TLS, half without a cell.
#[derive(Default)]
pub(super) struct HalfOpen {
    lines: ChangingLines,
}

impl Attack for HalfOpen {
    fn act(&mut self, attacker: &mut Attacker) {
        self.lines.more(attacker, Depth::Tcp);
        self.lines.more(attacker, Depth::Tls);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.handle_lost(line);
    }
}

/// Links that request answers and read none. The relay answers CREATE_FAST with a control cell, which remains in its queue
/// after DESTROY.
#[derive(Default)]
pub(super) struct SlowReaders {
    lines: Vec<LineId>,
    dialled: u32,
}

impl SlowReaders {
    const LINES: usize = 2_000;
}

impl Attack for SlowReaders {
    fn act(&mut self, attacker: &mut Attacker) {
        for _ in 0..AT_ONCE {
            if self.lines.len() >= Self::LINES {
                break;
            }
            let Some(line) = attacker.dial_narrow(self.dialled / PER_ADDRESS) else { break };
            self.dialled += 1;
            self.lines.push(line);
        }
        for line in &self.lines {
            if attacker.can_send(*line) {
                attacker.stop_reading(*line);
                for _ in 0..8 {
                    let circ_id = attacker.next_id(*line);
                    attacker.send(*line, circ_id, Command::CREATE_FAST, &[9; 20]);
                    attacker.send(*line, circ_id, Command::DESTROY, &[0]);
                }
            }
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|kept| *kept != line);
    }
}
