//! What happens in the middle of something else.

use crate::error::Error;
use link::Clock;
use onion::{Duration, Instant};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

/// Does something that tells how far it is, and meanwhile, from the first word on by which the moment `has_come`, one act after the other, each
/// so long after the one before. Says when the first one was done, unless all was over before. What is over does not wait for acts that are still to come.
///
/// # Errors
/// Those of the body, and of the acts.
pub(crate) fn midway<P, A: Send, T>(
    clock: Clock,
    mut has_come: impl FnMut(&P) -> bool,
    acts: Vec<(Duration, A)>,
    mut act: impl FnMut(A) -> Result<(), Error> + Send,
    body: impl FnOnce(&mut dyn FnMut(&P)) -> Result<T, Error>,
) -> Result<(T, Option<Instant>), Error> {
    let (begins, begun) = channel::<()>();
    thread::scope(|scope| {
        let acting = scope.spawn(move || -> Result<Option<Instant>, Error> {
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
                // Who does not listen any more has failed, and says so.
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
