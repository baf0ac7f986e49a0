//! Concurrent measurement of several relays, within the team's capacity (§4.2, §4.3).

use crate::allocation::{Allocation, MeasurerId, allocate_among};
use crate::bottleneck::MeasurerBottleneck;
use crate::failure::{Blame, Failure};
use crate::measurer_path::{MeasurerPath, PathSeen};
use crate::outcome::{Estimate, Inconclusive, Outcome};
use crate::policy::Zone;
use crate::socket_ramp::FAR;
use crate::turn::Attempt;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::Rate;

/// A relay of a campaign, by a number that the shell chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayIndex(pub usize);

/// The position of a relay in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Measured recently. The largest relays come first.
    Known,
    /// Not measured recently. These follow the old relays, in order of arrival.
    New,
}

/// A turn of a relay, to be queued.
#[derive(Clone, Copy, Debug)]
pub struct RelayTurn {
    /// The relay.
    pub relay: RelayIndex,
    /// Its position in the queue.
    pub priority: Priority,
    /// The turn.
    pub turn: Attempt,
}

/// The highest rate of each measurer, by its place in the team, for all relays of a zone together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The zone.
    pub zone: Zone,
    /// The rate of each measurer.
    pub rates: Vec<Rate>,
}

/// A measurement to be started now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The relay.
    pub relay: RelayIndex,
    /// The round, and the capacity to expect.
    pub turn: Attempt,
    /// The measurers that take part, each with its share of capacity, until
    /// [`handle_outcome`](Campaign::handle_outcome).
    pub allocation: Allocation,
    /// The whole team takes part, as far as a measurement policy permits, so another round could not have more capacity.
    pub is_whole_team: bool,
    /// The team has other measurers that can reach the relay.
    pub has_others: bool,
    /// The path of each participating measurer to the relay, in the allocation's order.
    pub vantages: Vec<MeasurerPath>,
}

/// The action after a measurement has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the relay is done.
    Nothing,
    /// The relay needs more load, in this turn. If the launch had the whole team, the relay is done, unless the turn
    /// has more sockets, or confirms a fall.
    Enlarged(Attempt),
    /// A measurer failed, or the relay had no room for its circuits. The turn is repeated, within the relay's limit of
    /// rounds.
    Repeated,
    /// The relay declined. The turn is repeated later, once in a period, if the caller schedules turns
    /// ([`Campaign::returning_follow_ups`]).
    Declined,
}

impl Next {
    /// The action after an outcome.
    #[must_use]
    pub const fn after(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Measured(Estimate { inconclusive: Some(reason), .. }) => {
                match reason.next_turn() {
                    Some(next) => Self::Enlarged(next),
                    None => Self::Nothing,
                }
            }
            Outcome::Measured(_) => Self::Nothing,
            Outcome::Failed { reason: Failure::NoRoom { .. }, .. } => Self::Repeated,
            Outcome::Failed { reason, .. } => match reason.blame() {
                Blame::Measurer => Self::Repeated,
                Blame::Configuration | Blame::Us if reason.is_decline() => Self::Declined,
                Blame::Relay | Blame::Configuration | Blame::Us => Self::Nothing,
            },
        }
    }
}

/// The effect of the end of a measurement on its campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The relay is done. If false, it is launched again.
    pub is_over: bool,
    /// The measurer that failed. It has no capacity until [`Campaign::set_capacity`] restores it.
    pub lost: Option<MeasurerId>,
    /// The turn that follows, if the caller schedules such turns ([`Campaign::returning_follow_ups`]).
    pub follows: Option<Attempt>,
}

/// The number of later, smaller relays that may overtake a relay. After that, nothing else starts before it.
const PASSED_OVER_MAX: u32 = 8;

