//! The thread that talks to the authorities: descriptors to them, consensuses from them.

use crate::config::{Settings, announced};
use crate::descriptor::{self, Announcement, TapKey};
use crate::event::RelayEvent;
use crate::policy::target_params;
use crate::publish::{self, Answer, Patience};
use crate::running::{Command, Shared, Teller};
use crate::schedule::{Content, Schedule, Sent};
use link::{Certified, Clock, LongTermKeys, unix_time_s};
use netdoc::Fingerprint;
use netdoc::consensus::{Consensus, Flags};
use netdoc::fetch::{Fetcher, Resource};
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

/// What a descriptor is signed with and says that does not change.
pub(crate) struct Own {
    pub(crate) keys: LongTermKeys,
    pub(crate) certified: Certified,
    pub(crate) tap: TapKey,
    pub(crate) address: SocketAddr,
}

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
            self.publish();
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

    /// Makes a descriptor if one is due, and sends it to whom it is due.
    fn publish(&mut self) {
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
            match descriptor::write(&announcement, keys, certified, tap) {
                Ok(text) => self.descriptor = text,
                Err(error) => self.tell(RelayEvent::Ended(error.to_string())),
            }
            self.schedule.descriptor_made(now, content);
        }
        while let Some(place) = self.schedule.due(now) {
            let Some(authority) = self.settings.authorities.get(place).copied() else { return };
            let result =
                publish::post(authority, &self.descriptor, self.clock, Patience::default());
            let sent = match &result {
                Ok(Answer::Accepted | Answer::NotNew) => Sent::Known,
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
        }
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
        // Short, since a relay's authorities are few and the consensus waits for the next attempt.
        let fetcher = Fetcher {
            connect_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(60),
            ..Fetcher::default()
        };
        let mut problem = String::new();
        let found = self.settings.authorities.iter().find_map(|authority| {
            let consensus = fetcher
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
        let fingerprint = Fingerprint::from_bytes(self.own.certified.identity.rsa.0);
        let listed = consensus.by_fingerprint(&fingerprint).map(|router| router.flags);
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
