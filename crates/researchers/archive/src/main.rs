//! `flashflow-archive`: analyses of Tor's archives.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main::<command::Command>()
}
