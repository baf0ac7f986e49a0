use crate::sockopt::{self, TcpAccount};
use crate::tls::{Buffers, Outgoing, Session};
use mio::event::Event;
use mio::net::TcpStream;
use onion::Instant;
use onion::node::{CloseCause, ConnId, ListenerId, SocketState, Unwritten};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// Bytes buffered before they are written: four full records.
pub(crate) const PENDING_LEN: usize = 64 * 1024;

/// The layer between the node and TCP.
pub(super) enum Transport {
    /// TLS. Boxed, because the other variant is small.
    Tls(Box<Session>),
    /// No TLS, only a buffer.
    Plain(Outgoing),
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Connecting.
    Connecting,
    /// TLS handshake.
    Handshake,
    /// Announced to the node.
    Open,
    /// Closed by the node; pending bytes are still written.
    Leaving,
}

/// A socket with its transport and its readiness (edge-triggered).
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) transport: Transport,
    pub(super) stage: Stage,
    /// The node's ID. Accepted connections get one after the TLS handshake; leaving ones have none.
    pub(super) conn: Option<ConnId>,
    /// The listener that accepted it.
    pub(super) listener: Option<ListenerId>,
    /// When its stage times out; `None` while it is open.
    pub(super) deadline: Option<Instant>,
    pub(super) is_readable: bool,
    /// epoll has reported the end of the stream or an error; nothing further is reported.
    is_ending: bool,
    is_writable: bool,
    /// The node may have data to send.
    pub(super) wants_flush: bool,
    pub(super) is_queued: bool,
    /// Why no more data can be written. Received data may still be read.
    pub(super) broken: Option<CloseCause>,
    /// Bytes that the kernel has accepted since the last report of unwritten bytes.
    written_since_report: Option<usize>,
    /// Memory in that report.
    reported_held_bytes: usize,
    /// Memory that it held when the node closed it.
    pub(super) left_with_bytes: usize,
}

/// Idle time and interval of TCP keepalive probes. Without them the connection of a peer that has
/// lost power would stay open forever.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(core::time::Duration::from_secs(300))
    .with_interval(core::time::Duration::from_secs(30));

/// Sets options whose failure is harmless.
fn tune(stream: &TcpStream) {
    // Otherwise small records wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&KEEPALIVE);
}

impl Socket {
    /// Whether its TLS handshake is incomplete.
    pub(super) const fn is_in_handshake(&self) -> bool {
        matches!((self.stage, &self.transport), (Stage::Handshake, Transport::Tls(_)))
    }

    pub(super) fn dialled(stream: TcpStream, transport: Transport, conn: ConnId) -> Self {
        Self::new(stream, transport, Stage::Connecting, Some(conn), None)
    }

    pub(super) fn accepted(stream: TcpStream, session: Session, listener: ListenerId) -> Self {
        tune(&stream);
        let transport = Transport::Tls(Box::new(session));
        Self::new(stream, transport, Stage::Handshake, None, Some(listener))
    }

    pub(super) fn accepted_plain(stream: TcpStream, conn: ConnId) -> Self {
        tune(&stream);
        let transport = Transport::Plain(Outgoing::default());
        Self::new(stream, transport, Stage::Open, Some(conn), None)
    }

    const fn new(
        stream: TcpStream,
        transport: Transport,
        stage: Stage,
        conn: Option<ConnId>,
        listener: Option<ListenerId>,
    ) -> Self {
        Self {
            stream,
            transport,
            stage,
            conn,
            listener,
            deadline: None,
            is_readable: false,
            is_ending: false,
            is_writable: false,
            wants_flush: false,
            is_queued: false,
            broken: None,
            written_since_report: None,
            reported_held_bytes: 0,
            left_with_bytes: 0,
        }
    }

    /// The report of unwritten bytes for the node, if one is due. An idle connection needs none.
    pub(super) fn unwritten_report(&mut self) -> Option<Unwritten> {
        let outgoing = self.outgoing();
        let (pending_bytes, held_bytes) = (outgoing.pending().len(), outgoing.held_bytes());
        let reported = self.written_since_report;
        if held_bytes == 0 && reported.is_none() {
            return None;
        }
        // While data is queued the memory is constant, and its age is known well enough.
        if held_bytes == self.reported_held_bytes
            && reported.is_some_and(|written| written < PENDING_LEN)
        {
            return None;
        }
        self.reported_held_bytes = held_bytes;
        self.written_since_report = (held_bytes > 0).then_some(0);
        let written_bytes = reported.unwrap_or(0);
        Some(Unwritten { pending_bytes, written_bytes, held_bytes })
    }

