//! `flashflow-lab experiment conflux`: downloads over linked circuits, compared with plain Tor (Kristel et al.,
//! figures 2 to 4, table I).

mod judge;
mod plan;
mod scene;
mod simulated;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::{claim_holds, list, parameter, print_case, report, rule};
use clap::Args;
use lab::Content;
use plan::{ConfluxSettings, ExitOf, Trial};
use report::experiment::{ExperimentReport, Promise};
use scene::BridgeNetwork;

/// How much faster are downloads over linked circuits?
///
/// Our client downloads over one circuit and over two, three and four linked circuits (Conflux and ConfluxM); C tor
/// clients download over one and over two, in turn. The first hops are four C tor relays of unequal rates in network
/// namespaces, like bridges; a single circuit, or the first of several, uses another one in each run. The exit is ours
/// or C tor's. Links and circuits are open before downloads start. With --simulated everything runs in virtual time
/// with our relays, and bridges are random in each run. This takes a few minutes at most and does not depend on the
/// machine. Without it the experiment requires root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment conflux --quick --json --out results
  flashflow-lab experiment conflux --simulated --json
  flashflow-lab experiment conflux --sizes 5 --legs 1,2,3 --exits ours --runs 20

The experiment holds if all downloads complete, and those over several legs are significantly faster than plain Tor's in
at least one case and significantly slower in none. The last line of --json has, for each case, `size_mb`, `legs`,
`client`, `exit`, `median_s`, `mean_s`, `change_against_tor_percent` and its `interval` (half of the width of the 95 %
confidence interval, in percentage points).")]
pub(super) struct Options {
    /// Runs of each case; 12 by default, 4 with --quick; with --simulated 40, or 12 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Sizes of downloads in MB; 0.4,5,10 by default; with --quick 0.4,2, or 0.4,5 with --simulated.
    #[arg(long, value_delimiter = ',', value_name = "MB,…", value_parser = plan::size)]
    sizes: Vec<f64>,
    /// Numbers of legs, 1 to 4; all by default.
    #[arg(long, value_delimiter = ',', value_name = "LEGS,…", default_values_t = [1, 2, 3, 4],
        value_parser = clap::value_parser!(u8).range(1..=4))]
    legs: Vec<u8>,
    /// The exits of our client; both by default, but with --quick C tor's exit only by two legs. Always ours with
    /// --simulated.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WHOSE,…")]
    exits: Vec<ExitOf>,
    /// Simulate everything in virtual time, with random bridges in each run.
    #[arg(long)]
    simulated: bool,
    /// The exit's scheduler of legs: min-rtt, low-rtt, cwnd-rtt, current-rtt or blest; low-rtt by default, as in C tor.
    #[arg(long, value_name = "NAME", requires = "simulated", value_parser = plan::scheduler)]
    leg_scheduler: Option<plan::Scheduler>,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let plan = ConfluxSettings::new(options, session.common.quick);
    output.step(format!("{} downloads", plan.downloads()));
    let trials =
        if plan.is_simulated { simulated::run(&plan, session)? } else { run_real(&plan, session)? };
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
            parameter("sizes in MB", list(&plan.sizes_mb)),
            parameter(
                "bridges",
                match plan.is_simulated {
                    true => simulated::describe_bridges(),
                    false => scene::describe_bridges(),
                },
            ),
            parameter("seed", plan.seed),
        ],
        figures: judge::figures(&plan, &trials),
        notes: judge::notes(&plan),
        cases,
        ..report(name, judge::TEXT)
    })
}

/// Performs all downloads in a network of processes. Methods alternate, so that other load on the machine affects all
/// of them.
fn run_real(plan: &ConfluxSettings, session: Session<'_>) -> Result<Vec<Trial>> {
    let Session { output, interrupt, .. } = session;
    let mut scene = BridgeNetwork::start(plan, output)?;
    let mut trials = Vec::new();
    'all: for first in 0..scene::BRIDGES {
        let runs: Vec<u32> = plan.runs_from(first, scene::BRIDGES).collect();
        if runs.is_empty() || interrupt.is_requested() {
            break;
        }
        output.doing(format!("starting clients whose first bridge is {}", first + 1));
        scene.start_clients(plan, first)?;
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
            output.step(format!("run {run} of {} completed", plan.runs));
        }
    }
    scene.stop()?;
    Ok(trials)
}
