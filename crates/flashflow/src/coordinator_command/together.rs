//! Relays of one machine: they begin together, and share what was found of it.

use coordinator::{Record, RelayId, Turn, share_aligned, share_machine};
use measurer::{Gate, Pass};
use onion::identity::RsaId;
use std::collections::BTreeMap;
use store::Begun;

/// A turn that has ended.
pub(super) struct TurnOver {
    pub(super) relay: RelayId,
    pub(super) record: Record,
    /// As the store knows it.
    pub(super) begun: Option<Begun>,
    pub(super) follows: Option<Turn>,
    /// That was all about the relay.
    pub(super) is_over: bool,
}

/// The machines whose relays are being measured together; relays that are alone are not in it.
#[derive(Default)]
pub(super) struct Machines {
    machine_of: BTreeMap<RelayId, usize>,
    machines: BTreeMap<usize, Machine>,
    next: usize,
}

struct Machine {
    gate: Gate,
    passes: Vec<Pass>,
    /// Relays whose turn has not ended.
    expected: usize,
    /// Of these, relays that have had a turn and are to have another, for which there is no pass yet.
    following: usize,
    over: Vec<TurnOver>,
    /// Which of them certainly share it: those with the same.
    certain: BTreeMap<RelayId, RsaId>,
}

impl Machines {
    /// The turns of these relays have come, at the same time. Those with the same name certainly share a machine.
    pub(super) fn begin(&mut self, relays: &[(RelayId, RsaId)]) {
        if relays.len() < 2 {
            return;
        }
        let (gate, passes) = Gate::new(relays.len());
        let certain = relays.iter().copied().collect();
        let (expected, following, over) = (relays.len(), 0, Vec::new());
        let machine = Machine { gate, passes, expected, following, over, certain };
        self.machines.insert(self.next, machine);
        self.machine_of.extend(relays.iter().map(|(relay, _)| (*relay, self.next)));
        self.next += 1;
    }

    /// A relay is about to be measured: where it has to wait for the others of its machine. Those that follow on a turn begin when
    /// all others have ended, and have a gate of their own.
    pub(super) fn pass(&mut self, relay: RelayId) -> Option<Pass> {
        let machine = self.machines.get_mut(self.machine_of.get(&relay)?)?;
        if machine.passes.is_empty() && machine.following > 0 {
            (machine.gate, machine.passes) = Gate::new(std::mem::take(&mut machine.following));
        }
        machine.passes.pop()
    }

    /// A turn has ended on which another follows, with the same machine.
    pub(super) fn follow(&mut self, relay: RelayId) {
        let number = self.machine_of.get(&relay);
        if let Some(machine) = number.and_then(|number| self.machines.get_mut(number)) {
            machine.following += 1;
        }
    }

    /// A turn has ended. What is settled by that: nothing, as long as others of the machine are being measured.
    pub(super) fn end(&mut self, turn: TurnOver) -> Vec<TurnOver> {
        let Some(number) = self.machine_of.remove(&turn.relay) else { return vec![turn] };
        let Some(machine) = self.machines.get_mut(&number) else { return vec![turn] };
        machine.over.push(turn);
        self.lose_one(number)
    }

    /// A turn has ended without a record.
    pub(super) fn lose(&mut self, relay: RelayId) -> Vec<TurnOver> {
        self.machine_of.remove(&relay).map_or_else(Vec::new, |number| self.lose_one(number))
    }

    fn lose_one(&mut self, number: usize) -> Vec<TurnOver> {
        let Some(machine) = self.machines.get_mut(&number) else { return Vec::new() };
        machine.expected -= 1;
        if machine.expected > 0 {
            return Vec::new();
        }
        self.machines.remove(&number).map_or_else(Vec::new, Machine::settle)
    }

    /// No more turns end: what has ended so far.
    pub(super) fn end_all(&mut self) -> Vec<TurnOver> {
        self.machine_of.clear();
        std::mem::take(&mut self.machines).into_values().flat_map(Machine::settle).collect()
    }
}

