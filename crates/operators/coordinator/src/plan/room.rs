use super::{Machine, Slots, TeamRoom};
use alloc::vec;
use alloc::vec::Vec;
use onion::Rate;

/// A team's remaining capacity in each slot.
#[derive(Clone, Debug)]
pub(super) struct Room {
    team: TeamRoom,
    left: Vec<Rate>,
    at_once_left: Vec<u32>,
}

/// The capacity that a machine occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share {
    /// *f·z₀* of all its relays, at most the team's capacity.
    pub(super) rate: Rate,
    /// The number of its relays.
    pub(super) relays: u32,
}

impl Room {
    pub(super) fn new(team: TeamRoom, slots: &Slots) -> Self {
        let count = slots.count as usize;
        let (mut left, mut at_once_left) =
            (vec![team.capacity; count], vec![team.at_once_max; count]);
        for slot in &slots.closed {
            let slot = *slot as usize;
            left.get_mut(slot).into_iter().for_each(|left| *left = Rate::ZERO);
            at_once_left.get_mut(slot).into_iter().for_each(|left| *left = 0);
        }
        Self { team, left, at_once_left }
    }

    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.left.len()).unwrap_or(u32::MAX)
    }

    /// One more slot, after the others.
    pub(super) fn grow(&mut self) {
        self.left.push(self.team.capacity);
        self.at_once_left.push(self.team.at_once_max);
    }

    pub(super) fn share(&self, machine: &Machine, excess_factor: f64) -> Share {
        let TeamRoom { capacity, at_once_max } = self.team;
        Share {
            rate: machine.guess().scaled(excess_factor).min(capacity),
            relays: machine.count().min(at_once_max),
        }
    }

    pub(super) const fn team(&self) -> TeamRoom {
        self.team
    }

    /// The remaining capacity and number of relays in a slot.
    pub(super) fn left(&self, slot: u32) -> (Rate, u32) {
        let slot = slot as usize;
        let relays = self.at_once_left.get(slot).copied();
        (self.left.get(slot).copied().unwrap_or_default(), relays.unwrap_or_default())
    }

    /// Whether the team has any capacity.
    pub(super) fn is_able(&self) -> bool {
        self.team.capacity > Rate::ZERO && self.team.at_once_max > 0
    }

    pub(super) fn fits(&self, slot: u32, share: Share) -> bool {
        let slot = slot as usize;
        let is_within = |left: &Rate| share.rate <= *left;
        self.is_able()
            && self.left.get(slot).is_some_and(is_within)
            && self.at_once_left.get(slot).is_some_and(|left| share.relays <= *left)
    }

    pub(super) fn take(&mut self, slot: u32, share: Share) {
        if let Some(left) = self.left.get_mut(slot as usize) {
            *left = left.saturating_sub(share.rate);
        }
        if let Some(left) = self.at_once_left.get_mut(slot as usize) {
            *left = left.saturating_sub(share.relays);
        }
    }

    pub(super) fn release(&mut self, slot: u32, share: Share) {
        if let Some(left) = self.left.get_mut(slot as usize) {
            *left = *left + share.rate;
        }
        if let Some(left) = self.at_once_left.get_mut(slot as usize) {
            *left = left.saturating_add(share.relays);
        }
    }

    pub(super) fn used(&self) -> Vec<Rate> {
        self.left.iter().map(|left| self.team.capacity.saturating_sub(*left)).collect()
    }
}
