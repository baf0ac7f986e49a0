//! The shell of the coordinator's [`Period`] in a simulated network.

use crate::run::{Director, News};
use coordinator::period::{
    Action, Answer, Bounds, MeasurementId, MeasurerConfig, MemoryJournal, NetworkView, Now, Period,
    PeriodConfig, ProbeAnswer, Router, Timing,
};
use coordinator::{
    Consent, Defences, History, HistoryPolicy, MeasurerId, MemberReport, Params, PastEstimate,
    PathSeen, Record,
};
use onion::identity::{RelayIds, RsaId};
use onion::measure::Second;
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ClientSecond, ErrorCode, MeasurerKey, SentBack};
use onion::{Duration, Instant, Rate};
use sim::world::{HostId, ReportContent, TeamOrder, TeamReport};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// When the simulated time begins, in Unix seconds.
const BEGIN_UNIX_S: u64 = 1_800_000_000;

/// Longer than any simulated campaign: a period without slots ends when all relays are measured.
const PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);

/// The time that a killed coordinator takes to start again.
const RESTART: Duration = Duration::from_secs(10);

/// A relay to measure.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) target: HostId,
    /// Its expected capacity.
    pub(super) guess: Rate,
    /// The round-trip time to each measurer.
    pub(super) rtts: Vec<Duration>,
}

/// A coordinator and its measurers.
pub(super) struct Team {
    params: Params,
    coordinator: HostId,
    measurers: Vec<(HostId, Rate)>,
    jobs: Vec<Job>,
    /// The coordinator's process; `None` while it does not run.
    period: Option<Period>,
    journal: MemoryJournal,
    /// The number of each measurement among the hosts, with its round and its measurers.
    rounds: BTreeMap<u32, (u32, Vec<HostId>)>,
    /// The hosts' numbers of this process's measurements begin after it: every process counts from zero.
    base: u32,
    /// When the process starts.
    starts_ns: u64,
    /// When it is killed, in ascending order.
    kills_ns: VecDeque<u64>,
}

type Orders = Vec<(HostId, TeamOrder)>;

impl Team {
    /// The coordinator, and the measurers with their capacities. Nothing is measured before `starts_ns`.
    pub(super) fn new(
        params: Params,
        coordinator: HostId,
        measurers: Vec<(HostId, Rate)>,
        jobs: Vec<Job>,
        starts_ns: u64,
    ) -> Self {
        Self {
            params,
            coordinator,
            measurers,
            jobs,
            period: None,
            journal: MemoryJournal::default(),
            rounds: BTreeMap::new(),
            base: 0,
            starts_ns,
            kills_ns: VecDeque::new(),
        }
    }

    /// Kills the coordinator's process at these times after its first start.
    pub(super) fn killed_after(self, times: &[Duration]) -> Self {
        let after = |time: &Duration| self.starts_ns.saturating_add(nanos(*time));
        let mut kills_ns: Vec<u64> = times.iter().map(after).collect();
        kills_ns.sort_unstable();
        Self { kills_ns: kills_ns.into(), ..self }
    }

    /// The results of relays, in the order of the jobs.
    pub(super) fn records(&self) -> Vec<Option<Record>> {
        let mut pasts = self.journal.pasts(BEGIN_UNIX_S);
        (0..self.jobs.len()).map(|place| pasts.remove(&rsa(place))?.record).collect()
    }

    /// The number of rounds that have begun.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Starts the coordinator's process, which continues the period if there is a journal of it.
    fn start(&self, now: Now) -> Period {
        let measurer = |(place, (_, limit)): (usize, &(HostId, Rate))| MeasurerConfig {
            name: format!("measurer {place}"),
            key: key(place),
            address: address([10, 255], place),
            limit: *limit,
        };
        let config = PeriodConfig {
            bounds: Bounds { begin_unix_s: BEGIN_UNIX_S, length_s: PERIOD.as_secs(), slot_s: 1 },
            timing: Timing::Greedy,
            params: self.params,
            policy: HistoryPolicy::default(),
            measurers: self.measurers.iter().enumerate().map(measurer).collect(),
            at_once_max: None,
            echo_rounds: self.params.max_rounds,
            always_authenticate: false,
            path: None,
            measurers_min: 1,
            repeats_failures: true,
            certain: Vec::new(),
            refresh: PERIOD,
            secret: [0; 32],
        };
        let knowledge = self.journal.knowledge(&self.history(), &config.measurers, BEGIN_UNIX_S);
        Period::new(now, config, Consent::local_only(), knowledge)
    }

