//! Nodes joined in virtual time, without sockets.
//!
//! A [`Wire`] owns [`Node`]s, carries their bytes and jumps from one event to the next. The same calls with the
//! same seed give the same run, to the byte. A simulated minute takes as long as its computations.
//!
//! # Model
//! - Dialling (one round trip), refusal if nobody listens, orderly closing after the bytes sent before; plain
//!   connections with back-pressure; a table of DNS names.
//! - One latency for all pairs of nodes, or one for each pair; the bytes of a connection stay in order.
//! - A bounded send buffer for each direction of a connection: a node is not polled for more while it is full,
//!   like a driver with a full socket.
//! - Optional rates at which a node sends and receives over all its connections together: a relay's capacity.
//!   Connections are served in the order of their writes.
//! - Optional random segmentation of the byte stream: no node may rely on record boundaries.
//! - TLS without cryptography: the listener's certificate is presented, and keying material is derived from the
//!   connection's number. Handshakes and records add no bytes.
//! - A node reads from connections with TLS what it permits ([`Node::poll_read_limit`]).
//!
//! # Paths with a TCP model
//! With a [`PathModel`], each connection has a TCP in each direction:
//! - Bytes travel in chunks of up to eleven segments of 1448 bytes. A chunk passes the sender's egress, the
//!   bottleneck of its path (one for each pair of nodes and direction), and the receiver's ingress, one after
//!   the other. If it would wait longer than the queue there allows, it is dropped; in addition, each of its
//!   segments may be lost at random, decided by the seed.
//! - The congestion window begins with ten segments, doubles per round trip until the first loss, is halved
//!   once per window with losses, and then grows by one segment per round trip. Lost chunks are retransmitted
//!   when a later one is acknowledged, a round trip after it was sent; or, if none is, after the RTO (twice the
//!   round trip, at least 200 ms), with a window of two segments.
//! - The receiver's window is the free space of its buffer; out-of-order data waits there.
//! - Acknowledgements have the path's latency, cost nothing and are never lost. There are no delayed
//!   acknowledgements, no pacing and no packet overhead.
//! - So queues build up where they do on real machines, and [`SocketState`](onion::node::SocketState) reports
//!   what Linux would: congestion window, data in flight, unsent data. Over paths without a model there is no
//!   such state, as on systems that do not provide it.
//!
//! # Not modelled
//! Jitter, bottlenecks shared by different pairs of nodes, and computing time: a node answers instantly.
//!
//! ```
//! use flashflow_sim::wire::{Wire, WireConfig};
//! let mut wire = Wire::new(WireConfig::default());
//! assert_eq!(wire.step(), Ok(false)); // there are no nodes, so no events
//! ```

mod carrying;
mod config;
mod conn;
mod event_queue;
mod fingerprint;
mod names;
mod path;
mod tally;
mod tcp;
mod timers;
mod tls;
mod traffic;

pub use config::{Ended, NodeId, WireConfig, WireError};
pub use path::PathModel;
pub use tally::Tally;

use crate::split_mix::SplitMix64;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use conn::{Link, LinkId, Side};
use core::any::Any;
use core::net::{IpAddr, SocketAddr};
use event_queue::EventQueue;
use fingerprint::Fingerprint;
use names::Names;
use onion::Rate;
use onion::node::{ConnId, DnsAnswer, DnsQuery, ListenerId, Node, Security};
use onion::{Duration, Instant};
use path::{Narrow, Path};
use timers::Timers;

/// Maximum number of timeouts of one node at one instant, before it counts as busy-looping.
const TIMEOUTS_AT_ONCE_MAX: u32 = 1000;

/// Maximum queueing time at a node's own rate limits over paths with a model; then bytes are dropped.
const NODE_QUEUE: Duration = Duration::from_millis(100);

/// A node that can be downcast.
trait Body: Node + Any {}
impl<T: Node + Any> Body for T {}

/// A node and its state.
struct Resident {
    node: Box<dyn Body>,
    conns: BTreeMap<ConnId, (LinkId, Side)>,
    listeners: u32,
    /// The address of its first listener, from which it dials.
    address: Option<IpAddr>,
    egress: Option<Narrow>,
    ingress: Option<Narrow>,
    /// When it was last woken, and how often at that instant.
    woken: (Instant, u32),
    /// Bytes taken from it, and given to it.
    sent_bytes: u64,
    received_bytes: u64,
}

