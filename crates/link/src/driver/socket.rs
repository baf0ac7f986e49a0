use crate::sockopt::{self, TcpAccount};
use crate::tls::{Buffers, Outgoing, Session};
use mio::event::Event;
use mio::net::TcpStream;
use onion::Instant;
use onion::node::{CloseCause, ConnId, ListenerId, SocketState, Unwritten};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// Bytes gathered before they are written: four full records.
pub(crate) const PENDING_LEN: usize = 64 * 1024;

/// What is between the node's bytes and TCP.
pub(super) enum Transport {
    /// TLS. Boxed: the other kind is small.
    Tls(Box<Session>),
    /// Nothing but a buffer.
    Plain(Outgoing),
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// TCP does not stand.
    Connecting,
    /// TLS does not stand.
    Handshake,
    /// It belongs to the node.
    Open,
    /// The node has forgotten it; what is pending is still written.
    Leaving,
}

/// One socket with what protects it, and what epoll said of it (edge-triggered).
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) transport: Transport,
    pub(super) stage: Stage,
    /// The node's name for it; accepted ones get it when TLS stands, leaving ones have lost it.
    pub(super) conn: Option<ConnId>,
    /// Where it was accepted.
    pub(super) listener: Option<ListenerId>,
    /// When its stage must be over; `None` while it is open.
    pub(super) deadline: Option<Instant>,
    pub(super) is_readable: bool,
    /// The end of what can be read is near: epoll will tell of nothing more.
    is_ending: bool,
    is_writable: bool,
    /// The node has named it, and may have more for it.
    pub(super) wants_flush: bool,
    pub(super) is_queued: bool,
    /// Nothing can be written any more, for this reason; what has come may still be read.
    pub(super) broken: Option<CloseCause>,
    /// Bytes that the kernel has taken since the node was told of what it has not, if it was.
    written_since_told: Option<usize>,
    /// Memory that it was told of then.
    held_told: usize,
    /// What it held when the node had closed it.
    pub(super) left_with_bytes: usize,
}

/// After so long without traffic the kernel asks whether the other end is still there, again and again
/// after as long a pause. A peer that has lost its power would seem to be there for ever.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(core::time::Duration::from_secs(300))
    .with_interval(core::time::Duration::from_secs(30));

/// Sets what is no great loss where the kernel refuses it.
fn tune(stream: &TcpStream) {
    // Else small records wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&KEEPALIVE);
}

impl Socket {
    /// Whether it has TLS that does not stand yet.
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
            written_since_told: None,
            held_told: 0,
            left_with_bytes: 0,
        }
    }

    /// What the node is to be told of what waits to be written, if anything: at rest there is nothing to tell.
    pub(super) fn news_of_unwritten(&mut self) -> Option<Unwritten> {
        let outgoing = self.outgoing();
        let (pending_bytes, held_bytes) = (outgoing.pending().len(), outgoing.held_bytes());
        let told = self.written_since_told;
        if held_bytes == 0 && told.is_none() {
            return None;
        }
        // What it takes is the same as long as anything waits, and how long that has waited is known well enough.
        if held_bytes == self.held_told && told.is_some_and(|written| written < PENDING_LEN) {
            return None;
        }
        self.held_told = held_bytes;
        self.written_since_told = (held_bytes > 0).then_some(0);
        let written_bytes = told.unwrap_or(0);
        Some(Unwritten { pending_bytes, written_bytes, held_bytes })
    }

    /// Notes what epoll reports.
    pub(super) fn note(&mut self, event: &Event) {
        self.is_ending |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.is_ending;
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// What the kernel says of its way out.
    pub(super) fn state(&mut self) -> Option<SocketState> {
        let unwritten = self.outgoing().pending().len();
        sockopt::socket_state(&self.stream, unwritten)
    }

    /// What the kernel says of it; nothing before it stands.
    pub(super) fn account(&self) -> Option<TcpAccount> {
        if self.stage == Stage::Open { sockopt::tcp_account(&self.stream) } else { None }
    }

    /// Whether TCP stands by now.
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

    /// What waits to be written, and its buffer.
    pub(super) const fn outgoing(&mut self) -> &mut Outgoing {
        match &mut self.transport {
            Transport::Tls(session) => session.outgoing(),
            Transport::Plain(outgoing) => outgoing,
        }
    }

    /// Reads once into the TLS session, which has been lent its buffer.
    pub(super) fn read_session(&mut self) -> io::Result<usize> {
        let Transport::Tls(session) = &mut self.transport else { return Ok(0) };
        let space = session.read_space();
        let wanted = space.len();
        let result = self.stream.read(space);
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
            // A short read has emptied the socket; what comes later, epoll tells.
            Ok(len) if *len > 0 && *len < wanted && !self.is_ending => self.is_readable = false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
            _ => {}
        }
    }

    /// Takes from the node and writes, until the node has nothing more or the socket takes nothing
    /// more. `record` is room for the plaintext of one record.
    pub(super) fn flush(
        &mut self,
        buffers: &mut Buffers,
        record: &mut [u8],
        mut poll_transmit: impl FnMut(ConnId, &mut [u8]) -> usize,
    ) -> Result<(), CloseCause> {
        let result = loop {
            // Before the socket takes something the bytes are better kept by the node, which can
            // still change their order.
            if self.is_writable && self.stage == Stage::Open {
                self.fill(buffers, record, &mut poll_transmit)?;
            }
            match self.write() {
                // A node may name a connection before it stands: it is asked once that does.
                Ok(true) if self.wants_flush && self.stage == Stage::Open => {}
                Ok(_) => break Ok(()),
                Err(cause) => break Err(cause),
            }
        };
        self.outgoing().give_back(buffers);
        result
    }

    /// Takes bytes from the node, until it has no more or they are enough.
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

    /// Writes what is pending; true if nothing is left of it.
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
                    self.written_since_told = self.written_since_told.map(|before| before + len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cause(&error)),
            }
        }
        Ok(self.is_writable)
    }
}

/// Begins to connect to `to`, from `from` if it says so.
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

/// An operating system's error in the engine's terms.
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

/// Whether the machine or this process has come to a limit.
fn is_scarce(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
    limits.iter().any(|limit| error.raw_os_error() == Some(limit.raw_os_error()))
}
