//! Probes circuits gently (Panchenko et al., §IV-B and §V-A). A node without I/O.
//!
//! Circuits are built one at a time, and the time of each hop is recorded. Then each hop is asked
//! repeatedly to open a stream to an address that no relay permits; the refusal yields the RTT to
//! that hop (*leaky pipe*). Differences between neighbours are the RTTs of links. An optional
//! download yields the throughput. There are pauses between probes and between circuits.

mod server;
mod shell;
mod stage;
#[cfg(test)]
mod tests;

pub use server::ProbeServer;
pub use shell::{ProbeError, learn, run};
use stage::{Asked, Stage};

use crate::model::Observed;
use netdoc::RsaId;
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Loss, Outcome, Transfer,
};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// How to probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// RTT probes of each hop; may be 0.
    pub rounds: usize,
    /// Probes only the last hop: measures circuits, but not links.
    pub only_last: bool,
    /// Pause between probes.
    pub gap: Duration,
    /// Pause between circuits.
    pub pause: Duration,
    /// An address that no relay permits.
    pub refused: SocketAddr,
    /// Address of a [`Server`](onion::client::Server), such as a [`ProbeServer`], and the bytes to
    /// download from it.
    pub download: Option<(SocketAddr, u64)>,
    /// Time limit for building a circuit: C tor's initial timeout.
    pub build_max: Duration,
    /// Time limit for a probe.
    pub answer_max: Duration,
    /// Time limit for a download.
    pub download_max: Duration,
}

impl Default for ProbePlan {
    fn default() -> Self {
        Self {
            rounds: 5,
            only_last: false,
            gap: Duration::from_millis(50),
            pause: Duration::from_secs(1),
            refused: SocketAddr::from(([127, 0, 0, 1], 1)),
            download: None,
            build_max: Duration::from_secs(60),
            answer_max: Duration::from_secs(10),
            download_max: Duration::from_secs(60),
        }
    }
}

/// A circuit to be probed.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Names of the relays, first hop first.
    pub path: Vec<RsaId>,
    /// The path, ready to be built.
    pub hops: Vec<NextHop>,
    /// Whether the last hop supports congestion control.
    pub has_congestion_control: bool,
}

impl Subject {
    /// A circuit through these relays.
    #[must_use]
    pub fn new(path: &[&crate::RelayInfo]) -> Self {
        Self {
            path: path.iter().map(|relay| relay.fingerprint).collect(),
            hops: path.iter().map(|relay| relay.hop).collect(),
            has_congestion_control: path.last().is_some_and(|relay| relay.has_congestion_control),
        }
    }
}

/// The result for one circuit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probed {
    /// The path, first hop first.
    pub path: Vec<RsaId>,
    /// Time to open the link to the first hop; `None` if it was open.
    pub link_time: Duration,
    /// Time from the circuit's first cell to the answer of each hop, first hop first; fewer than
    /// hops if it failed.
    pub hop_times: Vec<Duration>,
    /// RTTs to each hop, first hop first.
    pub rtts: Vec<Vec<Duration>>,
    /// Throughput of the download, from BEGIN to its last byte, in kB/s.
    pub throughput_kb_s: Option<f64>,
    /// Time from the start until the result was known.
    pub took: Duration,
    /// Why the result is missing or incomplete.
    pub failure: Option<String>,
}

impl Probed {
    /// Build time from the first cell, if the circuit was built.
    #[must_use]
    pub fn setup(&self) -> Option<Duration> {
        (self.hop_times.len() == self.path.len()).then(|| self.hop_times.last().copied())?
    }

    /// The minimum RTT to each hop.
    #[must_use]
    pub fn least_rtts(&self) -> Vec<Option<Duration>> {
        self.rtts.iter().map(|of_hop| of_hop.iter().min().copied()).collect()
    }

    /// The mean RTT to the last hop.
    #[must_use]
    pub fn mean_rtt(&self) -> Option<Duration> {
        let of_last = self.rtts.last().filter(|all| !all.is_empty())?;
        let count = u32::try_from(of_last.len()).ok()?;
        Some(of_last.iter().copied().sum::<Duration>() / count)
    }

