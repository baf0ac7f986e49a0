//! Measurements of given circuits, as made by bandwidth scanners and by clients that compare paths.

use super::circuits::{Use, later};
use super::flows::Flow;
use super::streams::{Limits, Request, TRIES_MAX, Traffic};
use super::{Client, Timer};
use crate::split_mix::SplitMix64;
use crate::world::markov::{MarkovModel, Walk};
use crate::world::message::{HostId, Job};
use crate::world::net::next_hop;
use crate::world::records::{CircuitTimes, Ending, Record};
use crate::world::users::{Probe, Users};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use onion::client::{CircuitNumber, CircuitPlan, Destination, Figures, StreamNumber};
use onion::{Duration, Instant};

/// An address where no server is: the end of a stream to it yields the round trip to the hop that was asked.
const NOWHERE: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A probe until its download begins.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// Its index in the scanner's list.
    number: u32,
    began: Instant,
    link_time: Duration,
    /// Empty until the circuit is open.
    hop_times: Vec<Duration>,
    /// The stream that waits for its end.
    asked: Option<StreamNumber>,
    round_trips: Vec<Duration>,
}

impl Client {
    /// The probe with this index.
    fn planned(&self, number: u32) -> Option<&Probe> {
        let Users::Scan(scan) = &self.config.users else { return None };
        scan.probes.get(number as usize)
    }

    /// Builds the next probe's circuit, if there is one.
    pub(super) fn next_probe(&mut self, now: u64) {
        let number = self.probes;
        let Some(probe) = self.planned(number) else { return };
        let mut plan = CircuitPlan::new(probe.path.iter().map(|hop| next_hop(hop.0)).collect());
        let has_round_trips = !probe.round_trips.is_empty();
        self.probes += 1;
        plan.has_congestion_control = self.config.congestion.is_some();
        if has_round_trips {
            self.core.close_idle();
        }
        let began = Instant::from_nanos(now);
        let circuit = self.core.open(began, &plan);
        self.circuits.insert(circuit, Use::default());
        self.scanning.insert(circuit, Scanning { number, began, ..Scanning::default() });
        self.set(later(now, self.config.build_timeout), Timer::Build(circuit));
    }

    /// A circuit is open: if it is a probe's, begins with its round trips.
    pub(super) fn ask_hops(&mut self, now: u64, circuit: CircuitNumber) {
        let hop_times = self.core.hop_times(circuit).to_vec();
        let Some(scanning) = self.scanning.get_mut(&circuit) else { return };
        let took = hop_times.last().copied().unwrap_or_default();
        scanning.link_time = (Instant::from_nanos(now) - scanning.began).saturating_sub(took);
        scanning.hop_times = hop_times;
        let number = scanning.number;
        let Some(timeout) = self.planned(number).map(|probe| probe.timeout) else { return };
        self.set(later(now, timeout), Timer::GiveUpProbe(circuit));
        self.ask_next(now, circuit);
    }

    /// Asks the next hop, or begins the download.
    pub(super) fn ask_next(&mut self, now: u64, circuit: CircuitNumber) {
        let Some(scanning) = self.scanning.get(&circuit) else { return };
        let Some(probe) = self.planned(scanning.number) else { return };
        match probe.round_trips.get(scanning.round_trips.len()) {
            Some(hop) => {
                let (at, hop) = (Instant::from_nanos(now), usize::from(*hop));
                let to = Destination::from(NOWHERE);
                let asked = self.core.begin_at(at, circuit, Some(hop), to, Traffic::default());
                if let Some(scanning) = self.scanning.get_mut(&circuit) {
                    scanning.asked = Some(asked);
                }
            }
            None => self.download(now, circuit),
        }
    }

    /// If the stream was a question, records its round trip; returns its circuit.
    pub(super) fn answered(
        &mut self,
        stream: StreamNumber,
        figures: &Figures,
    ) -> Option<CircuitNumber> {
        let mut all = self.scanning.iter_mut();
        let (circuit, scanning) = all.find(|(_, scanning)| scanning.asked == Some(stream))?;
        scanning.asked = None;
        scanning.round_trips.push(figures.to_last());
        Some(*circuit)
    }

    /// Records what is known of an open circuit, and begins the probe's download.
    fn download(&mut self, now: u64, circuit: CircuitNumber) {
        let Some(number) = self.report_circuit(circuit) else { return };
        let Some(probe) = self.planned(number) else { return };
        let (bytes, timeout) = (probe.bytes, probe.timeout);
        if bytes == 0 {
            return self.record_probe(now, circuit, number, Ending::Complete);
        }
        let place = self.add_flow(Flow {
            walk: Walk::new(&MarkovModel::default(), SplitMix64::new(0)),
            circuit: Some(circuit),
            streams: 1,
            is_ending: true,
            probe: Some(number),
        });
        let limits = Limits { timeout: Some(timeout), stallout: None };
        // On another circuit it would measure other relays.
        let request = Request { flow: Some(place), job: Job::Fetch(bytes), size: None, limits };
        self.try_stream(now, request, now, TRIES_MAX);
    }

    /// Removes a probe whose download has not begun, and records its circuit if that was open.
    fn report_circuit(&mut self, circuit: CircuitNumber) -> Option<u32> {
        let scanning = self.scanning.remove(&circuit)?;
        let Scanning { number, link_time, hop_times, round_trips, .. } = scanning;
        if !hop_times.is_empty() {
            let client = HostId(self.id);
            let probe = number;
            self.probed.push(CircuitTimes { client, probe, link_time, hop_times, round_trips });
        }
        Some(number)
    }

    /// A probe's circuit is lost or its time is over before its download: ends the probe.
    pub(super) fn lose_probe(&mut self, now: u64, circuit: CircuitNumber, ending: Ending) {
        if let Some(number) = self.report_circuit(circuit) {
            self.record_probe(now, circuit, number, ending);
        }
    }

    /// Records a probe without a download.
    fn record_probe(&mut self, now: u64, circuit: CircuitNumber, probe: u32, ending: Ending) {
        self.records.push(Record {
            client: HostId(self.id),
            size: None,
            probe: Some(probe),
            bytes: 0,
            begun: Instant::from_nanos(now),
            first_byte: None,
            last_byte: None,
            ending,
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
