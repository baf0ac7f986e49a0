use super::event::CircuitNumber;
use crate::cell::CircId;
use crate::circuit::NextHop;
use crate::link::Channel;
use alloc::collections::BTreeMap;

/// A link to a first hop.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) to: NextHop,
    /// One circuit has it for itself.
    is_own: bool,
    /// None until TLS stands.
    pub(super) channel: Option<Channel>,
    pub(super) circuits: BTreeMap<CircId, CircuitNumber>,
    opened: u32,
    /// The circuit that was the last to package.
    pub(super) turn: CircId,
    /// It waits in the queue of writable links.
    pub(super) is_queued: bool,
}

impl Link {
    pub(super) const fn new(to: NextHop, is_own: bool) -> Self {
        Self {
            to,
            is_own,
            channel: None,
            circuits: BTreeMap::new(),
            opened: 0,
            turn: CircId::LINK,
            is_queued: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_open)
    }

    /// Whether a circuit through this relay may share it.
    pub(super) fn serves(&self, first: &NextHop) -> bool {
        !self.is_own && self.to.address == first.address && self.to.ids == first.ids
    }

    pub(super) fn is_idle(&self) -> bool {
        self.circuits.is_empty()
    }

    pub(super) fn add_circuit(&mut self, number: CircuitNumber) -> CircId {
        self.opened += 1;
        let circ_id = CircId::of_initiator(self.opened);
        self.circuits.insert(circ_id, number);
        circ_id
    }

    /// The circuit whose turn it is, after the one that had the last.
    pub(super) fn take_turn(&mut self) -> Option<CircuitNumber> {
        let after = (core::ops::Bound::Excluded(self.turn), core::ops::Bound::Unbounded);
        let next = self.circuits.range(after).next().or_else(|| self.circuits.iter().next());
        let (circ_id, number) = next?;
        self.turn = *circ_id;
        Some(*number)
    }
}
