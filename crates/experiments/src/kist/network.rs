//! Schedulers over a whole simulated network.

use super::{Options, Scheduler};
use crate::common::Common;
use crate::error::Error;
use crate::reporting;
use crate::simulated::{
    self, Batch, Change, Played, Runs, in_words, over_seeds, play_all, run_case, sizes,
};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use report::experiment::{Case, CaseVerdict, ExperimentReport};
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
    let Runs { runs, planned, .. } = play_all(&batch, &names, folder, choose, (output, interrupt))?;
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

const TEXT: &str = include_str!("../../../../docs/experiments/kist-network.md");

fn report(batch: &Batch, names: &[&str], runs: Vec<Played>, planned: usize) -> ExperimentReport {
    let mut cases: Vec<Case> =
        batch.loads.iter().flat_map(|load| load_cases(&runs, *load)).collect();
    let answer = match &cases[..] {
        [first, carried, congestion, ..] => {
            format!(
                "KIST against Vanilla: first bytes {}; relays sent {}; a cell is in a relay {}.",
                first.detail, carried.detail, congestion.detail
            )
        }
        _ => "There are no runs to compare.".to_owned(),
    };
    cases.extend(runs.iter().map(run_case));
    let figures = simulated::of_runs(&runs, names, &batch.loads);
    let mut report = reporting::report("kist-network", TEXT);
    report.notes.extend(simulated::missing(runs.len(), planned));
    ExperimentReport { parameters: batch.parameters(), answer, cases, figures, ..report }
}

/// Something that runs have: its name, its unit, and how it is had.
struct Figure<'a> {
    name: String,
    unit: &'static str,
    of: &'a dyn Fn(&Played) -> Option<f64>,
}

/// A figure, what is claimed of it, and whether a change in percent is as claimed.
type Claim<'a> = (Figure<'a>, &'a str, fn(f64) -> bool);

/// What KIST does against Vanilla and KISTLite against Vanilla.
fn load_cases(runs: &[Played], load: u32) -> Vec<Case> {
    let sizes = sizes(runs);
    let small = sizes.iter().copied().find(|it| *it == SMALL_BYTES).or(sizes.first().copied());
    let first_byte = |it: &Played| it.size(small?)?.first_byte().median().map(|s| s * 1e3);
    let sent = |it: &Played| Some(it.sent_median_mbit_per_s());
    let queue = |it: &Played| Some(it.queue_ms);
    let kernel = |it: &Played| it.kernel_queue_ms;
    let named = small
        .map_or_else(|| "first bytes".to_owned(), |it| format!("first bytes of {}", in_words(it)));
    // No worse than by noise, whatever the gain: how large it is depends on where the network is narrow.
    let judged: [Claim<'_>; 3] = [
        (
            Figure { name: named, unit: "ms", of: &first_byte },
            "no later than with Vanilla",
            |percent| percent <= 2.0,
        ),
        (
            Figure { name: "what relays sent".to_owned(), unit: "Mbit/s", of: &sent },
            "as much as with Vanilla within 3 %",
            |percent| percent >= -3.0,
        ),
        (
            Figure {
                name: "a cell's time in a relay's queues and kernel".to_owned(),
                unit: "ms",
                of: &Played::congestion_ms,
            },
            "no longer than with Vanilla",
            |percent| percent <= 2.0,
        ),
    ];
    let told = [
        Figure { name: "in its queues".to_owned(), unit: "ms", of: &queue },
        Figure { name: "in its kernel".to_owned(), unit: "ms", of: &kernel },
    ];
    let mut cases = Vec::new();
    for name in ["kist", "kist-lite"] {
        let pair = ("vanilla", name);
        for (figure, claim, holds) in &judged {
            let (case, change) = compared(runs, pair, load, figure);
            let title = format!("{}: {claim}", case.name);
            let verdict = match change.mean() {
                Some(percent) if holds(percent) => CaseVerdict::Held,
                Some(_) => CaseVerdict::Missed,
                None if change.seeds == 0 => CaseVerdict::Failed,
                // Where some have none, the others may be the fast ones.
                None => CaseVerdict::Inconclusive,
            };
            cases.push(Case { name: title, verdict, ..case });
        }
        cases.extend(told.iter().map(|figure| compared(runs, pair, load, figure).0));
        for bytes in sizes.iter().copied() {
            let of = |it: &Played| it.size(bytes)?.last_byte().median();
            let figure =
                Figure { name: format!("last bytes of {}", in_words(bytes)), unit: "s", of: &of };
            cases.push(compared(runs, pair, load, &figure).0);
        }
    }
    cases
}

/// A figure with the second variant of two compared with the first, reported and not judged.
fn compared(
    runs: &[Played],
    (first, other): (&str, &str),
    load: u32,
    figure: &Figure<'_>,
) -> (Case, Change) {
    let change = Change::of(runs, (first, other), load, figure.of);
    let of = |name: &str| over_seeds(runs, (name, load), figure.of);
    let (with, without) = (of(other), of(first));
    let detail = match change.percent.count {
        0 => change.to_string(),
        _ => format!("{change} ({with:.2} and {without:.2} {})", figure.unit),
    };
    let name = format!("{other}, load {load} %, {}", figure.name);
    let case = Case::new(name, None, None)
        .ended(CaseVerdict::Skipped, detail)
        .column("variant", other)
        .column("against", first)
        .column("load_percent", load)
        .column("change_percent", change.percent.mean)
        .column("change_half_width", change.percent.half_width.unwrap_or(f64::NAN));
    (case, change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case_of_congestion([vanilla, kist]: [Option<f64>; 2]) -> Case {
        let runs = [("vanilla", vanilla), ("kist", kist)]
            .map(|(name, kernel_queue_ms)| Played { kernel_queue_ms, ..Played::blank(name, 1) });
        let is_it = |case: &Case| case.name.starts_with("kist, load 100 %, a cell's time");
        load_cases(&runs, 100).into_iter().find(is_it).expect("judged")
    }

    #[test]
    fn runs_of_before_decide_nothing_of_what_they_do_not_tell() {
        let whole = case_of_congestion([Some(9.0), Some(4.0)]);
        assert_eq!(whole.verdict, CaseVerdict::Held, "{whole:?}");
        assert!(whole.detail.starts_with("-50.0 %, one seed: it may be chance"), "{whole:?}");
        assert_eq!(case_of_congestion([Some(4.0), Some(9.0)]).verdict, CaseVerdict::Missed);
        for lacks in [[None, Some(4.0)], [Some(9.0), None], [None, None]] {
            let case = case_of_congestion(lacks);
            assert_eq!(case.verdict, CaseVerdict::Inconclusive, "{case:?}");
            assert_eq!(case.detail, "with none of 1 seeds have both one");
        }
    }
}
