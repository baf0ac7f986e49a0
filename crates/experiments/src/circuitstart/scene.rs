//! Our relays, four, and our client at hosts of their own, far apart: a circuit of five nodes, whose first one is an exit.
//!
//! All of the windows are the engine's, between the relays that `flashflow relay` runs, under the default scheduler; so are the links, with TLS over the kernel's TCP. What is
//! narrow is a host's link to the network, in both directions, as in the model.

use super::Begin;
use super::chain::{RELAYS, Sizes};
use super::noted::{NotedFlows, WindowLog};
use crate::error::{Error, Result};
use lab::load::{Nodes, listen, rng};
use lab::wan::{Access, Bottleneck, Congestion, HostSpec, Queue, Wan, WanPath, WanSpec};
use link::{Clock, Drive, DriverOptions, NodeThread, unix_time_s};
use onion::cell::CELL_LEN;
use onion::circuit::NextHop;
use onion::client::{CircuitNumber, CircuitPlan, Client, ClientEvent, Server, Transfer};
use onion::flow::control::FlowFactory;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand::rngs::StdRng;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terminal::Interrupt;

/// Far more than relays need to open links, or circuits to stand.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// What may wait at a narrow place, in round trips of a hop: more than any window brings there.
const QUEUE_ROUND_TRIPS: u32 = 20;

/// A stream's window is half of its circuit's: this number of streams fills it.
const STREAMS: u64 = 2;

/// More than is downloaded.
const ENDLESS: u64 = 1 << 40;

/// Ports in networks where nobody else is.
const RELAY_PORT: u16 = 5000;
const SERVER_PORT: u16 = 5001;

/// The path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Hops from the source to the narrow host.
    pub(super) distance: usize,
    pub(super) narrow_mbit: f64,
    pub(super) wide_mbit: f64,
    /// From each host to the middle.
    pub(super) delay: Duration,
    pub(super) congestion: Congestion,
    pub(super) seed: u64,
}

impl Path {
    /// From one host to the next and back.
    pub(super) fn hop_round_trip(&self) -> Duration {
        4 * self.delay
    }

    /// How long the narrow place is as narrow as at first.
    pub(super) fn narrow_for(&self) -> Duration {
        self.hop_round_trip() * 80
    }

    /// How long it is twice as wide then: five round trips to a place three hops away, three more in which the window is to stay there, and some.
    fn widened_for(&self) -> Duration {
        self.hop_round_trip() * 30
    }
}

/// What a download has shown.
pub(super) struct ObservedWindow {
    /// The source's window, with times since it began.
    pub(super) sizes: Sizes,
    /// When the narrow place was widened.
    pub(super) widened_at: Instant,
    /// What the links that are narrow, and those that are not, carry in cells a second, with all that TCP, TLS and FEEDBACK take of them.
    pub(super) narrow_cells_per_s: f64,
    pub(super) wide_cells_per_s: f64,
    /// How much of the narrow place was used.
    pub(super) used: f64,
    /// The latest that a packet was delivered, as the network counts it: a machine that is too slow.
    pub(super) late: Duration,
    /// Packets that were lost though nobody asked for it, or that found the narrow place's queue full.
    pub(super) lost: u64,
    /// From the source to the next host and back, as its window sees it: the median of the time in which it has settled.
    pub(super) round_trip: Duration,
}

/// All that takes part.
pub(super) struct RealPath {
    // In this order: nodes end before the hosts that they are at.
    client: NodeThread<Client<StdRng>>,
    relays: Vec<NodeThread<Router<StdRng>>>,
    _server: NodeThread<Server>,
    plan: CircuitPlan,
    server_at: SocketAddr,
    notes: WindowLog,
    clock: Clock,
    path: Path,
    wan: Wan,
}

/// Bytes and cells that have passed a host.
#[derive(Clone, Copy, Debug)]
struct Carried {
    into_bytes: u64,
    out_bytes: u64,
    cells: u64,
}

