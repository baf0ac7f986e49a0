//! Honest clients and their service: downloads, open circuits, and new circuits.

use super::plan::Plan;
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

/// Honest downloads: of some seconds each.
pub(super) const DOWNLOAD: DownloadSpec =
    DownloadSpec { bytes: 3_000_000, patience: Duration::from_secs(6) };

/// From one new circuit to the next: all honest circuits come from one address, which `DoSCircuitCreationRate` grants two a
/// second.
const PACE: Duration = Duration::from_millis(500);

/// Time for the last ones, and for circuits before the attack.
const SETTLING: Duration = Duration::from_secs(8);

/// From one look at events and counters to the next.
const STEP: Duration = Duration::from_millis(50);

/// One circuit of a C tor client.
#[derive(Clone, Debug, Default)]
struct Circuit {
    asked: Instant,
    built: Option<Instant>,
    /// When it failed or was closed.
    gone: Option<Instant>,
    /// Why, in tor's words.
    why: String,
}

/// Circuits that a C tor client builds on command.
#[derive(Default)]
pub(super) struct Circuits {
    by_id: BTreeMap<String, Circuit>,
    asked: usize,
    /// The time since which the client lacks the microdescriptor of a relay with a new onion key.
    unknown_since: Option<Instant>,
}

/// Why circuits are gone, in tor's words, each with how many.
pub(super) type Losses = BTreeMap<String, usize>;

/// What a stretch of time came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    pub(super) seconds: f64,
    /// Downloaded, in each second.
    pub(super) mbit: Vec<f64>,
    pub(super) broken_downloads: u64,
    /// Circuits asked for.
    pub(super) asked: usize,
    /// Of these, built and not gone at the end.
    pub(super) alive: usize,
    /// How long each that was built took, in milliseconds.
    pub(super) build_ms: Vec<f64>,
    /// Why others are gone, in tor's words, each with how many.
    pub(super) losses: Losses,
}

impl Stretch {
    /// Over all of it, in Mbit/s.
    #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
    pub(super) fn mean_mbit(&self) -> f64 {
        self.mbit.iter().sum::<f64>() / (self.mbit.len().max(1)) as f64
    }

    pub(super) fn median_build_ms(&self) -> Option<f64> {
        median(self.build_ms.iter().copied())
    }
}

/// The circuits to watch: their paths through a relay, and the duration.
pub(super) struct Watched<'a> {
    pub(super) subject: &'a Subject,
    pub(super) paths: Range<usize>,
    pub(super) seconds: u32,
}

impl Circuits {
    /// Requests another circuit through a relay; `None` while the client fetches the microdescriptor of a relay with a new onion key.
    fn ask(
        &mut self,
        scene: &mut Scene,
        subject: &Subject,
        paths: &Range<usize>,
    ) -> Result<Option<String>> {
        let number = paths.start + self.asked % paths.len().max(1);
        let path = scene.path(subject, number)?;
        self.asked += 1;
        let path = path.map(|rsa| format!("${}", hex::encode_upper(rsa))).join(",");
        let asked = scene.clock.now();
        let answer = scene.builder.control().request(&format!("EXTENDCIRCUIT 0 {path}"));
        let is_new = matches!(&answer, Err(ControlError::Refused { text, .. }) if text.starts_with("No descriptor"));
        let unknown_since = is_new.then(|| self.unknown_since.unwrap_or(asked));
        self.unknown_since = unknown_since;
        if unknown_since.is_some_and(|since| asked - since < SETTLING) {
            return Ok(None);
        }
        // "EXTENDED 12"; tor refuses where it knows a relay no more.
        let answer = answer.map_err(|error| Error::Clients(error.to_string()))?;
        let id = answer.text().rsplit(' ').next().map(str::to_owned);
        if let Some(id) = &id {
            self.by_id.insert(id.clone(), Circuit { asked, ..Circuit::default() });
        }
        Ok(id)
    }

