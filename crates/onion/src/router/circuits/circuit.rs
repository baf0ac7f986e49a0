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
    /// A circuit of this relay, by the number that we gave it.
    CircuitIndex
}

key! {
    /// A tunnel that ends at this relay, by the number that we gave it.
    TunnelIndex
}

/// A circuit as one of its links knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnLink {
    /// The link.
    pub conn: ConnId,
    /// The circuit's number there.
    pub circ_id: CircId,
}

/// Which way a cell goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::router) enum Direction {
    /// Away from the one who built the circuit.
    Forward,
    /// Towards that one.
    Backward,
}

impl Direction {
    /// The one the other way.
    pub(in crate::router) const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// Where a circuit goes on from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) enum NextLink {
    /// It ends here.
    None,
    /// Its CREATE2 waits for the link to open.
    Dialing(ConnId),
    /// CREATE2 is sent.
    Extending(OnLink),
    /// CREATED2 has come: cells pass.
    Open(OnLink),
}

impl NextLink {
    /// The link that it is extended over, from EXTEND2 on.
    pub(in crate::router) const fn conn(self) -> Option<ConnId> {
        match self {
            Self::None => None,
            Self::Dialing(conn) => Some(conn),
            Self::Extending(at) | Self::Open(at) => Some(at.conn),
        }
    }

    /// The circuit there, from CREATE2 on.
    pub(in crate::router) const fn on_link(self) -> Option<OnLink> {
        match self {
            Self::None | Self::Dialing(_) => None,
            Self::Extending(at) | Self::Open(at) => Some(at),
        }
    }
}

/// What the relay does with a circuit's cells.
pub(in crate::router) enum Hop<S: CellModel> {
    /// Its layer comes off or goes on, and the cells pass.
    Relay(S::Layer),
    /// A measurement circuit: its layer comes off, and the cells go back.
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

/// A circuit's end at this relay: its leg, and the tunnel that this is a leg of.
#[derive(Debug)]
pub(in crate::router) struct End {
    pub(in crate::router) leg: Leg,
    pub(in crate::router) tunnel: TunnelIndex,
    /// It is one of the legs of a set (proposal 329).
    pub(in crate::router) is_linked: bool,
}

/// A tunnel that ends at this relay: its streams, and its circuits. It has one, or with Conflux several.
#[derive(Debug)]
pub(in crate::router) struct RelayTunnel {
    /// The circuit that carries its cells; of a set, one of them.
    pub(in crate::router) circuit: CircuitIndex,
    /// It is a set: which circuit carries what is decided for each reading.
    pub(in crate::router) is_set: bool,
    /// Its streams, by their connections.
    pub(in crate::router) streams: Tunnel<ConnId>,
    /// Lets new streams begin, where there is a defence. One byte of it is one.
    pub(in crate::router) begins: Option<Box<TokenBucket>>,
}

/// All tunnels.
pub(in crate::router) type Tunnels = Slab<TunnelIndex, RelayTunnel>;

/// A circuit that passes through the relay, or ends at it.
#[derive(Debug)]
pub(in crate::router) struct Circuit<S: CellModel> {
    /// Towards the one who built it.
    pub(in crate::router) back: OnLink,
    /// Away from that one.
    pub(in crate::router) next_link: NextLink,
    pub(in crate::router) hop: Hop<S>,
    /// What was agreed on how many DATA cells may be under way between the one who built it and us.
    pub(in crate::router) agreed: Agreed,
    /// When it began, or when the last cell came for this relay.
    pub(in crate::router) used_at: Instant,
    /// A relay cell has come on it.
    pub(in crate::router) is_used: bool,
    /// The link towards the one who built it knows all that it can do for its padding.
    pub(in crate::router) has_told_use: bool,
    /// RELAY_EARLY cells that have come.
    pub(in crate::router) early_cells: u8,
    /// Cells that wait for the link towards the one who built it.
    pub(in crate::router) backward_queue: CellQueue<S::Cell>,
    /// Cells that wait for the link to the next hop.
    pub(in crate::router) forward_queue: CellQueue<S::Cell>,
    /// Its end here, once it has had a use for it.
    pub(in crate::router) end: Option<Box<End>>,
}

impl<S: CellModel> Circuit<S> {
    pub(in crate::router) fn new(now: Instant, back: OnLink, hop: Hop<S>, agreed: Agreed) -> Self {
        Self {
            back,
            next_link: NextLink::None,
            hop,
            agreed,
            used_at: now,
            is_used: false,
            has_told_use: false,
            early_cells: 0,
            backward_queue: CellQueue::default(),
            forward_queue: CellQueue::default(),
            end: None,
        }
    }

