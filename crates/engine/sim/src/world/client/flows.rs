//! The beginnings of flows and streams.

use super::circuits::later;
use super::streams::{Limits, Request};
use super::{Client, Timer};
use crate::split_mix::SplitMix64;
use crate::world::markov::{Observation, Walk, choose};
use crate::world::message::Job;
use crate::world::users::Users;
use onion::client::CircuitNumber;

/// Streams of one user that belong together: they share circuits exclusively.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) walk: Walk,
    pub(super) circuit: Option<CircuitNumber>,
    pub(super) streams: u32,
    pub(super) is_ending: bool,
    /// A scanner's probe.
    pub(super) probe: Option<u32>,
}

/// Maximum number of flows and streams that the users of one client begin per second. A model without pauses
/// would otherwise begin them endlessly at the same instant. TGen's clients are real processes, which are
/// slower than this.
const BEGINNINGS_PER_SECOND: u32 = 5_000;

/// Maximum number of simultaneous flows and streams of a client, for the same reason: they take memory.
const OPEN_MAX: usize = 10_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Flows and streams begun in the current second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginnings {
    second: u64,
    count: u32,
}

impl Client {
    /// Users begin.
    pub(super) fn begin(&mut self, now: u64) {
        self.keep_ready(now);
        match self.config.users.clone() {
            Users::Markov(..) => self.next_flow(now),
            Users::Fetch(fetch) => {
                // Not all at once.
                let pause = fetch.draw_pause(&mut self.rng);
                let every = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                let at = now.saturating_add(self.rng.below(every.max(1)));
                self.set(at, Timer::NextFlow);
            }
            Users::Scan(scan) => (0..scan.at_once).for_each(|_| self.next_probe(now)),
        }
    }

    /// Begins a flow, or a download of a benchmark, and schedules the next one.
    pub(super) fn next_flow(&mut self, now: u64) {
        match self.config.users.clone() {
            Users::Markov(models, scale) => {
                if let Err(later) = self.admit(now) {
                    self.set(later, Timer::NextFlow);
                    return;
                }
                let Some(walk) = &mut self.walk else { return };
                let (observation, pause) = walk.next(&models.flow);
                if observation == Observation::End {
                    return;
                }
                let flow = Flow {
                    walk: Walk::new(&models.stream, SplitMix64::new(self.rng.next())),
                    circuit: None,
                    streams: 0,
                    is_ending: false,
                    probe: None,
                };
                let place = self.add_flow(flow);
                self.set(later(now, pause.div_f64(scale.max(1e-9))), Timer::NextFlow);
                self.next_stream(now, place);
            }
            Users::Fetch(fetch) => {
                if fetch.count.is_some_and(|count| self.fetched >= count) {
                    return;
                }
                self.fetched += 1;
                let pause = fetch.draw_pause(&mut self.rng);
                self.set(later(now, pause), Timer::NextFlow);
                let weights = fetch.sizes.iter().map(|size| size.weight);
                let Some(place) = choose(&mut self.rng, weights) else { return };
                let size = fetch.sizes[place];
                let number = u8::try_from(place).ok();
                let limits = Limits { timeout: size.timeout, stallout: size.stallout };
                let job = Job::Fetch(size.bytes);
                self.begin_stream(now, Request { flow: None, job, size: number, limits });
            }
            Users::Scan(_) => {}
        }
    }

    /// Whether a flow or stream may begin now; otherwise when to ask again.
    fn admit(&mut self, now: u64) -> Result<(), u64> {
        let second = now / SECOND_NS;
        if second != self.beginnings.second {
            self.beginnings = Beginnings { second, count: 0 };
        }
        let is_full = self.open_flows + self.streams.len() >= OPEN_MAX;
        if is_full || self.beginnings.count >= BEGINNINGS_PER_SECOND {
            return Err((second + 1) * SECOND_NS);
        }
        self.beginnings.count += 1;
        Ok(())
    }

    pub(super) fn add_flow(&mut self, flow: Flow) -> u32 {
        let free = self.flows.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        self.flows[place] = Some(flow);
        self.open_flows += 1;
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Begins the next stream of a flow, if there is one.
    pub(super) fn next_stream(&mut self, now: u64, place: u32) {
        let Users::Markov(models, _) = self.config.users.clone() else { return };
        if let Err(later) = self.admit(now) {
            self.set(later, Timer::NextStream(place));
            return;
        }
        let Some(Some(flow)) = self.flows.get_mut(place as usize) else { return };
        let (observation, pause) = flow.walk.next(&models.stream);
        if observation == Observation::End {
            flow.is_ending = true;
            self.end_flow_if_over(place);
            return;
        }
        flow.streams += 1;
        self.set(later(now, pause), Timer::NextStream(place));
        let job = Job::Packets(self.rng.next());
        let limits = Limits::default();
        self.begin_stream(now, Request { flow: Some(place), job, size: None, limits });
    }

    /// The circuit of a flow, or a new one for a stream without a flow.
    pub(super) fn circuit_for(&mut self, now: u64, place: Option<u32>) -> Option<CircuitNumber> {
        let known = place.and_then(|place| self.flows.get(place as usize)?.as_ref()?.circuit);
        if let Some(circuit) = known.filter(|circuit| self.is_clean(*circuit)) {
            return Some(circuit);
        }
        let circuit = self.take_circuit(now)?;
        if let Some(Some(flow)) = place.and_then(|place| self.flows.get_mut(place as usize)) {
            flow.circuit = Some(circuit);
        }
        Some(circuit)
    }

    /// A stream of a flow has ended.
    pub(super) fn leave_flow(&mut self, place: Option<u32>) {
        let Some(place) = place else { return };
        if let Some(Some(flow)) = self.flows.get_mut(place as usize) {
            flow.streams = flow.streams.saturating_sub(1);
            self.end_flow_if_over(place);
        }
    }

    fn end_flow_if_over(&mut self, place: u32) {
        let slot = &mut self.flows[place as usize];
        if slot.as_ref().is_some_and(|flow| flow.is_ending && flow.streams == 0) {
            *slot = None;
            self.open_flows -= 1;
        }
    }
}