/// Concurrent measurements of many relays by one team.
///
/// A state machine without a clock. A relay starts when the team has *f·z₀* left for it, or all of the team's capacity.
/// Its share is reserved until its measurement ends, or [is about to](Self::handle_ending), and never exceeds what each
/// measurer has left, so no measurer exceeds its capacity. Old relays come first, the largest of them before the others.
/// A relay that fits may overtake one that does not, up to a limit, so none starves.
///
/// Measurers are chosen by residual capacity, most first, wherever the relay is. There are two exceptions. A measurer
/// that its path held back is assigned little more than it achieved, if others have the rest. A relay that is far from
/// any measurer gets two, at different hosts if possible. So the distance of a relay is not mistaken for a limit of its
/// capacity.
///
/// For a relay with [limits](Self::set_limits), what each measurer has left is also what its limits leave. A relay that waits
/// for its zone delays no other.
///
/// After `new`, and after each [`add`](Self::add), [`handle_outcome`](Self::handle_outcome) and
/// [`set_capacity`](Self::set_capacity), call [`poll_launch`](Self::poll_launch) until it returns `None`, and start
/// each launch.
#[derive(Clone, Debug)]
pub struct Campaign {
    excess_factor: f64,
    sockets: u32,
    capacities: Vec<Rate>,
    /// The maximum number of relays that are measured at once.
    at_once_max: u32,
    /// The capacity of each measurer that running measurements use.
    used: Vec<Rate>,
    old: VecDeque<Waiting>,
    new: VecDeque<Waiting>,
    /// In the order in which they became due.
    due: VecDeque<Waiting>,
    returns_follow_ups: bool,
    running: BTreeMap<RelayIndex, Running>,
    /// Machines with a relay that is queued or running.
    machines: BTreeMap<MachineId, MachineLoad>,
    machines_added: u32,
    /// One of its relays was launched, so its other queued relays are launched before anything else.
    launching: Option<MachineId>,
    /// The host of each measurer, where known.
    hosts: Vec<Option<u32>>,
    paths: BTreeMap<(RelayIndex, MeasurerId), PathSeen>,
    /// The paths that a turn of this campaign has measured.
    observed: BTreeSet<(RelayIndex, MeasurerId)>,
    /// Measurers that no longer take part in measurements of a relay. They could not reach it and others could, or they
    /// failed in another way that the relay can cause.
    excluded: BTreeSet<(RelayIndex, MeasurerId)>,
    /// The machines whose relays, by their reports or by what they returned, caused a measurer to be left out; each by
    /// its first relay.
    accusers: BTreeMap<MeasurerId, BTreeSet<RelayIndex>>,
    /// The first relay of each relay's machine, among relays that were added together.
    machine_of: BTreeMap<RelayIndex, RelayIndex>,
    /// The limits of relays that a measurement policy permits.
    limits: BTreeMap<RelayIndex, Vec<ZoneLimit>>,
    /// The rate of each measurer that running measurements use in each zone, until their load has ended.
    used_in: BTreeMap<Zone, Vec<Rate>>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    relay: RelayIndex,
    turn: Attempt,
    priority: Priority,
    passed_over: u32,
    /// The machine that it shares, if any.
    machine: Option<MachineId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MachineId(u32);

/// The expected capacity of the relays of a machine.
#[derive(Clone, Copy, Debug, Default)]
struct MachineLoad {
    /// The sum for the queued relays.
    waiting: Rate,
    /// The sum for the running relays.
    running: Rate,
    /// The number of running relays.
    runs: usize,
    /// The number of queued relays.
    waits: usize,
}

#[derive(Clone, Debug)]
struct Running {
    waiting: Waiting,
    launch: Launch,
    /// Its zones with a limit.
    zones: Vec<Zone>,
    /// Its share was given back: launches that have it wait for its end.
    is_ending: bool,
}

impl Running {
    /// Gives its share back, once.
    fn free(&mut self, used: &mut [Rate]) {
        if core::mem::replace(&mut self.is_ending, true) {
            return;
        }
        for assignment in &self.launch.allocation.assignments {
            if let Some(used) = used.get_mut(assignment.measurer.0) {
                *used = *used - assignment.rate;
            }
        }
    }
}

impl Campaign {
    /// A campaign without relays. `capacities` holds the capacity of each measurer of the team, `excess_factor` is *f*
    /// and `sockets` *s* (see [`Params`](crate::Params)).
    #[must_use]
    pub fn new(excess_factor: f64, sockets: u32, capacities: Vec<Rate>) -> Self {
        Self {
            excess_factor,
            sockets,
            used: vec![Rate::ZERO; capacities.len()],
            capacities,
            at_once_max: u32::MAX,
            old: VecDeque::new(),
            new: VecDeque::new(),
            due: VecDeque::new(),
            returns_follow_ups: false,
            running: BTreeMap::new(),
            machines: BTreeMap::new(),
            machines_added: 0,
            launching: None,
            hosts: Vec::new(),
            paths: BTreeMap::new(),
            observed: BTreeSet::new(),
            excluded: BTreeSet::new(),
            accusers: BTreeMap::new(),
            machine_of: BTreeMap::new(),
            limits: BTreeMap::new(),
            used_in: BTreeMap::new(),
        }
    }

