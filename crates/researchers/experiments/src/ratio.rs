//! `flashflow-lab experiment ratio`: measurements of a relay with clients, one for each maximum share of clients.

mod judge;
mod network;
mod seen;

use crate::background_downloads::{BackgroundDownloads, DownloadSpec, PARALLEL};
use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::measuring::measure;
use crate::reporting::parameter;
use crate::testbed::{PatchedTor, echo_limit};
use clap::Args;
use coordinator::{Params, Progress};
use lab::load::{ClientLoad, ClientTraffic};
use lab::witness::{Count, Witness};
use network::RatioNetwork;
use onion::{Duration, Rate};
use report::experiment::{CaseVerdict, ExperimentReport};
use seen::{Observation, Window};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// The default shares of clients, in percent.
const SHARES_PERCENT: [u32; 3] = [10, 25, 50];

/// The steady clients' load and the downloads of a C tor client, as shares of the relay's limit. Together they exceed the first
/// two default shares, but not the last.
const STEADY: f64 = 0.2;
const C_TOR_CLIENT: f64 = 0.2;

/// The length of a download at the client's rate, in seconds, so that requests are rare.
const DOWNLOAD_S: u64 = 2;

/// A download that receives nothing for this time has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measurers, each a process with one pump.
const MEASURERS: usize = 2;

/// Are clients limited to their share while a relay is measured, and counted correctly?
///
/// FlashFlow relays, or those of a patched C tor, with a rate limit, each a process, constantly carry two client loads of a fifth of
/// the relay's limit each: a steady load over two links, and downloads of a C tor client in a private network, whose guard is the
/// relay. Two measurer processes measure the relay by echo, with r = 0.1 and r = 0.25, where clients are throttled, and with
/// r = 0.5, where they are not. The kernel's counters of their sockets show what measurers, clients and the next relays received.
/// Draws figure 7 of the paper.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment ratio --quick --out results")]
pub(super) struct Options {
    /// Length of each measurement in seconds, 3 to 120; 30 by default, 10 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120))]
    seconds: Option<u32>,
    /// Seconds with clients only, before and after; 10 by default, 6 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=120), value_name = "SECONDS")]
    around: Option<u32>,
    /// The relay's rate limit in Mbit/s, 20 or more.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT")]
    limit: f64,
    /// The maximum shares r of clients, in percent, 1 to 75.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_values_t = SHARES_PERCENT,
        value_parser = clap::value_parser!(u32).range(1..=75))]
    shares: Vec<u32>,
    #[command(flatten)]
    tor: PatchedTor,
    #[command(flatten)]
    grid: GridOptions,
}

/// A measurement with clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    /// *r*.
    client_share: f64,
    #[serde(skip)]
    percent: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r = {}", self.client_share)
    }
}

struct RatioGrid {
    seconds: u32,
    around: u32,
    limit: Rate,
    /// In percent, sorted, without duplicates.
    shares: Vec<u32>,
    tor: Option<PathBuf>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let grid = RatioGrid {
        seconds: session.or(options.seconds, 10, 30),
        around: session.or(options.around, 6, 10),
        limit: echo_limit(options.limit)?,
        shares: BTreeSet::from_iter(options.shares.iter().copied()).into_iter().collect(),
        tor: options.tor.program()?,
    };
    grid::run(&grid, options.grid, session)
}

impl RatioGrid {
    const fn relays(&self) -> &'static str {
        if self.tor.is_some() { "of a patched C tor" } else { "of FlashFlow" }
    }
}

impl Grid for RatioGrid {
    type Cell = Cell;
    type Setup = RatioNetwork;
    const NAME: &'static str = "ratio";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/ratio.md");

    fn cells(&self) -> Vec<Cell> {
        let cell =
            |percent: &u32| Cell { client_share: f64::from(*percent) / 100.0, percent: *percent };
        self.shares.iter().map(cell).collect()
    }

    fn conditions(&self) -> String {
        let Self { seconds, around, limit, .. } = self;
        format!("{seconds} s each, {around} s around, limit {limit}, {}", self.relays())
    }

    fn start(&self, _: &Cell, session: Session<'_>) -> Result<Option<RatioNetwork>> {
        RatioNetwork::start(self, self.limit.scaled(C_TOR_CLIENT), session)
    }

    fn run(&self, network: &mut RatioNetwork, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let window = observe(network, self, cell, session)?;
        Ok(window.map(|window| Row {
            cases: window.cases(),
            figures: vec![window.figure()],
            notes: vec![window.note()],
            ..Row::default()
        }))
    }

    fn conclude(&self, _: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.answer = answer(report);
        report.parameters = vec![
            parameter("relays", self.relays()),
            parameter("limit of the relay", self.limit),
            parameter("steady clients", self.limit.scaled(STEADY)),
            parameter("downloads of a C tor client", self.limit.scaled(C_TOR_CLIENT)),
            parameter("length of a measurement", format!("{} s", self.seconds)),
            parameter("before and after", format!("{} s each", self.around)),
            parameter("measurers", format!("{MEASURERS} processes")),
        ];
    }
}

