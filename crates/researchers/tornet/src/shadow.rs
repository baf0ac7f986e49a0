//! Reading networks that tornettools has sampled for Shadow: `shadow.config.yaml`, `conf/`, and hosts' files.
//!
//! A relay is a host in the bandwidth file, which has its weight. The authorities' torrc states which are
//! guards and exits. A host that runs TGen without tor is a server; one that runs both is a client, whose
//! traffic is described by its TGen graph. Latencies come from the map ([`map`](crate::map)); a sample without
//! its map uses [`places`](crate::places) and [`Choices`](crate::network::Choices).
//!
//! The location of files depends on the version of tornettools:
//!
//! | file | until spring 2021 | since |
//! |---|---|---|
//! | bandwidth file | `v3bw` | `shadow.data.template/hosts/bwauthority/v3bw` |
//! | a relay's limit | arguments of its process | `shadow.data.template/hosts/NAME/torrc-defaults` |
//! | a client's traffic | `conf/` | `conf/`, or `tgenrc.graphml` of its host |
//!
//! Time begins at the end of Shadow's bootstrap: processes with a later `start_time` begin correspondingly
//! later.

mod config;

use crate::error::{Error, read};
use crate::models::{read_model, read_paced_model};
use crate::network::{Client, Network, Relay, Users};
use crate::tgen::{Actions, Doing, ModelFiles};
use crate::torrc::{Torrc, WorkDir, lexical};
use config::{Config, Process};
use onion::Duration;
use sim::world::{Fetch, Models};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// C tor's `MaxCircuitDirtiness`, and the value in benchmarks' torrc.
pub(crate) const DIRTINESS: Duration = Duration::from_mins(10);
pub(crate) const DIRTINESS_OF_BENCHMARKS: Duration = Duration::from_secs(10);

/// The file names of a sample.
pub(crate) const CONFIG: &str = "shadow.config.yaml";

/// The prefix of benchmarks' file names.
const BENCHMARK: &str = "tgen-perf";

/// The authorities' torrc in `conf/`: its name until spring 2021, and since.
const AUTHORITY_TORRCS: [&str; 2] = ["tor.relay.authority.torrc", "tor.authority.torrc"];

/// The parts of host names of onion services, and of their clients.
const ONION_SERVICE: &str = "onionservice";

/// Reads a sample.
///
/// # Errors
/// If something is missing or malformed.
pub fn read_sample(folder: &Path) -> Result<Network, Error> {
    let path = folder.join(CONFIG);
    let config: Config =
        serde_saphyr::from_str(&read(&path)?).map_err(|error| Error::malformed(&path, error))?;
    let malformed = |problem: String| Error::malformed(&path, problem);
    let mut reader = Reader {
        folder,
        hosts: folder.join(config.general.template()).join("hosts"),
        bootstrapped: config.general.bootstrapped().map_err(malformed)?,
        graphs: BTreeMap::new(),
        models: BTreeMap::new(),
        left_out: Vec::new(),
    };
    let weights = weights(&reader.bandwidth_file(config.general.template()))?;
    let (guards, exits) = reader.flags()?;
    let used = config.hosts.values().filter_map(|host| host.network_node_id).collect();
    let map = config.network.map(&path, folder, &used)?;
    let mut network = Network::default();
    for (table, host) in &config.hosts {
        for name in host.names(table) {
            let malformed = |problem: String| Error::malformed(&path, format!("{name}: {problem}"));
            let tor = host.runs("tor").map_err(malformed)?;
            let tgen = host.runs("tgen").map_err(malformed)?;
            let words = tor.map(Process::words).unwrap_or_default();
            let found = weights.get(&name).or_else(|| weights.get(nickname(&words)?));
            if let Some((fingerprint, weight)) = found {
                network.relays.push(Relay {
                    site: host.site(&name, map.as_ref()).map_err(malformed)?,
                    weight: *weight,
                    is_guard: guards.contains(fingerprint),
                    is_exit: exits.contains(fingerprint),
                    limit: reader.torrc(&name, &words)?.limit()?,
                });
                continue;
            }
            let Some(tgen) = tgen else {
                if tor.is_some() {
                    return Err(malformed("a relay that the bandwidth file does not name".into()));
                }
                continue;
            };
            let site = || host.site(&name, map.as_ref()).map_err(malformed);
            let role = match reader.role(&name, &words, tgen)? {
                Role::Unknown if tor.is_some() => {
                    Role::Users(reader.default_models()?, Duration::ZERO)
                }
                role => role,
            };
            match (tor.is_some(), role) {
                (true, Role::OnionService) => reader.left_out.push(name),
                (false, Role::Server | Role::OnionService | Role::Unknown) => {
                    network.servers.push(site()?);
                }
                (false, _) => {
                    return Err(malformed("a client without tor, which is not simulated".into()));
                }
                (true, role) => {
                    let (users, dirtiness, delay) = match role {
                        Role::Benchmark(fetch, delay) => {
                            (Users::Fetch(fetch), DIRTINESS_OF_BENCHMARKS, delay)
                        }
                        Role::Users(models, delay) => (Users::Models(models), DIRTINESS, delay),
                        _ => {
                            return Err(malformed(
                                "a server of TGen with a tor that serves nothing".into(),
                            ));
                        }
                    };
                    let begins = reader.begins(tgen, delay).map_err(malformed)?;
                    network.clients.push(Client { site: site()?, users, dirtiness, begins });
                }
            }
        }
    }
    network.models = common_models(&network).map_err(malformed)?;
    network.left_out = reader.left_out;
    network.map = map.map(Arc::new);
    Ok(network)
}