    /// Takes the client's events.
    fn hear(&mut self, client: &mut Client, clock: Clock) {
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
                    circuit.gone.get_or_insert(at);
                    let why = words.filter(|word| word.contains("REASON="));
                    circuit.why = why.collect::<Vec<_>>().join(" ");
                }
                _ => {}
            }
        }
    }

    /// Builds those that are to stand when the attack begins. Returns how many do.
    pub(super) fn stand(
        &mut self,
        scene: &mut Scene,
        subject: &Subject,
        plan: &Plan,
        interrupt: &Interrupt,
    ) -> Result<usize> {
        for _ in 0..plan.standing {
            self.ask(scene, subject, &(0..FRESH))?;
            if interrupt.wait(STEP) {
                break;
            }
        }
        let deadline = scene.clock.now() + SETTLING;
        loop {
            self.hear(&mut scene.builder, scene.clock);
            let open = self.by_id.values().filter(|it| it.built.is_none() && it.gone.is_none());
            if open.count() == 0 || scene.clock.now() > deadline || interrupt.wait(STEP) {
                return Ok(self.alive());
            }
        }
    }

    fn alive(&self) -> usize {
        self.by_id.values().filter(|it| it.built.is_some() && it.gone.is_none()).count()
    }

    /// Builds circuits one after another, and watches downloads meanwhile. Then it calls `on_end`, and gives the last
    /// circuits some more time.
    pub(super) fn watch(
        &mut self,
        scene: &mut Scene,
        watched: Watched<'_>,
        downloads: &BackgroundDownloads,
        on_end: &mut dyn FnMut(),
        interrupt: &Interrupt,
    ) -> Result<Stretch> {
        let Watched { subject, paths, seconds } = watched;
        let clock = scene.clock;
        let began = clock.now();
        let (mut second, mut next) = (began, began);
        let (mut bytes, broken) = (downloads.bytes(), downloads.failed());
        let mut stretch = Stretch::default();
        let mut ids = Vec::new();
        let end = began + Duration::from_secs(seconds.into());
        while clock.now() < end && !interrupt.is_requested() {
            if clock.now() >= next {
                next += PACE;
                ids.extend(self.ask(scene, subject, &paths)?);
            }
            self.hear(&mut scene.builder, clock);
            let now = clock.now();
            if now - second >= Duration::from_secs(1) {
                let more = downloads.bytes();
                stretch.mbit.push(mbit(more - bytes, now - second));
                (bytes, second) = (more, now);
            }
            interrupt.wait(STEP.min(next.saturating_since(now)).max(Duration::from_millis(1)));
        }
        stretch.seconds = (clock.now() - began).as_secs_f64();
        stretch.broken_downloads = downloads.failed() - broken;
        on_end();
        // The last ones have time to come.
        let deadline = clock.now() + SETTLING;
        let is_open = |it: &Circuit| it.built.is_none() && it.gone.is_none();
        while ids.iter().any(|id| self.by_id.get(id).is_some_and(is_open))
            && clock.now() < deadline
            && !interrupt.wait(STEP)
        {
            self.hear(&mut scene.builder, clock);
        }
        let circuits: Vec<&Circuit> = ids.iter().filter_map(|id| self.by_id.get(id)).collect();
        stretch.asked = circuits.len();
        stretch.alive =
            circuits.iter().filter(|it| it.built.is_some() && it.gone.is_none()).count();
        for circuit in circuits.iter().filter(|it| it.built.is_none() || it.gone.is_some()) {
            let why =
                if circuit.gone.is_some() { circuit.why.clone() } else { "no answer".to_owned() };
            *stretch.losses.entry(why).or_default() += 1;
        }
        let took = |it: &&Circuit| Some((it.built? - it.asked).as_secs_f64() * 1e3);
        stretch.build_ms = circuits.iter().filter_map(took).collect();
        Ok(stretch)
    }

    /// How many of all that were built before an instant are still there, and how many they were; and why others are
    /// gone.
    pub(super) fn alive_of_before(&self, then: Instant) -> ((usize, usize), Losses) {
        let before = self.by_id.values().filter(|it| it.built.is_some_and(|built| built <= then));
        let before: Vec<&Circuit> =
            before.filter(|it| it.gone.is_none_or(|gone| gone > then)).collect();
        let mut losses = Losses::new();
        for circuit in before.iter().filter(|it| it.gone.is_some()) {
            *losses.entry(circuit.why.clone()).or_default() += 1;
        }
        ((before.len() - losses.values().sum::<usize>(), before.len()), losses)
    }

    /// Closes them all.
    pub(super) fn close(self, scene: &mut Scene) {
        for id in self.by_id.keys() {
            // It may have ended.
            let _ended = scene.builder.control().request(&format!("CLOSECIRCUIT {id}"));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn mbit(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64().max(1e-9)
}
