//! The state of one circuit at this relay: its links, its layer of encryption, its queues and its end.
//!
//! Most circuits are idle at any time, so the state of an idle circuit is kept small:
//!
//! | part | bytes |
//! |---|---|
//! | circuit, with keys, two empty queues and the seeds of its digests | 264 |
//! | with header-only cells instead | 184 |
//! | running digests, once it has carried cells for this relay in both directions | 224 |
//! | Counter Galois Onion | 240 |
//! | its entry in the table of each of its links | 13 to 24 |
//!
//! Upkeep releases the rest after 10 to 20 s without cells: the ring buffers of its queues and its expanded
//! keys. AES-CTR can seek, so the next cell costs one key expansion.

use super::queue::CellQueue;
use crate::cell::CircId;
use crate::cell_model::{CellModel, Layer};
use crate::flow::TokenBucket;
use crate::flow::control::Agreed;
use crate::node::ConnId;
use crate::router::slab::{Slab, key};
use crate::time::Instant;
use crate::tunnel::{Leg, Tunnel};
use alloc::boxed::Box;
use core::fmt;

key! {
    /// A circuit, by its index in the router's table.
    CircuitIndex
}

key! {
    /// A tunnel that ends at this relay, by its index in the router's table.
    TunnelIndex
}

/// A circuit on one of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnLink {
    /// The link.
    pub conn: ConnId,
    /// The circuit ID on it.
    pub circ_id: CircId,
}

/// The direction of a cell (tor-spec §5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// Away from the circuit's origin.
    Forward,
    /// Towards the circuit's origin.
    Backward,
}

impl Direction {
    /// The opposite direction.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// One of the two queues of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId {
    pub(crate) index: CircuitIndex,
    pub(crate) direction: Direction,
}

impl QueueId {
    pub(crate) const fn forward(index: CircuitIndex) -> Self {
        Self { index, direction: Direction::Forward }
    }

    pub(crate) const fn backward(index: CircuitIndex) -> Self {
        Self { index, direction: Direction::Backward }
    }
}

/// The forward side of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextLink {
    /// The circuit ends here.
    None,
    /// EXTEND2 has arrived; the link to the next hop is being dialled.
    Dialing(ConnId),
    /// CREATE2 is sent, CREATED2 has not arrived.
    Extending(OnLink),
    /// CREATED2 has arrived: cells are forwarded.
    Open(OnLink),
}

impl NextLink {
    /// The link to the next hop, from EXTEND2 on.
    pub(crate) const fn conn(self) -> Option<ConnId> {
        match self {
            Self::None => None,
            Self::Dialing(conn) => Some(conn),
            Self::Extending(at) | Self::Open(at) => Some(at.conn),
        }
    }

    /// The circuit on the next link, from CREATE2 on.
    pub(crate) const fn on_link(self) -> Option<OnLink> {
        match self {
            Self::None | Self::Dialing(_) => None,
            Self::Extending(at) | Self::Open(at) => Some(at),
        }
    }
}

/// How this relay processes the circuit's relay cells.
pub(crate) enum Hop<S: CellModel> {
    /// Removes or adds its layer and forwards the cell.
    Relay(S::Layer),
    /// A measurement circuit: removes its layer and returns the cell.
    Echo(Box<S::EchoLayer>),
}

impl<S: CellModel> fmt::Debug for Hop<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay(_) => "Relay",
            Self::Echo(_) => "Echo",
        })
    }
}

/// The end of a circuit at this relay: its leg, and the tunnel that the leg belongs to.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) leg: Leg,
    pub(crate) tunnel: TunnelIndex,
    /// Whether it is a leg of a Conflux set (proposal 329).
    pub(crate) is_linked: bool,
}

/// A tunnel that ends at this relay: its streams and its circuits. It has one circuit, or several with Conflux.
#[derive(Debug)]
pub(crate) struct RelayTunnel {
    /// The circuit that carries its cells; with Conflux, one of them.
    pub(crate) circuit: CircuitIndex,
    /// Whether it is a Conflux set, whose scheduler chooses the circuit for each read.
    pub(crate) is_set: bool,
    /// Its streams, by their connections.
    pub(crate) streams: Tunnel<ConnId>,
    /// Limits new streams, if the consensus asks for it. One byte of the bucket is one stream.
    pub(crate) begins: Option<Box<TokenBucket>>,
}

/// All tunnels.
pub(crate) type Tunnels = Slab<TunnelIndex, RelayTunnel>;

/// A circuit through this relay, or one that ends at it.
#[derive(Debug)]
pub(crate) struct Circuit<S: CellModel> {
    /// The link and circuit ID towards the origin.
    pub(crate) back: OnLink,
    /// The forward side.
    pub(crate) next_link: NextLink,
    pub(crate) hop: Hop<S>,
    /// The flow control that was negotiated with the origin.
    pub(crate) agreed: Agreed,
    /// When it was created, or when the last cell for this relay arrived.
    pub(crate) used_at: Instant,
    /// Whether a relay cell has arrived on it.
    pub(crate) is_used: bool,
    /// Whether the link towards the origin has noted everything about its use that matters for padding.
    pub(crate) is_use_noted: bool,
    /// RELAY_EARLY cells received.
    pub(crate) early_cells: u8,
    /// Cells queued for the link towards the origin.
    pub(crate) backward_queue: CellQueue<S::Cell>,
    /// Cells queued for the link to the next hop.
    pub(crate) forward_queue: CellQueue<S::Cell>,
    /// The circuit's end at this relay; `None` until the first message for this relay.
    pub(crate) end: Option<Box<End>>,
}

