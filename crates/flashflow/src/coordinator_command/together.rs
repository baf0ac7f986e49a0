//! Relays of one machine: they begin together, and share what was found of it.

use coordinator::{Record, RelayId, Turn, share_aligned, share_machine};
use measurer::{Gate, Pass};
use onion::identity::RsaId;
use std::collections::BTreeMap;
use store::Begun;

/// A turn that has ended.
pub(super) struct TurnOver {
    pub(super) relay: RelayId,
    /// Which it was.
    pub(super) turn: Option<Turn>,
    pub(super) record: Record,
    /// As the store knows it.
    pub(super) begun: Option<Begun>,
    pub(super) follows: Option<Turn>,
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
    /// Which place at the gate each has.
    places: BTreeMap<RelayId, usize>,
    /// Relays whose turn has not ended.
    expected: usize,
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
        let (expected, places, over) = (relays.len(), BTreeMap::new(), Vec::new());
        let machine = Machine { gate, passes, places, expected, over, certain };
        self.machines.insert(self.next, machine);
        self.machine_of.extend(relays.iter().map(|(relay, _)| (*relay, self.next)));
        self.next += 1;
    }

    /// A relay is about to be measured: where it has to wait for the others of its machine.
    pub(super) fn pass(&mut self, relay: RelayId) -> Option<Pass> {
        let machine = self.machines.get_mut(self.machine_of.get(&relay)?)?;
        let pass = machine.passes.pop()?;
        machine.places.insert(relay, pass.place());
        Some(pass)
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

/// If one of a machine's relays has to be measured again, so have the others, as often as they may: one after the other, each could have all of it.
pub(super) fn come_along(settled: &mut [TurnOver]) {
    if settled.iter().any(|it| it.follows.is_some()) {
        settled.iter_mut().for_each(|it| it.follows = it.follows.or_else(|| it.turn?.repeated()));
    }
}

impl Machine {
    /// Gives each relay its part of the machine. A relay that only may share the machine, and did not begin together with the others, keeps its own result. A
    /// late relay that certainly shares it gets what the others leave.
    fn settle(self) -> Vec<TurnOver> {
        let Self { gate, places, over: mut turns, certain, .. } = self;
        let is_on_time =
            |relay: &RelayId| places.get(relay).is_some_and(|place| gate.was_on_time(*place));
        let together = turns.iter_mut().filter(|it| is_on_time(&it.relay));
        share_aligned(&mut together.map(|it| &mut it.record).collect::<Vec<_>>());
        let mut groups: BTreeMap<Option<RsaId>, Vec<(&mut Record, bool)>> = BTreeMap::new();
        for turn in &mut turns {
            let name = certain.get(&turn.relay).copied();
            let is_on_time = is_on_time(&turn.relay);
            groups.entry(name).or_default().push((&mut turn.record, is_on_time));
        }
        groups.values_mut().for_each(|group| share_machine(group));
        // What was found of a machine was found when its last relay was done: estimates with one time are of one slot.
        let shared = turns.iter_mut().map(|it| &mut it.record).filter(|it| it.shared.is_some());
        let mut shared: Vec<&mut Record> = shared.collect();
        let ended = shared.iter().map(|it| it.ended_unix_s).max().unwrap_or(0);
        shared.iter_mut().for_each(|it| it.ended_unix_s = ended);
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::testing::{NOW, measured, record, relay, seen_by};
    use super::*;
    use onion::{Duration, Rate};

    fn over(number: u8) -> TurnOver {
        let record = record(&relay(number), measured());
        let turn = Some(Turn::first(Rate::from_mbit_per_s(50.0), 2));
        TurnOver { relay: RelayId(number.into()), turn, record, begun: None, follows: None }
    }

    /// The same with seconds in which it had all that it was found to have.
    fn seen(number: u8) -> TurnOver {
        let mut turn = over(number);
        turn.record = seen_by(turn.record, &[1]);
        for round in &mut turn.record.rounds {
            round.started_unix_s = Some(NOW);
            for second in &mut round.seconds {
                second.returned_bytes = vec![Some(measured_capacity().as_byte_per_s())];
            }
        }
        turn
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
        coordinator::fit_machine(&mut rates, Duration::from_secs(15), NOW);
        assert_eq!(rates, [(NOW + 100, whole.scaled(0.5)); 2]);
    }

    #[test]
    fn if_one_has_to_be_measured_again_so_have_the_others_of_its_machine() {
        let mut machines = Machines::default();
        let relays = [1, 2, 3].map(|it| (RelayId(it), RsaId([1; 20])));
        let parts = |settled: &[TurnOver]| -> Vec<f64> {
            let found = settled.iter().filter_map(|it| it.record.capacity());
            found.map(|it| it.as_mbit_per_s().round()).collect()
        };
        let whole = vec![measured_capacity().as_mbit_per_s().round(); 3];
        for is_first in [true, false] {
            machines.begin(&relays);
            for (relay, _) in relays {
                machines.pass(relay).expect("a place").arrive(Duration::from_secs(60));
            }
            let mut last = seen(3);
            last.follows = last.turn.and_then(Turn::repeated).filter(|_| is_first);
            assert!(machines.end(seen(1)).is_empty() && machines.end(seen(2)).is_empty());
            let mut settled = machines.end(last);
            assert_eq!(parts(&settled), whole, "each keeps what it had beside the others");
            come_along(&mut settled);
            let rounds = settled.iter().map(|it| it.follows.map(|turn| turn.round));
            assert_eq!(rounds.collect::<Vec<_>>(), vec![is_first.then_some(2); 3]);
        }
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

    #[test]
    fn who_comes_late_takes_nothing_from_those_that_began_together() {
        let mut machines = Machines::default();
        // 1 and 2 are at one address; 3 is elsewhere, and of their family.
        let first = RsaId([1; 20]);
        machines.begin(&[(RelayId(1), first), (RelayId(2), first), (RelayId(3), RsaId([3; 20]))]);
        let wait = |machines: &mut Machines, relay, longest| {
            machines.pass(RelayId(relay)).expect("a place").arrive(longest);
        };
        wait(&mut machines, 1, Duration::from_secs(60));
        // It can wait no longer, so the gate is open from here on.
        wait(&mut machines, 2, Duration::ZERO);
        wait(&mut machines, 3, Duration::from_secs(60));
        assert!(machines.end(seen(1)).is_empty() && machines.end(seen(2)).is_empty());
        for turn in machines.end(seen(3)) {
            assert_eq!(turn.record.capacity(), Some(measured_capacity()));
            let relays = turn.record.shared.map(|it| (it.relays, it.is_aligned));
            assert_eq!(relays, (turn.relay != RelayId(3)).then_some((2, true)));
        }
    }

    /// A stranger gets a port at the address of an honest relay, and begins when that one is half done.
    #[test]
    fn a_late_one_at_the_same_address_takes_nothing_from_a_relay_that_was_on_time() {
        let mut machines = Machines::default();
        machines.begin(&[1, 2].map(|it| (RelayId(it), RsaId([1; 20]))));
        // It can wait no longer, and so begins alone.
        machines.pass(RelayId(1)).expect("a place").arrive(Duration::ZERO);
        machines.pass(RelayId(2)).expect("a place").arrive(Duration::from_secs(60));
        let mut late = seen(2);
        late.record.rounds[0].started_unix_s = Some(NOW + 20);
        assert!(machines.end(late).is_empty());
        for turn in machines.end(seen(1)) {
            let is_late = turn.relay == RelayId(2);
            assert_eq!(
                turn.record.capacity(),
                (!is_late).then(measured_capacity),
                "{}",
                turn.record
            );
        }
    }

    fn measured_capacity() -> Rate {
        record(&relay(1), measured()).capacity().expect("measured")
    }
}
