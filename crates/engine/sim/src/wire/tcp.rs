//! A simple TCP: reliable, in order, with a congestion window (RFC 5681, simplified).
//!
//! Its unit is the chunk: several segments with the same fate. A lost chunk is retransmitted when one that was
//! sent later is acknowledged, or after the RTO.

use crate::rto::{RTO_MAX_NS, RTO_MIN_NS};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use onion::node::SocketState;
use onion::{Duration, Instant};

/// The segment size in bytes, for packets of 1500 bytes.
pub(super) const SEGMENT_BYTES: u64 = MSS_BYTES as u64;

/// The segment size in the kernel's report.
const MSS_BYTES: u32 = 1448;

/// Maximum chunk length in bytes: about a TLS record.
const CHUNK_MAX_BYTES: u64 = 11 * SEGMENT_BYTES;

/// Minimum number of chunks in a full window, so that later ones reveal the loss of an earlier one.
const CHUNKS_OF_WINDOW: u64 = 4;

/// The initial window (RFC 6928).
const WINDOW_FIRST_BYTES: u64 = 10 * SEGMENT_BYTES;

/// The minimum window after a loss.
const WINDOW_LEAST_BYTES: u64 = 2 * SEGMENT_BYTES;

const RTO_MIN: Duration = Duration::from_nanos(RTO_MIN_NS);
const RTO_MAX: Duration = Duration::from_nanos(RTO_MAX_NS);

/// Segments in flight.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The stream offset of its first byte.
    start: u64,
    pub(super) bytes: Vec<u8>,
    /// How many chunks were sent before it.
    number: u64,
    /// When it was sent; `None` for a retransmission, which gives no round-trip sample (Karn's algorithm).
    sent_at: Option<Instant>,
}

/// The acknowledgement of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    chunk: ChunkHead,
    /// All bytes before this offset have arrived.
    next: u64,
    /// The right edge of the receive window.
    window_end: u64,
}

/// The acknowledged part of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkHead {
    start: u64,
    len: u64,
    number: u64,
    sent_at: Option<Instant>,
}

/// One side's sender.
#[derive(Debug)]
pub(super) struct Sender {
    /// Written and unsent data; bytes before `unsent_start` are gone.
    unsent: Vec<u8>,
    unsent_start: usize,
    /// The next byte to send.
    next: u64,
    /// Chunks sent, including retransmissions.
    sent: u64,
    /// All bytes before this offset are acknowledged.
    acked: u64,
    /// Bytes in flight, as far as it knows.
    in_flight: u64,
    /// The right edge of the peer's receive window.
    window_end: u64,
    cwnd: u64,
    /// The slow-start threshold.
    threshold: u64,
    /// The window is not halved again for losses before this byte.
    recovers_until: u64,
    round_trip: Option<Duration>,
    /// Lost chunks by number; the sender does not know yet.
    lost: BTreeMap<u64, Chunk>,
    /// Chunks to retransmit.
    again: VecDeque<Chunk>,
    /// RTOs since the last acknowledgement.
    timeouts: u32,
    /// Nothing more is written; the other side knows.
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
            timeouts: 0,
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

    /// Bytes in the send buffer: unsent or unacknowledged.
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

    /// Unsent data that fits into the windows.
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

    /// A chunk is lost. Returns when its RTO expires.
    pub(super) fn lose(&mut self, now: Instant, chunk: Chunk) -> Instant {
        self.lost.insert(chunk.number, chunk);
        let rto = self.round_trip.unwrap_or_default() * 2;
        let rto = rto.max(RTO_MIN) * (1 << self.timeouts.min(10));
        now + rto.min(RTO_MAX)
    }

    /// A chunk was acknowledged.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: Ack) {
        let Ack { chunk, next, window_end } = ack;
        let is_slow_start = self.cwnd < self.threshold;
        // A window that is not used says nothing about the path.
        let used = if is_slow_start { self.in_flight * 2 } else { self.in_flight };
        let is_used = used + 2 * SEGMENT_BYTES > self.cwnd;
        self.in_flight = self.in_flight.saturating_sub(chunk.len);
        self.acked = self.acked.max(next);
        self.timeouts = 0;
        self.handle_window(window_end);
        if let Some(sent_at) = chunk.sent_at {
            let sample = now - sent_at;
            let smooth = self.round_trip.map_or(sample, |known| (known * 7 + sample) / 8);
            self.round_trip = Some(smooth);
        }
        // Chunks sent before it that have not been acknowledged are lost.
        while let Some(first) = self.lost.first_entry().filter(|entry| *entry.key() < chunk.number)
        {
            let lost = first.remove();
            self.notice_loss(lost, false);
        }
        if is_used && chunk.start >= self.recovers_until {
            let grown =
                if is_slow_start { chunk.len } else { SEGMENT_BYTES * chunk.len / self.cwnd };
            self.cwnd += grown;
        }
    }

    /// The peer updates its receive window.
    pub(super) fn handle_window(&mut self, window_end: u64) {
        self.window_end = self.window_end.max(window_end);
    }

    /// The RTO of the chunk with this number has expired.
    pub(super) fn handle_overdue(&mut self, number: u64) {
        if let Some(chunk) = self.lost.remove(&number) {
            self.timeouts += 1;
            self.notice_loss(chunk, true);
        }
    }

    fn notice_loss(&mut self, chunk: Chunk, was_silent: bool) {
        self.in_flight = self.in_flight.saturating_sub(chunk.bytes.len() as u64);
        // Losses within one window count once; the loss of a retransmission counts again.
        if chunk.start >= self.recovers_until || chunk.sent_at.is_none() {
            self.threshold = (self.cwnd / 2).max(WINDOW_LEAST_BYTES);
            self.cwnd = if was_silent { WINDOW_LEAST_BYTES } else { self.threshold };
            self.recovers_until = self.next;
        }
        self.again.push_back(Chunk { sent_at: None, ..chunk });
    }

    /// The kernel's report.
    pub(super) fn state(&self) -> SocketState {
        let segments =
            |bytes: u64| u32::try_from(bytes.div_ceil(SEGMENT_BYTES)).unwrap_or(u32::MAX);
        let rtt_us = self.round_trip.map_or(0, |round_trip| round_trip.as_micros());
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

/// One side's receiver.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// All bytes before this offset have arrived.
    next: u64,
    /// Out-of-order chunks.
    early: BTreeMap<u64, Vec<u8>>,
}

impl Receiver {
    /// A chunk has arrived: passes everything that is in order now to `deliver`.
    pub(super) fn receive(&mut self, chunk: Chunk, mut deliver: impl FnMut(Vec<u8>)) {
        if chunk.start > self.next {
            self.early.insert(chunk.start, chunk.bytes);
            return;
        }
        self.next += chunk.bytes.len() as u64;
        deliver(chunk.bytes);
        while let Some(early) = self.early.first_entry().filter(|entry| *entry.key() == self.next) {
            let bytes = early.remove();
            self.next += bytes.len() as u64;
            deliver(bytes);
        }
    }

    /// The acknowledgement of a chunk.
    pub(super) const fn ack(&self, chunk: ChunkHead, window_end: u64) -> Ack {
        Ack { chunk, next: self.next, window_end }
    }

    /// All bytes before this offset have arrived.
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
