//! `flashflow-lab experiment conflux`: downloads over linked circuits compared with plain Tor (Kristel et al., figures 2 to 4, table I).

mod judge;
mod plan;
mod scene;
mod simulated;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::{claim_holds, parameter, print_case, report, rule};
use clap::Args;
use lab::Content;
use plan::{ConfluxSettings, ExitOf, Trial};
use report::experiment::{ExperimentReport, Promise};
use scene::BridgeNetwork;

/// How much sooner do downloads end over linked circuits?
///
/// Our client downloads over two, three and four linked circuits (Conflux and ConfluxM), and over one, and C tor clients over
/// one and over two, in turn. First hops are four stock relays of unequal capacity at hosts of their own, as bridges are: of each run another one
/// is the only hop of a single circuit, and the first of several. The exit is ours or a stock one. Links stand before; circuits, too. With --simulated
/// all is in virtual time, with our relays, and each run has bridges drawn anew: that takes minutes at most, and no busy machine spoils it.
/// Without it the experiment needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment conflux --quick --json --out results
  flashflow-lab experiment conflux --simulated --json
  flashflow-lab experiment conflux --sizes 5 --legs 1,2,3 --exits ours --runs 20

It has held if downloads over several legs are sooner than plain Tor's somewhere beyond what chance can do, later nowhere, and all whole. The last line of --json has, for each case, `size_mb`, `legs`, `client`,
`exit`, `median_s`, `mean_s`, `change_against_tor_percent` and its `interval`: half its width at 95 %, in percentage points.")]
pub(super) struct Options {
    /// Runs of each case; 12 by default, 4 if --quick; simulated 40, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Sizes of downloads in MB; 0.4,5,10 by default, 0.4,2 if --quick, and 0.4,5 if that is simulated.
    #[arg(long, value_delimiter = ',', value_name = "MB,…", value_parser = plan::size)]
    sizes: Vec<f64>,
    /// Numbers of legs, 1 to 4; all by default.
    #[arg(long, value_delimiter = ',', value_name = "LEGS,…", default_values_t = [1, 2, 3, 4],
        value_parser = clap::value_parser!(u8).range(1..=4))]
    legs: Vec<u8>,
    /// Whose exit our client uses; both by default, with --quick the stock one by two legs alone. Simulated it is ours.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WHOSE,…")]
    exits: Vec<ExitOf>,
    /// In virtual time, with bridges that each run draws anew.
    #[arg(long)]
    simulated: bool,
    /// By which the exit chooses legs: min-rtt, low-rtt, cwnd-rtt, current-rtt or blest; as stock exits by default, low-rtt.
    #[arg(long, value_name = "NAME", requires = "simulated", value_parser = plan::scheduler)]
    leg_scheduler: Option<plan::Scheduler>,
    /// Seed of what is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let plan = ConfluxSettings::new(options, session.common.quick);
    output.step(format!("{} downloads", plan.downloads()));
    let trials =
        if plan.is_simulated { simulated::play(&plan, session)? } else { play(&plan, session)? };
    let cases = judge::cases(&plan, &trials);
    cases.iter().for_each(|case| print_case(case, output));
    let name = if plan.is_simulated { "conflux-simulated" } else { "conflux" };
    let is_over = interrupt.is_requested();
    Ok(ExperimentReport {
        answer: judge::answer(&plan, &trials, &cases),
        promise: Promise::Decided {
            held: !is_over && claim_holds(&cases),
            rule: rule(judge::TEXT),
        },
        parameters: vec![
            parameter("runs of each case", plan.runs),
            parameter("sizes in MB", plan::list(&plan.sizes_mb)),
            parameter(
                "bridges",
                if plan.is_simulated { simulated::described() } else { scene::described() },
            ),
            parameter("seed", plan.seed),
        ],
        figures: judge::figures(&plan, &trials),
        notes: judge::notes(&plan),
        cases,
        ..report(name, judge::TEXT)
    })
}

/// All downloads in the network of processes, one of each method in turn: what else goes on on this machine meets all alike.
fn play(plan: &ConfluxSettings, session: Session<'_>) -> Result<Vec<Trial>> {
    let Session { output, interrupt, .. } = session;
    let mut scene = BridgeNetwork::start(plan, output)?;
    let mut trials = Vec::new();
    'all: for first in 0..scene::BRIDGES {
        let runs: Vec<u32> = plan.runs_from(first, scene::BRIDGES).collect();
        if runs.is_empty() || interrupt.is_requested() {
            break;
        }
        output.doing(format!("starting clients that begin with bridge {}", first + 1));
        scene.begin_with(plan, first)?;
        for run in runs {
            for size_mb in plan.sizes_mb.iter().copied() {
                for method in plan.in_turn(run) {
                    if interrupt.is_requested() {
                        break 'all;
                    }
                    output.doing(format!("run {run} of {}, {size_mb} MB: {method}", plan.runs));
                    let content = Content { len: plan::bytes(size_mb), seed: run.into() };
                    let capacity_mbit = scene.capacity_mbit(method);
                    let seen = scene.download(method, content)?;
                    if let Err(problem) = &seen {
                        output.step(format!("run {run}, {size_mb} MB, {method}: {problem}"));
                    }
                    trials.push(Trial { method, size_mb, run, capacity_mbit, seen });
                }
            }
            output.step(format!("run {run} of {} is over", plan.runs));
        }
    }
    scene.stop()?;
    Ok(trials)
}
