//! The results of a run: files, statistics, a fingerprint.

mod figures;
mod files;
mod rows;
mod transfers;
mod waits;

pub use figures::{SizeFigures, Summary, peak_memory_mib};
pub use transfers::{Transfers, Unfinished, transfers};
pub use waits::{Plateau, Waits};

use crate::error::Error;
use crate::network::Network;
use crate::run::{Outcome, Plan};
use std::path::Path;

/// The summary of a run, which the command writes.
pub const SUMMARY: &str = "summary.json";

/// The files of a run.
const FILES: [&str; 4] = [SUMMARY, "transfers.csv", "relays.csv", "seconds.csv"];

/// Checks that a folder contains no earlier run, which would be overwritten.
///
/// # Errors
/// If it does, with the first of its files.
pub fn check_is_free(folder: &Path) -> Result<(), Error> {
    let earlier = FILES
        .map(|name| folder.join(name))
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok());
    match earlier {
        Some(path) => {
            let problem = "the folder has an earlier run: choose another one, or remove the file";
            Err(Error::malformed(path, problem))
        }
        None => Ok(()),
    }
}

/// Writes `transfers.csv`, `relays.csv` and `seconds.csv` into a folder, which is created if necessary, and
/// computes the statistics. Without a folder nothing is written; the fingerprint is the same.
///
/// # Errors
/// If a file cannot be written.
pub fn finish(
    network: &Network,
    plan: &Plan,
    outcome: &Outcome,
    folder: Option<&Path>,
) -> Result<Summary, Error> {
    let fingerprint = files::write(network, outcome, folder)?;
    Ok(Summary::new(network, plan, outcome, fingerprint))
}
