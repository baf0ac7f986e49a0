//! Destinations of streams.

use super::jobs::Sending;
use super::kernel::{Event, Kernel};
use super::message::{Job, Purpose};
use super::users::Models;
use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A server: answers clients' requests.
#[derive(Debug)]
pub(super) struct Server {
    models: Arc<Models>,
    /// By socket.
    jobs: Vec<Option<Answer>>,
    /// When data is due: on which socket, and how often that number was used before.
    timers: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

#[derive(Debug)]
struct Answer {
    /// It begins when the request has arrived.
    request_bytes: u64,
    has_begun: bool,
    /// The expected bytes in all.
    expected_bytes: u64,
    received_bytes: u64,
    sending: Sending,
}

impl Server {
    pub(super) const fn new(models: Arc<Models>) -> Self {
        Self { models, jobs: Vec::new(), timers: BinaryHeap::new() }
    }

    pub(super) fn next_at(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    pub(super) fn handle_time(&mut self, kernel: &mut Kernel) {
        while let Some(Reverse((at, socket, uses))) = self.timers.peek().copied() {
            if at > kernel.now {
                break;
            }
            self.timers.pop();
            if kernel.socket(socket).uses == uses {
                self.continue_answer(kernel, socket);
            }
        }
    }

    pub(super) fn handle(&mut self, event: Event, kernel: &mut Kernel) {
        match event {
            Event::Accepted(socket) => {
                let Purpose::Plain(job) = kernel.socket(socket).purpose else { return };
                let place = socket as usize;
                if self.jobs.len() <= place {
                    self.jobs.resize_with(place + 1, || None);
                }
                self.jobs[place] = Some(self.begin(job));
            }
            Event::Bytes(socket) => {
                let bytes = kernel.socket(socket).unread();
                kernel.read_bytes(socket, bytes);
                if let Some(Some(answer)) = self.jobs.get_mut(socket as usize) {
                    answer.received_bytes += bytes;
                    self.continue_answer(kernel, socket);
                }
            }
            Event::Closed(socket) => {
                self.jobs[socket as usize] = None;
                kernel.forget(socket);
            }
            Event::Opened(_) | Event::Room(_) | Event::Feedback(..) => {}
            Event::Cells(_, cells) => kernel.recycle(cells),
        }
    }

    fn begin(&self, job: Job) -> Answer {
        let request_bytes = Models::request_bytes(job);
        let (sending, expected_bytes) = match job {
            Job::Fetch(bytes) => (Sending::at_once(bytes.into()), request_bytes),
            Job::Packets(seed) => {
                let packets = self.models.packet.packets(seed);
                let expected = request_bytes + packets.to_server.total_bytes();
                (Sending::new(packets.to_client), expected)
            }
        };
        Answer { request_bytes, has_begun: false, expected_bytes, received_bytes: 0, sending }
    }

    /// Sends what is due, and closes when everything is done.
    fn continue_answer(&mut self, kernel: &mut Kernel, socket: u32) {
        let Some(Some(answer)) = self.jobs.get_mut(socket as usize) else { return };
        let begins = !answer.has_begun;
        if begins {
            if answer.received_bytes < answer.request_bytes {
                return;
            }
            answer.has_begun = true;
            answer.sending.begin(kernel.now);
        }
        let bytes = answer.sending.due(kernel.now);
        if bytes > 0 {
            kernel.write_bytes(socket, bytes);
        }
        if (begins || bytes > 0)
            && let Some(at) = answer.sending.next_at()
        {
            self.timers.push(Reverse((at, socket, kernel.socket(socket).uses)));
        }
        let is_done = answer.sending.next_at().is_none();
        if is_done && answer.received_bytes >= answer.expected_bytes {
            self.jobs[socket as usize] = None;
            kernel.close(socket);
        }
    }
}
