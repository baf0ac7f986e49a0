//! `flashflow-lab experiment kist`: what schedulers do to quiet circuits at a narrow place.

mod client;
mod judge;
mod net;
mod network;
mod run;
mod server;
mod trace;

use crate::common::Session;
use crate::error::{Error, Result};
use crate::reporting::{self, median, parameter, print_case};
use crate::simulated::SimulatedOptions;
use crate::testbed;
use clap::Args;
use client::BulkLoad;
use judge::Runs;
use lab::wan::Congestion;
use net::{Narrow, NarrowAt, Network, usual_congestion};
use onion::{Duration, Rate};
use report::experiment::{Case, CaseVerdict, ExperimentReport};
use run::Scheduler;

/// Do quiet circuits wait less under KIST, and is nothing lost by it?
///
/// Our relay carries bulk circuits and a quiet one over each of some links, through a narrow place
/// that they share. Runs with the schedulers Vanilla, KISTLite and KIST alternate. All happens in
/// networks of its own (namespaces), which needs root. With --network, all relays of a simulated network have
/// each scheduler in turn instead: see simulation.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment kist --quick --out results
  flashflow-lab experiment kist --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3")]
pub(super) struct Options {
    /// Runs with each scheduler, 1 to 100; 10 by default, 2 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Seconds of each run that count, 1 to 600; 30 by default, 4 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Rate of the narrow place in Mbit/s.
    #[arg(long, default_value_t = 20.0, value_name = "MBIT")]
    rate: f64,
    /// What may wait in the narrow place, in milliseconds of its rate.
    #[arg(long, default_value_t = 100, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(10..=2000))]
    queue: u32,
    /// Where the narrow place is.
    #[arg(long, value_enum, default_value = "beyond")]
    narrow: NarrowAt,
    /// TCP's congestion control, bbr, cubic or reno; cubic by default, or reno where the system reserves
    /// that.
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,
    /// Links of clients to the relay, 1 to 64.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    links: u32,
    /// Bulk circuits on each link, 1 to 100.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    bulk: u32,
    /// From one run of the scheduler to the next, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    interval: u32,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

/// What is the same for all runs.
struct KistSettings {
    runs: u32,
    /// Only quiet circuits use the relay.
    alone: Duration,
    /// Bulk begins, and TCP finds its pace.
    warm_up: Duration,
    /// What counts.
    length: Duration,
    narrow: Narrow,
    load: BulkLoad,
    interval: Duration,
}

impl KistSettings {
    fn new(options: &Options, is_quick: bool) -> Result<Self> {
        if !(1.0..=1000.0).contains(&options.rate) {
            return Err(Error::Usage(format!("--rate {}: not 1 to 1000 Mbit/s", options.rate)));
        }
        let rate = Rate::from_mbit_per_s(options.rate);
        let queue = rate.as_byte_per_s() * u64::from(options.queue) / 1000;
        let seconds = options.seconds.unwrap_or(if is_quick { 4 } else { 30 });
        Ok(Self {
            runs: options.runs.unwrap_or(if is_quick { 2 } else { 10 }),
            alone: Duration::from_secs(if is_quick { 1 } else { 3 }),
            warm_up: Duration::from_secs(if is_quick { 2 } else { 5 }),
            length: Duration::from_secs(u64::from(seconds)),
            narrow: Narrow {
                place: options.narrow,
                rate,
                queue_bytes: u32::try_from(queue).unwrap_or(u32::MAX),
                congestion: options.congestion.unwrap_or_else(usual_congestion),
            },
            load: BulkLoad { links: options.links, bulk_per_link: options.bulk },
            interval: Duration::from_millis(u64::from(options.interval)),
        })
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, session);
    }
    let plan = KistSettings::new(options, session.common.quick)?;
    let network = Network::new(plan.narrow)?;
    let folder = testbed::temporary_folder()?;
    let mut report = begin(&plan);
    let (mut runs, mut failed) = (Runs::default(), Vec::new());
    'all: for number in 1..=plan.runs {
        for scheduler in Scheduler::ALL {
            let (name, of) = (scheduler.name(), plan.runs);
            output.doing(format!("{name}: run {number} of {of}"));
            match run::play(&plan, &network, scheduler, folder.path(), interrupt) {
                Ok(Some(seen)) => {
                    runs.0.push((scheduler, seen));
                    runs.run_cases().last().iter().for_each(|case| print_case(case, output));
                }
                Ok(None) => break 'all,
                // What cannot be played is a case that failed; the others are played all the same.
                Err(error) => {
                    let case = Case::named(format!("{name}, run {number}"));
                    let case = case.ended(CaseVerdict::Failed, error.to_string());
                    print_case(&case, output);
                    failed.push(case);
                }
            }
        }
    }
    report.cases = runs.cases();
    report.cases.iter().for_each(|case| print_case(case, output));
    report.cases.extend(failed);
    report.cases.extend(runs.run_cases());
    report.figures = runs.figures();
    report.notes.splice(0..0, notes(&runs));
    report.answer = answer(&runs);
    Ok(report)
}

