//! A host that fetches without Tor: the performance of the underlying network.

use super::kernel::{Event, Kernel};
use super::message::{HostId, Job, Purpose};
use super::records::{Ending, Record};
use super::users::Models;
use alloc::vec::Vec;
use onion::{Duration, Instant};

/// A download from a server, over its own connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The server.
    pub server: HostId,
    /// The size.
    pub bytes: u32,
    /// When it begins.
    pub begins: Duration,
    /// When it is given up.
    pub timeout: Duration,
}

/// Downloads of one host. The size in each [`Record`] is the download's index.
#[derive(Debug)]
pub(super) struct DirectClient {
    id: u32,
    all: Vec<Download>,
    pub(super) records: Vec<Record>,
    pub(super) received_bytes: u64,
}

#[derive(Debug)]
struct Download {
    plan: Direct,
    socket: Option<u32>,
    received_bytes: u64,
    first_byte: Option<Duration>,
    is_over: bool,
}

impl DirectClient {
    pub(super) fn new(id: u32, plans: &[Direct]) -> Self {
        let download = |plan: &Direct| Download {
            plan: *plan,
            socket: None,
            received_bytes: 0,
            first_byte: None,
            is_over: false,
        };
        let all = plans.iter().map(download).collect();
        Self { id, all, records: Vec::new(), received_bytes: 0 }
    }

    pub(super) fn next_at(&self) -> u64 {
        self.all.iter().map(Download::next_at).min().unwrap_or(u64::MAX)
    }

    pub(super) fn handle_time(&mut self, kernel: &mut Kernel) {
        for place in 0..self.all.len() {
            let download = &mut self.all[place];
            if download.next_at() > kernel.now {
                continue;
            }
            match download.socket {
                None => {
                    let purpose = Purpose::Plain(Job::Fetch(download.plan.bytes));
                    let conn = u32::try_from(place).unwrap_or(u32::MAX);
                    download.socket = Some(kernel.dial(download.plan.server.0, purpose, conn));
                }
                Some(socket) => {
                    kernel.close(socket);
                    self.end(place, kernel.now, Ending::TimedOut);
                }
            }
        }
    }

    pub(super) fn handle(&mut self, event: Event, kernel: &mut Kernel) {
        match event {
            Event::Opened(socket) => {
                let Purpose::Plain(job) = kernel.socket(socket).purpose else { return };
                kernel.write_bytes(socket, Models::request_bytes(job));
            }
            Event::Bytes(socket) => {
                let bytes = kernel.socket(socket).unread();
                kernel.read_bytes(socket, bytes);
                let place = kernel.socket(socket).conn as usize;
                let download = &mut self.all[place];
                if download.is_over {
                    return;
                }
                self.received_bytes += bytes;
                download.received_bytes += bytes;
                download.first_byte.get_or_insert(since(kernel.now, &download.plan));
                if download.received_bytes >= u64::from(download.plan.bytes) {
                    self.end(place, kernel.now, Ending::Complete);
                }
            }
            Event::Closed(socket) => {
                let place = kernel.socket(socket).conn as usize;
                if !self.all[place].is_over {
                    self.end(place, kernel.now, Ending::Lost);
                }
                kernel.forget(socket);
            }
            // It does not accept connections.
            Event::Accepted(socket) => kernel.close(socket),
            Event::Cells(_, cells) => kernel.recycle(cells),
            Event::Room(_) | Event::Feedback(..) => {}
        }
    }

    fn end(&mut self, place: usize, now: u64, ending: Ending) {
        self.all[place].is_over = true;
        let last = (ending == Ending::Complete).then(|| since(now, &self.all[place].plan));
        self.records.push(self.record_of(place, last, ending));
    }

    fn record_of(&self, place: usize, last_byte: Option<Duration>, ending: Ending) -> Record {
        let download = &self.all[place];
        Record {
            client: HostId(self.id),
            size: u8::try_from(place).ok(),
            probe: None,
            bytes: download.received_bytes,
            begun: Instant::ORIGIN + download.plan.begins,
            first_byte: download.first_byte,
            last_byte,
            ending,
        }
    }

    /// Unfinished downloads, in order.
    pub(super) fn under_way(&self) -> impl Iterator<Item = Record> {
        let is_under_way = |download: &Download| download.socket.is_some() && !download.is_over;
        let places = (0..self.all.len()).filter(move |place| is_under_way(&self.all[*place]));
        places.map(|place| self.record_of(place, None, Ending::UnderWay))
    }
}

impl Download {
    fn next_at(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let wait = if self.socket.is_some() { self.plan.timeout } else { Duration::ZERO };
        u64::try_from((self.plan.begins + wait).as_nanos()).unwrap_or(u64::MAX)
    }
}

fn since(now: u64, plan: &Direct) -> Duration {
    Duration::from_nanos(now).saturating_sub(plan.begins)
}
