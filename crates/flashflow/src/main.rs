//! `flashflow`: measures what Tor relays can carry.

mod bench;
mod cli;
mod config;
mod coordinator_command;
mod demo;
mod error;
mod experiment;
mod interrupt;
mod keys;
mod lab_command;
mod measure;
mod measure_team;
mod measurer_command;
mod measuring;
mod network;
mod output;
mod own_process;
mod own_relay;
mod relay_command;
mod relay_said;

use clap::Parser;
use cli::{Cli, Command};
use error::{Error, Exit};
use interrupt::Interrupt;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.command.wants_json());
    let result = Interrupt::install().and_then(|interrupt| {
        if cli.tied {
            interrupt.end_with_stdin();
        }
        run(&cli.command, &output, &interrupt)
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            output.error(&error);
            Exit::Failed.into()
        }
    }
}

fn run(command: &Command, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
    match command {
        Command::Demo(options) => demo::run(options, output, interrupt),
        Command::Measure(options) => measure::run(options, output, interrupt),
        Command::MeasureTeam(options) => measure_team::run(options, output, interrupt),
        Command::Lab(options) => lab_command::run(&options.action, output),
        Command::Bench(options) => bench::run(&options.what, output, interrupt),
        Command::Experiment(options) => experiment::run(options, output, interrupt),
        Command::Keys(options) => keys::run(options, output),
        Command::Measurer(options) => measurer_command::run(options, output, interrupt),
        Command::Coordinator(options) => coordinator_command::run(options, output, interrupt),
        Command::Relay(options) => relay_command::run(options, output, interrupt),
    }
}
