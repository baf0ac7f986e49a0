//! What the kernel knows of a TCP connection: its way out, and what it has carried.

use onion::Duration;
use onion::node::SocketState;
use std::os::fd::{AsFd, AsRawFd};

/// Room for `struct tcp_info`, which grows with the kernel's version.
const INFO_LEN: usize = 256;

/// Where its members are (`linux/tcp.h`): each a number of 32 bits, but those that say so. What is there
/// never moves.
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const RTT: usize = 68;
const SND_CWND: usize = 80;
/// Of 64 bits.
const BYTES_ACKED: usize = 120;
/// Of 64 bits.
const BYTES_RECEIVED: usize = 128;
const NOTSENT_BYTES: usize = 144;
const MIN_RTT: usize = 148;
const DATA_SEGS_IN: usize = 152;
/// Of 64 bits, as the next four.
const BUSY_TIME: usize = 168;
const RWND_LIMITED: usize = 176;
const SNDBUF_LIMITED: usize = 184;
const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;
const RCV_OOOPACK: usize = 224;
/// The octet of `tcpi_delivery_rate_app_limited`, and its bit there.
const APP_LIMITED: usize = 7;
const APP_LIMITED_BIT: u8 = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };

/// What a TCP connection has carried, as the kernel counts it: bytes of its stream, TLS included, each
/// once however often it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpBytes {
    /// Taken from the program to be sent: sent already, or waiting for it.
    pub written: u64,
    /// Sent, and acknowledged by the other end's kernel.
    pub sent: u64,
    /// Received, whether anybody has read it yet or not.
    pub received: u64,
}

/// What a socket has carried; `None` if the system does not tell, as for anything but TCP on Linux 4.6 or
/// newer.
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

/// Why a TCP connection has not sent more, and how what it got has come, as the kernel counts it since the
/// connection began; where it says so, as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpAccount {
    /// Time with data under way or waiting to be sent, as fine as the kernel's tick. The two times that
    /// follow are parts of it.
    pub busy: Duration,
    /// Time in which the peer's receive window let nothing more be sent.
    pub peer_window: Duration,
    /// Time in which all that the send buffer holds was under way.
    pub send_buffer: Duration,
    /// Bytes sent for the first time, acknowledged or not.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Segments received that had data.
    pub received_segments: u32,
    /// Packets received before others that belonged before them.
    pub out_of_order_packets: u32,
    /// Whether all that was written is sent, and was less than the congestion window allowed when the
    /// latest sample of the delivery rate was taken. (The flag alone stays set where nothing moves.)
    pub is_app_limited: bool,
    /// Bytes written, and not sent yet: now.
    pub unsent_bytes: u64,
    /// Bytes sent, and not acknowledged: now, in whole segments.
    pub unacked_bytes: u64,
    /// The smoothed round trip, now; `None` before there is any.
    pub rtt: Option<Duration>,
    /// The least round trip of the last minutes; `None` before there is any.
    pub least_rtt: Option<Duration>,
}

/// The account of a socket; `None` if the system does not tell all of it, as for anything but TCP on Linux
/// 5.4 or newer.
#[must_use]
pub fn tcp_account(socket: &impl AsFd) -> Option<TcpAccount> {
    tcp_info(socket)?.account()
}

/// The state of a socket, of which the driver holds `unwritten_bytes` more; `None` if the system does
/// not tell, as for anything but TCP on Linux 4.6 or newer.
///
/// What is not sent yet is what the ioctl `SIOCOUTQNSD` gives, which C tor asks for; `TCP_INFO` has it
/// as well, and so one call is enough.
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

/// What a kernel has written of `struct tcp_info`: older ones know less of it.
struct Info {
    bytes: [u8; INFO_LEN],
    len: usize,
}

impl Info {
    /// A member; `None` where the kernel does not know it.
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
            peer_window: self.time(RWND_LIMITED)?,
            send_buffer: self.time(SNDBUF_LIMITED)?,
            sent_bytes: sent.saturating_sub(again),
            retransmitted_bytes: again,
            received_segments: self.number(DATA_SEGS_IN)?,
            out_of_order_packets: self.number(RCV_OOOPACK)?,
            is_app_limited: octet & APP_LIMITED_BIT != 0 && unsent == 0,
            unsent_bytes: unsent,
            unacked_bytes: unacked,
            rtt: (rtt > 0).then(|| rtt_of(rtt)),
            least_rtt: (least != u32::MAX).then(|| rtt_of(least)), // that stands for none
        })
    }
}

/// What Linux tells of a TCP connection.
fn tcp_info(socket: &impl AsFd) -> Option<Info> {
    let mut bytes = [0_u8; INFO_LEN];
    let mut len = libc::socklen_t::try_from(INFO_LEN).ok()?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, since `socket` is borrowed; the kernel writes at most `len` bytes
    // to `bytes`, which has that many, and how many it wrote to `len`; both outlive the call.
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
