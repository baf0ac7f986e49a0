//! `flashflow-lab experiment paper-hosts`: the paper's experiments over the paper's distances.

mod judge;
mod plan;
mod scene;

use crate::common::{Common, mbit, percent};
use crate::error::Error;
use crate::mode::Mode;
use crate::telling::{report, tell};
use clap::Args;
use judge::Judged;
use lab::wan::Congestion;
use onion::Duration;
use plan::{Plan, Vary};
use report::experiment::ExperimentReport;
use scene::Scene;
use terminal::{Interrupt, Output};

/// Between two runs: the relay's token bucket is full again, and the paths are empty.
const PAUSE: Duration = Duration::from_millis(1500);

/// How do the paper's parameters do over the paper's distances?
///
/// A relay is measured by the paper's hosts (Table 1): US-NW 40 ms away, US-E 62, NL 137, IN 210, with the rates
/// of their links; US-SW is where the relay is. One thing at a time is varied: the team (all of them that the four
/// make), the sockets s, the multiplier m, the seconds t, and how large the kernels' socket buffers may grow. Where the
/// sockets are given, all begin at once. What the relay carries is found out first, by the kernel's counters of its
/// sockets while US-SW measures it. The paper's §6, appendices D and E. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment paper-hosts --vary team --limits 250 --out results
  flashflow-lab experiment paper-hosts --quick --vary sockets,seconds --modes transit
  flashflow-lab experiment paper-hosts --vary team --sockets 160")]
pub(super) struct Options {
    /// What is varied; all by default. With --quick, what is named is varied at all hosts, and all, if nothing is named, at the
    /// nearest and the farthest only.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WHAT,…")]
    vary: Vec<Vary>,
    /// Length of a measurement in seconds where that is not varied, 8 to 60; 30 by default, 10 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Rate limits of the relays in Mbit/s; 10,100,250 by default, 90 if --quick. Sockets and buffers are varied
    /// for the last one only.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…", value_parser = mbit)]
    limits: Vec<f64>,
    /// How to measure; both by default, transit if --quick.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Sockets of a measurement where that is not varied, all at once and in one round, as the paper's 160; as many as distance and rate
    /// ask for, and more in later rounds, by default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=300))]
    sockets: Option<u32>,
    /// Congestion control of all hosts.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Packets lost on each way. The paper's paths lost what they lost.
    #[arg(long, default_value_t = 0.01, value_name = "PERCENT", value_parser = percent)]
    loss_percent: f64,
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
    output.step(format!("{} runs", plan.runs()));
    let mut judged = Vec::new();
    for mode in plan.modes.iter().copied() {
        for is_tuned in [false, true] {
            let is_wanted = plan.settings.iter().any(|it| it.is_tuned == is_tuned);
            if interrupt.is_requested() || !is_wanted {
                continue;
            }
            output.doing(format!("starting relays and measurers: {}", mode.word()));
            match Scene::start(&plan, mode, is_tuned, output) {
                Ok(scene) => {
                    of_scene(&plan, &scene, &mut judged, output, interrupt);
                    scene.stop()?;
                }
                Err(error) if judged.is_empty() => return Err(error),
                Err(error) => judged.push(Judged::unplayed(mode, &error)),
            }
        }
    }
    Ok(judge::report(&plan, judged, report("paper-hosts", judge::TITLE, judge::QUESTION)))
}

/// All runs with these relays.
fn of_scene(
    plan: &Plan,
    scene: &Scene,
    judged: &mut Vec<Judged>,
    output: &Output,
    interrupt: &Interrupt,
) {
    let mut truths = vec![None; plan.limits.len()];
    for setting in plan.settings.iter().filter(|it| it.is_tuned == scene.is_tuned) {
        if truths[setting.relay].is_none() {
            match scene.measure(plan, &plan.truth(setting.relay), output, interrupt) {
                Ok(Some(tried)) => truths[setting.relay] = tried.sent_mbit(),
                Ok(None) => return,
                Err(error) => output.step(format!("no truth for {setting}: {error}")),
            }
        }
        if interrupt.wait(PAUSE) {
            return;
        }
        let tried = scene.measure(plan, setting, output, interrupt);
        let Some(tried) = tried.transpose() else { return };
        let run = Judged::new(plan, scene, setting, truths[setting.relay], tried.as_ref());
        tell(&run.case, output);
        judged.push(run);
    }
}
