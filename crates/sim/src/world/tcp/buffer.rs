//! The send buffer, as Linux has it (6.18; `net/ipv4/tcp_input.c`, `net/ipv4/tcp_output.c`, `include/net/sock.h`; rules and numbers were seen with `ss -tmi`, too: docs/simulation.md).
//!
//! What it bounds is memory, not bytes of the stream. Room is reckoned for the worst, a segment in memory of its own (`tcp_sndbuf_expand`), while what is written takes little more
//! than its bytes: so some windows fit. The buffer grows with the window while the application wants more than there is room for, and never shrinks.

use super::{MSS, Sender};

/// What Linux reckons for a segment of 1,448 bytes, if built as Debian does: 4 KiB of memory and its description. The first buffer is the well-known one of 87,040 bytes then.
///
/// Where links need less room before a packet, as without wireless networks, it is 2,304.
pub const SEGMENT_MEMORY_BYTES: u32 = 4352;

/// Most of a connection (Linux: the third number of `tcp_wmem`).
const BUFFER_MAX: u64 = 4 << 20;

/// What is written comes to lie in pieces so long: as many whole segments as 64 KiB hold.
const PIECE: u64 = 45 * MSS;

/// Memory of a piece beside its bytes.
const PIECE_MEMORY: u64 = 832;

/// What leaves at once is a piece of its own: as much as the pace has for a millisecond (`tcp_tso_autosize`), which is a window and a fifth of it in a round trip.
const BURST_NS: u64 = 1_200_000;
const BURST_MIN: u64 = 2 * MSS;

impl Sender {
    /// Memory that all takes that is not acknowledged.
    fn memory(&self) -> u64 {
        let (sent, unsent) = (self.next - self.acked, self.written - self.next);
        let pace = (self.cwnd * BURST_NS).checked_div(self.round_trip_ns).unwrap_or(0);
        let burst = (pace - pace % MSS).clamp(BURST_MIN, PIECE);
        sent + unsent + PIECE_MEMORY * (sent.div_ceil(burst) + unsent.div_ceil(PIECE))
    }

    /// Bytes that the kernel would take now. A piece that has begun is filled in any case; only a new one asks for memory.
    pub(in crate::world) fn room(&self) -> u64 {
        let left = u64::from(self.buffer).saturating_sub(self.memory());
        if left == 0 && self.written == self.next {
            return 0;
        }
        let rest = self.written.next_multiple_of(PIECE) - self.written;
        rest + left.saturating_sub(rest).div_ceil(PIECE) * PIECE
    }

    /// Whether who was refused is told to go on: when a third of the buffer is free (`sk_stream_is_writeable`).
    pub(in crate::world) fn is_writable(&self) -> bool {
        3 * self.memory() <= 2 * u64::from(self.buffer)
    }

    /// More is to be written than there is room for: the buffer has twice what the window needs by Linux' reckoning (`tcp_new_space`), unless as much is under way as the window allows.
    ///
    /// A connection begins with this, too, and with a window of ten segments (`tcp_init_buffer_space`).
    pub(in crate::world) fn widen(&mut self, segment_memory_bytes: u32) {
        if self.in_flight < self.cwnd {
            let wanted = 2 * self.cwnd.div_ceil(MSS) * u64::from(segment_memory_bytes);
            let wanted = wanted.min(BUFFER_MAX);
            self.buffer = self.buffer.max(u32::try_from(wanted).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests;
