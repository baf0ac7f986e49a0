//! A relay and its measurers, each at its distance and behind its own bottleneck, in virtual time.

use super::records::record;
use super::*;
use crate::account::Account;
use crate::measurer_path::MeasurerPath;
use crate::record::Record;
use crate::{Campaign, History, HistoryPolicy, PastEstimate, Priority, RelayIndex};
use onion::identity::RsaId;

/// The kind of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Excess packets are queued, and some of them dropped.
    Queue,
    /// Excess packets are dropped at once.
    Policer,
    /// It is on the return path: cells wait in the relay.
    ReturnPath,
}

/// The path between a measurer and the relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) host: u32,
    pub(super) rtt_ms: u64,
    /// Lost packets per million.
    pub(super) loss_ppm: u64,
    /// A bottleneck of its own.
    pub(super) bottleneck: Option<(Rate, Kind)>,
}

impl Path {
    /// A path of this length without loss, from a host of its own.
    pub(super) fn new(host: u32, rtt_ms: u64) -> Self {
        Self { host, rtt_ms, loss_ppm: 0, bottleneck: None }
    }

    /// The rate of Reno on one socket, in bytes per second (Mathis et al., 1997), as far as its buffers permit.
    fn per_socket(&self) -> f64 {
        let loss = self.loss_ppm.max(1) as f64 / 1e6;
        let in_flight = (1.22 * 1448.0 / loss.sqrt()).min(2e6);
        in_flight / (self.rtt_ms.max(1) as f64 / 1000.0)
    }
}

/// A relay, and the paths of the team to it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) capacity: Rate,
    /// The relay's link is the bottleneck, with a queue: Reno's flows share it by their round trips.
    pub(super) is_link: bool,
    pub(super) paths: Vec<Path>,
    /// A host with several measurers, and the rate of its link, which has a queue.
    pub(super) host_link: Option<(u32, Rate)>,
}

/// The delay and the loss of a full queue.
const QUEUE: Duration = Duration::from_millis(80);
const QUEUE_LOSS_PPM: u64 = 1000;

/// Divides a rate max-min fairly among demands with weights.
fn fill(wants: &[(f64, f64)], whole: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| (wants[*a].0 / wants[*a].1).total_cmp(&(wants[*b].0 / wants[*b].1)));
    let mut weights: f64 = wants.iter().map(|(_, weight)| *weight).sum();
    let (mut left, mut got) = (whole, vec![0.0; wants.len()]);
    for place in order {
        let (want, weight) = wants[place];
        got[place] = want.min(left * weight / weights);
        left -= got[place];
        weights -= weight;
    }
    got
}

#[expect(clippy::cast_possible_truncation, reason = "rates and shares are small")]
#[expect(clippy::cast_sign_loss, reason = "rates and shares are not negative")]
fn whole(number: f64) -> u64 {
    number as u64
}

impl Scene {
    /// A relay of this capacity, seen over these paths.
    pub(super) fn new(capacity: f64, paths: &[Path]) -> Self {
        Self { capacity: mbit(capacity), is_link: false, paths: paths.to_vec(), host_link: None }
    }

    /// Runs a measurement by these members of the team to its end.
    pub(super) fn run(&self, measurement: &mut Measurement, members: &[usize]) -> Outcome {
        let mut now = Instant::ORIGIN;
        let mut prepared = (vec![], None);
        loop {
            match measurement.poll_action() {
                Some(Action::Prepare { round, assignments, held_back_s, .. }) => {
                    for assignment in &assignments {
                        measurement.handle_ready(
                            now,
                            assignment.measurer,
                            round,
                            assignment.sockets,
                        );
                    }
                    prepared = (assignments, held_back_s);
                }
                Some(Action::Start { round }) => {
                    for second in 0..measurement.params().round_s() {
                        now += Duration::from_secs(1);
                        self.second(measurement, now, (round, second), &prepared, members);
                        if measurement.is_done() || measurement.round() != round {
                            break;
                        }
                    }
                }
                Some(Action::Stop { .. }) => {}
                Some(Action::Done(outcome)) => return outcome,
                None => {
                    now = measurement.poll_timeout().expect("not done, so there is a timeout");
                    measurement.handle_timeout(now);
                }
            }
        }
    }