    /// Sets the hosts of the measurers, by their places in the team. Equal numbers are one host; see
    /// [`MeasurerPath::host`].
    #[must_use]
    pub fn at_hosts(self, hosts: Vec<Option<u32>>) -> Self {
        Self { hosts, ..self }
    }

    /// Limits the number of relays that are measured at once, whatever the capacity. A machine with more relays than
    /// that is measured alone. By default there is no limit.
    pub const fn set_at_once_max(&mut self, at_once_max: u32) {
        self.at_once_max = at_once_max;
    }

    /// Lets the caller schedule turns that follow another. [`handle_outcome`](Self::handle_outcome) returns such a turn
    /// instead of queueing it, and the caller adds it by [`add_turn`](Self::add_turn) when it is due.
    #[must_use]
    pub fn returning_follow_ups(self) -> Self {
        Self { returns_follow_ups: true, ..self }
    }

    /// Adds a relay, to be measured in at most `rounds_max` rounds, at least one. A relay that is already queued or
    /// running is ignored.
    pub fn add(&mut self, relay: RelayIndex, priority: Priority, guess: Rate, rounds_max: u32) {
        self.add_turn(relay, priority, Attempt::first(guess, rounds_max));
    }

    /// Adds a relay with the given turn.
    pub fn add_turn(&mut self, relay: RelayIndex, priority: Priority, turn: Attempt) {
        self.add_machine(&[RelayTurn { relay, priority, turn }]);
    }

    /// Adds relays that share a machine. They are launched together, as soon as there is room for all of them. If the
    /// team's capacity is less than they need together, it is divided among them by their expected capacities. If they
    /// were measured one after the other, each could use the whole machine.
    pub fn add_machine(&mut self, turns: &[RelayTurn]) {
        self.machines_added += 1;
        let machine = (turns.len() > 1).then_some(MachineId(self.machines_added));
        let relays = || turns.iter().map(|turn| turn.relay);
        if let Some(first) = relays().min().filter(|_| machine.is_some()) {
            self.machine_of.extend(relays().map(|relay| (relay, first)));
        }
        for RelayTurn { relay, priority, turn } in turns.iter().copied() {
            let is_known = self.waiting().any(|waiting| waiting.relay == relay);
            if !is_known && !self.running.contains_key(&relay) {
                self.queue(Waiting { relay, turn, priority, passed_over: 0, machine });
            }
        }
    }

    /// Sets the limits of a relay that is about to be added; none by default.
    pub fn set_limits(&mut self, relay: RelayIndex, limits: Vec<ZoneLimit>) {
        if limits.is_empty() {
            self.limits.remove(&relay);
        } else {
            self.limits.insert(relay, limits);
        }
    }

    /// Sets what a measurer has observed of its path to a relay in an earlier period. Observations of this campaign
    /// take precedence.
    pub fn expect_path(&mut self, relay: RelayIndex, measurer: MeasurerId, path: PathSeen) {
        if !self.observed.contains(&(relay, measurer)) {
            self.paths.insert((relay, measurer), path);
        }
    }

    /// Sets what a measurer has observed of its path in the turn that has just ended
    /// ([`Record::paths`](crate::Record::paths)). Call it before [`handle_outcome`](Self::handle_outcome). The latest
    /// observation counts.
    pub fn handle_path(&mut self, relay: RelayIndex, measurer: MeasurerId, path: PathSeen) {
        self.observed.insert((relay, measurer));
        self.paths.insert((relay, measurer), path);
    }

