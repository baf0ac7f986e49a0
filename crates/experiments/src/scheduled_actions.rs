//! Actions during something else.

use crate::error::Result;
use link::Clock;
use onion::{Duration, Instant};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

/// Runs `body`, which reports its progress. Once `has_come` is true of a report, performs each act after its delay. Returns when the first act was
/// done; `None` if the body was over before. The remaining acts are cancelled when the body is over.
///
/// # Errors
/// Those of the body, and of the acts.
pub(crate) fn with_actions<P, A: Send, T>(
    clock: Clock,
    mut has_come: impl FnMut(&P) -> bool,
    acts: Vec<(Duration, A)>,
    mut act: impl FnMut(A) -> Result<()> + Send,
    body: impl FnOnce(&mut dyn FnMut(&P)) -> Result<T>,
) -> Result<(T, Option<Instant>)> {
    let (begins, begun) = channel::<()>();
    thread::scope(|scope| {
        let acting = scope.spawn(move || -> Result<Option<Instant>> {
            // It is over before.
            let Ok(()) = begun.recv() else { return Ok(None) };
            let mut first = None;
            for (after, what) in acts {
                if begun.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                act(what)?;
                first = first.or(Some(clock.now()));
            }
            Ok(first)
        });
        let mut is_told = false;
        let done = body(&mut |word| {
            if !is_told && has_come(word) {
                is_told = true;
                // A thread that has ended has failed, and reports that.
                let _failed = begins.send(());
            }
        });
        drop(begins);
        let first = match acting.join() {
            Ok(first) => first?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((done?, first))
    })
}

#[cfg(test)]
mod tests;
