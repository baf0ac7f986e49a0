//! Observes the engine on its thread: reports its events, and counts bandwidth.

use crate::bandwidth::Bandwidth;
use crate::directory::Wake;
use crate::event::{Load, RelayEvent, Unfinished};
use crate::observations::ObservationWriter;
use crate::overload::Signs;
use crate::quota_log::QuotaLog;
use link::{ClockWatch, Drive, Exhaustion, Observer, ThreadError, Traffic, unix_time_s};
use onion::router::{Router, RouterEvent};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Interval at which bytes are counted.
const SECOND: Duration = Duration::from_secs(1);
/// Limit on seconds counted one by one after a pause.
const SECONDS_MAX: u64 = 100;

/// The engine of a relay.
pub(crate) type Engine = Router<StdRng>;

impl Unfinished {
    pub(crate) fn from_engine(engine: &Engine) -> Self {
        Self { circuits: engine.open_circuits(), streams: engine.open_streams() }
    }
}

/// Observes the engine.
pub(crate) struct EngineObserver {
    bandwidth: Arc<Bandwidth>,
    quota_log: QuotaLog,
    events: Sender<RelayEvent>,
    meter: Meter,
    clock_watch: ClockWatch,
    /// Wakes the directory thread after a jump of the clock.
    wake_directory: Sender<Wake>,
    observations: Option<ObservationWriter>,
    /// The end of the last circuit has been reported.
    has_drained: bool,
}

impl EngineObserver {
    pub(crate) fn new(
        now: Instant,
        bandwidth: Arc<Bandwidth>,
        quota_log: QuotaLog,
        events: Sender<RelayEvent>,
        wake_directory: Sender<Wake>,
    ) -> Self {
        Self {
            bandwidth,
            quota_log,
            events,
            meter: Meter::new(now),
            clock_watch: ClockWatch::start(),
            wake_directory,
            observations: None,
            has_drained: false,
        }
    }

    /// Starts observing links to other relays.
    pub(crate) fn observe(&mut self, observations: ObservationWriter) {
        self.observations = Some(observations);
    }

    fn emit(&self, event: RelayEvent) {
        let _nobody_listens = self.events.send(event);
    }
}

impl Observer<Engine> for EngineObserver {
    fn before_turn(&mut self, drive: &mut dyn Drive<Engine>) -> Option<Instant> {
        while let Some(event) = drive.node_mut().poll_event() {
            if let RouterEvent::MeasurementAccepted(accepted) = event
                && let Err(error) = self.quota_log.add(accepted)
            {
                let problem = format!(
                    "machine: the measurement cannot be recorded, and will not count after a restart: {error}"
                );
                self.emit(RelayEvent::Trouble(problem));
            }
            self.emit(RelayEvent::Router(event));
        }
        let engine = drive.node();
        if engine.is_shutting_down()
            && !self.has_drained
            && Unfinished::from_engine(engine).is_nothing()
        {
            self.has_drained = true;
            self.emit(RelayEvent::Drained);
        }
        let unix = unix_time_s();
        if let Some(jump) = self.clock_watch.poll() {
            self.bandwidth.note(|history, overload| {
                history.handle_jump(jump.by_s);
                overload.handle_jump(jump.by_s);
            });
            // It reports the jump. If the thread has ended, an event has reported it.
            let _ = self.wake_directory.send(Wake::Look);
        }
        let bandwidth = &self.bandwidth;
        let mut seconds = 0;
        let has_counted = self.meter.count(drive.now(), *drive.traffic(), |received, sent| {
            seconds += 1;
            bandwidth.note(|history, _| history.note_second(unix, received, sent));
        });
        if has_counted {
            let now = drive.now();
            let noted = self.observations.as_mut().and_then(|observations| {
                observations.note(now, unix, seconds, drive.node().relay_links()).err()
            });
            if let Some(error) = noted {
                let problem = format!("machine: cannot write link observations: {error}");
                self.emit(RelayEvent::Trouble(problem));
            }
            let signs = signs(drive.node());
            self.bandwidth.note(|_, overload| overload.note(unix, signs));
            let now = drive.now();
            drive.node_mut().set_unix_time(now, unix);
            let router = drive.node();
            let client_bytes = router.totals().client_bytes;
            let load = Load { client_bytes, waited_cell_s: router.waited_cell_s() };
            self.emit(RelayEvent::Load(load));
        }
        Some(self.meter.next)
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.emit(RelayEvent::Ended(failure.to_string()));
    }
}

/// Counters of overload in the engine and the process.
fn signs(engine: &Engine) -> Signs {
    let Exhaustion { descriptors, ports } = Exhaustion::so_far();
    let totals = engine.totals();
    Signs {
        sheds: totals.oom_runs,
        answered_handshakes: totals.circuits,
        refused_handshakes: totals.refused_handshakes,
        without_port: ports,
        without_descriptor: descriptors,
        limited: totals.limited,
        limited_reads: totals.limited_reads,
    }
}

/// Counts transferred bytes in each second.
struct Meter {
    before: Traffic,
    next: Instant,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { before: Traffic::default(), next: now + SECOND }
    }

    /// Counts once a second. Returns whether it has. `each` receives the bytes received and sent in
    /// each second.
    fn count(&mut self, now: Instant, traffic: Traffic, mut each: impl FnMut(u64, u64)) -> bool {
        if now < self.next {
            return false;
        }
        // After a thread had no processor for seconds, their bytes count as evenly spread. Counted
        // as one second's, they would look like a rate that never occurred.
        let seconds = 1 + (now - self.next).as_secs();
        let received = (traffic.received_bytes - self.before.received_bytes) / seconds;
        let sent = (traffic.sent_bytes - self.before.sent_bytes) / seconds;
        for _ in 0..seconds.min(SECONDS_MAX) {
            each(received, sent);
        }
        self.before = traffic;
        self.next += Duration::from_secs(seconds);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_seconds_are_not_counted_as_a_burst() {
        let at = |millis| Instant::from_millis(millis);
        let traffic =
            |bytes| Traffic { received_bytes: bytes, sent_bytes: bytes, ..Traffic::default() };
        let mut meter = Meter::new(at(0));
        let mut look = |now, bytes| {
            let mut seconds = Vec::new();
            let has_looked = meter.count(now, traffic(bytes), |received, sent| {
                assert_eq!(received, sent);
                seconds.push(sent);
            });
            (has_looked, seconds, meter.next)
        };
        assert_eq!(look(at(999), 10), (false, vec![], at(1000)));
        assert_eq!(look(at(1000), 100), (true, vec![100], at(2000)));
        // Five seconds, of which four were missed.
        assert_eq!(look(at(6_500), 600), (true, vec![100; 5], at(7_000)));
        // After a month of suspend, seconds are not counted one by one.
        let (_, seconds, next) = look(at(2_600_000_000), 600);
        assert_eq!((seconds.len(), next), (100, at(2_600_001_000)));
    }
}
