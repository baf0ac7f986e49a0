//! Path selection by weight and position (dir-spec §3.8.3, path-spec §2.2).

use super::message::HostId;
use crate::split_mix::SplitMix64;
use alloc::vec::Vec;

/// A relay for circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The host.
    pub host: HostId,
    /// Its weight in the consensus.
    pub weight: u64,
    /// Whether it is a guard.
    pub is_guard: bool,
    /// Whether it is an exit.
    pub is_exit: bool,
}

/// The factor of a relay's weight at a position: the consensus' `bandwidth-weights`, with 1 for 10,000.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionWeights {
    /// Of a guard as the first hop (`Wgg`), and of one that is an exit, too (`Wgd`).
    pub guard: [f64; 2],
    /// In the middle: of one that is neither, of a guard (`Wmg`), of an exit (`Wme`), of both (`Wmd`).
    pub middle: [f64; 4],
    /// Of an exit as the last hop (`Wee`), and of one that is a guard, too (`Wed`).
    pub exit: [f64; 2],
}

impl PositionWeights {
    /// By the rules of dir-spec §3.8.3, from the total weights of relays that are guards only, neither, exits
    /// only, and both.
    #[must_use]
    pub fn of(g: f64, m: f64, e: f64, d: f64) -> Self {
        let t = g + m + e + d;
        // The share of an empty class does not matter.
        let over = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let made = |wgg: f64, wgd: f64, wmg: f64, wme: f64, wmd: f64, wee: f64, wed: f64| Self {
            guard: [wgg, wgd],
            middle: [1.0, wmg, wme, wmd],
            exit: [wee, wed],
        };
        let (s, r) = (g.max(e), g.min(e));
        if 3.0 * e >= t && 3.0 * g >= t {
            let third = 1.0 / 3.0;
            let wee = over(e + g + m, 3.0 * e);
            let wmg = over(2.0 * g - e - m, 3.0 * g);
            return made(1.0 - wmg, third, wmg, 1.0 - wee, third, wee, third);
        }
        if 3.0 * e < t && 3.0 * g < t {
            if r + d < s {
                let (wgd, wed) = if e < g { (0.0, 1.0) } else { (1.0, 0.0) };
                return made(1.0, wgd, 0.0, 0.0, 0.0, 1.0, wed);
            }
            let (wee, wme) = (over(e - g + m, e), over(g - m, e));
            let wed = over(d - 2.0 * e + 4.0 * g - 2.0 * m, 3.0 * d);
            let rest = (1.0 - wed) / 2.0;
            if [wee, wme, wed, rest].iter().all(|weight| (0.0..=1.0).contains(weight)) {
                return made(1.0, rest, 0.0, wme, rest, wee, wed);
            }
            let wed = over(d - 2.0 * e + g + m, 3.0 * d).clamp(0.0, 1.0);
            let wmd = over(d - 2.0 * m + g + e, 3.0 * d).clamp(0.0, 1.0 - wed);
            return made(1.0, 1.0 - wed - wmd, 0.0, 0.0, wmd, 1.0, wed);
        }
        if 3.0 * (r + d) < t {
            return if g < e {
                let wme = if e < m { 0.0 } else { over(e - m, 2.0 * e) };
                made(1.0, 1.0, 0.0, wme, 0.0, 1.0 - wme, 0.0)
            } else {
                let wmg = if g < m { 0.0 } else { over(g - m, 2.0 * g) };
                made(1.0 - wmg, 0.0, wmg, 0.0, 0.0, 1.0, 1.0)
            };
        }
        if g < e {
            let wgd = over(d - 2.0 * g + e + m, 3.0 * d).clamp(0.0, 1.0);
            let (wee, rest) = (over(e + m, 2.0 * e), (1.0 - wgd) / 2.0);
            made(1.0, wgd, 0.0, 1.0 - wee, rest, wee, rest)
        } else {
            let wed = over(d - 2.0 * e + g + m, 3.0 * d).clamp(0.0, 1.0);
            let (wgg, rest) = (over(g + m, 2.0 * g), (1.0 - wed) / 2.0);
            made(wgg, rest, 1.0 - wgg, 0.0, rest, 1.0, wed)
        }
    }
}

