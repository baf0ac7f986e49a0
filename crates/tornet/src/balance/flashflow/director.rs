//! What a shell does for the coordinator's decisions, in a world.

use crate::run::{Director, News};
use coordinator::{
    Action, Allocation, Campaign, Failure, Launch, Measurement, MeasurerId, Mode, Outcome, Params,
    PathParams, PathSeen, RelayId, SecondReport, Standing, Vantage,
};
use onion::{Duration, Instant, Rate};
use sim::world::{HostId, TeamNews, TeamOrder, TeamReport};
use std::collections::BTreeMap;

/// A relay that is to be measured.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) target: HostId,
    /// What is expected of it.
    pub(super) guess: Rate,
    /// How far it is from each measurer.
    pub(super) rtts: Vec<Duration>,
}

/// A coordinator and its measurers.
pub(super) struct Team {
    params: Params,
    coordinator: HostId,
    measurers: Vec<HostId>,
    campaign: Campaign,
    jobs: Vec<Job>,
    outcomes: Vec<Option<Outcome>>,
    running: BTreeMap<u32, Running>,
    /// Measurements that have begun: the number of the next.
    launched: u32,
    begins_ns: u64,
    /// Nothing runs and nothing can: the team has lost its measurers.
    is_stuck: bool,
}

struct Running {
    relay: RelayId,
    /// Of the team.
    allocation: Allocation,
    measurement: Measurement,
    prepared: Option<Action>,
}

type Orders = Vec<(HostId, TeamOrder)>;

impl Team {
    /// `hosts`: the coordinator, then the measurers, who have these capacities. Nothing is measured before `begins_ns`.
    pub(super) fn new(
        params: &Params,
        (hosts, capacities): (Vec<HostId>, Vec<Rate>),
        jobs: Vec<Job>,
        begins_ns: u64,
    ) -> Self {
        // Each measurer has a host of its own.
        let places = (0..).zip(&capacities).map(|(place, _)| Some(place)).collect();
        let mut campaign =
            Campaign::new(params.excess_factor(), params.sockets, capacities).at_hosts(places);
        let least = coordinator::HistoryPolicy::default().least;
        for (place, job) in jobs.iter().enumerate() {
            let relay = RelayId(place);
            for (measurer, rtt) in job.rtts.iter().enumerate() {
                let path = PathSeen { rtt: Some(*rtt), ..PathSeen::default() };
                campaign.expect_path(relay, MeasurerId(measurer), path);
            }
            campaign.add(relay, Standing::Old, job.guess.max(least), params.max_rounds);
        }
        let (coordinator, measurers) = hosts.split_first().map_or_else(
            || (HostId(u32::MAX), Vec::new()),
            |(first, rest)| (*first, rest.to_vec()),
        );
        Self {
            params: *params,
            coordinator,
            measurers,
            campaign,
            outcomes: jobs.iter().map(|_| None).collect(),
            jobs,
            running: BTreeMap::new(),
            launched: 0,
            begins_ns,
            is_stuck: false,
        }
    }

    pub(super) fn outcomes(&self) -> &[Option<Outcome>] {
        &self.outcomes
    }

    /// Rounds that have begun.
    pub(super) const fn rounds(&self) -> u32 {
        self.launched
    }

    fn launch(&mut self, now: Instant, launch: Launch, orders: &mut Orders) {
        let shares = launch.allocation.assignments.iter().map(|it| it.rate).collect();
        let Params { seconds, .. } = self.params;
        let rate = launch.turn.guess.scaled(self.params.excess_factor());
        // All have told, as of the period before.
        let rtt = Vantage::distance(Duration::ZERO, &launch.vantages);
        let rate = rate.min(self.campaign.capacity());
        let path = PathParams::at_distance(Mode::Echo, rate, rtt, seconds);
        let params = Params { path, ..self.params };
        let made = Measurement::of_launch(now, params, Mode::Echo, &launch, shares);
        let Launch { relay, allocation, .. } = launch;
        match made {
            Ok(measurement) => {
                let number = self.launched;
                self.launched += 1;
                let running = Running { relay, allocation, measurement, prepared: None };
                self.running.insert(number, running);
                self.act(number, orders);
            }
            Err(error) => {
                let reason = Failure::CoordinatorBroken { detail: error.to_string() };
                let outcome = Outcome::Failed { reason, measurer: None, round: 1, second: None };
                self.campaign.handle_outcome(relay, &outcome);
                self.outcomes[relay.0] = Some(outcome);
            }
        }
    }

