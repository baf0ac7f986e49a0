//! `flashflow-lab experiment conflux`: downloads over linked circuits, compared with plain Tor (Kristel et al.,
//! figures 2 to 4, table I).

mod failures;
mod judge;
mod overall;
mod plan;
mod scene;
mod simulated;

use crate::common::Session;
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_holds, list, parameter};
use clap::Args;
use lab::Content;
use onion::Duration;
use plan::{ConfluxSettings, ExitOf, Method, Scene, Trial};
use report::experiment::ExperimentReport;
use scene::{BRIDGES, BridgeNetwork};
use serde::Serialize;
use std::fmt;

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
    /// What is simulated; failing-paths also tries sets of legs without retransmission.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SCENE,…", requires = "simulated",
        default_values = ["bridges"])]
    scenes: Vec<Scene>,
    /// The exit's scheduler of legs: min-rtt, low-rtt, cwnd-rtt, current-rtt or blest; low-rtt by default, as in C tor.
    #[arg(long, value_name = "NAME", requires = "simulated", value_parser = plan::scheduler)]
    leg_scheduler: Option<plan::Scheduler>,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let settings = ConfluxSettings::new(options, session.common.quick);
    session.output.step(format!("{} downloads", settings.downloads()));
    if settings.is_simulated {
        grid::run(&ConfluxGrid::<true>(settings), options.grid, session)
    } else {
        grid::run(&ConfluxGrid::<false>(settings), options.grid, session)
    }
}

/// Runs in virtual time, or in a network of processes.
struct ConfluxGrid<const IS_SIMULATED: bool>(ConfluxSettings);

/// All downloads of a run. Methods alternate, so that other load on the machine affects all of them.
#[derive(Clone, Copy, Serialize)]
struct Cell {
    run: u32,
    /// The first bridge in a network of processes, counted from zero.
    #[serde(skip)]
    first: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}", self.run)
    }
}

/// What the runs share.
enum Setup {
    Simulated(simulated::Identities),
    Real(Box<BridgeNetwork>),
}

impl<const IS_SIMULATED: bool> Grid for ConfluxGrid<IS_SIMULATED> {
    type Cell = Cell;
    type Setup = Setup;
    const NAME: &'static str = if IS_SIMULATED { "conflux-simulated" } else { "conflux" };
    const TEXT: &'static str = judge::TEXT;
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let from = |first| self.0.runs_from(first, BRIDGES).map(move |run| Cell { run, first });
        (0..BRIDGES).flat_map(from).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let settings = &self.0;
        vec![
            parameter("runs of each case", settings.runs),
            parameter("sizes in MB", list(&settings.sizes_mb)),
            parameter(
                "bridges",
                if IS_SIMULATED {
                    simulated::describe_bridges()
                } else {
                    scene::describe_bridges()
                },
            ),
            parameter("seed", settings.seed),
        ]
    }

    fn conditions(&self) -> String {
        let methods: Vec<String> = self.0.methods.iter().map(Method::to_string).collect();
        let scenes: Vec<&str> = self.0.scenes.iter().map(|scene| scene.name()).collect();
        let scheduler = self.0.scheduler.map_or("default", |scheduler| scheduler.name());
        let parameters = grid::in_words(&self.parameters());
        format!("{parameters}, {}, {}, scheduler: {scheduler}", list(&scenes), list(&methods))
    }

    fn start(&self, _: &Cell, session: Session<'_>) -> Result<Option<Setup>> {
        Ok(Some(match IS_SIMULATED {
            true => Setup::Simulated(simulated::Identities::new()?),
            false => Setup::Real(Box::new(BridgeNetwork::start(&self.0, session.output)?)),
        }))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let trials = match setup {
            Setup::Simulated(identities) => simulated::run(&self.0, cell.run, identities, session)?,
            Setup::Real(network) => run_real(&self.0, *cell, network, session)?,
        };
        let Some(trials) = trials else { return Ok(None) };
        Ok(Some(Row::default().with_data(&trials)?))
    }

    fn stop(&self, setup: Setup) -> Result<()> {
        match setup {
            Setup::Simulated(_) => Ok(()),
            Setup::Real(network) => network.stop(),
        }
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let settings = &self.0;
        let trials: Vec<Trial> = rows.data::<Vec<Trial>>().flat_map(|(_, trials)| trials).collect();
        let cases = judge::cases(settings, &trials);
        report.answer = judge::answer(settings, &trials, &cases);
        // A run that failed has a case of its own.
        report.cases.extend(cases);
        report.promise = Self::promise(rows.are_complete() && claim_holds(&report.cases));
        report.figures = judge::figures(settings, &trials);
        report.notes.extend(judge::notes(settings));
    }
}

/// The downloads of a run in a network of processes; `None` if the user has interrupted.
fn run_real(
    settings: &ConfluxSettings,
    Cell { run, first }: Cell,
    network: &mut BridgeNetwork,
    session: Session<'_>,
) -> Result<Option<Vec<Trial>>> {
    let Session { output, interrupt, .. } = session;
    if network.needs_clients(first) {
        output.doing(format!("starting clients whose first bridge is {}", first + 1));
        network.start_clients(settings, first)?;
    }
    let mut trials = Vec::new();
    for size_mb in settings.sizes_mb.iter().copied() {
        for method in settings.in_turn(run) {
            if interrupt.is_requested() {
                return Ok(None);
            }
            output.doing(format!("run {run} of {}, {size_mb} MB: {method}", settings.runs));
            let content = Content { len: plan::bytes(size_mb), seed: run.into() };
            let capacity_mbit = network.capacity_mbit(method);
            let seen = network.download(method, content)?;
            if let Err(problem) = &seen {
                output.step(format!("run {run}, {size_mb} MB, {method}: {problem}"));
            }
            let scene = Scene::Bridges;
            trials.push(Trial { scene, method, size_mb, run, capacity_mbit, seen });
        }
    }
    Ok(Some(trials))
}
