//! Schedulers over a whole simulated network.

use super::{Options, Scheduler};
use crate::common::Common;
use crate::error::Error;
use crate::simulated::{self, Batch, Interval, Played, in_words, over_seeds, play_all, run_case};
use crate::telling::{self, judged};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use report::experiment::{Case, ExperimentReport};
use std::path::Path;
use terminal::{Interrupt, Output};

/// The size by whose first byte latency is judged: the smallest of Tor's benchmarks.
const SMALL_BYTES: u32 = 50 << 10;

pub(super) fn run(
    options: &Options,
    path: &Path,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let mut batch = Batch::new(&options.simulated.runs, path, common.quick)?;
    let interval = Duration::from_millis(u64::from(options.interval));
    batch.conditions.push_str(&format!(", interval {} ms", options.interval));
    let names = Scheduler::ALL.map(variant);
    let choose = |mut network: tornet::network::Network, name: &str| {
        network.choices.scheduler = scheduler(name, interval);
        network
    };
    let folder = common.out.join("kist-runs");
    let runs = play_all(&batch, &names, folder, choose, (output, interrupt))?;
    let planned = batch.points(&names).len();
    Ok(report(&batch, &names, runs, planned))
}

/// As in names of files.
const fn variant(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Vanilla => "vanilla",
        Scheduler::KistLite => "kist-lite",
        Scheduler::Kist => "kist",
    }
}

fn scheduler(variant: &str, interval: Duration) -> SchedulerConfig {
    match variant {
        "vanilla" => SchedulerConfig::vanilla(),
        "kist-lite" => SchedulerConfig::kist_lite(interval),
        _ => SchedulerConfig::kist(interval),
    }
}

fn report(batch: &Batch, names: &[&str], runs: Vec<Played>, planned: usize) -> ExperimentReport {
    let mut cases: Vec<Case> =
        batch.loads.iter().flat_map(|load| load_cases(&runs, *load)).collect();
    let answer = match &cases[..] {
        [first, carried, ..] => {
            format!(
                "KIST against Vanilla: first bytes {}; relays sent {}.",
                first.detail, carried.detail
            )
        }
        _ => "There are no runs to compare.".to_owned(),
    };
    cases.extend(runs.iter().map(run_case));
    let figures = simulated::of_runs(&runs, names, &batch.loads);
    let mut notes = vec![
        "The paper's are KIST's against Vanilla: congestion −30 %, time to the first byte −18 %, throughput +10 %. \
         The queue time here is that of cells in relays' own queues: what waits in kernels, which Vanilla fills and KIST \
         does not, is not part of it. So it is told and not judged."
            .to_owned(),
    ];
    notes.push(simulated::MEDIANS.to_owned());
    notes.extend(simulated::missing(runs.len(), planned));
    ExperimentReport {
        parameters: batch.parameters(),
        answer,
        cases,
        figures,
        notes,
        ..telling::report(
            "kist-network",
            "Schedulers over a whole network",
            "Does a whole simulated network answer sooner with KIST in all its relays, and carry as much?",
        )
    }
}

/// What KIST does against Vanilla and KISTLite against Vanilla.
fn load_cases(runs: &[Played], load: u32) -> Vec<Case> {
    let of = |name: &str, what: &dyn Fn(&Played) -> Option<f64>| -> Interval {
        over_seeds(runs, (name, load), what)
    };
    let first_byte = |it: &Played| {
        let sizes = it.size(SMALL_BYTES).or_else(|| it.sizes.first())?;
        sizes.first_byte().median().map(|s| s * 1e3)
    };
    let sent = |it: &Played| Some(it.sent_median_mbit_per_s());
    let queued = |it: &Played| Some(it.queue_ms);
    let smallest = runs.iter().flat_map(|it| &it.sizes).map(|it| it.bytes).min();
    let size = smallest.map_or_else(String::new, |it| format!(" of {}", in_words(it)));
    let mut cases = Vec::new();
    for name in ["kist", "kist-lite"] {
        let change = |what: &dyn Fn(&Played) -> Option<f64>| {
            (of(name, what).mean / of("vanilla", what).mean - 1.0) * 100.0
        };
        let told = |what: &dyn Fn(&Played) -> Option<f64>, unit: &str| {
            let (with, without) = (of(name, what), of("vanilla", what));
            format!("{:+.1} % ({with:.1} and {without:.1} {unit})", change(what))
        };
        let latency = change(&first_byte);
        // No later than by noise, whatever the gain: how large it is depends on where the network is narrow.
        cases.push(judged(
            format!("First bytes{size} come no later with {name} than with Vanilla, load {load} %"),
            latency.is_finite().then_some(latency <= 2.0),
            told(&first_byte, "ms"),
        ));
        let throughput = change(&sent);
        cases.push(judged(
            format!("{name} carries as much as Vanilla within 3 %, load {load} %"),
            throughput.is_finite().then_some(throughput >= -3.0),
            format!("{}; in relays' queues {}", told(&sent, "Mbit/s"), told(&queued, "ms")),
        ));
    }
    cases
}
