//! One node, whose sockets several threads serve.
//!
//! The node stays on the thread that calls [`Drive::turn`]: nothing in it is shared, and all its
//! decisions are taken with everything in view: one link to each relay, one rate limit, one look at
//! all sockets. What costs most of a relay's processor time is below it: TLS and the kernel. That
//! is what the threads do, each with its own connections, by the same [`Driver`] that drives a
//! node alone. Plaintext crosses in chunks of a TLS record, by bounded queues; chunks are used over and over.

mod conn;
mod messages;
mod moving;
mod porter;
mod thread;

use crate::clock::Clock;
use crate::drive::Drive;
use crate::driver::{Driver, DriverError, DriverOptions, Lookups, Remote, Resolver, Traffic};
use crate::sockopt::TcpAccount;
use crate::tls::TlsConfigs;
use crate::workers::Workers;
use conn::Conn;
use messages::{Errand, Event, Load, Serial, Spare};
use onion::link::TlsSession;
use onion::node::{Action, ConnId, Dial, ListenerId, Node, Security};
use onion::{Duration, Instant};
use porter::Porter;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use thread::Hand;

/// Events that wait for the node; a thread that has more stops reading.
const EVENTS_MAX: usize = 1024;

/// Events before the node is polled again.
const EVENTS_PER_TURN: usize = 256;

/// Runs one [`Node`] with its sockets on several threads.
///
/// The node stays on the thread that calls [`turn`](Drive::turn): all its decisions are taken with
/// everything in view. The threads do what costs most, TLS and the kernel. A crew is used like a
/// [`Driver`], and ends its threads when it is dropped.
pub struct Crew<N> {
    node: N,
    clock: Clock,
    hands: Vec<Hand>,
    /// `None` only while it is dropped.
    events: Option<Receiver<(usize, Event)>>,
    to_us: SyncSender<(usize, Event)>,
    conns: BTreeMap<ConnId, Conn>,
    by_serial: BTreeMap<(usize, Serial), ConnId>,
    dialled: u64,
    lookups: Lookups,
    workers: Workers,
    spare: Spare,
    traffic: Traffic,
}

impl<N: Node> Crew<N> {
    /// Sets up `threads` threads; the place of a listener in the list is its [`ListenerId`]. All
    /// threads accept connections, whoever comes first.
    ///
    /// # Errors
    /// Where the operating system gives no epoll set or thread, or refuses a listener.
    pub fn new(
        node: N,
        clock: Clock,
        tls: &TlsConfigs,
        listeners: &[TcpListener],
        options: DriverOptions,
        threads: NonZeroUsize,
    ) -> Result<Self, DriverError> {
        let (to_us, events) = sync_channel(EVENTS_MAX);
        let mut hands = Vec::new();
        let max_conns = options.max_conns.div_ceil(threads.get());
        for place in 0..threads.get() {
            let cloned: Result<Vec<_>, _> = listeners.iter().map(TcpListener::try_clone).collect();
            let cloned = cloned.map_err(DriverError::of("cannot share a listener"))?;
            let options = DriverOptions { max_conns, workers: 0, ..options };
            let driver = Driver::new(Porter::default(), clock, tls.clone(), cloned, options)?;
            hands.push(Hand::start(place, driver, to_us.clone())?);
        }
        Ok(Self {
            node,
            clock,
            hands,
            events: Some(events),
            to_us,
            conns: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            dialled: 0,
            lookups: Lookups::new(),
            workers: Workers::start(options.workers)?,
            spare: Spare::default(),
            traffic: Traffic::default(),
        })
    }

