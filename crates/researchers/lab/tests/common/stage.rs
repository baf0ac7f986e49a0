//! Runs nodes together, in virtual time or on real sockets, through one interface.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer};
use onion::node::Node;
use onion::{Duration, Instant};
use sim::wire::{NodeId, Wire, WireConfig};
use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;

/// Refers to a node of a stage, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeHandle(pub(crate) usize);

/// Runs nodes that are connected to each other.
pub(crate) trait Stage {
    /// Whether time is virtual, so that rates are exact.
    const IS_EXACT: bool;

    fn now(&self) -> Instant;

    /// An address to listen at.
    fn reserve(&mut self) -> SocketAddr;

    /// An address without a listener.
    fn nowhere(&mut self) -> SocketAddr;

    /// Adds a node that listens at addresses reserved before.
    fn add(
        &mut self,
        node: impl Node + 'static,
        issuer: &IdentityIssuer,
        at: &[SocketAddr],
    ) -> NodeHandle;

    fn node<N: Node + 'static>(&mut self, node: NodeHandle) -> &mut N;

    /// The bytes that a node has received so far, within TLS.
    fn received_bytes<N: Node + 'static>(&mut self, node: NodeHandle) -> u64;

    /// Processes an event; returns false if there is none.
    fn step(&mut self) -> bool;

    /// The number of open connections; in virtual time only.
    fn conns(&self) -> Option<usize>;

    /// Steps until `is_done` returns true, for at most `longest`.
    #[track_caller]
    fn until(&mut self, longest: Duration, mut is_done: impl FnMut(&mut Self) -> bool)
    where
        Self: Sized,
    {
        let deadline = self.now() + longest;
        while !is_done(self) {
            assert!(self.now() < deadline && self.step(), "the condition is not met in time");
        }
    }
}

/// Virtual time: a [`Wire`].
pub(crate) struct VirtualTime {
    pub(crate) wire: Wire,
    pub(crate) nodes: Vec<NodeId>,
    next_port: u16,
}

impl VirtualTime {
    pub(crate) fn new(seed: u64, piece_max_bytes: Option<usize>) -> Self {
        let piece_max_bytes = piece_max_bytes.and_then(NonZeroUsize::new);
        let config = WireConfig { seed, piece_max_bytes, ..WireConfig::default() };
        Self { wire: Wire::new(config), nodes: Vec::new(), next_port: 1 }
    }
}

/// The maximum step of time while nodes are idle.
const TICK: Duration = Duration::from_millis(100);

/// A node that only lets time pass.
struct Ticker(Instant);

impl Node for Ticker {
    fn handle_connected(
        &mut self,
        _: Instant,
        _: onion::node::ConnId,
        _: &dyn onion::link::TlsSession,
    ) {
    }
    fn handle_accepted(
        &mut self,
        _: Instant,
        _: onion::node::ListenerId,
        _: &dyn onion::link::TlsSession,
    ) -> Option<onion::node::ConnId> {
        None
    }
    fn handle_bytes(&mut self, _: Instant, _: onion::node::ConnId, _: &[u8]) {}
    fn handle_closed(&mut self, _: Instant, _: onion::node::ConnId, _: onion::node::CloseCause) {}
    fn handle_timeout(&mut self, now: Instant) {
        self.0 = now + TICK;
    }
    fn poll_dial(&mut self, _: Instant) -> Option<onion::node::Dial> {
        None
    }
    fn poll_writable(&mut self) -> Option<onion::node::ConnId> {
        None
    }
    fn poll_transmit(&mut self, _: Instant, _: onion::node::ConnId, _: &mut [u8]) -> usize {
        0
    }
    fn poll_close(&mut self) -> Option<onion::node::ConnId> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.0)
    }
}

impl Stage for VirtualTime {
    const IS_EXACT: bool = true;

    fn now(&self) -> Instant {
        self.wire.now()
    }