    /// Handles the end of a measurement. Its share becomes free, the turn that follows is queued, and a measurer that
    /// failed gets no more work. A relay can cause some of these failures ([`Failure::may_be_relays_doing`]): then the
    /// measurer is left out for this relay only, and for all relays once relays of two machines have reported that it
    /// miscounts. Measurers are numbered by their places in the launch's allocation, as in
    /// [`Measurement::of_turn`](crate::Measurement::of_turn).
    pub fn handle_outcome(&mut self, relay: RelayIndex, outcome: &Outcome) -> Ended {
        let failed = match outcome {
            Outcome::Failed { reason, measurer, .. } if reason.blame() == Blame::Measurer => {
                *measurer
            }
            Outcome::Failed { .. } | Outcome::Measured(_) => None,
        };
        let launch = self.running.get(&relay).map(|running| &running.launch);
        let member = |place| launch.and_then(|launch| launch.allocation.member(place));
        let failed = failed.and_then(member);
        let bottleneck = bottleneck(outcome)
            .and_then(|bottleneck| Some((member(bottleneck.measurer)?, bottleneck.got)));
        let lost = failed.filter(|failed| self.is_lost(relay, *failed, outcome));
        if let Some(measurer) = lost {
            self.set_capacity(measurer, Rate::ZERO);
        }
        if let Some((measurer, got)) = bottleneck {
            // Also if its processor was busy. That is not a property of the path, so it is not kept for later periods.
            self.observed.insert((relay, measurer));
            self.paths.entry((relay, measurer)).or_default().limit = Some(got);
        }
        let follows = self.end(relay, Next::after(outcome));
        Ended {
            is_over: follows.is_none(),
            lost,
            follows: follows.filter(|_| self.returns_follow_ups),
        }
    }

    /// Whether a measurer that failed with one relay is unusable for other relays too.
    fn is_lost(&mut self, relay: RelayIndex, measurer: MeasurerId, outcome: &Outcome) -> bool {
        let Outcome::Failed { reason, .. } = outcome else { return false };
        if !reason.may_be_relays_doing() {
            return true;
        }
        self.excluded.insert((relay, measurer));
        if matches!(reason, Failure::OutOfReach { .. }) {
            return false;
        }
        let accusers = self.accusers.entry(measurer).or_default();
        accusers.insert(self.machine_of.get(&relay).copied().unwrap_or(relay));
        let is_lost = accusers.len() > 1;
        if is_lost {
            self.accusers.remove(&measurer);
        }
        is_lost
    }

    /// Like [`handle_outcome`](Self::handle_outcome), with the caller's decision. Returns whether the relay is done.
    pub fn handle_end(&mut self, relay: RelayIndex, next: Next) -> bool {
        self.end(relay, next).is_none()
    }

    /// Handles a measurement whose load ends soon: later launches may have its share, and are set up meanwhile. The
    /// caller must not start their load before this one has ended. The limit on relays at once counts both.
    pub fn handle_ending(&mut self, relay: RelayIndex) {
        if let Some(running) = self.running.get_mut(&relay) {
            running.free(&mut self.used);
        }
    }

    /// The turn that follows, which is queued unless the caller schedules it.
    fn end(&mut self, relay: RelayIndex, next: Next) -> Option<Attempt> {
        let mut running = self.running.remove(&relay)?;
        running.free(&mut self.used);
        let Running { waiting, launch, zones, .. } = running;
        self.use_zones(&zones, &launch.allocation, |used, rate| used.saturating_sub(rate));
        self.update_machine(waiting.machine, |machine| {
            machine.running = machine.running.saturating_sub(waiting.turn.guess);
            machine.runs -= 1;
        });
        let turn = match next {
            Next::Enlarged(turn)
                if !launch.is_whole_team
                    || turn.widening > waiting.turn.widening
                    || turn.confirmations > waiting.turn.confirmations =>
            {
                Some(turn)
            }
            Next::Repeated => waiting.turn.repeated(),
            Next::Declined if self.returns_follow_ups => waiting.turn.after_decline(),
            Next::Nothing | Next::Enlarged(_) | Next::Declined => None,
        };
        // A relay's result from a round in which others of its machine did less does not show what it can do while they
        // are measured.
        let is_shared = waiting.machine.is_some();
        let turn =
            turn.map(|turn| if is_shared { Attempt { passed: Rate::ZERO, ..turn } } else { turn });
        if let Some(turn) = turn.filter(|_| !self.returns_follow_ups) {
            self.queue(Waiting { turn, ..waiting });
        }
        turn
    }

