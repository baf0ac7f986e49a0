//! One measurement, from its first round to its outcome: threads, links and a clock around a [`TeamMeasurement`].

use super::ordering::{self, OrderReport};
use super::{Approach, Coordinator, Progress, Request, Team, TeamError, TeamResult};
use crate::member::{MemberError, MemberReport};
use crate::plan::{Load, probe, round_trip};
use coordinator::period::{ANSWER_TIMEOUT, ProbeAnswer};
use coordinator::{
    MeasurerId, Mode, OrderTerms, Outcome, RoundOrder, TeamAction, TeamMeasurement, TeamMember,
    TeamRequest,
};
use link::{NodeThread, unix_time_s};
use onion::measure::order::OrderLink;
use onion::{Duration, Instant};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// Maximum delay until a cancellation is noticed.
const CANCEL_LATENCY: Duration = Duration::from_millis(100);

/// An event, with its round.
enum News {
    Member(MeasurerId, u32, MemberReport),
    Order(u32, OrderReport),
}

pub(super) struct Run<'t> {
    team: &'t mut Team,
    request: Request,
    rtt: Duration,
    measurement: TeamMeasurement,
    /// The coordinator's link, in echo mode.
    order: Option<NodeThread<OrderLink>>,
    /// Circuits of the round that is being prepared.
    circuits: u32,
    news: Receiver<News>,
    sender: Sender<News>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<'t> Run<'t> {
    pub(super) fn new(
        team: &'t mut Team,
        request: &Request,
        cancel: &AtomicBool,
    ) -> Result<Self, TeamError> {
        let rtt = round_trip(request.target.address);
        let asked = team_request(team, request, rtt);
        // Now, since the timeout for set-up starts with the measurement.
        for (measurer, order) in asked.expected_orders() {
            team.mates[measurer.0].member.anticipate(&order, cancel)?;
        }
        let measurement = TeamMeasurement::new(team.site.clock().now(), asked)?;
        let (sender, news) = channel();
        let request = *request;
        Ok(Self { team, request, rtt, measurement, order: None, circuits: 0, news, sender })
    }

    fn now(&self) -> Instant {
        self.team.site.clock().now()
    }

    fn stop(&mut self) {
        self.team.mates.iter_mut().for_each(|mate| mate.member.stop());
        // Last, otherwise the target would report a cancellation to the measurers.
        self.order = None;
    }

    pub(super) fn until_done(
        mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> TeamResult {
        loop {
            if cancel.load(Ordering::Relaxed) {
                // Has no effect once the measurement is over.
                self.measurement.cancel(self.now());
            }
            while let Some(action) = self.measurement.poll_action() {
                if let Some(outcome) = self.act(action, progress) {
                    let loads = self.measurement.loads().to_vec();
                    return TeamResult { outcome, course: self.measurement.course(), loads };
                }
            }
            let now = self.now();
            let timeout = self.measurement.poll_timeout();
            let timeout = timeout.map_or(CANCEL_LATENCY, |at| at.saturating_since(now));
            let news = self.news.recv_timeout(timeout.min(CANCEL_LATENCY));
            let now = self.now();
            match news {
                Ok(News::Member(measurer, round, report)) => {
                    self.measurement.handle_report(now, measurer, round, report);
                }
                Ok(News::Order(round, OrderReport::Event(event))) => {
                    self.measurement.handle_order_event(now, round, event);
                }
                Ok(News::Order(_, OrderReport::Broken(detail))) => {
                    self.measurement.handle_own_failure(now, detail);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.measurement.handle_timeout(now);
                }
            }
        }
    }

    fn act(&mut self, action: TeamAction, progress: &mut dyn FnMut(Progress)) -> Option<Outcome> {
        match action {
            TeamAction::GiveOrder(terms) => self.give_order(&terms),
            TeamAction::Prepare(measurer, order) => self.prepare(measurer, order),
            TeamAction::Start { delay, .. } => {
                let at = self.now() + delay;
                for mate in 0..self.team.mates.len() {
                    let left = at.saturating_since(self.now());
                    self.team.mates[mate].member.start(left);
                }
            }
            TeamAction::Stop => self.stop(),
            TeamAction::Probe => {
                let answer = probe(self.request.target.address, ANSWER_TIMEOUT);
                let is_answering = answer != ProbeAnswer::Silent;
                self.measurement.handle_probe(self.now(), is_answering);
            }
            // A team measures a single relay, which has no group.
            TeamAction::AwaitStart(_) => self.measurement.start_held(self.now()),
            TeamAction::Progress(news) => progress(self.with_details(news)),
            TeamAction::Done(outcome) => return Some(outcome),
        }
        None
    }

    /// Adds the number of circuits and the time, which the state machine does not know.
    fn with_details(&mut self, news: coordinator::Progress) -> Progress {
        match news {
            coordinator::Progress::Preparing { round, allocated, sockets } => {
                let circuits = std::mem::take(&mut self.circuits);
                Progress::Preparing { round, allocated, sockets, circuits }
            }
            coordinator::Progress::Started { round } => {
                Progress::Started { round, unix_time_s: unix_time_s() }
            }
            coordinator::Progress::Second { round, index, of, measured } => {
                Progress::Second { round, index, of, measured }
            }
        }
    }

    fn give_order(&mut self, terms: &OrderTerms) {
        // An earlier attempt's link closes first.
        self.order = None;
        let Approach::Echo(Coordinator { key_seed, .. }) = self.request.approach else { return };
        let mut random = [0; 24];
        self.team.rng.fill_bytes(&mut random);
        let (sender, round) = (self.sender.clone(), terms.round);
        let report = move |report| {
            // The receiver is gone once the measurement is over.
            let _ = sender.send(News::Order(round, report));
        };
        let target = self.request.target;
        match ordering::give(target, terms, key_seed, random, &self.team.site, report) {
            Ok(thread) => self.order = Some(thread),
            Err(error) => self.measurement.handle_own_failure(self.now(), error.to_string()),
        }
    }

    fn prepare(&mut self, measurer: MeasurerId, order: RoundOrder) {
        let load = Load::plan(&order, self.rtt);
        self.circuits += load.sockets * load.circuits_per_socket;
        let (sender, round) = (self.sender.clone(), self.measurement.round());
        let reports = Arc::new(move |report| {
            // The receiver is gone once the measurement is over.
            let _ = sender.send(News::Member(measurer, round, report));
        });
        let member = &mut self.team.mates[measurer.0].member;
        if let Err(MemberError(detail)) = member.prepare(order, reports) {
            self.measurement.handle_lost_measurer(self.now(), measurer, detail);
        }
    }
}

fn team_request(team: &mut Team, request: &Request, rtt: Duration) -> TeamRequest {
    let mut secret = [0; 32];
    team.rng.fill_bytes(&mut secret);
    let member = |mate: &super::Teammate| TeamMember {
        key: mate.member.key(),
        address: mate.member.address(),
        capacity: mate.capacity,
    };
    TeamRequest {
        target: request.target,
        guess: request.guess,
        defences: request.defences,
        mode: match request.approach {
            Approach::Transit => Mode::Transit,
            Approach::Echo(_) => Mode::Echo,
        },
        always_authenticate: team.options.always_authenticate,
        params: request.approach.within(team.options.params),
        path: team.options.path,
        members: team.mates.iter().map(member).collect(),
        launch: None,
        rtt,
        secret,
        awaits_start: false,
    }
}
