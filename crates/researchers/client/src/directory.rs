//! The thread that follows the consensus for a client.

use crate::event::Event;
use crate::netdir::NetDir;
use crate::sources::{Directories, SharedGuards, Sources};
use dirmgr::{ConsensusFetcher, FetcherConfig, schedule};
use link::{Clock, ClockWatch, unix_time_s};
use netdoc::consensus::Consensus;
use netdoc::{Microdesc, RsaId};
use onion::Duration;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// The first and the maximum pause after a fetch without success; each is twice the previous one.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(300));
/// The minimum pause between two fetches.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Interval at which the clock is checked for a jump.
const CLOCK_LOOK: Duration = Duration::from_secs(5);

/// The directories and the folder of a client.
pub(crate) struct DirectoryThread {
    pub(crate) authorities: Vec<SocketAddr>,
    pub(crate) identities: BTreeSet<RsaId>,
    pub(crate) directories: Directories,
    pub(crate) folder: PathBuf,
    pub(crate) guards: SharedGuards,
}

impl DirectoryThread {
    /// Fetches, reports and waits until `end` is closed. Blocks the thread.
    pub(crate) fn run(self, mut rng: StdRng, report: impl Fn(DirectoryEvent), end: &Receiver<()>) {
        let Self { authorities, identities, directories, folder, guards } = self;
        let first = rng.random_range(0..authorities.len().max(1));
        let source = Sources::new(directories, guards.clone());
        let now = unix_time_s();
        let config = FetcherConfig { authorities, identities, folder, first };
        let fetcher = ConsensusFetcher::for_client(config, source, now);
        Directory { fetcher, guards, rng, report }.run(end);
    }
}

/// Follows the consensus for a client.
struct Directory<T> {
    fetcher: ConsensusFetcher<Sources>,
    guards: SharedGuards,
    rng: StdRng,
    /// Receives the events.
    report: T,
}

/// An event of the directory thread.
pub(crate) enum DirectoryEvent {
    /// A new network directory.
    NetDir(Arc<NetDir>),
    /// The consensus has expired, and no directory has a newer one.
    Expired,
    /// A problem.
    Event(Event),
}

impl<T: Fn(DirectoryEvent)> Directory<T> {
    fn run(mut self, end: &Receiver<()>) {
        let mut retry = RETRY.0;
        let clock = ClockWatch::start();
        let mut reported = None;
        // Stored guards are located by the stored consensus, and asked first.
        if let Some(kept) = self.fetcher.consensus(unix_time_s()) {
            self.guards.set_consensus(kept);
        }
        loop {
            let found = self.fetcher.fetch(unix_time_s());
            let problems = [
                found.is_new.err().map(|problem| problem.to_string()),
                found.unstored.map(|unstored| unstored.to_string()),
            ];
            problems
                .into_iter()
                .flatten()
                .for_each(|reason| (self.report)(DirectoryEvent::Event(Event::Trouble { reason })));
            let now = unix_time_s();
            let netdir = self.fetcher.consensus(now).map(|consensus| {
                let netdir = self.netdir(&consensus);
                (consensus, netdir)
            });
            let pause = match netdir {
                Some((consensus, netdir)) if netdir.path_share() >= paths_min(&netdir) => {
                    // A consensus is identified by its time; further microdescriptors may have
                    // arrived.
                    let name = (consensus.valid_after, netdir.relays().len());
                    let is_whole = netdir.is_whole();
                    if reported != Some(name) {
                        reported = Some(name);
                        retry = RETRY.0;
                        self.guards.set_consensus(Arc::clone(&consensus));
                        (self.report)(DirectoryEvent::NetDir(Arc::new(netdir)));
                    }
                    let chance = self.rng.random_range(0.0..1.0);
                    let next = schedule::fetch_delay(&consensus, now, chance);
                    pause_after_look(next, is_whole, &mut retry)
                }
                Some(_) => grow(&mut retry),
                None => {
                    if reported.take().is_some() {
                        (self.report)(DirectoryEvent::Expired);
                    }
                    grow(&mut retry)
                }
            };
            match self.wait(pause, &clock, end) {
                Wait::Over => {}
                Wait::ClockJumped => retry = RETRY.0,
                Wait::Ended => return,
            }
        }
    }

    /// Waits for this time, at most until the clock is set: the consensus may be another one then.
    fn wait(&self, pause: Duration, clock_watch: &ClockWatch, end: &Receiver<()>) -> Wait {
        let clock = Clock::start();
        let over = clock.now() + pause;
        loop {
            if let Some(jump) = clock_watch.poll() {
                let problem = format!("{jump}: looking for a consensus that is valid now");
                (self.report)(DirectoryEvent::Event(Event::Trouble { reason: problem }));
                return Wait::ClockJumped;
            }
            let left = over.saturating_since(clock.now());
            match end.recv_timeout(left.min(CLOCK_LOOK)) {
                Err(RecvTimeoutError::Timeout) if left > CLOCK_LOOK => {}
                Err(RecvTimeoutError::Timeout) => return Wait::Over,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Wait::Ended,
            }
        }
    }

    fn netdir(&self, consensus: &Consensus) -> NetDir {
        NetDir::new(consensus, |digest| {
            // Its digest was verified on arrival. A relay whose microdescriptor cannot be parsed is
            // unusable.
            Microdesc::parse(&self.fetcher.microdesc(digest)?).ok()
        })
    }
}

/// Why the directory thread no longer waits.
enum Wait {
    Over,
    ClockJumped,
    Ended,
}

/// The share of paths that must be known before circuits are built: a directory that withholds
/// relays must not influence path selection (param-spec, `min_paths_for_circs_pct`).
fn paths_min(netdir: &NetDir) -> f64 {
    f64::from(netdir.params().get_clamped("min_paths_for_circs_pct", 60, 25, 95)) / 100.0
}

/// The pause before the next fetch, where the next consensus is due after `next`. Missing documents
/// are requested earlier. An overdue consensus is requested less and less often: each fetch costs a
/// handshake, and a directory may withhold it on purpose.
fn pause_after_look(next: Duration, is_whole: bool, retry: &mut Duration) -> Duration {
    let pause = match next {
        Duration::ZERO => grow(retry),
        _ if is_whole => next,
        _ => next.min(grow(retry)),
    };
    pause.max(PAUSE_MIN)
}

/// Returns the pause and doubles it for the next call.
fn grow(retry: &mut Duration) -> Duration {
    let now = *retry;
    *retry = (now * 2).min(RETRY.1);
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_consensus_is_requested_less_and_less_often() {
        let mut retry = RETRY.0;
        let mut look = || pause_after_look(Duration::ZERO, true, &mut retry);
        let pauses: Vec<Duration> = (0..20).map(|_| look()).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE_MIN, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&RETRY.1));
        let hour = Duration::from_secs(3600);
        let looks = pauses
            .iter()
            .scan(Duration::ZERO, |at, pause| Some(*at + *pause).inspect(|next| *at = *next));
        assert!(looks.take_while(|at| *at < hour).count() < 30, "{pauses:?}");
    }

    #[test]
    fn missing_documents_are_requested_before_the_next_consensus_is_due() {
        let hour = Duration::from_secs(3600);
        let mut retry = Duration::from_secs(4);
        assert_eq!(pause_after_look(hour, true, &mut retry), hour);
        assert_eq!(pause_after_look(hour, false, &mut retry), Duration::from_secs(4));
        assert_eq!(pause_after_look(hour, false, &mut retry), Duration::from_secs(8));
        assert_eq!(
            pause_after_look(Duration::from_secs(2), false, &mut retry),
            Duration::from_secs(2)
        );
    }
}
