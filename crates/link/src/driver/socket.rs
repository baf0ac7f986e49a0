use crate::sockopt;
use crate::tls::Session;
use mio::event::Event;
use mio::net::TcpStream;
use onion::Instant;
use onion::node::{CloseCause, ConnId, ListenerId, SocketState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// Ciphertext gathered before it is written: four full records.
const PENDING_LEN: usize = 64 * 1024;

/// One socket with its TLS session and what epoll said of it (edge-triggered).
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) session: Session,
    /// The node's name for it; accepted ones get it when TLS stands.
    pub(super) conn: Option<ConnId>,
    /// Where it was accepted.
    pub(super) listener: Option<ListenerId>,
    /// When TCP and TLS must stand; `None` once they do.
    pub(super) deadline: Option<Instant>,
    pub(super) is_connecting: bool,
    pub(super) is_readable: bool,
    /// The end of what can be read is near: epoll will tell of nothing more.
    is_ending: bool,
    is_writable: bool,
    /// The node has named it, and may have more for it.
    pub(super) wants_flush: bool,
    pub(super) is_queued: bool,
}

/// Why flushing ended.
pub(super) enum Flushed {
    /// The socket is full.
    Blocked,
    /// The node has nothing more.
    Empty,
}

impl Socket {
    pub(super) fn dialled(
        stream: TcpStream,
        session: Session,
        conn: ConnId,
        deadline: Instant,
    ) -> Self {
        let (conn, listener) = (Some(conn), None);
        Self::new(stream, session, conn, listener, deadline, true)
    }

    pub(super) fn accepted(
        stream: TcpStream,
        session: Session,
        listener: ListenerId,
        deadline: Instant,
    ) -> Self {
        // Without this option, small records wait for acknowledgements; it is no great loss.
        let _ = stream.set_nodelay(true);
        Self::new(stream, session, None, Some(listener), deadline, false)
    }

    const fn new(
        stream: TcpStream,
        session: Session,
        conn: Option<ConnId>,
        listener: Option<ListenerId>,
        deadline: Instant,
        is_connecting: bool,
    ) -> Self {
        Self {
            stream,
            session,
            conn,
            listener,
            deadline: Some(deadline),
            is_connecting,
            is_readable: false,
            is_ending: false,
            is_writable: false,
            wants_flush: false,
            is_queued: false,
        }
    }

    /// Notes what epoll reports.
    pub(super) fn note(&mut self, event: &Event) {
        self.is_ending |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.is_ending;
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// What the kernel says of its way out.
    pub(super) fn state(&self) -> Option<SocketState> {
        sockopt::socket_state(&self.stream, self.session.pending().len())
    }

    /// Whether TCP stands by now.
    pub(super) fn finish_connecting(&mut self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {
                self.is_connecting = false;
                let _ = self.stream.set_nodelay(true);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads once into the session.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        let space = self.session.read_space();
        let wanted = space.len();
        let result = self.stream.read(space);
        match &result {
            Ok(len) => {
                self.session.commit(*len);
                // A short read has emptied the socket; what comes later, epoll tells.
                if *len > 0 && *len < wanted && !self.is_ending {
                    self.is_readable = false;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
            Err(_) => {}
        }
        result
    }

    /// Encrypts and writes until the node has nothing more or the socket takes nothing more.
    pub(super) fn flush(
        &mut self,
        plaintext: &mut [u8],
        mut poll_transmit: impl FnMut(ConnId, &mut [u8]) -> usize,
    ) -> Result<Flushed, CloseCause> {
        loop {
            while self.wants_flush
                && self.session.is_established()
                && self.session.pending().len() < PENDING_LEN
                && let Some(conn) = self.conn
            {
                let len = poll_transmit(conn, plaintext);
                if len == 0 {
                    self.wants_flush = false;
                    break;
                }
                self.session
                    .encrypt(&plaintext[..len])
                    .map_err(|error| CloseCause::Tls(error.to_string()))?;
            }
            while !self.session.pending().is_empty() {
                if !self.is_writable || self.is_connecting {
                    return Ok(Flushed::Blocked);
                }
                match self.stream.write(self.session.pending()) {
                    Ok(0) => return Err(CloseCause::ByPeer),
                    Ok(len) => self.session.advance(len),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.is_writable = false;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(cause(&error)),
                }
            }
            // A node may name a connection before it stands: it is asked once TLS does.
            if !self.wants_flush || !self.session.is_established() {
                return Ok(Flushed::Empty);
            }
        }
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
        _ => CloseCause::Other(error.to_string()),
    }
}
