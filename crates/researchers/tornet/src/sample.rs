//! A network of any size, drawn from all relays of the Tor network.
//!
//! Relays are drawn by stratified sampling, as in Jansen et al. ("Once is Never Enough", USENIX Security 2021,
//! §3): the relays of a class (guard and exit, exit, guard, neither), ordered by weight, are split into as many
//! strata as relays of that class are wanted, and one is drawn at random from each. So a small network has
//! large and small relays, and the shares of the classes of the whole one. The number and location of clients
//! and servers is that of the sample `tornet-0.05-1` of the same authors' later work (USENIX ATC 2022
//! artifact): 396 processes for 40,000 users, 40 benchmarks and 40 servers for 5 % of Tor.

use crate::error::Error;
use crate::network::{Client, Network, Relay, Site, Users};
use crate::places::Places;
use crate::shadow::{DIRTINESS, DIRTINESS_OF_BENCHMARKS};
use onion::{Duration, Rate};
use sim::world::{Fetch, Models, Size, SplitMix64};
use std::sync::Arc;

/// Relays, clients and servers of the sample in a country.
const SHARES: &str = include_str!("sample/shares.csv");

/// Processes for about a hundred users each, benchmarks, and servers, for the whole of Tor.
const CLIENTS_OF_TOR: f64 = 396.0 / 0.05;
const BENCHMARKS_OF_TOR: f64 = 40.0 / 0.05;
const SERVERS_OF_TOR: f64 = 40.0 / 0.05;

/// The rates of clients and servers, as in the sample.
const CLIENT_RATE: Rate = Rate::from_bit_per_s(1_000_000_000);
const SERVER_RATE: Rate = Rate::from_bit_per_s(100_000_000_000);

/// The minimum capacity of a relay: one without capacity would block its circuits forever.
const LEAST_RATE: Rate = Rate::from_bit_per_s(400_000);

/// The maximum capacity of a relay: a terabit per second, the maximum of a scenario. Descriptors are claims.
const MOST_RATE: Rate = Rate::from_bit_per_s(1_000_000_000_000);

/// A relay of the whole network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRelay {
    /// Its nickname: others may have the same.
    pub name: String,
    /// Its country, if known.
    pub country: Option<String>,
    /// Its weight in the consensus, in kilobytes per second.
    pub weight: u64,
    /// Whether it is a guard.
    pub is_guard: bool,
    /// Whether it is an exit.
    pub is_exit: bool,
    /// Its maximum observed rate, if known (a descriptor's observed bandwidth).
    pub observed: Option<Rate>,
    /// Its rate limit, if known (a descriptor's average bandwidth).
    pub limit: Option<Rate>,
}

/// The parameters of a sample.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The size: 1 is the whole network.
    pub scale: f64,
    /// The random seed.
    pub seed: u64,
    /// The users' models; without models there are only benchmarks.
    pub models: Option<Arc<Models>>,
}

/// A sample, and the number of guesses in it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The network.
    pub network: Network,
    /// Relays of the network with unknown capacity: it is estimated from their weight, by the median ratio of
    /// the others.
    pub guessed_rates: usize,
    /// Relays of the network whose country is unknown or not on the map: drawn at random, by the distribution
    /// of the sample's relays.
    pub guessed_countries: usize,
}