/// A listener.
struct Listener {
    node: NodeId,
    id: ListenerId,
    security: Security,
    certificate: Vec<u8>,
}

/// Nodes, their connections, and a virtual clock. See the [module](self).
pub struct Wire {
    config: WireConfig,
    now: Instant,
    residents: Vec<Resident>,
    listeners: BTreeMap<SocketAddr, Listener>,
    latencies: BTreeMap<(NodeId, NodeId), Duration>,
    paths: BTreeMap<(NodeId, NodeId), Path>,
    /// The model of all paths without their own.
    all_paths: Option<PathModel>,
    names: Names,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    events: EventQueue,
    timers: Timers,
    /// Nodes that may have been given a command since their last polls.
    stale: BTreeSet<NodeId>,
    /// Sides that may send more since their peer has read.
    refilled: VecDeque<(LinkId, Side)>,
    steps: u64,
    losses: SplitMix64,
    cuts: SplitMix64,
    fingerprint: Fingerprint,
    scratch: Vec<u8>,
}

impl Wire {
    /// A world without nodes, at [`Instant::ORIGIN`].
    #[must_use]
    pub fn new(config: WireConfig) -> Self {
        Self {
            config,
            now: Instant::ORIGIN,
            residents: Vec::new(),
            listeners: BTreeMap::new(),
            latencies: BTreeMap::new(),
            paths: BTreeMap::new(),
            all_paths: None,
            names: Names::default(),
            links: BTreeMap::new(),
            next_link: 0,
            events: EventQueue::default(),
            timers: Timers::default(),
            stale: BTreeSet::new(),
            refilled: VecDeque::new(),
            steps: 0,
            losses: SplitMix64::new(!config.seed),
            cuts: SplitMix64::new(config.seed),
            fingerprint: Fingerprint::default(),
            scratch: carrying::scratch(),
        }
    }

    /// Adds a node; it is polled in the next step.
    pub fn add(&mut self, node: impl Node + 'static) -> NodeId {
        self.residents.push(Resident {
            node: Box::new(node),
            conns: BTreeMap::new(),
            listeners: 0,
            address: None,
            egress: None,
            ingress: None,
            woken: (Instant::ORIGIN, 0),
            sent_bytes: 0,
            received_bytes: 0,
        });
        let id = NodeId(self.residents.len() - 1);
        self.stale.insert(id);
        id
    }

    /// Adds a listener with an address and a certificate to a node.
    ///
    /// The listeners of a node are numbered from zero in the order of these calls.
    ///
    /// # Errors
    /// [`WireError::AddressTaken`].
    pub fn listen(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        certificate: &[u8],
    ) -> Result<ListenerId, WireError> {
        self.add_listener(node, address, Security::Tls, certificate)
    }

    /// Adds a listener for plain connections to a node. They arrive by [`Node::handle_accepted`] with
    /// [`NoTls`](onion::link::NoTls).
    ///
    /// # Errors
    /// [`WireError::AddressTaken`].
    pub fn listen_plain(
        &mut self,
        node: NodeId,
        address: SocketAddr,
    ) -> Result<ListenerId, WireError> {
        self.add_listener(node, address, Security::Plain, &[])
    }

    fn add_listener(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        security: Security,
        certificate: &[u8],
    ) -> Result<ListenerId, WireError> {
        if self.listeners.contains_key(&address) {
            return Err(WireError::AddressTaken(address));
        }
        let resident = &mut self.residents[node.0];
        let id = ListenerId(resident.listeners);
        resident.listeners += 1;
        resident.address.get_or_insert(address.ip());
        let certificate = certificate.to_vec();
        self.listeners.insert(address, Listener { node, id, security, certificate });
        Ok(id)
    }

    /// Sets the one-way latency between two nodes for bytes sent later.
    pub fn set_latency(&mut self, one: NodeId, other: NodeId, latency: Duration) {
        self.latencies.insert((one.min(other), one.max(other)), latency);
    }

    /// Sets the path between two nodes, in each direction, for connections dialled later.
    pub fn set_path(&mut self, one: NodeId, other: NodeId, model: PathModel) {
        self.latencies.remove(&(one.min(other), one.max(other)));
        for pair in [(one, other), (other, one)] {
            self.paths.insert(pair, Path::new(model, self.now));
        }
    }

