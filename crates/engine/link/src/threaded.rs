//! One node whose sockets are served by several threads.
//!
//! The node stays on the thread that calls [`Drive::turn`]. It shares nothing, and decides with a
//! view of all links and rate limits. Most of a relay's processor time is spent below it, in TLS
//! and the kernel. The I/O threads do that work, each for its own connections, with the same
//! [`Driver`] that drives a node alone. Plaintext passes between threads in chunks of a TLS record,
//! through bounded queues; chunks are reused.

mod conn;
mod io_worker;
mod messages;
mod transfer;
mod worker_handle;

use crate::clock::Clock;
use crate::drive::Drive;
use crate::driver::{Driver, DriverError, DriverOptions, Lookups, Resolver, Traffic, Waker};
use crate::sockopt::TcpAccount;
use crate::tls::TlsConfigs;
use crate::workers::Workers;
use conn::Conn;
use io_worker::IoWorker;
use messages::{ChunkPool, InFlight, IoCommand, IoEvent, Serial};
use onion::link::TlsSession;
use onion::node::{Action, ConnId, Dial, ListenerId, Node, Security};
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use worker_handle::WorkerHandle;

/// Events queued for the node. A thread with more stops reading.
const EVENTS_MAX: usize = 1024;

/// Events handled before the node is polled again.
const EVENTS_PER_TURN: usize = 256;

/// Runs one [`Node`] with its sockets on several threads.
///
/// The node stays on the thread that calls [`turn`](Drive::turn). The I/O threads do what costs
/// most, TLS and the kernel. A threaded driver is used like a [`Driver`], and ends its threads when
/// it is dropped.
pub struct ThreadedDriver<N> {
    node: N,
    clock: Clock,
    io_workers: Vec<WorkerHandle>,
    /// `None` only during drop.
    events: Option<Receiver<(usize, IoEvent)>>,
    to_us: SyncSender<(usize, IoEvent)>,
    conns: BTreeMap<ConnId, Conn>,
    by_serial: BTreeMap<(usize, Serial), ConnId>,
    dialled: u64,
    /// The thread whose handshakes were the last to be granted bytes.
    next_granted: usize,
    lookups: Lookups,
    workers: Workers,
    pool: ChunkPool,
    traffic: Traffic,
}

impl<N: Node> ThreadedDriver<N> {
    /// Starts `threads` I/O threads. A listener's index in the list is its [`ListenerId`]; every
    /// thread accepts connections from all listeners.
    ///
    /// # Errors
    /// [`DriverError`] if the operating system provides no epoll set or thread, or refuses a
    /// listener.
    pub fn new(
        node: N,
        clock: Clock,
        tls: &TlsConfigs,
        listeners: &[TcpListener],
        options: DriverOptions,
        threads: NonZeroUsize,
    ) -> Result<Self, DriverError> {
        let (to_us, events) = sync_channel(EVENTS_MAX);
        let mut io_workers = Vec::new();
        let max_conns = options.max_conns.div_ceil(threads.get());
        for place in 0..threads.get() {
            let cloned: Result<Vec<_>, _> = listeners.iter().map(TcpListener::try_clone).collect();
            let cloned = cloned.map_err(DriverError::of("cannot share a listener"))?;
            let options = DriverOptions { max_conns, workers: 0, ..options };
            let driver = Driver::new(IoWorker::default(), clock, tls.clone(), cloned, options)?;
            io_workers.push(WorkerHandle::start(place, driver, to_us.clone())?);
        }
        Ok(Self {
            node,
            clock,
            io_workers,
            events: Some(events),
            to_us,
            conns: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            dialled: 0,
            next_granted: 0,
            lookups: Lookups::new(),
            workers: Workers::start(options.workers)?,
            pool: ChunkPool::default(),
            traffic: Traffic::default(),
        })
    }

