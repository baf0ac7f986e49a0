use super::Directory;
use crate::event::RelayEvent;
use crate::policy::{known_relays, target_params};
use crate::renewal::OnionKeyLife;
use dirmgr::{FetchOutcome, StoreError, schedule};
use link::unix_time_s;
use netdoc::Consensus;
use onion::measure::target::TargetParams;
use onion::router::Parameters;
use onion::{Duration, Instant};
use rand::RngExt;

/// The first and the maximum pause after a fetch without success; each is twice the previous one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));
/// The minimum pause between two fetches.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// When fetches are due.
#[derive(Debug)]
pub(super) struct Times {
    /// When consensuses are due.
    listings_at: Instant,
    /// When documents are due that no authority had at the last fetch.
    documents_at: Option<Instant>,
    pause: Duration,
}

impl Times {
    pub(super) const fn new(now: Instant) -> Self {
        Self { listings_at: now, documents_at: None, pause: PAUSES.0 }
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        [Some(self.listings_at), self.documents_at].into_iter().flatten().min()
    }

    /// The pause after an attempt without success.
    fn back_off(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
        pause
    }
}

impl Directory {
    /// Performs the fetches that are due.
    pub(super) fn fetch(&mut self) {
        let now = self.clock.now();
        if now >= self.fetching.listings_at {
            self.fetch_listings();
        } else if self.fetching.documents_at.is_some_and(|at| now >= at) {
            let problem = self.fetcher.fetch_documents(unix_time_s());
            self.emit_trouble(problem);
            self.plan_documents();
        }
    }

    fn fetch_listings(&mut self) {
        let unix = unix_time_s();
        let FetchOutcome { is_new, unstored } = self.fetcher.fetch(unix);
        self.emit_trouble(unstored);
        let documents = self.fetcher.cache().get();
        let known = documents.ns.as_ref().or(documents.microdesc.as_ref());
        let consensus = known.map(|listing| &listing.content);
        let live = consensus.filter(|consensus| schedule::is_reasonably_live(consensus, unix));
        if let Some(consensus) = live {
            self.handle_consensus(consensus);
        }
        let chance: f64 = self.own.rng.random();
        let planned = live.map_or(Duration::ZERO, |live| schedule::fetch_delay(live, unix, chance));
        let pause = match is_new {
            Ok(true) => {
                self.has_reported_no_consensus = false;
                self.fetching.pause = PAUSES.0;
                planned.max(LEAST_PAUSE)
            }
            Ok(false) => {
                self.has_reported_no_consensus = false;
                planned.max(self.fetching.back_off())
            }
            Err(problem) => {
                if !std::mem::replace(&mut self.has_reported_no_consensus, true) {
                    self.emit(RelayEvent::NoConsensus(problem.to_string()));
                }
                self.fetching.back_off()
            }
        };
        self.fetching.listings_at = self.clock.now() + pause;
        self.plan_documents();
    }

    /// Missing documents are requested again soon, with growing pauses, until the next consensus.
    fn plan_documents(&mut self) {
        let documents = self.fetcher.cache().get();
        let is_complete =
            documents.missing_micro().is_empty() && documents.missing_descriptors().is_empty();
        let pause = self.fetching.back_off();
        self.fetching.documents_at = (!is_complete).then(|| self.clock.now() + pause);
        if is_complete {
            self.fetching.pause = PAUSES.0;
        }
    }

    fn emit_trouble(&self, problem: Option<StoreError>) {
        if let Some(problem) = problem {
            self.emit(RelayEvent::Trouble(problem.to_string()));
        }
    }

    fn handle_consensus(&mut self, consensus: &Consensus) {
        let listed = consensus.by_fingerprint(&self.fingerprint()).map(|router| router.flags);
        if listed != self.listed {
            self.listed = listed;
            self.emit(RelayEvent::Listed(listed));
        }
        let get = |name: &str| consensus.params.get(name);
        self.life = OnionKeyLife::from_consensus(&get);
        let parameters = Parameters::from_consensus(consensus.params.iter());
        if parameters != self.parameters {
            self.parameters = parameters.clone();
            self.engine.run(|drive| drive.node_mut().set_parameters(parameters));
        }
        let relays = known_relays(consensus);
        if relays != self.relays {
            self.relays = relays.clone();
            self.engine.run(|drive| drive.node_mut().set_relays(relays));
        }
        self.handle_target(target_params(&self.settings.flashflow, &get));
        if self.followed_unix_s.replace(consensus.valid_after) != Some(consensus.valid_after) {
            let event = RelayEvent::Consensus {
                valid_after_unix_s: consensus.valid_after,
                relays: consensus.routers().len(),
            };
            // Sent by the engine's thread after all of the above: a receiver may rely on them.
            let events = self.events.clone();
            self.engine.run(move |_| _ = events.send(event));
        }
    }

    /// Applies a changed configuration with the current consensus.
    pub(super) fn follow_again(&mut self) {
        let documents = self.fetcher.cache().get();
        let known = documents.ns.as_ref().or(documents.microdesc.as_ref());
        let live =
            known.filter(|listing| schedule::is_reasonably_live(&listing.content, unix_time_s()));
        let get = |name: &str| live.and_then(|listing| listing.content.params.get(name));
        self.handle_target(target_params(&self.settings.flashflow, &get));
    }

    fn handle_target(&mut self, target: TargetParams) {
        if target != self.target {
            self.target = target.clone();
            let theirs = target.clone();
            self.engine.run(|drive| drive.node_mut().set_target_params(theirs));
            self.emit(RelayEvent::TargetParams(target));
        }
    }
}
