//! `flashflow-lab experiment wan`: relays with known limits measured over paths with various round trips and losses.

mod fault;
mod judge;

use crate::common::{Session, as_text, mbit, percent, values_or};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::mode::Mode;
use crate::scheduled_actions::with_actions;
use crate::testbed::{self, Testbed};
use crate::trial::TrialResult;
use crate::wan_site::{Measurement, Site, path_with_rtt};
use authority::one_relay::Request;
use authority::shell::Team;
use clap::Args;
use coordinator::{Params, PathParams, Progress};
use fault::{Fault, FaultAction, Moment};
use lab::wan::{Congestion, Wan, WanPath, WanSpec};
use measurer::{LocalTeam, TeamOptions};
use onion::{Duration, Instant, Rate};
use report::experiment::ExperimentReport;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fmt;

const NEAR: &str = "near";
const FAR: &str = "far";

/// Measurers of the team.
const MEASURERS: u32 = 2;

/// Are estimates true over real distances?
///
/// C tor relays are measured in transit and FlashFlow relays by echo, over emulated paths with the given round trips, and losses
/// in each direction. The truth is what the relay's process sends, according to the kernel's counters of its sockets, while the relay
/// is measured over the same number of sockets on a path without distance or loss. A run holds if its estimate is within −10 % and
/// +5 % of that, or if it is not conclusive: a wrong number is worse than none. If a path breaks or a relay stops during the
/// measurement, no number is right, and the failure must blame the right one. Each result is a file in DIR/wan-runs, so that the
/// same command continues an interrupted grid. Needs root for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment wan --quick --out results
  flashflow-lab experiment wan --rtts-ms 100 --losses-percent 0,0.1 --limits 90 --modes transit
  flashflow-lab experiment wan --quick --faults returns,breaks,breaks-out,breaks-back,stops
  flashflow-lab experiment wan --quick --faults breaks,stops --fault-at lead
  flashflow-lab experiment wan --shard 1/6 --out shared-folder")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 8 to 60; 30 by default, 12 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Round trips; 20,100,200,300 by default, 20,100 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Packet loss in each direction; 0,0.02,0.1,1 by default, 0,0.1 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = percent)]
    losses_percent: Vec<f64>,
    /// Congestion control of both ends; all three by default, bbr,reno with --quick.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    congestions: Vec<Congestion>,
    /// Rate limits of the relays in Mbit/s; 10,90,250 by default, 10,90 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…", value_parser = mbit)]
    limits: Vec<f64>,
    /// Kinds of measurement; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Faults of the last relay and its path, at the first round trip and without loss; none by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "FAULT,…")]
    faults: Vec<Fault>,
    /// When a fault begins that does not last the whole measurement.
    #[arg(long, value_enum, value_name = "MOMENT", default_value = "middle", requires = "faults")]
    fault_at: Moment,
    /// Seed of the packet losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// A relay measured over a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    mode: Mode,
    rtt_ms: u32,
    /// In each direction.
    loss_percent: f64,
    #[serde(serialize_with = "as_text")]
    congestion: Congestion,
    limit_mbit_per_s: f64,
    fault: Option<Fault>,
    /// When the fault begins, if it does not last the whole measurement.
    fault_at: Option<Moment>,
    /// The relay's place among the limits.
    #[serde(skip)]
    relay: usize,
}

impl Cell {
    /// The relay over a path without distance, loss and fault.
    const fn near(self) -> Self {
        Self { rtt_ms: 0, loss_percent: 0.0, fault: None, fault_at: None, ..self }
    }

    /// Each direction of the path, before it breaks.
    fn path(&self) -> WanPath {
        let path = path_with_rtt(self.rtt_ms, self.loss_percent);
        self.fault.map_or(path, |fault| fault.permanent(path))
    }

    fn fault_descriptions(&self) -> impl Iterator<Item = &'static str> {
        let at = self.fault_at.filter(|fault_at| *fault_at != Moment::Middle);
        self.fault.map(Fault::description).into_iter().chain(at.map(Moment::description))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, rtt_ms, loss_percent, limit_mbit_per_s, congestion, .. } = self;
        write!(f, "{} {limit_mbit_per_s}, {rtt_ms} ms, {loss_percent} %", mode.name())?;
        self.fault_descriptions()
            .try_for_each(|fault_description| write!(f, ", {fault_description}"))?;
        write!(f, ", {congestion}")
    }
}

struct WanGrid {
    seconds: u32,
    rtts_ms: Vec<u32>,
    losses_percent: Vec<f64>,
    congestions: Vec<Congestion>,
    limits: Vec<f64>,
    modes: Vec<Mode>,
    faults: Vec<Fault>,
    fault_at: Moment,
    seed: u64,
}