    /// The next measurement to start now. Call it until it returns `None`.
    pub fn poll_launch(&mut self) -> Option<Launch> {
        if let Some(waiting) = self.launching.and_then(|machine| self.take_of(machine)) {
            return Some(self.launch(waiting));
        }
        self.launching = None;
        if let Some(place) = self.due.iter().position(|due| !self.waits_for_zone(due)) {
            let fits = self.due.get(place).is_some_and(|due| self.fits(due));
            return if fits { self.due.remove(place).map(|due| self.launch(due)) } else { None };
        }
        if let Some(place) = self.old.iter().position(|waiting| self.fits(waiting)) {
            let chosen = self.old.remove(place)?;
            pass_over(self.old.iter_mut().take(place));
            self.collect_due();
            return Some(self.launch(chosen));
        }
        let place = self.new.iter().position(|waiting| self.fits(waiting))?;
        let chosen = self.new.remove(place)?;
        pass_over(self.old.iter_mut().chain(self.new.iter_mut().take(place)));
        self.collect_due();
        Some(self.launch(chosen))
    }

    /// Sets the capacity of a measurer that is lost (zero), has returned or has become faster. Running measurements
    /// keep their shares.
    pub fn set_capacity(&mut self, measurer: MeasurerId, capacity: Rate) {
        if let Some(known) = self.capacities.get_mut(measurer.0) {
            *known = capacity;
        }
    }

    /// The capacity that each measurer has left.
    #[must_use]
    pub fn residuals(&self) -> Vec<Rate> {
        let both = self.capacities.iter().zip(&self.used);
        both.map(|(capacity, used)| capacity.saturating_sub(*used)).collect()
    }

    /// The capacity left for a relay, without measurers that cannot reach it, within its limits.
    fn residuals_for(&self, relay: RelayIndex) -> Vec<Rate> {
        self.within_zones(relay, self.without_unreachable(relay, self.residuals()))
    }

    /// The capacity of each measurer for a relay, zero if it cannot reach it, within the relay's limits.
    fn capacities_for(&self, relay: RelayIndex) -> Vec<Rate> {
        let mut rates = self.without_unreachable(relay, self.capacities.clone());
        for limit in self.limits.get(&relay).into_iter().flatten() {
            rates.iter_mut().zip(&limit.rates).for_each(|(rate, most)| *rate = (*rate).min(*most));
        }
        rates
    }

    /// The total capacity for a relay.
    fn capacity_for(&self, relay: RelayIndex) -> Rate {
        self.capacities_for(relay).into_iter().sum()
    }

    /// These rates, reduced to what the relay's limits leave now.
    fn within_zones(&self, relay: RelayIndex, mut rates: Vec<Rate>) -> Vec<Rate> {
        for limit in self.limits.get(&relay).into_iter().flatten() {
            let used = self.used_in.get(&limit.zone);
            for (place, (rate, most)) in rates.iter_mut().zip(&limit.rates).enumerate() {
                let used = used.and_then(|used| used.get(place)).copied().unwrap_or_default();
                *rate = (*rate).min(most.saturating_sub(used));
            }
        }
        rates
    }

    /// Whether a relay cannot start whatever the team has left: others use its zone, or no measurer with a share is there.
    fn waits_for_zone(&self, waiting: &Waiting) -> bool {
        if !self.limits.contains_key(&waiting.relay) {
            return false;
        }
        let needed = self.needed_together(waiting);
        let left = self.within_zones(waiting.relay, self.capacities_for(waiting.relay));
        needed == Rate::ZERO || needed > left.into_iter().sum()
    }

    /// Changes the used rates of these zones by an allocation.
    fn use_zones(
        &mut self,
        zones: &[Zone],
        allocation: &Allocation,
        change: fn(Rate, Rate) -> Rate,
    ) {
        let measurers = self.capacities.len();
        for zone in zones {
            let used = self.used_in.entry(*zone).or_insert_with(|| vec![Rate::ZERO; measurers]);
            for assignment in &allocation.assignments {
                if let Some(used) = used.get_mut(assignment.measurer.0) {
                    *used = change(*used, assignment.rate);
                }
            }
            if used.iter().all(|rate| *rate == Rate::ZERO) {
                self.used_in.remove(zone);
            }
        }
    }

