//! The commands.

use crate::bwfile_command::{self, BwfileOptions};
use crate::coordinator_command::{self, CoordinatorOptions};
use crate::dashboard_command::{self, DashboardOptions};
use crate::export_command::{self, ExportOptions};
use crate::keys::{self, KeysOptions};
use crate::measure::{self, MeasureOptions};
use crate::measure_team::{self, MeasureTeamOptions};
use crate::measurer_command::{self, MeasurerOptions};
use crate::opt_in_command::{self, OptInOptions};
use crate::relay_command::{self, RelayOptions};
use crate::schedule_command::{self, ScheduleOptions};
use crate::store_command::{self, StoreOptions};
use clap::Subcommand;
use cli::{Commands, CompletionsOptions, Error, ManualOptions};
use std::error::Error as StdError;
use terminal::{Exit, Interrupt, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Measure(MeasureOptions),
    MeasureTeam(MeasureTeamOptions),
    Keys(KeysOptions),
    Measurer(MeasurerOptions),
    Coordinator(CoordinatorOptions),
    Relay(RelayOptions),
    OptIn(OptInOptions),
    Schedule(ScheduleOptions),
    Bwfile(BwfileOptions),
    Store(StoreOptions),
    Export(ExportOptions),
    Dashboard(DashboardOptions),
    Completions(CompletionsOptions),
    /// For packagers.
    #[command(hide = true)]
    Manual(ManualOptions),
}

impl Commands for Command {
    const NAME: &'static str = "flashflow";
    const ABOUT: &'static str = "Measures how much traffic Tor relays can carry";
    const LONG_ABOUT: &'static str = "A team of measurers sends real Tor cells through a relay for some seconds, verifies that the \
        relay decrypted them, and takes the median of the seconds.";
    const EXAMPLES: &'static str =
        "Example:\n  flashflow measure relay1 --authority 127.0.0.1:7001";
    const GROUPS: &'static [(&'static str, &'static [&'static str])] = &[
        ("Measure relays", &["measure", "measure-team"]),
        (
            "Run a bandwidth authority",
            &["keys", "measurer", "coordinator", "opt-in", "schedule", "dashboard"],
        ),
        ("Inspect results", &["bwfile", "store", "export"]),
        ("Run a relay", &["relay"]),
        ("Other", &["completions", "help"]),
    ];
    const CONFIGURATIONS: &'static [(&'static str, &'static str)] = &[
        ("coordinator", include_str!("../../../docs/coordinator.toml")),
        ("measurer", include_str!("../../../docs/measurer.toml")),
        ("relay", include_str!("../../../docs/relay.toml")),
    ];

    fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        match self {
            Self::Measure(options) => measure::run(options, output, interrupt),
            Self::MeasureTeam(options) => measure_team::run(options, output, interrupt),
            Self::Keys(options) => keys::run(options, output),
            Self::Measurer(options) => measurer_command::run(options, output, interrupt),
            Self::Coordinator(options) => coordinator_command::run(options, output, interrupt),
            Self::Relay(options) => relay_command::run(options, output, interrupt),
            Self::OptIn(options) => opt_in_command::run(options, output),
            Self::Schedule(options) => schedule_command::run(options, output),
            Self::Bwfile(options) => bwfile_command::run(options, output),
            Self::Store(options) => store_command::run(options, output),
            Self::Export(options) => export_command::run(options, output),
            Self::Dashboard(options) => dashboard_command::run(options, output, interrupt),
            Self::Completions(options) => Ok(options.run(cli::command::<Self>(), output)),
            Self::Manual(options) => options.run::<Self>(output),
        }
    }

    fn is_usage(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
        matches!(error.downcast_ref(), Some(documents::Error::StdinTaken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal_and_groups_all_commands() {
        testbin::help::assert_help(&cli::command::<Command>(), Command::GROUPS, 50);
    }

    #[test]
    fn the_commands_of_the_documentation_and_of_the_help_parse() {
        testbin::manual::assert_commands_parse(&cli::command::<Command>(), &[], 60);
    }
}
