//! Threads for work that takes too long for the node's own thread, where cells would wait.

use crate::driver::{DriverError, Waker};
use onion::node::{Done, Work};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads that execute work in order of arrival. Without threads, work is executed at once.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `None` without threads, and during shutdown.
    orders: Option<Sender<Order>>,
    /// `None` if a thread panicked.
    outcomes: Receiver<Option<Done>>,
    threads: Vec<JoinHandle<()>>,
}

/// Work, and the waker to call on completion.
type Order = (Work, Waker);

impl Workers {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// [`DriverError`] if the operating system provides no thread.
    pub(crate) fn start(count: usize) -> Result<Self, DriverError> {
        let (to_us, outcomes) = channel();
        let (orders, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for place in 0..count {
            let (queue, to_us) = (Arc::clone(&queue), to_us.clone());
            let thread = Builder::new()
                .name(format!("work {place}"))
                .spawn(move || work(&queue, &to_us))
                .map_err(DriverError::of("cannot make a thread"))?;
            threads.push(thread);
        }
        let orders = (count > 0).then_some(orders);
        Ok(Self { orders, outcomes, threads })
    }

    /// Queues work and calls `waker` when it is done. Without threads, executes it at once and
    /// returns the outcome. The node limits the amount of queued work.
    pub(crate) fn submit(&self, work: Work, waker: Waker) -> Option<Done> {
        let Some(orders) = &self.orders else { return Some(work.run()) };
        // Fails only if all threads have panicked, which `poll_done` reports.
        let _ = orders.send((work, waker));
        None
    }

    /// The next outcome.
    ///
    /// # Errors
    /// [`DriverError`] if a thread has panicked: the node would wait forever.
    pub(crate) fn poll_done(&self) -> Result<Option<Done>, DriverError> {
        match self.outcomes.try_recv() {
            Ok(Some(done)) => Ok(Some(done)),
            Ok(None) => Err(DriverError::of_thread("a worker thread has panicked".to_owned())),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.orders = None;
        for thread in self.threads.drain(..) {
            // The panic has been printed.
            let _ = thread.join();
        }
    }
}

/// Runs one thread until the queue is closed.
fn work(queue: &Mutex<Receiver<Order>>, outcomes: &Sender<Option<Done>>) {
    loop {
        let order = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((work, waker)) = order else { return };
        let mut sender = OutcomeSender { outcome: None, outcomes, waker };
        sender.outcome = Some(work.run());
    }
}

/// Sends the outcome of a piece of work, also if the work panics.
struct OutcomeSender<'a> {
    outcome: Option<Done>,
    outcomes: &'a Sender<Option<Done>>,
    waker: Waker,
}

impl Drop for OutcomeSender<'_> {
    fn drop(&mut self) {
        // Ignored if the driver has been dropped.
        let _ = self.outcomes.send(self.outcome.take());
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn until_woken(workers: &Workers, work: Work) -> Result<Option<Done>, DriverError> {
        let (woken, wakes) = sync_channel(1);
        if let Some(done) = workers.submit(work, Waker::new(move || _ = woken.try_send(()))) {
            return Ok(Some(done));
        }
        wakes.recv().expect("a wake");
        workers.poll_done()
    }

    #[test]
    fn work_runs_on_a_worker_or_inline_without_workers() {
        for count in [0, 1, 3] {
            let workers = Workers::start(count).expect("threads");
            let here = std::thread::current().id();
            let work = Work::new(move || std::thread::current().id() == here);
            let done = until_woken(&workers, work).expect("no panic").expect("done");
            assert_eq!(done.into::<bool>().ok(), Some(count == 0));
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_reported() {
        let workers = Workers::start(1).expect("threads");
        let error =
            until_woken(&workers, Work::new(|| -> () { panic!("on purpose") })).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}