    /// Zero for measurers that cannot reach a relay, unless no capacity would remain.
    fn without_unreachable(&self, relay: RelayIndex, mut rates: Vec<Rate>) -> Vec<Rate> {
        let reaches = |place: usize| !self.excluded.contains(&(relay, MeasurerId(place)));
        let has_any = |(place, capacity): (usize, &Rate)| *capacity > Rate::ZERO && reaches(place);
        if self.capacities.iter().enumerate().any(has_any) {
            let others = rates.iter_mut().enumerate().filter(|(place, _)| !reaches(*place));
            others.for_each(|(_, rate)| *rate = Rate::ZERO);
        }
        rates
    }

    /// The total capacity of the team. If it is zero, nothing is launched.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities.iter().copied().sum()
    }

    /// Measurers without capacity: they have failed, or never answered.
    #[must_use]
    pub fn lost(&self) -> Vec<MeasurerId> {
        let lost =
            self.capacities.iter().enumerate().filter(|(_, capacity)| **capacity == Rate::ZERO);
        lost.map(|(place, _)| MeasurerId(place)).collect()
    }

    /// Removes all queued relays.
    pub fn clear_queue(&mut self) -> Vec<RelayIndex> {
        let left = self.waiting().map(|waiting| waiting.relay).collect();
        self.old.clear();
        self.new.clear();
        self.due.clear();
        self.machines
            .values_mut()
            .for_each(|machine| (machine.waiting, machine.waits) = (Rate::ZERO, 0));
        self.machines.retain(|_, machine| machine.runs > 0);
        left
    }

