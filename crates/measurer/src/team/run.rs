//! One measurement, from its first round to its outcome.

use super::landings::address_towards;
use super::{Progress, Request, Team, TeamError, TeamResult};
use crate::plan::{Load, RTT_UNKNOWN};
use crate::worker::{Report, Worker, WorkerError, WorkerLoad};
use coordinator::{
    Action, Assignment, Failure, Measurement, MeasurerId, Mode, Outcome, SecondReport,
};
use link::{Clock, unix_time_s};
use onion::measure::pump::{Event, Path, PumpConfig, PumpFailure};
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// From the decision to start to the start, so that all measurers have heard of it.
const START_DELAY: Duration = Duration::from_millis(50);

/// Longest wait before `cancel` is looked at again.
const CANCEL_LATENCY: Duration = Duration::from_millis(100);

/// A measurer that is busier than this has nothing left.
const BUSY_MAX: f64 = 0.95;

/// Share of its circuits that a measurer must keep to the end. What is conclusive is reckoned from
/// the load that was assigned: with much less of it, a low number could look conclusive.
const LOAD_KEPT_MIN: f64 = 0.75;

/// A worker's report, with where it comes from.
struct Tagged {
    measurer: MeasurerId,
    round: u32,
    report: Report,
}

pub(super) struct Run<'t> {
    team: &'t mut Team,
    request: Request,
    address: IpAddr,
    rtt: Duration,
    measurement: Measurement,
    /// Of the current round, by measurer.
    workers: Vec<Option<Worker>>,
    /// Each measurer's load in the current round, once it has finished it.
    loads: Vec<Option<WorkerLoad>>,
    reports: Receiver<Tagged>,
    sender: Sender<Tagged>,
    seconds_told: u32,
    /// The current round has been started.
    has_started: bool,
}

impl<'t> Run<'t> {
    pub(super) fn new(
        team: &'t mut Team,
        request: &Request,
        cancel: &AtomicBool,
    ) -> Result<Self, TeamError> {
        let measurers = team.options.measurers as usize;
        let mut params = team.options.params;
        let rtt = round_trip(request.target.address);
        // Later rounds use the same sockets, with more circuits on each.
        let rate = request.guess.scaled(params.excess_factor()).min(team.capacity());
        params.sockets = request.defences.sockets(params.sockets, rate, rtt);
        // Now, since the time for set-up runs from the measurement's beginning.
        let load = Load::plan(&request.defences, params.sockets, rate, rtt, 1);
        let authenticate = load.must_authenticate || team.options.always_authenticate;
        team.landings.make(params.sockets as usize, authenticate, cancel)?;
        let residuals = vec![team.capacity; measurers];
        let now = team.clock.now();
        let measurement = Measurement::new(now, params, Mode::Transit, request.guess, residuals)?;
        let address = match team.options.address {
            Some(address) => address,
            None => address_towards(request.target.address)?,
        };
        let (sender, reports) = channel();
        let workers = (0..measurers).map(|_| None).collect();
        Ok(Self {
            team,
            request: *request,
            address,
            rtt,
            measurement,
            workers,
            loads: vec![None; measurers],
            reports,
            sender,
            seconds_told: 0,
            has_started: false,
        })
    }

