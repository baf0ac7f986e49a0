//! One node on one thread: sockets, TLS, timers.

mod socket;

use crate::clock::Clock;
use crate::tls::{Progress, Session, TlsConfigs};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::{Duration, Instant};
use socket::{Flushed, Socket};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Plaintext of one record: the cells that it holds whole.
const RECORD_LEN: usize = onion::measure::pump::CELLS_PER_RECORD * onion::cell::CELL_LEN;

/// Reads from one socket before the others get their turn.
const READS_PER_TURN: usize = 4;

const WAKER: Token = Token(usize::MAX);

/// A worker could not be set up, or the operating system fails it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct DriverError {
    what: &'static str,
    source: io::Error,
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError { what, source }
}

/// Choices for a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverOptions {
    /// Time for TCP and TLS of a connection, dialled or accepted.
    pub handshake_timeout: Duration,
    /// Connections at most; beyond that, none is accepted. Dialling is the node's business.
    pub max_conns: usize,
    /// The local address to dial from; any if `None`.
    pub dial_from: Option<IpAddr>,
    /// Least time between two looks at the sockets. Longer means fewer and larger reads and writes,
    /// and so less work for each byte, at the price of latency.
    pub coalesce: Duration,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(15),
            max_conns: 4096,
            dial_from: None,
            coalesce: Duration::ZERO,
        }
    }
}

/// Plaintext that went through a driver, and the TLS records that carried it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Records sent.
    pub sent_records: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Records received.
    pub received_records: u64,
}

/// Wakes a driver from another thread.
#[derive(Clone, Debug)]
pub struct Remote(Arc<Waker>);

impl Remote {
    /// Makes [`Driver::turn`] return soon.
    pub fn wake(&self) {
        // Fails only where the kernel has no memory for a counter; then the next timeout wakes.
        let _ = self.0.wake();
    }
}

/// Runs one [`Node`] over real sockets, on the thread that calls [`turn`](Self::turn).
///
/// It moves bytes and decides nothing. In steady state it allocates nothing per cell.
pub struct Driver<N> {
    node: N,
    clock: Clock,
    tls: TlsConfigs,
    options: DriverOptions,
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    listeners: Vec<TcpListener>,
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    by_conn: BTreeMap<ConnId, usize>,
    /// Sockets with something to read or write, each once.
    runnable: VecDeque<usize>,
    plaintext: Box<[u8; RECORD_LEN]>,
    traffic: Traffic,
    /// When the sockets were last looked at.
    looked_at: Instant,
    /// Sockets whose TCP or TLS does not stand yet.
    handshakes: usize,
    /// A listener failed to accept for want of something: epoll will not tell of it again.
    must_accept_again: bool,
}