    /// The number of relays that are being measured.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of queued relays.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.waiting().count()
    }

    /// Whether no relay is queued or being measured.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.is_empty() && self.queued() == 0
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.due.iter().chain(&self.old).chain(&self.new)
    }

    /// Removes a queued relay of this machine from the queue.
    fn take_of(&mut self, machine: MachineId) -> Option<Waiting> {
        [&mut self.due, &mut self.old, &mut self.new].into_iter().find_map(|queue| {
            let place = queue.iter().position(|waiting| waiting.machine == Some(machine))?;
            queue.remove(place)
        })
    }

    fn update_machine(
        &mut self,
        machine: Option<MachineId>,
        change: impl FnOnce(&mut MachineLoad),
    ) {
        let Some(machine) = machine else { return };
        let load = self.machines.entry(machine).or_default();
        change(load);
        if load.runs == 0 && load.waits == 0 {
            self.machines.remove(&machine);
        }
    }

    fn queue(&mut self, waiting: Waiting) {
        self.update_machine(waiting.machine, |machine| {
            machine.waiting = machine.waiting + waiting.turn.guess;
            machine.waits += 1;
        });
        match waiting.priority {
            Priority::Known => {
                // After entries of equal size.
                let guess = Reverse(waiting.turn.guess);
                let place = self.old.partition_point(|queued| Reverse(queued.turn.guess) <= guess);
                self.old.insert(place, waiting);
            }
            Priority::New => self.new.push_back(waiting),
        }
    }

    /// The capacity for it and all relays of its machine, at most the team's.
    fn needed_together(&self, waiting: &Waiting) -> Rate {
        let machine = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let guess = machine.map_or(waiting.turn.guess, |machine| machine.waiting + machine.running);
        guess.scaled(self.excess_factor).min(self.capacity_for(waiting.relay))
    }

    /// The capacity for this relay alone.
    fn needed(&self, waiting: &Waiting) -> Rate {
        let machine = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let Some(MachineLoad { waiting: others, running, .. }) = machine else {
            return self.needed_together(waiting);
        };
        let part = waiting.turn.guess.as_bit_per_s() as f64
            / (*others + *running).as_bit_per_s().max(1) as f64;
        self.needed_together(waiting).scaled(part)
    }

    /// Whether there is room for it, and for all relays that must start with it. A relay waits until a running
    /// measurement of its machine has ended.
    fn fits(&self, waiting: &Waiting) -> bool {
        let machine = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let needed = self.needed_together(waiting);
        let count = self.running.len() + machine.map_or(1, |machine| machine.waits);
        machine.is_none_or(|machine| machine.runs == 0)
            && (self.running.is_empty() || count <= self.at_once_max as usize)
            && needed > Rate::ZERO
            && needed <= self.residuals_for(waiting.relay).into_iter().sum()
    }

    /// The path of each measurer of the team to a relay.
    fn vantages(&self, relay: RelayIndex) -> Vec<MeasurerPath> {
        let vantage = |place: usize| MeasurerPath {
            host: self.hosts.get(place).copied().flatten(),
            path: self.paths.get(&(relay, MeasurerId(place))).copied().unwrap_or_default(),
        };
        (0..self.capacities.len()).map(vantage).collect()
    }

    fn collect_due(&mut self) {
        let is_due = |waiting: &Waiting| waiting.passed_over >= PASSED_OVER_MAX;
        for queue in [&mut self.old, &mut self.new] {
            self.due.extend(queue.iter().filter(|waiting| is_due(waiting)));
            queue.retain(|waiting| !is_due(waiting));
        }
    }

    fn launch(&mut self, waiting: Waiting) -> Launch {
        let needed = self.needed(&waiting);
        let vantages = self.vantages(waiting.relay);
        let is_far = vantages.iter().any(|vantage| vantage.path.rtt.is_some_and(|rtt| rtt >= FAR));
        let measurers_min = waiting.turn.measurers_min.max(if is_far { 2 } else { 1 });
        let mut residuals = self.residuals_for(waiting.relay);
        if residuals.iter().all(|residual| *residual == Rate::ZERO) {
            // Other relays of its machine use all the capacity of the measurers that reach it.
            residuals = self.within_zones(waiting.relay, self.residuals());
        }
        let allocation = allocate_among(needed, &residuals, &vantages, self.sockets, measurers_min);
        for assignment in &allocation.assignments {
            if let Some(used) = self.used.get_mut(assignment.measurer.0) {
                *used = *used + assignment.rate;
            }
        }
        let zones = self.limits.get(&waiting.relay).into_iter().flatten();
        let zones: Vec<Zone> = zones.map(|limit| limit.zone).collect();
        self.use_zones(&zones, &allocation, |used, rate| used + rate);
        let is_whole_team = self.needed_together(&waiting) >= self.capacity_for(waiting.relay);
        self.update_machine(waiting.machine, |machine| {
            machine.waiting = machine.waiting.saturating_sub(waiting.turn.guess);
            machine.waits = machine.waits.saturating_sub(1);
            machine.running = machine.running + waiting.turn.guess;
            machine.runs += 1;
        });
        self.launching = waiting.machine;
        let able = self
            .capacities_for(waiting.relay)
            .into_iter()
            .filter(|capacity| *capacity > Rate::ZERO)
            .count();
        let has_others = able > allocation.assignments.len();
        let Waiting { relay, turn, .. } = waiting;
        let participants = allocation
            .assignments
            .iter()
            .filter_map(|assignment| vantages.get(assignment.measurer.0));
        let vantages = participants.copied().collect();
        let launch = Launch { relay, turn, allocation, is_whole_team, has_others, vantages };
        let running = Running { waiting, launch: launch.clone(), zones, is_ending: false };
        self.running.insert(relay, running);
        launch
    }
}

/// The measurer that was held back by a cause of its own, if that makes a turn inconclusive; by its place.
const fn bottleneck(outcome: &Outcome) -> Option<MeasurerBottleneck> {
    match outcome {
        Outcome::Measured(Estimate {
            inconclusive: Some(Inconclusive::MeasurerLimited { bottleneck, .. }),
            ..
        }) => Some(*bottleneck),
        Outcome::Measured(_) | Outcome::Failed { .. } => None,
    }
}

fn pass_over<'a>(relays: impl Iterator<Item = &'a mut Waiting>) {
    relays.for_each(|relay| relay.passed_over += 1);
}

#[cfg(test)]
mod tests;
