//! `flashflow-lab experiment cross-traffic`: a node that others use, too (Panchenko et al., figures 1 to 3).

mod judge;
mod scene;

use crate::common::{Session, values_or};
use crate::error::{Error, Result};
use crate::prober_pool::{PoolHandle, ProberPool};
use crate::reporting::{parameter, print_case, report, rule};
use clap::Args;
use client::NetDir;
use client::probe::{self, ProbePlan, Probed, Subject};
use judge::{Point, What};
use lab::processors::{Load, Reading};
use link::Clock;
use onion::Duration;
use report::experiment::{ExperimentReport, Promise};
use scene::{SharedNetwork, Software};
use std::sync::Arc;
use terminal::Interrupt;

/// What does a stream, or a circuit that is set up, lose to others that use the same relays?
///
/// A private network on loopback. Our client has one download after the other over a circuit of three relays of one kind, C tor's or ours, while penetrators set up circuits through its middle one,
/// and close each as soon as it stands (figure 1), or others download over the same relays (figure 2). Then it sets up circuits of these three relays itself, while penetrators do the same (figure 3). Stock relays and
/// ours take turns at each step. All is on this machine, clients and penetrators, too: what they cost is in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment cross-traffic --quick --json --out results
  flashflow-lab experiment cross-traffic --penetrators 0,14 --streams 1,6 --repeats 60

It has held if, beyond what chance can do, throughput falls and set-up takes longer with the most penetrators and the most streams, as in the paper.")]
pub(super) struct Options {
    /// Penetrators at a time; 0,1,2,4,8,14,20 by default, 0,4 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…", value_parser = clap::value_parser!(u32).range(0..=200))]
    penetrators: Vec<u32>,
    /// Streams at a time, of which one is measured; 1,2,4,6,8,10 by default, 1,4 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…", value_parser = clap::value_parser!(u32).range(1..=200))]
    streams: Vec<u32>,
    /// Downloads and set-ups that are measured at each step; 30 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    repeats: Option<u32>,
    /// Bytes of each download.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    bytes: u64,
}

/// Others that are at it before anything is measured: as many circuits as there are of them, or so long.
const BEGINNING: Duration = Duration::from_secs(20);
/// Circuits that one of the others is given at once.
const MANY: usize = 10_000;

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let penetrators =
        values_or(&options.penetrators, session.common.quick, &[0, 4], &[0, 1, 2, 4, 8, 14, 20]);
    let streams = values_or(&options.streams, session.common.quick, &[1, 4], &[1, 2, 4, 6, 8, 10]);
    let repeats = session.or(options.repeats, 12, 30);
    let in_words = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let report = ExperimentReport {
        parameters: vec![
            parameter("penetrators", in_words(&penetrators)),
            parameter("streams", in_words(&streams)),
            parameter("measured at each step", repeats.to_string()),
            parameter("a download", format!("{} bytes", options.bytes)),
        ],
        ..report("cross-traffic", judge::TEXT)
    };
    let scene = SharedNetwork::start(output)?;
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
            let point = step.play(&scene, interrupt)?;
            output.step(&point);
            points.push(point);
        }
    }
    let load = Reading::take(std::process::id(), clock.now()).since(&before);
    scene.stop()?;
    Ok(concluded(report, &points, load, session))
}

fn concluded(
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

/// One step of one figure.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    level: u32,
    kind: Software,
    repeats: u32,
    bytes: u64,
}

impl Step {
    fn play(self, scene: &SharedNetwork, interrupt: &Interrupt) -> Result<Point> {
        let own = scene.path(self.kind)?;
        let download = Some((scene.server(), self.bytes));
        let plan = ProbePlan { rounds: 0, pause: Duration::ZERO, ..ProbePlan::default() };
        let downloads = ProbePlan { download, ..plan };
        let (others, theirs, their_plan) = match self.what {
            What::Node => (self.level, scene.aside(self.kind)?, &plan),
            What::Streams => (self.level - 1, own.clone(), &downloads),
            What::SetUp => (self.level, own.clone(), &plan),
        };
        let mut pool = ProberPool::new();
        for _ in 0..others {
            let (view, plan, path) = (scene.view(), their_plan.clone(), theirs.clone());
            pool.spawn(move |handle| keep_on(&view, &plan, &path, handle))?;
        }
        let is_over = || interrupt.is_requested();
        if !pool.wait_for(others as usize, BEGINNING, is_over) && !is_over() {
            let (whole, _) = pool.progress();
            return Err(Error::Clients(format!(
                "of {others} {} only {whole} had a circuit in {} s: a measurement next to them would show nothing",
                self.what.others(),
                BEGINNING.as_secs(),
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
        probe::run(plan, subjects, &scene.view(), each, || interrupt.is_requested())?;
        // In so short a time as a few set-ups take, the others may not have had one circuit: one more is waited for.
        if others > 0 {
            pool.wait_for(before.0 + 1, BEGINNING, is_over);
        }
        let after = pool.progress();
        pool.stop()?;
        let seconds = (after.1 - before.1).as_secs_f64();
        let others_per_s = (after.0 - before.0) as f64 / seconds;
        Ok(Point { what: self.what, level: self.level, kind: self.kind, measured, others_per_s })
    }
}

/// One of the others: the same circuit again and again.
fn keep_on(
    view: &Arc<NetDir>,
    plan: &ProbePlan,
    path: &Subject,
    handle: &PoolHandle,
) -> Result<()> {
    while !handle.must_stop() {
        let subjects = vec![path.clone(); MANY];
        probe::run(plan.clone(), subjects, view, |it| handle.record(it), || handle.must_stop())?;
    }
    Ok(())
}
