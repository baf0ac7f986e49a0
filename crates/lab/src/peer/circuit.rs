use super::tamper::Tamper;
use onion::cell::CircId;
use onion::crypto::RelayHop;
use onion::node::ConnId;
use std::collections::BTreeMap;

/// One end of a circuit's passage through a relay.
pub(super) type Place = (ConnId, CircId);

/// A circuit that passes through a relay, or ends at it.
pub(super) struct Circuit {
    /// Towards the one who built it.
    pub(super) back: Place,
    /// Our end of the layer that we share with that one.
    pub(super) hop: RelayHop,
    /// The connection that it is extended over, from EXTEND2 on.
    pub(super) forth_conn: Option<ConnId>,
    /// Its ID there, once CREATE2 is sent.
    pub(super) forth_id: Option<CircId>,
    /// CREATED2 has come: cells may pass.
    pub(super) is_extended: bool,
    pub(super) tamper: Tamper,
}

impl Circuit {
    pub(super) fn forth(&self) -> Option<Place> {
        Some((self.forth_conn?, self.forth_id?))
    }
}

/// Which way a cell goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the one who built the circuit.
    Forth,
    /// Towards that one.
    Back,
}

/// All circuits, by number and by place.
pub(super) struct Circuits {
    circuits: BTreeMap<u32, Circuit>,
    places: BTreeMap<Place, (u32, Way)>,
    next: u32,
}

impl Circuits {
    pub(super) const fn new() -> Self {
        Self { circuits: BTreeMap::new(), places: BTreeMap::new(), next: 0 }
    }

    /// Adds a circuit that begins at `back`; false if the ID is taken.
    pub(super) fn add(&mut self, back: Place, hop: RelayHop) -> bool {
        if self.places.contains_key(&back) {
            return false;
        }
        let number = self.next;
        self.next += 1;
        self.places.insert(back, (number, Way::Forth));
        let (forth_conn, forth_id, is_extended) = (None, None, false);
        let tamper = Tamper::default();
        let circuit = Circuit { back, hop, forth_conn, forth_id, is_extended, tamper };
        self.circuits.insert(number, circuit);
        true
    }

    /// The circuit that a cell belongs to, and which way it goes.
    pub(super) fn find(&self, place: Place) -> Option<(u32, Way)> {
        self.places.get(&place).copied()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Circuit> {
        self.circuits.get_mut(&number)
    }

    /// CREATE2 is sent: notes under which ID.
    pub(super) fn set_forth(&mut self, number: u32, forth: Place) {
        if let Some(circuit) = self.circuits.get_mut(&number) {
            circuit.forth_id = Some(forth.1);
            self.places.insert(forth, (number, Way::Back));
        }
    }

    /// The next hop has ended the circuit: nothing passes any more.
    pub(super) fn cut_forth(&mut self, number: u32) {
        let Some(circuit) = self.circuits.get_mut(&number) else { return };
        if let Some(forth) = circuit.forth() {
            self.places.remove(&forth);
        }
        circuit.forth_id = None;
        circuit.is_extended = false;
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Circuit> {
        let circuit = self.circuits.remove(&number)?;
        self.places.remove(&circuit.back);
        if let Some(forth) = circuit.forth() {
            self.places.remove(&forth);
        }
        Some(circuit)
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.circuits.keys().copied().collect()
    }

    /// Circuits that use a connection, on either side.
    pub(super) fn on(&self, conn: ConnId) -> Vec<u32> {
        let uses = |circuit: &Circuit| circuit.back.0 == conn || circuit.forth_conn == Some(conn);
        let using = self.circuits.iter().filter(|(_, circuit)| uses(circuit));
        using.map(|(number, _)| *number).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.circuits.len()
    }
}