    /// Handles an event of an I/O thread.
    fn handle(&mut self, worker: usize, event: IoEvent) -> Result<(), DriverError> {
        let now = self.clock.now();
        match event {
            IoEvent::Connected { serial, tls, socket } => {
                self.handle_connected(now, worker, serial, tls, socket);
            }
            IoEvent::Accepted { serial, listener, tls, socket } => {
                self.handle_accepted(now, worker, serial, listener, &*tls, socket);
            }
            IoEvent::Bytes(serial, chunk) => {
                // Data may arrive for a connection that the node has closed.
                if let Some(conn) = self.by_serial.get(&(worker, serial)).copied() {
                    self.traffic.received_bytes += chunk.bytes().len() as u64;
                    self.traffic.received_records += 1;
                    self.handle_chunk(now, conn, chunk);
                } else {
                    self.pool.give(chunk);
                }
            }
            IoEvent::Room(serial, InFlight { bytes, held_bytes }) => {
                if let Some(id) = self.by_serial.get(&(worker, serial)).copied()
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    let in_flight = &mut conn.in_flight;
                    in_flight.bytes = in_flight.bytes.saturating_sub(bytes);
                    in_flight.held_bytes = in_flight.held_bytes.saturating_sub(held_bytes);
                    let wants_flush = conn.wants_flush;
                    // The thread has reported unwritten bytes before.
                    self.report_unwritten(now, id, bytes);
                    if wants_flush {
                        self.transmit(now, id);
                    }
                }
            }
            IoEvent::Read(Some(serial), bytes) => {
                let id = self.by_serial.get(&(worker, serial)).copied();
                // A link that the node has closed counts as a handshake: it has no other bytes.
                self.node.handle_read(now, id, bytes);
                if let Some(id) = id
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.granted = conn.granted.saturating_sub(bytes);
                    self.grant(now, id);
                }
            }
            IoEvent::Read(None, bytes) => {
                self.node.handle_read(now, None, bytes);
                let granted = &mut self.io_workers[worker].handshakes_granted;
                *granted = granted.saturating_sub(bytes);
            }
            IoEvent::Unwritten(serial, unwritten) => {
                if let Some(id) = self.by_serial.get(&(worker, serial)).copied()
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.unwritten = unwritten;
                    self.report_unwritten(now, id, unwritten.written_bytes);
                }
            }
            IoEvent::Closed(serial, cause) => {
                if let Some(id) = self.by_serial.remove(&(worker, serial))
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.closed = Some(cause);
                    self.deliver(now, id);
                }
            }
            IoEvent::Failed(problem) => return Err(DriverError::of_thread(problem)),
            IoEvent::Wake => {}
        }
        Ok(())
    }

    fn handle_connected(
        &mut self,
        now: Instant,
        worker: usize,
        serial: Serial,
        tls: Option<Box<dyn TlsSession + Send>>,
        socket: Option<OwnedFd>,
    ) {
        let Some(id) = self.by_serial.get(&(worker, serial)).copied() else { return };
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
        worker: usize,
        serial: Serial,
        listener: ListenerId,
        tls: &dyn TlsSession,
        socket: Option<OwnedFd>,
    ) {
        match self.node.handle_accepted(now, listener, tls) {
            Some(id) => {
                let conn =
                    Conn { is_connected: true, socket, ..Conn::new(worker, serial, Security::Tls) };
                self.add(id, conn);
                self.grant(now, id);
                self.transmit(now, id);
            }
            None => self.io_workers[worker].send(IoCommand::Close(serial)),
        }
    }

    fn send_all(&mut self, command: impl Fn() -> IoCommand) {
        for worker in &mut self.io_workers {
            worker.send(command());
            worker.wake();
        }
    }

    fn add(&mut self, id: ConnId, conn: Conn) {
        self.by_serial.insert((conn.worker, conn.serial), id);
        self.conns.insert(id, conn);
    }

    /// Performs all actions that the node requests.
    fn drain(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(action) = self.node.poll_action(now) else { break };
            match action {
                Action::Dial(dial) => self.dial(dial),
                Action::Lookup(lookup) => {
                    let waker = self.waker();
                    self.lookups.ask(lookup, waker);
                }
                Action::Work(work) => {
                    let waker = self.waker();
                    if let Some(done) = self.workers.submit(work, waker) {
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
                        self.by_serial.remove(&(conn.worker, conn.serial));
                        self.io_workers[conn.worker].send(IoCommand::Close(conn.serial));
                    }
                }
                Action::Read(id) => self.deliver(now, id),
            }
        }
        self.io_workers.iter_mut().for_each(WorkerHandle::wake);
    }

    fn dial(&mut self, Dial { conn, to, security }: Dial) {
        let serial = Serial(2 * self.dialled);
        // Round-robin, so that all threads have the same number.
        let worker = usize::try_from(self.dialled).unwrap_or(0) % self.io_workers.len();
        self.dialled += 1;
        self.add(conn, Conn::new(worker, serial, security));
        self.io_workers[worker].send(IoCommand::Dial { serial, to, security });
    }
}

impl<N: Node> Drive<N> for ThreadedDriver<N> {
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
        self.send_all(|| IoCommand::Tls(Box::new(tls.clone())));
    }

    fn stop_listening(&mut self) {
        self.send_all(|| IoCommand::StopListening);
    }

    fn waker(&self) -> Waker {
        let to_us = self.to_us.clone();
        // If the queue is full, the driver is awake anyway.
        Waker::new(move || _ = to_us.try_send((0, IoEvent::Wake)))
    }

    fn turn(&mut self, deadline: Instant) -> Result<(), DriverError> {
        self.drain();
        let next = self.node.poll_timeout().map_or(deadline, |timeout| timeout.min(deadline));
        let mut wait = next - self.clock.now();
        for _ in 0..EVENTS_PER_TURN {
            // Received only if it is handled at once: dropping an event would corrupt a stream.
            let event = self.events.as_ref().map(|events| events.recv_timeout(wait));
            match event {
                Some(Ok((worker, event))) => self.handle(worker, event)?,
                Some(Err(RecvTimeoutError::Timeout)) | None => break,
                // This driver holds a sender itself.
                Some(Err(RecvTimeoutError::Disconnected)) => break,
            }
            wait = Duration::ZERO;
        }
        // A thread that panics sends no event, and its connections would hang.
        if self.io_workers.iter().any(WorkerHandle::has_ended) {
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
        self.grant_handshakes(now);
        self.drain();
        Ok(())
    }
}

impl<N> Drop for ThreadedDriver<N> {
    fn drop(&mut self) {
        // Unblocks a thread that waits for room in the event queue.
        self.events = None;
        self.io_workers.iter_mut().for_each(WorkerHandle::stop);
    }
}

#[cfg(test)]
mod tests;
