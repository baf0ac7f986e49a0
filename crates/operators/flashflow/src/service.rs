//! Notifications for systemd (`sd_notify(3)`), if it started the process with `Type=notify` or `Type=notify-reload`.

use link::Clock;
use onion::{Duration, Instant};
use relay::Relay;
use sd_notify::NotifyState;
use std::cell::Cell;

/// Notifies systemd. Does nothing if systemd did not start the process.
pub(crate) struct Service {
    clock: Clock,
    /// Interval of the watchdog notifications.
    watchdog: Option<Duration>,
    watched: Cell<Instant>,
}

impl Service {
    /// Notifies that the service is ready.
    pub(crate) fn start(clock: Clock) -> Self {
        // Half of what systemd allows, as its manual says.
        let watchdog = sd_notify::watchdog_enabled().map(|allowed| allowed / 2);
        let service = Self { clock, watchdog, watched: Cell::new(clock.now()) };
        service.ready();
        service
    }

    /// Notifies that the service is ready again, after a reload.
    pub(crate) fn ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// Notifies that the configuration is being reloaded.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(_) => self.notify(&[NotifyState::Reloading]),
        }
    }

    /// Notifies that the service shuts down.
    pub(crate) fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    /// Sends the watchdog notification when it is due. The engine must answer first, so that systemd restarts a relay that hangs.
    pub(crate) fn watch(&self, relay: &Relay) {
        let Some(every) = self.watchdog else { return };
        if self.clock.now() >= self.watched.get() + every {
            let _answered = relay.unfinished();
            self.watched.set(self.clock.now());
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    #[expect(clippy::unused_self, reason = "a service notifies only once it has started")]
    fn notify(&self, states: &[NotifyState<'_>]) {
        // If systemd cannot be reached, there is nothing else to do.
        let _ = sd_notify::notify(states);
    }
}
