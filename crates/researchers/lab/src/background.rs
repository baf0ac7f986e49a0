//! Background threads that run until they are dropped.

use onion::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that each repeat a task until this is dropped.
#[derive(Debug, Default)]
pub struct Background {
    must_stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread that repeats `turn`, each time after the pause that the previous call returned.
    pub fn start(
        name: &str,
        mut turn: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let mut this = Self::default();
        this.add(name, move |_| turn())?;
        Ok(this)
    }

    /// Adds a thread. A long turn must check the flag, which is set when the thread must stop.
    pub fn add(
        &mut self,
        name: &str,
        mut turn: impl FnMut(&AtomicBool) -> Duration + Send + 'static,
    ) -> io::Result<()> {
        let must_stop = Arc::clone(&self.must_stop);
        let run = move || {
            while !must_stop.load(Ordering::Acquire) {
                thread::park_timeout(turn(&must_stop));
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread?);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The message of a panic has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn dropping_ends_all_threads() {
        let (sender, turns) = channel();
        let mut both = Background::default();
        for number in 0..2 {
            let sender = sender.clone();
            let turn = move |_: &AtomicBool| {
                sender.send(number).expect("the test receives");
                Duration::from_secs(3600)
            };
            both.add("test", turn).expect("a thread");
        }
        drop(sender);
        let first = [turns.recv(), turns.recv()].map(|number| number.expect("a turn"));
        assert_eq!(first.iter().sum::<i32>(), 1, "one turn each");
        drop(both);
        assert!(turns.recv().is_err(), "all threads have ended");
    }
}
