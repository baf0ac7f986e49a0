//! `flashflow-lab experiment kist`: the effect of schedulers on quiet circuits at a bottleneck.

mod client;
mod judge;
mod net;
mod network;
mod run;
mod server;
mod trace;

use crate::common::Session;
use crate::error::Result;
use crate::reporting::{self, failed_case, median, parameter, print_case};
use crate::simulated::SimulatedOptions;
use crate::testbed;
use clap::Args;
use client::BulkLoad;
use judge::Runs;
use lab::wan::Congestion;
use net::{Narrow, NarrowAt, Network, usual_congestion};
use onion::{Duration, Rate};
use report::experiment::ExperimentReport;
use run::Scheduler;

/// Does KIST reduce the queueing delay of quiet circuits without reducing throughput?
///
/// Our relay carries several bulk circuits and one quiet circuit over each of several links, which share a
/// bottleneck. Runs with the schedulers Vanilla, KISTLite and KIST alternate. The experiment uses network
/// namespaces, which requires root. With --network, it compares the schedulers in all relays of a simulated
/// network instead: see simulation.md (in the documentation).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment kist --quick --out results
  flashflow-lab experiment kist --network tornet-0.05-1 --scale 0.2 --run-seconds 150 --seeds 3")]
pub(super) struct Options {
    /// Runs with each scheduler, 1 to 100; 10 by default, 2 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Measured seconds of each run, 1 to 600; 30 by default, 4 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Rate of the bottleneck in Mbit/s, 1 to 1000.
    #[arg(long, default_value_t = 20.0, value_parser = crate::common::mbit, value_name = "MBIT")]
    rate: f64,
    /// Queue limit of the bottleneck, in milliseconds at its rate.
    #[arg(long, default_value_t = 100, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(10..=2000))]
    queue: u32,
    /// Position of the bottleneck.
    #[arg(long, value_enum, default_value = "beyond")]
    narrow: NarrowAt,
    /// TCP's congestion control: bbr, cubic or reno; by default cubic, or reno if namespaces may not use cubic.
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,
    /// Links of clients to the relay, 1 to 64.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    links: u32,
    /// Bulk circuits on each link, 1 to 100.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    bulk: u32,
    /// Interval between runs of the scheduler, in milliseconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    interval: u32,
    #[command(flatten)]
    simulated: SimulatedOptions,
}

/// The parameters of all runs.
struct KistSettings {
    runs: u32,
    /// The first phase, with quiet circuits only.
    alone: Duration,
    /// The second phase, in which bulk circuits start and TCP settles.
    warm_up: Duration,
    /// The third phase, which is measured.
    length: Duration,
    narrow: Narrow,
    load: BulkLoad,
    interval: Duration,
}

impl KistSettings {
    fn new(options: &Options, session: Session<'_>) -> Self {
        let rate = Rate::from_mbit_per_s(options.rate);
        let queue = rate.as_byte_per_s() * u64::from(options.queue) / 1000;
        Self {
            runs: session.or(options.runs, 2, 10),
            alone: Duration::from_secs(session.or(None, 1, 3)),
            warm_up: Duration::from_secs(session.or(None, 2, 5)),
            length: Duration::from_secs(session.or(options.seconds, 4, 30).into()),
            narrow: Narrow {
                place: options.narrow,
                rate,
                queue_bytes: u32::try_from(queue).unwrap_or(u32::MAX),
                congestion: options.congestion.unwrap_or_else(usual_congestion),
            },
            load: BulkLoad { links: options.links, bulk_per_link: options.bulk },
            interval: Duration::from_millis(u64::from(options.interval)),
        }
    }
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    if let Some(path) = &options.simulated.network {
        return network::run(options, path, session);
    }
    let plan = KistSettings::new(options, session);
    let network = Network::new(plan.narrow)?;
    let folder = testbed::temporary_folder()?;
    let mut report = begin(&plan);
    let (mut runs, mut failed) = (Runs::default(), Vec::new());
    'all: for number in 1..=plan.runs {
        for scheduler in Scheduler::ALL {
            let (name, of) = (scheduler.name(), plan.runs);
            output.doing(format!("{name}: run {number} of {of}"));
            match run::run(&plan, &network, scheduler, folder.path(), interrupt) {
                Ok(Some(figures)) => {
                    runs.0.push((scheduler, figures));
                    runs.run_cases().last().iter().for_each(|case| print_case(case, output));
                }
                Ok(None) => break 'all,
                // One failed run does not end the experiment.
                Err(error) => {
                    let case = failed_case(format!("{name}, run {number}"), &error);
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

const TEXT: &str = include_str!("../../../../docs/experiments/kist.md");

fn begin(plan: &KistSettings) -> ExperimentReport {
    let report = reporting::report("kist", TEXT);
    let place = match plan.narrow.place {
        NarrowAt::Beyond => "one hop beyond the relay",
        NarrowAt::Own => "the relay's own interface",
    };
    let BulkLoad { links, bulk_per_link } = plan.load;
    ExperimentReport {
        parameters: vec![
            parameter("bottleneck", format!("{} (tbf), {place}", plan.narrow.rate)),
            parameter("queue of the bottleneck", format!("{} KiB", plan.narrow.queue_bytes / 1024)),
            parameter("links of clients", links),
            parameter("circuits on each link", format!("{bulk_per_link} bulk, 1 quiet")),
            parameter("circuit window", "1000 cells"),
            parameter("congestion control of TCP", plan.narrow.congestion.name()),
            parameter("interval of the scheduler", format!("{} ms", plan.interval.as_millis())),
            parameter("runs with each scheduler", plan.runs),
            parameter("measured seconds of each run", plan.length.as_secs()),
        ],
        ..report
    }
}

fn in_ms(values: &[f64]) -> f64 {
    median(values.iter().map(|s| s * 1e3)).unwrap_or(f64::NAN)
}

fn notes(runs: &Runs) -> Vec<String> {
    let notes = Scheduler::ALL.iter().filter_map(|scheduler| {
        let pooled = runs.pooled(*scheduler)?;
        Some(format!(
            "{}: median queue time {:.1} ms, time to first byte {:.1} ms, {:.2} Mbit/s.",
            scheduler.name(),
            in_ms(&pooled.queued_s),
            in_ms(&pooled.first_s),
            pooled.mbit_per_s
        ))
    });
    notes.collect()
}

fn answer(runs: &Runs) -> String {
    let both = runs.pooled(Scheduler::Vanilla).zip(runs.pooled(Scheduler::Kist));
    let Some((vanilla, kist)) = both else {
        return "There are no runs to compare.".to_owned();
    };
    let change = |from: f64, to: f64| (to / from - 1.0) * 100.0;
    format!(
        "KIST against Vanilla: queueing delay of quiet circuits {:+.0} % ({:.0} and {:.0} ms), time to the \
         first byte {:+.0} % ({:.0} and {:.0} ms), throughput {:+.1} % ({:.2} and {:.2} Mbit/s).",
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
