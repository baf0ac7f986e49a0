//! A processor that a busy thread shares with a measurer.

use crate::error::{Error, Result};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

/// At this priority, a process gets a seventieth of a processor that another thread keeps busy. To load a relay with 100 Mbit/s
/// takes a twentieth.
const NICE: i32 = 19;

/// The processor of the slow measurer: the last one that this thread may use.
fn shared_processor() -> Result<CpuSet> {
    let mine = sched_getaffinity(None).map_err(refused)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| mine.is_set(*cpu));
    let mut set = CpuSet::new();
    set.set(last.unwrap_or_default());
    Ok(set)
}

/// Restricts this thread, and processes that it starts, to the shared processor at the lowest priority.
pub(super) fn slow_down() -> Result<()> {
    sched_setaffinity(None, &shared_processor()?).map_err(refused)?;
    setpriority_process(None, NICE).map_err(refused)
}

/// Runs `body` while a thread keeps the shared processor busy.
pub(super) fn with_busy_thread<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let set = shared_processor()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let spin = || {
            sched_setaffinity(None, &set).map_err(refused)?;
            while !is_over.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            Ok::<(), Error>(())
        };
        let busy = scope.spawn(spin);
        let spinning = StopOnDrop(&is_over);
        let done = body();
        drop(spinning);
        busy.join().map_err(|_| stopped())??;
        done
    })
}

/// Stops the busy thread, also if the body panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn refused(error: rustix::io::Errno) -> Error {
    Error::Network(format!("a processor cannot be shared: {error}"))
}

fn stopped() -> Error {
    Error::Network("the thread that keeps a processor busy has stopped".to_owned())
}
