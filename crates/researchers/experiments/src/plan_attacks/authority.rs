//! A bandwidth authority: the coordinator's own slot schedule, measurement and history, for one relay.

use super::authorities::{PlanKind, RELAY, SLOTS, World};
use crate::mode::Mode;
use coordinator::period::Bounds;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::policy::network_of;
use coordinator::{
    Action, Arrival, Attempt, Due, Facts, History, HistoryPolicy, Measurement, Next, Outcome,
    Params, PastEstimate, ROUNDS_ALLOWED, Record, RoundHistory, SecondReport, SlotSchedule,
    Subject,
};
use onion::identity::{RelayIds, RsaId};
use onion::{Duration, Instant, Rate};
use std::net::Ipv4Addr;

/// The capacity of an authority's team, which has room for any number of relays.
const TEAM: Rate = Rate::from_bit_per_s(1_000_000_000_000);

/// A bandwidth authority's coordinator.
pub(super) struct Authority {
    world: World,
    seed: Seed,
    teams: Vec<TeamRoom>,
    /// Its place among the teams.
    own: usize,
    params: Params,
    policy: HistoryPolicy,
    history: History,
    schedule: Option<SlotSchedule>,
    /// The result of this period.
    record: Option<Record>,
}

impl Authority {
    pub(super) fn new(world: World, place: usize, common: Seed, separate: Seed) -> Self {
        let room = TeamRoom::of(TEAM);
        let (seed, teams, own) = match world.has_shared_seed {
            true => (common, vec![room; world.authorities], place),
            false => (separate, vec![room], 0),
        };
        let params = match (world.plan, world.mode) {
            (PlanKind::Paper, _) | (_, Mode::Transit) => Params::default(),
            (_, Mode::Echo) => Params::default().within_quota(ROUNDS_ALLOWED),
        };
        let (policy, history) = (HistoryPolicy::default(), History::default());
        Self { world, seed, teams, own, params, policy, history, schedule: None, record: None }
    }

    /// Plans a period, as `coordinator::period` does.
    pub(super) fn begin(&mut self, bounds: Bounds) {
        let Self { world, teams, own, params, policy, .. } = self;
        let begin_unix_s = bounds.begin_unix_s;
        let kept = self.history.kept(policy, RELAY, None, begin_unix_s);
        let guess = self.history.expectations(*policy, begin_unix_s).first_guess(RELAY);
        let first = Attempt::first(guess.capacity, params.max_rounds);
        let is_confirmed = world.plan == PlanKind::Memoryless;
        let arrival = Arrival {
            relay: RELAY,
            together: RELAY,
            priority: guess.priority(),
            first_seen_unix_s: 0,
            network: network_of(Ipv4Addr::LOCALHOST.into()),
            turn: if is_confirmed { first.with_recent(guess.recent) } else { first },
            is_done: false,
            is_pending: false,
            due_by: kept.map_or(Some(u32::MAX), |estimate| {
                bounds.due_by(estimate.measured_unix_s, policy.kept_for)
            }),
        };
        let seed = self.seed.of_period(begin_unix_s, bounds.length_s);
        let factor = params.excess_factor();
        let plan = match world.plan {
            PlanKind::Paper => SlotSchedule::among,
            PlanKind::Memoryless | PlanKind::Unconfirmed => SlotSchedule::memoryless,
        };
        self.schedule = Some(plan(&seed, SLOTS, teams, *own, factor, &[arrival], 0));
        self.record = None;
    }

    pub(super) fn poll_due(&mut self, slot: u32) -> Option<Due> {
        self.schedule.as_mut()?.poll_due(slot).pop()
    }

