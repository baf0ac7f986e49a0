//! The thread that talks to the authorities: publishes descriptors, follows the consensus, tests
//! the relay, and renews keys and certificates.

mod fetching;
mod publishing;
mod testing;
mod upkeep;

use crate::bandwidth::Bandwidth;
use crate::config::Settings;
use crate::descriptor::TapKey;
use crate::engine::Engine;
use crate::event::RelayEvent;
use crate::family::FamilyKey;
use crate::keys;
use crate::metrics::{RelayStatus, SharedStatus};
use crate::own_addresses::{RefusedAddresses, own_addresses};
use crate::reload::Reload;
use crate::renewal::OnionKeyLife;
use crate::schedule::Schedule;
use crate::self_test::Report;
use crate::state;
use dirmgr::ConsensusFetcher;
use link::{Certified, Clock, ClockWatch, LongTermKeys, NodeHandle};
use netdoc::consensus::Flags;
use netdoc::fetch::Fetcher;
use onion::measure::target::TargetParams;
use onion::router::{ExitConfig, KnownRelays, Parameters};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};

/// Interval at which the observed bandwidth is checked.
const LOOK: Duration = Duration::from_secs(60);
/// The interval until something has been observed.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Interval at which the bandwidth history is stored.
const REMEMBER: Duration = Duration::from_secs(300);

/// Limits for fetching a descriptor.
const FETCHER: Fetcher = Fetcher {
    connect_timeout: Duration::from_secs(5),
    silence_timeout: Duration::from_secs(10),
    total_timeout: Duration::from_secs(60),
    max_bytes: 1 << 20,
};

/// The content of a descriptor that rarely changes, and the keys to sign it.
pub(crate) struct Own {
    pub(crate) keys: LongTermKeys,
    pub(crate) certified: Certified,
    /// When the certificates were issued, in Unix seconds.
    pub(crate) certified_at: u64,
    /// When the onion key was generated, in Unix seconds.
    pub(crate) onion_made: u64,
    pub(crate) tap: TapKey,
    /// Its family keys.
    pub(crate) families: Vec<FamilyKey>,
    pub(crate) address: SocketAddr,
    /// Whether the relay serves a directory.
    pub(crate) is_directory: bool,
    /// Its exit policy, if any.
    pub(crate) exit: Option<ExitConfig>,
    /// Generates new keys.
    pub(crate) rng: StdRng,
}

/// Why the directory thread is woken.
#[derive(Debug)]
pub(crate) enum Wake {
    /// The content of the descriptor may have changed, or the clock was set.
    Look,
    RenewCertificates,
    /// The configuration has changed.
    Reload(Box<Reload>),
    /// A self-test has a result.
    Tested(Report),
    /// The relay has ended.
    End,
}

/// Connections to the other threads.
pub(crate) struct DirectoryLinks {
    pub(crate) bandwidth: Arc<Bandwidth>,
    pub(crate) engine: NodeHandle<Engine>,
    pub(crate) events: Sender<RelayEvent>,
    /// Wakes the directory thread.
    pub(crate) wake: Sender<Wake>,
    /// The relay's status, for metrics.
    pub(crate) status: SharedStatus,
}

/// The minimum interval between descriptors that are made because an authority has an older one: a
/// misbehaving authority must not cause load.
const REMAKE_PAUSE: Duration = Duration::from_secs(60);

/// State of the directory thread.
pub(crate) struct Directory {
    settings: Settings,
    own: Own,
    clock: Clock,
    bandwidth: Arc<Bandwidth>,
    engine: NodeHandle<Engine>,
    events: Sender<RelayEvent>,
    schedule: Schedule,
    descriptor: String,
    /// Published with the descriptor.
    extra_info: String,
    began: Instant,
    /// Date of the latest descriptor, in Unix seconds. The next one is later, unless the clock was set.
    published: u64,
    /// When the clock was last set.
    clock_jumped: Option<Instant>,
    clock_watch: ClockWatch,
    /// When a descriptor was last made because an authority had an older one.
    remade: Option<Instant>,
    fetcher: ConsensusFetcher,
    fetching: fetching::Times,
    has_reported_no_consensus: bool,
    /// When the current consensus became valid, in Unix seconds.
    followed_unix_s: Option<u64>,
    listed: Option<Flags>,
    target: TargetParams,
    parameters: Parameters,
    relays: KnownRelays,
    life: OnionKeyLife,
    /// When a renewal last failed: it is retried after a pause.
    failed_to_renew: Option<Instant>,
    /// When the bandwidth history was last stored.
    remembered: Instant,
    testing: testing::Testing,
    status: SharedStatus,
    /// Own addresses that the exit policy refuses.
    refused: RefusedAddresses,
}