impl<N: Node> Driver<N> {
    /// Sets up a worker; the place of a listener in the list is its [`ListenerId`].
    ///
    /// # Errors
    /// Where the operating system gives no epoll set, or refuses a listener.
    pub fn new(
        node: N,
        clock: Clock,
        tls: TlsConfigs,
        listeners: Vec<std::net::TcpListener>,
        options: DriverOptions,
    ) -> Result<Self, DriverError> {
        let poll = Poll::new().map_err(failed("cannot make an epoll set"))?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(failed("cannot make a waker"))?;
        let mut registered = Vec::new();
        for (place, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true).map_err(failed("cannot set up a listener"))?;
            let mut listener = TcpListener::from_std(listener);
            poll.registry()
                .register(&mut listener, Token(place), Interest::READABLE)
                .map_err(failed("cannot watch a listener"))?;
            registered.push(listener);
        }
        Ok(Self {
            node,
            clock,
            tls,
            options,
            poll,
            events: Events::with_capacity(256),
            waker: Arc::new(waker),
            listeners: registered,
            sockets: Vec::new(),
            free: Vec::new(),
            by_conn: BTreeMap::new(),
            runnable: VecDeque::new(),
            plaintext: Box::new([0; RECORD_LEN]),
            traffic: Traffic::default(),
            looked_at: Instant::ORIGIN,
            handshakes: 0,
            must_accept_again: false,
        })
    }

    /// The node.
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// The node, for its commands. The next [`turn`](Self::turn) carries them out.
    pub const fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The time, as the node gets it.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// What has gone through so far.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Shows another certificate from now on. Connections that come in and whose TLS does not stand
    /// yet are closed: what the node says of the certificate from now on would be wrong for them.
    pub fn set_tls(&mut self, tls: TlsConfigs) {
        self.tls = tls;
        for place in 0..self.sockets.len() {
            let socket = self.sockets[place].as_ref();
            if socket.is_some_and(|socket| socket.listener.is_some() && socket.conn.is_none()) {
                self.drop_socket(place);
            }
        }
    }

    /// A handle that other threads wake this worker with.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote(Arc::clone(&self.waker))
    }

    /// Waits for something to happen, at most until `deadline`, and handles it.
    ///
    /// # Errors
    /// Where the operating system fails to wait.
    pub fn turn(&mut self, deadline: Instant) -> Result<(), DriverError> {
        self.drain();
        if std::mem::take(&mut self.must_accept_again) {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        let next = [Some(deadline), self.node.poll_timeout(), self.next_handshake_deadline()];
        let next = next.into_iter().flatten().min().unwrap_or(deadline);
        let next_look = (self.looked_at + self.options.coalesce).min(next);
        let now = self.clock.now();
        if now < next_look {
            self.clock.sleep(next_look - now);
        }
        let now = self.clock.now();
        self.looked_at = now;
        let wait = if self.runnable.is_empty() { next - now } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(failed("cannot wait for events")(error));
            }
            _ => {}
        }
        self.take_events();
        for _ in 0..self.runnable.len() {
            let Some(place) = self.runnable.pop_front() else { break };
            self.run_socket(place);
        }
        let now = self.clock.now();
        self.expire_handshakes(now);
        if self.node.poll_timeout().is_some_and(|timeout| timeout <= now) {
            self.node.handle_timeout(now);
        }
        self.drain();
        Ok(())
    }

    /// Notes what epoll reports.
    fn take_events(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        for event in &events {
            if event.token() == WAKER {
                continue;
            }
            let place = event.token().0;
            if place < self.listeners.len() {
                self.accept(place);
                continue;
            }
            let place = place - self.listeners.len();
            if let Some(Some(socket)) = self.sockets.get_mut(place) {
                socket.note(event);
                self.enqueue(place);
            }
        }
        self.events = events;
    }

    /// Does all that the node wants.
    fn drain(&mut self) {
        loop {
            let now = self.clock.now();
            if let Some(dial) = self.node.poll_dial(now) {
                self.dial(now, dial);
            } else if let Some(conn) = self.node.poll_writable() {
                if let Some(place) = self.by_conn.get(&conn).copied() {
                    if let Some(socket) = &mut self.sockets[place] {
                        socket.wants_flush = true;
                    }
                    self.flush(place);
                }
            } else if let Some(conn) = self.node.poll_close() {
                if let Some(place) = self.by_conn.remove(&conn) {
                    self.say_goodbye(place);
                    self.drop_socket(place);
                }
            } else {
                break;
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, _)) => {
                    if self.sockets.len() - self.free.len() >= self.options.max_conns {
                        continue; // closed by being dropped
                    }
                    let Ok(session) = Session::server(&self.tls) else { continue };
                    let id = ListenerId(u32::try_from(listener).unwrap_or(u32::MAX));
                    let deadline = self.clock.now() + self.options.handshake_timeout;
                    // A socket that epoll refuses is dropped, and thereby closed.
                    let _ = self.add(Socket::accepted(stream, session, id, deadline));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // No descriptors, no memory; or the one connection was aborted.
                Err(_) => {
                    self.must_accept_again = true;
                    break;
                }
            }
        }
    }

    fn dial(&mut self, now: Instant, dial: Dial) {
        let result = socket::connect(dial.to, self.options.dial_from).and_then(|stream| {
            let session = Session::client(&self.tls, dial.to.ip()).map_err(io::Error::other)?;
            let deadline = now + self.options.handshake_timeout;
            self.add(Socket::dialled(stream, session, dial.conn, deadline))
        });
        match result {
            Ok(place) => {
                self.by_conn.insert(dial.conn, place);
            }
            Err(error) => self.node.handle_closed(now, dial.conn, socket::cause(&error)),
        }
    }

    fn add(&mut self, mut socket: Socket) -> io::Result<usize> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() - 1
        });
        let token = Token(self.listeners.len() + place);
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut socket.stream, token, both) {
            self.free.push(place);
            return Err(error);
        }
        self.sockets[place] = Some(socket);
        self.handshakes += 1;
        Ok(place)
    }

    fn enqueue(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place]
            && !socket.is_queued
        {
            socket.is_queued = true;
            self.runnable.push_back(place);
        }
    }

    /// Reads and writes what a socket is ready for.
    fn run_socket(&mut self, place: usize) {
        let Some(socket) = &mut self.sockets[place] else { return };
        socket.is_queued = false;
        if socket.is_connecting {
            match socket.finish_connecting() {
                Ok(false) => return,
                Ok(true) => {
                    // The first processing of a client's session makes its hello.
                    if !self.process(place) {
                        return;
                    }
                }
                Err(error) => {
                    self.close(place, socket::cause(&error));
                    return;
                }
            }
        }
        self.flush(place);
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &mut self.sockets[place] else { return };
            if !socket.is_readable {
                return;
            }
            match socket.read() {
                Ok(0) => {
                    self.close(place, CloseCause::ByPeer);
                    return;
                }
                Ok(_) => {
                    if !self.process(place) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.close(place, socket::cause(&error));
                    return;
                }
            }
        }
        self.enqueue(place); // more may be there: after the others' turn
    }

    /// Takes what has been received through TLS to the node; false if the socket is gone.
    fn process(&mut self, place: usize) -> bool {
        loop {
            let now = self.clock.now();
            let Some(socket) = &mut self.sockets[place] else { return false };
            let (node, conn, traffic) = (&mut self.node, socket.conn, &mut self.traffic);
            let progress = socket.session.process(&mut |plaintext| {
                traffic.received_bytes += plaintext.len() as u64;
                traffic.received_records += 1;
                if let Some(conn) = conn {
                    node.handle_bytes(now, conn, plaintext);
                }
            });
            match progress {
                Ok(Progress::Waiting) => break,
                Ok(Progress::Established) => {
                    if !self.announce(now, place) {
                        return false;
                    }
                }
                Ok(Progress::PeerClosed) => {
                    self.close(place, CloseCause::ByPeer);
                    return false;
                }
                Err(error) => {
                    self.say_goodbye(place); // the alert
                    self.close(place, CloseCause::Tls(error.to_string()));
                    return false;
                }
            }
        }
        self.flush(place);
        self.sockets[place].is_some()
    }

    /// Tells the node that TLS stands; false if it refuses.
    fn announce(&mut self, now: Instant, place: usize) -> bool {
        let Some(socket) = &mut self.sockets[place] else { return false };
        socket.deadline = None;
        self.handshakes -= 1;
        match (socket.conn, socket.listener) {
            (Some(conn), _) => self.node.handle_connected(now, conn, &socket.session),
            (None, Some(listener)) => {
                match self.node.handle_accepted(now, listener, &socket.session) {
                    Some(conn) => {
                        socket.conn = Some(conn);
                        self.by_conn.insert(conn, place);
                    }
                    None => {
                        self.drop_socket(place);
                        return false;
                    }
                }
            }
            (None, None) => {}
        }
        true
    }

    /// Writes what is pending, and as much more as the node has and the socket takes.
    fn flush(&mut self, place: usize) {
        let now = self.clock.now();
        let Some(socket) = &mut self.sockets[place] else { return };
        let (node, traffic) = (&mut self.node, &mut self.traffic);
        let plaintext = &mut self.plaintext[..];
        let result = socket.flush(plaintext, |conn, out| {
            let len = node.poll_transmit(now, conn, out);
            traffic.sent_bytes += len as u64;
            traffic.sent_records += u64::from(len > 0);
            len
        });
        match result {
            Ok(Flushed::Blocked | Flushed::Empty) => {}
            Err(cause) => self.close(place, cause),
        }
    }

    /// One attempt at the last pending bytes of a socket that is about to be closed.
    fn say_goodbye(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place] {
            let _ = socket.flush(&mut [], |_, _| 0);
        }
    }

    /// A socket is gone: forget it and tell the node.
    fn close(&mut self, place: usize, cause: CloseCause) {
        if let Some(conn) = self.drop_socket(place) {
            self.by_conn.remove(&conn);
            let now = self.clock.now();
            self.node.handle_closed(now, conn, cause);
        }
    }

    fn drop_socket(&mut self, place: usize) -> Option<ConnId> {
        let mut socket = self.sockets[place].take()?;
        // Closing the descriptor would do it, too; failure means that it is not watched.
        let _ = self.poll.registry().deregister(&mut socket.stream);
        self.free.push(place);
        self.handshakes -= usize::from(socket.deadline.is_some());
        socket.conn
    }

    fn next_handshake_deadline(&self) -> Option<Instant> {
        if self.handshakes == 0 {
            return None;
        }
        self.sockets.iter().flatten().filter_map(|socket| socket.deadline).min()
    }

    fn expire_handshakes(&mut self, now: Instant) {
        if self.handshakes == 0 {
            return;
        }
        for place in 0..self.sockets.len() {
            let expired = self.sockets[place].as_ref().and_then(|socket| socket.deadline);
            if expired.is_some_and(|deadline| deadline <= now) {
                self.close(place, CloseCause::TimedOut);
            }
        }
    }
}
