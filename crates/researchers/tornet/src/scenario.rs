//! Networks and settings written by hand, in TOML. `docs/simulation.md` documents the format.

mod tables;
mod write;

pub use write::scenario_text;

use crate::error::{Error, read};
use crate::network::{Choices, Client, Network, Relay, SCHEDULER_INTERVAL, Site, Users};
use crate::shadow;
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::{Control, Fetch, Size};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tables::{ChoicesTable, FetchTable, File, Pauses, SchedulerName, SizeTable, TcpName};

/// From a segment's own bytes to the memory of a kernel with pages of 64 KiB.
const SEGMENT_MEMORY_RANGE: RangeInclusive<u32> = 1448..=131_072;

/// Reads a scenario.
///
/// # Errors
/// If it is malformed, or a sample that it names is.
pub fn read_scenario(path: &Path) -> Result<Network, Error> {
    parse_scenario(&read(path)?, path)
}

/// The network of a scenario's text, as if it were in this file.
///
/// # Errors
/// If it is malformed, or a sample that it names is.
pub fn parse_scenario(text: &str, path: &Path) -> Result<Network, Error> {
    let malformed = |problem: String| Error::malformed(path, problem);
    let file: File = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
    // Relative to the scenario.
    let resolve = |named: &Path| path.parent().unwrap_or(Path::new(".")).join(named);
    let mut network = match &file.shadow {
        Some(sample) if !resolve(sample).exists() => {
            let missing = Error::NoSample { path: resolve(sample) };
            return Err(malformed(format!(
                "shadow = {:?}: {missing}",
                sample.display().to_string()
            )));
        }
        Some(sample) => shadow::read_sample(&resolve(sample))?,
        None => Network::default(),
    };
    if let Some(folder) = &file.models {
        network.models = Arc::new(shadow::read_models(&resolve(folder))?);
    }
    let has_models = file.models.is_some() || file.shadow.is_some();
    choose(&mut network.choices, &file.choices).map_err(malformed)?;
    if network.map.is_some() && file.choices.loss_at_300_ms.is_some() {
        let problem = "loss_at_300_ms has no effect: losses are those of the sample's map";
        return Err(malformed(problem.into()));
    }
    for table in &file.relays {
        let mbit = table.mbit_per_s;
        for site in
            sites("relay", table.count, &table.name, &table.country, mbit).map_err(malformed)?
        {
            let weight = table.weight.unwrap_or(site.up.as_byte_per_s() / 1000);
            let limit = table
                .limit_mbit_per_s
                .map(|limit_mbit_per_s| rate(limit_mbit_per_s).map_err(malformed))
                .transpose()?;
            let (is_guard, is_exit) = (table.guard, table.exit);
            network.relays.push(Relay { site, weight, is_guard, is_exit, limit });
        }
    }
    for table in &file.servers {
        let all = sites("server", table.count, &table.name, &table.country, table.mbit_per_s);
        network.servers.extend(all.map_err(malformed)?);
    }
    for table in &file.clients {
        let (users, dirtiness) = match (&table.fetch, table.users) {
            (Some(table), false) => {
                let fetch = fetch(table).map_err(malformed)?;
                (Users::Fetch(Arc::new(fetch)), shadow::DIRTINESS_OF_BENCHMARKS)
            }
            (None, true) if has_models => {
                (Users::Models(network.models.clone()), shadow::DIRTINESS)
            }
            (None, true) => {
                return Err(malformed(
                    "clients with `users = true` need `models = \"FOLDER\"`".into(),
                ));
            }
            _ => {
                let problem = "clients have either `fetch` or `users = true`";
                return Err(malformed(problem.into()));
            }
        };
        let mbit = table.mbit_per_s;
        for site in
            sites("client", table.count, &table.name, &table.country, mbit).map_err(malformed)?
        {
            let begins = Duration::ZERO;
            network.clients.push(Client { site, users: users.clone(), dirtiness, begins });
        }
    }
    number(&mut network);
    Ok(network)
}

