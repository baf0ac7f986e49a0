//! Nodes joined in virtual time: the second world that the engine lives in, without sockets.
//!
//! A [`Wire`] owns some [`Node`]s, carries what they send to each other, and jumps from one event to
//! the next. The same calls with the same seed give the same run, to the byte; a test or a
//! simulation of a minute takes as long as its arithmetic.
//!
//! # What is modelled
//! - Dialling (one round trip to connect), refusal where nobody listens, closing in good order after
//!   the bytes that were sent before.
//! - A latency for all pairs of nodes, or for each pair its own; bytes of a connection stay in order.
//! - A bounded send buffer for each direction of a connection: a node is not asked for more while it
//!   is full, as a driver does whose socket is full.
//! - A rate at which a node sends over all its connections together, if it has one: a relay's
//!   capacity. Connections are served in the order in which they gave their bytes.
//! - The byte stream cut into pieces at random, if asked for: no node may rely on record boundaries.
//! - TLS in name only: the certificate of the listener is shown, keying material is derived from the
//!   connection's number. Nothing is encrypted.
//!
//! # What is not
//! Loss, congestion control, jitter, a sharing of bottlenecks inside the network, the receiver's
//! rate, resets, time for computing: a node answers at the instant it is asked.
//!
//! ```
//! use onion::wire::{Wire, WireConfig};
//! let mut wire = Wire::new(WireConfig::default());
//! assert_eq!(wire.step(), Ok(false)); // nobody is there: nothing can happen
//! ```

mod agenda;
mod conn;
mod tls;
mod traffic;

use crate::node::{ConnId, ListenerId, Node};
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use agenda::Agenda;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use conn::{Egress, Link, LinkId, Side};
use core::any::Any;
use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use traffic::{Fingerprint, SplitMix};

/// Polls of one node after one event before it counts as never idle.
const DRAIN_POLLS_MAX: u32 = 1 << 20;

/// Timeouts of one node at one instant before it counts as never idle.
const TIMEOUTS_AT_ONCE_MAX: u32 = 1000;

/// Choices for a world.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// Time from one node to another, one way, where no other is set for the pair.
    pub latency: Duration,
    /// Longest piece in which bytes are delivered; whole, as they were sent, if `None`.
    pub piece_max_bytes: Option<NonZeroUsize>,
    /// Decides where the stream is cut into pieces.
    pub seed: u64,
    /// Bytes under way in one direction of one connection.
    pub send_buffer_bytes: usize,
    /// Connections at a time; more are refused.
    pub conns_max: usize,
}

impl Default for WireConfig {
    /// Ten milliseconds one way, whole pieces, a megabyte of send buffer.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(10),
            piece_max_bytes: None,
            seed: 0,
            send_buffer_bytes: 1 << 20,
            conns_max: 65_536,
        }
    }
}

/// A node of a [`Wire`], by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// Why a world cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A node wants something again and again, and time does not pass.
    NeverIdle {
        /// Which node.
        node: NodeId,
        /// When.
        at: Instant,
    },
    /// Something could still happen after all the steps that were allowed.
    TooManySteps {
        /// How many were allowed.
        allowed: u64,
    },
    /// Two listeners at one address.
    AddressTaken(SocketAddr),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverIdle { node: NodeId(node), at } => {
                write!(f, "node {node} is never idle at {at}")
            }
            Self::TooManySteps { allowed } => write!(f, "not idle after {allowed} steps"),
            Self::AddressTaken(address) => write!(f, "two listeners at {address}"),
        }
    }
}

impl core::error::Error for WireError {}

/// Why [`Wire::run_until`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The predicate holds.
    Satisfied,
    /// The deadline has come; it is the time now.
    AtDeadline,
    /// Nothing more can happen.
    Idle,
}

/// A node whose type can be told again.
trait Body: Node + Any {}
impl<T: Node + Any> Body for T {}

/// A node and what the world keeps for it.
struct Place {
    node: Box<dyn Body>,
    conns: BTreeMap<ConnId, (LinkId, Side)>,
    listeners: u32,
    egress: Option<Egress>,
    /// A command may have been given since its last polls.
    is_stale: bool,
    timeouts_at_once: u32,
}

/// Where a node listens.
struct Listener {
    node: NodeId,
    id: ListenerId,
    certificate: Vec<u8>,
}

