//! `flashflow-lab experiment selection`: ways of choosing paths, and what circuits cost (Panchenko et al., tables I to V, figures 4 to 7).

mod claims;
mod correlation;
mod judge;
mod lanes;
mod network;
mod pages;
mod quiet;
mod scene;
mod users;
mod ways;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{claim_holds, parameter, print_case, report, rule};
use crate::simulated::SimulatedOptions;
use clap::Args;
use client::NetDir;
use client::model::{Model, Observations};
use client::path::{Need, PathRules, select_probe_path};
use client::probe::{ProbePlan, Probed, Subject};
use lab::processors::{Load, Reading};
use link::{Clock, unix_time_s};
use onion::Duration;
use pages::{Fetched, Readers};
use rand::SeedableRng;
use rand::rngs::StdRng;
use report::experiment::{ExperimentReport, Promise};
use scene::SelectionNetwork;
use std::sync::Arc;
use users::{Used, Users};
use ways::NamedStrategy;

/// What do ways of choosing paths gain, and what do they cost in anonymity?
///
/// A private network of stock relays of unequal rates, on three continents with real distances if namespaces can be had (root), else on
/// loopback. First, without other users, links' round trips are probed and compared with the configured ones. Then users start: clients that
/// always download on paths that they choose uniformly, so that slow relays are overloaded. Meanwhile circuits that are
/// chosen uniformly train a model of relays and links; then each strategy gets the same number of circuits, in turn: our prober measures their time to set up, round trip and
/// throughput. Finally headers of pages are fetched with C tor, with our client, and without either. Entropies and shares of compromised paths are computed. With --network all clients of a simulated network choose by weights
/// instead: see simulation.md (in the documentation) for such networks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment selection --quick --json --out results
  flashflow-lab experiment selection --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

