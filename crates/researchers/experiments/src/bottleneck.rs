//! `flashflow-lab experiment bottleneck`: measurements with bottlenecks other than the relay itself.

mod busy;
mod judge;
mod place;

use crate::common::{Session, as_text, mbit, values_or, values_or_all};
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::mode::Mode;
use crate::reporting::{list, parameter};
use crate::scheduled_actions::with_actions;
use crate::testbed::{self, Testbed};
use crate::trial::{Trial, TrialResult};
use crate::wan_site::{Measurement, Site, enter, measurer_at, path_with_rtt};
use authority::one_relay::Request;
use authority::shell::Team;
use clap::Args;
use coordinator::{Outcome, Progress};
use lab::wan::{Congestion, HostSpec, Wan, WanPath, WanSpec};
use onion::{Duration, Rate};
use place::{Place, QUEUE};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Value};
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;

const FIRST: &str = "first";
const SECOND: &str = "second";
const RELAY: &str = "relay";
const COORDINATOR: &str = "coordinator";

/// The places of the measurers on the testbed. All but the first are at the second one's host. The slow measurer replaces the
/// second one, and the last is a further measurer at that host.
const AT_FIRST: usize = 0;
const AT_SECOND: usize = 1;
const SLOW: usize = 2;
const ALSO_AT_SECOND: usize = 3;

/// Is a bottleneck that is not the relay recognised?
///
/// Two measurers on separate hosts measure a relay with a bottleneck at one place: none, the relay's own link (a token bucket
/// filter of tc), the link of one measurer (with a queue, without one, or on the return path only), the link of a host with two of
/// three measurers, or the processor of a measurer. The relay's own narrow link is its capacity. In all other cases the other
/// measurer must measure the relay correctly, and links with a queue and busy processors must be named. If the path of a measurer
/// breaks or carries nothing, the measurement must fail and blame that measurer, and a measurement without it must be right. If the
/// paths of all measurers break, or the coordinator's path to a FlashFlow relay, the relay must not be blamed. Needs root for
/// network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment bottleneck --quick --out results
  flashflow-lab experiment bottleneck --rtts-ms 40,200 --congestions reno --modes echo --link 50")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 8 to 60; 30 by default, 12 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Round trips; 40,200 by default, 40 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Congestion control of all hosts; bbr,reno by default, reno with --quick.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    congestions: Vec<Congestion>,
    /// Kinds of measurement; both by default, echo with --quick.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Places of the bottleneck; all by default. What the relay carries without a bottleneck is always measured.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// The relay's rate limit in Mbit/s.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT", value_parser = mbit)]
    limit: f64,
    /// Rate of the relay's own link in Mbit/s, where that is narrow.
    #[arg(long, default_value_t = 50.0, value_name = "MBIT", value_parser = mbit)]
    link: f64,
    /// Rate of a measurer's link in Mbit/s, where that is narrow.
    #[arg(long, default_value_t = 20.0, value_name = "MBIT", value_parser = mbit)]
    measurer: f64,
    #[command(flatten)]
    grid: GridOptions,
}

/// A relay measured with a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    mode: Mode,
    narrow: Place,
    rtt_ms: u32,
    #[serde(serialize_with = "as_text")]
    congestion: Congestion,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, narrow, rtt_ms, congestion } = self;
        write!(f, "{}, {}, {rtt_ms} ms, {congestion}", mode.name(), narrow.description())
    }
}

struct BottleneckGrid {
    seconds: u32,
    rtts_ms: Vec<u32>,
    congestions: Vec<Congestion>,
    modes: Vec<Mode>,
    places: Vec<Place>,
    /// The relay's limit.
    limit: Rate,
    /// The rate of its link where that is narrow.
    link: Rate,
    /// The rate of a measurer's link where that is narrow.
    measurer: Rate,
}

/// The result of a run.
struct Measured {
    /// The measurement to judge.
    result: TrialResult,
    /// The outcome of an earlier measurement that had to fail because of a broken path, if there was one.
    failed: Option<Outcome>,
}

