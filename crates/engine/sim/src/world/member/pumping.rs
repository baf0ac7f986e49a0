//! The load of one measurement.

use super::{CIRCUIT, Link, Member, Timer};
use crate::world::kernel::Kernel;
use crate::world::team::ReportContent;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::cell::Command;
use onion::cell_model::Cell;
use onion::flow::TokenBucket;
use onion::{Duration, Instant, Rate};

/// Maximum number of cells that are given to a socket at once.
pub(super) const RECORD_CELLS: usize = 31;

const RECORD_BYTES: u64 = 514 * RECORD_CELLS as u64;

/// The depth of the token bucket, as in the measurer.
const RATE_BURST: Duration = Duration::from_millis(5);

/// A measurer's part in a measurement.
#[derive(Debug)]
pub(super) struct Pumping {
    pub(super) sockets: Vec<u32>,
    rate: Rate,
    bucket: TokenBucket,
    start: Option<Instant>,
    /// Returned bytes by second.
    seconds: Vec<u64>,
    reported: u32,
    /// The second at which held-back links begin.
    held_back_s: Option<u32>,
    /// Sockets that are blocked by the rate only.
    throttled: VecDeque<u32>,
    is_timed: bool,
    last_reported: Option<u32>,
}

impl Pumping {
    pub(super) fn new(
        now: Instant,
        rate: Rate,
        sockets: u32,
        seconds: u32,
        held_back_s: Option<u32>,
    ) -> Self {
        Self {
            sockets: Vec::with_capacity(sockets as usize),
            rate,
            bucket: TokenBucket::new(rate, RATE_BURST, RECORD_BYTES, now),
            start: None,
            seconds: vec![0; seconds as usize],
            reported: 0,
            held_back_s,
            throttled: VecDeque::new(),
            is_timed: false,
            last_reported: None,
        }
    }

    /// A cell has returned.
    pub(super) fn count(&mut self, now: Instant) {
        let Some(start) = self.start else { return };
        let second = usize::try_from((now - start).as_secs()).unwrap_or(usize::MAX);
        if let Some(bytes) = self.seconds.get_mut(second) {
            *bytes += 514;
        }
    }

    fn is_sending(&self) -> bool {
        self.start.is_some() && (self.reported as usize) < self.seconds.len()
    }
}

impl Member {
    /// A circuit has opened or is gone: reports their number, once none is pending.
    pub(super) fn settle(&mut self, kernel: &Kernel, measurement: u32) {
        let Some(state) = self.measurements.get(&measurement) else { return };
        // After its last second the relay closes them.
        if state.start.is_some() && !state.is_sending() {
            return;
        }
        let mut up = 0;
        for socket in &state.sockets {
            match self.links.get(*socket as usize) {
                // A number that belongs to another measurement by now was lost to this one.
                Some(Some((of, Link::Up(_) | Link::HeldBack))) if *of == measurement => up += 1,
                Some(Some((of, Link::SettingUp { .. }))) if *of == measurement => return,
                _ => {}
            }
        }
        let content = match state.last_reported {
            None => ReportContent::Ready(up),
            Some(before) if before != up => ReportContent::Sockets(up),
            Some(_) => return,
        };
        if let Some(state) = self.measurements.get_mut(&measurement) {
            state.last_reported = Some(up);
        }
        self.notify(kernel, measurement, content);
    }

    pub(super) fn start(&mut self, kernel: &mut Kernel, measurement: u32) {
        let Some(state) = self.measurements.get_mut(&measurement) else { return };
        let now = kernel.instant();
        state.start = Some(now);
        state.bucket = TokenBucket::new(state.rate, RATE_BURST, RECORD_BYTES, now);
        self.timers.push(Reverse((kernel.now + 1_000_000_000, Timer::Second(measurement))));
        for socket in state.sockets.clone() {
            self.flood(kernel, socket);
        }
    }

    /// A second has ended.
    pub(super) fn end_second(&mut self, kernel: &mut Kernel, measurement: u32) {
        let Some(state) = self.measurements.get_mut(&measurement) else { return };
        let second = state.reported;
        let Some(bytes) = state.seconds.get(second as usize).copied() else { return };
        state.reported += 1;
        if state.is_sending() {
            self.timers.push(Reverse((kernel.now + 1_000_000_000, Timer::Second(measurement))));
        }
        let is_middle = state.held_back_s == Some(state.reported);
        self.notify(kernel, measurement, ReportContent::Second { second, bytes });
        if is_middle {
            self.release(kernel, measurement);
        }
    }

    /// All its links send now.
    fn release(&mut self, kernel: &mut Kernel, measurement: u32) {
        let Some(state) = self.measurements.get(&measurement) else { return };
        for socket in state.sockets.clone() {
            if let Some(Some((of, link @ Link::HeldBack))) = self.links.get_mut(socket as usize)
                && *of == measurement
            {
                *link = Link::up();
                self.flood(kernel, socket);
            }
        }
    }

    /// The rate allows more to be sent.
    pub(super) fn handle_rate_timer(&mut self, kernel: &mut Kernel, measurement: u32) {
        let Some(state) = self.measurements.get_mut(&measurement) else { return };
        state.is_timed = false;
        let now = kernel.instant();
        let mut waiting = core::mem::take(&mut state.throttled);
        while let Some(socket) = waiting.pop_front() {
            self.flood(kernel, socket);
            let state = self.measurements.get_mut(&measurement);
            if state.is_none_or(|state| state.bucket.available_bytes(now) < RECORD_BYTES) {
                break;
            }
        }
        let Some(state) = self.measurements.get_mut(&measurement) else { return };
        // The socket that has just sent is served after those that wait.
        waiting.append(&mut state.throttled);
        state.throttled = waiting;
        if !state.throttled.is_empty() && !state.is_timed {
            state.is_timed = true;
            let at = state.bucket.available_at(RECORD_BYTES);
            self.timers.push(Reverse((at.as_nanos(), Timer::Rate(measurement))));
        }
    }

    /// Sends on a socket what its window, its kernel and the rate allow.
    pub(super) fn flood(&mut self, kernel: &mut Kernel, socket: u32) {
        let now = kernel.instant();
        let Some(Some((measurement, Link::Up(window)))) = self.links.get_mut(socket as usize)
        else {
            return;
        };
        let Some(state) = self.measurements.get_mut(measurement) else { return };
        if !state.is_sending() {
            return;
        }
        while window.room_cells() >= window.batch_cells().min(124) {
            let most = window.room_cells().min(31) as usize;
            let room = kernel.room_cells(socket).min(most);
            if room == 0 {
                kernel.socket_mut(socket).wants_room = true;
                break;
            }
            if state.bucket.available_bytes(now) < RECORD_BYTES {
                // Less than a record: a whole record later is better than fragments now.
                if !state.throttled.contains(&socket) {
                    state.throttled.push_back(socket);
                }
                if !state.is_timed {
                    state.is_timed = true;
                    let at = state.bucket.available_at(RECORD_BYTES);
                    self.timers.push(Reverse((at.as_nanos(), Timer::Rate(*measurement))));
                }
                break;
            }
            for cell in &mut self.record[..room] {
                cell.begin(CIRCUIT, Command::RELAY);
            }
            kernel.write_cells(socket, &mut self.record[..room]);
            window.handle_sent(now, u32::try_from(room).unwrap_or(0));
            state.bucket.take(room as u64 * 514);
        }
        kernel.send(socket);
    }
}
