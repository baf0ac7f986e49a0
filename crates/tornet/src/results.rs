//! What came out of a run: files, figures, a fingerprint.

mod figures;
mod files;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod transfers;
mod waits;

pub use figures::{SizeFigures, Summary, peak_memory_mib};
#[cfg(feature = "parquet")]
pub use parquet::write_parquet;
pub use transfers::{Transfers, Unfinished, transfers};
pub use waits::Waits;

use crate::error::Error;
use crate::network::Network;
use crate::run::{Outcome, Plan};
use std::path::Path;

/// Writes `transfers.csv`, `relays.csv` and `seconds.csv` into a folder, which is made if need be, and reckons what came out. Nothing is written without a folder; the
/// fingerprint is the same.
///
/// # Errors
/// Where a file cannot be written.
pub fn finish(
    network: &Network,
    plan: &Plan,
    outcome: &Outcome,
    folder: Option<&Path>,
) -> Result<Summary, Error> {
    let fingerprint = files::write(network, outcome, folder)?;
    Ok(Summary::new(network, plan, outcome, fingerprint))
}
