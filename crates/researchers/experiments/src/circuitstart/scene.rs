//! A circuit of five nodes in network namespaces: four of our relays, the first of which is the exit, and our client.
//!
//! Windows, links and the default scheduler are the engine's, as in `flashflow relay`, with TLS over the kernel's TCP.
//! The bottleneck is a host's access link, in both directions, as in the model.

use super::Begin;
use super::chain::{RELAYS, Sizes};
use super::recording::{RecordingFlows, WindowLog};
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

/// The timeout for building and closing circuits.
const PATIENCE: Duration = Duration::from_secs(60);

/// The polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// The queue limit of access links, in round trips of a hop: more than any window fills.
const QUEUE_ROUND_TRIPS: u32 = 20;

/// The streams that fill a circuit's window: a stream's window is half of it.
const STREAMS: u64 = 2;

/// More than any download transfers.
const ENDLESS: u64 = 1 << 40;

// The namespaces have no other listeners.
const RELAY_PORT: u16 = 5000;
const SERVER_PORT: u16 = 5001;

/// The path of a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Hops from the source to the bottleneck.
    pub(super) distance: usize,
    /// How many times slower the path is than the model's: latency is multiplied by it, rates are divided.
    pub(super) stretch: u32,
    pub(super) narrow_mbit: f64,
    pub(super) wide_mbit: f64,
    /// The latency from each host to the centre of the star.
    pub(super) delay: Duration,
    pub(super) congestion: Congestion,
    pub(super) seed: u64,
}

impl Path {
    /// The round trip from one host to the next.
    pub(super) fn hop_round_trip(&self) -> Duration {
        4 * self.delay
    }

    /// The time before the bottleneck's rate doubles.
    pub(super) fn narrow_for(&self) -> Duration {
        self.hop_round_trip() * 60
    }

    /// The time after that: five round trips over three hops, three more in which the window must stay there, and a
    /// margin.
    fn widened_for(&self) -> Duration {
        self.hop_round_trip() * 30
    }
}

/// The source's window during a download, and the conditions on its path.
pub(super) struct ObservedWindow {
    /// The source's window, with times since its first data cell.
    pub(super) sizes: Sizes,
    /// When the bottleneck's rate doubled, or else the end.
    pub(super) widened_at: Instant,
    /// The rate of the bottleneck, less the overhead of TCP, TLS and FEEDBACK.
    pub(super) narrow_cells_per_s: f64,
    /// The rate of all other access links, less the same overhead.
    pub(super) wide_cells_per_s: f64,
    /// The utilisation of the bottleneck.
    pub(super) used: f64,
    /// The largest delay of a packet beyond its path's latency, caused by a slow machine.
    pub(super) late: Duration,
    /// Packets lost to a slow machine, or to a full queue at the bottleneck.
    pub(super) lost: u64,
    /// The shortest round trip from the source to the next host.
    pub(super) least_round_trip: Duration,
    /// The median round trip of the settled window, from the source to the next host.
    pub(super) round_trip: Duration,
}

/// The hosts and nodes of a path.
pub(super) struct RealPath {
    // Fields are dropped in this order: nodes before their hosts.
    client: NodeThread<Client<StdRng>>,
    relays: Vec<NodeThread<Router<StdRng>>>,
    _server: NodeThread<Server>,
    plan: CircuitPlan,
    server_at: SocketAddr,
    log: WindowLog,
    clock: Clock,
    path: Path,
    wan: Wan,
}

/// The traffic of a host so far.
#[derive(Clone, Copy, Debug)]
struct Carried {
    into_bytes: u64,
    out_bytes: u64,
    cells: u64,
}

