//! The node of a client: programs on one side, circuits on the other. It decides, and does no I/O.
//!
//! Programs' connections have numbers from [`FIRST_APP`] on, links those below, which the engine's client gives.

mod apps;
mod circuits;
mod latency;
mod legs;
mod pipe;
mod socks;
mod streams;

use crate::event::Event;
use crate::path::{Need, NoPath, Rules};
use crate::pool::Pool;
use crate::state::State;
use crate::strategy::Strategy;
use crate::view::View;
use apps::App;
use onion::cell::msg::DesiredUx;
use onion::client::{CircuitNumber, Client, ClientEvent, StreamNumber};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::tunnel::conflux::LegScheduler;
use onion::{Duration, Instant};
use pipe::{StreamEnd, Touched};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The first number of a program's connection.
const FIRST_APP: u32 = 1 << 31;
/// Connections of programs at once, at most.
const APPS_MAX: usize = 2048;
/// How often it looks whether something takes too long, while somebody waits.
const BUSY_STEP: Duration = Duration::from_millis(250);
/// The same while nobody does.
const IDLE_STEP: Duration = Duration::from_secs(20);
/// Events that wait to be asked for, at most; a shell that does not ask misses the oldest.
const EVENTS_MAX: usize = 1 << 14;

/// What a client is to be.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) rules: Rules,
    /// Circuits of a set; one for none.
    pub(crate) legs: usize,
    pub(crate) leg_scheduler: &'static dyn LegScheduler,
    pub(crate) desired: DesiredUx,
    /// Streams go to the circuit that answers fastest now.
    pub(crate) by_latency: bool,
    /// Streams and questions about private networks are refused.
    pub(crate) rejects_internal: bool,
    /// Events name destinations.
    pub(crate) names_destinations: bool,
}

/// The node of a client.
pub(crate) struct Proxy {
    client: Client<StdRng, StreamEnd>,
    rng: StdRng,
    choices: Choices,
    /// In Unix seconds, at the origin of time.
    unix_origin_s: u64,
    began: Instant,
    view: Arc<View>,
    has_bootstrapped: bool,
    state: State,
    has_state_changed: bool,
    pool: Pool<CircuitNumber>,
    apps: BTreeMap<ConnId, App>,
    by_stream: BTreeMap<StreamNumber, ConnId>,
    /// Questions for round trips: which circuit, and since when.
    asking: BTreeMap<StreamNumber, (CircuitNumber, Instant)>,
    apps_accepted: u32,
    circuits_opened: u64,
    /// It was told that there is no set of circuits to be had, and has not changed since.
    has_told_no_set: bool,
    /// For which streams circuits are kept ready: those that were asked for last.
    last_need: Option<Need>,
    touched: Touched,
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// Circuits and streams are to be looked after.
    must_plan: bool,
    plan_at: Instant,
    /// Circuits that have failed since one stood, and when to try again.
    failures: u32,
    open_at: Instant,
    /// For what there was no path, and until when none is looked for.
    no_paths: BTreeMap<Need, Instant>,
    events: VecDeque<Event>,
}

const fn is_app(conn: ConnId) -> bool {
    conn.0 >= FIRST_APP
}

impl Proxy {
    /// One that knows no network yet. All randomness comes from the generator.
    pub(crate) fn new(
        choices: Choices,
        state: State,
        now: Instant,
        unix_time_s: u64,
        mut rng: StdRng,
    ) -> Self {
        let client_rng = StdRng::from_rng(&mut rng);
        let pool = Pool::new(choices.by_latency);
        Self {
            client: Client::with_applications(unix_time_s, client_rng),
            rng,
            choices,
            unix_origin_s: unix_time_s.saturating_sub((now - Instant::ORIGIN).as_secs()),
            began: now,
            view: Arc::default(),
            has_bootstrapped: false,
            state,
            has_state_changed: false,
            pool,
            apps: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            asking: BTreeMap::new(),
            apps_accepted: 0,
            circuits_opened: 0,
            has_told_no_set: false,
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

    /// Why the client cannot begin in this network, if it cannot: its strategy knows none of its relays.
    pub(crate) fn lacks(&self, view: &View) -> Option<NoPath> {
        let lacks = || self.choices.strategy.check(view).err();
        if self.has_bootstrapped { None } else { lacks() }
    }

    /// The network is this one from now on.
    pub(crate) fn set_view(&mut self, now: Instant, view: Arc<View>) {
        self.view = view;
        self.no_paths.clear();
        self.state.build_times.set_params(self.view.params());
        let congestion = onion::flow::control::CongestionParams::from_consensus(|name| {
            self.view.params().get(name)
        });
        self.client.set_congestion(Arc::new(congestion));
        let unix_time_s = self.unix_time_s(now);
        let Self { state, view, choices, rng, .. } = self;
        let strategy = &*choices.strategy;
        self.has_state_changed |= state.guards.update(view, strategy, unix_time_s, rng);
        let (relays, valid_until) = (self.view.relays().len(), self.view.valid_until);
        if std::mem::replace(&mut self.has_bootstrapped, true) {
            self.tell(Event::Updated { relays, valid_until });
        } else {
            let exits = self.view.relays().iter().filter(|relay| relay.is_exit()).count();
            let guards = self.state.guards.sample().len();
            let took = now - self.began;
            self.tell(Event::Bootstrapped { relays, exits, guards, valid_until, took });
        }
        self.must_plan = true;
        self.settle(now);
    }

    /// What is known of the network is too old. Streams wait, and no circuit begins, until there is something newer.
    pub(crate) fn handle_expired(&mut self) {
        self.has_bootstrapped = false;
        let problem =
            "the consensus has expired, and no authority gives a newer one: nothing new is begun";
        self.tell(Event::Trouble(problem.to_owned()));
    }

    /// What is to be remembered, if that has changed since it was last asked for.
    pub(crate) fn poll_state(&mut self) -> Option<State> {
        std::mem::take(&mut self.has_state_changed).then(|| self.state.clone())
    }

    /// What is to be remembered.
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn tell(&mut self, mut event: Event) {
        if !self.choices.names_destinations {
            event.scrub();
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn unix_time_s(&self, now: Instant) -> u64 {
        self.unix_origin_s + (now - Instant::ORIGIN).as_secs()
    }

    /// Takes up all that has happened.
    fn settle(&mut self, now: Instant) {
        // What a stream has said before its end comes before the end.
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

    /// Looks after circuits and streams: what takes too long, what waits, what is to be ready.
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
        // Programs whose bytes have left may send more.
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
