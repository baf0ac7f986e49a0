//! What a network consists of.

use crate::error::Error;
use crate::map::Map;
use crate::{errors, scenario, shadow};
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sha2::{Digest, Sha256};
use sim::world::{Control, Fetch, Models, SEGMENT_MEMORY_BYTES};
use std::path::Path;
use std::sync::Arc;

/// A host's connection to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// How it is called in results.
    pub name: String,
    /// Where it is: the two letters of ISO 3166.
    pub country: String,
    /// Where it is on the network's map, if that says so.
    pub node: Option<u32>,
    /// What it sends at most.
    pub up: Rate,
    /// What it gets at most.
    pub down: Rate,
}

impl Site {
    /// In a country, with the same rate both ways.
    #[must_use]
    pub fn new(name: impl Into<String>, country: impl Into<String>, rate: Rate) -> Self {
        Self { name: name.into(), country: country.into(), node: None, up: rate, down: rate }
    }
}

/// A relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Where it is.
    pub site: Site,
    /// Its weight in the consensus.
    pub weight: u64,
    /// Circuits may begin there.
    pub is_guard: bool,
    /// Streams may leave there.
    pub is_exit: bool,
    /// What it lets itself send, if less than its host could.
    pub limit: Option<Rate>,
}

impl Relay {
    /// What it can carry: the least of what its host sends, what that gets, and its own limit. All headers count.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        let host = self.site.up.min(self.site.down);
        self.limit.map_or(host, |limit| limit.min(host))
    }
}

/// Who uses a client.
#[derive(Clone, Debug)]
pub enum Users {
    /// Many, as models say.
    Models(Arc<Models>),
    /// A benchmark.
    Fetch(Arc<Fetch>),
}

/// A client: one tor process, and who is behind it.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where it is.
    pub site: Site,
    /// Who uses it.
    pub users: Users,
    /// A circuit takes new streams for so long.
    pub dirtiness: Duration,
    /// When its users begin; after that in the course of [`Choices::ramp`].
    pub begins: Duration,
}

/// What is the same for all hosts of a kind.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Relays' scheduler.
    pub scheduler: SchedulerConfig,
    /// Kernels' congestion control.
    pub control: Control,
    /// What kernels reckon for a segment where they decide how much of a connection they buffer: Debian's Linux 4,352 bytes, others 2,304.
    pub segment_memory_bytes: u32,
    /// Circuits have congestion control (proposal 324); fixed windows if not.
    pub has_congestion_control: bool,
    /// Windows from hop to hop, at all relays and clients; none if `None`.
    pub hop_windows: Option<HopWindows>,
    /// What a relay's processor needs for a cell.
    pub cell_cost: Duration,
    /// What comes and would wait longer on a host's way down is dropped.
    pub queue: Duration,
    /// Guards that a client keeps; 0 for a new one for each circuit.
    pub guards: u8,
    /// Circuits that clients keep ready.
    pub ready_circuits: u8,
    /// Segments that get lost by chance on a path of 300 ms, one way; on shorter paths as many less. If the network has a map, that says it.
    pub loss_at_300_ms: f64,
    /// Users begin in the course of this time.
    pub ramp: Duration,
    /// How much users do: 1 is what models say.
    pub load: f64,
}

/// From one run of the scheduler to the next, if a network does not say otherwise: C tor's when the networks were measured that samples are made of. C tor and
/// our relay have 2 ms since ([`SchedulerConfig::INTERVAL`]).
pub const SCHEDULER_INTERVAL: Duration = Duration::from_millis(10);

impl Default for Choices {
    /// Those of the network in January 2019, with Linux on all hosts: KIST every [`SCHEDULER_INTERVAL`], fixed windows, Cubic. Nothing gets lost but in full queues, as in the
    /// published runs of Shadow's samples, in which one packet of ten thousand did.
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::kist(SCHEDULER_INTERVAL),
            control: Control::Cubic,
            segment_memory_bytes: SEGMENT_MEMORY_BYTES,
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
    /// The models that users have, if any do: servers need them, too.
    pub models: Arc<Models>,
    /// What lies between hosts; if there is none, countries say it ([`places`](crate::places)).
    pub map: Option<Arc<Map>>,
    /// What is the same for all.
    pub choices: Choices,
    /// Hosts of the sample that are not simulated: those of onion services, and their clients.
    pub left_out: Vec<String>,
}