/// Relays with cumulative weights at a position.
#[derive(Clone, Debug, Default)]
struct WeightedRelays {
    hosts: Vec<u32>,
    sums: Vec<f64>,
}

impl WeightedRelays {
    fn new(candidates: &[Candidate], share: impl Fn(&Candidate) -> f64) -> Self {
        let mut wheel = Self::default();
        let mut sum = 0.0;
        for candidate in candidates {
            let weight = weight(candidate) * share(candidate);
            if weight > 0.0 {
                sum += weight;
                wheel.hosts.push(candidate.host.0);
                wheel.sums.push(sum);
            }
        }
        wheel
    }

    /// A relay that is none of `others`.
    fn draw(&self, rng: &mut SplitMix64, others: &[u32]) -> Option<u32> {
        let total = *self.sums.last()?;
        for _ in 0..100 {
            let at = rng.unit() * total;
            let place = self.sums.partition_point(|sum| *sum <= at);
            let host = self.hosts.get(place).copied();
            if let Some(host) = host.filter(|host| !others.contains(host)) {
                return Some(host);
            }
        }
        self.hosts.iter().copied().find(|host| !others.contains(host))
    }
}

#[expect(clippy::cast_precision_loss, reason = "weights are far below 2⁵³")]
fn weight(candidate: &Candidate) -> f64 {
    candidate.weight as f64
}

/// All relays for circuits.
#[derive(Clone, Debug)]
pub struct Paths {
    guards: WeightedRelays,
    middles: WeightedRelays,
    exits: WeightedRelays,
}

impl Paths {
    /// With position weights derived from their weights.
    #[must_use]
    pub fn new(candidates: &[Candidate]) -> Self {
        let total = |is_guard: bool, is_exit: bool| -> f64 {
            let of_kind = |candidate: &&Candidate| {
                candidate.is_guard == is_guard && candidate.is_exit == is_exit
            };
            candidates.iter().filter(of_kind).map(weight).sum()
        };
        let (g, m) = (total(true, false), total(false, false));
        let weights = PositionWeights::of(g, m, total(false, true), total(true, true));
        Self::with_weights(candidates, &weights)
    }

    /// With these position weights.
    #[must_use]
    pub fn with_weights(candidates: &[Candidate], weights: &PositionWeights) -> Self {
        let guard = |candidate: &Candidate| match candidate {
            Candidate { is_guard: false, .. } => 0.0,
            candidate => weights.guard[usize::from(candidate.is_exit)],
        };
        let middle = |candidate: &Candidate| {
            weights.middle[usize::from(candidate.is_guard) + 2 * usize::from(candidate.is_exit)]
        };
        let exit = |candidate: &Candidate| match candidate {
            Candidate { is_exit: false, .. } => 0.0,
            candidate => weights.exit[usize::from(candidate.is_guard)],
        };
        Self {
            guards: WeightedRelays::new(candidates, guard),
            middles: WeightedRelays::new(candidates, middle),
            exits: WeightedRelays::new(candidates, exit),
        }
    }

    /// Distinct first hops.
    pub(super) fn draw_guards(&self, rng: &mut SplitMix64, count: u8) -> Vec<u32> {
        let mut guards = Vec::new();
        for _ in 0..count {
            let next = self.guards.draw(rng, &guards);
            guards.extend(next);
        }
        guards
    }

    /// A path of three hops, whose first is one of `guards` if there are any. The last is chosen first, like
    /// clients do.
    pub(super) fn draw(&self, rng: &mut SplitMix64, guards: &[u32]) -> Option<[u32; 3]> {
        let exit = self.exits.draw(rng, &[])?;
        let kept = guards.iter().copied().find(|guard| *guard != exit);
        let guard = kept.or_else(|| self.guards.draw(rng, &[exit]))?;
        let middle = self.middles.draw(rng, &[exit, guard])?;
        Some([guard, middle, exit])
    }
}
