//! `flashflow-lab experiment selection`: path selection strategies, and the performance of circuits (Panchenko et al., tables I to V,
//! figures 4 to 7).

mod claims;
mod judge;
mod links;
mod network;
mod pages;
mod parallel;
mod scene;
mod simulated;
mod statistics;
mod strategies;
mod survey;
mod tables;
mod users;
mod virtual_time;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, Row, Undivided};
use crate::reporting::{claim_holds, list, parameter, rule};
use crate::simulated::SimulatedOptions;
use clap::Args;
use client::NetDir;
use client::model::{Model, Observations};
use client::path::{Need, PathRules, select_probe_path};
use client::probe::{ProbePlan, Probed, Subject};
use lab::processors::{Load, Reading};
use link::{Clock, unix_time_s};
use network::SelectionNetwork;
use onion::Duration;
use pages::{PageClients, PageResults};
use rand::SeedableRng;
use rand::rngs::StdRng;
use report::experiment::{ExperimentReport, Promise};
use std::sync::Arc;
use strategies::NamedStrategy;
use users::{UserDownloads, Users};

/// How much faster are circuits of different path selection strategies, and how much anonymity do they cost?
///
/// C tor relays of unequal rates form a private network, with the distances of three continents if namespaces are available (root), else
/// on loopback. First, without other users, the round trips of links are measured and compared with the configured ones. Then users start:
/// clients that always download over uniformly chosen paths, so that slow relays are overloaded. Uniformly chosen circuits train a model
/// of relays and links. Then each strategy builds the same number of circuits, in turn, and their set-up time, round trip and throughput are
/// measured. Finally, headers of pages are fetched with C tor, with our client, and directly. Entropies and shares of compromised paths
/// are computed. With --simulated, clients measure circuits at the paper's samples among 96 simulated relays in virtual time. With --network, all clients of a simulated network choose relays by different weights instead; simulation.md (in the
/// documentation) describes such networks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment selection --quick --json --out results
  flashflow-lab experiment selection --simulated --json
  flashflow-lab experiment selection --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

The claim holds if at least one comparison agrees with the paper beyond chance, and none contradicts it: weighted paths are set up faster
than uniform ones, answer faster and have a higher throughput; set-up and round trip are correlated, and throughput falls with both; paths
chosen by measured latency have shorter round trips than uniform ones, and paths within one country than paths across continents; each
link's round trip is within 10 % of the truth. The last three need root. Without users (--users 0), set-up and round trips of weighted
paths are not judged.")]
pub(super) struct Options {
    /// Circuits of each strategy; 60 by default, 6 if --quick; with --simulated 600, or 40 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    circuits: Option<u32>,
    /// Circuits that train the model; 120 by default, 24 if --quick; with --simulated 330, or 40 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    learning: Option<u32>,
    /// Circuits of two hops and of four hops, for tables I and II; by default the number of circuits of each strategy.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lengths: Option<u32>,
    /// Size of each download in bytes; 200,000 by default, 400,000 without users; 100,000 with --simulated.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    bytes: Option<u64>,
    /// Number of users, who always download over uniformly chosen paths; 20 by default: slow relays are overloaded as in the paper. With
    /// --simulated 400, who download at intervals over paths chosen by the rule of 2007.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=2000))]
    users: Option<u32>,
    /// Strategies to compare; all by default. Table III needs uniform and weighted.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = strategies::NAMES)]
    strategies: Vec<String>,
    /// Run everything on loopback, without distances.
    #[arg(long)]
    flat: bool,
    /// Simulate everything in virtual time.
    #[arg(long = "simulated", conflicts_with_all = ["flat", "strategies", "network"])]
    is_simulated: bool,
    /// Seed of the paths.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

/// All measurements of the experiment.
struct Measurements {
    /// The model of links that was trained without users, and the load of the machine meanwhile; `None` without distances.
    idle_links: Option<(Model, Load)>,
    /// The downloads of users, if there were any.
    user_downloads: Option<UserDownloads>,
    /// The size of each probe's download.
    bytes: u64,
    learning: Vec<Probed>,
    lengths: Vec<Probed>,
    strategies: Vec<(NamedStrategy, Vec<Probed>)>,
    /// Headers of pages; empty without distances.
    pages: Vec<PageResults>,
}

/// The number of parallel probers where others use the network, too. It has no common divisor with the number of strategies, so that each
/// prober probes all strategies.
const PROBERS: usize = 7;

/// All relays may be on one machine.
const RULES: PathRules = PathRules { distinct_subnets: false };

/// Not divided: strategies choose by a model of the relays of one network, and all phases share its users.
struct Selection<'o> {
    options: &'o Options,
    circuits: u32,
    learning: u32,
    /// Circuits of two hops, and of four.
    lengths: u32,
    bytes: u64,
    users: u32,
    is_flat: bool,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    if let Some(path) = &options.simulated.network {
        return simulated::run(&options.simulated, path, session);
    }
    if options.is_simulated {
        return virtual_time::run(options, session);
    }
    let circuits = session.or(options.circuits, 6, 60);
    let users = options.users.unwrap_or(20);
    let selection = Selection {
        options,
        circuits,
        lengths: options.lengths.unwrap_or(circuits),
        learning: session.or(options.learning, 24, 120),
        bytes: options.bytes.unwrap_or(if users == 0 { 400_000 } else { 200_000 }),
        users,
        is_flat: options.flat || link::Namespace::new().is_err(),
    };
    grid::run_whole(&selection, session)
}