    /// As if every relay had been measured in the previous period, with its expected capacity.
    fn history(&self) -> History {
        let mut history = History::default();
        for (place, job) in self.jobs.iter().enumerate() {
            let estimate = PastEstimate {
                capacity: job.guess,
                measured_unix_s: BEGIN_UNIX_S - 1,
                mode: None,
                is_conclusive: None,
                sockets: None,
            };
            history.add(rsa(place), estimate);
            for (measurer, rtt) in job.rtts.iter().enumerate() {
                let path = PathSeen { rtt: Some(*rtt), ..PathSeen::default() };
                history.add_path(rsa(place), MeasurerId(measurer), path, BEGIN_UNIX_S - 1);
            }
        }
        history
    }

    fn view(&self) -> NetworkView {
        let relays = || 0..self.jobs.len();
        let router = |place: usize| Router {
            ids: RelayIds { rsa: rsa(place), ed25519: None },
            nickname: format!("relay{place}"),
            address: address([10, 0], place),
            is_authority: false,
            is_running: true,
            weight_kb_s: None,
        };
        NetworkView {
            valid_after_unix_s: BEGIN_UNIX_S,
            source: "the simulated network".to_owned(),
            signers: None,
            routers: relays().map(router).collect(),
            named: None,
            echo: relays().map(rsa).collect(),
            families: Vec::new(),
            policy_relays: None,
            defences: Defences::default(),
        }
    }

    /// Does what the period asks for.
    fn act(&mut self, now: Now, period: &mut Period, orders: &mut Orders) {
        while let Some(action) = period.poll_action() {
            match action {
                Action::FetchNetwork => period.handle_network(now, self.view(), None),
                Action::AskMeasurer(measurer) => {
                    let capacity =
                        self.measurers.get(measurer.0).map_or(Rate::ZERO, |measurer| measurer.1);
                    let answer = Answer { capacity, at_once_max: u32::MAX };
                    period.handle_measurer(now, measurer, Ok(answer));
                }
                // The measurers' round-trip times are known; the coordinator itself carries no load.
                Action::Probe { measurement, .. } => {
                    let answer = ProbeAnswer::Connected(Duration::ZERO);
                    period.handle_probe(now, measurement, answer);
                }
                Action::GiveOrder { measurement, target, terms } => {
                    let measurers: Vec<HostId> = terms
                        .measurers
                        .iter()
                        .filter_map(|measurer| self.host_of(measurer))
                        .collect();
                    let measurement = self.number(measurement);
                    self.rounds.insert(measurement, (terms.round, measurers.clone()));
                    let order = TeamOrder::Ask {
                        measurement,
                        target: self.target(target.ids.rsa),
                        measurers,
                        seconds: terms.seconds,
                        sockets: terms.sockets,
                    };
                    orders.push((self.coordinator, order));
                }
                Action::Prepare { measurement, measurer, order, .. } => {
                    let Some((host, _)) = self.measurers.get(measurer.0) else { continue };
                    let prepare = TeamOrder::Prepare {
                        measurement: self.number(measurement),
                        target: self.target(order.target.ids.rsa),
                        rate: order.rate,
                        sockets: order.sockets,
                        seconds: order.seconds,
                        held_back_s: order.held_back_s,
                    };
                    orders.push((*host, prepare));
                }
                Action::Start { measurement, .. } => {
                    let measurement = self.number(measurement);
                    let start = TeamOrder::Start { measurement };
                    orders.extend(self.members(measurement).map(|member| (member, start.clone())));
                }
                Action::Stop { measurement } => self.stop(self.number(measurement), orders),
                Action::Journal(entry) => self.journal.push(entry),
                Action::Publish(_) | Action::Event(_) | Action::Ended(_) => {}
            }
        }
    }

