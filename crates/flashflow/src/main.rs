//! `flashflow`: measures what Tor relays can carry.

mod bench;
mod cli;
mod config;
mod coordinator_command;
mod demo;
mod error;
mod interrupt;
mod keys;
mod lab_command;
mod measure;
mod measure_team;
mod measurer_command;
mod measuring;
mod network;
mod output;
mod relay_command;
mod relay_said;

use clap::Parser;
use cli::{Cli, Command};
use error::Exit;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.command.wants_json());
    let result = interrupt::Interrupt::install().and_then(|interrupt| match &cli.command {
        Command::Demo(options) => demo::run(options, &output, &interrupt),
        Command::Measure(options) => measure::run(options, &output, &interrupt),
        Command::MeasureTeam(options) => measure_team::run(options, &output, &interrupt),
        Command::Lab(options) => lab_command::run(&options.action, &output),
        Command::Bench(options) => bench::run(&options.what, &output, &interrupt),
        Command::Keys(options) => keys::run(options, &output),
        Command::Measurer(options) => measurer_command::run(options, &output, &interrupt),
        Command::Coordinator(options) => coordinator_command::run(options, &output, &interrupt),
        Command::Relay(options) => relay_command::run(options, &output, &interrupt),
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            output.error(&error);
            Exit::Failed.into()
        }
    }
}