/// A measurement, and how long it took.
struct TimedResult {
    result: TrialResult,
    took: Duration,
    /// The time since a permanent fault began, if there was one.
    took_since_fault: Option<Duration>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let is_quick = session.common.quick;
    let every = [Congestion::Bbr, Congestion::Reno, Congestion::Cubic];
    let modes = [Mode::Transit, Mode::Echo];
    let losses = &options.losses_percent;
    let grid = WanGrid {
        seconds: options.seconds.unwrap_or(if is_quick { 12 } else { 30 }),
        rtts_ms: values_or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200, 300]),
        losses_percent: values_or(losses, is_quick, &[0.0, 0.1], &[0.0, 0.02, 0.1, 1.0]),
        congestions: values_or(&options.congestions, is_quick, &every[..2], &every),
        limits: values_or(&options.limits, is_quick, &[10.0, 90.0], &[10.0, 90.0, 250.0]),
        modes: values_or(&options.modes, is_quick, &modes, &modes),
        faults: options.faults.clone(),
        fault_at: options.fault_at,
        seed: options.seed,
    };
    grid::run(&grid, options.grid, session)
}

impl WanGrid {
    fn params(&self) -> Params {
        testbed::params(self.seconds)
    }

    /// All measurements of a relay. Distances alternate, so that other load on this machine affects them all. Faults are last.
    fn of_relay(&self, of: Cell, is_last: bool) -> impl Iterator<Item = Cell> {
        let paths = self.rtts_ms.iter().flat_map(move |rtt_ms| {
            let losses = self.losses_percent.iter();
            losses.map(move |loss| Cell { rtt_ms: *rtt_ms, loss_percent: *loss, ..of })
        });
        let rtt_ms = self.rtts_ms.first().copied().unwrap_or_default();
        let faulty = self.faults.iter().filter(move |_| is_last).map(move |fault| {
            let fault_at = fault.has_moment().then_some(self.fault_at);
            Cell { rtt_ms, fault: Some(*fault), fault_at, ..of }
        });
        paths.chain(faulty)
    }

    /// Measures the relay of a cell with the right guess; `None` if the user has interrupted.
    fn measure(
        &self,
        site: &Site,
        cell: &Cell,
        sockets: Option<u32>,
        session: Session<'_>,
    ) -> Result<Option<TimedResult>> {
        site.paths().set(NEAR, [cell.path(); 2])?;
        let guess = Rate::from_mbit_per_s(cell.limit_mbit_per_s);
        let address = site.wan.host(NEAR)?.address();
        let team = |_: &Testbed| {
            let team = LocalTeam::new(&TeamOptions {
                measurers: MEASURERS,
                pumps: Some(1),
                // Enough for a round with a doubled guess.
                capacity: Some(guess.scaled(4.0)),
                address: Some(address.into()),
                ..TeamOptions::default()
            })?;
            Ok(Box::new(team) as Box<dyn Team>)
        };
        let adjust = |request| {
            let path =
                sockets.map(|first_sockets| PathParams { first_sockets, ..PathParams::default() });
            // The failure is judged, and not what follows.
            let repeats_failures = cell.fault.is_none();
            let measurers_min = if cell.rtt_ms > 0 { MEASURERS } else { 1 };
            Request { path, repeats_failures, measurers_min, ..request }
        };
        let measurement = Measurement {
            name: cell.to_string(),
            relay: cell.relay,
            guess,
            from: NEAR,
            params: self.params(),
            team: &team,
            adjust: &adjust,
        };
        let clock = site.testbed.clock();
        let mut start = clock.now();
        let mut broke = None;
        let result = site.measure(&measurement, |trial| {
            start = clock.now();
            let pid = trial.pid;
            let (result, at) = self.with_fault(site, cell, pid, |progress| {
                trial.run_with_progress(session, progress)
            })?;
            broke = at;
            Ok(result)
        })?;
        let end = clock.now();
        let since = match cell.fault {
            Some(Fault::LosesAll) => Some(start),
            Some(fault) if fault.is_fatal() => broke,
            _ => None,
        };
        let took_since_fault = since.map(|since| end - since);
        Ok(result.map(|result| TimedResult { result, took: end - start, took_since_fault }))
    }

    /// Runs `body`, which reports its progress. At the moment of the cell's fault, if any, changes the path or stops the relay's process. Also
    /// returns when that was.
    fn with_fault<T>(
        &self,
        site: &Site,
        cell: &Cell,
        relay_pid: u32,
        body: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<T>,
    ) -> Result<(T, Option<Instant>)> {
        let actions = cell.fault.map(|fault| fault.actions(cell.path())).unwrap_or_default();
        let Some(moment) = cell.fault_at.filter(|_| !actions.is_empty()) else {
            return Ok((body(&mut |_| ())?, None));
        };
        let rtt = Duration::from_millis(cell.rtt_ms.into());
        let echo = coordinator::Mode::Echo;
        let lead_s = PathParams::at_distance(echo, Rate::ZERO, rtt, self.seconds).lead_s;
        // Also if the body fails: a stopped process cannot shut down.
        let _resumed = ResumeOnDrop(relay_pid);
        let is_due = |progress: &Progress| moment.is_reached(progress, self.seconds, lead_s);
        let paths = site.paths();
        let perform = |action| match action {
            FaultAction::SetPath(directions) => paths.set(NEAR, directions),
            FaultAction::Stop => {
                signal(relay_pid, Signal::STOP);
                Ok(())
            }
        };
        with_actions(site.testbed.clock(), is_due, actions, perform, body)
    }