/// Some nodes, their connections, and a clock that jumps. See the [module](self).
pub struct Wire {
    config: WireConfig,
    now: Instant,
    places: Vec<Place>,
    listeners: BTreeMap<SocketAddr, Listener>,
    latencies: BTreeMap<(NodeId, NodeId), Duration>,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    agenda: Agenda,
    cuts: SplitMix,
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
            places: Vec::new(),
            listeners: BTreeMap::new(),
            latencies: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            agenda: Agenda::default(),
            cuts: SplitMix::new(config.seed),
            fingerprint: Fingerprint::default(),
            scratch: traffic::scratch(),
        }
    }

    /// Adds a node; it is polled in the next step.
    pub fn add(&mut self, node: impl Node + 'static) -> NodeId {
        self.places.push(Place {
            node: Box::new(node),
            conns: BTreeMap::new(),
            listeners: 0,
            egress: None,
            is_stale: true,
            timeouts_at_once: 0,
        });
        NodeId(self.places.len() - 1)
    }

    /// Lets a node listen at an address, and show a certificate there.
    ///
    /// Listeners of a node are numbered from zero in the order of these calls.
    ///
    /// # Errors
    /// [`WireError::AddressTaken`].
    pub fn listen(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        certificate: &[u8],
    ) -> Result<ListenerId, WireError> {
        if self.listeners.contains_key(&address) {
            return Err(WireError::AddressTaken(address));
        }
        let place = &mut self.places[node.0];
        let id = ListenerId(place.listeners);
        place.listeners += 1;
        self.listeners.insert(address, Listener { node, id, certificate: certificate.to_vec() });
        Ok(id)
    }

    /// Sets the one-way latency between two nodes, for bytes sent from now on.
    pub fn set_latency(&mut self, one: NodeId, other: NodeId, latency: Duration) {
        self.latencies.insert((one.min(other), one.max(other)), latency);
    }

    /// Limits what a node sends over all its connections together.
    pub fn set_egress(&mut self, node: NodeId, rate: Rate) {
        self.places[node.0].egress = Some(Egress { rate, free_at: self.now });
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A node, if it is of this type.
    #[must_use]
    pub fn node<T: Node + 'static>(&self, id: NodeId) -> Option<&T> {
        let node: &dyn Any = &*self.places.get(id.0)?.node;
        node.downcast_ref()
    }

    /// A node for its commands, if it is of this type. The next step carries them out.
    #[must_use]
    pub fn node_mut<T: Node + 'static>(&mut self, id: NodeId) -> Option<&mut T> {
        let place = self.places.get_mut(id.0)?;
        place.is_stale = true;
        let node: &mut dyn Any = &mut *place.node;
        node.downcast_mut()
    }

    /// Connections that are open or being opened.
    #[must_use]
    pub fn conns_len(&self) -> usize {
        self.links.len()
    }

    /// A digest of all that was delivered so far, and when: equal runs have equal ones.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint.get()
    }

    /// When something will happen next; `None` if nothing can.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        if self.places.iter().any(|place| place.is_stale) {
            return Some(self.now);
        }
        let timeouts = self.places.iter().filter_map(|place| place.node.poll_timeout());
        let next = timeouts.chain(self.agenda.next_at()).min()?;
        Some(next.max(self.now))
    }

    /// Jumps to what happens next and lets it happen; false if nothing can.
    ///
    /// # Errors
    /// [`WireError::NeverIdle`].
    pub fn step(&mut self) -> Result<bool, WireError> {
        self.poll_stale()?;
        let Some(at) = self.next_at() else { return Ok(false) };
        if at > self.now {
            self.places.iter_mut().for_each(|place| place.timeouts_at_once = 0);
        }
        self.now = at;
        if let Some(event) = self.agenda.pop(at) {
            self.handle(event)?;
            return Ok(true);
        }
        let is_due = |place: &Place| place.node.poll_timeout().is_some_and(|due| due <= at);
        if let Some(number) = self.places.iter().position(is_due) {
            let place = &mut self.places[number];
            place.timeouts_at_once += 1;
            if place.timeouts_at_once > TIMEOUTS_AT_ONCE_MAX {
                return Err(WireError::NeverIdle { node: NodeId(number), at });
            }
            place.node.handle_timeout(at);
            self.drain(NodeId(number))?;
        }
        Ok(true)
    }

    /// Steps until `is_done` holds, asked before each step, or until `deadline`.
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

    /// Steps until nothing more can happen; returns how many steps it took.
    ///
    /// # Errors
    /// [`WireError::TooManySteps`] where `steps_max` steps do not suffice.
    pub fn drive_bounded(&mut self, steps_max: u64) -> Result<u64, WireError> {
        for steps in 0..steps_max {
            if !self.step()? {
                return Ok(steps);
            }
        }
        Err(WireError::TooManySteps { allowed: steps_max })
    }

    /// Polls the nodes that were added or commanded.
    fn poll_stale(&mut self) -> Result<(), WireError> {
        for number in 0..self.places.len() {
            if core::mem::take(&mut self.places[number].is_stale) {
                self.drain(NodeId(number))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
