//! One node on one thread: sockets, TLS, timers.

mod accept;
mod close;
mod deadlines;
mod lookup;
mod open;
mod options;
mod socket;
mod transfer;

pub use lookup::{Reply, Resolver};
pub use onion::measure::Traffic;
pub use options::{DriverError, DriverOptions, Waker};

use crate::clock::Clock;
use crate::sockopt::TcpAccount;
use crate::tls::{Buffers, TlsConfigs};
use crate::workers::Workers;
use accept::PendingAccepts;
use deadlines::Deadlines;
pub(crate) use lookup::Lookups;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use onion::node::{Action, ConnId, Node};
use onion::router::{FairQueue, Place};
use onion::{Duration, Instant};
use options::failed;
pub(crate) use socket::PENDING_LEN;
use socket::Socket;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Plaintext bytes of one record: the number of whole cells that fit.
const RECORD_LEN: usize = onion::cell::CELLS_PER_RECORD * onion::cell::CELL_LEN;

/// Limit on TLS handshakes in one turn. Each takes about a millisecond of processor time, and cells
/// of open links must not wait behind hundreds of them.
const HANDSHAKES_PER_TURN: usize = 4;

const WAKER: Token = Token(usize::MAX);

/// Runs one [`Node`] over real sockets, on the thread that calls [`turn`](Self::turn).
///
/// The driver moves bytes and decides nothing. In steady state it allocates nothing per cell.
pub struct Driver<N> {
    node: N,
    clock: Clock,
    tls: TlsConfigs,
    options: DriverOptions,
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
    /// Empty once the driver has stopped listening.
    listeners: Vec<TcpListener>,
    /// Tokens below this belong to listeners, including closed ones.
    first_socket: usize,
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    by_conn: BTreeMap<ConnId, usize>,
    /// Sockets with something to read or write, without duplicates.
    runnable: VecDeque<usize>,
    /// The queued sockets whose TLS handshake is not complete, by the peer's address; `None` if the peer
    /// is gone.
    ///
    /// Handshakes are expensive, so they are limited in each turn. Without this order, the flood of one
    /// address would keep those of all others out.
    handshakes: FairQueue<Option<Place>, usize>,
    /// The node lets no handshake read until its next timeout, or [`Self::resume_handshakes`].
    handshakes_wait: bool,
    /// All accepted sockets whose TLS handshake is not complete.
    pending_accepts: PendingAccepts,
    /// The plaintext that is sent next.
    record: Box<[u8; RECORD_LEN]>,
    buffers: Buffers,
    lookups: Lookups,
    workers: Workers,
    traffic: Traffic,
    /// Memory of sockets that are [leaving](socket::Stage::Leaving), in bytes.
    leaving_bytes: usize,
    /// When the sockets were last polled.
    looked_at: Instant,
    deadlines: Deadlines,
    /// A listener failed to accept for lack of a resource. epoll is edge-triggered and does not
    /// report it again.
    must_accept_again: bool,
}

/// Duplicates sockets, so that another thread can ask the kernel about them.
pub(crate) struct Duplicator<'a> {
    sockets: &'a [Option<Socket>],
    by_conn: &'a BTreeMap<ConnId, usize>,
}

impl Duplicator<'_> {
    /// `None` if the connection is closed, or the process has no descriptors left.
    pub(crate) fn duplicate(&self, conn: ConnId) -> Option<OwnedFd> {
        let socket = self.sockets.get(*self.by_conn.get(&conn)?)?.as_ref()?;
        rustix::io::dup(&socket.stream).ok()
    }
}