/// The models of all clients, for servers. Those of flows and streams may differ; servers use one model of
/// packets.
fn common_models(network: &Network) -> Result<Arc<Models>, String> {
    let models = |client: &Client| match &client.users {
        Users::Models(models) => Some((client.site.name.clone(), models.clone())),
        Users::Fetch(_) => None,
    };
    let mut all = network.clients.iter().filter_map(models);
    let Some((first, models)) = all.next() else { return Ok(Arc::default()) };
    match all.find(|(_, other)| other.packet != models.packet) {
        Some((other, _)) => Err(format!(
            "{first} and {other} have different models of packets, which is not simulated"
        )),
        None => Ok(models),
    }
}

/// The role of a host that runs TGen.
enum Role {
    /// It answers, or runs a TGen graph that is missing.
    Server,
    /// It is part of an onion service, or its client.
    OnionService,
    Benchmark(Arc<Fetch>, Duration),
    Users(Arc<Models>, Duration),
    /// Its TGen graph is missing.
    Unknown,
}

/// A TGen graph and its interpretation.
#[derive(Clone)]
enum Read {
    Serves,
    OnionServices,
    Downloads(Arc<Fetch>, Duration),
    Traffic(ModelFiles, Duration),
}

/// Reads the files of a sample, each once.
struct Reader<'a> {
    folder: &'a Path,
    /// The folder of hosts' own folders.
    hosts: PathBuf,
    bootstrapped: Duration,
    graphs: BTreeMap<PathBuf, Read>,
    /// By the files of flows, streams and packets.
    models: BTreeMap<[PathBuf; 3], Arc<Models>>,
    left_out: Vec<String>,
}