    /// Something that a thread tells.
    fn handle(&mut self, hand: usize, event: Event) -> Result<(), DriverError> {
        let now = self.clock.now();
        match event {
            Event::Connected { serial, tls, socket } => {
                self.handle_connected(now, hand, serial, tls, socket);
            }
            Event::Accepted { serial, listener, tls, socket } => {
                self.handle_accepted(now, hand, serial, listener, &*tls, socket);
            }
            Event::Bytes(serial, chunk) => {
                // A connection that the node has closed may still have had something to say.
                if let Some(conn) = self.by_serial.get(&(hand, serial)).copied() {
                    self.traffic.received_bytes += chunk.bytes().len() as u64;
                    self.traffic.received_records += 1;
                    self.handle_chunk(now, conn, chunk);
                } else {
                    self.spare.give(chunk);
                }
            }
            Event::Room(serial, Load { bytes, held_bytes }) => {
                if let Some(id) = self.by_serial.get(&(hand, serial)).copied()
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    let in_flight = &mut conn.in_flight;
                    in_flight.bytes = in_flight.bytes.saturating_sub(bytes);
                    in_flight.held_bytes = in_flight.held_bytes.saturating_sub(held_bytes);
                    let wants_flush = conn.wants_flush;
                    // What the thread has not written of it, it has told before.
                    self.tell_of_unwritten(now, id, bytes);
                    if wants_flush {
                        self.transmit(now, id);
                    }
                }
            }
            Event::Unwritten(serial, unwritten) => {
                if let Some(id) = self.by_serial.get(&(hand, serial)).copied()
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.unwritten = unwritten;
                    self.tell_of_unwritten(now, id, unwritten.written_bytes);
                }
            }
            Event::Closed(serial, cause) => {
                if let Some(id) = self.by_serial.remove(&(hand, serial))
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.closed = Some(cause);
                    self.deliver(now, id);
                }
            }
            Event::Failed(problem) => return Err(DriverError::of_thread(problem)),
            Event::Wake => {}
        }
        Ok(())
    }

    fn handle_connected(
        &mut self,
        now: Instant,
        hand: usize,
        serial: Serial,
        tls: Option<Box<dyn TlsSession + Send>>,
        socket: Option<OwnedFd>,
    ) {
        let Some(id) = self.by_serial.get(&(hand, serial)).copied() else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.is_connected = true;
        conn.socket = socket;
        match tls {
            Some(tls) => self.node.handle_connected(now, id, &*tls),
            None => self.node.handle_plain_connected(now, id),
        }
        self.deliver(now, id);
        self.transmit(now, id);
    }

    fn handle_accepted(
        &mut self,
        now: Instant,
        hand: usize,
        serial: Serial,
        listener: ListenerId,
        tls: &dyn TlsSession,
        socket: Option<OwnedFd>,
    ) {
        match self.node.handle_accepted(now, listener, tls) {
            Some(id) => {
                let conn =
                    Conn { is_connected: true, socket, ..Conn::new(hand, serial, Security::Tls) };
                self.add(id, conn);
                self.transmit(now, id);
            }
            None => self.hands[hand].tell(Errand::Close(serial)),
        }
    }

    fn tell_all(&mut self, errand: impl Fn() -> Errand) {
        for hand in &mut self.hands {
            hand.tell(errand());
            hand.wake();
        }
    }

    fn add(&mut self, id: ConnId, conn: Conn) {
        self.by_serial.insert((conn.hand, conn.serial), id);
        self.conns.insert(id, conn);
    }

    /// Does all that the node wants.
    fn drain(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(action) = self.node.poll_action(now) else { break };
            match action {
                Action::Dial(dial) => self.dial(dial),
                Action::Lookup(lookup) => {
                    let remote = self.remote();
                    self.lookups.ask(lookup, remote);
                }
                Action::Work(work) => {
                    let remote = self.remote();
                    if let Some(done) = self.workers.ask(work, remote) {
                        self.node.handle_work(now, done);
                    }
                }
                Action::SocketState(id) => {
                    let state = self.conns.get(&id).and_then(Conn::state);
                    self.node.handle_socket_state(now, id, state);
                }
                Action::Transmit(id) => self.transmit(now, id),
                Action::Close(id) => {
                    if let Some(conn) = self.conns.remove(&id) {
                        self.by_serial.remove(&(conn.hand, conn.serial));
                        self.hands[conn.hand].tell(Errand::Close(conn.serial));
                    }
                }
                Action::Read(id) => self.deliver(now, id),
            }
        }
        self.hands.iter_mut().for_each(Hand::wake);
    }

    fn dial(&mut self, Dial { conn, to, security }: Dial) {
        let serial = Serial(2 * self.dialled);
        // In turn: each then has as many as the others.
        let hand = usize::try_from(self.dialled).unwrap_or(0) % self.hands.len();
        self.dialled += 1;
        self.add(conn, Conn::new(hand, serial, security));
        self.hands[hand].tell(Errand::Dial { serial, to, security });
    }
}

impl<N: Node> Drive<N> for Crew<N> {
    fn node(&self) -> &N {
        &self.node
    }

    fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn tcp_accounts(&self, each: &mut dyn FnMut(ConnId, TcpAccount)) {
        for (id, conn) in &self.conns {
            if let Some(account) = conn.account() {
                each(*id, account);
            }
        }
    }

    fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.lookups.set_resolver(resolver);
    }

    fn set_tls(&mut self, tls: TlsConfigs) {
        self.tell_all(|| Errand::Tls(Box::new(tls.clone())));
    }

    fn stop_listening(&mut self) {
        self.tell_all(|| Errand::StopListening);
    }

    fn remote(&self) -> Remote {
        let to_us = self.to_us.clone();
        // A queue that is full wakes it as well.
        Remote::by(move || _ = to_us.try_send((0, Event::Wake)))
    }

    fn turn(&mut self, deadline: Instant) -> Result<(), DriverError> {
        self.drain();
        let next = self.node.poll_timeout().map_or(deadline, |timeout| timeout.min(deadline));
        let mut wait = next - self.clock.now();
        for _ in 0..EVENTS_PER_TURN {
            // Taken only where it is handled at once: an event that is dropped is a hole in a stream.
            let event = self.events.as_ref().map(|events| events.recv_timeout(wait));
            match event {
                Some(Ok((hand, event))) => self.handle(hand, event)?,
                Some(Err(RecvTimeoutError::Timeout)) | None => break,
                // We hold a sender ourselves.
                Some(Err(RecvTimeoutError::Disconnected)) => break,
            }
            wait = Duration::ZERO;
        }
        // One that panics says nothing, and its connections would hang.
        if self.hands.iter().any(Hand::has_ended) {
            return Err(DriverError::of_thread("it has panicked".to_owned()));
        }
        while let Some((id, answer)) = self.lookups.poll_answer() {
            self.node.handle_answer(self.clock.now(), id, answer);
        }
        while let Some(done) = self.workers.poll_done()? {
            self.node.handle_work(self.clock.now(), done);
        }
        let now = self.clock.now();
        if self.node.poll_timeout().is_some_and(|timeout| timeout <= now) {
            self.node.handle_timeout(now);
        }
        self.drain();
        Ok(())
    }
}

impl<N> Drop for Crew<N> {
    fn drop(&mut self) {
        // A thread that waits for room among the events must not wait for ever.
        self.events = None;
        self.hands.iter_mut().for_each(Hand::stop);
    }
}

#[cfg(test)]
mod tests;