    /// Does what a measurement asks for.
    fn act(&mut self, number: u32, orders: &mut Orders) {
        let measurement = number;
        loop {
            let Some(it) = self.running.get_mut(&number) else { return };
            let hosts = hosts(&self.measurers, &it.allocation);
            let Some(action) = it.measurement.poll_action() else { return };
            match action {
                Action::Prepare { ref assignments, seconds, .. } => {
                    let sockets: u32 = assignments.iter().map(|it| it.sockets).sum();
                    orders.push((
                        self.coordinator,
                        TeamOrder::Ask {
                            measurement,
                            target: self.jobs[it.relay.0].target,
                            measurers: hosts,
                            seconds: u16::try_from(seconds).unwrap_or(u16::MAX),
                            sockets: u16::try_from(sockets).unwrap_or(u16::MAX),
                        },
                    ));
                    it.prepared = Some(action);
                }
                Action::Start { .. } => {
                    orders.extend(hosts.iter().map(|it| (*it, TeamOrder::Start { measurement })));
                }
                Action::Stop { .. } => {
                    let all = hosts.iter().chain([&self.coordinator]);
                    orders.extend(all.map(|it| (*it, TeamOrder::Stop { measurement })));
                }
                Action::Done(outcome) => {
                    let relay = it.relay;
                    self.running.remove(&number);
                    // Also what had not begun to run.
                    let all = hosts.iter().chain([&self.coordinator]);
                    orders.extend(all.map(|it| (*it, TeamOrder::Stop { measurement })));
                    self.campaign.handle_outcome(relay, &outcome);
                    self.outcomes[relay.0] = Some(outcome);
                    return;
                }
            }
        }
    }

    fn handle(&mut self, now: Instant, report: &TeamReport, orders: &mut Orders) {
        let Some(it) = self.running.get_mut(&report.measurement) else { return };
        let hosts = hosts(&self.measurers, &it.allocation);
        let place = hosts.iter().position(|host| *host == report.from).map(MeasurerId);
        let round = it.measurement.round();
        match (&report.news, place) {
            (TeamNews::Accepted, _) => {
                let target = self.jobs[it.relay.0].target;
                let Some(Action::Prepare { assignments, seconds, held_back_s, .. }) =
                    it.prepared.take()
                else {
                    return;
                };
                for assigned in assignments {
                    let order = TeamOrder::Prepare {
                        measurement: report.measurement,
                        target,
                        rate: assigned.rate,
                        sockets: assigned.sockets,
                        seconds,
                        held_back_s,
                    };
                    orders.push((hosts[assigned.measurer.0], order));
                }
            }
            (TeamNews::Refused(detail), _) => {
                let failure = Failure::RelayClosed { detail: detail.clone() };
                it.measurement.handle_failure(now, None, failure);
            }
            (TeamNews::Ready(open), Some(place)) => {
                it.measurement.handle_ready(now, place, round, *open);
            }
            (TeamNews::Sockets(open), Some(place)) => {
                it.measurement.handle_sockets(now, place, round, *open);
            }
            (TeamNews::Second { second, bytes }, Some(place)) => {
                let (second, bytes) = (*second, *bytes);
                // Simulated measurers have no cells to look at: they check as many as real ones would.
                let checked_cells = bytes / (514 * 125);
                let report = SecondReport { round, second, bytes, checked_cells, account: None };
                it.measurement.handle_second(now, place, report);
            }
            (TeamNews::Client { second, sent_bytes, sent_back_bytes }, None) => {
                for (place, bytes) in sent_back_bytes.iter().enumerate() {
                    it.measurement.handle_sent_back(round, MeasurerId(place), *bytes);
                }
                it.measurement.handle_client_second(now, round, *second, *sent_bytes);
            }
            _ => {}
        }
        self.act(report.measurement, orders);
    }