impl RealPath {
    pub(super) fn start(path: Path, begin: Begin) -> Result<Self> {
        let wan = lay(&path)?;
        let clock = Clock::start();
        let mut nodes = Nodes::new(clock)?;
        let flows = begin.windows().flows(SchedulerConfig::INTERVAL);
        let notes = WindowLog::default();
        let (mut relays, mut hops) = (Vec::new(), Vec::new());
        for place in 0..=RELAYS {
            let host = wan.host(&name(place))?;
            let namespace = Some(host.namespace());
            let (at, listener) = listen(namespace, host.address(), RELAY_PORT)?;
            let identity = nodes.identity()?;
            hops.push(NextHop::to_own(&identity, at));
            let flows: Arc<dyn FlowFactory> = match place {
                0 => Arc::new(NotedFlows { flows, notes: notes.clone() }),
                _ => Arc::new(flows),
            };
            let policy = ExitPolicy::accept_all();
            let exit = (place == 0).then(|| ExitConfig { policy, ..ExitConfig::default() });
            let config = RouterConfig { flows, exit, ..RouterConfig::new(identity, unix_time_s()) };
            let router = Router::new(config, rng()?, clock.now());
            let options = DriverOptions::default();
            relays.push(nodes.start(namespace, router, vec![listener], options, ())?);
        }
        // The exit is the source, and the client the sink.
        hops.reverse();
        let source = wan.host(&name(0))?;
        let namespace = Some(source.namespace());
        let (server_at, listener) = listen(namespace, source.address(), SERVER_PORT)?;
        let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
        let server = nodes.start(namespace, Server::new(), vec![listener], options, ())?;
        let mut client = Client::new(unix_time_s(), rng()?);
        client.set_flows(Arc::new(flows));
        let sink = Some(wan.host(&name(RELAYS + 1))?.namespace());
        let client = nodes.start(sink, client, Vec::new(), DriverOptions::default(), ())?;
        let plan = CircuitPlan::new(hops);
        Ok(Self { client, relays, _server: server, plan, server_at, notes, clock, path, wan })
    }

    /// Downloads over a new circuit; `None` if the user has asked for the end.
    pub(super) fn download(&self, interrupt: &Interrupt) -> Result<Option<ObservedWindow>> {
        let narrow = Rate::from_mbit_per_s(self.path.narrow_mbit);
        self.set_narrow(narrow)?;
        let before = self.notes.count();
        let (plan, to) = (self.plan.clone(), self.server_at);
        let circuit = self.ask(move |client, now| {
            let circuit = client.open(now, &plan);
            for seed in 0..STREAMS {
                client.begin(now, circuit, to.into(), Transfer::download(seed, ENDLESS));
            }
            circuit
        })?;
        if !self.wait(interrupt, || Ok(self.notes.count() > before))? {
            return Ok(None);
        }
        let begun = self.notes.latest().map_or(self.clock.now(), |(begun, _)| begun);
        if self.sleep(interrupt, begun + self.path.narrow_for() / 2) {
            return Ok(None);
        }
        let (half_at, half) = (self.clock.now(), self.carried()?);
        if self.sleep(interrupt, begun + self.path.narrow_for()) {
            return Ok(None);
        }
        let (whole_at, whole) = (self.clock.now(), self.carried()?);
        self.set_narrow(narrow.scaled(2.0))?;
        let widened = self.clock.now();
        if self.sleep(interrupt, begun + self.path.narrow_for() + self.path.widened_for()) {
            return Ok(None);
        }
        let sizes = self.notes.latest().map(|(_, sizes)| sizes).unwrap_or_default();
        self.end(circuit, interrupt)?;
        let (time, cells) = (whole_at - half_at, whole.cells - half.cells);
        let bytes = whole.bytes_since(half);
        if cells == 0 {
            return Err(Error::clients("nothing came through the narrow place"));
        }
        let bytes_per_cell = float(bytes) / float(cells);
        let cells_per_s = |rate: Rate| float(rate.as_byte_per_s()) / bytes_per_cell;
        let unordered = self.wan.unintended_losses()?;
        Ok(Some(ObservedWindow {
            sizes,
            widened_at: Instant::ORIGIN + (widened - begun),
            narrow_cells_per_s: cells_per_s(narrow),
            wide_cells_per_s: cells_per_s(Rate::from_mbit_per_s(self.path.wide_mbit)),
            used: float(bytes) / (float(narrow.as_byte_per_s()) * time.as_secs_f64()),
            late: Duration::from_micros(unordered.worst_lateness_us),
            lost: unordered.losses() + self.dropped()?,
            round_trip: self
                .notes
                .round_trip(begun + self.path.narrow_for() / 2..widened)
                .unwrap_or_default(),
        }))
    }

    /// Ends a circuit, and waits until no relay knows of it.
    fn end(&self, circuit: CircuitNumber, interrupt: &Interrupt) -> Result<()> {
        self.ask(move |client, _| client.destroy(circuit))?;
        self.wait(interrupt, || {
            let open = |relay: &NodeThread<Router<StdRng>>| {
                relay.handle().call(|it| it.node().open_circuits()).unwrap_or(0)
            };
            Ok(self.relays.iter().all(|relay| open(relay) == 0))
        })?;
        Ok(())
    }

