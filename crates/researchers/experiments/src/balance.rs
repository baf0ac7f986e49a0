//! `flashflow-lab experiment balance`: a simulated network under the weights of FlashFlow, TorFlow and an ideal
//! balancer.

mod downloads;
mod figures;
mod judge;
mod weighed;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{self, print_case};
use crate::simulated::{Batch, Runner, SimulatedOptions, Store, run_case};
use clap::{Args, ValueEnum};
use judge::Results;
use report::experiment::{Case, ExperimentReport};
use std::path::PathBuf;
use tornet::balance::{
    Balancer, Capacities, Conditions, FlashFlow, TorFlow, Weighing, WeightsFile,
};
use weighed::Weighed;

/// Is load balanced better by FlashFlow than by TorFlow?
///
/// Simulates a network with the weights of each balancer, at several loads and with several seeds. TorFlow
/// and FlashFlow first measure the relays inside the simulation, while its users are active, once for each seed.
/// Then the network is simulated again with the resulting weights. The report reproduces figures 8 and 9 of
/// the paper. Completed runs are kept in the folder DIR/balance-runs; if interrupted, the same command continues.
/// See simulation.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment balance --network docs/scenarios/small.toml --quick --out results
  flashflow-lab experiment balance --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3
  flashflow-lab experiment balance --network tornet-0.05-1 --shard 2/8 --out shared-folder")]
pub(super) struct Options {
    #[command(flatten)]
    simulated: SimulatedOptions,
    /// The balancers; ideal,torflow,flashflow by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAME,…")]
    balancers: Vec<Name>,
    /// The weights of the balancer `file`: a bandwidth file with nicknames, or a CSV file with the columns relay
    /// and weight.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Length of a FlashFlow measurement in seconds, 3 to 40; 30 by default, 10 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=40))]
    seconds: Option<u32>,
    /// Simulated seconds for measuring the relays, at most.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    measure_seconds: u32,
}

/// The balancers that are compared.
const FLASHFLOW: &str = "flashflow";
const TORFLOW: &str = "torflow";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The relays' true capacities, which only a simulator knows.
    Ideal,
    /// The relays' self-reports, scaled by the speed of downloads through them.
    Torflow,
    /// The measurements of a team.
    Flashflow,
    /// The network's own weights.
    Network,
    /// The weights of the file --weights.
    File,
}

fn balancers(options: &Options, session: Session<'_>) -> Result<Vec<Box<dyn Balancer>>> {
    let all = [Name::Ideal, Name::Torflow, Name::Flashflow];
    let mut balancers: Vec<Box<dyn Balancer>> = Vec::new();
    for name in crate::common::values_or(&options.balancers, false, &all, &all) {
        balancers.push(match name {
            Name::Ideal => Box::new(Capacities),
            Name::Torflow => Box::new(TorFlow::default()),
            Name::Flashflow => {
                let mut flashflow = FlashFlow::default();
                flashflow.params.seconds = session.or(options.seconds, 10, 30);
                Box::new(flashflow)
            }
            Name::Network => Box::new(WeightsFile(None)),
            Name::File => {
                let path = options.weights.clone();
                let path = path.ok_or_else(|| {
                    Error::Usage("the balancer file requires --weights FILE".to_owned())
                })?;
                Box::new(WeightsFile(Some(path)))
            }
        });
    }
    Ok(balancers)
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let path = options.simulated.network.as_deref();
    let path = path.ok_or_else(|| Error::Usage("--network PATH is missing".to_owned()))?;
    let mut batch = Batch::new(&options.simulated.runs, path, session.common.quick)?;
    let balancers = balancers(options, session)?;
    batch.conditions.push_str(&format!(
        ", t = {} s, measured for at most {} s, FlashFlow's method {}",
        session.or(options.seconds, 10, 30),
        options.measure_seconds,
        FlashFlow::METHOD,
    ));
    if let Some(path) = &options.weights {
        // The content of the file matters, not only its name.
        let given = WeightsFile(Some(path.clone())).read(&batch.network)?;
        let digest = batch.network.clone().weighted(&given).digest();
        batch.conditions.push_str(&format!(", weights {} (digest {digest})", path.display()));
    }
    let names: Vec<&str> = balancers.iter().map(|balancer| balancer.name()).collect();
    let store = &Store::new(session.common.out.join("balance-runs"))?;
    let variants = names.iter().map(|name| (*name, &batch)).collect();
    let runner = Runner { variants, store, session };
    let seconds_max = options.measure_seconds;
    let runs = runner.run_all(|batch, key| {
        let balancer = balancers.iter().find(|balancer| balancer.name() == key.variant);
        let Some(balancer) = balancer else { return Ok(None) };
        let weigher = Weigher { batch, store, session };
        let weighing = weigher.weighing(&**balancer, key.seed, seconds_max)?;
        let network = batch.at_load(key.load_percent);
        Ok(weighing.map(|weighing| network.weighted(&weighing.weights)))
    })?;
    let results = Results::of_runs(&batch, store, runs)?;
    let mut cases = results.cases(&batch.loads);
    cases.extend(results.weight_cases(&names));
    cases.extend(results.download_cases(&names, &batch.loads));
    cases.iter().for_each(|case| print_case(case, session.output));
    cases.extend(results.runs.iter().map(run_case));
    Ok(report(&batch, &names, &results, cases))
}

/// Computes weights once for each balancer and seed.
struct Weigher<'a> {
    batch: &'a Batch,
    store: &'a Store,
    session: Session<'a>,
}

impl Weigher<'_> {
    /// Stored weights, or new ones. `None` if the user has interrupted.
    fn weighing(
        &self,
        balancer: &dyn Balancer,
        seed: u64,
        seconds_max: u32,
    ) -> Result<Option<Weighing>> {
        let name = weights_name(balancer.name(), seed);
        if let Some(Weighed { conditions, weighing }) = self.store.read(&name)? {
            if conditions == self.batch.conditions {
                return Ok(Some(weighing));
            }
            let problem = format!("{name} belongs to another batch: use another --out");
            return Err(Error::Failed(problem));
        }
        let output = self.session.output;
        let who = format!("{}, seed {seed}", balancer.name());
        let progress = |second: u32, wall: std::time::Duration| {
            let wall_s = wall.as_secs_f64();
            output.doing(format!("{who}: measuring, {second} s simulated in {wall_s:.0} s"));
        };
        let how = Conditions {
            seed,
            threads: self.batch.threads,
            seconds_max,
            stop: self.session.interrupt.requested(),
            progress: &progress,
        };
        let weighing = match balancer.weigh(&self.batch.network, &how) {
            Err(tornet::Error::Interrupted) => return Ok(None),
            weighed => weighed?,
        };
        for note in weighing.notes.iter().take(3) {
            output.step(format!("{who}: {note}"));
        }
        let weighed = Weighed { conditions: self.batch.conditions.clone(), weighing };
        self.store.write(&name, &weighed)?;
        Ok(Some(weighed.weighing))
    }
}

fn weights_name(balancer: &str, seed: u64) -> String {
    format!("weights-{balancer}-{seed}")
}

const TEXT: &str = include_str!("../../../../docs/experiments/balance.md");

fn report(batch: &Batch, names: &[&str], results: &Results, cases: Vec<Case>) -> ExperimentReport {
    let mut parameters = batch.parameters();
    parameters.push(("balancers".to_owned(), names.join(", ")));
    let mut report = reporting::report("balance", TEXT);
    report.notes.extend(results.notes());
    ExperimentReport {
        parameters,
        answer: results.answer(),
        cases,
        figures: results.figures(names, &batch.loads),
        ..report
    }
}
