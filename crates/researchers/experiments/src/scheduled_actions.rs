//! Actions that another thread performs while a measurement runs.

use crate::error::Result;
use link::Clock;
use onion::{Duration, Instant};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

/// Runs `body`, which reports its progress. Once `is_due` returns true for a report, performs the actions one after
/// another, each after its delay. When `body` returns, the remaining actions are cancelled.
///
/// Returns when the first action was done, `None` if `body` returned before it.
///
/// # Errors
/// Those of `body` and of the actions.
pub(crate) fn with_actions<P, A: Send, T>(
    clock: Clock,
    mut is_due: impl FnMut(&P) -> bool,
    actions: Vec<(Duration, A)>,
    mut perform: impl FnMut(A) -> Result<()> + Send,
    body: impl FnOnce(&mut dyn FnMut(&P)) -> Result<T>,
) -> Result<(T, Option<Instant>)> {
    let (trigger, triggered) = channel::<()>();
    thread::scope(|scope| {
        let performing = scope.spawn(move || -> Result<Option<Instant>> {
            // The body returned before.
            let Ok(()) = triggered.recv() else { return Ok(None) };
            let mut first = None;
            for (delay, action) in actions {
                if triggered.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                perform(action)?;
                first = first.or(Some(clock.now()));
            }
            Ok(first)
        });
        let mut is_triggered = false;
        let done = body(&mut |progress| {
            if !is_triggered && is_due(progress) {
                is_triggered = true;
                // If the thread has ended, joining it returns its error.
                let _failed = trigger.send(());
            }
        });
        drop(trigger);
        let first = match performing.join() {
            Ok(first) => first?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((done?, first))
    })
}

#[cfg(test)]
mod tests;
