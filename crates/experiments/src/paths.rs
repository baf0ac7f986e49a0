//! `flashflow experiment paths`: relays with known limits are measured over paths of many lengths and
//! losses.

mod fault;
mod judge;
mod plan;
mod scene;

use crate::common::{Common, mbit, percent};
use crate::error::Error;
use crate::mode::Mode;
use crate::telling::{report, tell};
use clap::Args;
use fault::Fault;
use judge::Judged;
use lab::wan::Congestion;
use onion::Duration;
use plan::{Path, Plan};
use report::experiment::ExperimentReport;
use scene::Scene;
use terminal::{Interrupt, Output};

/// Between two runs: the relay's token bucket is full again, and the way is empty.
const PAUSE: Duration = Duration::from_millis(1500);

/// Are estimates true over real distances?
///
/// Stock relays are measured in transit and relays of ours as an echo, over a network of this machine's own
/// with the round trips and losses of the grid, on each of its two ways. What a relay can carry is found out
/// by the kernel's counters of its sockets while it is measured over a path without distance or loss, by as many
/// sockets. A run has held if it is not conclusive, or within −10 % and +5 % of that: a wrong number is worse
/// than none. Where a path breaks in the middle of a measurement, none is right. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow experiment paths --quick --out results
  flashflow experiment paths --rtts-ms 100 --losses-percent 0,0.1 --limits 90 --modes transit
  flashflow experiment paths --quick --faults reorders,duplicates,breaks,breaks-back")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 8 to 60; 30 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Round trips; 20,100,200,300 by default, 20,100 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Packets lost on each way; 0,0.02,0.1,1 by default, 0,0.1 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = percent)]
    losses_percent: Vec<f64>,
    /// Congestion control of both ends; all three by default, bbr,reno if --quick.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    congestions: Vec<Congestion>,
    /// Rate limits of the relays in Mbit/s; 10,90,250 by default, 10,90 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…", value_parser = mbit)]
    limits: Vec<f64>,
    /// How to measure; both by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// What else goes wrong, at the first round trip without loss, to the last relay; nothing by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "FAULT,…")]
    faults: Vec<Fault>,
    /// Seed of what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = Plan::new(options, common.quick);
    output.step(format!("{} runs of {} s each", plan.runs(), plan.seconds));
    let mut judged = Vec::new();
    for congestion in plan.congestions.iter().copied() {
        for mode in plan.modes.iter().copied() {
            if interrupt.is_requested() {
                break;
            }
            output.doing(format!("starting relays: {}, {congestion}", mode.word()));
            match Scene::start(&plan, mode, congestion, output) {
                Ok(scene) => {
                    of_scene(&plan, &scene, &mut judged, output, interrupt);
                    scene.stop()?;
                }
                Err(error) if judged.is_empty() => return Err(error),
                // What was found until now is not to be lost.
                Err(error) => judged.push(Judged::unplayed(mode, congestion, &error)),
            }
        }
    }
    Ok(judge::report(&plan, judged, report("paths", judge::TITLE, judge::QUESTION)))
}

/// What a relay carries over a path without distance, by the number of sockets: a stock relay with a rate limit
/// passes less over more of them.
#[derive(Default)]
struct Truths(Vec<(Option<u32>, Option<f64>)>);

impl Truths {
    /// For so many sockets, in Mbit/s, as far as it can be found out; `None` if the user has asked for the end.
    fn of(
        &mut self,
        plan: &Plan,
        scene: &Scene,
        relay: usize,
        sockets: Option<u32>,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Option<Option<f64>> {
        if let Some((_, truth)) = self.0.iter().find(|it| it.0 == sockets) {
            return Some(*truth);
        }
        let path = Path { sockets, ..Path::NONE };
        let truth = match scene.measure(plan, relay, &path, output, interrupt) {
            Ok(timed) => timed?.tried.sent_mbit(),
            Err(error) => {
                output.step(format!("no truth for relay {relay}: {error}"));
                None
            }
        };
        self.0.push((sockets, truth));
        Some(truth)
    }
}

/// All runs with these relays. Distances take turns, so that a busy hour hits them all.
fn of_scene(
    plan: &Plan,
    scene: &Scene,
    judged: &mut Vec<Judged>,
    output: &Output,
    interrupt: &Interrupt,
) {
    for relay in 0..plan.limits.len() {
        let mut truths = Truths::default();
        // What breaks for good comes last.
        let faulty = plan.faulty_paths().filter(|_| relay + 1 == plan.limits.len());
        for path in plan.paths().chain(faulty) {
            if interrupt.wait(PAUSE) {
                return;
            }
            let tried = scene.measure(plan, relay, &path, output, interrupt);
            let Some(tried) = tried.transpose() else { return };
            let sockets = tried.as_ref().ok().and_then(|it| it.tried.sockets);
            let Some(truth) = truths.of(plan, scene, relay, sockets, output, interrupt) else {
                return;
            };
            let run = Judged::new(plan, scene, relay, path, truth, tried.as_ref());
            tell(&run.case, output);
            judged.push(run);
        }
    }
}
