//! A host's kernel: its upload and download, and its sockets.

mod backlog;
mod codel;
mod down;
mod feedback;
#[cfg(test)]
mod pair;
mod sockets;
mod up;

use super::config::Egress;
use super::host_scratch::HostScratch;
use super::message::Mail;
use super::net::Net;
use super::socket::{Phase, Socket};
use super::tcp::Control;
use crate::split_mix::SplitMix64;
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use backlog::Backlog;
use codel::Codel;
use core::cmp::Reverse;
pub(super) use feedback::Feedback;
use onion::cell_model::HeaderOnlyCell;
use onion::{Duration, Instant, Rate};

/// Header bytes of a segment: Ethernet, IPv4, TCP with timestamps.
const HEADERS: u64 = 66;

/// Header bytes in Shadow: IPv4 and TCP without options.
const HEADERS_OF_SHADOW: u64 = 40;

/// The overhead of a TLS record, in bytes.
const RECORD: u64 = 22;

/// The upload queue, as time to send it, unless the device has a longer one. The rest waits in the sockets.
const UP_AHEAD_NS: u64 = 500_000;

/// An event for the application of a host.
#[derive(Debug)]
pub(super) enum Event {
    /// A dialled connection is established.
    Opened(u32),
    /// An incoming connection is established.
    Accepted(u32),
    /// Cells have arrived.
    Cells(u32, Vec<HeaderOnlyCell>),
    /// A FEEDBACK cell has arrived.
    Feedback(u32, Box<[u8]>),
    /// There are bytes to read.
    Bytes(u32),
    /// A full socket has space again.
    Room(u32),
    /// Its peer has closed it. The number is free afterwards.
    Closed(u32),
}

/// Traffic counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) cells: u64,
    pub(super) events: u64,
    pub(super) lost_flights: u64,
    pub(super) dropped_flights: u64,
}

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) id: u32,
    pub(super) now: u64,
    pub(super) net: Arc<Net>,
    /// For each host, whether it offers hop-by-hop windows.
    pub(super) windows: Arc<[bool]>,
    control: Control,
    /// Header bytes of a segment.
    headers: u64,
    segment_memory_bytes: u32,
    /// See [`Egress::has_notsent_lowat`].
    has_notsent_lowat: bool,
    rng: SplitMix64,
    /// How long before the line is free a socket is served.
    up_ahead_ns: u64,
    up_ps_per_byte: u64,
    down_ps_per_byte: u64,
    queue_ns: u64,
    up_free_at: u64,
    down_free_at: u64,
    /// Until then this socket's connection keeps the download queue full.
    full: (u64, u32),
    /// The queue management of its download, with Shadow's TCP.
    codel: Codel,
    /// Sockets in the upload's round-robin ring.
    ready: VecDeque<u32>,
    sockets: Vec<Socket>,
    backlog: Backlog,
    free: Vec<u32>,
    timeouts: BinaryHeap<Reverse<(u64, u32, u32)>>,
    mails: u32,
    /// Lent by the part while the host runs a window.
    pub(super) scratch: Box<HostScratch>,
    /// Mail that was still in the download queue at the end of its last window.
    waiting: VecDeque<Mail>,
    pub(super) counts: Counts,
    /// Bytes sent in each second, on the wire.
    pub(super) sent_bytes: Vec<u64>,
}

fn ps_per_byte(rate: Rate) -> u64 {
    (8_000_000_000_000 / rate.as_bit_per_s().max(1)).max(1)
}

/// A host's access line.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) up: Rate,
    pub(super) down: Rate,
    /// The delay of a full queue in either direction.
    pub(super) queue: Duration,
}

impl Kernel {
    pub(super) fn new(
        id: u32,
        net: Arc<Net>,
        Line { up, down, queue }: Line,
        control: Control,
        segment_memory_bytes: u32,
        seed: u64,
    ) -> Self {
        Self {
            id,
            now: 0,
            net,
            windows: Arc::default(),
            control,
            headers: if control == Control::Shadow { HEADERS_OF_SHADOW } else { HEADERS },
            segment_memory_bytes,
            has_notsent_lowat: false,
            rng: SplitMix64::of(seed, u64::from(id) << 8 | 1),
            up_ahead_ns: UP_AHEAD_NS,
            up_ps_per_byte: ps_per_byte(up),
            down_ps_per_byte: ps_per_byte(down),
            queue_ns: u64::try_from(queue.as_nanos()).unwrap_or(u64::MAX),
            up_free_at: 0,
            down_free_at: 0,
            full: (0, 0),
            codel: Codel::default(),
            ready: VecDeque::new(),
            sockets: Vec::new(),
            backlog: Backlog::default(),
            free: Vec::new(),
            timeouts: BinaryHeap::new(),
            mails: 0,
            scratch: Box::new(HostScratch::none()),
            waiting: VecDeque::new(),
            counts: Counts::default(),
            sent_bytes: Vec::new(),
        }
    }

