//! `flashflow-lab probe`: set-up times, round trips and throughput of circuits.

mod serving;
mod summary;

use crate::authorities::{Authorities, Known};
use crate::choosing::{Choosing, StrategyName};
use clap::Args;
use cli::Error;
use client::model::{self, Observations};
use client::path::{Need, PathRules, select_probe_path};
use client::probe::{self, ProbePlan, Probed, Subject};
use client::{NetDir, RelayInfo};
use link::unix_time_s;
use measurer::Consent;
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use schemars::JsonSchema;
use serde::Serialize;
use serving::ProbeAction;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use summary::Summary;
use terminal::{Exit, Interrupt, Output};

/// Timeout of the bootstrap.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measure the circuits of a network: set-up time of each hop, round-trip times, throughput and failures.
///
/// Circuits are built one at a time, with pauses. The round trip to a hop is the time that a BEGIN cell takes to an address that the
/// hop must refuse. The round trip of a link is the difference between those to its two relays. Downloads need the server
/// `flashflow-lab probe serve` at an address that exits reach. Relays are probed only on loopback or private addresses, or if they
/// have opted in.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "flashflow-lab probe [OPTIONS] <--authority ...|--network ...|--public>",
    after_help = "Examples:
  flashflow-lab lab up --dir /tmp/net --limits 0,0,0 --exits
  flashflow-lab probe --network /tmp/net --circuits 20
  flashflow-lab probe --network /tmp/net --hops 2,3,4 --write-model model.gz --json
  flashflow-lab client --network /tmp/net --strategy latency --model model.gz
  flashflow-lab probe serve --listen 127.0.0.1:8080 &
  flashflow-lab probe --network /tmp/net --server 127.0.0.1:8080 --bytes 400000
  flashflow-lab probe --network /tmp/net --rounds 1 --circuits 42000 --pause-ms 2000 --json >> probes.jsonl
  flashflow bwfile explain --probes probes.jsonl

With --json, one line of `type` circuit for each circuit, and a last one of `type` summary.

