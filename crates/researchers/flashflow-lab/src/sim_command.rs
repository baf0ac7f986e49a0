//! `flashflow-lab sim`: simulations of whole networks.

pub(crate) mod export;
mod figures;
pub(crate) mod sample;
pub(crate) mod truth;

use clap::{Args, Subcommand};
use cli::Error;
use experiments::batch::{self, BatchOptions, ReportOptions};
use export::ExportOptions;
use figures::counted;
use sample::SampleOptions;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terminal::{Exit, Interrupt, Output, tagged};
use tornet::network::Network;
use tornet::results::{SUMMARY, SizeFigures, Summary, check_is_free, finish};
use tornet::run::{Plan, run as run_network};
use truth::TruthOptions;

/// A line of `sim run`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// Downloads of one size.
    Downloads(&'a SizeFigures),
    /// The whole run, last.
    Summary(&'a Summary),
}

/// Simulate whole Tor networks in virtual time.
///
/// Relays and clients run the real engine, with cells whose payload is not stored. See simulation.md in the documentation.
#[derive(Debug, Args)]
pub(crate) struct SimOptions {
    #[command(subcommand)]
    pub(crate) action: SimAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimAction {
    Run(RunOptions),
    Batch(BatchOptions),
    Report(ReportOptions),
    Sample(SampleOptions),
    Export(ExportOptions),
    Truth(TruthOptions),
}

/// Simulate a network once.
///
/// The result files depend only on the network, the options and the seed, not on the number of threads.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab sim run --network docs/scenarios/small.toml --seconds 1200 --out results
  flashflow-lab sim run --network tornet-0.05-1 --seconds 300 --threads 2 --json

See data.md in the documentation for samples such as tornet-0.05-1.

Exit status: 0 done; 1 the network is invalid, or a file cannot be written; 2 wrong arguments;
130 interrupted, with the results up to then.")]
pub(crate) struct RunOptions {
    /// Scenario (TOML), folder with a `scenario.toml`, or folder of a Shadow network that tornettools made.
    #[arg(long, value_name = "PATH")]
    network: PathBuf,
    /// Duration in simulated seconds, 1 to 1000000.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seconds: u32,
    /// Simulated seconds at the beginning that do not count for speed and throughput; at most half of all.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    warm_up: u32,
    /// Number of threads, 1 to 256.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Multiply the traffic of users with traffic models by FACTOR: 1.15 is 15 % more. The network must have such users.
    #[arg(long, value_name = "FACTOR")]
    load: Option<f64>,
    /// Multiply the number of relays and clients by FACTOR, 0.01 to 100.
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Write transfers.csv, relays.csv, seconds.csv and summary.json to this folder. Existing files are not overwritten.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(
    action: &SimAction,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    match action {
        SimAction::Run(options) => run_once(options, output, interrupt),
        SimAction::Batch(options) => Ok(batch::batch(options, output, interrupt)?),
        SimAction::Report(options) => Ok(batch::report(options, output)?),
        SimAction::Export(options) => export::run(options, output),
        SimAction::Sample(options) => sample::run(options, output),
        SimAction::Truth(options) => truth::run(options, output, interrupt),
    }
}

fn run_once(options: &RunOptions, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
    if let Some(folder) = &options.out {
        check_is_free(folder)?;
    }
    let mut network = Network::read(&options.network)?;
    if let Some(remark) = network.remark() {
        output.step(remark);
    }
    if let Some(load) = options.load {
        if !load.is_finite() || load <= 0.0 {
            return Err(Error::Usage(format!("--load {load}: must be above 0")));
        }
        let loaded = network.loaded(load);
        network = loaded.map_err(|error| Error::Usage(format!("--load {load}: {error}")))?;
    }
    if let Some(scale) = options.scale {
        if !(0.01..=100.0).contains(&scale) {
            return Err(Error::Usage(format!("--scale {scale}: must lie in 0.01..=100")));
        }
        network = network.scaled(scale);
    }
    interrupt.wind_up_in_order();
    let Plan { seconds, .. } = plan(options);
    let progress = |second: u32, wall: Duration| {
        let each_s = wall.as_secs_f64() / f64::from(second.max(1));
        let left_s = each_s * f64::from(seconds.saturating_sub(second));
        output.doing(format!(
            "{second} of {seconds} simulated seconds, {} each, {left_s:.0} s to go",
            figures::seconds(each_s),
        ));
    };
    let outcome = run_network(&network, &plan(options), interrupt.requested(), &progress)?;
    output.quiet();
    let summary = finish(&network, &plan(options), &outcome, options.out.as_deref())?;
    if let Some(folder) = &options.out {
        write_summary(folder, options, &summary, output)?;
    }
    for size in &summary.downloads {
        output.result(download(size), || Line::Downloads(size));
    }
    output.result(in_words(&summary), || Line::Summary(&summary));
    if interrupt.is_requested() {
        output.step(format!("interrupted after {:.1} simulated seconds", summary.simulated_s));
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// Writes the summary with the parameters of the run. The file differs between runs with the same seed, since it contains wall-clock times.
fn write_summary(
    folder: &Path,
    options: &RunOptions,
    summary: &Summary,
    output: &Output,
) -> Result<(), Error> {
    let mut fields = tagged("summary", summary);
    fields["network"] = json!(options.network);
    fields["seed"] = json!(options.seed);
    fields["load"] = json!(options.load);
    fields["scale"] = json!(options.scale);
    fields["version"] = json!(output.version());
    fields["machine"] = json!(report::machine());
    let path = folder.join(SUMMARY);
    let written = files::replace(&path, format!("{fields:#}\n").as_bytes(), files::Access::Umask);
    written.map_err(|source| Error::File { what: "write", path, source })
}

fn plan(options: &RunOptions) -> Plan {
    Plan {
        seconds: options.seconds,
        warm_up_s: options.warm_up.min(options.seconds / 2),
        threads: options.threads,
        seed: options.seed,
    }
}

fn download(size: &SizeFigures) -> String {
    let seconds = |time: Option<f64>| time.map_or("-".into(), figures::seconds);
    format!(
        "{:>10}: {} complete, {} timed out, {} lost, {} under way; first byte {}, last {}, 95 of 100 within {}",
        figures::bytes(size.bytes),
        size.complete,
        size.timed_out,
        size.lost,
        size.under_way,
        seconds(size.first_byte_median_s),
        seconds(size.last_byte_median_s),
        seconds(size.last_byte_p95_s),
    )
}

fn in_words(summary: &Summary) -> String {
    format!(
        "{}, {}: {:.1} simulated seconds in {}, {} each after the warm-up, {:.0} MiB
relays sent {}, {} % of what they can; {}, {:.0} ns each; fingerprint {}",
        counted(summary.relays as u64, "relay"),
        counted(summary.clients as u64, "client"),
        summary.simulated_s,
        figures::seconds(summary.wall_s),
        figures::seconds(summary.wall_s_per_simulated_s),
        summary.peak_memory_mib.unwrap_or_default(),
        figures::rate(summary.relays_sent_gbit_per_s * 1e9),
        figures::significant(summary.utilisation * 100.0),
        counted(summary.cell_hops, "cell-hop"),
        summary.ns_per_cell_hop,
        summary.fingerprint,
    )
}
