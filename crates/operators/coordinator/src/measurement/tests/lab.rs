//! A relay and its measurers in virtual time.

use super::*;
use crate::account::Account;
use std::boxed::Box;
use std::format;
use std::string::String;

/// The account of a second in which nothing came back, though the relay had data to send and its host answered.
pub(super) fn in_reach() -> Account {
    Account {
        elapsed: Duration::from_secs(1),
        outstanding_bytes: 1000,
        silent: Duration::from_secs(1),
        answered_after: Some(Duration::from_millis(500)),
        ..Account::default()
    }
}

/// A relay of a certain capacity under load; its measurers report honestly.
pub(super) struct Lab {
    /// Bytes per second that the relay forwards in a second, clients included.
    pub(super) capacity: Box<dyn Fn(u32) -> u64>,
    /// The demand of its clients, in bytes per second.
    pub(super) clients: u64,
    /// The relay's false report of client bytes per second, if it lies.
    pub(super) client_report: Option<u64>,
    /// A measurer that does not report that it is ready.
    pub(super) never_ready: Option<usize>,
    /// A measurer and the second that it does not report.
    pub(super) unreported: Option<(usize, u32)>,
    /// A round for which no measurer reports that it is ready.
    pub(super) never_ready_in: Option<u32>,
    /// The number of rounds that the relay allows.
    pub(super) rounds_allowed: Option<u32>,
    /// A measurer that gets nothing back.
    pub(super) deaf: Option<usize>,
    /// The rate that the path lets each socket carry, in bytes per second.
    pub(super) per_socket: Option<u64>,
    /// The reduction of the relay's rate, in bytes per second, for each socket beyond sixteen, as with C tor.
    pub(super) slowed_per_socket: u64,
    /// Sockets start at nine times their rate, and the excess halves every four seconds, as after slow start.
    pub(super) is_settling: bool,
    /// The round trip that the measurers' kernels report, if any.
    pub(super) rtt: Option<Duration>,
    /// A measurer that is farther than that.
    pub(super) farther: Option<(usize, Duration)>,
    /// A measurer behind a bottleneck of its own: the rate of that, in bytes per second, and its queueing delay.
    pub(super) narrow: Option<(usize, u64, Duration)>,
    /// The queueing delay on the relay's own link.
    pub(super) relays_queue: Duration,
    /// A measurer that claims this number of bytes in each second.
    pub(super) claims: Option<(usize, u64)>,
    /// The relay's reports of bytes sent back to each measurer, in percent of the true number; `None` without reports.
    pub(super) reported_percent: Option<u64>,
    /// A measurer whose processor is busy all the time.
    pub(super) busy: Option<usize>,
    /// Sockets open of 100 assigned.
    pub(super) open_percent: u32,
    /// The orders to the measurers, a line each.
    pub(super) log: Vec<String>,
}

impl Lab {
    pub(super) fn new(capacity: impl Fn(u32) -> u64 + 'static) -> Self {
        Self {
            capacity: Box::new(capacity),
            clients: 0,
            client_report: None,
            never_ready: None,
            unreported: None,
            never_ready_in: None,
            rounds_allowed: None,
            deaf: None,
            per_socket: None,
            slowed_per_socket: 0,
            is_settling: false,
            rtt: None,
            farther: None,
            narrow: None,
            claims: None,
            reported_percent: None,
            busy: None,
            relays_queue: Duration::ZERO,
            open_percent: 100,
            log: vec![],
        }
    }

    /// Runs a measurement to its end. Time passes only where it must.
    pub(super) fn run(&mut self, measurement: &mut Measurement) -> Outcome {
        let mut now = Instant::ORIGIN;
        let mut prepared = vec![];
        let mut held_back = None;
        loop {
            while let Some(action) = measurement.poll_action() {
                match action {
                    Action::Prepare { round, assignments, held_back_s, .. } => {
                        held_back = held_back_s;
                        let rates: Vec<String> = assignments
                            .iter()
                            .map(|assignment| format!("{}", assignment.rate))
                            .collect();
                        self.log.push(format!("prepare {round}: {}", rates.join(" + ")));
                        if self.rounds_allowed.is_some_and(|allowed| round > allowed) {
                            let reason = Failure::RelayNotNow { detail: String::new() };
                            measurement.handle_failure(now, None, reason);
                        }
                        let is_heard = self.never_ready_in != Some(round);
                        for assignment in assignments.iter().filter(|_| is_heard) {
                            if self.never_ready != Some(assignment.measurer.0) {
                                let open = assignment.sockets * self.open_percent / 100;
                                measurement.handle_ready(now, assignment.measurer, round, open);
                            }
                        }
                        prepared = assignments;
                    }
                    Action::Start { round } => {
                        self.log.push(format!("start {round}"));
                        now = self.flood(measurement, now, (round, held_back), &prepared);
                    }
                    Action::Stop { round } => self.log.push(format!("stop {round} at {now}")),
                    Action::Done(outcome) => return outcome,
                }
            }
            now = measurement.poll_timeout().expect("not done, so there is a timeout");
            measurement.handle_timeout(now);
        }
    }

