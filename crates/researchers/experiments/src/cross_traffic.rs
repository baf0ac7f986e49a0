//! `flashflow-lab experiment cross-traffic`: relays under cross traffic (Panchenko et al., figures 1 to 3).

mod judge;
mod network;

use crate::common::{Session, values_or};
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::prober_pool::ProberPool;
use crate::reporting::{list, parameter};
use clap::Args;
use client::probe::{self, ProbePlan, Probed};
use judge::{Point, Step, What};
use lab::processors::Reading;
use link::Clock;
use network::{SharedNetwork, Software};
use onion::Duration;
use report::experiment::ExperimentReport;
use terminal::Interrupt;

/// How much do other users of the same relays slow down a stream, or the set-up of a circuit?
///
/// In a private network on loopback, our client downloads repeatedly over a circuit of three relays, all C tor or all ours. Meanwhile,
/// penetrators open circuits through its middle relay and close them at once (figure 1), or other clients download over the same relays
/// (figure 2). Then the client measures the set-up of such circuits while penetrators open the same circuits (figure 3). C tor and our
/// relays alternate at each step. Relays, clients and penetrators share the processors of this machine, so the results include the cost of all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment cross-traffic --quick --json --out results
  flashflow-lab experiment cross-traffic --penetrators 0,14 --streams 1,6 --repeats 60

The claim holds if, with the most penetrators and the most streams, throughput is lower and set-up slower beyond chance, as in the paper.")]
pub(super) struct Options {
    /// Numbers of simultaneous penetrators; 0,1,2,4,8,14,20 by default, 0,4 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…", value_parser = clap::value_parser!(u32).range(0..=200))]
    penetrators: Vec<u32>,
    /// Numbers of simultaneous streams, one of which is measured; 1,2,4,6,8,10 by default, 1,4 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…", value_parser = clap::value_parser!(u32).range(1..=200))]
    streams: Vec<u32>,
    /// Measured downloads or set-ups of each step; 30 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    repeats: Option<u32>,
    /// Size of each download in bytes.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    bytes: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// The time within which the others must complete a circuit each, before the measurement starts.
const WARM_UP: Duration = Duration::from_secs(20);
/// The number of circuits in a batch of another client.
const BATCH: usize = 10_000;

struct CrossTraffic {
    penetrators: Vec<u32>,
    streams: Vec<u32>,
    repeats: u32,
    bytes: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Options { penetrators, streams, .. } = options;
    let is_quick = session.common.quick;
    let grid = CrossTraffic {
        penetrators: values_or(penetrators, is_quick, &[0, 4], &[0, 1, 2, 4, 8, 14, 20]),
        streams: values_or(streams, is_quick, &[1, 4], &[1, 2, 4, 6, 8, 10]),
        repeats: session.or(options.repeats, 12, 30),
        bytes: options.bytes,
    };
    grid::run(&grid, options.grid, session)
}

impl Grid for CrossTraffic {
    type Cell = Step;
    type Setup = SharedNetwork;
    const NAME: &'static str = "cross-traffic";
    const TEXT: &'static str = judge::TEXT;
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Step> {
        let levels = |what| if what == What::Streams { &self.streams } else { &self.penetrators };
        let steps = |what| {
            let of_level = move |level: &u32| {
                let level = *level;
                Software::ALL.map(|kind| Step { what, level, kind })
            };
            levels(what).iter().flat_map(of_level)
        };
        What::ALL.into_iter().flat_map(steps).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("penetrators", list(&self.penetrators)),
            parameter("streams", list(&self.streams)),
            parameter("measured at each step", self.repeats),
            parameter("a download", format!("{} bytes", self.bytes)),
        ]
    }

    fn conditions(&self) -> String {
        format!("{} at each step, {} bytes each", self.repeats, self.bytes)
    }

    fn start(&self, _: &Step, session: Session<'_>) -> Result<Option<SharedNetwork>> {
        SharedNetwork::start(session.output).map(Some)
    }

    fn run(&self, network: &mut SharedNetwork, run: CellRun<'_, Step>) -> Result<Option<Row>> {
        let point = self.measure(run.cell, network, run.session.interrupt)?;
        let row = Row::from(run.cell.case(&point)).with_data(&point)?;
        Ok((!run.session.interrupt.is_requested()).then_some(row))
    }

    fn stop(&self, network: SharedNetwork) -> Result<()> {
        network.stop()
    }

    fn conclude(&self, rows: Rows<'_, Step>, report: &mut ExperimentReport) {
        let points: Vec<(Step, Point)> = rows.data().map(|(step, point)| (*step, point)).collect();
        report.cases.extend(judge::comparisons(&points));
        report.answer = judge::answer(&report.cases);
        report.figures = judge::figures(&points);
        report.notes.push(judge::load_note(&points));
        report.promise = Self::promise(rows.are_complete() && judge::held(&report.cases));
    }
}

impl CrossTraffic {
    fn measure(
        &self,
        step: &Step,
        network: &SharedNetwork,
        interrupt: &Interrupt,
    ) -> Result<Point> {
        let own = network.path(step.kind)?;
        let download = Some((network.server(), self.bytes));
        let plan = ProbePlan { rounds: 0, pause: Duration::ZERO, ..ProbePlan::default() };
        let downloads = ProbePlan { download, ..plan };
        let (others, theirs, their_plan) = match step.what {
            What::Node => (step.level, network.crossing_path(step.kind)?, &plan),
            What::Streams => (step.level - 1, own.clone(), &downloads),
            What::SetUp => (step.level, own.clone(), &plan),
        };
        let clock = Clock::start();
        let machine = Reading::take(std::process::id(), clock.now());
        let mut pool = ProberPool::new();
        for _ in 0..others {
            let (view, plan, path) = (network.view(), their_plan.clone(), theirs.clone());
            // Another client: repeats the same circuit.
            pool.spawn(move |handle| {
                handle.repeat(&plan, &view, || Ok(vec![path.clone(); BATCH]))
            })?;
        }
        let is_over = || interrupt.is_requested();
        if !pool.wait_for(others as usize, WARM_UP, is_over) && !is_over() {
            let (complete, _) = pool.progress();
            return Err(Error::Clients(format!(
                "only {complete} of {others} {} had a circuit within {} s: there is no cross traffic to measure",
                step.what.others(),
                WARM_UP.as_secs(),
            )));
        }
        let plan = if step.what == What::SetUp { plan } else { downloads };
        let subjects = vec![own; self.repeats as usize];
        let before = pool.progress();
        let mut measured = Vec::new();
        let each = |probed: Probed| {
            measured.push(probed);
            true
        };
        probe::run(plan, subjects, &network.view(), each, || interrupt.is_requested())?;
        // A few set-ups are so fast that the others may not have completed a circuit: wait for one more.
        if others > 0 {
            pool.wait_for(before.0 + 1, WARM_UP, is_over);
        }
        let after = pool.progress();
        pool.stop()?;
        let seconds = (after.1 - before.1).as_secs_f64();
        let machine = Reading::take(std::process::id(), clock.now()).since(&machine).machine;
        Ok(Point {
            values: measured.iter().filter_map(|circuit| step.what.value(circuit)).collect(),
            failures: measured.iter().filter_map(|circuit| circuit.failure.clone()).collect(),
            measured: measured.len(),
            others_per_s: (after.0 - before.0) as f64 / seconds,
            machine,
        })
    }
}