    /// Gives back what takes room and is not used: keys and slots, where no cell has passed since the
    /// last call.
    fn rest(&mut self) {
        if let Hop::Relay(layer) = &mut self.hop {
            layer.rest();
        }
        self.backward_queue.rest();
        self.forward_queue.rest();
    }

    /// Where cells that go this way leave.
    #[inline]
    pub(in crate::router) const fn way_out(&self, direction: Direction) -> Option<OnLink> {
        match direction {
            Direction::Backward => Some(self.back),
            Direction::Forward => self.next_link.on_link(),
        }
    }

    /// Where cells that go this way come from.
    pub(in crate::router) const fn way_in(&self, direction: Direction) -> Option<OnLink> {
        match direction {
            Direction::Forward => Some(self.back),
            Direction::Backward => self.next_link.on_link(),
        }
    }

    #[inline]
    pub(in crate::router) const fn queue_mut(
        &mut self,
        direction: Direction,
    ) -> &mut CellQueue<S::Cell> {
        match direction {
            Direction::Backward => &mut self.backward_queue,
            Direction::Forward => &mut self.forward_queue,
        }
    }

    /// Both queues, with the links that their cells wait for.
    pub(in crate::router) fn queues(&self) -> impl Iterator<Item = (OnLink, &CellQueue<S::Cell>)> {
        let forth = self.next_link.on_link().map(|at| (at, &self.forward_queue));
        core::iter::once((self.back, &self.backward_queue)).chain(forth)
    }

    /// Since when the oldest cell has waited in either queue, as far as is known.
    pub(in crate::router) fn oldest_since(&self) -> Option<Instant> {
        let queues = [&self.backward_queue, &self.forward_queue];
        queues.into_iter().filter_map(CellQueue::oldest_since).min()
    }

    /// When a cell passed last, either way; when it began if there was none.
    ///
    /// Cells that go on leave their time in the queues, so that it costs nothing for each of them.
    pub(in crate::router) fn moved_at(&self) -> Instant {
        self.used_at.max(self.backward_queue.moved_at()).max(self.forward_queue.moved_at())
    }

    /// Cells in both queues.
    pub(in crate::router) const fn queued_cells(&self) -> usize {
        self.backward_queue.len() + self.forward_queue.len()
    }
}

/// All circuits.
pub(in crate::router) type Circuits<S> = Slab<CircuitIndex, Circuit<S>>;

impl<S: CellModel> Circuits<S> {
    /// A circuit's queue of cells for this link; `None` if it is gone, or leads elsewhere by now.
    #[inline]
    pub(in crate::router) fn queue_for(
        &mut self,
        index: CircuitIndex,
        direction: Direction,
        conn: ConnId,
    ) -> Option<&mut CellQueue<S::Cell>> {
        let circuit = self.get_mut(index)?;
        (circuit.way_out(direction)?.conn == conn).then(|| circuit.queue_mut(direction))
    }

    /// All of them give back what they do not use.
    pub(in crate::router) fn rest(&mut self) {
        self.iter_mut().for_each(Circuit::rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell_model::{HeaderOnly, Tor};

    #[test]
    fn a_circuit_that_rests_is_small() {
        // All that it takes but for its entries in the tables of its two links.
        let bytes = size_of::<Circuit<Tor>>();
        assert!(bytes <= 512, "{bytes} bytes");
        let bytes = size_of::<Circuit<HeaderOnly>>();
        assert!(bytes <= 320, "{bytes} bytes");
    }
}
