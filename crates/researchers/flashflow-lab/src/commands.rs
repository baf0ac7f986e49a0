//! The commands.

use crate::anonymity_command::{self, AnonymityOptions};
use crate::client_command::{self, ClientOptions};
use crate::conformance_command::{self, ConformanceOptions};
use crate::demo::{self, DemoOptions};
use crate::lab_command::{self, LabOptions};
use crate::model_command::{self, ModelOptions};
use crate::papers_command::{self, PapersOptions};
use crate::probe_command::{self, ProbeOptions};
use crate::results_command::{self, ResultsOptions};
use crate::sim_command::{self, SimOptions};
use clap::Subcommand;
use cli::{
    Commands, CompletionsOptions, Either, Error, ManualLine, ManualOptions, SchemaOptions, Schemas,
    schema_of,
};
use experiments::bench::{BenchOptions, lines};
use experiments::{ExperimentOptions, bench};
use std::error::Error as StdError;
use std::ffi::OsString;
use terminal::{Exit, Interrupt, Output, measuring};

/// The schemas of the lines of commands. Experiments share one.
const SCHEMAS: Schemas = &[
    (
        "demo",
        schema_of::<Either<demo::Line<'static>, Either<demo::RelayLine, measuring::Line<'static>>>>,
    ),
    ("lab-up", schema_of::<lab_command::Line<'static>>),
    ("lab-status", schema_of::<lab_command::Line<'static>>),
    ("lab-down", schema_of::<lab_command::Line<'static>>),
    ("lab-path", schema_of::<lab_command::path::Line>),
    ("sim-run", schema_of::<sim_command::Line<'static>>),
    ("sim-batch", schema_of::<report::experiment::Line<'static>>),
    ("sim-report", schema_of::<report::experiment::Line<'static>>),
    ("sim-export", schema_of::<sim_command::export::Line<'static>>),
    ("sim-sample", schema_of::<sim_command::sample::Line<'static>>),
    ("sim-truth", schema_of::<sim_command::truth::Line<'static>>),
    ("experiment", schema_of::<report::experiment::Line<'static>>),
    ("bench-measurer", schema_of::<Either<lines::MeasurerLine, measuring::Line<'static>>>),
    ("bench-echo", schema_of::<lines::EchoLine>),
    ("bench-relay", schema_of::<lines::RelayLine>),
    ("bench-limit", schema_of::<lines::LimitLine>),
    ("bench-client", schema_of::<lines::ClientLine>),
    ("bench-path", schema_of::<lines::PathLine>),
    ("bench-idle", schema_of::<lines::IdleLine>),
    ("results-record", schema_of::<results_command::Line<'static>>),
    ("results-pages", schema_of::<results_command::Line<'static>>),
    ("papers-list", schema_of::<papers_command::Line<'static>>),
    ("papers-run", schema_of::<papers_command::Line<'static>>),
    ("papers-report", schema_of::<papers_command::Line<'static>>),
    ("client", schema_of::<Either<client_command::Line, client::Event>>),
    ("conformance", schema_of::<conformance_command::Line<'static>>),
    ("probe", schema_of::<probe_command::Line>),
    ("model", schema_of::<model_command::Line>),
    ("anonymity", schema_of::<anonymity_command::Line<'static>>),
    ("manual", schema_of::<ManualLine>),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoOptions),
    Lab(LabOptions),
    Sim(SimOptions),
    Experiment(ExperimentOptions),
    Bench(BenchOptions),
    Results(ResultsOptions),
    Papers(PapersOptions),
    Conformance(ConformanceOptions),
    Client(ClientOptions),
    Probe(ProbeOptions),
    Model(ModelOptions),
    Anonymity(AnonymityOptions),
    /// A program of its own: flashflow-archive.
    #[command(hide = true, disable_help_flag = true)]
    Archive {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        arguments: Vec<OsString>,
    },
    Completions(CompletionsOptions),
    Schema(SchemaOptions),
    /// For packagers.
    #[command(hide = true)]
    Manual(ManualOptions),
}

impl Commands for Command {
    const NAME: &'static str = "flashflow-lab";
    const ABOUT: &'static str = "Research on Tor: private networks, experiments and simulations";
    const LONG_ABOUT: &'static str = "Runs private networks of unmodified tor and FlashFlow relays on this machine, and simulates whole \
        networks in virtual time. Relays, measurers and coordinators are processes of the program flashflow. It must be in the same \
        folder as this program, or at the path in the environment variable FLASHFLOW_BIN.";
    const EXAMPLES: &'static str = "Example:\n  flashflow-lab demo --limits 10,50,0 --seconds 10";
    const GROUPS: &'static [(&'static str, &'static [&'static str])] = &[
        ("Private networks", &["demo", "lab", "conformance"]),
        ("Experiments and simulations", &["experiment", "bench", "sim", "results", "papers"]),
        ("Clients and paths", &["client", "probe", "model", "anonymity"]),
        ("Other", &["completions", "schema", "help"]),
    ];

    fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        match self {
            Self::Demo(options) => demo::run(options, output, interrupt),
            Self::Lab(options) => lab_command::run(&options.action, output, interrupt),
            Self::Bench(options) => Ok(bench::run(options, output, interrupt)?),
            Self::Results(options) => results_command::run(options, output, interrupt),
            Self::Papers(options) => papers_command::run(options, output, interrupt),
            Self::Experiment(options) => Ok(experiments::run(options, output, interrupt)?),
            Self::Conformance(options) => conformance_command::run(options, output),
            Self::Client(options) => client_command::run(options, output, interrupt),
            Self::Probe(options) => probe_command::run(options, output, interrupt),
            Self::Model(options) => model_command::run(&options.action, output, interrupt),
            Self::Anonymity(options) => anonymity_command::run(options, output),
            Self::Archive { arguments } => Err(Error::Usage(moved(arguments))),
            Self::Sim(options) => sim_command::run(&options.action, output, interrupt),
            Self::Schema(options) => options.run(SCHEMAS, output),
            Self::Completions(options) => Ok(options.run(cli::command::<Self>(), output)),
            Self::Manual(options) => options.run::<Self>(output),
        }
    }

    fn is_usage(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
        use lab::{LabError, wan::WanError};
        error.downcast_ref::<experiments::Error>().is_some_and(experiments::Error::is_usage)
            || matches!(error.downcast_ref(), Some(documents::Error::StdinTaken))
            || matches!(error.downcast_ref(), Some(LabError::Spec(_)))
            || matches!(error.downcast_ref(), Some(WanError::Spec(_)))
    }
}

/// Where the archive analysis is.
fn moved(arguments: &[OsString]) -> String {
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    format!(
        "archives are analysed by a program of their own: flashflow-archive {} (package flashflow-archive, or cargo build \
         --release -p flashflow-archive)",
        arguments.join(" ")
    )
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
        let all = SCHEMAS
            .iter()
            .map(|(name, schema)| (*name, serde_json::to_string(&schema()).expect("JSON")));
        // A probe has a subcommand besides its own lines.
        let shared = ["experiment", "model", "probe"];
        let without = ["archive", "completions", "schema"];
        testbin::schema::assert_complete(&cli::command::<Command>(), &shared, &without, all);
    }
}
