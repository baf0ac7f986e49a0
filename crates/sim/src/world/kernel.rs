//! A host's kernel: its way up and down, and its sockets.

use super::lot::Lot;
use super::message::{Mail, Purpose, SocketKey, What};
use super::net::Net;
use super::socket::{Phase, Socket};
use super::tcp::{Control, MSS, Payload};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::node::SocketState;
use onion::suite::{Cell, WeightlessCell};
use onion::{Duration, Instant, Rate};

/// Bytes around a segment: Ethernet, IPv4, TCP with time stamps.
const HEADERS: u64 = 66;

/// Bytes around a TLS record.
const RECORD: u64 = 22;

/// What a socket takes that is not read. Links' always are.
const RECEIVE_WINDOW: u64 = 1 << 20;
const LINK_WINDOW: u64 = 6 << 20;

/// What may wait on the way up: as much as is through in this time. The rest waits in its sockets.
const UP_AHEAD_NS: u64 = 500_000;

/// Flights for which there is room in advance.
const POOL_MAX: usize = 1 << 16;

/// What shares of segments are counted in.
const WHOLE: f64 = 4_294_967_296.0;

/// Steps of the handshakes: TCP's three, TLS 1.3's, VERSIONS to NETINFO; all are small.
const STEPS_OF_LINK: u8 = 6;

/// What the application on a host has to hear of.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection that was dialled stands.
    Opened(u32),
    /// One has come in, and stands.
    Accepted(u32),
    /// Cells have come.
    Cells(u32, Vec<WeightlessCell>),
    /// There are bytes to be read.
    Bytes(u32),
    /// A socket that was full has room again.
    Room(u32),
    /// Its peer has closed it. The number is free after this.
    Closed(u32),
}

/// What has passed.
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
    control: Control,
    lot: Lot,
    up_ps_per_byte: u64,
    down_ps_per_byte: u64,
    queue_ns: u64,
    up_free_at: u64,
    down_free_at: u64,
    /// Sockets that wait for their turn on the way up.
    ready: VecDeque<u32>,
    /// What is on its way down; its time is when it is through.
    arriving: VecDeque<Mail>,
    sockets: Vec<Socket>,
    free: Vec<u32>,
    silences: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(super) out: Vec<Mail>,
    mails: u32,
    /// Room for flights. The part lends it to each of its hosts in turn, so that it stays in the processor's cache.
    pub(super) pool: Vec<Vec<WeightlessCell>>,
    pub(super) events: VecDeque<Event>,
    pub(super) counts: Counts,
    /// Bytes that were sent in each second, as they are on the wire.
    pub(super) sent_bytes: Vec<u64>,
}

fn ps_per_byte(rate: Rate) -> u64 {
    (8_000_000_000_000 / rate.as_bit_per_s().max(1)).max(1)
}

/// Whether the loss of segments, of which so many of 2³² are lost, hits a flight of so many bytes. `drawn` is below 2³².
///
/// Segments of a connection that has more to send are full, so that the last of one flight has the first bytes of the next: parts of them count as such.
fn is_hit(drawn: u64, loss: u32, bytes: u64) -> bool {
    // Not more than if all segments had lots of their own that exclude each other: nearly always that decides.
    let bytes = bytes.max(MSS);
    if drawn * MSS >= u64::from(loss) * bytes {
        return false;
    }
    #[expect(clippy::cast_precision_loss, reason = "32 bits")]
    let (drawn, loss) = (drawn as f64 / WHOLE, f64::from(loss) / WHOLE);
    #[expect(clippy::cast_precision_loss, reason = "a flight is small")]
    let segments = bytes as f64 / MSS as f64;
    drawn < 1.0 - libm::pow(1.0 - loss, segments)
}

