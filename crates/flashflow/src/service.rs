//! What a service tells systemd (`sd_notify(3)`), if it was started by it with `Type=notify` or `Type=notify-reload`.

use link::Clock;
use onion::{Duration, Instant};
use relay::Relay;
use sd_notify::NotifyState;
use std::cell::Cell;

/// Tells systemd how we are. Says nothing where there is no systemd.
pub(crate) struct Service {
    clock: Clock,
    /// How often systemd wants to hear of us.
    watchdog: Option<Duration>,
    watched: Cell<Instant>,
}

impl Service {
    /// Tells that we are ready.
    pub(crate) fn start(clock: Clock) -> Self {
        // Half of what systemd allows, as its manual says.
        let watchdog = sd_notify::watchdog_enabled().map(|allowed| allowed / 2);
        let service = Self { clock, watchdog, watched: Cell::new(clock.now()) };
        service.ready();
        service
    }

    /// Tells that we are ready, again.
    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// Tells that the configuration is being read.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// Tells that we are ending.
    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Tells that the relay lives, when that is due: its engine must answer for that, so that one that hangs is noticed.
    pub(crate) fn watch(&self, relay: &Relay) {
        let Some(every) = self.watchdog else { return };
        if self.clock.now() >= self.watched.get() + every {
            let _whatever = relay.unfinished();
            self.watched.set(self.clock.now());
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    #[expect(clippy::unused_self, reason = "only who has begun has something to tell")]
    fn tell(&self, states: &[NotifyState<'_>]) {
        // Who cannot be told restarts us, or not: there is nobody else to tell.
        let _ = sd_notify::notify(states);
    }
}