    /// What the relay carries over a path without distance and this number of sockets, in Mbit/s, if that can be measured. C tor with a
    /// rate limit carries less over more sockets. The outer `None` if the user has interrupted.
    fn near_mbit(
        &self,
        site: &Site,
        cell: &Cell,
        sockets: Option<u32>,
        session: Session<'_>,
    ) -> Option<Option<f64>> {
        let problem = match self.measure(site, &cell.near(), sockets, session) {
            Ok(timed) => {
                let result = timed?.result;
                if !judge::is_slowed(cell.mode, &result) {
                    return Some(result.sent_mbit());
                }
                "it waited for a processor".to_owned()
            }
            Err(error) => error.to_string(),
        };
        session.output.step(format!("no truth for relay {}: {problem}", cell.relay));
        Some(None)
    }
}

impl Grid for WanGrid {
    type Cell = Cell;
    type Setup = Site;
    const NAME: &'static str = "wan";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/wan.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for congestion in self.congestions.iter().copied() {
            for mode in self.modes.iter().copied() {
                for (relay, limit_mbit_per_s) in self.limits.iter().copied().enumerate() {
                    let of = Cell {
                        mode,
                        rtt_ms: 0,
                        loss_percent: 0.0,
                        congestion,
                        limit_mbit_per_s,
                        fault: None,
                        fault_at: None,
                        relay,
                    };
                    cells.extend(self.of_relay(of, relay + 1 == self.limits.len()));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        format!("t = {} s, seed {}", self.seconds, self.seed)
    }

    fn setup(&self, cell: &Cell) -> String {
        format!("relays: {}, {}", cell.mode.name(), cell.congestion)
    }

    /// All measurements of a relay with one congestion control share their truths.
    fn group(&self, cell: &Cell) -> String {
        format!("{}, {}", self.setup(cell), cell.limit_mbit_per_s)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Site>> {
        let mut spec = WanSpec::pair(cell.near().path()).with_seed(self.seed);
        spec.hosts.iter_mut().for_each(|host| host.congestion = Some(cell.congestion));
        let wan = Wan::start(&spec)?;
        let limits: Vec<Rate> =
            self.limits.iter().map(|limit| Rate::from_mbit_per_s(*limit)).collect();
        Site::start(cell.mode, &limits, wan, FAR, Testbed::new()?, session.output).map(Some)
    }

    fn run(&self, site: &mut Site, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let Some(timed) = self.measure(site, cell, None, session)? else { return Ok(None) };
        let sockets = timed.result.sockets;
        let near = match judge::known_near_mbit(earlier, cell, sockets) {
            Some(known) => Some(known),
            None => match self.near_mbit(site, cell, sockets, session) {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        Ok(Some(judge::row(self, cell, near, &timed)))
    }

    fn stop(&self, site: Site) -> Result<()> {
        site.stop()
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        judge::conclude(self, rows, report);
    }
}

/// Resumes a relay's process when dropped. This has no effect on a running process.
struct ResumeOnDrop(u32);

impl Drop for ResumeOnDrop {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

/// Sends a signal. A process that has ended is reported elsewhere.
fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _gone = pid.map(|pid| kill_process(pid, signal));
}

#[cfg(test)]
impl WanGrid {
    fn example() -> Self {
        Self {
            seconds: 8,
            rtts_ms: vec![20, 100],
            losses_percent: vec![0.0, 0.02],
            congestions: vec![Congestion::Reno, Congestion::Bbr],
            limits: vec![10.0, 90.0],
            modes: vec![Mode::Transit, Mode::Echo],
            faults: vec![Fault::Breaks, Fault::BreaksOut],
            fault_at: Moment::Middle,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_are_unique_and_runs_of_a_relay_are_in_one_group() {
        let grid = WanGrid::example();
        let cells = grid.cells();
        assert_eq!(cells.len(), 2 * 2 * (2 * 4 + 2));
        let names =
            |grid: &WanGrid| grid.cells().iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut all = names(&grid);
        assert!(
            all.contains(&"echo 90, 20 ms, 0 %, breaks in the forward direction, bbr".to_owned()),
            "{all:?}"
        );
        assert!(all.contains(&"transit 10, 100 ms, 0.02 %, reno".to_owned()), "{all:?}");
        let late = names(&WanGrid { fault_at: Moment::Late, ..WanGrid::example() });
        let other = "echo 90, 20 ms, 0 %, breaks, after three quarters, bbr".to_owned();
        assert!(late.contains(&other) && !all.contains(&other), "{late:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), cells.len());
        let of = |cell: &Cell| (cell.mode, cell.congestion, cell.relay);
        for (one, other) in cells.iter().zip(&cells[1..]) {
            assert_eq!(grid.group(one) == grid.group(other), of(one) == of(other));
        }
    }
}
