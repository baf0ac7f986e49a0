//! A simple TCP: bytes in order whatever gets lost, and a congestion window (RFC 5681, simplified).
//!
//! Its unit is the chunk, some segments that share their fate. A chunk that is lost is sent again when
//! one that was sent later is acknowledged, or when nothing was heard of it for twice the round trip.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use onion::node::SocketState;
use onion::{Duration, Instant};

/// Bytes of a segment: those of a packet of 1500 bytes.
pub(super) const SEGMENT_BYTES: u64 = MSS_BYTES as u64;

/// The same as the kernel tells it.
const MSS_BYTES: u32 = 1448;

/// Bytes of a chunk, at most: near those of a TLS record.
const CHUNK_MAX_BYTES: u64 = 11 * SEGMENT_BYTES;

/// Chunks of a full window, at least: so that later ones tell of the loss of an earlier one.
const CHUNKS_OF_WINDOW: u64 = 4;

/// What may be under way at first (RFC 6928).
const WINDOW_FIRST_BYTES: u64 = 10 * SEGMENT_BYTES;

/// Least window after a loss.
const WINDOW_LEAST_BYTES: u64 = 2 * SEGMENT_BYTES;

/// Least time without any acknowledgement before a chunk is sent again.
const RTO_MIN: Duration = Duration::from_millis(200);

/// Longest such time, however often it was doubled.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Some segments under way.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The number of its first byte in the connection's stream.
    start: u64,
    pub(super) bytes: Vec<u8>,
    /// How many were sent before it.
    number: u64,
    /// When it was sent; `None` if it was sent before, and an acknowledgement would tell nothing
    /// about the round trip.
    sent_at: Option<Instant>,
}

/// What a receiver says of a chunk that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    chunk: ChunkHead,
    /// All before this byte has come.
    next: u64,
    /// No byte from this one on is taken.
    window_end: u64,
}

/// What of a chunk its acknowledgement speaks of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkHead {
    start: u64,
    len: u64,
    number: u64,
    sent_at: Option<Instant>,
}

/// One side's way out.
#[derive(Debug)]
pub(super) struct Sender {
    /// What was written and not sent yet; bytes before `unsent_start` are gone.
    unsent: Vec<u8>,
    unsent_start: usize,
    /// The next byte to be sent.
    next: u64,
    /// Chunks sent, again or for the first time.
    sent: u64,
    /// All before this byte has come.
    acked: u64,
    /// Bytes under way, as far as it knows.
    in_flight: u64,
    /// No byte from this one on is taken.
    window_end: u64,
    cwnd: u64,
    /// Below this the window doubles in a round trip.
    threshold: u64,
    /// The window is not halved again for losses before this byte.
    recovers_until: u64,
    round_trip: Option<Duration>,
    /// Chunks that are lost, by their numbers; it does not know yet.
    lost: BTreeMap<u64, Chunk>,
    /// Chunks that are to be sent again.
    again: VecDeque<Chunk>,
    /// Times of silence without an acknowledgement between them.
    silences: u32,
    /// Nothing more is written; the other side has been told.
    pub(super) has_ended: bool,
}

impl Sender {
    pub(super) const fn new(receive_buffer_bytes: u64) -> Self {
        Self {
            unsent: Vec::new(),
            unsent_start: 0,
            next: 0,
            sent: 0,
            acked: 0,
            in_flight: 0,
            window_end: receive_buffer_bytes,
            cwnd: WINDOW_FIRST_BYTES,
            threshold: u64::MAX,
            recovers_until: 0,
            round_trip: None,
            lost: BTreeMap::new(),
            again: VecDeque::new(),
            silences: 0,
            has_ended: false,
        }
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.unsent_start
    }

    /// Bytes of the stream that were sent at least once.
    pub(super) const fn sent_bytes(&self) -> u64 {
        self.next
    }

    /// Bytes in the send buffer: not sent, or not acknowledged.
    pub(super) const fn buffered_bytes(&self) -> u64 {
        self.unsent_bytes() as u64 + self.next - self.acked
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.unsent_start > self.unsent.len() / 2 {
            self.unsent.drain(..self.unsent_start);
            self.unsent_start = 0;
        }
        self.unsent.extend_from_slice(bytes);
    }

    /// The next chunk that may be sent.
    pub(super) fn next_chunk(&mut self, now: Instant) -> Option<Chunk> {
        let number = self.sent;
        let chunk = if let Some(chunk) = self.again.front() {
            let len = chunk.bytes.len() as u64;
            if self.in_flight > 0 && self.in_flight + len > self.cwnd {
                return None;
            }
            Chunk { number, ..self.again.pop_front()? }
        } else {
            let bytes = self.take_unsent()?;
            let start = self.next;
            self.next += bytes.len() as u64;
            Chunk { start, bytes, number, sent_at: Some(now) }
        };
        self.sent += 1;
        self.in_flight += chunk.bytes.len() as u64;
        Some(chunk)
    }