    fn second(
        &self,
        measurement: &mut Measurement,
        now: Instant,
        (round, second): (u32, u32),
        (assignments, held_back_s): &(Vec<Assignment>, Option<u32>),
        members: &[usize],
    ) {
        let is_half = held_back_s.is_some_and(|from| second < from);
        let paths: Vec<Path> = assignments
            .iter()
            .map(|assignment| self.paths[members[assignment.measurer.0]])
            .collect();
        let sockets = |assignment: &Assignment| {
            assignment.sockets - if is_half { assignment.sockets / 2 } else { 0 }
        };
        let weights: Vec<f64> =
            assignments.iter().map(|assignment| f64::from(sockets(assignment))).collect();
        // On its own path.
        let mut wants: Vec<(f64, f64)> = vec![];
        for ((assignment, path), weight) in assignments.iter().zip(&paths).zip(&weights) {
            let narrow = path
                .bottleneck
                .map_or(f64::INFINITY, |bottleneck| bottleneck.0.as_byte_per_s() as f64);
            let assigned = assignment.rate.as_byte_per_s() as f64;
            wants.push((assigned.min(path.per_socket() * weight).min(narrow), *weight));
        }
        // On the link that it shares with others of its host.
        let is_at = |path: &Path| self.host_link.is_some_and(|link| link.0 == path.host);
        let mut is_link_full = false;
        if let Some((_, rate)) = self.host_link {
            let places: Vec<usize> =
                (0..paths.len()).filter(|place| is_at(&paths[*place])).collect();
            let theirs: Vec<(f64, f64)> = places.iter().map(|place| wants[*place]).collect();
            let whole = rate.as_byte_per_s() as f64;
            is_link_full = theirs.iter().map(|(want, _)| *want).sum::<f64>() > whole;
            for (place, got) in places.into_iter().zip(fill(&theirs, whole)) {
                wants[place].0 = got;
            }
        }
        if self.is_link {
            for (want, path) in wants.iter_mut().zip(&paths) {
                want.1 /= path.rtt_ms.max(1) as f64;
            }
        }
        let capacity = self.capacity.as_byte_per_s() as f64;
        let is_full = wants.iter().map(|(want, _)| *want).sum::<f64>() > capacity;
        let all = fill(&wants, capacity);
        for (((assignment, path), want), got) in assignments.iter().zip(&paths).zip(&wants).zip(all)
        {
            let is_kept_back = got < 0.999 * want.0;
            let narrow =
                path.bottleneck.filter(|(rate, _)| got >= 0.95 * rate.as_byte_per_s() as f64);
            let kind = narrow.map(|narrow| narrow.1);
            let is_queued = kind == Some(Kind::Queue)
                || (is_link_full && is_at(path) && !is_kept_back)
                || (is_full && self.is_link);
            let is_at_relay = kind == Some(Kind::ReturnPath) || (is_kept_back && !self.is_link);
            let loss_ppm = match kind {
                Some(Kind::Policer) => {
                    let window = got * path.rtt_ms as f64 / 1000.0 / f64::from(sockets(assignment));
                    whole((1.22 * 1448.0 / window).powi(2).min(0.1) * 1e6)
                }
                _ if is_queued => QUEUE_LOSS_PPM,
                _ => path.loss_ppm,
            };
            let min_rtt = Duration::from_millis(path.rtt_ms);
            let is_throttled = got >= 0.98 * assignment.rate.as_byte_per_s() as f64;
            let time = Duration::from_secs(1);
            let bytes = whole(got);
            let account = Account {
                elapsed: time,
                pump_time: time,
                throttled: if is_throttled { time } else { Duration::ZERO },
                min_rtt: Some(min_rtt),
                mean_rtt: Some(min_rtt + if is_queued { QUEUE } else { Duration::ZERO }),
                sent_bytes: bytes,
                retransmitted_bytes: bytes * loss_ppm / 1_000_000,
                outstanding_bytes: 1000,
                unacked_bytes: if is_at_relay { 100 } else { 900 },
                ..Account::default()
            };
            let account = Some(account);
            let report = SecondReport { round, second, bytes, checked_cells: 1, account };
            measurement.handle_second(now, assignment.measurer, report);
        }
        if measurement.mode() == Mode::Echo {
            measurement.handle_client_second(now, round, second, 0);
        }
    }
}

/// The results of a relay in a period.
pub(super) struct Period {
    pub(super) record: Record,
    pub(super) estimate: Estimate,
    /// The members that took part in each turn, each with its Mbit/s.
    pub(super) turns: Vec<Vec<(usize, f64)>>,
}

