//! The thread that talks to the authorities: descriptors to them, consensuses from them. It also
//! renews keys and certificates.

mod fetching;
mod publishing;
mod testing;
mod upkeep;

use crate::bandwidth::Bandwidth;
use crate::config::Settings;
use crate::descriptor::TapKey;
use crate::driving::Engine;
use crate::event::RelayEvent;
use crate::family::FamilyKey;
use crate::keys;
use crate::metrics::{SharedStanding, Standing};
use crate::own_addresses::{RefusedAddresses, own_addresses};
use crate::reload::Reload;
use crate::renewal::OnionKeyLife;
use crate::schedule::Schedule;
use crate::self_test::Report;
use crate::state;
use dirmgr::ConsensusFetcher;
use link::{Certified, Clock, LongTermKeys, Teller};
use netdoc::consensus::Flags;
use netdoc::fetch::Fetcher;
use onion::measure::target::TargetParams;
use onion::router::{ExitConfig, KnownRelays, Parameters};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

/// How often the observed bandwidth is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// The same until something has been observed.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// How often what was carried is stored.
const REMEMBER: Duration = Duration::from_secs(300);

/// For a descriptor.
const FETCHER: Fetcher = Fetcher {
    connect_timeout: Duration::from_secs(5),
    silence_timeout: Duration::from_secs(10),
    total_timeout: Duration::from_secs(60),
    max_bytes: 1 << 20,
};

/// What a descriptor is signed with, and where the relay is.
pub(crate) struct Own {
    pub(crate) keys: LongTermKeys,
    pub(crate) certified: Certified,
    /// When the certificates were made, in Unix seconds.
    pub(crate) certified_at: u64,
    /// When the onion key was made, in Unix seconds.
    pub(crate) onion_made: u64,
    pub(crate) tap: TapKey,
    /// The keys of its families.
    pub(crate) families: Vec<FamilyKey>,
    pub(crate) address: SocketAddr,
    /// Whether the relay serves a directory.
    pub(crate) is_directory: bool,
    /// Where it lets streams go, if anywhere.
    pub(crate) exit: Option<ExitConfig>,
    /// For new keys.
    pub(crate) rng: StdRng,
}

/// Why the directory's thread is woken.
#[derive(Debug)]
pub(crate) enum Wake {
    /// Something has changed that a descriptor has in it.
    Look,
    RenewCertificates,
    /// The configuration is another one.
    Reload(Box<Reload>),
    /// A test of ourselves has come so far.
    Tested(Report),
    /// The relay has ended.
    End,
}

/// What connects it to the other threads.
pub(crate) struct Ties {
    pub(crate) bandwidth: Arc<Bandwidth>,
    pub(crate) teller: Teller<Engine>,
    pub(crate) events: Sender<RelayEvent>,
    /// Wakes this thread.
    pub(crate) wake: Sender<Wake>,
    /// Tells how the relay stands.
    pub(crate) standing: SharedStanding,
}

/// The shortest time between two descriptors that are made because an authority holds on to an older
/// one: a strange authority must not keep us busy.
const REMAKE_PAUSE: Duration = Duration::from_secs(60);

/// One relay's dealings with the authorities.
pub(crate) struct Directory {
    settings: Settings,
    own: Own,
    clock: Clock,
    bandwidth: Arc<Bandwidth>,
    teller: Teller<Engine>,
    events: Sender<RelayEvent>,
    schedule: Schedule,
    descriptor: String,
    /// Goes with the descriptor.
    extra_info: String,
    began: Instant,
    /// Date of the last descriptor, in Unix seconds.
    published: u64,
    /// When one was last made because an authority held on to an older one.
    remade: Option<Instant>,
    fetcher: ConsensusFetcher,
    fetching: fetching::Times,
    has_told_of_no_consensus: bool,
    /// When the consensus that it goes by began to hold.
    followed_unix_s: Option<u64>,
    listed: Option<Flags>,
    target: TargetParams,
    parameters: Parameters,
    relays: KnownRelays,
    life: OnionKeyLife,
    /// When something could not be renewed: not to try it without a pause.
    failed_to_renew: Option<Instant>,
    /// When what was carried was last stored.
    remembered: Instant,
    testing: testing::Testing,
    standing: SharedStanding,
    /// What the exit policy refuses as addresses of this machine.
    refused: RefusedAddresses,
}

