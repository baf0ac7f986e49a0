use super::{Directory, Wake};
use crate::config::announced;
use crate::event::RelayEvent;
use crate::self_test::{self, Kit, Others, Reachability, Report};
use onion::circuit::NextHop;
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

/// The first and the maximum pause after a failed test; each is twice the previous one. C tor tries
/// once a minute.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// A lack of relays to test with is reported only after this time: a new network may just be
/// starting.
const PATIENCE: Duration = Duration::from_secs(60);

/// State of the self-tests.
#[derive(Debug)]
pub(super) struct Testing {
    is_reached: bool,
    /// Whether the directory answered, if it was asked.
    pub(super) has_directory: bool,
    is_padded: bool,
    is_running: bool,
    /// When the next test is due.
    next: Instant,
    pause: Duration,
    /// When the first test would have been possible with other relays.
    began: Instant,
    has_told_of_nobody: bool,
    /// Dropped with the relay, which ends a running test.
    relay: Arc<()>,
    wake: Sender<Wake>,
}

impl Testing {
    pub(super) fn new(now: Instant, wake: Sender<Wake>) -> Self {
        Self {
            is_reached: false,
            has_directory: true,
            is_padded: false,
            is_running: false,
            next: now,
            pause: PAUSES.0,
            began: now,
            has_told_of_nobody: false,
            relay: Arc::new(()),
            wake,
        }
    }

    /// When to check again; `None` if nothing is left to test, or a test is running.
    pub(super) fn timeout(&self) -> Option<Instant> {
        (!self.is_running && !self.is_over()).then_some(self.next)
    }

    pub(super) const fn is_reached(&self) -> bool {
        self.is_reached
    }

    const fn is_over(&self) -> bool {
        self.is_reached && self.is_padded
    }
}

impl Directory {
    /// Whether a descriptor may be published.
    pub(super) const fn may_publish(&self) -> bool {
        self.testing.is_reached || self.settings.assumes_reachable
    }

    /// Starts a self-test if one is due.
    pub(super) fn test(&mut self) {
        let now = self.clock.now();
        if self.testing.timeout().is_none_or(|at| now < at) {
            return;
        }
        let fingerprint = self.fingerprint();
        let documents = self.fetcher.cache().get();
        let address = self.settings.address;
        let others = Others::from_documents(&documents, &fingerprint, address, &mut self.own.rng);
        self.testing.next = now + self.testing.pause;
        if others.is_empty() {
            let is_late = now - self.testing.began >= PATIENCE;
            if is_late && !std::mem::replace(&mut self.testing.has_told_of_nobody, true) {
                let problem = "no consensus names another relay that could connect to us";
                self.handle_unreached(problem.to_owned());
            }
            // The network may just have started.
            self.testing.next = now + Duration::from_secs(1);
            return;
        }
        let kit = Kit {
            own: NextHop::to_own(&self.own.certified.identity, self.own.address),
            others,
            is_directory: self.own.is_directory,
            padding: (!self.testing.is_padded).then(|| announced(self.bandwidth.limit()).rate),
            clock: self.clock,
            rng: StdRng::from_rng(&mut self.own.rng),
            engine: self.engine.clone(),
            relay: Arc::downgrade(&self.testing.relay),
        };
        let wake = self.testing.wake.clone();
        let thread = thread::Builder::new().name("self-test".to_owned());
        let report = move |report| _ = wake.send(Wake::Tested(report));
        match thread.spawn(move || self_test::run(kit, &report)) {
            Ok(_) => self.testing.is_running = true,
            Err(error) => self.emit(RelayEvent::Trouble(format!("machine: no thread: {error}"))),
        }
    }

    /// Handles the result of a test, or of a part of it.
    pub(super) fn handle_tested(&mut self, report: Report) {
        let now = self.clock.now();
        match report {
            Report::Reached(directory) => {
                let was_reached = std::mem::replace(&mut self.testing.is_reached, true);
                self.testing.pause = PAUSES.0;
                let has_directory = directory != Some(false);
                if std::mem::replace(&mut self.testing.has_directory, has_directory)
                    != has_directory
                {
                    self.schedule.discard_descriptor();
                }
                if !was_reached {
                    let address = self.own.address;
                    let reached = Reachability::Reached { address, directory };
                    self.emit(RelayEvent::Reachability(reached));
                }
            }
            Report::Unreached(problem) => {
                self.testing.is_running = false;
                self.testing.next = now + self.testing.pause;
                self.testing.pause = (self.testing.pause * 2).min(PAUSES.1);
                self.handle_unreached(problem);
            }
            Report::Done { is_padded } => {
                self.testing.is_running = false;
                if is_padded && !std::mem::replace(&mut self.testing.is_padded, is_padded) {
                    self.schedule.handle_tested(now);
                    self.emit(RelayEvent::BandwidthTested);
                }
                self.testing.next = now + self.testing.pause;
                self.testing.pause = (self.testing.pause * 2).min(PAUSES.1);
            }
        }
    }

    fn handle_unreached(&self, problem: String) {
        // Reachability is final: a later test that fails was only for padding.
        if self.testing.is_reached {
            return;
        }
        let address = self.own.address;
        let is_published = self.settings.assumes_reachable;
        let unreached = Reachability::Unreached { address, problem, is_published };
        self.emit(RelayEvent::Reachability(unreached));
    }
}
