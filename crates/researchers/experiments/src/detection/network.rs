//! A simulated network: how often circuits through its relays fail.

use super::{Lie, Settings};
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::mem;

/// The share of relays with the flags Guard and Exit.
const GUARDS: f64 = 0.45;
const EXITS: f64 = 0.25;

/// The share of the circuits that fail at an honest relay, and the share of such relays: nine of ten hardly fail, others are overloaded.
const FAILING: [(f64, f64); 3] = [(0.005, 0.8), (0.02, 0.15), (0.08, 0.05)];

/// The mean time between outages of a relay, in days, and the share of such relays.
const BETWEEN_OUTAGES_DAYS: [(f64, f64); 2] = [(20.0, 0.9), (2.0, 0.1)];

/// For how long the consensus still lists a relay that is down, in hours: at least and at most.
const OUTAGE_H: (f64, f64) = (0.5, 2.0);

/// The share of circuits that fail for no reason of a relay; on one day in twenty, [`FAILING_ON_BAD_DAYS`].
const FAILING_ANYWAY: f64 = 0.01;
const FAILING_ON_BAD_DAYS: f64 = 0.1;

/// The median rate of a download, in bytes per second, and the standard deviation of its logarithm.
const RATE: (f64, f64) = (1e6, 0.8);

/// The rate of a relay that serves slowly, over that of others.
const SLOW: f64 = 0.05;

/// One honest relay in this number is framed.
const FRAMED_ONE_IN: u32 = 100;

pub(super) const DAY_S: u64 = 24 * 3600;

pub(super) struct Relay {
    pub(super) id: RsaId,
    /// When it begins to lie, in seconds; `None` for an honest relay.
    pub(super) lies_from_s: Option<u64>,
    /// Whether it was suspected since it began to lie.
    is_found: bool,
    /// Whether it was suspected while it was honest.
    pub(super) is_falsely_suspected: bool,
    failing: f64,
    between_outages_days: f64,
    /// Its current or next outage, in seconds.
    outage: (f64, f64),
    is_framed: bool,
}

impl Relay {
    fn is_down(&mut self, now_s: f64, rng: &mut StdRng) -> bool {
        while self.outage.1 <= now_s {
            let wait_days =
                -self.between_outages_days * rng.random_range(f64::EPSILON..1.0_f64).ln();
            let from = self.outage.1 + wait_days * DAY_S as f64;
            self.outage = (from, from + rng.random_range(OUTAGE_H.0..OUTAGE_H.1) * 3600.0);
        }
        self.outage.0 <= now_s
    }

    /// Records that the relay is suspected at a time. If this is the first suspicion since it began to lie, returns for how many days it has
    /// lied, rounded up.
    pub(super) fn suspect(&mut self, now_s: u64) -> Option<u32> {
        let Some(from_s) = self.lies_from_s.filter(|from_s| *from_s < now_s) else {
            self.is_falsely_suspected = true;
            return None;
        };
        if mem::replace(&mut self.is_found, true) {
            return None;
        }
        Some(u32::try_from((now_s - from_s).div_ceil(DAY_S)).unwrap_or(u32::MAX))
    }

    fn lies_at(&self, now_s: u64) -> bool {
        self.lies_from_s.is_some_and(|from| from <= now_s)
    }
}

pub(super) struct Network {
    lie: Lie,
    pub(super) relays: Vec<Relay>,
    guards: Vec<usize>,
    exits: Vec<usize>,
    rng: StdRng,
}

/// One of the values, by their shares.
fn drawn(rng: &mut StdRng, all: &[(f64, f64)]) -> f64 {
    let mut left = rng.random_range(0.0..1.0);
    for (value, share) in all {
        left -= share;
        if left < 0.0 {
            return *value;
        }
    }
    all[0].0
}