const TEXT: &str = include_str!("../../../docs/experiments/kist.md");

fn begin(plan: &KistSettings) -> ExperimentReport {
    let report = reporting::report("kist", TEXT);
    let place = match plan.narrow.place {
        NarrowAt::Beyond => "one hop beyond the relay",
        NarrowAt::Own => "the relay's own interface",
    };
    let BulkLoad { links, bulk_per_link } = plan.load;
    ExperimentReport {
        parameters: vec![
            parameter("narrow place", format!("{} (tbf), {place}", plan.narrow.rate)),
            parameter("its queue", format!("{} KiB", plan.narrow.queue_bytes / 1024)),
            parameter("links of clients", links),
            parameter("circuits on each", format!("{bulk_per_link} bulk, 1 quiet")),
            parameter("circuit window", "1000 cells".to_owned()),
            parameter("congestion control of TCP", plan.narrow.congestion.name().to_owned()),
            parameter("scheduler's interval", format!("{} ms", plan.interval.as_millis())),
            parameter("runs with each scheduler", plan.runs),
            parameter("seconds of each that count", plan.length.as_secs()),
        ],
        ..report
    }
}

fn in_ms(values: &[f64]) -> f64 {
    median(values.iter().map(|s| s * 1e3)).unwrap_or(f64::NAN)
}

fn notes(runs: &Runs) -> Vec<String> {
    let said = Scheduler::ALL.iter().filter_map(|scheduler| {
        let pooled = runs.pooled(*scheduler)?;
        Some(format!(
            "{}: median queue time {:.1} ms, time to first byte {:.1} ms, {:.2} Mbit/s.",
            scheduler.name(),
            in_ms(&pooled.queued_s),
            in_ms(&pooled.first_s),
            pooled.mbit_per_s
        ))
    });
    said.collect()
}

fn answer(runs: &Runs) -> String {
    let both = runs.pooled(Scheduler::Vanilla).zip(runs.pooled(Scheduler::Kist));
    let Some((vanilla, kist)) = both else {
        return "There are no runs to compare.".to_owned();
    };
    let change = |from: f64, to: f64| (to / from - 1.0) * 100.0;
    format!(
        "With KIST, cells of quiet circuits wait {:+.0} % as against Vanilla ({:.0} and {:.0} ms), the \
         first byte takes {:+.0} % ({:.0} and {:.0} ms), and throughput is {:+.1} % ({:.2} and {:.2} \
         Mbit/s).",
        change(in_ms(&vanilla.queued_s), in_ms(&kist.queued_s)),
        in_ms(&kist.queued_s),
        in_ms(&vanilla.queued_s),
        change(in_ms(&vanilla.first_s), in_ms(&kist.first_s)),
        in_ms(&kist.first_s),
        in_ms(&vanilla.first_s),
        change(vanilla.mbit_per_s, kist.mbit_per_s),
        kist.mbit_per_s,
        vanilla.mbit_per_s,
    )
}
