//! What both worlds play, and what is looked at.

use super::{Around, Download, Measured, Measuring, Played, World};
use crate::error::{Error, Result};
use coordinator::{Params, PathParams};
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::{Fetch, Size};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tornet::network::{Choices, Client, Network, Relay, Site, Users};
use tornet::places::Places;

/// What hosts send and get that are not narrow.
const WIDE: Rate = Rate::from_bit_per_s(100_000_000);

/// What the narrow host of [`queueing`] gets.
pub const NARROW: Rate = Rate::from_bit_per_s(8_000_000);

/// What the relay of [`measurement`] lets itself send.
pub const LIMIT: Rate = Rate::from_bit_per_s(20_000_000);

/// What the kernel reckons for a segment that the documentation's table was made with: the first send buffer of a connection is twenty times that (`ss -tm`: `tb46080`). Debian's have 4,352.
const SEGMENT_MEMORY_BYTES: u32 = 2304;

/// Where client, guard, middle, exit and server of [`downloads`] are.
const PLACES: [&str; 5] = ["SE", "DE", "FR", "NL", "US"];

/// Users begin in the course of this.
const RAMP: Duration = Duration::from_secs(1);

fn site(name: &str, country: &str) -> Site {
    Site::new(name, country, WIDE)
}

/// A path: guard, middle, exit, and a server, in these countries.
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

/// Nothing gets lost but in full queues.
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

/// What [`downloads`] has shown: a value for each completed download.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// Seconds to the first byte.
    pub first_byte_s: Vec<f64>,
    /// Seconds to the last, in the same order.
    pub last_byte_s: Vec<f64>,
    /// Downloads that there should have been.
    pub asked: u32,
    /// No first byte can be there before: BEGIN goes to the exit, which connects to the server; the answer comes back, and then the request goes all the way, and the first byte.
    pub first_byte_least: Duration,
    /// From the client to the exit and back, on a free way: the least in which a window of a stream opens again.
    pub window_round_trip: Duration,
    /// See [`Played::late`].
    pub late: Duration,
}

/// Downloads one after the other through three relays, of a client in Sweden from a server in the US.
///
/// # Errors
/// Those of the world.
pub fn downloads(world: &dyn World, bytes: u32, seed: u64, stop: &AtomicBool) -> Result<Downloads> {
    /// Far more than a download takes.
    const TIMEOUT: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_secs(4);
    const COUNT: u32 = 4;
    let [at, path_at @ ..] = PLACES;
    let mut network = path(path_at, SchedulerConfig::default());
    network.clients.push(client("client", at, bytes, TIMEOUT, EVERY, COUNT));
    let played = world.play(&network, &Around { seconds_max: 50, seed, stop })?;
    let whole = |it: &Download| Some((it.first_byte?.as_secs_f64(), it.last_byte?.as_secs_f64()));
    let (first_byte_s, last_byte_s) = played.downloads.iter().filter_map(whole).unzip();
    Ok(Downloads {
        first_byte_s,
        last_byte_s,
        asked: COUNT,
        first_byte_least: 4 * way(&PLACES)?,
        window_round_trip: 2 * way(&PLACES[..PLACES.len() - 1])?,
        late: played.late,
    })
}

/// From the first of these countries to the last, by way of the others.
fn way(countries: &[&str]) -> Result<Duration> {
    let known = Places::new()?;
    let places = countries.iter().map(|it| known.find(it)).collect::<Result<Vec<_>, _>>()?;
    Ok(places.windows(2).map(|pair| pair[0].latency_to(&pair[1])).sum())
}

/// What [`queueing`] has shown.
#[derive(Clone, Debug)]
pub struct Queueing {
    /// Seconds to the first byte of what is small, under load.
    pub first_byte_s: Vec<f64>,
    /// Small downloads under load that did not complete.
    pub failed: usize,
    /// What all that is large received together, in Mbit/s.
    pub bulk_mbit_per_s: f64,
    /// How long a cell waited in the queues of the relay before the narrow place, on average, in seconds.
    pub wait_s: f64,
    /// See [`Played::late`].
    pub late: Duration,
}

/// A link between two relays that is narrow, since the first of them gets no more than [`NARROW`]: one client's large downloads fill it, another's small ones pass through it. All
/// cells on it leave from the middle relay, whose scheduler chooses between them, and decides how many of them wait in its kernel.
///
/// # Errors
/// Those of the world, and where nothing was carried.
pub fn queueing(
    world: &dyn World,
    scheduler: SchedulerConfig,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Queueing> {
    /// More than comes, and so given up after this time.
    const BULK_BYTES: u32 = 1 << 30;
    const BULK: Duration = Duration::from_secs(20);
    const BULK_COUNT: u32 = 6;
    /// Some cells: a small page.
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
    let played = world.play(&network, &Around { seconds_max: 40, seed, stop })?;
    let bytes: u64 = played.downloads.iter().filter(|it| it.client == 0).map(|it| it.bytes).sum();
    let (loaded_from, loaded_until) = (Duration::from_secs(6), Duration::from_secs(17));
    let is_small =
        |it: &&Download| it.client == 1 && (loaded_from..loaded_until).contains(&it.begun);
    let small: Vec<Download> = played.downloads.iter().filter(is_small).copied().collect();
    let whole = |it: &Download| it.last_byte.and(it.first_byte).map(|it| it.as_secs_f64());
    let first_byte_s: Vec<f64> = small.iter().filter_map(whole).collect();
    Ok(Queueing {
        failed: small.len() - first_byte_s.len(),
        first_byte_s,
        bulk_mbit_per_s: Rate::from_bytes_over(bytes, BULK).as_mbit_per_s(),
        wait_s: wait_s(&played)?,
        late: played.late,
    })
}

/// In the middle relay.
fn wait_s(played: &Played) -> Result<f64> {
    let mean = played.relays.get(1).and_then(super::RelaySeen::mean_wait_s);
    mean.ok_or_else(|| Error::Clients("no cell came through the middle relay".to_owned()))
}

/// A relay that lets itself send [`LIMIT`], measured as an echo by one measurer with five times as much.
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
    world.measure(&measuring, &Around { seconds_max: 300, seed, stop })
}
