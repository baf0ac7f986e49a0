//! `flashflow`: measures what Tor relays can carry.

mod anonymity_command;
mod authorities;
mod bwfile_command;
mod choosing;
mod cli;
mod client_command;
mod completions_command;
mod config;
mod coordinator_command;
mod dashboard_command;
mod demo;
mod documents;
mod error;
mod export_command;
mod help;
mod keys;
mod lab_command;
mod manual_command;
mod measure;
mod measure_team;
mod measurer_command;
mod model_command;
mod probe_command;
mod relay_command;
mod schedule_command;
mod service;
mod sim_command;
mod store_command;
mod times;

use clap::FromArgMatches as _;
use cli::{Cli, Command};
use error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use terminal::{Exit, Interrupt, Output};

fn main() -> ExitCode {
    let cli = cli::command().try_get_matches().and_then(|it| Cli::from_arg_matches(&it));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(cli.command.wants_json());
    let result = Interrupt::install().map_err(Error::from).and_then(|interrupt| {
        if cli.tied {
            interrupt.end_with_stdin();
        }
        run(&cli.command, &output, &interrupt)
    });
    match result {
        Ok(_) if output.has_lost() => Exit::Failed.into(),
        Ok(exit) => exit.into(),
        Err(error) => {
            output.error(&error);
            if error.is_usage() { Exit::Misused } else { Exit::Failed }.into()
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn usage(error: &clap::Error) -> ExitCode {
    let output = Output::new(false);
    if error.use_stderr() {
        error.exit();
    }
    // `print` buffers nothing that a full disk could refuse later.
    output.keep_account(error.print().and_then(|()| io::stdout().flush()));
    if output.has_lost() { Exit::Failed.into() } else { Exit::Done.into() }
}

fn run(command: &Command, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
    match command {
        Command::Demo(options) => demo::run(options, output, interrupt),
        Command::Measure(options) => measure::run(options, output, interrupt),
        Command::MeasureTeam(options) => measure_team::run(options, output, interrupt),
        Command::Lab(options) => lab_command::run(&options.action, output, interrupt),
        Command::Bench(options) => Ok(experiments::bench::run(options, output, interrupt)?),
        Command::Experiment(options) => Ok(experiments::run(options, output, interrupt)?),
        Command::Keys(options) => keys::run(options, output),
        Command::Measurer(options) => measurer_command::run(options, output, interrupt),
        Command::Coordinator(options) => coordinator_command::run(options, output, interrupt),
        Command::Relay(options) => relay_command::run(options, output, interrupt),
        Command::Client(options) => client_command::run(options, output, interrupt),
        Command::Probe(options) => probe_command::run(options, output, interrupt),
        Command::Model(options) => model_command::run(&options.action, output, interrupt),
        Command::Anonymity(options) => anonymity_command::run(options, output),
        Command::Bwfile(options) => bwfile_command::run(options, output),
        Command::Dashboard(options) => dashboard_command::run(options, output, interrupt),
        Command::Export(options) => export_command::run(options, output),
        Command::Store(options) => store_command::run(options, output),
        Command::Completions(options) => Ok(completions_command::run(options, output)),
        Command::Manual(options) => manual_command::run(options, output),
        Command::Schedule(options) => schedule_command::run(options, output),
        Command::Sim(options) => sim_command::run(&options.action, output, interrupt),
    }
}