    /// Sets the path between all pairs of nodes without their own, for connections dialled later.
    pub fn set_all_paths(&mut self, model: PathModel) {
        self.all_paths = Some(model);
    }

    /// Limits the rate at which a node sends over all its connections together. Over paths with a model, bytes
    /// that would wait for more than 100 ms are dropped.
    pub fn set_egress(&mut self, node: NodeId, rate: Rate) {
        self.residents[node.0].egress = Some(Narrow::new(rate, NODE_QUEUE, self.now));
    }

    /// Limits the rate at which a node receives over all its connections together, in the same way.
    pub fn set_ingress(&mut self, node: NodeId, rate: Rate) {
        self.residents[node.0].ingress = Some(Narrow::new(rate, NODE_QUEUE, self.now));
    }

    /// Sets the answer to a DNS query. Other names do not exist.
    pub fn set_answer(&mut self, question: DnsQuery, answer: DnsAnswer) {
        self.names.set(question, answer);
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A node, if it has this type.
    #[must_use]
    pub fn node<T: Node + 'static>(&self, id: NodeId) -> Option<&T> {
        let node: &dyn Any = &*self.residents.get(id.0)?.node;
        node.downcast_ref()
    }

    /// A node for commands, if it has this type. The next step performs their actions.
    #[must_use]
    pub fn node_mut<T: Node + 'static>(&mut self, id: NodeId) -> Option<&mut T> {
        let resident = self.residents.get_mut(id.0)?;
        self.stale.insert(id);
        let node: &mut dyn Any = &mut *resident.node;
        node.downcast_mut()
    }

    /// Connections that are open or being opened.
    #[must_use]
    pub fn conns_len(&self) -> usize {
        self.links.len()
    }

    /// A digest of everything delivered so far, with its time: equal runs have equal digests.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint.get()
    }

    /// Events and timeouts so far: the cost of a run.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The time of the next event; `None` if there is none.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        if !self.stale.is_empty() {
            return Some(self.now);
        }
        let timeout = self.timers.next().map(|(at, _)| at);
        let next = timeout.into_iter().chain(self.events.next_at()).min()?;
        Some(next.max(self.now))
    }

    /// Jumps to the next event and processes it; returns false if there is none.
    ///
    /// # Errors
    /// [`WireError::NeverIdle`].
    pub fn step(&mut self) -> Result<bool, WireError> {
        self.poll_stale()?;
        let Some(at) = self.next_at() else { return Ok(false) };
        self.now = at;
        self.steps += 1;
        if let Some(event) = self.events.pop(at) {
            self.handle(event)?;
        } else if let Some((due, node)) = self.timers.next()
            && due <= at
        {
            self.timers.take(node);
            let resident = &mut self.residents[node.0];
            let again = if resident.woken.0 == at { resident.woken.1 + 1 } else { 1 };
            resident.woken = (at, again);
            if again > TIMEOUTS_AT_ONCE_MAX {
                return Err(WireError::NeverIdle { node, at });
            }
            resident.node.handle_timeout(at);
            self.drain(node)?;
        }
        self.settle()?;
        Ok(true)
    }

    /// Steps until `is_done` returns true, which is called before each step, or until `deadline`.
    ///
    /// # Errors
    /// [`WireError::NeverIdle`].
    pub fn run_until(
        &mut self,
        deadline: Instant,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Ended, WireError> {
        loop {
            if is_done(self) {
                return Ok(Ended::Satisfied);
            }
            self.poll_stale()?;
            match self.next_at() {
                None => return Ok(Ended::Idle),
                Some(at) if at > deadline => {
                    self.now = self.now.max(deadline);
                    return Ok(Ended::AtDeadline);
                }
                Some(_) => self.step()?,
            };
        }
    }

    /// Steps until there are no more events; returns the number of steps.
    ///
    /// # Errors
    /// [`WireError::TooManySteps`] if `steps_max` steps do not suffice.
    pub fn drive_bounded(&mut self, steps_max: u64) -> Result<u64, WireError> {
        for steps in 0..steps_max {
            if !self.step()? {
                return Ok(steps);
            }
        }
        Err(WireError::TooManySteps { allowed: steps_max })
    }

    /// Polls nodes that were added or commanded.
    fn poll_stale(&mut self) -> Result<(), WireError> {
        while let Some(node) = self.stale.pop_first() {
            self.drain(node)?;
        }
        self.settle()
    }
}

#[cfg(test)]
mod tests;
