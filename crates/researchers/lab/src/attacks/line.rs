//! One connection of an attacker: TCP alone, TLS, or a complete link.

use link::tls::{Buffers, Progress, Session, TlsConfigs};
use onion::Instant;
use onion::cell::{BODY_LEN, CELL_LEN, CELLS_PER_RECORD, CircId, Command};
use onion::flow::TokenBucket;
use onion::link::{Authentication, Channel, ExpectedPeer};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// The layers of a connection that the attacker establishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// TCP alone.
    Tcp,
    /// TLS without cells.
    Tls,
    /// A link.
    Link,
}

/// Maximum number of bytes that are queued for the socket.
const QUEUE: usize = 64 * 1024;

/// Maximum plaintext length of a TLS record.
const RECORD: usize = CELLS_PER_RECORD * CELL_LEN;

/// The kernel's receive buffer for an attacker that reads nothing.
const SMALL_BUFFER: usize = 4096;

/// A received cell.
pub(super) type Arrived = (CircId, Command, [u8; BODY_LEN]);

pub(super) struct Line {
    socket: TcpStream,
    session: Option<Session>,
    channel: Option<Channel>,
    depth: Depth,
    is_connected: bool,
    ignores_input: bool,
    /// Bytes that are sent unchanged: within TLS after its handshake, or over TCP without TLS.
    raw: Vec<u8>,
    expected: ExpectedPeer,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) has_opened: bool,
}

impl Line {
    /// Connects from an address.
    pub(super) fn dial(
        from: IpAddr,
        expected: ExpectedPeer,
        to: SocketAddr,
        depth: Depth,
        has_small_buffer: bool,
        tls: &TlsConfigs,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if has_small_buffer {
            socket.set_recv_buffer_size(SMALL_BUFFER)?;
        }
        socket.bind(&SocketAddr::new(from, 0).into())?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let session = match depth {
            Depth::Tcp => None,
            Depth::Tls | Depth::Link => {
                Some(Session::client(tls, to.ip()).map_err(io::Error::other)?)
            }
        };
        Ok(Self {
            socket: socket.into(),
            session,
            channel: None,
            depth,
            is_connected: false,
            ignores_input: false,
            raw: Vec::new(),
            expected,
        })
    }

