//! The description of a network.

use crate::error::Error;
use crate::map::Map;
use crate::{errors, scenario, shadow};
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sha2::{Digest, Sha256};
use sim::world::{Control, Egress, Fetch, Models, SEGMENT_MEMORY_BYTES};
use std::path::Path;
use std::sync::Arc;

/// A host's connection to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name in results.
    pub name: String,
    /// Its country: a two-letter ISO 3166 code.
    pub country: String,
    /// Its node on the network's map, if known.
    pub node: Option<u32>,
    /// The upload rate.
    pub up: Rate,
    /// The download rate.
    pub down: Rate,
}

impl Site {
    /// A host in a country, with the same rate in both directions.
    #[must_use]
    pub fn new(name: impl Into<String>, country: impl Into<String>, rate: Rate) -> Self {
        Self { name: name.into(), country: country.into(), node: None, up: rate, down: rate }
    }
}

/// A relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Its host.
    pub site: Site,
    /// Its weight in the consensus.
    pub weight: u64,
    /// Whether it is a guard.
    pub is_guard: bool,
    /// Whether it is an exit.
    pub is_exit: bool,
    /// Its rate limit, if it is below the host's rate.
    pub limit: Option<Rate>,
}

impl Relay {
    /// Its capacity: the minimum of its host's rates and its own limit, including all headers.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        let host = self.site.up.min(self.site.down);
        self.limit.map_or(host, |limit| limit.min(host))
    }
}

/// The users of a client.
#[derive(Clone, Debug)]
pub enum Users {
    /// Many, by models.
    Models(Arc<Models>),
    /// A benchmark.
    Fetch(Arc<Fetch>),
}

/// A client: one tor process and its users.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its host.
    pub site: Site,
    /// Its users.
    pub users: Users,
    /// How long a circuit accepts new streams.
    pub dirtiness: Duration,
    /// When its users begin; after that within [`Choices::ramp`].
    pub begins: Duration,
}

/// The settings shared by all hosts of a kind.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The relays' scheduler.
    pub scheduler: SchedulerConfig,
    /// The share of relays, drawn at random, that have Vanilla instead: 0 to 1.
    pub vanilla_share: f64,
    /// The kernels' congestion control.
    pub control: Control,
    /// The memory that kernels account for a segment in send buffers: Debian's Linux 4,352 bytes, others 2,304.
    pub segment_memory_bytes: u32,
    /// How data leaves the hosts.
    pub egress: Egress,
    /// Whether circuits have congestion control (proposal 324); fixed windows otherwise.
    pub has_congestion_control: bool,
    /// Hop-by-hop windows at all relays and clients; `None` for none.
    pub hop_windows: Option<HopWindows>,
    /// A relay's processing time per cell.
    pub cell_cost: Duration,
    /// The maximum queueing time at a host's download rate; packets that would wait longer are dropped.
    pub queue: Duration,
    /// The number of a client's guards; 0 for a new one for each circuit.
    pub guards: u8,
    /// Circuits that clients build in advance.
    pub ready_circuits: u8,
    /// The random loss of segments on a path with a one-way latency of 300 ms; proportionally less on shorter
    /// paths. A network's map overrides it.
    pub loss_at_300_ms: f64,
    /// Users begin within this time.
    pub ramp: Duration,
    /// The load of users by models: 1 is unscaled.
    pub load: f64,
}

/// The default interval of the scheduler: C tor's when the networks were measured from which samples are made.
/// C tor and our relay have 2 ms since ([`SchedulerConfig::INTERVAL`]).
pub const SCHEDULER_INTERVAL: Duration = Duration::from_millis(10);

impl Default for Choices {
    /// Those of the network in January 2019, with Linux on all hosts: KIST every [`SCHEDULER_INTERVAL`], fixed
    /// windows, Cubic. There is no random loss; in the published runs of Shadow's samples one packet in ten
    /// thousand was lost.
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::kist(SCHEDULER_INTERVAL),
            vanilla_share: 0.0,
            control: Control::Cubic,
            segment_memory_bytes: SEGMENT_MEMORY_BYTES,
            egress: Egress::default(),
            has_congestion_control: false,
            hop_windows: None,
            cell_cost: Duration::ZERO,
            queue: Duration::from_millis(100),
            guards: 0,
            ready_circuits: 3,
            loss_at_300_ms: 0.0,
            ramp: Duration::from_secs(10),
            load: 1.0,
        }
    }
}

