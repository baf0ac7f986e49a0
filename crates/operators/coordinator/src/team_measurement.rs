//! One relay measured by a team: orders, readiness, starts and reports around a [`Measurement`].
//!
//! A [`Measurement`] decides about load and seconds. This module drives the team: it asks a participating relay for its
//! consent, gives each measurer its order, delays the start until the other relays of the same host are ready, and
//! checks whether a relay that stopped reporting is still reachable.

mod request;

pub(crate) use request::{TeamMember, TeamRequest};

use crate::allocation::{Assignment, MeasurerId};
use crate::failure::Failure;
use crate::measurement::{Action, Measurement, SetupError};
use crate::mode::Mode;
use crate::order::OrderRetries;
use crate::outcome::Outcome;
use crate::record::RoundHistory;
use crate::round::{MemberReport, RoundOrder};
use crate::second::SecondReport;
use crate::worker_load::WorkerLoad;
use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ClientShare, MeasurerKey, Nonce, SentBack};
use onion::{Duration, Instant, Rate};
use request::RoundPlan;
use sha2::{Digest as _, Sha256};

/// From the decision to start until the start, so that all measurers have received it.
const START_DELAY: Duration = Duration::from_millis(50);

/// Replaces [`START_DELAY`] where some measurers are on other hosts.
const START_DELAY_REMOTE: Duration = Duration::from_millis(500);

/// Longest time for which a relay waits for the other relays of its host.
const GROUP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Part of the time for set-up that is left when a relay stops waiting for the other relays of its host.
const GROUP_WAIT_RESERVE: Duration = Duration::from_secs(2);

/// The order that a relay is asked to accept (echo only).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTerms {
    /// The round, counted from one.
    pub round: u32,
    /// The measurers that will connect.
    pub measurers: Vec<MeasurerKey>,
    /// The duration.
    pub seconds: u16,
    /// The largest share of client traffic.
    pub client_share: ClientShare,
    /// Sockets over all measurers.
    pub sockets: u16,
    /// Proves to the relay that a measurer belongs to this order.
    pub nonce: Nonce,
    /// Time until the relay must have accepted.
    pub accept_timeout: Duration,
}

/// A progress event of a measurement for observers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A round is being prepared.
    Preparing {
        /// Counted from one.
        round: u32,
        /// The maximum load of the measurers.
        allocated: Rate,
        /// Sockets of all measurers.
        sockets: u32,
    },
    /// A round has started.
    Started {
        /// The round.
        round: u32,
    },
    /// All measurers have reported a second.
    Second {
        /// The round.
        round: u32,
        /// The second, from zero.
        index: u32,
        /// The number of seconds of the round, with those before it that do not count.
        of: u32,
        /// The returned bytes; in echo, with the relay's client traffic that counts.
        measured: Rate,
    },
}

/// An action for the shell, for one measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TeamAction {
    /// Ask the relay to accept this order, on a link that replaces an earlier one; answer by
    /// [`TeamMeasurement::handle_order_event`].
    GiveOrder(OrderTerms),
    /// Give a measurer this order; it answers by [`TeamMeasurement::handle_report`].
    Prepare(MeasurerId, RoundOrder),
    /// Have all measurers of the round send after `delay`.
    Start {
        /// The round.
        round: u32,
        /// The delay, the same for all. The latency of the message is deducted from it.
        delay: Duration,
    },
    /// Have all measurers end their round; then close the link on which the order was given.
    Stop,
    /// Find out whether the relay's host answers a new connection; answer by [`TeamMeasurement::handle_probe`].
    Probe,
    /// All measurers are ready, and the request [waits for its start](TeamRequest::awaits_start). Call
    /// [`TeamMeasurement::start_held`]. At this time a group should no longer wait for others.
    AwaitStart(Instant),
    /// A progress event for observers.
    Progress(Progress),
    /// No action follows.
    Done(Outcome),
}

/// One relay measured by a team, as a state machine with the contract of [`Measurement`]: after `new`, and after each `handle_*`
/// call and command, call [`poll_action`](Self::poll_action) until `None`; then wait until
/// [`poll_timeout`](Self::poll_timeout) at most.
#[derive(Clone, Debug)]
pub(crate) struct TeamMeasurement {
    request: TeamRequest,
    measurement: Measurement,
    /// The round that waits for the relay to accept it.
    ordered: Option<RoundPlan>,
    /// The timeout and number of attempts for the relay's answer.
    retries: OrderRetries,
    /// The number of orders so far.
    orders: u32,
    /// Measurers of the round that are not ready.
    unready: usize,
    /// The report of the last measurer to be ready, which the measurement gets when the group starts: measurer, round,
    /// sockets.
    held: Option<(MeasurerId, u32, u32)>,
    is_probing: bool,
    /// Each measurer's load in the current round, once it has finished it.
    loads: Vec<Option<WorkerLoad>>,
    seconds_reported: u32,
    actions: VecDeque<TeamAction>,
}

