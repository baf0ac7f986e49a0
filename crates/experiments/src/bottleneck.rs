//! `flashflow-lab experiment bottleneck`: a narrow link of the relay, and of one of two measurers.

mod busy;
mod judge;
mod place;

use crate::common::{Session, as_text, mbit, values_or};
use crate::error::{Error, Result};
use crate::grid::{self, Grid, GridOptions, Row, Rows, Turn};
use crate::mode::Mode;
use crate::reporting::{list, parameter, rule};
use crate::scheduled_actions::with_actions;
use crate::testbed::Testbed;
use crate::trial::{Trial, Tried};
use crate::wan_site::{Measurement, Site, enter, measurer_at, way_of_rtt};
use clap::Args;
use coordinator::{Outcome, Params};
use lab::wan::{Congestion, HostSpec, Wan, WanPath, WanSpec};
use measurer::{Progress, TeamOptions};
use onion::{Duration, Rate};
use place::{Place, QUEUE};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise, Value};
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;

const FIRST: &str = "first";
const SECOND: &str = "second";
const RELAY: &str = "relay";
const COORDINATOR: &str = "coordinator";

/// The places of the measurers on the stage. All but the first are at the second one's host: the slow one takes part in its
/// stead, and the third is next to it.
const AT_FIRST: usize = 0;
const AT_SECOND: usize = 1;
const SLOW: usize = 2;
const ALSO_AT_SECOND: usize = 3;

/// Is a bottleneck that is not the relay recognised?
///
/// A relay is measured by two measurers, each a process on a host of its own, with a bottleneck nowhere, on
/// the relay's own link (a token bucket filter, as tc makes it), on the link of one measurer (with a queue, without one, and
/// in the direction from the relay only), on the link of a host with two of three measurers, and with a measurer whose processor others use. The
/// relay's own narrow link is its capacity. In all other cases the other measurer must measure the relay correctly, and a link
/// with a queue and a processor must be named. Where a measurer's path breaks, or carries nothing, the measurement must fail and blame that measurer,
/// and the relay must be measured correctly without it; where the paths of all measurers break, or the coordinator's own to a relay that takes part, the relay must not
/// be blamed. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment bottleneck --quick --out results
  flashflow-lab experiment bottleneck --rtts-ms 40,200 --congestions reno --modes echo --link 50")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 8 to 60; 30 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Round trips; 40,200 by default, 40 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Congestion control of all hosts; bbr,reno by default, reno if --quick.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    congestions: Vec<Congestion>,
    /// How to measure; both by default, echo if --quick.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Where the bottleneck is; all by default. What the relay carries without one is measured in any case.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// The relay's rate limit in Mbit/s.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT", value_parser = mbit)]
    limit: f64,
    /// What the relay's own link lets through in Mbit/s, where that is narrow.
    #[arg(long, default_value_t = 50.0, value_name = "MBIT", value_parser = mbit)]
    link: f64,
    /// What a measurer's link lets through in Mbit/s, where that is narrow.
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
        write!(f, "{}, {}, {rtt_ms} ms, {congestion}", mode.word(), narrow.words())
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
    /// What its link lets through where that is narrow.
    link: Rate,
    /// What a measurer's link lets through where that is narrow.
    measurer: Rate,
}

/// What came of a run.
struct Measured {
    /// The measurement that counts.
    tried: Tried,
    /// The one before it, where one had to fail: because of the measurer that cannot do its part, or since the paths of all measurers, or the coordinator's, broke.
    failed: Option<Outcome>,
}

fn grid(options: &Options, is_quick: bool) -> BottleneckGrid {
    let congestions = [Congestion::Reno, Congestion::Bbr];
    let modes = [Mode::Echo, Mode::Transit];
    let rate = Rate::from_mbit_per_s;
    let mut places = values_or(&options.places, is_quick, &Place::ALL, &Place::ALL);
    // The first shows what the relay carries.
    places.retain(|it| *it != Place::Nowhere);
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
            "--places: there is nothing like {} in these --modes: a coordinator has a path of its own only to relays that take part (echo)",
            place.words()
        )));
    }
    grid::run(&grid, options.grid, session)
}

impl BottleneckGrid {
    /// A place that there is in none of the modes.
    fn place_without_mode(&self) -> Option<Place> {
        let is_nowhere = |place: &Place| !self.modes.iter().any(|mode| place.is_there(*mode));
        self.places.iter().copied().find(is_nowhere)
    }

    /// What each measurer has: enough for one of them to measure the relay alone.
    fn capacity(&self) -> Rate {
        self.limit.scaled(4.0)
    }

    /// Measures the relay with the right guess by these measurers; `None` if the user has interrupted.
    fn trial(
        &self,
        site: &Site,
        cell: &Cell,
        measurers: &[usize],
        around: impl FnOnce(Trial<'_, '_>) -> Result<Option<Tried>>,
    ) -> Result<Option<Tried>> {
        let team = |stage: &Testbed| {
            let params = Params { seconds: self.seconds, ..TeamOptions::default().params };
            stage.team_of(measurers.iter().map(|it| (*it, self.capacity())), params)
        };
        let name = cell.to_string();
        let measurement =
            Measurement { name, relay: 0, guess: self.limit, from: COORDINATOR, team: &team };
        site.measure(&measurement, around)
    }