    fn flood(
        &self,
        measurement: &mut Measurement,
        start: Instant,
        (round, held_back_s): (u32, Option<u32>),
        assignments: &[Assignment],
    ) -> Instant {
        let mut now = start;
        for second in 0..measurement.params().round_s() {
            now += Duration::from_secs(1);
            let deaf = |assignment: &&Assignment| self.deaf != Some(assignment.measurer.0);
            let is_half = held_back_s.is_some_and(|from| second < from);
            let sockets = |assignment: &Assignment| {
                assignment.sockets - if is_half { assignment.sockets / 2 } else { 0 }
            };
            let open: u64 =
                assignments.iter().map(|assignment| u64::from(sockets(assignment))).sum();
            let more = if self.is_settling { 8 >> (second / 4).min(4) } else { 0 };
            let way = self.per_socket.map_or(u64::MAX, |each| each * open * (1 + more));
            let load: u64 = assignments.iter().filter(deaf).map(bytes).sum();
            let capacity = (self.capacity)(second);
            let capacity = capacity - self.slowed_per_socket * open.saturating_sub(16);
            let clients = match measurement.mode() {
                // The relay holds its clients under r.
                Mode::Echo => self.clients.min(capacity / 4),
                Mode::Transit => self.clients.min(capacity),
            };
            let relayed = load.min(way).min(capacity - clients);
            let part = |of: u64, share: u64, whole: u64| {
                u64::try_from(u128::from(of) * u128::from(share) / u128::from(whole.max(1)))
                    .unwrap()
            };
            // The others get the capacity that one measurer's bottleneck leaves unused.
            let narrow = self.narrow.map_or(usize::MAX, |narrow| narrow.0);
            let held: Option<(u64, u64)> = assignments
                .iter()
                .filter(|assignment| assignment.measurer.0 == narrow)
                .zip(self.narrow)
                .map(|(assignment, (_, most, _))| {
                    (bytes(assignment), part(relayed, bytes(assignment), load).min(most))
                })
                .next();
            let (held_load, held_got) = held.unwrap_or_default();
            let others_load = load - held_load;
            let others = (relayed - held_got).min(others_load);
            for assignment in assignments {
                let is_narrow = assignment.measurer.0 == narrow;
                let share =
                    if is_narrow { held_got } else { part(others, bytes(assignment), others_load) };
                let share = if deaf(&assignment) { share } else { 0 };
                if let Some(percent) = self.reported_percent {
                    measurement.handle_sent_back(round, assignment.measurer, share * percent / 100);
                }
                let claimed = self.claims.filter(|liar| liar.0 == assignment.measurer.0);
                let share = claimed.map_or(share, |liar| liar.1);
                let own =
                    self.narrow.filter(|_| is_narrow).map_or(Duration::ZERO, |narrow| narrow.2);
                let wait = self.relays_queue + own;
                if self.busy == Some(assignment.measurer.0) {
                    measurement.handle_busy(assignment.measurer, round, 1.0);
                }
                if self.unreported != Some((assignment.measurer.0, second)) {
                    let report = SecondReport {
                        round,
                        second,
                        bytes: share,
                        checked_cells: 2,
                        account: self
                            .rtt
                            .map(|rtt| {
                                let farther =
                                    self.farther.filter(|far| far.0 == assignment.measurer.0);
                                let rtt = farther.map_or(rtt, |far| far.1);
                                let (min_rtt, mean_rtt) = (Some(rtt), Some(rtt + wait));
                                // All queued data waits on the path.
                                let (outstanding_bytes, unacked_bytes) = (1000, 900);
                                let account = Account {
                                    outstanding_bytes,
                                    unacked_bytes,
                                    ..Account::default()
                                };
                                Account { min_rtt, mean_rtt, ..account }
                            })
                            .or_else(|| (share == 0).then(in_reach)),
                    };
                    measurement.handle_second(now, assignment.measurer, report);
                }
            }
            if measurement.mode() == Mode::Echo {
                let report = self.client_report.unwrap_or(clients);
                measurement.handle_client_second(now, round, second, report);
            }
            if measurement.is_done() || measurement.round() != round {
                break;
            }
        }
        now
    }
}

fn bytes(assignment: &Assignment) -> u64 {
    assignment.rate.as_byte_per_s()
}

pub(super) fn mbit(mbit: f64) -> Rate {
    Rate::from_mbit_per_s(mbit)
}

/// A relay of steady capacity.
pub(super) fn relay(capacity: f64) -> Lab {
    let bytes = mbit(capacity).as_byte_per_s();
    Lab::new(move |_| bytes)
}

pub(super) fn measurement(mode: Mode, guess: f64, team: &[f64]) -> Measurement {
    measurement_with(quiet(), mode, guess, team)
}

pub(super) fn measurement_with(
    params: Params,
    mode: Mode,
    guess: f64,
    team: &[f64],
) -> Measurement {
    let team = team.iter().copied().map(mbit).collect();
    Measurement::new(Instant::ORIGIN, params, mode, mbit(guess), team).unwrap()
}

pub(super) fn estimate(outcome: Outcome) -> Estimate {
    match outcome {
        Outcome::Measured(estimate) => estimate,
        Outcome::Failed { .. } => panic!("{outcome}"),
    }
}

/// The parameters for a relay without clients.
pub(super) fn quiet() -> Params {
    Params { may_have_clients: false, ..Params::default() }
}
