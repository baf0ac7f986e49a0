//! Honest clients and their service: downloads, open circuits, and new circuits.

use super::scene::{FRESH, Scene, Subject};
use crate::background_downloads::{BackgroundDownloads, DownloadSpec};
use crate::error::{Error, Result};
use crate::reporting::median;
use lab::Client;
use lab::control::ControlError;
use link::Clock;
use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::ops::Range;
use terminal::Interrupt;

/// Honest downloads, which take some seconds each.
pub(super) const DOWNLOAD: DownloadSpec =
    DownloadSpec { bytes: 3_000_000, patience: Duration::from_secs(6) };

/// The interval between new circuits: `DoSCircuitCreationRate` allows two a second for the address that all honest clients share.
const PACE: Duration = Duration::from_millis(500);

/// The timeout of circuits that are still being built when an interval ends, and of those built before the attack.
const SETTLING: Duration = Duration::from_secs(8);

/// The polling interval of events and counters.
const STEP: Duration = Duration::from_millis(50);

/// One circuit of a C tor client.
#[derive(Clone, Debug, Default)]
struct Circuit {
    requested: Instant,
    built: Option<Instant>,
    /// When it failed or was closed.
    lost: Option<Instant>,
    /// The reason, as reported by tor.
    reason: String,
}

impl Circuit {
    const fn is_alive(&self) -> bool {
        self.built.is_some() && self.lost.is_none()
    }

    const fn is_pending(&self) -> bool {
        self.built.is_none() && self.lost.is_none()
    }
}

/// Circuits that a C tor client builds by EXTENDCIRCUIT.
#[derive(Default)]
pub(super) struct Circuits {
    by_id: BTreeMap<String, Circuit>,
    requested: usize,
    /// The time since which the client lacks the microdescriptor of a relay with a new onion key.
    unknown_since: Option<Instant>,
}

/// The number of lost circuits by reason, as reported by tor.
pub(super) type Losses = BTreeMap<String, usize>;

/// The service of honest clients during an interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    pub(super) seconds: f64,
    /// The download rate in each second.
    pub(super) mbit: Vec<f64>,
    pub(super) broken_downloads: u64,
    /// The number of requested circuits.
    pub(super) requested: usize,
    /// Those of the requested circuits that are open at the end.
    pub(super) alive: usize,
    /// The build times of the circuits that were built, in milliseconds.
    pub(super) build_ms: Vec<f64>,
    /// The other requested circuits.
    pub(super) losses: Losses,
}

impl Service {
    /// The mean download rate, in Mbit/s.
    #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
    pub(super) fn mean_mbit(&self) -> f64 {
        self.mbit.iter().sum::<f64>() / (self.mbit.len().max(1)) as f64
    }

    pub(super) fn median_build_ms(&self) -> Option<f64> {
        median(self.build_ms.iter().copied())
    }
}

/// An interval to watch: the relay, the paths of new circuits through it, and the duration.
pub(super) struct Watched<'a> {
    pub(super) subject: &'a Subject,
    pub(super) paths: Range<usize>,
    pub(super) seconds: u32,
}

/// An interval that has been watched, with the circuits that were requested in it.
pub(super) struct Interval {
    service: Service,
    ids: Vec<String>,
}

impl Circuits {
    /// Requests another circuit through a relay; `None` while the client fetches the microdescriptor of a relay with a new onion key.
    fn request(
        &mut self,
        scene: &mut Scene,
        subject: &Subject,
        paths: &Range<usize>,
    ) -> Result<Option<String>> {
        let number = paths.start + self.requested % paths.len().max(1);
        let path = scene.path(subject, number)?;
        self.requested += 1;
        let path = path.map(|rsa| format!("${}", hex::encode_upper(rsa))).join(",");
        let requested = scene.clock.now();
        let answer = scene.builder.control().request(&format!("EXTENDCIRCUIT 0 {path}"));
        let is_new = matches!(&answer, Err(ControlError::Refused { text, .. }) if text.starts_with("No descriptor"));
        let unknown_since = is_new.then(|| self.unknown_since.unwrap_or(requested));
        self.unknown_since = unknown_since;
        if unknown_since.is_some_and(|since| requested - since < SETTLING) {
            return Ok(None);
        }
        // "EXTENDED 12"; tor refuses a relay that has left the consensus.
        let answer = answer.map_err(Error::clients)?;
        let id = answer.text().rsplit(' ').next().map(str::to_owned);
        if let Some(id) = &id {
            self.by_id.insert(id.clone(), Circuit { requested, ..Circuit::default() });
        }
        Ok(id)
    }

