//! Hidden Markov models as in TGen: the rates of flows, streams in a flow, and packets in a stream.

use crate::split_mix::SplitMix64;
use alloc::vec::Vec;
use onion::Duration;

/// The length of a packet, in bytes.
const PACKET_BYTES: u64 = 1434;

/// Packets of one side with pauses up to this are sent at once.
const AT_ONCE_NS: u64 = 10_000_000;

/// The maximum pause.
const DELAY_MAX_US: f64 = 600_000_000.0;

/// Maximum number of observations of one walk: a model need not end.
const STEPS_MAX: usize = 1 << 20;

/// The observation at a step of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// `+`: a packet to the server; or a flow or a stream.
    ToServer,
    /// `-`: a packet to the client.
    ToClient,
    /// `F`: the end.
    End,
}

/// The distribution of the delay before the next step, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// Normal: mean and deviation.
    Normal(f64, f64),
    /// Lognormal: mean and deviation of the logarithm.
    LogNormal(f64, f64),
    /// Exponential: steps per microsecond.
    Exponential(f64),
    /// Pareto: scale and shape.
    Pareto(f64, f64),
}

impl Delay {
    fn draw(self, rng: &mut SplitMix64) -> Duration {
        let us = match self {
            Self::Uniform(low, high) => low + (high - low) * rng.unit(),
            Self::Normal(mean, deviation) => mean + deviation * normal(rng),
            Self::LogNormal(mean, deviation) => libm::exp(mean + deviation * normal(rng)),
            Self::Exponential(rate) => -libm::log(1.0 - rng.unit()) / rate,
            Self::Pareto(scale, shape) => scale / libm::pow(1.0 - rng.unit(), 1.0 / shape),
        };
        // Also for NaN.
        let us = if us > 0.0 { us.min(DELAY_MAX_US) } else { 0.0 };
        Duration::from_nanos(nanos(us))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in bounds")]
fn nanos(us: f64) -> u64 {
    (us * 1000.0) as u64
}

/// Box-Muller; the second number is not used, so that there is no state.
fn normal(rng: &mut SplitMix64) -> f64 {
    let (first, second) = (1.0 - rng.unit(), rng.unit());
    libm::sqrt(-2.0 * libm::log(first)) * libm::cos(2.0 * core::f64::consts::PI * second)
}

/// A state of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The successor states with their weights.
    pub transitions: Vec<(f64, usize)>,
    /// The observations with their weights and the delay before the next step.
    pub emissions: Vec<(f64, Observation, Delay)>,
}

/// The sums of a state's weights.
#[derive(Clone, Copy, Debug)]
struct Totals {
    transitions: f64,
    emissions: f64,
}

impl State {
    fn totals(&self) -> Totals {
        Totals {
            transitions: self.transitions.iter().map(|transition| transition.0).sum(),
            emissions: self.emissions.iter().map(|emission| emission.0).sum(),
        }
    }
}

/// A hidden Markov model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarkovModel {
    /// All states.
    pub states: Vec<State>,
    /// The initial state, without observations.
    pub start: usize,
}

/// A walk through a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    rng: SplitMix64,
    state: usize,
}

impl Walk {
    pub(super) const fn new(model: &MarkovModel, rng: SplitMix64) -> Self {
        Self { rng, state: model.start }
    }

    /// The next observation and the delay after it. The end if a state has no successor.
    pub(super) fn next(&mut self, model: &MarkovModel) -> (Observation, Duration) {
        self.next_of(model, |state| model.states[state].totals())
    }

    /// The next observation, with known sums of weights.
    fn next_of(
        &mut self,
        model: &MarkovModel,
        totals: impl Fn(usize) -> Totals,
    ) -> (Observation, Duration) {
        const OVER: (Observation, Duration) = (Observation::End, Duration::ZERO);
        let Some(state) = model.states.get(self.state) else { return OVER };
        let weights = state.transitions.iter().map(|transition| transition.0);
        let total = totals(self.state).transitions;
        let Some(place) = choose_of(&mut self.rng, total, weights) else { return OVER };
        self.state = state.transitions[place].1;
        let Some(state) = model.states.get(self.state) else { return OVER };
        let weights = state.emissions.iter().map(|emission| emission.0);
        let total = totals(self.state).emissions;
        let Some(place) = choose_of(&mut self.rng, total, weights) else { return OVER };
        let (_, observation, delay) = state.emissions[place];
        (observation, delay.draw(&mut self.rng))
    }
}

/// An index drawn by weight.
pub(super) fn choose(
    rng: &mut SplitMix64,
    weights: impl Iterator<Item = f64> + Clone,
) -> Option<usize> {
    let total: f64 = weights.clone().sum();
    choose_of(rng, total, weights)
}

/// An index drawn by weight, with a known sum.
fn choose_of(
    rng: &mut SplitMix64,
    total: f64,
    weights: impl Iterator<Item = f64>,
) -> Option<usize> {
    let mut left = rng.unit() * total;
    let mut last = None;
    for (place, weight) in weights.enumerate() {
        if weight <= 0.0 {
            continue;
        }
        last = Some(place);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// The traffic that one side sends: pauses in nanoseconds, and bytes after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bursts(Vec<(u64, u64)>);

impl Bursts {
    pub(super) fn one(bytes: u64) -> Self {
        Self([(0, bytes)].into())
    }

    pub(super) fn get(&self, place: usize) -> Option<(u64, u64)> {
        self.0.get(place).copied()
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Adds a packet with this delay after the previous one of the same side.
    fn add(&mut self, pause_ns: u64) {
        match self.0.last_mut() {
            Some((_, bytes)) if pause_ns <= AT_ONCE_NS => *bytes += PACKET_BYTES,
            _ => self.0.push((pause_ns, PACKET_BYTES)),
        }
    }
}

/// The traffic that both sides of a stream send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    pub(super) to_server: Bursts,
    pub(super) to_client: Bursts,
}

impl Packets {
    /// Bytes to the server and to the client.
    #[must_use]
    pub fn total_bytes(&self) -> (u64, u64) {
        (self.to_server.total_bytes(), self.to_client.total_bytes())
    }
}

impl MarkovModel {
    /// The traffic that both sides of a stream send with this seed. As in TGen, each side has its own clock, and the other
    /// side's packets are pauses.
    #[must_use]
    pub fn packets(&self, seed: u64) -> Packets {
        let mut walk = Walk::new(self, SplitMix64::new(seed));
        // A stream has many packets, and a model few states.
        let totals: Vec<Totals> = self.states.iter().map(State::totals).collect();
        let mut packets = Packets::default();
        let (mut server_ns, mut client_ns) = (0, 0);
        for _ in 0..STEPS_MAX {
            let (observation, pause) = walk.next_of(self, |state| totals[state]);
            let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            match observation {
                Observation::ToServer => {
                    packets.to_server.add(server_ns);
                    (server_ns, client_ns) = (pause_ns, client_ns + pause_ns);
                }
                Observation::ToClient => {
                    packets.to_client.add(client_ns);
                    (client_ns, server_ns) = (pause_ns, server_ns + pause_ns);
                }
                Observation::End => break,
            }
        }
        packets
    }
}
