//! Kernel counters of a TCP connection.

use onion::Duration;
use onion::node::SocketState;
use std::os::fd::{AsFd, AsRawFd};

/// Size of the buffer for `struct tcp_info`, which grows with the kernel version.
const INFO_LEN: usize = 256;

/// Offsets of its members (`linux/tcp.h`), 32 bits wide unless noted. Offsets never change between
/// versions.
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const RTT: usize = 68;
const SND_CWND: usize = 80;
/// 64 bits.
const BYTES_ACKED: usize = 120;
/// 64 bits.
const BYTES_RECEIVED: usize = 128;
const NOTSENT_BYTES: usize = 144;
const MIN_RTT: usize = 148;
const DATA_SEGS_IN: usize = 152;
/// 64 bits, like the next four.
const BUSY_TIME: usize = 168;
const RWND_LIMITED: usize = 176;
const SNDBUF_LIMITED: usize = 184;
const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;
const RCV_OOOPACK: usize = 224;
/// The octet that holds `tcpi_delivery_rate_app_limited`, and its bit.
const APP_LIMITED: usize = 7;
const APP_LIMITED_BIT: u8 = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };

/// Bytes that a TCP connection has transferred, TLS included and retransmissions excluded, as
/// counted by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpBytes {
    /// Accepted from the program: sent, or queued.
    pub written: u64,
    /// Sent, and acknowledged by the peer's kernel.
    pub sent: u64,
    /// Received, whether read or not.
    pub received: u64,
}

/// Reads the counters of a socket. `None` for anything but TCP on Linux 4.6 or newer.
#[must_use]
pub fn tcp_bytes(socket: &impl AsFd) -> Option<TcpBytes> {
    let info = tcp_info(socket)?;
    let unsent = u64::from(info.number(NOTSENT_BYTES)?);
    let first_time = info.wide(BYTES_SENT)?.saturating_sub(info.wide(BYTES_RETRANS)?);
    Some(TcpBytes {
        written: first_time + unsent,
        sent: info.wide(BYTES_ACKED)?,
        received: info.wide(BYTES_RECEIVED)?,
    })
}

/// Counters that explain what limits a TCP connection, since the connection began or, where noted,
/// at present (`struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpAccount {
    /// Time with data in flight or queued, at the resolution of the kernel's tick (`busy_time`).
    /// The next two times are part of it.
    pub busy: Duration,
    /// Time limited by the peer's receive window (`rwnd_limited`).
    pub rwnd_limited: Duration,
    /// Time limited by the send buffer (`sndbuf_limited`).
    pub sndbuf_limited: Duration,
    /// Bytes sent for the first time, acknowledged or not.
    pub sent_bytes: u64,
    /// Bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Segments received with data.
    pub received_segments: u32,
    /// Packets received out of order.
    pub out_of_order_packets: u32,
    /// Whether the sender is application-limited: all written data is sent, and it was less than
    /// the congestion window allowed at the latest sample of the delivery rate. (The flag alone
    /// stays set on an idle connection.)
    pub is_app_limited: bool,
    /// Bytes written but not sent, at present.
    pub unsent_bytes: u64,
    /// Bytes sent but not acknowledged, at present, in whole segments.
    pub unacked_bytes: u64,
    /// The current smoothed RTT; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// The minimum RTT of the last minutes (`min_rtt`); `None` before the first sample.
    pub min_rtt: Option<Duration>,
}

/// Reads the account of a socket. `None` for anything but TCP on Linux 5.4 or newer.
#[must_use]
pub fn tcp_account(socket: &impl AsFd) -> Option<TcpAccount> {
    tcp_info(socket)?.account()
}

/// Reads the state of a socket for which the driver holds `unwritten_bytes` more. `None` for
/// anything but TCP on Linux 4.6 or newer.
///
/// The unsent bytes are those of the ioctl `SIOCOUTQNSD`, which C tor uses. `TCP_INFO` has them as
/// well, so one system call is enough.
pub(crate) fn socket_state(socket: &impl AsFd, unwritten_bytes: usize) -> Option<SocketState> {
    let info = tcp_info(socket)?;
    Some(SocketState {
        cwnd_segments: info.number(SND_CWND)?,
        unacked_segments: info.number(UNACKED)?,
        mss_bytes: info.number(SND_MSS)?,
        notsent_bytes: info.number(NOTSENT_BYTES)?,
        unwritten_bytes: u32::try_from(unwritten_bytes).unwrap_or(u32::MAX),
        rtt_us: info.number(RTT)?,
    })
}

/// The part of `struct tcp_info` that the kernel has written: older kernels write less.
struct Info {
    bytes: [u8; INFO_LEN],
    len: usize,
}

impl Info {
    /// A member; `None` if the kernel does not know it.
    fn member<const LEN: usize>(&self, at: usize) -> Option<[u8; LEN]> {
        self.bytes.get(..self.len)?.get(at..at + LEN)?.try_into().ok()
    }

    fn number(&self, at: usize) -> Option<u32> {
        self.member(at).map(u32::from_ne_bytes)
    }

    fn wide(&self, at: usize) -> Option<u64> {
        self.member(at).map(u64::from_ne_bytes)
    }

    fn time(&self, at: usize) -> Option<Duration> {
        self.wide(at).map(Duration::from_micros)
    }

    fn account(&self) -> Option<TcpAccount> {
        let [octet] = self.member(APP_LIMITED)?;
        let (sent, again) = (self.wide(BYTES_SENT)?, self.wide(BYTES_RETRANS)?);
        let unsent = u64::from(self.number(NOTSENT_BYTES)?);
        let unacked = u64::from(self.number(UNACKED)?) * u64::from(self.number(SND_MSS)?);
        let (rtt, least) = (self.number(RTT)?, self.number(MIN_RTT)?);
        let rtt_of = |us: u32| Duration::from_micros(us.into());
        Some(TcpAccount {
            busy: self.time(BUSY_TIME)?,
            rwnd_limited: self.time(RWND_LIMITED)?,
            sndbuf_limited: self.time(SNDBUF_LIMITED)?,
            sent_bytes: sent.saturating_sub(again),
            retransmitted_bytes: again,
            received_segments: self.number(DATA_SEGS_IN)?,
            out_of_order_packets: self.number(RCV_OOOPACK)?,
            is_app_limited: octet & APP_LIMITED_BIT != 0 && unsent == 0,
            unsent_bytes: unsent,
            unacked_bytes: unacked,
            rtt: (rtt > 0).then(|| rtt_of(rtt)),
            min_rtt: (least != u32::MAX).then(|| rtt_of(least)), // the kernel's value for none
        })
    }
}

/// Reads `struct tcp_info`.
fn tcp_info(socket: &impl AsFd) -> Option<Info> {
    let mut bytes = [0_u8; INFO_LEN];
    let mut len = libc::socklen_t::try_from(INFO_LEN).ok()?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, since `socket` is borrowed; the kernel writes at most `len`
    // bytes to `bytes`, which has that length, and their number to `len`; both outlive the call.
    #[expect(unsafe_code, reason = "no library wraps TCP_INFO")]
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let len = usize::try_from(len).ok()?;
    (result == 0).then_some(Info { bytes, len })
}

#[cfg(test)]
mod tests;