    /// What was not sent yet and fits into the windows.
    fn take_unsent(&mut self) -> Option<Vec<u8>> {
        let unsent = self.unsent_bytes() as u64;
        let window = self.cwnd.saturating_sub(self.in_flight);
        let window = window.min(self.window_end.saturating_sub(self.next));
        let chunk_max = (self.cwnd / CHUNKS_OF_WINDOW).clamp(SEGMENT_BYTES, CHUNK_MAX_BYTES);
        let most = window.min(chunk_max);
        let len = if unsent <= most { unsent } else { most - most % SEGMENT_BYTES };
        if len == 0 {
            return None;
        }
        let from = self.unsent_start;
        self.unsent_start += usize::try_from(len).unwrap_or(0);
        let bytes = self.unsent[from..self.unsent_start].to_vec();
        if self.unsent_start == self.unsent.len() {
            self.unsent.clear();
            self.unsent_start = 0;
        }
        Some(bytes)
    }

    /// A chunk gets lost. Returns when it will be overdue.
    pub(super) fn lose(&mut self, now: Instant, chunk: Chunk) -> Instant {
        self.lost.insert(chunk.number, chunk);
        let patience = self.round_trip.unwrap_or_default() * 2;
        let patience = patience.max(RTO_MIN) * (1 << self.silences.min(10));
        now + patience.min(SILENCE_MAX)
    }

    /// A chunk has come.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: Ack) {
        let Ack { chunk, next, window_end } = ack;
        let is_slow_start = self.cwnd < self.threshold;
        // A window that is not used says nothing about the path.
        let used = if is_slow_start { self.in_flight * 2 } else { self.in_flight };
        let is_used = used + 2 * SEGMENT_BYTES > self.cwnd;
        self.in_flight = self.in_flight.saturating_sub(chunk.len);
        self.acked = self.acked.max(next);
        self.silences = 0;
        self.handle_window(window_end);
        if let Some(sent_at) = chunk.sent_at {
            let sample = now - sent_at;
            let smooth = self.round_trip.map_or(sample, |known| (known * 7 + sample) / 8);
            self.round_trip = Some(smooth);
        }
        // What was sent before it and has not come is lost.
        while let Some(first) = self.lost.first_entry().filter(|it| *it.key() < chunk.number) {
            let lost = first.remove();
            self.notice_loss(lost, false);
        }
        if is_used && chunk.start >= self.recovers_until {
            let grown =
                if is_slow_start { chunk.len } else { SEGMENT_BYTES * chunk.len / self.cwnd };
            self.cwnd += grown;
        }
    }

    /// The other side takes bytes up to this one.
    pub(super) fn handle_window(&mut self, window_end: u64) {
        self.window_end = self.window_end.max(window_end);
    }

    /// Nothing was heard of the chunk with this number for long.
    pub(super) fn handle_overdue(&mut self, number: u64) {
        if let Some(chunk) = self.lost.remove(&number) {
            self.silences += 1;
            self.notice_loss(chunk, true);
        }
    }

    fn notice_loss(&mut self, chunk: Chunk, was_silent: bool) {
        self.in_flight = self.in_flight.saturating_sub(chunk.bytes.len() as u64);
        // Losses of one window are one loss; that of what was sent again is another.
        if chunk.start >= self.recovers_until || chunk.sent_at.is_none() {
            self.threshold = (self.cwnd / 2).max(WINDOW_LEAST_BYTES);
            self.cwnd = if was_silent { WINDOW_LEAST_BYTES } else { self.threshold };
            self.recovers_until = self.next;
        }
        self.again.push_back(Chunk { sent_at: None, ..chunk });
    }

    /// As the kernel would tell it.
    pub(super) fn state(&self) -> SocketState {
        let segments =
            |bytes: u64| u32::try_from(bytes.div_ceil(SEGMENT_BYTES)).unwrap_or(u32::MAX);
        let rtt_us = self.round_trip.map_or(0, |it| it.as_micros());
        SocketState {
            cwnd_segments: segments(self.cwnd),
            unacked_segments: segments(self.next - self.acked),
            mss_bytes: MSS_BYTES,
            notsent_bytes: u32::try_from(self.unsent_bytes()).unwrap_or(u32::MAX),
            unwritten_bytes: 0,
            rtt_us: u32::try_from(rtt_us).unwrap_or(u32::MAX),
        }
    }
}

/// One side's way in.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// All before this byte has come.
    next: u64,
    /// What has come after something that is missing.
    early: BTreeMap<u64, Vec<u8>>,
}

impl Receiver {
    /// A chunk has come: gives `deliver` what is in order now.
    pub(super) fn receive(&mut self, chunk: Chunk, mut deliver: impl FnMut(Vec<u8>)) {
        if chunk.start > self.next {
            self.early.insert(chunk.start, chunk.bytes);
            return;
        }
        self.next += chunk.bytes.len() as u64;
        deliver(chunk.bytes);
        while let Some(early) = self.early.first_entry().filter(|it| *it.key() == self.next) {
            let bytes = early.remove();
            self.next += bytes.len() as u64;
            deliver(bytes);
        }
    }

    /// What to say of a chunk that has come.
    pub(super) const fn ack(&self, chunk: ChunkHead, window_end: u64) -> Ack {
        Ack { chunk, next: self.next, window_end }
    }

    /// All before this byte has come.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }
}

impl Chunk {
    pub(super) const fn head(&self) -> ChunkHead {
        let (start, len) = (self.start, self.bytes.len() as u64);
        ChunkHead { start, len, number: self.number, sent_at: self.sent_at }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests;
