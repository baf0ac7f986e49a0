//! From the description of a network to the hosts of a world.

use crate::error::Error;
use crate::host_paths::HostPaths;
use crate::network::{Network, Site, Users};
use onion::Duration;
use onion::flow::control::CongestionParams;
use onion::router::RateLimit;
use onion::router::schedule::{Scheduler, SchedulerConfig};
use sim::world::{
    Candidate, ClientConfig, Direct, HostConfig, HostId, Net, Paths, RelayConfig, Role, Scan,
    SplitMix64, Users as WorldUsers, coordinator_key,
};
use std::sync::Arc;

/// The build timeout of circuits (C tor's initial default).
const BUILD_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts of a world.
pub(crate) struct Built {
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) names: Vec<String>,
    pub(crate) net: Arc<Net>,
    pub(crate) paths: Arc<Paths>,
    /// The expected work of each host, as a share of all relays' work; to distribute hosts over threads.
    pub(crate) loads: Vec<f64>,
}

/// Hosts that are not part of the network: those that measure it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    /// Scanners and their probes.
    pub(crate) scanners: Vec<(Site, Arc<Scan>)>,
    /// Hosts that download without Tor.
    pub(crate) direct: Vec<(Site, Vec<Direct>)>,
    /// A team: the coordinator, which all relays permit, then its measurers.
    pub(crate) team: Vec<Site>,
}

impl Guests {
    /// The number of a host of the team, by its index there.
    pub(crate) fn member(&self, network: &Network, place: usize) -> HostId {
        id(network.hosts() + self.scanners.len() + self.direct.len() + place)
    }
}

/// The number of a host.
pub(crate) fn id(place: usize) -> HostId {
    HostId(u32::try_from(place).unwrap_or(u32::MAX))
}

pub(crate) fn build(network: &Network, guests: &Guests, seed: u64) -> Result<Built, Error> {
    let clients = network.clients.iter().map(|client| &client.site);
    let relays = network.relays.iter().map(|relay| &relay.site);
    let scanners = guests.scanners.iter().map(|(site, _)| site);
    let own = relays.chain(&network.servers).chain(clients);
    let direct = guests.direct.iter().map(|(site, _)| site);
    let sites: Vec<&Site> = own.chain(scanners).chain(direct).chain(&guests.team).collect();
    let coordinator = (!guests.team.is_empty()).then(|| guests.member(network, 0));
    let paths = HostPaths::new(network, &sites)?;
    let mut net = Net::new(paths.places(), |from, to| {
        let path = paths.between(from, to);
        (path.latency, path.loss)
    });
    for (host, place) in paths.place_of().iter().enumerate() {
        net.add(*place, host < network.relays.len());
    }
    let choices = &network.choices;
    let host = |site: &Site, role| HostConfig {
        up: site.up,
        down: site.down,
        queue: choices.queue,
        control: choices.control,
        segment_memory_bytes: choices.segment_memory_bytes,
        egress: choices.egress,
        role,
    };
    let congestion = CongestionParams::default();
    let interval = choices.scheduler.scheduler.interval().unwrap_or_default();
    let hop_windows = choices.hop_windows.map(|windows| windows.flows(interval));
    let mut candidates = Vec::new();
    let mut hosts = Vec::new();
    let has_vanilla = vanilla_relays(network.relays.len(), choices.vanilla_share, seed);
    for (relay, has_vanilla) in network.relays.iter().zip(has_vanilla) {
        candidates.push(Candidate {
            host: id(hosts.len()),
            weight: relay.weight,
            is_guard: relay.is_guard,
            is_exit: relay.is_exit,
        });
        let limit = relay.limit.map(|rate| RateLimit { rate, burst_bytes: rate.as_byte_per_s() });
        let config = RelayConfig {
            is_exit: relay.is_exit,
            limit,
            scheduler: if has_vanilla { SchedulerConfig::vanilla() } else { choices.scheduler },
            cell_cost: choices.cell_cost,
            congestion: congestion.clone(),
            hop_windows,
            measured_by: coordinator.map(coordinator_key).into_iter().collect(),
        };
        hosts.push(host(&relay.site, Role::Relay(config)));
    }
    let models = &network.models;
    hosts.extend(network.servers.iter().map(|site| host(site, Role::Server(models.clone()))));
    let congestion = choices.has_congestion_control.then(|| Arc::new(congestion));
    let mut rng = SplitMix64::of(seed, 4);
    let ramp_ns = u64::try_from(choices.ramp.as_nanos()).unwrap_or(u64::MAX).max(1);
    for client in &network.clients {
        let users = match &client.users {
            Users::Models(models) => WorldUsers::Markov(models.clone(), choices.load),
            Users::Fetch(fetch) => WorldUsers::Fetch(fetch.clone()),
        };
        let config = ClientConfig {
            guards: choices.guards,
            ready_circuits: choices.ready_circuits,
            dirtiness: client.dirtiness,
            build_timeout: BUILD_TIMEOUT,
            congestion: congestion.clone(),
            hop_windows,
            users,
            begins: client.begins.saturating_add(Duration::from_nanos(rng.below(ramp_ns))),
        };
        hosts.push(host(&client.site, Role::Client(config)));
    }
    for (site, scan) in &guests.scanners {
        let config = ClientConfig {
            guards: 0,
            ready_circuits: 0,
            dirtiness: Duration::from_hours(1),
            build_timeout: BUILD_TIMEOUT,
            congestion: congestion.clone(),
            hop_windows: None,
            users: WorldUsers::Scan(scan.clone()),
            begins: choices.ramp,
        };
        hosts.push(host(site, Role::Client(config)));
    }
    let direct = guests.direct.iter();
    hosts.extend(direct.map(|(site, plans)| host(site, Role::Direct(plans.clone()))));
    hosts.extend(guests.team.iter().map(|site| host(site, Role::Member)));
    Ok(Built {
        loads: loads(network, guests),
        names: sites.iter().map(|site| site.name.clone()).collect(),
        hosts,
        net: Arc::new(net),
        paths: Arc::new(Paths::new(&candidates)),
    })
}

