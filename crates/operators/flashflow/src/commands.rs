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
use crate::policy_command::{self, PolicyOptions};
use crate::relay_command::{self, RelayOptions};
use crate::schedule_command::{self, ScheduleOptions};
use crate::site_command::{self, SiteArguments};
use crate::store_command::{self, StoreOptions};
use clap::Subcommand;
use cli::{
    Commands, CompletionsOptions, Either, Error, ManualLine, ManualOptions, SchemaOptions, Schemas,
    schema_of,
};
use std::error::Error as StdError;
use store::rows::{MeasurementLine, PathLine, PeriodLine, RelayLine, SecondLine, SuspicionLine};
use terminal::{Exit, Interrupt, Output, measuring};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Measure(MeasureOptions),
    MeasureTeam(MeasureTeamOptions),
    Keys(KeysOptions),
    Measurer(MeasurerOptions),
    Coordinator(CoordinatorOptions),
    Relay(RelayOptions),
    OptIn(OptInOptions),
    Policy(PolicyOptions),
    Schedule(ScheduleOptions),
    Bwfile(BwfileOptions),
    Store(StoreOptions),
    Export(ExportOptions),
    Dashboard(DashboardOptions),
    Site(SiteArguments),
    Completions(CompletionsOptions),
    Schema(SchemaOptions),
    /// For packagers.
    #[command(hide = true)]
    Manual(ManualOptions),
}

/// The lines of each command. Those of `export` are rows of the tables, by the names of `--what`.
const SCHEMAS: Schemas = &[
    ("measure", schema_of::<Either<measure::Line, measuring::Line<'static>>>),
    ("measure-team", schema_of::<measure_team::Line<'static>>),
    ("keys", schema_of::<keys::Line<'static>>),
    ("measurer", schema_of::<measurer_command::Line<'static>>),
    ("coordinator", schema_of::<Either<authority::lines::Line<'static>, measuring::Line<'static>>>),
    ("opt-in-check", schema_of::<opt_in_command::CheckLine<'static>>),
    ("opt-in-merge", schema_of::<opt_in_command::MergeLine<'static>>),
    ("opt-in-sign", schema_of::<opt_in_command::MergeLine<'static>>),
    ("coordinator-stop-all", schema_of::<coordinator_command::Line<'static>>),
    ("coordinator-resume", schema_of::<coordinator_command::Line<'static>>),
    ("policy-check", schema_of::<policy_command::Line<'static>>),
    ("policy-sign", schema_of::<policy_command::Line<'static>>),
    ("schedule", schema_of::<schedule_command::Line<'static>>),
    ("dashboard", schema_of::<dashboard_command::Line>),
    ("site", schema_of::<site_command::Line<'static>>),
    ("bwfile-check", schema_of::<bwfile_command::check::Line<'static>>),
    ("bwfile-gate", schema_of::<bwfile_command::gate::Line<'static>>),
    ("bwfile-show", schema_of::<bwfile_command::ShowLine<'static>>),
    ("bwfile-diff", schema_of::<bwfile_command::DiffLine>),
    ("bwfile-explain", schema_of::<bwfile_command::explain::Line<'static>>),
    ("store-backup", schema_of::<store_command::BackupLine<'static>>),
    ("store-check", schema_of::<store_command::CheckLine>),
    ("export-measurements", schema_of::<MeasurementLine>),
    ("export-seconds", schema_of::<SecondLine>),
    ("export-relays", schema_of::<RelayLine>),
    ("export-periods", schema_of::<PeriodLine>),
    ("export-suspicions", schema_of::<SuspicionLine>),
    ("export-paths", schema_of::<PathLine>),
    ("relay", schema_of::<relay_command::lines::Line>),
    ("manual", schema_of::<ManualLine>),
];

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
            &[
                "keys",
                "measurer",
                "coordinator",
                "opt-in",
                "policy",
                "schedule",
                "dashboard",
                "site",
            ],
        ),
        ("Inspect results", &["bwfile", "store", "export"]),
        ("Run a relay", &["relay"]),
        ("Other", &["completions", "schema", "help"]),
    ];
    const CONFIGURATIONS: &'static [(&'static str, &'static str)] = &[
        ("coordinator", include_str!("../../../../docs/coordinator.toml")),
        ("measurer", include_str!("../../../../docs/measurer.toml")),
        ("relay", include_str!("../../../../docs/relay.toml")),
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
            Self::Policy(options) => policy_command::run(options, output),
            Self::Schedule(options) => schedule_command::run(options, output),
            Self::Bwfile(options) => bwfile_command::run(options, output),
            Self::Store(options) => store_command::run(options, output),
            Self::Export(options) => export_command::run(options, output),
            Self::Dashboard(options) => dashboard_command::run(options, output, interrupt),
            Self::Site(options) => site_command::run(options, output),
            Self::Completions(options) => Ok(options.run(cli::command::<Self>(), output)),
            Self::Schema(options) => options.run(SCHEMAS, output),
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
        testbin::manual::assert_commands_parse(&cli::command::<Command>(), 60);
    }

    #[test]
    fn each_command_that_prints_results_has_a_schema() {
        // `export` has one for each table. A coordinator prints lines besides its commands.
        let all = SCHEMAS
            .iter()
            .filter(|(name, _)| !name.starts_with("export-") && *name != "coordinator");
        let all =
            all.map(|(name, schema)| (*name, serde_json::to_string(&schema()).expect("JSON")));
        let without = ["export", "completions", "schema"];
        testbin::schema::assert_complete(&cli::command::<Command>(), &[], &without, all);
    }
}
