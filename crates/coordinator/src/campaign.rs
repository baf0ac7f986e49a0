//! Several relays at once, within the team's capacity (§4.2, §4.3).

use crate::allocation::{Allocation, MeasurerId, allocate_among};
use crate::bottleneck::MeasurerBottleneck;
use crate::failure::{Blame, Failure};
use crate::measurer_path::{MeasurerPath, PathSeen};
use crate::outcome::{Estimate, Inconclusive, Outcome};
use crate::socket_ramp::FAR;
use crate::turn::Attempt;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::Rate;

/// A relay of a campaign, by a number of the shell's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayIndex(pub usize);

/// How a relay gets into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Measured before: the largest come first.
    Known,
    /// Not measured for long: first come, first served, after the old ones.
    New,
}

/// A measurement to be started now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Of which relay.
    pub relay: RelayIndex,
    /// Which of its rounds it is, and what to expect of the relay.
    pub turn: Attempt,
    /// Which measurers take part, with how much of their capacity, until
    /// [`handle_outcome`](Campaign::handle_outcome).
    pub allocation: Allocation,
    /// The whole team takes part, so that another round could not have more.
    pub is_whole_team: bool,
    /// From where each of those who take part sees the relay, in the allocation's order.
    pub vantages: Vec<MeasurerPath>,
}

/// What is to follow on a measurement that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the relay is done.
    Nothing,
    /// It takes more than it had: this turn. Launched with the whole team, it is done all the same, unless
    /// the turn has more sockets.
    Enlarged(Attempt),
    /// A measurer failed it, or the relay had no room for its circuits: the same once more, as often as its rounds allow.
    Repeated,
    /// The relay declined it: the same at another time, once in a period, if the caller has times ([`Campaign::leaving_what_follows`]).
    Declined,
}

impl Next {
    /// What follows on an outcome.
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

/// What the end of a measurement meant to its campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// That was all about this relay; if not, it will be launched again.
    pub is_over: bool,
    /// The measurer that failed it. It has no capacity any more, until
    /// [`Campaign::set_capacity`] gives it some.
    pub lost: Option<MeasurerId>,
    /// The turn that has to follow, if the campaign leaves to its caller when that is
    /// ([`Campaign::leaving_what_follows`]).
    pub follows: Option<Attempt>,
}

/// A relay is passed over at most so often by others that come after it but need less. Then it is due:
/// nothing starts before it.
const PASSED_OVER_MAX: u32 = 8;

/// The measurements of many relays by one team, several at once.
///
/// A state machine without clock. A relay starts when the team has *f·z₀* left for it, or all that
/// the team has at all. Its share is its own until it ends, and is never more than what each measurer
/// has left, so that no measurer is ever asked for more than its capacity. Old relays come first, the
/// biggest of them before the others; relays that fit beside them may go before one that does not, but
/// not for long, so that none starves.
///
/// Which measurers a relay has, most residual capacity first, is the same wherever it is, but for what is known of their paths to
/// it: whom its path held back is asked for little more than it got, if others have the rest; and of a relay that is far from any of
/// them there are two, at different hosts if the team has two. So what its distance does to a measurement is not taken for what the
/// relay can do.
///
/// After `new`, and after each [`add`](Self::add), [`handle_outcome`](Self::handle_outcome) and
/// [`set_capacity`](Self::set_capacity): call [`poll_launch`](Self::poll_launch) until `None`, and start what it says.
#[derive(Clone, Debug)]
pub struct Campaign {
    excess_factor: f64,
    sockets: u32,
    capacities: Vec<Rate>,
    /// Relays that are measured at once, at most.
    at_once_max: u32,
    /// What those that run have of each measurer.
    used: Vec<Rate>,
    old: Vec<Waiting>,
    new: VecDeque<Waiting>,
    /// In the order in which they became due.
    due: VecDeque<Waiting>,
    leaves_what_follows: bool,
    running: BTreeMap<RelayIndex, Running>,
    /// Those with a relay that waits or runs.
    machines: BTreeMap<MachineId, Sharing>,
    machines_added: u32,
    /// A relay of it was launched, and the others that wait are to be launched before anything else.
    begun: Option<MachineId>,
    /// Which host each measurer is at, where that is known.
    hosts: Vec<Option<u32>>,
    paths: BTreeMap<(RelayIndex, MeasurerId), PathSeen>,
    /// Those of them that a turn of this campaign has shown.
    shown: BTreeSet<(RelayIndex, MeasurerId)>,
    /// Measurers that no longer take part in measurements of a relay: they could not reach it and others could, or they failed in another
    /// way that the relay can cause.
    left_out: BTreeSet<(RelayIndex, MeasurerId)>,
    /// The machines whose relays had a measurer left out by what they say or send back, each by the first of its relays.
    accusers: BTreeMap<MeasurerId, BTreeSet<RelayIndex>>,
    /// The first relay of each relay's machine, of those that were added together.
    machine_of: BTreeMap<RelayIndex, RelayIndex>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    relay: RelayIndex,
    turn: Attempt,
    standing: Priority,
    passed_over: u32,
    /// Which machine it shares, if it does.
    machine: Option<MachineId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MachineId(u32);

/// What is expected of the relays of a machine.
#[derive(Clone, Copy, Debug, Default)]
struct Sharing {
    /// Of those that wait.
    waiting: Rate,
    /// Of those that run.
    running: Rate,
    /// How many run.
    runs: usize,
    /// How many wait.
    waits: usize,
}

#[derive(Clone, Debug)]
struct Running {
    waiting: Waiting,
    launch: Launch,
}

impl Campaign {
    /// A campaign without relays. `capacities` holds what each measurer of the team has,
    /// `excess_factor` is *f* and `sockets` *s* (see [`Params`](crate::Params)).
    #[must_use]
    pub fn new(excess_factor: f64, sockets: u32, capacities: Vec<Rate>) -> Self {
        Self {
            excess_factor,
            sockets,
            used: vec![Rate::ZERO; capacities.len()],
            capacities,
            at_once_max: u32::MAX,
            old: Vec::new(),
            new: VecDeque::new(),
            due: VecDeque::new(),
            leaves_what_follows: false,
            running: BTreeMap::new(),
            machines: BTreeMap::new(),
            machines_added: 0,
            begun: None,
            hosts: Vec::new(),
            paths: BTreeMap::new(),
            shown: BTreeSet::new(),
            left_out: BTreeSet::new(),
            accusers: BTreeMap::new(),
            machine_of: BTreeMap::new(),
        }
    }