impl<N: Node> Driver<N> {
    /// Creates a driver. A listener's index in the list is its
    /// [`ListenerId`](onion::node::ListenerId).
    ///
    /// # Errors
    /// [`DriverError`] if the operating system provides no epoll set, or refuses a listener.
    pub fn new(
        node: N,
        clock: Clock,
        tls: TlsConfigs,
        listeners: Vec<std::net::TcpListener>,
        options: DriverOptions,
    ) -> Result<Self, DriverError> {
        let poll = Poll::new().map_err(failed("cannot make an epoll set"))?;
        let waker =
            mio::Waker::new(poll.registry(), WAKER).map_err(failed("cannot make a waker"))?;
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
            first_socket: registered.len(),
            listeners: registered,
            sockets: Vec::new(),
            free: Vec::new(),
            by_conn: BTreeMap::new(),
            runnable: VecDeque::new(),
            handshakes: FairQueue::default(),
            handshakes_wait: false,
            pending_accepts: PendingAccepts::new(options.max_conns),
            record: Box::new([0; RECORD_LEN]),
            buffers: Buffers::default(),
            lookups: Lookups::new(),
            workers: Workers::start(options.workers)?,
            traffic: Traffic::default(),
            leaving_bytes: 0,
            looked_at: Instant::ORIGIN,
            deadlines: Deadlines::default(),
            must_accept_again: false,
        })
    }

    /// The node.
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// The node, for commands. The next [`turn`](Self::turn) carries them out.
    pub const fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The current time on the node's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Plaintext transferred so far.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Reads kernel counters of each open connection of the node; see
    /// [`Drive::tcp_accounts`](crate::Drive::tcp_accounts).
    pub fn tcp_accounts(&self, each: &mut dyn FnMut(ConnId, TcpAccount)) {
        for (conn, place) in &self.by_conn {
            let socket = self.sockets.get(*place).and_then(Option::as_ref);
            if let Some(account) = socket.and_then(Socket::account) {
                each(*conn, account);
            }
        }
    }

    /// Connections that are open, being opened or being closed.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.len() - self.free.len()
    }

    /// Sets the resolver for DNS queries of the node. Without a resolver, all fail.
    pub fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.lookups.set_resolver(resolver);
    }

    /// Uses this certificate for new connections. Handshakes that have started keep the previous
    /// one; the node finds out which by
    /// [`TlsSession::own_certificate_sha256`](onion::link::TlsSession::own_certificate_sha256).
    pub fn set_tls(&mut self, tls: TlsConfigs) {
        self.tls = tls;
    }

    /// Closes all listeners. The system refuses new connections; accepted ones stay open.
    pub fn stop_listening(&mut self) {
        for mut listener in self.listeners.drain(..) {
            // A duplicate elsewhere would keep the socket in the epoll set. Deregistering a missing
            // socket fails, without effect.
            let _ = self.poll.registry().deregister(&mut listener);
        }
    }

    /// A handle with which other threads wake this driver.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from_mio(&self.waker)
    }

    /// The node, and a handle that duplicates the sockets of its connections.
    pub(crate) fn node_and_sockets(&mut self) -> (&mut N, Duplicator<'_>) {
        (&mut self.node, Duplicator { sockets: &self.sockets, by_conn: &self.by_conn })
    }

    /// Waits for an event, at most until `deadline`, and handles it.
    ///
    /// # Errors
    /// [`DriverError`] if the operating system fails to wait.
    pub fn turn(&mut self, deadline: Instant) -> Result<(), DriverError> {
        self.drain();
        if std::mem::take(&mut self.must_accept_again) {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        let next = [Some(deadline), self.node.poll_timeout(), self.deadlines.next()];
        let next = next.into_iter().flatten().min().unwrap_or(deadline);
        let next_look = (self.looked_at + self.options.coalesce).min(next);
        let now = self.clock.now();
        if now < next_look {
            self.clock.sleep(next_look - now);
        }
        let now = self.clock.now();
        self.looked_at = now;
        let is_idle =
            self.runnable.is_empty() && (self.handshakes.is_empty() || self.handshakes_wait);
        let wait = if is_idle { next - now } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(failed("cannot wait for events")(error));
            }
            _ => {}
        }
        self.take_events();
        while let Some((id, answer)) = self.lookups.poll_answer() {
            self.node.handle_answer(self.clock.now(), id, answer);
        }
        while let Some(done) = self.workers.poll_done()? {
            self.node.handle_work(self.clock.now(), done);
        }
        for _ in 0..self.runnable.len() {
            let Some(place) = self.runnable.pop_front() else { break };
            self.run_socket(place);
        }
        self.run_handshakes();
        let now = self.clock.now();
        self.expire(now);
        if self.node.poll_timeout().is_some_and(|timeout| timeout <= now) {
            self.node.handle_timeout(now);
            self.handshakes_wait = false;
        }
        self.drain();
        Ok(())
    }

    /// The node may let handshakes read again, after a command.
    pub(crate) const fn resume_handshakes(&mut self) {
        self.handshakes_wait = false;
    }

    /// Continues TLS handshakes, as many as the limits permit.
    fn run_handshakes(&mut self) {
        for _ in 0..HANDSHAKES_PER_TURN {
            if self.handshakes.is_empty() {
                return;
            }
            self.handshakes_wait = self.node.poll_read_limit(self.clock.now(), None) == 0;
            if self.handshakes_wait {
                return;
            }
            let Some(place) = self.handshakes.pop() else { return };
            self.run_socket(place);
        }
    }

    /// Records an epoll event.
    fn take_events(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        for event in &events {
            if event.token() == WAKER {
                continue;
            }
            let place = event.token().0;
            if place < self.first_socket {
                self.accept(place);
                continue;
            }
            let place = place - self.first_socket;
            if let Some(Some(socket)) = self.sockets.get_mut(place) {
                socket.note(event);
                self.enqueue(place);
            }
        }
        self.events = events;
    }

    /// Performs all actions that the node requests.
    fn drain(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(action) = self.node.poll_action(now) else { break };
            match action {
                Action::Dial(dial) => self.dial(now, dial),
                Action::Lookup(lookup) => self.lookups.ask(lookup, Waker::from_mio(&self.waker)),
                Action::Work(work) => {
                    if let Some(done) = self.workers.submit(work, Waker::from_mio(&self.waker)) {
                        self.node.handle_work(now, done);
                    }
                }
                Action::SocketState(conn) => {
                    let place = self.by_conn.get(&conn);
                    let socket = place.and_then(|place| self.sockets[*place].as_mut());
                    let state = socket.and_then(Socket::state);
                    self.node.handle_socket_state(now, conn, state);
                }
                Action::Transmit(conn) => {
                    if let Some(place) = self.by_conn.get(&conn).copied() {
                        if let Some(socket) = &mut self.sockets[place] {
                            socket.wants_flush = true;
                        }
                        self.flush(place);
                    }
                }
                Action::Close(conn) => self.close_for_node(now, conn),
                Action::Read(conn) => {
                    if let Some(place) = self.by_conn.get(&conn).copied() {
                        self.enqueue(place);
                    }
                }
            }
        }
    }

    /// Serves one socket.
    fn enqueue(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place]
            && !socket.is_queued
        {
            socket.is_queued = true;
            if socket.is_in_handshake() {
                let other_end = socket.stream.peer_addr().ok();
                self.handshakes.push(other_end.map(|address| Place::of(address.ip())), place);
            } else {
                self.runnable.push_back(place);
            }
        }
    }
}