impl Undivided for Selection<'_> {
    const NAME: &'static str = "selection";
    const TEXT: &'static str = judge::TEXT;

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("circuits of each strategy", self.circuits),
            parameter("circuits to learn from", self.learning),
            parameter("circuits of two and of four hops", self.lengths),
            parameter("strategies", list(&self.options.strategies)),
            parameter("a download", format!("{} bytes", self.bytes)),
            parameter("users", self.users),
            parameter(
                "distances",
                if self.is_flat { "none: loopback" } else { "three continents" },
            ),
            parameter("relays", network::description()),
            parameter("seed", self.options.seed),
        ]
    }

    fn run(&self, session: Session<'_>) -> Result<Option<Row>> {
        measure(self, session)
    }

    fn conclude(&self, row: &Row, report: &mut ExperimentReport) {
        report.answer = judge::answer(report);
        report.promise = Promise::Decided {
            held: !row.is_temporary && claim_holds(&report.cases),
            rule: rule(Self::TEXT),
        };
    }
}

fn measure(selection: &Selection<'_>, session: Session<'_>) -> Result<Option<Row>> {
    let Session { output, interrupt, .. } = session;
    let Selection { options, circuits, learning, lengths, bytes, users: user_count, is_flat } =
        *selection;
    let network = SelectionNetwork::start(is_flat, options.seed, output)?;
    if interrupt.is_requested() {
        return Ok(None);
    }
    let mut rng = StdRng::seed_from_u64(options.seed);
    let plan = ProbePlan {
        rounds: session.or(None, 5, 10),
        gap: Duration::from_millis(10),
        pause: Duration::from_millis(20),
        download: Some((network.server(), bytes)),
        // Relays are slow here: only a transfer without progress fails.
        answer_max: Duration::from_secs(30),
        download_max: Duration::from_secs(300),
        ..ProbePlan::default()
    };
    let view = network.view();
    let probers = if user_count == 0 { 1 } else { PROBERS };
    let probe = |subjects: Vec<Subject>, plan: &ProbePlan, (what, probers): (&str, usize)| {
        let total = subjects.len();
        let done = |count: usize| {
            if count.is_multiple_of(10) || count == total {
                output.step(format!("{what}: {count} circuits of {total}"));
            }
        };
        parallel::probe(plan, subjects, view, probers, done, || interrupt.is_requested())
    };
    let probed = |all: Vec<(usize, Probed)>| all.into_iter().map(|(_, probed)| probed).collect();
    let clock = Clock::start();
    let reading = || Reading::take(std::process::id(), clock.now());
    // Set-up and round trips without downloads.
    let bare = ProbePlan { download: None, ..plan };
    let mut idle_links = None;
    if !is_flat {
        let before = reading();
        let subjects = links::covering(view, learning, &mut rng)?;
        let all: Vec<Probed> = probed(probe(subjects, &bare, ("links", PROBERS))?);
        idle_links = Some((model(&all, unix_time_s()), reading().since(&before)));
    }
    let page_clients = if is_flat { None } else { Some(PageClients::start(&network)?) };
    let users = match user_count {
        0 => None,
        count => {
            output.step(format!("{count} users begin"));
            Some(Users::start(&network, count, options.seed, || interrupt.is_requested())?)
        }
    };
    // Under load a round trip takes seconds, so half of the rounds must do.
    let rounds = if user_count == 0 { plan.rounds } else { plan.rounds.div_ceil(2) };
    let training = ProbePlan { rounds, ..plan };
    let subjects = uniform(view, 3, learning, &mut rng)?;
    let learning: Vec<Probed> = probed(probe(subjects, &training, ("learning", probers))?);
    let model = Arc::new(model(&learning, unix_time_s()));
    let mut subjects = uniform(view, 2, lengths, &mut rng)?;
    subjects.extend(uniform(view, 4, lengths, &mut rng)?);
    let last_hop = ProbePlan { only_last: true, ..bare };
    let lengths = probed(probe(subjects, &last_hop, ("lengths", probers))?);
    let mut strategies = NamedStrategy::all(&network, &model)?;
    strategies.retain(|strategy| {
        options.strategies.is_empty() || options.strategies.iter().any(|name| name == strategy.name)
    });
    if strategies.is_empty() {
        return Err(Error::Usage(
            "--strategies: without distances there is no geography; give others".to_owned(),
        ));
    }
    // The strategies take turns, so that other load on this machine affects all of them equally.
    let mut subjects = Vec::new();
    for _ in 0..circuits {
        for strategy in &strategies {
            let need = Some(Need::Port { port: network.server().port(), is_ipv6: false });
            let path = select_probe_path(view, &*strategy.strategy, RULES, need, 3, &mut rng);
            let path =
                path.map_err(|error| Error::Failed(format!("{}: {error}", strategy.name)))?;
            subjects.push(Subject::new(&path));
        }
    }
    let plan = ProbePlan { only_last: true, ..plan };
    let before = reading();
    let all = probe(subjects, &plan, ("strategies", probers))?;
    let load = reading().since(&before);
    let mut pages = Vec::new();
    if let Some(clients) = page_clients {
        output.step("headers of pages: with tor, with our client, and directly");
        pages = clients.fetch(circuits as usize, || interrupt.is_requested())?;
    }
    let user_downloads = users.map(Users::stop).transpose()?;
    let count = strategies.len();
    let strategies = strategies.into_iter().map(|strategy| (strategy, Vec::new())).collect();
    let mut measurements =
        Measurements { idle_links, user_downloads, bytes, learning, lengths, strategies, pages };
    for (place, probed) in all {
        measurements.strategies[place % count].1.push(probed);
    }
    let row = Row {
        cases: judge::cases(&measurements, &network, &mut rng)?,
        figures: judge::figures(&measurements),
        notes: judge::notes(is_flat, user_count, load),
        is_temporary: interrupt.is_requested(),
        ..Row::default()
    };
    network.stop()?;
    Ok(Some(row))
}

/// The model trained by these circuits.
fn model(probed: &[Probed], made_unix_s: u64) -> Model {
    let mut observations = Observations::default();
    probed.iter().for_each(|probed| observations.add(&probed.observed()));
    observations.model(made_unix_s)
}

/// Draws uniformly chosen paths.
fn uniform(view: &NetDir, hops: usize, count: u32, rng: &mut StdRng) -> Result<Vec<Subject>> {
    let draw = |_| {
        let need = Some(Need::Lookup);
        let path = select_probe_path(view, &client::strategy::Uniform, RULES, need, hops, rng);
        let path = path.map_err(|error| Error::Failed(format!("uniform: {error}")))?;
        Ok(Subject::new(&path))
    };
    (0..count).map(draw).collect()
}
