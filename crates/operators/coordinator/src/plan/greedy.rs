//! The fastest plan (§7).

use super::room::Share;
use super::{Entry, Machine, Plan, TeamRoom, largest_first};
use crate::campaign::Priority;
use alloc::vec::Vec;

impl Plan {
    /// Measures all relays as early as possible: fills slot by slot, each time with the largest machine that fits,
    /// until none is left (§7). It has as many slots as that takes. No two teams measure a machine in the same slot.
    ///
    /// Teams without capacity measure nothing ([`without_slot`](Self::without_slot)).
    #[must_use]
    pub fn greedy(teams: &[TeamRoom], excess_factor: f64, machines: Vec<Machine>) -> Self {
        let mut plan = Self::empty(None, 0, teams, excess_factor);
        let mut entries: Vec<Entry> = largest_first(machines)
            .into_iter()
            .map(|machine| Entry::new(machine, Priority::Known, teams.len()))
            .collect();
        let mut waiting: Vec<Waiting> = Vec::new();
        for room in &plan.rooms {
            let shares = entries.iter().map(|entry| room.share(&entry.machine, excess_factor));
            let able = if room.is_able() { entries.len() } else { 0 };
            waiting.push(Waiting::new(shares.take(able).collect()));
        }
        let mut slot = 0;
        while waiting.iter_mut().any(|of_team| !of_team.is_empty()) {
            for (team, of_team) in waiting.iter_mut().enumerate() {
                if let Some(room) = plan.rooms.get_mut(team) {
                    room.grow();
                }
                let mut place = 0;
                while let Some(next) = of_team.from(place) {
                    place = next + 1;
                    let Some(entry) = entries.get_mut(next) else { break };
                    if plan.fits(entry, team, slot) {
                        plan.take(entry, team, Some(slot));
                        of_team.remove(next);
                    } else if let Some(room) = plan.rooms.get(team) {
                        // All machines that need at least as much are skipped at once.
                        let fits = |share: Share| room.fits(slot, share);
                        place = of_team.first_that(place, fits);
                    }
                }
            }
            slot += 1;
        }
        entries.into_iter().for_each(|entry| plan.insert(entry));
        plan
    }
}

/// A team's remaining machines, the largest first.
struct Waiting {
    shares: Vec<Share>,
    /// For each place, that of the next remaining machine, at or after it.
    next: Vec<usize>,
}

impl Waiting {
    fn new(shares: Vec<Share>) -> Self {
        let next = (0..=shares.len()).collect();
        Self { shares, next }
    }

    /// The first remaining machine from a place on.
    fn from(&mut self, mut place: usize) -> Option<usize> {
        while self.next[place] != place {
            self.next[place] = self.next[self.next[place]];
            place = self.next[place];
        }
        (place < self.shares.len()).then_some(place)
    }

    fn is_empty(&mut self) -> bool {
        self.from(0).is_none()
    }

    fn remove(&mut self, place: usize) {
        self.next[place] = place + 1;
    }

    /// A place, not before this one, before which no remaining machine fits. Rates fall from place to place; the
    /// numbers of relays do not, so only rates are compared.
    fn first_that(&self, from: usize, fits: impl Fn(Share) -> bool) -> usize {
        let later = self.shares.get(from..).unwrap_or_default();
        let is_too_much = |share: &Share| !fits(Share { relays: 0, ..*share });
        from + later.partition_point(is_too_much)
    }
}
