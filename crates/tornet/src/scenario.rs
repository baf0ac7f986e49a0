//! Networks and choices by hand, in TOML. `docs/simulation.md` has all of it.

use crate::error::{Error, read};
use crate::network::{Choices, Client, Network, Relay, Site, Users};
use crate::shadow;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use serde::Deserialize;
use sim::world::{Control, Fetch, Size};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// A sample that what follows is added to.
    shadow: Option<PathBuf>,
    #[serde(default)]
    choices: ChoicesTable,
    #[serde(default)]
    relays: Vec<RelayTable>,
    #[serde(default)]
    servers: Vec<SiteTable>,
    #[serde(default)]
    clients: Vec<ClientTable>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SchedulerName {
    Vanilla,
    KistLite,
    Kist,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TcpName {
    Cubic,
    Reno,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoicesTable {
    scheduler: Option<SchedulerName>,
    scheduler_interval_ms: Option<u64>,
    tcp: Option<TcpName>,
    congestion_control: Option<bool>,
    cell_cost_ns: Option<u64>,
    queue_ms: Option<u64>,
    guards: Option<u8>,
    ready_circuits: Option<u8>,
    loss_at_300_ms: Option<f64>,
    ramp_s: Option<u64>,
    load: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteTable {
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "nobody")]
    name: String,
    country: String,
    mbit_per_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayTable {
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "nobody")]
    name: String,
    country: String,
    mbit_per_s: f64,
    limit_mbit_per_s: Option<f64>,
    /// That of its rate if not said.
    weight: Option<u64>,
    #[serde(default)]
    guard: bool,
    #[serde(default)]
    exit: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "nobody")]
    name: String,
    country: String,
    mbit_per_s: f64,
    fetch: FetchTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchTable {
    every_s: f64,
    count: Option<u32>,
    sizes: Vec<SizeTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeTable {
    #[serde(default = "unit")]
    weight: f64,
    bytes: u32,
    timeout_s: f64,
}

const fn one() -> u32 {
    1
}

const fn unit() -> f64 {
    1.0
}

const fn nobody() -> String {
    String::new()
}

/// Reads a scenario.
///
/// # Errors
/// Where it is malformed, or a sample that it names is.
pub fn read_scenario(path: &Path) -> Result<Network, Error> {
    let malformed = |problem: String| Error::malformed(path, problem);
    let file: File = toml::from_str(&read(path)?).map_err(|error| malformed(error.to_string()))?;
    let mut network = match &file.shadow {
        // From where the scenario is.
        Some(sample) => shadow::read_sample(&path.parent().unwrap_or(Path::new(".")).join(sample))?,
        None => Network::default(),
    };
    choose(&mut network.choices, &file.choices).map_err(malformed)?;
    for table in &file.relays {
        let mbit = table.mbit_per_s;
        for site in
            sites("relay", table.count, &table.name, &table.country, mbit).map_err(malformed)?
        {
            let weight = table.weight.unwrap_or(site.up.as_byte_per_s() / 1000);
            let limit = table.limit_mbit_per_s.map(|it| rate(it).map_err(malformed)).transpose()?;
            let (is_guard, is_exit) = (table.guard, table.exit);
            network.relays.push(Relay { site, weight, is_guard, is_exit, limit });
        }
    }
    for table in &file.servers {
        let all = sites("server", table.count, &table.name, &table.country, table.mbit_per_s);
        network.servers.extend(all.map_err(malformed)?);
    }
    for table in &file.clients {
        let users = Users::Fetch(Arc::new(fetch(&table.fetch).map_err(malformed)?));
        let mbit = table.mbit_per_s;
        for site in
            sites("client", table.count, &table.name, &table.country, mbit).map_err(malformed)?
        {
            let dirtiness = Duration::from_secs(10);
            network.clients.push(Client { site, users: users.clone(), dirtiness });
        }
    }
    number(&mut network);
    Ok(network)
}

/// Names that nobody has given.
fn number(network: &mut Network) {
    let relays = network.relays.iter_mut().map(|it| &mut it.site);
    let clients = network.clients.iter_mut().map(|it| &mut it.site);
    for (place, site) in relays.chain(&mut network.servers).chain(clients).enumerate() {
        if site.name.ends_with('-') {
            site.name += &place.to_string();
        }
    }
}

fn rate(mbit_per_s: f64) -> Result<Rate, String> {
    let is_right = mbit_per_s.is_finite() && (0.001..=1e6).contains(&mbit_per_s);
    let problem = || format!("a rate of {mbit_per_s} Mbit/s: from 0.001 to 1000000 please");
    is_right.then(|| Rate::from_mbit_per_s(mbit_per_s)).ok_or_else(problem)
}

fn sites(
    kind: &str,
    count: u32,
    name: &str,
    country: &str,
    mbit_per_s: f64,
) -> Result<Vec<Site>, String> {
    let rate = rate(mbit_per_s)?;
    let stem = if name.is_empty() { kind } else { name };
    let name = if count == 1 && !name.is_empty() { name.into() } else { format!("{stem}-") };
    let site = Site { name, country: country.into(), up: rate, down: rate };
    Ok((0..count).map(|_| site.clone()).collect())
}

fn seconds(value: f64, what: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .ok_or_else(|| format!("{what} of {value} s: more than none please"))
}

fn fetch(table: &FetchTable) -> Result<Fetch, String> {
    let size = |it: &SizeTable| {
        let timeout = seconds(it.timeout_s, "a time-out")?;
        let is_right = it.bytes > 0 && it.weight.is_finite() && it.weight >= 0.0;
        let problem = || "a size has bytes, and a weight that is not negative".to_string();
        is_right.then_some(Size { weight: it.weight, bytes: it.bytes, timeout }).ok_or_else(problem)
    };
    let sizes = table.sizes.iter().map(size).collect::<Result<Vec<Size>, String>>()?;
    if sizes.is_empty() {
        return Err("nothing to fetch: sizes is empty".into());
    }
    Ok(Fetch { every: seconds(table.every_s, "a pause")?, count: table.count, sizes })
}

fn choose(choices: &mut Choices, table: &ChoicesTable) -> Result<(), String> {
    let interval = Duration::from_millis(table.scheduler_interval_ms.unwrap_or(10));
    if interval.is_zero() {
        return Err("scheduler_interval_ms is 0: the scheduler would run without end".into());
    }
    if table.scheduler.is_some() || table.scheduler_interval_ms.is_some() {
        choices.scheduler = match table.scheduler.unwrap_or(SchedulerName::Kist) {
            SchedulerName::Vanilla => SchedulerConfig::vanilla(),
            SchedulerName::KistLite => SchedulerConfig::kist_lite(interval),
            SchedulerName::Kist => SchedulerConfig::kist(interval),
        };
    }
    if let Some(tcp) = table.tcp {
        choices.control = match tcp {
            TcpName::Cubic => Control::Cubic,
            TcpName::Reno => Control::Reno,
        };
    }
    let share = |value: f64, what: &str| {
        let is_right = value.is_finite() && value >= 0.0;
        is_right.then_some(value).ok_or_else(|| format!("{what} is {value}: not negative please"))
    };
    if let Some(loss) = table.loss_at_300_ms {
        choices.loss_at_300_ms = share(loss, "loss_at_300_ms")?;
    }
    if let Some(load) = table.load {
        choices.load = share(load, "load")?;
    }
    choices.has_congestion_control =
        table.congestion_control.unwrap_or(choices.has_congestion_control);
    choices.cell_cost = table.cell_cost_ns.map_or(choices.cell_cost, Duration::from_nanos);
    choices.queue = table.queue_ms.map_or(choices.queue, Duration::from_millis);
    choices.guards = table.guards.unwrap_or(choices.guards);
    choices.ready_circuits = table.ready_circuits.unwrap_or(choices.ready_circuits);
    choices.ramp = table.ramp_s.map_or(choices.ramp, Duration::from_secs);
    Ok(())
}
