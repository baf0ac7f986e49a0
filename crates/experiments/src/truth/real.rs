//! Real sockets: each host is a network of its own, and what lies between two is what the map says.

use super::client::{Errands, Notes, OfClient};
use super::simulated::asked_to_stop;
use super::{Around, Measured, Measuring, Played, RelaySeen, World};
use crate::error::{Error, Result};
use lab::load::{Nodes, listen, rng};
use lab::wan::{Access, Bottleneck, Congestion, HostSpec, Queue, Wan, WanPath, WanSpec};
use link::{Clock, DriverOptions, NodeThread, unix_time_s};
use measurer::{Approach, Coordinator, Defences, Request, Team, TeamOptions};
use onion::cell::CELL_LEN;
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, Client, Server};
use onion::measure::load::Target;
use onion::measure::protocol::CoordinatorKey;
use onion::measure::target::TargetParams;
use onion::router::{ExitConfig, ExitPolicy, RateLimit, Router, RouterConfig};
use onion::{Duration, Rate};
use rand::rngs::StdRng;
use sim::world::Control;
use std::net::Ipv4Addr;
use std::thread;
use tornet::network::{Network, Relay, Site, Users};
use tornet::places::Places;

/// Ports in networks where nobody else is.
const RELAY_PORT: u16 = 9001;
const SERVER_PORT: u16 = 80;

/// Between two looks at whether all is over.
const LOOK: Duration = Duration::from_millis(100);

/// A host that gets as much as this machine carries is not held to it.
const UNBOUND: Rate = Rate::from_bit_per_s(1_000_000_000);

/// The key of the one coordinator.
const COORDINATOR: [u8; 32] = [7; 32];

/// Relays, a server, clients and a measurer of ours on this machine: TLS over the kernel's TCP, between network namespaces. It needs root.
///
/// A network has one guard, one middle relay and one exit, and each client fetches things of one size. What differs from [`Simulated`](super::Simulated) is that clients begin when
/// the time in which users begin is over, not in its course; that links to a host are dropped what is too much on the way up, too; and that the coordinator
/// sits at the measurer's host.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealSockets;

impl World for RealSockets {
    fn name(&self) -> &'static str {
        "real"
    }

    fn play(&self, network: &Network, around: &Around<'_>) -> Result<Played> {
        let Network { relays, servers, clients, .. } = network;
        let sites: Vec<&Site> = relays
            .iter()
            .map(|it| &it.site)
            .chain(servers)
            .chain(clients.iter().map(|it| &it.site))
            .collect();
        let wan = lay(network, &sites, around.seed)?;
        let mut nodes = Nodes::new(Clock::start())?;
        let started: Vec<Started> = relays
            .iter()
            .map(|relay| start_relay(&mut nodes, &wan, relay, network, TargetParams::default()))
            .collect::<Result<_, _>>()?;
        let plan = CircuitPlan::new(hops(relays, &started)?);
        let Some(server) = servers.first() else {
            return Err(Error::clients("there is no server"));
        };
        let host = wan.host(&server.name)?;
        let (server_at, listener) = listen(Some(host.namespace()), host.address(), SERVER_PORT)?;
        let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
        let namespace = Some(host.namespace());
        let _server = nodes.start(namespace, Server::new(), vec![listener], options, ())?;
        let begin = nodes.clock.now();
        let notes = Notes::default();
        let mut running = Vec::new();
        for (place, client) in clients.iter().enumerate() {
            let Users::Fetch(fetch) = &client.users else {
                return Err(Error::clients("users by models are played in virtual time only"));
            };
            let errands = Errands::new(
                OfClient { place, fetch, choices: &network.choices },
                plan.clone(),
                server_at,
                begin,
                notes.clone(),
            )?;
            let node = Client::new(unix_time_s(), rng()?);
            let namespace = Some(wan.host(&client.site.name)?.namespace());
            let options = DriverOptions::default();
            running.push(nodes.start(namespace, node, Vec::new(), options, errands)?);
        }
        let end = begin + Duration::from_secs(u64::from(around.seconds_max));
        while !notes.are_over(clients.len())? && nodes.clock.now() < end {
            asked_to_stop(around)?;
            thread::park_timeout(LOOK);
        }
        let unordered = wan.unintended_losses()?;
        Ok(Played {
            downloads: notes.take(),
            relays: started.iter().map(Started::seen).collect::<Result<_, _>>()?,
            late: Duration::from_micros(unordered.worst_lateness_us),
            lost_packets: unordered.losses(),
        })
    }

    fn measure(&self, measuring: &Measuring, around: &Around<'_>) -> Result<Measured> {
        let (network, site) = (measuring.network(), measuring.site());
        let wan = lay(&network, &[&measuring.relay.site, &site], around.seed)?;
        let mut nodes = Nodes::new(Clock::start())?;
        let target = TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            measurements_per_period: u32::MAX,
            ..TargetParams::default()
        };
        let relay = start_relay(&mut nodes, &wan, &measuring.relay, &network, target)?;
        let request = Request {
            target: Target { address: relay.hop.address, ids: relay.hop.ids },
            guess: measuring.guess(),
            defences: Defences::default(),
            approach: Approach::Echo(Coordinator { key_seed: COORDINATOR, rounds_max: u32::MAX }),
        };
        let options = TeamOptions {
            measurers: 1,
            pumps: Some(1),
            capacity: Some(measuring.measurer.1),
            params: measuring.params,
            path: Some(measuring.params.path),
            ..TeamOptions::default()
        };
        // Threads and sockets are in the network of the one that starts them.
        let result = wan
            .host(&site.name)?
            .run(|| Team::new(options)?.measure(&request, &mut |_| (), around.stop))?;
        asked_to_stop(around)?;
        let outcome = result?.outcome;
        let late = Duration::from_micros(wan.unintended_losses()?.worst_lateness_us);
        Ok(match outcome.estimate() {
            Some(it) => Measured {
                estimate: Some(it.capacity),
                doubt: it.inconclusive.as_ref().map(ToString::to_string),
                late,
            },
            None => Measured { estimate: None, doubt: Some(outcome.to_string()), late },
        })
    }
}

