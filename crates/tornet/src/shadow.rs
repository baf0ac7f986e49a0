//! Networks as tornettools samples them for Shadow: `shadow.config.yaml`, `v3bw`, and `conf/`.
//!
//! Who is a relay stands in `v3bw`, with its weight. Which are guards and exits the authorities vote by their torrc. A host that runs tgen without tor is a
//! server; one that runs both is a client, whose tgen file says what it does. What lies between hosts is what the map says ([`map`](crate::map)); a sample
//! without its map has ours: see [`places`](crate::places), and [`Choices`].

use crate::error::{Error, read};
use crate::graphml::Graph;
use crate::map::Map;
use crate::models::read_model;
use crate::network::{Choices, Client, Network, Relay, Site, Users};
use crate::units::{duration, rate, size_bytes};
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
    #[serde(default = "yes")]
    use_shortest_path: bool,
}

/// Shadow's default.
const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct GraphTable {
    #[serde(default, rename = "type")]
    kind: GraphKind,
    /// Where Shadow has it since 2.1.
    file: Option<GraphFile>,
    inline: Option<String>,
    /// Where it was before.
    path: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
enum GraphKind {
    #[default]
    #[serde(rename = "gml")]
    Gml,
    #[serde(rename = "1_gbit_switch")]
    Switch,
}

#[derive(Deserialize)]
struct GraphFile {
    path: PathBuf,
    compression: Option<String>,
}

impl NetworkTable {
    /// The map, of which these nodes are used; none if the sample does not bring along the one that it names, as those from before Shadow 2.1.
    fn map(&self, folder: &Path, used: &BTreeSet<u32>) -> Result<Option<Map>, Error> {
        let config = folder.join(CONFIG);
        let (path, text) = match &self.graph {
            GraphTable { kind: GraphKind::Switch, .. } => return Ok(Some(Map::one_switch())),
            // Where hosts are found by hints alone, so are their places.
            _ if used.is_empty() => return Ok(None),
            GraphTable { inline: Some(text), .. } => (config, text.clone()),
            GraphTable { file: Some(file), .. } => {
                let path = folder.join(&file.path);
                if let Some(compression) = &file.compression {
                    let problem = format!(
                        "its map {} is compressed ({compression}): unpack it, name the unpacked file, and leave `compression` out",
                        path.display()
                    );
                    return Err(Error::malformed(config, problem));
                }
                let text = read(&path)?;
                (path, text)
            }
            GraphTable { path: Some(path), .. } if folder.join(path).is_file() => {
                let path = folder.join(path);
                let text = read(&path)?;
                (path, text)
            }
            GraphTable { .. } => return Ok(None),
        };
        let malformed = |problem| Error::malformed(path, problem);
        Map::parse(&text, self.use_shortest_path, used).map(Some).map_err(malformed)
    }
}

#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    options: Options,
    network_node_id: Option<u32>,
    /// As its node says, if it is not here.
    bandwidth_down: Option<String>,
    bandwidth_up: Option<String>,
    processes: Vec<Process>,
}

#[derive(Default, Deserialize)]
struct Options {
    country_code_hint: Option<String>,
}

#[derive(Deserialize)]
struct Process {
    path: String,
    #[serde(default)]
    args: Args,
}

/// As a shell would take them, or one by one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Args {
    Line(String),
    List(Vec<String>),
}

impl Default for Args {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Args {
    fn words(&self) -> Vec<&str> {
        match self {
            Self::Line(line) => line.split_whitespace().collect(),
            Self::List(words) => words.iter().map(String::as_str).collect(),
        }
    }
}

impl Host {
    fn runs(&self, program: &str) -> Option<&Process> {
        self.processes.iter().find(|it| it.path.rsplit('/').next() == Some(program))
    }
}

impl Host {
    /// Where it is, and its rates: as it says itself, or its node of the map.
    fn site(&self, name: &str, map: Option<&Map>) -> Result<Site, String> {
        let node = self.network_node_id.filter(|_| map.is_some());
        let there = map.zip(node).and_then(|(map, node)| map.node(node));
        let hint = self.options.country_code_hint.as_ref();
        let country = hint.or_else(|| there?.country.as_ref());
        let rate_of = |own: &Option<String>, of_node: Option<Rate>, what: &str| match own {
            Some(text) => rate(text),
            None => of_node.ok_or_else(|| format!("no {what}, of the host or of its node")),
        };
        Ok(Site {
            name: name.to_owned(),
            // A map says more than a country; where it is nobody asks.
            country: country.map_or_else(|| UNKNOWN.to_owned(), Clone::clone),
            node,
            up: rate_of(&self.bandwidth_up, there.and_then(|it| it.up), "bandwidth_up")?,
            down: rate_of(&self.bandwidth_down, there.and_then(|it| it.down), "bandwidth_down")?,
        })
    }
}

/// What samples are called.
const CONFIG: &str = "shadow.config.yaml";

/// No country, in ISO 3166.
const UNKNOWN: &str = "ZZ";

impl Process {
    /// The file that says what it does, of TGen as a benchmark.
    fn benchmark(&self) -> Option<&str> {
        let file = self.args.words().last()?.rsplit('/').next()?;
        file.starts_with(BENCHMARK).then_some(file)
    }
}

/// What the names of benchmarks' files begin with.
const BENCHMARK: &str = "tgen-perf";

/// Reads a sample.
///
/// # Errors
/// Where something is missing or malformed.
pub fn read_sample(folder: &Path) -> Result<Network, Error> {
    let path = folder.join(CONFIG);
    let config: Config =
        serde_saphyr::from_str(&read(&path)?).map_err(|error| Error::malformed(&path, error))?;
    let weights = weights(&folder.join("v3bw"))?;
    let torrc = folder.join("conf/tor.relay.authority.torrc");
    let (guards, exits) = flags(&torrc)?;
    let used = config.hosts.values().filter_map(|it| it.network_node_id).collect();
    let map = config.network.map(folder, &used)?;
    let mut clients = config.hosts.values().filter_map(|it| it.runs("tor").and(it.runs("tgen")));
    let has_models = clients.any(|it| it.benchmark().is_none());
    let models =
        Arc::new(if has_models { read_models(&folder.join("conf"))? } else { Models::default() });
    let mut fetches: BTreeMap<String, Arc<Fetch>> = BTreeMap::new();
    let mut network = Network { models: models.clone(), ..Network::default() };
    network.choices = Choices::default();
    for (name, host) in config.hosts {
        let malformed = |problem: String| Error::malformed(&path, format!("{name}: {problem}"));
        let site = host.site(&name, map.as_ref()).map_err(malformed)?;
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
            (Some(_), Some(tgen)) if let Some(file) = tgen.benchmark() => {
                let fetch = match fetches.get(file) {
                    Some(fetch) => fetch.clone(),
                    None => Arc::new(benchmark(&folder.join("conf").join(file))?),
                };
                fetches.insert(file.to_owned(), fetch.clone());
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
    network.map = map.map(Arc::new);
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
        let bytes = size_bytes(bytes).map_err(malformed)?;
        streams.push((id, bytes, duration(timeout).map_err(malformed)?));
    }
    let weight = |from: &str, to: &str| -> f64 {
        let edges = graph.edges.iter().filter(|(source, target, _)| source == from && target == to);
        edges
            .map(|(.., of)| of.get("weight").map_or(Some(1.0), |it| it.parse().ok()))
            .sum::<Option<f64>>()
            .unwrap_or(0.0)
    };
    if streams.is_empty() {
        return Err(malformed("no stream with recvsize and timeout".into()));
    }
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
