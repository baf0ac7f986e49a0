//! One pump of a measurer in one round: a thread that drives a [`LoadGenerator`].

use super::Site;
use super::account::Accountant;
use crate::member::WorkerLoad;
use coordinator::Account;
use link::{
    Drive, Driver, DriverOptions, NodeThread, Observer, ThreadError, thread_cpu_time,
    thread_wait_time,
};
use onion::measure::Second;
use onion::measure::load::{Event, LoadConfig, LoadFailure, LoadGenerator};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::iter;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Far below the amount in flight on any path, and long enough to fill records.
pub(crate) const COALESCE: Duration = Duration::from_millis(3);

/// A worker's report.
#[derive(Debug)]
pub(crate) enum Report {
    /// The engine's report, except seconds.
    Event(Event),
    /// A second is over; with the kernel's account of the sockets, if any.
    Second(Second, Option<Account>),
    /// The pump has given up because of silence, although the relay had data to send and its host was reachable.
    StalledRelay(LoadFailure),
    /// Before the last second is reported.
    Load(WorkerLoad),
    /// The worker itself failed.
    Broken(String),
}

/// The processor time of the calling thread, and the bytes that its driver carried, so far.
fn load_so_far(drive: &dyn Drive<LoadGenerator<StdRng>>) -> WorkerLoad {
    let (cpu, waited) = (thread_cpu_time(), thread_wait_time());
    let wall = drive.now() - Instant::ORIGIN;
    WorkerLoad { cpu, waited, busiest: cpu + waited, wall, traffic: *drive.traffic() }
}

/// The thread's load before it began to send.
#[derive(Clone, Default)]
struct BeforeSending(Arc<Mutex<Option<WorkerLoad>>>);

impl BeforeSending {
    fn lock(&self) -> MutexGuard<'_, Option<WorkerLoad>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's thread; dropping it stops the worker and joins the thread.
pub(crate) struct Worker {
    thread: NodeThread<LoadGenerator<StdRng>>,
    before_sending: BeforeSending,
}

impl Worker {
    /// Starts a thread that begins to open sockets at once; `report` is called on that thread.
    pub(crate) fn spawn(
        name: String,
        site: &Site,
        listeners: Vec<TcpListener>,
        config: LoadConfig,
        rng: StdRng,
        report: impl Fn(Report) + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let pump = LoadGenerator::new(config, rng, site.clock.now());
        let options = DriverOptions { coalesce: COALESCE, ..DriverOptions::default() };
        let driver = Driver::new(pump, site.clock, site.tls.clone(), listeners, options)?;
        let before_sending = BeforeSending::default();
        let accountant = Accountant::default();
        let reporter = Reporter { report, before_sending: before_sending.clone(), accountant };
        Ok(Self { thread: NodeThread::start(name, Box::new(driver), reporter)?, before_sending })
    }

    /// Orders it to send from `at` on.
    pub(crate) fn start(&self, at: Instant) {
        let before_sending = self.before_sending.clone();
        self.thread.handle().run(move |drive| {
            let now = drive.now();
            drive.node_mut().start(now, at);
            *before_sending.lock() = Some(load_so_far(drive));
        });
    }

    /// Orders it to stop, without waiting.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}

/// Forwards a pump's reports, with the load of its thread and the account of its sockets.
struct Reporter<R> {
    report: R,
    before_sending: BeforeSending,
    accountant: Accountant,
}

impl<R: Fn(Report) + Send> Observer<LoadGenerator<StdRng>> for Reporter<R> {
    fn before_turn(&mut self, drive: &mut dyn Drive<LoadGenerator<StdRng>>) -> Option<Instant> {
        let events: Vec<Event> = iter::from_fn(|| drive.node_mut().poll_event()).collect();
        // The load comes before the last second, which ends the round for the coordinator.
        if events.contains(&Event::Finished) {
            let before = *self.before_sending.lock();
            let load = before.map(|before| load_so_far(drive).since(&before));
            load.into_iter().for_each(|load| (self.report)(Report::Load(load)));
        }
        let drive: &dyn Drive<LoadGenerator<StdRng>> = drive;
        let busy = || load_so_far(drive).busiest;
        let next_look = self.accountant.watch(drive, busy);
        for event in events {
            (self.report)(match event {
                Event::Second(second) => {
                    Report::Second(second, self.accountant.close_second(drive, busy))
                }
                Event::Failed(failure @ LoadFailure::Stalled { .. })
                    if self.accountant.shows_stalled_relay() =>
                {
                    Report::StalledRelay(failure)
                }
                other => Report::Event(other),
            });
        }
        next_look
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        (self.report)(Report::Broken(failure.to_string()));
    }
}