    /// Records an epoll event.
    pub(super) fn note(&mut self, event: &Event) {
        self.is_ending |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.is_ending;
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// The kernel's view of the send direction.
    pub(super) fn state(&mut self) -> Option<SocketState> {
        let unwritten = self.outgoing().pending().len();
        sockopt::socket_state(&self.stream, unwritten)
    }

    /// The kernel's counters; `None` before the connection is open.
    pub(super) fn account(&self) -> Option<TcpAccount> {
        if self.stage == Stage::Open { sockopt::tcp_account(&self.stream) } else { None }
    }

    /// Returns whether the connection is established.
    pub(super) fn finish_connecting(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {
                tune(&self.stream);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The pending bytes and their buffer.
    pub(super) const fn outgoing(&mut self) -> &mut Outgoing {
        match &mut self.transport {
            Transport::Tls(session) => session.outgoing(),
            Transport::Plain(outgoing) => outgoing,
        }
    }

    /// Reads once into the TLS session, which has borrowed a buffer; at most `len_max` bytes.
    pub(super) fn read_session(&mut self, len_max: usize) -> io::Result<usize> {
        let Transport::Tls(session) = &mut self.transport else { return Ok(0) };
        let space = session.read_space();
        let wanted = space.len().min(len_max);
        let result = self.stream.read(&mut space[..wanted]);
        if let Ok(len) = result {
            session.commit(len);
        }
        self.note_read(&result, wanted);
        result
    }

    /// Reads once into `out`.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let result = self.stream.read(out);
        self.note_read(&result, out.len());
        result
    }

    fn note_read(&mut self, result: &io::Result<usize>, wanted: usize) {
        match result {
            // A short read has drained the socket; epoll reports later data.
            Ok(len) if *len > 0 && *len < wanted && !self.is_ending => self.is_readable = false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
            _ => {}
        }
    }

    /// Takes data from the node and writes it, until the node has no more or the socket blocks.
    /// `record` holds the plaintext of one record.
    pub(super) fn flush(
        &mut self,
        buffers: &mut Buffers,
        record: &mut [u8],
        mut poll_transmit: impl FnMut(ConnId, &mut [u8]) -> usize,
    ) -> Result<(), CloseCause> {
        let result = loop {
            // While the socket blocks, the node keeps the data, because it can still reorder it.
            if self.is_writable && self.stage == Stage::Open {
                self.fill(buffers, record, &mut poll_transmit)?;
            }
            match self.write() {
                // The node may request a flush before the connection is open; it is polled later.
                Ok(true) if self.wants_flush && self.stage == Stage::Open => {}
                Ok(_) => break Ok(()),
                Err(cause) => break Err(cause),
            }
        };
        self.outgoing().give_back(buffers);
        result
    }

    /// Takes data from the node until it has no more or the buffer is full.
    fn fill(
        &mut self,
        buffers: &mut Buffers,
        record: &mut [u8],
        poll_transmit: &mut impl FnMut(ConnId, &mut [u8]) -> usize,
    ) -> Result<(), CloseCause> {
        let Some(conn) = self.conn else { return Ok(()) };
        while self.wants_flush && self.outgoing().pending().len() < PENDING_LEN {
            self.outgoing().borrow(buffers);
            let len = match &mut self.transport {
                Transport::Tls(session) => {
                    let len = poll_transmit(conn, record);
                    if len > 0 {
                        session
                            .encrypt(&record[..len])
                            .map_err(|error| CloseCause::Tls(error.to_string()))?;
                    }
                    len
                }
                Transport::Plain(outgoing) => {
                    let len = poll_transmit(conn, &mut outgoing.room(record.len())[..record.len()]);
                    outgoing.commit(len);
                    len
                }
            };
            self.wants_flush = len > 0;
        }
        Ok(())
    }

    /// Writes pending bytes. Returns true if none are left.
    fn write(&mut self) -> Result<bool, CloseCause> {
        let outgoing = match &mut self.transport {
            Transport::Tls(session) => session.outgoing(),
            Transport::Plain(outgoing) => outgoing,
        };
        while !outgoing.pending().is_empty() {
            if !self.is_writable || self.stage == Stage::Connecting {
                return Ok(false);
            }
            match self.stream.write(outgoing.pending()) {
                Ok(0) => return Err(CloseCause::ByPeer),
                Ok(len) => {
                    outgoing.advance(len);
                    self.written_since_report =
                        self.written_since_report.map(|before| before + len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cause(&error)),
            }
        }
        Ok(self.is_writable)
    }
}

/// Starts to connect to `to`, from the address `from` if given.
pub(super) fn connect(to: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect(to) };
    let domain = socket2::Domain::for_address(to);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    match socket.connect(&to.into()) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// Maps an I/O error to the engine's terms.
pub(super) fn cause(error: &io::Error) -> CloseCause {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CloseCause::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => CloseCause::Reset,
        io::ErrorKind::TimedOut => CloseCause::TimedOut,
        io::ErrorKind::UnexpectedEof => CloseCause::ByPeer,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => CloseCause::NoRoute,
        io::ErrorKind::OutOfMemory | io::ErrorKind::AddrNotAvailable => CloseCause::NoResources,
        _ if is_scarce(error) => CloseCause::NoResources,
        _ => CloseCause::Other(error.to_string()),
    }
}

/// Whether the error shows that the host or this process has reached a limit.
fn is_scarce(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
    limits.iter().any(|limit| error.raw_os_error() == Some(limit.raw_os_error()))
}
