use super::exchange::Transmit;
use super::packet::FRAME_LEN_MAX;
use onion::Duration;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The requested size of the socket buffers; the system may grant less.
const BUFFER_LEN: usize = 8 << 20;

/// A UDP socket for a capacity test, bound before the test so that peers can learn its address.
pub struct CapacitySocket {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

impl CapacitySocket {
    /// Binds to `listen`; port zero takes any.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn bind(listen: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Small buffers lose packets, which the result shows. They are no error.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), BUFFER_LEN);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), BUFFER_LEN);
        let local = socket.local_addr()?;
        Ok(Self { socket, state, local })
    }

    /// The address to which it is bound.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The maximum number of datagrams per call.
    pub(super) fn batch_len(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends the datagrams in `buffer`; [`ErrorKind::WouldBlock`] if the socket buffer is full.
    pub(super) fn send(&self, transmit: &Transmit, buffer: &[u8]) -> io::Result<()> {
        let whole = &buffer[..transmit.len];
        let sent = self.send_as(transmit, whole);
        let is_batch = transmit.len > transmit.datagram_len;
        match sent {
            // The network card does not support segmentation of batches.
            Err(error)
                if is_batch
                    && error.kind() != ErrorKind::WouldBlock
                    && self.state.max_gso_segments() == 1 =>
            {
                for datagram in whole.chunks(transmit.datagram_len) {
                    match self.send_as(transmit, datagram) {
                        // The socket buffer is full: the rest is lost, as on any path.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        other => other?,
                    }
                }
                Ok(())
            }
            other => other,
        }
    }

    fn send_as(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: self.reachable(transmit.to),
            ecn: None,
            contents,
            segment_size: (contents.len() > transmit.datagram_len).then_some(transmit.datagram_len),
            src_ip: None,
        };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// An IPv6 socket reaches IPv4 addresses in their mapped form.
    fn reachable(&self, to: SocketAddr) -> SocketAddr {
        match to.ip() {
            IpAddr::V4(ip) if self.local.is_ipv6() => (ip.to_ipv6_mapped(), to.port()).into(),
            _ => to,
        }
    }

    /// Receives the pending datagrams, each with its sender; [`ErrorKind::WouldBlock`] if there is none.
    pub(super) fn receive(
        &self,
        buffers: &mut ReceiveBuffers,
        mut handle: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<()> {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<_> =
            buffers.bytes.chunks_exact_mut(buffers.each).map(IoSliceMut::new).collect();
        let count = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut meta)?;
        for (meta, slice) in meta.iter().zip(&slices).take(count) {
            let content = slice.get(..meta.len).unwrap_or_default();
            if content.is_empty() {
                handle(meta.addr, content);
            }
            content.chunks(meta.stride.max(1)).for_each(|datagram| handle(meta.addr, datagram));
        }
        Ok(())
    }

    /// Buffers for [`receive`](Self::receive).
    pub(super) fn receive_buffers(&self) -> ReceiveBuffers {
        // One byte more than a frame, so that a longer datagram does not look like one.
        let each = (FRAME_LEN_MAX + 1) * self.state.gro_segments();
        ReceiveBuffers { bytes: vec![0; each * BATCH_SIZE].into(), each }
    }

    /// Waits until the socket is readable, at most for `time`.
    pub(super) fn wait_readable(&self, time: Duration) -> io::Result<()> {
        self.wait(PollFlags::IN, time)
    }

    /// Waits until the socket is writable, at most for `time`.
    pub(super) fn wait_writable(&self, time: Duration) -> io::Result<()> {
        self.wait(PollFlags::OUT, time)
    }

    fn wait(&self, flags: PollFlags, time: Duration) -> io::Result<()> {
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Buffers for received datagrams.
pub(super) struct ReceiveBuffers {
    bytes: Box<[u8]>,
    /// Length of each buffer.
    each: usize,
}
