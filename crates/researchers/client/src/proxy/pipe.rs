//! Connects a stream with the program that requested it.

use onion::cell::CELL_LEN;
use onion::cell_model::Tor;
use onion::client::{Application, Progress, SetPlan};
use onion::node::ConnId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::rc::Rc;

/// Bytes in both directions, and what the stream has reported.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// Bytes for the program.
    pub(super) to_app: VecDeque<u8>,
    /// Bytes for the stream.
    pub(super) to_tor: VecDeque<u8>,
    pub(super) is_connected: bool,
    /// The data of a RESOLVED.
    pub(super) answer: Option<Vec<u8>>,
    /// Bytes sent and received by the stream.
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    is_touched: bool,
}

impl Pipe {
    /// Moves bytes for the program to `out`. Returns their number.
    pub(super) fn read_for_app(&mut self, out: &mut [u8]) -> usize {
        read(&mut self.to_app, out)
    }

    /// Clears the list of changes.
    pub(super) const fn look(&mut self) {
        self.is_touched = false;
    }
}

/// Reading from memory does not fail. Reads across the wrap of the ring buffer.
fn read(from: &mut VecDeque<u8>, out: &mut [u8]) -> usize {
    let first = from.read(out).unwrap_or(0);
    first + from.read(&mut out[first..]).unwrap_or(0)
}

/// Limit on bytes waiting for a program. XOFF is sent much earlier; the data in flight must fit: 8
/// MiB, a congestion window of 100 Mbit/s at 600 ms, and the reorder queue of a Conflux set, which
/// is delivered at once when a gap closes.
const TO_APP_MAX: usize = (8 << 20) + SetPlan::EARLY_MAX_CELLS * CELL_LEN;

/// Connections whose pipes have changed since the last check, without duplicates.
pub(super) type Touched = Rc<RefCell<VecDeque<ConnId>>>;

/// The stream end of a pipe.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) pipe: Rc<RefCell<Pipe>>,
    pub(super) conn: ConnId,
    pub(super) touched: Touched,
}

impl StreamEnd {
    fn change(&self, change: impl FnOnce(&mut Pipe)) {
        let mut pipe = self.pipe.borrow_mut();
        change(&mut pipe);
        if !std::mem::replace(&mut pipe.is_touched, true) {
            self.touched.borrow_mut().push_back(self.conn);
        }
    }
}

impl Application<Tor> for StreamEnd {
    fn handle_connected(&mut self) {
        self.change(|pipe| pipe.is_connected = true);
    }

    fn handle_answer(&mut self, answer: &[u8]) {
        self.change(|pipe| pipe.answer = Some(answer.to_vec()));
    }

    fn has_more(&self, _sent_bytes: u64) -> bool {
        !self.pipe.borrow().to_tor.is_empty()
    }

    fn fill(&mut self, _sent_bytes: u64, room: &mut [u8]) -> usize {
        let mut len = 0;
        self.change(|pipe| {
            len = read(&mut pipe.to_tor, room);
            pipe.sent_bytes += len as u64;
        });
        len
    }

    fn take(&mut self, _received_bytes: u64, data: &[u8]) -> Progress {
        if self.pipe.borrow().to_app.len() > TO_APP_MAX {
            return Progress::Wrong;
        }
        self.change(|pipe| {
            // Writing to memory does not fail.
            let _ = pipe.to_app.write_all(data);
            pipe.received_bytes += data.len() as u64;
        });
        Progress::Open
    }
}