// Construction, commands and getters.
impl TeamMeasurement {
    /// Begins the first round.
    ///
    /// # Errors
    /// As [`Measurement::new`].
    pub(crate) fn new(now: Instant, request: TeamRequest) -> Result<Self, SetupError> {
        let vantages = request.vantages();
        let params = request.params_here(&vantages);
        let (mode, capacities) = (request.mode, request.capacities());
        let measurement = Measurement::of_launch(now, params, mode, &request.launch, capacities)?;
        let mut this = Self {
            loads: vec![None; request.members.len()],
            request,
            measurement,
            ordered: None,
            retries: OrderRetries::until(Instant::ORIGIN),
            orders: 0,
            unready: 0,
            held: None,
            is_probing: false,
            seconds_reported: 0,
            actions: VecDeque::new(),
        };
        this.advance(now);
        Ok(this)
    }

    /// Ends the measurement at once, as a failure.
    pub(crate) fn cancel(&mut self, now: Instant) {
        self.measurement.cancel(now);
        self.advance(now);
    }

    /// The current or last round, counted from one.
    #[must_use]
    pub(crate) const fn round(&self) -> u32 {
        self.measurement.round()
    }

    /// The time between the order to start and the start, for all measurers.
    #[must_use]
    pub(crate) fn start_delay(&self) -> Duration {
        let is_remote = self.request.members.iter().any(|member| member.address.is_some());
        if is_remote { START_DELAY_REMOTE } else { START_DELAY }
    }

    /// The data for the record besides the outcome: the finished rounds.
    #[must_use]
    pub(crate) fn course(&self) -> RoundHistory {
        self.measurement.course()
    }

    /// Each measurer's load in its last round, if it finished one.
    #[must_use]
    pub(crate) fn loads(&self) -> &[Option<WorkerLoad>] {
        &self.loads
    }
}

// Events.
impl TeamMeasurement {
    /// A measurer reports on a round.
    pub(crate) fn handle_report(
        &mut self,
        now: Instant,
        measurer: MeasurerId,
        round: u32,
        report: MemberReport,
    ) {
        if round == self.measurement.round() {
            self.take_report(now, measurer, round, report);
            self.report_seconds();
        }
        self.advance(now);
    }

    fn take_report(
        &mut self,
        now: Instant,
        measurer: MeasurerId,
        round: u32,
        report: MemberReport,
    ) {
        match report {
            MemberReport::Ready { sockets } => {
                self.unready = self.unready.saturating_sub(1);
                if self.request.awaits_start && self.unready == 0 && self.held.is_none() {
                    let deadline = self.measurement.poll_timeout();
                    let left = deadline.map_or(Duration::ZERO, |at| at.saturating_since(now));
                    let wait = GROUP_WAIT_MAX.min(left.saturating_sub(GROUP_WAIT_RESERVE));
                    self.held = Some((measurer, round, sockets));
                    self.actions.push_back(TeamAction::AwaitStart(now + wait));
                } else {
                    self.measurement.handle_ready(now, measurer, round, sockets);
                }
            }
            MemberReport::Second(second, account) => {
                let report = SecondReport {
                    round,
                    second: second.index,
                    bytes: second.bytes,
                    checked_cells: second.checked_cells,
                    account: account.map(|account| *account),
                };
                self.measurement.handle_second(now, measurer, report);
            }
            MemberReport::Load(load) => {
                if let Some(known) = self.loads.get_mut(measurer.0) {
                    *known = Some(load);
                }
                self.measurement.handle_busy(measurer, round, load.busy());
            }
            MemberReport::Failed { kind, detail } => {
                self.measurement.handle_failure(now, Some(measurer), kind.failure(detail));
            }
        }
    }

    /// The number of a measurer's open sockets has changed since it was ready.
    pub(crate) fn handle_sockets(&mut self, now: Instant, measurer: MeasurerId, open: u32) {
        let round = self.measurement.round();
        self.measurement.handle_sockets(now, measurer, round, open);
        self.advance(now);
    }

