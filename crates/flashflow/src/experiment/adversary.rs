//! `flashflow experiment adversary`.

use super::Common;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::Output;
use clap::Args;
use report::experiment::ExperimentReport;

/// What do relays that lie gain?
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow experiment adversary --quick --out results")]
pub(super) struct Options {}

pub(super) fn run(
    _options: &Options,
    _common: &Common,
    _output: &Output,
    _interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    Err(Error::Usage("not built yet".to_owned()))
}