    /// The observation for a model.
    #[must_use]
    pub fn observed(&self) -> Observed {
        Observed {
            path: self.path.clone(),
            was_built: self.setup().is_some(),
            rtts: self.least_rtts(),
            throughput_kb_s: self.throughput_kb_s,
        }
    }
}

/// The probing node.
pub struct Prober {
    client: Client<StdRng, Asked>,
    plan: ProbePlan,
    subjects: VecDeque<Subject>,
    stage: Stage,
    probed: Probed,
    /// When the current circuit was begun.
    began: Instant,
    /// The circuit being built, for another attempt.
    again: Option<CircuitPlan>,
    results: VecDeque<Probed>,
    seed: u64,
}

impl Prober {
    /// Probes these circuits in order. All randomness comes from the generator.
    #[must_use]
    pub fn new(
        plan: ProbePlan,
        subjects: Vec<Subject>,
        now: Instant,
        unix_time_s: u64,
        mut rng: StdRng,
    ) -> Self {
        let client = Client::with_applications(unix_time_s, StdRng::from_rng(&mut rng));
        Self {
            client,
            plan,
            subjects: subjects.into(),
            stage: Stage::Pausing { until: now },
            probed: Probed::default(),
            began: now,
            again: None,
            results: VecDeque::new(),
            seed: 0,
        }
    }

    /// Sets the congestion control of further circuits.
    pub fn set_congestion(
        &mut self,
        params: std::sync::Arc<onion::flow::control::CongestionParams>,
    ) {
        self.client.set_congestion(params);
    }

    /// The result of the next completed circuit.
    pub fn poll_probed(&mut self) -> Option<Probed> {
        self.results.pop_front()
    }