impl Network {
    /// Reads what is there: a scenario (a file, or a folder with `scenario.toml`), or a folder with a sample for Shadow.
    ///
    /// # Errors
    /// Where something is missing or malformed, or cannot work.
    pub fn read(path: &Path) -> Result<Self, Error> {
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
    /// Where something is missing or malformed, or cannot work.
    pub fn parse(scenario: &str, path: &Path) -> Result<Self, Error> {
        let network = scenario::parse_scenario(scenario, path)?;
        network.check()?;
        Ok(network)
    }

    /// The same network with so many times as many relays and clients: each so many of them once, or all of them several times, in
    /// their order. For the cost of a simulation by size: who wants a network of Tor's at another scale, samples one.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.relays = dealt(self.relays, factor, |it, name| it.site.name = name);
        self.clients = dealt(self.clients, factor, |it, name| it.site.name = name);
        self
    }

    /// What was left out when it was read, for people; `None` if nothing.
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

    /// Multiplies the load of users by models by `factor`: pauses between flows are divided by it. Clients that fetch are
    /// benchmarks, and keep their pace.
    ///
    /// # Errors
    /// Where all clients fetch, so that a factor other than 1 would change nothing.
    pub fn loaded(mut self, factor: f64) -> Result<Self, Error> {
        self.choices.load *= factor;
        self.check_load()?;
        Ok(self)
    }

    /// Whether it has clients with users by models, whose load can be changed.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.clients.iter().any(|it| matches!(it.users, Users::Models(_)))
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

    /// What tells it from others: of all that is read of it, models and choices among it, not of names of files.
    #[must_use]
    pub fn digest(&self) -> String {
        // What is derived shows every field, and numbers in full.
        let digest = Sha256::digest(format!("{self:?}").as_bytes());
        digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// How many hosts it has.
    pub(crate) const fn hosts(&self) -> usize {
        self.relays.len() + self.servers.len() + self.clients.len()
    }

    /// What each relay can carry, in bits per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2⁵³")]
    pub fn capacities(&self) -> Vec<f64> {
        self.relays.iter().map(|it| it.capacity().as_bit_per_s() as f64).collect()
    }

    /// How far its weights are from its capacities ([`network_weight_error`](crate::errors::network_weight_error)).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "weights are far below 2⁵³")]
    pub fn weight_error(&self) -> Option<f64> {
        let weights: Vec<f64> = self.relays.iter().map(|it| it.weight as f64).collect();
        errors::network_weight_error(&weights, &self.capacities())
    }

    /// The same with these weights, in the relays' order.
    #[must_use]
    pub fn weighted(mut self, weights: &[u64]) -> Self {
        for (relay, weight) in self.relays.iter_mut().zip(weights) {
            relay.weight = *weight;
        }
        self
    }

    /// The same without the directory authorities of tornettools' samples, which are no relays that clients use.
    #[must_use]
    pub fn without_authorities(mut self) -> Self {
        self.relays.retain(|it| !it.site.name.starts_with("4uthority"));
        self
    }

    /// # Errors
    /// Where it cannot work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let has =
            |what: &dyn Fn(&Relay) -> bool| self.relays.iter().any(|it| it.weight > 0 && what(it));
        if let Some(it) = self.relays.iter().find(|it| it.weight > u64::from(u32::MAX)) {
            let problem =
                format!("a weight of {} for relay {:?} is no weight", it.weight, it.site.name);
            return Err(Error::Impossible(problem));
        }
        let problem = if self.relays.len() < 3 {
            "circuits need three relays"
        } else if !has(&|it| it.is_exit) {
            "no relay with a weight lets streams out"
        } else if !has(&|it| it.is_guard) {
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
    for (place, it) in all.iter().enumerate() {
        let until = ((place + 1) as f64 * factor) as usize;
        while dealt.len() < until {
            dealt.push(it.clone());
        }
    }
    // No two have the same name in the results.
    let count = dealt.len();
    if count > all.len() {
        let number = |(place, it)| rename(it, format!("host-{place}"));
        dealt.iter_mut().enumerate().for_each(number);
    }
    dealt
}