    /// A measurer cannot get its order, or is lost.
    pub(crate) fn handle_lost_measurer(
        &mut self,
        now: Instant,
        measurer: MeasurerId,
        detail: String,
    ) {
        let failure = Failure::MeasurerLost { detail };
        self.measurement.handle_failure(now, Some(measurer), failure);
        self.advance(now);
    }

    /// The relay answers an order of this round, or reports on it.
    pub(crate) fn handle_order_event(&mut self, now: Instant, round: u32, event: OrderEvent) {
        if round == self.measurement.round() {
            self.take_order_event(now, round, event);
            self.report_seconds();
        }
        self.advance(now);
    }

    fn take_order_event(&mut self, now: Instant, round: u32, event: OrderEvent) {
        match event {
            OrderEvent::Accepted => {
                if let Some(plan) = self.ordered.take() {
                    self.prepare(now, &plan);
                }
            }
            OrderEvent::ClientSecond(second, sent_back) => {
                for SentBack { measurer, bytes } in sent_back {
                    let place =
                        self.request.members.iter().position(|member| member.key == measurer);
                    if let Some(place) = place {
                        self.measurement.handle_sent_back(round, MeasurerId(place), bytes);
                    }
                }
                // Client traffic is what the relay forwarded: bytes that only arrived, or only left, do not count.
                let bytes = second.received_bytes.min(second.sent_bytes);
                let second = u32::from(second.second);
                self.measurement.handle_client_second(now, round, second, bytes);
            }
            OrderEvent::Finished => {}
            OrderEvent::Failed(failure) => self.order_failed(now, &failure),
        }
    }

    fn order_failed(&mut self, now: Instant, failure: &OrderFailure) {
        let is_repeated = self.ordered.is_some() && self.retries.handle_failure(now, failure);
        if !is_repeated {
            self.measurement.handle_failure(now, None, Failure::from(failure));
        }
    }

    /// The coordinator's own machine cannot continue this measurement.
    pub(crate) fn handle_own_failure(&mut self, now: Instant, detail: String) {
        self.measurement.handle_failure(now, None, Failure::CoordinatorBroken { detail });
        self.advance(now);
    }

    /// Whether the relay's host answers a new connection ([`TeamAction::Probe`]).
    pub(crate) fn handle_probe(&mut self, now: Instant, is_answering: bool) {
        self.is_probing = false;
        // The report may have arrived in the meantime.
        if self.measurement.client_report_overdue(now) {
            if !is_answering {
                let detail =
                    "its client report did not arrive, and a new connection was not answered";
                let failure = Failure::CutOff { detail: detail.to_owned() };
                self.measurement.handle_failure(now, None, failure);
            } else if !self.measurement.extend_report_deadline() {
                self.measurement.handle_timeout(now);
            }
        }
        self.advance(now);
    }

    /// The load starts: the relays of the group start together, or the measurers are free.
    pub(crate) fn start_held(&mut self, now: Instant) {
        self.request.awaits_start = false;
        if let Some((measurer, round, sockets)) = self.held.take() {
            self.measurement.handle_ready(now, measurer, round, sockets);
        }
        self.advance(now);
    }

    /// Handles the passage of time. Does nothing before [`poll_timeout`](Self::poll_timeout).
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.retries.poll_attempt(now)
            && let Some(plan) = self.ordered.take()
        {
            self.give_order(now, plan);
        }
        if self.measurement.client_report_overdue(now) {
            if !self.is_probing {
                self.is_probing = true;
                self.actions.push_back(TeamAction::Probe);
            }
        } else {
            self.measurement.handle_timeout(now);
        }
        self.advance(now);
    }
}

