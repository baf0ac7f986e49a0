//! `flashflow-lab experiment with-clients`: C tor relays that clients use while they are measured in transit.

use crate::common::{Session, mbit, values_or};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::mode::Mode;
use crate::reporting::parameter;
use crate::testbed::{self, PatchedTor, Testbed};
use crate::trial::{self, Trial, TrialResult};
use crate::wan_site::Relays;
use clap::Args;
use coordinator::{Params, PastEstimate};
use lab::RelayReports;
use lab::load::{ClientLoad, ClientTraffic};
use onion::measure::load::Target;
use onion::{Duration, Rate};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Role, Series,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Estimate over truth within which a case in transit holds. By echo, those of all experiments hold.
const BOUNDS: RangeInclusive<f64> = 0.9..=1.1;

/// The share of cases that must hold.
const HELD_MIN: f64 = 0.9;

/// The duration of the relay's bandwidth history before a measurement.
const HISTORY_S: u32 = 10;

/// The window of tor's observed bandwidth, in seconds (dir-spec, "bandwidth").
const OBSERVED_S: usize = 10;

const LINKS: u32 = 20;
const MEASURERS: usize = 2;

/// How accurate is a measurement in transit of a relay with clients?
///
/// A C tor relay with a rate limit, and one that only its processor limits, are measured in transit while clients use them. Three
/// estimates are compared with what the relay's process sent according to the kernel: the lower bound as measured; the bound and the
/// relay's history of written bytes before the measurement; and the bound and the relay's observed bandwidth, which is what the
/// coordinator publishes. The second and third believe the relay's claim up to the share r of clients. With --tor, a relay of a
/// patched tor with the same rate limit is measured by echo.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment with-clients --quick --out results")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 10 to 120; 30 by default, 12 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=120))]
    seconds: Option<u32>,
    /// Runs of each case; 3 by default, 1 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The clients' demand in percent of the relay's capacity; 0,10,20,40,60,80,90 by default, 0,20,60 with --quick.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = clap::value_parser!(u32).range(0..=200))]
    demands: Vec<u32>,
    /// Circuits of the clients.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=2000))]
    circuits: u32,
    /// Rate limit of the first relay in Mbit/s.
    #[arg(long, default_value_t = 50.0, value_name = "MBIT", value_parser = mbit)]
    limit: f64,
    #[command(flatten)]
    tor: PatchedTor,
    #[command(flatten)]
    grid: GridOptions,
}

/// What limits a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum LimitedBy {
    Rate,
    Processor,
    /// Its rate; it is of a patched tor, and measured by echo.
    RateByEcho,
}

impl LimitedBy {
    const IN_TRANSIT: [Self; 2] = [Self::Rate, Self::Processor];

    const fn in_words(self) -> &'static str {
        match self {
            Self::Rate => "limited by its rate",
            Self::Processor => "limited by its processor",
            Self::RateByEcho => "by echo, limited by its rate",
        }
    }
}

/// A measurement while clients have a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Cell {
    limited_by: LimitedBy,
    /// Relative to what the relay carries.
    demand_percent: u32,
    /// From one.
    run: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limited_by, demand_percent, run } = self;
        write!(f, "{}, clients want {demand_percent} %, run {run}", limited_by.in_words())
    }
}

/// The estimates of a run, in Mbit/s.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Estimates {
    /// What came back.
    measured_mbit_per_s: f64,
    /// The mean rate at which the relay wrote before the measurement.
    history_mbit_per_s: f64,
    /// The most that it wrote in ten seconds.
    observed_mbit_per_s: f64,
    /// What was measured, and the history.
    with_history_mbit_per_s: f64,
    /// What was measured, and the observed bandwidth.
    with_observed_mbit_per_s: f64,
    /// With a claim of any size.
    with_a_lie_mbit_per_s: f64,
    lower_mbit_per_s: f64,
    upper_mbit_per_s: f64,
}

impl Estimates {
    fn new(measured: Rate, history: Rate, observed: Rate, params: &Params) -> Option<Self> {
        let bound = PastEstimate {
            capacity: measured,
            measured_unix_s: 0,
            mode: Some(coordinator::Mode::Transit),
            is_conclusive: Some(false),
            sockets: None,
        };
        let with = |claim| Some(bound.with_clients(claim, params)?.as_mbit_per_s());
        let bounds = bound.bounds_with_clients(params)?;
        Some(Self {
            measured_mbit_per_s: measured.as_mbit_per_s(),
            history_mbit_per_s: history.as_mbit_per_s(),
            observed_mbit_per_s: observed.as_mbit_per_s(),
            with_history_mbit_per_s: with(measured + history)?,
            with_observed_mbit_per_s: with(observed)?,
            with_a_lie_mbit_per_s: with(Rate::from_bit_per_s(u64::MAX))?,
            lower_mbit_per_s: bounds.lower.as_mbit_per_s(),
            upper_mbit_per_s: bounds.upper?.as_mbit_per_s(),
        })
    }

