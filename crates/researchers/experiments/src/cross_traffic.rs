//! `flashflow-lab experiment cross-traffic`: relays under cross traffic (Panchenko et al., figures 1 to 3).

mod judge;
mod network;

use crate::common::{Session, values_or};
use crate::error::{Error, Result};
use crate::prober_pool::{PoolHandle, ProberPool};
use crate::reporting::{list, parameter, print_case, report, rule};
use clap::Args;
use client::NetDir;
use client::probe::{self, ProbePlan, Probed, Subject};
use judge::{Point, What};
use lab::processors::{Load, Reading};
use link::Clock;
use network::{SharedNetwork, Software};
use onion::Duration;
use report::experiment::{ExperimentReport, Promise};
use std::sync::Arc;
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
}

/// The time within which the others must complete a circuit each, before the measurement starts.
const WARM_UP: Duration = Duration::from_secs(20);
/// The number of circuits in a batch of another client.
const BATCH: usize = 10_000;

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let penetrators =
        values_or(&options.penetrators, session.common.quick, &[0, 4], &[0, 1, 2, 4, 8, 14, 20]);
    let streams = values_or(&options.streams, session.common.quick, &[1, 4], &[1, 2, 4, 6, 8, 10]);
    let repeats = session.or(options.repeats, 12, 30);
    let report = ExperimentReport {
        parameters: vec![
            parameter("penetrators", list(&penetrators)),
            parameter("streams", list(&streams)),
            parameter("measured at each step", repeats),
            parameter("a download", format!("{} bytes", options.bytes)),
        ],
        ..report("cross-traffic", judge::TEXT)
    };
    let network = SharedNetwork::start(output)?;
    let clock = Clock::start();
    let before = Reading::take(std::process::id(), clock.now());
    let mut points = Vec::new();
    for what in What::ALL {
        let levels = if what == What::Streams { &streams } else { &penetrators };
        for (level, kind) in levels.iter().flat_map(|it| Software::ALL.map(|kind| (*it, kind))) {
            if interrupt.is_requested() {
                break;
            }
            let step = Step { what, level, kind, repeats, bytes: options.bytes };
            let point = step.measure(&network, interrupt)?;
            output.step(&point);
            points.push(point);
        }
    }
    let load = Reading::take(std::process::id(), clock.now()).since(&before);
    network.stop()?;
    Ok(conclude(report, &points, load, session))
}

fn conclude(
    report: ExperimentReport,
    points: &[Point],
    load: Load,
    session: Session<'_>,
) -> ExperimentReport {
    let Session { output, interrupt, .. } = session;
    let cases = judge::cases(points);
    cases.iter().for_each(|case| print_case(case, output));
    ExperimentReport {
        answer: judge::answer(&cases),
        figures: judge::figures(points),
        notes: judge::notes(load),
        promise: Promise::Decided {
            held: !interrupt.is_requested() && judge::held(&cases),
            rule: rule(judge::TEXT),
        },
        cases,
        ..report
    }
}

/// A point of a figure, to be measured.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    level: u32,
    kind: Software,
    repeats: u32,
    bytes: u64,
}

impl Step {
    fn measure(self, network: &SharedNetwork, interrupt: &Interrupt) -> Result<Point> {
        let own = network.path(self.kind)?;
        let download = Some((network.server(), self.bytes));
        let plan = ProbePlan { rounds: 0, pause: Duration::ZERO, ..ProbePlan::default() };
        let downloads = ProbePlan { download, ..plan };
        let (others, theirs, their_plan) = match self.what {
            What::Node => (self.level, network.crossing_path(self.kind)?, &plan),
            What::Streams => (self.level - 1, own.clone(), &downloads),
            What::SetUp => (self.level, own.clone(), &plan),
        };
        let mut pool = ProberPool::new();
        for _ in 0..others {
            let (view, plan, path) = (network.view(), their_plan.clone(), theirs.clone());
            pool.spawn(move |handle| repeat(&view, &plan, &path, handle))?;
        }
        let is_over = || interrupt.is_requested();
        if !pool.wait_for(others as usize, WARM_UP, is_over) && !is_over() {
            let (complete, _) = pool.progress();
            return Err(Error::Clients(format!(
                "only {complete} of {others} {} had a circuit within {} s: there is no cross traffic to measure",
                self.what.others(),
                WARM_UP.as_secs(),
            )));
        }
        let plan = if self.what == What::SetUp { plan } else { downloads };
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
        let others_per_s = (after.0 - before.0) as f64 / seconds;
        Ok(Point { what: self.what, level: self.level, kind: self.kind, measured, others_per_s })
    }
}

/// Another client: repeats the same circuit.
fn repeat(view: &Arc<NetDir>, plan: &ProbePlan, path: &Subject, handle: &PoolHandle) -> Result<()> {
    while !handle.must_stop() {
        let subjects = vec![path.clone(); BATCH];
        probe::run(plan.clone(), subjects, view, |it| handle.record(it), || handle.must_stop())?;
    }
    Ok(())
}