    /// The same with measurers at these hosts, by their places in the team: equal numbers are one host; see
    /// [`MeasurerPath::host`].
    #[must_use]
    pub fn at_hosts(self, hosts: Vec<Option<u32>>) -> Self {
        Self { hosts, ..self }
    }

    /// So many relays are measured at once at most from now on, whatever the capacity; but a machine with more relays than that is
    /// measured all the same, alone. Without this there is no such bound.
    pub const fn set_at_once_max(&mut self, at_once_max: u32) {
        self.at_once_max = at_once_max;
    }

    /// The same, for a caller that has a plan of its own: a turn that follows on another is not queued, but told by
    /// [`handle_outcome`](Self::handle_outcome), and added by [`add_turn`](Self::add_turn) when its time has come.
    #[must_use]
    pub fn leaving_what_follows(self) -> Self {
        Self { leaves_what_follows: true, ..self }
    }

    /// Adds a relay, to be measured in `rounds_max` rounds at most, at least one. It must not be waiting
    /// or running already; if it is, nothing happens.
    pub fn add(&mut self, relay: RelayIndex, standing: Priority, guess: Rate, rounds_max: u32) {
        self.add_turn(relay, standing, Attempt::first(guess, rounds_max));
    }

    /// The same with any turn.
    pub fn add_turn(&mut self, relay: RelayIndex, standing: Priority, turn: Attempt) {
        self.add_machine(&[(relay, standing, turn)]);
    }

    /// The same of relays that share a machine: they are launched one right after the other, as soon as there is room for all of them. If the
    /// team has not as much as all of them need together, each gets a part of all that it has, by what is expected of it: one after the other,
    /// each would have the machine for itself.
    pub fn add_machine(&mut self, turns: &[(RelayIndex, Priority, Attempt)]) {
        self.machines_added += 1;
        let machine = (turns.len() > 1).then_some(MachineId(self.machines_added));
        if let Some(first) =
            turns.iter().map(|(relay, ..)| *relay).min().filter(|_| machine.is_some())
        {
            self.machine_of.extend(turns.iter().map(|(relay, ..)| (*relay, first)));
        }
        for (relay, standing, turn) in turns.iter().copied() {
            let is_known = self.waiting().any(|it| it.relay == relay);
            if !is_known && !self.running.contains_key(&relay) {
                self.queue(Waiting { relay, turn, standing, passed_over: 0, machine });
            }
        }
    }

