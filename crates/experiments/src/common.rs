//! What all experiments have in common.

use clap::Args;
use std::path::PathBuf;

/// What all experiments are told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Folder for page, tables and figures.
    #[arg(long, global = true, value_name = "DIR", default_value = "flashflow-experiments")]
    pub(crate) out: PathBuf,
    /// Minutes instead of hours: fewer and shorter runs.
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// Print results as JSON, one value a line; the last is the summary.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}