impl Reader<'_> {
    /// The bandwidth file of any version of tornettools. If a symbolic link has become a file, as in some
    /// archives, its target.
    fn bandwidth_file(&self, template: &Path) -> PathBuf {
        let template = self.folder.join(template);
        let folders =
            [self.folder.to_owned(), self.hosts.join("bwauthority"), template.join("bwauthority")];
        let names = ["v3bw", "v3bw.init.consensus"];
        let all = folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
        let names_relays = |path: &PathBuf| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("node_id="))
        };
        let mut all: Vec<PathBuf> = all.filter(|path| path.exists()).collect();
        let place = all.iter().position(names_relays).unwrap_or(0);
        if all.is_empty() { self.hosts.join("bwauthority/v3bw") } else { all.swap_remove(place) }
    }

    /// The guards and the exits that authorities vote for.
    fn flags(&self) -> Result<(BTreeSet<String>, BTreeSet<String>), Error> {
        let conf = self.folder.join("conf");
        let named = AUTHORITY_TORRCS.map(|name| conf.join(name));
        let path = named.iter().find(|path| path.is_file()).unwrap_or(&named[0]);
        if !path.is_file() {
            // The error of a missing file.
            read(path)?;
        }
        let host = self.hosts.join("4uthority1");
        let torrc = Torrc::of_file(path, &WorkDir { host: &host, sample: self.folder })?;
        let list = |option: &str| {
            let all = torrc.value(&option.to_ascii_lowercase());
            let all = all.ok_or_else(|| Error::malformed(path, format!("no {option}")))?;
            let fingerprint =
                |entry: &str| entry.trim().trim_start_matches('$').to_ascii_uppercase();
            Ok::<BTreeSet<String>, Error>(all.split(',').map(fingerprint).collect())
        };
        Ok((list("TestingDirAuthVoteGuard")?, list("TestingDirAuthVoteExit")?))
    }

    /// The options of a host's tor.
    fn torrc(&self, host: &str, words: &[String]) -> Result<Torrc, Error> {
        let host = self.hosts.join(host);
        Torrc::of_process(words, &WorkDir { host: &host, sample: self.folder })
    }

    /// When a process's traffic begins.
    fn begins(&self, tgen: &Process, delay: Duration) -> Result<Duration, String> {
        Ok(tgen.start_time()?.saturating_sub(self.bootstrapped).saturating_add(delay))
    }

    /// A file that a process of a host names; if there is none, the one of this name in `conf/`.
    fn find(&self, host: &str, file: &str) -> PathBuf {
        let host = self.hosts.join(host);
        let named = WorkDir { host: &host, sample: self.folder }.find(file);
        if named.is_file() {
            return named;
        }
        let name = Path::new(file).file_name().unwrap_or_default();
        lexical(&self.folder.join("conf").join(name))
    }

    fn role(&mut self, host: &str, tor: &[String], tgen: &Process) -> Result<Role, Error> {
        let file = tgen.words().pop().unwrap_or_default();
        let path = self.find(host, &file);
        let is_onion = host.contains(ONION_SERVICE)
            || (!tor.is_empty() && self.torrc(host, tor)?.has("hiddenservicedir"));
        if is_onion {
            return Ok(Role::OnionService);
        }
        let is_benchmark = path.file_name().and_then(|file_name| file_name.to_str());
        let is_benchmark = is_benchmark.is_some_and(|name| name.starts_with(BENCHMARK));
        if !path.is_file() && !is_benchmark {
            return Ok(Role::Unknown);
        }
        Ok(match self.graph(&path)? {
            // A server with tor: it serves onion services, whatever its name.
            Read::Serves if !tor.is_empty() => Role::OnionService,
            Read::Serves => Role::Server,
            Read::OnionServices => Role::OnionService,
            Read::Downloads(fetch, delay) => Role::Benchmark(fetch, delay),
            Read::Traffic(files, delay) => {
                let files = [&files.flow, &files.stream, &files.packet];
                let files = files.map(|file| self.find(host, file));
                Role::Users(self.models(files)?, delay)
            }
        })
    }

    fn graph(&mut self, path: &Path) -> Result<Read, Error> {
        if let Some(read) = self.graphs.get(path) {
            return Ok(read.clone());
        }
        let actions = Actions::read(path)?;
        let asks_onion_services = actions.asks_onion_services();
        let read = match actions.doing {
            _ if asks_onion_services => Read::OnionServices,
            Doing::Serves => Read::Serves,
            Doing::Downloads(fetch) => Read::Downloads(Arc::new(fetch), actions.delay),
            Doing::Traffic(files) => Read::Traffic(files, actions.delay),
        };
        self.graphs.insert(path.into(), read.clone());
        Ok(read)
    }

    fn models(&mut self, files: [PathBuf; 3]) -> Result<Arc<Models>, Error> {
        if let Some(models) = self.models.get(&files) {
            return Ok(models.clone());
        }
        let models = Arc::new(models_of(&files)?);
        self.models.insert(files, models.clone());
        Ok(models)
    }

    /// If no host names them: those of `conf/`.
    fn default_models(&mut self) -> Result<Arc<Models>, Error> {
        let files = model_files(&self.folder.join("conf"))?;
        self.models(files)
    }
}

/// The nickname on tor's command line.
fn nickname(words: &[String]) -> Option<&String> {
    let is_it = |word: &String| word.trim_start_matches('-').eq_ignore_ascii_case("nickname");
    words.get(words.iter().position(is_it)? + 1)
}

/// Fingerprints and weights by nickname, which tornettools writes after the part that tor reads.
pub(crate) fn weights(path: &Path) -> Result<BTreeMap<String, (String, u64)>, Error> {
    let text = read(path)?;
    let mut all = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("node_id=")) {
        let value = |name: &str| {
            line.split_whitespace().find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let found = (|| {
            let fingerprint = value("node_id")?.trim_start_matches('$').to_ascii_uppercase();
            Some((value("nick")?.into(), (fingerprint, value("bw")?.parse().ok()?)))
        })();
        let problem = || format!("line {}: no node_id, bw or nick", number + 1);
        let (nick, relay) = found.ok_or_else(|| Error::malformed(path, problem()))?;
        all.insert(nick, relay);
    }
    Ok(all)
}

/// The files of the three models in a folder, by prefix.
fn model_files(folder: &Path) -> Result<[PathBuf; 3], Error> {
    let files = std::fs::read_dir(folder)
        .map_err(|source| Error::Read { path: folder.into(), source })?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let model = |begin: &str| {
        let of_kind = |path: &&PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(begin))
        };
        let missing = || Error::malformed(folder, format!("no file {begin}*"));
        files.iter().find(of_kind).cloned().ok_or_else(missing)
    };
    Ok([
        model("tgen.tor-flowmodel")?,
        model("tgen.tor-streammodel")?,
        model("tgen.tor-packetmodel")?,
    ])
}

/// The three models of a folder, by prefix.
///
/// # Errors
/// If one is missing or malformed.
pub fn read_models(folder: &Path) -> Result<Models, Error> {
    models_of(&model_files(folder)?)
}

fn models_of([flow, stream, packet]: &[PathBuf; 3]) -> Result<Models, Error> {
    Ok(Models {
        flow: read_paced_model(flow)?,
        stream: read_paced_model(stream)?,
        packet: read_model(packet)?,
    })
}