    /// What a measurer has seen of its path to a relay in an earlier period. What it shows in this campaign counts more, before and after.
    pub fn expect_path(&mut self, relay: RelayIndex, measurer: MeasurerId, path: PathSeen) {
        if !self.shown.contains(&(relay, measurer)) {
            self.paths.insert((relay, measurer), path);
        }
    }

    /// What a measurer has seen of it in the turn that has just ended ([`Record::paths`](crate::Record::paths)), before
    /// [`handle_outcome`](Self::handle_outcome). The latest counts.
    pub fn handle_path(&mut self, relay: RelayIndex, measurer: MeasurerId, path: PathSeen) {
        self.shown.insert((relay, measurer));
        self.paths.insert((relay, measurer), path);
    }

    /// A measurement has ended so: its share is free again, what has to follow is queued, and a measurer
    /// that failed it gets no work. A relay can bring about some of these failures ([`Failure::may_be_relays_doing`]): then the measurer is left out for this
    /// relay only. It is lost to all if relays of two machines say that it miscounts. The outcome numbers the measurers by their places in the launch's
    /// allocation, as [`Measurement::of_turn`](crate::Measurement::of_turn) does.
    pub fn handle_outcome(&mut self, relay: RelayIndex, outcome: &Outcome) -> Ended {
        let failed = match outcome {
            Outcome::Failed { reason, measurer, .. } if reason.blame() == Blame::Measurer => {
                *measurer
            }
            Outcome::Failed { .. } | Outcome::Measured(_) => None,
        };
        let launch = self.running.get(&relay).map(|it| &it.launch);
        let member = |place| launch.and_then(|it| it.allocation.member(place));
        let failed = failed.and_then(member);
        let hindered = hindered(outcome).and_then(|it| Some((member(it.measurer)?, it.got)));
        let lost = failed.filter(|it| self.is_lost(relay, *it, outcome));
        if let Some(measurer) = lost {
            self.set_capacity(measurer, Rate::ZERO);
        }
        if let Some((measurer, got)) = hindered {
            // Also where it was busy, which is no matter of the path, and not remembered for later periods.
            self.shown.insert((relay, measurer));
            self.paths.entry((relay, measurer)).or_default().held_back = Some(got);
        }
        let follows = self.end(relay, Next::after(outcome));
        Ended {
            is_over: follows.is_none(),
            lost,
            follows: follows.filter(|_| self.leaves_what_follows),
        }
    }