    /// Whether the interval contains this rate.
    fn contains(&self, truth_mbit_per_s: f64) -> bool {
        (self.lower_mbit_per_s..=self.upper_mbit_per_s).contains(&truth_mbit_per_s)
    }
}

struct WithClients {
    seconds: u32,
    runs: u32,
    demands_percent: Vec<u32>,
    circuits: u32,
    limit: Rate,
    tor: Option<PathBuf>,
}

/// The relays, in the order of [`LimitedBy::IN_TRANSIT`], or that of a patched tor; and measurers.
struct Setup {
    relays: Relays,
    testbed: Testbed,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let is_quick = session.common.quick;
    let demands = [0, 10, 20, 40, 60, 80, 90];
    let mut demands_percent = values_or(&options.demands, is_quick, &[0, 20, 60], &demands);
    // The first determines what a relay carries.
    demands_percent.push(0);
    demands_percent.sort_unstable();
    demands_percent.dedup();
    let experiment = WithClients {
        seconds: session.or(options.seconds, 12, 30),
        runs: session.or(options.runs, 1, 3),
        demands_percent,
        circuits: options.circuits,
        limit: Rate::from_mbit_per_s(options.limit),
        tor: options.tor.program()?,
    };
    grid::run(&experiment, options.grid, session)
}

impl WithClients {
    fn params(&self) -> Params {
        Params { may_have_clients: true, ..testbed::params(self.seconds) }
    }

    /// What a relay carries without clients, by an earlier run; the guess before there is one.
    fn carried(&self, cell: &Cell, earlier: &Rows<'_, Cell>) -> Rate {
        let of_relay = earlier
            .cases()
            .find(|(other, _)| other.limited_by == cell.limited_by && other.demand_percent == 0);
        let known = of_relay.and_then(|(_, case)| case.truth_mbit_per_s);
        match (known, cell.limited_by) {
            (Some(mbit), _) => Rate::from_mbit_per_s(mbit),
            (None, LimitedBy::Rate | LimitedBy::RateByEcho) => self.limit,
            (None, LimitedBy::Processor) => self.limit.scaled(8.0),
        }
    }

    fn clients(&self, target: Target, demand: Rate, testbed: &Testbed) -> Result<ClientLoad> {
        let links = self.circuits.min(LINKS);
        let circuits_per_link = self.circuits.div_ceil(links);
        let traffic =
            ClientTraffic { rate: demand, links, circuits_per_link, begins_at_once: true };
        Ok(ClientLoad::start(target, traffic, testbed.clock())?)
    }
}

