//! `flashflow`: measures how much traffic Tor relays can carry. The program of bandwidth authorities and relay operators.

mod bwfile_command;
mod commands;
mod coordinator_command;
mod dashboard_command;
mod export_command;
mod keys;
mod measure;
mod measure_team;
mod measurer_command;
mod opt_in_command;
mod policy_command;
mod relay_command;
mod schedule_command;
mod service;
mod site_command;
mod store_command;

use std::process::ExitCode;

fn main() -> ExitCode {
    metrics::declare_build(env!("CARGO_PKG_VERSION"), cli::COMMIT, cli::TARGET);
    cli::main::<commands::Command>()
}