    fn stop(&self, measurement: u32, orders: &mut Orders) {
        let all = self.members(measurement).chain([self.coordinator]);
        orders.extend(all.map(|host| (host, TeamOrder::Stop { measurement })));
    }

    /// Kills the coordinator's process: its sessions with measurers and its connections to relays close.
    fn kill(&mut self, now_ns: u64, orders: &mut Orders) {
        self.period = None;
        for measurement in self.rounds.range(self.base..).map(|(number, _)| *number) {
            self.stop(measurement, orders);
        }
        self.base = self.rounds.keys().next_back().map_or(self.base, |last| last + 1);
        self.starts_ns = now_ns.saturating_add(nanos(RESTART));
    }

    /// The hosts' number of one of this process's measurements.
    const fn number(&self, MeasurementId(id): MeasurementId) -> u32 {
        self.base + id
    }

    fn members(&self, measurement: u32) -> impl Iterator<Item = HostId> {
        self.rounds.get(&measurement).into_iter().flat_map(|(_, hosts)| hosts.iter().copied())
    }

    fn host_of(&self, wanted: &MeasurerKey) -> Option<HostId> {
        let place = (0..self.measurers.len()).find(|place| key(*place) == *wanted)?;
        self.measurers.get(place).map(|measurer| measurer.0)
    }

    fn target(&self, relay: RsaId) -> HostId {
        self.jobs.get(place_of(relay)).map_or(HostId(u32::MAX), |job| job.target)
    }

    fn handle(&self, now: Now, period: &mut Period, report: &TeamReport) {
        // A report on a measurement of a killed process is too late.
        let Some(id) = report.measurement.checked_sub(self.base) else { return };
        let Some((round, members)) = self.rounds.get(&report.measurement) else { return };
        let measurement = MeasurementId(id);
        let place = self.measurers.iter().position(|(host, _)| *host == report.from);
        let order_event = match (&report.content, place.map(MeasurerId)) {
            (ReportContent::Accepted, _) => OrderEvent::Accepted,
            (ReportContent::Refused(detail), _) => {
                let (code, text) = (ErrorCode::CALLED_OFF, detail.clone());
                OrderEvent::Failed(OrderFailure::Refused { code, text })
            }
            (ReportContent::Client { second, sent_bytes, sent_back_bytes }, None) => {
                let client = ClientSecond {
                    second: u16::try_from(*second).unwrap_or(u16::MAX),
                    received_bytes: *sent_bytes,
                    sent_bytes: *sent_bytes,
                };
                let sent = members.iter().zip(sent_back_bytes);
                let sent = sent.filter_map(|(host, bytes)| {
                    let place = self.measurers.iter().position(|measurer| measurer.0 == *host)?;
                    Some(SentBack { measurer: key(place), bytes: *bytes })
                });
                OrderEvent::ClientSecond(client, sent.collect())
            }
            (ReportContent::Ready(open), Some(measurer)) => {
                let ready = MemberReport::Ready { sockets: *open };
                return period.handle_report(now, measurement, measurer, *round, ready);
            }
            (ReportContent::Sockets(open), Some(measurer)) => {
                return period.handle_sockets(now, measurement, measurer, *open);
            }
            (ReportContent::Second { second, bytes }, Some(measurer)) => {
                // Simulated cells have no contents: the number of checked cells is that of real measurers.
                let (index, checked_cells) = (*second, bytes / (514 * 125));
                let second = Second { index, bytes: *bytes, checked_cells };
                let report = MemberReport::Second(second, None);
                return period.handle_report(now, measurement, measurer, *round, report);
            }
            _ => return,
        };
        period.handle_order_event(now, measurement, *round, order_event);
    }
}

/// An identity that contains the relay's index in the network.
fn rsa(place: usize) -> RsaId {
    let mut id = [0; 20];
    id[12..].copy_from_slice(&(place as u64).to_be_bytes());
    RsaId(id)
}

fn place_of(RsaId(id): RsaId) -> usize {
    let mut place = [0; 8];
    place.copy_from_slice(&id[12..]);
    usize::try_from(u64::from_be_bytes(place)).unwrap_or(usize::MAX)
}

