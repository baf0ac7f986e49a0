//! The thread that drives the engine: what it is told, and what it tells.

use crate::event::{Load, RelayEvent};
use crate::observed::Observed;
use crate::running::Shared;
use link::tls::TlsConfigs;
use link::{Drive, Traffic, unix_time_s};
use onion::identity::OwnIdentity;
use onion::measure::target::TargetParams;
use onion::router::{KnownRelays, Parameters, RateLimit, Router};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

/// How often passing bytes are counted.
const SECOND: Duration = Duration::from_secs(1);
/// Seconds that are counted one by one after a pause, at most.
const SECONDS_MAX: u64 = 100;

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Command {
    Limit(Option<RateLimit>),
    Target(TargetParams),
    Parameters(Parameters),
    Relays(KnownRelays),
    /// Other keys or certificates; with another TLS certificate if it is another one.
    Identity(Arc<OwnIdentity>, Option<TlsConfigs>),
    Stop,
}

/// Drives the engine until it is told to stop, or nobody is left who could.
pub(crate) fn drive(
    driver: &mut dyn Drive<Router<StdRng>>,
    orders: &Receiver<Command>,
    shared: &Shared,
    events: &Sender<RelayEvent>,
) {
    let mut meter = Meter::new(driver.now());
    loop {
        loop {
            let now = driver.now();
            match orders.try_recv() {
                Ok(Command::Limit(limit)) => driver.node_mut().set_limit(now, limit),
                Ok(Command::Target(params)) => driver.node_mut().set_target_params(params),
                Ok(Command::Parameters(parameters)) => driver.node_mut().set_parameters(parameters),
                Ok(Command::Relays(relays)) => driver.node_mut().set_relays(relays),
                Ok(Command::Identity(identity, tls)) => {
                    driver.node_mut().set_identity(identity);
                    if let Some(tls) = tls {
                        driver.set_tls(tls);
                    }
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => break,
            }
        }
        if let Err(error) = driver.turn(meter.next) {
            let _nobody_listens = events.send(RelayEvent::Ended(error.to_string()));
            return;
        }
        while let Some(event) = driver.node_mut().poll_event() {
            let _nobody_listens = events.send(RelayEvent::Router(event));
        }
        let looked = meter.look(driver.now(), *driver.traffic(), |received, sent| {
            shared.history().note_second(unix_time_s(), received, sent);
        });
        if let Some(bytes_s) = looked {
            shared.observed_bytes_s.store(bytes_s, Ordering::Relaxed);
            let now = driver.now();
            driver.node_mut().set_unix_time(now, unix_time_s());
            let router = driver.node();
            let client_bytes = router.totals().client_bytes;
            let load = Load { client_bytes, waited_cell_s: router.waited_cell_s() };
            let _nobody_listens = events.send(RelayEvent::Load(load));
        }
    }
}

/// Counts what passes in each second.
struct Meter {
    observed: Observed,
    before: Traffic,
    next: Instant,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { observed: Observed::default(), before: Traffic::default(), next: now + SECOND }
    }

    /// The observed bandwidth, once a second.
    ///
    /// `each` gets what was received and sent in each second.
    fn look(
        &mut self,
        now: Instant,
        traffic: Traffic,
        mut each: impl FnMut(u64, u64),
    ) -> Option<u64> {
        if now < self.next {
            return None;
        }
        // A thread that got no processor for seconds counts their bytes as evenly spread: taken for
        // one second's, they would look like a speed that never was.
        let seconds = 1 + (now - self.next).as_secs();
        let received = (traffic.received_bytes - self.before.received_bytes) / seconds;
        let sent = (traffic.sent_bytes - self.before.sent_bytes) / seconds;
        for _ in 0..seconds.min(SECONDS_MAX) {
            self.observed.note_second(received, sent);
            each(received, sent);
        }
        self.before = traffic;
        self.next += Duration::from_secs(seconds);
        Some(self.observed.bytes_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_were_slept_through_do_not_look_like_a_burst() {
        let at = |millis| Instant::from_millis(millis);
        let traffic =
            |bytes| Traffic { received_bytes: bytes, sent_bytes: bytes, ..Traffic::default() };
        let mut meter = Meter::new(at(0));
        let ignore = |_, _| {};
        assert_eq!(meter.look(at(999), traffic(10), ignore), None);
        for second in 1..=9 {
            assert_eq!(meter.look(at(second * 1000), traffic(second * 100), ignore), Some(0));
        }
        // Five seconds, of which four were not looked at.
        assert_eq!(meter.look(at(14_500), traffic(1_400), ignore), Some(100));
        assert_eq!(meter.next, at(15_000));
        assert_eq!(meter.look(at(15_000), traffic(2_500), ignore), Some(200));
        // A machine that slept for a month is not counted second by second.
        assert_eq!(meter.look(at(2_600_000_000), traffic(2_500), ignore), Some(200));
        assert_eq!(meter.next, at(2_600_001_000));
    }
}
