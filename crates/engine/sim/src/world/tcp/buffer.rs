//! The send buffer, as in Linux (6.18; `net/ipv4/tcp_input.c`, `net/ipv4/tcp_output.c`, `include/net/sock.h`;
//! rules and numbers were also observed with `ss -tmi`: docs/results/simulation.md).
//!
//! Its limit is memory, not bytes of the stream. The limit assumes the worst case, one buffer per segment
//! (`tcp_sndbuf_expand`), while written data takes little more than its bytes, so several windows fit. The
//! buffer grows with the window while the application has more to write, and never shrinks.

use super::{MSS, Sender};

/// The memory that Linux accounts for a segment of 1,448 bytes, in Debian's configuration: 4 KiB and its
/// descriptor. The initial buffer is then the well-known one of 87,040 bytes.
///
/// With less headroom before a packet, as without wireless networks, it is 2,304.
pub const SEGMENT_MEMORY_BYTES: u32 = 4352;

/// The maximum of a connection (Linux: the third number of `tcp_wmem`).
const BUFFER_MAX: u64 = 4 << 20;

/// Written data is stored in pieces of this length: as many whole segments as fit into 64 KiB.
const PIECE: u64 = 45 * MSS;

/// The memory overhead of a piece.
const PIECE_MEMORY: u64 = 832;

/// Data sent at once is a separate piece: as much as the pacing rate allows for a millisecond
/// (`tcp_tso_autosize`), which is 1.2 windows per round trip.
const BURST_NS: u64 = 1_200_000;
const BURST_MIN: u64 = 2 * MSS;

impl Sender {
    /// The memory of all unacknowledged data.
    fn memory(&self) -> u64 {
        let (sent, unsent) = (self.next - self.acked, self.written - self.next);
        let pace = (self.cwnd * BURST_NS).checked_div(self.round_trip_ns).unwrap_or(0);
        let burst = (pace - pace % MSS).clamp(BURST_MIN, PIECE);
        sent + unsent + PIECE_MEMORY * (sent.div_ceil(burst) + unsent.div_ceil(PIECE))
    }

    /// Bytes that the kernel would accept now. A begun piece is filled in any case; only a new one needs
    /// memory.
    pub(crate) fn room(&self) -> u64 {
        let left = u64::from(self.buffer).saturating_sub(self.memory());
        if left == 0 && self.written == self.next {
            return 0;
        }
        let rest = self.written.next_multiple_of(PIECE) - self.written;
        rest + left.saturating_sub(rest).div_ceil(PIECE) * PIECE
    }

    /// The room with `TCP_NOTSENT_LOWAT` 1 (`tcp_stream_memory_free`): what the last unsent piece lacks.
    pub(crate) fn room_of_piece(&self) -> u64 {
        self.room().min(PIECE.saturating_sub(self.unsent()))
    }

    /// Whether a refused writer is woken: when a third of the buffer is free (`sk_stream_is_writeable`).
    pub(crate) fn is_writable(&self) -> bool {
        3 * self.memory() <= 2 * u64::from(self.buffer)
    }

    /// The writer has more than fits: the buffer becomes twice the window by Linux' accounting
    /// (`tcp_new_space`), unless the window is full.
    ///
    /// A connection begins with this, too, and with a window of ten segments (`tcp_init_buffer_space`).
    pub(crate) fn widen(&mut self, segment_memory_bytes: u32) {
        if self.in_flight < self.cwnd {
            let wanted = 2 * self.cwnd.div_ceil(MSS) * u64::from(segment_memory_bytes);
            let wanted = wanted.min(BUFFER_MAX);
            self.buffer = self.buffer.max(u32::try_from(wanted).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests;
