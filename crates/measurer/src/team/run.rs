//! One measurement, from its first round to its outcome.

use super::ordering::{OrderReport, OrderThread, client_share, in_coordinators_terms};
use super::{Approach, Coordinator, Progress, Request, Team, TeamError, TeamResult};
use crate::load::WorkerLoad;
use crate::member::{MemberError, MemberReport, Nonce, RoundOrder, RoundPath};
use crate::plan::{Defences, Load, round_trip};
use crate::thread::Setup;
use coordinator::{
    Action, Assignment, Failure, Measurement, MeasurerId, Mode, Outcome, SecondReport, allocate,
};
use link::{DriverOptions, unix_time_s};
use onion::measure::order::{OrderConfig, OrderEvent};
use onion::measure::protocol::{CoordinatorKey, Order};
use onion::{Duration, Instant, Rate};
use rand::Rng;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// From the decision to start to the start, so that all measurers have heard of it.
const START_DELAY: Duration = Duration::from_millis(50);

/// The same where some are elsewhere.
const START_DELAY_FAR: Duration = Duration::from_millis(500);

/// Longest wait before `cancel` is looked at again.
const CANCEL_LATENCY: Duration = Duration::from_millis(100);

/// A measurer that is busier than this has nothing left.
const BUSY_MAX: f64 = 0.95;

/// How long a relay may accept an order: clocks may differ by minutes.
const ORDER_LIFETIME_S: u64 = 600;

/// What is told in a round.
enum News {
    Member(MeasurerId, MemberReport),
    Order(OrderReport),
}

/// What a round is to be like.
#[derive(Clone)]
struct Plan {
    round: u32,
    assignments: Vec<Assignment>,
    seconds: u32,
    check_share: f64,
    path: RoundPath,
    /// When the measurers must be ready.
    deadline: Instant,
}

