//! Downloads over given circuits of two hops, as made by bandwidth scanners.

use super::circuits::{Use, later};
use super::flows::Flow;
use super::streams::{Limits, Request, TRIES_MAX};
use super::{Client, Timer};
use crate::split_mix::SplitMix64;
use crate::world::markov::{MarkovModel, Walk};
use crate::world::message::{HostId, Job};
use crate::world::net::next_hop;
use crate::world::records::{Ending, Record};
use crate::world::users::Users;
use onion::Instant;
use onion::client::{CircuitNumber, CircuitPlan};

impl Client {
    /// Builds the next probe's circuit, if there is one.
    pub(super) fn next_probe(&mut self, now: u64) {
        let Users::Scan(scan) = self.config.users.clone() else { return };
        let number = self.probes;
        let Some(probe) = scan.probes.get(number as usize) else { return };
        self.probes += 1;
        let mut plan = CircuitPlan::new(probe.path.map(|path| next_hop(path.0)).into());
        plan.has_congestion_control = self.config.congestion.is_some();
        let circuit = self.core.open(Instant::from_nanos(now), &plan);
        self.circuits.insert(circuit, Use::default());
        self.scanning.insert(circuit, number);
        self.set(later(now, self.config.build_timeout), Timer::Build(circuit));
    }

    /// A circuit is open: if it is a probe's, begins the download.
    pub(super) fn probe(&mut self, now: u64, circuit: CircuitNumber) {
        let Users::Scan(scan) = self.config.users.clone() else { return };
        let Some(number) = self.scanning.remove(&circuit) else { return };
        let Some(probe) = scan.probes.get(number as usize) else { return };
        let place = self.add_flow(Flow {
            walk: Walk::new(&MarkovModel::default(), SplitMix64::new(0)),
            circuit: Some(circuit),
            streams: 1,
            is_ending: true,
            probe: Some(number),
        });
        let limits = Limits { timeout: Some(probe.timeout), stallout: None };
        // On another circuit it would measure other relays.
        let job = Job::Fetch(probe.bytes);
        let request = Request { flow: Some(place), job, size: None, limits };
        self.try_stream(now, request, now, TRIES_MAX);
    }

    /// A circuit is lost: ends a probe that waited for it.
    pub(super) fn lose_probe(&mut self, now: u64, circuit: CircuitNumber) {
        let Some(number) = self.scanning.remove(&circuit) else { return };
        self.records.push(Record {
            client: HostId(self.id),
            size: None,
            probe: Some(number),
            bytes: 0,
            begun: Instant::from_nanos(now),
            first_byte: None,
            last_byte: None,
            ending: Ending::Lost,
        });
        self.set(now, Timer::EndProbe(circuit));
    }

    /// A probe has ended: destroys its circuit and begins the next one.
    pub(super) fn end_probe(&mut self, now: u64, circuit: CircuitNumber) {
        if self.circuits.remove(&circuit).is_some() {
            self.core.destroy(circuit);
        }
        self.next_probe(now);
    }
}