/// Measures a relay with clients; `None` if the user has interrupted.
fn observe(
    network: &mut RatioNetwork,
    grid: &RatioGrid,
    cell: &Cell,
    session: Session<'_>,
) -> Result<Option<Window>> {
    let (r, percent) = (cell.client_share, cell.percent);
    let Session { output, interrupt, .. } = session;
    network.enter_by(percent)?;
    let (testbed, relay) = (&network.testbed, network.relay(percent)?);
    let clock = testbed.clock();
    output.doing(format!("r = {r}: starting the relay's clients"));
    let from = relay.pid;
    let of = |by: Vec<u32>| Count::Received { by, from };
    // Requests of the relay's client to its own directory do not leave the process.
    let others = [&testbed.measurer_pids()[..], &[from]].concat();
    let handed = Count::Written { by: from, except: others };
    let counts = vec![of(testbed.measurer_pids()), of(network.client_pids()), handed];
    let witness = Witness::start(counts, clock).map_err(Error::witness)?;
    let steady =
        ClientLoad::start(relay.target, ClientTraffic::at(grid.limit.scaled(STEADY)), clock)?;
    let name = format!("r {percent}");
    let bytes = grid.limit.scaled(C_TOR_CLIENT).as_byte_per_s() * DOWNLOAD_S / PARALLEL;
    let spec = DownloadSpec { bytes, patience: PATIENCE };
    let downloads = BackgroundDownloads::start(network.downloads(), &name, spec)?;
    downloads.wait_until_completed(PARALLEL, clock, interrupt)?;
    let flowing = clock.now();
    output.doing(format!("r = {r}: clients only"));
    if interrupt.wait(Duration::from_secs(u64::from(grid.around))) {
        return Ok(None);
    }
    let params = Params { seconds: grid.seconds, ratio: r, ..Params::default() };
    let reading = || lab::cpu_time(relay.pid).map(|used| (clock.now(), used));
    let (mut cpu, mut started) = ((None, None), None);
    let mut progress = |progress: Progress| match progress {
        Progress::Preparing { .. } => {}
        Progress::Started { .. } => (cpu, started) = ((reading(), None), Some(clock.now())),
        Progress::Second { round, index, of, measured } => {
            cpu.1 = reading();
            let (mbit, second) = (measured.as_mbit_per_s(), index + 1);
            output.doing(format!(
                "r = {r}: round {round}, second {second} of {of}: {mbit:.1} Mbit/s"
            ));
        }
    };
    let request = testbed.echo_request(relay.target, grid.limit, params);
    let ordered = clock.now();
    let team = testbed.team(MEASURERS);
    let measured = measure(&team, request, &mut progress, interrupt.requested())?;
    let Some(measured) = measured else { return Ok(None) };
    let outcome = measured.record.outcome();
    let Some(estimate) = outcome.estimate() else {
        return Err(Error::Failed(outcome.to_string()));
    };
    output.doing(format!("r = {r}: clients only, again"));
    interrupt.wait(Duration::from_secs(u64::from(grid.around)));
    let problem = steady.failure().or(downloads.problem()).or(witness.problem());
    if let Some(problem) = problem {
        return Err(Error::Clients(problem));
    }
    let began = started.and_then(|started| seen::beginning(&witness, started, grid.limit));
    let Some(began) = began else {
        return Err(Error::Failed("the measurers have received nothing".to_owned()));
    };
    let cpu_share = cpu.0.zip(cpu.1).map(|((from, before), (to, after))| {
        after.saturating_sub(before).as_secs_f64() / (to - from).as_secs_f64()
    });
    let (around, downloads) = (grid.around, downloads.completed());
    let seen = Observation {
        witness: &witness,
        flowing,
        ordered,
        began,
        around,
        cpu_share,
        downloads,
        keeps_to_limit: grid.tor.is_none(),
    };
    Ok(Some(seen.window(r, grid.limit, estimate)))
}

fn answer(report: &ExperimentReport) -> String {
    let held = report.count(CaseVerdict::Held);
    let all = report.cases.len();
    let ratios_of = |about: &str| {
        let ratios = report.cases.iter().filter(|case| case.name.ends_with(about));
        let ratios = ratios.filter_map(|case| case.ratio).map(|ratio| format!("{ratio:.3}"));
        ratios.collect::<Vec<_>>().join(" and ")
    };
    format!(
        "{held} of {all} claims held. Reported traffic divided by what was forwarded according to the kernel: {}, of clients \
         alone: {}; clients divided by their share: {}; estimate divided by what was forwarded in the median second: {}.",
        ratios_of(judge::SUM),
        ratios_of(judge::CLIENTS),
        ratios_of(judge::HELD),
        ratios_of(judge::ESTIMATE)
    )
}
