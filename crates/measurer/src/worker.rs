//! One measurer in one round: a thread that drives a [`Pump`].

use link::tls::TlsConfigs;
use link::{
    Clock, Driver, DriverError, DriverOptions, Remote, Traffic, thread_cpu_time, thread_wait_time,
};
use onion::measure::pump::{Event, Pump, PumpConfig};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::iter;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

/// Far below what stays under way on any path, and long enough for records to fill.
const COALESCE: Duration = Duration::from_millis(3);

/// How much of a processor a measurer needed while it was sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Its thread's processor time.
    pub cpu: Duration,
    /// The time its thread was ready to run and had to wait for a processor.
    pub waited: Duration,
    /// The time it was sending.
    pub wall: Duration,
    /// What went over its links in that time.
    pub traffic: Traffic,
}

impl WorkerLoad {
    /// Share of the time that it ran or wanted to run, from zero to one.
    #[must_use]
    pub fn busy(&self) -> f64 {
        if self.wall.is_zero() {
            return 0.0;
        }
        (self.cpu + self.waited).as_secs_f64() / self.wall.as_secs_f64()
    }

    /// What the calling thread has used, and its driver has carried, so far.
    fn so_far(driver: &Driver<Pump<StdRng>>) -> Self {
        Self {
            cpu: thread_cpu_time(),
            waited: thread_wait_time(),
            wall: driver.now() - Instant::ORIGIN,
            traffic: *driver.traffic(),
        }
    }

    fn since(self, before: &Self) -> Self {
        let (now, then) = (self.traffic, before.traffic);
        let traffic = Traffic {
            sent_bytes: now.sent_bytes - then.sent_bytes,
            sent_records: now.sent_records - then.sent_records,
            received_bytes: now.received_bytes - then.received_bytes,
            received_records: now.received_records - then.received_records,
        };
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            waited: self.waited.saturating_sub(before.waited),
            wall: self.wall - before.wall,
            traffic,
        }
    }
}

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

enum Command {
    Start { at: Instant },
    Stop,
}

/// A worker's thread; dropping it stops the worker and waits for its end.
pub(crate) struct Worker {
    commands: Sender<Command>,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that begins to open sockets at once; `report` is called on that thread.
    pub(crate) fn spawn(
        name: String,
        config: PumpConfig,
        rng: StdRng,
        clock: Clock,
        tls: TlsConfigs,
        listeners: Vec<TcpListener>,
        report: impl Fn(Report) + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let pump = Pump::new(config, rng, clock.now());
        let options = DriverOptions { coalesce: COALESCE, ..DriverOptions::default() };
        let driver = Driver::new(pump, clock, tls, listeners, options)?;
        let remote = driver.remote();
        let (commands, receiver) = channel();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || {
                if let Err(error) = run(driver, &receiver, &report) {
                    report(Report::Broken(error.to_string()));
                }
            })
            .map_err(WorkerError::Thread)?;
        Ok(Self { commands, remote, thread: Some(thread) })
    }

    /// Tells it to send from `at` on.
    pub(crate) fn start(&self, at: Instant) {
        self.command(Command::Start { at });
    }

    fn command(&self, command: Command) {
        // A worker that has ended needs no command.
        let _ = self.commands.send(command);
        self.remote.wake();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; the missing reports end the measurement.
            let _ = thread.join();
        }
    }
}

/// A worker that could not be started: our machine's fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

fn run(
    mut driver: Driver<Pump<StdRng>>,
    commands: &Receiver<Command>,
    report: &impl Fn(Report),
) -> Result<(), DriverError> {
    /// Only bounds the wait: everything that matters wakes the driver.
    const LONGEST_WAIT: Duration = Duration::from_secs(1);
    let mut before_sending: Option<WorkerLoad> = None;
    loop {
        loop {
            let now = driver.now();
            match commands.try_recv() {
                Ok(Command::Start { at }) => {
                    driver.node_mut().start(now, at);
                    before_sending = Some(WorkerLoad::so_far(&driver));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    driver.node_mut().stop();
                    return driver.turn(now); // closes the connections
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        let deadline = driver.now() + LONGEST_WAIT;
        driver.turn(deadline)?;
        let events: Vec<Event> = iter::from_fn(|| driver.node_mut().poll_event()).collect();
        // The load comes before the last second, which ends the round for the coordinator.
        if let (true, Some(before)) = (events.contains(&Event::Finished), &before_sending) {
            report(Report::Load(WorkerLoad::so_far(&driver).since(before)));
        }
        events.into_iter().for_each(|event| report(Report::Event(event)));
    }
}