impl Directory {
    pub(crate) fn new(
        settings: Settings,
        own: Own,
        fetcher: ConsensusFetcher,
        target: TargetParams,
        clock: Clock,
        ties: Ties,
    ) -> Self {
        let Ties { bandwidth, teller, events, wake, standing } = ties;
        let now = clock.now();
        Self {
            schedule: Schedule::new(settings.authorities.len()),
            settings,
            own,
            clock,
            bandwidth,
            teller,
            events,
            descriptor: String::new(),
            extra_info: String::new(),
            began: now,
            published: 0,
            remade: None,
            fetcher,
            fetching: fetching::Times::new(now),
            has_told_of_no_consensus: false,
            followed_unix_s: None,
            listed: None,
            target,
            parameters: Parameters::default(),
            relays: KnownRelays::default(),
            life: OnionKeyLife::from_consensus(&|_| None),
            failed_to_renew: None,
            remembered: now,
            standing,
            refused: RefusedAddresses::default(),
            testing: testing::Testing::new(now, wake),
        }
    }

    /// Publishes, fetches and tests until the relay is dropped, which `wakes` tells.
    pub(crate) fn run(mut self, wakes: &Receiver<Wake>) {
        loop {
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
            self.tell_standing();
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

    /// How soon the observed bandwidth is looked at again: soon, as long as authorities know of none.
    fn look(&self) -> Duration {
        let is_known = self.schedule.content().is_none_or(|content| content.observed_bytes_s > 0);
        let is_settled = is_known && !self.schedule.is_being_observed(self.clock.now());
        if is_settled { LOOK } else { FIRST_LOOK }
    }

    /// Goes on with other settings, and publishes them.
    fn reload(&mut self, reload: Reload) {
        let Reload { settings, families, exit } = reload;
        self.settings = settings;
        (self.own.families, self.own.exit) = (families, exit);
        // The policy may be another one.
        self.refused = RefusedAddresses::default();
        // Whoever wants another onion key at once lets the present one's file be of long ago.
        if let Ok(made) = keys::onion_key_made(&self.settings.keys) {
            self.own.onion_made = made;
        }
        self.follow_again();
        self.schedule.discard_descriptor();
    }

    /// Has the engine refuse streams to the addresses that this machine has now.
    fn refuse_own_addresses(&mut self) {
        let Some(exit) = &self.settings.exit else { return };
        if let Some(exit) = self.refused.update(exit, own_addresses(&self.settings)) {
            self.teller.tell(|drive| drive.node_mut().set_exit(Some(exit)));
        }
    }

    fn tell_standing(&self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.own.certified.expires.duration_since(SystemTime::UNIX_EPOCH);
        *standing = Standing {
            flags: self.listed.unwrap_or_default(),
            is_reached: self.testing.is_reached(),
            certified_until: until.map_or(0, |until| until.as_secs()),
            published: self.published,
        };
    }

    /// Stores what was carried, now and then: a relay that is killed loses little of it.
    fn remember(&mut self) {
        let now = self.clock.now();
        if now < self.remembered + REMEMBER {
            return;
        }
        self.remembered = now;
        let path = self.settings.keys.join(state::FILE);
        if let Err(problem) = self.bandwidth.remembered().save(&path) {
            self.tell(RelayEvent::Trouble(problem));
        }
    }

    fn tell(&self, event: RelayEvent) {
        let _nobody_listens = self.events.send(event);
    }
}
