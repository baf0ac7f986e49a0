//! `flashflow experiment selection`: ways of choosing paths, and what circuits cost (Panchenko et al., tables I to IV, figures 4 to 7).

mod correlation;
mod judge;
mod network;
mod scene;
mod ways;

use crate::common::Common;
use crate::error::Error;
use crate::simulated::SimulatedOptions;
use crate::telling::{pair, report, tell};
use clap::Args;
use client::View;
use client::model::Observations;
use client::path::{Need, Rules, draw_path};
use client::probe::{self, ProbePlan, Probed, Subject};
use link::unix_time_s;
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use report::experiment::{ExperimentReport, Promise};
use scene::Scene;
use std::sync::Arc;
use terminal::{Interrupt, Output};
use ways::Way;

/// What do ways of choosing paths gain, and what do they cost in anonymity?
///
/// A private network of stock relays of unequal rates, on three continents with real distances if namespaces can be had (root), else on
/// loopback. First circuits are chosen uniformly, to learn a model of relays and links; then each strategy gets as many circuits, in turn:
/// the time to set up, round trip and throughput of each, by our prober. Links' round trips are compared with those that were asked for,
/// and entropies and shares of compromised paths are computed beside. With --network all clients of a simulated network choose so instead,
/// as far as weights of relays say it: see docs/simulation.md for such networks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow experiment selection --quick --json --out results
  flashflow experiment selection --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3

It has held if no comparison has come out the other way, and one at least this way, beyond what chance can do: weighted paths have more throughput than uniform ones, paths chosen by measured latency a smaller round trip, all within one country a
smaller one than across continents, and each link's round trip is within 10 % of the truth; the last three need root.")]
pub(super) struct Options {
    /// Circuits of each strategy; 60 by default, 6 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    circuits: Option<u32>,
    /// Circuits to learn from; 120 by default, 24 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    learning: Option<u32>,
    /// Bytes of each download.
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    bytes: u64,
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
    learning: Vec<Probed>,
    lengths: Vec<Probed>,
    ways: Vec<(Way, Vec<Probed>)>,
}

/// All may be on one machine.
const RULES: Rules = Rules { distinct_subnets: false };

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    if let Some(path) = &options.simulated.network {
        return network::run(&options.simulated, path, common, output, interrupt);
    }
    let count =
        |asked: Option<u32>, quick, all| asked.unwrap_or(if common.quick { quick } else { all });
    let circuits = count(options.circuits, 6, 60);
    let learning = count(options.learning, 24, 120);
    let is_flat = options.flat || link::Namespace::new().is_err();
    let mut report = ExperimentReport {
        parameters: vec![
            pair("circuits of each strategy", circuits.to_string()),
            pair("circuits to learn from", learning.to_string()),
            pair("a download", format!("{} bytes", options.bytes)),
            pair(
                "distances",
                if is_flat { "none: loopback" } else { "three continents" }.to_owned(),
            ),
            pair("relays", scene::described()),
            pair("seed", options.seed.to_string()),
        ],
        ..report(
            "selection",
            "Ways of choosing paths",
            "What do ways of choosing paths gain, and what do they cost in anonymity?",
        )
    };
    let scene = Scene::start(is_flat, options.seed, output)?;
    if interrupt.is_requested() {
        return Ok(report);
    }
    let mut rng = StdRng::seed_from_u64(options.seed);
    let plan = ProbePlan {
        rounds: if common.quick { 5 } else { 10 },
        gap: Duration::from_millis(10),
        pause: Duration::from_millis(20),
        download: Some((scene.server(), options.bytes)),
        ..ProbePlan::default()
    };
    let view = scene.view();
    let play = |subjects: Vec<Subject>, plan: &ProbePlan, what: &str| {
        let (mut all, whole) = (Vec::new(), subjects.len());
        let each = |probed| {
            all.push(probed);
            if all.len() % 10 == 0 || all.len() == whole {
                output.step(format!("{what}: {} circuits of {whole}", all.len()));
            }
            true
        };
        probe::run(plan.clone(), subjects, view, each, || interrupt.is_requested())?;
        Ok::<_, Error>(all)
    };
    let subjects = uniform(view, 3, learning, &mut rng)?;
    let learning = play(subjects, &plan, "learning")?;
    let mut seen = Observations::default();
    learning.iter().for_each(|probed| seen.add(&probed.observed()));
    let model = Arc::new(seen.model(unix_time_s()));
    // Setting up and round trips by length, without downloads.
    let mut subjects = uniform(view, 2, circuits, &mut rng)?;
    subjects.extend(uniform(view, 4, circuits, &mut rng)?);
    let bare = ProbePlan { download: None, ..plan };
    let lengths = play(subjects, &bare, "lengths")?;
    // One of each in turn: what else goes on on this machine meets all alike.
    let ways = Way::all(&scene, &model)?;
    let mut subjects = Vec::new();
    for _ in 0..circuits {
        for way in &ways {
            let need = Some(Need::Port { port: scene.server().port(), is_ipv6: false });
            let path = draw_path(view, &*way.strategy, RULES, need, 3, &mut rng);
            let path = path.map_err(|it| Error::Usage(format!("{}: {it}", way.name)))?;
            subjects.push(Subject::new(&path));
        }
    }
    let probed = play(subjects, &plan, "strategies")?;
    let names = ways.len();
    let mut course =
        Course { learning, lengths, ways: ways.into_iter().map(|way| (way, Vec::new())).collect() };
    for (place, probed) in probed.into_iter().enumerate() {
        course.ways[place % names].1.push(probed);
    }
    report.cases = judge::cases(&course, &model, &scene, &mut rng)?;
    report.cases.iter().for_each(|case| tell(case, output));
    report.figures = judge::figures(&course);
    report.notes = judge::notes(is_flat);
    report.answer = judge::answer(&report);
    report.promise = Promise::Decided {
        held: !interrupt.is_requested() && judge::held(&report),
        rule: "Weighted paths carry more than uniform ones; with distances, latency and one country make round trips shorter, and links' round trips are \
               within a tenth of the truth."
            .to_owned(),
    };
    scene.stop()?;
    Ok(report)
}

/// Paths that are chosen uniformly.
fn uniform(view: &View, hops: usize, count: u32, rng: &mut StdRng) -> Result<Vec<Subject>, Error> {
    let draw = |_| {
        let need = Some(Need::Lookup);
        let path = draw_path(view, &client::strategy::Uniform, RULES, need, hops, rng);
        let path = path.map_err(|it| Error::Usage(format!("uniform: {it}")))?;
        Ok(Subject::new(&path))
    };
    (0..count).map(draw).collect()
}