/// Unused names.
fn number(network: &mut Network) {
    let relays = network.relays.iter_mut().map(|relay| &mut relay.site);
    let clients = network.clients.iter_mut().map(|client| &mut client.site);
    for (place, site) in relays.chain(&mut network.servers).chain(clients).enumerate() {
        if site.name.ends_with('-') {
            site.name += &place.to_string();
        }
    }
}

fn rate(mbit_per_s: f64) -> Result<Rate, String> {
    let is_right = mbit_per_s.is_finite() && (0.001..=1e6).contains(&mbit_per_s);
    let problem = || format!("a rate of {mbit_per_s} Mbit/s: not 0.001 to 1000000");
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
    let site = Site::new(name, country, rate);
    Ok((0..count).map(|_| site.clone()).collect())
}

fn seconds(value: f64, what: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{what} of {value} s: not more than 0"))
}

fn fetch(table: &FetchTable) -> Result<Fetch, String> {
    let size = |row: &SizeTable| {
        let timeout =
            row.timeout_s.map(|timeout_s| seconds(timeout_s, "a time-out")).transpose()?;
        let is_right = row.bytes > 0 && row.weight.is_finite() && row.weight >= 0.0;
        let problem = || "a size has bytes, and a weight that is not negative".to_string();
        let size = Size { weight: row.weight, bytes: row.bytes, timeout, stallout: None };
        is_right.then_some(size).ok_or_else(problem)
    };
    let sizes = table.sizes.iter().map(size).collect::<Result<Vec<Size>, String>>()?;
    if sizes.is_empty() {
        return Err("nothing to fetch: sizes is empty".into());
    }
    if sizes.iter().all(|size| size.weight <= 0.0) {
        return Err("nothing to fetch: all weights of sizes are 0".into());
    }
    let pauses = match &table.every_s {
        Pauses::One(every_s) => vec![seconds(*every_s, "a pause")?],
        Pauses::Several(all) => {
            all.iter().map(|pause| seconds(*pause, "a pause")).collect::<Result<_, String>>()?
        }
    };
    if pauses.is_empty() {
        return Err("no pause: every_s is empty".into());
    }
    Ok(Fetch { pauses, count: table.count, sizes })
}

fn choose(choices: &mut Choices, table: &ChoicesTable) -> Result<(), String> {
    let interval = table.scheduler_interval_ms.map_or(SCHEDULER_INTERVAL, Duration::from_millis);
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
            TcpName::Shadow => Control::Shadow,
        };
    }
    if let Some(bytes) = table.segment_memory_bytes {
        if !SEGMENT_MEMORY_RANGE.contains(&bytes) {
            let (least, most) = (SEGMENT_MEMORY_RANGE.start(), SEGMENT_MEMORY_RANGE.end());
            return Err(format!("segment_memory_bytes is {bytes}: not {least} to {most}"));
        }
        choices.segment_memory_bytes = bytes;
    }
    let share = |value: f64, what: &str| {
        let is_right = value.is_finite() && value >= 0.0;
        is_right
            .then_some(value)
            .ok_or_else(|| format!("{what} is {value}: negative or not a number"))
    };
    if let Some(loss) = table.loss_at_300_ms {
        choices.loss_at_300_ms = share(loss, "loss_at_300_ms")?;
    }
    if let Some(load) = table.load {
        choices.load = share(load, "load")?;
    }
    choices.has_congestion_control =
        table.congestion_control.unwrap_or(choices.has_congestion_control);
    if let Some(name) = &table.hop_windows {
        let problem = || {
            let names = HopWindows::NAMED.map(|(name, _)| name).join(", ");
            format!("hop_windows = {name:?}: not one of off, {names}")
        };
        let is_off = name == "off";
        let windows = HopWindows::named(name);
        choices.hop_windows = windows.map(Some).or(is_off.then_some(None)).ok_or_else(problem)?;
    }
    choices.cell_cost = table.cell_cost_ns.map_or(choices.cell_cost, Duration::from_nanos);
    choices.queue = table.queue_ms.map_or(choices.queue, Duration::from_millis);
    choices.guards = table.guards.unwrap_or(choices.guards);
    choices.ready_circuits = table.ready_circuits.unwrap_or(choices.ready_circuits);
    choices.ramp = table.ramp_s.map_or(choices.ramp, Duration::from_secs);
    Ok(())
}
