//! A transfer over simulated circuits: opens them, replaces lost ones, and watches the exit.

use super::{Engine, SimulatedBridges};
use crate::conflux::failures::Failures;
use crate::conflux::plan::{ClientKind, DownloadFigures, Method, Scene};
use onion::client::{
    CircuitNumber, CircuitPlan, ClientEvent, Figures, Outcome, SetPlan, StreamNumber, Transfer,
};
use onion::router::Router;
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use sim::wire::{Ended, NodeId, Wire};

/// The timeout of downloads.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a client needs to notice a lost circuit, at most.
const NOTICED: Duration = Duration::from_millis(250);

/// What a client's events say.
#[derive(Default)]
struct Seen {
    figures: Option<Figures>,
    is_lost: bool,
}

impl SimulatedBridges {
    /// Builds the circuits, transfers one byte over them, and then downloads or uploads. If the circuit is lost, begins again with a new one.
    pub(super) fn transfer(
        &mut self,
        method: Method,
        bytes: u64,
    ) -> Result<DownloadFigures, String> {
        let circuit = self.build(method)?;
        let first = self.begin(circuit, Transfer::download(1, 1));
        self.complete(circuit, first, method)?.ok_or("the circuit was lost")?;
        let began = self.wire.now();
        if self.scene == Scene::FailingPaths {
            self.failures = Some(Failures::new(self.seed, self.paths.len(), began));
        }
        let transfer = match self.scene {
            Scene::Uploads => Transfer::upload(2, bytes),
            _ => Transfer::download(2, bytes),
        };
        let mut circuit = Some(circuit);
        while self.wire.now() < began + PATIENCE {
            let open = match circuit.take() {
                Some(open) => open,
                None => match self.build(method) {
                    Ok(built) => built,
                    Err(_) if self.failures.is_some() => continue,
                    Err(problem) => return Err(problem),
                },
            };
            let stream = self.begin(open, transfer);
            if let Some(figures) = self.complete(open, stream, method)? {
                return self.figures(method, open, began, &figures);
            }
        }
        Err("it takes too long".to_owned())
    }

    fn figures(
        &self,
        method: Method,
        circuit: CircuitNumber,
        began: Instant,
        figures: &Figures,
    ) -> Result<DownloadFigures, String> {
        let client = self.wire.node::<Engine>(self.client);
        let legs = client.map(|client| client.legs(circuit)).unwrap_or_default();
        let is_set = matches!(method.who, ClientKind::Ours | ClientKind::Fragile);
        if is_set && self.failures.is_none() && legs.len() != method.legs {
            return Err(format!("{} legs were linked", legs.len()));
        }
        // The time of earlier requests, whose circuits were lost.
        let lost = match self.failures {
            Some(_) => (self.wire.now() - began).saturating_sub(figures.to_last()),
            None => Duration::ZERO,
        };
        let took = lost + figures.to_last();
        #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³ bytes")]
        let exit_peak_kib = self.exit_peak_bytes as f64 / 1024.0;
        Ok(DownloadFigures {
            took_s: took.as_secs_f64(),
            // An upload has a receipt only.
            first_byte_s: figures.to_first_byte().map_or(took, |first| lost + first).as_secs_f64(),
            carried: legs.iter().map(|leg| leg.received).collect(),
            exit_peak_kib: Some(exit_peak_kib),
            client_early_peak: client.map(|client| client.early_peak_cells(circuit)),
        })
    }

    /// Opens the circuits and waits for them.
    fn build(&mut self, method: Method) -> Result<CircuitNumber, String> {
        let circuit = self.open(method);
        let deadline = self.wire.now() + PATIENCE;
        let is_over = |wire: &Wire, client| {
            wire.node::<Engine>(client).is_some_and(|node| node.is_built(circuit))
        };
        while self.wire.now() < deadline {
            if self.until("circuits are open", is_over)? {
                return Ok(circuit);
            }
            if self.handle_events(circuit, None, method)?.is_lost {
                return Err("the circuit was lost".to_owned());
            }
        }
        Err("circuits are not open in time".to_owned())
    }

    fn plan_of(&self, path: usize, method: Method) -> CircuitPlan {
        CircuitPlan {
            has_congestion_control: method.who != ClientKind::Fixed,
            ..CircuitPlan::new(self.paths[path].clone())
        }
    }

