//! `flashflow experiment`: what the paper claims, tried on this machine.

mod accuracy;
mod adversary;
mod client_load;
mod concurrent;
mod downloads;
mod kill;
mod kist;
mod load;
mod ratio;
mod stage;
mod telling;
mod trial;

use crate::error::{Error, Exit};
use crate::interrupt::Interrupt;
use crate::output::Output;
use clap::{Args, Subcommand};
use report::experiment::ExperimentReport;
use std::path::PathBuf;

/// Experiments: what the paper claims, tried with real processes on this machine.
///
/// Each leaves a page with plots, tables as CSV, and everything as JSON in the folder --out.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow experiment ratio --quick --out results

Exit status: 0 the claim held; 1 it did not, or something failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct ExperimentOptions {
    #[command(subcommand)]
    what: Experiment,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What all experiments have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Folder for page, tables and figures.
    #[arg(long, global = true, value_name = "DIR", default_value = "flashflow-experiments")]
    pub(crate) out: PathBuf,
    /// Minutes instead of hours: fewer and shorter runs.
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// Print results as JSON, one value a line; the last is the summary.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Accuracy(accuracy::Options),
    Adversary(adversary::Options),
    Concurrent(concurrent::Options),
    Downloads(downloads::Options),
    Kill(kill::Options),
    Kist(kist::Options),
    Ratio(ratio::Options),
}

pub(crate) fn run(
    options: &ExperimentOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let common = &options.common;
    let report: ExperimentReport = match &options.what {
        Experiment::Accuracy(options) => accuracy::run(options, common, output, interrupt)?,
        Experiment::Adversary(options) => adversary::run(options, common, output, interrupt)?,
        Experiment::Concurrent(options) => concurrent::run(options, common, output, interrupt)?,
        Experiment::Downloads(options) => downloads::run(options, common, output, interrupt)?,
        Experiment::Kill(options) => kill::run(options, common, output, interrupt)?,
        Experiment::Kist(options) => kist::run(options, common, output, interrupt)?,
        Experiment::Ratio(options) => ratio::run(options, common, output, interrupt)?,
    };
    conclude(&report, &options.common, output, interrupt)
}

/// Writes the results, and tells them.
fn conclude(
    report: &ExperimentReport,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let written = report.write(&common.out)?;
    output.quiet();
    output.step(format!("page: {}", written.html.display()));
    output.result(&report.answer, || report.summary_value());
    Ok(if interrupt.is_requested() {
        Exit::Interrupted
    } else if report.held() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