impl Grid for WithClients {
    type Cell = Cell;
    type Setup = Setup;
    const NAME: &'static str = "with-clients";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/with-clients.md");

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let by_echo = self.tor.as_ref().map(|_| LimitedBy::RateByEcho);
        for limited_by in LimitedBy::IN_TRANSIT.into_iter().chain(by_echo) {
            for demand_percent in self.demands_percent.iter().copied() {
                cells.extend((1..=self.runs).map(|run| Cell { limited_by, demand_percent, run }));
            }
        }
        cells
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("length of a measurement", format!("{} s", self.seconds)),
            parameter("share of clients r", self.params().ratio),
            parameter("limit of the first relay", self.limit),
            parameter("circuits of the clients", self.circuits),
        ]
    }

    /// The first run of a relay determines the clients' demand in the others.
    fn group(&self, cell: &Cell) -> String {
        cell.limited_by.in_words().to_owned()
    }

    fn setup(&self, cell: &Cell) -> String {
        let kind = if cell.limited_by == LimitedBy::RateByEcho { "patched tor" } else { "tor" };
        format!("relays: {kind}")
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Setup>> {
        // The relay that its processor limits must be the bottleneck.
        let testbed = Testbed::with_measurers(MEASURERS, self.limit.scaled(200.0), session.output)?;
        let limits = [Some(self.limit), None];
        let (here, output) = (Ipv4Addr::LOCALHOST, session.output);
        let relays = match self.tor.as_deref() {
            Some(tor) if cell.limited_by == LimitedBy::RateByEcho => {
                Relays::start_patched(tor, &limits[..1], here, &testbed, output)?
            }
            _ => Relays::start(Mode::Transit, &limits, here, &testbed, output)?,
        };
        Ok(Some(Setup { relays, testbed }))
    }

    fn run(&self, setup: &mut Setup, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let Setup { relays, testbed } = setup;
        let carried = self.carried(cell, &earlier);
        let place = usize::from(cell.limited_by == LimitedBy::Processor);
        let params = self.params();
        let (request, pid, mut reports) =
            relays.subject(place, carried.scaled(1.2), params, testbed)?;
        let target = Target { address: request.router.address, ids: request.router.ids };
        session.output.doing(format!("{cell}: clients"));
        let demand = carried.scaled(f64::from(cell.demand_percent) / 100.0);
        let clients = (demand > Rate::ZERO).then(|| self.clients(target, demand, testbed));
        let clients = clients.transpose()?;
        let history = history(&mut reports);
        let team = &testbed.team(MEASURERS);
        let name = &cell.to_string();
        let result = Trial { name, team, request, pid, reports: &mut reports }.run(session)?;
        let Some(result) = result else { return Ok(None) };
        let failure = clients.and_then(|clients| clients.failure());
        judge(cell, history, &result, failure, &params).map(Some)
    }

    fn stop(&self, setup: Setup) -> Result<()> {
        setup.relays.stop()
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let all: Vec<(&Cell, Estimates, f64)> = rows
            .iter()
            .filter_map(|(cell, row)| {
                let truth = row.cases.first()?.truth_mbit_per_s?;
                Some((cell, row.data()?, truth))
            })
            .collect();
        let share = |holds: &dyn Fn(&Estimates, f64) -> bool| {
            let count = all.iter().filter(|(_, estimates, truth)| holds(estimates, *truth)).count();
            format!("{count} of {}", all.len())
        };
        let within = |estimate: fn(&Estimates) -> f64| {
            share(&|estimates, truth| BOUNDS.contains(&(estimate(estimates) / truth)))
        };
        let largest = |estimate: fn(&Estimates) -> f64| {
            all.iter().map(|(_, estimates, truth)| estimate(estimates) / truth).fold(0.0, f64::max)
        };
        report.answer = format!(
            "In transit, within 10 % of what the relay carried were {} results as measured, {} with the relay's history, and {} with its observed \
             bandwidth. {} intervals contain it. A relay that lies in its descriptor gained at most a factor of {:.3}.",
            within(|estimates| estimates.measured_mbit_per_s),
            within(|estimates| estimates.with_history_mbit_per_s),
            within(|estimates| estimates.with_observed_mbit_per_s),
            share(&Estimates::contains),
            largest(|estimates| estimates.with_a_lie_mbit_per_s),
        );
        report.figures = LimitedBy::IN_TRANSIT.map(|limited_by| figure(limited_by, &all)).into();
        let held = report.count(CaseVerdict::Held);
        report.promise =
            Self::promise(held > 0 && f64_of(held) >= HELD_MIN * f64_of(report.cases.len()));
    }
}

/// The mean rate at which the relay writes in the next [`HISTORY_S`] seconds.
fn history(reports: &mut RelayReports<'_>) -> Rate {
    let begin = reports.now();
    reports.gather_until(begin + Duration::from_secs(u64::from(HISTORY_S) + 1));
    // The clients' circuits are new in the first second.
    let ends = (2..=HISTORY_S).map(|second| begin + Duration::from_secs(second.into()));
    let rates: Vec<Rate> = ends.filter_map(|end| reports.second_ending(end)).collect();
    mean(&rates)
}