impl Network {
    pub(super) fn new(lie: Lie, settings: Settings) -> Self {
        let mut rng = StdRng::seed_from_u64(settings.seed);
        let last_day = u64::from(settings.days) - 30;
        let relay = |number: u32| {
            let mut id = [0; 20];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let is_liar = rng.random_bool(lie.share());
            let from_s = rng.random_range(14 * DAY_S..last_day.max(15) * DAY_S);
            let from_s = if lie == Lie::Frame { 0 } else { from_s };
            Relay {
                id: RsaId(id),
                lies_from_s: is_liar.then_some(from_s),
                is_found: false,
                is_falsely_suspected: false,
                failing: drawn(&mut rng, &FAILING),
                between_outages_days: drawn(&mut rng, &BETWEEN_OUTAGES_DAYS),
                outage: (0.0, 0.0),
                is_framed: lie == Lie::Frame && !is_liar && number.is_multiple_of(FRAMED_ONE_IN),
            }
        };
        let relays: Vec<Relay> = (0..settings.relays).map(relay).collect();
        let mut with_flag = |share| -> Vec<usize> {
            (0..relays.len()).filter(|_| rng.random_bool(share)).collect()
        };
        let (guards, exits) = (with_flag(GUARDS), with_flag(EXITS));
        Self { lie, relays, guards, exits, rng }
    }

    /// A random path, as `flashflow-lab probe` chooses it.
    pub(super) fn path(&mut self) -> [usize; 3] {
        loop {
            let rng = &mut self.rng;
            let first = self.guards[rng.random_range(0..self.guards.len())];
            let last = self.exits[rng.random_range(0..self.exits.len())];
            let middle = rng.random_range(0..self.relays.len());
            if first != last && first != middle && middle != last {
                return [first, middle, last];
            }
        }
    }

    /// The rate of a download over this path in bytes per second; `None` if the circuit fails.
    pub(super) fn download(&mut self, now_s: u64, path: [usize; 3]) -> Option<f64> {
        let is_bad_day = (now_s / DAY_S) % 20 == 13;
        let anyway = if is_bad_day { FAILING_ON_BAD_DAYS } else { FAILING_ANYWAY };
        let mut has_failed = self.rng.random_bool(anyway);
        let first_lies = self.relays[path[0]].lies_at(now_s);
        let is_with_framed = path.iter().any(|relay| self.relays[*relay].is_framed);
        let mut rate = self.rate();
        for (place, relay) in path.into_iter().enumerate() {
            let rng = &mut self.rng;
            let relay = &mut self.relays[relay];
            has_failed |= relay.is_down(now_s as f64, rng) || rng.random_bool(relay.failing);
            if !relay.lies_at(now_s) {
                continue;
            }
            has_failed |= match self.lie {
                Lie::None | Lie::Throttle => false,
                Lie::DropAll => true,
                Lie::KnowProber => !first_lies,
                Lie::ServeFew => rng.random_bool(0.9),
                Lie::DropHalf => rng.random_bool(0.5),
                Lie::DropByNight => now_s % DAY_S < DAY_S / 2,
                Lie::DropAsFirst => place == 0,
                Lie::Frame => is_with_framed,
            };
            rate *= if self.lie == Lie::Throttle { SLOW } else { 1.0 };
        }
        (!has_failed).then_some(rate)
    }

    /// Of an honest download: lognormal, by the sum of twelve uniform numbers.
    fn rate(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.rng.random_range(0.0..1.0)).sum();
        RATE.0 * (RATE.1 * (sum - 6.0)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_before_a_relay_lies_is_false_and_does_not_find_it() {
        let settings = Settings { relays: 100, days: 60, seed: 1 };
        let mut network = Network::new(Lie::DropAll, settings);
        let liar = network.relays.iter_mut().find(|relay| relay.lies_from_s.is_some());
        let liar = liar.expect("some of a hundred lie");
        liar.lies_from_s = Some(20 * DAY_S + 1);
        assert_eq!(liar.suspect(20 * DAY_S), None);
        assert!(liar.is_falsely_suspected && !liar.is_found);
        assert_eq!(liar.suspect(22 * DAY_S), Some(2));
        assert_eq!(liar.suspect(23 * DAY_S), None, "it is found once");
        let honest = network.relays.iter_mut().find(|relay| relay.lies_from_s.is_none());
        let honest = honest.expect("most are honest");
        assert_eq!((honest.suspect(20 * DAY_S), honest.is_falsely_suspected), (None, true));
    }
}
