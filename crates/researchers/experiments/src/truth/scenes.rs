//! The networks that run in both worlds, and their observations.

use super::{Download, Measured, Measuring, Observed, RunConditions, World};
use crate::error::{Error, Result};
use coordinator::{Params, PathParams};
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::{Fetch, Size};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tornet::network::{Choices, Client, Network, Relay, Site, Users};
use tornet::places::Places;

/// The rate of hosts that are not a bottleneck, in each direction.
const WIDE: Rate = Rate::from_bit_per_s(100_000_000);

/// The receiving rate of the narrow host of [`queueing`].
pub const NARROW: Rate = Rate::from_bit_per_s(8_000_000);

/// The rate limit of the relay of [`measurement`].
pub const LIMIT: Rate = Rate::from_bit_per_s(20_000_000);

/// The kernel's memory for a segment, on the machine of the documentation's table. The initial send buffer of a connection is twenty
/// times that (`ss -tm`: `tb46080`). On Debian it is 4,352.
const SEGMENT_MEMORY_BYTES: u32 = 2304;

/// The countries of client, guard, middle, exit and server of [`downloads`].
const PLACES: [&str; 5] = ["SE", "DE", "FR", "NL", "US"];

/// The period in which users begin.
const RAMP: Duration = Duration::from_secs(1);

fn site(name: &str, country: &str) -> Site {
    Site::new(name, country, WIDE)
}

/// A network of guard, middle, exit and server in these countries.
fn path(countries: [&str; 4], scheduler: SchedulerConfig) -> Network {
    let [guard, middle, exit, server] = countries;
    let relay = |name, country, is_guard, is_exit| Relay {
        site: site(name, country),
        weight: 1000,
        is_guard,
        is_exit,
        limit: None,
    };
    Network {
        relays: vec![
            relay("guard", guard, true, false),
            relay("middle", middle, false, false),
            relay("exit", exit, false, true),
        ],
        servers: vec![site("server", server)],
        choices: choices(scheduler),
        ..Network::default()
    }
}

/// Packets are lost only in full queues.
fn choices(scheduler: SchedulerConfig) -> Choices {
    Choices {
        scheduler,
        segment_memory_bytes: SEGMENT_MEMORY_BYTES,
        loss_at_300_ms: 0.0,
        ramp: RAMP,
        ..Choices::default()
    }
}

fn client(
    name: &str,
    country: &str,
    bytes: u32,
    timeout: Duration,
    every: Duration,
    count: u32,
) -> Client {
    let sizes = vec![Size { weight: 1.0, bytes, timeout: Some(timeout), stallout: None }];
    let pauses = vec![every];
    Client {
        site: site(name, country),
        users: Users::Fetch(Arc::new(Fetch { pauses, count: Some(count), sizes })),
        dirtiness: Duration::from_secs(10),
        begins: Duration::ZERO,
    }
}

/// The observations of [`downloads`]: a value for each completed download.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// Seconds to the first byte.
    pub first_byte_s: Vec<f64>,
    /// Seconds to the last byte, in the same order.
    pub last_byte_s: Vec<f64>,
    /// The number of requested downloads.
    pub requested: u32,
    /// The minimum time to the first byte: BEGIN to the exit, TCP's handshake with the server, the answer, the request, and the first byte.
    pub first_byte_min: Duration,
    /// The round-trip time from client to exit without queueing: the minimum time in which a stream's window opens again.
    pub window_round_trip: Duration,
    /// See [`Observed::late`].
    pub late: Duration,
}

/// Consecutive downloads of a client in Sweden through three relays from a server in the US.
///
/// # Errors
/// Those of the world.
pub fn downloads(world: &dyn World, bytes: u32, seed: u64, stop: &AtomicBool) -> Result<Downloads> {
    /// More than a download takes.
    const TIMEOUT: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_secs(4);
    const COUNT: u32 = 4;
    let [at, path_at @ ..] = PLACES;
    let mut network = path(path_at, SchedulerConfig::default());
    network.clients.push(client("client", at, bytes, TIMEOUT, EVERY, COUNT));
    let observed = world.run(&network, &RunConditions { seconds_max: 50, seed, stop })?;
    let completed = |download: &Download| {
        Some((download.first_byte?.as_secs_f64(), download.last_byte?.as_secs_f64()))
    };
    let (first_byte_s, last_byte_s) = observed.downloads.iter().filter_map(completed).unzip();
    Ok(Downloads {
        first_byte_s,
        last_byte_s,
        requested: COUNT,
        first_byte_min: 4 * latency(&PLACES)?,
        window_round_trip: 2 * latency(&PLACES[..PLACES.len() - 1])?,
        late: observed.late,
    })
}

