//! Termination of a command by the user.

use crate::error::Error;
use link::Clock;
use onion::Duration;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

/// Ctrl-C and termination. The first signal makes the command wind up, the second ends it at once.
///
/// Child processes end in either case: the network's keeper outlives this process for that purpose.
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
    is_orphaned: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over the signals.
    ///
    /// # Errors
    /// [`Error::Signals`] if the system refuses.
    pub fn install() -> Result<Self, Error> {
        let requested = Arc::new(AtomicBool::new(false));
        let at_once = Arc::new(AtomicBool::new(true));
        for signal in [SIGINT, SIGTERM] {
            let exit_code = 128 + signal;
            let ends = |condition: &Arc<AtomicBool>| {
                flag::register_conditional_shutdown(signal, exit_code, Arc::clone(condition))
                    .map_err(Error::Signals)
            };
            // In this order: the second signal finds the first one's mark.
            ends(&requested)?;
            ends(&at_once)?;
            flag::register(signal, Arc::clone(&requested)).map_err(Error::Signals)?;
        }
        Ok(Self { requested, at_once, is_orphaned: Arc::default() })
    }

    /// Declares that [`requested`](Self::requested) is polled: a signal no longer ends the process directly.
    pub fn wind_up_in_order(&self) {
        self.at_once.store(false, Ordering::Relaxed);
    }

    /// Treats the end of standard input as a request, for a process that must not outlive its parent, which holds the
    /// other end.
    pub fn end_with_stdin(&self) {
        let marks = [&self.is_orphaned, &self.requested].map(Arc::clone);
        // It is never joined: it ends with its input, or with the process.
        thread::spawn(move || {
            // The content has no meaning; an error counts as the end.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            marks.iter().for_each(|mark| mark.store(true, Ordering::Relaxed));
        });
    }

    /// Whether the parent of this process is gone ([`end_with_stdin`](Self::end_with_stdin)), so that waiting has no
    /// purpose.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        self.is_orphaned.load(Ordering::Relaxed)
    }

    /// Set when the user has requested the end.
    #[must_use]
    pub fn requested(&self) -> &AtomicBool {
        &self.requested
    }

    /// Waits until the timeout or the user's request to end; returns whether there was such a request.
    pub fn wait(&self, longest: Duration) -> bool {
        /// The maximum delay until a signal is noticed.
        const LATENCY: Duration = Duration::from_millis(100);
        let clock = Clock::start();
        let end = clock.now() + longest;
        while !self.is_requested() && clock.now() < end {
            thread::park_timeout(LATENCY.min(end - clock.now()));
        }
        self.is_requested()
    }

    /// Whether the user has requested the end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}
