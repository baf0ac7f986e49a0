//! One pump of a measurer in one round: a thread that drives a [`Pump`].

use crate::member::WorkerLoad;
use crate::thread::{NodeThread, Setup, Stop, ThreadError};
use link::{Driver, thread_cpu_time, thread_wait_time};
use onion::measure::pump::{Event, Pump, PumpConfig};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::iter;
use std::sync::{Arc, Mutex, PoisonError};

/// What a worker tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// The engine's word.
    Event(Event),
    /// Before the last second is reported.
    Load(WorkerLoad),
    /// The worker itself failed.
    Broken(String),
}

impl Stop for Pump<StdRng> {
    fn stop(&mut self) {
        Self::stop(self);
    }
}

/// What the calling thread has used, and its driver has carried, so far.
fn load_so_far(driver: &Driver<Pump<StdRng>>) -> WorkerLoad {
    let (cpu, waited) = (thread_cpu_time(), thread_wait_time());
    let wall = driver.now() - Instant::ORIGIN;
    WorkerLoad { cpu, waited, busiest: cpu + waited, wall, traffic: *driver.traffic() }
}

/// A worker's thread; dropping it stops the worker and waits for its end.
pub(crate) struct Worker {
    thread: NodeThread<Pump<StdRng>>,
    before_sending: Arc<Mutex<Option<WorkerLoad>>>,
}

impl Worker {
    /// Starts a thread that begins to open sockets at once; `report` is called on that thread.
    pub(crate) fn spawn(
        config: PumpConfig,
        rng: StdRng,
        setup: Setup,
        report: impl Fn(Report) + Clone + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let pump = Pump::new(config, rng, setup.clock.now());
        let before_sending: Arc<Mutex<Option<WorkerLoad>>> = Arc::default();
        let before = Arc::clone(&before_sending);
        let broken = report.clone();
        let watch = move |driver: &mut Driver<Pump<StdRng>>| {
            let events: Vec<Event> = iter::from_fn(|| driver.node_mut().poll_event()).collect();
            // The load comes before the last second, which ends the round for the coordinator.
            if events.contains(&Event::Finished) {
                let before = *before.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(before) = before {
                    report(Report::Load(load_so_far(driver).since(&before)));
                }
            }
            events.into_iter().for_each(|event| report(Report::Event(event)));
        };
        let broken = move |problem| broken(Report::Broken(problem));
        let thread = NodeThread::spawn(pump, setup, watch, broken)?;
        Ok(Self { thread, before_sending })
    }

    /// Tells it to send from `at` on.
    pub(crate) fn start(&self, at: Instant) {
        let before_sending = Arc::clone(&self.before_sending);
        self.thread.act(move |driver| {
            let now = driver.now();
            driver.node_mut().start(now, at);
            let so_far = load_so_far(driver);
            *before_sending.lock().unwrap_or_else(PoisonError::into_inner) = Some(so_far);
        });
    }

    /// Tells it to stop, and does not wait.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}

/// Far below what stays under way on any path, and long enough for records to fill.
pub(crate) const COALESCE: Duration = Duration::from_millis(3);