/// The latency from the first of these countries to the last through the others.
fn latency(countries: &[&str]) -> Result<Duration> {
    let known = Places::new()?;
    let places =
        countries.iter().map(|country| known.find(country)).collect::<Result<Vec<_>, _>>()?;
    Ok(places.windows(2).map(|pair| pair[0].latency_to(&pair[1])).sum())
}

/// The observations of [`queueing`].
#[derive(Clone, Debug)]
pub struct Queueing {
    /// Seconds to the first byte of small downloads under load.
    pub first_byte_s: Vec<f64>,
    /// Small downloads under load that did not complete.
    pub failed: usize,
    /// The total rate of all large downloads, in Mbit/s.
    pub bulk_mbit_per_s: f64,
    /// The mean time in seconds that a cell waited in the queues of the relay before the bottleneck.
    pub wait_s: f64,
    /// See [`Observed::late`].
    pub late: Duration,
}

/// A narrow link between two relays, because the guard receives at most [`NARROW`]. One client's large downloads fill it, and another
/// client's small downloads share it. All cells on it leave from the middle relay, whose scheduler chooses between them and decides how
/// many wait in its kernel.
///
/// # Errors
/// Those of the world, and if nothing was carried.
pub fn queueing(
    world: &dyn World,
    scheduler: SchedulerConfig,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Queueing> {
    /// Too many bytes to complete, so that the download is given up after [`BULK`].
    const BULK_BYTES: u32 = 1 << 30;
    const BULK: Duration = Duration::from_secs(20);
    const BULK_COUNT: u32 = 6;
    /// A small page of a few cells.
    const SMALL_BYTES: u32 = 5_000;
    const SMALL_COUNT: u32 = 34;
    let half = Duration::from_millis(500);
    let mut network = path(["DE"; 4], scheduler);
    network.relays[0].site.down = NARROW;
    let patience = Duration::from_secs(15);
    network.clients = vec![
        client("bulk", "DE", BULK_BYTES, BULK, Duration::from_millis(100), BULK_COUNT),
        client("small", "DE", SMALL_BYTES, patience, half, SMALL_COUNT),
    ];
    let observed = world.run(&network, &RunConditions { seconds_max: 40, seed, stop })?;
    let bytes: u64 = observed
        .downloads
        .iter()
        .filter(|download| download.client == 0)
        .map(|download| download.bytes)
        .sum();
    let (loaded_from, loaded_until) = (Duration::from_secs(6), Duration::from_secs(17));
    let is_small = |download: &&Download| {
        download.client == 1 && (loaded_from..loaded_until).contains(&download.begun)
    };
    let small: Vec<Download> = observed.downloads.iter().filter(is_small).copied().collect();
    let first_byte_s = |download: &Download| {
        download.last_byte.and(download.first_byte).map(|time| time.as_secs_f64())
    };
    let first_byte_s: Vec<f64> = small.iter().filter_map(first_byte_s).collect();
    Ok(Queueing {
        failed: small.len() - first_byte_s.len(),
        first_byte_s,
        bulk_mbit_per_s: Rate::from_bytes_over(bytes, BULK).as_mbit_per_s(),
        wait_s: wait_s(&observed)?,
        late: observed.late,
    })
}

/// The mean wait of a cell in the middle relay, in seconds.
fn wait_s(observed: &Observed) -> Result<f64> {
    let mean = observed.relays.get(1).and_then(super::RelayStats::mean_wait_s);
    mean.ok_or_else(|| Error::Clients("the middle relay relayed no cell".to_owned()))
}

/// A relay with the rate limit [`LIMIT`], measured by echo by one measurer with five times that capacity.
///
/// # Errors
/// Those of the world.
pub fn measurement(world: &dyn World, seed: u64, stop: &AtomicBool) -> Result<Measured> {
    const SOCKETS: u32 = 16;
    let relay = Relay {
        site: site("relay", "DE"),
        weight: LIMIT.as_byte_per_s() / 1000,
        is_guard: false,
        is_exit: false,
        limit: Some(LIMIT),
    };
    let path = PathParams { first_sockets: SOCKETS, ..PathParams::default() };
    let measuring = Measuring {
        relay,
        measurer: ("NL", WIDE),
        params: Params { sockets: SOCKETS, seconds: 8, path, ..Params::default() },
        choices: choices(SchedulerConfig::default()),
    };
    world.measure(&measuring, &RunConditions { seconds_max: 300, seed, stop })
}