// Actions.
impl TeamMeasurement {
    /// The next action. Call it until it returns `None`.
    pub(crate) fn poll_action(&mut self) -> Option<TeamAction> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` once all is over, or while a probe is being answered.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let own = self.measurement.poll_timeout().filter(|_| !self.is_probing);
        own.into_iter().chain(self.retries.poll_timeout()).min()
    }

    fn advance(&mut self, now: Instant) {
        while let Some(action) = self.measurement.poll_action() {
            self.act(now, action);
        }
    }

    fn act(&mut self, now: Instant, action: Action) {
        match action {
            // A round that was cancelled before it began.
            Action::Prepare { .. } if self.measurement.is_done() => {}
            Action::Prepare {
                round,
                assignments,
                seconds,
                held_back_s,
                few_circuits_s,
                check_share,
            } => {
                self.seconds_reported = 0;
                self.loads.fill(None);
                (self.unready, self.held) = (assignments.len(), None);
                // A quarter is left for messages that are in flight when it ends.
                let setup_timeout = self.measurement.params().setup_timeout;
                let deadline = now + (setup_timeout - setup_timeout / 4);
                let nonce = Nonce([0; 32]);
                let plan = RoundPlan {
                    round,
                    assignments,
                    seconds,
                    held_back_s,
                    few_circuits_s,
                    check_share,
                    nonce,
                    deadline,
                };
                match self.request.mode {
                    Mode::Transit => self.prepare(now, &plan),
                    Mode::Echo => {
                        self.retries = OrderRetries::until(now + setup_timeout / 3);
                        self.give_order(now, plan);
                    }
                }
            }
            Action::Start { round } => {
                let delay = self.start_delay();
                self.actions.push_back(TeamAction::Start { round, delay });
                self.actions.push_back(TeamAction::Progress(Progress::Started { round }));
            }
            Action::Stop { .. } => self.stop(),
            Action::Done(outcome) => {
                // The last second ended the round, so the measurement no longer has it.
                let round = self.measurement.round();
                let estimate = outcome.estimate().filter(|estimate| estimate.rounds == round);
                let seconds = estimate.map_or(&[][..], |estimate| &estimate.seconds);
                let of = self.measurement.params().round_s();
                for totals in seconds.iter().skip(self.seconds_reported as usize) {
                    let measured = Rate::from_byte_per_s(totals.total());
                    let second = Progress::Second { round, index: totals.second, of, measured };
                    self.actions.push_back(TeamAction::Progress(second));
                }
                self.stop();
                self.actions.push_back(TeamAction::Done(outcome));
            }
        }
    }

    fn stop(&mut self) {
        (self.ordered, self.held) = (None, None);
        self.actions.push_back(TeamAction::Stop);
    }

    /// In an echo, the relay must accept the round before the measurers come.
    fn give_order(&mut self, now: Instant, mut plan: RoundPlan) {
        plan.nonce = self.next_nonce();
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let key = |assignment: &Assignment| {
            self.request.members.get(assignment.measurer.0).map(|member| member.key)
        };
        let terms = OrderTerms {
            round: plan.round,
            measurers: plan.assignments.iter().filter_map(key).collect(),
            seconds: short(plan.seconds),
            client_share: client_share(self.measurement.params().ratio),
            sockets: short(plan.assignments.iter().map(|assignment| assignment.sockets).sum()),
            nonce: plan.nonce,
            accept_timeout: self.retries.deadline().saturating_since(now),
        };
        self.ordered = Some(plan);
        self.actions.push_back(TeamAction::GiveOrder(terms));
    }

    fn next_nonce(&mut self) -> Nonce {
        self.orders += 1;
        let mut hash = Sha256::new();
        hash.update(b"flashflow order nonce");
        hash.update(self.request.secret);
        hash.update(self.orders.to_be_bytes());
        Nonce(hash.finalize().into())
    }

    /// Has the measurers open their sockets and circuits.
    fn prepare(&mut self, now: Instant, plan: &RoundPlan) {
        let setup_timeout = plan.deadline.saturating_since(now);
        let stall_timeout = self.measurement.params().report_grace;
        for assignment in &plan.assignments {
            let order = self.request.order(plan, assignment, setup_timeout, stall_timeout);
            self.actions.push_back(TeamAction::Prepare(assignment.measurer, order));
        }
        let allocated = plan.assignments.iter().map(|assignment| assignment.rate).sum();
        let sockets = plan.assignments.iter().map(|assignment| assignment.sockets).sum();
        let preparing = Progress::Preparing { round: plan.round, allocated, sockets };
        self.actions.push_back(TeamAction::Progress(preparing));
    }

    /// Reports the seconds that have become complete.
    fn report_seconds(&mut self) {
        let (round, of) = (self.measurement.round(), self.measurement.params().round_s());
        for totals in self.measurement.seconds().skip(self.seconds_reported as usize) {
            let measured = Rate::from_byte_per_s(totals.total());
            let second = Progress::Second { round, index: totals.second, of, measured };
            self.actions.push_back(TeamAction::Progress(second));
            self.seconds_reported += 1;
        }
    }
}

/// *r* as in orders, in thousandths.
#[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
#[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
fn client_share(ratio: f64) -> ClientShare {
    let permille = libm::round(ratio * 1000.0) as u16;
    ClientShare::from_permille(permille).unwrap_or(ClientShare::DEFAULT)
}