    /// Whether all results were returned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Over) && self.results.is_empty()
    }

    fn begin_next(&mut self, now: Instant) {
        let Some(subject) = self.subjects.pop_front() else {
            self.client.close_all();
            self.stage = Stage::Over;
            return;
        };
        let hops = subject.hops.len();
        self.probed =
            Probed { path: subject.path, rtts: vec![Vec::new(); hops], ..Probed::default() };
        self.began = now;
        let has_congestion_control = subject.has_congestion_control;
        let plan = CircuitPlan { has_congestion_control, ..CircuitPlan::new(subject.hops) };
        let circuit = self.client.open(now, &plan);
        self.again = Some(plan);
        let until = now + self.plan.build_max;
        self.stage = Stage::Building { circuit, began: now, until };
    }

    /// Closes a circuit, with or without an error, and pauses.
    fn end(&mut self, now: Instant, circuit: CircuitNumber, failure: Option<String>) {
        self.client.destroy(circuit);
        self.probed.failure = failure;
        self.probed.took = now - self.began;
        self.results.push_back(std::mem::take(&mut self.probed));
        let is_last = self.subjects.is_empty();
        let until = if is_last { now } else { now + self.plan.pause };
        self.stage = Stage::Pausing { until };
    }

    /// Probes the next hop, or proceeds to the next stage.
    fn ask_next(&mut self, now: Instant, circuit: CircuitNumber, asked: usize) {
        let hops = self.probed.path.len();
        let first = if self.plan.only_last { hops.saturating_sub(1) } else { 0 };
        if asked >= (hops - first) * self.plan.rounds {
            return self.download(now, circuit);
        }
        let hop = first + asked % (hops - first);
        let to = Destination::from(self.plan.refused);
        let stream = self.client.begin_at(now, circuit, Some(hop), to, Asked::Nothing);
        let until = now + self.plan.answer_max;
        self.stage = Stage::Asking { circuit, asked, hop, stream, until };
    }

    fn download(&mut self, now: Instant, circuit: CircuitNumber) {
        let Some((server, bytes)) = self.plan.download else {
            return self.end(now, circuit, None);
        };
        self.seed = self.seed.wrapping_add(1);
        let transfer = Asked::Transfer(Transfer::download(self.seed, bytes));
        let stream = self.client.begin(now, circuit, server.into(), transfer);
        self.stage = Stage::Downloading { circuit, stream, until: now + self.plan.download_max };
    }

    fn handle_event(&mut self, now: Instant, event: ClientEvent) {
        match (event, &self.stage) {
            (ClientEvent::Built { circuit, took }, Stage::Building { circuit: its, began, .. })
                if circuit == *its =>
            {
                self.probed.link_time = (now - *began).saturating_sub(took);
                self.probed.hop_times = self.client.hop_times(circuit).to_vec();
                self.ask_next(now, circuit, 0);
            }
            (ClientEvent::Lost { circuit, cause }, Stage::Building { circuit: its, until, .. })
                if circuit == *its && is_swept(&cause) && self.again.is_some() =>
            {
                let until = *until;
                if let Some(plan) = self.again.take() {
                    let circuit = self.client.open(now, &plan);
                    self.stage = Stage::Building { circuit, began: now, until };
                }
            }
            (ClientEvent::Lost { circuit, cause }, stage) if stage.circuit() == Some(circuit) => {
                self.end(now, circuit, Some(cause.to_string()));
            }
            (
                ClientEvent::Over { stream, outcome: Outcome::Ended(_), figures },
                Stage::Asking { circuit, asked, hop, stream: its, .. },
            ) if stream == *its => {
                let (circuit, asked, hop) = (*circuit, *asked, *hop);
                self.probed.rtts[hop].push(figures.to_last());
                let until = now + self.plan.gap;
                self.stage = Stage::Between { circuit, asked: asked + 1, until };
            }
            (
                ClientEvent::Over { stream, outcome, figures },
                Stage::Downloading { circuit, stream: its, .. },
            ) if stream == *its => {
                let (circuit, seconds) = (*circuit, figures.to_last().as_secs_f64());
                let is_whole = outcome == Outcome::Complete;
                let kb_s = figures.received_bytes as f64 / 1e3 / seconds.max(1e-9);
                self.probed.throughput_kb_s = is_whole.then_some(kb_s);
                let failure = (!is_whole).then(|| format!("the download: {outcome}"));
                self.end(now, circuit, failure);
            }
            _ => {}
        }
    }

    fn handle_due(&mut self, now: Instant) {
        if self.stage.until().is_none_or(|at| now < at) {
            return;
        }
        match &self.stage {
            Stage::Pausing { .. } => self.begin_next(now),
            Stage::Between { circuit, asked, .. } => {
                let (circuit, asked) = (*circuit, *asked);
                self.ask_next(now, circuit, asked);
            }
            Stage::Building { circuit, .. } => {
                let circuit = *circuit;
                self.probed.hop_times = self.client.hop_times(circuit).to_vec();
                self.end(now, circuit, Some("not built in time".to_owned()));
            }
            Stage::Asking { circuit, hop, stream, .. } => {
                let (circuit, hop) = (*circuit, *hop + 1);
                let figures = self.client.figures(*stream);
                let was_let_out = figures.is_some_and(|figures| figures.connected_at.is_some());
                let why = if was_let_out {
                    format!(
                        "hop {hop} lets streams out to {}; give another --refused",
                        self.plan.refused
                    )
                } else {
                    format!("hop {hop} has not answered")
                };
                self.end(now, circuit, Some(why));
            }
            Stage::Downloading { circuit, .. } => {
                let circuit = *circuit;
                self.end(now, circuit, Some("the download was not whole in time".to_owned()));
            }
            Stage::Over => {}
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.client.poll_event() {
            self.handle_event(now, event);
        }
        self.handle_due(now);
    }
}

/// Whether a C tor first hop may have closed the circuit because it was unused.
fn is_swept(cause: &Loss) -> bool {
    matches!(cause, Loss::Circuit(error) if error.may_be_swept())
}

impl Node for Prober {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        self.client.handle_connected(now, conn, tls);
        self.settle(now);
    }

    fn handle_accepted(&mut self, _: Instant, _: ListenerId, _: &dyn TlsSession) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        self.client.handle_bytes(now, conn, plaintext);
        self.settle(now);
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.client.handle_closed(now, conn, cause);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_dial(&mut self, now: Instant) -> Option<Dial> {
        self.client.poll_dial(now)
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.client.poll_writable()
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        self.client.poll_transmit(now, conn, out)
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        self.client.poll_close()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout().into_iter().chain(self.stage.until()).min()
    }
}