    /// Whether cells can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_open)
    }

    /// Whether TCP, and TLS if required, are established.
    pub(super) fn is_established(&self) -> bool {
        self.is_connected && self.session.as_ref().is_none_or(Session::is_established)
    }

    /// Whether the queue has room.
    pub(super) fn has_room(&self) -> bool {
        let queued = self.channel.as_ref().map_or(0, Channel::queued_len);
        queued + self.raw.len() < QUEUE
    }

    /// Queues a cell.
    pub(super) fn send(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.channel {
            channel.send(circ_id, command, body);
        }
    }

    /// Queues bytes that are not complete cells.
    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Stops reading.
    pub(super) const fn stop_reading(&mut self) {
        self.ignores_input = true;
    }

    /// Whether the line is established and its queue is empty.
    pub(super) fn is_at_rest(&self) -> bool {
        let queued = self.channel.as_ref().map_or(0, Channel::queued_len) + self.raw.len();
        let pending = self.session.as_ref().is_some_and(|session| !session.pending().is_empty());
        self.is_established() && queued == 0 && !pending
    }

    /// Whether the kernel need not be asked now.
    fn is_quiet(&self) -> bool {
        self.ignores_input && self.is_at_rest()
    }

    /// Reads and writes until the socket would block. An error ends the line.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        bucket: &mut TokenBucket,
        buffers: &mut Buffers,
        random: &mut dyn FnMut() -> [u8; 24],
        unix_time_s: u64,
        arrived: &mut Vec<Arrived>,
    ) -> io::Result<Moved> {
        let mut moved = Moved::default();
        if self.is_quiet() {
            return Ok(moved);
        }
        if !self.is_connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            match self.socket.peer_addr() {
                Ok(_) => self.is_connected = true,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(moved),
                Err(error) => return Err(error),
            }
            if let Some(session) = &mut self.session {
                session.process(&mut |_| {}).map_err(io::Error::other)?;
            }
        }
        if !self.ignores_input {
            self.read(buffers, random, unix_time_s, arrived, &mut moved)?;
        }
        self.write(now, bucket, &mut moved)?;
        Ok(moved)
    }

    fn read(
        &mut self,
        buffers: &mut Buffers,
        random: &mut dyn FnMut() -> [u8; 24],
        unix_time_s: u64,
        arrived: &mut Vec<Arrived>,
        moved: &mut Moved,
    ) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            let mut scrap = [0; 4096];
            return match self.socket.read(&mut scrap) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    moved.received_bytes += len as u64;
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error),
            };
        };
        session.borrow_incoming(buffers);
        let read = self.socket.read(session.read_space());
        let result = match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                session.commit(len);
                moved.received_bytes += len as u64;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
        let mut plaintext = Vec::new();
        let (mut has_closed, has_come) = (false, matches!(result, Ok(true)));
        while has_come && !has_closed {
            let progress = session.process(&mut |bytes| plaintext.extend_from_slice(bytes));
            match progress.map_err(io::Error::other)? {
                Progress::Waiting => break,
                Progress::Established if self.depth == Depth::Link => {
                    let begun = Channel::initiator(
                        self.expected,
                        Authentication::Anonymous,
                        session,
                        random(),
                        unix_time_s,
                    );
                    self.channel =
                        Some(begun.map_err(|error| io::Error::other(error.to_string()))?);
                }
                Progress::Established => {}
                Progress::PeerClosed => has_closed = true,
            }
        }
        session.give_incoming_back(buffers);
        result?;
        if let Some(channel) = &mut self.channel {
            let was_open = channel.is_open();
            let mut bytes = &plaintext[..];
            loop {
                let cell = channel.handle_bytes(&mut bytes);
                let cell = cell.map_err(|error| io::Error::other(error.to_string()))?;
                let Some(cell) = cell else { break };
                if let Ok(body) = <[u8; BODY_LEN]>::try_from(cell.body) {
                    arrived.push((cell.circ_id, cell.command, body));
                }
            }
            moved.has_opened = !was_open && channel.is_open();
        }
        if has_closed { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Writes what the token bucket allows.
    fn write(
        &mut self,
        now: Instant,
        bucket: &mut TokenBucket,
        moved: &mut Moved,
    ) -> io::Result<()> {
        loop {
            let available = usize::try_from(bucket.available_bytes(now)).unwrap_or(usize::MAX);
            if available == 0 {
                return Ok(());
            }
            let Some(session) = &mut self.session else {
                let len = self.raw.len().min(available);
                let written = written(self.socket.write(&self.raw[..len]))?;
                self.raw.drain(..written);
                bucket.take(written as u64);
                moved.sent_bytes += written as u64;
                if written == 0 {
                    return Ok(());
                }
                continue;
            };
            if session.pending().is_empty() && session.is_established() {
                let mut record = [0; RECORD];
                let raw = self.raw.len().min(RECORD);
                let len = match &mut self.channel {
                    Some(channel) if channel.queued_len() > 0 => channel.poll_transmit(&mut record),
                    _ => {
                        record[..raw].copy_from_slice(&self.raw[..raw]);
                        self.raw.drain(..raw);
                        raw
                    }
                };
                if len == 0 {
                    return Ok(());
                }
                session.encrypt(&record[..len]).map_err(io::Error::other)?;
            }
            let len = session.pending().len().min(available);
            if len == 0 {
                return Ok(());
            }
            let written = written(self.socket.write(&session.pending()[..len]))?;
            session.advance(written);
            bucket.take(written as u64);
            moved.sent_bytes += written as u64;
            if written < len {
                return Ok(());
            }
        }
    }
}

/// The number of bytes that the kernel accepted.
fn written(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
