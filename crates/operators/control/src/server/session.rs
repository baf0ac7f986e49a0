//! A coordinator's session: its orders, and the reports of its rounds.

use super::accept::Peer;
use super::resources::{ROUNDS_MAX, Resources, SessionPermit};
use super::round::Round;
use super::stop_file::StopFile;
use super::{HandedList, InForce, Rules};
use crate::check::{self, plain};
use crate::frames::Incoming;
use crate::messages::{End, FromCoordinator, FromMeasurer, Hello};
use crate::opt_in;
use crate::refusal::{Refusal, RefusalCode};
use coordinator::policy::ZoneRate;
use link::ClockJump;
use measurer::member::{MemberReport, Reports, RoundOrder, Target};
use measurer::{Consent, ConsentError};
use onion::{Duration, Rate};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Maximum number of queued reports to the session's task, over all its rounds; then the reporting thread blocks.
const REPORTS_MAX: usize = 256;

/// Maximum number of lines of a coordinator's opt-in list, each with a relay and an address: many times the public network.
const LISTED_MAX: usize = 100_000;

/// The number of refused orders after which the session ends.
const REFUSALS_MAX: u32 = 100;

pub(super) struct Session {
    peer: Peer,
    /// Makes room for the next session when this one is dropped.
    _permit: SessionPermit,
    resources: Arc<Resources>,
    in_force: watch::Receiver<Arc<InForce>>,
    stop_file: StopFile,
    /// The coordinator's opt-in list, and the part of the next one that has arrived.
    handed: Consent,
    arriving: Consent,
    arriving_lines: usize,
    to_coordinator: mpsc::Sender<FromMeasurer>,
    reports: mpsc::Receiver<(u64, MemberReport)>,
    reporter: mpsc::Sender<(u64, MemberReport)>,
    /// Dropping one stops it.
    rounds: BTreeMap<u64, State>,
    /// The highest number of a round so far.
    newest: u64,
    refusals: u32,
}

struct State {
    round: Round,
    phase: Phase,
    seconds: u32,
    target: Target,
    rate: Rate,
    /// Whether the policy's limits count its load.
    is_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Preparing,
    Ready,
    Started,
}

impl Session {
    pub(super) fn new(
        peer: Peer,
        permit: SessionPermit,
        resources: Arc<Resources>,
        in_force: watch::Receiver<Arc<InForce>>,
        stop_file: StopFile,
        to_coordinator: mpsc::Sender<FromMeasurer>,
    ) -> Self {
        let (reporter, reports) = mpsc::channel(REPORTS_MAX);
        Self {
            peer,
            _permit: permit,
            resources,
            in_force,
            stop_file,
            handed: Consent::local_only(),
            arriving: Consent::local_only(),
            arriving_lines: 0,
            to_coordinator,
            reports,
            reporter,
            rounds: BTreeMap::new(),
            newest: 0,
            refusals: 0,
        }
    }

    /// Executes orders until the session ends, and with it all its rounds. The coordinator receives the error.
    pub(super) async fn run(
        mut self,
        orders: &mut Incoming<FromCoordinator>,
        mut stopped: watch::Receiver<bool>,
        mut jumped: watch::Receiver<Option<ClockJump>>,
    ) -> Result<(), End> {
        tracing::info!("session with {} started", self.peer);
        let takes_opt_in = self.takes_opt_in();
        let end = match self.greet(takes_opt_in) {
            Ok(()) => self.carry_out_all(takes_opt_in, orders, &mut stopped, &mut jumped).await,
            Err(end) => Err(end),
        };
        let (left, peer) = (self.rounds.len(), self.peer);
        match &end {
            Ok(()) => tracing::info!("session with {peer} ended; {left} rounds stopped"),
            Err(End { reason, .. }) if left == 0 => {
                tracing::info!("session with {peer} is over: {reason}");
            }
            Err(End { reason, .. }) => {
                tracing::warn!("session with {peer} is lost: {reason}; {left} rounds stop");
            }
        }
        end
    }