impl Machine {
    /// Gives each its part. If they did not begin together, nothing was found out about relays that may share a machine or not: only those are held to it that
    /// certainly do.
    fn settle(self) -> Vec<TurnOver> {
        let Self { gate, over: mut turns, certain, .. } = self;
        let is_together = gate.was_passed_together();
        let mut records: Vec<Record> = turns.iter().map(|turn| turn.record.clone()).collect();
        if !(is_together && share_aligned(&mut records)) {
            let mut groups: BTreeMap<Option<RsaId>, Vec<usize>> = BTreeMap::new();
            for (place, turn) in turns.iter().enumerate() {
                groups.entry(certain.get(&turn.relay).copied()).or_default().push(place);
            }
            for places in groups.into_values() {
                let mut group: Vec<Record> =
                    places.iter().map(|place| records[*place].clone()).collect();
                share_machine(&mut group, is_together);
                places.into_iter().zip(group).for_each(|(place, it)| records[place] = it);
            }
        }
        // What was found of a machine was found when its last relay was done: estimates with one time are of one slot.
        let is_shared = |record: &Record| record.shared.is_some();
        let ended = records.iter().filter(|it| is_shared(it)).map(|it| it.ended_unix_s).max();
        for (turn, mut record) in turns.iter_mut().zip(records) {
            if let Some(ended) = ended.filter(|_| is_shared(&record)) {
                record.ended_unix_s = ended;
            }
            turn.record = record;
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::testing::{NOW, measured, record, relay};
    use super::*;

    fn over(number: u8) -> TurnOver {
        let record = record(&relay(number), measured());
        let relay = RelayId(number.into());
        TurnOver { relay, record, begun: None, follows: None, is_over: true }
    }

    #[test]
    fn what_was_found_of_a_machine_is_settled_when_the_last_of_its_relays_has_ended() {
        let mut machines = Machines::default();
        machines.begin(&[1, 2, 3].map(|it| (RelayId(it), RsaId([1; 20]))));
        machines.begin(&[(RelayId(4), RsaId([4; 20]))]);
        assert!(machines.pass(RelayId(4)).is_none(), "it waits for nobody");
        assert!([1, 2, 3].map(RelayId).iter().all(|it| machines.pass(*it).is_some()));
        assert_eq!(machines.end(over(4)).len(), 1);
        assert!(machines.end(over(1)).is_empty() && machines.lose(RelayId(3)).is_empty());
        let settled = machines.end(over(2));
        assert_eq!(settled.len(), 2);
        let whole = measured_capacity();
        for turn in &settled {
            // They did not begin together, as far as is known: the largest is the machine.
            assert_eq!(turn.record.shared.map(|it| (it.relays, it.machine)), Some((2, whole)));
            assert_eq!(turn.record.capacity(), Some(whole.scaled(0.5)));
        }
        assert!(machines.machine_of.is_empty() && machines.machines.is_empty());
    }

    /// Of eight relays that did not fit together each had an eighth of an eighth: of what the largest of them had, divided, they were
    /// held once more to the most of any one time.
    #[test]
    fn what_was_shared_is_not_divided_once_more_because_it_ended_at_different_times() {
        let mut machines = Machines::default();
        machines.begin(&[1, 2].map(|it| (RelayId(it), RsaId([1; 20]))));
        let mut late = over(2);
        late.record.ended_unix_s += 60;
        assert!(machines.end(over(1)).is_empty());
        let settled = machines.end(late);
        let whole = measured_capacity();
        let mut rates: Vec<_> = settled
            .iter()
            .map(|it| (it.record.ended_unix_s, it.record.capacity().expect("measured")))
            .collect();
        assert_eq!(rates, [(NOW + 100, whole.scaled(0.5)); 2]);
        coordinator::fit_machine(&mut rates, onion::Duration::from_secs(15));
        assert_eq!(rates, [(NOW + 100, whole.scaled(0.5)); 2]);
    }

    #[test]
    fn turns_that_follow_have_a_gate_of_their_own() {
        let mut machines = Machines::default();
        machines.begin(&[1, 2, 3].map(|it| (RelayId(it), RsaId([1; 20]))));
        let passes = [1, 2, 3].map(|it| machines.pass(RelayId(it)).expect("a place"));
        assert!(machines.pass(RelayId(1)).is_none(), "each has one");
        drop(passes);
        machines.follow(RelayId(1));
        machines.follow(RelayId(3));
        assert!(machines.end(over(2)).is_empty());
        let first = machines.pass(RelayId(1)).expect("a place");
        assert!(first.left().is_none(), "it waits for the other");
        assert!(machines.pass(RelayId(3)).is_some() && machines.pass(RelayId(3)).is_none());
        assert!(machines.end(over(1)).is_empty());
        assert_eq!(machines.end(over(3)).len(), 3);
    }

    #[test]
    fn an_interrupted_campaign_keeps_what_has_ended() {
        let mut machines = Machines::default();
        machines.begin(&[1, 2].map(|it| (RelayId(it), RsaId([1; 20]))));
        assert!(machines.end(over(1)).is_empty());
        let left = machines.end_all();
        assert_eq!((left.len(), left[0].record.shared), (1, None));
        assert_eq!(machines.end(over(2)).len(), 1, "it came after that");
    }

    #[test]
    fn who_may_share_a_machine_loses_nothing_to_others_that_did_not_begin_with_it() {
        let mut machines = Machines::default();
        // 1 and 2 are at one address; 3 is elsewhere, and of their family.
        let first = RsaId([1; 20]);
        machines.begin(&[(RelayId(1), first), (RelayId(2), first), (RelayId(3), RsaId([3; 20]))]);
        assert!(machines.end(over(1)).is_empty() && machines.end(over(2)).is_empty());
        let settled = machines.end(over(3));
        let whole = measured_capacity();
        for turn in &settled {
            let is_alone = turn.relay == RelayId(3);
            assert_eq!(turn.record.shared.is_none(), is_alone, "{:?}", turn.record.shared);
            let part = if is_alone { whole } else { whole.scaled(0.5) };
            assert_eq!(turn.record.capacity(), Some(part));
        }
    }

    fn measured_capacity() -> onion::Rate {
        record(&relay(1), measured()).capacity().expect("measured")
    }
}
