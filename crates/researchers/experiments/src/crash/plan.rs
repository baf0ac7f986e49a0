//! The victim of each round and the moment of its kill, drawn from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of measurers in the team.
pub(super) const MEASURERS: usize = 2;

/// The process that is killed or frozen in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Victim {
    /// A measurer, by its index in the team.
    Measurer(usize),
    Coordinator,
    Target,
    /// None: the round is a control.
    Nobody,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measurer(place) => write!(f, "measurer {place}"),
            Self::Coordinator => f.write_str("coordinator"),
            Self::Target => f.write_str("target"),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

/// What happens to the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL: the kernel closes its connections.
    Kill,
    /// SIGSTOP: its connections stay open, but it does not answer.
    Freeze,
}

impl Fault {
    /// The participle for messages.
    pub(super) const fn participle(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Freeze => "frozen",
        }
    }
}

/// A planned round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct PlannedRound {
    /// Counted from one. A control has the number of the previous round.
    #[serde(skip)]
    pub(super) number: u32,
    #[serde(skip)]
    pub(super) victim: Victim,
    /// The moment of the kill, as a share of a round's expected duration.
    #[serde(skip)]
    pub(super) at: f64,
}

impl fmt::Display for PlannedRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_control() { "control after round" } else { "round" };
        write!(f, "{kind} {}", self.number)
    }
}

impl PlannedRound {
    /// The first control, which determines the expected duration of a round.
    pub(super) const FIRST: Self = Self { number: 0, victim: Victim::Nobody, at: 1.0 };

    /// Whether the round has no victim.
    pub(super) const fn is_control(&self) -> bool {
        matches!(self.victim, Victim::Nobody)
    }

    /// Repeats a round with an earlier moment, after the victim had ended before its moment.
    pub(super) fn earlier(self) -> Self {
        Self { at: self.at / 2.0, ..self }
    }
}

/// The number of rounds between controls.
const CONTROL_EVERY: u32 = 10;

/// Plans this number of rounds with a victim, and additional controls. Each block of three rounds has one victim of each kind.
pub(super) fn planned_rounds(rounds: u32, seed: u64) -> Vec<PlannedRound> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut planned = Vec::new();
    let mut block: Vec<Victim> = Vec::new();
    for number in 1..=rounds {
        if block.is_empty() {
            let measurer = Victim::Measurer(below(&mut rng, MEASURERS));
            block = vec![measurer, Victim::Coordinator, Victim::Target];
        }
        let victim = block.swap_remove(below(&mut rng, block.len()));
        planned.push(PlannedRound { number, victim, at: share(&mut rng) });
        if number.is_multiple_of(CONTROL_EVERY) {
            planned.push(PlannedRound { number, ..PlannedRound::FIRST });
        }
    }
    planned
}

/// A number from zero to one.
fn share(rng: &mut StdRng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

fn below(rng: &mut StdRng, count: usize) -> usize {
    let drawn = usize::try_from(rng.next_u32()).unwrap_or_default();
    // The bias of the remainder is negligible for a count of three at most.
    drawn % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_block_of_three_rounds_has_one_victim_of_each_kind() {
        let planned = planned_rounds(200, 7);
        let (controls, all): (Vec<PlannedRound>, Vec<PlannedRound>) =
            planned.iter().partition(|round| round.is_control());
        assert_eq!((all.len(), controls.len()), (200, 20));
        assert!(all.iter().map(|round| round.number).eq(1..=200));
        for three in all.chunks_exact(3) {
            let kinds: BTreeSet<_> = three
                .iter()
                .map(|round| match round.victim {
                    Victim::Measurer(_) => Victim::Measurer(0),
                    other => other,
                })
                .collect();
            assert_eq!(kinds.len(), 3, "{three:?}");
        }
        let measurers: BTreeSet<_> = all
            .iter()
            .map(|round| round.victim)
            .filter(|victim| matches!(victim, Victim::Measurer(_)))
            .collect();
        assert_eq!(measurers.len(), MEASURERS);
        for tenth in 0..10u32 {
            let span = f64::from(tenth) / 10.0..f64::from(tenth + 1) / 10.0;
            assert!(all.iter().any(|round| span.contains(&round.at)), "{span:?}");
        }
    }

    #[test]
    fn a_seed_determines_the_plan() {
        assert_eq!(planned_rounds(20, 3), planned_rounds(20, 3));
        assert_ne!(planned_rounds(20, 3), planned_rounds(20, 4));
        assert_eq!(planned_rounds(8, 3)[..], planned_rounds(20, 3)[..8]);
    }
}
