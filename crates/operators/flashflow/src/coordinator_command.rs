//! `flashflow coordinator`: measures all relays with a team of measurers, and writes bandwidth files.

use authority::log::{self, LogArguments};
use authority::{config_file, stop_file};
use clap::{Args, Subcommand};
use cli::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terminal::{Exit, Interrupt, Output};

/// Run a coordinator, which measures relays with a team of measurers and writes bandwidth files.
///
/// The measurers are `flashflow measurer` processes on this host or others. Several relays are measured at the same time, as far
/// as the team's capacity allows. Relays that take part are measured as an echo, all others in transit.
///
/// `stop-all` ends all measurements within a second, and `resume` permits it again.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  flashflow coordinator --config coordinator.toml --once
  flashflow coordinator --config coordinator.toml
  flashflow coordinator --config coordinator.toml --check
  flashflow coordinator stop-all --config coordinator.toml
  flashflow coordinator resume --config coordinator.toml

The sample coordinator.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.
Without --once, all relays are measured once in each period. The coordinator logs to stderr; RUST_LOG=debug logs more.

Exit status: 0 each relay has an estimate, or the check passed; 1 something failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct CoordinatorOptions {
    #[command(subcommand)]
    command: Option<CoordinatorCommand>,
    /// Configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Measure all relays once, and end.
    #[arg(long)]
    once: bool,
    /// Read the configuration and all files that it names, print what the coordinator would do, and end. Contacts no other host.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    log: LogArguments,
}

#[derive(Debug, Subcommand)]
enum CoordinatorCommand {
    /// Stop all measurements, until `resume`.
    ///
    /// Creates the file `stop` in the folder of bandwidth files. A running coordinator ends all measurements within a second, and
    /// while the file exists none starts, also after a restart. Of the configuration, only `out` is read.
    StopAll {
        /// Configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Permit measurements again after `stop-all`.
    Resume {
        /// Configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// A line of `stop-all` and `resume` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// Measurements are stopped.
    Stopped {
        /// The stop file.
        file: &'a Path,
    },
    /// Measurements are permitted.
    Resumed {
        /// Whether they were stopped before.
        was_stopped: bool,
    },
}

/// The part of `coordinator.toml` that `stop-all` needs: it must work although another setting is wrong.
#[derive(Deserialize)]
struct Folder {
    out: PathBuf,
}

fn folder(path: &Path) -> Result<PathBuf, Error> {
    let folder: Folder = config_file::read(path)?;
    Ok(config_file::resolve(path, &folder.out))
}

fn stop_all(path: &Path, output: &Output) -> Result<Exit, Error> {
    let out = folder(path)?;
    let created = stop_file::create(&out);
    let file = created.map_err(|source| Error::File {
        what: "create the stop file",
        path: stop_file::path_in(&out),
        source,
    })?;
    let text = format!(
        "stopped: {} exists. A running coordinator ends all measurements within a second, and none starts until: flashflow coordinator \
         resume",
        file.display()
    );
    output.result(text, || Line::Stopped { file: &file });
    Ok(Exit::Done)
}

fn resume(path: &Path, output: &Output) -> Result<Exit, Error> {
    let out = folder(path)?;
    let was_stopped = stop_file::remove(&out).map_err(|source| Error::File {
        what: "remove the stop file",
        path: stop_file::path_in(&out),
        source,
    })?;
    let text = if was_stopped {
        "measurements are permitted again"
    } else {
        "measurements were not stopped"
    };
    output.result(text, || Line::Resumed { was_stopped });
    Ok(Exit::Done)
}

pub(crate) fn run(
    options: &CoordinatorOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    match &options.command {
        Some(CoordinatorCommand::StopAll { config }) => return stop_all(config, output),
        Some(CoordinatorCommand::Resume { config }) => return resume(config, output),
        None => {}
    }
    let config = options.config.as_deref();
    let config = config.ok_or_else(|| Error::Usage("give --config FILE".to_owned()))?;
    if options.check {
        return authority::check(config, options.once, output);
    }
    log::start(options.log, output);
    authority::run(config, options.once, output, interrupt)
}
