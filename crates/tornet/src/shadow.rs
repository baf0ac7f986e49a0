//! Networks as tornettools samples them for Shadow: `shadow.config.yaml`, `v3bw`, and `conf/`.
//!
//! Who is a relay stands in `v3bw`, with its weight. Which are guards and exits the authorities vote by their torrc. A host that runs tgen without tor is a
//! server; one that runs both is a client, whose tgen file says what it does. What the sample leaves open, such as the map of latencies, is not
//! part of it: see [`Choices`] and [`places`](crate::places).

use crate::error::{Error, read};
use crate::graphml::Graph;
use crate::models::read_model;
use crate::network::{Choices, Client, Network, Relay, Site, Users};
use onion::{Duration, Rate};
use serde::Deserialize;
use sim::world::{Fetch, Models, Size};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// C tor's `MaxCircuitDirtiness`, and what benchmarks' torrc has instead.
pub(crate) const DIRTINESS: Duration = Duration::from_mins(10);
pub(crate) const DIRTINESS_OF_BENCHMARKS: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Config {
    network: NetworkTable,
    hosts: BTreeMap<String, Host>,
}

#[derive(Deserialize)]
struct NetworkTable {
    graph: GraphTable,
}

#[derive(Deserialize)]
struct GraphTable {
    /// Where Shadow 2 has it since 2.1; samples are older, and bring no map along.
    file: Option<GraphFile>,
}

#[derive(Deserialize)]
struct GraphFile {
    path: PathBuf,
}

#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    options: Options,
    network_node_id: Option<u32>,
    bandwidth_down: String,
    bandwidth_up: String,
    processes: Vec<Process>,
}

#[derive(Default, Deserialize)]
struct Options {
    country_code_hint: Option<String>,
}

#[derive(Deserialize)]
struct Process {
    path: String,
    args: String,
}

impl Host {
    fn runs(&self, program: &str) -> Option<&Process> {
        self.processes.iter().find(|it| it.path.rsplit('/').next() == Some(program))
    }
}

impl Host {
    /// By the hint that old samples give, or by the map.
    fn country(&self, countries: &BTreeMap<u32, String>) -> Result<String, String> {
        if let Some(hint) = &self.options.country_code_hint {
            return Ok(hint.clone());
        }
        match self.network_node_id {
            Some(node) => {
                let country = countries.get(&node).cloned();
                country.ok_or_else(|| format!("node {node} of the map has no country_code"))
            }
            None => Ok("US".into()),
        }
    }
}

/// What the names of benchmarks' files begin with.
const BENCHMARK: &str = "tgen-perf";

/// Reads a sample.
///
/// # Errors
/// Where something is missing or malformed.
pub fn read_sample(folder: &Path) -> Result<Network, Error> {
    let path = folder.join("shadow.config.yaml");
    let config: Config =
        serde_saphyr::from_str(&read(&path)?).map_err(|error| Error::malformed(&path, error))?;
    let weights = weights(&folder.join("v3bw"))?;
    let torrc = folder.join("conf/tor.relay.authority.torrc");
    let (guards, exits) = flags(&torrc)?;
    let countries = match &config.network.graph.file {
        Some(file) => countries(&folder.join(&file.path))?,
        None => BTreeMap::new(),
    };
    let is_used = |what: &dyn Fn(&str) -> bool| {
        config
            .hosts
            .values()
            .filter_map(|host| host.runs("tor").and(host.runs("tgen")))
            .any(|it| what(&it.args))
    };
    let has_models = is_used(&|args| !args.contains(BENCHMARK));
    let models =
        Arc::new(if has_models { read_models(&folder.join("conf"))? } else { Models::default() });
    let mut fetches: BTreeMap<String, Arc<Fetch>> = BTreeMap::new();
    let mut network = Network { models: models.clone(), ..Network::default() };
    network.choices = Choices::default();
    for (name, host) in config.hosts {
        let malformed = |problem: String| Error::malformed(&path, format!("{name}: {problem}"));
        let site = Site {
            country: host.country(&countries).map_err(malformed)?,
            up: rate(&host.bandwidth_up).map_err(malformed)?,
            down: rate(&host.bandwidth_down).map_err(malformed)?,
            name: name.clone(),
        };
        if let Some((fingerprint, weight)) = weights.get(&name) {
            network.relays.push(Relay {
                site,
                weight: *weight,
                is_guard: guards.contains(fingerprint),
                is_exit: exits.contains(fingerprint),
                limit: limit(&folder.join("shadow.data.template/hosts").join(&name).join("torrc"))?,
            });
            continue;
        }
        match (host.runs("tor"), host.runs("tgen")) {
            (None, Some(_)) => network.servers.push(site),
            (Some(_), Some(tgen)) if tgen.args.contains(BENCHMARK) => {
                let file = tgen.args.rsplit('/').next().unwrap_or_default().to_owned();
                let fetch = match fetches.get(&file) {
                    Some(fetch) => fetch.clone(),
                    None => Arc::new(benchmark(&folder.join("conf").join(&file))?),
                };
                fetches.insert(file, fetch.clone());
                let users = Users::Fetch(fetch);
                network.clients.push(Client { site, users, dirtiness: DIRTINESS_OF_BENCHMARKS });
            }
            (Some(_), Some(_)) => {
                let users = Users::Models(models.clone());
                network.clients.push(Client { site, users, dirtiness: DIRTINESS });
            }
            (Some(_), None) => return Err(malformed("a relay that v3bw does not name".into())),
            (None, None) => {}
        }
    }
    Ok(network)
}