/// A network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Its relays.
    pub relays: Vec<Relay>,
    /// Destinations.
    pub servers: Vec<Site>,
    /// Clients.
    pub clients: Vec<Client>,
    /// The models of users, if there are any: servers need them, too.
    pub models: Arc<Models>,
    /// The map of latencies; without one they follow from countries ([`places`](crate::places)).
    pub map: Option<Arc<Map>>,
    /// The shared settings.
    pub choices: Choices,
    /// Hosts of the sample that are not simulated: those of onion services, and their clients.
    pub left_out: Vec<String>,
}

impl Network {
    /// Reads a scenario (a file, or a folder with `scenario.toml`), or a folder with a sample for Shadow.
    ///
    /// # Errors
    /// If something is missing, malformed, or cannot work.
    pub fn read(path: &Path) -> Result<Self, Error> {
        // A scenario has an ending, a sample has none.
        if path.extension().is_none_or(|ending| ending != "toml") && !path.exists() {
            return Err(Error::NoSample { path: path.to_owned() });
        }
        let inside = path.join("scenario.toml");
        let network = if !path.is_dir() {
            scenario::read_scenario(path)?
        } else if inside.is_file() {
            scenario::read_scenario(&inside)?
        } else if path.join(shadow::CONFIG).is_file() {
            shadow::read_sample(path)?
        } else {
            let problem = format!("no network: neither scenario.toml nor {} in it", shadow::CONFIG);
            return Err(Error::malformed(path, problem));
        };
        network.check()?;
        Ok(network)
    }

    /// The network of a scenario's text, as if it were in this file.
    ///
    /// # Errors
    /// If something is missing, malformed, or cannot work.
    pub fn parse(scenario: &str, path: &Path) -> Result<Self, Error> {
        let network = scenario::parse_scenario(scenario, path)?;
        network.check()?;
        Ok(network)
    }

