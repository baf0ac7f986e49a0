//! Clients of a relay on this machine: circuits of two hops through it, back to ourselves.

use crate::error::Error;
use link::tls::TlsConfigs;
use link::{
    Clock, Drive, Driver, DriverOptions, Forge, NodeThread, ThreadError, Watch, unix_time_s,
};
use onion::measure::pump::{Event, Landing, Pace, Path, Pump, PumpConfig, Target};
use onion::{Duration, Instant, Rate};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::net::{Ipv4Addr, TcpListener};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Links of the clients to the relay, with a circuit on each.
const SOCKETS: u32 = 2;

/// Cells of a circuit that may be under way: what piles up while clients are held, and so comes at
/// once when they no longer are. A tenth of a second's worth at 80 Mbit/s, over all circuits.
const WINDOW_CELLS: u32 = 1000;

/// Time for links and circuits to stand.
const SETUP: Duration = Duration::from_secs(30);

/// How finely arrivals are dated.
const GRAIN: Duration = Duration::from_millis(5);

/// Longer than any experiment.
const LENGTH_S: u32 = 24 * 3600;

/// Client traffic through a relay, for as long as this lives. What arrives is counted by us, and so
/// tells independently of the relay what it really forwarded.
pub(super) struct ClientLoad {
    clock: Clock,
    told: SharedTold,
    _thread: NodeThread<Pump<StdRng>>,
}

#[derive(Default)]
struct Told {
    is_flowing: bool,
    /// Why it ended.
    failure: Option<String>,
    /// What had arrived by then, since it began.
    arrived: Vec<(Instant, u64)>,
}

/// What is told, for both threads.
#[derive(Clone, Default)]
struct SharedTold(Arc<Mutex<Told>>);

impl SharedTold {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientLoad {
    /// Opens circuits through a relay on loopback, and sends at this rate; `clock` dates what arrives.
    /// Returns once it flows.
    pub(super) fn start(target: Target, rate: Rate, clock: Clock) -> Result<Self, Error> {
        let mut seed = [0; 32];
        let mut rng =
            StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))?;
        rng.fill_bytes(&mut seed);
        let mut forge = Forge::new(seed, unix_time_s())?;
        let (mut landings, mut listeners) = (Vec::new(), Vec::new());
        for _ in 0..SOCKETS {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(broken)?;
            let address = listener.local_addr().map_err(broken)?;
            landings.push(Landing { identity: Arc::new(forge.identity()?), address });
            listeners.push(listener);
        }
        let config = PumpConfig {
            target,
            path: Path::Transit { landings, authenticate_as: Vec::new() },
            sockets: SOCKETS,
            circuits_per_socket: 1,
            pace: Pace { burst: SOCKETS, per_s: NonZeroU32::MIN.saturating_add(19) },
            seconds: LENGTH_S,
            rate,
            window_cap_cells: WINDOW_CELLS,
            check_one_in: NonZeroU32::MIN.saturating_add(124),
            setup_timeout: SETUP,
            // A relay may starve its clients; that is for us to see, not to give up on.
            stall_timeout: Duration::from_secs(u64::from(LENGTH_S)),
            unix_time_s: unix_time_s(),
        };
        let pump = Pump::new(config, rng, clock.now());
        let tls = TlsConfigs::new(&forge)?;
        let options =
            DriverOptions { coalesce: Duration::from_millis(1), ..DriverOptions::default() };
        let driver = Driver::new(pump, clock, tls, listeners, options).map_err(broken)?;
        let told = SharedTold::default();
        let tally = Tally { told: told.clone(), before: 0 };
        let thread = NodeThread::start("clients", Box::new(driver), tally)?;
        let load = Self { clock, told, _thread: thread };
        load.wait_until_flowing()?;
        Ok(load)
    }

    fn wait_until_flowing(&self) -> Result<(), Error> {
        let deadline = self.clock.now() + SETUP + SETUP;
        loop {
            let told = self.told.lock();
            if told.is_flowing {
                return Ok(());
            }
            if let Some(failure) = &told.failure {
                return Err(broken(failure));
            }
            drop(told);
            if self.clock.now() >= deadline {
                return Err(broken("their circuits do not stand in time"));
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Why it ended by itself, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        self.told.lock().failure.clone()
    }

    /// When the first cells were sent; `None` if none have arrived.
    pub(super) fn began(&self) -> Option<Instant> {
        self.told.lock().arrived.first().map(|(at, _)| *at)
    }

    /// Bytes of cells that arrived between two instants.
    pub(super) fn bytes_between(&self, from: Instant, to: Instant) -> f64 {
        let told = self.told.lock();
        arrived_by(&told.arrived, to) - arrived_by(&told.arrived, from)
    }

    /// The same for so many whole seconds after one another, in Mbit/s.
    pub(super) fn seconds_from(&self, from: Instant, count: u32) -> Vec<f64> {
        (0..count)
            .map(|number| {
                let begin = from + Duration::from_secs(u64::from(number));
                mbit(self.bytes_between(begin, begin + Duration::from_secs(1)))
            })
            .collect()
    }
}

fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}

/// Bytes as Mbit.
pub(super) fn mbit(bytes: f64) -> f64 {
    bytes * 8e-6
}

/// Bytes that had arrived by an instant; between two readings, evenly.
#[expect(clippy::cast_precision_loss, reason = "no experiment moves 2^53 bytes")]
fn arrived_by(readings: &[(Instant, u64)], at: Instant) -> f64 {
    let next = readings.partition_point(|(reading, _)| *reading <= at);
    let Some((before, bytes)) = next.checked_sub(1).map(|place| readings[place]) else {
        return 0.0;
    };
    let Some((after, more)) = readings.get(next) else { return bytes as f64 };
    let share = (at - before).as_secs_f64() / (*after - before).as_secs_f64();
    bytes as f64 + share * (more - bytes) as f64
}

/// Starts the pump once it can, and notes what arrives.
struct Tally {
    told: SharedTold,
    /// What had arrived when it began.
    before: u64,
}

impl Watch<Pump<StdRng>> for Tally {
    fn look(&mut self, drive: &mut dyn Drive<Pump<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let received = drive.traffic().received_bytes;
        let mut told = self.told.lock();
        while let Some(event) = drive.node_mut().poll_event() {
            match event {
                Event::Ready { .. } => {
                    drive.node_mut().start(now, now);
                    self.before = received;
                    told.is_flowing = true;
                    told.arrived.push((now, 0));
                }
                Event::Lost { problem, .. } => told.failure = Some(problem),
                Event::Failed(failure) => told.failure = Some(failure.to_string()),
                Event::Second(_) | Event::Finished => {}
            }
        }
        if let Some((last, _)) = told.arrived.last()
            && now >= *last + GRAIN
        {
            told.arrived.push((now, received - self.before));
        }
        // That nothing arrives is noted as well.
        Some(now + 4 * GRAIN)
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.told.lock().failure.get_or_insert(failure.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_between_two_readings_are_spread_evenly() {
        let at = |ms| Instant::ORIGIN + Duration::from_millis(ms);
        let readings = [(at(1000), 0), (at(2000), 500), (at(4000), 700)];
        for (ms, bytes) in
            [(0, 0.0), (1000, 0.0), (1500, 250.0), (2000, 500.0), (3000, 600.0), (9000, 700.0)]
        {
            assert!((arrived_by(&readings, at(ms)) - bytes).abs() < 1e-9, "{ms}");
        }
        assert!(arrived_by(&[], at(5)).abs() < 1e-9);
    }
}
