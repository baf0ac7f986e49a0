//! Two kernels and a link between them, for tests.

use super::{Event, Kernel, Line};
use crate::world::message::{Mail, Purpose};
use crate::world::net::Net;
use crate::world::socket::Phase;
use crate::world::tcp::{Control, SEGMENT_MEMORY_BYTES};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use onion::cell_model::{Cell, HeaderOnlyCell};
use onion::{Duration, Rate};

/// Two hosts, 10 ms apart, with a link from the first to the second.
pub(super) struct Pair {
    pub(super) kernels: [Kernel; 2],
    under_way: Vec<Mail>,
    /// The first host's socket, and how often it had space again.
    pub(super) socket: u32,
    pub(super) rooms: u32,
    /// The second host's events: cells so far, and each FEEDBACK with its time.
    pub(super) cells: u32,
    pub(super) received: Vec<(u32, Box<[u8]>, u64)>,
}

impl Pair {
    pub(super) fn new(rate: Rate, loss: f64) -> Self {
        let mut net = Net::new(1, |_, _| (Duration::from_millis(10), loss));
        (0..2).for_each(|_| _ = net.add(0, true));
        let net = Arc::new(net);
        let line = Line { up: rate, down: rate, queue: Duration::from_millis(100) };
        let kernel =
            |id| Kernel::new(id, Arc::clone(&net), line, Control::Cubic, SEGMENT_MEMORY_BYTES, 5);
        let mut pair = Self {
            kernels: [kernel(0), kernel(1)],
            under_way: Vec::new(),
            socket: 0,
            rooms: 0,
            cells: 0,
            received: Vec::new(),
        };
        pair.socket = pair.kernels[0].dial(1, Purpose::Link, 0);
        pair.pass(1_000_000_000);
        assert_eq!(pair.kernels[0].socket(pair.socket).phase, Phase::Open);
        pair
    }

    /// Advances the clock by `time_ns`.
    pub(super) fn pass(&mut self, time_ns: u64) {
        let end = self.kernels[0].now + time_ns;
        loop {
            for kernel in &mut self.kernels {
                self.under_way.append(&mut kernel.scratch.out);
            }
            let first = (0..self.under_way.len()).min_by_key(|place| self.under_way[*place].at);
            let comes = first.map_or(u64::MAX, |place| self.under_way[place].at);
            let [one, other] = [0, 1].map(|host| self.kernels[host].next_at());
            if comes.min(one).min(other) > end {
                break;
            }
            if let Some(place) = first.filter(|_| comes <= one.min(other)) {
                let mail = self.under_way.remove(place);
                self.kernels[mail.to as usize].admit(mail);
                continue;
            }
            let host = usize::from(other < one);
            let kernel = &mut self.kernels[host];
            kernel.now = kernel.now.max(one.min(other));
            kernel.step();
            while let Some(event) = kernel.scratch.events.pop_front() {
                match event {
                    Event::Cells(_, cells) if host == 1 => {
                        self.cells += u32::try_from(cells.len()).expect("few");
                    }
                    Event::Room(_) => self.rooms += 1,
                    Event::Feedback(_, body) if host == 1 => {
                        self.received.push((self.cells, body, kernel.now));
                    }
                    _ => {}
                }
            }
        }
        self.kernels.iter_mut().for_each(|kernel| kernel.now = end);
    }

    pub(super) fn write(&mut self, cells: usize) {
        let mut cells: Vec<_> = (0..cells).map(|_| HeaderOnlyCell::EMPTY).collect();
        for piece in cells.chunks_mut(31) {
            self.kernels[0].write_cells(self.socket, piece);
        }
        self.kernels[0].send(self.socket);
    }

    /// Sends FEEDBACK that states how many cells were written before.
    pub(super) fn notify(&mut self, written: usize) {
        let body = u32::try_from(written).expect("few").to_be_bytes();
        self.kernels[0].notify(self.socket, body.into());
    }
}