impl Directory {
    pub(crate) fn new(
        settings: Settings,
        own: Own,
        fetcher: ConsensusFetcher,
        target: TargetParams,
        clock: Clock,
        links: DirectoryLinks,
    ) -> Self {
        let DirectoryLinks { bandwidth, engine, events, wake, status } = links;
        let now = clock.now();
        Self {
            schedule: Schedule::new(settings.authorities.len()),
            settings,
            own,
            clock,
            bandwidth,
            engine,
            events,
            descriptor: String::new(),
            extra_info: String::new(),
            began: now,
            published: 0,
            clock_jumped: None,
            clock_watch: ClockWatch::start(),
            remade: None,
            fetcher,
            fetching: fetching::Times::new(now),
            has_reported_no_consensus: false,
            followed_unix_s: None,
            listed: None,
            target,
            parameters: Parameters::default(),
            relays: KnownRelays::default(),
            life: OnionKeyLife::from_consensus(&|_| None),
            failed_to_renew: None,
            remembered: now,
            status,
            refused: RefusedAddresses::default(),
            testing: testing::Testing::new(now, wake),
        }
    }

    /// Publishes, fetches and tests until `wakes` receives the end of the relay.
    pub(crate) fn run(mut self, wakes: &Receiver<Wake>) {
        loop {
            // First of all: nothing is renewed by a new time before it is known to be new.
            if let Some(jump) = self.clock_watch.poll() {
                self.emit(RelayEvent::ClockJumped(jump));
                self.handle_clock_jump();
            }
            self.renew();
            self.remember();
            self.refuse_own_addresses();
            let mut next = vec![self.clock.now() + self.look()];
            if !self.settings.authorities.is_empty() {
                if self.may_publish() {
                    while self.publish() {}
                    next.extend(self.schedule.timeout());
                }
                self.fetch();
                self.test();
                next.extend(
                    [self.fetching.timeout(), self.testing.timeout()].into_iter().flatten(),
                );
            }
            self.update_status();
            let now = self.clock.now();
            let next = next.into_iter().min().unwrap_or(now);
            match wakes.recv_timeout(next - now) {
                Ok(Wake::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Wake::RenewCertificates) => self.own.certified_at = 0,
                Ok(Wake::Tested(report)) => self.handle_tested(report),
                Ok(Wake::Reload(reload)) => self.reload(*reload),
                Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The delay until the observed bandwidth is checked again: short until authorities have a
    /// nonzero value.
    fn look(&self) -> Duration {
        let is_known = self.schedule.content().is_none_or(|content| content.observed_bytes_s > 0);
        let is_settled = is_known && !self.schedule.is_being_observed(self.clock.now());
        if is_settled { LOOK } else { FIRST_LOOK }
    }

    /// Applies another configuration, and publishes it.
    fn reload(&mut self, reload: Reload) {
        let Reload { settings, families, exit } = reload;
        self.settings = settings;
        (self.own.families, self.own.exit) = (families, exit);
        // The policy may have changed.
        self.refused = RefusedAddresses::default();
        // An operator forces a new onion key by setting the file's date back.
        if let Ok(made) = keys::onion_key_made(&self.settings.keys) {
            self.own.onion_made = made;
        }
        self.follow_again();
        self.schedule.discard_descriptor();
    }

    /// The clock was set. Dates of before do not count: a descriptor with the present date replaces the last one, the consensus is
    /// looked at again, and so is its age.
    fn handle_clock_jump(&mut self) {
        let now = self.clock.now();
        self.clock_jumped = Some(now);
        self.published = 0;
        self.remade = None;
        self.schedule.discard_descriptor();
        self.fetching = fetching::Times::new(now);
        self.failed_to_renew = None;
    }

    /// Makes the engine refuse streams to the current addresses of this host.
    fn refuse_own_addresses(&mut self) {
        let Some(exit) = &self.settings.exit else { return };
        if let Some(exit) = self.refused.update(exit, own_addresses(&self.settings)) {
            self.engine.run(|drive| drive.node_mut().set_exit(Some(exit)));
        }
    }

    fn update_status(&self) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        *status = RelayStatus {
            flags: self.listed.unwrap_or_default(),
            is_reached: self.testing.is_reached(),
            certified_until: self.own.certified.expires_unix_s,
            published: self.published,
        };
    }

    /// Stores the bandwidth history regularly, so that a crash loses little of it.
    fn remember(&mut self) {
        let now = self.clock.now();
        if now < self.remembered + REMEMBER {
            return;
        }
        self.remembered = now;
        let path = self.settings.keys.join(state::FILE);
        if let Err(problem) = self.bandwidth.remembered().save(&path) {
            self.emit(RelayEvent::Trouble(problem));
        }
    }

    fn emit(&self, event: RelayEvent) {
        let _nobody_listens = self.events.send(event);
    }
}