    /// Whether a measurer that failed a relay is of no use for others either.
    fn is_lost(&mut self, relay: RelayIndex, measurer: MeasurerId, outcome: &Outcome) -> bool {
        let Outcome::Failed { reason, .. } = outcome else { return false };
        if !reason.may_be_relays_doing() {
            return true;
        }
        self.left_out.insert((relay, measurer));
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

    /// As [`handle_outcome`](Self::handle_outcome), where the caller judges for itself. Says whether that
    /// was all about this relay.
    pub fn handle_end(&mut self, relay: RelayIndex, next: Next) -> bool {
        self.end(relay, next).is_none()
    }

    /// The turn that follows, which is queued unless the caller sees to that.
    fn end(&mut self, relay: RelayIndex, next: Next) -> Option<Attempt> {
        let Running { waiting, launch } = self.running.remove(&relay)?;
        self.share(waiting.machine, |it| {
            it.running = it.running.saturating_sub(waiting.turn.guess);
            it.runs -= 1;
        });
        for assignment in &launch.allocation.assignments {
            if let Some(used) = self.used.get_mut(assignment.measurer.0) {
                *used = *used - assignment.rate;
            }
        }
        let turn = match next {
            Next::Enlarged(turn)
                if !launch.is_whole_team || turn.widening > waiting.turn.widening =>
            {
                Some(turn)
            }
            Next::Repeated => waiting.turn.repeated(),
            Next::Declined if self.leaves_what_follows => waiting.turn.after_decline(),
            Next::Nothing | Next::Enlarged(_) | Next::Declined => None,
        };
        // What a relay did in a round in which others of its machine did less says nothing of what it can do beside them.
        let is_shared = waiting.machine.is_some();
        let turn = turn.map(|it| if is_shared { Attempt { passed: Rate::ZERO, ..it } } else { it });
        if let Some(turn) = turn.filter(|_| !self.leaves_what_follows) {
            self.queue(Waiting { turn, ..waiting });
        }
        turn
    }

    /// The next measurement to start now; call until `None`.
    pub fn poll_launch(&mut self) -> Option<Launch> {
        if let Some(waiting) = self.begun.and_then(|machine| self.take_of(machine)) {
            return Some(self.launch(waiting));
        }
        self.begun = None;
        if let Some(first) = self.due.front() {
            let fits = self.fits(first);
            return if fits { self.due.pop_front().map(|it| self.launch(it)) } else { None };
        }
        if let Some(place) = self.old.iter().position(|it| self.fits(it)) {
            let chosen = self.old.remove(place);
            pass_over(self.old.iter_mut().take(place));
            self.gather_due();
            return Some(self.launch(chosen));
        }
        let place = self.new.iter().position(|it| self.fits(it))?;
        let chosen = self.new.remove(place)?;
        pass_over(self.old.iter_mut().chain(self.new.iter_mut().take(place)));
        self.gather_due();
        Some(self.launch(chosen))
    }

    /// A measurer is lost (zero), or is back, or is faster than it was. Measurements that run keep what
    /// they have.
    pub fn set_capacity(&mut self, measurer: MeasurerId, capacity: Rate) {
        if let Some(known) = self.capacities.get_mut(measurer.0) {
            *known = capacity;
        }
    }

    /// What each measurer has left now.
    #[must_use]
    pub fn residuals(&self) -> Vec<Rate> {
        let both = self.capacities.iter().zip(&self.used);
        both.map(|(capacity, used)| capacity.saturating_sub(*used)).collect()
    }

    /// The same for a relay, without those that can't reach it.
    fn residuals_for(&self, relay: RelayIndex) -> Vec<Rate> {
        self.of_those_who_reach(relay, self.residuals())
    }

    /// What those have at all that can reach it.
    fn capacity_for(&self, relay: RelayIndex) -> Rate {
        self.of_those_who_reach(relay, self.capacities.clone()).into_iter().sum()
    }

    /// Nothing for those that can't reach a relay, unless that leaves nobody with anything.
    fn of_those_who_reach(&self, relay: RelayIndex, mut rates: Vec<Rate>) -> Vec<Rate> {
        let reaches = |place: usize| !self.left_out.contains(&(relay, MeasurerId(place)));
        let has_any = |(place, capacity): (usize, &Rate)| *capacity > Rate::ZERO && reaches(place);
        if self.capacities.iter().enumerate().any(has_any) {
            let others = rates.iter_mut().enumerate().filter(|(place, _)| !reaches(*place));
            others.for_each(|(_, rate)| *rate = Rate::ZERO);
        }
        rates
    }

    /// What the team has at all; with none, nothing is launched.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities.iter().copied().sum()
    }

    /// Measurers without capacity: they have failed, or never answered.
    #[must_use]
    pub fn lost(&self) -> Vec<MeasurerId> {
        let lost = self.capacities.iter().enumerate().filter(|(_, it)| **it == Rate::ZERO);
        lost.map(|(place, _)| MeasurerId(place)).collect()
    }

    /// Gives up all relays that wait.
    pub fn clear_queue(&mut self) -> Vec<RelayIndex> {
        let left = self.waiting().map(|it| it.relay).collect();
        self.old.clear();
        self.new.clear();
        self.due.clear();
        self.machines.values_mut().for_each(|it| (it.waiting, it.waits) = (Rate::ZERO, 0));
        self.machines.retain(|_, it| it.runs > 0);
        left
    }

    /// Relays that are being measured.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Relays that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.waiting().count()
    }

