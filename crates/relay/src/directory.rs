//! The thread that talks to the authorities: descriptors to them, consensuses from them. It also
//! renews keys and certificates.

mod fetching;
mod testing;
mod upkeep;

use crate::bandwidth::Bandwidth;
use crate::cache;
use crate::config::{Settings, announced};
use crate::descriptor::{Announcement, Capabilities, DescriptorError, TapKey, write};
use crate::driving::Engine;
use crate::event::RelayEvent;
use crate::extra_info::ExtraInfo;
use crate::family::FamilyKey;
use crate::following::Following;
use crate::metrics::{SharedStanding, Standing};
use crate::publish::{self, Answer, Patience};
use crate::reload::Reload;
use crate::renewal::OnionKeyLife;
use crate::schedule::{Content, Schedule, Sent};
use crate::self_test::Report;
use crate::state;
use link::{Certified, Clock, LongTermKeys, Teller, unix_time_s};
use netdoc::consensus::Flags;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, ServerDescriptor, descriptor};
use onion::measure::target::TargetParams;
use onion::router::{ExitConfig, KnownRelays, Parameters};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use sha1::{Digest, Sha1};
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
    following: Following,
    fetching: fetching::Times,
    has_told_of_no_consensus: bool,
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
}

impl Directory {
    pub(crate) fn new(
        settings: Settings,
        own: Own,
        following: Following,
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
            following,
            fetching: fetching::Times::new(now),
            has_told_of_no_consensus: false,
            listed: None,
            target,
            parameters: Parameters::default(),
            relays: KnownRelays::default(),
            life: OnionKeyLife::from_consensus(&|_| None),
            failed_to_renew: None,
            remembered: now,
            standing,
            testing: testing::Testing::new(now, wake),
        }
    }

    /// Publishes, fetches and tests until the relay is dropped, which `wakes` tells.
    pub(crate) fn run(mut self, wakes: &Receiver<Wake>) {
        loop {
            self.renew();
            self.remember();
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
        if is_known { LOOK } else { FIRST_LOOK }
    }

    /// Goes on with other settings, and publishes them.
    fn reload(&mut self, reload: Reload) {
        let Reload { settings, families, exit } = reload;
        self.settings = settings;
        (self.own.families, self.own.exit) = (families, exit);
        self.follow_again();
        self.schedule.discard_descriptor();
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

    /// Makes a descriptor if one is due, and sends it to whom it is due. Whether another is due at
    /// once.
    fn publish(&mut self) -> bool {
        let now = self.clock.now();
        let content = Content {
            limit: announced(self.bandwidth.limit()),
            observed_bytes_s: self.bandwidth.observed_bytes_s(),
        };
        if self.schedule.wants_descriptor(now, content) {
            // Authorities take one for newer than another by its date.
            self.published = unix_time_s().max(self.published + 1);
            if let Err(error) = self.make_descriptor(now, content) {
                self.tell(RelayEvent::Ended(error.to_string()));
                return false;
            }
            self.schedule.descriptor_made(now, content);
        }
        while let Some(place) = self.schedule.due(now) {
            let Some(authority) = self.settings.authorities.get(place).copied() else { break };
            let both = format!("{}{}", self.descriptor, self.extra_info);
            let result = publish::post(authority, &both, self.clock, Patience::default());
            let sent = match &result {
                Ok(Answer::Accepted) => Sent::Known,
                Ok(Answer::NotNew) => self.look_at_what_it_has(authority),
                // It is busy or shutting down.
                Ok(Answer::Refused { status: 500.., .. }) | Err(_) => Sent::Failed,
                Ok(Answer::Refused { .. }) => Sent::Refused,
            };
            self.tell(match result {
                Ok(answer) => RelayEvent::Answered { authority, answer },
                Err(error) => RelayEvent::Unanswered { authority, problem: error.to_string() },
            });
            // Not before now, or one that never answers would be due again at once.
            self.schedule.handle_sent(self.clock.now(), place, sent);
            if self.schedule.wants_descriptor(now, content) {
                return true;
            }
        }
        false
    }

    /// Makes a descriptor and an extra-info document; our own directory has them at once.
    fn make_descriptor(&mut self, now: Instant, content: Content) -> Result<(), DescriptorError> {
        let announcement = self.announcement(now, content)?;
        let Own { keys, certified, tap, .. } = &self.own;
        let lines =
            self.bandwidth.extra_info_lines(announcement.published, announcement.rate_bytes_s);
        let Announcement { nickname, published, .. } = announcement;
        let extra_info = ExtraInfo::new(nickname, published, &lines, keys, certified)?;
        self.descriptor = write(&announcement, Some(&extra_info), keys, certified, tap)?;
        let digested = netdoc::pieces::server_descriptors(self.descriptor.as_bytes()).next();
        let descriptor_digest =
            digested.map_or([0; 20], |piece| Sha1::digest(piece.digested).into());
        self.extra_info = extra_info.text().to_owned();
        let cache = self.following.cache();
        let mut documents = cache::Documents::clone(&cache.get());
        documents.own = cache::Own {
            descriptor: self.descriptor.clone().into(),
            extra_info: self.extra_info.clone().into(),
            fingerprint: Some(self.fingerprint()),
            descriptor_digest,
            extra_info_digest: extra_info.sha1(),
        };
        cache.set(documents);
        Ok(())
    }

    /// An authority keeps the descriptor that it has. That is well if it says the same as ours. It
    /// doesn't if it is of the same second, before a restart, or of a time when our clock was ahead:
    /// then ours has to be later.
    fn look_at_what_it_has(&mut self, authority: SocketAddr) -> Sent {
        let resource = Resource::Descriptors(vec![self.fingerprint()]);
        let Ok(text) = FETCHER.get(authority, &resource) else { return Sent::Failed };
        let theirs = descriptor::iter(&text).next().and_then(Result::ok);
        let ours = descriptor::iter(self.descriptor.as_bytes()).next().and_then(Result::ok);
        let (Some(theirs), Some(ours)) = (theirs, ours) else { return Sent::Failed };
        if says_the_same(&theirs, &ours) {
            return Sent::Known;
        }
        let now = self.clock.now();
        if self.remade.is_none_or(|at| now - at >= REMAKE_PAUSE) {
            self.remade = Some(now);
            self.published = self.published.max(theirs.published);
            self.schedule.discard_descriptor();
        }
        Sent::Failed
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_bytes(self.own.certified.identity.rsa.0)
    }

    fn announcement(
        &self,
        now: Instant,
        content: Content,
    ) -> Result<Announcement, DescriptorError> {
        let Own { keys, certified, families, .. } = &self.own;
        let certify = |key: &FamilyKey| key.certify(keys.ed25519.public(), certified.expires);
        Ok(Announcement {
            nickname: self.settings.nickname,
            address: self.settings.address,
            or_port: self.own.address.port(),
            rate_bytes_s: content.limit.rate.as_byte_per_s(),
            burst_bytes_s: content.limit.burst_bytes,
            observed_bytes_s: content.observed_bytes_s,
            published: self.published,
            uptime_s: (now - self.began).as_secs(),
            contact: self.settings.contact.clone(),
            capabilities: Capabilities::of_engine(
                self.own.is_directory && self.testing.has_directory,
            ),
            exit: self.own.exit.clone(),
            overload: self.bandwidth.overload_line(self.published),
            family: self.settings.family.clone(),
            family_certs: families.iter().map(certify).collect::<Result<_, _>>()?,
        })
    }
}

/// Whether two descriptors differ in nothing but dates, certificates and what was observed.
fn says_the_same(a: &ServerDescriptor<'_>, b: &ServerDescriptor<'_>) -> bool {
    (a.nickname, a.address, a.or_port, a.ed25519, a.ntor_onion_key)
        == (b.nickname, b.address, b.or_port, b.ed25519, b.ntor_onion_key)
        && (a.bandwidth_avg_bytes_s, a.bandwidth_burst_bytes_s)
            == (b.bandwidth_avg_bytes_s, b.bandwidth_burst_bytes_s)
        && (a.contact_bytes, a.platform_bytes, a.proto, a.family_text)
            == (b.contact_bytes, b.platform_bytes, b.proto, b.family_text)
}