/// For each relay, whether it has Vanilla. A larger share includes the relays of a smaller one.
#[expect(clippy::cast_precision_loss, reason = "numbers of relays")]
fn vanilla_relays(relays: usize, share: f64, seed: u64) -> Vec<bool> {
    let mut rng = SplitMix64::of(seed, 5);
    let mut order: Vec<(u64, usize)> = (0..relays).map(|place| (rng.next(), place)).collect();
    order.sort_unstable();
    let mut has_vanilla = vec![false; relays];
    for (rank, (_, place)) in order.into_iter().enumerate() {
        has_vanilla[place] = (rank as f64 + 0.5) < share * relays as f64;
    }
    has_vanilla
}

/// A cell passes three relays, a client and a server.
#[expect(clippy::cast_precision_loss, reason = "weights and numbers are far below 2⁵³")]
fn loads(network: &Network, guests: &Guests) -> Vec<f64> {
    let total: u64 = network.relays.iter().map(|relay| relay.weight).sum();
    let relays = network.relays.iter().map(|relay| 0.6 * relay.weight as f64 / total.max(1) as f64);
    let servers = network.servers.iter().map(|_| 0.15 / network.servers.len() as f64);
    let clients = network.clients.iter().map(|_| 0.25 / network.clients.len() as f64);
    let guests = guests.scanners.len() + guests.direct.len() + guests.team.len();
    relays.chain(servers).chain(clients).chain((0..guests).map(|_| 0.2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_share_of_vanilla_relays_includes_a_smaller_one() {
        let of = |share| vanilla_relays(12, share, 7);
        let count = |share| of(share).into_iter().filter(|has_vanilla| *has_vanilla).count();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(count), [0, 3, 6, 12]);
        let pairs = of(0.25).into_iter().zip(of(0.75));
        assert!(pairs.into_iter().all(|(less, more)| more || !less));
        assert_ne!(of(0.5), vanilla_relays(12, 0.5, 8), "drawn by the seed");
    }
}