    fn reserve(&mut self) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::from(([10, 0, 0, 1], self.next_port))
    }

    fn nowhere(&mut self) -> SocketAddr {
        self.reserve()
    }

    fn add(
        &mut self,
        node: impl Node + 'static,
        issuer: &IdentityIssuer,
        at: &[SocketAddr],
    ) -> NodeHandle {
        if self.nodes.is_empty() {
            self.wire.add(Ticker(Instant::ORIGIN));
        }
        let id = self.wire.add(node);
        let certificate = issuer.tls_credentials().unwrap().0[0].to_vec();
        for address in at {
            self.wire.listen(id, *address, &certificate).unwrap();
        }
        self.nodes.push(id);
        NodeHandle(self.nodes.len() - 1)
    }

    fn node<N: Node + 'static>(&mut self, node: NodeHandle) -> &mut N {
        self.wire.node_mut(self.nodes[node.0]).unwrap()
    }

    fn received_bytes<N: Node + 'static>(&mut self, node: NodeHandle) -> u64 {
        self.wire.tally(self.nodes[node.0]).received_bytes
    }

    fn step(&mut self) -> bool {
        self.wire.step().unwrap()
    }

    fn conns(&self) -> Option<usize> {
        Some(self.wire.conns_len())
    }
}

/// A driver of any node, for downcasts.
trait AnyDriver: Any {
    fn turn(&mut self, deadline: Instant);
}

impl<N: Node + 'static> AnyDriver for Driver<N> {
    fn turn(&mut self, deadline: Instant) {
        Self::turn(self, deadline).unwrap();
    }
}

/// `link::Driver`s on loopback, all on this thread, round-robin.
pub(crate) struct RealSockets {
    clock: Clock,
    listeners: Vec<TcpListener>,
    drivers: Vec<Box<dyn AnyDriver>>,
}

impl RealSockets {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::start(), listeners: Vec::new(), drivers: Vec::new() }
    }

    /// Adds a node that listens at addresses reserved before.
    pub(crate) fn add_with(
        &mut self,
        node: impl Node + 'static,
        issuer: &IdentityIssuer,
        at: &[SocketAddr],
        options: DriverOptions,
    ) -> NodeHandle {
        let listeners = at.iter().map(|address| {
            let is_it = |listener: &TcpListener| listener.local_addr().unwrap() == *address;
            let place = self.listeners.iter().position(is_it).unwrap();
            self.listeners.swap_remove(place)
        });
        let listeners = listeners.collect();
        let tls = TlsConfigs::new(issuer).unwrap();
        let driver = Driver::new(node, self.clock, tls, listeners, options).unwrap();
        self.drivers.push(Box::new(driver));
        NodeHandle(self.drivers.len() - 1)
    }
}

impl Stage for RealSockets {
    const IS_EXACT: bool = false;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn reserve(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.listeners.push(listener);
        address
    }

    fn nowhere(&mut self) -> SocketAddr {
        let address = self.reserve();
        self.listeners.pop();
        address
    }

    fn add(
        &mut self,
        node: impl Node + 'static,
        issuer: &IdentityIssuer,
        at: &[SocketAddr],
    ) -> NodeHandle {
        self.add_with(node, issuer, at, DriverOptions::default())
    }

    fn node<N: Node + 'static>(&mut self, node: NodeHandle) -> &mut N {
        let driver: &mut dyn Any = &mut *self.drivers[node.0];
        driver.downcast_mut::<Driver<N>>().unwrap().node_mut()
    }

    fn received_bytes<N: Node + 'static>(&mut self, node: NodeHandle) -> u64 {
        let driver: &mut dyn Any = &mut *self.drivers[node.0];
        driver.downcast_mut::<Driver<N>>().unwrap().traffic().received_bytes
    }

    fn step(&mut self) -> bool {
        // Only the first driver waits for events: that of the relay, which takes part in most of them.
        let mut wait = Duration::from_millis(1);
        for driver in &mut self.drivers {
            let deadline = self.clock.now() + std::mem::take(&mut wait);
            driver.turn(deadline);
        }
        true
    }

    fn conns(&self) -> Option<usize> {
        None
    }
}

/// Runs each function as a test in virtual time and on real sockets.
macro_rules! in_both_worlds {
    ($($claim:ident)*) => {
        mod in_virtual_time {
            use crate::common::stage::VirtualTime;
            $(#[test] fn $claim() { super::$claim(VirtualTime::new(1, Some(3000))); })*
        }
        mod on_real_sockets {
            use crate::common::stage::RealSockets;
            $(#[test] fn $claim() { super::$claim(RealSockets::new()); })*
        }
    };
}
pub(crate) use in_both_worlds;