    /// Whether no relay waits or is being measured.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.is_empty() && self.queued() == 0
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.due.iter().chain(&self.old).chain(&self.new)
    }

    /// A relay of this machine that waits, which waits no more.
    fn take_of(&mut self, machine: MachineId) -> Option<Waiting> {
        let is_of_it = |it: &Waiting| it.machine == Some(machine);
        if let Some(place) = self.due.iter().position(is_of_it) {
            return self.due.remove(place);
        }
        if let Some(place) = self.old.iter().position(is_of_it) {
            return Some(self.old.remove(place));
        }
        let place = self.new.iter().position(is_of_it)?;
        self.new.remove(place)
    }

    fn share(&mut self, machine: Option<MachineId>, change: impl FnOnce(&mut Sharing)) {
        let Some(machine) = machine else { return };
        let sharing = self.machines.entry(machine).or_default();
        change(sharing);
        if sharing.runs == 0 && sharing.waits == 0 {
            self.machines.remove(&machine);
        }
    }

    fn queue(&mut self, waiting: Waiting) {
        self.share(waiting.machine, |it| {
            it.waiting = it.waiting + waiting.turn.guess;
            it.waits += 1;
        });
        match waiting.standing {
            Priority::Known => {
                // Behind its equals.
                let guess = Reverse(waiting.turn.guess);
                let place = self.old.partition_point(|it| Reverse(it.turn.guess) <= guess);
                self.old.insert(place, waiting);
            }
            Priority::New => self.new.push_back(waiting),
        }
    }

    /// What it takes, with all that share its machine; all that the team has, if that is less.
    fn needed_together(&self, waiting: &Waiting) -> Rate {
        let sharing = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let guess = sharing.map_or(waiting.turn.guess, |it| it.waiting + it.running);
        guess.scaled(self.excess_factor).min(self.capacity_for(waiting.relay))
    }

    /// What it takes itself.
    fn needed(&self, waiting: &Waiting) -> Rate {
        let sharing = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let Some(Sharing { waiting: others, running, .. }) = sharing else {
            return self.needed_together(waiting);
        };
        let part = waiting.turn.guess.as_bit_per_s() as f64
            / (*others + *running).as_bit_per_s().max(1) as f64;
        self.needed_together(waiting).scaled(part)
    }

    /// Whether there is room for it, and for all that have to begin with it. One whose machine is being measured waits for
    /// the end of that.
    fn fits(&self, waiting: &Waiting) -> bool {
        let sharing = waiting.machine.and_then(|machine| self.machines.get(&machine));
        let needed = self.needed_together(waiting);
        let count = self.running.len() + sharing.map_or(1, |it| it.waits);
        sharing.is_none_or(|it| it.runs == 0)
            && (self.running.is_empty() || count <= self.at_once_max as usize)
            && needed > Rate::ZERO
            && needed <= self.residuals_for(waiting.relay).into_iter().sum()
    }

    /// From where each measurer of the team sees a relay.
    fn vantages(&self, relay: RelayIndex) -> Vec<MeasurerPath> {
        let vantage = |place: usize| MeasurerPath {
            host: self.hosts.get(place).copied().flatten(),
            path: self.paths.get(&(relay, MeasurerId(place))).copied().unwrap_or_default(),
        };
        (0..self.capacities.len()).map(vantage).collect()
    }

    fn gather_due(&mut self) {
        let is_due = |it: &Waiting| it.passed_over >= PASSED_OVER_MAX;
        self.due.extend(self.old.extract_if(.., |it| is_due(it)));
        self.due.extend(self.new.iter().filter(|it| is_due(it)));
        self.new.retain(|it| !is_due(it));
    }

    fn launch(&mut self, waiting: Waiting) -> Launch {
        let needed = self.needed(&waiting);
        let vantages = self.vantages(waiting.relay);
        let is_far = vantages.iter().any(|it| it.path.rtt.is_some_and(|rtt| rtt >= FAR));
        let measurers_min = waiting.turn.measurers_min.max(if is_far { 2 } else { 1 });
        let mut residuals = self.residuals_for(waiting.relay);
        if residuals.iter().all(|it| *it == Rate::ZERO) {
            // Others of its machine have all that those have who reach it.
            residuals = self.residuals();
        }
        let allocation = allocate_among(needed, &residuals, &vantages, self.sockets, measurers_min);
        for assignment in &allocation.assignments {
            if let Some(used) = self.used.get_mut(assignment.measurer.0) {
                *used = *used + assignment.rate;
            }
        }
        let is_whole_team = self.needed_together(&waiting) >= self.capacity_for(waiting.relay);
        self.share(waiting.machine, |it| {
            it.waiting = it.waiting.saturating_sub(waiting.turn.guess);
            it.waits = it.waits.saturating_sub(1);
            it.running = it.running + waiting.turn.guess;
            it.runs += 1;
        });
        self.begun = waiting.machine;
        let Waiting { relay, turn, .. } = waiting;
        let theirs = allocation.assignments.iter().filter_map(|it| vantages.get(it.measurer.0));
        let vantages = theirs.copied().collect();
        let launch = Launch { relay, turn, allocation, is_whole_team, vantages };
        self.running.insert(relay, Running { waiting, launch: launch.clone() });
        launch
    }
}

/// The measurer that something of its own has held back, if that is why a turn is not conclusive; by its place.
const fn hindered(outcome: &Outcome) -> Option<MeasurerBottleneck> {
    match outcome {
        Outcome::Measured(Estimate {
            inconclusive: Some(Inconclusive::MeasurerHindered { hindered, .. }),
            ..
        }) => Some(*hindered),
        Outcome::Measured(_) | Outcome::Failed { .. } => None,
    }
}

fn pass_over<'a>(those: impl Iterator<Item = &'a mut Waiting>) {
    those.for_each(|it| it.passed_over += 1);
}

#[cfg(test)]
mod tests;