    pub(super) fn measure(&mut self, due: Due, slot: u32, now_unix_s: u64, rate: Rate) {
        let World { plan, mode, .. } = self.world;
        let measurement = match plan {
            // The paper repeats rounds at once (§4.2).
            PlanKind::Paper => {
                let (mode, team) = (of_coordinator(mode), vec![TEAM]);
                Measurement::new(Instant::ORIGIN, self.params, mode, due.turn.guess, team).ok()
            }
            PlanKind::Memoryless | PlanKind::Unconfirmed => turn(self.params, mode, due.turn),
        };
        let measured = measurement.and_then(|measurement| measure(measurement, |_| rate));
        let Some((outcome, rounds)) = measured else { return };
        let record = record(RELAY, now_unix_s, due.turn.round, &outcome, rounds);
        let follows = match Next::after(&outcome) {
            Next::Enlarged(turn) if plan != PlanKind::Paper => Some(turn),
            Next::Enlarged(_) | Next::Nothing | Next::Repeated | Next::Declined => None,
        };
        self.history.add_record(&record, now_unix_s);
        if let Some(schedule) = &mut self.schedule {
            schedule.handle_end(RELAY, follows, slot);
        }
        self.record = Some(match self.record.take() {
            Some(earlier) => earlier.followed_by(record),
            None => record,
        });
    }

    /// What it votes: the result of this period, or an earlier one that is still valid.
    pub(super) fn estimate(&self, now_unix_s: u64) -> Option<Rate> {
        let record = self.record.as_ref();
        let kept = self.history.kept(&self.policy, RELAY, record, now_unix_s);
        kept.or_else(|| record.and_then(PastEstimate::of)).map(|estimate| estimate.capacity)
    }
}

/// A turn of a measurement, by one of a team's measurers. `None` if the turn has no load.
pub(super) fn turn(params: Params, mode: Mode, turn: Attempt) -> Option<Measurement> {
    let load = turn.guess.scaled(params.excess_factor());
    Measurement::of_turn(Instant::ORIGIN, params, of_coordinator(mode), turn, false, vec![load])
        .ok()
}

/// Runs a measurement of a relay that has this rate in each second of a round.
pub(super) fn measure(
    mut measurement: Measurement,
    mut rate: impl FnMut(u32) -> Rate,
) -> Option<(Outcome, RoundHistory)> {
    let mut now = Instant::ORIGIN;
    let mut members = Vec::new();
    loop {
        match measurement.poll_action()? {
            Action::Prepare { round, assignments, .. } => {
                for assignment in &assignments {
                    measurement.handle_ready(now, assignment.measurer, round, assignment.sockets);
                }
                members = assignments;
            }
            Action::Start { round } => {
                for second in 0..measurement.params().round_s() {
                    if measurement.is_done() || measurement.round() != round {
                        break;
                    }
                    now += Duration::from_secs(1);
                    for member in &members {
                        let bytes = rate(second).min(member.rate).as_byte_per_s();
                        // One cell in 125 is checked.
                        let checked_cells = 1 + bytes / (514 * 125);
                        let report =
                            SecondReport { round, second, bytes, checked_cells, account: None };
                        measurement.handle_second(now, member.measurer, report);
                    }
                    if measurement.mode() == coordinator::Mode::Echo {
                        measurement.handle_client_second(now, round, second, 0);
                    }
                }
            }
            Action::Stop { .. } => {}
            Action::Done(outcome) => return Some((outcome, measurement.course())),
        }
    }
}

const fn of_coordinator(mode: Mode) -> coordinator::Mode {
    match mode {
        Mode::Echo => coordinator::Mode::Echo,
        Mode::Transit => coordinator::Mode::Transit,
    }
}

/// The record of a measurement that began at this time.
pub(super) fn record(
    relay: RsaId,
    started_unix_s: u64,
    round: u32,
    outcome: &Outcome,
    rounds: RoundHistory,
) -> Record {
    let facts = Facts {
        relay: Subject {
            nickname: "relay".to_owned(),
            ids: RelayIds { rsa: relay, ed25519: None },
            address: ([192, 0, 2, 1], 9001).into(),
            limit: None,
        },
        ended_unix_s: started_unix_s + u64::from(rounds.params.seconds),
        starts: vec![(round, started_unix_s)],
    };
    Record::new(facts, rounds, outcome)
}
