//! A processor that others want, too.

use crate::error::{Error, Result};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

/// A process of this priority gets a seventieth of a processor that another thread wants completely: loading a relay with
/// 100 Mbit/s takes a twentieth.
const NICE: i32 = 19;

/// The processor that the slow measurer shares: the last that this thread may use.
fn shared_processor() -> Result<CpuSet> {
    let mine = sched_getaffinity(None).map_err(refused)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| mine.is_set(*cpu));
    let mut set = CpuSet::new();
    set.set(last.unwrap_or_default());
    Ok(set)
}

/// Leaves this thread, and the processes that it starts, little of one processor if others want it.
pub(super) fn slow_down() -> Result<()> {
    sched_setaffinity(None, &shared_processor()?).map_err(refused)?;
    setpriority_process(None, NICE).map_err(refused)
}

/// Runs `body` while a thread wants all of that processor.
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
        let spinning = Spinning(&is_over);
        let done = body();
        drop(spinning);
        busy.join().map_err(|_| stopped())??;
        done
    })
}

/// Ends a busy thread, also when what is done meanwhile panics.
struct Spinning<'a>(&'a AtomicBool);

impl Drop for Spinning<'_> {
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
