//! `flashflow-lab sim export`: a network for Shadow.

use super::figures::counted;
use clap::Args;
use cli::Error;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};
use tornet::export::{Programs, write};
use tornet::network::Network;

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A network for Shadow.
    Export {
        /// The folder.
        folder: &'a Path,
        /// Its relays.
        relays: usize,
        /// Its clients.
        clients: usize,
    },
}

/// Write a network for Shadow 3, with C tor and TGen.
///
/// The results of Shadow can then be compared with those of `flashflow-lab sim run`, which also reads the folder. Keys are made by
/// tor's own programs.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim export --network scenario.toml --shadow out --seconds 600
  cd out && shadow shadow.config.yaml

Exit status: 0 done; 1 the network cannot be exported, a file cannot be written, or tor fails; 2 wrong arguments.")]
pub(crate) struct ExportOptions {
    /// Scenario or folder, as for `flashflow-lab sim run`.
    #[arg(long, value_name = "PATH")]
    network: PathBuf,
    /// Folder to write to: absent or empty.
    #[arg(long, value_name = "DIR")]
    shadow: PathBuf,
    /// Duration in simulated seconds, after five minutes in which tor bootstraps, 1 to 1000000.
    #[arg(long, default_value_t = 1200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seconds: u32,
    /// Program of C tor.
    #[arg(long, default_value = "tor", value_name = "PROGRAM")]
    tor: PathBuf,
    /// Program that makes keys of authorities.
    #[arg(long, default_value = "tor-gencert", value_name = "PROGRAM")]
    tor_gencert: PathBuf,
}

pub(crate) fn run(options: &ExportOptions, output: &Output) -> Result<Exit, Error> {
    let network = Network::read(&options.network)?;
    if let Some(remark) = network.remark() {
        output.step(remark);
    }
    output.doing(format!("tor makes the keys of {} relays", network.relays.len()));
    let programs = Programs { tor: options.tor.clone(), gencert: options.tor_gencert.clone() };
    write(&network, &options.shadow, &programs, options.seconds)?;
    output.quiet();
    let (relays, clients) = (network.relays.len(), network.clients.len());
    let folder = &options.shadow;
    output.result(
        format!(
            "{} and {}: shadow {}",
            counted(relays as u64, "relay"),
            counted(clients as u64, "client"),
            folder.join("shadow.config.yaml").display()
        ),
        || Line::Export { folder, relays, clients },
    );
    Ok(Exit::Done)
}
