//! The fastest plan (§7).

use super::room::Share;
use super::{Entry, Machine, Plan, TeamRoom, largest_first};
use crate::campaign::Priority;
use alloc::vec::Vec;
use onion::Rate;

impl Plan {
    /// Measures all relays as early as possible: fills slot by slot, each time with the largest machine that fits,
    /// until none is left (§7). Where the number of relays at once is the limit, small machines fill the places that large ones
    /// leave. It has as many slots as that takes. No two teams measure a machine in the same slot.
    ///
    /// Teams without capacity measure nothing ([`without_slot`](Self::without_slot)).
    #[must_use]
    pub fn greedy(teams: &[TeamRoom], excess_factor: f64, machines: Vec<Machine>) -> Self {
        let mut plan = Self::empty(None, &0.into(), teams, excess_factor);
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
                let Some(room) = plan.rooms.get(team) else { break };
                let mut is_crowded = of_team.is_crowded(room.team());
                let mut place = 0;
                while let Some(largest) = of_team.from(place) {
                    let takes_smallest = is_crowded
                        && plan
                            .rooms
                            .get(team)
                            .is_some_and(|room| of_team.is_above_average(room.left(slot)));
                    let next =
                        if takes_smallest { of_team.last().unwrap_or(largest) } else { largest };
                    let Some(entry) = entries.get_mut(next) else { break };
                    if plan.fits(entry, team, slot) {
                        plan.take(entry, team, Some(slot));
                        of_team.remove(next);
                    } else if takes_smallest {
                        // It is another team's in this slot, or has too many relays.
                        is_crowded = false;
                    } else if let Some(room) = plan.rooms.get(team) {
                        // All machines that need at least as much are skipped at once.
                        let fits = |share: Share| room.fits(slot, share);
                        place = of_team.first_that(next + 1, fits);
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
    /// No machine from this place on remains.
    end: usize,
    /// What the remaining machines need together.
    needed: Rate,
    /// The number of their relays.
    relays: u64,
}

impl Waiting {
    fn new(shares: Vec<Share>) -> Self {
        let next = (0..=shares.len()).collect();
        let needed = shares.iter().map(|share| share.rate).sum();
        let relays = shares.iter().map(|share| u64::from(share.relays)).sum();
        Self { end: shares.len(), shares, next, needed, relays }
    }

    /// Whether the number of remaining relays, not their capacities, determines how many slots the team needs.
    fn is_crowded(&self, team: TeamRoom) -> bool {
        let slots = self.needed.as_byte_per_s().div_ceil(team.capacity.as_byte_per_s().max(1));
        self.relays > slots.saturating_mul(u64::from(team.at_once_max))
    }

    /// Whether the remaining machines need more for each relay, in the mean, than this capacity has for each of this number of
    /// relays.
    fn is_above_average(&self, (capacity, relays): (Rate, u32)) -> bool {
        let product = |rate: Rate, count: u64| u128::from(rate.as_byte_per_s()) * u128::from(count);
        product(capacity, self.relays) < product(self.needed, relays.into())
    }

    /// The smallest remaining machine.
    fn last(&mut self) -> Option<usize> {
        while self.end > 0 && self.next[self.end - 1] != self.end - 1 {
            self.end -= 1;
        }
        self.end.checked_sub(1)
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
        self.needed = self.needed.saturating_sub(self.shares[place].rate);
        self.relays = self.relays.saturating_sub(self.shares[place].relays.into());
    }

    /// A place, not before this one, before which no remaining machine fits. Rates fall from place to place; the
    /// numbers of relays do not, so only rates are compared.
    fn first_that(&self, from: usize, fits: impl Fn(Share) -> bool) -> usize {
        let later = self.shares.get(from..).unwrap_or_default();
        let is_too_much = |share: &Share| !fits(Share { relays: 0, ..*share });
        from + later.partition_point(is_too_much)
    }
}