    /// Has something done on the client's thread.
    fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Client<StdRng>, Instant) -> T + Send + 'static,
    ) -> Result<T> {
        let asked = self.client.handle().call(move |it: &mut dyn Drive<Client<StdRng>>| {
            let now = it.now();
            task(it.node_mut(), now)
        });
        asked.ok_or_else(|| Error::clients("the client's thread has ended"))
    }

    /// Waits until a condition holds, or the client has lost a circuit; false if the user has interrupted.
    fn wait(&self, interrupt: &Interrupt, is_so: impl Fn() -> Result<bool>) -> Result<bool> {
        let deadline = self.clock.now() + PATIENCE;
        while !is_so()? {
            let lost = self.ask(|client, _| {
                std::iter::from_fn(|| client.poll_event()).find_map(|event| match event {
                    ClientEvent::Lost { cause, .. } => Some(cause.to_string()),
                    ClientEvent::Over { outcome, .. } => Some(outcome.to_string()),
                    _ => None,
                })
            })?;
            if let Some(problem) = lost {
                return Err(Error::clients(problem));
            }
            if self.clock.now() > deadline {
                return Err(Error::clients("circuits do not stand, or do not end, in time"));
            }
            if interrupt.wait(LOOK) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the user has asked for the end.
    fn sleep(&self, interrupt: &Interrupt, until: Instant) -> bool {
        interrupt.wait(until - self.clock.now())
    }

    fn set_narrow(&self, rate: Rate) -> Result<()> {
        Ok(self.wan.set_access(&name(self.path.distance), access(&self.path, rate))?)
    }

    /// Packets that found the queue of the narrow host's link full.
    fn dropped(&self) -> Result<u64> {
        let (narrow, mut dropped) = (name(self.path.distance), 0);
        for other in (0..RELAYS + 2).map(name).filter(|other| *other != narrow) {
            dropped += self.wan.counts(&other, &narrow)?.dropped_by_access;
            dropped += self.wan.counts(&narrow, &other)?.dropped_by_access;
        }
        Ok(dropped)
    }

    /// What has passed the narrow host so far.
    fn carried(&self) -> Result<Carried> {
        let narrow = name(self.path.distance);
        let (mut into_bytes, mut out_bytes) = (0, 0);
        for other in (0..RELAYS + 2).map(name).filter(|other| *other != narrow) {
            into_bytes += self.wan.counts(&other, &narrow)?.delivered_bytes;
            out_bytes += self.wan.counts(&narrow, &other)?.delivered_bytes;
        }
        let relay = &self.relays[self.path.distance];
        let sent = relay.handle().call(|it| it.node().totals().client_bytes);
        let sent = sent.ok_or_else(|| Error::clients("a relay's thread has ended"))?;
        Ok(Carried { into_bytes, out_bytes, cells: sent / CELL_LEN as u64 })
    }
}

impl Carried {
    /// The bytes since `before` of the direction with more traffic.
    fn bytes_since(self, before: Self) -> u64 {
        (self.into_bytes - before.into_bytes).max(self.out_bytes - before.out_bytes)
    }
}

/// A host of the circuit, by its place from the source on.
fn name(place: usize) -> String {
    match place {
        0 => "source".to_owned(),
        place if place > RELAYS => "sink".to_owned(),
        place => format!("relay{place}"),
    }
}

fn access(path: &Path, rate: Rate) -> Access {
    let queue = Queue::Time(path.hop_round_trip() * QUEUE_ROUND_TRIPS);
    Access::both(Bottleneck { rate, queue })
}

/// Hosts and the ways between them.
fn lay(path: &Path) -> Result<Wan> {
    let wide = access(path, Rate::from_mbit_per_s(path.wide_mbit));
    let host = |(place, at): (usize, u8)| {
        HostSpec::new(name(place), Ipv4Addr::new(10, 77, 0, at))
            .with_access(wide)
            .with_congestion(path.congestion)
    };
    let hosts = (0..RELAYS + 2).zip(1..).map(host).collect();
    let way = WanPath::with_latency(2 * path.delay);
    Ok(Wan::start(&WanSpec { default_path: way, ..WanSpec::new(hosts) }.with_seed(path.seed))?)
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
const fn float(number: u64) -> f64 {
    number as f64
}
