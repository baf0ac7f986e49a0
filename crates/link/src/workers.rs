//! Threads that do a node's work for it: what takes so long that its cells would wait.

use crate::driver::{DriverError, Remote};
use onion::node::{Done, Work};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads that do work, in the order of its coming. Without any, it is done where it is asked for.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `None` without threads, and once they are to end.
    orders: Option<Sender<Order>>,
    /// `None` where somebody has panicked over it.
    outcomes: Receiver<Option<Done>>,
    threads: Vec<JoinHandle<()>>,
}

/// Work, and whom to wake when it is done.
type Order = (Work, Remote);

impl Workers {
    /// Starts so many.
    ///
    /// # Errors
    /// Where the operating system gives no thread.
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

    /// Has it done, and `remote` woken then; without threads, here and now. The node bounds how much it asks for at a
    /// time.
    pub(crate) fn ask(&self, work: Work, remote: Remote) -> Option<Done> {
        let Some(orders) = &self.orders else { return Some(work.run()) };
        // Fails only if all have panicked, which each of them tells.
        let _ = orders.send((work, remote));
        None
    }

    /// The next outcome that has come.
    ///
    /// # Errors
    /// Where a thread has panicked over its work: the node would wait for ever.
    pub(crate) fn poll_done(&self) -> Result<Option<Done>, DriverError> {
        match self.outcomes.try_recv() {
            Ok(Some(done)) => Ok(Some(done)),
            Ok(None) => {
                Err(DriverError::of_thread("a thread that works for it has panicked".to_owned()))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.orders = None;
        for thread in self.threads.drain(..) {
            // It has told its panic.
            let _ = thread.join();
        }
    }
}

/// What one thread does until nobody can ask it any more.
fn work(queue: &Mutex<Receiver<Order>>, outcomes: &Sender<Option<Done>>) {
    loop {
        let order = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((work, remote)) = order else { return };
        let mut telling = Telling { outcome: None, outcomes, remote };
        telling.outcome = Some(work.run());
    }
}

/// Tells what has come of a piece of work, and also that nothing has.
struct Telling<'a> {
    outcome: Option<Done>,
    outcomes: &'a Sender<Option<Done>>,
    remote: Remote,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        // A driver that has ended wants no outcome.
        let _ = self.outcomes.send(self.outcome.take());
        self.remote.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn until_woken(workers: &Workers, work: Work) -> Result<Option<Done>, DriverError> {
        let (woken, wakes) = sync_channel(1);
        if let Some(done) = workers.ask(work, Remote::by(move || _ = woken.try_send(()))) {
            return Ok(Some(done));
        }
        wakes.recv().expect("a wake");
        workers.poll_done()
    }

    #[test]
    fn work_is_done_elsewhere_or_where_nobody_is_on_the_spot() {
        for count in [0, 1, 3] {
            let workers = Workers::start(count).expect("threads");
            let here = std::thread::current().id();
            let work = Work::new(move || std::thread::current().id() == here);
            let done = until_woken(&workers, work).expect("no panic").expect("done");
            assert_eq!(done.into::<bool>().ok(), Some(count == 0));
        }
    }

    #[test]
    fn who_panics_over_work_is_told_of() {
        let workers = Workers::start(1).expect("threads");
        let error =
            until_woken(&workers, Work::new(|| -> () { panic!("on purpose") })).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}