/// A coordinator with its team and its history, which measures relays period by period.
pub(super) struct Coordinator {
    team: Vec<Rate>,
    hosts: Vec<Option<u32>>,
    history: History,
    now_unix_s: u64,
}

impl Coordinator {
    pub(super) fn new(team: &[f64], hosts: &[u32]) -> Self {
        let hosts = hosts.iter().copied().map(Some).collect();
        let team = team.iter().copied().map(mbit).collect();
        Self { team, hosts, history: History::default(), now_unix_s: 1_800_000_000 }
    }

    /// Measures a relay, first with this guess and later by its history. A day passes.
    pub(super) fn measure(
        &mut self,
        relay: u8,
        scene: &Scene,
        guess: f64,
        params: Params,
    ) -> Period {
        let (id, rsa) = (RelayIndex(usize::from(relay)), RsaId([relay; 20]));
        let expectations = self.history.expectations(HistoryPolicy::default(), self.now_unix_s);
        let known = expectations.first_guess(rsa);
        let is_old = known.priority() == Priority::Known;
        let guess = if is_old { known.capacity } else { mbit(guess) };
        let team = self.team.clone();
        let campaign = Campaign::new(params.excess_factor(), params.sockets, team);
        let mut campaign = campaign.at_hosts(self.hosts.clone());
        for (measurer, path) in expectations.paths(rsa, &self.team) {
            campaign.expect_path(id, measurer, path);
        }
        let turn = Attempt::first(guess, params.max_rounds).with_sockets(known.sockets_min);
        campaign.add_turn(id, known.priority(), turn);
        let (mut whole, mut last, mut turns) = (None::<Record>, None, vec![]);
        while let Some(launch) = campaign.poll_launch() {
            let assignments = &launch.allocation.assignments;
            let members: Vec<usize> =
                assignments.iter().map(|assignment| assignment.measurer.0).collect();
            let shares: Vec<Rate> = assignments.iter().map(|assignment| assignment.rate).collect();
            let rates = shares.iter().map(|share| share.as_mbit_per_s());
            turns.push(members.iter().copied().zip(rates).collect());
            let mut measurement =
                Measurement::of_launch(Instant::ORIGIN, params, Mode::Transit, &launch, shares)
                    .expect("valid");
            let outcome = scene.run(&mut measurement, &members);
            let turn = record(&measurement, &outcome).in_team(&launch.allocation);
            let turn = Record { ended_unix_s: self.now_unix_s, ..turn };
            for (measurer, path) in turn.paths() {
                campaign.handle_path(id, measurer, path);
                self.history.add_path(rsa, measurer, path, self.now_unix_s);
            }
            // Otherwise the observations of two turns would have the same time.
            self.now_unix_s += 60;
            last = Some(estimate(outcome.clone()));
            whole = Some(match whole {
                Some(earlier) => earlier.followed_by(turn),
                None => turn,
            });
            campaign.handle_outcome(id, &outcome);
        }
        let record = whole.expect("there is a team");
        self.history.add(rsa, PastEstimate::of(&record).expect("an estimate"));
        self.now_unix_s += 24 * 3600;
        Period { record, estimate: last.expect("a turn"), turns }
    }
}

impl Period {
    /// The estimate, relative to the relay's capacity.
    pub(super) fn ratio(&self, scene: &Scene) -> f64 {
        self.estimate.capacity.as_mbit_per_s() / scene.capacity.as_mbit_per_s()
    }
}

/// Measures a relay by a whole team, in all the rounds that it needs. `knows_hosts`: whether the coordinator knows the
/// measurers' hosts.
pub(super) fn measure_by_all(
    scene: &Scene,
    guess: f64,
    team: &[f64],
    knows_hosts: bool,
    params: Params,
) -> (Estimate, Measurement) {
    let host = |path: &Path| MeasurerPath {
        host: knows_hosts.then_some(path.host),
        ..MeasurerPath::default()
    };
    let mut measurement = Measurement::from_vantages(
        Instant::ORIGIN,
        params,
        Mode::Transit,
        mbit(guess),
        team.iter().copied().map(mbit).collect(),
        scene.paths.iter().map(host).collect(),
    )
    .expect("valid");
    let members: Vec<usize> = (0..team.len()).collect();
    let outcome = scene.run(&mut measurement, &members);
    (estimate(outcome), measurement)
}