    pub(super) fn until_done(
        mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<TeamResult, TeamError> {
        loop {
            if cancel.load(Ordering::Relaxed) {
                // Does nothing once all is over.
                self.measurement.cancel(self.team.clock.now());
            }
            while let Some(action) = self.measurement.poll_action() {
                if let Some(outcome) = self.act(action, progress)? {
                    return Ok(TeamResult { outcome, loads: self.loads });
                }
            }
            let now = self.team.clock.now();
            let timeout = self.measurement.poll_timeout().map_or(CANCEL_LATENCY, |at| at - now);
            match self.reports.recv_timeout(timeout.min(CANCEL_LATENCY)) {
                Ok(tagged) => self.take_in(tagged, progress),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.measurement.handle_timeout(self.team.clock.now());
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
                self.prepare(round, &assignments, seconds, check_share, progress)?;
            }
            Action::Start { round } => {
                let at = self.team.clock.now() + START_DELAY;
                self.workers.iter().flatten().for_each(|worker| worker.start(at));
                self.has_started = true;
                progress(Progress::Started { round, unix_time_s: unix_time_s() });
            }
            Action::Stop { .. } => self.workers.iter_mut().for_each(|worker| *worker = None),
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

    fn prepare(
        &mut self,
        round: u32,
        assignments: &[Assignment],
        seconds: u32,
        check_share: f64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), TeamError> {
        self.seconds_told = 0;
        self.has_started = false;
        self.loads.fill(None);
        let sharing = u32::try_from(assignments.len()).unwrap_or(u32::MAX);
        let params = *self.measurement.params();
        let mut circuits = 0;
        let mut first = self.team.landings.take_turn(params.sockets as usize);
        for assignment in assignments {
            let Assignment { measurer, rate, sockets } = *assignment;
            let load = Load::plan(&self.request.defences, sockets, rate, self.rtt, sharing);
            circuits += load.sockets * load.circuits_per_socket;
            let authenticate = load.must_authenticate || self.team.options.always_authenticate;
            // Measurers share the pool of landings: each has its own stretch of it.
            let count = sockets as usize;
            let share = self.team.landings.share(self.address, first, count, authenticate)?;
            first += count;
            let config = PumpConfig {
                target: self.request.target,
                path: Path::Transit {
                    landings: share.landings,
                    authenticate_as: share.authenticate_as,
                },
                sockets: load.sockets,
                circuits_per_socket: load.circuits_per_socket,
                pace: load.pace,
                seconds,
                rate,
                window_cap_cells: self.request.defences.window_cap_cells(),
                check_one_in: one_in(check_share),
                setup_timeout: params.setup_timeout - params.setup_timeout / 4,
                stall_timeout: params.report_grace,
                unix_time_s: unix_time_s(),
            };
            let sender = self.sender.clone();
            let rng = StdRng::from_rng(&mut self.team.rng);
            let worker = Worker::spawn(
                format!("measurer-{}", measurer.0),
                config,
                rng,
                self.team.clock,
                self.team.tls.clone(),
                share.listeners,
                move |report| {
                    // Nobody listens any more once the measurement is over.
                    let _ = sender.send(Tagged { measurer, round, report });
                },
            );
            match worker {
                Ok(worker) => self.workers[measurer.0] = Some(worker),
                Err(error) => self.broken(measurer, &error),
            }
        }
        let allocated: Rate = assignments.iter().map(|assignment| assignment.rate).sum();
        let sockets = assignments.iter().map(|assignment| assignment.sockets).sum();
        progress(Progress::Preparing { round, allocated, sockets, circuits });
        Ok(())
    }

    fn broken(&mut self, measurer: MeasurerId, error: &WorkerError) {
        let now = self.team.clock.now();
        let failure = Failure::MeasurerLost { detail: error.to_string() };
        self.measurement.handle_failure(now, Some(measurer), failure);
    }

    fn take_in(&mut self, tagged: Tagged, progress: &mut dyn FnMut(Progress)) {
        let Tagged { measurer, round, report } = tagged;
        if round != self.measurement.round() {
            return; // of a round that was ended early
        }
        let now = self.team.clock.now();
        match report {
            Report::Event(Event::Ready { sockets, .. }) => {
                self.measurement.handle_ready(now, measurer, round, sockets);
            }
            Report::Event(Event::Second(second)) => {
                let report = SecondReport {
                    round,
                    second: second.index,
                    bytes: second.bytes,
                    checked_cells: second.checked_cells,
                };
                self.measurement.handle_second(now, measurer, report);
                self.tell_seconds(round, progress);
            }
            Report::Event(Event::Lost { circuits, of, problem }) => {
                if f64::from(circuits) < LOAD_KEPT_MIN * f64::from(of) {
                    let detail =
                        format!("{circuits} of a measurer's {of} circuits are left: {problem}");
                    let failure = Failure::RelayClosed { detail };
                    self.measurement.handle_failure(now, Some(measurer), failure);
                }
            }
            Report::Event(Event::Finished) => {}
            Report::Event(Event::Failed(failure)) => {
                let failure = in_coordinators_terms(&failure, self.has_started);
                self.measurement.handle_failure(now, Some(measurer), failure);
            }
            Report::Load(load) => {
                self.loads[measurer.0] = Some(load);
                if load.busy() > BUSY_MAX {
                    self.measurement.handle_saturated(measurer, round);
                }
            }
            Report::Broken(detail) => {
                let failure = Failure::MeasurerLost { detail };
                self.measurement.handle_failure(now, Some(measurer), failure);
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

/// The round trip to a relay, timed by opening a connection. A relay that refuses gets the fewest
/// sockets: the measurement will tell why.
fn round_trip(target: SocketAddr) -> Duration {
    let clock = Clock::start();
    match TcpStream::connect_timeout(&target, 4 * RTT_UNKNOWN) {
        Ok(_) => clock.now() - Instant::ORIGIN,
        Err(error) if error.kind() == ErrorKind::TimedOut => RTT_UNKNOWN,
        Err(_) => Duration::ZERO,
    }
}

/// How many cells there are to each that is checked.
fn one_in(share: f64) -> NonZeroU32 {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
    let cells = (1.0 / share).round() as u32;
    NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN)
}

fn in_coordinators_terms(failure: &PumpFailure, has_started: bool) -> Failure {
    let detail = failure.to_string();
    match failure {
        PumpFailure::TooFewOpen { .. } if has_started => Failure::RelayClosed { detail },
        PumpFailure::TooFewOpen { .. } => Failure::RelayUnreachable { detail },
        PumpFailure::SetUpTimedOut { .. } => Failure::RelayUnreachable { detail },
        PumpFailure::Refused { .. } => Failure::ConsentRefused { detail },
        PumpFailure::Stalled { .. } => Failure::RelayStalled { detail },
        PumpFailure::CheckFailed { .. } | PumpFailure::AnsweredEarly { .. } => {
            Failure::ContentCheck { detail }
        }
    }
}
