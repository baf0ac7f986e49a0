//! Probers that go on until they are stopped, each on a thread of its own.

use crate::error::Result;
use client::probe::{ProbeError, Probed};
use link::Clock;
use onion::{Duration, Instant};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};

/// How often it is looked whether enough have begun.
const STEP: Duration = Duration::from_millis(20);

/// All of them. They end with this value, too.
pub(crate) struct ProberPool {
    common: PoolHandle,
    threads: Vec<JoinHandle<Result<()>>>,
    clock: Clock,
    began: Instant,
}

/// What each has from the pool.
#[derive(Clone, Default)]
pub(crate) struct PoolHandle {
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Probed>>>,
}

impl PoolHandle {
    /// Whether the pool must end.
    pub(crate) fn must_stop(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes what became of a circuit; says whether to go on.
    pub(crate) fn record(&self, probed: Probed) -> bool {
        self.seen().push(probed);
        !self.must_stop()
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Probed>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProberPool {
    /// Nobody yet.
    pub(crate) fn new() -> Self {
        let clock = Clock::start();
        Self { common: PoolHandle::default(), threads: Vec::new(), clock, began: clock.now() }
    }

    /// Another one, in the network of this thread.
    pub(crate) fn spawn(
        &mut self,
        life: impl FnOnce(&PoolHandle) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let member = self.common.clone();
        let thread =
            Builder::new().name(format!("pool{}", self.threads.len())).spawn(move || life(&member));
        self.threads.push(thread.map_err(|it| ProbeError::Machine(it.to_string()))?);
        Ok(())
    }

    /// Waits until this number of circuits is done, or `patience` is over; returns whether they are.
    pub(crate) fn wait_for(
        &self,
        circuits: usize,
        patience: Duration,
        is_interrupted: impl Fn() -> bool,
    ) -> bool {
        let deadline = self.clock.now() + patience;
        while self.whole() < circuits {
            if self.clock.now() >= deadline || is_interrupted() {
                return false;
            }
            thread::park_timeout(STEP);
        }
        true
    }

    fn whole(&self) -> usize {
        self.common.seen().iter().filter(|it| it.failure.is_none()).count()
    }

    /// How many circuits have done all that they were for, and since when there is the pool.
    pub(crate) fn progress(&self) -> (usize, Duration) {
        (self.whole(), self.clock.now() - self.began)
    }

    /// Ends them; returns how their circuits ended, and after what time.
    pub(crate) fn stop(mut self) -> Result<(Vec<Probed>, Duration)> {
        let lasted = self.clock.now() - self.began;
        self.common.is_over.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let seen = std::mem::take(&mut *self.common.seen());
        Ok((seen, lasted))
    }
}

impl Drop for ProberPool {
    /// What fails elsewhere leaves nobody behind.
    fn drop(&mut self) {
        self.common.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been printed where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::mpsc::channel;

    fn failed(why: &str) -> Probed {
        Probed { failure: Some(why.to_owned()), ..Probed::default() }
    }

    #[test]
    fn a_crowd_ends_when_it_is_told_or_dropped_and_what_failed_is_not_waited_for() {
        let mut pool = ProberPool::new();
        for number in 0..3 {
            let life = move |member: &PoolHandle| {
                let first = if number == 0 { failed("no relay") } else { Probed::default() };
                member.record(first);
                while !member.must_stop() {
                    thread::yield_now();
                }
                assert!(!member.record(Probed::default()), "it is over");
                Ok(())
            };
            pool.spawn(life).expect("a thread");
        }
        assert!(pool.wait_for(2, Duration::from_secs(60), || false));
        assert!(!pool.wait_for(3, Duration::from_secs(60), || true), "one has failed");
        assert!(!pool.wait_for(3, Duration::from_millis(1), || false), "one has failed");
        assert_eq!(pool.progress().0, 2, "what failed is not counted");
        let (seen, _) = pool.stop().expect("no failure");
        assert_eq!(seen.len(), 6);

        let (sender, ended) = channel();
        let mut pool = ProberPool::new();
        let life = move |member: &PoolHandle| {
            while !member.must_stop() {
                thread::yield_now();
            }
            sender.send(()).map_err(|_| Error::Failed("nobody".to_owned()))
        };
        pool.spawn(life).expect("a thread");
        drop(pool);
        assert!(ended.try_recv().is_ok(), "it has ended by now");
    }
}