    /// Multiplies the number of relays and clients: each is repeated, in order. It shows the cost of a
    /// simulation by size; for Tor's network at another scale, create a sample.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.relays = dealt(self.relays, factor, |relay, name| relay.site.name = name);
        self.clients = dealt(self.clients, factor, |client, name| client.site.name = name);
        self
    }

    /// Multiplies the number of clients that fetch at a fixed pace, which then follow the others. With 1, nothing changes.
    #[must_use]
    pub fn with_benchmarks(mut self, factor: f64) -> Self {
        if (factor - 1.0).abs() < f64::EPSILON {
            return self;
        }
        let is_benchmark = |client: &Client| matches!(client.users, Users::Fetch(_));
        let (benchmarks, users) = self.clients.into_iter().partition(is_benchmark);
        let benchmarks = dealt(benchmarks, factor, |client, name| {
            client.site.name = format!("benchmark-{name}");
        });
        self.clients = [users, benchmarks].concat();
        self
    }

    /// A description of what was left out when it was read; `None` if nothing.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let count = self.left_out.len();
        let hosts = if count == 1 { "host" } else { "hosts" };
        (count > 0).then(|| {
            format!(
                "{count} {hosts} of onion services left out, which are not simulated: {}",
                self.left_out.join(", ")
            )
        })
    }

    /// Multiplies the load of users by models by `factor`: pauses between flows are divided by it. Benchmark
    /// clients keep their rate.
    ///
    /// # Errors
    /// If there are only benchmark clients, so that a factor other than 1 would have no effect.
    pub fn loaded(mut self, factor: f64) -> Result<Self, Error> {
        self.choices.load *= factor;
        self.check_load()?;
        Ok(self)
    }

    /// Whether it has clients with users by models, whose load can be changed.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.clients.iter().any(|client| matches!(client.users, Users::Models(_)))
    }

    fn check_load(&self) -> Result<(), Error> {
        if self.has_users() || (self.choices.load - 1.0).abs() < 1e-9 {
            return Ok(());
        }
        let problem = format!(
            "a load of {} changes nothing here: all clients fetch at fixed times, and load is what users by models do; change every_s or count of [[clients]]",
            self.choices.load
        );
        Err(Error::Impossible(problem))
    }

    /// A digest of everything that is read, including models and settings, but not file names.
    #[must_use]
    pub fn digest(&self) -> String {
        // Derived formatting shows every field, and numbers in full.
        let digest = Sha256::digest(format!("{self:?}").as_bytes());
        digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The number of hosts.
    pub(crate) const fn hosts(&self) -> usize {
        self.relays.len() + self.servers.len() + self.clients.len()
    }

    /// The capacity of each relay, in bits per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2⁵³")]
    pub fn capacities(&self) -> Vec<f64> {
        self.relays.iter().map(|relay| relay.capacity().as_bit_per_s() as f64).collect()
    }

    /// The error of its weights ([`network_weight_error`](crate::errors::network_weight_error)).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "weights are far below 2⁵³")]
    pub fn weight_error(&self) -> Option<f64> {
        let weights: Vec<f64> = self.relays.iter().map(|relay| relay.weight as f64).collect();
        errors::network_weight_error(&weights, &self.capacities())
    }

    /// The network with these weights, in the relays' order.
    #[must_use]
    pub fn weighted(mut self, weights: &[u64]) -> Self {
        for (relay, weight) in self.relays.iter_mut().zip(weights) {
            relay.weight = *weight;
        }
        self
    }

    /// The network without the directory authorities of tornettools' samples, which clients do not use as
    /// relays.
    #[must_use]
    pub fn without_authorities(mut self) -> Self {
        self.relays.retain(|relay| !relay.site.name.starts_with("4uthority"));
        self
    }

    /// # Errors
    /// If it cannot work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let has = |what: &dyn Fn(&Relay) -> bool| {
            self.relays.iter().any(|relay| relay.weight > 0 && what(relay))
        };
        if let Some(relay) = self.relays.iter().find(|relay| relay.weight > u64::from(u32::MAX)) {
            let problem = format!(
                "a weight of {} for relay {:?} is no weight",
                relay.weight, relay.site.name
            );
            return Err(Error::Impossible(problem));
        }
        let problem = if self.relays.len() < 3 {
            "circuits need three relays"
        } else if !has(&|relay| relay.is_exit) {
            "no relay with a weight lets streams out"
        } else if !has(&|relay| relay.is_guard) {
            "no relay with a weight is a guard"
        } else if self.servers.is_empty() {
            "there is no server"
        } else if self.clients.is_empty() {
            "there is no client"
        } else {
            return self.check_load();
        };
        Err(Error::Impossible(problem.into()))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers of hosts"
)]
fn dealt<T: Clone>(all: Vec<T>, factor: f64, rename: impl Fn(&mut T, String)) -> Vec<T> {
    let mut dealt = Vec::new();
    for (place, host) in all.iter().enumerate() {
        let until = ((place + 1) as f64 * factor) as usize;
        while dealt.len() < until {
            dealt.push(host.clone());
        }
    }
    // No two have the same name in the results.
    let count = dealt.len();
    if count > all.len() {
        let number = |(place, host)| rename(host, format!("host-{place}"));
        dealt.iter_mut().enumerate().for_each(number);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_multiplied_and_users_are_not() {
        let client = |name: &str, users| Client {
            site: Site::new(name, "DE", Rate::from_mbit_per_s(1.0)),
            users,
            dirtiness: Duration::ZERO,
            begins: Duration::ZERO,
        };
        let fetch = Fetch { pauses: Vec::new(), count: None, sizes: Vec::new() };
        let clients = vec![
            client("benchmark", Users::Fetch(Arc::new(fetch))),
            client("users", Users::Models(Arc::default())),
        ];
        let names = |factor| {
            let network = Network { clients: clients.clone(), ..Network::default() };
            let clients = network.with_benchmarks(factor).clients;
            clients.into_iter().map(|client| client.site.name).collect::<Vec<_>>()
        };
        assert_eq!(names(1.0), ["benchmark", "users"]);
        assert_eq!(names(2.0), ["users", "benchmark-host-0", "benchmark-host-1"]);
        assert_eq!(names(0.0), ["users"]);
    }
}
