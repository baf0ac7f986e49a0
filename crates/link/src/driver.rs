//! One node on one thread: sockets, TLS, timers.

mod closing;
mod deadlines;
mod lookup;
mod moving;
mod newcomers;
mod opening;
mod options;
mod shaking;
mod socket;

pub use lookup::{Reply, Resolver};
pub use onion::measure::Traffic;
pub use options::{DriverError, DriverOptions, Remote};

use crate::clock::Clock;
use crate::sockopt::TcpAccount;
use crate::tls::{Buffers, TlsConfigs};
use crate::workers::Workers;
use deadlines::Deadlines;
pub(crate) use lookup::Lookups;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use newcomers::Newcomers;
use onion::node::{Action, ConnId, Node};
use onion::{Duration, Instant};
use options::failed;
use shaking::Shaking;
pub(crate) use socket::PENDING_LEN;
use socket::Socket;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Plaintext of one record: the cells that it holds whole.
const RECORD_LEN: usize = onion::cell::CELLS_PER_RECORD * onion::cell::CELL_LEN;

/// Sockets whose TLS handshake goes on in one turn, at most: each takes a millisecond of computing, and no cell of a link that stands is
/// to wait behind hundreds of them.
const HANDSHAKES_PER_TURN: usize = 4;

const WAKER: Token = Token(usize::MAX);

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
    /// None once it listens no more.
    listeners: Vec<TcpListener>,
    /// Tokens below are those of listeners, also of those that are closed.
    first_socket: usize,
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    by_conn: BTreeMap<ConnId, usize>,
    /// Sockets with something to read or write, each once.
    runnable: VecDeque<usize>,
    /// Those of them whose TLS does not stand.
    shaking: Shaking,
    /// All that have come in and whose TLS does not stand.
    newcomers: Newcomers,
    /// Room for the plaintext of what is about to be sent.
    record: Box<[u8; RECORD_LEN]>,
    buffers: Buffers,
    lookups: Lookups,
    workers: Workers,
    traffic: Traffic,
    /// Bytes of memory of sockets that are [leaving](socket::Stage::Leaving).
    leaving_bytes: usize,
    /// When the sockets were last looked at.
    looked_at: Instant,
    deadlines: Deadlines,
    /// A listener failed to accept for want of something: epoll will not tell of it again.
    must_accept_again: bool,
}

/// Duplicates sockets, so that another thread can ask the kernel about them.
pub(crate) struct Duplicator<'a> {
    sockets: &'a [Option<Socket>],
    by_conn: &'a BTreeMap<ConnId, usize>,
}

impl Duplicator<'_> {
    /// `None` where the connection is gone, or the process may open no more files.
    pub(crate) fn duplicate(&self, conn: ConnId) -> Option<OwnedFd> {
        let socket = self.sockets.get(*self.by_conn.get(&conn)?)?.as_ref()?;
        rustix::io::dup(&socket.stream).ok()
    }
}

impl<N: Node> Driver<N> {
    /// Sets up a worker; the place of a listener in the list is its
    /// [`ListenerId`](onion::node::ListenerId).
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
            first_socket: registered.len(),
            listeners: registered,
            sockets: Vec::new(),
            free: Vec::new(),
            by_conn: BTreeMap::new(),
            runnable: VecDeque::new(),
            shaking: Shaking::default(),
            newcomers: Newcomers::new(options.max_conns),
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

    /// Asks the kernel about each connection of the node that stands; see
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

    /// Lets the node's questions to the domain name system be answered. Without, they all fail.
    pub fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.lookups.set_resolver(resolver);
    }

    /// Shows another certificate from now on. Connections whose handshake has begun keep the one before:
    /// the node sees which by [`TlsSession::own_certificate_sha256`](onion::link::TlsSession::own_certificate_sha256).
    pub fn set_tls(&mut self, tls: TlsConfigs) {
        self.tls = tls;
    }

    /// Closes all listeners: who connects from now on is refused by the system. Connections that have
    /// come in stay.
    pub fn stop_listening(&mut self) {
        for mut listener in self.listeners.drain(..) {
            // A copy of it elsewhere would keep it in the set. One that is not there cannot be taken out.
            let _ = self.poll.registry().deregister(&mut listener);
        }
    }

    /// A handle that other threads wake this worker with.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::of(&self.waker)
    }

    /// The node, and a way to duplicate the sockets of its connections.
    pub(crate) fn node_and_sockets(&mut self) -> (&mut N, Duplicator<'_>) {
        (&mut self.node, Duplicator { sockets: &self.sockets, by_conn: &self.by_conn })
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
        let next = [Some(deadline), self.node.poll_timeout(), self.deadlines.next()];
        let next = next.into_iter().flatten().min().unwrap_or(deadline);
        let next_look = (self.looked_at + self.options.coalesce).min(next);
        let now = self.clock.now();
        if now < next_look {
            self.clock.sleep(next_look - now);
        }
        let now = self.clock.now();
        self.looked_at = now;
        let is_idle = self.runnable.is_empty() && self.shaking.is_empty();
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
        for _ in 0..HANDSHAKES_PER_TURN {
            let Some(place) = self.shaking.pop() else { break };
            self.run_socket(place);
        }
        let now = self.clock.now();
        self.expire(now);
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

    /// Does all that the node wants.
    fn drain(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(action) = self.node.poll_action(now) else { break };
            match action {
                Action::Dial(dial) => self.dial(now, dial),
                Action::Lookup(lookup) => self.lookups.ask(lookup, Remote::of(&self.waker)),
                Action::Work(work) => {
                    if let Some(done) = self.workers.ask(work, Remote::of(&self.waker)) {
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

    /// Gives a socket its turn.
    fn enqueue(&mut self, place: usize) {
        if let Some(socket) = &mut self.sockets[place]
            && !socket.is_queued
        {
            socket.is_queued = true;
            if socket.is_in_handshake() {
                let other_end = socket.stream.peer_addr().ok();
                self.shaking.push(other_end.map(|address| address.ip()), place);
            } else {
                self.runnable.push_back(place);
            }
        }
    }
}