/// A relay that runs.
struct Started {
    hop: NextHop,
    node: NodeThread<Router<StdRng>>,
}

fn start_relay(
    nodes: &mut Nodes,
    wan: &Wan,
    relay: &Relay,
    network: &Network,
    target: TargetParams,
) -> Result<Started> {
    let host = wan.host(&relay.site.name)?;
    let (at, listener) = listen(Some(host.namespace()), host.address(), RELAY_PORT)?;
    let identity = nodes.identity()?;
    let hop = NextHop::to_own(&identity, at);
    let policy = ExitPolicy::accept_all();
    let config = RouterConfig {
        target,
        limit: relay.limit.map(|rate| RateLimit { rate, burst_bytes: rate.as_byte_per_s() }),
        scheduler: network.choices.scheduler,
        exit: relay.is_exit.then(|| ExitConfig { policy, ..ExitConfig::default() }),
        addresses: vec![at.ip()],
        padding: false,
        ..RouterConfig::new(identity, unix_time_s())
    };
    let router = Router::new(config, rng()?, nodes.clock.now());
    let options = DriverOptions::default();
    let node = nodes.start(Some(host.namespace()), router, vec![listener], options, ())?;
    Ok(Started { hop, node })
}

impl Started {
    fn seen(&self) -> Result<RelaySeen> {
        let seen = self.node.handle().call(|it| {
            let router = it.node();
            RelaySeen {
                cells: router.totals().client_bytes / CELL_LEN as u64,
                waited_cell_s: router.waited_cell_s(),
            }
        });
        seen.ok_or_else(|| Error::clients("a relay's thread has ended"))
    }
}

/// The one path that there is.
fn hops(relays: &[Relay], started: &[Started]) -> Result<Vec<NextHop>> {
    let the = |what: &str, is_it: &dyn Fn(&Relay) -> bool| {
        let mut all = relays.iter().zip(started).filter(|(relay, _)| is_it(relay));
        match (all.next(), all.next()) {
            (Some((_, started)), None) => Ok(started.hop),
            _ => Err(Error::clients(format!("on real sockets a network has one {what}"))),
        }
    };
    Ok(vec![
        the("guard", &|it| it.is_guard && !it.is_exit)?,
        the("middle relay", &|it| !it.is_guard && !it.is_exit)?,
        the("exit", &|it| it.is_exit && !it.is_guard)?,
    ])
}

/// Hosts and the ways between them, as `tornet` builds them for virtual time.
fn lay(network: &Network, sites: &[&Site], seed: u64) -> Result<Wan> {
    let choices = &network.choices;
    let congestion = match choices.control {
        Control::Cubic => Congestion::Cubic,
        Control::Reno | Control::Shadow => Congestion::Reno,
    };
    let narrow = |rate: Rate| {
        (rate < UNBOUND).then_some(Bottleneck { rate, queue: Queue::Time(choices.queue) })
    };
    let host = |(site, at): (&&Site, u8)| {
        HostSpec::new(&site.name, Ipv4Addr::new(10, 77, 2, at))
            .with_congestion(congestion)
            .with_access(Access { upload: narrow(site.up), download: narrow(site.down) })
    };
    let mut spec = WanSpec::new(sites.iter().zip(1..).map(host).collect()).with_seed(seed);
    let known = Places::new()?;
    for from in sites {
        for to in sites.iter().filter(|to| to.name != from.name) {
            let latency = known.find(&from.country)?.latency_to(&known.find(&to.country)?);
            let loss = choices.loss_at_300_ms * latency.as_secs_f64() / 0.3;
            let way = WanPath::with_latency(latency).with_loss(loss);
            spec = spec.with_path(&from.name, &to.name, way);
        }
    }
    Ok(Wan::start(&spec)?)
}