/// What a relay lets itself send, by its own torrc, if it has one.
fn limit(torrc: &Path) -> Result<Option<Rate>, Error> {
    if !torrc.is_file() {
        return Ok(None);
    }
    let text = read(torrc)?;
    let Some(words) = text.lines().find_map(|line| line.strip_prefix("BandwidthRate ")) else {
        return Ok(None);
    };
    let bytes = words.strip_suffix(" bytes").and_then(|it| it.parse().ok());
    let problem =
        || Error::malformed(torrc, format!("no such rate: {words:?}; as in \"1000 bytes\""));
    bytes.map(|it| Some(Rate::from_byte_per_s(it))).ok_or_else(problem)
}

/// The country of each node of a map in GML. Of GML it takes what such a map has: a node's attributes, one a line.
fn countries(path: &Path) -> Result<BTreeMap<u32, String>, Error> {
    let text = read(path)?;
    let mut all = BTreeMap::new();
    let mut node = None;
    for line in text.lines().map(str::trim) {
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        match (word, node) {
            ("edge", _) => node = None,
            ("id", _) => node = value.parse::<u32>().ok(),
            ("country_code", Some(node)) => {
                all.insert(node, value.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
    Ok(all)
}

/// "1000 kilobit".
fn rate(text: &str) -> Result<Rate, String> {
    let problem = || format!("no such rate: {text:?}; as in \"1000 kilobit\"");
    let (number, unit) = text.split_once(' ').ok_or_else(problem)?;
    let number: u64 = number.parse().map_err(|_| problem())?;
    let bits: u64 = match unit {
        "bit" => 1,
        "kilobit" | "kbit" | "Kbit" => 1_000,
        "megabit" | "mbit" | "Mbit" => 1_000_000,
        "gigabit" | "gbit" | "Gbit" => 1_000_000_000,
        _ => return Err(problem()),
    };
    Ok(Rate::from_bit_per_s(number * bits))
}

/// Fingerprints and weights by nickname: tornettools notes it behind what tor reads.
pub(crate) fn weights(path: &Path) -> Result<BTreeMap<String, (String, u64)>, Error> {
    let text = read(path)?;
    let mut all = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("node_id=")) {
        let value = |name: &str| {
            line.split_whitespace().find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let found = (|| {
            let fingerprint = value("node_id")?.trim_start_matches('$');
            Some((value("nick")?.into(), (fingerprint.into(), value("bw")?.parse().ok()?)))
        })();
        let problem = || format!("line {}: no node_id, bw or nick", number + 1);
        let (nick, relay) = found.ok_or_else(|| Error::malformed(path, problem()))?;
        all.insert(nick, relay);
    }
    Ok(all)
}

/// The guards and the exits that authorities vote for.
fn flags(path: &Path) -> Result<(BTreeSet<String>, BTreeSet<String>), Error> {
    let text = read(path)?;
    let list = |option: &str| -> Option<BTreeSet<String>> {
        let mut words = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        let (_, all) = words.find(|(word, _)| *word == option)?;
        Some(all.split(',').map(|it| it.trim().to_string()).collect())
    };
    let missing = |option: &str| Error::malformed(path, format!("no {option}"));
    let (guard, exit) = ("TestingDirAuthVoteGuard", "TestingDirAuthVoteExit");
    Ok((list(guard).ok_or_else(|| missing(guard))?, list(exit).ok_or_else(|| missing(exit))?))
}

/// The three models of a folder, by what their names begin with.
///
/// # Errors
/// Where one is missing, or malformed.
pub fn read_models(folder: &Path) -> Result<Models, Error> {
    let files = std::fs::read_dir(folder)
        .map_err(|source| Error::Read { path: folder.into(), source })?
        .filter_map(|it| Some(it.ok()?.path()));
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let model = |begin: &str| {
        let of_kind = |path: &&PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(begin))
        };
        let path = files.iter().find(of_kind);
        let missing = || Error::malformed(folder, format!("no file {begin}*"));
        read_model(path.ok_or_else(missing)?)
    };
    Ok(Models {
        flow: model("tgen.tor-flowmodel")?,
        stream: model("tgen.tor-streammodel")?,
        packet: model("tgen.tor-packetmodel")?,
    })
}

/// What benchmarks do: after each pause one of some downloads begins. Who is exported by us begins one at the start, too; and has a pause for each of the others,
/// if they are counted.
fn benchmark(path: &Path) -> Result<Fetch, Error> {
    let malformed = |problem: String| Error::malformed(path, problem);
    let graph = Graph::parse(&read(path)?).map_err(malformed)?;
    let mut every = None;
    let mut pauses = Vec::new();
    let mut streams = Vec::new();
    for (id, of) in &graph.nodes {
        if let Some(time) = of.get("time") {
            every = Some(duration(time).map_err(malformed)?);
            pauses.push(id);
        }
        let (Some(bytes), Some(timeout)) = (of.get("recvsize"), of.get("timeout")) else {
            continue;
        };
        let bytes = bytes_of(bytes).map_err(malformed)?;
        streams.push((id, bytes, duration(timeout).map_err(malformed)?));
    }
    let weight = |from: &str, to: &str| -> f64 {
        let edges = graph.edges.iter().filter(|(source, target, _)| source == from && target == to);
        edges.filter_map(|(.., of)| of.get("weight")?.parse::<f64>().ok()).sum()
    };
    let begins_at_once = streams.iter().any(|(id, ..)| weight("start", id) > 0.0);
    // The choice is the same after each.
    let from = match pauses.first() {
        Some(pause) if !begins_at_once => pause.as_str(),
        _ => "start",
    };
    let size = |(id, bytes, timeout): &(&String, u32, Duration)| Size {
        weight: weight(from, id),
        bytes: *bytes,
        timeout: *timeout,
    };
    let mut sizes: Vec<Size> = streams.iter().map(size).collect();
    sizes.sort_by_key(|it| it.bytes);
    let goes_round = graph.edges.iter().any(|(source, target, _)| source == target);
    let counted = pauses.len() + usize::from(begins_at_once);
    let count = (!goes_round).then(|| u32::try_from(counted).unwrap_or(u32::MAX));
    // Who downloads once has none, and needs none.
    let every = every.or_else(|| begins_at_once.then_some(Duration::from_mins(1)));
    let every = every.ok_or_else(|| malformed("no pause".into()))?;
    Ok(Fetch { every, count, sizes })
}

fn with_unit<'a>(text: &'a str, what: &str) -> Result<(u64, &'a str), String> {
    let parts = text.split_once(' ').and_then(|(number, unit)| Some((number.parse().ok()?, unit)));
    parts.ok_or_else(|| format!("no such {what}: {text:?}"))
}

/// "1 MiB".
fn bytes_of(text: &str) -> Result<u32, String> {
    let (number, unit) = with_unit(text, "size")?;
    let shift = match unit {
        "byte" | "bytes" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(format!("no such unit of size: {unit:?}")),
    };
    u32::try_from(number << shift).map_err(|_| format!("more than four GiB: {text:?}"))
}

/// "15 seconds".
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = with_unit(text, "time")?;
    match unit {
        "second" | "seconds" => Ok(Duration::from_secs(number)),
        "minute" | "minutes" => Ok(Duration::from_mins(number)),
        "millisecond" | "milliseconds" => Ok(Duration::from_millis(number)),
        _ => Err(format!("no such unit of time: {unit:?}")),
    }
}
