//! `flashflow coordinator`: measures all relays with a team of measurers, and writes bandwidth files.

use authority::log::{self, LogArguments};
use clap::Args;
use cli::Error;
use std::path::PathBuf;
use terminal::{Exit, Interrupt, Output};

/// Run a coordinator, which measures relays with a team of measurers and writes bandwidth files.
///
/// The measurers are `flashflow measurer` processes on this host or others. Several relays are measured at the same time, as far
/// as the team's capacity allows. Relays that take part are measured as an echo, all others in transit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow coordinator --config coordinator.toml --once
  flashflow coordinator --config coordinator.toml
  flashflow coordinator --config coordinator.toml --check

The sample coordinator.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.
Without --once, all relays are measured once in each period. The coordinator logs to stderr; RUST_LOG=debug logs more.

Exit status: 0 each relay has an estimate, or the check passed; 1 something failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct CoordinatorOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Measure all relays once, and end.
    #[arg(long)]
    once: bool,
    /// Read the configuration and all files that it names, print what the coordinator would do, and end. Contacts no other host.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    log: LogArguments,
}

pub(crate) fn run(
    options: &CoordinatorOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    if options.check {
        return authority::check(&options.config, options.once, output);
    }
    log::start(options.log, output);
    authority::run(&options.config, options.once, output, interrupt)
}
