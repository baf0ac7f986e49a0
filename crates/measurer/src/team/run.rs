//! One measurement, from its first round to its outcome.

use super::ordering::OrderReport;
use super::round::{Plan, round_order};
use super::{Approach, Progress, Request, Team, TeamError, TeamResult};
use crate::defences::Defences;
use crate::gate::Pass;
use crate::load::WorkerLoad;
use crate::member::{MemberReport, Nonce, RoundWayBack};
use crate::plan::{answers, round_trip};
use coordinator::{
    Action, Failure, Launch, Measurement, MeasurerId, Mode, OrderRetries, Outcome, PathParams,
    SecondReport, Turn, Vantage,
};
use link::{NodeThread, unix_time_s};
use onion::measure::order::{OrderEvent, OrderLink};
use onion::measure::protocol::SentBack;
use onion::{Duration, Instant, Rate};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// From the decision to start to the start, so that all measurers have heard of it.
const START_DELAY: Duration = Duration::from_millis(50);

/// The same where some are elsewhere.
const START_DELAY_FAR: Duration = Duration::from_millis(500);

/// Longest wait before `cancel` is looked at again.
const CANCEL_LATENCY: Duration = Duration::from_millis(100);

/// Relays of one machine wait for each other no longer than this, and leave so much of the time for set-up.
const LONGEST_AT_GATE: Duration = Duration::from_secs(5);
const LEFT_OF_SETUP: Duration = Duration::from_secs(2);

/// What is told in a round.
pub(super) enum News {
    Member(MeasurerId, MemberReport),
    Order(OrderReport),
}

