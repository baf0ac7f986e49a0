//! Networks on real sockets: each host is a network namespace, and the map determines the paths between hosts.

use super::client::{DownloadSchedule, Results, ScheduledClient};
use super::simulated::stop_if_asked;
use super::{Measured, Measuring, Observed, RelayStats, RunConditions, World};
use crate::error::{Error, Result};
use crate::measuring::measure;
use authority::one_relay::Request;
use lab::load::{Nodes, listen, rng};
use lab::wan::{Access, Bottleneck, Congestion, HostSpec, Queue, Wan, WanPath, WanSpec};
use link::{Clock, DriverOptions, NodeThread, unix_time_s};
use measurer::{LocalTeam, TeamOptions};
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

/// Ports in otherwise empty network namespaces.
const RELAY_PORT: u16 = 9001;
const SERVER_PORT: u16 = 80;

/// Interval between two checks whether all clients are done.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// From this rate on, a host's link is not limited, since this machine is the bottleneck.
const UNLIMITED: Rate = Rate::from_bit_per_s(1_000_000_000);

/// The key seed of the coordinator.
const COORDINATOR: [u8; 32] = [7; 32];

/// FlashFlow's relays, server, clients and measurer on this machine, with TLS over the kernel's TCP between network namespaces. Needs
/// root.
///
/// A network has one guard, one middle relay and one exit, and each client downloads content of one size. There are three differences
/// from [`Simulated`](super::Simulated): clients begin at the end of the ramp and not during it, excess packets are also dropped on the
/// sending side of a host, and the coordinator is at the measurer's host.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealSockets;

impl World for RealSockets {
    fn name(&self) -> &'static str {
        "real"
    }

    fn run(&self, network: &Network, conditions: &RunConditions<'_>) -> Result<Observed> {
        let Network { relays, servers, clients, .. } = network;
        let sites: Vec<&Site> = relays
            .iter()
            .map(|relay| &relay.site)
            .chain(servers)
            .chain(clients.iter().map(|client| &client.site))
            .collect();
        let wan = start_wan(network, &sites, conditions.seed)?;
        let mut nodes = Nodes::new(Clock::start())?;
        let started: Vec<RunningRelay> = relays
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
        let results = Results::default();
        let mut running = Vec::new();
        for (place, client) in clients.iter().enumerate() {
            let Users::Fetch(fetch) = &client.users else {
                return Err(Error::clients("users by models run in virtual time only"));
            };
            let schedule = DownloadSchedule::new(
                ScheduledClient { place, fetch, choices: &network.choices },
                plan.clone(),
                server_at,
                begin,
                results.clone(),
            )?;
            let node = Client::new(unix_time_s(), rng()?);
            let namespace = Some(wan.host(&client.site.name)?.namespace());
            let options = DriverOptions::default();
            running.push(nodes.start(namespace, node, Vec::new(), options, schedule)?);
        }
        let end = begin + Duration::from_secs(u64::from(conditions.seconds_max));
        while !results.are_complete(clients.len())? && nodes.clock.now() < end {
            stop_if_asked(conditions)?;
            thread::park_timeout(CHECK_INTERVAL);
        }
        let unintended = wan.unintended_losses()?;
        Ok(Observed {
            downloads: results.take(),
            relays: started.iter().map(RunningRelay::stats).collect::<Result<_, _>>()?,
            late: Duration::from_micros(unintended.worst_lateness_us),
            lost_packets: unintended.losses(),
        })
    }

    fn measure(&self, measuring: &Measuring, conditions: &RunConditions<'_>) -> Result<Measured> {
        let (network, site) = (measuring.network(), measuring.site());
        let wan = start_wan(&network, &[&measuring.relay.site, &site], conditions.seed)?;
        let mut nodes = Nodes::new(Clock::start())?;
        let target = TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            measurements_per_period: u32::MAX,
            ..TargetParams::default()
        };
        let relay = start_relay(&mut nodes, &wan, &measuring.relay, &network, target)?;
        let target = Target { address: relay.hop.address, ids: relay.hop.ids };
        let request = Request {
            params: measuring.params,
            path: Some(measuring.params.path),
            echo_rounds: u32::MAX,
            ..Request::new(target, measuring.guess()).by_echo(COORDINATOR)
        };
        let options = TeamOptions {
            measurers: 1,
            pumps: Some(1),
            capacity: Some(measuring.measurer.1),
            ..TeamOptions::default()
        };
        // Threads and sockets inherit the namespace of the thread that starts them.
        let result = wan
            .host(&site.name)?
            .run(|| measure(&LocalTeam::new(&options)?, request, &mut |_| (), conditions.stop))?;
        stop_if_asked(conditions)?;
        let Some(measured) = result? else { return Err(Error::Failed("stopped".to_owned())) };
        let outcome = measured.record.outcome();
        let late = Duration::from_micros(wan.unintended_losses()?.worst_lateness_us);
        Ok(match outcome.estimate() {
            Some(estimate) => Measured {
                estimate: Some(estimate.capacity),
                doubt: estimate.inconclusive.as_ref().map(ToString::to_string),
                late,
            },
            None => Measured { estimate: None, doubt: Some(outcome.to_string()), late },
        })
    }
}

/// A running relay.
struct RunningRelay {
    hop: NextHop,
    node: NodeThread<Router<StdRng>>,
}

fn start_relay(
    nodes: &mut Nodes,
    wan: &Wan,
    relay: &Relay,
    network: &Network,
    target: TargetParams,
) -> Result<RunningRelay> {
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
    Ok(RunningRelay { hop, node })
}

impl RunningRelay {
    fn stats(&self) -> Result<RelayStats> {
        let stats = self.node.handle().call(|driver| {
            let router = driver.node();
            RelayStats {
                cells: router.totals().client_bytes / CELL_LEN as u64,
                waited_cell_s: router.waited_cell_s(),
            }
        });
        stats.ok_or_else(|| Error::clients("a relay's thread has ended"))
    }
}

/// The only path of the network.
fn hops(relays: &[Relay], started: &[RunningRelay]) -> Result<Vec<NextHop>> {
    let the = |what: &str, is_it: &dyn Fn(&Relay) -> bool| {
        let mut all = relays.iter().zip(started).filter(|(relay, _)| is_it(relay));
        match (all.next(), all.next()) {
            (Some((_, started)), None) => Ok(started.hop),
            _ => Err(Error::clients(format!("on real sockets a network has one {what}"))),
        }
    };
    Ok(vec![
        the("guard", &|relay| relay.is_guard && !relay.is_exit)?,
        the("middle relay", &|relay| !relay.is_guard && !relay.is_exit)?,
        the("exit", &|relay| relay.is_exit && !relay.is_guard)?,
    ])
}

/// Starts hosts and the paths between them, as `tornet` builds them for virtual time.
fn start_wan(network: &Network, sites: &[&Site], seed: u64) -> Result<Wan> {
    let choices = &network.choices;
    let congestion = match choices.control {
        Control::Cubic => Congestion::Cubic,
        Control::Reno | Control::Shadow => Congestion::Reno,
    };
    let narrow = |rate: Rate| {
        (rate < UNLIMITED).then_some(Bottleneck { rate, queue: Queue::Time(choices.queue) })
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
            let path = WanPath::with_latency(latency).with_loss(loss);
            spec = spec.with_path(&from.name, &to.name, path);
        }
    }
    Ok(Wan::start(&spec)?)
}