impl Kernel {
    pub(super) fn new(
        id: u32,
        net: Arc<Net>,
        (up, down, queue): (Rate, Rate, Duration),
        control: Control,
        seed: u64,
    ) -> Self {
        Self {
            id,
            now: 0,
            net,
            control,
            lot: Lot::of(seed, u64::from(id) << 8 | 1),
            up_ps_per_byte: ps_per_byte(up),
            down_ps_per_byte: ps_per_byte(down),
            queue_ns: u64::try_from(queue.as_nanos()).unwrap_or(u64::MAX),
            up_free_at: 0,
            down_free_at: 0,
            ready: VecDeque::new(),
            arriving: VecDeque::new(),
            sockets: Vec::new(),
            free: Vec::new(),
            silences: BinaryHeap::new(),
            out: Vec::new(),
            mails: 0,
            pool: Vec::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
            sent_bytes: Vec::new(),
        }
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

    /// When something happens here by itself.
    pub(super) fn next_at(&self) -> u64 {
        let arrives = self.arriving.front().map_or(u64::MAX, |mail| mail.at);
        let sends = if self.ready.is_empty() { u64::MAX } else { self.up_at() };
        let silent = self.silences.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        arrives.min(sends).min(silent)
    }

    const fn up_at(&self) -> u64 {
        self.up_free_at.saturating_sub(UP_AHEAD_NS)
    }

    /// What is sent to this host comes to its way down, in order.
    pub(super) fn admit(&mut self, mut mail: Mail) {
        let at = mail.at;
        let (bytes, segments) = match &mail.what {
            What::Cells { cells, .. } => {
                let bytes = cells.len() as u64 * 514 + RECORD;
                (bytes, bytes.div_ceil(MSS))
            }
            What::Bytes { bytes, .. } | What::Again { bytes, .. } => {
                (u64::from(*bytes), u64::from(*bytes).div_ceil(MSS))
            }
            _ => (0, 0),
        };
        let mut is_lost = false;
        if segments > 0 {
            let socket = self.sockets.get(mail.socket.index as usize);
            let loss = socket.map_or(0, |socket| socket.loss);
            is_lost = loss > 0 && is_hit(self.lot.next() >> 32, loss, bytes);
            self.counts.lost_flights += u64::from(is_lost);
            if self.down_free_at > at + self.queue_ns {
                is_lost = true;
                self.counts.dropped_flights += 1;
            }
        }
        if !is_lost {
            let wire = bytes + HEADERS * segments.max(1);
            self.down_free_at = self.down_free_at.max(at) + wire * self.down_ps_per_byte / 1000;
        }
        let before = self.arriving.back().map_or(0, |last| last.at);
        mail.at = before.max(self.down_free_at).max(at);
        mail.is_lost = is_lost;
        self.arriving.push_back(mail);
    }

    /// Does what is due now.
    pub(super) fn step(&mut self) {
        self.counts.events += 1;
        if self.arriving.front().is_some_and(|mail| mail.at <= self.now) {
            if let Some(mail) = self.arriving.pop_front() {
                if self.arriving.is_empty() {
                    self.arriving.clear();
                }
                self.receive(mail);
            }
        } else if !self.ready.is_empty() && self.up_at() <= self.now {
            if let Some(index) = self.ready.pop_front() {
                self.sockets[index as usize].is_ready = false;
                self.send_flight(index);
                self.send(index);
            }
        } else if let Some(Reverse((_, index, uses))) = self.silences.pop() {
            self.handle_silence(index, uses);
        }
    }

    fn handle_silence(&mut self, index: u32, uses: u32) {
        let now = self.now;
        let socket = &mut self.sockets[index as usize];
        if socket.uses != uses || socket.phase == Phase::Free {
            return;
        }
        socket.is_watched = false;
        if socket.tx.silent_at <= now {
            socket.tx.handle_silence();
            self.send(index);
        } else {
            self.watch(index);
        }
    }

    fn watch(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        let at = socket.tx.silent_at;
        if at < u64::MAX && !socket.is_watched {
            socket.is_watched = true;
            self.silences.push(Reverse((at, index, socket.uses)));
        }
    }

    // --- sockets ---

    fn new_socket(&mut self, peer_host: u32, purpose: Purpose) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(Socket::new(self.control, 0));
            u32::try_from(self.sockets.len() - 1).unwrap_or(u32::MAX)
        });
        let uses = self.sockets[index as usize].uses;
        let window = if purpose == Purpose::Link { LINK_WINDOW } else { RECEIVE_WINDOW };
        let (latency_ns, _) = self.net.between(self.id, peer_host);
        let (_, loss) = self.net.between(peer_host, self.id);
        self.sockets[index as usize] = Socket {
            uses,
            phase: Phase::Opening,
            peer_host,
            purpose,
            latency_ns,
            loss,
            ..Socket::new(self.control, window)
        };
        index
    }

    fn key(&self, index: u32) -> SocketKey {
        SocketKey { index, uses: self.sockets[index as usize].uses }
    }

    /// Begins a connection; `conn` is how the application calls it.
    pub(super) fn dial(&mut self, to: u32, purpose: Purpose, conn: u32) -> u32 {
        let index = self.new_socket(to, purpose);
        self.sockets[index as usize].conn = conn;
        let back = self.key(index);
        self.post_small(index, What::Open(alloc::boxed::Box::new((back, purpose))));
        index
    }

    /// The application wants no more of it. What was written is still sent; the number is not to be used any more.
    pub(super) fn close(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        match socket.phase {
            Phase::Open => {
                socket.phase = Phase::Closing;
                socket.wants_room = false;
                let end = socket.tx.written();
                self.post_small(index, What::Close { end });
                self.end_if_done(index);
            }
            // Its peer is told when it is known.
            Phase::Opening => socket.phase = Phase::Closing,
            Phase::Free | Phase::Closing => {}
        }
    }

    fn end_if_done(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if socket.phase == Phase::Closing && socket.tx.is_done() {
            self.release(index);
        }
    }

    fn release(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.phase == Phase::Free {
            return;
        }
        socket.phase = Phase::Free;
        socket.uses = socket.uses.wrapping_add(1);
        socket.unsent = VecDeque::new();
        if core::mem::take(&mut socket.is_ready) {
            self.ready.retain(|ready| *ready != index);
        }
        self.free.push(index);
    }

    /// What KIST asks for.
    pub(super) fn state(&self, index: u32) -> SocketState {
        self.sockets[index as usize].tx.state()
    }

    /// Cells that the kernel takes of a socket now.
    pub(super) fn room_cells(&self, index: u32) -> usize {
        let socket = &self.sockets[index as usize];
        if socket.phase != Phase::Open {
            return 0;
        }
        usize::try_from(socket.tx.room().div_ceil(514)).unwrap_or(0)
    }

    /// Takes cells; they leave with [`send`](Self::send).
    pub(super) fn write_cells(&mut self, index: u32, cells: &mut [WeightlessCell]) {
        let socket = &mut self.sockets[index as usize];
        socket.tx.write(cells.len() as u64 * 514);
        for cell in cells {
            socket.unsent.push_back(core::mem::replace(cell, WeightlessCell::EMPTY));
        }
    }

    /// Takes one cell.
    pub(super) fn write_cell(&mut self, index: u32, cell: WeightlessCell) {
        let socket = &mut self.sockets[index as usize];
        socket.tx.write(514);
        socket.unsent.push_back(cell);
    }

    /// Takes bytes, and sends what may be sent.
    pub(super) fn write_bytes(&mut self, index: u32, bytes: u64) {
        self.sockets[index as usize].tx.write(bytes);
        self.send(index);
    }

    /// So many bytes were read.
    pub(super) fn read_bytes(&mut self, index: u32, bytes: u64) {
        let socket = &mut self.sockets[index as usize];
        socket.rx.read += bytes;
        if let Some(news) = socket.rx.news() {
            self.post_small(index, news);
        }
    }

    /// Gives back what cells came in.
    pub(super) fn recycle(&mut self, mut cells: Vec<WeightlessCell>) {
        cells.clear();
        if self.pool.len() < POOL_MAX {
            self.pool.push(cells);
        }
    }

    // --- the way up ---

    /// Sends what a socket may send; it waits for its turn where others wait.
    pub(super) fn send(&mut self, index: u32) {
        loop {
            let others_wait = !self.ready.is_empty() || self.up_at() > self.now;
            let socket = &mut self.sockets[index as usize];
            let is_open = matches!(socket.phase, Phase::Open | Phase::Closing);
            if !is_open || socket.is_ready || !socket.tx.may_send(socket.unit()) {
                return;
            }
            if others_wait {
                socket.is_ready = true;
                self.ready.push_back(index);
                return;
            }
            self.send_flight(index);
        }
    }

    fn send_flight(&mut self, index: u32) {
        let now = self.now;
        let socket = &mut self.sockets[index as usize];
        let unit = socket.unit();
        let Some(flight) = socket.tx.take_flight(now, unit) else { return };
        let (number, start, bytes) = (flight.number, flight.start, flight.bytes);
        let what = if flight.is_again {
            What::Again { number, start, bytes }
        } else if unit == 1 {
            What::Bytes { number, start, bytes }
        } else {
            let count = (bytes / 514) as usize;
            let mut cells = self.pool.pop().unwrap_or_default();
            cells.extend(socket.unsent.drain(..count));
            What::Cells { number, start, cells }
        };
        self.watch(index);
        let segments = u64::from(bytes).div_ceil(MSS);
        let wire = u64::from(bytes) + segments * HEADERS + RECORD;
        self.post(index, what, wire);
    }

    fn post_small(&mut self, index: u32, what: What) {
        self.post(index, what, HEADERS);
    }

    fn post(&mut self, index: u32, what: What, wire_bytes: u64) {
        let takes = wire_bytes * self.up_ps_per_byte / 1000;
        // Acknowledgements and the like do not wait: a queue of which each connection has its part lets them pass.
        let leaves_at = if wire_bytes == HEADERS {
            self.now + takes
        } else {
            self.up_free_at = self.up_free_at.max(self.now) + takes;
            self.up_free_at
        };
        let second = usize::try_from(self.now / 1_000_000_000).unwrap_or(0);
        if self.sent_bytes.len() <= second {
            self.sent_bytes.resize(second + 1, 0);
        }
        self.sent_bytes[second] += wire_bytes;
        let socket = &self.sockets[index as usize];
        let mail = Mail {
            at: leaves_at + u64::from(socket.latency_ns),
            from: self.id,
            number: self.mails,
            to: socket.peer_host,
            socket: socket.peer,
            is_lost: false,
            what,
        };
        self.mails = self.mails.wrapping_add(1);
        self.out.push(mail);
    }

    // --- the way down ---

    fn receive(&mut self, mail: Mail) {
        let is_lost = mail.is_lost;
        if let What::Open(open) = mail.what {
            let (back, purpose) = *open;
            let index = self.new_socket(mail.from, purpose);
            self.sockets[index as usize].peer = back;
            let back = self.key(index);
            self.post_small(index, What::Step { back, step: 1 });
            if purpose != Purpose::Link {
                self.open(index, false);
            }
            return;
        }
        let index = mail.socket.index;
        let is_there = self
            .sockets
            .get(index as usize)
            .is_some_and(|socket| socket.uses == mail.socket.uses && socket.phase != Phase::Free);
        if !is_there {
            return;
        }
        match mail.what {
            What::Open(_) => {}
            What::Step { back, step } => self.handle_step(index, back, step),
            What::Cells { number, start, cells } => {
                self.handle_flight(index, number, start, Payload::Cells(cells), is_lost);
            }
            What::Bytes { number, start, bytes } => {
                self.handle_flight(index, number, start, Payload::Bytes(bytes), is_lost);
            }
            What::Again { number, start, .. } => {
                if is_lost {
                    return;
                }
                match self.sockets[index as usize].rx.find(start) {
                    Some(payload) => self.handle_flight(index, number, start, payload, false),
                    None => self.acknowledge(index, number),
                }
            }
            What::Ack { number, next, window_end } => {
                let now = self.now;
                let socket = &mut self.sockets[index as usize];
                socket.tx.handle_ack(now, number, next, window_end);
                if socket.wants_room && socket.tx.room() >= socket.unit() {
                    socket.wants_room = false;
                    self.events.push_back(Event::Room(index));
                }
                self.send(index);
                self.end_if_done(index);
            }
            What::Window { window_end } => {
                self.sockets[index as usize].tx.handle_window(window_end);
                self.send(index);
            }
            What::Close { end } => {
                self.sockets[index as usize].rx.end = Some(end);
                self.handle_end(index);
            }
        }
    }

    fn handle_step(&mut self, index: u32, back: SocketKey, step: u8) {
        let socket = &mut self.sockets[index as usize];
        socket.peer = back;
        let is_link = socket.is_link();
        if socket.phase == Phase::Closing {
            socket.phase = Phase::Open;
            self.close(index);
            return;
        }
        let last = if is_link { STEPS_OF_LINK } else { 1 };
        if step < last {
            let back = self.key(index);
            self.post_small(index, What::Step { back, step: step + 1 });
        }
        // The dialler has steps 1, 3, 5.
        if step == last || step + 1 == last && is_link {
            self.open(index, step % 2 == 1);
        }
    }

    fn open(&mut self, index: u32, has_dialled: bool) {
        self.sockets[index as usize].phase = Phase::Open;
        let event = if has_dialled { Event::Opened(index) } else { Event::Accepted(index) };
        self.events.push_back(event);
    }

    fn handle_flight(
        &mut self,
        index: u32,
        number: u32,
        start: u64,
        payload: Payload,
        is_lost: bool,
    ) {
        let socket = &mut self.sockets[index as usize];
        if is_lost {
            socket.rx.lose(start, payload);
            return;
        }
        let (events, counts) = (&mut self.events, &mut self.counts);
        let is_heard = socket.phase == Phase::Open;
        let is_link = socket.is_link();
        socket.rx.receive(start, payload, |payload| {
            if let Payload::Cells(cells) = payload
                && is_heard
            {
                counts.cells += cells.len() as u64;
                events.push_back(Event::Cells(index, cells));
            }
        });
        if is_link || !is_heard {
            socket.rx.read = socket.rx.received();
        } else {
            self.events.push_back(Event::Bytes(index));
        }
        self.acknowledge(index, number);
        self.handle_end(index);
    }

    fn acknowledge(&mut self, index: u32, number: u32) {
        let ack = self.sockets[index as usize].rx.ack(number);
        self.post_small(index, ack);
    }

    fn handle_end(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if socket.rx.is_over() {
            if matches!(socket.phase, Phase::Open) {
                // The application may still read what is there; its number stays until it was told.
                self.events.push_back(Event::Closed(index));
            } else {
                self.release(index);
            }
        }
    }

    /// The application has been told that the peer has closed it.
    pub(super) fn forget(&mut self, index: u32) {
        self.release(index);
    }
}
