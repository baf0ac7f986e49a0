//! Circuits and their lifetimes.

use super::{Client, Timer};
use crate::world::net::next_hop;
use crate::world::records::Ending;
use onion::Instant;
use onion::client::{CircuitNumber, CircuitPlan};

/// The use of a circuit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    /// Streams that it carries or is to carry.
    pub(super) streams: u32,
    is_built: bool,
    /// Whether it accepts no new streams.
    is_dirty: bool,
}

impl Client {
    /// Builds circuits in advance.
    pub(super) fn keep_ready(&mut self, now: u64) {
        while self.ready.len() < usize::from(self.config.ready_circuits) {
            let Some(circuit) = self.open(now) else { return };
            self.ready.push_back(circuit);
        }
    }

    fn open(&mut self, now: u64) -> Option<CircuitNumber> {
        let path = self.paths.draw(&mut self.rng, &self.guards)?;
        let mut plan = CircuitPlan::new(path.map(next_hop).into());
        plan.has_congestion_control = self.config.congestion.is_some();
        let circuit = self.core.open(Instant::from_nanos(now), &plan);
        self.circuits.insert(circuit, Use::default());
        self.set(later(now, self.config.build_timeout), Timer::Build(circuit));
        Some(circuit)
    }

    /// An unused circuit; an open one if possible.
    pub(super) fn take_circuit(&mut self, now: u64) -> Option<CircuitNumber> {
        let built = |circuit: &CircuitNumber| {
            self.circuits.get(circuit).is_some_and(|circuit| circuit.is_built)
        };
        let place = self.ready.iter().position(built);
        let circuit = match place.and_then(|place| self.ready.remove(place)) {
            Some(circuit) => circuit,
            None => self.ready.pop_front().or_else(|| self.open(now))?,
        };
        self.set(later(now, self.config.dirtiness), Timer::Dirty(circuit));
        self.keep_ready(now);
        Some(circuit)
    }

    /// Whether a circuit accepts another stream.
    pub(super) fn is_clean(&self, circuit: CircuitNumber) -> bool {
        self.circuits.get(&circuit).is_some_and(|circuit| !circuit.is_dirty)
    }

    pub(super) fn handle_built(&mut self, now: u64, circuit: CircuitNumber) {
        if let Some(circuit) = self.circuits.get_mut(&circuit) {
            circuit.is_built = true;
        }
        self.ask_hops(now, circuit);
    }

    pub(super) fn handle_lost(&mut self, now: u64, circuit: CircuitNumber) {
        self.circuits.remove(&circuit);
        self.lose_probe(now, circuit, Ending::Lost);
        self.ready.retain(|ready| *ready != circuit);
        self.lose_streams(now, circuit);
        self.keep_ready(now);
    }

    pub(super) fn give_up_building(&mut self, now: u64, circuit: CircuitNumber) {
        if self.circuits.get(&circuit).is_some_and(|circuit| !circuit.is_built) {
            self.core.destroy(circuit);
            self.handle_lost(now, circuit);
        }
    }

    pub(super) fn handle_dirty(&mut self, circuit: CircuitNumber) {
        if let Some(known) = self.circuits.get_mut(&circuit) {
            known.is_dirty = true;
            self.end_if_unused(circuit);
        }
    }

    pub(super) fn end_if_unused(&mut self, circuit: CircuitNumber) {
        if self
            .circuits
            .get(&circuit)
            .is_some_and(|circuit| circuit.is_dirty && circuit.streams == 0)
        {
            self.circuits.remove(&circuit);
            self.core.destroy(circuit);
        }
    }
}

pub(super) fn later(now: u64, wait: onion::Duration) -> u64 {
    now.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}