fn grid(options: &Options, is_quick: bool) -> BottleneckGrid {
    let congestions = [Congestion::Reno, Congestion::Bbr];
    let modes = [Mode::Echo, Mode::Transit];
    let rate = Rate::from_mbit_per_s;
    let mut places = values_or_all(&options.places);
    // The first run determines what the relay carries.
    places.retain(|place| *place != Place::Nowhere);
    places.insert(0, Place::Nowhere);
    BottleneckGrid {
        seconds: options.seconds.unwrap_or(if is_quick { 12 } else { 30 }),
        rtts_ms: values_or(&options.rtts_ms, is_quick, &[40], &[40, 200]),
        congestions: values_or(&options.congestions, is_quick, &congestions[..1], &congestions),
        modes: values_or(&options.modes, is_quick, &modes[..1], &modes),
        places,
        limit: rate(options.limit),
        link: rate(options.link),
        measurer: rate(options.measurer),
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let grid = grid(options, session.common.quick);
    if let Some(place) = grid.place_without_mode().filter(|_| !options.places.is_empty()) {
        return Err(Error::Usage(format!(
            "--places: {} does not exist in these --modes: the coordinator has a path only to relays that take part (echo)",
            place.description()
        )));
    }
    grid::run(&grid, options.grid, session)
}

impl BottleneckGrid {
    /// A place that exists in none of the modes.
    fn place_without_mode(&self) -> Option<Place> {
        let is_missing = |place: &Place| !self.modes.iter().any(|mode| place.exists_in(*mode));
        self.places.iter().copied().find(is_missing)
    }

    /// The capacity of each measurer, enough to measure the relay alone.
    fn capacity(&self) -> Rate {
        self.limit.scaled(4.0)
    }

    /// Prepares a measurement with a right guess by these measurers, which `run` runs; `None` if the user has interrupted.
    fn trial(
        &self,
        site: &Site,
        cell: &Cell,
        measurers: &[usize],
        run: impl FnOnce(Trial<'_, '_>) -> Result<Option<TrialResult>>,
    ) -> Result<Option<TrialResult>> {
        let team = |testbed: &Testbed| {
            let shares = measurers.iter().map(|measurer| (*measurer, self.capacity()));
            Ok(Box::new(testbed.team_of(shares)) as Box<dyn Team>)
        };
        let measurement = Measurement {
            name: cell.to_string(),
            relay: 0,
            guess: self.limit,
            from: COORDINATOR,
            params: testbed::params(self.seconds),
            team: &team,
            // The coordinator measures again without a measurer that cannot take part.
            adjust: &|request| Request {
                measurers_min: 2,
                repeats_failures: cell.narrow.is_lost(),
                ..request
            },
        };
        site.measure(&measurement, run)
    }

    fn measure(&self, site: &Site, cell: &Cell, session: Session<'_>) -> Result<Option<Measured>> {
        let place = cell.narrow;
        let path = path_with_rtt(cell.rtt_ms, 0.0);
        let paths = site.paths();
        let set = |hosts: &[&str], path: WanPath| {
            hosts.iter().try_for_each(|host| paths.set(host, [path; 2]))
        };
        let mend = || set(&[FIRST, SECOND, COORDINATOR], path);
        mend()?;
        let host = site.wan.host(RELAY)?;
        if place == Place::Relay {
            host.shape(self.link, self.link.bytes_in(QUEUE))?;
        } else {
            host.unshape()?;
        }
        site.wan.set_access(SECOND, place.access(self.measurer))?;
        let measurers = match place {
            Place::Processor => vec![AT_FIRST, SLOW],
            // In this order, since a team that ignores hosts uses the first two.
            Place::Host => vec![AT_SECOND, ALSO_AT_SECOND, AT_FIRST],
            _ => vec![AT_FIRST, AT_SECOND],
        };
        let breaking: &[&str] = match place {
            Place::Breaks => &[SECOND],
            Place::All => &[FIRST, SECOND],
            Place::Coordinator => &[COORDINATOR],
            _ => &[],
        };
        if place == Place::Gone {
            set(&[SECOND], path.blackholed())?;
        }
        let result = self.trial(site, cell, &measurers, |trial| match place {
            Place::Processor => busy::with_busy_thread(|| trial.run(session)),
            _ if breaking.is_empty() => trial.run(session),
            _ => self.while_paths_break(
                site,
                || set(breaking, path.blackholed()),
                |progress| trial.run_with_progress(session, progress),
            ),
        })?;
        let Some(result) = result else { return Ok(None) };
        if !place.fails() {
            return Ok(Some(Measured { result, failed: None }));
        }
        let failed = Some(result.failed.clone().unwrap_or_else(|| result.outcome.clone()));
        if place.is_lost() {
            return Ok(Some(Measured { result, failed }));
        }
        mend()?;
        let again = self.trial(site, cell, &measurers, |trial| trial.run(session))?;
        Ok(again.map(|result| Measured { result, failed }))
    }

    /// Runs `body`, and breaks paths after a quarter of its seconds, so that the silence is noticed before the round ends.
    ///
    /// # Errors
    /// Also if the measurement ended before that, because its outcome then means nothing.
    fn while_paths_break(
        &self,
        site: &Site,
        break_paths: impl Fn() -> Result<()> + Sync + Send,
        body: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<Option<TrialResult>>,
    ) -> Result<Option<TrialResult>> {
        let breaks_at = self.seconds / 4;
        let is_due = |progress: &Progress| matches!(progress, Progress::Second { index, .. } if *index + 1 >= breaks_at);
        let actions = vec![(Duration::ZERO, ())];
        match with_actions(site.testbed.clock(), is_due, actions, |()| break_paths(), body)? {
            (Some(result), None) => Err(Error::Failed(format!(
                "the measurement ended before the path broke: {}",
                result.outcome
            ))),
            (result, _) => Ok(result),
        }
    }
}

impl Grid for BottleneckGrid {
    type Cell = Cell;
    type Setup = Site;
    const NAME: &'static str = "bottleneck";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/bottleneck.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for congestion in self.congestions.iter().copied() {
            for mode in self.modes.iter().copied() {
                for rtt_ms in self.rtts_ms.iter().copied() {
                    let places = self.places.iter().filter(|place| place.exists_in(mode));
                    cells.extend(places.map(|place| Cell {
                        mode,
                        narrow: *place,
                        rtt_ms,
                        congestion,
                    }));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        let Self { seconds, limit, link, measurer, .. } = self;
        format!("t = {seconds} s, limit {limit}, link {link}, measurer's link {measurer}")
    }

    fn setup(&self, cell: &Cell) -> String {
        format!("relay and measurers: {}, {}", cell.mode.name(), cell.congestion)
    }

    /// The first run of a group determines what the relay carries without a bottleneck.
    fn group(&self, cell: &Cell) -> String {
        format!("{}, {} ms", self.setup(cell), cell.rtt_ms)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Site>> {
        let hosts = [FIRST, SECOND, RELAY, COORDINATOR].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(cell.congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()))?;
        // This thread moves between hosts; processes and threads that it starts stay at the host of their start.
        enter(wan.host(COORDINATOR)?)?;
        let mut testbed = Testbed::new()?;
        let all = [(FIRST, false), (SECOND, false), (SECOND, true), (SECOND, false)];
        for (name, is_slow) in all {
            // A process inherits the priority of the thread that starts it.
            let prepare = || if is_slow { busy::slow_down() } else { Ok(()) };
            measurer_at(wan.host(name)?, &mut testbed, self.capacity(), prepare)?;
        }
        Site::start(cell.mode, &[self.limit], wan, RELAY, testbed, session.output).map(Some)
    }

    fn run(&self, site: &mut Site, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let Some(measured) = self.measure(site, cell, session)? else { return Ok(None) };
        let free = Cell { narrow: Place::Nowhere, ..*cell };
        let sent = |case: &Case| case.value("sent_mbit_per_s").and_then(Value::as_f64);
        let truth = match cell.narrow {
            Place::Relay => Some(self.link.as_mbit_per_s()),
            Place::Nowhere => measured.result.sent_mbit(),
            _ => {
                earlier.cases().find(|(other, _)| **other == free).and_then(|(_, case)| sent(case))
            }
        };
        Ok(Some(judge::case(cell, truth, &measured).into()))
    }

    fn stop(&self, site: Site) -> Result<()> {
        site.stop()
    }

    fn conclude(&self, _: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let (held, all) = (report.count(CaseVerdict::Held), report.cases.len());
        report.answer = format!(
            "In {held} of {all} runs the estimate was conclusive and right, and the bottleneck was named."
        );
        report.parameters = vec![
            parameter("seconds t", self.seconds),
            parameter("round trips, ms", list(&self.rtts_ms)),
            parameter("congestion control", list(&self.congestions)),
            parameter("the relay's limit", self.limit.to_string()),
            parameter("its link, where that is narrow", self.link),
            parameter("a measurer's link, where that is narrow", self.measurer),
        ];
        report.promise = Self::promise(all > 0 && held == all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::parse_options;
    use clap::ValueEnum;

    #[test]
    fn a_place_that_exists_in_no_mode_is_found() {
        for (arguments, place, runs) in [
            ("--modes transit --places coordinator", Some(Place::Coordinator), 1),
            ("--modes echo,transit --places coordinator", None, 3),
            ("--modes transit --places all", None, 2),
            ("", None, Place::value_variants().len()),
        ] {
            let grid = grid(&parse_options(arguments), true);
            assert_eq!(
                (grid.place_without_mode(), grid.cells().len()),
                (place, runs),
                "{arguments}"
            );
        }
    }
}
