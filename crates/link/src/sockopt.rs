//! What the kernel knows of a TCP connection's way out.

use onion::node::SocketState;
use std::os::fd::{AsFd, AsRawFd};

/// Room for `struct tcp_info`, which grows with the kernel's version.
const INFO_LEN: usize = 256;

/// Where its members are (`linux/tcp.h`): each a number of 32 bits. What is there never moves.
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const RTT: usize = 68;
const SND_CWND: usize = 80;
const NOTSENT_BYTES: usize = 144;

/// The state of a socket, of which the driver holds `unwritten_bytes` more; `None` if the system does
/// not tell, as for anything but TCP on Linux 4.6 or newer.
///
/// What is not sent yet is what the ioctl `SIOCOUTQNSD` gives, which C tor asks for; `TCP_INFO` has it
/// as well, and so one call is enough.
pub(crate) fn socket_state(socket: &impl AsFd, unwritten_bytes: usize) -> Option<SocketState> {
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
    if result != 0 || !has_all {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
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
    }
}