/// Draws a sample.
///
/// # Errors
/// If the sample is too small to work, or the network has no relay of a required kind.
pub fn sample(all: &[KnownRelay], wanted: &Wanted) -> Result<Sample, Error> {
    if !all.is_empty() && all.iter().all(|relay| relay.weight == 0) {
        let problem = format!(
            "all {} relays of the consensus have a weight of 0, as if none had been measured: use another consensus",
            all.len()
        );
        return Err(Error::Impossible(problem));
    }
    let places = Places::new()?;
    let shares = Shares::new()?;
    let mut rng = SplitMix64::of(wanted.seed, 5);
    let per_weight = rate_of_weight(all);
    let (mut guessed_rates, mut guessed_countries) = (0, 0);
    let mut relays = Vec::new();
    for (is_guard, is_exit) in [(true, true), (false, true), (true, false), (false, false)] {
        let is_of_kind = |relay: &&KnownRelay| {
            relay.weight > 0 && (relay.is_guard, relay.is_exit) == (is_guard, is_exit)
        };
        let mut kind: Vec<&KnownRelay> = all.iter().filter(is_of_kind).collect();
        kind.sort_by(|a, b| (b.weight, &a.name).cmp(&(a.weight, &b.name)));
        for drawn in layers(kind.len(), wanted.scale, &mut rng) {
            let relay = kind[drawn];
            let known = relay.country.as_ref().filter(|country| places.find(country).is_ok());
            guessed_countries += usize::from(known.is_none());
            guessed_rates += usize::from(relay.observed.is_none());
            let country = known.cloned().unwrap_or_else(|| shares.draw(Kind::Relay, &mut rng));
            let rate = relay.observed.unwrap_or_else(|| per_weight(relay.weight));
            let rate = rate.clamp(LEAST_RATE, MOST_RATE);
            relays.push(Relay {
                site: Site::new(format!("{}-{}", relay.name, relays.len() + 1), country, rate),
                weight: relay.weight,
                is_guard,
                is_exit,
                limit: relay.limit.map(|limit| limit.max(LEAST_RATE)).filter(|limit| *limit < rate),
            });
        }
    }
    let count = |of_tor: f64| whole(of_tor * wanted.scale);
    let mut network =
        Network { relays, models: wanted.models.clone().unwrap_or_default(), ..Network::default() };
    for number in 0..count(SERVERS_OF_TOR).max(1) {
        let country = shares.draw(Kind::Server, &mut rng);
        network.servers.push(Site::new(format!("server-{}", number + 1), country, SERVER_RATE));
    }
    let fetch = Arc::new(benchmark());
    let mut client = |name: String, users: Users, dirtiness| {
        let site = Site::new(&name, shares.draw(Kind::Client, &mut rng), CLIENT_RATE);
        network.clients.push(Client { site, users, dirtiness, begins: Duration::ZERO });
    };
    if let Some(models) = &wanted.models {
        for number in 0..count(CLIENTS_OF_TOR) {
            client(format!("users-{}", number + 1), Users::Models(models.clone()), DIRTINESS);
        }
    }
    for number in 0..count(BENCHMARKS_OF_TOR).max(1) {
        let users = Users::Fetch(fetch.clone());
        client(format!("benchmark-{}", number + 1), users, DIRTINESS_OF_BENCHMARKS);
    }
    network.check()?;
    Ok(Sample { network, guessed_rates, guessed_countries })
}

/// The benchmarks: the sizes and timeouts of Tor's own (OnionPerf), once a minute.
fn benchmark() -> Fetch {
    let size = |weight, bytes, timeout_s| {
        let timeout = Some(Duration::from_secs(timeout_s));
        Size { weight, bytes, timeout, stallout: None }
    };
    let sizes = vec![size(12.0, 50 << 10, 15), size(2.0, 1 << 20, 60), size(1.0, 5 << 20, 120)];
    Fetch { pauses: vec![Duration::from_mins(1)], count: None, sizes }
}

/// The indexes of the drawn relays: one of each stratum. Beyond the size of the network some are drawn twice.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers of relays"
)]
fn layers(count: usize, scale: f64, rng: &mut SplitMix64) -> Vec<usize> {
    // At least one of each existing kind.
    let wanted = if count == 0 { 0 } else { whole(count as f64 * scale).max(1) };
    let width = count as f64 / wanted as f64;
    let draw = |layer: usize| (((layer as f64 + rng.unit()) * width) as usize).min(count - 1);
    (0..wanted).map(draw).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of hosts")]
fn whole(count: f64) -> usize {
    count.round() as usize
}

/// The rate for a weight: by the median ratio of relays with a known rate; by its unit if there are none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "weights and rates are far below 2⁵³"
)]
fn rate_of_weight(all: &[KnownRelay]) -> impl Fn(u64) -> Rate {
    let ratio = |relay: &KnownRelay| {
        let observed = relay.observed.filter(|_| relay.weight > 0)?;
        Some(observed.as_byte_per_s() as f64 / relay.weight as f64)
    };
    let mut ratios: Vec<f64> = all.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied().unwrap_or(1000.0);
    move |weight| Rate::from_byte_per_s((weight as f64 * median) as u64)
}

#[derive(Clone, Copy)]
enum Kind {
    Relay,
    Client,
    Server,
}

/// The distribution of hosts over countries.
struct Shares(Vec<(String, [u32; 3])>);

impl Shares {
    fn new() -> Result<Self, Error> {
        let malformed = |error: csv::Error| Error::malformed("shares.csv", error);
        let rows = csv::Reader::from_reader(SHARES.as_bytes())
            .into_deserialize()
            .map(|row| row.map_err(malformed))
            .collect::<Result<_, Error>>()?;
        Ok(Self(rows))
    }

    fn draw(&self, kind: Kind, rng: &mut SplitMix64) -> String {
        let of_kind = |(_, counts): &(String, [u32; 3])| u64::from(counts[kind as usize]);
        let mut left = rng.below(self.0.iter().map(of_kind).sum());
        for row in &self.0 {
            let count = of_kind(row);
            if left < count {
                return row.0.clone();
            }
            left -= count;
        }
        String::new()
    }
}

#[cfg(test)]
mod tests;