pub(super) struct Run<'t> {
    pub(super) team: &'t mut Team,
    pub(super) request: Request,
    pub(super) rtt: Duration,
    pub(super) measurement: Measurement,
    /// The coordinator's link, in an echo.
    pub(super) order: Option<NodeThread<OrderLink>>,
    /// The round that waits for the target to accept it.
    pub(super) ordered: Option<Plan>,
    /// How long and how often it is asked.
    pub(super) retries: OrderRetries,
    /// Each measurer's load in the current round, once it has finished it.
    pub(super) loads: Vec<Option<WorkerLoad>>,
    pub(super) news: Receiver<(u32, News)>,
    pub(super) sender: Sender<(u32, News)>,
    pub(super) seconds_told: u32,
    /// Where it waits for others before it starts.
    pass: Option<Pass>,
    /// Measurers of the round that are not ready.
    unready: usize,
    /// The last of them is, and is not passed on before the gate is open: measurer, round, sockets.
    held: Option<(MeasurerId, u32, u32)>,
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
        launch: Option<&Launch>,
        cancel: &AtomicBool,
    ) -> Result<Self, TeamError> {
        let mut params = request.approach.within(team.options.params);
        let rtt = round_trip(request.target.address);
        let rate = request.guess.scaled(params.excess_factor()).min(team.capacity());
        let way_back = match request.approach {
            Approach::Transit => transit(team),
            Approach::Echo(_) => RoundWayBack::Echo { nonce: Nonce([0; 32]) },
        };
        let mode = match request.approach {
            Approach::Transit => Mode::Transit,
            Approach::Echo(_) => Mode::Echo,
        };
        params.sockets = match mode {
            Mode::Transit => request.defences,
            // Who takes part agrees to the number.
            Mode::Echo => Defences { max_connections: None, ..request.defences },
        }
        .sockets(params.sockets);
        let residuals: Vec<Rate> = team.capacities().collect();
        let vantages = vantages(team, launch);
        // On this machine a long round trip is a busy processor.
        let is_here = request.target.address.ip().is_loopback();
        let distance = if is_here { Duration::ZERO } else { Vantage::distance(rtt, &vantages) };
        let found_out = || PathParams::at_distance(mode, rate, distance, params.seconds);
        params.path = team.options.path.unwrap_or_else(found_out);
        let pass = team.pass.take();
        let first = launch.map_or_else(|| Turn::first(request.guess, 1), |it| it.turn);
        let loads = vec![None; residuals.len()];
        let (sender, news) = channel();
        // Now, since the time for set-up runs from the measurement's beginning.
        let assignments = first.allocation(&params, &residuals, &vantages).assignments;
        let check_share = params.check_share;
        let deadline = Instant::ORIGIN;
        let (round, seconds) = (launch.map_or(1, |it| it.turn.round), params.seconds);
        let held_back_s = None;
        let plan =
            Plan { round, assignments, seconds, held_back_s, check_share, way_back, deadline };
        for assignment in &plan.assignments {
            let order = round_order(team, request, rtt, &plan, assignment, params.setup_timeout);
            team.mates[assignment.measurer.0].member.anticipate(&order, cancel)?;
        }
        let now = team.site.clock().now();
        let measurement = match launch {
            None => {
                let guess = request.guess;
                Measurement::from_vantages(now, params, mode, guess, residuals, vantages)
            }
            Some(launch) => Measurement::of_launch(now, params, mode, launch, residuals),
        }?;
        Ok(Self {
            team,
            request: *request,
            rtt,
            measurement,
            order: None,
            ordered: None,
            retries: OrderRetries::until(Instant::ORIGIN),
            loads,
            news,
            sender,
            seconds_told: 0,
            pass,
            unready: 0,
            held: None,
        })
    }

    pub(super) fn now(&self) -> Instant {
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
                    return Ok(TeamResult { outcome, course: self.measurement.course(), loads });
                }
            }
            let now = self.now();
            if self.retries.poll_attempt(now)
                && let Approach::Echo(coordinator) = self.request.approach
                && let Some(plan) = self.ordered.take()
            {
                self.give_order(plan, &coordinator);
            }
            let at_gate = self.held.and(self.pass.as_ref()).and_then(Pass::left);
            if at_gate == Some(Duration::ZERO)
                && let Some((measurer, round, sockets)) = self.held.take()
            {
                self.measurement.handle_ready(now, measurer, round, sockets);
                continue;
            }
            let at_gate = at_gate.map(|left| now + left);
            let ends = [self.measurement.poll_timeout(), self.retries.poll_timeout(), at_gate];
            let next = ends.into_iter().flatten().min();
            let timeout = next.map_or(CANCEL_LATENCY, |at| at.saturating_since(now));
            match self.news.recv_timeout(timeout.min(CANCEL_LATENCY)) {
                Ok((round, news)) if round == self.measurement.round() => {
                    self.take_in(round, news, progress);
                }
                Ok(_) => {} // of a round that was ended early
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.handle_timeout();
                }
            }
        }
    }

    fn handle_timeout(&mut self) {
        let now = self.now();
        if self.measurement.lacks_word(now) {
            // What else is told meanwhile waits: the measurement ends here in most cases.
            if !answers(self.request.target.address) {
                let detail = "no word of its clients came, and a new connection was not answered";
                let failure = Failure::CutOff { detail: detail.to_owned() };
                self.measurement.handle_failure(now, None, failure);
            } else if self.measurement.be_patient() {
                return;
            }
        }
        self.measurement.handle_timeout(now);
    }

    fn act(
        &mut self,
        action: Action,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Outcome>, TeamError> {
        match action {
            // A round that was cancelled before it began.
            Action::Prepare { .. } if self.measurement.is_done() => {}
            Action::Prepare { round, assignments, seconds, held_back_s, check_share } => {
                self.seconds_told = 0;
                self.loads.fill(None);
                (self.unready, self.held) = (assignments.len(), None);
                // A quarter is left for what is on the way when it ends.
                let setup_timeout = self.measurement.params().setup_timeout;
                let deadline = self.now() + (setup_timeout - setup_timeout / 4);
                let way_back = transit(self.team);
                let plan = Plan {
                    round,
                    assignments,
                    seconds,
                    held_back_s,
                    check_share,
                    way_back,
                    deadline,
                };
                match self.request.approach {
                    Approach::Transit => self.prepare(&plan, progress),
                    Approach::Echo(coordinator) => {
                        self.retries = OrderRetries::until(self.now() + setup_timeout / 3);
                        self.give_order(plan, &coordinator);
                    }
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
                // The last second came with the end; the measurement no longer has it. (Of a round before, where a relay did not want another one, all was told.)
                let round = self.measurement.round();
                let estimate = outcome.estimate().filter(|estimate| estimate.rounds == round);
                let seconds = estimate.map_or(&[][..], |estimate| &estimate.seconds);
                for totals in seconds.iter().skip(self.seconds_told as usize) {
                    let measured = Rate::from_byte_per_s(totals.total());
                    progress(Progress::Second { round, index: totals.second, measured });
                }
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    pub(super) fn coordinator_broken(&mut self, detail: String) {
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
                self.unready = self.unready.saturating_sub(1);
                match &mut self.pass {
                    Some(pass) if self.unready == 0 => {
                        let deadline = self.measurement.poll_timeout();
                        let left = deadline.map_or(Duration::ZERO, |at| at.saturating_since(now));
                        pass.arrive(LONGEST_AT_GATE.min(left.saturating_sub(LEFT_OF_SETUP)));
                        self.held = Some((measurer, round, sockets));
                    }
                    _ => self.measurement.handle_ready(now, measurer, round, sockets),
                }
            }
            MemberReport::Second(second, account) => {
                let report = SecondReport {
                    round,
                    second: second.index,
                    bytes: second.bytes,
                    checked_cells: second.checked_cells,
                    account: account.map(|it| *it),
                };
                self.measurement.handle_second(now, measurer, report);
            }
            MemberReport::Load(load) => {
                self.loads[measurer.0] = Some(load);
                self.measurement.handle_busy(measurer, round, load.busy());
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
            OrderEvent::ClientSecond(second, sent_back) => {
                for SentBack { measurer, bytes } in sent_back {
                    let place = self.team.mates.iter().position(|it| it.member.key() == measurer);
                    if let Some(place) = place {
                        self.measurement.handle_sent_back(round, MeasurerId(place), bytes);
                    }
                }
                // What it passed on: what came and did not go, or the other way round, is not.
                let bytes = second.received_bytes.min(second.sent_bytes);
                let (now, second) = (self.now(), u32::from(second.second));
                self.measurement.handle_client_second(now, round, second, bytes);
            }
            OrderEvent::Finished => {}
            OrderEvent::Failed(failure) => {
                let now = self.now();
                if self.ordered.is_some() && self.retries.handle_failure(now, &failure) {
                    return;
                }
                self.measurement.handle_failure(now, None, Failure::from(&failure));
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

/// From where each of a team sees the relay: what its campaign knows of that, and who is at one address.
fn vantages(team: &Team, launch: Option<&Launch>) -> Vec<Vantage> {
    let addresses: Vec<_> = team.mates.iter().map(|mate| mate.member.address()).collect();
    let vantage = |(place, address): (usize, &Option<IpAddr>)| {
        let first = addresses.iter().position(|it| it == address);
        let host = first.and_then(|it| u32::try_from(it).ok());
        let known = launch.and_then(|it| it.vantages.get(place));
        Vantage { host, ..known.copied().unwrap_or_default() }
    };
    addresses.iter().enumerate().map(vantage).collect()
}

const fn transit(team: &Team) -> RoundWayBack {
    RoundWayBack::Transit { always_authenticate: team.options.always_authenticate }
}