    fn handle_timeouts(&mut self, now: Instant, orders: &mut Orders) {
        let is_due = |it: &Running| it.measurement.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<u32> =
            self.running.iter().filter(|(_, it)| is_due(it)).map(|(number, _)| *number).collect();
        for number in due {
            if let Some(it) = self.running.get_mut(&number) {
                it.measurement.handle_timeout(now);
            }
            self.act(number, orders);
        }
    }
}

/// The hosts of those who take part, by their places in the measurement.
fn hosts(measurers: &[HostId], allocation: &Allocation) -> Vec<HostId> {
    allocation.assignments.iter().map(|it| measurers[it.measurer.0]).collect()
}

impl Director for Team {
    fn direct(&mut self, now_ns: u64, told: News, orders: &mut Orders) {
        let now = Instant::from_nanos(now_ns);
        for report in &told.reports {
            self.handle(now, report, orders);
        }
        self.handle_timeouts(now, orders);
        if now_ns >= self.begins_ns {
            while let Some(launch) = self.campaign.poll_launch() {
                self.launch(now, launch, orders);
            }
            self.is_stuck = self.running.is_empty();
        }
    }

    fn is_over(&self) -> bool {
        self.campaign.is_over() || self.is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COORDINATOR: HostId = HostId(10);
    const MEASURERS: [HostId; 3] = [HostId(11), HostId(12), HostId(13)];

    /// What measurers of a relay, of which so much is expected and which is so far from each of them, are told to prepare.
    fn prepared(mbit: f64, rtts_ms: [u64; 3]) -> Vec<(HostId, TeamOrder)> {
        let rate = Rate::from_mbit_per_s;
        let hosts = [COORDINATOR].into_iter().chain(MEASURERS).collect();
        let rtts = rtts_ms.map(Duration::from_millis).into();
        let jobs = vec![Job { target: HostId(1), guess: rate(mbit), rtts }];
        let params = Params::default();
        let mut team = Team::new(&params, (hosts, vec![rate(1000.0); 3]), jobs, 0);
        let mut orders = Vec::new();
        team.direct(1, News::default(), &mut orders);
        let [(host, TeamOrder::Ask { measurement, .. })] = orders[..] else { panic!("{orders:?}") };
        assert_eq!(host, COORDINATOR);
        let accepted =
            TeamReport { from: COORDINATOR, measurement, at_ns: 2, news: TeamNews::Accepted };
        let mut orders = Vec::new();
        team.direct(2, News { reports: vec![accepted], ..News::default() }, &mut orders);
        orders
    }

    #[test]
    fn a_far_relay_is_measured_by_two_in_halves_after_a_lead_with_sockets_for_the_way_of_each() {
        let orders = prepared(90.0, [20, 200, 20]);
        let told = orders.iter().map(|(host, order)| match order {
            TeamOrder::Prepare { sockets, seconds, held_back_s, .. } => {
                (*host, *sockets, *seconds, *held_back_s)
            }
            other => panic!("{other:?}"),
        });
        let told: Vec<_> = told.collect();
        assert!(told.len() >= 2, "{told:?}");
        assert!(told.iter().all(|it| (it.2, it.3) == (34, Some(19))), "{told:?}");
        let sockets: u32 = told.iter().map(|it| it.1).sum();
        assert!((100..=160).contains(&sockets), "by the farthest: {told:?}");
    }

    #[test]
    fn a_slow_relay_has_few_sockets_and_one_next_door_no_halves() {
        let told = |mbit, rtts_ms| {
            let orders = prepared(mbit, rtts_ms).into_iter();
            let told = orders.map(|(_, order)| match order {
                TeamOrder::Prepare { sockets, held_back_s, .. } => (sockets, held_back_s),
                other => panic!("{other:?}"),
            });
            told.collect::<Vec<_>>()
        };
        let slow = told(0.3, [20, 100, 200]);
        assert_eq!(slow.iter().map(|it| it.0).sum::<u32>(), 8, "{slow:?}");
        assert!(told(0.3, [1, 1, 1]).iter().all(|it| it.1.is_none()));
    }
}
