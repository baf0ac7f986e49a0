//! `flashflow-lab model`: models of a network, and the performance directory that serves them to clients.

use crate::authorities::{Authorities, Known};
use crate::choosing::{read, read_model};
use clap::{Args, Subcommand};
use cli::Error;
use client::model::{self, DirectoryServer, Model, PATH};
use client::probe;
use control::keys::{PublicKey, SecretKey};
use dirmgr::LinkObservations;
use link::unix_time_s;
use netdoc::RsaId;
use netdoc::bwfile::BandwidthFile;
use netdoc::fetch::{Fetcher, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use terminal::{Exit, Interrupt, Output};

/// Interval of checks for an interrupt and for a changed file.
const STEP: Duration = Duration::from_millis(200);
/// Timeout of the bootstrap.
const PATIENCE: Duration = Duration::from_secs(120);

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A model.
    Model {
        /// When it was made.
        made_unix_s: u64,
        /// Its relays.
        relays: Vec<ModelRelay>,
        /// Its links.
        links: Vec<ModelLink>,
    },
    /// The performance directory accepts connections.
    Serving {
        /// Its address.
        address: SocketAddr,
        /// Its key, in base64.
        public_key: String,
    },
}

/// A relay of a model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelRelay {
    /// Its RSA identity.
    relay: String,
    /// Round trip from the prober to it as first hop.
    entry_rtt_ms: Option<f64>,
    /// Throughput, in 1,000 bytes a second.
    throughput_kb_s: Option<f64>,
    /// Circuits through it.
    circuits: u32,
    /// Circuits that failed.
    failed: u32,
    /// Weight of the strategy `latency`, 0 to 1.
    rtt_index: f64,
    /// Weight of the strategy `throughput`, 0 to 1.
    throughput_index: f64,
}

/// A link of a model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelLink {
    /// The RSA identities of its relays.
    between: [String; 2],
    /// Round trip.
    rtt_ms: Option<f64>,
    /// Throughput, in 1,000 bytes a second.
    throughput_kb_s: Option<f64>,
    /// Weight of the strategy `latency`, 0 to 1.
    rtt_index: f64,
}

/// Make, serve, fetch and show models of a network: measured round trips and throughputs of its links.
///
/// Clients choose paths by a model. A performance directory signs a model and serves it over HTTP. A client asks several directories
/// and takes the median of their values.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab probe --network /tmp/net --write-model model.gz
  flashflow-lab model show model.gz
  flashflow keys --out directory.key
  flashflow-lab model serve model.gz --key directory.key --listen 127.0.0.1:8080
  flashflow-lab model observe --network /tmp/net --out model.gz */link-observations
  flashflow-lab model fetch --from 127.0.0.1:8080=PUBLIC-KEY --own model.gz --out merged.gz