It has held if no comparison has come out the other way, and one at least this way, beyond what chance can do: weighted paths are set up sooner than uniform ones, answer sooner and have more throughput; set-up and round trip go together, and throughput
falls with both; paths chosen by measured latency have a smaller round trip than uniform ones, and all within one country than across continents; each link's round trip is within 10 % of the truth. The last three need root. Without users
(--users 0) set-up and round trips of weighted paths are not judged.")]
pub(super) struct Options {
    /// Circuits of each strategy; 60 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    circuits: Option<u32>,
    /// Circuits to learn from; 120 by default, 24 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    learning: Option<u32>,
    /// Circuits of two and of four hops each, for tables I and II; as many as of each strategy by default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lengths: Option<u32>,
    /// Bytes of each download; 200,000 by default, 400,000 without users.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    bytes: Option<u64>,
    /// Users, who download all the time on paths that they choose uniformly. With 20, slow relays are overloaded as in the paper; with 0 nobody
    /// else uses the network.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=500))]
    users: u32,
    /// The strategies that are compared; all by default. Table III needs uniform and weighted.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = ways::NAMES)]
    strategies: Vec<String>,
    /// Everything on loopback, without distances.
    #[arg(long)]
    flat: bool,
    /// Draws the paths.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

/// What was probed, in order, and by which way.
struct Course {
    /// What was learned of links before users came, and how busy the machine was; nothing without distances.
    quiet: Option<(Model, Load)>,
    /// What users had, if there were any.
    used: Option<Used>,
    /// Of each download that was probed.
    bytes: u64,
    learning: Vec<Probed>,
    lengths: Vec<Probed>,
    ways: Vec<(NamedStrategy, Vec<Probed>)>,
    /// Headers of pages; nothing without distances.
    pages: Vec<Fetched>,
}

/// Probers side by side, where others use the network, too. No divisor is in common with the number of strategies, so that each prober meets all.
const LANES: usize = 7;

const TEXT: &str = include_str!("../../../docs/experiments/selection.md");

/// All may be on one machine.
const RULES: PathRules = PathRules { distinct_subnets: false };

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    if let Some(path) = &options.simulated.network {
        return network::run(&options.simulated, path, session);
    }
    let count = |asked: Option<u32>, quick, all| {
        asked.unwrap_or(if session.common.quick { quick } else { all })
    };
    let circuits = count(options.circuits, 6, 60);
    let learning = count(options.learning, 24, 120);
    let bytes = options.bytes.unwrap_or(if options.users == 0 { 400_000 } else { 200_000 });
    let is_flat = options.flat || link::Namespace::new().is_err();
    let mut report = ExperimentReport {
        parameters: vec![
            parameter("circuits of each strategy", circuits),
            parameter("circuits to learn from", learning),
            parameter("a download", format!("{bytes} bytes")),
            parameter("users", options.users),
            parameter(
                "distances",
                if is_flat { "none: loopback" } else { "three continents" }.to_owned(),
            ),
            parameter("relays", scene::described()),
            parameter("seed", options.seed.to_string()),
        ],
        ..report("selection", TEXT)
    };
    let scene = SelectionNetwork::start(is_flat, options.seed, output)?;
    if interrupt.is_requested() {
        return Ok(report);
    }
    let mut rng = StdRng::seed_from_u64(options.seed);
    let plan = ProbePlan {
        rounds: if session.common.quick { 5 } else { 10 },
        gap: Duration::from_millis(10),
        pause: Duration::from_millis(20),
        download: Some((scene.server(), bytes)),
        // Relays are slow here; only a transfer without progress is given up.
        answer_max: Duration::from_secs(30),
        download_max: Duration::from_secs(300),
        ..ProbePlan::default()
    };
    let view = scene.view();
    let lanes = if options.users == 0 { 1 } else { LANES };
    let play = |subjects: Vec<Subject>, plan: &ProbePlan, (what, lanes): (&str, usize)| {
        let whole = subjects.len();
        let done = |count: usize| {
            if count.is_multiple_of(10) || count == whole {
                output.step(format!("{what}: {count} circuits of {whole}"));
            }
        };
        lanes::play(plan, subjects, view, lanes, done, || interrupt.is_requested())
    };
    let probed = |played: Vec<(usize, Probed)>| played.into_iter().map(|it| it.1).collect();
    let clock = Clock::start();
    let reading = || Reading::take(std::process::id(), clock.now());
    // Set-up and round trips alone, without downloads.
    let bare = ProbePlan { download: None, ..plan };
    // Where round trips are seconds, a few to each hop must do.
    let rounds = if options.users == 0 { plan.rounds } else { plan.rounds.div_ceil(2) };
    let taught = ProbePlan { rounds, ..plan };
    let mut quiet = None;
    if !is_flat {
        let before = reading();
        let subjects = quiet::covering(view, learning, &mut rng)?;
        let all: Vec<Probed> = probed(play(subjects, &bare, ("links", LANES))?);
        quiet = Some((model(&all), reading().since(&before)));
    }
    let readers = if is_flat { None } else { Some(Readers::start(&scene)?) };
    let users = match options.users {
        0 => None,
        count => {
            output.step(format!("{count} users begin"));
            Some(Users::start(&scene, count, options.seed, || interrupt.is_requested())?)
        }
    };
    let subjects = uniform(view, 3, learning, &mut rng)?;
    let learning: Vec<Probed> = probed(play(subjects, &taught, ("learning", lanes))?);
    let model = Arc::new(model(&learning));
    let of_each_length = options.lengths.unwrap_or(circuits);
    let mut subjects = uniform(view, 2, of_each_length, &mut rng)?;
    subjects.extend(uniform(view, 4, of_each_length, &mut rng)?);
    let of_last = ProbePlan { only_last: true, ..bare };
    let lengths = probed(play(subjects, &of_last, ("lengths", lanes))?);
    // One of each in turn: what else goes on on this machine meets all alike.
    let mut ways = NamedStrategy::all(&scene, &model)?;
    ways.retain(|it| {
        options.strategies.is_empty() || options.strategies.iter().any(|name| name == it.name)
    });
    if ways.is_empty() {
        return Err(Error::Usage(
            "--strategies: without distances there is no geography; give others".to_owned(),
        ));
    }
    let mut subjects = Vec::new();
    for _ in 0..circuits {
        for way in &ways {
            let need = Some(Need::Port { port: scene.server().port(), is_ipv6: false });
            let path = select_probe_path(view, &*way.strategy, RULES, need, 3, &mut rng);
            let path = path.map_err(|it| Error::Failed(format!("{}: {it}", way.name)))?;
            subjects.push(Subject::new(&path));
        }
    }
    let plan = ProbePlan { only_last: true, ..plan };
    let before = reading();
    let played = play(subjects, &plan, ("strategies", lanes))?;
    let load = reading().since(&before);
    let mut pages = Vec::new();
    if let Some(readers) = readers {
        output.step("headers of pages: with tor, with our client, and without either");
        pages = readers.fetch(circuits as usize, || interrupt.is_requested())?;
    }
    let used = users.map(Users::stop).transpose()?;
    let names = ways.len();
    let ways = ways.into_iter().map(|way| (way, Vec::new())).collect();
    let mut course = Course { quiet, used, bytes, learning, lengths, ways, pages };
    for (place, probed) in played {
        course.ways[place % names].1.push(probed);
    }
    report.cases = judge::cases(&course, &scene, &mut rng)?;
    report.cases.iter().for_each(|case| print_case(case, output));
    report.figures = judge::figures(&course);
    report.notes = judge::notes(is_flat, options.users, load);
    report.answer = judge::answer(&report);
    report.promise = Promise::Decided {
        held: !interrupt.is_requested() && claim_holds(&report.cases),
        rule: rule(TEXT),
    };
    scene.stop()?;
    Ok(report)
}

/// What these circuits teach.
fn model(probed: &[Probed]) -> Model {
    let mut seen = Observations::default();
    probed.iter().for_each(|probed| seen.add(&probed.observed()));
    seen.model(unix_time_s())
}

/// Paths that are chosen uniformly.
fn uniform(view: &NetDir, hops: usize, count: u32, rng: &mut StdRng) -> Result<Vec<Subject>> {
    let draw = |_| {
        let need = Some(Need::Lookup);
        let path = select_probe_path(view, &client::strategy::Uniform, RULES, need, hops, rng);
        let path = path.map_err(|it| Error::Failed(format!("uniform: {it}")))?;
        Ok(Subject::new(&path))
    };
    (0..count).map(draw).collect()
}
