//! Clients of a relay on this machine: circuits of two hops through the relay, back to this process.

use super::nodes::{NodeError, Nodes, listen, rng};
use link::{Clock, Drive, DriverOptions, NodeThread, Observer, ThreadError, unix_time_s};
use onion::measure::load::{
    Event, LoadConfig, LoadGenerator, Pace, ReturnPath, ReturnRelay, Target,
};
use onion::{Duration, Instant, Rate};
use rand::rngs::StdRng;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The traffic of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientTraffic {
    /// The maximum rate, over all circuits.
    pub rate: Rate,
    /// Links to the relay.
    pub links: u32,
    /// Circuits on each link.
    pub circuits_per_link: u32,
    /// Whether it begins at once. If false, circuits are open and idle until [`ClientLoad::flow`].
    pub begins_at_once: bool,
}

impl ClientTraffic {
    /// Steady traffic over a few circuits, which begins at once.
    #[must_use]
    pub const fn at(rate: Rate) -> Self {
        Self { rate, links: 2, circuits_per_link: 1, begins_at_once: true }
    }
}

/// Maximum number of cells in flight on a circuit. They are queued while the relay limits its clients, and sent
/// at once afterwards. All circuits together hold a tenth of a second at 80 Mbit/s.
const WINDOW_CELLS: u32 = 1000;

/// Maximum time to build links and circuits.
const SETUP: Duration = Duration::from_secs(30);

/// How often the generator's events are read.
const POLL: Duration = Duration::from_millis(20);

/// The length of the load, longer than any experiment.
const LENGTH_S: u32 = 24 * 3600;

/// Client traffic through a relay at a steady rate, until this is dropped.
pub struct ClientLoad {
    clock: Clock,
    state: SharedState,
    _thread: NodeThread<LoadGenerator<StdRng>>,
}

#[derive(Default)]
struct LoadState {
    /// Whether it may begin when its circuits are open.
    may_flow: bool,
    is_ready: bool,
    is_flowing: bool,
    /// The reason that the load ended.
    failure: Option<String>,
}

/// The state of the load, for both threads.
#[derive(Clone, Default)]
struct SharedState(Arc<Mutex<LoadState>>);

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, LoadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientLoad {
    /// Opens circuits through a relay on loopback, and sends. Returns once traffic flows, or may flow.
    ///
    /// # Errors
    /// The relay does not serve its clients, or nodes cannot start.
    pub fn start(target: Target, traffic: ClientTraffic, clock: Clock) -> Result<Self, NodeError> {
        let mut nodes = Nodes::new(clock)?;
        let (mut landings, mut listeners) = (Vec::new(), Vec::new());
        let ClientTraffic { rate, links: sockets, circuits_per_link, begins_at_once } = traffic;
        let circuits = sockets.saturating_mul(circuits_per_link);
        for _ in 0..sockets {
            let (address, listener) = listen(None, Ipv4Addr::LOCALHOST, 0)?;
            landings.push(ReturnRelay { identity: nodes.identity()?, address });
            listeners.push(listener);
        }
        let config = LoadConfig {
            held_back: None,
            few_circuits: None,
            target,
            return_path: ReturnPath::Transit { landings, authenticate_as: Vec::new() },
            sockets,
            circuits_per_socket: circuits_per_link,
            pace: Pace { burst: sockets, per_s: NonZeroU32::MIN.saturating_add(19) },
            second_tries: circuits,
            seconds: LENGTH_S,
            rate,
            window_cap_cells: WINDOW_CELLS,
            check_one_in: NonZeroU32::MIN.saturating_add(124),
            setup_timeout: SETUP,
            // A relay may starve its clients. Experiments must observe that, so the load does not give up.
            stall_timeout: Duration::from_secs(u64::from(LENGTH_S)),
            unix_time_s: unix_time_s(),
        };
        let generator = LoadGenerator::new(config, rng()?, clock.now());
        let options =
            DriverOptions { coalesce: Duration::from_millis(1), ..DriverOptions::default() };
        let state = SharedState::default();
        state.lock().may_flow = begins_at_once;
        let starter = Starter { state: state.clone() };
        let thread = nodes.start(None, generator, listeners, options, starter)?;
        let load = Self { clock, state, _thread: thread };
        load.wait_until_ready()?;
        Ok(load)
    }

    /// Lets the traffic flow.
    pub fn flow(&self) {
        self.state.lock().may_flow = true;
    }

    fn wait_until_ready(&self) -> Result<(), NodeError> {
        let deadline = self.clock.now() + SETUP + SETUP;
        loop {
            let state = self.state.lock();
            if state.is_flowing || (state.is_ready && !state.may_flow) {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(NodeError::Clients(failure.clone()));
            }
            drop(state);
            if self.clock.now() >= deadline {
                let problem = "their circuits are not open in time";
                return Err(NodeError::Clients(problem.to_owned()));
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The reason that the load ended before it was dropped, if it has.
    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }
}

/// Starts the traffic when circuits are open, and records why it ends.
struct Starter {
    state: SharedState,
}

impl Observer<LoadGenerator<StdRng>> for Starter {
    fn before_turn(&mut self, drive: &mut dyn Drive<LoadGenerator<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let mut state = self.state.lock();
        while let Some(event) = drive.node_mut().poll_event() {
            match event {
                Event::Ready { .. } => state.is_ready = true,
                Event::Lost { problem, .. } => state.failure = Some(problem),
                Event::Failed(failure) => state.failure = Some(failure.to_string()),
                Event::Second(_) | Event::Finished => {}
            }
        }
        if state.is_ready && state.may_flow && !state.is_flowing {
            drive.node_mut().start(now, now);
            state.is_flowing = true;
        }
        Some(now + POLL)
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.state.lock().failure.get_or_insert(failure.to_string());
    }
}