fn mean(rates: &[Rate]) -> Rate {
    let sum: Rate = rates.iter().copied().sum();
    sum.scaled(1.0 / f64_of(rates.len().max(1)))
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs and seconds are below 2^53")]
fn f64_of(count: usize) -> f64 {
    count as f64
}

/// Tor's observed bandwidth, from its own counts: the highest mean over ten seconds.
fn observed(result: &TrialResult) -> Rate {
    let rates: Vec<Rate> = result.seconds.iter().filter_map(|second| second.reported).collect();
    rates.windows(OBSERVED_S.min(rates.len()).max(1)).map(mean).max().unwrap_or_default()
}

fn judge(
    cell: &Cell,
    history: Rate,
    result: &TrialResult,
    failure: Option<String>,
    params: &Params,
) -> Result<Row> {
    let truth = result.sent_mbit().filter(|mbit| *mbit > 0.0);
    let measured = result.estimate().map(|estimate| estimate.capacity);
    if cell.limited_by == LimitedBy::RateByEcho {
        return Ok(by_echo(cell, truth, result, failure));
    }
    let observed = observed(result);
    let estimates =
        measured.and_then(|measured| Estimates::new(measured, history, observed, params));
    let Some((truth, estimates)) = truth.zip(estimates) else {
        let case = Case::named(cell.to_string());
        return Ok(case.ended(CaseVerdict::Failed, result.outcome.to_string()).into());
    };
    let estimate = Some(estimates.with_observed_mbit_per_s);
    let case = Case::judged(cell.to_string(), truth, estimate, BOUNDS);
    let case = match (failure, estimates.contains(truth)) {
        (Some(problem), _) => {
            case.ended(CaseVerdict::Failed, format!("its clients failed: {problem}"))
        }
        (None, false) => case.ended(CaseVerdict::Missed, "the interval does not contain it"),
        (None, true) => case,
    };
    let case = result.with_loads(case.with(cell).with(&estimates));
    Row::from(case).with_data(&estimates)
}

/// The row of a measurement by echo, which contains what clients had.
fn by_echo(cell: &Cell, truth: Option<f64>, result: &TrialResult, failure: Option<String>) -> Row {
    let Some((truth, estimate)) = truth.zip(result.estimate_mbit()) else {
        let case = Case::named(cell.to_string());
        return case.ended(CaseVerdict::Failed, result.outcome.to_string()).into();
    };
    let case = Case::judged(cell.to_string(), truth, Some(estimate), trial::BOUNDS);
    let case = match failure {
        Some(problem) => case.ended(CaseVerdict::Failed, format!("its clients failed: {problem}")),
        None => case,
    };
    result.with_loads(case.with(cell)).into()
}

/// Estimates over the truth by the clients' demand.
fn figure(limited_by: LimitedBy, all: &[(&Cell, Estimates, f64)]) -> ExperimentFigure {
    let points = |estimate: fn(&Estimates) -> f64| {
        let of_relay = all.iter().filter(|(cell, ..)| cell.limited_by == limited_by);
        let point = |(cell, estimates, truth): &(&Cell, Estimates, f64)| {
            (f64::from(cell.demand_percent), estimate(estimates) / truth)
        };
        of_relay.map(point).collect::<Vec<_>>()
    };
    let (name, words) = match limited_by {
        LimitedBy::Rate | LimitedBy::RateByEcho => ("rate", "a rate limit"),
        LimitedBy::Processor => ("processor", "its processor"),
    };
    let x = Axis::new("clients' demand, % of the capacity");
    let y = Axis::new("estimate ÷ truth").showing(0.0, 1.2);
    ExperimentFigure::new(name, &format!("Estimates of a relay with {words} as its limit"), x, y)
        .band(On::Y, *BOUNDS.start(), *BOUNDS.end(), "±10 %", Role::Truth)
        .with(Series::dots("measured", Role::Nth(1), points(|estimates| estimates.measured_mbit_per_s)))
        .with(Series::dots("and history", Role::Nth(2), points(|estimates| estimates.with_history_mbit_per_s)))
        .with(Series::dots(
            "and observed bandwidth",
            Role::Measurement,
            points(|estimates| estimates.with_observed_mbit_per_s),
        ))
        .caption("Each estimate relative to what the relay's process sent while it was measured, according to the kernel.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_closes_a_gap_up_to_the_share_of_clients_and_a_lie_gains_no_more() {
        let rate = Rate::from_mbit_per_s;
        let estimates = |measured, history, observed| {
            Estimates::new(rate(measured), rate(history), rate(observed), &Params::default())
                .unwrap()
        };
        let light = estimates(80.0, 20.0, 100.0);
        assert!((light.with_history_mbit_per_s - 100.0).abs() < 0.1, "{light:?}");
        assert!((light.with_observed_mbit_per_s - 100.0).abs() < 0.1, "{light:?}");
        assert!(light.contains(100.0) && !light.contains(140.0) && !light.contains(70.0));
        let heavy = estimates(30.0, 70.0, 100.0);
        assert!((heavy.with_observed_mbit_per_s - 40.0).abs() < 0.1, "{heavy:?}");
        assert!((heavy.with_a_lie_mbit_per_s - 40.0).abs() < 0.1 && !heavy.contains(100.0));
    }

    #[test]
    fn an_observed_bandwidth_is_the_highest_mean_over_ten_seconds() {
        let seconds = (0..15_u32).map(|second| trial::TrialSecond {
            end: onion::Instant::ORIGIN,
            measured: Rate::ZERO,
            reported: Some(Rate::from_mbit_per_s(if second < 5 { 10.0 } else { 40.0 })),
            sent: Rate::ZERO,
            quarters: Default::default(),
        });
        let result = TrialResult {
            seconds: seconds.collect(),
            ..TrialResult::with_estimate(Rate::ZERO, None)
        };
        assert_eq!(observed(&result), Rate::from_mbit_per_s(40.0));
    }
}
