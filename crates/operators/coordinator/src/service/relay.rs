//! What the circuits of one relay show.

use super::network::Step;
use super::{
    ALTERNATIVES, DAY_S, FALSE_ALARM, HopPosition, ProbedRelay, SPACING_S, ServiceSuspicion,
};
use alloc::collections::BTreeSet;
use onion::identity::RsaId;

/// The number of a relay's last circuits that decide whether it is in doubt, at most and at least.
const RECENT: (u64, u64) = (8, 4);

const NEIGHBOURS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct RelayState {
    probed: ProbedRelay,
    /// A bit for each of the last circuits, set if it was bad.
    recent: u8,
    scores: [Score; ALTERNATIVES.len()],
}

/// The evidence for an alternative, from the start of the day on that yields the most.
#[derive(Clone, Debug, Default)]
struct Score {
    log_ratio: f64,
    /// The largest log ratio so far: its probability is what the inequality bounds.
    peak: f64,
    last_unix_s: Option<u64>,
    since_unix_s: u64,
    circuits: u32,
    bad: u32,
    neighbours: BTreeSet<RsaId>,
}

impl Score {
    /// Whether the last circuit that counts is long enough ago.
    fn is_spaced(&self, now_unix_s: u64) -> bool {
        self.last_unix_s.is_none_or(|last| now_unix_s - last >= SPACING_S)
    }

    fn add<'r>(
        &mut self,
        now_unix_s: u64,
        bad: Option<impl Iterator<Item = &'r RsaId>>,
        step: Step,
    ) {
        let is_new_day = self.last_unix_s.is_none_or(|last| last / DAY_S < now_unix_s / DAY_S);
        if is_new_day && self.log_ratio <= 0.0 {
            *self = Self { since_unix_s: now_unix_s, ..Self::default() };
        }
        self.last_unix_s = Some(now_unix_s);
        self.circuits += 1;
        self.log_ratio += if bad.is_some() { step.if_bad } else { step.if_good };
        if let Some(others) = bad {
            self.bad += 1;
            self.neighbours.extend(others.take(NEIGHBOURS_MAX - self.neighbours.len()));
        }
        self.peak = self.peak.max(self.log_ratio);
    }

    /// The probability, at most, that an honest relay reaches the peak from any day of a year, by any alternative.
    fn by_chance(&self) -> f64 {
        (365.0 * ALTERNATIVES.len() as f64 * libm::exp(-self.peak)).min(1.0)
    }

    fn is_suspected(&self) -> bool {
        self.by_chance() <= FALSE_ALARM
    }
}

impl RelayState {
    /// Whether most of its last circuits were bad.
    pub(super) fn is_doubtful(&self) -> bool {
        let known = self.probed.circuits.min(RECENT.0);
        known >= RECENT.1 && 2 * u64::from(self.recent.count_ones()) > known
    }

    /// Adds a circuit; a bad one with its other relays. It counts separately for each position and for all.
    pub(super) fn add<'r>(
        &mut self,
        now_unix_s: u64,
        position: HopPosition,
        bad: Option<impl Iterator<Item = &'r RsaId> + Clone>,
        steps: &[Step; ALTERNATIVES.len()],
    ) {
        let [any_position, ..] = &self.scores;
        if any_position.is_spaced(now_unix_s) {
            self.probed.circuits += 1;
            self.probed.bad += u64::from(bad.is_some());
            self.recent = (self.recent << 1) | u8::from(bad.is_some());
        }
        for ((score, step), (at, _)) in self.scores.iter_mut().zip(steps).zip(ALTERNATIVES) {
            if at.is_none_or(|at| at == position) && score.is_spaced(now_unix_s) {
                score.add(now_unix_s, bad.clone(), *step);
            }
        }
    }

    pub(super) fn suspicion(
        &self,
        relay: RsaId,
        network_bad_share: f64,
    ) -> Option<ServiceSuspicion> {
        let all = self.scores.iter().zip(ALTERNATIVES).filter(|(score, _)| score.is_suspected());
        let (score, (position, _)) =
            all.max_by(|(one, _), (other, _)| one.peak.total_cmp(&other.peak))?;
        Some(ServiceSuspicion {
            relay,
            position,
            since_unix_s: score.since_unix_s,
            until_unix_s: score.last_unix_s.unwrap_or(score.since_unix_s),
            circuits: score.circuits,
            bad: score.bad,
            neighbours: u32::try_from(score.neighbours.len()).unwrap_or(u32::MAX),
            network_bad_share,
            by_chance: score.by_chance(),
        })
    }

    pub(super) const fn probed(&self) -> ProbedRelay {
        self.probed
    }
}