    fn open(&mut self, method: Method) -> CircuitNumber {
        self.path_of = (0..method.legs).collect();
        let legs: Vec<CircuitPlan> =
            self.path_of.iter().map(|path| self.plan_of(*path, method)).collect();
        let now = self.wire.now();
        let client = self.client_mut();
        let resumes = method.who == ClientKind::Ours;
        match (method.who, legs.first()) {
            (ClientKind::Ours | ClientKind::Fragile, _) | (_, None) => {
                client.open_set(now, &SetPlan { resumes, ..SetPlan::new(legs) })
            }
            (_, Some(only)) => client.open(now, only),
        }
    }

    fn begin(&mut self, circuit: CircuitNumber, transfer: Transfer) -> StreamNumber {
        let (now, to) = (self.wire.now(), self.server_at);
        self.client_mut().begin(now, circuit, to.into(), transfer)
    }

    /// Waits until a transfer completes; `None` if its circuit is lost.
    fn complete(
        &mut self,
        circuit: CircuitNumber,
        stream: StreamNumber,
        method: Method,
    ) -> Result<Option<Figures>, String> {
        let is_over = |wire: &Wire, client| {
            wire.node::<Engine>(client).is_none_or(|node| node.figures(stream).is_none())
        };
        let deadline = self.wire.now() + PATIENCE;
        while self.wire.now() < deadline {
            let is_over = self.until("the transfer has ended", is_over)?;
            let events = self.handle_events(circuit, Some(stream), method)?;
            match events.figures {
                Some(figures) => return Ok(Some(figures)),
                None if events.is_lost && self.failures.is_some() => return Ok(None),
                None if is_over || events.is_lost => break,
                None => {}
            }
        }
        Err("the end of the stream was not reported".to_owned())
    }

    /// Replaces lost legs. Returns whether the transfer or the circuit is over.
    fn handle_events(
        &mut self,
        circuit: CircuitNumber,
        stream: Option<StreamNumber>,
        method: Method,
    ) -> Result<Seen, String> {
        let mut seen = Seen::default();
        while let Some(event) = self.client_mut().poll_event() {
            match event {
                ClientEvent::Over { stream: ended, outcome, figures } if Some(ended) == stream => {
                    match outcome {
                        Outcome::Complete => seen.figures = Some(figures),
                        _ if self.failures.is_some() => seen.is_lost = true,
                        outcome => return Err(outcome.to_string()),
                    }
                }
                ClientEvent::Lost { circuit: lost, cause } if lost == circuit => {
                    if self.failures.is_none() {
                        return Err(cause.to_string());
                    }
                    seen.is_lost = true;
                }
                ClientEvent::LegLost { circuit: of, leg, .. } if of == circuit => {
                    let Some(path) = self.path_of.get(usize::from(leg)).copied() else { continue };
                    let (now, plan) = (self.wire.now(), self.plan_of(path, method));
                    if self.client_mut().add_leg(now, circuit, &plan).is_some() {
                        self.path_of.push(path);
                    }
                }
                _ => {}
            }
        }
        Ok(seen)
    }

    /// Runs until something is done, and returns true; or false after a short time if paths may fail.
    fn until(
        &mut self,
        what: &str,
        is_done: impl Fn(&Wire, NodeId) -> bool,
    ) -> Result<bool, String> {
        let Self { wire, client, exit, links, failures, exit_peak_bytes, .. } = self;
        let deadline = wire.now() + if failures.is_some() { NOTICED } else { PATIENCE };
        let (client, exit) = (*client, *exit);
        let ended = wire.run_until(deadline, |wire| {
            let failed = failures.as_mut().and_then(|failures| failures.poll(wire.now()));
            if let Some((bridge, middle)) = failed.and_then(|path| links.get(path)) {
                wire.cut(*bridge, *middle);
            }
            let queued =
                wire.node::<Router<StdRng>>(exit).map_or(0, |router| router.queued_bytes());
            *exit_peak_bytes = queued.max(*exit_peak_bytes);
            is_done(wire, client)
        });
        match ended {
            Ok(Ended::Satisfied) => Ok(true),
            Ok(Ended::AtDeadline) if failures.is_some() => Ok(false),
            Ok(ended) => Err(format!("before {what}: {ended:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn client_mut(&mut self) -> &mut Engine {
        self.wire.node_mut(self.client).expect("a client was put there")
    }
}