    fn greet(&self, takes_opt_in: bool) -> Result<(), End> {
        self.send(FromMeasurer::Hello(Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: self.resources.capacity(),
            rounds_max: ROUNDS_MAX,
            sockets_max: self.resources.sockets_max(),
            takes_opt_in,
            unix_time_s: Some(link::unix_time_s()),
        }))
    }

    /// Whether the coordinator's opt-in list counts, by the current rules.
    fn takes_opt_in(&self) -> bool {
        self.in_force.borrow().rules.handed != HandedList::Ignored
    }

    async fn carry_out_all(
        &mut self,
        takes_opt_in: bool,
        orders: &mut Incoming<FromCoordinator>,
        stopped: &mut watch::Receiver<bool>,
        jumped: &mut watch::Receiver<Option<ClockJump>>,
    ) -> Result<(), End> {
        let gone = self.to_coordinator.clone();
        let mut stop_file = self.stop_file.clone();
        loop {
            if !self.in_force.borrow_and_update().rules.coordinators.contains(&self.peer.key) {
                let reason =
                    "the measurer's operator has removed this coordinator from `coordinators`";
                return Err(End::lasting(reason));
            }
            // The coordinator hands over its list when a session begins, to those that take it. Running rounds continue to their end.
            if !takes_opt_in && self.rounds.is_empty() && self.takes_opt_in() {
                let reason = "the measurer now takes the coordinator's opt-in list".to_owned();
                return Err(End { reason, is_transient: true });
            }
            tokio::select! {
                order = orders.next() => match order {
                    Ok(Some(order)) => self.carry_out(order)?,
                    Ok(None) => return Ok(()),
                    Err(lost) => return Err(End::lasting(lost.0)),
                },
                report = self.reports.recv() => {
                    // There is always a sender: our own.
                    if let Some((round, report)) = report {
                        self.pass_on(round, report)?;
                    }
                }
                Ok(()) = self.in_force.changed() => {}
                // What the coordinator knows of this clock no longer holds.
                Ok(()) = jumped.changed() => {
                    let jump = jumped.borrow_and_update().map_or_else(String::new, |jump| jump.to_string());
                    return Err(End { reason: format!("on the measurer, {jump}"), is_transient: true });
                }
                reason = stop_file.appeared() => return Err(End::lasting(reason)),
                () = gone.closed() => return Err(End::lasting("the connection is lost")),
                _ = stopped.wait_for(|stop| *stop) => {
                    return Err(End::lasting("the measurer is ending"));
                }
            }
        }
    }

    fn carry_out(&mut self, message: FromCoordinator) -> Result<(), End> {
        let (round, done) = match message {
            FromCoordinator::Prepare { round, order } => (round, self.prepare(round, order)),
            FromCoordinator::Start { round, delay } => (round, self.start(round, delay)),
            FromCoordinator::Stop { round } => (round, self.stop(round)),
            FromCoordinator::OptIn { lines, is_last } => return self.take_list(&lines, is_last),
            FromCoordinator::Session
            | FromCoordinator::Capacity(_)
            | FromCoordinator::CapacityStart(_) => {
                return Err(End::lasting("a session is open on this connection already"));
            }
        };
        let Err(Refusal { code, reason }) = done else { return Ok(()) };
        let (peer, number) = (&self.peer, code.number());
        tracing::warn!(
            round,
            code = number,
            "order for round {round} of {peer} refused (code {number}): {reason}"
        );
        self.refusals += 1;
        self.resources.count(|totals| *totals.refused_orders.entry(code).or_default() += 1);
        if self.refusals > REFUSALS_MAX {
            return Err(End::lasting("too many refused orders"));
        }
        self.send(FromMeasurer::Refused { round, code, reason: plain(&reason) })
    }

    fn take_list(&mut self, lines: &[String], is_last: bool) -> Result<(), End> {
        // A line of the message may contain several of the list.
        let lines = lines.join("\n");
        self.arriving_lines += lines.lines().count();
        if self.arriving_lines > LISTED_MAX {
            let problem = format!("the opt-in list has more than {LISTED_MAX} lines");
            return Err(End::lasting(problem));
        }
        let arriving = std::mem::take(&mut self.arriving).with_list(&lines);
        let arriving =
            arriving.map_err(|_| End::lasting("a line of the opt-in list is invalid"))?;
        if is_last {
            let listed = arriving.listed();
            tracing::info!(
                relays = listed,
                "{} handed over an opt-in list of {listed} relays",
                self.peer
            );
            self.handed = arriving;
            self.arriving_lines = 0;
        } else {
            self.arriving = arriving;
        }
        Ok(())
    }

    /// Verifies the signature of the coordinator's list, if the rules require one. A signature may expire, so each order verifies it again.
    fn verify_handed(&self, rule: HandedList) -> Result<(), String> {
        let HandedList::SignedBy(key) = rule else { return Ok(()) };
        opt_in::verify(&self.handed, key, &opt_in::today())
            .map_err(|error| format!("the opt-in list of the coordinator is not accepted: {error}"))
    }

    fn prepare(&mut self, number: u64, order: RoundOrder) -> Result<(), Refusal> {
        if number <= self.newest {
            let reason = format!("round {number} is not new: {} has been", self.newest);
            return Err(Refusal::new(RefusalCode::Duplicate, reason));
        }
        self.newest = number;
        check::order(&order).map_err(|error| Refusal::new(RefusalCode::Malformed, error))?;
        let target = order.target;
        // The load begins later; `start` checks when.
        let limits = self.permit(target, link::unix_time_s())?;
        let (reservation, mark) =
            self.resources.reserve(self.peer.key, order.rate, order.sockets, &limits)?;
        let reporter = self.reporter.clone();
        let reports: Reports = Arc::new(move |report| {
            // The receiver is gone after the end of the session.
            let _ = reporter.blocking_send((number, report));
        });
        let round = Round::begin(reservation, mark, order, reports)
            .map_err(|error| Refusal::new(RefusalCode::Unable, error))?;
        let (seconds, rate) = (order.seconds, order.rate);
        let is_limited = !limits.is_empty();
        let state = State { round, phase: Phase::Preparing, seconds, target, rate, is_limited };
        self.rounds.insert(number, state);
        self.resources.count(|totals| totals.rounds += 1);
        let (id, address, rate) = (target.ids.rsa, target.address, order.rate);
        let peer = self.peer;
        tracing::info!(round = number, relay = %id, "round {number} of {peer}: {id} at {address}, {rate}");
        Ok(())
    }

    /// Whether a target may be loaded at this time, by the stop file, our own rules and the coordinator's list. Returns the
    /// limits of the load.
    fn permit(&self, target: Target, at_unix_s: u64) -> Result<Vec<ZoneRate>, Refusal> {
        let stopped = self.stop_file.check();
        stopped.map_err(|reason| Refusal::new(RefusalCode::Unable, reason))?;
        let refusal = |error: String| Refusal::new(RefusalCode::NoConsent, error);
        let in_force = Arc::clone(&self.in_force.borrow());
        let Rules { consent: own, handed, .. } = &in_force.rules;
        let (relay, address) = (target.ids.rsa, target.address.ip());
        let check = |consent: &Consent| {
            consent.check_for(self.peer.address.ip(), relay, address, at_unix_s)
        };
        let by_list = || {
            let listed = self.verify_handed(*handed);
            listed.and_then(|()| check(&self.handed).map_err(|error| error.to_string()))
        };
        // With a policy, only a signed list of the coordinator permits more than the policy does.
        let has_list = match (handed, own.policy()) {
            (HandedList::Ignored, _) | (HandedList::Accepted, Some(_)) => false,
            (HandedList::SignedBy(_), _) | (HandedList::Accepted, None) => true,
        };
        match check(own) {
            Ok(()) => {
                let limits = own.limits(&in_force.key.0, relay, address, at_unix_s);
                let has_opted_in = !limits.is_empty() && has_list && by_list().is_ok();
                Ok(if has_opted_in { Vec::new() } else { limits })
            }
            // Private and local addresses depend on our own list alone. A relay that declines, or may, is refused.
            Err(error @ (ConsentError::NotGiven { .. } | ConsentError::Policy { .. }))
                if has_list
                    && own
                        .policy()
                        .is_none_or(|rule| rule.declines_perhaps(relay, at_unix_s).is_none()) =>
            {
                by_list().map(|()| Vec::new()).map_err(|by_list| {
                    // What the policy says is more specific.
                    if own.policy().is_some() { by_policy(&error) } else { refusal(by_list) }
                })
            }
            Err(error) => Err(by_policy(&error)),
        }
    }

    /// Whether a prepared round may load its target at this time, with the limits of its reservation.
    fn permit_prepared(&self, state: &State, at_unix_s: u64) -> Result<(), Refusal> {
        let limits = self.permit(state.target, at_unix_s)?;
        let is_lower = limits.iter().any(|limit| limit.rate < state.rate);
        if is_lower || (!limits.is_empty() && !state.is_limited) {
            let reason = "the measurement policy permits less than when the round was prepared";
            return Err(Refusal::new(RefusalCode::NoConsent, reason.to_owned()));
        }
        Ok(())
    }

    fn start(&mut self, number: u64, delay: Duration) -> Result<(), Refusal> {
        check::delay(delay).map_err(|error| Refusal::new(RefusalCode::Malformed, error))?;
        let state = self.rounds.get(&number).ok_or_else(|| unknown(number))?;
        // The first and the last second of the load.
        let begin = link::unix_time_s() + delay.as_secs();
        let times = [begin, begin + u64::from(state.seconds)];
        if let Some(refused) =
            times.into_iter().find_map(|at| self.permit_prepared(state, at).err())
        {
            self.rounds.remove(&number);
            return Err(refused);
        }
        let state = self.rounds.get_mut(&number).ok_or_else(|| unknown(number))?;
        if state.phase != Phase::Ready {
            let reason = match state.phase {
                Phase::Preparing => format!("round {number} is not ready to start"),
                Phase::Ready | Phase::Started => format!("round {number} has been started"),
            };
            return Err(Refusal::new(RefusalCode::OutOfOrder, reason));
        }
        state.round.start(delay)?;
        state.phase = Phase::Started;
        Ok(())
    }

    /// A round that has ended may be stopped, too: its last report and this message may cross.
    fn stop(&mut self, number: u64) -> Result<(), Refusal> {
        if number == 0 || number > self.newest {
            return Err(unknown(number));
        }
        self.rounds.remove(&number);
        Ok(())
    }

    fn pass_on(&mut self, round: u64, report: MemberReport) -> Result<(), End> {
        // It may have been stopped meanwhile.
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(()) };
        let is_over = match &report {
            MemberReport::Ready { .. } => {
                state.phase = Phase::Ready;
                false
            }
            MemberReport::Second(second, _) => {
                let bytes = second.bytes;
                self.resources.count(|totals| totals.measured_bytes += bytes);
                second.index.saturating_add(1) >= state.seconds
            }
            MemberReport::Load(_) => false,
            MemberReport::Failed { detail, .. } => {
                tracing::warn!(round, "round {round} of {} has failed: {detail}", self.peer);
                self.resources.count(|totals| totals.failed_rounds += 1);
                true
            }
        };
        if is_over {
            self.rounds.remove(&round);
        }
        self.send(FromMeasurer::Report { round, report })
    }

    fn send(&self, message: FromMeasurer) -> Result<(), End> {
        self.to_coordinator
            .try_send(message)
            .map_err(|_| End::lasting("the coordinator does not read, or is gone"))
    }
}

/// A refusal by consent. What this measurer cannot decide now says nothing about the relay: another turn follows.
fn by_policy(error: &ConsentError) -> Refusal {
    let code = if error.is_temporary() { RefusalCode::Unable } else { RefusalCode::NoConsent };
    Refusal::new(code, error.to_string())
}

fn unknown(number: u64) -> Refusal {
    Refusal::new(RefusalCode::UnknownRound, format!("there is no round {number}"))
}
