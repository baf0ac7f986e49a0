//! Connections that cost the relay more than the attacker.

use super::Attack;
use super::field::{Field, LineId};
use super::line::Depth;
use onion::cell::Command;
use std::collections::VecDeque;

/// Links of each address: below the live consensus' `DoSConnectionMaxConcurrentCount`.
const PER_ADDRESS: u32 = 40;

/// Links of all addresses together: the number that one process of ours can hold.
const LINES: usize = 4_000;

/// New links in a turn of some milliseconds.
const AT_ONCE: usize = 20;

/// Lines from changing addresses. The oldest are closed for new ones.
#[derive(Default)]
struct Crowd {
    all: VecDeque<LineId>,
    dialled: u32,
}

impl Crowd {
    fn more(&mut self, field: &mut Field, depth: Depth) {
        for _ in 0..AT_ONCE {
            let Some(line) = field.dial(self.dialled / PER_ADDRESS, depth) else { return };
            self.dialled += 1;
            self.all.push_back(line);
        }
        while self.all.len() > LINES
            && let Some(oldest) = self.all.pop_front()
        {
            field.close(oldest);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.all.retain(|it| *it != line);
    }
}

/// Open links that send nothing. At some thousands the oldest are closed for new ones.
#[derive(Default)]
pub(super) struct Idle {
    crowd: Crowd,
}

impl Attack for Idle {
    fn act(&mut self, field: &mut Field) {
        self.crowd.more(field, Depth::Link);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.crowd.handle_lost(line);
    }
}

/// Connections that never become links: half of them without TLS, half without a cell.
#[derive(Default)]
pub(super) struct HalfOpen {
    crowd: Crowd,
}

impl Attack for HalfOpen {
    fn act(&mut self, field: &mut Field) {
        self.crowd.more(field, Depth::Tcp);
        self.crowd.more(field, Depth::Tls);
    }

    fn handle_lost(&mut self, line: LineId) {
        self.crowd.handle_lost(line);
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
    fn act(&mut self, field: &mut Field) {
        for _ in 0..AT_ONCE {
            if self.lines.len() >= Self::LINES {
                break;
            }
            let Some(line) = field.dial_narrow(self.dialled / PER_ADDRESS) else { break };
            self.dialled += 1;
            self.lines.push(line);
        }
        for line in &self.lines {
            if field.takes(*line) {
                field.deafen(*line);
                for _ in 0..8 {
                    let circ_id = field.next_id(*line);
                    field.send(*line, circ_id, Command::CREATE_FAST, &[9; 20]);
                    field.send(*line, circ_id, Command::DESTROY, &[0]);
                }
            }
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.lines.retain(|it| *it != line);
    }
}
