//! The thread that talks to the authorities: descriptors to them, consensuses from them.

use crate::config::{Settings, announced};
use crate::descriptor::{Announcement, TapKey, write};
use crate::event::RelayEvent;
use crate::policy::target_params;
use crate::publish::{self, Answer, Patience};
use crate::running::{Command, Shared, Teller};
use crate::schedule::{Content, Schedule, Sent};
use link::{Certified, Clock, LongTermKeys, unix_time_s};
use netdoc::consensus::{Consensus, Flags};
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, ServerDescriptor, descriptor};
use onion::measure::target::TargetParams;
use onion::{Duration, Instant};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};

/// How often the observed bandwidth is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two fetches of a consensus.
const FETCH_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// Patient enough for a consensus, and not more: there is always a next attempt.
const FETCHER: Fetcher = Fetcher {
    connect_timeout: Duration::from_secs(5),
    total_timeout: Duration::from_secs(60),
    max_bytes: 64 << 20,
};

/// What a descriptor is signed with and says that does not change.
pub(crate) struct Own {
    pub(crate) keys: LongTermKeys,
    pub(crate) certified: Certified,
    pub(crate) tap: TapKey,
    pub(crate) address: SocketAddr,
}

/// The shortest time between two descriptors that are made because an authority holds on to an older
/// one: a strange authority must not keep us busy.
const REMAKE_PAUSE: Duration = Duration::from_secs(60);

/// One relay's dealings with the authorities.
pub(crate) struct Directory {
    settings: Settings,
    own: Own,
    clock: Clock,
    shared: Arc<Shared>,
    teller: Teller,
    events: Sender<RelayEvent>,
    schedule: Schedule,
    descriptor: String,
    began: Instant,
    /// Date of the last descriptor, in Unix seconds.
    published: u64,
    /// When one was last made because an authority held on to an older one.
    remade: Option<Instant>,
    fetch_at: Instant,
    fetch_pause: Duration,
    has_told_of_no_consensus: bool,
    listed: Option<Flags>,
    target: TargetParams,
}

impl Directory {
    pub(crate) fn new(
        settings: Settings,
        own: Own,
        target: TargetParams,
        clock: Clock,
        shared: Arc<Shared>,
        teller: Teller,
        events: Sender<RelayEvent>,
    ) -> Self {
        let now = clock.now();
        Self {
            schedule: Schedule::new(settings.authorities.len()),
            settings,
            own,
            clock,
            shared,
            teller,
            events,
            descriptor: String::new(),
            began: now,
            published: 0,
            remade: None,
            fetch_at: now,
            fetch_pause: FETCH_PAUSES.0,
            has_told_of_no_consensus: false,
            listed: None,
            target,
        }
    }

    /// Publishes and fetches until the relay is dropped, which `wakes` tells by its end.
    pub(crate) fn run(mut self, wakes: &Receiver<()>) {
        loop {
            while self.publish() {}
            if self.clock.now() >= self.fetch_at {
                self.fetch();
            }
            let now = self.clock.now();
            let next = [Some(now + LOOK), self.schedule.timeout(), Some(self.fetch_at)];
            let next = next.into_iter().flatten().min().unwrap_or(now);
            match wakes.recv_timeout(next - now) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
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
            limit: announced(self.shared.limit()),
            observed_bytes_s: self.shared.observed_bytes_s.load(Ordering::Relaxed),
        };
        if self.schedule.wants_descriptor(now, content) {
            // Authorities take one for newer than another by its date.
            self.published = unix_time_s().max(self.published + 1);
            let announcement = self.announcement(now, content);
            let Own { keys, certified, tap, .. } = &self.own;
            match write(&announcement, keys, certified, tap) {
                Ok(text) => self.descriptor = text,
                Err(error) => {
                    self.tell(RelayEvent::Ended(error.to_string()));
                    return false;
                }
            }
            self.schedule.descriptor_made(now, content);
        }
        while let Some(place) = self.schedule.due(now) {
            let Some(authority) = self.settings.authorities.get(place).copied() else { break };
            let result =
                publish::post(authority, &self.descriptor, self.clock, Patience::default());
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

    fn announcement(&self, now: Instant, content: Content) -> Announcement {
        Announcement {
            nickname: self.settings.nickname,
            address: self.settings.address,
            or_port: self.own.address.port(),
            rate_bytes_s: content.limit.rate.as_byte_per_s(),
            burst_bytes_s: content.limit.burst_bytes,
            observed_bytes_s: content.observed_bytes_s,
            published: self.published,
            uptime_s: (now - self.began).as_secs(),
            contact: self.settings.contact.clone(),
        }
    }

    /// Fetches a consensus from the first authority that has one.
    fn fetch(&mut self) {
        let mut problem = String::new();
        let found = self.settings.authorities.iter().find_map(|authority| {
            let consensus = FETCHER
                .get(*authority, &Resource::Consensus)
                .map_err(|error| error.to_string())
                .and_then(|text| Consensus::parse(&text).map_err(|error| error.to_string()));
            consensus.map_err(|error| problem = error).ok()
        });
        let (shortest, longest) = FETCH_PAUSES;
        match found {
            Some(consensus) => {
                self.has_told_of_no_consensus = false;
                self.fetch_pause = shortest;
                self.handle_consensus(&consensus);
                let fresh =
                    Duration::from_secs(consensus.fresh_until.saturating_sub(unix_time_s()));
                self.fetch_at = self.clock.now() + fresh.clamp(shortest, longest);
            }
            None => {
                self.fetch_at = self.clock.now() + self.fetch_pause;
                self.fetch_pause = (self.fetch_pause * 2).min(longest);
                if !std::mem::replace(&mut self.has_told_of_no_consensus, true) {
                    self.tell(RelayEvent::NoConsensus(problem));
                }
            }
        }
    }

    fn handle_consensus(&mut self, consensus: &Consensus) {
        let listed = consensus.by_fingerprint(&self.fingerprint()).map(|router| router.flags);
        if listed != self.listed {
            self.listed = listed;
            self.tell(RelayEvent::Listed(listed));
        }
        let target = target_params(&self.settings.flashflow, &|name| consensus.params.get(name));
        if target != self.target {
            self.target = target.clone();
            self.teller.tell(Command::Target(target.clone()));
            self.tell(RelayEvent::TargetParams(target));
        }
    }
}

/// Whether two descriptors differ in nothing but dates, certificates and what was observed.
fn says_the_same(a: &ServerDescriptor<'_>, b: &ServerDescriptor<'_>) -> bool {
    (a.nickname, a.address, a.or_port, a.ed25519, a.ntor_onion_key)
        == (b.nickname, b.address, b.or_port, b.ed25519, b.ntor_onion_key)
        && (a.bandwidth_avg_bytes_s, a.bandwidth_burst_bytes_s)
            == (b.bandwidth_avg_bytes_s, b.bandwidth_burst_bytes_s)
        && (a.contact_bytes, a.platform_bytes, a.proto)
            == (b.contact_bytes, b.platform_bytes, b.proto)
}