impl<S: CellModel> Circuit<S> {
    pub(crate) fn new(now: Instant, back: OnLink, hop: Hop<S>, agreed: Agreed) -> Self {
        Self {
            back,
            next_link: NextLink::None,
            hop,
            agreed,
            used_at: now,
            is_used: false,
            is_use_noted: false,
            early_cells: 0,
            backward_queue: CellQueue::default(),
            forward_queue: CellQueue::default(),
            end: None,
        }
    }

    /// Releases expanded keys and queue slots if no cell has passed since the last call.
    fn rest(&mut self) {
        if let Hop::Relay(layer) = &mut self.hop {
            layer.rest();
        }
        self.backward_queue.rest();
        self.forward_queue.rest();
    }

    /// The link on which cells of this direction leave.
    #[inline]
    pub(crate) const fn way_out(&self, direction: Direction) -> Option<OnLink> {
        match direction {
            Direction::Backward => Some(self.back),
            Direction::Forward => self.next_link.on_link(),
        }
    }

    /// The link on which cells of this direction arrive.
    pub(crate) const fn way_in(&self, direction: Direction) -> Option<OnLink> {
        match direction {
            Direction::Forward => Some(self.back),
            Direction::Backward => self.next_link.on_link(),
        }
    }

    #[inline]
    pub(crate) const fn queue_mut(&mut self, direction: Direction) -> &mut CellQueue<S::Cell> {
        match direction {
            Direction::Backward => &mut self.backward_queue,
            Direction::Forward => &mut self.forward_queue,
        }
    }

    /// Both queues with the links that they belong to.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (OnLink, &CellQueue<S::Cell>)> {
        let forward = self.next_link.on_link().map(|at| (at, &self.forward_queue));
        core::iter::once((self.back, &self.backward_queue)).chain(forward)
    }

    /// Since when the oldest cell of both queues has been queued, as far as known.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        let queues = [&self.backward_queue, &self.forward_queue];
        queues.into_iter().filter_map(CellQueue::oldest_since).min()
    }

    /// When a cell passed last in either direction; the circuit's creation if none did.
    ///
    /// The queues record it, so that forwarding a cell costs nothing extra.
    pub(crate) fn moved_at(&self) -> Instant {
        self.used_at.max(self.backward_queue.moved_at()).max(self.forward_queue.moved_at())
    }

    /// Cells in both queues.
    pub(crate) const fn queued_cells(&self) -> usize {
        self.backward_queue.len() + self.forward_queue.len()
    }
}

/// All circuits.
pub(crate) type Circuits<S> = Slab<CircuitIndex, Circuit<S>>;

impl<S: CellModel> Circuits<S> {
    /// A circuit's queue for this link; `None` if the circuit is gone or uses another link by now.
    #[inline]
    pub(crate) fn queue_for(
        &mut self,
        QueueId { index, direction }: QueueId,
        conn: ConnId,
    ) -> Option<&mut CellQueue<S::Cell>> {
        let circuit = self.get_mut(index)?;
        (circuit.way_out(direction)?.conn == conn).then(|| circuit.queue_mut(direction))
    }

    /// Whether this relay makes the cells of a queue itself, from what destinations, the directory server or DNS
    /// answer.
    ///
    /// A circuit that has streams here and is extended as well has cells of both kinds in one queue. It counts as
    /// one that ends here, in [`handle_client_received`] too.
    ///
    /// [`handle_client_received`]: crate::measure::target::Target::handle_client_received
    pub(crate) fn are_own_cells(&self, QueueId { index, direction }: QueueId) -> bool {
        direction == Direction::Backward
            && self
                .get(index)
                .is_some_and(|circuit| circuit.end.is_some() || circuit.next_link == NextLink::None)
    }

    /// Releases unused memory of all circuits.
    pub(crate) fn rest(&mut self) {
        self.iter_mut().for_each(Circuit::rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell_model::{HeaderOnly, Tor};

    /// A change that makes the circuit larger makes every relay's memory larger: most circuits are idle.
    #[test]
    fn an_idle_circuit_is_small() {
        // Everything but its entries in the tables of its two links.
        let bytes = size_of::<Circuit<Tor>>();
        assert!(bytes <= 264, "{bytes} bytes");
        assert_eq!(size_of::<Option<Circuit<Tor>>>(), bytes, "in the table of circuits");
        let bytes = size_of::<Circuit<HeaderOnly>>();
        assert!(bytes <= 184, "{bytes} bytes");
    }

    #[test]
    fn a_circuit_at_rest_has_no_buffers() {
        let back = OnLink { conn: ConnId(0), circ_id: CircId::of_initiator(1) };
        let (_, keys) = crate::crypto::fast::respond(&[1; 20], [2; 20]);
        let hop = Hop::Relay(Layer::<Tor>::new(&keys.into()));
        let mut circuit = Circuit::<Tor>::new(Instant::ORIGIN, back, hop, Agreed::default());
        for direction in [Direction::Forward, Direction::Backward] {
            let queue = circuit.queue_mut(direction);
            queue.push(Instant::ORIGIN);
            queue.pop_into(Instant::ORIGIN, &mut [[0; crate::cell::CELL_LEN]]);
        }
        circuit.rest();
        assert!(!circuit.forward_queue.is_at_rest(), "a cell has passed since the last upkeep");
        circuit.rest();
        assert!(circuit.forward_queue.is_at_rest() && circuit.backward_queue.is_at_rest());
    }
}