impl RealPath {
    pub(super) fn start(path: Path, begin: Begin) -> Result<Self> {
        let wan = start_wan(&path)?;
        let clock = Clock::start();
        let mut nodes = Nodes::new(clock)?;
        let flows = begin.windows().flows(SchedulerConfig::INTERVAL);
        let log = WindowLog::default();
        let (mut relays, mut hops) = (Vec::new(), Vec::new());
        for place in 0..=RELAYS {
            let host = wan.host(&name(place))?;
            let namespace = Some(host.namespace());
            let (at, listener) = listen(namespace, host.address(), RELAY_PORT)?;
            let identity = nodes.identity()?;
            hops.push(NextHop::to_own(&identity, at));
            let flows: Arc<dyn FlowFactory> = match place {
                0 => {
                    Arc::new(RecordingFlows { flows, log: log.clone(), cells_before_data: STREAMS })
                }
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
        Ok(Self { client, relays, _server: server, plan, server_at, log, clock, path, wan })
    }

    /// Downloads over a new circuit, at whose end the bottleneck's rate doubles if `doubles`. `None` if the user has
    /// interrupted.
    pub(super) fn download(
        &self,
        doubles: bool,
        interrupt: &Interrupt,
    ) -> Result<Option<ObservedWindow>> {
        let narrow = Rate::from_mbit_per_s(self.path.narrow_mbit);
        self.set_narrow(narrow)?;
        let before = self.log.count();
        let (plan, to) = (self.plan.clone(), self.server_at);
        let circuit = self.ask(move |client, now| {
            let circuit = client.open(now, &plan);
            for seed in 0..STREAMS {
                client.begin(now, circuit, to.into(), Transfer::download(seed, ENDLESS));
            }
            circuit
        })?;
        if !self.wait(interrupt, || self.log.count() > before)? {
            return Ok(None);
        }
        let begun = self.log.latest().map_or(self.clock.now(), |(begun, _)| begun);
        if self.sleep(interrupt, begun + self.path.narrow_for() / 2) {
            return Ok(None);
        }
        let (half_at, half) = (self.clock.now(), self.carried()?);
        if self.sleep(interrupt, begun + self.path.narrow_for()) {
            return Ok(None);
        }
        let (whole_at, whole) = (self.clock.now(), self.carried()?);
        let widened = self.clock.now();
        if doubles {
            self.set_narrow(narrow.scaled(2.0))?;
            if self.sleep(interrupt, widened + self.path.widened_for()) {
                return Ok(None);
            }
        }
        let sizes = self.log.latest().map(|(_, sizes)| sizes).unwrap_or_default();
        self.end(circuit, interrupt)?;
        let (time, cells) = (whole_at - half_at, whole.cells - half.cells);
        let bytes = whole.bytes_since(half);
        if cells == 0 {
            return Err(Error::clients("no cell passed the bottleneck"));
        }
        let bytes_per_cell = float(bytes) / float(cells);
        let cells_per_s = |rate: Rate| float(rate.as_byte_per_s()) / bytes_per_cell;
        let unintended = self.wan.unintended_losses()?;
        Ok(Some(ObservedWindow {
            sizes,
            widened_at: Instant::ORIGIN + (widened - begun),
            narrow_cells_per_s: cells_per_s(narrow),
            wide_cells_per_s: cells_per_s(Rate::from_mbit_per_s(self.path.wide_mbit)),
            used: float(bytes) / (float(narrow.as_byte_per_s()) * time.as_secs_f64()),
            late: Duration::from_micros(unintended.worst_lateness_us),
            lost: unintended.losses() + self.dropped()?,
            least_round_trip: self.log.least_round_trip().unwrap_or_default(),
            round_trip: self
                .log
                .round_trip(begun + self.path.narrow_for() / 2..widened)
                .unwrap_or_default(),
        }))
    }

    /// Closes a circuit, and waits until all relays have closed it.
    fn end(&self, circuit: CircuitNumber, interrupt: &Interrupt) -> Result<()> {
        self.ask(move |client, _| client.destroy(circuit))?;
        self.wait(interrupt, || {
            let open = |relay: &NodeThread<Router<StdRng>>| {
                relay.handle().call(|driver| driver.node().open_circuits()).unwrap_or(0)
            };
            self.relays.iter().all(|relay| open(relay) == 0)
        })?;
        Ok(())
    }

    /// Runs a task on the client's thread.
    fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Client<StdRng>, Instant) -> T + Send + 'static,
    ) -> Result<T> {
        let asked = self.client.handle().call(move |driver: &mut dyn Drive<Client<StdRng>>| {
            let now = driver.now();
            task(driver.node_mut(), now)
        });
        asked.ok_or_else(|| Error::clients("the client's thread has ended"))
    }

    /// Waits until a condition holds; false if the user has interrupted. An error if the client loses a circuit.
    fn wait(&self, interrupt: &Interrupt, holds: impl Fn() -> bool) -> Result<bool> {
        let deadline = self.clock.now() + PATIENCE;
        while !holds() {
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
                return Err(Error::clients("timeout while building or closing circuits"));
            }
            if interrupt.wait(LOOK) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the user has interrupted.
    fn sleep(&self, interrupt: &Interrupt, until: Instant) -> bool {
        interrupt.wait(until - self.clock.now())
    }

    fn set_narrow(&self, rate: Rate) -> Result<()> {
        Ok(self.wan.set_access(&name(self.path.distance), access(&self.path, rate))?)
    }

    /// Packets that the bottleneck's queue dropped.
    fn dropped(&self) -> Result<u64> {
        let (narrow, mut dropped) = (name(self.path.distance), 0);
        for other in (0..RELAYS + 2).map(name).filter(|other| *other != narrow) {
            dropped += self.wan.counts(&other, &narrow)?.dropped_by_access;
            dropped += self.wan.counts(&narrow, &other)?.dropped_by_access;
        }
        Ok(dropped)
    }

    /// The traffic of the bottleneck's host so far.
    fn carried(&self) -> Result<Carried> {
        let narrow = name(self.path.distance);
        let (mut into_bytes, mut out_bytes) = (0, 0);
        for other in (0..RELAYS + 2).map(name).filter(|other| *other != narrow) {
            into_bytes += self.wan.counts(&other, &narrow)?.delivered_bytes;
            out_bytes += self.wan.counts(&narrow, &other)?.delivered_bytes;
        }
        let relay = &self.relays[self.path.distance];
        let sent = relay.handle().call(|driver| driver.node().totals().client_bytes);
        let sent = sent.ok_or_else(|| Error::clients("a relay's thread has ended"))?;
        Ok(Carried { into_bytes, out_bytes, cells: sent / CELL_LEN as u64 })
    }
}

impl Carried {
    /// The bytes since `before` in the direction with more traffic.
    fn bytes_since(self, before: Self) -> u64 {
        (self.into_bytes - before.into_bytes).max(self.out_bytes - before.out_bytes)
    }
}

/// The name of a host by its distance from the source.
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

/// Starts the hosts and the paths between them.
fn start_wan(path: &Path) -> Result<Wan> {
    let wide = access(path, Rate::from_mbit_per_s(path.wide_mbit));
    let host = |(place, at): (usize, u8)| {
        HostSpec::new(name(place), Ipv4Addr::new(10, 77, 0, at))
            .with_access(wide)
            .with_congestion(path.congestion)
    };
    let hosts = (0..RELAYS + 2).zip(1..).map(host).collect();
    let default_path = WanPath::with_latency(2 * path.delay);
    Ok(Wan::start(&WanSpec { default_path, ..WanSpec::new(hosts) }.with_seed(path.seed))?)
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
const fn float(number: u64) -> f64 {
    number as f64
}