/// The address of each of up to 65,536 hosts.
fn address([a, b]: [u8; 2], place: usize) -> SocketAddr {
    let [.., c, d] = place.to_be_bytes();
    ([a, b, c, d], 9001).into()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn key(place: usize) -> MeasurerKey {
    let mut key = [0; 32];
    key[24..].copy_from_slice(&(place as u64 + 1).to_be_bytes());
    MeasurerKey(key)
}

impl Director for Team {
    fn direct(&mut self, now_ns: u64, news: News, orders: &mut Orders) {
        let unix = Duration::from_secs(BEGIN_UNIX_S) + Duration::from_nanos(now_ns);
        let now = Now { instant: Instant::from_nanos(now_ns), unix };
        if now_ns < self.starts_ns {
            return;
        }
        if self.kills_ns.front().is_some_and(|at| *at <= now_ns) {
            self.kills_ns.pop_front();
            return self.kill(now_ns, orders);
        }
        let mut period = self.period.take().unwrap_or_else(|| self.start(now));
        for report in &news.reports {
            self.handle(now, &mut period, report);
            self.act(now, &mut period, orders);
        }
        period.handle_timeout(now);
        self.act(now, &mut period, orders);
        self.period = Some(period);
    }

    fn is_over(&self) -> bool {
        self.period.as_ref().is_some_and(Period::is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COORDINATOR: HostId = HostId(10);
    const MEASURERS: [HostId; 3] = [HostId(11), HostId(12), HostId(13)];

    /// The orders to the measurers of a relay with this expected capacity and these round trips to each of them.
    fn prepared(mbit: f64, rtts_ms: [u64; 3]) -> Vec<(HostId, TeamOrder)> {
        let rate = Rate::from_mbit_per_s;
        let measurers = MEASURERS.iter().map(|host| (*host, rate(1000.0))).collect();
        let rtts = rtts_ms.map(Duration::from_millis).into();
        let jobs = vec![Job { target: HostId(1), guess: rate(mbit), rtts }];
        let mut team = Team::new(Params::default(), COORDINATOR, measurers, jobs, 0);
        let mut orders = Vec::new();
        team.direct(1, News::default(), &mut orders);
        let [(host, TeamOrder::Ask { measurement, .. })] = orders[..] else { panic!("{orders:?}") };
        assert_eq!(host, COORDINATOR);
        let accepted = TeamReport {
            from: COORDINATOR,
            measurement,
            at_ns: 2,
            content: ReportContent::Accepted,
        };
        let mut orders = Vec::new();
        team.direct(2, News { reports: vec![accepted], ..News::default() }, &mut orders);
        orders
    }

    #[test]
    fn a_distant_relay_is_measured_by_two_in_halves_after_a_lead_with_sockets_for_each_path() {
        let orders = prepared(90.0, [20, 200, 20]);
        let prepared = orders.iter().map(|(host, order)| match order {
            TeamOrder::Prepare { sockets, seconds, held_back_s, .. } => {
                (*host, *sockets, *seconds, *held_back_s)
            }
            other => panic!("{other:?}"),
        });
        let prepared: Vec<_> = prepared.collect();
        assert!(prepared.len() >= 2, "{prepared:?}");
        assert!(prepared.iter().all(|order| (order.2, order.3) == (34, Some(19))), "{prepared:?}");
        let sockets: u32 = prepared.iter().map(|order| order.1).sum();
        assert!((100..=160).contains(&sockets), "by the farthest: {prepared:?}");
    }

    #[test]
    fn a_slow_relay_has_few_sockets_and_one_next_door_no_halves() {
        let sockets = |mbit, rtts_ms| {
            let orders = prepared(mbit, rtts_ms).into_iter();
            let prepared = orders.map(|(_, order)| match order {
                TeamOrder::Prepare { sockets, held_back_s, .. } => (sockets, held_back_s),
                other => panic!("{other:?}"),
            });
            prepared.collect::<Vec<_>>()
        };
        let slow = sockets(0.3, [20, 100, 200]);
        assert_eq!(slow.iter().map(|order| order.0).sum::<u32>(), 8, "{slow:?}");
        assert!(sockets(0.3, [1, 1, 1]).iter().all(|socket| socket.1.is_none()));
    }
}
