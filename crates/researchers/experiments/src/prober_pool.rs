//! Probers on separate threads that run until they are stopped.

use crate::error::Result;
use client::NetDir;
use client::probe::{self, ProbeError, ProbePlan, Probed, Subject};
use link::Clock;
use onion::{Duration, Instant};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};

/// Interval between two checks of [`ProberPool::wait_for`].
const STEP: Duration = Duration::from_millis(20);

/// Running probers. Dropping it stops them.
pub(crate) struct ProberPool {
    handle: PoolHandle,
    threads: Vec<JoinHandle<Result<()>>>,
    clock: Clock,
    began: Instant,
}

/// A prober's access to its pool.
#[derive(Clone, Default)]
pub(crate) struct PoolHandle {
    is_stopped: Arc<AtomicBool>,
    results: Arc<Mutex<Vec<Probed>>>,
}

impl PoolHandle {
    /// Whether the prober must stop.
    pub(crate) fn must_stop(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Records the result of a circuit. Returns whether to continue.
    pub(crate) fn record(&self, probed: Probed) -> bool {
        self.results().push(probed);
        !self.must_stop()
    }

    /// Measures one batch of circuits after another until the pool stops.
    pub(crate) fn repeat(
        &self,
        plan: &ProbePlan,
        view: &NetDir,
        mut batch: impl FnMut() -> Result<Vec<Subject>>,
    ) -> Result<()> {
        while !self.must_stop() {
            let (record, must_stop) = (|probed| self.record(probed), || self.must_stop());
            probe::run(plan.clone(), batch()?, view, record, must_stop)?;
        }
        Ok(())
    }

    fn results(&self) -> MutexGuard<'_, Vec<Probed>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProberPool {
    /// A pool without probers.
    pub(crate) fn new() -> Self {
        let clock = Clock::start();
        Self { handle: PoolHandle::default(), threads: Vec::new(), clock, began: clock.now() }
    }

    /// Starts a prober in the network namespace of this thread.
    pub(crate) fn spawn(
        &mut self,
        run: impl FnOnce(&PoolHandle) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let handle = self.handle.clone();
        let thread = Builder::new()
            .name(format!("prober{}", self.threads.len()))
            .spawn(move || run(&handle));
        self.threads.push(thread.map_err(|error| ProbeError::Machine(error.to_string()))?);
        Ok(())
    }

    /// Waits until this number of circuits has completed. Returns false after `patience` or an interrupt.
    pub(crate) fn wait_for(
        &self,
        circuits: usize,
        patience: Duration,
        is_interrupted: impl Fn() -> bool,
    ) -> bool {
        let deadline = self.clock.now() + patience;
        while self.completed() < circuits {
            if self.clock.now() >= deadline || is_interrupted() {
                return false;
            }
            thread::park_timeout(STEP);
        }
        true
    }

    fn completed(&self) -> usize {
        self.handle.results().iter().filter(|result| result.failure.is_none()).count()
    }

    /// The number of completed circuits, and the age of the pool.
    pub(crate) fn progress(&self) -> (usize, Duration) {
        (self.completed(), self.clock.now() - self.began)
    }

    /// Stops all probers. Returns the results of their circuits and the age of the pool.
    pub(crate) fn stop(mut self) -> Result<(Vec<Probed>, Duration)> {
        let elapsed = self.clock.now() - self.began;
        self.handle.is_stopped.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let results = std::mem::take(&mut *self.handle.results());
        Ok((results, elapsed))
    }
}

impl Drop for ProberPool {
    /// Stops the probers also if something else fails.
    fn drop(&mut self) {
        self.handle.is_stopped.store(true, Ordering::Relaxed);
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
    fn a_pool_stops_when_asked_or_dropped_and_does_not_count_failed_circuits() {
        let mut pool = ProberPool::new();
        for number in 0..3 {
            let run = move |handle: &PoolHandle| {
                let first = if number == 0 { failed("no relay") } else { Probed::default() };
                handle.record(first);
                while !handle.must_stop() {
                    thread::yield_now();
                }
                assert!(!handle.record(Probed::default()), "it was stopped");
                Ok(())
            };
            pool.spawn(run).expect("a thread");
        }
        assert!(pool.wait_for(2, Duration::from_secs(60), || false));
        assert!(!pool.wait_for(3, Duration::from_secs(60), || true), "one has failed");
        assert!(!pool.wait_for(3, Duration::from_millis(1), || false), "one has failed");
        assert_eq!(pool.progress().0, 2, "what failed is not counted");
        let (results, _) = pool.stop().expect("no failure");
        assert_eq!(results.len(), 6);

        let (sender, ended) = channel();
        let mut pool = ProberPool::new();
        let run = move |handle: &PoolHandle| {
            while !handle.must_stop() {
                thread::yield_now();
            }
            sender.send(()).map_err(|_| Error::Failed("no receiver".to_owned()))
        };
        pool.spawn(run).expect("a thread");
        drop(pool);
        assert!(ended.try_recv().is_ok(), "it has ended");
    }
}