Exit status: 0 at least one circuit was measured; 1 none, or a file cannot be used; 2 wrong arguments; 130 interrupted."
)]
pub(crate) struct ProbeOptions {
    #[command(subcommand)]
    action: Option<ProbeAction>,
    #[command(flatten)]
    authorities: Authorities,
    /// Lengths of circuits, in hops.
    #[arg(long, value_name = "HOPS,...", value_delimiter = ',', default_values_t = [3], value_parser = clap::value_parser!(u8).range(1..=8))]
    hops: Vec<u8>,
    /// Number of circuits of each length.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    circuits: u32,
    /// Number of round trips to each hop of a circuit.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Pause between round trips on a circuit, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    gap_ms: u64,
    /// Pause between circuits, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pause_ms: u64,
    /// Destination that every relay refuses.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1")]
    refused: SocketAddr,
    /// Address of `flashflow-lab probe serve`, for a download over each circuit.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "bytes")]
    server: Option<SocketAddr>,
    /// Size of the download over each circuit, in bytes.
    #[arg(long, value_name = "BYTES", requires = "server", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: Option<u64>,
    /// Strategy that chooses relays. The first hop is chosen separately for each circuit.
    #[arg(long, value_enum, default_value = "uniform")]
    strategy: StrategyName,
    #[command(flatten)]
    choosing: Choosing,
    /// Never use two relays of one /16 (IPv4) or /32 (IPv6) network in a path. Always set with --public.
    #[arg(long)]
    distinct_subnets: bool,
    /// File with fingerprints of relays that have opted in, one per line.
    #[arg(long, value_name = "FILE")]
    opt_in: Option<PathBuf>,
    /// Write a model to this file, for the strategies latency and throughput.
    #[arg(long, value_name = "FILE")]
    write_model: Option<PathBuf>,
    /// Seed of the path selection. By default a random one.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(
    options: &ProbeOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    if let Some(action) = &options.action {
        return serving::run(action, output, interrupt);
    }
    interrupt.wind_up_in_order();
    let Known { authorities, identities, directories } = options.authorities.find()?;
    let consent = match &options.opt_in {
        Some(list) => measurer::read_opt_in(Consent::local_only(), list)?,
        None => Consent::local_only(),
    };
    let folder = lab::TemporaryFolder::new()?;
    output.doing("fetching the directory");
    let is_enough = |view: &NetDir| !view.relays().is_empty();
    let learnt = probe::learn(
        authorities.clone(),
        directories,
        identities,
        folder.path().join("probe"),
        PATIENCE,
        is_enough,
        || interrupt.is_requested(),
    );
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    let view = learnt?;
    let whole = view.relays().len();
    let view = view.only(|relay| has_consented(&consent, relay));
    if view.relays().is_empty() {
        let relay = "none of them is on a loopback or private address, or on the list --opt-in";
        return Err(Error::Failed(format!("of {whole} relays, {relay}")));
    }
    let subjects = options.subjects(&view, &authorities)?;
    let plan = ProbePlan {
        rounds: usize::try_from(options.rounds).unwrap_or(usize::MAX),
        gap: Duration::from_millis(options.gap_ms),
        pause: Duration::from_millis(options.pause_ms),
        refused: options.refused,
        download: options.server.zip(options.bytes),
        ..ProbePlan::default()
    };
    let (mut all, mut seen) = (Vec::new(), Observations::default());
    output.doing(format!("probing {} circuits", subjects.len()));
    let each = |probed: Probed| {
        output.result(in_words(&view, &probed), || line(&probed));
        seen.add(&probed.observed());
        all.push(probed);
        true
    };
    probe::run(plan, subjects, &view, each, || interrupt.is_requested())?;
    output.quiet();
    let model = seen.model(unix_time_s());
    if let Some(path) = &options.write_model {
        let file = |source| Error::File { what: "write the model", path: path.clone(), source };
        let packed = model::write(&model).map_err(file)?;
        fs::write(path, packed).map_err(file)?;
    }
    let summary: Vec<Summary> = options.hops.iter().map(|hops| Summary::new(*hops, &all)).collect();
    let text: Vec<String> = summary.iter().map(Summary::in_words).collect();
    let links = model.links().values().filter(|link| link.rtt_ms.is_some()).count();
    let text = format!("{}\n{links} links with a round trip", text.join("\n"));
    output.result(text, || Line::Summary { circuits: all.len(), links, lengths: summary });
    Ok(if interrupt.is_requested() {
        Exit::Interrupted
    } else if all.iter().any(|probed| probed.setup().is_some()) {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn has_consented(consent: &Consent, relay: &RelayInfo) -> bool {
    let (relay, address) = (relay.fingerprint, IpAddr::V4(relay.address));
    consent.check(relay, address, unix_time_s()).is_ok()
}

impl ProbeOptions {
    fn subjects(&self, view: &NetDir, authorities: &[SocketAddr]) -> Result<Vec<Subject>, Error> {
        let mut rng = match self.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => StdRng::try_from_rng(&mut SysRng)
                .map_err(|error| Error::Random(error.to_string()))?,
        };
        let need =
            self.server.map(|server| Need::Port { port: server.port(), is_ipv6: server.is_ipv6() });
        let rules =
            PathRules { distinct_subnets: self.distinct_subnets || self.authorities.public };
        let mut subjects = Vec::new();
        for hops in self.hops.iter().copied().map(usize::from) {
            let strategy = self.choosing.strategy(self.strategy, hops, authorities)?;
            for _ in 0..self.circuits {
                let path = select_probe_path(view, &*strategy, rules, need, hops, &mut rng);
                let path = path.map_err(|error| {
                    Error::Failed(format!("no path of {hops} hops can be chosen: {error}"))
                })?;
                subjects.push(Subject::new(&path));
            }
        }
        Ok(subjects)
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn in_words(view: &NetDir, probed: &Probed) -> String {
    let name = |fingerprint| view.find(fingerprint).map_or("?", |relay| relay.nickname.as_str());
    let path: Vec<&str> = probed.path.iter().map(name).collect();
    let mut text = path.join(" > ");
    if let Some(setup) = probed.setup() {
        text += &format!(": set up in {} ms", ms(setup));
    }
    if let Some(rtt) = probed.mean_rtt() {
        text += &format!(", round trip {} ms", ms(rtt));
    }
    if let Some(kb_s) = probed.throughput_kb_s {
        text += &format!(", {kb_s:.0} kB/s");
    }
    if let Some(failure) = &probed.failure {
        text += &format!(": failed: {failure}");
    }
    text
}

fn line(probed: &Probed) -> Line {
    let all = |times: &[Duration]| times.iter().copied().map(ms).collect::<Vec<f64>>();
    Line::Circuit {
        ended_unix_s: unix_time_s(),
        took_ms: ms(probed.took),
        path: probed.path.iter().map(ToString::to_string).collect(),
        link_ms: ms(probed.link_time),
        hop_ms: all(&probed.hop_times),
        setup_ms: probed.setup().map(ms),
        rtt_ms: probed.rtts.iter().map(|of_hop| all(of_hop)).collect(),
        throughput_kb_s: probed.throughput_kb_s,
        failure: probed.failure.clone(),
    }
}

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A circuit.
    Circuit {
        /// When its result was known, in Unix seconds.
        ended_unix_s: u64,
        /// Time from its start until then.
        took_ms: f64,
        /// The RSA identities of its relays, first hop first.
        path: Vec<String>,
        /// Time to open the link to the first hop.
        link_ms: f64,
        /// Time from the first cell to the answer of each hop.
        hop_ms: Vec<f64>,
        /// Time until it was built; `None` if it was not.
        setup_ms: Option<f64>,
        /// Round trips to each hop.
        rtt_ms: Vec<Vec<f64>>,
        /// Throughput of the download, in 1,000 bytes a second.
        throughput_kb_s: Option<f64>,
        /// Why a result is missing or incomplete.
        failure: Option<String>,
    },
    /// All circuits, last.
    Summary {
        /// Their number.
        circuits: usize,
        /// Links with a round trip.
        links: usize,
        /// The circuits of each length.
        lengths: Vec<Summary>,
    },
    /// The server of downloads accepts connections.
    Serving {
        /// Its address.
        address: SocketAddr,
    },
}
