//! What the kernel knows of a TCP connection: its way out, and what it has carried.

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

/// What a TCP connection has carried, as the kernel counts it: bytes of its stream, TLS included, each
/// once however often it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpBytes {
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
    let number = |at: usize| {
        let bytes = info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    Some(TcpBytes { sent: number(BYTES_ACKED), received: number(BYTES_RECEIVED) })
}

/// The state of a socket, of which the driver holds `unwritten_bytes` more; `None` if the system does
/// not tell, as for anything but TCP on Linux 4.6 or newer.
///
/// What is not sent yet is what the ioctl `SIOCOUTQNSD` gives, which C tor asks for; `TCP_INFO` has it
/// as well, and so one call is enough.
pub(crate) fn socket_state(socket: &impl AsFd, unwritten_bytes: usize) -> Option<SocketState> {
    let info = tcp_info(socket)?;
    let number = |at: usize| {
        let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    Some(SocketState {
        cwnd_segments: number(SND_CWND),
        unacked_segments: number(UNACKED),
        mss_bytes: number(SND_MSS),
        notsent_bytes: number(NOTSENT_BYTES),
        unwritten_bytes: u32::try_from(unwritten_bytes).unwrap_or(u32::MAX),
        rtt_us: number(RTT),
    })
}

/// All that Linux 4.6 or newer tells of a TCP connection.
fn tcp_info(socket: &impl AsFd) -> Option<[u8; INFO_LEN]> {
    let mut info = [0_u8; INFO_LEN];
    let mut len = libc::socklen_t::try_from(INFO_LEN).ok()?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, since `socket` is borrowed; the kernel writes at most `len` bytes
    // to `info`, which has that many, and how many it wrote to `len`; both outlive the call.
    #[expect(unsafe_code, reason = "no library wraps TCP_INFO")]
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let has_all = usize::try_from(len).is_ok_and(|len| len >= NOTSENT_BYTES + 4);
    (result == 0 && has_all).then_some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    #[test]
    fn what_a_peer_does_not_read_is_seen_to_wait() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut stream = TcpStream::connect(address).expect("connects");
        let (peer, _) = listener.accept().expect("accepts");
        let idle = socket_state(&stream, 5).expect("Linux tells");
        assert!(idle.cwnd_segments >= 2 && idle.mss_bytes >= 500, "{idle:?}");
        assert_eq!((idle.unacked_segments, idle.notsent_bytes, idle.unwritten_bytes), (0, 0, 5));
        stream.set_nonblocking(true).expect("possible");
        let mut written = 0;
        loop {
            match stream.write(&[0; 65_536]) {
                Ok(len) => written += len,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        let full = socket_state(&stream, 0).expect("Linux tells");
        assert!(full.notsent_bytes > 0, "{full:?}");
        assert!(usize::try_from(full.notsent_bytes).expect("fits") <= written, "{full:?}");
        drop(peer);
    }

    #[test]
    fn other_sockets_have_no_such_state() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        assert_eq!(socket_state(&socket, 0), None);
        assert_eq!(tcp_bytes(&socket), None);
    }

    #[test]
    fn what_has_been_carried_is_counted_on_both_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut stream =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut peer, _) = listener.accept().expect("accepts");
        let before = tcp_bytes(&stream).expect("Linux tells");
        stream.write_all(&[7; 100_000]).expect("takes it");
        peer.read_exact(&mut [0; 100_000]).expect("gets it");
        peer.write_all(&[7; 10]).expect("takes it");
        stream.read_exact(&mut [0; 10]).expect("gets it");
        let (ours, theirs) = (tcp_bytes(&stream), tcp_bytes(&peer));
        let [ours, theirs] = [ours, theirs].map(|bytes| bytes.expect("Linux tells"));
        assert_eq!((ours.sent - before.sent, ours.received), (100_000, 10));
        assert_eq!(theirs.received, 100_000);
    }
}
