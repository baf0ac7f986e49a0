//! `flashflow-lab probe`: what circuits of a network cost.

mod serving;
mod summary;

use crate::authorities::{Authorities, Known};
use crate::choosing::{Choosing, StrategyName};
use clap::Args;
use cli::Error;
use client::model::{self, Observations};
use client::path::{Need, Rules, draw_path};
use client::probe::{self, ProbePlan, Probed, Subject};
use client::{RelayInfo, View};
use link::unix_time_s;
use measurer::Consent;
use onion::Duration;
use onion::identity::RsaId;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use serde_json::{Value, json};
use serving::ProbeAction;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use summary::Summary;
use terminal::{Exit, Interrupt, Output};

/// How long to wait for a network to be known.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measure what circuits of a network cost: how long each hop takes to set up, round trips to each hop and so of each link,
/// throughput, failures.
///
/// One circuit at a time, with pauses. A round trip is that of a BEGIN to an address that the hop must refuse, sent to each hop of the
/// circuit in turn; that of a link is the difference between its ends. A download needs a server of ours behind the exits (`flashflow-lab probe serve`).
/// Relays are probed that are on loopback or private addresses, and those that have opted in.
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

With --json: one line a circuit, `type` circuit, and at the end one, `type` summary.

Exit status: 0 at least one circuit was measured; 1 none, or a file cannot be used; 2 wrong arguments; 130 interrupted."
)]
pub(crate) struct ProbeOptions {
    #[command(subcommand)]
    action: Option<ProbeAction>,
    #[command(flatten)]
    authorities: Authorities,
    /// Hops of circuits, with commas between: as many circuits of each.
    #[arg(long, value_name = "HOPS,...", value_delimiter = ',', default_values_t = [3], value_parser = clap::value_parser!(u8).range(1..=8))]
    hops: Vec<u8>,
    /// Circuits of each number of hops.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    circuits: u32,
    /// Round trips to each hop of a circuit.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Pause between two questions on a circuit.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    gap_ms: u64,
    /// Pause between two circuits.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pause_ms: u64,
    /// What no relay lets a stream reach.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1")]
    refused: SocketAddr,
    /// A server to download from at the end of each circuit, of the kind that `flashflow-lab probe serve` is.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "bytes")]
    server: Option<SocketAddr>,
    /// How much to download on each circuit.
    #[arg(long, value_name = "BYTES", requires = "server", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: Option<u64>,
    /// How relays are chosen; the first hop is drawn anew for each circuit.
    #[arg(long, value_enum, default_value = "uniform")]
    strategy: StrategyName,
    #[command(flatten)]
    choosing: Choosing,
    /// No two relays of a path in one network of 16 bits (IPv4) or 32 bits (IPv6). Always so with --public.
    #[arg(long)]
    distinct_subnets: bool,
    /// Relays that have opted in, a fingerprint a line.
    #[arg(long, value_name = "FILE")]
    opt_in: Option<PathBuf>,
    /// Write what was learnt into this file, for the strategies latency and throughput.
    #[arg(long, value_name = "FILE")]
    write_model: Option<PathBuf>,
    /// Draws the paths; by default another each time.
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
        Some(list) => Consent::local_only().with_list(list)?,
        None => Consent::local_only(),
    };
    let folder = lab::TemporaryFolder::new()?;
    output.doing("learning of the network");
    let is_enough = |view: &View| !view.relays().is_empty();
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
        return Err(Error::Failed(format!("{whole} relays, and {relay}: nothing is probed")));
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
        output.result(told(&view, &probed), || value(&probed));
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
    let summary: Vec<Summary> = options.hops.iter().map(|hops| Summary::of(*hops, &all)).collect();
    let text: Vec<String> = summary.iter().map(Summary::told).collect();
    let links = model.links().values().filter(|link| link.rtt_ms.is_some()).count();
    let text = format!("{}\n{links} links with a round trip", text.join("\n"));
    output.result(text, || {
        let lengths: Vec<Value> = summary.iter().map(Summary::value).collect();
        json!({"type": "summary", "circuits": all.len(), "links": links, "lengths": lengths})
    });
    Ok(if interrupt.is_requested() {
        Exit::Interrupted
    } else if all.iter().any(|it| it.setup().is_some()) {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn has_consented(consent: &Consent, relay: &RelayInfo) -> bool {
    consent.check(RsaId(*relay.fingerprint.as_bytes()), IpAddr::V4(relay.address)).is_ok()
}

impl ProbeOptions {
    fn subjects(&self, view: &View, authorities: &[SocketAddr]) -> Result<Vec<Subject>, Error> {
        let mut rng = match self.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => {
                StdRng::try_from_rng(&mut SysRng).map_err(|it| Error::Random(it.to_string()))?
            }
        };
        let need = self.server.map(|it| Need::Port { port: it.port(), is_ipv6: it.is_ipv6() });
        let rules = Rules { distinct_subnets: self.distinct_subnets || self.authorities.public };
        let mut subjects = Vec::new();
        for hops in self.hops.iter().copied().map(usize::from) {
            let strategy = self.choosing.strategy(self.strategy, hops, authorities)?;
            for _ in 0..self.circuits {
                let path = draw_path(view, &*strategy, rules, need, hops, &mut rng);
                let path = path.map_err(|it| {
                    Error::Failed(format!("no path of {hops} hops can be chosen: {it}"))
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

fn told(view: &View, probed: &Probed) -> String {
    let name = |it| view.find(it).map_or("?", |relay| relay.nickname.as_str());
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

fn value(probed: &Probed) -> Value {
    let all = |times: &[Duration]| times.iter().copied().map(ms).collect::<Vec<f64>>();
    json!({
        "type": "circuit", "path": probed.path, "link_ms": ms(probed.link_time),
        "hop_ms": all(&probed.hop_times), "setup_ms": probed.setup().map(ms),
        "rtt_ms": probed.rtts.iter().map(|of_hop| all(of_hop)).collect::<Vec<_>>(),
        "throughput_kb_s": probed.throughput_kb_s, "failure": probed.failure,
    })
}