Exit status: 0 done; 1 failed, for instance because no directory has a valid signature; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct ModelOptions {
    #[command(subcommand)]
    pub(crate) action: ModelAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelAction {
    /// Make a model from the traffic that relays observed on their links.
    ///
    /// FlashFlow relays write files named `link-observations` if their configuration has `link_observations_every_s`. If the two
    /// relays of a link report different values, the smaller counts.
    #[command(override_usage = "flashflow-lab model observe [OPTIONS] --out <FILE> <FILES>...")]
    Observe {
        /// Files `link-observations`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        network: Authorities,
        /// Bandwidth file. The capacity of a relay in it bounds the throughput of its links. Relays without a measurement are left out.
        #[arg(long, value_name = "FILE")]
        bwfile: Option<PathBuf>,
        /// File for the model.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Show the contents of a model.
    Show {
        /// The model.
        file: PathBuf,
    },
    /// Sign a model and serve it over HTTP, until interrupted.
    ///
    /// When the file changes, the new model is served.
    Serve {
        /// The model.
        file: PathBuf,
        /// Key of the directory, made by `flashflow keys --out`.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Address to listen on. Anybody who can connect gets the model.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Fetch models from performance directories, and merge them with your own.
    Fetch {
        /// Directory and its public key; may be repeated. Values that are not in more than half of the valid models are left out.
        #[arg(long = "from", value_name = "ADDRESS:PORT=KEY", required = true)]
        from: Vec<Source>,
        /// Your own model, which overrides the others.
        #[arg(long, value_name = "FILE")]
        own: Option<PathBuf>,
        /// File for the merged model.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// A performance directory.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    address: SocketAddr,
    key: PublicKey,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, key) = text.split_once('=').ok_or("it is written ADDRESS:PORT=KEY")?;
        let address =
            address.parse().map_err(|_| format!("`{address}` is not an address and port"))?;
        let key = key.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { address, key })
    }
}

pub(crate) fn run(
    action: &ModelAction,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    match action {
        ModelAction::Show { file } => {
            let model = read_model(file)?;
            output.result(in_words(&model), || line(&model));
            Ok(Exit::Done)
        }
        ModelAction::Observe { files, network, bwfile, out } => {
            observe(files, network, bwfile.as_deref(), out, output, interrupt)
        }
        ModelAction::Serve { file, key, listen } => serve(file, key, *listen, output, interrupt),
        ModelAction::Fetch { from, own, out } => fetch(from, own.as_deref(), out, output),
    }
}

fn in_words(model: &Model) -> String {
    let rtts = model.links().values().filter_map(|link| link.rtt_ms).count();
    let rates = model.nodes().values().filter_map(|node| node.throughput_kb_s).count();
    let mut text = format!(
        "{} relays, {rates} with a throughput; {} links, {rtts} with a round trip",
        model.nodes().len(),
        model.links().len(),
    );
    for (pair, link) in model.links() {
        let [a, b] = pair.ends();
        let ms = link.rtt_ms.map_or("-".to_owned(), |rtt_ms| format!("{rtt_ms:.1} ms"));
        let kb_s = link
            .throughput_kb_s
            .map_or("-".to_owned(), |throughput_kb_s| format!("{throughput_kb_s:.0} kB/s"));
        text += &format!("\n  {a} {b} {ms} {kb_s}");
    }
    text
}

fn line(model: &Model) -> Line {
    let relay = |(relay, node): (&RsaId, &model::Node)| ModelRelay {
        relay: relay.to_string(),
        entry_rtt_ms: node.entry_rtt_ms,
        throughput_kb_s: node.throughput_kb_s,
        circuits: node.circuits,
        failed: node.failed,
        rtt_index: model.node_rtt_index(relay),
        throughput_index: model.node_throughput_index(relay),
    };
    let link = |(pair, link): (&model::Pair, &model::Link)| {
        let [a, b] = pair.ends();
        ModelLink {
            between: [a.to_string(), b.to_string()],
            rtt_ms: link.rtt_ms,
            throughput_kb_s: link.throughput_kb_s,
            rtt_index: model.rtt_index(&[(*a, *b)]),
        }
    };
    Line::Model {
        made_unix_s: model.made_unix_s(),
        relays: model.nodes().iter().map(relay).collect(),
        links: model.links().iter().map(link).collect(),
    }
}

fn serve(
    file: &Path,
    key: &Path,
    listen: SocketAddr,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let key = SecretKey::read(key)?;
    let problem = |source| Error::File { what: "serve", path: file.to_owned(), source };
    let modified = || fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
    let document = || model::sign(&read_model(file)?, &key.seed()).map_err(problem);
    let mut seen = modified();
    let server = DirectoryServer::start(listen, document()?).map_err(problem)?;
    let (address, public) = (server.address(), key.public().to_string());
    output.result(format!("{address}={public}"), || Line::Serving {
        address,
        public_key: public.to_string(),
    });
    let (_nobody, wait) = std::sync::mpsc::channel::<()>();
    while !interrupt.is_requested() {
        // Nothing is ever sent: this is a sleep.
        let _timeout = wait.recv_timeout(STEP);
        let now = modified();
        if now != seen {
            seen = now;
            match document() {
                Ok(document) => server.replace(document),
                Err(error) => output.step(format!("{error}; the previous model is still served")),
            }
        }
    }
    Ok(Exit::Done)
}

fn observe(
    files: &[PathBuf],
    network: &Authorities,
    bwfile: Option<&Path>,
    out: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let capacities = bwfile.map(read_bwfile).transpose()?;
    let folder = lab::TemporaryFolder::new()?;
    let Known { authorities, identities, directories } = network.find()?;
    output.doing("fetching the directory");
    let learnt = probe::learn(
        authorities,
        directories,
        identities,
        folder.path().join("network"),
        PATIENCE,
        |view| !view.relays().is_empty(),
        || interrupt.is_requested(),
    );
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    let view = learnt?;
    let find = |relay: &RsaId| Some(view.find(relay)?.hop.ids.ed25519?.0);
    let mut accounts = Vec::new();
    for path in files {
        let text = read(path, "read what a relay has seen:")?;
        match LinkObservations::verify(&text, find) {
            Ok(account) => accounts.push(account),
            Err(error) => output.step(format!("`{}`: {error}", path.display())),
        }
    }
    if accounts.is_empty() {
        return Err(Error::Failed("none of the files has valid observations of links".to_owned()));
    }
    let capacity = |relay: &RsaId| match &capacities {
        Some(known) => known.get(relay).copied(),
        None => Some(f64::INFINITY),
    };
    let model = model::of_links(&accounts, capacity, unix_time_s());
    write_model(&model, out)?;
    output.result(in_words(&model), || line(&model));
    Ok(Exit::Done)
}

/// The measured capacity of each relay in a bandwidth file, in kB/s.
fn read_bwfile(path: &Path) -> Result<BTreeMap<RsaId, f64>, Error> {
    let text = read(path, "read the bandwidth file")?;
    let wrong = |problem: String| Error::Config { path: path.to_owned(), problem };
    let parsed = BandwidthFile::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let measured = parsed.file.relays.into_iter().filter(|relay| !relay.unmeasured);
    Ok(measured.map(|measured| (measured.node_id, measured.bw_kb_s as f64)).collect())
}

fn write_model(model: &Model, out: &Path) -> Result<(), Error> {
    let problem = |source| Error::File { what: "write", path: out.to_owned(), source };
    fs::write(out, model::write(model).map_err(problem)?).map_err(problem)
}

fn fetch(from: &[Source], own: Option<&Path>, out: &Path, output: &Output) -> Result<Exit, Error> {
    let own = own.map(read_model).transpose()?;
    let (mut models, mut last) = (Vec::new(), None);
    for Source { address, key } in from {
        let found = Fetcher::default()
            .get(*address, &Resource::Path(PATH.to_owned()))
            .map_err(Error::from)
            .and_then(|document| {
                let from = format!("the performance directory at {address}");
                model::verify(&document, &key.0, unix_time_s())
                    .map_err(|error| Error::Failed(format!("{from}: {error}")))
            });
        match found {
            Ok(published) => models.push(published.model),
            Err(error) => {
                output.step(&error);
                last = Some(error);
            }
        }
    }
    if let (true, Some(error)) = (models.is_empty(), last) {
        return Err(error);
    }
    let merged = model::merge(own.as_ref(), &models);
    write_model(&merged, out)?;
    output.result(in_words(&merged), || line(&merged));
    Ok(Exit::Done)
}
