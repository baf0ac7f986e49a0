//! The slots of a period: due relays, and changes by a newer consensus.

use super::{Event, Now, Period, Relay, SlotSeed, Timing};
use crate::campaign::RelayTurn;
use crate::distance::LEAD_MAX_S;
use crate::plan::{Seed, Slots, TeamRoom};
use crate::policy::network_of;
use crate::slot_schedule::{Arrival, SlotSchedule};
use crate::turn::Attempt;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use onion::identity::RsaId;

/// In shorter periods, which only test networks have, each relay is measured once.
const MEMORYLESS_S: u64 = 3600;

impl Period {
    pub(super) fn plan_slots(&mut self, now: Now) {
        let capacity = self.campaign.capacity();
        let own_room = TeamRoom { capacity, at_once_max: self.at_once_max() };
        let seed = self.seed.take();
        let SlotSeed { seed, mut teams, own } = seed.unwrap_or_else(|| SlotSeed {
            seed: Seed::from_bytes(self.config.secret),
            teams: vec![own_room],
            own: 0,
        });
        if let Some(room) = teams.get_mut(own) {
            *room = own_room;
        }
        let bounds = self.config.bounds;
        let factor = self.config.params.excess_factor();
        let (slots, slot) = (self.open_slots(), bounds.slot(now.unix_s()));
        let arrivals = self.arrivals(now);
        let plan = if self.config.timing == Timing::Slots && bounds.length_s >= MEMORYLESS_S {
            SlotSchedule::memoryless(&seed, slots, &teams, own, factor, &arrivals, slot)
        } else {
            SlotSchedule::among(&seed, slots, &teams, own, factor, &arrivals, slot)
        };
        self.event(Event::Counts(plan.counts()));
        self.slots = Some(plan);
        self.refreshed_unix_s = now.unix_s();
    }

    /// The slots of the period. Those out of the hours of a measurement policy are closed, also for relays that have opted
    /// in: a team has one plan.
    fn open_slots(&self) -> Slots {
        let bounds = self.config.bounds;
        let count = bounds.slots();
        self.consent.policy().map_or_else(
            || count.into(),
            |rule| rule.policy.slots(count, bounds.begin_unix_s, bounds.slot_s, self.load_s()),
        )
    }

    /// The longest time from the launch of a measurement to the end of its load. Only a path that is much slower than
    /// usual takes longer; then the measurers refuse to start.
    pub(super) fn load_s(&self) -> u64 {
        let params = &self.config.params;
        params.setup_timeout.as_secs() + u64::from(params.seconds) + u64::from(LEAD_MAX_S)
    }

    /// A measurement that an earlier process began and did not end, or that was to follow, is still to be done.
    pub(super) fn arrivals(&self, now: Now) -> Vec<Arrival> {
        // A relay without a valid estimate is to be measured in this period.
        let (bounds, policy) = (self.config.bounds, &self.config.policy);
        let due_by = |relay: &Relay| {
            let kept = self.history.kept(policy, relay.id(), None, now.unix_s());
            kept.map_or(Some(u32::MAX), |kept| bounds.due_by(kept.measured_unix_s, policy.kept_for))
        };
        let arrival = |relay: &Relay| {
            let past = self.pasts.get(&relay.id());
            let first = relay.first_turn(self.rounds_max(relay));
            let measurers_min = first.measurers_min.max(self.config.measurers_min);
            let first = Attempt { measurers_min, ..first };
            // Without slots there is no secret time at which a fall could be confirmed.
            let has_slots = self.config.timing.has_slots();
            let first = if has_slots { first.with_recent(relay.guess.recent) } else { first };
            Arrival {
                relay: relay.id(),
                together: relay.together,
                network: network_of(relay.address.ip()),
                priority: relay.guess.priority(),
                first_seen_unix_s: self.history.first_seen(relay.id()).unwrap_or(now.unix_s()),
                turn: past.and_then(|past| past.follows).unwrap_or(first),
                is_done: past.is_some_and(|past| past.is_done),
                is_pending: past.is_some_and(|past| !past.is_done),
                due_by: due_by(relay),
            }
        };
        self.present.iter().filter_map(|place| self.relays.get(place.0)).map(arrival).collect()
    }

    pub(super) fn rounds_max(&self, relay: &Relay) -> u32 {
        self.params(relay).max_rounds
    }

    pub(super) fn queue_due(&mut self, now: Now) {
        let slot = self.config.bounds.slot(now.unix_s());
        let Some(slots) = &mut self.slots else { return };
        let mut groups: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
        for due in slots.poll_due(slot) {
            if let Some(place) = self.places.get(&due.relay) {
                let turn = RelayTurn { relay: *place, priority: due.priority, turn: due.turn };
                groups.entry(due.machine).or_default().push(turn);
            }
        }
        groups.values().for_each(|turns| self.queue(now, turns));
    }
}