    pub(super) fn set_egress(&mut self, egress: Egress) {
        self.has_notsent_lowat = egress.has_notsent_lowat;
        let queue_ns = u64::from(egress.device_queue_bytes) * self.up_ps_per_byte / 1000;
        self.up_ahead_ns = queue_ns.max(UP_AHEAD_NS);
    }

    /// Whether a host offers hop-by-hop windows.
    pub(super) fn has_windows(&self, host: u32) -> bool {
        self.windows.get(host as usize).copied().unwrap_or(false)
    }

    pub(super) const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(super) fn socket(&self, index: u32) -> &Socket {
        &self.sockets[index as usize]
    }

    pub(super) fn socket_mut(&mut self, index: u32) -> &mut Socket {
        &mut self.sockets[index as usize]
    }

    /// The sum of delays in links' sockets before the first transmission, in cell-seconds.
    pub(super) fn waited_cell_s(&self) -> f64 {
        self.backlog.waited_cell_s(self.now)
    }

    /// Borrows the buffers for a window.
    pub(super) fn take_scratch(&mut self, scratch: &mut Box<HostScratch>) {
        core::mem::swap(&mut self.scratch, scratch);
        if !self.waiting.is_empty() {
            self.scratch.arriving.append(&mut self.waiting);
        }
    }

    /// Returns the buffers. Mail in the download queue stays here.
    pub(super) fn give_scratch_back(&mut self, scratch: &mut Box<HostScratch>) {
        if !self.scratch.arriving.is_empty() {
            self.waiting.append(&mut self.scratch.arriving);
        }
        core::mem::swap(&mut self.scratch, scratch);
    }

    /// When the next timer expires.
    pub(super) fn next_at(&self) -> u64 {
        let first = self.scratch.arriving.front().or_else(|| self.waiting.front());
        let arrives = first.map_or(u64::MAX, |mail| mail.at);
        let sends = if self.ready.is_empty() { u64::MAX } else { self.up_at() };
        let silent = self.timeouts.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        arrives.min(sends).min(silent)
    }

    const fn up_at(&self) -> u64 {
        self.up_free_at.saturating_sub(self.up_ahead_ns)
    }

    /// Processes what is due now.
    pub(super) fn step(&mut self) {
        self.counts.events += 1;
        let arriving = &mut self.scratch.arriving;
        if arriving.front().is_some_and(|mail| mail.at <= self.now) {
            if let Some(mail) = arriving.pop_front() {
                if arriving.is_empty() {
                    // The buffer is reused from its beginning.
                    arriving.clear();
                }
                self.receive(mail);
            }
        } else if !self.ready.is_empty() && self.up_at() <= self.now {
            if let Some(index) = self.ready.pop_front() {
                self.sockets[index as usize].is_ready = false;
                self.send_flight(index);
                self.send(index);
            }
        } else if let Some(Reverse((at, index, uses))) = self.timeouts.pop() {
            self.handle_rto(at, index, uses);
        }
    }

    fn handle_rto(&mut self, at: u64, index: u32, uses: u32) {
        let now = self.now;
        let socket = &mut self.sockets[index as usize];
        if socket.uses != uses || socket.phase == Phase::Free {
            return;
        }
        if at == socket.watched_at {
            socket.watched_at = u64::MAX;
        }
        if socket.tx.rto_at <= now {
            socket.tx.handle_rto();
            self.send(index);
        } else {
            self.watch(index);
        }
    }

    /// Schedules a socket's RTO. It moves later with each acknowledgement, and earlier when the round-trip time
    /// is known: a later entry is only needed if there is none.
    fn watch(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let at = socket.tx.rto_at;
        if at < socket.watched_at {
            socket.watched_at = at;
            self.timeouts.push(Reverse((at, index, socket.uses)));
        }
    }
}