    /// Processes the client's events.
    fn process_events(&mut self, client: &mut Client, clock: Clock) {
        for event in client.control().events().try_iter() {
            // "CIRC 7 BUILT $FP~name,… …"
            let text = event.message.text();
            let Some(rest) = text.strip_prefix("CIRC ") else { continue };
            let mut words = rest.split(' ');
            let Some((id, status)) = words.next().zip(words.next()) else { continue };
            let Some(circuit) = self.by_id.get_mut(id) else { continue };
            let at = Instant::ORIGIN
                + (clock.now() - Instant::ORIGIN).saturating_sub(event.at.elapsed());
            match status {
                "BUILT" => _ = circuit.built.get_or_insert(at),
                "FAILED" | "CLOSED" => {
                    circuit.lost.get_or_insert(at);
                    let reason = words.filter(|word| word.contains("REASON="));
                    circuit.reason = reason.collect::<Vec<_>>().join(" ");
                }
                _ => {}
            }
        }
    }

    /// Builds the circuits that are to be open when the attack begins.
    pub(super) fn open(
        &mut self,
        scene: &mut Scene,
        subject: &Subject,
        count: usize,
        interrupt: &Interrupt,
    ) -> Result<()> {
        for _ in 0..count {
            self.request(scene, subject, &(0..FRESH))?;
            if interrupt.wait(STEP) {
                break;
            }
        }
        let deadline = scene.clock.now() + SETTLING;
        loop {
            self.process_events(&mut scene.builder, scene.clock);
            let is_done = !self.by_id.values().any(Circuit::is_pending);
            if is_done || scene.clock.now() > deadline || interrupt.wait(STEP) {
                return Ok(());
            }
        }
    }

    /// Builds circuits at a constant pace and watches downloads, for the interval's duration. The results of the circuits are
    /// added by [`Self::settle`].
    pub(super) fn watch(
        &mut self,
        scene: &mut Scene,
        Watched { subject, paths, seconds }: Watched<'_>,
        downloads: &BackgroundDownloads,
        interrupt: &Interrupt,
    ) -> Result<Interval> {
        let clock = scene.clock;
        let started = clock.now();
        let (mut second, mut next) = (started, started);
        let (mut bytes, broken) = (downloads.bytes(), downloads.failed());
        let (mut service, mut ids) = (Service::default(), Vec::new());
        let end = started + Duration::from_secs(seconds.into());
        while clock.now() < end && !interrupt.is_requested() {
            if clock.now() >= next {
                next += PACE;
                ids.extend(self.request(scene, subject, &paths)?);
            }
            self.process_events(&mut scene.builder, clock);
            let now = clock.now();
            if now - second >= Duration::from_secs(1) {
                let more = downloads.bytes();
                service.mbit.push(mbit(more - bytes, now - second));
                (bytes, second) = (more, now);
            }
            interrupt.wait(STEP.min(next.saturating_since(now)).max(Duration::from_millis(1)));
        }
        service.seconds = (clock.now() - started).as_secs_f64();
        service.broken_downloads = downloads.failed() - broken;
        Ok(Interval { service, ids })
    }

    /// Waits for the circuits of an interval that are still being built, and returns the complete results.
    pub(super) fn settle(
        &mut self,
        scene: &mut Scene,
        Interval { mut service, ids }: Interval,
        interrupt: &Interrupt,
    ) -> Service {
        let deadline = scene.clock.now() + SETTLING;
        while ids.iter().any(|id| self.by_id.get(id).is_some_and(Circuit::is_pending))
            && scene.clock.now() < deadline
            && !interrupt.wait(STEP)
        {
            self.process_events(&mut scene.builder, scene.clock);
        }
        let circuits: Vec<&Circuit> = ids.iter().filter_map(|id| self.by_id.get(id)).collect();
        service.requested = circuits.len();
        service.alive = circuits.iter().filter(|circuit| circuit.is_alive()).count();
        for circuit in circuits.iter().filter(|circuit| !circuit.is_alive()) {
            let reason = circuit.lost.map_or("no answer", |_| &circuit.reason);
            *service.losses.entry(reason.to_owned()).or_default() += 1;
        }
        let took =
            |circuit: &&Circuit| Some((circuit.built? - circuit.requested).as_secs_f64() * 1e3);
        service.build_ms = circuits.iter().filter_map(took).collect();
        service
    }

    /// Of the circuits that were open at an instant: the number that are still open, their total, and the losses.
    pub(super) fn survivors(&self, then: Instant) -> ((usize, usize), Losses) {
        let was_open = |circuit: &&Circuit| {
            circuit.built.is_some_and(|built| built <= then)
                && circuit.lost.is_none_or(|lost| lost > then)
        };
        let (mut open, mut total, mut losses) = (0, 0, Losses::new());
        for circuit in self.by_id.values().filter(was_open) {
            total += 1;
            match circuit.lost {
                None => open += 1,
                Some(_) => *losses.entry(circuit.reason.clone()).or_default() += 1,
            }
        }
        ((open, total), losses)
    }

    /// Closes all circuits.
    pub(super) fn close(self, scene: &mut Scene) {
        for id in self.by_id.keys() {
            // Fails if the circuit has been closed meanwhile.
            let _closed = scene.builder.control().request(&format!("CLOSECIRCUIT {id}"));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn mbit(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64().max(1e-9)
}
