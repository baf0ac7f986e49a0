//! What the command line accepts.

use crate::anonymity_command::AnonymityOptions;
use crate::bwfile_command::BwfileOptions;
use crate::client_command::ClientOptions;
use crate::completions_command::CompletionsOptions;
use crate::coordinator_command::CoordinatorOptions;
use crate::dashboard_command::DashboardOptions;
use crate::demo::DemoOptions;
use crate::export_command::ExportOptions;
use crate::help;
use crate::keys::KeysOptions;
use crate::lab_command::LabOptions;
use crate::manual_command::ManualOptions;
use crate::measure::MeasureOptions;
use crate::measure_team::MeasureTeamOptions;
use crate::measurer_command::MeasurerOptions;
use crate::model_command::ModelOptions;
use crate::probe_command::ProbeOptions;
use crate::relay_command::RelayOptions;
use crate::schedule_command::ScheduleOptions;
use crate::sim_command::SimOptions;
use crate::store_command::StoreOptions;
use clap::{CommandFactory as _, Parser, Subcommand};
use experiments::ExperimentOptions;
use experiments::bench::BenchOptions;

/// The version, the commit, and the target.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FLASHFLOW_BUILT_FROM"), ")");

/// Measures how much traffic Tor relays can carry.
///
/// A team of measurers sends real Tor cells through a relay for some seconds, verifies that the relay decrypted them, and takes
/// the median of the seconds.
#[derive(Debug, Parser)]
#[command(name = "flashflow", version = VERSION, max_term_width = 100)]
#[command(after_help = "Example:\n  flashflow demo --limits 10,50,0 --seconds 10")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// End when standard input ends: for those who start a process and may be killed.
    #[arg(long, global = true, hide = true)]
    pub(crate) tied: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoOptions),
    Measure(MeasureOptions),
    MeasureTeam(MeasureTeamOptions),
    Lab(LabOptions),
    Bench(BenchOptions),
    Experiment(ExperimentOptions),
    Keys(KeysOptions),
    Measurer(MeasurerOptions),
    Coordinator(CoordinatorOptions),
    Relay(RelayOptions),
    Client(ClientOptions),
    Probe(ProbeOptions),
    Model(ModelOptions),
    Anonymity(AnonymityOptions),
    Bwfile(BwfileOptions),
    Dashboard(DashboardOptions),
    Export(ExportOptions),
    Store(StoreOptions),
    Schedule(ScheduleOptions),
    Sim(SimOptions),
    Completions(CompletionsOptions),
    /// For those who make packages.
    #[command(hide = true)]
    Manual(ManualOptions),
}

/// The command line with its help prepared for people.
pub(crate) fn command() -> clap::Command {
    help::prepared(Cli::command())
}

impl Command {
    pub(crate) const fn wants_json(&self) -> bool {
        match self {
            Self::Demo(options) => options.json,
            Self::Measure(options) => options.json,
            Self::MeasureTeam(options) => options.json,
            Self::Lab(options) => options.json,
            Self::Bench(options) => options.json,
            Self::Experiment(options) => options.wants_json(),
            Self::Keys(options) => options.json,
            Self::Measurer(options) => options.json,
            Self::Coordinator(options) => options.json,
            Self::Relay(options) => options.json,
            Self::Client(options) => options.json,
            Self::Probe(options) => options.json,
            Self::Model(options) => options.json,
            Self::Anonymity(options) => options.json,
            Self::Bwfile(options) => options.wants_json(),
            Self::Dashboard(options) => options.json,
            Self::Completions(_) | Self::Export(_) => false,
            Self::Store(options) => options.wants_json(),
            Self::Manual(options) => options.json,
            Self::Schedule(options) => options.json,
            Self::Sim(options) => options.wants_json(),
        }
    }
}
