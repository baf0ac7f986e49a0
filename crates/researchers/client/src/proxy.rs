//! The node of a client: connects programs with circuits. It decides, and does no I/O.
//!
//! Connections of programs have IDs from [`FIRST_APP`]; lower IDs are links, assigned by the
//! engine's client.

mod apps;
mod circuits;
mod latency;
mod legs;
mod pipe;
mod socks;
mod streams;

use crate::choices::Choices;
use crate::event::Event;
use crate::netdir::NetDir;
use crate::path::{Need, NoPath};
use crate::pool::Pool;
use crate::state::State;
use apps::App;
use onion::client::{CircuitNumber, Client, ClientEvent, StreamNumber};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::tunnel::conflux::LEGS_MAX;
use onion::{Duration, Instant};
use pipe::{StreamEnd, Touched};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The first ID of a program's connection.
const FIRST_APP: u32 = 1 << 31;
/// Limit on connections of programs.
const APPS_MAX: usize = 2048;
/// Interval of timeout checks while a program waits.
const BUSY_STEP: Duration = Duration::from_millis(250);
/// Interval of timeout checks while none waits.
const IDLE_STEP: Duration = Duration::from_secs(20);
/// Limit on queued events; the oldest are dropped.
const EVENTS_MAX: usize = 1 << 14;

/// The node of a client.
pub(crate) struct Proxy {
    client: Client<StdRng, StreamEnd>,
    rng: StdRng,
    choices: Choices,
    /// The Unix time at the engine's origin of time, in seconds.
    unix_origin_s: u64,
    began: Instant,
    netdir: Arc<NetDir>,
    has_bootstrapped: bool,
    state: State,
    has_state_changed: bool,
    pool: Pool<CircuitNumber>,
    apps: BTreeMap<ConnId, App>,
    by_stream: BTreeMap<StreamNumber, ConnId>,
    /// Pending latency probes: circuit, and start.
    asking: BTreeMap<StreamNumber, (CircuitNumber, Instant)>,
    apps_accepted: u32,
    circuits_opened: u64,
    /// An event has reported that no set can be built, and this has not changed.
    has_reported_no_set: bool,
    /// Purpose of the latest request, for which circuits are kept ready.
    last_need: Option<Need>,
    touched: Touched,
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Circuits and streams must be checked.
    must_plan: bool,
    plan_at: Instant,
    /// Circuits that have failed since the last success, and when to try again.
    failures: u32,
    open_at: Instant,
    /// Purposes without a path, and until when none is searched.
    no_paths: BTreeMap<Need, Instant>,
    events: VecDeque<Event>,
}

const fn is_app(conn: ConnId) -> bool {
    conn.0 >= FIRST_APP
}