    fn measure(&self, site: &Site, cell: &Cell, session: Session<'_>) -> Result<Option<Measured>> {
        let place = cell.narrow;
        let way = way_of_rtt(cell.rtt_ms, 0.0);
        let paths = site.paths();
        let set = |hosts: &[&str], way: WanPath| {
            hosts.iter().try_for_each(|host| paths.set(host, [way; 2]))
        };
        let mend = || set(&[FIRST, SECOND, COORDINATOR], way);
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
            // In this order: a team that does not consider hosts takes the first two.
            Place::Host => vec![AT_SECOND, ALSO_AT_SECOND, AT_FIRST],
            _ => vec![AT_FIRST, AT_SECOND],
        };
        let broken: &[&str] = match place {
            Place::Breaks => &[SECOND],
            Place::All => &[FIRST, SECOND],
            Place::Coordinator => &[COORDINATOR],
            _ => &[],
        };
        if place == Place::Gone {
            set(&[SECOND], way.blackholed())?;
        }
        let tried = self.trial(site, cell, &measurers, |trial| match place {
            Place::Processor => busy::with_busy_thread(|| trial.run(session)),
            _ if broken.is_empty() => trial.run(session),
            _ => self.while_paths_break(
                site,
                || set(broken, way.blackholed()),
                |progress| trial.run_telling(session, progress),
            ),
        })?;
        let Some(tried) = tried else { return Ok(None) };
        if !place.fails() {
            return Ok(Some(Measured { tried, failed: None }));
        }
        // As a coordinator does.
        let remaining = if place.is_lost() {
            &measurers[..1]
        } else {
            mend()?;
            &measurers
        };
        let failed = Some(tried.outcome);
        let again = self.trial(site, cell, remaining, |trial| trial.run(session))?;
        Ok(again.map(|tried| Measured { tried, failed }))
    }

    /// Runs `body`, during which paths break, after a quarter of the seconds: the silence must be long enough to be noticed before
    /// the round is over.
    ///
    /// # Errors
    /// Also if the measurement was over before that: how it ended says nothing then.
    fn while_paths_break(
        &self,
        site: &Site,
        break_paths: impl Fn() -> Result<()> + Sync + Send,
        body: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<Option<Tried>>,
    ) -> Result<Option<Tried>> {
        let breaks_at = self.seconds / 4;
        let has_come = |progress: &Progress| matches!(progress, Progress::Second { index, .. } if *index + 1 >= breaks_at);
        let acts = vec![(Duration::ZERO, ())];
        match with_actions(site.stage.clock(), has_come, acts, |()| break_paths(), body)? {
            (Some(tried), None) => Err(Error::Failed(format!(
                "the measurement was over before the path broke: {}",
                tried.outcome
            ))),
            (tried, _) => Ok(tried),
        }
    }
}

impl Grid for BottleneckGrid {
    type Cell = Cell;
    type World = Site;
    const NAME: &'static str = "bottleneck";
    const TEXT: &'static str = include_str!("../../../docs/experiments/bottleneck.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for congestion in self.congestions.iter().copied() {
            for mode in self.modes.iter().copied() {
                for rtt_ms in self.rtts_ms.iter().copied() {
                    let places = self.places.iter().filter(|place| place.is_there(mode));
                    cells.extend(places.map(|it| Cell { mode, narrow: *it, rtt_ms, congestion }));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> String {
        let Self { seconds, limit, link, measurer, .. } = self;
        format!("t = {seconds} s, limit {limit}, link {link}, measurer's link {measurer}")
    }

    fn world(&self, cell: &Cell) -> String {
        format!("relay and measurers: {}, {}", cell.mode.word(), cell.congestion)
    }

    /// The first of a group shows what the relay carries without a bottleneck.
    fn group(&self, cell: &Cell) -> String {
        format!("{}, {} ms", self.world(cell), cell.rtt_ms)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Site>> {
        let hosts = [FIRST, SECOND, RELAY, COORDINATOR].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(cell.congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()))?;
        // This thread goes from host to host: processes and threads that it starts stay where it was.
        enter(wan.host(COORDINATOR)?)?;
        let mut stage = Testbed::new()?;
        let all = [(FIRST, false), (SECOND, false), (SECOND, true), (SECOND, false)];
        for (name, is_slow) in all {
            // A process is as slow as the thread that starts it.
            let prepare = || if is_slow { busy::slow_down() } else { Ok(()) };
            measurer_at(wan.host(name)?, &mut stage, self.capacity(), prepare)?;
        }
        Site::start(cell.mode, &[self.limit], wan, RELAY, stage, session.output).map(Some)
    }

    fn play(&self, site: &mut Site, turn: Turn<'_, Cell>) -> Result<Option<Row>> {
        let Turn { cell, earlier, session } = turn;
        let Some(measured) = self.measure(site, cell, session)? else { return Ok(None) };
        let free = Cell { narrow: Place::Nowhere, ..*cell };
        let sent = |case: &Case| case.value("sent_mbit_per_s").and_then(Value::as_f64);
        let truth = match cell.narrow {
            Place::Relay => Some(self.link.as_mbit_per_s()),
            Place::Nowhere => measured.tried.sent_mbit(),
            _ => earlier.cases().find(|(it, _)| **it == free).and_then(|(_, case)| sent(case)),
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
        let held = all > 0 && held == all;
        report.promise = Promise::Decided { held, rule: rule(Self::TEXT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn planned(arguments: &str) -> BottleneckGrid {
        let command = Options::augment_args(Command::new("bottleneck").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments.split_whitespace()).expect("right");
        grid(&Options::from_arg_matches(&matches).expect("options"), true)
    }

    #[test]
    fn a_place_that_is_in_none_of_the_modes_is_an_error() {
        for (arguments, place, runs) in [
            ("--modes transit --places coordinator", Some(Place::Coordinator), 1),
            ("--modes echo,transit --places coordinator", None, 3),
            ("--modes transit --places all", None, 2),
            ("", None, Place::ALL.len()),
        ] {
            let grid = planned(arguments);
            assert_eq!(
                (grid.place_without_mode(), grid.cells().len()),
                (place, runs),
                "{arguments}"
            );
        }
    }
}
