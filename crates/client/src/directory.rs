//! The thread that follows the consensus.

use crate::event::Event;
use crate::sources::{Directories, SharedGuards, Sources};
use crate::view::View;
use dirmgr::{ConsensusFetcher, FetcherConfig, schedule};
use link::unix_time_s;
use netdoc::consensus::Consensus;
use netdoc::{Fingerprint, Microdesc};
use onion::Duration;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// The first and the longest pause after a look that brought nothing of use; each is twice as long as the one before.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(300));
/// Between two looks there is at least so much time.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Whom to follow, and where to keep what is found.
pub(crate) struct Following {
    pub(crate) authorities: Vec<SocketAddr>,
    pub(crate) identities: BTreeSet<Fingerprint>,
    pub(crate) directories: Directories,
    pub(crate) folder: PathBuf,
    pub(crate) guards: SharedGuards,
}

impl Following {
    /// Looks, tells and waits, until `end` says that it is over. The thread is its own.
    pub(crate) fn run(self, mut rng: StdRng, tell: impl Fn(News), end: &Receiver<()>) {
        let Self { authorities, identities, directories, folder, guards } = self;
        let first = rng.random_range(0..authorities.len().max(1));
        let source = Sources::new(directories, guards.clone());
        let now = unix_time_s();
        let config = FetcherConfig { authorities, identities, folder, first };
        let fetcher = ConsensusFetcher::for_client(config, source, now);
        Directory { fetcher, guards, rng, tell }.run(end);
    }
}

/// Follows the consensus for a client.
struct Directory<T> {
    fetcher: ConsensusFetcher<Sources>,
    guards: SharedGuards,
    rng: StdRng,
    /// Takes what is found.
    tell: T,
}

/// What is found.
pub(crate) enum News {
    /// The network.
    View(Arc<View>),
    /// What is known of the network is too old to be used any longer, and no authority gives anything newer.
    Expired,
    /// Something that is wrong.
    Event(Event),
}

impl<T: Fn(News)> Directory<T> {
    fn run(mut self, end: &Receiver<()>) {
        let mut retry = RETRY.0;
        let mut told = None;
        // Guards that are remembered are known by what was kept, and asked from the beginning.
        if let Some(kept) = self.fetcher.consensus(unix_time_s()) {
            self.guards.set_consensus(kept);
        }
        loop {
            let found = self.fetcher.fetch(unix_time_s());
            let problems = [
                found.is_new.err().map(|it| it.to_string()),
                found.unstored.map(|it| it.to_string()),
            ];
            problems
                .into_iter()
                .flatten()
                .for_each(|it| (self.tell)(News::Event(Event::Trouble(it))));
            let now = unix_time_s();
            let view = self.fetcher.consensus(now).map(|consensus| {
                let view = self.view(&consensus);
                (consensus, view)
            });
            let pause = match view {
                Some((consensus, view)) if view.path_share() >= paths_min(&view) => {
                    // A consensus is known by its time; more of its microdescriptors may have come.
                    let name = (consensus.valid_after, view.relays().len());
                    let is_whole = view.is_whole();
                    if told != Some(name) {
                        told = Some(name);
                        retry = RETRY.0;
                        self.guards.set_consensus(Arc::clone(&consensus));
                        (self.tell)(News::View(Arc::new(view)));
                    }
                    let chance = self.rng.random_range(0.0..1.0);
                    let next = schedule::fetch_delay(&consensus, now, chance);
                    pause_after_look(next, is_whole, &mut retry)
                }
                Some(_) => grow(&mut retry),
                None => {
                    if told.take().is_some() {
                        (self.tell)(News::Expired);
                    }
                    grow(&mut retry)
                }
            };
            match end.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn view(&self, consensus: &Consensus) -> View {
        View::new(consensus, |digest| {
            // The digest was compared when it came. One that cannot be read is a relay that cannot be used.
            Microdesc::parse(&self.fetcher.microdesc(digest)?).ok()
        })
    }
}

/// The share of paths that must be known before circuits are built: a directory that keeps some relays back is not to choose
/// where they lead (param-spec, `min_paths_for_circs_pct`).
fn paths_min(view: &View) -> f64 {
    f64::from(view.params().get_clamped("min_paths_for_circs_pct", 60, 25, 95)) / 100.0
}

/// How long to wait where there is a consensus, `next` before another is due. What is still missing is asked for sooner. What should have come
/// already, and has not, is asked for more and more seldom: each look costs a link and its keys, and who keeps it back may do so on purpose.
fn pause_after_look(next: Duration, is_whole: bool, retry: &mut Duration) -> Duration {
    let pause = match next {
        Duration::ZERO => grow(retry),
        _ if is_whole => next,
        _ => next.min(grow(retry)),
    };
    pause.max(PAUSE_MIN)
}

/// The pause now; twice as long next time.
fn grow(retry: &mut Duration) -> Duration {
    let now = *retry;
    *retry = (now * 2).min(RETRY.1);
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consensus_that_does_not_come_is_asked_for_more_and_more_seldom() {
        let mut retry = RETRY.0;
        let mut look = || pause_after_look(Duration::ZERO, true, &mut retry);
        let pauses: Vec<Duration> = (0..20).map(|_| look()).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE_MIN, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&RETRY.1));
        let hour = Duration::from_secs(3600);
        let looks = pauses
            .iter()
            .scan(Duration::ZERO, |at, pause| Some(*at + *pause).inspect(|it| *at = *it));
        assert!(looks.take_while(|at| *at < hour).count() < 30, "{pauses:?}");
    }

    #[test]
    fn what_is_missing_is_asked_for_before_the_next_consensus_is_due() {
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
