//! Experiments that test the claims of papers on one machine, and benchmarks of this project.
//!
//! [`run`] is `flashflow-lab experiment`, [`bench::run`] is `flashflow-lab bench`, and [`batch`](mod@batch) is
//! `flashflow-lab sim batch` and `sim report`. The first two start relays, measurers and coordinators as separate
//! processes ([`lab::OwnProcess`]), so the calling program must have those commands.

mod accuracy;
mod adversary;
mod background_downloads;
mod balance;
pub mod batch;
pub mod bench;
mod bottleneck;
mod circuitstart;
mod client_impact;
mod columns;
mod common;
mod concurrent;
mod conflux;
mod correlation;
mod crash;
mod cross_traffic;
mod detection;
mod dos;
mod downloads;
mod error;
mod factor;
mod grid;
mod kist;
mod kist_factors;
mod lengths;
mod location;
mod measuring;
mod mode;
mod paper_hosts;
mod plan_attacks;
pub mod private_network;
mod prober_pool;
mod process;
mod ratio;
mod reporting;
mod scheduled_actions;
mod selection;
mod simulated;
mod speed_test;
mod table2;
mod testbed;
mod trial;
pub mod truth;
mod wan;
mod wan_site;
mod with_clients;

use clap::{Args, Subcommand};
use common::{Common, Session};
pub use error::Error;
use report::experiment::ExperimentReport;
pub use simulated::Interval;
use terminal::{Exit, Interrupt, Output};

/// Test the claims of papers with real processes on this machine.
///
/// Each experiment writes a page with plots, tables as CSV, and all results as JSON to the folder --out.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment ratio --quick --out results

Exit status: 0 the claim holds; 1 it does not, or something failed; 2 wrong arguments; 130 interrupted.")]
pub struct ExperimentOptions {
    #[command(subcommand)]
    experiment: Experiment,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Accuracy(accuracy::Options),
    Adversary(adversary::Options),
    Balance(balance::Options),
    Bottleneck(bottleneck::Options),
    #[command(name = "circuitstart")]
    CircuitStart(circuitstart::Options),
    ClientImpact(client_impact::Options),
    Concurrent(concurrent::Options),
    Conflux(conflux::Options),
    Crash(crash::Options),
    CrossTraffic(cross_traffic::Options),
    Detection(detection::Options),
    Dos(dos::Options),
    Downloads(downloads::Options),
    Kist(kist::Options),
    KistFactors(kist_factors::Options),
    Lengths(lengths::Options),
    Location(location::Options),
    PaperHosts(paper_hosts::Options),
    PlanAttacks(plan_attacks::Options),
    Ratio(ratio::Options),
    Selection(selection::Options),
    Soak(dos::soak::Options),
    SpeedTest(speed_test::Options),
    #[command(name = "table2")]
    Table2(table2::Options),
    Wan(wan::Options),
    WithClients(with_clients::Options),
}

/// Runs an experiment and writes its report.
///
/// # Errors
/// [`Error`] if the experiment cannot be run. A claim that does not hold is not an error but [`Exit::Failed`].
pub fn run(
    options: &ExperimentOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let session = Session { common: &options.common, output, interrupt };
    let mut report: ExperimentReport = match &options.experiment {
        Experiment::Accuracy(options) => accuracy::run(options, session)?,
        Experiment::Adversary(options) => adversary::run(options, session)?,
        Experiment::Balance(options) => balance::run(options, session)?,
        Experiment::Bottleneck(options) => bottleneck::run(options, session)?,
        Experiment::CircuitStart(options) => circuitstart::run(options, session)?,
        Experiment::ClientImpact(options) => client_impact::run(options, session)?,
        Experiment::Concurrent(options) => concurrent::run(options, session)?,
        Experiment::Conflux(options) => conflux::run(options, session)?,
        Experiment::Crash(options) => crash::run(options, session)?,
        Experiment::CrossTraffic(options) => cross_traffic::run(options, session)?,
        Experiment::Detection(options) => detection::run(options, session)?,
        Experiment::Dos(options) => dos::run(options, session)?,
        Experiment::Downloads(options) => downloads::run(options, session)?,
        Experiment::Kist(options) => kist::run(options, session)?,
        Experiment::KistFactors(options) => kist_factors::run(options, session)?,
        Experiment::Lengths(options) => lengths::run(options, session)?,
        Experiment::Location(options) => location::run(options, session)?,
        Experiment::PaperHosts(options) => paper_hosts::run(options, session)?,
        Experiment::PlanAttacks(options) => plan_attacks::run(options, session)?,
        Experiment::Ratio(options) => ratio::run(options, session)?,
        Experiment::Selection(options) => selection::run(options, session)?,
        Experiment::Soak(options) => dos::soak::run(options, session)?,
        Experiment::SpeedTest(options) => speed_test::run(options, session)?,
        Experiment::Table2(options) => table2::run(options, session)?,
        Experiment::Wan(options) => wan::run(options, session)?,
        Experiment::WithClients(options) => with_clients::run(options, session)?,
    };
    reporting::publish(&mut report, &options.common.out, output)?;
    Ok(if interrupt.is_requested() {
        Exit::Interrupted
    } else if report.held() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
