//! A coordinator's session: its orders, and what its rounds report.

use super::accept::Peer;
use super::book::{Book, ROUNDS_MAX, Ticket};
use super::round::Round;
use crate::convert::{delay_of, refused_message, report_message};
use crate::messages::{FromCoordinator, FromMeasurer, Hello, Instruction, Prepare, Start, Word};
use crate::refusal::{Refusal, RefusalCode};
use measurer::Consent;
use measurer::member::{MemberReport, Reports, RoundOrder};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

/// Reports that wait for the session's task, over all its rounds; then the reporting thread waits.
const REPORTS_MAX: usize = 256;

/// Orders that are refused before the session ends: a coordinator that errs so often will not mend.
const REFUSALS_MAX: u32 = 100;

pub(super) struct Session {
    peer: Peer,
    /// Makes room for the next session when this one is dropped.
    _ticket: Ticket,
    book: Arc<Book>,
    consent: Arc<Consent>,
    to_coordinator: mpsc::Sender<Result<FromMeasurer, Status>>,
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
        ticket: Ticket,
        book: Arc<Book>,
        consent: Arc<Consent>,
        to_coordinator: mpsc::Sender<Result<FromMeasurer, Status>>,
    ) -> Self {
        let (reporter, reports) = mpsc::channel(REPORTS_MAX);
        Self {
            peer,
            _ticket: ticket,
            book,
            consent,
            to_coordinator,
            reports,
            reporter,
            rounds: BTreeMap::new(),
            newest: 0,
            refusals: 0,
        }
    }

    /// Obeys until the session ends, and with it all its rounds.
    pub(super) async fn run(
        mut self,
        mut orders: Streaming<FromCoordinator>,
        mut stopped: watch::Receiver<bool>,
    ) {
        tracing::info!("session with {} begins", self.peer);
        let end = match self.greet() {
            Ok(()) => self.obey_all(&mut orders, &mut stopped).await,
            Err(status) => Err(status),
        };
        let left = self.rounds.len();
        match end {
            Ok(()) => tracing::info!("session with {} ends; {left} rounds stop", self.peer),
            Err(status) => {
                let reason = status.message();
                if left == 0 {
                    tracing::info!("session with {} is over: {reason}", self.peer);
                } else {
                    tracing::warn!(
                        "session with {} is lost: {reason}; {left} rounds stop",
                        self.peer
                    );
                }
                // If the coordinator is still there, it gets to know why.
                let _ = self.to_coordinator.try_send(Err(status));
            }
        }
    }

    fn greet(&self) -> Result<(), Status> {
        let hello = Hello {
            capacity_bit_per_s: self.book.capacity().as_bit_per_s(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rounds_max: Some(ROUNDS_MAX),
            sockets_max: Some(self.book.sockets_max()),
        };
        self.send(FromMeasurer { measurement: 0, word: Some(Word::Hello(hello)) })
    }

    async fn obey_all(
        &mut self,
        orders: &mut Streaming<FromCoordinator>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<(), Status> {
        let gone = self.to_coordinator.clone();
        loop {
            tokio::select! {
                order = orders.message() => match order? {
                    Some(order) => self.obey(order)?,
                    None => return Ok(()),
                },
                report = self.reports.recv() => {
                    // There is always a sender: our own.
                    if let Some((measurement, report)) = report {
                        self.pass_on(measurement, report)?;
                    }
                }
                () = gone.closed() => return Err(Status::cancelled("the connection is lost")),
                _ = stopped.wait_for(|stop| *stop) => {
                    return Err(Status::unavailable("the measurer is ending"));
                }
            }
        }
    }

    fn obey(&mut self, message: FromCoordinator) -> Result<(), Status> {
        let measurement = message.measurement;
        let obeyed = match message.order {
            Some(Instruction::Prepare(prepare)) => self.prepare(measurement, prepare),
            Some(Instruction::Start(start)) => self.start(measurement, start),
            Some(Instruction::Stop(_)) => self.stop(measurement),
            None => Err(Refusal::new(RefusalCode::Malformed, "an order that we do not know")),
        };
        let Err(refusal) = obeyed else { return Ok(()) };
        let Refusal { code, reason } = &refusal;
        let (peer, code) = (&self.peer, code.number());
        tracing::warn!("order for round {measurement} of {peer} refused (code {code}): {reason}");
        self.refusals += 1;
        if self.refusals > REFUSALS_MAX {
            return Err(Status::resource_exhausted("too many orders had to be refused"));
        }
        self.send(refused_message(measurement, &refusal))
    }

    fn prepare(&mut self, measurement: u64, prepare: Prepare) -> Result<(), Refusal> {
        if measurement <= self.newest {
            let reason = format!("round {measurement} is not new: {} has been", self.newest);
            return Err(Refusal::new(RefusalCode::Duplicate, reason));
        }
        self.newest = measurement;
        let malformed = |error| Refusal::new(RefusalCode::Malformed, error);
        let order = RoundOrder::try_from(prepare).map_err(malformed)?;
        let target = order.target;
        self.consent
            .check_for(self.peer.address.ip(), target.ids.rsa, target.address.ip())
            .map_err(|error| Refusal::new(RefusalCode::NoConsent, error))?;
        let reservation = self.book.reserve(self.peer.key, order.rate, order.sockets)?;
        let reporter = self.reporter.clone();
        let reports: Reports = Arc::new(move |report| {
            // Nobody listens any more once the session is over.
            let _ = reporter.blocking_send((measurement, report));
        });
        let round = Round::begin(reservation, order, reports)
            .map_err(|error| Refusal::new(RefusalCode::Unable, error))?;
        let state = State { round, phase: Phase::Preparing, seconds: order.seconds };
        self.rounds.insert(measurement, state);
        let (id, address, rate) = (target.ids.rsa, target.address, order.rate);
        tracing::info!("round {measurement} of {}: {id} at {address}, {rate}", self.peer);
        Ok(())
    }

    fn start(&mut self, measurement: u64, start: Start) -> Result<(), Refusal> {
        let delay = delay_of(start).map_err(|error| Refusal::new(RefusalCode::Malformed, error))?;
        let state = self.rounds.get_mut(&measurement).ok_or_else(|| unknown(measurement))?;
        if state.phase != Phase::Ready {
            let reason = match state.phase {
                Phase::Preparing => format!("round {measurement} is not ready to start"),
                Phase::Ready | Phase::Started => format!("round {measurement} has been started"),
            };
            return Err(Refusal::new(RefusalCode::OutOfOrder, reason));
        }
        state.phase = Phase::Started;
        state.round.start(delay);
        Ok(())
    }

    /// A round that has ended by itself can be stopped, too: the two may cross on the way.
    fn stop(&mut self, measurement: u64) -> Result<(), Refusal> {
        if measurement == 0 || measurement > self.newest {
            return Err(unknown(measurement));
        }
        self.rounds.remove(&measurement);
        Ok(())
    }

    fn pass_on(&mut self, measurement: u64, report: MemberReport) -> Result<(), Status> {
        // It may have been stopped meanwhile.
        let Some(state) = self.rounds.get_mut(&measurement) else { return Ok(()) };
        let is_over = match &report {
            MemberReport::Ready { .. } => {
                state.phase = Phase::Ready;
                false
            }
            MemberReport::Second(second, _) => second.index.saturating_add(1) >= state.seconds,
            MemberReport::Load(_) => false,
            MemberReport::Failed { detail, .. } => {
                tracing::info!("round {measurement} of {} has failed: {detail}", self.peer);
                true
            }
        };
        if is_over {
            self.rounds.remove(&measurement);
        }
        self.send(report_message(measurement, report))
    }

    fn send(&self, message: FromMeasurer) -> Result<(), Status> {
        self.to_coordinator
            .try_send(Ok(message))
            .map_err(|_| Status::aborted("the coordinator does not read, or is gone"))
    }
}

fn unknown(measurement: u64) -> Refusal {
    Refusal::new(RefusalCode::UnknownRound, format!("there is no round {measurement}"))
}
