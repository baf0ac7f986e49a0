//! Who is killed in which round, and when: all from the seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;

/// Measurers of the team.
pub(super) const MEASURERS: usize = 2;

/// The victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victim {
    /// One of the team, by its place.
    Measurer(usize),
    Coordinator,
    Target,
    /// A control: to see that all is well.
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
pub(super) enum Blow {
    /// It is gone at once, and the system closes its connections.
    Kill,
    /// Its connections stay, but nobody answers.
    Freeze,
}

impl Blow {
    /// What is done to the victim.
    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Freeze => "frozen",
        }
    }
}

/// What a round has in store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fate {
    /// Counted from one. A control has the number of the round before it.
    pub(super) number: u32,
    pub(super) victim: Victim,
    /// When, as a share of the time that a round takes.
    pub(super) at: f64,
}

impl Fate {
    /// A control before all others, which says how long a round takes.
    pub(super) const FIRST: Self = Self { number: 0, victim: Victim::Nobody, at: 1.0 };

    /// Whether nobody is to be killed.
    pub(super) const fn is_control(&self) -> bool {
        matches!(self.victim, Victim::Nobody)
    }

    /// The round again, earlier: its victim had ended before its moment.
    pub(super) fn sooner(self) -> Self {
        Self { at: self.at / 2.0, ..self }
    }
}

/// The number of rounds between controls.
pub(super) const CONTROL_EVERY: u32 = 10;

/// So many rounds with a victim, and controls between them, which do not count. Of any three from the first
/// on, each has another kind of victim.
pub(super) fn fates(rounds: u32, seed: u64) -> Vec<Fate> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut fates = Vec::new();
    let mut block: Vec<Victim> = Vec::new();
    for number in 1..=rounds {
        if block.is_empty() {
            let measurer = Victim::Measurer(below(&mut rng, MEASURERS));
            block = vec![measurer, Victim::Coordinator, Victim::Target];
        }
        let victim = block.swap_remove(below(&mut rng, block.len()));
        fates.push(Fate { number, victim, at: share(&mut rng) });
        if number.is_multiple_of(CONTROL_EVERY) {
            fates.push(Fate { number, ..Fate::FIRST });
        }
    }
    fates
}

/// From zero to one.
fn share(rng: &mut StdRng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

fn below(rng: &mut StdRng, count: usize) -> usize {
    let drawn = usize::try_from(rng.next_u32()).unwrap_or_default();
    // Of three at most: what it favours the first ones by is nothing.
    drawn % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_round_has_a_victim_and_each_three_one_of_each_kind() {
        let planned = fates(200, 7);
        let (controls, all): (Vec<Fate>, Vec<Fate>) =
            planned.iter().partition(|it| it.is_control());
        assert_eq!((all.len(), controls.len()), (200, 20));
        assert!(all.iter().map(|fate| fate.number).eq(1..=200));
        for three in all.chunks_exact(3) {
            let kinds: BTreeSet<_> = three
                .iter()
                .map(|fate| match fate.victim {
                    Victim::Measurer(_) => Victim::Measurer(0),
                    other => other,
                })
                .collect();
            assert_eq!(kinds.len(), 3, "{three:?}");
        }
        let measurers: BTreeSet<_> = all
            .iter()
            .filter(|fate| matches!(fate.victim, Victim::Measurer(_)))
            .map(|fate| fate.victim)
            .collect();
        assert_eq!(measurers.len(), MEASURERS);
        for tenth in 0..10u32 {
            let span = f64::from(tenth) / 10.0..f64::from(tenth + 1) / 10.0;
            assert!(all.iter().any(|fate| span.contains(&fate.at)), "{span:?}");
        }
    }

    #[test]
    fn a_seed_decides_all() {
        assert_eq!(fates(20, 3), fates(20, 3));
        assert_ne!(fates(20, 3), fates(20, 4));
        assert_eq!(fates(8, 3)[..], fates(20, 3)[..8]);
    }
}
