//! Small worlds.

use crate::world::{
    Candidate, CircuitTimes, ClientConfig, Control, Egress, Fetch, HostConfig, HostFigures, HostId,
    Models, Net, Part, Paths, Record, RelayConfig, Role, SEGMENT_MEMORY_BYTES, Size, Users,
};
use onion::flow::control::CongestionParams;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use std::sync::Arc;
use std::vec::Vec;

/// Relays, one server, clients; two places.
#[derive(Clone)]
pub(super) struct Small {
    hosts: Vec<HostConfig>,
    is_relay: Vec<bool>,
    candidates: Vec<Candidate>,
    loss: f64,
}

pub(super) const FAST: Rate = Rate::from_bit_per_s(1_000_000_000);

impl Small {
    pub(super) fn new() -> Self {
        let mut small =
            Self { hosts: Vec::new(), is_relay: Vec::new(), candidates: Vec::new(), loss: 0.0 };
        small.add(FAST, Role::Server(Arc::new(models())));
        small
    }

    fn add(&mut self, rate: Rate, role: Role) -> HostId {
        self.is_relay.push(matches!(role, Role::Relay(_)));
        self.hosts.push(HostConfig {
            up: rate,
            down: rate,
            queue: Duration::from_millis(100),
            control: Control::Cubic,
            segment_memory_bytes: SEGMENT_MEMORY_BYTES,
            egress: Egress::default(),
            role,
        });
        id(self.hosts.len() - 1)
    }

    /// The loss rate of segments.
    pub(super) fn losing(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// Three relays suffice; the third is the exit, if there are three.
    pub(super) fn relay(
        mut self,
        rate: Rate,
        is_exit: bool,
        change: impl FnOnce(&mut RelayConfig),
    ) -> Self {
        let mut config = RelayConfig {
            is_exit,
            limit: None,
            scheduler: SchedulerConfig::default(),
            cell_cost: Duration::ZERO,
            congestion: CongestionParams::default(),
            hop_windows: None,
            measured_by: Vec::new(),
        };
        change(&mut config);
        let host = self.add(rate, Role::Relay(config));
        let is_guard = !is_exit && self.candidates.len().is_multiple_of(2);
        self.candidates.push(Candidate { host, weight: 100, is_guard, is_exit });
        self
    }

    pub(super) fn fast_relays(mut self, count: usize) -> Self {
        for number in 0..count {
            self = self.relay(FAST, number % 3 == 2, |_| ());
        }
        self
    }

    pub(super) fn client(mut self, users: Users) -> Self {
        self.add(
            FAST,
            Role::Client(ClientConfig {
                guards: 0,
                ready_circuits: 1,
                dirtiness: Duration::from_secs(10),
                build_timeout: Duration::from_secs(60),
                congestion: None,
                hop_windows: None,
                users,
                begins: Duration::from_millis(100),
            }),
        );
        self
    }

    /// A client that fetches `bytes` bytes `count` times.
    pub(super) fn fetcher(self, bytes: u32, count: u32) -> Self {
        let timeout = Some(Duration::from_secs(100));
        let size = Size { weight: 1.0, bytes, timeout, stallout: None };
        let pauses = [Duration::from_secs(2)].into();
        let fetch = Fetch { pauses, count: Some(count), sizes: [size].into() };
        self.client(Users::Fetch(Arc::new(fetch)))
    }

    /// A host of a team.
    pub(super) fn member(mut self, rate: Rate) -> Self {
        self.add(rate, Role::Member);
        self
    }

    /// Hosts distributed over this number of parts.
    pub(super) fn parts(&self, parts: usize, seed: u64) -> Vec<Part> {
        let mut net = Net::new(2, |from, to| {
            (Duration::from_millis(if from == to { 5 } else { 20 }), self.loss)
        });
        for (number, is_relay) in self.is_relay.iter().enumerate() {
            net.add(u16::from(number % 2 == 1), *is_relay);
        }
        let net = Arc::new(net);
        let paths = Arc::new(Paths::new(&self.candidates));
        let here = |part: usize| -> Vec<HostId> {
            (0..self.hosts.len()).filter(|place| place % parts == part).map(id).collect()
        };
        let part = |part| Part::new(&self.hosts, &here(part), &net, &paths, seed);
        (0..parts).map(part).collect()
    }

    /// Runs for this time, hosts distributed over this number of parts.
    pub(super) fn run(&self, seconds: u64, parts: usize, seed: u64) -> Played {
        let mut all = self.parts(parts, seed);
        while all[0].now_ns() < seconds * 1_000_000_000 {
            let mut posted = Vec::new();
            all.iter_mut().for_each(|part| part.pass_window(|mail| posted.push(mail)));
            for mail in posted {
                all[mail.to().0 as usize % parts].take(mail);
            }
        }
        let mut records: Vec<Record> = all.iter_mut().flat_map(Part::take_records).collect();
        records.sort_by_key(|record| record.client);
        let mut figures: Vec<HostFigures> = all.iter().flat_map(Part::figures).collect();
        figures.sort_by_key(|figure| figure.host);
        let probed = all.iter_mut().flat_map(Part::take_circuit_times).collect();
        Played { records, probed, figures }
    }
}

fn id(place: usize) -> HostId {
    HostId(u32::try_from(place).expect("small"))
}

/// One model for all: a flow per second with several streams.
pub(super) fn models() -> Models {
    use crate::world::markov::{Observation, State};
    use crate::world::{Delay, MarkovModel};
    let step = |transitions: &[(f64, usize)], observation, delay| State {
        transitions: transitions.into(),
        emissions: [(1.0, observation, delay)].into(),
    };
    let start = State { transitions: [(1.0, 1)].into(), emissions: Vec::new() };
    let goes_on = step(&[(1.0, 1)], Observation::ToServer, Delay::Exponential(1e-6));
    let flow = MarkovModel { states: [start.clone(), goes_on].into(), start: 0 };
    let begins = step(&[(3.0, 1), (1.0, 2)], Observation::ToServer, Delay::Exponential(1e-5));
    let ends = step(&[], Observation::End, Delay::Uniform(0.0, 0.0));
    let stream = MarkovModel { states: [start, begins, ends].into(), start: 0 };
    Models { flow, stream, packet: super::a_model() }
}

#[derive(Debug)]
pub(super) struct Played {
    pub(super) records: Vec<Record>,
    pub(super) probed: Vec<CircuitTimes>,
    pub(super) figures: Vec<HostFigures>,
}