pub(super) struct Run<'t> {
    team: &'t mut Team,
    request: Request,
    rtt: Duration,
    measurement: Measurement,
    /// The coordinator's link, in an echo.
    order: Option<OrderThread>,
    /// The round that waits for the target to accept it.
    ordered: Option<Plan>,
    /// Each measurer's load in the current round, once it has finished it.
    loads: Vec<Option<WorkerLoad>>,
    news: Receiver<(u32, News)>,
    sender: Sender<(u32, News)>,
    seconds_told: u32,
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
        let mut params = team.options.params;
        let rtt = round_trip(request.target.address);
        // Later rounds use the same sockets, with more circuits on each.
        let rate = request.guess.scaled(params.excess_factor()).min(team.capacity());
        let path = match request.approach {
            Approach::Transit => transit(team),
            Approach::Echo(_) => RoundPath::Echo { nonce: Nonce([0; 32]) },
        };
        let mode = match request.approach {
            Approach::Transit => Mode::Transit,
            Approach::Echo(coordinator) => {
                params.max_rounds = params.max_rounds.min(coordinator.rounds_max);
                Mode::Echo
            }
        };
        params.sockets = match mode {
            Mode::Transit => request.defences,
            // Who takes part agrees to the number.
            Mode::Echo => Defences { max_connections: None, ..request.defences },
        }
        .sockets(params.sockets, rate, path.way(rtt));
        let residuals: Vec<Rate> = team.capacities().collect();
        let loads = vec![None; residuals.len()];
        let (sender, news) = channel();
        // Now, since the time for set-up runs from the measurement's beginning.
        let assignments = allocate(rate, &residuals, params.sockets).assignments;
        let check_share = params.check_share;
        let deadline = Instant::ORIGIN;
        let (round, seconds) = (1, params.seconds);
        let plan = Plan { round, assignments, seconds, check_share, path, deadline };
        for assignment in &plan.assignments {
            let order = round_order(team, request, rtt, &plan, assignment, params.setup_timeout);
            team.mates[assignment.measurer.0].member.anticipate(&order, cancel)?;
        }
        let now = team.site.clock().now();
        let measurement = Measurement::new(now, params, mode, request.guess, residuals)?;
        Ok(Self {
            team,
            request: *request,
            rtt,
            measurement,
            order: None,
            ordered: None,
            loads,
            news,
            sender,
            seconds_told: 0,
        })
    }

    fn now(&self) -> Instant {
        self.team.site.clock().now()
    }

    fn stop(&mut self) {
        self.team.mates.iter_mut().for_each(|mate| mate.member.stop());
        // Last, or the target would tell the measurers that it was called off.
        self.order = None;
        self.ordered = None;
    }

    pub(super) fn until_done(
        mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<TeamResult, TeamError> {
        loop {
            if cancel.load(Ordering::Relaxed) {
                // Does nothing once all is over.
                self.measurement.cancel(self.now());
            }
            while let Some(action) = self.measurement.poll_action() {
                if let Some(outcome) = self.act(action, progress)? {
                    let loads = std::mem::take(&mut self.loads);
                    return Ok(TeamResult { outcome, loads });
                }
            }
            let now = self.now();
            let timeout = self.measurement.poll_timeout().map_or(CANCEL_LATENCY, |at| at - now);
            match self.news.recv_timeout(timeout.min(CANCEL_LATENCY)) {
                Ok((round, news)) if round == self.measurement.round() => {
                    self.take_in(round, news, progress);
                }
                Ok(_) => {} // of a round that was ended early
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.measurement.handle_timeout(self.now());
                }
            }
        }
    }

    fn act(
        &mut self,
        action: Action,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Outcome>, TeamError> {
        match action {
            // A round that was cancelled before it began.
            Action::Prepare { .. } if self.measurement.is_done() => {}
            Action::Prepare { round, assignments, seconds, check_share } => {
                self.seconds_told = 0;
                self.loads.fill(None);
                // A quarter is left for what is on the way when it ends.
                let setup_timeout = self.measurement.params().setup_timeout;
                let deadline = self.now() + (setup_timeout - setup_timeout / 4);
                let path = transit(self.team);
                let plan = Plan { round, assignments, seconds, check_share, path, deadline };
                match self.request.approach {
                    Approach::Transit => self.prepare(&plan, progress),
                    Approach::Echo(coordinator) => self.give_order(plan, &coordinator),
                }
            }
            Action::Start { round } => {
                let is_far = self.team.mates.iter().any(|mate| mate.member.address().is_some());
                let delay = if is_far { START_DELAY_FAR } else { START_DELAY };
                // Together, so the later ones are given less.
                let at = self.now() + delay;
                for mate in 0..self.team.mates.len() {
                    let left = at.saturating_since(self.now());
                    self.team.mates[mate].member.start(left);
                }
                progress(Progress::Started { round, unix_time_s: unix_time_s() });
            }
            Action::Stop { .. } => self.stop(),
            Action::Done(outcome) => {
                // The last second came with the end; the measurement no longer has it.
                let seconds = outcome.estimate().map_or(&[][..], |estimate| &estimate.seconds);
                let round = self.measurement.round();
                for totals in seconds.iter().skip(self.seconds_told as usize) {
                    let measured = Rate::from_byte_per_s(totals.total());
                    progress(Progress::Second { round, index: totals.second, measured });
                }
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// In an echo, the target must accept the round before the measurers come.
    fn give_order(&mut self, mut plan: Plan, coordinator: &Coordinator) {
        let (mut nonce, mut random) = ([0; 32], [0; 24]);
        self.team.rng.fill_bytes(&mut nonce);
        self.team.rng.fill_bytes(&mut random);
        let nonce = Nonce(nonce);
        plan.path = RoundPath::Echo { nonce };
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let members = plan.assignments.iter().map(|it| &self.team.mates[it.measurer.0].member);
        let params = self.measurement.params();
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&coordinator.key_seed),
            target: self.request.target.ids,
            measurers: members.map(|member| member.key()).collect(),
            seconds: short(plan.seconds),
            client_share: client_share(params.ratio),
            sockets: short(plan.assignments.iter().map(|it| it.sockets).sum()),
            expires_unix_s: unix_time_s() + ORDER_LIFETIME_S,
            nonce,
        };
        let config = OrderConfig {
            target: self.request.target,
            order,
            key_seed: coordinator.key_seed,
            accept_timeout: params.setup_timeout / 3,
            random,
            unix_time_s: unix_time_s(),
        };
        let setup = Setup {
            name: "coordinator".to_owned(),
            clock: self.team.site.clock(),
            tls: self.team.site.tls().clone(),
            listeners: Vec::new(),
            options: DriverOptions::default(),
        };
        let (sender, round) = (self.sender.clone(), plan.round);
        let report = move |report| {
            // Nobody listens any more once the measurement is over.
            let _ = sender.send((round, News::Order(report)));
        };
        match OrderThread::spawn(config, setup, report) {
            Ok(thread) => {
                self.order = Some(thread);
                self.ordered = Some(plan);
            }
            Err(error) => self.coordinator_broken(error.to_string()),
        }
    }

    /// Has the measurers open their sockets and circuits.
    fn prepare(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) {
        let mut circuits = 0;
        for assignment in &plan.assignments {
            let setup_timeout = plan.deadline.saturating_since(self.now());
            let order =
                round_order(self.team, &self.request, self.rtt, plan, assignment, setup_timeout);
            let load = Load::plan(&order, self.rtt);
            circuits += load.sockets * load.circuits_per_socket;
            let (sender, round, measurer) = (self.sender.clone(), plan.round, assignment.measurer);
            let reports = Arc::new(move |report| {
                // Nobody listens any more once the measurement is over.
                let _ = sender.send((round, News::Member(measurer, report)));
            });
            let member = &mut self.team.mates[measurer.0].member;
            if let Err(MemberError(detail)) = member.prepare(order, reports) {
                let failure = Failure::MeasurerLost { detail };
                self.measurement.handle_failure(self.now(), Some(measurer), failure);
            }
        }
        let allocated: Rate = plan.assignments.iter().map(|assignment| assignment.rate).sum();
        let sockets = plan.assignments.iter().map(|assignment| assignment.sockets).sum();
        progress(Progress::Preparing { round: plan.round, allocated, sockets, circuits });
    }

    fn coordinator_broken(&mut self, detail: String) {
        let failure = Failure::CoordinatorBroken { detail };
        self.measurement.handle_failure(self.now(), None, failure);
    }

    fn take_in(&mut self, round: u32, news: News, progress: &mut dyn FnMut(Progress)) {
        match news {
            News::Member(measurer, report) => self.take_in_member(round, measurer, report),
            News::Order(OrderReport::Event(event)) => {
                self.take_in_order(round, event, progress);
            }
            News::Order(OrderReport::Broken(detail)) => self.coordinator_broken(detail),
        }
        self.tell_seconds(round, progress);
    }

    fn take_in_member(&mut self, round: u32, measurer: MeasurerId, report: MemberReport) {
        let now = self.now();
        match report {
            MemberReport::Ready { sockets } => {
                self.measurement.handle_ready(now, measurer, round, sockets);
            }
            MemberReport::Second(second) => {
                let report = SecondReport {
                    round,
                    second: second.index,
                    bytes: second.bytes,
                    checked_cells: second.checked_cells,
                };
                self.measurement.handle_second(now, measurer, report);
            }
            MemberReport::Load(load) => {
                self.loads[measurer.0] = Some(load);
                if load.busy() > BUSY_MAX {
                    self.measurement.handle_saturated(measurer, round);
                }
            }
            MemberReport::Failed { kind, detail } => {
                self.measurement.handle_failure(now, Some(measurer), kind.failure(detail));
            }
        }
    }

    fn take_in_order(&mut self, round: u32, event: OrderEvent, progress: &mut dyn FnMut(Progress)) {
        match event {
            OrderEvent::Accepted => {
                if let Some(plan) = self.ordered.take() {
                    self.prepare(&plan, progress);
                }
            }
            OrderEvent::ClientSecond(second) => {
                // What it passed on: what came and did not go, or the other way round, is not.
                let bytes = second.received_bytes.min(second.sent_bytes);
                let (now, second) = (self.now(), u32::from(second.second));
                self.measurement.handle_client_second(now, round, second, bytes);
            }
            OrderEvent::Finished => {}
            OrderEvent::Failed(failure) => {
                let failure = in_coordinators_terms(&failure);
                self.measurement.handle_failure(self.now(), None, failure);
            }
        }
    }

    /// Tells of the seconds that have become complete.
    fn tell_seconds(&mut self, round: u32, progress: &mut dyn FnMut(Progress)) {
        let told = self.seconds_told;
        for totals in self.measurement.seconds().skip(told as usize) {
            let measured = Rate::from_byte_per_s(totals.total());
            progress(Progress::Second { round, index: totals.second, measured });
            self.seconds_told += 1;
        }
    }
}

/// How many cells there are to each that is checked.
fn one_in(share: f64) -> NonZeroU32 {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
    let cells = (1.0 / share).round() as u32;
    NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN)
}

const fn transit(team: &Team) -> RoundPath {
    RoundPath::Transit { always_authenticate: team.options.always_authenticate }
}

/// What one measurer of a round has to do.
fn round_order(
    team: &Team,
    request: &Request,
    rtt: Duration,
    plan: &Plan,
    assignment: &Assignment,
    setup_timeout: Duration,
) -> RoundOrder {
    let address = |assignment: &Assignment| team.mates[assignment.measurer.0].member.address();
    let own = address(assignment);
    let sharing = plan.assignments.iter().filter(|other| address(other) == own).count();
    RoundOrder {
        target: request.target,
        path: plan.path,
        defences: request.defences,
        sockets: assignment.sockets,
        rate: assignment.rate,
        seconds: plan.seconds,
        check_one_in: one_in(plan.check_share),
        // We have timed our own way, not that of measurers elsewhere.
        rtt: own.is_none().then_some(rtt),
        sharing: u32::try_from(sharing).unwrap_or(u32::MAX),
        setup_timeout,
        stall_timeout: team.options.params.report_grace,
    }
}
