//! `flashflow-lab experiment wan`: relays with known limits are measured over paths of many lengths and
//! losses.

mod fault;
mod judge;
mod kept;
mod plan;
mod scene;

use crate::common::{Common, mbit, percent};
use crate::error::Error;
use crate::mode::Mode;
use crate::simulated::{self, Shard};
use crate::telling::{report, tell};
use clap::Args;
use fault::{Fault, Moment};
use judge::Judged;
use kept::Kept;
use lab::wan::Congestion;
use onion::Duration;
use plan::{Path, Plan, Planned, What};
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
/// than none. Where a path breaks or a relay stops while it is measured, none is right, and the one
/// must not be blamed for the other. What came out of a run is a file of its
/// own in DIR/wan-runs, written when the run is over: the same command goes on where it was interrupted. Needs root,
/// for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment wan --quick --out results
  flashflow-lab experiment wan --rtts-ms 100 --losses-percent 0,0.1 --limits 90 --modes transit
  flashflow-lab experiment wan --quick --faults returns,breaks,breaks-out,breaks-back,stops
  flashflow-lab experiment wan --quick --faults breaks,stops --fault-at lead
  flashflow-lab experiment wan --shard 1/6 --out shared-folder")]
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
    /// From when on what goes wrong does so, where it was well before.
    #[arg(long, value_enum, value_name = "MOMENT", default_value = "middle", requires = "faults")]
    fault_at: Moment,
    /// Seed of what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Play only this part of all runs, such as 1/6. Whoever has all files in one folder (--out) gets the report of
    /// all by the same command without this.
    #[arg(long, value_name = "PART/PARTS")]
    shard: Option<Shard>,
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = Plan::new(options, common.quick);
    output.step(format!("{} runs of {} s each", plan.runs(), plan.seconds));
    let kept = Kept::new(&common.out, &plan)?;
    let mut planned = plan.planned();
    // All of them before anything is played: a file of other runs is told at once.
    for run in &mut planned {
        run.over = kept.read(run.what, run.path)?;
        if let Some(over) = &run.over {
            tell(&over.case, output);
        }
    }
    let there = planned.iter().filter(|it| it.over.is_some()).count();
    if there > 0 {
        output.step(format!("{there} of them are over, and not played again"));
    }
    let mut unplayed = Vec::new();
    let same_scene = |one: &Planned, other: &Planned| {
        (one.what.mode, one.what.congestion) == (other.what.mode, other.what.congestion)
    };
    for runs in planned.chunk_by_mut(same_scene) {
        let What { mode, congestion, .. } = runs[0].what;
        if interrupt.is_requested() {
            break;
        }
        if !runs.iter().any(Planned::is_to_play) {
            continue;
        }
        output.doing(format!("starting relays: {}, {congestion}", mode.word()));
        match Scene::start(&plan, mode, congestion, output) {
            Ok(scene) => {
                of_scene(&plan, &scene, &kept, runs, (output, interrupt))?;
                scene.stop()?;
            }
            // What was found until now is not to be lost.
            Err(error) => unplayed.push((mode, congestion, error)),
        }
    }
    let mut judged: Vec<Judged> = planned.into_iter().filter_map(|it| it.over).collect();
    let missing = simulated::missing(judged.len(), plan.runs());
    if judged.is_empty() && !unplayed.is_empty() {
        return Err(unplayed.remove(0).2);
    }
    let unplayed = unplayed.iter();
    judged.extend(
        unplayed.map(|(mode, congestion, error)| Judged::unplayed(*mode, *congestion, error)),
    );
    Ok(judge::report(&plan, judged, missing, report("wan", judge::TITLE, judge::QUESTION)))
}

/// What a relay carries over a path without distance, by the number of sockets: a stock relay with a rate limit
/// passes less over more of them. What could not be found out is to be tried again.
#[derive(Default)]
struct Truths(Vec<(Option<u32>, f64)>);

impl Truths {
    /// As runs that are over have found them.
    fn of_runs(runs: &[Planned]) -> Self {
        let over = runs.iter().filter_map(|it| it.over.as_ref());
        Self(over.filter_map(|it| Some((it.sockets(), it.near_mbit()?))).collect())
    }

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
            return Some(Some(*truth));
        }
        let path = Path { sockets, ..Path::NONE };
        let truth = match scene.measure(plan, relay, &path, output, interrupt) {
            Ok(timed) => {
                let tried = timed?.tried;
                if judge::is_slowed(scene.mode, &tried) {
                    output.step(format!("no truth for relay {relay}: it waited for a processor"));
                    None
                } else {
                    tried.sent_mbit()
                }
            }
            Err(error) => {
                output.step(format!("no truth for relay {relay}: {error}"));
                None
            }
        };
        self.0.extend(truth.map(|truth| (sockets, truth)));
        Some(truth)
    }
}

/// All runs with these relays that are not over. Distances take turns, so that a busy hour hits them all.
fn of_scene(
    plan: &Plan,
    scene: &Scene,
    kept: &Kept,
    runs: &mut [Planned],
    (output, interrupt): (&Output, &Interrupt),
) -> Result<(), Error> {
    for runs in runs.chunk_by_mut(|one, other| one.what == other.what) {
        let mut truths = Truths::of_runs(runs);
        for run in runs.iter_mut().filter(|it| it.is_to_play()) {
            if interrupt.wait(PAUSE) {
                return Ok(());
            }
            let What { relay, .. } = run.what;
            let tried = scene.measure(plan, relay, &run.path, output, interrupt);
            let Some(tried) = tried.transpose() else { return Ok(()) };
            let sockets = tried.as_ref().ok().and_then(|it| it.tried.sockets);
            let Some(truth) = truths.of(plan, scene, relay, sockets, output, interrupt) else {
                return Ok(());
            };
            let judged = Judged::new(plan, run.what, run.path, truth, tried.as_ref());
            tell(&judged.case, output);
            // What this machine failed is to be tried again.
            if tried.is_ok() && judged.is_trial {
                kept.write(run.what, &judged)?;
            }
            run.over = Some(judged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::experiment::Case;

    /// What the relay sent while it was behind, over a lossy path, is no truth for the other paths.
    #[test]
    fn a_grid_that_goes_on_takes_what_was_carried_without_distance_for_the_truth() {
        let case = Case::judged("run", 72.0, Some(71.0), crate::trial::BOUNDS)
            .column("sockets", 32)
            .column("truth_near_mbit_per_s", 81.0)
            .column("truth_behind_mbit_per_s", 72.0);
        let over = Some(Judged { case, path: Path::NONE, verdict: "conclusive", is_trial: true });
        let what =
            What { mode: Mode::Transit, congestion: Congestion::Reno, relay: 0, limit: 90.0 };
        let runs = [Planned { what, path: Path::NONE, is_ours: true, over }];
        assert_eq!(Truths::of_runs(&runs).0, [(Some(32), 81.0)]);
    }
}
