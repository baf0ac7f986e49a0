//! `flashflow-lab`: private networks, experiments and simulations for researchers. Relays, measurers and coordinators of an
//! experiment are processes of `flashflow`.

mod anonymity_command;
mod authorities;
mod child;
mod choosing;
mod client_command;
mod commands;
mod conformance_command;
mod demo;
mod lab_command;
mod model_command;
mod papers_command;
mod probe_command;
mod results_command;
mod sim_command;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main::<commands::Command>()
}
