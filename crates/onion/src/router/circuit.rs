use super::queue::CellQueue;
use super::streams::Edge;
use crate::cell::{CELL_LEN, CircId};
use crate::crypto::{Keystream, RelayHop};
use crate::flow::control::Flow;
use crate::node::ConnId;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One end of a circuit's passage through the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) conn: ConnId,
    pub(super) circ_id: CircId,
}

/// Which way a cell goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Away from the one who built the circuit.
    Forth,
    /// Towards that one.
    Back,
}

/// What the relay does with a circuit's cells.
#[expect(clippy::large_enum_variant, reason = "of the small one there are a few hundred at most")]
pub(super) enum Hop {
    /// Its layer comes off or goes on, and the cells pass.
    Relay(RelayHop),
    /// A measurement circuit: its layer comes off, and the cells go back.
    Echo(Box<Keystream>),
}

impl core::fmt::Debug for Hop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Relay(_) => "Relay",
            Self::Echo(_) => "Echo",
        })
    }
}

/// A circuit that passes through the relay, or ends at it.
#[derive(Debug)]
pub(super) struct Circuit {
    /// Towards the one who built it.
    pub(super) back: Place,
    pub(super) hop: Hop,
    /// What was agreed on how many DATA cells may be under way between the one who built it and us;
    /// its [`Edge`] takes it over.
    pub(super) flow: Flow,
    /// The link that it is extended over, from EXTEND2 on.
    pub(super) forth_conn: Option<ConnId>,
    /// Its ID there, once CREATE2 is sent.
    pub(super) forth_id: Option<CircId>,
    /// CREATED2 has come: cells may pass.
    pub(super) is_extended: bool,
    /// The link towards the one who built it knows all that it can do for its padding.
    pub(super) has_told_use: bool,
    /// RELAY_EARLY cells that have come.
    pub(super) early_cells: u8,
    /// Cells that wait for the link towards the one who built it.
    pub(super) back_queue: CellQueue,
    /// Cells that wait for the link to the next hop.
    pub(super) forth_queue: CellQueue,
    /// Its end here, once it has had a use for it.
    pub(super) edge: Option<Box<Edge>>,
}

impl Circuit {
    pub(super) fn new(back: Place, hop: Hop) -> Self {
        Self {
            back,
            hop,
            flow: Flow::default(),
            forth_conn: None,
            forth_id: None,
            is_extended: false,
            has_told_use: false,
            early_cells: 0,
            back_queue: CellQueue::default(),
            forth_queue: CellQueue::default(),
            edge: None,
        }
    }

    /// Gives back what takes room and is not used: keys and slots, where no cell has passed since the
    /// last call.
    pub(super) fn rest(&mut self) {
        if let Hop::Relay(hop) = &mut self.hop {
            hop.rest();
        }
        self.back_queue.rest();
        self.forth_queue.rest();
    }

    /// Where it goes on, once it does.
    pub(super) fn forth(&self) -> Option<Place> {
        Some(Place { conn: self.forth_conn?, circ_id: self.forth_id? })
    }

    /// Where cells that go this way leave.
    #[inline]
    pub(super) fn way_out(&self, way: Way) -> Option<Place> {
        match way {
            Way::Back => Some(self.back),
            Way::Forth => self.forth(),
        }
    }

    #[inline]
    pub(super) const fn queue_mut(&mut self, way: Way) -> &mut CellQueue {
        match way {
            Way::Back => &mut self.back_queue,
            Way::Forth => &mut self.forth_queue,
        }
    }
}

/// All circuits by number. Numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    circuits: Vec<Option<Circuit>>,
    free: Vec<u32>,
}

impl Circuits {
    pub(super) fn add(&mut self, circuit: Circuit) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.circuits.push(None);
            u32::try_from(self.circuits.len() - 1).unwrap_or(u32::MAX)
        });
        self.circuits[number as usize] = Some(circuit);
        number
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Circuit> {
        self.circuits.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Circuit> {
        self.circuits.get_mut(number as usize)?.as_mut()
    }

    /// A circuit's queue of cells for this link; `None` if it is gone, or leads elsewhere by now.
    #[inline]
    pub(super) fn queue_for(
        &mut self,
        number: u32,
        way: Way,
        conn: ConnId,
    ) -> Option<&mut CellQueue> {
        let circuit = self.get_mut(number)?;
        (circuit.way_out(way)?.conn == conn).then(|| circuit.queue_mut(way))
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Circuit> {
        let circuit = self.circuits.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(circuit)
    }

    /// All of them give back what they do not use.
    pub(super) fn rest(&mut self) {
        self.circuits.iter_mut().flatten().for_each(Circuit::rest);
    }

    pub(super) fn len(&self) -> usize {
        self.circuits.len() - self.free.len()
    }

    /// All numbers are below.
    pub(super) fn numbers(&self) -> usize {
        self.circuits.len()
    }

    /// The one with most bytes in its queues, and how many. `others_bytes` are what it holds elsewhere.
    pub(super) fn longest(&self, others_bytes: impl Fn(u32) -> usize) -> Option<(u32, usize)> {
        let cells = |circuit: &Circuit| circuit.back_queue.len() + circuit.forth_queue.len();
        let bytes = |number, circuit| cells(circuit) * CELL_LEN + others_bytes(number);
        let all = (0..).zip(&self.circuits);
        let all = all.filter_map(|(number, it)| Some((number, bytes(number, it.as_ref()?))));
        all.max_by_key(|(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_that_rests_is_small() {
        // All that it takes but for its entries in the tables of its two links.
        assert!(size_of::<Circuit>() <= 512, "{} bytes", size_of::<Circuit>());
        assert!(size_of::<Flow>() <= 16, "{} bytes", size_of::<Flow>());
    }

    #[test]
    fn the_longest_is_the_one_with_most_cells_either_way() {
        let mut circuits = Circuits::default();
        assert_eq!(circuits.longest(|_| 0), None);
        let mut add = |back: usize, forth: usize| {
            let place = Place { conn: ConnId(0), circ_id: CircId::new(1) };
            let mut circuit = Circuit::new(place, Hop::Echo(Box::new(Keystream::new(&[0; 16]))));
            (0..back).for_each(|_| _ = circuit.back_queue.push());
            (0..forth).for_each(|_| _ = circuit.forth_queue.push());
            circuits.add(circuit)
        };
        let (_, longest, last) = (add(7, 0), add(4, 5), add(0, 8));
        assert_eq!(circuits.longest(|_| 0), Some((longest, 9 * CELL_LEN)));
        let others = |number| if number == last { 2 * CELL_LEN } else { 0 };
        assert_eq!(circuits.longest(others), Some((last, 10 * CELL_LEN)));
    }
}