impl Proxy {
    /// Creates a node without a network. All randomness comes from the generator.
    pub(crate) fn new(
        mut choices: Choices,
        state: State,
        now: Instant,
        unix_time_s: u64,
        mut rng: StdRng,
    ) -> Self {
        choices.legs = choices.legs.clamp(1, LEGS_MAX);
        let client_rng = StdRng::from_rng(&mut rng);
        let pool = Pool::new(choices.by_latency);
        Self {
            client: Client::with_applications(unix_time_s, client_rng),
            rng,
            choices,
            unix_origin_s: unix_time_s.saturating_sub((now - Instant::ORIGIN).as_secs()),
            began: now,
            netdir: Arc::default(),
            has_bootstrapped: false,
            state,
            has_state_changed: false,
            pool,
            apps: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            asking: BTreeMap::new(),
            apps_accepted: 0,
            circuits_opened: 0,
            has_reported_no_set: false,
            last_need: None,
            touched: Touched::default(),
            writable: VecDeque::new(),
            readable: VecDeque::new(),
            to_close: VecDeque::new(),
            must_plan: false,
            plan_at: now,
            failures: 0,
            open_at: now,
            no_paths: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Why the client cannot run in this network: its strategy has no data for it.
    pub(crate) fn lacks(&self, netdir: &NetDir) -> Option<NoPath> {
        let lacks = || self.choices.strategy.check(netdir).err();
        if self.has_bootstrapped { None } else { lacks() }
    }

    /// Uses this network directory.
    pub(crate) fn set_netdir(&mut self, now: Instant, netdir: Arc<NetDir>) {
        self.netdir = netdir;
        self.no_paths.clear();
        self.state.build_times.set_params(self.netdir.params());
        let congestion = onion::flow::control::CongestionParams::from_consensus(|name| {
            self.netdir.params().get(name)
        });
        self.client.set_congestion(Arc::new(congestion));
        let unix_time_s = self.unix_time_s(now);
        let Self { state, netdir, choices, rng, .. } = self;
        let strategy = &*choices.strategy;
        self.has_state_changed |= state.guards.update(netdir, strategy, unix_time_s, rng);
        let (relays, valid_until) = (self.netdir.relays().len(), self.netdir.valid_until);
        if std::mem::replace(&mut self.has_bootstrapped, true) {
            self.emit(Event::Updated { relays, valid_until });
        } else {
            let exits = self.netdir.relays().iter().filter(|relay| relay.is_exit()).count();
            let guards = self.state.guards.sample().len();
            let took = now - self.began;
            self.emit(Event::Bootstrapped { relays, exits, guards, valid_until, took });
        }
        self.must_plan = true;
        self.settle(now);
    }

    /// The consensus has expired. Streams wait, and no circuit is built, until there is a newer
    /// one.
    pub(crate) fn handle_expired(&mut self) {
        self.has_bootstrapped = false;
        let problem =
            "the consensus has expired, and no authority gives a newer one: nothing new is begun";
        self.emit(Event::Trouble { reason: problem.to_owned() });
    }

    /// The state to be saved, if it has changed since the last call.
    pub(crate) fn poll_state(&mut self) -> Option<State> {
        std::mem::take(&mut self.has_state_changed).then(|| self.state.clone())
    }

    /// The state to be saved.
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn emit(&mut self, mut event: Event) {
        if !self.choices.names_destinations {
            event.scrub();
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Sets the wall-clock time: clocks are adjusted, and a suspended machine has lost time.
    pub(crate) fn set_unix_time(&mut self, now: Instant, unix_time_s: u64) {
        self.unix_origin_s = unix_time_s.saturating_sub((now - Instant::ORIGIN).as_secs());
        self.client.set_unix_time(unix_time_s);
    }

    fn unix_time_s(&self, now: Instant) -> u64 {
        self.unix_origin_s + (now - Instant::ORIGIN).as_secs()
    }

    /// Handles all events of the engine's client.
    fn settle(&mut self, now: Instant) {
        // Data of a stream is handled before its end.
        self.look_at_pipes(now);
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Built { circuit, took } => self.handle_built(now, circuit, took),
                ClientEvent::LegBuilt { circuit, leg, took } => {
                    self.handle_leg_built(now, circuit, leg, took);
                }
                ClientEvent::LegLost { circuit, leg, cause } => {
                    self.handle_leg_lost(now, circuit, leg, &cause);
                }
                ClientEvent::Lost { circuit, cause } => self.handle_lost(now, circuit, &cause),
                ClientEvent::Over { stream, outcome, figures } => {
                    if !self.handle_answered(stream, &figures) {
                        self.handle_over(now, stream, outcome);
                    }
                }
            }
        }
        if std::mem::take(&mut self.must_plan) {
            self.plan(now);
        }
    }

    /// Checks circuits and streams: timeouts, waiting requests, circuits to keep ready.
    fn plan(&mut self, now: Instant) {
        self.end_overdue(now);
        self.attach_waiting(now);
        self.prebuild(now);
        self.ask_circuits(now);
        let is_busy = self.pool.building() > 0 || self.apps.values().any(App::is_waiting);
        let idle = if self.choices.by_latency { latency::AGAIN } else { IDLE_STEP };
        self.plan_at = now + if is_busy { BUSY_STEP } else { idle };
    }
}

impl Node for Proxy {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.client.handle_connected(now, conn, tls);
        self.settle(now);
    }

    fn handle_accepted(
        &mut self,
        now: Instant,
        _listener: ListenerId,
        session: &dyn TlsSession,
    ) -> Option<ConnId> {
        if self.apps.len() >= APPS_MAX {
            return None;
        }
        let conn = ConnId(FIRST_APP + self.apps_accepted % FIRST_APP);
        self.apps_accepted = self.apps_accepted.wrapping_add(1);
        self.apps
            .insert(conn, App::new(u64::from(self.apps_accepted), now, session.peer_address()));
        Some(conn)
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        if is_app(conn) {
            self.handle_app_bytes(now, conn, plaintext);
        } else {
            self.client.handle_bytes(now, conn, plaintext);
        }
        self.settle(now);
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        if is_app(conn) {
            self.handle_app_closed(now, conn, &cause);
        } else {
            self.client.handle_closed(now, conn, cause);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(now);
        }
        self.must_plan |= self.plan_at <= now;
        self.settle(now);
    }

    fn poll_dial(&mut self, now: Instant) -> Option<Dial> {
        self.client.poll_dial(now)
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        if let Some(conn) = self.client.poll_writable() {
            return Some(conn);
        }
        loop {
            let conn = self.writable.pop_front()?;
            if let Some(app) = self.apps.get_mut(&conn).filter(|app| !app.is_gone()) {
                app.is_queued = false;
                return Some(conn);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        if is_app(conn) {
            return self.transmit_to_app(now, conn, out);
        }
        let len = self.client.poll_transmit(now, conn, out);
        // Programs whose data was sent may send more.
        self.look_at_pipes(now);
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        if let Some(conn) = self.client.poll_close() {
            return Some(conn);
        }
        loop {
            let conn = self.to_close.pop_front()?;
            if self.apps.remove(&conn).is_some() {
                return Some(conn);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout().into_iter().chain([self.plan_at]).min()
    }

    fn receive_limit(&self, conn: ConnId) -> usize {
        match self.apps.get(&conn) {
            Some(app) if is_app(conn) => app.room(),
            _ => usize::MAX,
        }
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.readable.pop_front()?;
            if self.apps.get(&conn).is_some_and(|app| !app.is_gone()) {
                return Some(conn);
            }
        }
    }
}
